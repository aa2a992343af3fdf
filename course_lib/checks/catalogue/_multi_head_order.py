"""Lesson 06: what attention knows about order: two tests of functions."""

import numpy as np
import torch

from course_lib.checks.catalogue import _multi_head_mistakes as wrong
from course_lib.checks.catalogue._meetings import (
    ANSWERS,
    TOLERANCE,
    function_edges,
    functions,
    judged,
    meeting,
    name_of,
)
from course_lib.checks.exercise import Exercise, Mistake
from course_lib.checks.probe import tensor
from course_lib.reference import multi_head as oracle


def _asked(keeps):
    """The oracle: what the test must say of each function."""

    def says(built, x):
        name = name_of(built)
        if name == "nudged":
            return built.options["amount"] == 0
        return name == "rounding" or keeps(name, x)

    return lambda object_1, object_2, x: (says(object_1, x), says(object_2, x))


def _meet(rng):
    def meet(name, first, second, *sizes, strided=False):
        # Six positions: an answer may try all their orders, 720 of them.
        x = tensor(rng.normal(0, 1.3, sizes or (2, 6, 3)), strided=strided)
        return meeting(name, *functions(first, second), x=x)

    return meet


_BY_HAND = np.array([[[1.0, 0.0], [2.0, -1.0], [0.0, 2.0]]])


def _by_hand(name, first, second):
    return meeting(name, *functions(first, second), x=tensor(_BY_HAND))


def _equivariance_probes(rng):
    meet = _meet(rng)
    return [
        _by_hand("by_hand", "doubled", "running_sum"),
        _by_hand("by_hand_sorted", "each_feature_sorted", "doubled"),
        meet("own_positions", "each_on_its_own", "scaled_by_position"),
        meet("attention", "self_attention", "causal_attention"),
        meet("positions", "attention_with_positions", "average_over_positions"),
        meet("invariant", "sorted_by_first_feature", "one_number_each"),
        meet("strided", "running_sum", "self_attention", strided=True),
        meet("circle", "circular_neighbours", "self_attention"),
        meet("mirror", "average_over_positions", "near_ones_count_more"),
        meet("reversal", "reversed", "average_over_positions"),
        meet("last_position", "last_one_special", "each_on_its_own"),
        meet("first_sees_last", "one_number_each", "first_sees_last"),
        meet("copies", "copies_of_the_first", "self_attention"),
        meet("last_of_two_items", "self_attention", "causal_in_last_item"),
        meet("first_of_two_items", "causal_in_first_item", "average_over_positions"),
        meet("eight_positions", "next_position", "self_attention", 1, 8, 2),
        *function_edges(rng, "order", "running_sum", last_row=-1),
    ]


def _flip(x):
    return x.flip(1)


def _roll(x):
    return x.roll(1, dims=1)


def _shuffle(x):  # its own inverse for three positions, as a random order may be
    return x.flip(1) if x.shape[1] <= 3 else x[:, [1, 2, 0, *range(3, x.shape[1])]]


def _shuffle_back(y):
    return y.flip(1) if y.shape[1] <= 3 else y[:, [2, 0, 1, *range(3, y.shape[1])]]


def _same_sums(a, b):
    return wrong.same(a.sum(1), b.sum(1))


def _swap_ends(x):
    return torch.cat([x[:, -1:], x[:, 1:-1], x[:, :1]], dim=1)


def _nearly(a, b):
    return torch.allclose(a, b, rtol=0.0, atol=0.2)


_FULL = wrong.both(wrong.equivariance(wrong.swap_first_two), wrong.equivariance(_roll))


