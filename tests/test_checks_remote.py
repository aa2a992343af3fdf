"""Observation requests of grading and their replies, tested in this process."""

import contextlib
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib.authoring.variants import variants
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_answer, judge_observed
from course_lib.checks.observe import call, cost_meter, remote
from course_lib.checks.observe.codec import decode, encode
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.checks.observe.remote import REPLY_TYPES, Reply, Request
from course_lib.exercises import find, lessons

ROOT = Path(__file__).parent.parent


class Generous(cost_meter.Spending):
    def alive(self):
        return 0


RUN = call._run


def runs_for_nothing(obj, probe, seen, *more):
    RUN(obj, probe, seen, *more)
    seen.spent = dict.fromkeys(seen.spent, 0)


WRAPPED = {
    "a method": lambda patch: patch.setattr(cost_meter.Spending, "alive", lambda self: 0),
    "an attribute": lambda patch: patch.setattr(
        cost_meter.Spending, "peak", property(lambda self: 0, lambda self, n: None), raising=False
    ),
    "the class": lambda patch: patch.setattr(call, "Spending", Generous),
    "its maker": lambda patch: patch.setattr(call, "_run", runs_for_nothing),
    "a method of tensors": lambda patch: patch.setattr(torch.Tensor, "numel", lambda self: 0),
}


def judged(answer):
    """Return the report on an answer to `blocked_attention`, as grading reaches it."""
    exercise = find("blocked_attention")
    probes = [probe for probe, _ in prepare(exercise, "remote")]
    request = encode(Request(exercise.name, probes, number="1"))
    tracing, profiling = sys.gettrace(), sys.getprofile()
    text = remote.reply_to(request, {exercise.name: answer})
    sys.settrace(tracing)
    sys.setprofile(profiling)
    reply = decode(text, Reply, REPLY_TYPES)
    return judge_observed(exercise, "remote", reply.subject, reply.seen)


@pytest.mark.parametrize("wrapped", list(WRAPPED))
def test_who_wraps_the_meter_has_measured_nothing(monkeypatch, wrapped):
    monkeypatch.setattr(remote, "_remembered", {})
    written = list(variants(ROOT, "blocked_attention"))
    in_blocks = next(v.answer for v in written if v.is_right)
    assert judged(in_blocks).score == 1.0
    at_once = next(v.answer for v in written if v.name == "the_plain_way")
    honest = judged(at_once).score
    WRAPPED[wrapped](monkeypatch)
    report = judged(at_once)
    assert report.score <= honest < 0.4
    assert "the code that measures it was changed" in report.text()
    assert judged(in_blocks).score < 0.4


def test_answers_are_put_together_once_all_are_there(monkeypatch):
    monkeypatch.setattr(remote, "_remembered", {"first": lambda x: x + 1})
    probe = Probe("p", "", args={"x": tensor([1.0])})
    request = Request("both", [probe], chain=("first", "last"))
    space = {"first": "the course's", "other": 1}
    assert remote.answer(request, space).missing == ("last",)
    remote._remembered["last"] = lambda x: space["first"](x) * 2
    reply = remote.answer(request, space)
    assert reply.seen["p"].outputs.data.tolist() == [4.0] and reply.subject.is_callable
    assert space == {"first": "the course's", "other": 1}

    def of_both(answers, probe, args, kwargs):
        return answers["first"](*args.values())

    monkeypatch.setitem(remote.observe_all.__globals__["SCENARIOS"], "of_both", of_both)
    together = Request("both", [Probe("p", "", args=probe.args, scenario="of_both")],
                       chain=request.chain, takes_all=True)  # fmt: skip
    reply = remote.answer(together, space)
    assert reply.subject is None and reply.seen["p"].outputs.data.tolist() == [2.0]


def test_the_courses_solution_is_not_called_under_another_name(monkeypatch):
    import course_lib

    class Own(course_lib.RecomputedAttention):
        pass

    monkeypatch.setattr(remote, "_remembered", {})
    kept = course_lib.causal_mask
    answers = {"causal_mask": lambda *a, **k: kept(*a), "RecomputedAttention": Own}
    for name in answers:
        probes = [prepare(find(name), "remote")[0][0]]
        (seen,) = remote.answer(Request(name, probes), answers).seen.values()
        assert seen.raised.message == "this is the course's own solution, not yours"
    assert kept(1).tolist() == [[True]]


def test_what_an_earlier_cell_set_for_everyone_is_undone(monkeypatch):
    before = torch.get_num_threads(), sys.getrecursionlimit(), np.geterr(), sys.stderr
    try:
        torch.set_default_dtype(torch.float16)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        torch.autograd.set_detect_anomaly(True, check_nan=False)
        np.seterr(all="raise")
        gc.disable()
        sys.setrecursionlimit(500)
        monkeypatch.setattr(sys, "stderr", None)
        remote._restore_defaults()
        with contextlib.closing(sys.stderr) as stream:
            assert stream.writable()
        assert torch.ones(1).dtype == torch.float32 and torch.ones(1).device.type == "cpu"
        assert torch.is_grad_enabled() and gc.isenabled() and torch.get_num_threads() == 1
        assert not torch.are_deterministic_algorithms_enabled()
        assert not torch.is_anomaly_enabled()
        usual = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
        assert np.geterr() == usual
        assert sys.getrecursionlimit() >= 3000
    finally:
        torch.set_num_threads(before[0])
        sys.setrecursionlimit(before[1])
        np.seterr(**before[2])
        gc.enable()


TOGETHER = [slug for slug, lesson in lessons().items() if lesson.integration]


@pytest.mark.parametrize("slug", [slug for slug in TOGETHER if find(slug).takes_all])
def test_a_lessons_right_answers_pass_together_and_a_missing_result_is_noticed(slug):
    chain = find(slug).chain
    right = {name: next(v.answer for v in variants(ROOT, name) if v.is_right) for name in chain}
    assert judge_answer(find(slug), right).score == 1.0
    assert judge_answer(find(slug), right | {chain[0]: lambda *args: None}).score < 1.0
    assert judge_answer(find(slug), right | {chain[0]: None}).outcome == "not_attempted"
