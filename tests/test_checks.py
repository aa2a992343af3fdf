"""The check engine: outcomes, scores and reports, and isolation from the answer's effects."""

import math
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import course_lib
from course_lib.authoring.paste import solution_source
from course_lib.authoring.variants import variants
from course_lib.checks import exercises, grade
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import NOT_WORDED, judge_observed
from course_lib.checks.observe.call import observe
from course_lib.exercises import find

ROOT = Path(__file__).parent.parent


def right_mask(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(
        num_keys - num_queries
    )


def test_the_same_seed_gives_the_same_report_and_another_seed_other_inputs():
    def wrong(scores, valid_lens=None, mask=None):
        return torch.softmax(scores, -1)

    first, again, other = (grade("masked_softmax", wrong, seed=s) for s in ("a", "a", "b"))
    assert first.as_dict() == again.as_dict()
    assert prepare(find("masked_softmax"), "a") is prepare(find("masked_softmax"), "a")
    runs = [prepare(find("masked_softmax"), seed) for seed in ("a", "b")]
    probes = [next(probe for probe, _ in run if probe.name == "problem_2") for run in runs]
    assert not np.array_equal(*(probe.args["scores"].data for probe in probes))
    assert other.findings[0].id == first.findings[0].id == "nothing_masked"


def wrong_mask(num_queries, num_keys=None, *, device=None):
    return ~right_mask(num_queries, num_keys, device=device)


def raises(num_queries, num_keys=None, *, device=None):
    return torch.ones(num_queries).trill()


def borrows(num_queries, num_keys=None, *, device=None):
    return course_lib.causal_mask(num_queries, num_keys, device=device)


def chatty(num_queries, num_keys=None, *, device=None):
    warnings.warn("slow path", stacklevel=1)
    print("progress", file=sys.stderr)
    return right_mask(num_queries, num_keys, device=device)


@pytest.mark.parametrize(
    ("answer", "outcome", "score", "said"),
    [
        (raises, "raised", 0.0, ["trill", "AttributeError"]),
        (
            borrows,
            "not_attempted",
            0.0,
            ["course's own", "Run the cell with your own definition again"],
        ),
        (chatty, "correct", 1.0, ["slow path"]),
        (None, "not_attempted", 0.0, []),
    ],
)
def test_a_report_says_what_became_of_an_answer(answer, outcome, score, said):
    report = grade("causal_mask", answer)
    text = report.text()
    assert (report.outcome, report.score) == (outcome, score), text
    assert all(words in text for words in said) and "observe.py" not in text, text


def fails(*_args, **_kwargs):
    raise ZeroDivisionError("ours")


JUDGE = "course_lib.checks.judge"


@pytest.mark.parametrize("broken", ["find_violations", "prepare", "score_of", "_still_a_stub"])
@pytest.mark.parametrize("afar", [True, False])
def test_our_own_fault_is_called_ours_and_leaves_the_exercise_ungraded(monkeypatch, broken, afar):
    exercise = find("causal_mask")
    probes = [probe for probe, _ in prepare(exercise, "1")]
    monkeypatch.setattr(f"{JUDGE}.verdict.{broken}", fails)
    seen = {probe.name: observe(wrong_mask, probe) for probe in probes}
    report = judge_observed(exercise, "1", None, seen) if afar else grade(exercise.name, wrong_mask)
    assert (report.outcome, report.points) == ("checker_failed", 0.0)
    assert "(not graded)" in report.text() and "This is our mistake" in report.text()
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert course_lib.check("causal_mask", wrong_mask) == 0.0  # never the full marks


WORDS = [
    "contract.describe",
    "explain.find_violations",
    "example.in_columns",
    "example.numbers_beside",
    "example.text_of_input",
    "verdict.example_of",
    "verdict.explain",
    "verdict.findings_of",
    "verdict.notes_of",
    "violations.describe",
    "violations.text_of_options",
]


@pytest.mark.parametrize("broken", WORDS)
def test_a_fault_of_wording_changes_neither_outcome_nor_points(monkeypatch, broken):
    names = ("causal_mask", "is_causal", "DotProductAttention", "attention_cost")
    answers = [(n, v.answer) for n in names for v in [*variants(ROOT, n)][::4]]
    answers += [("DotProductAttention", StoresATuple), ("causal_mask", lambda *a, **k: [[1]])]
    right = [grade(*each) for each in answers]
    monkeypatch.setattr(f"{JUDGE}.{broken}", fails)
    reports = [grade(*each) for each in answers]
    for report, before in zip(reports, right, strict=True):
        assert (report.outcome, report.score) == (before.outcome, before.score)
        assert report.parts == before.parts and bool(report.findings) == bool(before.findings)
        if NOT_WORDED in report.notes:
            assert not report.mistake and all(f.message and not f.hint for f in report.findings)
    noted = any(NOT_WORDED in report.notes for report in reports)
    assert noted or any(f.id == "not_comparable" for report in reports for f in report.findings)


class StoresATuple(torch.nn.Module):
    """One comma too many."""

    def __init__(self, dropout=0.0, *, more=1.0):
        super().__init__()
        self.more = torch.nn.Parameter(torch.tensor(more))

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = (queries @ keys.mT).softmax(-1)
        self.attention_weights = (weights.detach(),)
        return weights @ values


@pytest.mark.parametrize("name", list(exercises()))
def test_the_courses_own_version_is_refused(name):
    report = grade(name, getattr(course_lib, name))
    assert report.score == 0.0 and report.findings[0].id == "course_version"


def test_a_lessons_answers_are_checked_together(monkeypatch, capsys):
    from course_lib.notebook import _judged_here

    space = {"torch": torch, "math": math, "Tensor": torch.Tensor}
    exec("from jaxtyping import Bool, Float, Int\nfrom course_lib import length_mask", space)
    reference = space["length_mask"]
    answers = {}
    for name in ("length_mask", "masked_softmax"):
        exec(solution_source(name), space)
        answers[name] = space[name]
    space["length_mask"] = reference
    monkeypatch.setattr(_judged_here, "checked", _judged_here.CheckedAnswers(last=answers))
    monkeypatch.setattr(_judged_here, "_namespace", lambda: space)
    assert course_lib.check("02_masked_softmax") == 1.0
    assert space["length_mask"] is reference, "the reference version must be back afterwards"

    answers["length_mask"] = lambda valid_lens, max_len: (
        torch.arange(max_len) <= valid_lens.unsqueeze(-1)
    )
    assert course_lib.check("02_masked_softmax") < 1.0
    course_lib.check("masked_softmax", lambda scores, valid_lens=None, mask=None: 0 * scores)
    capsys.readouterr()
    course_lib.check("02_masked_softmax")
    assert "It fails for the same reason as `masked_softmax`." in capsys.readouterr().out
    answers.clear()
    assert course_lib.check("02_masked_softmax") == 0.0
    assert "needs your own `length_mask`, `masked_softmax`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "answer", "least", "most", "said"),
    [
        ("DotProductAttention", "OtherName", 0.4, 0.65, ""),
        ("blocked_attention", "the_plain_way", 0, 1 / 3, "earns at most a third"),
        ("RecomputedAttention", "RecomputesEverything", 0, 1 / 3, "earns at most a third"),
    ],
)
def test_work_that_misses_the_point_earns_a_part(name, answer, least, most, said):
    written = {v.name: v.answer for v in variants(ROOT, name)}
    report = grade(name, written[answer])
    assert least < report.score <= most and said in report.text()


def test_one_failing_edge_costs_at_least_half_of_the_edges():
    def only_below_1000(scores, axis=-1):
        exponentials = np.exp(scores)
        return exponentials / exponentials.sum(axis=axis, keepdims=True)

    report = grade("stable_softmax", only_below_1000)
    assert report.mistake == "no_maximum_subtracted"
    assert 0.4 < report.score <= 1 - exercises()["stable_softmax"].marking.shares["edges"] / 2
