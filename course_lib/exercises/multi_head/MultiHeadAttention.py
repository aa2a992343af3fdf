"""Lesson 06: the module, judged with injected weights."""

import functools
from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from course_lib.checks.judge.comparisons import dropout_values
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.properties import WEIGHTS
from course_lib.exercises._attention.steps import Softmax
from course_lib.exercises._builders import INDEPENDENT, Given, in_eighths
from course_lib.reference import multi_head as oracle

_SAYS_OUTPUT = "The outputs must match the formula, head by head, for the injected weights."
_WEIGHTS = ("attention_weights",)


def state_of(rng, embed_dim, *, bias=False, scale=1.0) -> dict[str, np.ndarray]:
    names = ("W_q", "W_k", "W_v", "W_o")
    state = {
        f"{n}.weight": rng.normal(0, scale / embed_dim**0.5, (embed_dim, embed_dim)) for n in names
    }
    if bias:
        state |= {f"{n}.bias": rng.normal(0, 1, embed_dim) for n in names}
    return state


def _attention_probe(rng, name, says, sizes, *, part="values", gradient=False, **options) -> Probe:
    """Return a probe of sizes (batch, num_queries, num_keys, num_heads, head_dim)."""
    batch, n, m, num_heads, head_dim = sizes
    embed_dim = num_heads * head_dim
    inputs = options.pop("inputs", None) or {
        role: rng.normal(0, 1.3, (batch, size, embed_dim))
        for role, size in (("queries", n), ("keys", m), ("values", m))
    }
    construct = {"embed_dim": embed_dim, "num_heads": num_heads, **options.pop("construct", {})}
    state = options.pop("state", None)
    bias = construct.get("bias", False)
    args = {k: tensor(x, requires_grad=gradient) for k, x in inputs.items()}
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


def _some_of(rng, *shape) -> np.ndarray:
    """Draw a mask in which every row keeps and drops a key."""
    mask = rng.random(shape) < 0.6
    rows = mask.reshape(-1, shape[-1])
    for row in rows:
        row[rng.permutation(shape[-1])[:2]] = (True, False)
    return rows.reshape(shape)


def _lens(rng, num_keys, *shape) -> np.ndarray:
    """Draw lengths from 1 to num_keys - 1 that differ as much as possible."""
    size = int(np.prod(shape))
    return np.resize(rng.permutation(np.arange(1, num_keys)), size).reshape(shape)


def _passing_through(rng, embed_dim) -> dict[str, np.ndarray]:
    """Return weights that pass values to the outputs unchanged."""
    eye = np.eye(embed_dim)
    return state_of(rng, embed_dim) | {"W_v.weight": eye, "W_o.weight": eye}


def _values(rng, probe) -> list[Probe]:
    rows = np.array([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])
    size = batch, n, m, num_heads, _ = 2, 4, 5, 3, 2
    return [
        probe("worked_number", "A query of zeros weights all keys equally. With W_v and W_o that "
                               "change nothing, each head averages its block of the values.",
              (1, 2, 2, 2, 2),
              inputs={"queries": np.zeros((1, 2, 4)), "keys": rows, "values": rows},
              state=_passing_through(rng, 4)),
        probe("one_key", "A single key has weight 1: with W_v and W_o set to identities, each "
              "output is its value.", (3, 5, 1, 2, 2), state=_passing_through(rng, 4)),
        probe("cross", _SAYS_OUTPUT, size),
        probe("blocks", "With W_v and W_o set to identities, head i must fill the i-th block of "
              "features with averages of the i-th block of the values.", (4, 3, 5, 2, 3),
              state=_passing_through(rng, 6)),
        probe("lengths_per_item", "Lengths of shape (batch,) must hold for every query and every "
              "head of an item.", size, valid_lens=_lens(rng, m, batch)),
        probe("lengths_per_query", "Lengths of shape (batch, num_queries) must hold for every "
              "head.", size, valid_lens=_lens(rng, m, batch, n)),
        probe("mask_per_item", "A mask of shape (batch, n, m) must hold for every head of its "
              "item.", size, mask=_some_of(rng, batch, n, m)),
        probe("mask_per_head", "A mask of shape (batch, num_heads, n, m) gives each head its own.",
              size, mask=_some_of(rng, batch, num_heads, n, m)),
        probe("lengths_and_mask", "With both given, a key must be allowed by both.",
              (3, 5, 6, 2, 2), valid_lens=np.array([5, 3, 4]),
              mask=np.array([[True, True, False, True, False, True]] * 5)),
        probe("built_by_position", "`__init__` takes embed_dim, num_heads, dropout and bias in "
              "this order, and with `bias=True` each of the four layers adds its bias.",
              (4, 3, 5, 2, 3), construct={"dropout": 0.0, "bias": True},
              scenario="built_by_position"),
    ]  # fmt: skip


