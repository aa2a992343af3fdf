"""Lesson 06: cutting features into heads, and putting them together again."""

import numpy as np

from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import multi_head as oracle


def _carried(right):
    """A property for numbers that are only moved: says which number stands in a wrong place."""

    def violated(probe, outputs):
        x = probe.inputs()["x"].data
        expected = right(probe)
        if outputs.data is None or outputs.data.shape != expected.shape:
            return None
        moved = np.argwhere(~np.isclose(outputs.data, expected, atol=1e-4))
        for index in moved[:1]:
            found = np.argwhere(np.isclose(x, outputs.data[tuple(index)], atol=1e-6))
            wanted = np.argwhere(x == expected[tuple(index)])
            if len(found) == 1 and len(wanted) == 1:
                places = [f"x{[int(i) for i in place]}" for place in (found[0], wanted[0])]
                at = [int(i) for i in index]
                return f"At {at} your result holds {places[0]}; {places[1]} belongs there."
        return None

    return violated


def _split_probes(rng):
    def normal(*shape):
        return rng.normal(0, 1.3, shape)

    return [
        Probe(
            "by_hand",
            "Head 0 gets the first block of features of every position, head 1 the second.",
            args={"x": tensor([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]), "num_heads": 2},
        ),
        Probe(
            "three_heads",
            "Head i holds the i-th block of features of every position.",
            args={"x": tensor(normal(2, 6, 12), strided=True), "num_heads": 3},
        ),
        Probe(
            "more_heads_than_positions",
            "Head i holds the i-th block of features, whatever the number of positions.",
            args={"x": tensor(normal(3, 2, 20)), "num_heads": 4},
        ),
        Probe(
            "one_head",
            "One head keeps all features: only an axis is added.",
            part="edges",
            args={"x": tensor(normal(2, 3, 5)), "num_heads": 1},
        ),
        Probe(
            "one_feature_each",
            "As many heads as features: each head holds one feature.",
            part="edges",
            args={"x": tensor(normal(3, 4, 5)), "num_heads": 5},
        ),
        Probe(
            "one_position",
            "A single position must work.",
            part="edges",
            args={"x": tensor(normal(3, 1, 8)), "num_heads": 2},
        ),
        *(
            Probe(
                name,
                f"{features} features cannot be shared by {heads} heads: that must be a "
                "ValueError.",
                part="edges",
                args={"x": tensor(normal(2, 3, features)), "num_heads": heads},
                raises="ValueError",
            )
            for name, features, heads in (("indivisible", 7, 2), ("more_heads", 3, 6))
        ),
        Probe(
            "gradient",
            "Gradients must reach every feature.",
            part="gradients",
            args={"x": tensor(normal(1, 3, 4), requires_grad=True), "num_heads": 2},
            grad_outputs=rng.normal(0, 1, (1, 2, 3, 2)),
        ),
    ]


def _checked_split(change):
    """A wrong split that still refuses what cannot be shared out."""

    def split_heads(x, num_heads):
        if x.shape[-1] % num_heads:
            raise ValueError("num_heads")
        return change(x, num_heads)

    return split_heads


