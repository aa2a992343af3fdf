"""Feedback pages show Markdown, formulas, figures and outputs, and run nothing of a student's."""

import re
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from grading_course import graded_cell, nbgrader_cell
from nbconvert.filters import markdown2html_mistune
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
    new_raw_cell,
)

from course_lib.checks.judge.report import Finding, Report
from course_lib.grading import clean_outputs
from course_lib.grading.publishing.course_figures import figures_of
from course_lib.grading.publishing.feedback_page import Marks, feedback_page
from course_lib.grading.publishing.formulas import LONGEST as LONGEST_FORMULA
from course_lib.grading.publishing.formulas import MOST
from course_lib.grading.publishing.markup import LONGEST, highlighted, lesson_text, written
from course_lib.grading.write_checks import write_checks
from course_lib.plotting.figures import Plot, figure_html

ROOT = Path(__file__).resolve().parent.parent


def test_a_written_answer_keeps_its_markdown():
    page = written("so **bold** ~~old~~\n\n- one\n\n2. two\n\n| a |\n|:-:|\n| b |")
    for part in ("<strong>bold</strong>", "<del>old</del>", "<li>one</li>", '<ol start="2">'):
        assert part in page
    assert '<td align="center">b</td>' in page
    assert 'href="https://a.org/?b=c&amp;d"' in written("[x](https://a.org/?b=c&d)")


HOSTILE = [
    "<script>f()</script>",
    '<p onclick="f()">a</p> `<b>` <!-- x --> <?php ?>',
    "<math><mtext><style><img src=x onerror=f()></style></mtext></math>",
    "[x](&#106;avascript:f())",
    "[x][1]\n\n[1]:\n  data:text/html,f()",
    "![x](https://example.org/x.png)",
    '![x](x"onerror="f())',
]


@pytest.mark.parametrize("source", HOSTILE)
def test_nothing_in_markdown_runs_or_is_fetched(source):
    in_formgrader = markdown2html_mistune(clean_outputs.sanitize_prose(source))
    for page in (written(source), lesson_text(source), in_formgrader):
        tags = " ".join(re.findall("<[^>]*>", page))
        for part in ("script", "<style", "<img", "<svg", "<math", "onclick", "data:", "<!-", "<?"):
            assert part not in tags
        assert not re.search('href="(?!https:)', tags)


def test_tags_are_text_in_a_written_answer_and_fold_an_answer_of_the_lesson():
    source = "<details><summary>Answer</summary>\n\n*b*\n\n</details>"
    assert "<details" not in written(source) and "details&gt;" in written(source)
    folded = "<details><summary>Answer</summary>\n<p><em>b</em></p>\n</details>\n"
    assert lesson_text(source) == folded


def test_code_is_highlighted_and_escaped():
    page = highlighted("def f(): return '<b>' # \u202e\ud800x")
    assert '<span class="k">def</span>' in page and "&lt;b&gt;" in page
    assert "\u202e" not in page and "\ud800" not in page


@pytest.mark.parametrize("render", [written, lesson_text, highlighted])
def test_a_text_that_is_too_long_is_only_escaped(render):
    page = render("*<b>*" + "a" * LONGEST)
    assert page.startswith('<pre class="as-written" tabindex="0">*&lt;')
    assert "<b>" not in page and "<em>" not in page


@pytest.mark.parametrize("path", sorted(ROOT.glob("solutions/*/*.ipynb")), ids=lambda p: p.stem)
def test_every_formula_of_a_lesson_is_drawn(path):
    cells = nbformat.read(path, as_version=4).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    made = [lesson_text(text) for text in texts]
    formulas = any("$" in text for text in texts)  # lesson 00 has none
    assert sum(text.count("<math") for text in made) > 10 * formulas - 1
    outside_code = [re.sub(r"<(pre|code)\b.*?</\1>|<[^>]*>", "", t, flags=re.S) for t in made]
    assert [text for text in outside_code if "$" in text] == []


def test_a_formula_becomes_mathml_inline_or_on_a_line_of_its_own():
    made = written("so $a < \\sqrt{d}_i$ and\n\n$$\ne^{-x_i}\n$$")
    assert re.search(r'<p>so <math[^>]*display="inline".*<mo>&lt;</mo>.*<msqrt>', made)
    assert re.search(r'<math[^>]*display="block".*<msup>', made)


NOT_DRAWN = [r"\href{javascript:alert(1)}{x}", r"\class{a}{b}", r"\frac{", "{" * 900]
NOT_DRAWN += [r"\style{position:fixed}{x}", "x" * (LONGEST_FORMULA + 1)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`$HOME` and `$PATH`", "<code>$HOME</code> and <code>$PATH</code>"),
        ("```\n$x$ and $y$\n```", "$x$ and $y$\n"),
        ("it costs $5 or $6", "it costs $5 or $6"),
        ("escaped \\$x\\$", "escaped $x$"),
        ("an empty one: $$$$", "an empty one: $$$$"),
        ("$a\n\nb$", "<p>$a</p>"),
        *((f"${tex}$", f"<p>${tex}$</p>\n") for tex in NOT_DRAWN),
    ],
)
def test_what_is_not_a_formula_or_does_more_than_draw_stays_text(text, shown):
    assert shown in written(text) and "<math" not in written(text)


