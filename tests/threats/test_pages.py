"""S02, S03: hostile text costs at most its own page, and points are saved before pages."""

import time

import pytest
from grading_course import LESSON, QUICK, hand_in, honest, make_course, scores
from nbformat.v4 import new_markdown_cell, new_output

from course_lib.grading import clean_outputs
from course_lib.grading.driver import grade
from course_lib.grading.publishing import markup, publish

N = 1_000_000
CLEANED = {
    "base64": "A" + " " * N + "!",
    "escapes": "\x1b[" * (N // 4) + "\x1b[" + "0;" * (N // 4),
    "colors": "\x1b[31m." * (N // 6),
    "tags": "<" * N,
    "links": "](" * (N // 4) + "]:" + " " * (N // 2),
    "pictures": "![" * (N // 2),
}
RENDERED = {  # each is worst for one step: the parser, the sanitizer, the formulas, the highlighter
    "quotations": ">" * N,
    "emphasis": "*a **a " * (N // 7),
    "table": "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + "x\n" * N,
    "links": "[a](b)" * (N // 6),
    "TeX delimiters": "\\\\(" * (N // 3),
    "long formulas": f"${'x' * 990}$ " * (N // 990),
    "many formulas": "".join(f"${number}$" for number in range(N // 6)),
    "marks": f"${'x' * 900}$" + "&#xE000;0&#xE001;" * (N // 17),
    "dots": "if 0: " + "." * N,
    "quotes": "f'" * (N // 2),
}


@pytest.mark.parametrize("name", CLEANED)
def test_s02_cleaning_takes_no_longer_than_the_text_is_long(name):
    # 1 MB each takes at most 5 s of CPU time. In quadratic time, none would end.
    text = CLEANED[name]
    shown = new_output("display_data", {"image/png": text, "text/plain": text})
    started = time.process_time()
    clean_outputs.sanitize_outputs([shown, new_output("stream", text=text)])
    clean_outputs.sanitize_prose(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", RENDERED)
def test_s03_a_text_is_rendered_in_bounded_time_and_size(name):
    # A longer text is only escaped: see `tests/test_grading_pages.py`.
    text = RENDERED[name][: markup.LONGEST]
    for render in (markup.written, markup.lesson_text, markup.highlighted):
        started = time.process_time()
        html = render(text)
        assert time.process_time() - started < 2
        assert len(html) < 30 * len(text)


@pytest.fixture(scope="module")
def graded(tmp_path_factory, warm):
    """Return a class of correct answers: (root, points before each page)."""
    root = make_course(tmp_path_factory.mktemp("pages"))
    for student in ("a-honest", "broken", "many", "z-honest"):
        notebook = honest(root)
        if student == "many":
            notebook.cells += [new_markdown_cell("*a* " * 2000) for _ in range(20)]
        hand_in(root, student, notebook)
    points, make = [], publish.feedback_page

    def noted(notebook, marks, figures):
        points.append(list(scores(root).values()))
        if len(points) == 2:  # of "broken"
            notebook = "not a notebook"
        return make(notebook, marks, figures)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "feedback_page", noted)
        grade(root, LESSON, settings=QUICK)
    return root, points


def test_s03_points_land_before_any_page(graded):
    _, points = graded
    for before in points:
        assert before.count(2) == 2 * len(points)


def test_s03_a_page_that_cannot_be_rendered_is_plain_and_says_so(graded):
    root, points = graded
    pages = (root / "feedback").glob("*/*/*.html")
    made = {page.parts[-3]: page.read_text(encoding="utf-8") for page in pages}
    assert len(made) == len(points)
    for page in made.values():
        assert "4 of 6 points" in page and "causal_mask" in page
    plain = [student for student, page in made.items() if "cannot be shown here" in page]
    assert plain == ["broken"] and "Your points are not affected" in made["broken"]
    assert "*a* *a*" in made["many"] and "<em>" not in made["many"]  # too long to be rendered
