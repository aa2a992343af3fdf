"""Lesson 04: the known mistakes of the module, with what a student is told of each."""

import math

import torch
from torch.nn import functional as F

from course_lib.checks.judge.exercise import Mistake
from course_lib.exercises.additive_attention import _mistakes as models
from course_lib.exercises.additive_attention._mistakes import changed, combined, filled, weighed


def _inverted(scores, valid_lens, mask):
    if valid_lens is None and mask is None:
        return torch.softmax(scores, -1)
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return models.hand_masked_softmax(scores, None, ~allowed)


def _mask_inverted(scores, valid_lens, mask):
    return models.hand_masked_softmax(scores, valid_lens, None if mask is None else ~mask)


def _over_queries(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), 1).nan_to_num(0.0)


MISTAKES = (
    Mistake(
        "no_tanh",
        combined(lambda q, k, w: (q[:, :, None] + k[:, None]) @ w),
        "Without tanh every query of an item has the same weights: the softmax cancels the "
        "query's part of the score.",
        "Which step lets a query change the order of the keys?",
    ),
    Mistake(
        "tanh_apart",
        combined(lambda q, k, w: (torch.tanh(q)[:, :, None] + torch.tanh(k)[:, None]) @ w),
        "You take tanh of query and key apart, so the query's part cancels in the softmax, and "
        "every query has the same weights.",
        "Does tanh come before or after the sum?",
    ),
    Mistake(
        "query_forgotten",
        combined(lambda q, k, w: torch.tanh(k)[:, None].expand(-1, q.shape[1], -1, -1) @ w),
        "Your weights do not depend on the queries.",
        "What is added to the projected key?",
    ),
    Mistake(
        "no_w_v",
        combined(lambda q, k, w: torch.tanh(q[:, :, None] + k[:, None]).sum(-1)),
        "You add up the hidden features; `w_v` does not enter.",
        "Does every hidden feature count the same?",
    ),
    Mistake(
        "product",
        combined(lambda q, k, w: torch.tanh(q[:, :, None] * k[:, None]) @ w),
        "You multiply the projected query and key; additive attention adds them.",
        "Which operation stands inside the tanh?",
    ),
    Mistake(
        "relu",
        combined(lambda q, k, w: torch.relu(q[:, :, None] + k[:, None]) @ w),
        "Your hidden features go through relu; the formula has tanh.",
        "Which values can tanh take that relu cannot?",
    ),
    Mistake(
        "scaled_dot_product",
        combined(lambda q, k, w: q @ k.mT / math.sqrt(len(w))),
        "You take scaled dot products of the projections, which is the next lesson's "
        "attention: w_v and tanh do not enter.",
        "How do two vectors of H numbers become H features, and these one score?",
    ),
    Mistake(
        "scaled",
        combined(lambda q, k, w: torch.tanh(q[:, :, None] + k[:, None]) @ w / math.sqrt(len(w))),
        "You divide the scores by a square root, as dot-product attention does. The additive "
        "score has no such factor.",
        "Which scores grow with the number of features, and which are bounded by w_v?",
    ),
    Mistake(
        "layers_swapped",
        changed(score=lambda self, queries, keys: self.combine(self.W_k(queries), self.W_q(keys))),
        "The queries go through `W_k` and the keys through `W_q`.",
        "Which layer reads query_size numbers?",
        fails=True,
    ),
    Mistake(
        "squeezed",
        models.Squeezed,
        "`squeeze()` without an axis removes every axis of size 1: with one item, one query or "
        "one key an axis is lost.",
        "Which axis do you want to remove?",
        fails=True,
    ),
    Mistake(
        "values_are_keys",
        changed(average=lambda self, weights, keys, values: weights @ keys),
        "You average the keys; the keys only decide how much each value counts.",
        "Which of the three inputs does attention return an average of?",
    ),
    Mistake(
        "projected_keys_averaged",
        changed(average=lambda self, weights, keys, values: weights @ self.W_k(keys)),
        "You average the projected keys; the outputs are averages of the values.",
        "Which variable did you overwrite on the way?",
    ),
    Mistake(
        "mask_not_passed_on",
        weighed(lambda scores, valid_lens, mask: models.hand_masked_softmax(scores, valid_lens)),
        "`mask` is accepted but never reaches the softmax.",
        "What does `masked_softmax` take besides the scores and the lengths?",
    ),
    Mistake(
        "lengths_not_passed_on",
        weighed(lambda scores, valid_lens, mask: models.hand_masked_softmax(scores, None, mask)),
        "`valid_lens` is accepted but never reaches the softmax.",
        "What does `masked_softmax` take besides the scores and the mask?",
    ),
    Mistake(
        "nothing_passed_on",
        weighed(lambda scores, valid_lens, mask: torch.softmax(scores, -1)),
        "Neither the lengths nor the mask reaches the softmax.",
        "What does `masked_softmax` take besides the scores?",
    ),
    Mistake(
        "only_lengths_if_both",
        weighed(
            lambda scores, valid_lens, mask: models.hand_masked_softmax(
                scores, valid_lens, mask if valid_lens is None else None
            )
        ),
        "With lengths and a mask both given, only the lengths count.",
        "Which keys must be dropped when both are given?",
    ),
    Mistake(
        "inverted",
        weighed(_inverted),
        "The masking is upside down: the keys that should be dropped get all the weight.",
        "True means 'may attend'. Which keys does your code drop?",
    ),
    Mistake(
        "mask_inverted",
        weighed(_mask_inverted),
        "Your mask is upside down: you drop the keys where it is True. The lengths are right.",
        "In this course, and in `F.scaled_dot_product_attention`, what does True mean?",
    ),
    Mistake(
        "filled_with_1e6",
        filled(-1e6),
        "Dropped scores become a number such as -1e6. In a row without any allowed key all scores "
        "are then equal, and the output is an average of forbidden values.",
        "What should a query that may attend to nothing receive?",
    ),
    Mistake(
        "lengths_required",
        models.TextbookSignature,
        "The call fails when no lengths are given, or when a mask is: both are optional.",
        "Which signature does `forward` have in the exercise?",
        fails=True,
    ),
    Mistake(
        "dropout_in_eval",
        changed(drop=lambda self, weights: F.dropout(weights, self.dropout.p)),
        "Dropout acts in eval mode too.",
        "How does a layer learn that the module is in eval mode?",
    ),
    Mistake(
        "over_queries",
        weighed(_over_queries),
        "Your softmax runs over the queries: columns of the weights sum to 1, rows do not.",
        "Which axis holds the keys?",
    ),
)
