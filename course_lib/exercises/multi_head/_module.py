"""The right `MultiHeadAttention` in steps, and its known mistakes."""

from collections.abc import Sequence

from torch import Tensor, nn

from course_lib.exercises._attention.changes import tiled_over_heads
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.steps import Softmax


class _MultiHead(WithHeads, AttentionModule):
    """The right module: the steps layers and split before, merge after the average."""

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


def _tiled_mask(self, scores, mask) -> Tensor:
    return mask.repeat(self.num_heads, 1, 1).view(scores.shape) if mask.dim() == 3 else mask


def _mask_of_one_head(self, scores, mask) -> Tensor:
    mask = _MultiHead.own(self, scores, mask)
    return mask[:, :1] if mask.dim() == 4 else mask


_OWN = (
    Row("scale_embed_dim", {"root": lambda self, q: (q.shape[-1] * self.num_heads) ** 0.5}).says(
        "You divide the scores by the root of `embed_dim`, but a head's dot products have only "
        "head_dim terms.",
        "How many products does one score of one head sum?",
    ),
    Row("no_W_o", {"out": lambda self, averages: self.merge(averages)}).says(
        "The merged heads are returned as they are: `W_o` is never used.",
        "Which layer mixes the heads' results?",
    ),
    Row("inputs_not_projected", {"layers": lambda self, q, k, v: (q, k, v)}).says(
        "The inputs go into the heads as they are: `W_q`, `W_k` and `W_v` are never used.",
        "What happens to queries, keys and values before they are split?",
    ),
    Row("item_mask_read_as_head_mask", {"own": Softmax.own}, fails=True).says(
        "The batch axis of a (batch, n, m) mask lands on the axis of the heads: it raises, or, "
        "with as many items as heads, gives each head the mask of an item.",
        "Which axis is missing from (batch, n, m)?",
    ),
    Row("masks_tiled", {"spread": tiled_over_heads, "own": _tiled_mask}).says(
        "The masks reach the wrong items. A folded batch runs item 0 head 0, item 0 head 1, ..., "
        "but your lengths and masks run item 0, item 1, item 0, ...",
        "What is the difference between `repeat` and `repeat_interleave`?",
    ),
    Row(
        "values_through_W_k",
        {"layers": lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_k(v))},
    ).says(
        "The values are projected by `W_k`; `W_v` is never used.",
        "Which layer belongs to which argument?",
    ),
    Row(
        "values_from_keys",
        {"layers": lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_v(k))},
    ).says(
        "`W_v` is applied to the keys; the argument `values` changes nothing.",
        "Which argument is V projected from?",
    ),
    Row(
        "keys_and_values_from_queries",
        {"layers": lambda self, q, k, v: (self.W_q(q), self.W_k(q), self.W_v(q))},
        fails=True,
    ).says(
        "You project keys and values from the queries, so only self-attention can work.",
        "Which argument does each layer read?",
    ),
    Row(
        "one_head",
        {
            "split": lambda self, x: x.unsqueeze(1),
            "merge": lambda self, x: x.squeeze(1),
            "own": _mask_of_one_head,
        },
    ).says(
        "All features go through a single head, whatever `num_heads` is.",
        "Where does `num_heads` enter?",
    ),
    Row("heads_averaged", {"merge": lambda self, x: x.mean(1).repeat(1, 1, self.num_heads)}).says(
        "You average the heads' outputs; they belong side by side.",
        "How many different features does a position have after the merge?",
    ),
    Row(
        "interleaved_heads",
        {
            "split": lambda self, x: x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2),
            "merge": lambda self, x: x.permute(0, 2, 3, 1).flatten(2),
        },
    ).says(
        "Your heads take every h-th feature instead of a contiguous block.",
        "In `(..., num_heads, head_dim)`, which axis moves fastest?",
    ),
)


MISTAKES = known(_MultiHead, *_OWN, without={"lengths_tiled", "empty_row_gradient_nan"})
