"""Formulas of feedback pages: drawn without a network, and never a way in."""

import re
from pathlib import Path

import nbformat
import pytest

from course_lib.grading.publishing.formulas import LONGEST, MOST
from course_lib.grading.publishing.markup import lesson_text, written

ROOT = Path(__file__).resolve().parent.parent


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`$x$`", "<code>$x$</code>"),
        ("`$HOME` and `$PATH`", "<code>$HOME</code> and <code>$PATH</code>"),
        ("```\n$x$ and $y$\n```", "$x$ and $y$\n"),
        ("it costs $5 or $6", "it costs $5 or $6"),
        ("escaped \\$x\\$", "escaped $x$"),
        ("an empty one: $$$$", "an empty one: $$$$"),
        ("$a\n\nb$", "<p>$a</p>"),
    ],
)
def test_what_is_not_a_formula_stays_as_it_is(text, shown):
    assert shown in written(text) and "<math" not in written(text)


@pytest.mark.parametrize(
    "tex",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\class{a}{b}",
        r"\style{position:fixed}{x}",
        r"\frac{",
        "{" * 900,
        "x" * (LONGEST + 1),
    ],
)
def test_a_formula_that_does_more_than_draw_stays_text(tex):
    assert written(f"${tex}$") == f"<p>${tex}$</p>\n"


def test_markup_in_a_formula_is_drawn_as_signs():
    made = lesson_text("$<script>alert(1)</script>$ $\\text{<img src=x onerror=alert(1)>}$")
    assert "<script" not in made and "<img" not in made and "<mo>&lt;</mo>" in made


def test_formulas_of_one_text_are_limited_in_number():
    made = written(" ".join(f"$a_{number}$" for number in range(MOST + 5)))
    assert made.count("<math") == MOST and f"$a_{MOST}$" in made


def test_a_mark_that_a_student_writes_does_not_repeat_a_formula():
    assert written("$x$ &#xE000;0&#xE001; &#xE000;7&#xE001;").count("<math") == 1
