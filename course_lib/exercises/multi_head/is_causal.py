"""A test that no output of a function depends on a later position."""

import math
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._builders import mistake
from course_lib.exercises._student_tests import same
from course_lib.exercises.multi_head._order import BY_HAND, asked, asking_about
from course_lib.reference import multi_head as oracle


def _causality_probes(rng) -> list[Probe]:
    ask = asking_about(rng)
    padded = rng.normal(0, 1.3, (2, 6, 3))
    padded[:, 4:] = 0.0
    peak = rng.normal(0, 1.3, (2, 6, 3))
    peak[:, -1, 1] = 9.0
    return [
        ask("by_hand", "running_sum", "reversed", x=BY_HAND),
        ask("attention", "causal_attention", "self_attention"),
        ask("direction", "anticausal_attention", "strictly_causal_attention"),
        ask("own_position", "each_on_its_own", "average_over_positions"),
        ask("not_the_last", "scaled_by_position", "next_but_not_the_last"),
        ask("one_step_ahead", "second_looks_ahead", "causal_attention"),
        ask("a_later_one", "copies_of_the_first", "third_looks_ahead"),
        ask("far_ahead", "share_of_all", "first_sees_last"),
        ask("zeros_at_the_end", "first_sees_last", "running_sum", x=padded),
        ask("another_feature", "previous_position", "one_number_each", x=peak),
        ask("one_position", "running_sum", "next_position", 1, 1, 3),
        ask("two_positions", "running_sum", "next_position", 2, 2, 3),
        ask("always_nan", "running_sum", "always_nan", part="edges"),
        *student_tests.function_edges(rng, "later", "next_position", last_row=-2),
    ]


def _causality(change, before=lambda outputs, t: outputs[:, :t], cuts=None, agree=same) -> Callable:
    """Return a test that changes x with `change(x, t)` and compares what `before` picks."""

    def is_causal(fn, x) -> bool:
        outputs, found = fn(x), True
        for t in cuts(x.shape[1]) if cuts else range(1, x.shape[1]):
            found = found and bool(agree(before(fn(change(x, t)), t), before(outputs, t)))
        return found

    return is_causal


def _from_t_on(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], x[:, t:].flip(-1) * 1.7 + 0.9], dim=1)


def _nan_from_t_on(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], torch.full_like(x[:, t:], math.nan)], dim=1)


def _zeros_from_t_on(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], torch.zeros_like(x[:, t:])], dim=1)


def _only_t(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], x[:, t : t + 1] + 1.3, x[:, t + 1 :]], dim=1)


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=2,
    starred=True,
    returns=student_tests.ANSWERS,
    probes=_causality_probes,
    oracle=asked(oracle.is_causal),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    confirms=_causality(_from_t_on),
    tally=student_tests.of_functions,
    mistakes=(
        mistake("last_position_only", _causality(_only_t, cuts=lambda n: [n - 1])).says(
            "You change only the last position, so you miss outputs that look one step ahead but "
            "not at the last position.",
            "Which inputs may output 0 depend on?",
        ),
        mistake(
            "some_cuts_missing",
            _causality(_from_t_on, cuts=lambda n: range(1, n - 1)),
            twins=(
                _causality(_from_t_on, cuts=lambda n: range(2, n)),
                _causality(_from_t_on, cuts=lambda n: [max(1, n // 2)]),
            ),
        ).says(
            "You do not try every position as the first to change, so you miss some outputs that "
            "look ahead.",
            "Which values of t does your test try, for n positions?",
        ),
        mistake("zeros_for_the_future", _causality(_zeros_from_t_on)).says(
            "You put zeros in place of the later positions. If these are zeros in `x` already, "
            "nothing changes.",
            "Does your change also change an input of zeros?",
        ),
        mistake(
            "own_position_forbidden",
            _causality(_from_t_on, before=lambda y, t: y[:, : t + 1], cuts=range),
            twins=(_causality(_from_t_on, before=lambda y, t: y[:, : t + 1]),),
        ).says(
            "Your test also forbids an output from depending on its own position.",
            "Which outputs come strictly before position t?",
        ),
        mistake("changed_to_nan", _causality(_nan_from_t_on)).says(
            "You put NaN in place of the later positions. 0 times NaN is NaN, so even a causal "
            "attention can fail your test.",
            "With which numbers does 0 * x stay 0?",
        ),
        *student_tests.mistakes_of_comparisons(lambda agree: _causality(_from_t_on, agree=agree)),
    ),
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
)
