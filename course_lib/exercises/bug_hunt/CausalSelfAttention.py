"""Lesson 07: `CausalSelfAttention`, a broken module to fix."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from course_lib.checks.judge.comparisons import (
    WRONG_VALUES,
    Problem,
    arrays_agree,
    close,
    tolerance_for,
)
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.lessons.broken_modules import BrokenCausalSelfAttention
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known, three_of
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.properties import WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP, Softmax
from course_lib.exercises._builders import INDEPENDENT, Given, at_the_largest, mistake
from course_lib.reference import bug_hunt as oracle


def causal_problem(rng, b, n, d, h, valid_lens=None, **options) -> Given:
    args = {"x": tensor(rng.normal(0, 1.2, (b, n, d)), **options)}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {
        "construct": {"embed_dim": d, "num_heads": h},
        "state": {
            "W_qkv.weight": rng.normal(0, 0.7, (3 * d, d)),
            "W_o.weight": rng.normal(0, 0.7, (d, d)),
        },
        "args": args,
        "attributes": ("attention_weights",),
    }


def _root_alone(rng) -> Probe:
    """Return a problem whose result, summed over the positions, depends only on the root."""
    problem = causal_problem(rng, 1, 3, 6, 2)
    problem["args"]["x"].data[:, 2] = problem["args"]["x"].data[:, 0]
    for third in np.split(problem["state"]["W_qkv.weight"], 3):
        third[3:] = third[:3]
    problem["state"]["W_o.weight"][:, 3:] = problem["state"]["W_o.weight"][:, :3]
    says = "Each score must be divided by the root of head_dim, the number of features in a head."
    return Probe("root", says, compare="sum_over_positions", **problem)


def _sum_over_positions(probe, expected, recorded) -> Problem | None:
    """Judge the sum over the positions."""
    if arrays_agree(expected.sum(1), recorded.numbers.sum(1), tolerance_for(probe, recorded)):
        return None
    return close(probe, expected, recorded) or WRONG_VALUES


def _merge_alone(rng) -> Probe:
    problem = causal_problem(rng, 1, 3, 4, 2)
    problem["args"]["x"].data[:] = problem["args"]["x"].data[:, :1]
    says = "If all positions of the input are equal, all positions of the output must be equal."
    return Probe("merge", says, **problem)


def _causal_probes(rng) -> list[Probe]:
    by_hand = causal_problem(rng, 1, 3, 2, 1)
    by_hand["args"]["x"] = tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    return [
        Probe("by_hand", "In each head, position i averages the values of the positions j <= i "
                         "with the weights softmax(q k^T / sqrt(head_dim)).", **by_hand),
        _merge_alone(rng),
        _root_alone(rng),
        Probe("two_heads", "Each head must compare its own block of features.",
              **causal_problem(rng, 3, 5, 6, 2)),
        Probe("padded", "Positions beyond an item's length must not be attended to.",
              **causal_problem(rng, 3, 4, 6, 2, [2, 4, 1])),
    ]  # fmt: skip


def _padded_with(size, real=((-1.0, 2.0), (1.0, -1.0)), of_values=1) -> Given:
    """Return a problem in which head 0 compares features 0 and 1, with `size` in the padding."""
    x = [[*real, (1.0, size)]]
    projected = np.zeros((6, 2))
    projected[[0, 2, 4], [0, 1, of_values]] = 1.0
    return {
        "construct": {"embed_dim": 2, "num_heads": 2},
        "state": {"W_qkv.weight": projected, "W_o.weight": np.eye(2)},
        "args": {"x": tensor(x), "valid_lens": tensor([2])},
        "attributes": ("attention_weights",),
    }


def _causal_edges(rng) -> list[Probe]:
    back = causal_problem(rng, 1, 3, 2, 1, [2], requires_grad=True)
    back_empty = causal_problem(rng, 2, 2, 2, 1, [0, 2], requires_grad=True)
    return [
        Probe("empty_position", "An item of length 0 must get zeros, here at its only position.",
              "edges", **causal_problem(rng, 2, 1, 4, 2, [0, 1])),
        Probe("empty", "An item of length 0 must get zeros.", "edges",
              **causal_problem(rng, 3, 4, 5, 1, [0, 4, 2])),
        *at_the_largest(_padded_with),
        Probe("very_negative_scores", "The score of a masked key may be far above those of the "
              "allowed keys, which must get the weights they would have without it.", "edges",
              **_padded_with(1.0, [(1.0, -3.2e38)] * 2, of_values=0)),
        Probe("device_and_dtype", "`device=` and `dtype=` must set the device and the dtype of the "
              "weights. Pass both on to each layer.", "edges",
              scenario="made_with_device_and_dtype",
              **causal_problem(rng, 1, 3, 4, 2, [2])),
        Probe("after_another_call", INDEPENDENT, "edges", scenario="after_another_call",
              **causal_problem(rng, 2, 5, 6, 2, [2, 4])),
        Probe("after_a_call_with_lengths", INDEPENDENT, "edges",
              scenario="after_a_call_with_lengths", **causal_problem(rng, 1, 3, 2, 1)),
        Probe("float32", "Float32 inputs and weights must give float32 outputs.", "edges",
              dtype="float32", **causal_problem(rng, 2, 5, 6, 1, [2, 4])),
        Probe("longer", "Any number of positions must work.", "edges",
              **causal_problem(rng, 1, 130, 2, 1)),
        Probe("gradient", "The gradients of inputs and weights must match the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 3, 2)), **back),
        Probe("gradient_empty", "An item of length 0 must leave every gradient finite.",
              "gradients", grad_outputs=rng.uniform(-1, 1, (2, 2, 2)), **back_empty),
    ]  # fmt: skip


class Causal(WithHeads, AttentionModule):
    """The correct module, with the additional step past."""

    own = drop = NO_STEP

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None) -> torch.Tensor:
        return self.attend((x, x, x), valid_lens)[0]

    def project(self, queries, keys, values) -> Sequence[torch.Tensor]:
        return [self.split(x) for x in self.W_qkv(queries).chunk(3, dim=-1)]

    def past(self, n) -> torch.Tensor:
        return torch.ones(n, n, dtype=torch.bool).tril()

    def join(self, scores, real, own) -> torch.Tensor:
        return Softmax.join(self, scores, real, self.past(scores.shape[-1]))

    def average(self, weights, v) -> torch.Tensor:
        self.keep(weights, weights)
        return weights @ v

    def out(self, averages) -> torch.Tensor:
        return self.W_o(self.merge(averages))


def _lengths_instead(self, scores, real, own) -> torch.Tensor:
    return Softmax.join(
        self, scores, real, None if real is not None else self.past(scores.shape[-1])
    )


def _in_order(*order: int) -> Mapping[str, object]:
    """Take the thirds of the output of `W_qkv` in an order other than q, k, v."""

    def project(self, queries, keys, values) -> Sequence[torch.Tensor]:
        thirds = self.W_qkv(queries).chunk(3, dim=-1)
        return [self.split(thirds[place]) for place in order]

    return {"project": project}


def _heads_first(self, queries, keys, values) -> Sequence[torch.Tensor]:
    return self.split(self.W_qkv(queries)).chunk(3, dim=-1)


def _features_first(self, queries, keys, values) -> Sequence[torch.Tensor]:
    return self.split(self.W_qkv(queries)).unflatten(-1, (-1, 3)).unbind(-1)


_BROKEN = mistake("not_fixed", BrokenCausalSelfAttention).says(
    "This still computes what `BrokenCausalSelfAttention` does, with all its faults.",
    "Which outputs change when you change the last position?",
)
_OWN = (
    Row("scale_embed_dim", {"root": lambda self, q: (q.shape[-1] * self.num_heads) ** 0.5}).says(
        "You divide the scores by the root of embed_dim, but each head compares head_dim features.",
        "How many products are summed in one score of one head?",
    ),
    Row("sees_the_future", {"past": lambda self, n: torch.ones(n, n).triu().bool()}).says(
        "Positions attend to themselves and to later positions instead of earlier ones.",
        "Rows are queries: which triangle holds the keys j <= i?",
    ),
    Row("not_causal", {"past": lambda self, n: torch.ones(n, n).bool()}).says(
        "Your code applies no causal mask: positions also attend to later positions.",
        "Does any line keep position i from attending to keys j > i?",
    ),
    Row("one_mask_only", {"join": _lengths_instead}).says(
        "If there are lengths, you do not use the causal mask, and positions attend to later ones "
        "within the length.",
        "With lengths, which of j <= i and j < length does your code require of key j?",
    ),
    Row(
        "thirds_in_another_order",
        _in_order(1, 0, 2),
        twins=tuple(_in_order(*order) for order in ((0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0))),
    ).says(
        "The three thirds of what `W_qkv` returns are queries, keys and values; yours come in "
        "another order.",
        "In which order does the statement name the three blocks of `W_qkv`?",
    ),
    Row("heads_cut_first", {"project": _heads_first}, twins=({"project": _features_first},)).says(
        "With several heads, your queries, keys and values are not the three thirds of `W_qkv(x)`: "
        "each mixes rows of `W_qkv` from different thirds.",
        "Which features of `W_qkv(x)` are the queries?",
    ),
)
_WORDS = {
    "empty_row_nan": (
        "An item of length 0 becomes NaN.",
        "What does `masked_softmax` of lesson 02 do there?",
    )
}
_NOT_MADE = {"stored_after_dropout", "divided_by_d", "one_mask_only"}
_KNOWN = known(Causal, *_OWN, without=_NOT_MADE, words=_WORDS)


_FAULTS = ("scale_embed_dim", "sees_the_future", "empty_row_nan", "merge_without_transpose")

EXERCISE = Exercise(
    points=5,
    minutes=15,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=lambda rng: [*_causal_probes(rng), *_causal_edges(rng)],
    oracle=oracle.causal_self_attention,
    comparisons={"sum_over_positions": _sum_over_positions},
    mistakes=(_BROKEN, *_KNOWN, *three_of(Causal, _KNOWN, _FAULTS)),
    properties=WEIGHTS,
    hints=(
        "The module has four faults. Test it with lesson 06's `is_causal` and with an item of "
        "length 0, and check the sizes under the root.",
        "Look at the number under the root, at the triangle, at what happens to a row without any "
        "allowed key, and at the last line: which axes does the reshape join?",
        "Fix one at a time and test after each: two heads against one, on scores that you work "
        "out by hand; a position that sees a later one; an item of length 0; an output that must "
        "not change when two heads swap their features. In lessons 02 and 06 you wrote a part for "
        "each.",
    ),
)
