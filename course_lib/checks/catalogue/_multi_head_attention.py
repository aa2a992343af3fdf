"""Lesson 06: the module, judged with injected weights."""

import functools

import numpy as np

from course_lib.checks.catalogue._multi_head_words import MISTAKES
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import multi_head as oracle

_SAYS_OUTPUT = "The outputs must be those of the formula, head by head, for the weights put in."
_WEIGHTS = ("attention_weights",)


def state_of(rng, embed_dim, *, bias=False, scale=1.0):
    names = ("W_q", "W_k", "W_v", "W_o")
    state = {
        f"{n}.weight": rng.normal(0, scale / embed_dim**0.5, (embed_dim, embed_dim)) for n in names
    }
    if bias:
        state |= {f"{n}.bias": rng.normal(0, 1, embed_dim) for n in names}
    return state


def _attention_probe(rng, name, says, sizes, *, part="values", gradient=False, **options):
    """A probe of sizes (batch, num_queries, num_keys, num_heads, head_dim).

    Lengths go by position if they are given alone, otherwise by name, as the mask does.
    """
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
    args = {k: tensor(x, strided=strided, requires_grad=gradient) for k, x in inputs.items()}
    if "valid_lens" in options and "mask" not in options:
        args["valid_lens"] = tensor(options.pop("valid_lens"))
    return Probe(
        name,
        says,
        part=part,
        args=args,
        kwargs={k: tensor(options.pop(k)) for k in ("valid_lens", "mask") if k in options},
        construct=construct,
        state=state_of(rng, embed_dim, bias=bias, scale=1.3) if state is None else state,
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
        probe(
            "gradient_with_empty_query",
            "A query without any allowed key must leave every gradient finite.",
            (1, 2, 3, 2, 1),
            part="gradients",
            gradient=True,
            mask=np.array([[False, False, False], [True, False, True]]),
        ),
    ]


def _attention_values(rng, probe, size):
    batch, n, m, num_heads, _ = size
    identities = {"W_v.weight": np.eye(6), "W_o.weight": np.eye(6)}
    return [
        probe("small", _SAYS_OUTPUT, (1, 2, 3, 2, 2)),
        probe("cross", _SAYS_OUTPUT, size),
        probe(
            "blocks",
            "With W_v and W_o set to identities, head i must fill the i-th block of features "
            "with averages of the i-th block of the values.",
            (2, 4, 5, 2, 3),
            state=state_of(rng, 6) | identities,
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
        probe(
            "lengths_per_query_and_mask_per_item",
            "With both given, a key must be allowed by both.",
            (2, 3, 6, 2, 2),
            valid_lens=_lens(rng, 6, 2, 3),
            mask=_some_of(rng, 2, 3, 6) | (np.arange(6) == 0),
        ),
        probe("strided", "Non-contiguous inputs must work.", (2, 3, 5, 2, 4), strided=True),
        probe(
            "bias",
            "With `bias=True` each of the four layers adds its bias.",
            (2, 4, 5, 2, 4),
            construct={"bias": True},
        ),
        probe(
            "built_by_position",
            "`__init__` takes embed_dim, num_heads, dropout and bias in this order.",
            (2, 4, 5, 2, 4),
            construct={"dropout": 0.0, "bias": True},
            scenario="built_by_position",
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
        probe(
            "as_many_queries_as_keys",
            "Queries, keys and values keep their roles where all have the same shape.",
            (2, 4, 4, 2, 3),
            part="edges",
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
            "lengths_zero",
            "Where no item has a real key, all weights are 0: 0 is a length too.",
            cross,
            part="edges",
            valid_lens=np.array([0, 0]),
        ),
        probe(
            "query_without_keys",
            "A row of the mask without True gets weights 0 and outputs 0, whatever the others see.",
            cross,
            part="edges",
            mask=_some_of(rng, 3, 5) & (np.arange(3) != 1)[:, None],
        ),
        probe(
            "query_of_length_zero",
            "With lengths of shape (batch, num_queries) a 0 empties the row of its query alone.",
            cross,
            part="edges",
            valid_lens=np.array([[2, 0, 4], [3, 1, 5]]),
        ),
        probe(
            "lengths_and_mask_per_head",
            "With lengths and a mask of shape (batch, num_heads, n, m) both count, and both stay "
            "as they are.",
            cross,
            part="edges",
            valid_lens=np.array([4, 3]),
            mask=_some_of(rng, 2, 2, 3, 5) | (np.arange(5) == 0),
        ),
        probe(
            "lengths_and_mask_per_item",
            "With lengths and a mask of shape (batch, n, m) both count, and both stay as they are.",
            cross,
            part="edges",
            valid_lens=np.array([4, 3]),
            mask=_some_of(rng, 2, 3, 5) | (np.arange(5) == 0),
        ),
        probe(
            "float32",
            "Inputs and weights in float32 give outputs in float32.",
            cross,
            part="edges",
            valid_lens=np.array([2, 4]),
            dtype="float32",
            tolerance=1e-4,
        ),
        probe(
            "after_another_call",
            "Each call counts on its own: outputs and `attention_weights` are those of the last.",
            cross,
            part="edges",
            valid_lens=np.array([2, 4]),
            scenario="after_another_call",
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
    """Dropout of p = 0.3 on 2 * 60 * (10 + 8) = 2160 weights, judged as `checks.compare` says."""
    embed_dim = 2 * (10 + 3)
    values = dropout_values(rng, 2, 10, num_heads=2)
    eye = np.eye(embed_dim)
    state = state_of(rng, embed_dim) | {"W_v.weight": eye, "W_o.weight": eye}
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
            "With `dropout=0` train mode must give the outputs of eval mode, masks included.",
            (2, 3, 4, 2, 2),
            part="edges",
            training=True,
            valid_lens=np.array([2, 3]),
            mask=np.array([[True, False, True, True], [False, True, True, False], [True] * 4]),
        ),
        probe(
            "item_without_keys_in_train_mode",
            "An item of length 0 must get weights 0 and outputs 0 in train mode too.",
            (2, 3, 5, 2, 2),
            part="edges",
            training=True,
            valid_lens=np.array([0, 3]),
        ),
        probe(
            "dropout_in_train_mode",
            "In train mode each weight is dropped with probability `dropout` and the others are "
            "divided by 1 - `dropout`.",
            (2, 60, 10, 2, 13),
            part="edges",
            construct={"dropout": 0.3},
            training=True,
            valid_lens=np.array([10, 8]),
            inputs=inputs,
            state=state,
            compare="dropout_on_weights",
        ),
    ]


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
    mistakes=MISTAKES,
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
