"""The HTML of reports and hints: legible everywhere, nothing loaded, as complete as the text."""

import random
import re

import pytest
import torch
from pages import contrast, what_it_loads, words_of

import course_lib
from course_lib.checks import exercises, grade
from course_lib.checks.judge import html as fragment
from course_lib.checks.judge.report import Report
from course_lib.notebook import _judged_here

PAPER, EDITOR = "#ffffff", "#1f1f1f"  # the darkest common ones: JupyterLab #111111, VS Code this


@pytest.mark.parametrize("name", fragment.BARS)
def test_a_bar_can_be_told_from_light_and_dark_backgrounds(name):
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
    """Return text as the helper that reads HTML expects it, without the marks around code."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("`", "")


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_report_says_the_same_as_text_and_as_html(answer):
    report = grade("causal_mask", ANSWERS[answer])
    page = report.html()
    assert words_of(page) == words_of(plain(report.text()))
    assert what_it_loads(page) == []
    assert not re.search(r"(?<!border-left:4px solid )#[0-9a-f]{3,6}\b", page)  # no colour of text


def test_hints_are_folded_in_a_report_one_by_one():
    for name, exercise in exercises().items():
        page = grade(name, None).html(exercise.hints)
        summaries = re.findall("<details.*?><summary>(.*?)</summary>", page)
        assert summaries == [
            "Hint 1: the concept",
            "Hint 2: where to look",
            "Hint 3: a last push",
        ]
        assert words_of(plain(" ".join(exercise.hints))) <= words_of(page)
    assert "<details" not in grade("causal_mask", ANSWERS["correct"]).html(("a", "b", "c"))


def test_no_stripe_or_color_of_jupyter_reaches_a_matrix():
    page = grade("causal_mask", ANSWERS["wrong"]).html()
    tags = re.findall("<(?:tr|td)\\b.*?>", page)
    assert len(tags) > 4 and all("background:transparent!important" in tag for tag in tags)


@pytest.mark.parametrize("most", [1, 2, 5, 22])
def test_points_by_part_add_up_to_the_points(most):
    generator = random.Random(most)
    for _ in range(500):
        weights = [generator.random() for _ in range(generator.randint(2, 4))]
        shares = [weight / sum(weights) for weight in weights]
        kept = [generator.choice([0.0, 1.0, generator.random()]) for _ in shares]
        earned = [share * part for share, part in zip(shares, kept, strict=True)]
        parts = dict(zip("abcd", zip(earned, shares, strict=True), strict=False))
        report = Report("x", "incorrect", min(sum(earned), 0.99), most, parts=parts)
        found = re.findall(r"(\d+\.\d)/(\d+\.\d)", report.text())
        pairs = [(float(one), float(of)) for one, of in found]
        assert sum(one for one, _ in pairs) == pytest.approx(report.points)
        assert sum(of for _, of in pairs) == pytest.approx(most)
        assert all(one <= of for one, of in pairs)


def test_shapes_that_differ_have_a_line_of_their_own():
    report = grade("length_mask", lambda valid_lens, num_keys: torch.zeros(2, dtype=torch.bool))
    line = next(line for line in report.text().splitlines() if "the right shape is" in line)
    assert line.startswith("  The shape of your ") and words_of(line) <= words_of(report.html())


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.005)


def test_what_a_page_loads_is_found():
    bad = '<img src="https://x/y.png"><p onclick="a()" style="background:url(b)">'
    assert len(what_it_loads(bad + "<script></script>")) == 4
    assert what_it_loads('<style>p { background: url("c.png") }</style>')
    assert what_it_loads('<a href="#top"></a><img src="data:image/png;base64,AA=="> no') == []


@pytest.fixture
def shown(monkeypatch):
    """Collect what `hint` displays, as text and as HTML."""
    bundles = []
    monkeypatch.setattr(_judged_here, "_show", lambda text, page: bundles.append((text, page)))
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
