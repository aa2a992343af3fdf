"""The check engine: outcomes, scores, reports, and that nothing an answer does gets through it."""

import cProfile
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import course_lib
from course_lib.checks import exercises, grade
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import find
from course_lib.exercises.variants import variants

ROOT = Path(__file__).parent.parent


def right_mask(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(
        num_keys - num_queries
    )


def test_a_right_answer_gets_the_full_points_as_a_float(capsys):
    points = course_lib.check("causal_mask", right_mask)
    assert isinstance(points, float) and points == exercises()["causal_mask"].points
    assert capsys.readouterr().err == ""


def test_a_wrong_answer_is_named_in_the_text_and_the_html():
    report = grade("causal_mask", lambda *sizes, **named: ~right_mask(*sizes, **named))
    assert report.outcome == "incorrect" and report.mistake == "true_means_drop"
    assert "is inverted" in report.text() and "is inverted" in report.html()
    assert "The smallest input that fails:" in report.text()


def test_the_example_of_a_mistake_is_a_plain_call_where_one_fails():
    # The edge case with the fewest numbers is not shown, because a reader would blame its 1e30.
    models = {mistake.id: mistake.model for mistake in exercises()["DotProductAttention"].mistakes}
    for name in ("bool_mask_ignored", "bool_mask_inverted"):
        example = grade("DotProductAttention", models[name]).example.text()
        assert "e+" not in example and "mask = [[" in example, (name, example)


def test_the_same_seed_gives_the_same_report_and_another_seed_other_inputs():
    def wrong(scores, valid_lens=None, mask=None):
        return torch.softmax(scores, -2)

    first, again, other = (grade("masked_softmax", wrong, seed=s) for s in ("a", "a", "b"))
    assert first.as_dict() == again.as_dict()
    assert prepare(find("masked_softmax"), "a") is prepare(find("masked_softmax"), "a")
    runs = [prepare(find("masked_softmax"), seed) for seed in ("a", "b")]
    probes = [next(probe for probe, _ in run if probe.name == "no_mask") for run in runs]
    assert not np.array_equal(*(probe.args["scores"].data for probe in probes))
    assert other.findings[0].id == first.findings[0].id == "nothing_masked+over_queries"


def test_a_stub_is_not_attempted():
    def stub(num_queries, num_keys=None, *, device=None):
        raise NotImplementedError

    report = grade("causal_mask", stub)
    assert (report.outcome, report.score) == ("not_attempted", 0.0)
    assert grade("causal_mask", None).outcome == "not_attempted"


def test_an_answer_that_always_raises_shows_the_students_own_line():
    def broken(num_queries, num_keys=None, *, device=None):
        return torch.ones(num_queries).trill()

    report = grade("causal_mask", broken)
    assert report.outcome == "raised" and report.score == 0.0
    assert "trill" in report.text() and "AttributeError" in report.text()
    assert "observe.py" not in report.text()


def test_our_own_fault_is_called_ours_and_costs_nothing(monkeypatch):
    def broken(*_args):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("course_lib.checks.judge.grade.judge", broken)
    report = grade("causal_mask", right_mask)
    assert report.outcome == "checker_failed" and report.points == report.max_points
    assert "You lose no points" in report.text()


@pytest.mark.parametrize("name", list(exercises()))
def test_the_courses_own_version_is_refused(name):
    import course_lib

    report = grade(name, getattr(course_lib, name))
    assert report.score == 0.0 and report.findings[0].id == "course_version"
    assert "Run the cell with your own definition again" in report.text()


def test_an_answer_that_calls_the_courses_own_version_is_refused():
    import course_lib

    def borrowed(num_queries, num_keys=None, *, device=None):
        return course_lib.causal_mask(num_queries, num_keys, device=device)

    report = grade("causal_mask", borrowed)
    assert report.score == 0.0 and report.findings[0].id == "course_version"


@pytest.mark.slow
def test_constants_score_nothing_anywhere():
    for name, exercise in exercises().items():
        if exercise.is_class:
            continue
        for constant in (None, 0.0, torch.zeros(1), torch.tensor(math.nan), np.zeros(3), "text"):
            report = grade(name, lambda *args, value=constant, **kwargs: value)
            assert report.points == 0.0 or (name == "combine_masks" and constant is None), name


def test_check_suggests_the_nearest_name(capsys):
    assert course_lib.check("mask_softmax") == 0.0
    assert 'did you mean "masked_softmax"' in capsys.readouterr().out


@pytest.mark.parametrize("level", [1, 2, 3])
def test_hints_have_three_levels(level, capsys):
    course_lib.hint("causal_mask", level)
    assert f"Hint {level} of 3" in capsys.readouterr().out


def test_a_hint_level_that_does_not_exist_is_explained(capsys):
    course_lib.hint("causal_mask", 4)
    assert "levels 1 to 3" in capsys.readouterr().out


def test_warnings_and_stderr_are_reported_and_cost_nothing():
    def chatty(num_queries, num_keys=None, *, device=None):
        import warnings

        warnings.warn("slow path", stacklevel=1)
        print("progress", file=sys.stderr)
        return right_mask(num_queries, num_keys, device=device)

    report = grade("causal_mask", chatty)
    assert report.score == 1.0 and any("slow path" in note for note in report.notes)


def test_points_below_the_maximum_are_never_rounded_up_to_it():
    def mutates(scores, valid_lens=None, mask=None):
        torch.rand(1)
        return right_answer(scores, valid_lens, mask)

    right_answer = next(v.answer for v in variants(ROOT, "masked_softmax") if v.is_right)
    report = grade("masked_softmax", mutates)
    assert 0.9 < report.score < 1.0 and report.points < report.max_points


def test_a_check_answers_within_a_second_warm():
    grade("masked_softmax", lambda s, v=None, mask=None: s, seed="warm")
    started = time.process_time()
    grade("masked_softmax", lambda s, v=None, mask=None: torch.softmax(s, 0), seed="warm")
    assert time.process_time() - started < 1.0


def test_who_profiles_a_check_goes_on_afterwards():
    probe = Probe("p", "", args={"x": tensor([1.0])})

    def afterwards():
        pass

    with cProfile.Profile() as profiler:
        observe(torch.exp, probe)
        afterwards()
    assert afterwards.__code__ in [entry.code for entry in profiler.getstats()]

    def hook(*event):
        pass

    sys.setprofile(hook)
    try:
        observe(torch.exp, probe)
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)


