"""Lesson 06: heads, what they share, and what they cannot see without positions."""

import functools

import numpy as np
import torch

from course_lib.checks.catalogue import _multi_head_mistakes as wrong
from course_lib.checks.catalogue._multi_head_mistakes import but
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Lesson, Mistake, Property, Returned, Written
from course_lib.checks.probe import Built, Probe, tensor
from course_lib.reference import multi_head as oracle

LESSON = Lesson(6, "Multi-head attention", Written("heads_and_positions", points=3, minutes=10))


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


# ---------------------------------------------------------------- split_heads
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
            args={"x": tensor(normal(2, 6, 12)), "num_heads": 3},
        ),
        Probe(
            "more_heads_than_positions",
            "Head i holds the i-th block of features, whatever the number of positions.",
            args={"x": tensor(normal(3, 2, 20)), "num_heads": 4},
        ),
        Probe(
            "strided",
            "A non-contiguous tensor must work.",
            args={"x": tensor(normal(2, 4, 10), strided=True), "num_heads": 2},
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


def _rest_dropped(x, num_heads):
    head_dim = x.shape[-1] // num_heads
    return (
        _blocks(
            x[..., : num_heads * head_dim].reshape(*x.shape[:2], num_heads * head_dim), num_heads
        )
        if head_dim
        else x[:, None, :, :0].expand(-1, num_heads, -1, -1)
    )


SPLIT_HEADS = Exercise(
    name="split_heads",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(
        Returned("heads", "tensor", "float", ("batch", "num_heads", "num_positions", "head_dim")),
    ),
    probes=_split_probes,
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
            "interleaved",
            _checked_split(lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)),
            "Your heads are interleaved: head 0 gets features 0, h, 2h, ... instead of a block of "
            "neighbours.",
            "In `(..., num_heads, head_dim)`, which of the two axes moves fastest?",
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
            "splits_the_sequence",
            _checked_split(lambda x, h: x.reshape(x.shape[0], h, x.shape[1] // h, x.shape[2])),
            "You cut the positions into blocks; heads share the features, and each sees every "
            "position.",
            "Which axis of `x` holds the features?",
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
        Mistake(
            "head_transposed",
            _checked_split(lambda x, h: _blocks(x, h).mT),
            "Within a head, positions and features are the wrong way round.",
            "Which axis must come last for `q @ k.mT` to sum over the features?",
        ),
        Mistake(
            "num_heads_read_as_head_dim",
            _checked_split(lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2)),
            "`num_heads` is taken for the size of a head: you get D / h heads of h features.",
            "Which of the two factors of D is `num_heads`?",
        ),
        Mistake(
            "heads_reversed",
            _checked_split(lambda x, h: _blocks(x, h).flip(1)),
            "The blocks are right, their order is reversed.",
            "Which head holds feature 0?",
        ),
        Mistake(
            "first_block_for_all",
            _checked_split(lambda x, h: x[:, None, :, : x.shape[-1] // h].expand(-1, h, -1, -1)),
            "Every head holds the first block of features.",
            "Where does the number of the head enter?",
        ),
        Mistake(
            "rest_dropped",
            _rest_dropped,
            "The blocks are right, but features that cannot be shared out evenly are dropped "
            "without a word; that must be a ValueError.",
            "What is `embed_dim % num_heads` when the features can be shared out?",
        ),
        Mistake(
            "gradient_cut",
            _checked_split(lambda x, h: _blocks(x.detach(), h)),
            "The numbers are right, but no gradient reaches `x`.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.tensor`)?",
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


# ---------------------------------------------------------------- merge_heads
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
            args={"x": tensor(normal(2, 3, 5, 4))},
        ),
        Probe(
            "more_heads_than_positions",
            "Each position's features stand side by side, whatever the sizes.",
            args={"x": tensor(normal(3, 4, 2, 5))},
        ),
        Probe(
            "strided",
            "A non-contiguous tensor must work.",
            args={"x": tensor(normal(2, 4, 3, 5), strided=True)},
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
            "positions_joined",
            lambda x: x.flatten(1, 2),
            "You put the heads one after another along the positions, not along the features.",
            "Which axis keeps its size in a merge?",
        ),
        Mistake(
            "features_before_positions",
            lambda x: x.transpose(2, 3).flatten(1, 2),
            "Features and positions are the wrong way round: positions come before features.",
            "Which axis must come last?",
        ),
        Mistake(
            "axes_left",
            lambda x: x.transpose(1, 2),
            "The heads stand beside the features, but still on an axis of their own.",
            "Which two axes become one?",
        ),
        Mistake(
            "only_first_head",
            lambda x: x[:, :1].repeat(1, x.shape[1], 1, 1).transpose(1, 2).flatten(2),
            "Every block of features is that of head 0.",
            "Where do the other heads enter?",
        ),
        Mistake(
            "heads_reversed",
            lambda x: x.flip(1).transpose(1, 2).flatten(2),
            "The blocks are right, their order is reversed.",
            "Whose features come first?",
        ),
        Mistake(
            "view_raises",
            lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1),
            "`.view` cannot join axes that a transpose has moved apart in memory.",
            "Which method copies where it must, and which call makes a tensor contiguous?",
        ),
        Mistake(
            "size_one_axes_lost",
            lambda x: x.transpose(1, 2).flatten(2).squeeze(),
            "Axes of size 1 disappear: a batch of one item, or a single position.",
            "What does `squeeze` without an argument do?",
        ),
        Mistake(
            "gradient_cut",
            lambda x: x.detach().transpose(1, 2).flatten(2),
            "The numbers are right, but no gradient reaches the heads.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.tensor`)?",
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


# ---------------------------------------------------------------- MultiHeadAttention
_SAYS_OUTPUT = "The outputs must be those of the formula, head by head, for the weights put in."
_WEIGHTS = ("attention_weights",)


def _state(rng, embed_dim, *, bias=False, scale=1.0):
    names = ("W_q", "W_k", "W_v", "W_o")
    state = {
        f"{n}.weight": rng.normal(0, scale / embed_dim**0.5, (embed_dim, embed_dim)) for n in names
    }
    if bias:
        state |= {f"{n}.bias": rng.normal(0, 1, embed_dim) for n in names}
    return state


def _attention_probe(rng, name, says, sizes, *, part="values", gradient=False, **options):
    """A probe of sizes (batch, num_queries, num_keys, num_heads, head_dim)."""
    batch, n, m, num_heads, head_dim = sizes
    embed_dim = num_heads * head_dim
    strided = options.pop("strided", False)
    inputs = options.pop("inputs", None) or {
        role: rng.normal(0, 1.3, (batch, size, embed_dim))
        for role, size in (("queries", n), ("keys", m), ("values", m))
    }
    construct = {"embed_dim": embed_dim, "num_heads": num_heads, **options.pop("construct", {})}
    state = options.pop("state", None)
    bias = construct.get("bias", False)
    return Probe(
        name,
        says,
        part=part,
        args={k: tensor(x, strided=strided, requires_grad=gradient) for k, x in inputs.items()},
        kwargs={k: tensor(options.pop(k)) for k in ("valid_lens", "mask") if k in options},
        construct=construct,
        state=_state(rng, embed_dim, bias=bias, scale=1.3) if state is None else state,
        attributes=_WEIGHTS,
        grad_outputs=rng.normal(0, 1, (batch, n, embed_dim)) if gradient else None,
        **options,
    )


def _some_of(rng, *shape):
    """A random mask in which every row allows and drops some key."""
    mask = rng.random(shape) < 0.6
    rows = mask.reshape(-1, shape[-1])
    for row in rows:
        row[rng.permutation(shape[-1])[:2]] = (True, False)
    return rows.reshape(shape)


def _lens(rng, num_keys, *shape):
    """Lengths from 1 to num_keys - 1 that differ as far as they can."""
    size = int(np.prod(shape))
    return np.resize(rng.permutation(np.arange(1, num_keys)), size).reshape(shape)


def _attention_probes(rng):
    probe = functools.partial(_attention_probe, rng)
    size = (2, 4, 5, 3, 2)
    return [
        *_attention_values(rng, probe, size),
        *_attention_edges(rng, probe, size),
        probe(
            "gradient",
            "Gradients must reach queries, keys, values and all four layers.",
            (1, 2, 3, 2, 2),
            part="gradients",
            gradient=True,
            mask=np.array([[True, False, True], [True, True, True]]),
        ),
        probe(
            "gradient_with_empty_row",
            "An item without any real key must leave every gradient finite.",
            (2, 2, 3, 2, 1),
            part="gradients",
            gradient=True,
            valid_lens=np.array([0, 2]),
        ),
    ]


def _attention_values(rng, probe, size):
    batch, n, m, num_heads, _ = size
    identities = {"W_v.weight": np.eye(6), "W_o.weight": np.eye(6)}
    return [
        probe("cross", _SAYS_OUTPUT, size),
        probe(
            "blocks",
            "With W_v and W_o set to identities, head i must fill the i-th block of features "
            "with averages of the i-th block of the values.",
            (2, 4, 5, 2, 3),
            state=_state(rng, 6) | identities,
        ),
        probe(
            "lengths_per_item",
            "Lengths of shape (batch,) must hold for every query and every head of an item.",
            size,
            valid_lens=_lens(rng, m, batch),
        ),
        probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) must hold for every head.",
            size,
            valid_lens=_lens(rng, m, batch, n),
        ),
        probe(
            "mask_for_all",
            "A mask of shape (n, m) must hold for every item and every head.",
            size,
            mask=_some_of(rng, n, m),
        ),
        probe(
            "mask_per_item",
            "A mask of shape (batch, n, m) must hold for every head of its item.",
            size,
            mask=_some_of(rng, batch, n, m),
        ),
        probe(
            "mask_per_head",
            "A mask of shape (batch, num_heads, n, m) gives each head its own.",
            size,
            mask=_some_of(rng, batch, num_heads, n, m),
        ),
        probe(
            "lengths_and_mask",
            "With both given, a key must be allowed by both.",
            (3, 2, 7, 2, 2),
            valid_lens=np.array([6, 4, 5]),
            mask=np.array([[True, True, False, True, False, True, True]] * 2),
        ),
        probe("strided", "Non-contiguous inputs must work.", (2, 3, 5, 2, 4), strided=True),
        probe(
            "bias",
            "With `bias=True` each of the four layers adds its bias.",
            (2, 3, 4, 2, 3),
            construct={"bias": True},
        ),
    ]


def _attention_edges(rng, probe, size):
    x = rng.normal(0, 1.3, (2, 4, 6))
    cross = (2, 3, 5, 2, 3)
    inputs = {
        "queries": 1000 * rng.normal(0, 1.3, (2, 3, 6)),
        "keys": rng.normal(0, 1.3, (2, 5, 6)),
        "values": rng.normal(0, 1.3, (2, 5, 6)),
    }
    return [
        probe(
            "as_many_items_as_heads",
            "A mask of shape (batch, n, m) belongs to the items, also where there are as many "
            "items as heads.",
            cross,
            part="edges",
            mask=_some_of(rng, 2, 3, 5),
        ),
        probe(
            "self_attention",
            "One sequence as queries, keys and values must work.",
            (2, 4, 4, 3, 2),
            part="edges",
            inputs={"queries": x, "keys": x, "values": x},
        ),
        probe("one_head", "One head must be plain attention.", (2, 3, 4, 1, 5), part="edges"),
        probe(
            "one_feature_each",
            "As many heads as features must work.",
            (2, 3, 4, 5, 1),
            part="edges",
        ),
        probe(
            "one_query_one_key",
            "A single query and a single key must keep their axes.",
            (1, 1, 1, 2, 2),
            part="edges",
        ),
        probe(
            "item_without_keys",
            "An item of length 0 must get weights 0 and outputs 0.",
            cross,
            part="edges",
            valid_lens=np.array([0, 3]),
        ),
        probe(
            "large_scores",
            "Large scores must not overflow.",
            cross,
            part="edges",
            inputs=inputs,
            tolerance=1e-6,
        ),
        *_attention_dropout(rng, probe),
    ]


def _attention_dropout(rng, probe):
    """Dropout of p = 0.3 on 2 * 2 * 60 * 10 = 2400 weights, judged as `checks.compare` says."""
    embed_dim = 2 * (10 + 3)
    values = dropout_values(rng, 2, 10, num_heads=2)
    eye = np.eye(embed_dim)
    state = _state(rng, embed_dim) | {"W_v.weight": eye, "W_o.weight": eye}
    inputs = {
        "queries": rng.normal(0, 1, (2, 60, embed_dim)),
        "keys": rng.normal(0, 1, (2, 10, embed_dim)),
        "values": values,
    }
    return [
        probe(
            "dropout_in_eval_mode",
            "In eval mode nothing is dropped, whatever `dropout` is.",
            (2, 3, 5, 2, 2),
            part="edges",
            construct={"dropout": 0.5},
        ),
        probe(
            "no_dropout_in_train_mode",
            "With `dropout=0` train mode must give the outputs of eval mode.",
            (2, 3, 4, 2, 2),
            part="edges",
            training=True,
        ),
        probe(
            "dropout_in_train_mode",
            "In train mode each weight is dropped with probability `dropout` and the others are "
            "divided by 1 - `dropout`.",
            (2, 60, 10, 2, 13),
            part="edges",
            construct={"dropout": 0.3},
            training=True,
            inputs=inputs,
            state=state,
            compare="dropout_on_weights",
        ),
    ]


_INVERTED = "True means 'may attend' here; `nn.MultiheadAttention` has it the other way round."

MULTI_HEAD_ATTENTION = Exercise(
    name="MultiHeadAttention",
    points=7,
    minutes=45,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "embed_dim")),),
    probes=_attention_probes,
    oracle=oracle.multi_head_attention,
    builds_on=("masked_softmax", "split_heads", "merge_heads"),
    mistakes=(
        Mistake(
            "split_without_transpose",
            but(split=wrong.split_without_transpose),
            "Your heads are cut by a reshape without a transpose: a head gets whole positions "
            "instead of a block of features.",
            "What does `split_heads` do between reshape and return?",
        ),
        Mistake(
            "merge_without_transpose",
            but(merge=wrong.merge_without_transpose),
            "The heads are right, but merged by a reshape without a transpose: the first "
            "positions get the outputs of head 0 alone.",
            "Which axes must be neighbours before a reshape can join them?",
        ),
        Mistake(
            "no_transpose_at_all",
            but(
                split=wrong.split_without_transpose,
                merge=lambda self, x: x.reshape(x.shape[0], x.shape[2], -1),
            ),
            "Neither the split nor the merge transposes. The shapes fit and it may even train, "
            "but each head attends within a slice of the sequence.",
            "What would `split_heads` and `merge_heads` do?",
        ),
        Mistake(
            "interleaved_heads",
            but(split=wrong.split_interleaved, merge=wrong.merge_interleaved),
            "Your heads take every h-th feature instead of a block of neighbours.",
            "In `(..., num_heads, head_dim)`, which axis moves fastest?",
        ),
        Mistake(
            "scale_embed_dim",
            but(scale=lambda self, q: (q.shape[-1] * self.num_heads) ** 0.5),
            "The scores are divided by the root of `embed_dim`; a head's dot products have only "
            "head_dim terms.",
            "How many products does one score of one head sum up?",
        ),
        Mistake(
            "no_scale",
            but(scale=lambda self, q: 1.0),
            "The scores are not divided by the root of head_dim.",
            "Whose variance grows with the number of features of a head?",
        ),
        Mistake(
            "scale_without_root",
            but(scale=lambda self, q: q.shape[-1]),
            "The scores are divided by head_dim instead of its square root.",
            "What is the standard deviation of a sum of d products?",
        ),
        Mistake(
            "scale_num_heads",
            but(scale=lambda self, q: self.num_heads**0.5),
            "The scores are divided by the root of the number of heads.",
            "Which axis do the dot products sum over?",
        ),
        Mistake(
            "no_W_o",
            but(finish=lambda self, merged, queries: merged),
            "The merged heads are returned as they are: `W_o` is never used.",
            "Which layer mixes what the heads have found?",
        ),
        Mistake(
            "residual_added",
            but(finish=lambda self, merged, queries: self.W_o(merged) + queries),
            "The queries are added to the outputs. That belongs to the block around attention.",
            "What does the formula end with?",
        ),
        Mistake(
            "values_through_W_k",
            but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_k(v))),
            "The values are projected by `W_k`; `W_v` is never used.",
            "Which layer belongs to which argument?",
        ),
        Mistake(
            "W_k_and_W_v_swapped",
            but(project=lambda self, q, k, v: (self.W_q(q), self.W_v(k), self.W_k(v))),
            "`W_k` and `W_v` have changed places.",
            "Which layer belongs to which argument?",
        ),
        Mistake(
            "W_q_and_W_k_swapped",
            but(project=lambda self, q, k, v: (self.W_k(q), self.W_q(k), self.W_v(v))),
            "`W_q` and `W_k` have changed places.",
            "Which layer belongs to which argument?",
        ),
        Mistake(
            "keys_through_W_q",
            but(project=lambda self, q, k, v: (self.W_q(q), self.W_q(k), self.W_v(v))),
            "Queries and keys are both projected by `W_q`; `W_k` is never used.",
            "What would every score matrix of a self-attention be if both shared one layer?",
        ),
        Mistake(
            "values_from_keys",
            but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_v(k))),
            "`W_v` is applied to the keys; the argument `values` changes nothing.",
            "What is V projected from?",
        ),
        Mistake(
            "keys_and_values_from_queries",
            but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(q), self.W_v(q))),
            "Keys and values are both projected from the queries, so nothing but "
            "self-attention can work.",
            "Which argument does each layer read?",
        ),
        Mistake(
            "values_not_projected",
            but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), v)),
            "The values are used as they are; `W_v` is never applied.",
            "How many of the four layers does your `forward` call?",
        ),
        Mistake(
            "one_head",
            but(split=lambda self, x: x.unsqueeze(1), merge=lambda self, x: x.squeeze(1)),
            "All features go through one single head, whatever `num_heads` is.",
            "Where does `num_heads` enter?",
        ),
        Mistake(
            "first_block_for_all_heads",
            but(split=wrong.first_block_for_all),
            "Every head works on the first block of features.",
            "Where does the number of the head enter?",
        ),
        Mistake(
            "heads_averaged",
            but(merge=wrong.heads_averaged),
            "The heads' outputs are averaged; they belong side by side.",
            "How many different features does a position have after the merge?",
        ),
        Mistake(
            "weights_averaged_over_heads",
            but(attend=wrong.average_weights),
            "All heads use the average of the heads' weights, so they all look at the same keys.",
            "What are several heads for?",
        ),
        Mistake(
            "mask_and_lengths_ignored",
            but(allowed=lambda self, scores, valid_lens, mask: torch.ones_like(scores).bool()),
            "Neither `valid_lens` nor `mask` changes anything.",
            "Where are they passed on?",
        ),
        Mistake(
            "mask_ignored",
            but(own_mask=lambda self, scores, mask: torch.ones_like(scores).bool()),
            "The lengths work, the mask changes nothing.",
            "Where is `mask` passed on?",
        ),
        Mistake(
            "lengths_ignored",
            but(real_keys=lambda self, scores, valid_lens: torch.ones_like(scores).bool()),
            "The mask works, the lengths change nothing.",
            "Where is `valid_lens` passed on?",
        ),
        Mistake(
            "mask_inverted",
            but(own_mask=lambda self, scores, mask: ~wrong.Stepwise.own_mask(self, scores, mask)),
            "Your mask is upside down: the keys that should be dropped get all the weight.",
            _INVERTED,
        ),
        Mistake(
            "masks_inverted",
            but(allowed=wrong.inverted_masks),
            "Lengths and mask are upside down: padded and forbidden keys get all the weight.",
            _INVERTED,
        ),
        Mistake(
            "either_is_enough",
            but(allowed=wrong.either_allows),
            "With lengths and a mask both given, you allow a key that either of them allows.",
            "A padded key in the past: may it be attended?",
        ),
        Mistake(
            "masks_tiled",
            but(allowed=wrong.tiled),
            "The masks reach the wrong items. A folded batch runs item 0 head 0, item 0 head 1, "
            "..., but your lengths and masks run item 0, item 1, item 0, ...",
            "What is the difference between `repeat` and `repeat_interleave`?",
        ),
        Mistake(
            "item_mask_read_as_head_mask",
            but(own_mask=wrong.mask_as_it_is),
            "A mask of shape (batch, n, m) lands on the axis of the heads: it raises, or, with as "
            "many items as heads, gives each head the mask of an item.",
            "Which axis is missing in (batch, n, m)?",
        ),
        Mistake(
            "mask_of_first_item_for_all",
            but(own_mask=wrong.first_item_mask),
            "Every item gets the mask of the first one.",
            "Which axis of the mask belongs to the items?",
        ),
        Mistake(
            "mask_of_first_head_for_all",
            but(own_mask=wrong.first_head_mask),
            "Every head gets the mask of the first one.",
            "Which axis of a (batch, num_heads, n, m) mask belongs to the heads?",
        ),
        Mistake(
            "head_axis_always_added",
            but(own_mask=wrong.always_a_head_axis),
            "Masks of shape (batch, n, m) work; with two or four axes the new axis lands in the "
            "wrong place.",
            "For which number of axes is the axis of the heads missing?",
        ),
        Mistake(
            "length_of_first_query_for_all",
            but(real_keys=wrong.first_query_length),
            "With lengths of shape (batch, num_queries) every query gets the length of its "
            "item's first one.",
            "Which axis of `valid_lens` belongs to the queries?",
        ),
        Mistake(
            "one_length_per_item_only",
            but(real_keys=wrong.item_lengths_only),
            "Lengths of shape (batch,) work, lengths of shape (batch, num_queries) do not.",
            "Does `masked_softmax` not take both?",
        ),
        Mistake(
            "filled_with_zero",
            but(normalise=wrong.fill(0.0)),
            "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "zero_after_softmax",
            but(normalise=wrong.zero_afterwards),
            "Weights are set to 0 after the softmax, so what is left no longer sums to 1.",
            "Which comes first, mask or softmax?",
        ),
        Mistake(
            "over_queries",
            but(normalise=wrong.over_queries),
            "Your softmax runs over the queries instead of the keys.",
            "Which axis of the scores holds the keys?",
        ),
        Mistake(
            "over_heads",
            but(normalise=wrong.over_heads),
            "Your softmax runs over the heads instead of the keys.",
            "Which axis of (batch, num_heads, n, m) holds the keys?",
        ),
        Mistake(
            "empty_row_uniform",
            but(normalise=wrong.fill(-1e9)),
            "An item of length 0 attends to all of its padding: filled with one finite number, "
            "all keys get weight 1/m.",
            "What does `masked_softmax` return for a row without an allowed key?",
        ),
        Mistake(
            "empty_row_nan",
            but(normalise=wrong.fill(-torch.inf)),
            "A row in which no key is allowed becomes NaN.",
            "What does `masked_softmax` return for such a row?",
        ),
        Mistake(
            "empty_row_gradient_nan",
            but(normalise=wrong.nan_removed),
            "The outputs are right, but an item without keys turns the gradient of every layer "
            "into NaN.",
            "Can the NaN be kept from being made, rather than replaced?",
        ),
        Mistake(
            "exponentials_overflow",
            but(normalise=wrong.naive_exponentials),
            "Large scores overflow in exp.",
            "What does `torch.softmax` subtract before it takes exp?",
        ),
        Mistake(
            "transposed_layers",
            but(
                project=lambda self, q, k, v: (
                    q @ self.W_q.weight,
                    k @ self.W_k.weight,
                    v @ self.W_v.weight,
                )
            ),
            "The input layers are multiplied from the wrong side: `nn.Linear` computes x W^T.",
            "What happens if you call the layer instead of using its weight?",
        ),
        Mistake(
            "dropout_in_eval_mode",
            but(drop=lambda self, w: torch.dropout(w, self.p, True)),
            "Dropout acts in eval mode too.",
            "What does `nn.Dropout` look at that `F.dropout` must be told?",
        ),
        Mistake(
            "weights_stored_after_dropout",
            but(keep=wrong.used_in_attribute),
            "`attention_weights` holds the weights after dropout; the course keeps them as the "
            "softmax left them.",
            "Which line comes first, dropout or the assignment?",
        ),
        Mistake(
            "graph_kept",
            but(keep=wrong.graph_in_attribute),
            "`attention_weights` still carries its graph, which keeps every intermediate alive.",
            "What does `.detach()` do?",
        ),
        Mistake(
            "scores_stored",
            but(keep=wrong.scores_in_attribute),
            "`attention_weights` holds the scores before the softmax.",
            "Which rows sum to 1?",
        ),
        Mistake(
            "weights_stored_averaged",
            but(keep=wrong.averaged_in_attribute),
            "`attention_weights` holds the average over the heads; it must hold each head's own.",
            "Which shape do weights of several heads have?",
        ),
        Mistake(
            "weights_stored_folded",
            but(keep=wrong.folded_in_attribute),
            "`attention_weights` has heads and batch folded into one axis.",
            "Which four axes should it have?",
        ),
        Mistake(
            "weights_not_stored",
            but(keep=wrong.nothing_in_attribute),
            "The outputs are right, but `self.attention_weights` does not exist after the call.",
            "Where could `forward` keep the weights?",
        ),
        Mistake(
            "bias_always",
            but(make_layers=wrong.layers_with_bias),
            "The layers have biases although `bias=False`.",
            "What is the default of `nn.Linear`'s `bias`?",
        ),
        Mistake(
            "bias_never",
            but(make_layers=wrong.layers_without_bias),
            "`bias=True` changes nothing: the layers have no biases.",
            "Where is `bias` passed on?",
        ),
    ),
    hints=(
        "Project, split, attend in every head at once, merge, project. The scores have an axis "
        "more than in one head; all the rest you have written before.",
        "After `split_heads` the scores are `q @ k.mT` over sqrt(head_dim), shape "
        "(batch, num_heads, n, m). `masked_softmax` takes lengths and masks; a (batch, n, m) mask "
        "needs an axis for the heads first. Keep the weights detached, drop, average, merge, W_o.",
        "q, k, v = (split_heads(layer(x), self.num_heads) for layer, x in ...)\n"
        "weights = masked_softmax(q @ k.mT / math.sqrt(q.shape[-1]), valid_lens, mask)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.W_o(merge_heads(self.dropout(weights) @ v))",
    ),
)


