"""Lesson 06: the module, judged with injected weights."""

import functools

import numpy as np
import torch

from course_lib.checks.catalogue import _multi_head_mistakes as wrong
from course_lib.checks.catalogue._multi_head_mistakes import but
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import multi_head as oracle

_SAYS_OUTPUT = "The outputs must be those of the formula, head by head, for the weights put in."
_WEIGHTS = ("attention_weights",)


def state_of(rng, embed_dim, *, bias=False, scale=1.0):
    names = ("W_q", "W_k", "W_v", "W_o")
    state = {
        f"{n}.weight": rng.normal(0, scale / embed_dim**0.5, (embed_dim, embed_dim)) for n in names
    }
    if bias:
        state |= {f"{n}.bias": rng.normal(0, 1, embed_dim) for n in names}
    return state


def _attention_probe(rng, name, says, sizes, *, part="values", gradient=False, **options):
    """A probe of sizes (batch, num_queries, num_keys, num_heads, head_dim)."""
    batch, n, m, num_heads, head_dim = sizes
    embed_dim = num_heads * head_dim
    strided = options.pop("strided", False)
    inputs = options.pop("inputs", None) or {
        role: rng.normal(0, 1.3, (batch, size, embed_dim))
        for role, size in (("queries", n), ("keys", m), ("values", m))
    }
    construct = {"embed_dim": embed_dim, "num_heads": num_heads, **options.pop("construct", {})}
    state = options.pop("state", None)
    bias = construct.get("bias", False)
    return Probe(
        name,
        says,
        part=part,
        args={k: tensor(x, strided=strided, requires_grad=gradient) for k, x in inputs.items()},
        kwargs={k: tensor(options.pop(k)) for k in ("valid_lens", "mask") if k in options},
        construct=construct,
        state=state_of(rng, embed_dim, bias=bias, scale=1.3) if state is None else state,
        attributes=_WEIGHTS,
        grad_outputs=rng.normal(0, 1, (batch, n, embed_dim)) if gradient else None,
        **options,
    )


def _some_of(rng, *shape):
    """A random mask in which every row allows and drops some key."""
    mask = rng.random(shape) < 0.6
    rows = mask.reshape(-1, shape[-1])
    for row in rows:
        row[rng.permutation(shape[-1])[:2]] = (True, False)
    return rows.reshape(shape)


def _lens(rng, num_keys, *shape):
    """Lengths from 1 to num_keys - 1 that differ as far as they can."""
    size = int(np.prod(shape))
    return np.resize(rng.permutation(np.arange(1, num_keys)), size).reshape(shape)


def _attention_probes(rng):
    probe = functools.partial(_attention_probe, rng)
    size = (2, 4, 5, 3, 2)
    return [
        *_attention_values(rng, probe, size),
        *_attention_edges(rng, probe, size),
        probe(
            "gradient",
            "Gradients must reach queries, keys, values and all four layers.",
            (1, 2, 3, 2, 2),
            part="gradients",
            gradient=True,
            mask=np.array([[True, False, True], [True, True, True]]),
        ),
        probe(
            "gradient_with_empty_row",
            "An item without any real key must leave every gradient finite.",
            (2, 2, 3, 2, 1),
            part="gradients",
            gradient=True,
            valid_lens=np.array([0, 2]),
        ),
    ]


def _attention_values(rng, probe, size):
    batch, n, m, num_heads, _ = size
    identities = {"W_v.weight": np.eye(6), "W_o.weight": np.eye(6)}
    return [
        probe("cross", _SAYS_OUTPUT, size),
        probe(
            "blocks",
            "With W_v and W_o set to identities, head i must fill the i-th block of features "
            "with averages of the i-th block of the values.",
            (2, 4, 5, 2, 3),
            state=state_of(rng, 6) | identities,
        ),
        probe(
            "lengths_per_item",
            "Lengths of shape (batch,) must hold for every query and every head of an item.",
            size,
            valid_lens=_lens(rng, m, batch),
        ),
        probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) must hold for every head.",
            size,
            valid_lens=_lens(rng, m, batch, n),
        ),
        probe(
            "mask_for_all",
            "A mask of shape (n, m) must hold for every item and every head.",
            size,
            mask=_some_of(rng, n, m),
        ),
        probe(
            "mask_per_item",
            "A mask of shape (batch, n, m) must hold for every head of its item.",
            size,
            mask=_some_of(rng, batch, n, m),
        ),
        probe(
            "mask_per_head",
            "A mask of shape (batch, num_heads, n, m) gives each head its own.",
            size,
            mask=_some_of(rng, batch, num_heads, n, m),
        ),
        probe(
            "lengths_and_mask",
            "With both given, a key must be allowed by both.",
            (3, 2, 7, 2, 2),
            valid_lens=np.array([6, 4, 5]),
            mask=np.array([[True, True, False, True, False, True, True]] * 2),
        ),
        probe("strided", "Non-contiguous inputs must work.", (2, 3, 5, 2, 4), strided=True),
        probe(
            "bias",
            "With `bias=True` each of the four layers adds its bias.",
            (2, 3, 4, 2, 3),
            construct={"bias": True},
        ),
    ]