def _edges(rng, probe) -> list[Probe]:
    """Return probes; dropout of p = 0.3 acts on 2 * 60 * (10 + 8) = 2160 weights."""
    edge = functools.partial(probe, part="edges")
    cross, embed_dim = (2, 3, 4, 2, 2), 2 * (10 + 3)
    single: Given = {
        "construct": {"embed_dim": 1, "num_heads": 1},
        "state": {f"W_{n}.weight": np.eye(1) for n in "qkvo"},
        "attributes": _WEIGHTS,
    }
    return [
        edge("as_many_items_as_heads", "A mask of shape (batch, n, m) belongs to the items, even "
                                       "if there are as many items as heads.",
             cross, mask=_some_of(rng, 2, 3, 4)),
        edge("one_head", "One head must be plain attention.", (2, 3, 4, 1, 5),
             mask=_some_of(rng, 2, 3, 4)),
        edge("device_and_dtype", "`device=` and `dtype=` set the device and the dtype of "
                                 "the weights. Pass both on to each layer.",
             (1, 2, 3, 2, 2), scenario="made_with_device_and_dtype"),
        edge("lengths_zero", "If no item has a real key, all weights are 0 and the outputs are "
                             "`W_o` of zeros: its bias, if it has one.",
             cross, valid_lens=np.array([0, 0]), construct={"bias": True}),
        edge("float32", "Float32 inputs and weights must give float32 outputs.", cross,
             valid_lens=np.array([2, 3]), dtype="float32"),
        edge("large_scores", "Large scores must not overflow.", (2, 3, 4, 1, 4),
             inputs={"queries": 1024 * in_eighths(rng.normal(0, 1.3, (2, 3, 4))),
                     "keys": in_eighths(rng.normal(0, 1.3, (2, 4, 4))),
                     "values": rng.normal(0, 1.3, (2, 4, 4))},
             state={name: in_eighths(w) for name, w in state_of(rng, 4, scale=1.3).items()}),
        edge("after_another_call", INDEPENDENT, cross, valid_lens=np.array([2, 3]),
             mask=_some_of(rng, 2, 3, 4) | (np.arange(4) == 0), scenario="after_another_call"),
        edge("after_a_call_with_lengths", INDEPENDENT, (1, 2, 3, 1, 2),
             scenario="after_a_call_with_lengths"),
        edge("dropout_in_eval_mode", "In eval mode nothing may be dropped, whatever `dropout` is.",
             cross, construct={"dropout": 0.5}),
        edge("no_dropout_in_train_mode", "With `dropout=0`, train mode must give the outputs and "
                                         "weights of eval mode, including masks and items without "
                                         "keys.", (3, 3, 4, 2, 2),
             training=True, valid_lens=np.array([2, 3, 0]),
             mask=np.array([[True, False, True, True], [False, False, True, False], [True] * 4])),
        edge("dropout_in_train_mode", "In train mode each weight must be dropped with probability "
             "`dropout` and the others divided by 1 - `dropout`.", (2, 60, 10, 2, 13),
             construct={"dropout": 0.3}, training=True, valid_lens=np.array([10, 8]),
             inputs={"queries": rng.normal(0, 1, (2, 60, embed_dim)), "keys": rng.normal(0, 1, (2,
             10, embed_dim)), "values": dropout_values(rng, 2, 10, num_heads=2)},
             state=_passing_through(rng, embed_dim), compare="dropout_on_weights"),
        *largest_padding(rng, with_mask=True, **single),
        *far_above(rng, **single, by_name={"mask": FAR}),
    ]  # fmt: skip