def _blocks(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


SPLIT_HEADS = Exercise(
    name="split_heads",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(
        Returned("heads", "tensor", "float", ("batch", "num_heads", "num_positions", "head_dim")),
    ),
    probes=_split_probes,
    promises={
        "Takes** `x`, shape `(B, n, D)`": "one_position one_head",
        "head $i$ holds features": "three_heads more_heads_than_positions one_feature_each",
        "Raises `ValueError`": "indivisible more_heads",
        "split_heads(x, 2)": "by_hand",
        "split_heads(x, 3)": "indivisible more_heads",
        "Gradients reach": "gradient",
        # the docstring
        "makes one head of each": "one_head one_position",
        "the block layout of": "three_heads",
        "projected queries, keys or values": "",
        "must divide the number of features": "indivisible",
        "cannot be shared out evenly": "more_heads",
        "Tensor `(batch, num_heads": "three_heads",
    },
    oracle=oracle.split_heads,
    mistakes=(
        Mistake(
            "view_without_transpose",
            _checked_split(lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)),
            "The shape is right, the numbers are not: reshaping straight to "
            "(batch, num_heads, num_positions, head_dim) reads along the positions, so a head "
            "gets whole positions instead of a block of features.",
            "Which axis can be cut in two without moving a number, and what must then change "
            "places?",
        ),
        Mistake(
            "axes_left",
            _checked_split(lambda x, h: x.unflatten(-1, (h, -1))),
            "The features are cut rightly, but the axis of the heads still stands after the "
            "positions.",
            "Which two axes must change places so that each head is a (num_positions, head_dim) "
            "matrix?",
        ),
        Mistake(
            "interleaved",
            _checked_split(lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)),
            "Your heads are interleaved: head 0 gets features 0, h, 2h, ... instead of a block of "
            "neighbours.",
            "In `(..., num_heads, head_dim)`, which of the two axes moves fastest?",
        ),
        Mistake(
            "splits_the_sequence",
            _checked_split(lambda x, h: x.reshape(x.shape[0], h, x.shape[1] // h, x.shape[2])),
            "You cut the positions into blocks; heads share the features, and each sees every "
            "position.",
            "Which axis of `x` holds the features?",
            fails=True,
        ),
        Mistake(
            "batch_and_heads_swapped",
            _checked_split(lambda x, h: _blocks(x, h).transpose(0, 1)),
            "The axis of the heads comes first and the batch second; it must be the other way.",
            "Which permutation gives (batch, num_heads, num_positions, head_dim)?",
        ),
        Mistake(
            "folded_into_the_batch",
            _checked_split(lambda x, h: _blocks(x, h).flatten(0, 1)),
            "You folded the heads into the batch axis. Here they keep an axis of their own.",
            "What is the last step of your code for?",
        ),
    ),
    properties=(
        Property(
            "number_misplaced",
            _carried(
                lambda probe: oracle.split_heads(
                    *(getattr(a, "data", a) for a in probe.args.values())
                )
            ),
            "Which block of features belongs to this head?",
        ),
    ),
    hints=(
        "Cutting the feature axis into (num_heads, head_dim) moves no number. Bringing the heads "
        "to the front does: that is a transpose.",
        "Reshape the last axis into two, heads first, then swap the axis of the positions with "
        "the axis of the heads. Before that, raise ValueError if the division leaves a rest.",
        "x = x.reshape(batch, num_positions, num_heads, embed_dim // num_heads)\n"
        "return x.transpose(..., ...)",
    ),
)


def _merge_probes(rng):
    def normal(*shape):
        return rng.normal(0, 1.3, shape)

    return [
        Probe(
            "by_hand",
            "Each position must get its features of head 0, then those of head 1.",
            args={"x": tensor([[[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]])},
        ),
        Probe(
            "three_heads",
            "Each position's features stand side by side, head after head.",
            args={"x": tensor(normal(2, 3, 5, 4), strided=True)},
        ),
        Probe(
            "more_heads_than_positions",
            "Each position's features stand side by side, whatever the sizes.",
            args={"x": tensor(normal(3, 4, 2, 5))},
        ),
        Probe(
            "one_head",
            "One head's features are all there is.",
            part="edges",
            args={"x": tensor(normal(2, 1, 4, 3))},
        ),
        Probe(
            "one_feature_each",
            "Heads of one feature must work.",
            part="edges",
            args={"x": tensor(normal(2, 5, 3, 1))},
        ),
        Probe(
            "one_position",
            "A single position must keep its axis.",
            part="edges",
            args={"x": tensor(normal(1, 3, 1, 2))},
        ),
        Probe(
            "gradient",
            "Gradients must reach every head.",
            part="gradients",
            args={"x": tensor(normal(1, 2, 3, 2), requires_grad=True)},
            grad_outputs=rng.normal(0, 1, (1, 3, 4)),
        ),
    ]


MERGE_HEADS = Exercise(
    name="merge_heads",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("merged", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=_merge_probes,
    promises={
        "for each position the features of head 0": "three_heads more_heads_than_positions",
        "the example above": "by_hand",
        "is `x`": "one_head one_feature_each one_position",
        "Gradients reach": "gradient",
        # the docstring
        "Puts the heads": "three_heads",
        "one result for each head and position": "one_feature_each",
        "at each position the features of": "three_heads",
    },
    oracle=oracle.merge_heads,
    mistakes=(
        Mistake(
            "reshape_without_transpose",
            lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            "The shape is right, the numbers are not: in memory all positions of head 0 come "
            "first, so a reshape fills the first rows with head 0 alone.",
            "Which axes must be neighbours before a reshape can join them?",
        ),
        Mistake(
            "summed",
            lambda x: x.sum(1),
            "You add the heads up; their features belong side by side.",
            "How many features does a position have after the merge?",
        ),
        Mistake(
            "averaged",
            lambda x: x.mean(1),
            "You average the heads; their features belong side by side.",
            "How many features does a position have after the merge?",
        ),
        Mistake(
            "interleaved",
            lambda x: x.permute(0, 2, 3, 1).flatten(2),
            "The heads are interleaved: feature 0 of every head, then feature 1 of every head.",
            "Which axis moves fastest when the last two are joined?",
        ),
        Mistake(
            "view_raises",
            lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1),
            "`.view` cannot join axes that a transpose has moved apart in memory.",
            "Which method copies where it must, and which call makes a tensor contiguous?",
            fails=True,
        ),
        Mistake(
            "positions_joined",
            lambda x: x.flatten(1, 2),
            "You put the heads one after another along the positions, not along the features.",
            "Which axis keeps its size in a merge?",
        ),
        Mistake(
            "axes_left",
            lambda x: x.transpose(1, 2),
            "The heads stand beside the features, but still on an axis of their own.",
            "Which two axes become one?",
        ),
        Mistake(
            "size_one_axes_lost",
            lambda x: x.transpose(1, 2).flatten(2).squeeze(),
            "Axes of size 1 disappear: a batch of one item, or a single position.",
            "What does `squeeze` without an argument do?",
        ),
    ),
    properties=(
        Property(
            "number_misplaced",
            _carried(lambda probe: oracle.merge_heads(probe.args["x"].data)),
            "Which head and which feature belong in this column?",
        ),
    ),
    hints=(
        "It is `split_heads` run backwards: what was done last is undone first.",
        "Swap the axes of heads and positions, then join the last two axes. `reshape` and "
        "`flatten` copy where they must; `view` raises.",
        "x = x.transpose(..., ...)\nreturn x.flatten(start_dim=2)",
    ),
)
