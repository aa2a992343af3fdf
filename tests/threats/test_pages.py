"""S02, S03, S23: hostile text costs its own page at most; points land before any page is made."""

import json
import re
import time

import experiment
import pytest
from grading_course import LESSON, QUICK, cell_of, hand_in, honest, make_course
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_lib.grading import sanitize
from course_lib.grading.course import Course
from course_lib.grading.publishing import markup, publish
from course_lib.grading.run import grade

N = 1_000_000
CLEANED = {
    "base64": "A" + " " * N + "!",
    "padding": "A" * (N // 2) + "= " * (N // 4) + "!",
    "escapes": "\x1b[" * (N // 4) + "\x1b[" + "0;" * (N // 4),
    "colors": "\x1b[31m." * (N // 6),
    "returns": "\r\n\r" * (N // 3),
    "tags": "<" * N,
    "links": "](" * (N // 4) + "]:" + " " * (N // 2),
    "pictures": "![" * (N // 2),
}
# Each is worst for one step: the parser, the sanitizer, the formulas, the highlighter.
RENDERED = {
    "quotations": ">" * N,
    "quoted lists": "> - " * (N // 4),
    "brackets": "[" * N,
    "emphasis": "*a **a " * (N // 7),
    "table": "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + "x\n" * N,
    "links": "[a](b)" * (N // 6),
    "TeX delimiters": "\\\\(" * (N // 3),
    "dollars": "$" * N,
    "open formulas": "$a " * (N // 3),
    "long formulas": f"${'x' * 990}$ " * (N // 990),
    "many formulas": "".join(f"${number}$" for number in range(N // 6)),
    "marks": f"${'x' * 900}$" + "&#xE000;0&#xE001;" * (N // 17),
    "dots": "if 0: " + "." * N,
    "quotes": "f'" * (N // 2),
    "names": "'\\N{" * (N // 4),
    "questions": "a?" * (N // 2),
}
REMOTE = "![x](https://198.51.100.7/p.png) ![y][1]\n\n[1]: https://198.51.100.7/q.png"
SCRIPT = "<script>f()</script> <img src=x onerror=f()> [x](javascript:f()) \ud800"
ALIVE = re.compile(
    r"<script|<img[^>]*onerror|href=.?javascript|<(?:img|link)[^>]*(?:src|href)=.?\w+:/"
)


@pytest.mark.parametrize("name", CLEANED)
def test_s02_cleaning_takes_no_longer_than_the_text_is_long(name):
    """1 MB each, in 5 s of processor time: with the square of its length none would end."""
    text = CLEANED[name]
    shown = new_output("display_data", {"image/png": text, "text/plain": text})
    said = new_output("stream", text=text)
    started = time.process_time()
    sanitize.sanitize_outputs([shown, said])
    sanitize.sanitize_prose(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("length", [markup.LONGEST, N], ids=["longest", "too long"])
@pytest.mark.parametrize("name", RENDERED)
def test_s03_a_text_of_any_length_is_rendered_in_bounded_time_and_size(name, length):
    text = RENDERED[name][:length]
    for render in (markup.written, markup.lesson_text, markup.highlighted):
        started = time.process_time()
        html = render(text)
        assert time.process_time() - started < 2
        assert len(html) < 30 * len(text)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class in which everyone's answers are right: (root, summary, whether points came first)."""
    if why := experiment.obstacle():
        pytest.skip(why)
    root = make_course(tmp_path_factory.mktemp("pages"))
    prose = {"remote": REMOTE, "script": SCRIPT, "quotations": RENDERED["quotations"][:100_000]}
    code = {"script": f"print({SCRIPT[:-1]!r})", "dots": RENDERED["dots"][:150_000]}
    code["colors"] = "print('\\x1b[31m\\x1b[1m.' * 60_000)"
    hand_in(root, "a-honest", honest(root))
    hand_in(root, "broken", honest(root))
    hand_in(root, "z-honest", honest(root))
    for name, source in code.items():
        notebook = honest(root)
        notebook.cells.append(new_code_cell(source, id="own"))
        hand_in(root, f"code-{name}", notebook)
    for name, source in prose.items():
        notebook = honest(root)
        cell_of(notebook, "why").source = source
        notebook.cells.append(new_markdown_cell(source, id="own"))
        hand_in(root, f"prose-{name}", notebook)
    notebook = honest(root)
    notebook.cells += [new_markdown_cell("*a* " * 2000, id=f"own{n}") for n in range(20)]
    hand_in(root, "many", notebook)
    points = []
    with pytest.MonkeyPatch.context() as patch:
        make = publish.feedback_page

        def noted(notebook, marks, figures):
            with Course(root).gradebook() as gradebook:
                points.append([s.score for s in gradebook.assignment_submissions(LESSON)])
            if len(points) == 2:  # of "broken"
                notebook = "not a notebook"
            return make(notebook, marks, figures)

        patch.setattr(publish, "feedback_page", noted)
        summary = grade(root, LESSON, settings=QUICK)
    return root, summary, points


def page_of(root, student) -> str:
    return (root / "feedback" / student / LESSON / f"{LESSON}.html").read_text(encoding="utf-8")


def test_s03_points_land_before_any_page(graded):
    _, summary, points = graded
    assert {s.student: [r.points for r in s.rows] for s in summary.students} == {
        s.student: [2.0, 2.0] for s in summary.students
    }
    assert points == [[4.0] * len(summary.students)] * len(summary.students)


def test_s03_a_page_that_cannot_be_rendered_is_plain_and_says_so(graded):
    root, summary, _ = graded
    plain = []
    for student in (s.student for s in summary.students):
        page = page_of(root, student)
        assert "4 of 6 points" in page and "causal_mask" in page
        if "cannot be shown here" in page:
            plain.append(student)
            assert "Your points are not affected" in page
    assert plain == ["broken"]


def test_s03_a_notebook_that_is_too_long_is_shown_as_it_was_written(graded):
    root, _, _ = graded
    assert "*a* *a*" in page_of(root, "many") and "<em>" not in page_of(root, "many")


def test_s03_the_same_command_again_makes_no_page_twice(graded, monkeypatch):
    root, _, _ = graded
    monkeypatch.setattr(publish, "feedback_page", lambda *a: pytest.fail("a page is made again"))
    grade(root, LESSON, settings=QUICK)


def test_s23_nothing_runs_and_nothing_is_fetched_when_a_page_is_opened(graded):
    root, summary, _ = graded
    for student in (s.student for s in summary.students):
        page = page_of(root, student)
        assert re.search(
            r"http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'", page
        )
        assert not ALIVE.search(page)
    for student in ("code-script", "prose-script"):
        assert "script&gt;f()" in page_of(root, student)
    shown = json.loads(
        (root / "autograded" / "prose-remote" / LESSON / f"{LESSON}.ipynb").read_text()
    )
    assert "![" not in "".join("".join(cell["source"]) for cell in shown["cells"])
    assert "198.51.100.7" in page_of(root, "prose-remote")