def _attention_probes(rng) -> list[Probe]:
    probe = functools.partial(_attention_probe, rng)
    return [
        *(*_values(rng, probe), *_edges(rng, probe)),
        probe("gradient", "Gradients must reach queries, keys, values and all four layers.",
              (1, 2, 2, 2, 2), part="gradients", gradient=True),
        probe("gradient_with_empty_rows", "A query without any allowed key must leave every "
              "gradient finite.", (2, 2, 2, 2, 1), part="gradients", gradient=True,
              valid_lens=np.array([0, 2]), mask=np.array([[True, True], [False, False]])),
    ]  # fmt: skip


class MultiHead(WithHeads, AttentionModule):
    """The correct module, with steps layers and split before the average and merge after it."""

    def __init__(
        self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.num_heads = num_heads
        layers = (
            nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype) for _ in range(4)
        )
        self.W_q, self.W_k, self.W_v, self.W_o = layers

    def layers(self, queries, keys, values) -> tuple[Tensor, Tensor, Tensor]:
        return self.W_q(queries), self.W_k(keys), self.W_v(values)

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return [self.split(x) for x in self.layers(queries, keys, values)]

    def own(self, scores, mask) -> Tensor:
        return mask.unsqueeze(1) if mask.dim() == 3 else mask

    def out(self, averages) -> Tensor:
        return self.W_o(self.merge(averages))


_OWN = (
    Row("scale_embed_dim", {"root": lambda self, q: (q.shape[-1] * self.num_heads) ** 0.5}).says(
        "You divide the scores by the root of `embed_dim`, but a head's dot products have only "
        "head_dim terms.",
        "How many products are summed in one score of one head?",
    ),
    Row("no_W_o", {"out": lambda self, averages: self.merge(averages)}).says(
        "The merged heads are returned as they are: `W_o` is never used.",
        "Which layer mixes the heads' results?",
    ),
    Row("item_mask_read_as_head_mask", {"own": Softmax.own}).says(
        "A mask (batch, n, m) meets scores (batch, num_heads, n, m), so its batch axis is aligned "
        "with the heads. Depending on the sizes, that can raise an error or give head i the mask "
        "of item i.",
        "Which axis is missing from (batch, n, m)?",
    ),
    Row(
        "values_from_keys",
        {"layers": lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_v(k))},
    ).says(
        "`W_v` is applied to the keys, so the argument `values` has no effect.",
        "Which argument is V projected from?",
    ),
)

_NOT_MADE = {"lengths_ignored", "mask_inverted", "nothing_masked", "divided_by_d"}

EXERCISE = Exercise(
    points=7,
    minutes=25,
    difficulty=3,
    builds_on=("split_heads", "merge_heads"),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "embed_dim")),),
    probes=_attention_probes,
    oracle=oracle.multi_head_attention,
    mistakes=known(MultiHead, *_OWN, without=_NOT_MADE),
    properties=WEIGHTS,
    hints=(
        "Project, split, attend in every head at once, merge, project. The scores have one axis "
        "more than with a single head; you have written everything else before.",
        "After `split_heads` the scores are `q @ k.mT` over sqrt(head_dim), shape (batch, "
        "num_heads, n, m). `masked_softmax` takes lengths and masks; a (batch, n, m) mask first "
        "needs an axis for the heads. Store the weights detached, drop, average, merge, W_o.",
        "Begin with one head, where splitting and merging change nothing: the result must be "
        "that of `scaled_dot_product_attention` on the projections, followed by `W_o`. Then "
        "take two heads and print a shape after every line. At which line does a (batch, n, "
        "m) mask no longer fit?",
    ),
)
