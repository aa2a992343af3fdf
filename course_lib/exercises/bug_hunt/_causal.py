"""The right `CausalSelfAttention` in steps, and its known mistakes."""

from collections.abc import Sequence

import torch
from torch import nn

from course_lib.checks.observe.lessons.broken_modules import BrokenCausalSelfAttention
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.steps import NO_STEP, Softmax
from course_lib.exercises._rows import mistake

ROOTS = {
    "scale_embed_dim": "You divide by the root of embed_dim, but each head compares head_dim "
    "features.",
    "unscaled": "Your scores are not divided by anything.",
    "divided_by_d": "You divide by head_dim instead of its root.",
    "scale_num_heads": "You divide by the root of the number of heads.",
}
SEEN = {
    "sees_the_future": (
        lambda i, j: j >= i,
        "Each position sees itself and the later ones.",
        "Rows are queries: which triangle holds the keys j <= i?",
    ),
    "not_causal": (
        lambda i, j: i + j >= 0,
        "Every position sees all others, including later ones.",
        "Where is the mask applied?",
    ),
    "never_sees_itself": (
        lambda i, j: j < i,
        "A position does not see itself, so the first one sees nothing.",
        "Which keys does query 0 see?",
    ),
}


def _indices(n) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(n)[:, None], torch.arange(n)


class _Causal(WithHeads, AttentionModule):
    """The right module, with the steps thirds, past and result."""

    own = drop = NO_STEP

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None) -> torch.Tensor:
        return self.result(self.attend((x, x, x), valid_lens)[0], valid_lens)

    def project(self, queries, keys, values) -> Sequence[torch.Tensor]:
        return [self.split(x) for x in self.thirds(self.W_qkv(queries))]

    def thirds(self, projected) -> Sequence[torch.Tensor]:
        return projected.chunk(3, dim=-1)

    def past(self, n) -> torch.Tensor:
        return torch.ones(n, n, dtype=torch.bool).tril()

    def join(self, scores, real, own) -> torch.Tensor:
        return Softmax.join(self, scores, real, self.past(scores.shape[-1]))

    def average(self, weights, v) -> torch.Tensor:
        self.keep(weights, weights)
        return weights @ v

    def out(self, averages) -> torch.Tensor:
        return self.W_o(self.merge(averages))

    def result(self, outputs, valid_lens) -> torch.Tensor:
        return outputs


def _causal_with_lengths_only(self, scores, real, own) -> torch.Tensor:
    return Softmax.join(self, scores, real, None if real is None else self.past(scores.shape[-1]))


def _either(self, scores, real, own) -> torch.Tensor:
    past = self.past(scores.shape[-1])
    return past.expand(scores.shape) if real is None else (past | real).expand(scores.shape)


def _first_lengths(self, valid_lens) -> torch.Tensor:
    if not hasattr(self, "first") or self.first.shape != valid_lens.shape:
        self.first = valid_lens.clone()
    return self.first


def _pads_zeroed(self, outputs, valid_lens) -> torch.Tensor:
    if valid_lens is None:
        return outputs
    return outputs * (torch.arange(outputs.shape[1]) < valid_lens[:, None])[..., None]


_BROKEN = mistake("not_fixed", BrokenCausalSelfAttention).says(
    "This still computes what `BrokenCausalSelfAttention` does, with all its faults.",
    "Which outputs change when you change the last position?",
)
_OWN = (
    Row("scale_embed_dim", {"root": lambda self, q: (q.shape[-1] * self.num_heads) ** 0.5}).says(
        ROOTS["scale_embed_dim"], "How many products does one score sum?"
    ),
    *(
        Row(name, {"past": lambda self, n, seen=seen: seen(*_indices(n))}).says(fact, question)
        for name, (seen, fact, question) in list(SEEN.items())[:2]
    ),
    Row("sees_one_ahead", {"past": lambda self, n: torch.ones(n, n).tril(1).bool()}).says(
        "Each position sees one later position too.",
        "Which diagonal is the last one that position i may see?",
    ),
    Row("only_the_future", {"past": lambda self, n: torch.ones(n, n).triu(1).bool()}).says(
        "Each position sees only the later ones: your mask is True where a key must not be seen.",
        "What does True mean in the mask that `masked_softmax` takes?",
    ),
    Row("causal_with_lengths_only", {"join": _causal_with_lengths_only}).says(
        "Without lengths, every position sees all others, including later ones.",
        "Which of your conditions is inside `if valid_lens is not None`?",
    ),
    Row("either_is_enough", {"join": _either}).says(
        "Your mask allows a position that is real or in the past; it must be both.",
        "A padded position in the past: may anyone attend to it?",
    ),
    Row("pads_zeroed", {"result": _pads_zeroed}).says(
        "You set the outputs of padded positions to 0. They may attend to the real ones; it is "
        "only that nothing attends to them.",
        "Which axis of the weights do the lengths cut: queries or keys?",
    ),
    Row(
        "thirds_in_turn",
        {"thirds": lambda self, projected: projected.unflatten(-1, (-1, 3)).unbind(-1)},
    ).says(
        "Your queries, keys and values take turns over the outputs of `W_qkv`; each should be one "
        "contiguous third.",
        "In `(..., 3, embed_dim)`, which axis moves fastest? And in `(..., embed_dim, 3)`?",
    ),
    Row(
        "heads_in_turn",
        {"split": lambda self, x: x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)},
    ).says(
        "Your heads take every h-th feature instead of a contiguous block.",
        "In `(..., num_heads, head_dim)`, which axis moves fastest?",
    ),
    Row("lengths_of_the_first_call_kept", {"lens": _first_lengths}).says(
        "A second call still uses the lengths of the first.",
        "What does your module store in one call and use in the next?",
    ),
)
_THERE = "What does `masked_softmax` of lesson 02 do there?"
EMPTY_ROW_NAN = ("An item of length 0 becomes NaN.", _THERE)
_WORDS = {
    "empty_row_nan": EMPTY_ROW_NAN,
    "empty_row_uniform": ("An item of length 0 gets the average of its pads.", _THERE),
}
_UNTOLD = {"stored_after_dropout", "head_axis_forgotten"}
MISTAKES = (_BROKEN, *known(_Causal, *_OWN, without=_UNTOLD, words=_WORDS))
