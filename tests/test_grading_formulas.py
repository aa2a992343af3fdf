"""Formulas of feedback pages: drawn without a network, and never a way in."""

import re
from pathlib import Path

import nbformat
import pytest
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from course_lib.grading.publishing.formulas import LONGEST, with_formulas

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("path", sorted(ROOT.glob("solutions/*/*.ipynb")), ids=lambda p: p.stem)
def test_every_formula_of_a_lesson_is_drawn(path):
    cells = nbformat.read(path, as_version=4).cells
    texts = [markdown2html_mistune(c.source) for c in cells if c.cell_type == "markdown"]
    made = [with_formulas(text) for text in texts]
    formulas = any("$" in text for text in texts)  # lesson 00 has none
    assert sum(text.count("<math") for text in made) > 10 * formulas - 1
    outside_code = [re.sub(r"<(pre|code)\b.*?</\1>|<[^>]*>", "", t, flags=re.S) for t in made]
    assert [text for text in outside_code if "$" in text] == []


def test_a_formula_becomes_mathml_inline_or_on_a_line_of_its_own():
    made = with_formulas("<p>so $a &lt; \\sqrt{d}$ and $$e^{-x}$$</p>")
    assert re.search(r'<math[^>]*display="inline".*<mo>&lt;</mo>.*<msqrt>', made)
    assert re.search(r'<math[^>]*display="block".*<msup>', made)
    assert made.startswith("<p>so <math") and made.endswith("</math></p>")


@pytest.mark.parametrize(
    "text",
    [
        "<code>$x$</code>",
        '<pre class="a">$x$ and $y$</pre>',
        '<a href="https://example.org/$x$">here</a>',
        "it costs $5 or $6",
        "escaped \\$x\\$",
        "an empty one: $$$$",
    ],
)
def test_what_is_no_formula_stays_as_it_is(text):
    assert with_formulas(text) == text


@pytest.mark.parametrize(
    "tex",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\class{a}{b}",
        r"\style{position:fixed}{x}",
        r"\text{&lt;img src=x onerror=alert(1)&gt;}",
        r"\frac{",
        "{" * 1500,
        "x" * (LONGEST + 1),
    ],
)
def test_what_asks_for_more_than_drawing_stays_text(tex):
    assert with_formulas(f"<p>${tex}$</p>") == f"<p>${tex}$</p>"


def test_markup_in_a_formula_is_drawn_as_signs():
    made = with_formulas("$&lt;script&gt;alert(1)&lt;/script&gt;$")
    assert "<script" not in made and "<mo>&lt;</mo>" in made
