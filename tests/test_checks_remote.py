"""Observation requests of grading and their replies, tested in this process."""

import contextlib
import gc
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib.authoring.variants import variants
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_answer
from course_lib.checks.observe import remote
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.checks.observe.remote import Request
from course_lib.exercises import find, lessons

ROOT = Path(__file__).parent.parent


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


@pytest.mark.parametrize("slug", [slug for slug in TOGETHER if find(slug).place.takes_all])
def test_a_lessons_right_answers_pass_together_and_a_missing_result_is_noticed(slug, monkeypatch):
    chain = find(slug).chain
    right = {name: next(v.answer for v in variants(ROOT, name) if v.is_right) for name in chain}
    for answer in right.values():  # they call each other, as a student's answers do
        names = next(filter(inspect.isfunction, [answer, *vars(answer).values()])).__globals__
        for name in right.keys() & names.keys():
            monkeypatch.setitem(names, name, right[name])
    assert judge_answer(find(slug), right).score == 1.0
    assert judge_answer(find(slug), right | {chain[-1]: lambda *args: None}).score < 1.0
    assert judge_answer(find(slug), right | {chain[-1]: None}).outcome == "not_attempted"
