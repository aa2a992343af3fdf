"""Lesson 06: what attention knows about order: two tests of functions."""

import functools

import numpy as np
import torch

from course_lib.checks.catalogue import _multi_head_mistakes as wrong
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Built, Probe, tensor
from course_lib.reference import multi_head as oracle


def _pair(rng, name, says, first, second, *, part="values", x=None, strided=False):
    # Six positions: an answer may try all their orders, 720 of them.
    x = rng.normal(0, 1.0, (2, 6, 3)) if x is None else x
    return Probe(
        name,
        says,
        part=part,
        args={"fn_1": Built(first), "fn_2": Built(second), "x": tensor(x, strided=strided)},
        scenario="ask_about_two",
    )


_ANSWERS = (Returned("answer about fn_1", "bool"), Returned("answer about fn_2", "bool"))
_BY_HAND = np.array([[[1.0, 0.0], [2.0, -1.0], [-1.0, 3.0]]])


def _equivariance_probes(rng):
    pair = functools.partial(_pair, rng)
    last_zero = rng.normal(0, 1.0, (2, 6, 3))
    last_zero[:, -1] = 0.0
    return [
        pair(
            "by_hand",
            "True for a function that treats each position on its own; False for one that "
            "multiplies each position by its number.",
            "each_on_its_own",
            "scaled_by_position",
            x=_BY_HAND,
        ),
        pair(
            "attention",
            "Self-attention without positions is equivariant; with a causal mask it is not.",
            "self_attention",
            "causal_attention",
        ),
        pair(
            "positions",
            "Attention to inputs with positions added is not equivariant; subtracting the "
            "average is.",
            "attention_with_positions",
            "average_over_positions",
        ),
        pair(
            "invariant",
            "Equivariant means that the outputs move with the inputs. A function that sorts its "
            "positions gives the same outputs for every order: that is something else.",
            "sorted_by_first_feature",
            "one_number_each",
        ),
        pair(
            "neighbours",
            "Adding up to the left is not equivariant; a non-contiguous input must work.",
            "running_sum",
            "self_attention",
            strided=True,
        ),
        pair(
            "circle",
            "Rotating all positions is not the only permutation: a function of the next "
            "neighbour in a circle survives it.",
            "circular_neighbours",
            "self_attention",
            part="edges",
        ),
        pair(
            "mirror",
            "Reversing all positions is not the only permutation: a function of distances "
            "survives it.",
            "average_over_positions",
            "near_ones_count_more",
            part="edges",
        ),
        pair(
            "reversal",
            "Reversing the sequence is not equivariant: the first output stays with the last "
            "position, whoever stands there.",
            "reversed",
            "average_over_positions",
            part="edges",
        ),
        pair(
            "last_position",
            "A function that treats only the last position differently is not equivariant.",
            "last_one_special",
            "each_on_its_own",
            part="edges",
        ),
        pair(
            "first_position",
            "A function whose first output sees the last position is not equivariant.",
            "one_number_each",
            "first_sees_last",
            part="edges",
        ),
        pair(
            "every_item",
            "Every item of the batch counts, not only the first.",
            "self_attention",
            "causal_in_last_item",
            part="edges",
        ),
        pair(
            "small_numbers",
            "Small inputs have small outputs: differences far above rounding count.",
            "each_on_its_own",
            "running_sum",
            part="edges",
            x=rng.normal(0, 0.02, (2, 6, 3)),
        ),
        pair(
            "first_item",
            "Every item of the batch counts, not only the last.",
            "causal_in_first_item",
            "average_over_positions",
            part="edges",
        ),
        *(
            pair(
                name,
                f"Differences of either sign count: every output is the first position plus 1, "
                f"here the {which} of all.",
                "copies_of_the_first",
                "self_attention",
                part="edges",
                x=sorted_x,
            )
            for name, which, sorted_x in (
                ("largest_first", "largest", np.sort(rng.normal(0, 1.0, (2, 6, 3)), 1)[:, ::-1]),
                ("smallest_first", "smallest", np.sort(rng.normal(0, 1.0, (2, 6, 3)), 1)),
            )
        ),
        pair(
            "nearly_equal",
            "Differences small beside the outputs count: each one is near 1 here.",
            "self_attention",
            "copies_of_the_first",
            part="edges",
            x=rng.normal(0, 0.05, (2, 6, 3)),
        ),
        pair(
            "last_output",
            "Every output counts: the last position is 0, and negating it shows only when another "
            "one stands there.",
            "each_on_its_own",
            "last_one_special",
            part="edges",
            x=last_zero,
        ),
        pair(
            "first_output",
            "Every output counts: the first one adds the last position, which is 0 until another "
            "one stands there.",
            "first_sees_last",
            "each_on_its_own",
            part="edges",
            x=last_zero,
        ),
        *(
            pair(
                f"feature_{feature}",
                f"Every feature counts: feature {feature} alone is not 0 here.",
                "self_attention",
                "running_sum",
                part="edges",
                x=rng.normal(0, 1.0, (2, 6, 3)) * (np.arange(3) == feature),
            )
            for feature in (0, 2)
        ),
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
    returns=_ANSWERS,
    probes=_equivariance_probes,
    oracle=lambda fn_1, fn_2, x: tuple(
        oracle.is_permutation_equivariant(fn.name, x) for fn in (fn_1, fn_2)
    ),
    mistakes=(
        Mistake(
            "output_not_permuted",
            wrong.equivariance(_roll, output=lambda y: y),
            "You compare fn of the permuted input with the unpermuted outputs: that tests whether "
            "the order changes nothing at all (invariance).",
            "Where should the output of position 0 be after position 0 has moved?",
        ),
        Mistake(
            "identity_permutation",
            lambda fn, x: wrong.same(fn(x), fn(x)),
            "Your test says True to every function: what it compares is always equal, as with a "
            "permutation that moves nothing.",
            "Is your permutation certain to move something?",
        ),
        Mistake(
            "inverse_permutation",
            wrong.equivariance(_roll, output=lambda y: y.roll(-1, dims=1)),
            "The outputs are permuted the wrong way: with the inverse of the order that permutes "
            "the inputs, or a second time with the same one instead of back.",
            "If input `order[i]` moves to place i, where does its output belong?",
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
            "only_rotated",
            wrong.equivariance(_roll),
            "You only rotate the positions. A function that looks at its next neighbour in a "
            "circle passes, and is not equivariant.",
            "Which further permutation keeps no neighbours together?",
        ),
        Mistake(
            "only_reversed",
            wrong.equivariance(_flip),
            "You only reverse the positions. A function of the distance between positions passes, "
            "and is not equivariant.",
            "Which permutation changes distances?",
        ),
        Mistake(
            "only_first_two",
            wrong.equivariance(wrong.swap_first_two),
            "You only move the first positions, by swapping two of them perhaps; what happens at "
            "the others goes unseen.",
            "Which permutation moves every position?",
        ),
        Mistake(
            "only_ends_swapped",
            wrong.equivariance(_swap_ends),
            "You only swap the first and the last position. Reversing the sequence passes, and is "
            "not equivariant; nor is anything seen of the positions between.",
            "Which permutation moves every position?",
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
            "too_tolerant",
            wrong.both(
                wrong.equivariance(wrong.swap_first_two, agree=_nearly),
                wrong.equivariance(_roll, agree=_nearly),
            ),
            "Your tolerance is so large that small inputs pass with any function.",
            "How far apart may two sums be that differ in their order only?",
        ),
        Mistake(
            "only_first_item",
            lambda fn, x: _FULL(lambda y: fn(y)[:1], x),
            "You look at the first item of the batch only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "only_last_item",
            lambda fn, x: _FULL(lambda y: fn(y)[-1:], x),
            "You look at the last item of the batch only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "compared_exactly",
            wrong.both(
                wrong.equivariance(wrong.swap_first_two, agree=lambda a, b: torch.equal(a, b)),
                wrong.equivariance(_roll, agree=lambda a, b: torch.equal(a, b)),
            ),
            "You ask for exact equality. Sums in another order differ in the last digit, so even "
            "self-attention fails.",
            "What does `torch.allclose` allow that `torch.equal` does not?",
        ),
        Mistake(
            "answer_negated",
            lambda fn, x: not _FULL(fn, x),
            "Your answers are the wrong way round.",
            "What does True stand for?",
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
    pair = functools.partial(_pair, rng)
    padded, peak = rng.normal(0, 1.3, (2, 2, 6, 3))
    padded[:, 4:] = 0.0
    peak[:, -1, 1] = 9.0
    return [
        pair(
            "by_hand",
            "A running sum is causal; a function that returns the next position is not.",
            "running_sum",
            "next_position",
            x=_BY_HAND,
        ),
        pair(
            "attention",
            "Attention is causal with a causal mask and not without.",
            "causal_attention",
            "self_attention",
        ),
        pair(
            "direction",
            "Causal means that later inputs do not matter, not earlier ones.",
            "anticausal_attention",
            "strictly_causal_attention",
        ),
        pair(
            "past",
            "A function of the previous position is causal; reversing the sequence is not.",
            "previous_position",
            "reversed",
            strided=True,
        ),
        pair(
            "own_position",
            "An output may depend on its own position.",
            "each_on_its_own",
            "average_over_positions",
        ),
        pair(
            "not_the_last",
            "It is not enough to change the last position: each output but those of the last two "
            "sees its successor here.",
            "scaled_by_position",
            "next_but_not_the_last",
            part="edges",
        ),
        pair(
            "one_step_ahead",
            "A single output that looks ahead is enough to break causality.",
            "second_looks_ahead",
            "causal_attention",
            part="edges",
        ),
        pair(
            "a_later_one",
            "A single output that looks ahead is enough, wherever it is.",
            "copies_of_the_first",
            "third_looks_ahead",
            part="edges",
        ),
        pair(
            "far_ahead",
            "Looking far ahead counts as well: the first output sees the last position here.",
            "running_sum",
            "first_sees_last",
            part="edges",
        ),
        pair(
            "sums_stay",
            "An output may look ahead without a change of its sum over the features.",
            "running_sum",
            "next_position_centred",
            part="edges",
        ),
        pair(
            "every_item",
            "Every item of the batch counts, not only the first.",
            "causal_in_first_item",
            "causal_attention",
            part="edges",
        ),
        pair(
            "small_numbers",
            "Small inputs have small outputs: differences far above rounding count.",
            "running_sum",
            "next_position",
            part="edges",
            x=rng.normal(0, 0.02, (2, 6, 3)),
        ),
        pair(
            "zeros_at_the_end",
            "Positions that are 0 may be looked at as well, as padding often is: the first output "
            "sees the last position here.",
            "first_sees_last",
            "running_sum",
            part="edges",
            x=padded,
        ),
        pair(
            "another_feature",
            "Every feature counts: all outputs see the largest number here, the second feature of "
            "the last position.",
            "previous_position",
            "one_number_each",
            part="edges",
            x=peak,
        ),
        pair(
            "first_item",
            "Every item of the batch counts, not only the last.",
            "previous_position",
            "causal_in_last_item",
            part="edges",
        ),
        pair(
            "two_positions",
            "The first output may not see the second position.",
            "running_sum",
            "next_position",
            part="edges",
            x=rng.normal(0, 1.3, (2, 2, 3)),
        ),
    ]


def _before_all(outputs, t):
    return outputs


IS_CAUSAL = Exercise(
    name="is_causal",
    points=2,
    minutes=15,
    difficulty=2,
    returns=_ANSWERS,
    probes=_causality_probes,
    oracle=lambda fn_1, fn_2, x: tuple(oracle.is_causal(fn.name, x) for fn in (fn_1, fn_2)),
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
            "too_tolerant",
            wrong.causality(wrong.small_from_t_on, agree=_nearly),
            "Your change is too small, or your tolerance too large: small differences go unseen.",
            "How far apart may two results of the same computation be?",
        ),
        Mistake(
            "one_step_ahead_unseen",
            wrong.causality(wrong.from_t_on, before=lambda y, t: y[:, : t - 1]),
            "You leave out the output right before the changed positions: one that looks a single "
            "step ahead goes unseen.",
            "Which is the last output that may not notice a change at position t?",
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
            "all_outputs_compared",
            wrong.causality(wrong.from_t_on, before=_before_all),
            "You compare all outputs; those from the changed position on are free to change.",
            "Which outputs may not notice that position t has changed?",
        ),
        Mistake(
            "nothing_changed",
            lambda fn, x: wrong.same(fn(x), fn(x)),
            "Your test says True to every function: the change it makes is none, too small, or "
            "not looked at.",
            "Is what you change large enough to be seen?",
        ),
        Mistake(
            "nan_spreads",
            wrong.causality(wrong.nan_from_t_on),
            "You write NaN into the future. A masked key has weight 0, but 0 times NaN is NaN, so "
            "even causal attention fails.",
            "Which change would a weight of 0 hide?",
        ),
        Mistake(
            "only_first_item",
            lambda fn, x: wrong.causality(wrong.from_t_on)(lambda y: fn(y)[:1], x),
            "You look at the first item of the batch only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "only_last_item",
            lambda fn, x: wrong.causality(wrong.from_t_on)(lambda y: fn(y)[-1:], x),
            "You look at the last item of the batch only.",
            "Over which axes must the comparison run?",
        ),
        Mistake(
            "answer_negated",
            wrong.causality(wrong.from_t_on, negate=True),
            "Your answers are the wrong way round.",
            "What does True stand for?",
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
