"""`is_causal`: a test that no output of a function depends on a later position."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._order import BY_HAND, asked, asking_about
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.reference import bug_hunt as oracle


def problems(rng) -> Problems:
    ask = asking_about(rng)
    padded = rng.normal(0, 1.3, (2, 6, 3))
    padded[:, 4:] = 0.0
    peak = rng.normal(0, 1.3, (2, 6, 3))
    peak[:, -1, 1] = 9.0
    yield ask("by_hand", "running_sum", "reversed", x=BY_HAND)
    yield ask("attention", "causal_attention", "self_attention")
    yield ask("direction", "anticausal_attention", "strictly_causal_attention")
    yield ask("own_position", "each_on_its_own", "average_over_positions")
    yield ask("not_the_last", "scaled_by_position", "next_but_not_the_last")
    yield ask("one_step_ahead", "second_looks_ahead", "causal_attention")
    yield ask("a_later_one", "copies_of_the_first", "third_looks_ahead")
    yield ask("far_ahead", "share_of_all", "first_sees_last")
    yield ask("zeros_at_the_end", "first_sees_last", "running_sum", x=padded)
    yield ask("another_feature", "previous_position", "one_number_each", x=peak)
    yield ask("one_position", "running_sum", "next_position", 1, 1, 3)
    yield ask("two_positions", "running_sum", "next_position", 2, 2, 3)
    yield ask("always_nan", "running_sum", "always_nan", part="edges")
    yield from student_tests.function_edges(rng, "later", "next_position", last_row=-2)


def causal(fn, x, change, cuts, seen=0, agree=same) -> bool:
    """Return whether outputs before each cut t, and `seen` after it, stay with `change(x, t)`."""
    outputs = fn(x)
    found = [agree(fn(change(x, t))[:, : t + seen], outputs[:, : t + seen]) for t in cuts]
    return all(map(bool, found))


def from_t_on(x, t) -> Tensor:
    return torch.cat([x[:, :t], x[:, t:].flip(-1) * 1.7 + 0.9], dim=1)


def with_comparison(agree) -> Callable:
    return lambda fn, x: causal(fn, x, from_t_on, range(1, x.shape[1]), agree=agree)


@mistake
def last_position_only(fn, x) -> bool:
    """You change only the last position, so you miss outputs that look one step ahead but not at
    the last position.

    Which inputs may output 0 depend on?
    """

    def with_last_changed(x, t) -> Tensor:
        return torch.cat([x[:, :t], x[:, t : t + 1] + 1.3, x[:, t + 1 :]], dim=1)

    return causal(fn, x, with_last_changed, [x.shape[1] - 1])


@mistake
def some_cuts_missing(fn, x) -> bool:
    """You do not try every position as the first to change, so you miss some outputs that look
    ahead.

    Which values of t does your test try, for n positions?
    """
    return causal(fn, x, from_t_on, range(1, x.shape[1] - 1))


@like(some_cuts_missing)
def first_cut_missing(fn, x) -> bool:
    return causal(fn, x, from_t_on, range(2, x.shape[1]))


@like(some_cuts_missing)
def one_cut_only(fn, x) -> bool:
    return causal(fn, x, from_t_on, [max(1, x.shape[1] // 2)])


@mistake
def first_output_only(fn, x) -> bool:
    """You compare only the first output, so you miss later outputs that look ahead.

    Which outputs must stay the same if only position 3 changes?
    """
    cuts = range(1, x.shape[1])
    return all(same(fn(from_t_on(x, t))[:, :1], fn(x)[:, :1]) for t in cuts)


@like(first_output_only)
def first_output_of_each_prefix(fn, x) -> bool:
    cuts = range(1, x.shape[1])
    return all(same(fn(x[:, :t])[:, :1], fn(x)[:, :1]) for t in cuts)


@mistake
def zeros_for_the_future(fn, x) -> bool:
    """You put zeros in place of the later positions. If these are zeros in `x` already, nothing
    changes.

    Does your change also change an input of zeros?
    """

    def with_zeros(x, t) -> Tensor:
        return torch.cat([x[:, :t], torch.zeros_like(x[:, t:])], dim=1)

    return causal(fn, x, with_zeros, range(1, x.shape[1]))


@mistake
def own_position_forbidden(fn, x) -> bool:
    """Your test also forbids an output from depending on its own position.

    Which outputs come strictly before position t?
    """
    return causal(fn, x, from_t_on, range(x.shape[1]), seen=1)


@like(own_position_forbidden)
def own_position_forbidden_from_1(fn, x) -> bool:
    return causal(fn, x, from_t_on, range(1, x.shape[1]), seen=1)


@mistake
def changed_to_nan(fn, x) -> bool:
    """You put NaN in place of the later positions. 0 times NaN is NaN, so even a causal attention
    can fail your test.

    With which numbers does 0 * x stay 0?
    """

    def with_nan(x, t) -> Tensor:
        return torch.cat([x[:, :t], torch.full_like(x[:, t:], math.nan)], dim=1)

    return causal(fn, x, with_nan, range(1, x.shape[1]))


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=2,
    starred=True,
    returns=student_tests.ANSWERS,
    probes=problems,
    oracle=asked(oracle.is_causal),
    mistakes=student_tests.mistakes_of_comparisons(with_comparison),
    hints=(
        "If the future does not matter, you may change it. Which outputs must not notice?",
        "For every position t from 1 on: replace the inputs from t on with other numbers, call "
        "fn, and compare the outputs before t with the original ones.",
        "for t in range(1, x.shape[1]):\n"
        "    changed = x.clone()\n"
        "    changed[:, t:] = ...\n"
        "    if not torch.allclose(fn(changed)[:, :t], outputs[:, :t]): return False\n"
        "return True",
    ),
    marking=student_tests.marking(student_tests.of_functions, with_comparison(same)),
)