def _attention_edges(rng, probe, size):
    x = rng.normal(0, 1.3, (2, 4, 6))
    cross = (2, 3, 5, 2, 3)
    inputs = {
        "queries": 1000 * rng.normal(0, 1.3, (2, 3, 6)),
        "keys": rng.normal(0, 1.3, (2, 5, 6)),
        "values": rng.normal(0, 1.3, (2, 5, 6)),
    }
    return [
        probe(
            "as_many_items_as_heads",
            "A mask of shape (batch, n, m) belongs to the items, also where there are as many "
            "items as heads.",
            cross,
            part="edges",
            mask=_some_of(rng, 2, 3, 5),
        ),
        probe(
            "self_attention",
            "One sequence as queries, keys and values must work.",
            (2, 4, 4, 3, 2),
            part="edges",
            inputs={"queries": x, "keys": x, "values": x},
        ),
        probe("one_head", "One head must be plain attention.", (2, 3, 4, 1, 5), part="edges"),
        probe(
            "one_feature_each",
            "As many heads as features must work.",
            (2, 3, 4, 5, 1),
            part="edges",
        ),
        probe(
            "one_query_one_key",
            "A single query and a single key must keep their axes.",
            (1, 1, 1, 2, 2),
            part="edges",
        ),
        probe(
            "item_without_keys",
            "An item of length 0 must get weights 0 and outputs 0.",
            cross,
            part="edges",
            valid_lens=np.array([0, 3]),
        ),
        probe(
            "large_scores",
            "Large scores must not overflow.",
            cross,
            part="edges",
            inputs=inputs,
            tolerance=1e-6,
        ),
        *_attention_dropout(rng, probe),
    ]


def _attention_dropout(rng, probe):
    """Dropout of p = 0.3 on 2 * 2 * 60 * 10 = 2400 weights, judged as `checks.compare` says."""
    embed_dim = 2 * (10 + 3)
    values = dropout_values(rng, 2, 10, num_heads=2)
    eye = np.eye(embed_dim)
    state = state_of(rng, embed_dim) | {"W_v.weight": eye, "W_o.weight": eye}
    inputs = {
        "queries": rng.normal(0, 1, (2, 60, embed_dim)),
        "keys": rng.normal(0, 1, (2, 10, embed_dim)),
        "values": values,
    }
    return [
        probe(
            "dropout_in_eval_mode",
            "In eval mode nothing is dropped, whatever `dropout` is.",
            (2, 3, 5, 2, 2),
            part="edges",
            construct={"dropout": 0.5},
        ),
        probe(
            "no_dropout_in_train_mode",
            "With `dropout=0` train mode must give the outputs of eval mode.",
            (2, 3, 4, 2, 2),
            part="edges",
            training=True,
        ),
        probe(
            "dropout_in_train_mode",
            "In train mode each weight is dropped with probability `dropout` and the others are "
            "divided by 1 - `dropout`.",
            (2, 60, 10, 2, 13),
            part="edges",
            construct={"dropout": 0.3},
            training=True,
            inputs=inputs,
            state=state,
            compare="dropout_on_weights",
        ),
    ]


_INVERTED = "True means 'may attend' here; `nn.MultiheadAttention` has it the other way round."

MULTI_HEAD_ATTENTION = Exercise(
    name="MultiHeadAttention",
    points=7,
    minutes=45,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "embed_dim")),),
    probes=_attention_probes,
    oracle=oracle.multi_head_attention,
    builds_on=("masked_softmax", "split_heads", "merge_heads"),
    mistakes=(
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
            "The heads are right, but merged by a reshape without a transpose: the first "
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
            "scale_num_heads",
            but(scale=lambda self, q: self.num_heads**0.5),
            "The scores are divided by the root of the number of heads.",
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
            "empty_row_nan",
            but(normalise=wrong.fill(-torch.inf)),
            "A row in which no key is allowed becomes NaN.",
            "What does `masked_softmax` return for such a row?",
        ),
        Mistake(
            "empty_row_gradient_nan",
            but(normalise=wrong.nan_removed),
            "The outputs are right, but an item without keys turns the gradient of every layer "
            "into NaN.",
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
            but(drop=lambda self, w: torch.dropout(w, self.p, True)),
            "Dropout acts in eval mode too.",
            "What does `nn.Dropout` look at that `F.dropout` must be told?",
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
            "The outputs are right, but `self.attention_weights` does not exist after the call.",
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
    ),
    hints=(
        "Project, split, attend in every head at once, merge, project. The scores have an axis "
        "more than in one head; all the rest you have written before.",
        "After `split_heads` the scores are `q @ k.mT` over sqrt(head_dim), shape "
        "(batch, num_heads, n, m). `masked_softmax` takes lengths and masks; a (batch, n, m) mask "
        "needs an axis for the heads first. Keep the weights detached, drop, average, merge, W_o.",
        "q, k, v = (split_heads(layer(x), self.num_heads) for layer, x in ...)\n"
        "weights = masked_softmax(q @ k.mT / math.sqrt(q.shape[-1]), valid_lens, mask)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.W_o(merge_heads(self.dropout(weights) @ v))",
    ),
)
