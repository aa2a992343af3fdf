"""Lesson 06: the known mistakes of the module, and what is said about each."""

import torch

from course_lib.checks.catalogue import _multi_head_mistakes as wrong
from course_lib.checks.catalogue._multi_head_mistakes import but
from course_lib.checks.exercise import Mistake

_as_is = wrong.Stepwise.as_is
_INVERTED = "True means 'may attend' here; `nn.MultiheadAttention` has it the other way round."

MISTAKES = (
    Mistake(
        "split_without_transpose",
        but(split=wrong.split_without_transpose),
        "Your heads are cut by a reshape without a transpose: a head gets whole positions "
        "instead of a block of features.",
        "What does `split_heads` do between reshape and return?",
    ),
    Mistake(
        "merge_without_transpose",
        but(merge=wrong.merge_without_transpose),
        "The heads are merged by a reshape without a transpose: the first "
        "positions get the outputs of head 0 alone.",
        "Which axes must be neighbours before a reshape can join them?",
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
        "interleaved_heads",
        but(split=wrong.split_interleaved, merge=wrong.merge_interleaved),
        "Your heads take every h-th feature instead of a block of neighbours.",
        "In `(..., num_heads, head_dim)`, which axis moves fastest?",
    ),
    Mistake(
        "split_interleaved",
        but(split=wrong.split_interleaved),
        "Your split gives each head every h-th feature, and your merge puts blocks together.",
        "In `(..., num_heads, head_dim)`, which axis moves fastest?",
    ),
    Mistake(
        "merge_interleaved",
        but(merge=wrong.merge_interleaved),
        "Your split cuts blocks of features, and your merge puts them together one by one in turn.",
        "Which two axes must be neighbours, in which order, before they are joined?",
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
        "scale_without_root",
        but(scale=lambda self, q: q.shape[-1]),
        "The scores are divided by head_dim instead of its square root.",
        "What is the standard deviation of a sum of d products?",
    ),
    Mistake(
        "scale_half_of_head_dim",
        but(scale=lambda self, q: q.shape[-1] / 2),
        "The scores are divided by head_dim / 2: Python reads `d ** 1/2` as `(d ** 1) / 2`.",
        "Which comes first, `**` or `/`?",
    ),
    Mistake(
        "scale_twice_head_dim",
        but(scale=lambda self, q: q.shape[-1] * 2),
        "The scores are divided by 2 head_dim: Python reads `scores / d ** 1/2` as "
        "`(scores / (d ** 1)) / 2`.",
        "Which comes first, `**` or `/`?",
    ),
    Mistake(
        "scale_times_root",
        but(scale=lambda self, q: q.shape[-1] ** -0.5),
        "The scores are multiplied by the root of head_dim instead of divided by it.",
        "Should scaling make large scores larger or smaller?",
    ),
    Mistake(
        "scale_num_heads",
        but(scale=lambda self, q: self.num_heads**0.5),
        "The scores are divided by the root of the number of heads.",
        "Which axis do the dot products sum over?",
    ),
    Mistake(
        "scale_num_keys",
        but(scores=wrong.by_number_of_keys),
        "The scores are divided by the root of the number of keys.",
        "Which axis do the dot products sum over?",
    ),
    Mistake(
        "no_W_o",
        but(finish=lambda self, merged, queries: merged),
        "The merged heads are returned as they are: `W_o` is never used.",
        "Which layer mixes what the heads have found?",
    ),
    Mistake(
        "residual_added",
        but(finish=lambda self, merged, queries: self.W_o(merged) + queries),
        "The queries are added to the outputs. That belongs to the block around attention.",
        "What does the formula end with?",
    ),
    Mistake(
        "values_through_W_k",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_k(v))),
        "The values are projected by `W_k`; `W_v` is never used.",
        "Which layer belongs to which argument?",
    ),
    Mistake(
        "W_k_and_W_v_swapped",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_v(k), self.W_k(v))),
        "`W_k` and `W_v` have changed places.",
        "Which layer belongs to which argument?",
    ),
    Mistake(
        "W_q_and_W_k_swapped",
        but(project=lambda self, q, k, v: (self.W_k(q), self.W_q(k), self.W_v(v))),
        "`W_q` and `W_k` have changed places.",
        "Which layer belongs to which argument?",
    ),
    Mistake(
        "keys_through_W_q",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_q(k), self.W_v(v))),
        "Queries and keys are both projected by `W_q`; `W_k` is never used.",
        "What would every score matrix of a self-attention be if both shared one layer?",
    ),
    Mistake(
        "values_from_keys",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_v(k))),
        "`W_v` is applied to the keys; the argument `values` changes nothing.",
        "What is V projected from?",
    ),
    Mistake(
        "keys_and_values_exchanged",
        but(project=wrong.keys_and_values_exchanged),
        "The arguments `keys` and `values` have changed places.",
        "Which argument does each layer read?",
    ),
    Mistake(
        "keys_and_values_from_queries",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(q), self.W_v(q))),
        "Keys and values are both projected from the queries, so nothing but "
        "self-attention can work.",
        "Which argument does each layer read?",
    ),
    Mistake(
        "values_not_projected",
        but(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), v)),
        "The values are used as they are; `W_v` is never applied.",
        "How many of the four layers does your `forward` call?",
    ),
    Mistake(
        "one_head",
        but(split=lambda self, x: x.unsqueeze(1), merge=lambda self, x: x.squeeze(1)),
        "All features go through one single head, whatever `num_heads` is.",
        "Where does `num_heads` enter?",
    ),
    Mistake(
        "first_block_for_all_heads",
        but(split=wrong.first_block_for_all),
        "Every head works on the first block of features.",
        "Where does the number of the head enter?",
    ),
    Mistake(
        "heads_averaged",
        but(merge=wrong.heads_averaged),
        "The heads' outputs are averaged; they belong side by side.",
        "How many different features does a position have after the merge?",
    ),
    Mistake(
        "weights_averaged_over_heads",
        but(attend=wrong.average_weights),
        "All heads use the average of the heads' weights, so they all look at the same keys.",
        "What are several heads for?",
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
        "lengths_ignored",
        but(real_keys=lambda self, scores, valid_lens: torch.ones_like(scores).bool()),
        "The mask works, the lengths change nothing.",
        "Where is `valid_lens` passed on?",
    ),
    Mistake(
        "mask_inverted",
        but(own_mask=lambda self, scores, mask: ~wrong.Stepwise.own_mask(self, scores, mask)),
        "Your mask is upside down: the keys that should be dropped get all the weight.",
        _INVERTED,
    ),
    Mistake(
        "masks_inverted",
        but(allowed=wrong.inverted_masks),
        "Lengths and mask are upside down: padded and forbidden keys get all the weight.",
        _INVERTED,
    ),
    Mistake(
        "only_lengths_if_both",
        but(allowed=wrong.only_lengths),
        "With lengths and a mask both given, only the lengths count.",
        "Which keys must be dropped when both are given?",
    ),
    Mistake(
        "only_mask_if_both",
        but(allowed=wrong.only_mask),
        "With lengths and a mask both given, only the mask counts.",
        "Which keys must be dropped when both are given?",
    ),
    Mistake(
        "either_is_enough",
        but(allowed=wrong.either_allows),
        "With lengths and a mask both given, you allow a key that either of them allows.",
        "A padded key in the past: may it be attended?",
    ),
    Mistake(
        "masks_tiled",
        but(allowed=wrong.tiled),
        "The masks reach the wrong items. A folded batch runs item 0 head 0, item 0 head 1, "
        "..., but your lengths and masks run item 0, item 1, item 0, ...",
        "What is the difference between `repeat` and `repeat_interleave`?",
    ),
    Mistake(
        "item_mask_read_as_head_mask",
        but(own_mask=wrong.mask_as_it_is),
        "A mask of shape (batch, n, m) lands on the axis of the heads: it raises, or, with as "
        "many items as heads, gives each head the mask of an item.",
        "Which axis is missing in (batch, n, m)?",
    ),
    Mistake(
        "mask_of_first_item_for_all",
        but(own_mask=wrong.first_item_mask),
        "Every item gets the mask of the first one.",
        "Which axis of the mask belongs to the items?",
    ),
    Mistake(
        "mask_of_first_head_for_all",
        but(own_mask=wrong.first_head_mask),
        "Every head gets the mask of the first one.",
        "Which axis of a (batch, num_heads, n, m) mask belongs to the heads?",
    ),
    Mistake(
        "head_axis_always_added",
        but(own_mask=wrong.always_a_head_axis),
        "Masks of shape (batch, n, m) work; with two or four axes the new axis lands in the "
        "wrong place.",
        "For which number of axes is the axis of the heads missing?",
    ),
    Mistake(
        "one_key_more",
        but(real_keys=wrong.one_key_more),
        "One key too many is kept: length 2 keeps keys 0, 1 and 2.",
        "Which is the last real key of an item of length 2?",
    ),
    Mistake(
        "length_of_first_query_for_all",
        but(real_keys=wrong.first_query_length),
        "With lengths of shape (batch, num_queries) every query gets the length of its "
        "item's first one.",
        "Which axis of `valid_lens` belongs to the queries?",
    ),
    Mistake(
        "one_length_per_item_only",
        but(real_keys=wrong.item_lengths_only),
        "Lengths of shape (batch,) work, lengths of shape (batch, num_queries) do not.",
        "Does `masked_softmax` not take both?",
    ),
    Mistake(
        "filled_with_zero",
        but(normalise=wrong.fill(0.0)),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    Mistake(
        "zero_after_softmax",
        but(normalise=wrong.zero_afterwards),
        "Weights are set to 0 after the softmax, so what is left no longer sums to 1.",
        "Which comes first, mask or softmax?",
    ),
    Mistake(
        "over_queries",
        but(normalise=wrong.over_queries),
        "Your softmax runs over the queries instead of the keys.",
        "Which axis of the scores holds the keys?",
    ),
    Mistake(
        "over_heads",
        but(normalise=wrong.over_heads),
        "Your softmax runs over the heads instead of the keys.",
        "Which axis of (batch, num_heads, n, m) holds the keys?",
    ),
    Mistake(
        "empty_row_uniform",
        but(normalise=wrong.fill(-1e9)),
        "An item of length 0 attends to all of its padding: filled with one finite number, "
        "all keys get weight 1/m.",
        "What does `masked_softmax` return for a row without an allowed key?",
    ),
    Mistake(
        "weights_of_empty_row_nan",
        but(
            normalise=wrong.fill(-torch.inf),
            drop=lambda self, w: self.thin(w.nan_to_num(0.0)),
        ),
        "`attention_weights` holds NaN where no key is allowed: NaN becomes 0 only on the way to "
        "the product with the values.",
        "Which line comes first, the assignment or `nan_to_num`?",
    ),
    Mistake(
        "empty_row_of_query_nan",
        but(normalise=wrong.nan_in_empty_queries),
        "An item without keys gets zeros, but a single query without an allowed key becomes NaN.",
        "Over which axes do you ask whether any key is allowed?",
    ),
    Mistake(
        "empty_row_nan_in_train_mode",
        but(normalise=wrong.nan_in_train_mode),
        "In train mode a row in which no key is allowed becomes NaN.",
        "Which lines of your `forward` run in eval mode only?",
    ),
    Mistake(
        "empty_row_nan",
        but(normalise=wrong.fill(-torch.inf)),
        "A row in which no key is allowed becomes NaN.",
        "What does `masked_softmax` return for such a row?",
    ),
    Mistake(
        "empty_row_gradient_nan",
        but(normalise=wrong.nan_removed),
        "An item without keys turns the gradient of every layer into NaN.",
        "Can the NaN be kept from being made, rather than replaced?",
    ),
    Mistake(
        "exponentials_overflow",
        but(normalise=wrong.naive_exponentials),
        "Large scores overflow in exp.",
        "What does `torch.softmax` subtract before it takes exp?",
    ),
    Mistake(
        "transposed_layers",
        but(
            project=lambda self, q, k, v: (
                q @ self.W_q.weight,
                k @ self.W_k.weight,
                v @ self.W_v.weight,
            )
        ),
        "The input layers are multiplied from the wrong side: `nn.Linear` computes x W^T.",
        "What happens if you call the layer instead of using its weight?",
    ),
    Mistake(
        "dropout_in_eval_mode",
        but(thin=lambda self, w: torch.dropout(w, self.p, True)),
        "Dropout acts in eval mode too.",
        "What does `nn.Dropout` look at that `F.dropout` must be told?",
    ),
    Mistake(
        "dropout_missing",
        but(drop=lambda self, w: w),
        "In train mode nothing is dropped: the outputs are those of eval mode.",
        "Where does `dropout` enter, and does it ask for `self.training`?",
    ),
    Mistake(
        "dropout_on_scores",
        but(scores=lambda self, q, k: self.thin(wrong.Stepwise.scores(self, q, k)), drop=_as_is),
        "Dropout acts on your scores: a dropped score becomes 0, whose exponential is 1, and each "
        "row of weights still sums to 1.",
        "Which comes first, softmax or dropout?",
    ),
    Mistake(
        "dropout_on_values",
        but(attend=lambda self, w, v: w @ self.thin(v), drop=_as_is),
        "Dropout acts on the values; it belongs on the attention weights.",
        "Which tensor should lose entries in train mode?",
    ),
    Mistake(
        "dropout_on_heads",
        but(attend=lambda self, w, v: self.thin(w @ v), drop=_as_is),
        "Dropout acts on what the heads return; it belongs on the attention weights.",
        "Which tensor should lose entries: the weights, or their product with the values?",
    ),
    Mistake(
        "dropout_on_output",
        but(finish=lambda self, merged, queries: self.thin(self.W_o(merged)), drop=_as_is),
        "Dropout acts on your outputs; it belongs on the attention weights.",
        "Which tensor should lose entries: the weights, or their product with the values?",
    ),
    Mistake(
        "dropout_twice",
        but(drop=lambda self, w: self.thin(self.thin(w))),
        "Dropout acts twice: the kept weights are divided by (1 - p) two times.",
        "On how many tensors is dropout called?",
    ),
    Mistake(
        "normalised_after_dropout",
        but(drop=wrong.normalised_again),
        "After dropout you bring each row of weights to sum 1 again: dropout has divided the kept "
        "ones by 1 - p already, and the sum is right on average only.",
        "Must each row still sum to 1 after dropout, or only on average?",
    ),
    Mistake(
        "masks_in_eval_mode_only",
        but(allowed=wrong.masks_in_eval_mode),
        "In train mode neither `valid_lens` nor `mask` changes anything.",
        "Which lines of your `forward` run in eval mode only?",
    ),
    Mistake(
        "weights_returned_too",
        but(result=lambda self, outputs: (outputs, self.attention_weights)),
        "Your `forward` returns the weights too; a module returns the outputs only and keeps the "
        "weights as an attribute.",
        "What does `return` hold?",
    ),
    Mistake(
        "arguments_of_init_swapped",
        wrong.NumHeadsFirst,
        "`__init__` takes its arguments in another order than the exercise: called by position, "
        "one of them gets what was meant for another.",
        "In which order does the exercise list the four?",
    ),
    Mistake(
        "mask_before_lengths",
        wrong.MaskBeforeLengths,
        "`forward` takes `mask` before `valid_lens`: lengths given by position arrive as the mask.",
        "In which order does the exercise list the two?",
    ),
    Mistake(
        "heads_in_nested_lists",
        wrong.layers_named(("W_o",)),
        "Only `W_o` is registered: layers in a Python list, or lists of lists, are not seen by the "
        "module, so neither by an optimiser. The exercise asks for `W_q`, `W_k` and `W_v`.",
        "How many layers does the exercise ask for, and who finds the blocks of the heads?",
    ),
    Mistake(
        "one_layer_a_head",
        wrong.OneLayerAHead,
        "You have one small layer for each head. The exercise asks for one layer of all heads "
        "each, whose features are then split; its weight is the small ones on top of each other.",
        "What does `split_heads` do with the features of one large layer?",
    ),
    Mistake(
        "one_layer_for_queries_keys_values",
        wrong.PackedLayers,
        "Queries, keys and values come from one layer with 3 D outputs; the exercise asks for "
        "three, `W_q`, `W_k` and `W_v`, as they may be given three different sequences.",
        "What does your layer do if the keys are another sequence than the queries?",
    ),
    Mistake(
        "queries_and_keys_share_a_layer",
        wrong.layers_named(("W_q", "W_v", "W_o")),
        "`W_k` is missing, or it is the same layer as `W_q`: queries and keys need a layer each.",
        "What would every score matrix of a self-attention be if both shared one layer?",
    ),
    Mistake(
        "weights_stored_after_dropout",
        but(keep=wrong.used_in_attribute),
        "`attention_weights` holds the weights after dropout; the course keeps them as the "
        "softmax left them.",
        "Which line comes first, dropout or the assignment?",
    ),
    Mistake(
        "graph_kept",
        but(keep=wrong.graph_in_attribute),
        "`attention_weights` still carries its graph, which keeps every intermediate alive.",
        "What does `.detach()` do?",
    ),
    Mistake(
        "scores_stored",
        but(keep=wrong.scores_in_attribute),
        "`attention_weights` holds the scores before the softmax.",
        "Which rows sum to 1?",
    ),
    Mistake(
        "weights_stored_averaged",
        but(keep=wrong.averaged_in_attribute),
        "`attention_weights` holds the average over the heads; it must hold each head's own.",
        "Which shape do weights of several heads have?",
    ),
    Mistake(
        "weights_stored_folded",
        but(keep=wrong.folded_in_attribute),
        "`attention_weights` has heads and batch folded into one axis.",
        "Which four axes should it have?",
    ),
    Mistake(
        "weights_not_stored",
        but(keep=wrong.nothing_in_attribute),
        "`self.attention_weights` does not exist after the call.",
        "Where could `forward` keep the weights?",
    ),
    Mistake(
        "bias_always",
        but(make_layers=wrong.layers_with_bias),
        "The layers have biases although `bias=False`.",
        "What is the default of `nn.Linear`'s `bias`?",
    ),
    Mistake(
        "bias_never",
        but(make_layers=wrong.layers_without_bias),
        "`bias=True` changes nothing: the layers have no biases.",
        "Where is `bias` passed on?",
    ),
)
