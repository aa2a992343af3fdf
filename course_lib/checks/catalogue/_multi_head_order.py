"""Lesson 06: what attention knows about order: two tests of functions, and positions."""

import functools

import numpy as np
import torch

from course_lib.checks.catalogue import _multi_head_mistakes as wrong
from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Built, Probe, tensor
from course_lib.reference import multi_head as oracle


def _pair(rng, name, says, first, second, *, part="values", x=None, strided=False):
    x = rng.normal(0, 1.3, (2, 6, 3)) if x is None else x
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
            "first_item",
            "Every item of the batch counts, not only the last.",
            "causal_in_first_item",
            "average_over_positions",
            part="edges",
        ),
    ]


def _flip(x):
    return x.flip(1)


def _roll(x):
    return x.roll(1, dims=1)


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
            "The outputs are permuted backwards.",
            "If input `order[i]` moves to place i, where does its output belong?",
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
            "You only swap the first two positions; what happens at the others goes unseen.",
            "Which permutation moves every position?",
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
            "every_item",
            "Every item of the batch counts, not only the first.",
            "causal_in_first_item",
            "causal_attention",
            part="edges",
        ),
        pair(
            "first_item",
            "Every item of the batch counts, not only the last.",
            "previous_position",
            "causal_in_last_item",
            part="edges",
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


def _encoding_probes(rng):
    def probe(name, says, positions, size, part="values"):
        args = {"num_positions": int(positions), "embed_dim": int(size)}
        return Probe(name, says, part=part, args=args, tolerance=1e-4)

    columns = "Column 2i must hold sin(p / 10000^(2i/D)), column 2i + 1 the cosine of the same."
    return [
        probe("by_hand", columns, 3, 4),
        probe("wider", columns, rng.integers(4, 7), 8),
        probe("longer", columns, rng.integers(20, 30), 6),
        probe("many_columns", columns, 5, 2 * rng.integers(8, 12)),
        probe("odd", "An odd size ends with a sine.", 7, 5, "edges"),
        probe("odd_wide", "An odd size ends with a sine.", 4, 9, "edges"),
        probe("one_column", "One column holds the sine of the position.", 5, 1, "edges"),
        probe("one_position", "Position 0 is 0, 1, 0, 1, ...", 1, 6, "edges"),
    ]


def _first_row(probe, outputs):
    row = np.atleast_2d(outputs.data)[0]
    expected = np.arange(len(row)) % 2
    if np.allclose(row, expected, atol=1e-4):
        return None
    return "Position 0 must be 0, 1, 0, 1, ... (sin 0 and cos 0 in turn); yours begins with " + (
        ", ".join(f"{value:.2f}" for value in row[:4]) + "."
    )


def _on_circle(probe, outputs):
    pairs = outputs.data[:, : outputs.data.shape[1] // 2 * 2].reshape(len(outputs.data), -1, 2)
    lengths = (pairs**2).sum(-1)
    if np.allclose(lengths, 1, atol=1e-3):
        return None
    p, i = (int(k) for k in np.argwhere(~np.isclose(lengths, 1, atol=1e-3))[0])
    return (
        f"Columns {2 * i} and {2 * i + 1} must be sine and cosine of one angle; at position {p} "
        f"your squares add up to {lengths[p, i]:.3f}."
    )


_EXPONENT = "Write down the angles of position 1 for D = 4: 1 and 1/100."

POSITIONAL_ENCODING = Exercise(
    name="positional_encoding",
    points=3,
    minutes=20,
    difficulty=2,
    returns=(Returned("encoding", "tensor", "any float", ("num_positions", "embed_dim")),),
    probes=_encoding_probes,
    oracle=oracle.positional_encoding,
    mistakes=(
        Mistake(
            "sine_and_cosine_swapped",
            wrong.encoding(sine=1),
            "Sine and cosine have changed places: even columns hold sines.",
            "What is column 0 of position 0?",
        ),
        Mistake(
            "in_halves",
            wrong.halves_of,
            "The sines fill the first half and the cosines the second; here they take turns.",
            "Which columns does `encoding[:, 0::2]` name?",
        ),
        Mistake(
            "base_1000",
            wrong.encoding(base=1000.0),
            "The base is 1000 instead of 10000.",
            "How many zeros has the number in the formula?",
        ),
        Mistake(
            "base_100",
            wrong.encoding(base=100.0),
            "The exponent lacks its factor 2: column 2i belongs to 10000^(2i/D).",
            _EXPONENT,
        ),
        Mistake(
            "positions_from_one",
            wrong.encoding(start=1),
            "The first position has the number 1; it must be 0.",
            "What is sin(0)?",
        ),
        Mistake(
            "column_exponent",
            wrong.encoding(exponent=lambda column, size: column / size),
            "Every column has a rate of its own; sine and cosine of a pair must share one.",
            "What are the exponents of columns 0 and 1?",
        ),
        Mistake(
            "exponent_doubled",
            wrong.encoding(exponent=lambda column, size: 2 * (column - column % 2) / size),
            "The exponent is twice as large as it should be: the column number 2i is already the "
            "doubled pair number.",
            _EXPONENT,
        ),
        Mistake(
            "exponent_of_doubled_column",
            wrong.encoding(exponent=lambda column, size: 2 * column / size),
            "Every column has a rate of its own, and its exponent is doubled: 2 i counts pairs i, "
            "not columns.",
            "Which number i do columns 0 and 1 share?",
        ),
        Mistake(
            "multiplied",
            wrong.encoding(divide=False),
            "The positions are multiplied by 10000^(2i/D); they must be divided, so that later "
            "columns turn more slowly.",
            "Which column should change fastest?",
        ),
        Mistake(
            "last_rate_reached",
            wrong.encoding(
                exponent=lambda column, size: (column // 2) / max((size + 1) // 2 - 1, 1)
            ),
            "Your rates run all the way to 1/10000; the formula divides by D and stops short of "
            "it.",
            "What is the exponent of the last pair?",
        ),
        Mistake(
            "integer_exponent",
            wrong.encoding(exponent=lambda column, size: (column - column % 2) // size),
            "All columns turn at the same rate: the exponent was rounded down to 0.",
            "What is the difference between `/` and `//`?",
        ),
        Mistake(
            "only_sines",
            wrong.encoding(combine=lambda angles: angles.sin()),
            "All columns are sines.",
            "What are the odd columns for?",
        ),
        Mistake(
            "transposed",
            lambda num_positions, embed_dim: wrong.encoding()(num_positions, embed_dim).T,
            "Positions belong in the rows.",
            "Which axis do the positions have before broadcasting?",
        ),
        Mistake(
            "even_sizes_only",
            wrong.even_sizes_only,
            "Even sizes are right; an odd size raises, as there is one cosine less than sines.",
            "How many even columns has a row of 5, and how many odd ones?",
        ),
        Mistake(
            "last_column_missing",
            wrong.last_column_missing,
            "An odd size loses its last column.",
            "Which function stands in column 4 of 5?",
        ),
        Mistake(
            "last_column_zero",
            wrong.last_column_zero,
            "The last column of an odd size stays 0.",
            "Which function stands in column 4 of 5?",
        ),
        Mistake(
            "last_column_cosine",
            wrong.last_column_cosine,
            "The last column of an odd size is a cosine; it must be a sine.",
            "Is column 4 of 5 even or odd?",
        ),
        Mistake(
            "size_rounded_up",
            wrong.rounded_up,
            "For an odd size the rates are those of the next even size.",
            "Which D stands in the exponent?",
        ),
    ),
    properties=(
        Property("position_zero", _first_row, "What are sin 0 and cos 0?"),
        Property("not_on_a_circle", _on_circle, "Do both columns of a pair use the same angle?"),
    ),
    hints=(
        "Each pair of columns is a clock hand: position p turns it by an angle. The first pair "
        "turns by 1 a step, later ones ever more slowly.",
        "Make a column of positions and a row of rates 10000^(2i/D), one for each pair; divide. "
        "Put the sines into the even columns and the cosines into the odd ones, of which there "
        "may be one less.",
        "angles = positions[:, None] / 10000 ** (torch.arange(0, embed_dim, 2) / embed_dim)\n"
        "encoding[:, 0::2] = angles.sin()\n"
        "encoding[:, 1::2] = angles[:, : embed_dim // 2].cos()",
    ),
)