def own(name):
    """Run the course's solution as a student's own code: same source, another module."""
    from course_lib.authoring.paste import solution_source

    space = {"torch": torch, "np": np, "math": math, "Tensor": torch.Tensor}
    exec("from jaxtyping import Bool, Float, Int", space)
    exec("import course_lib\nlength_mask = course_lib.length_mask", space)
    exec(solution_source(name), space)
    return space


def test_a_lessons_answers_are_checked_together(monkeypatch):
    from course_lib.notebook import _judged_here

    space = own("masked_softmax")
    answers = {"length_mask": own("length_mask")["length_mask"]}
    answers["masked_softmax"] = space["masked_softmax"]
    monkeypatch.setattr(_judged_here, "session", _judged_here.Session(last=answers))
    monkeypatch.setattr(_judged_here, "_namespace", lambda: space)
    reference = space["length_mask"]
    assert course_lib.check("02_masked_softmax") == 1.0
    assert space["length_mask"] is reference, "the reference version must be back afterwards"

    answers["length_mask"] = lambda valid_lens, max_len: (
        torch.arange(max_len) <= valid_lens.unsqueeze(-1)
    )
    assert course_lib.check("02_masked_softmax") < 1.0
    del answers["length_mask"]
    assert course_lib.check("02_masked_softmax") == 0.0


def test_a_lesson_checked_together_says_what_is_missing(monkeypatch, capsys):
    from course_lib.notebook import _judged_here

    monkeypatch.setattr(_judged_here, "session", _judged_here.Session())
    assert course_lib.check("02_masked_softmax") == 0.0
    assert "needs your own `length_mask`, `masked_softmax`" in capsys.readouterr().out


def test_right_outputs_without_the_weights_that_were_to_be_stored_earn_about_half():
    written = {v.name: v.answer for v in variants(ROOT, "DotProductAttention")}
    report = grade("DotProductAttention", written["OtherName"])
    assert 0.4 < report.score < 0.65


@pytest.mark.parametrize(
    ("name", "answer"),
    [("blocked_attention", "the_plain_way"), ("RecomputedAttention", "RecomputesEverything")],
)
def test_who_spends_what_an_exercise_is_there_to_save_earns_a_third(name, answer):
    written = {v.name: v.answer for v in variants(ROOT, name)}
    report = grade(name, written[answer])
    assert report.score <= 1 / 3 and "earns at most a third" in report.text()


def test_one_failing_edge_costs_at_least_half_of_the_edges():
    def only_below_1000(scores, axis=-1):
        exponentials = np.exp(scores)
        return exponentials / exponentials.sum(axis=axis, keepdims=True)

    report = grade("stable_softmax", only_below_1000)
    assert report.mistake == "no_maximum_subtracted"
    assert 0.4 < report.score <= 1 - exercises()["stable_softmax"].shares["edges"] / 2