# ---------------------------------------------------------------- load_into_torch
def _loading_probes(rng):
    def probe(name, says, *, part="values", bias=False, reference_bias=True, late=False):
        embed_dim, shapes = 6, {"queries": (2, 4), "keys": (2, 5), "values": (2, 5)}
        args = {k: tensor(rng.normal(0, 1.3, (*s, embed_dim))) for k, s in shapes.items()}
        state = _state(rng, embed_dim, bias=bias, scale=1.3)
        args |= {f"W_{n}": tensor(state[f"W_{n}.weight"]) for n in "qkvo"}
        args |= {f"b_{n}": tensor(state[f"W_{n}.bias"]) for n in "qkvo" if bias}
        options = {"num_heads": 2, "reference_bias": reference_bias, "change_afterwards": late}
        return Probe(name, says, part=part, args=args, kwargs=options, scenario="load_weights")

    return [
        probe(
            "no_biases",
            "After loading, both modules must give the same outputs and the same weights.",
            reference_bias=False,
        ),
        probe(
            "reference_with_biases",
            "A reference that has biases where `mha` has none must give the same outputs: its "
            "old biases may not stay.",
        ),
        probe("both_with_biases", "The four biases must be loaded as well.", bias=True),
        probe(
            "changed_afterwards",
            "The weights must be copied: changing `mha` later may not change the reference.",
            part="edges",
            bias=True,
            late=True,
        ),
        probe(
            "changed_afterwards_without_bias",
            "The weights must be copied: changing `mha` later may not change the reference.",
            part="edges",
            reference_bias=False,
            late=True,
        ),
    ]


