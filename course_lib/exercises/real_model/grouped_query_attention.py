"""`grouped_query_attention`: heads of a group share keys and values."""

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import FAR, far_above
from course_lib.exercises._builders import (
    BETWEEN,
    FLOAT32,
    READY_MADE_ATTENTION,
    Case,
    Given,
    case,
    in_eighths,
)

_GROUPS = "Head i must use the keys and values of group i // (h / g)."
_EMPTY = "A query with no allowed key must get zeros."
_UNEVEN = "If the groups do not divide the heads evenly, the call must raise a ValueError."


def _drawn(rng, batch, h, g, n, m, d, v, **options) -> Given:
    shapes = {"queries": (h, n, d), "keys": (g, m, d), "values": (g, m, v)}
    drawn = {name: rng.normal(0, 1.2, (batch, *shape)) for name, shape in shapes.items()}
    return {name: tensor(data, **options) for name, data in drawn.items()}


def _masks(rng, *shape) -> np.ndarray:
    """Draw a mask that is about two thirds True, and always True for the last key."""
    mask = rng.random(shape) < 0.65
    mask[..., -1] = True
    return mask


def _values(rng) -> list[Probe]:
    drawn = functools.partial(_drawn, rng)
    worked: Given = {
        "queries": np.zeros((1, 4, 1, 1)),
        "keys": np.ones((1, 2, 1, 1)),
        "values": np.array([[[[10.0]], [[20.0]]]]),
    }
    equal = drawn(2, 4, 1, 3, 5, 6, 7)
    equal["queries"].data[:] = 0
    return [
        case("worked", args=worked).says(_GROUPS),
        case("two_groups", args=drawn(2, 6, 2, 3, 5, 4, 7)).says(_GROUPS),
        case("multi_head", args=drawn(2, 3, 3, 4, 5, 6, 2)).says(
            "With as many groups as heads, each head must have its own keys and values."
        ),
        case("multi_query", args=drawn(2, 4, 1, 3, 5, 6, 7)).says(
            "With one group, all heads must share its keys and values."
        ),
        case("mean_within_lengths", args=equal, valid_lens=[4, 2]).says(
            "Queries of 0 must get the mean of the values within the length."
        ),
    ]


def _masked(rng) -> list[Probe]:
    drawn = functools.partial(_drawn, rng)
    return [
        case("lengths", args=drawn(3, 4, 2, 5, 6, 2, 7), valid_lens=np.array([5, 1, 3])).says(
            "Keys beyond the length must get weight 0, as if they were deleted."
        ),
        case(
            "lengths_per_query",
            args=drawn(2, 6, 3, 4, 5, 2, 1),
            valid_lens=np.array([[5, 1, 3, 2], [2, 4, 4, 1]]),
        ).says("Lengths of shape (batch, num_queries) must apply to every head."),
        case(
            "mask_of_heads",
            args=drawn(2, 6, 2, 3, 5, 4, 1),
            by_name={"mask": _masks(rng, 2, 6, 3, 5)},
        ).says("A mask (batch, h, n, m) belongs to the heads, not to their groups."),
        case(
            "lengths_and_mask",
            args=drawn(2, 6, 3, 5, 4, 2, 7),
            valid_lens=np.array([3, 2]),
            by_name={"mask": _masks(rng, 5, 4) | (np.arange(4) == 0)},
        ).says("With lengths and a mask, a key must be allowed by both."),
    ]


def _edge(name, args, valid_lens=None, mask=None, **options) -> Case:
    lens: Given = {} if valid_lens is None else {"valid_lens": np.array(valid_lens)}
    masks: Given = {} if mask is None else {"mask": np.array(mask)}
    return case(name, part="edges", args=args | lens, by_name=masks, **options)