IS_PERMUTATION_EQUIVARIANT = Exercise(
    name="is_permutation_equivariant",
    points=2,
    minutes=15,
    difficulty=2,
    returns=ANSWERS,
    probes=_equivariance_probes,
    oracle=_asked(oracle.is_permutation_equivariant),
    never_one={"num_positions": "one position has no other order"},
    promises={
        "to `(B, n, ...)` without randomness": "eight_positions strided",
        "does every item's output move along": "own_positions attention positions invariant circle "
        "mirror reversal last_position first_sees_last copies last_of_two_items first_of_two_items",
        **TOLERANCE,
        "three positions of one item": "by_hand by_hand_sorted",
        "Says whether permuting the positions": "",
        "Two permutations are tried": "",
        "It is a test at this `x`, not a proof": "",
        "fn: from `(batch, num_positions, d)`": "",
        "where to try it; the positions must differ": "",
        "True if the outputs agree within 1e-5": "rounding a_hundredth",
    },
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "output_not_permuted",
            wrong.equivariance(_roll, output=lambda y: y),
            "You compare fn of the permuted input with the unpermuted outputs: that tests whether "
            "the order changes nothing at all (invariance).",
            "Where should the output of position 0 be after position 0 has moved?",
        ),
        Mistake(
            "only_reversed",
            wrong.equivariance(_flip),
            "You only reverse the positions. A function of the distance between positions passes, "
            "and is not equivariant.",
            "Which permutation changes distances?",
        ),
        Mistake(
            "only_rotated",
            wrong.equivariance(_roll),
            "You only rotate the positions. A function that looks at its next neighbour in a "
            "circle passes, and is not equivariant.",
            "Which further permutation keeps no neighbours together?",
        ),
        Mistake(
            "identity_permutation",
            lambda fn, x: wrong.same(fn(x), fn(x)),
            "Your test says True to every function: what it compares is always equal, as with a "
            "permutation that moves nothing.",
            "Is your permutation certain to move something?",
        ),
        Mistake(
            "permuted_again",
            wrong.equivariance(_shuffle, output=_shuffle_back),
            "You permute the outputs of the permuted input a second time, with the same order, "
            "and compare with the outputs of `x`. That takes them back only where the order is "
            "its own inverse, so plain self-attention fails.",
            "Which order undoes `order`? Or can the outputs of `x` be permuted instead?",
        ),
        Mistake(
            "batch_permuted",
            wrong.equivariance(lambda x: x.flip(0)),
            "You permute the items of the batch instead of the positions.",
            "Which axis of (batch, num_positions, d) holds the positions?",
        ),
        Mistake(
            "features_permuted",
            wrong.equivariance(lambda x: x.flip(2)),
            "You permute the features instead of the positions.",
            "Which axis of (batch, num_positions, d) holds the positions?",
        ),
        Mistake(
            "only_first_item",
            lambda fn, x: _FULL(lambda y: fn(y)[:1], x),
            "You look at the first item of the batch only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "sums_compared",
            wrong.both(
                wrong.equivariance(wrong.swap_first_two, agree=_same_sums),
                wrong.equivariance(_roll, agree=_same_sums),
            ),
            "You compare sums over the positions, which do not say where an output stands.",
            "Which outputs must equal which, one by one?",
        ),
        Mistake(
            "always_false",
            lambda fn, x: False,
            "Your test says False to every function.",
            "Should plain self-attention pass?",
        ),
    ),
    hints=(
        "Equivariant: first permute, then apply fn, is the same as first apply fn, then permute.",
        "Choose a permutation of the positions that keeps nothing in place and no neighbours "
        "together, or several. Index axis 1 of input and output with it; compare with a "
        "tolerance.",
        "order = torch.tensor([...])\nreturn torch.allclose(fn(x[:, order]), fn(x)[:, order], ...)",
    ),
)


def _causality_probes(rng):
    meet = _meet(rng)
    padded = rng.normal(0, 1.3, (2, 6, 3))
    padded[:, 4:] = 0.0
    peak = rng.normal(0, 1.3, (2, 6, 3))
    peak[:, -1, 1] = 9.0
    return [
        _by_hand("by_hand", "running_sum", "reversed"),
        _by_hand("by_hand_next", "moved_on", "running_sum"),
        meet("attention", "causal_attention", "self_attention"),
        meet("direction", "anticausal_attention", "strictly_causal_attention"),
        meet("strided", "previous_position", "reversed", strided=True),
        meet("own_position", "each_on_its_own", "average_over_positions"),
        meet("not_the_last", "scaled_by_position", "next_but_not_the_last"),
        meet("one_step_ahead", "second_looks_ahead", "causal_attention"),
        meet("a_later_one", "copies_of_the_first", "third_looks_ahead"),
        meet("far_ahead", "running_sum", "first_sees_last"),
        meet("sums_stay", "running_sum", "next_position_centred"),
        meet("first_of_two_items", "causal_in_last_item", "previous_position"),
        meet("last_of_two_items", "causal_in_first_item", "causal_attention"),
        meeting("zeros_at_the_end", *functions("first_sees_last", "running_sum"), x=tensor(padded)),
        meeting(
            "another_feature", *functions("previous_position", "one_number_each"), x=tensor(peak)
        ),
        meet("one_position", "running_sum", "next_position", 1, 1, 3),
        meet("two_positions", "running_sum", "next_position", 2, 2, 3),
        meet("nine_positions", "causal_attention", "self_attention", 1, 9, 2),
        *function_edges(rng, "later", "next_position", last_row=-2),
    ]


