"""The HTML of reports and hints is legible, loads nothing, and is as complete as the text."""

import itertools
import random
import re
import unicodedata
import warnings

import pytest
import torch
from pages import contrast, what_it_loads, words_of
from test_checks import right_mask

import course_lib
from course_lib.checks import exercises, grade
from course_lib.checks.judge import html as fragment
from course_lib.checks.judge.report import Report
from course_lib.notebook import _judged_here


def raises(*args, **kwargs):
    raise ValueError("<script>alert(1)</script> & `this`")


def writes_to_stderr(*sizes, **named):
    warnings.warn("<b>slow path</b>", stacklevel=1)
    return right_mask(*sizes, **named)


ANSWERS = {
    "correct": writes_to_stderr,
    "wrong": lambda *sizes, **named: ~right_mask(*sizes, **named),
    "half": lambda n, num_keys=None: torch.ones(n, num_keys or n, dtype=torch.bool).tril(),
    "raises": raises,
    "of another shape": lambda *sizes, **named: torch.zeros(2, dtype=torch.bool),
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
    assert not re.search(r"(?<!border-left:4px solid )#[0-9a-f]{3,6}\b", page)  # no color of text


def test_hints_are_folded_in_a_report_one_by_one():
    for name, exercise in exercises().items():
        page = grade(name, None).html(exercise.hints)
        summaries = re.findall("<details.*?><summary>(.*?)</summary>", page)
        levels = ("the concept", "where to look", "a last push")
        assert summaries == [f"Hint {n}: {words}" for n, words in enumerate(levels, start=1)]
        assert words_of(plain(" ".join(exercise.hints))) <= words_of(page)
    assert "<details" not in grade("causal_mask", ANSWERS["correct"]).html(("a", "b", "c"))


def test_no_stripe_or_color_of_jupyter_reaches_a_matrix():
    page = grade("causal_mask", ANSWERS["wrong"]).html()
    tags = re.findall("<(?:tr|td)\\b.*?>", page)
    assert len(tags) > 4 and all("background:transparent!important" in tag for tag in tags)


def test_a_mark_stands_apart_from_its_entry_and_stays_on_its_line():
    space, sign = fragment.MARK
    assert space.isspace() and sign == "≠"
    assert "NO-BREAK" in unicodedata.name(space)


def test_the_points_by_part_say_what_hygiene_is():
    assert (
        "hygiene (inputs, dtype and device unchanged) 0."
        in grade("causal_mask", ANSWERS["wrong"]).text()
    )


@pytest.mark.parametrize("overridden", [False, True])
@pytest.mark.parametrize("most", [1, 2, 5, 22])
def test_points_by_part_add_up_to_the_points(most, overridden):
    generator = random.Random(most)
    for _ in range(500):
        cuts = sorted(generator.sample(range(1, 10 * most), generator.randint(1, 3)))
        if overridden:  # the parts are no longer worth whole tenths of a point
            cuts = [cut + generator.random() / 2 for cut in cuts]
        cuts = [0, *cuts, 10 * most]
        shares = [(later - cut) / 10 / most for cut, later in itertools.pairwise(cuts)]
        kept = [generator.choice([0.0, 1.0, generator.random()]) for _ in shares]
        earned = [share * part for share, part in zip(shares, kept, strict=True)]
        parts = dict(zip("abcd", zip(earned, shares, strict=True), strict=False))
        report = Report("x", "incorrect", min(sum(earned), 0.99), most, parts=parts)
        found = re.findall(r"(\d+\.\d)/(\d+\.\d)", report.text())
        pairs = [(float(one), float(of)) for one, of in found]
        assert sum(one for one, _ in pairs) == pytest.approx(report.points) and report.points < most
        assert sum(of for _, of in pairs) == pytest.approx(most)
        assert all(one <= of for one, of in pairs)
        if not overridden:
            assert [of for _, of in pairs] == pytest.approx([share * most for share in shares])
            full = [pair for pair, part in zip(pairs, kept, strict=True) if part == 1]
            assert sum(earned) > 0.99 or all(one == of for one, of in full)


def test_a_bar_can_be_told_from_light_and_dark_backgrounds_by_the_contrast_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.005)
    for color in fragment.BARS.values():  # JupyterLab's dark ground is #111111, VS Code's #1f1f1f
        assert min(contrast(color, ground) for ground in ("#ffffff", "#1f1f1f")) >= 3


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_hint_says_the_same_as_text_and_as_html_in_three_levels(monkeypatch, level):
    shown = []
    monkeypatch.setattr(_judged_here, "_show", lambda text, page: shown.append((text, page)))
    names = [*exercises(), "mask_softmax"]
    for name in names:
        course_lib.hint(name, level)
    texts = dict(zip(names, shown, strict=True))
    assert 'did you mean "masked_softmax"' in texts.pop("mask_softmax")[0]
    for text, page in texts.values():
        assert ("levels 1 to 3" if level == 4 else f"Hint {level} of 3") in text
        assert words_of(plain(text)) == words_of(page) and what_it_loads(page) == []
    if level == 3:  # code keeps its lines
        code = exercises()["score_variance"].hints[2]
        text, page = texts["score_variance"]
        assert code in text and code in page and "<pre" in page
