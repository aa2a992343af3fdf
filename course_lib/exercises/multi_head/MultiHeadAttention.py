"""`MultiHeadAttention`: the module, judged with injected weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.dropout import DROPPING, dropout_values
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.properties import WEIGHTS
from course_lib.exercises._attention.steps import Softmax
from course_lib.exercises.kit import INDEPENDENT, Problems, call, in_eighths, like, mistake
from course_lib.reference import multi_head as oracle


def state_of(rng, embed_dim, *, bias=False, scale=1.0) -> dict[str, np.ndarray]:
    """Draw the weights of the four layers."""
    names = ("W_q", "W_k", "W_v", "W_o")
    spread = scale / embed_dim**0.5
    state = {f"{n}.weight": rng.normal(0, spread, (embed_dim, embed_dim)) for n in names}
    return state | ({f"{n}.bias": rng.normal(0, 1, embed_dim) for n in names} if bias else {})


def passing_through(rng, embed_dim) -> dict[str, np.ndarray]:
    """Return weights that pass values to the outputs unchanged."""
    eye = np.eye(embed_dim)
    return state_of(rng, embed_dim) | {"W_v.weight": eye, "W_o.weight": eye}


def module(
    rng,
    batch,
    n,
    m,
    num_heads,
    head_dim,
    *,
    inputs=(),
    state=None,
    built=(),
    mask=None,
    **given: Any,
) -> Probe:
    """Return a call of a module of these sizes, built with these options and weights."""
    embed_dim, with_gradient = num_heads * head_dim, given.get("part") == "gradients"
    shapes = [(batch, size, embed_dim) for size in (n, m, m)]
    args = [tensor(x, requires_grad=with_gradient) for x in inputs or drawn(rng, shapes)]
    construct = {"embed_dim": embed_dim, "num_heads": num_heads, **dict(built)}
    if state is None:
        state = state_of(rng, embed_dim, bias=construct.get("bias", False), scale=1.3)
    if with_gradient:
        given["grad_outputs"] = rng.normal(0, 1, (batch, n, embed_dim))
    if mask is not None:
        given["mask"] = mask
    elif "valid_lens" in given:
        args.append(given.pop("valid_lens"))
    return call(*args, construct=construct, state=state, attributes=("attention_weights",), **given)


def drawn(rng, shapes) -> list[np.ndarray]:
    return [rng.normal(0, 1.3, shape) for shape in shapes]


def some_of(rng, *shape) -> np.ndarray:
    """Draw a mask in which every row keeps and drops a key."""
    mask = rng.random(shape) < 0.6
    for row in mask.reshape(-1, shape[-1]):
        row[rng.permutation(shape[-1])[:2]] = True, False
    return mask


def lens_of(rng, num_keys, *shape) -> np.ndarray:
    """Draw lengths from 1 to num_keys - 1 that differ as much as possible."""
    return np.resize(rng.permutation(np.arange(1, num_keys)), shape)


def problems(rng) -> Problems:
    rows = np.array([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])
    size = 2, 4, 5, 3, 2  # batch, num_queries, num_keys, num_heads, head_dim
    yield (
        "A query of zeros weights all keys equally. With W_v and W_o that change nothing, each "
        "head averages its block of the values."
    )
    inputs = np.zeros((1, 2, 4)), rows, rows
    yield module(rng, 1, 2, 2, 2, 2, inputs=inputs, state=passing_through(rng, 4))
    yield "A single key has weight 1: with W_v and W_o set to identities, each output is its value."
    yield module(rng, 3, 5, 1, 2, 2, state=passing_through(rng, 4))
    yield "The outputs must match the formula, head by head, for the injected weights."
    yield module(rng, *size)
    yield (
        "With W_v and W_o set to identities, head i must fill the i-th block of features with "
        "averages of the i-th block of the values."
    )
    yield module(rng, 4, 3, 5, 2, 3, state=passing_through(rng, 6))
    yield "Lengths of shape (batch,) must hold for every query and every head of an item."
    yield module(rng, *size, valid_lens=lens_of(rng, 5, 2))
    yield "Lengths of shape (batch, num_queries) must hold for every head."
    yield module(rng, *size, valid_lens=lens_of(rng, 5, 2, 4))
    yield "A mask of shape (batch, n, m) must hold for every head of its item."
    yield module(rng, *size, mask=some_of(rng, 2, 4, 5))
    yield "A mask of shape (batch, num_heads, n, m) gives each head its own."
    yield module(rng, *size, mask=some_of(rng, 2, 3, 4, 5))
    yield "With both given, a key must be allowed by both."
    mask = [[True, True, False, True, False, True]] * 5
    yield module(rng, 3, 5, 6, 2, 2, valid_lens=[5, 3, 4], mask=mask)
    yield (
        "`__init__` takes embed_dim, num_heads, dropout and bias in this order, and with "
        "`bias=True` each of the four layers adds its bias."
    )
    built = {"dropout": 0.0, "bias": True}
    yield module(rng, 4, 3, 5, 2, 3, built=built, scenario="built_by_position")
    yield from edges(rng)
    yield "Gradients must reach queries, keys, values and all four layers."
    yield module(rng, 1, 2, 2, 2, 2, part="gradients")
    yield "A query without any allowed key must leave every gradient finite."
    mask = [[True, True], [False, False]]
    yield module(rng, 2, 2, 2, 2, 1, part="gradients", valid_lens=[0, 2], mask=mask)


def edges(rng) -> Problems:
    def edge(*sizes, **given: Any) -> Probe:
        return module(rng, *sizes, part="edges", **given)

    cross = 2, 3, 4, 2, 2
    yield (
        "A mask of shape (batch, n, m) belongs to the items, even if there are as many items as "
        "heads."
    )
    yield edge(*cross, mask=some_of(rng, 2, 3, 4))
    yield "One head must be plain attention."
    yield edge(2, 3, 4, 1, 5, mask=some_of(rng, 2, 3, 4))
    yield (
        "`device=` and `dtype=` set the device and the dtype of the weights. Pass both on to each "
        "layer."
    )
    yield edge(1, 2, 3, 2, 2, scenario="made_with_device_and_dtype")
    yield (
        "If no item has a real key, all weights are 0 and the outputs are `W_o` of zeros: its "
        "bias, if it has one."
    )
    yield edge(*cross, valid_lens=[0, 0], built={"bias": True})
    yield "Float32 inputs and weights must give float32 outputs."
    yield edge(*cross, valid_lens=[2, 3], dtype="float32")
    yield "Large scores must not overflow."
    queries = 1024 * in_eighths(rng.normal(0, 1.3, (2, 3, 4)))
    inputs = queries, in_eighths(rng.normal(0, 1.3, (2, 4, 4))), rng.normal(0, 1.3, (2, 4, 4))
    state = {name: in_eighths(weight) for name, weight in state_of(rng, 4, scale=1.3).items()}
    yield edge(2, 3, 4, 1, 4, inputs=inputs, state=state)
    yield INDEPENDENT
    mask = some_of(rng, 2, 3, 4) | (np.arange(4) == 0)
    yield edge(*cross, valid_lens=[2, 3], mask=mask, scenario="after_another_call")
    yield edge(1, 2, 3, 1, 2, scenario="after_a_call_with_lengths")
    yield edge(1, 2, 3, 1, 2, scenario="after_a_call_with_a_mask")
    yield "In eval mode nothing may be dropped, whatever `dropout` is."
    yield edge(*cross, built={"dropout": 0.5})
    yield (
        "With `dropout=0`, train mode must give the outputs and weights of eval mode, including "
        "masks and items without keys."
    )
    mask = [[True, False, True, True], [False, False, True, False], [True] * 4]
    yield edge(3, 3, 4, 2, 2, training=True, valid_lens=[2, 3, 0], mask=mask)
    yield (
        "In train mode each weight must be dropped with probability `dropout` and the others "
        "divided by 1 - `dropout`."
    )
    inputs = rng.normal(0, 1, (2, 60, 26)), rng.normal(0, 1, (2, 10, 26))
    inputs = *inputs, dropout_values(rng, 2, 10, num_heads=2)
    yield edge(  # on 2 * 60 * (10 + 8) = 2160 weights
        *(2, 60, 10, 2, 13),
        inputs=inputs,
        state=passing_through(rng, 26),
        built={"dropout": 0.3},
        training=True,
        valid_lens=[10, 8],
        compare="dropout_on_weights",
    )
    single = {
        "construct": {"embed_dim": 1, "num_heads": 1},
        "state": {f"W_{n}.weight": np.eye(1) for n in "qkvo"},
        "attributes": ("attention_weights",),
    }
    yield from largest_padding(rng, with_mask=True, **single)
    yield from far_above(rng, mask=FAR, **single)


class MultiHead(WithHeads, AttentionModule):
    """The correct module. Before the average, it adds the steps `layers` and `split`, and after it
    `merge`. `_attention/steps.py` and `_attention/modules.py` have the other steps."""

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
        return mask.unsqueeze(1) if mask.dim() == 3 else mask  # (batch, 1, n, m) for all heads

    def out(self, averages) -> Tensor:
        return self.W_o(self.merge(averages))


@mistake
class ScaleEmbedDim(MultiHead):
    """You divide the scores by the root of `embed_dim`, but a head's dot products have only
    head_dim terms.

    How many products are summed in one score of one head?
    """

    def root(self, q) -> float:
        return (q.shape[-1] * self.num_heads) ** 0.5


@mistake
class no_W_o(MultiHead):
    """The merged heads are returned as they are: `W_o` is never used.

    Which layer mixes the heads' results?
    """

    def out(self, averages) -> Tensor:
        return self.merge(averages)


@mistake
class ItemMaskReadAsHeadMask(MultiHead):
    """A mask (batch, n, m) meets scores (batch, num_heads, n, m), so its batch axis is aligned with
    the heads. Depending on the sizes, that can raise an error or give head i the mask of item i.

    Which axis is missing from (batch, n, m)?
    """

    own = Softmax.own


@like(ItemMaskReadAsHeadMask)
class ItemMaskPassedOn(ItemMaskReadAsHeadMask):
    """Raise the error of the course's `masked_softmax`."""

    def join(self, scores, real, own) -> Tensor:
        try:
            return super().join(scores, real, own)
        except RuntimeError as error:
            raise ValueError("`mask` must be broadcastable") from error


