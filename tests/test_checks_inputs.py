"""Nobody who has seen the inputs of one seed knows those of another."""

import itertools
import statistics

import numpy as np
import pytest

from course_lib.checks import exercises, grade
from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.score import score_of
from course_lib.checks.judge.violations import Violation
from course_lib.checks.observe.codec import encode
from course_lib.checks.observe.observation import Observation

# Their answers are dicts about ten fixed modules, without arguments (docs/checks.md).
DIAGNOSES = {"diagnosed_boxes", "broken_invariants"}
NAMES = [name for name in exercises() if name not in DIAGNOSES]
PARTS = ("values", "edges", "gradients")
MOST = 0.3  # hand-checkable examples, and results that are zeros
MORE = {"masked_cross_entropy": 0.35}  # three of its losses are 0, and it has few problems


def given_in(probe):
    """Return all that an answer can see of a probe."""
    seen = (probe.args, probe.kwargs, probe.construct, probe.state, probe.dtype, probe.training)
    return encode(list(seen))


@pytest.mark.parametrize("name", NAMES)
def test_no_part_has_the_same_inputs_for_two_seeds(name):
    first, second = (
        {part: [given_in(probe) for probe, _ in runs if probe.part == part] for part in PARTS}
        for runs in (prepare(exercises()[name], seed) for seed in "AB")
    )
    assert not [part for part in PARTS if first[part] and first[part] == second[part]]


def test_only_diagnoses_have_fixed_inputs():
    for name in DIAGNOSES:
        assert {probe.scenario for probe, _ in prepare(exercises()[name], "A")} == {"entries"}


def is_zero(expected):
    outputs = expected.outputs if isinstance(expected.outputs, tuple) else (expected.outputs,)
    return all(np.asarray(one).dtype.kind in "bif" and not np.any(one) for one in outputs)


def score_with(table, exercise, seed, otherwise):
    """Return the score of an answer that knows the calls in a table, and otherwise does this."""
    outcomes, failed = {}, Problem("not_in_the_table", "")
    for probe, expected in prepare(exercise, seed):
        is_right = probe.raises if otherwise == "raises" else is_zero(expected)
        found = Violation(probe, "values", failed, probe.part, expected, Observation())
        solved = is_right or given_in(probe) in table
        outcomes[probe.name] = Observation(), [] if solved else [found]
    return score_of(exercise, prepare(exercise, seed), outcomes, [])[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("otherwise", ["raises", "returns zeros"])
def test_a_table_of_the_inputs_of_one_seed_earns_little(name, otherwise):
    table = {given_in(probe) for probe, _ in prepare(exercises()[name], "public")}
    scores = [score_with(table, exercises()[name], seed, otherwise) for seed in "ABC"]
    assert statistics.median(scores) < MORE.get(name, MOST)  # sizes may be drawn twice by chance


def test_a_test_that_answers_in_turn_without_looking_earns_less_than_half():
    for name in ("is_causal", "is_permutation_equivariant"):
        for start in (True, False):
            turns = itertools.cycle((start, not start))
            scores = [grade(name, lambda *_, turns=turns: next(turns), seed=s).score for s in "AB"]
            assert max(scores) < 0.5, (name, start, scores)