def test_markup_in_a_formula_is_drawn_as_signs():
    made = lesson_text("$<script>alert(1)</script>$ $\\text{<img src=x onerror=alert(1)>}$")
    assert "<script" not in made and "<img" not in made and "<mo>&lt;</mo>" in made


def test_formulas_are_limited_in_number_and_cannot_be_repeated_by_a_mark():
    made = written(" ".join(f"$a_{number}$" for number in range(MOST + 5)))
    assert made.count("<math") == MOST and f"$a_{MOST}$" in made
    assert written("$x$ &#xE000;0&#xE001; &#xE000;7&#xE001;").count("<math") == 1


ABOUT = {
    "assignment": "03_parts",
    "name": "Ada <Lovelace>",
    "submitted": datetime(2026, 3, 2, 18, 59),
    "score": 2.0,
    "max_score": 8.0,
    "late_penalty": 0,
}
REPORTS = [
    Report("right", "correct", 1.0, 2),
    Report("untouched", "not_attempted", 0.0, 2, [Finding("f", "It still raises.", "", "values")]),
    Report("wrong", "incorrect", 0.0, 2, [Finding("f", "Rows are swapped.", "Why?", "values")]),
]


@pytest.fixture(scope="module")
def whole():
    """Make a page with an answer that is right, one untouched, one wrong, and one that waits."""
    cells = [new_markdown_cell("# 03 · Four <parts>"), new_markdown_cell("## 1. One\n\nProse.")]
    marks = {"why": {"score": 0.0, "points": 2.0, "waiting": True, "comment": None}}
    for report in REPORTS:
        answer = nbgrader_cell(
            f"def {report.exercise}(): pass", f"{report.exercise}-answer", solution=True
        )
        cells += [answer, graded_cell(f'check("{report.exercise}")', report.exercise)]
        cells[-1].execution_count = 1
        score = {"score": report.points, "points": 2.0, "waiting": False}
        marks |= {f"{report.exercise}-answer": {"comment": None}, report.exercise: score}
    about = {"grade_id": "why", "grade": True, "solution": True, "points": 2}
    written = new_markdown_cell("Because.", metadata={"nbgrader": about})
    notebook = new_notebook(cells=[*cells, new_markdown_cell("### Why so?"), written])
    write_checks(notebook, {report.exercise: report for report in REPORTS})
    return feedback_page(notebook, Marks(ABOUT, marks), {})


def rows(page):
    """Return the rows of the summary: state, target of the name's link, and words."""
    found = re.findall(r'<tr class="(\w+)">.*?href="#([\w-]+)">(.*?)</tr>', page, re.DOTALL)
    return [(state, place, re.sub("<[^>]*>", " ", rest).split()) for state, place, rest in found]


def test_the_top_of_a_page_has_title_name_dates_and_a_bar_of_the_points(whole):
    assert "<h1>03 · Four &lt;parts&gt;</h1>" in whole
    assert "Feedback for <strong>Ada &lt;Lovelace&gt;</strong>" in whole
    assert "Submitted 2 March 2026, 18:59 UTC." in whole
    assert re.search(r"This page was written on \d+ [A-Z]\w+ 20\d\d\.", whole)
    bar = re.findall(r'<span class="(\w+)" style="width: ([\d.]+)%">', whole)
    assert bar == [("right", "25.0"), ("pending", "25.0")]
    (row,) = [words for state, _, words in rows(whole) if state == "pending"]
    assert row == ["Why", "so?", "pending", "up", "to", "2"]
    assert "<strong>2 of 8 points</strong> so far." in whole and "2 points are pending" in whole


def test_what_is_wrong_comes_first_and_what_is_right_last(whole):
    states = ["wrong", "blank", "pending", "right"]
    assert [state for state, *_ in rows(whole)] == states
    assert re.findall(r'<details class="part (\w+)"', whole)[:4] == states
    assert re.findall('<span class="sign" aria-hidden="true">(.)</span><a', whole) == list("✗○…✓")


def test_each_name_leads_to_the_students_own_code_or_text(whole):
    places = [place for _, place, _ in rows(whole)]
    assert places == ["wrong-answer", "untouched-answer", "why", "right-answer"]
    for place in places:
        (target,) = re.findall(f'<div id="{place}">(.*?)</div>', whole, re.DOTALL)
        assert "Because." in target or 'class="k">def' in target


def test_only_what_is_wrong_is_unfolded(whole):
    page = BeautifulSoup(whole, "html.parser")
    for folded in page.select("details:not([open]) > :not(summary)"):
        folded.decompose()
    shown = page.get_text()
    assert "def wrong()" in shown and shown.count("Rows are swapped.") == 2
    for folded in ("def right()", "def untouched()", "Because.", "Prose."):
        assert folded in re.sub("<[^>]*>", "", whole) and folded not in shown
    assert "1. One" in shown