def _loaded(queries, keys, values, **given):
    state = {f"W_{n}.weight": given[f"W_{n}"] for n in "qkvo"}
    state |= {f"W_{n}.bias": given[f"b_{n}"] for n in "qkvo" if "b_q" in given}
    construct = {"num_heads": given["num_heads"]}
    outputs, kept = oracle.multi_head_attention(construct, state, queries, keys, values)
    names = [f"W_{n}.{kind}" for n in "qkvo" for kind in ("weight", "bias")]
    source = np.concatenate([state[name].ravel() for name in names if name in state])
    trainable = 4 if given["reference_bias"] else 2
    return outputs, kept["attention_weights"], source, trainable


def _loading_oracle(*args, **kwargs):
    names = ("queries", "keys", "values", "W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")
    return _loaded(**dict(zip(names, args, strict=False)), **kwargs)


_LEFT = "Which parameters does `reference` have that `mha` has not?"

LOAD_INTO_TORCH = Exercise(
    name="load_into_torch",
    points=3,
    minutes=20,
    difficulty=2,
    returns=(
        Returned("outputs of the reference", "tensor", "float", ("batch", "n", "embed_dim")),
        Returned("weights of the reference", "tensor", "float", ("batch", "num_heads", "n", "m")),
        Returned("the weights in mha", "tensor", "float"),
        Returned("trainable parameters of the reference", "int"),
    ),
    probes=_loading_probes,
    oracle=_loading_oracle,
    builds_on=("MultiHeadAttention",),
    mistakes=(
        *(
            Mistake(
                f"order_{order}",
                wrong.loader(order),
                f"`in_proj_weight` holds W_q above W_k above W_v; yours are stacked in the order "
                f"{', '.join(order)}.",
                "In which order does torch cut `in_proj_weight` into three?",
            )
            for order in ("kqv", "kvq", "qvk", "vkq", "vqk")
        ),
        Mistake(
            "transposed",
            wrong.loader(weight=lambda w: w.T, out=lambda w: w.T),
            "All weights are transposed; `nn.Linear` and `nn.MultiheadAttention` both compute "
            "x W^T, so they can be copied as they are.",
            "Which shape and which meaning does `nn.Linear.weight` have?",
        ),
        Mistake(
            "input_transposed",
            wrong.loader(weight=lambda w: w.T),
            "The three input projections are transposed.",
            "Which shape and which meaning does `nn.Linear.weight` have?",
        ),
        Mistake(
            "output_transposed",
            wrong.loader(out=lambda w: w.T),
            "The output projection is transposed.",
            "Which shape and which meaning does `nn.Linear.weight` have?",
        ),
        Mistake(
            "by_head",
            wrong.load_by_head,
            "The rows are ordered head by head (q, k, v of head 0, then of head 1); torch keeps "
            "all of W_q first.",
            "What does `in_proj_weight[:embed_dim]` hold?",
        ),
        Mistake(
            "output_forgotten",
            wrong.loader(out=False),
            "The three input projections are loaded, the output projection is not.",
            "Where does torch keep W_o?",
        ),
        Mistake(
            "old_biases_left",
            wrong.loader(biases="own"),
            "Where `mha` has no biases, the reference keeps its old ones.",
            _LEFT,
        ),
        Mistake(
            "old_output_bias_left",
            wrong.loader(biases="in"),
            "The biases of the input projections are dealt with, that of `out_proj` is not.",
            _LEFT,
        ),
        Mistake(
            "old_input_biases_left",
            wrong.loader(biases="out"),
            "The bias of `out_proj` is dealt with, `in_proj_bias` is not.",
            _LEFT,
        ),
        Mistake(
            "biases_never_touched",
            wrong.loader(biases=False),
            "The weights are loaded, the biases are left as they were.",
            _LEFT,
        ),
        Mistake(
            "biases_always_zero",
            wrong.loader(biases="zero"),
            "All biases become 0, also where `mha` has biases of its own.",
            "What if `mha.W_q.bias` is not None?",
        ),
        Mistake(
            "other_way_round",
            wrong.load_other_way_round,
            "You copy from the reference into `mha`; it must be the other way round.",
            "Whose `copy_` is called?",
        ),
        Mistake(
            "in_the_graph",
            wrong.load_in_graph,
            "A parameter cannot be overwritten while autograd watches.",
            "Which context manager tells autograd to look away?",
        ),
        Mistake(
            "nothing_loaded",
            wrong.load_nothing,
            "The reference is as it was: its parameters have other names than those of `mha`, "
            "and `strict=False` hides that.",
            "Which names does `reference.state_dict()` have?",
        ),
        Mistake(
            "frozen",
            wrong.load_and_freeze,
            "The numbers are right, but the reference can no longer be trained.",
            "Which `requires_grad` should its parameters have?",
        ),
        Mistake(
            "shared",
            wrong.load_shared,
            "The reference uses `mha`'s own tensor instead of a copy: whoever changes one changes "
            "both.",
            "What is the difference between an assignment and `copy_`?",
        ),
    ),
    hints=(
        "Print `{name: p.shape for name, p in reference.named_parameters()}`: four tensors "
        "against your four (or eight).",
        "Under `torch.no_grad()`, copy W_q, W_k, W_v stacked along axis 0 into `in_proj_weight`, "
        "W_o into `out_proj.weight`. Then the biases: copy them, or set them to 0 where the "
        "reference has some and `mha` has none.",
        "with torch.no_grad():\n"
        "    reference.in_proj_weight.copy_(torch.cat([...]))\n"
        "    reference.out_proj.weight.copy_(mha.W_o.weight)\n"
        "    if mha.W_o.bias is not None: ...\n"
        "    elif reference.in_proj_bias is not None: ...",
    ),
)


# ---------------------------------------------------------------- tests of functions
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


# ---------------------------------------------------------------- positional_encoding
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

EXERCISES = (
    SPLIT_HEADS,
    MERGE_HEADS,
    MULTI_HEAD_ATTENTION,
    LOAD_INTO_TORCH,
    IS_PERMUTATION_EQUIVARIANT,
    IS_CAUSAL,
    POSITIONAL_ENCODING,
)
