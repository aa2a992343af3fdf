"""The game "Which bug is it?": its code is what the check judged, and it tells nothing early."""

import html
import math
import re

import numpy as np
import pytest
import torch

from course_lib.authoring import which_bug
from course_lib.authoring.which_bug import ROUNDS, rounds_html, source
from course_lib.checks import grade
from course_lib.exercises import find
from course_lib.workspace.errors import BuildError

TEXTS = re.compile(r"<[^>]*>")


@pytest.fixture(scope="module")
def rounds():
    return rounds_html().split("<section")[1:]


def plain(markup):
    return " ".join(html.unescape(TEXTS.sub("", markup)).replace("`", "").split())


def test_there_are_twelve_rounds_or_more_and_no_two_alike():
    assert len(ROUNDS) >= 12 and len({names[:2] for names in ROUNDS}) == len(ROUNDS)
    assert all(len(set(names)) == 5 for names in ROUNDS)


@pytest.mark.parametrize("names", ROUNDS, ids=lambda names: f"{names[0]}-{names[1]}")
def test_the_code_of_a_round_makes_its_mistake_and_does_not_tell_it(names):
    name, mistake, *_ = names
    known = {each.id: each for each in find(name).mistakes}
    code = source(known[mistake].answers[0], name)
    assert mistake not in code and "@" not in re.sub(r" @ |\w@", "", code)
    assert not set(known[mistake].message.splitlines()) & set(code.splitlines())
    inside = {"torch": torch, "np": np, "math": math, "F": torch.nn.functional}
    exec(code, inside | {"Tensor": torch.Tensor}, given := {})
    given[name].__globals__.update(given)
    assert grade(name, given[name], seed="another").mistake == mistake


def test_a_round_has_four_facts_and_the_report_says_the_right_one(rounds):
    assert len(rounds) == len(ROUNDS)
    for (name, mistake, *others), markup in zip(ROUNDS, rounds, strict=True):
        facts = [plain(fact) for fact in re.findall("<li>(.*?)</li>", markup, re.S)]
        said = {each.id: plain(each.message) for each in find(name).mistakes}
        assert set(facts) == {said[each] for each in (mistake, *others)} and len(facts) == 4
        before, report = map(plain, markup.split("<details>"))
        right = facts[int(re.search(r'data-right="(\d)"', markup)[1])]
        assert right == said[mistake] and before.count(right) == 1
        assert right in report and not any(said[other] in report for other in others)


def test_the_right_fact_has_no_fixed_place(rounds):
    places = re.findall(r'data-right="(\d)"', "".join(rounds))
    assert set(places) == set("0123")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("causal_mask", "gone", *ROUNDS[0][2:]), "no mistake `gone`"),
        (("causal_mask", "upper_triangular", "gone", *ROUNDS[0][3:]), "no mistake `gone`"),
    ],
)
def test_a_round_about_a_mistake_that_is_gone_is_refused(monkeypatch, wrong, said):
    monkeypatch.setattr(which_bug, "ROUNDS", [wrong])
    with pytest.raises(BuildError, match=f"causal_mask.py.*{said}.*which_bug.py"):
        rounds_html()


def test_a_round_that_the_check_judges_otherwise_is_refused(monkeypatch):
    report = grade("causal_mask", None)
    monkeypatch.setattr(which_bug, "grade", lambda *_, **__: report)
    with pytest.raises(BuildError, match="names `None` for the answer `upper_triangular`"):
        rounds_html()