def test_only_a_demo_cell_of_the_solution_shows_the_figure_of_the_course(tmp_path):
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40"><text>5 &lt; 6</text></svg>'
    page = figure_html(Plot(svg, alt='a "peak" at 5 < 6'))
    demo, outputs = {"tags": ["demo"]}, [new_output("display_data", {"text/html": page})]
    kinds = {"drawn": demo, "hidden": demo, "text": demo, "plain": {}}
    source = [new_code_cell(id=i, metadata=kinds[i], outputs=outputs) for i in kinds]
    (tmp_path / "01_toy").mkdir()
    nbformat.write(new_notebook(cells=source), tmp_path / "01_toy/01_toy.ipynb")
    outputs = [new_output("stream", text="mine"), new_output("display_data", {"text/plain": "x"})]
    cells = [
        new_code_cell(id="drawn", metadata=demo, outputs=outputs),
        new_code_cell(id="hidden", metadata={"tags": ["hide-input"]}),
        new_code_cell(id="own-1", metadata=demo),
        new_code_cell(id="plain", metadata=demo),
        new_markdown_cell(id="text"),
    ]
    figures = figures_of(tmp_path / "01_toy" / "01_toy.ipynb")
    shown = feedback_page(new_notebook(cells=cells), Marks(ABOUT, {}), figures)
    assert shown.count("<pre>mine</pre>") == shown.count("<figure") == 1
    assert shown.index("<pre>mine</pre>") < shown.index("<figure") and "<pre>x</pre>" not in shown
    assert 'aria-label="a &quot;peak&quot; at 5 &lt; 6"' in shown and "<script" not in shown
    assert "<text>5 &lt; 6</text></svg><figcaption>From the course's own run" in shown
    assert figures_of(tmp_path / "gone.ipynb") == {}


def test_a_page_shows_outputs_and_runs_nothing_of_them():
    outputs = [
        new_output("stream", text="\x1b[31m<b>red</b>"),
        new_output("error", ename="E", evalue="<b>", traceback=["one", "\x1b[1mtwo <b>"]),
        new_output("display_data", {"image/png": "AAAA"}, metadata={"image/png": {"alt": '"><b>'}}),
        new_output("display_data", {"image/jpeg": '"><b>', "text/plain": "x"}),
        new_output("execute_result", {"text/plain": "<b>3</b>"}),
        new_output("display_data", {"application/javascript": "<b>", "image/svg+xml": "<b>"}),
    ]
    cells = [new_code_cell("'<b>'", outputs=outputs), new_raw_cell("<b>raw")]
    about = ABOUT | {"assignment": "<i>", "score": 1.0, "max_score": 2.0, "late_penalty": 0.5}
    page = feedback_page(new_notebook(cells=cells), Marks(about, {}), {})
    assert "<b>" not in page and "\x1b" not in page
    for part in (
        "<h1>&lt;i&gt;</h1>",
        "<strong>1 of 2 points</strong>",
        "Late penalty: 0.5 points.",
        "<pre>&lt;b&gt;red&lt;/b&gt;</pre>",
        "<pre>one\ntwo &lt;b&gt;</pre>",
        '<img src="data:image/png;base64,AAAA" alt="&#34;&gt;&lt;b&gt;">',
        '<img src="data:image/jpeg;base64,&#34;&gt;&lt;b&gt;" alt="a picture">',
        "<pre>&lt;b&gt;3&lt;/b&gt;</pre>",
        "&lt;b&gt;raw</pre>",
    ):
        assert part in page


def test_outputs_keep_text_and_pictures_only():
    data = {"text/html": "<b>", "text/plain": "b", "image/png": "AAAA", "image/svg+xml": "<svg>"}
    bad = {"image/png": 'x" onerror="f()', "application/javascript": "f()"}
    outputs = [new_output("display_data", data, metadata={"x": 1}), new_output("display_data", bad)]
    (kept,) = clean_outputs.sanitize_outputs([*outputs, None, {"output_type": "what"}])
    assert kept.data == {"text/plain": "b", "image/png": "AAAA"}
    assert kept.metadata == {"image/png": {"alt": "b"}}


def test_outputs_are_cut_and_control_characters_and_too_many_colors_are_removed():
    texts = ["\x1b[31mred\x1b[0m\x1b[2J\x00\u202e 10%\r20%\n", "x" * clean_outputs.MOST]
    stream, rest = clean_outputs.sanitize_outputs(
        [new_output("stream", text=text) for text in texts]
    )
    assert stream.text == "20%\n" and "left out" in rest.text
    assert clean_outputs.plain_text("\x1b[31mred\x1b[0m\x07", colors=True) == "\x1b[31mred\x1b[0m"
    assert clean_outputs.sanitize_tree({"a": ["\x1b[2Jx", 1]}) == {"a": ["x", 1]}
    (kept,) = clean_outputs.sanitize_outputs([new_output("stream", text="\x1b[31m." * 5000)])
    assert kept.text == "." * 5000  # so many colors would stop formgrader
