"""Lesson 04: the known mistakes of the module, with what a student is told of each."""

import math

import torch
from torch.nn import functional as F

from course_lib.checks.catalogue import _additive_mistakes as models
from course_lib.checks.catalogue._additive_mistakes import changed, combined, filled, weighed
from course_lib.checks.exercise import Mistake


def _always_causal(scores, valid_lens, mask):
    past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return models.hand_masked_softmax(scores, valid_lens, past if mask is None else past & mask)


def _moved(by):
    def weigh(scores, valid_lens, mask):
        lengths = None if valid_lens is None else (valid_lens + by).clamp(min=0)
        return models.hand_masked_softmax(scores, lengths, mask)

    return weigh


def _zero_but_in_empty_rows(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return torch.softmax(scores * allowed, -1) * allowed.any(-1, keepdim=True)


def _very_negative_added(scores, valid_lens, mask):
    return torch.softmax(scores + ~models.allowed_keys(scores, valid_lens, mask) * -1e9, -1)


def _zero_after(scores, valid_lens, mask):
    return torch.softmax(scores, -1) * models.allowed_keys(scores, valid_lens, mask)


def _nan_rows(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)


def _nan_gradient(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    added = torch.where(allowed, 0.0, -math.inf).to(scores.dtype)
    return torch.softmax(scores + added, -1).masked_fill(~allowed, 0.0)


def _inverted(scores, valid_lens, mask):
    if valid_lens is None and mask is None:
        return torch.softmax(scores, -1)
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return models.hand_masked_softmax(scores, None, ~allowed)


def _mask_inverted(scores, valid_lens, mask):
    return models.hand_masked_softmax(scores, valid_lens, None if mask is None else ~mask)


def _one_length(scores, valid_lens, mask):
    per_query = valid_lens is not None and valid_lens.dim() == 2
    return models.hand_masked_softmax(scores, valid_lens[:, 0] if per_query else valid_lens, mask)


def _mask_of_one_item(scores, valid_lens, mask):
    per_item = mask is not None and mask.dim() == 3
    return models.hand_masked_softmax(scores, valid_lens, mask[0] if per_item else mask)


def _at_least_one_key(scores, valid_lens, mask):
    lengths = None if valid_lens is None else valid_lens.clamp(min=1)
    return models.hand_masked_softmax(scores, lengths, mask)


def _empty_mask_ignored(scores, valid_lens, mask):
    used = mask is not None and mask.any()
    return models.hand_masked_softmax(scores, valid_lens, mask if used else None)


def _zero_lengths_ignored(scores, valid_lens, mask):
    used = valid_lens is not None and valid_lens.any()
    return models.hand_masked_softmax(scores, valid_lens if used else None, mask)


def _either(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, None)
    if mask is not None:
        allowed = mask if valid_lens is None else allowed | mask
    return models.hand_masked_softmax(scores, None, allowed)


def _mask_added(scores, valid_lens, mask):
    scores = scores if mask is None else scores + mask.to(scores.dtype)
    return models.hand_masked_softmax(scores, valid_lens)


def _queries_masked(scores, valid_lens, mask):
    weights = models.hand_masked_softmax(scores, None, mask)
    if valid_lens is None or valid_lens.dim() == 2:
        return weights
    return weights * (torch.arange(scores.shape[1])[:, None] < valid_lens[:, None, None])


def _renormalised(self, weights):
    dropped = self.dropout(weights)
    return dropped / dropped.sum(-1, keepdim=True).clamp(min=1e-9)


def _over_queries(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), 1).nan_to_num(0.0)


def _keep(what):
    def keep(self, scores, weights, dropped):
        self.attention_weights = what(scores, weights, dropped)

    return changed(keep=keep)


MISTAKES = (
    Mistake(
        "parameters_in_forward",
        models.ParametersInForward,
        "Your layers are made in `forward`: every call draws new weights, and no optimiser or "
        "checkpoint ever sees them.",
        "What belongs in `__init__`, and what in `forward`?",
    ),
    Mistake(
        "plain_tensors",
        models.PlainTensors,
        "Your weights are plain tensors: `parameters()` does not list them, so no optimiser, "
        "`.to()` or checkpoint reaches them.",
        "What does `nn.Linear` do that an assignment does not?",
    ),
    Mistake(
        "layers_in_a_list",
        models.LayersInAList,
        "Your layers are in a Python list: the module does not see them, and neither does an "
        "optimiser.",
        "What happens to a layer that is assigned to `self.W_q`?",
    ),
    Mistake(
        "sizes_swapped",
        models.SizesSwapped,
        "`W_q` reads key_size numbers and `W_k` reads query_size: their sizes are exchanged.",
        "In which order does `__init__` get the two sizes?",
    ),
    Mistake(
        "dropout_required",
        models.DropoutRequired,
        "Your class cannot be built without `dropout`; the exercise gives it a default of 0.",
        "Which signature does `__init__` have in the exercise?",
    ),
    Mistake(
        "arguments_of_init_swapped",
        models.KeySizeFirst,
        "`__init__` takes the sizes in another order than the exercise: called by position, "
        "the layers get the wrong sizes.",
        "Which of the two sizes comes first in the exercise's signature?",
    ),
    Mistake(
        "frozen_weights",
        models.FrozenScore,
        "A weight of your module has `requires_grad=False`: it is listed, and never trained.",
        "Which of the three layers should an optimiser leave alone?",
    ),
    Mistake(
        "with_bias",
        changed(bias=True),
        "Your layers have biases; the exercise asks for layers without.",
        "Which argument of `nn.Linear` leaves the bias out?",
    ),
    Mistake(
        "lengths_required",
        models.TextbookSignature,
        "The call fails when no lengths are given, or when a mask is: both are optional.",
        "Which signature does `forward` have in the exercise?",
    ),
    Mistake(
        "mask_not_accepted",
        models.NoMaskArgument,
        "`forward` takes no `mask`.",
        "Which signature does `forward` have in the exercise?",
    ),
    Mistake(
        "both_required",
        models.BothRequired,
        "`forward` cannot be called without `valid_lens` and `mask`: both are optional.",
        "Which signature does `forward` have in the exercise?",
    ),
    Mistake(
        "mask_before_lengths",
        models.MaskBeforeLengths,
        "`forward` takes `mask` before `valid_lens`: lengths given by position arrive as the mask.",
        "In which order does the exercise list the two?",
    ),
    Mistake(
        "truth_of_lengths",
        models.TruthOfLengths,
        "You ask whether `valid_lens` is true or false. A tensor of several numbers has no "
        "such answer, and a length of 0 would count as none given.",
        "How does one ask whether an argument is None?",
    ),
    Mistake(
        "returns_both",
        models.ReturnsBoth,
        "`forward` returns the weights beside the outputs; a module returns the outputs and "
        "keeps the weights as an attribute.",
        "Which of the two would the next layer take?",
    ),
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
        "relu",
        combined(lambda q, k, w: torch.relu(q[:, :, None] + k[:, None]) @ w),
        "Your hidden features go through relu; the formula has tanh.",
        "Which values can tanh take that relu cannot?",
    ),
    Mistake(
        "product",
        combined(lambda q, k, w: torch.tanh(q[:, :, None] * k[:, None]) @ w),
        "You multiply the projected query and key; additive attention adds them.",
        "Which operation stands inside the tanh?",
    ),
    Mistake(
        "dot_product",
        combined(lambda q, k, w: q @ k.mT),
        "You take dot products of the projections: w_v and tanh do not enter.",
        "How do two vectors of H numbers become H features, and these one score?",
    ),
    Mistake(
        "no_w_v",
        combined(lambda q, k, w: torch.tanh(q[:, :, None] + k[:, None]).sum(-1)),
        "You add up the hidden features; `w_v` does not enter.",
        "Does every hidden feature count the same?",
    ),
    Mistake(
        "scaled",
        combined(lambda q, k, w: torch.tanh(q[:, :, None] + k[:, None]) @ w / math.sqrt(len(w))),
        "You divide the scores by a square root, as dot-product attention does. The additive "
        "score has no such factor.",
        "Which scores grow with the number of features, and which are bounded by w_v?",
    ),
    Mistake(
        "scaled_dot_product",
        combined(lambda q, k, w: q @ k.mT / math.sqrt(len(w))),
        "You take scaled dot products of the projections, which is the next lesson's "
        "attention: w_v and tanh do not enter.",
        "How do two vectors of H numbers become H features, and these one score?",
    ),
    Mistake(
        "layers_swapped",
        changed(score=lambda self, queries, keys: self.combine(self.W_k(queries), self.W_q(keys))),
        "The queries go through `W_k` and the keys through `W_q`.",
        "Which layer reads query_size numbers?",
    ),
    Mistake(
        "query_forgotten",
        combined(lambda q, k, w: torch.tanh(k)[:, None].expand(-1, q.shape[1], -1, -1) @ w),
        "Your weights do not depend on the queries.",
        "What is added to the projected key?",
    ),
    Mistake(
        "squeezed",
        models.Squeezed,
        "`squeeze()` without an axis removes every axis of size 1: with one item, one query or "
        "one key an axis is lost.",
        "Which axis do you want to remove?",
    ),
    Mistake(
        "nothing_passed_on",
        weighed(lambda scores, valid_lens, mask: torch.softmax(scores, -1)),
        "Neither the lengths nor the mask reaches the softmax.",
        "What does `masked_softmax` take besides the scores?",
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
        "only_mask_if_both",
        weighed(
            lambda scores, valid_lens, mask: models.hand_masked_softmax(
                scores, valid_lens if mask is None else None, mask
            )
        ),
        "With lengths and a mask both given, only the mask counts.",
        "Which keys must be dropped when both are given?",
    ),
    Mistake(
        "mask_inverted",
        weighed(_mask_inverted),
        "Your mask is upside down: you drop the keys where it is True. The lengths are right.",
        "In this course, and in `F.scaled_dot_product_attention`, what does True mean?",
    ),
    Mistake(
        "lengths_of_the_first_query",
        weighed(_one_length),
        "Lengths of shape (batch, num_queries) are read as one length an item: every query "
        "gets the length of query 0.",
        "What shape of mask do lengths of shape (B, n) give?",
    ),
    Mistake(
        "mask_of_the_first_item",
        weighed(_mask_of_one_item),
        "A mask of shape (batch, num_queries, num_keys) is applied as if item 0's held for "
        "every item.",
        "Does a mask with a batch axis need to be cut before it meets the scores?",
    ),
    Mistake(
        "at_least_one_key",
        weighed(_at_least_one_key),
        "A length of 0 counts as 1 in your code.",
        "What should a query that may attend to nothing receive?",
    ),
    Mistake(
        "empty_mask_ignored",
        weighed(_empty_mask_ignored),
        "A mask without any True is treated like no mask.",
        "How does one ask whether an argument is None?",
    ),
    Mistake(
        "either_is_enough",
        weighed(_either),
        "With lengths and a mask both given, you keep the keys that either of them allows.",
        "Which keys must be dropped when both are given?",
    ),
    Mistake(
        "mask_added",
        weighed(_mask_added),
        "You add the mask to the scores as 0 and 1: a forbidden key only has a lead of 1 less.",
        "Which number must be added to a score so that its exponential is 0?",
    ),
    Mistake(
        "queries_masked",
        weighed(_queries_masked),
        "Your lengths drop queries, the rows of the weights, instead of keys.",
        "Which axis of the scores do lengths count along?",
    ),
    Mistake(
        "pads_set_to_zero",
        models.PadsSetToZero,
        "You set padded keys and values to 0 and leave them in the softmax, where each still "
        "takes a share of the weight.",
        "What weight does a score of 0 get?",
    ),
    Mistake(
        "lengths_of_zero_ignored",
        weighed(_zero_lengths_ignored),
        "Lengths that are all 0 are treated like no lengths.",
        "How does one ask whether an argument is None?",
    ),
    Mistake(
        "sigmoid_weights",
        weighed(
            lambda scores, valid_lens, mask: (
                torch.sigmoid(scores) * models.allowed_keys(scores, valid_lens, mask)
            )
        ),
        "Your weights are sigmoids of the scores: a row does not sum to 1.",
        "Which function turns the scores of a row into weights that share 1?",
    ),
    Mistake(
        "inverted",
        weighed(_inverted),
        "The masking is upside down: the keys that should be dropped get all the weight.",
        "True means 'may attend'. Which keys does your code drop?",
    ),
    Mistake(
        "always_causal",
        weighed(_always_causal),
        "Query i never sees a key after i: your code masks the future, which nobody asked for.",
        "Who decides which keys may be attended: the caller or your code?",
    ),
    Mistake(
        "one_key_too_few",
        weighed(_moved(-1)),
        "One key too few is kept: length 2 keeps key 0 only.",
        "What number does the first key have?",
    ),
    Mistake(
        "one_key_too_many",
        weighed(_moved(1)),
        "One key too many is kept: length 2 keeps keys 0, 1 and 2.",
        "Which is the last real key of an item of length 2?",
    ),
    Mistake(
        "zero_after_softmax",
        weighed(_zero_after),
        "You set weights to 0 after the softmax, so what is left no longer sums to 1.",
        "Which function of lesson 02 masks before the softmax?",
    ),
    Mistake(
        "over_queries",
        weighed(_over_queries),
        "Your softmax runs over the queries: columns of the weights sum to 1, rows do not.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "over_queries_unmasked",
        weighed(lambda scores, valid_lens, mask: torch.softmax(scores, 1)),
        "Your softmax runs over the queries, columns of the weights sum to 1; and neither "
        "lengths nor mask reaches it.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "filled_with_zero",
        filled(0.0),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    Mistake(
        "filled_with_zero_empty_rows_right",
        weighed(_zero_but_in_empty_rows),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight, but in empty rows.",
        "Which score has an exponential of 0?",
    ),
    Mistake(
        "finite_mask_added",
        weighed(_very_negative_added),
        "A very negative number such as -1e9 is added to dropped scores: in an empty row it is "
        "added to all of them, which changes no weight.",
        "What does the same number, added to every score of a row, do to its softmax?",
    ),
    Mistake(
        "filled_with_1e6",
        filled(-1e6),
        "Dropped scores become a number such as -1e6. In a row without any allowed key all scores "
        "are then equal, and the output is an average of forbidden values.",
        "What should a query that may attend to nothing receive?",
    ),
    Mistake(
        "empty_row_nan",
        weighed(_nan_rows),
        "A row in which no key is allowed becomes NaN.",
        "What should a query that may attend to nothing receive?",
    ),
    Mistake(
        "empty_row_gradient_nan",
        weighed(_nan_gradient),
        "The outputs are right, but an empty row turns the gradients into NaN.",
        "Does the softmax ever see a row of nothing but -inf?",
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
        "values_scored",
        changed(
            forward=lambda self, queries, keys, values, valid_lens=None, mask=None: (
                models.Right.forward(self, queries, values, values, valid_lens, mask)
            )
        ),
        "You compare the queries with the values; it is the keys they are compared with.",
        "What goes through `W_k`?",
    ),
    Mistake(
        "dropout_in_eval",
        changed(drop=lambda self, weights: F.dropout(weights, self.dropout.p)),
        "Dropout acts in eval mode too.",
        "How does a layer learn that the module is in eval mode?",
    ),
    Mistake(
        "dropout_missing",
        changed(drop=lambda self, weights: weights),
        "In train mode nothing is dropped: `dropout` has no effect.",
        "Which tensor should go through `nn.Dropout`?",
    ),
    Mistake(
        "dropout_on_scores",
        changed(
            combine=lambda self, q, k: self.dropout(models.Right.combine(self, q, k)),
            drop=lambda self, weights: weights,
        ),
        "Dropout acts on the scores: a dropped score becomes 0, whose exponential is 1, so the "
        "key keeps its weight.",
        "Which comes first, softmax or dropout?",
    ),
    Mistake(
        "dropout_on_output",
        changed(
            drop=lambda self, weights: weights,
            average=lambda self, weights, keys, values: self.dropout(weights @ values),
        ),
        "Dropout acts on the outputs; it belongs on the attention weights.",
        "Which tensor should lose entries: the weights, or their product with the values?",
    ),
    Mistake(
        "dropout_on_features",
        models.DropoutOnFeatures,
        "Dropout acts on the hidden features; it belongs on the attention weights.",
        "Which tensor should lose entries?",
    ),
    Mistake(
        "dropout_on_values",
        changed(
            drop=lambda self, weights: weights,
            average=lambda self, weights, keys, values: weights @ self.dropout(values),
        ),
        "Dropout acts on the values; it belongs on the attention weights.",
        "Which tensor should lose entries?",
    ),
    Mistake(
        "dropout_renormalised",
        changed(drop=_renormalised),
        "You divide by the sums again after dropout. `nn.Dropout` has already divided what it "
        "keeps by 1 - p.",
        "Must the weights of one call in train mode sum to 1, or those of the average call?",
    ),
    Mistake(
        "dropout_fixed",
        models.DropoutOfAHalf,
        "You always drop with probability 0.5, whatever `dropout` says.",
        "Where does the argument `dropout` go?",
    ),
    Mistake(
        "dropout_keeps_p",
        models.DropoutKeepsP,
        "You keep weights with probability `dropout`; it is the probability of dropping one.",
        "Which of the two is the argument of `nn.Dropout`?",
    ),
    Mistake(
        "dropout_twice",
        changed(drop=lambda self, weights: self.dropout(self.dropout(weights))),
        "Dropout acts twice.",
        "On how many tensors is dropout called?",
    ),
    Mistake(
        "kept_after_dropout",
        _keep(lambda scores, weights, dropped: dropped.detach()),
        "`attention_weights` holds the weights after dropout: in train mode its rows no longer "
        "sum to 1.",
        "Which line should come first, keeping or dropping?",
    ),
    Mistake(
        "kept_with_graph",
        _keep(lambda scores, weights, dropped: weights),
        "`attention_weights` still carries its graph: as long as the module keeps it, every "
        "intermediate of the call stays in memory.",
        "What does `.detach()` do?",
    ),
    Mistake(
        "kept_scores",
        _keep(lambda scores, weights, dropped: scores.detach()),
        "`attention_weights` holds the scores, before the softmax.",
        "In which range must a weight lie?",
    ),
    Mistake(
        "kept_from_the_first_call",
        models.KeepsTheFirst,
        "`attention_weights` is set in the first call and never again.",
        "Of which call should it hold the weights?",
    ),
    Mistake(
        "nothing_kept",
        changed(keep=lambda self, scores, weights, dropped: None),
        "The module has no `attention_weights` after the call.",
        "Where would you look to see what it attends to?",
    ),
)
