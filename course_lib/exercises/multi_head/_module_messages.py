"""Lesson 06: the known mistakes of the module, and what is said about each."""

import torch

from course_lib.checks.judge.exercise import Mistake
from course_lib.exercises.multi_head import _mistakes as wrong
from course_lib.exercises.multi_head._mistakes import but

_INVERTED = "True means 'may attend' here; `nn.MultiheadAttention` has it the other way round."

MISTAKES = (
    Mistake(
        "merge_without_transpose",
        but(merge=wrong.merge_without_transpose),
        "The heads are merged by a reshape without a transpose: the first "
        "positions get the outputs of head 0 alone.",
        "Which axes must be neighbours before a reshape can join them?",
    ),
    Mistake(
        "split_without_transpose",
        but(split=wrong.split_without_transpose),
        "Your heads are cut by a reshape without a transpose: a head gets whole positions "
        "instead of a block of features.",
        "What does `split_heads` do between reshape and return?",
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
        "no_W_o",
        but(finish=lambda self, merged: merged),
        "The merged heads are returned as they are: `W_o` is never used.",
        "Which layer mixes what the heads have found?",
    ),
    Mistake(
        "item_mask_read_as_head_mask",
        but(own_mask=wrong.mask_as_it_is),
        "A mask of shape (batch, n, m) lands on the axis of the heads: it raises, or, with as "
        "many items as heads, gives each head the mask of an item.",
        "Which axis is missing in (batch, n, m)?",
        fails=True,
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
        "mask_inverted",
        but(own_mask=lambda self, scores, mask: ~wrong.Stepwise.own_mask(self, scores, mask)),
        "Your mask is upside down: the keys that should be dropped get all the weight.",
        _INVERTED,
    ),
    Mistake(
        "only_lengths_if_both",
        but(allowed=wrong.only_lengths),
        "With lengths and a mask both given, only the lengths count.",
        "Which keys must be dropped when both are given?",
    ),
    Mistake(
        "masks_tiled",
        but(allowed=wrong.tiled),
        "The masks reach the wrong items. A folded batch runs item 0 head 0, item 0 head 1, "
        "..., but your lengths and masks run item 0, item 1, item 0, ...",
        "What is the difference between `repeat` and `repeat_interleave`?",
    ),
    Mistake(
        "filled_with_zero",
        but(normalise=wrong.fill(0.0)),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    Mistake(
        "empty_row_nan",
        but(normalise=wrong.fill(-torch.inf)),
        "A row in which no key is allowed becomes NaN.",
        "What does `masked_softmax` return for such a row?",
    ),
    Mistake(
        "over_queries",
        but(normalise=wrong.over_queries),
        "Your softmax runs over the queries instead of the keys.",
        "Which axis of the scores holds the keys?",
    ),
    Mistake(
        "values_through_W_k",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_k(v))),
        "The values are projected by `W_k`; `W_v` is never used.",
        "Which layer belongs to which argument?",
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
        fails=True,
    ),
    Mistake(
        "one_head",
        but(
            split=lambda self, x: x.unsqueeze(1),
            merge=lambda self, x: x.squeeze(1),
            own_mask=lambda self, scores, mask: (
                wrong.Stepwise.own_mask(self, scores, mask)[:, :1] if mask.dim() > 2 else mask
            ),
        ),
        "All features go through one single head, whatever `num_heads` is.",
        "Where does `num_heads` enter?",
    ),
    Mistake(
        "heads_averaged",
        but(merge=wrong.heads_averaged),
        "The heads' outputs are averaged; they belong side by side.",
        "How many different features does a position have after the merge?",
    ),
    Mistake(
        "interleaved_heads",
        but(split=wrong.split_interleaved, merge=wrong.merge_interleaved),
        "Your heads take every h-th feature instead of a block of neighbours.",
        "In `(..., num_heads, head_dim)`, which axis moves fastest?",
    ),
    Mistake(
        "dropout_in_eval_mode",
        but(drop=lambda self, w: torch.dropout(w, self.p, True)),
        "Dropout acts in eval mode too.",
        "What does `nn.Dropout` look at that `F.dropout` must be told?",
    ),
)