@mistake
class ValuesFromKeys(MultiHead):
    """`W_v` is applied to the keys, so the argument `values` has no effect.

    Which argument is V projected from?
    """

    def layers(self, queries, keys, values) -> tuple[Tensor, Tensor, Tensor]:
        return super().layers(queries, keys, keys)


@mistake
class SplitByView(MultiHead):
    """The heads are split by a reshape without a transpose, so a head gets all features of some
    positions instead of some features of all positions.

    Which axes must be neighbors after the features of a position are divided among the heads?
    """

    def split(self, x) -> Tensor:
        return x.reshape(len(x), self.num_heads, x.shape[1], -1)


@like(SplitByView)
class SplitAndMergedByView(SplitByView):
    def merge(self, x) -> Tensor:
        return x.reshape(len(x), x.shape[2], -1)


EXERCISE = Exercise(
    points=7,
    minutes=25,
    difficulty=3,
    builds_on=("split_heads", "merge_heads"),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "embed_dim")),),
    probes=problems,
    oracle=oracle.multi_head_attention,
    mistakes=shared(
        MultiHead,
        without={
            *("root_of_all_heads", "root_of_the_values"),
            *("split_without_transpose", "split_and_merge_without_transpose"),
        },
    ),
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
    marking=DROPPING,
)
