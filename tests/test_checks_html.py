"""The HTML of reports and hints: legible everywhere, nothing loaded, as complete as the text."""

import re

import pytest
import torch
from pages import what_it_loads, words_of

import course_lib
from course_lib.checks import exercises, grade
from course_lib.checks.judge import html as fragment
from course_lib.notebook import _local

PAPER, EDITOR = "#ffffff", "#1f1f1f"  # the darkest common ones: JupyterLab #111111, VS Code this


def luminance(colour):
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", fragment.BARS)
def test_a_bar_can_be_told_from_light_and_dark_backgrounds(name):
    assert contrast(PAPER, "#000000") == pytest.approx(21)
    assert contrast(fragment.BARS[name], PAPER) >= 3
    assert contrast(fragment.BARS[name], EDITOR) >= 3


def raises(*args, **kwargs):
    raise ValueError("<script>alert(1)</script> & `this`")


def writes_to_stderr(num_queries, num_keys=None, *, device=None):
    import warnings

    warnings.warn("<b>slow path</b>", stacklevel=1)
    m = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, m, dtype=torch.bool, device=device).tril(m - num_queries)


ANSWERS = {
    "correct": writes_to_stderr,
    "wrong": lambda n, num_keys=None: torch.ones(n, num_keys or n, dtype=torch.bool).triu(),
    "half": lambda n, num_keys=None: torch.ones(n, num_keys or n, dtype=torch.bool).tril(),
    "raises": raises,
    "missing": None,
}


def plain(text):
    """Text as the helper that reads HTML wants it, without the marks around code."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("`", "")


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_report_says_the_same_as_text_and_as_html(answer):
    report = grade("causal_mask", ANSWERS[answer])
    page = report.html()
    assert words_of(page) == words_of(plain(report.text()))
    assert what_it_loads(page) == []
    assert not re.search(r"(?<!border-left:4px solid )#[0-9a-f]{3,6}\b", page)  # no colour of text


def test_what_a_page_loads_is_found():
    bad = '<img src="https://x/y.png"><p onclick="a()" style="background:url(b)">'
    assert len(what_it_loads(bad + "<script></script>")) == 4
    assert what_it_loads('<style>p { background: url("c.png") }</style>')
    assert what_it_loads('<a href="#top"></a><img src="data:image/png;base64,AA=="> no') == []


@pytest.fixture
def shown(monkeypatch):
    """Collects what `hint` displays, as text and as HTML."""
    bundles = []
    monkeypatch.setattr(_local, "_show", lambda text, page: bundles.append((text, page)))
    return bundles


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_hint_says_the_same_as_text_and_as_html(shown, level):
    for name in exercises():
        course_lib.hint(name, level)
    course_lib.hint("nothing_like_it", level)
    assert len(shown) == len(exercises()) + 1
    for text, page in shown:
        assert words_of(plain(text)) == words_of(page)
        assert what_it_loads(page) == []


def test_code_in_a_hint_keeps_its_lines(shown):
    course_lib.hint("bmm_loops", 3)
    ((text, page),) = shown
    code = exercises()["bmm_loops"].hints[2]
    assert code in text and code in page and "<pre" in page