def _edges(rng) -> list[Probe]:
    drawn = functools.partial(_drawn, rng)
    some = _masks(rng, 3, 5)
    some[1], some[2] = False, [False] * 4 + [True]  # the last query of item 0 is empty by both
    garbage, large = drawn(2, 4, 2, 3, 5, 6, 1), drawn(1, 4, 2, 2, 3, 4, 1)
    large["queries"].data[:] = 900 * in_eighths(large["queries"].data)
    large["keys"].data[:] = in_eighths(large["keys"].data)
    for name in ("keys", "values"):
        garbage[name].data[:, :, 2:] = [[-1e30], [1e4], [-1e30]]
    return [
        _edge("empty_row", drawn(2, 4, 2, 3, 5, 6, 1), [4, 5], some).says(_EMPTY),
        _edge("mask_of_padding", drawn(2, 6, 3, 4, 5, 1, 7), mask=_masks(rng, 2, 1, 1, 5)).says(
            "A mask (batch, 1, 1, m) must apply to every head and query of an item."
        ),
        _edge("garbage", garbage, [3, 2], [[True, True, False, True, True]] * 3).says(
            "Masked keys and values must have no effect if they are finite."
        ),
        *far_above(rng, lambda data: tensor([data]), by_name={"mask": FAR}),
        _edge("as_many_items_as_queries", drawn(3, 4, 2, 3, 5, 6, 1), [1, 5, 3]).says(
            "Lengths (batch,) belong to items, even if there are as many queries."
        ),
        _edge("large_scores", large).says("Large scores must not overflow."),
        _edge("float32", drawn(2, 4, 2, 3, 5, 6, 7), [4, 2], **FLOAT32).says(
            "Float32 inputs must give float32 outputs."
        ),
        _edge("between_other_calls", drawn(2, 4, 2, 3, 5, 6, 7), [3, 4], **BETWEEN).says(
            "Each call must be independent."
        ),
        _edge("uneven", drawn(1, 3, 2, 1, 1, 1, 1), raises="ValueError").says(_UNEVEN),
        _edge("more_groups", drawn(1, 1, 2, 1, 1, 1, 1), raises="ValueError").says(_UNEVEN),
    ]


def _gradients(rng) -> list[Probe]:
    masked = np.array([[True, False, True], [False, False, False]])
    return [
        case(
            "gradient",
            args=_drawn(rng, 2, 4, 2, 1, 3, 2, 1, requires_grad=True),
            grad_outputs=rng.normal(0, 1, (2, 4, 1, 1)),
        ).says("The gradients must match the formula, summed over the heads of a group."),
        case(
            "gradient_with_empty_row",
            args=_drawn(rng, 1, 2, 1, 2, 3, 1, 2, requires_grad=True),
            by_name={"mask": masked},
            grad_outputs=rng.normal(0, 1, (1, 2, 2, 2)),
        ).says("A query with no allowed key must get gradient 0 and not turn the others into NaN."),
    ]


class _Grouped(Attention):
    """Attention after the steps check and share."""

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        return cls.changed(changes)().grouped

    def grouped(self, queries, keys, values, valid_lens=None, mask=None) -> tuple:
        h = queries.shape[1]
        self.check(h, keys.shape[1])
        shared = self.share(h, keys), self.share(h, values)
        return self.attend((queries, *shared), valid_lens, mask)

    def check(self, h, g) -> None:
        if h % g:
            raise ValueError("no whole number of heads for each group")

    def share(self, h, x) -> torch.Tensor:
        return x.repeat_interleave(h // x.shape[1], dim=1)


def _tiled(self, h, x) -> torch.Tensor:
    return x.repeat(1, h // x.shape[1], 1, 1)


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    returns=(
        Returned("outputs", "tensor", "float", ("batch", "num_heads", "num_queries", "v")),
        Returned(
            "attention_weights",
            "tensor",
            "float",
            ("batch", "num_heads", "num_queries", "num_keys"),
        ),
    ),
    probes=lambda rng: [*_values(rng), *_masked(rng), *_edges(rng), *_gradients(rng)],
    forbidden=dict.fromkeys(
        READY_MADE_ATTENTION,
        "Here you write what `enable_gqa=True` does in PyTorch's function. Use the course's own "
        "`scaled_dot_product_attention`, or `masked_softmax`.",
    ),
    mistakes=known(
        _Grouped,
        Row("groups_tiled", {"share": _tiled}).says(
            "Head i uses group i % g, but it must use group i // (h / g), so that neighboring "
            "heads share a group.",
            "For 4 heads and 2 groups, which group does head 1 use in your code?",
        ),
        Row("not_shared", {"share": lambda self, h, x: x}).says(
            "The keys and values have g heads and the queries h, and you multiply them as they "
            "are. That works only if g is 1 or h.",
            "How many times must each group be used?",
        ),
    ),
    hints=(
        "Write down which group each head uses for h = 6 and g = 2. Then either expand the keys "
        "and values to h heads or fold the queries into g groups. The rest is ordinary "
        "attention.",
        "`x.repeat_interleave(times, dim=1)` gives every head its own copy of its group's keys. "
        "Without copies: unflatten the axis of the heads into (groups, heads of a group), and "
        "give keys and values an axis of size 1 there. Before that, raise if the division leaves "
        "a remainder.",
        "heads_of_a_group = ...\n"
        "keys = keys.repeat_interleave(heads_of_a_group, dim=...)\n"
        "values = ...\n"
        "outputs, weights = scaled_dot_product_attention(queries, ...)",
    ),
)