IS_CAUSAL = Exercise(
    name="is_causal",
    points=2,
    minutes=15,
    difficulty=2,
    returns=ANSWERS,
    probes=_causality_probes,
    oracle=_asked(oracle.is_causal),
    promises={
        "`fn` and `x` as before": "strided one_position two_positions nine_positions",
        "is no output, of any item, changed by any later position?": "attention direction "
        "not_the_last one_step_ahead a_later_one far_ahead sums_stay first_of_two_items "
        "last_of_two_items zeros_at_the_end another_feature",
        "An output may depend on its own position": "own_position",
        **TOLERANCE,
        "again: for `fn = lambda x: x.cumsum(1)` True": "by_hand by_hand_next",
        "Says whether no output depends on a later position": "",
        "everything from `t` on is replaced": "",
        "It is a test at this `x`, not a proof": "",
        "fn: from `(batch, num_positions, d)`": "",
        "True if no earlier output changes by more than 1e-5": "rounding a_hundredth",
    },
    comparisons={"judged": judged},
    mistakes=(
        Mistake(
            "last_position_only",
            wrong.causality(only_last := wrong.only_t, cuts=lambda n: [n - 1]),
            "You change the last position only: outputs that look one step ahead, but not at the "
            "last position, go unseen.",
            "Which inputs may output 0 not depend on?",
        ),
        Mistake(
            "first_output_only",
            wrong.causality(wrong.from_t_on, before=lambda y, t: y[:, :1]),
            "You look at the first output only.",
            "Which outputs may not notice that position t has changed?",
        ),
        Mistake(
            "next_output_only",
            wrong.causality(only_last, before=lambda y, t: y[:, t - 1 : t]),
            "You compare only the output right before the changed position; looking further "
            "ahead goes unseen.",
            "Which outputs may not notice that position t has changed?",
        ),
        Mistake(
            "one_cut_only",
            wrong.causality(wrong.from_t_on, cuts=lambda n: [n // 2]),
            "You cut the sequence at one place only; looking ahead within a half goes unseen.",
            "For how many positions t must outputs before t ignore inputs from t on?",
        ),
        Mistake(
            "past_changed",
            wrong.causality(wrong.up_to_t, before=lambda y, t: y[:, t:]),
            "You test the opposite: whether later outputs ignore earlier inputs.",
            "In which direction may information flow?",
        ),
        Mistake(
            "own_position_compared",
            wrong.causality(wrong.from_t_on, before=lambda y, t: y[:, : t + 1]),
            "You compare the output at the changed position as well; it may depend on its own "
            "position.",
            "Which outputs come strictly before position t?",
        ),
        Mistake(
            "own_position_forbidden",
            wrong.causality(wrong.from_t_on, before=lambda y, t: y[:, : t + 1], cuts=range),
            "Your test also forbids an output to depend on its own position.",
            "Which outputs come strictly before position t?",
        ),
        Mistake(
            "zeros_stay",
            wrong.causality(lambda x, t: torch.cat([x[:, :t], -2.5 * x[:, t:]], dim=1)),
            "Your change leaves a position as it is that holds zeros already (it multiplies, or "
            "writes zeros): who looks there goes unseen.",
            "Which change moves every number, whatever it was?",
        ),
        Mistake(
            "one_feature_changed",
            wrong.causality(wrong.first_feature_from_t_on),
            "You change one feature of the later positions only; who looks at another one goes "
            "unseen.",
            "Over which axes must the change run?",
        ),
        Mistake(
            "one_step_ahead_unseen",
            wrong.causality(wrong.from_t_on, before=lambda y, t: y[:, : t - 1]),
            "You leave out the output right before the changed positions: one that looks a single "
            "step ahead goes unseen.",
            "Which is the last output that may not notice a change at position t?",
        ),
        Mistake(
            "nan_spreads",
            wrong.causality(wrong.nan_from_t_on),
            "You write NaN into the future. A masked key has weight 0, but 0 times NaN is NaN, so "
            "even causal attention fails.",
            "Which change would a weight of 0 hide?",
        ),
        Mistake(
            "nothing_changed",
            lambda fn, x: wrong.same(fn(x), fn(x)),
            "Your test says True to every function: the change it makes is none, too small, or "
            "not looked at.",
            "Is what you change large enough to be seen?",
        ),
        Mistake(
            "always_false",
            lambda fn, x: False,
            "Your test says False to every function.",
            "Should a running sum pass?",
        ),
    ),
    hints=(
        "If the future does not matter, you may change it. Who must not notice?",
        "For every position t from 1 on: replace the inputs from t on by other numbers, call fn, "
        "and compare the outputs before t with the original ones.",
        "for t in range(1, x.shape[1]):\n"
        "    changed = x.clone()\n"
        "    changed[:, t:] = ...\n"
        "    if not torch.allclose(fn(changed)[:, :t], outputs[:, :t]): return False\n"
        "return True",
    ),
)
