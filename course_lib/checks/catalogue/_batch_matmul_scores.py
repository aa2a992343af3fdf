"""Lesson 03: queries times keys, the first product of attention."""

import math

import torch

from course_lib.checks.catalogue import _batch_matmul_mistakes as models
from course_lib.checks.catalogue._batch_matmul_products import in_float32, with_gradients
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import batch_matmul as oracle


def _queries_keys(rng, queries_shape, num_keys, **options):
    keys_shape = (*queries_shape[:-2], num_keys, queries_shape[-1])
    return {
        "queries": tensor(rng.normal(0, 1.3, queries_shape), **options),
        "keys": tensor(rng.normal(0, 1.3, keys_shape), **options),
    }


def _batched_scores_probes(rng):
    return [
        Probe(
            "by_hand",
            "The score of query i and key j is their dot product: row times row.",
            args={
                "queries": tensor([[[1.0, 2.0, 0.0]]]),
                "keys": tensor([[[1.0, 0.0, 5.0], [0.0, 10.0, 5.0]]]),
            },
        ),
        Probe(
            "rectangular",
            "Query i meets key j of the same item: scores (..., num_queries, num_keys).",
            args=_queries_keys(rng, (2, 3, 4), 5),
        ),
        Probe(
            "more_queries_than_keys",
            "More queries than keys must work.",
            args=_queries_keys(rng, (3, 6, 2), 4),
        ),
        Probe(
            "four_axes",
            "With heads, (batch, heads, n, d), each head has scores of its own.",
            args=_queries_keys(rng, (2, 3, 4, 5), 6),
        ),
        Probe(
            "strided",
            "Non-contiguous tensors must work.",
            args=_queries_keys(rng, (2, 5, 3), 4, strided=True),
        ),
        Probe(
            "no_leading_axis",
            "Queries (n, d) and keys (m, d) without a batch must work.",
            part="edges",
            args=_queries_keys(rng, (3, 4), 2),
        ),
        Probe(
            "five_axes",
            "Three leading axes must work.",
            part="edges",
            args=_queries_keys(rng, (2, 1, 3, 2, 4), 5),
        ),
        Probe(
            "as_many_keys_as_features",
            "As many keys as features (m = d) must not hide a missing transpose.",
            part="edges",
            args=_queries_keys(rng, (2, 3, 4), 4),
        ),
        Probe(
            "square",
            "Equal sizes everywhere must not hide which axis is which.",
            part="edges",
            args=_queries_keys(rng, (3, 3, 3), 3),
        ),
        Probe(
            "square_four_axes",
            "Equal sizes must not hide an exchange of heads and keys.",
            part="edges",
            args=_queries_keys(rng, (2, 3, 3, 3), 3),
        ),
        Probe(
            "one_of_each",
            "One query and one key give one score that keeps its axes.",
            part="edges",
            args=_queries_keys(rng, (1, 1, 3), 1),
        ),
        Probe(
            "strided_four_axes",
            "Non-contiguous tensors with heads must work.",
            part="edges",
            args=_queries_keys(rng, (2, 3, 5, 4), 2, strided=True),
        ),
        in_float32(
            "float32",
            "The scores have the dtype of queries and keys.",
            _queries_keys(rng, (2, 3, 4), 5),
        ),
        with_gradients(
            rng,
            "gradients",
            "The scores must be differentiable in queries and keys.",
            _queries_keys(rng, (2, 3, 4), 2, requires_grad=True),
            (2, 3, 2),
        ),
        with_gradients(
            rng,
            "gradients_four_axes",
            "The scores must be differentiable with heads as well.",
            _queries_keys(rng, (2, 1, 2, 3), 3, requires_grad=True),
            (2, 1, 2, 3),
        ),
    ]


_RESHAPED_KEYS = (
    "You turn the keys from (m, d) to (d, m) with a reshape. The shape is right, but a reshape "
    "keeps the order of the numbers and cuts it anew: each column mixes several keys."
)


def _scores(model):
    """A model from `(queries, transposed keys)`."""
    return lambda queries, keys: queries @ model(keys)


BATCHED_SCORES = Exercise(
    name="batched_scores",
    points=3,
    minutes=15,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=_batched_scores_probes,
    oracle=oracle.batched_scores,
    builds_on=("bmm",),
    mistakes=(
        Mistake(
            "reshape_for_transpose",
            _scores(models.reshaped),
            _RESHAPED_KEYS,
            "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, and what "
            "with `.mT`?",
        ),
        Mistake(
            "keys_times_queries",
            lambda queries, keys: keys @ queries.mT,
            "Your rows belong to keys and your columns to queries: this is K Q^T.",
            "Whose rows should the rows of the scores be?",
        ),
        Mistake(
            "not_transposed",
            lambda queries, keys: queries @ keys,
            "You multiply queries and keys as they are, without a transpose; that fits only where "
            "there are as many keys as features.",
            "Which sizes stand side by side in (n, d) times (m, d), and which have to?",
        ),
        Mistake(
            "all_axes_reversed",
            _scores(lambda keys: keys.permute(*reversed(range(keys.dim())))),
            "`.T` reverses all axes, the batch axis included; that is a transpose only for two.",
            "Which attribute swaps the last two axes and leaves the others alone?",
        ),
        Mistake(
            "axes_1_and_2",
            _scores(lambda keys: keys.transpose(1, 2)),
            "`transpose(1, 2)` swaps the last two axes only if there are three: with heads, axes "
            "1 and 2 are heads and keys.",
            "Which numbers do the last two axes have, counted from the end?",
        ),
        Mistake(
            "axes_1_and_2_if_there",
            _scores(lambda keys: keys.mT if keys.dim() == 2 else keys.transpose(1, 2)),
            "`transpose(1, 2)` swaps the last two axes only if there are three: with heads, axes "
            "1 and 2 are heads and keys.",
            "Which numbers do the last two axes have, counted from the end?",
        ),
        Mistake(
            "axes_0_and_1",
            _scores(lambda keys: keys.transpose(0, 1)),
            "`transpose(0, 1)` swaps the last two axes only if there are no others: with a batch, "
            "axis 0 is the batch.",
            "Which numbers do the last two axes have, counted from the end?",
        ),
        Mistake(
            "only_four_axes",
            _scores(lambda keys: keys.transpose(2, 3)),
            "Four axes work, any other number fails: `transpose(2, 3)` counts from the left.",
            "Which numbers do the last two axes have, counted from the end?",
        ),
        Mistake(
            "elementwise",
            lambda queries, keys: queries * keys,
            "`*` multiplies entry by entry, which fits only where the shapes agree by accident.",
            "How many keys does one query meet: one, or all m of them?",
        ),
        Mistake(
            "matching_rows_only",
            lambda queries, keys: (queries * keys).sum(-1),
            "Your code multiplies query i with key i only; each query has to meet every key.",
            "How many scores do 2 queries and 3 keys have?",
        ),
        Mistake(
            "heads_summed",
            models.heads_summed,
            "Each head meets the keys of all heads, added up.",
            "Which letter of your einsum, or which axis, do queries and keys not share?",
        ),
        Mistake(
            "keys_of_item_0",
            lambda queries, keys: queries @ models.first_for_all(keys).mT,
            "All items are compared with the keys of item 0.",
            "Which axis of the keys has been picked from, and should it have stayed?",
        ),
        Mistake(
            "queries_of_item_0",
            lambda queries, keys: models.first_for_all(queries) @ keys.mT,
            "All items are compared by the queries of item 0.",
            "Which axis of the queries has been picked from, and should it have stayed?",
        ),
        Mistake(
            "only_three_axes",
            lambda queries, keys: torch.einsum("bnd,bmd->bnm", queries, keys),
            "Three axes work, any other number fails.",
            "Which step asks for three: letters of an einsum, `torch.bmm`, or axes counted from "
            "the left?",
        ),
        Mistake(
            "axes_counted_from_the_left",
            lambda queries, keys: (queries.unsqueeze(2) * keys.unsqueeze(1)).sum(-1),
            "Three axes work, others fail or mix items: your new axes are counted from the left.",
            "Which numbers do the places before the last two axes have, counted from the end?",
        ),
        Mistake(
            "leading_axes_lost",
            models.leading_axes_lost(lambda queries, keys: queries @ keys.mT),
            "The leading axes come back flattened into one.",
            "Which shape must the result get back, after a reshape to three axes?",
        ),
        Mistake(
            "summed_over_batch",
            lambda queries, keys: models.summed_over_batch(queries, keys.mT),
            "The items are added up: the leading axes are gone from the scores.",
            "Which axes does your sum run over, and which letters stand after `->`?",
        ),
        Mistake(
            "items_crossed",
            lambda queries, keys: torch.tensordot(queries, keys, dims=([-1], [-1])),
            "Every item's queries meet the keys of every item.",
            "Which function keeps the items paired instead of crossing them?",
        ),
        Mistake(
            "neighbour_items",
            lambda queries, keys: queries @ models.rolled(keys).mT,
            "The queries meet the keys of another item.",
            "Which item's keys belong to the queries of item 0?",
        ),
        Mistake(
            "features_summed_apart",
            lambda queries, keys: queries.sum(-1)[..., :, None] * keys.sum(-1)[..., None, :],
            "You add up the features of query and key, each on its own, and multiply the sums.",
            "Which letter of your einsum stands for the axis that both share, in both places?",
        ),
        Mistake(
            "keys_with_keys",
            lambda queries, keys: keys @ keys.mT,
            "You compare the keys with the keys; the queries do not enter.",
            "Whose rows should the rows of the scores be?",
        ),
        Mistake(
            "queries_with_queries",
            lambda queries, keys: queries @ queries.mT,
            "You compare the queries with the queries; the keys do not enter.",
            "Whose columns should the columns of the scores be?",
        ),
        Mistake(
            "not_summed",
            lambda queries, keys: queries[..., :, None, :] * keys[..., None, :, :],
            "The products are all there, (..., n, m, d), but nothing adds them up.",
            "Over which axis does a dot product sum?",
        ),
        Mistake(
            "mean_over_features",
            models.scaled(1),
            "The scores are divided by d: the mean of the products, not their sum.",
            "What does a dot product do with its d products?",
        ),
        Mistake(
            "scaled_already",
            models.scaled(0.5),
            "The scores are divided by sqrt(d). That is lesson 05; here they come as they are.",
            "Which step of your code is not part of a dot product?",
        ),
        Mistake(
            "scaled_by_num_keys",
            models.scaled_by_num_keys,
            "The scores are divided by the square root of the number of keys.",
            "Which step of your code is not part of a dot product?",
        ),
        Mistake(
            "softmaxed_already",
            models.softmaxed,
            "Your rows sum to 1: these are weights. Scores come before the softmax.",
            "Which step of your code is not part of a dot product?",
        ),
        Mistake(
            "lengths_divided_out",
            models.cosine,
            "Your scores lie between -1 and 1: queries and keys were brought to length 1 first.",
            "Which step of your code is not part of a dot product?",
        ),
        Mistake(
            "distances",
            models.negative_distance,
            "These are negative squared distances, as in lesson 01, not dot products.",
            "What do you do with the d pairs of numbers before you add them up?",
        ),
        Mistake(
            "plain_distances",
            models.negative_plain_distance,
            "These are negative distances between queries and keys, not dot products.",
            "What do you do with the d pairs of numbers before you add them up?",
        ),
        Mistake(
            "masked_already",
            lambda queries, keys: (queries @ keys.mT).tril(),
            "Scores above the diagonal are 0 in your result: no mask is asked for here, and 0 "
            "would not be one.",
            "Which step of your code is not part of a dot product?",
        ),
        Mistake(
            "causal_already",
            lambda queries, keys: torch.where(
                torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool).tril(),
                queries @ keys.mT,
                -math.inf,
            ),
            "Scores above the diagonal are -inf in your result: no mask is asked for here.",
            "Which step of your code is not part of a dot product?",
        ),
        Mistake(
            "keys_transposed_in_place",
            models.in_place_transpose,
            "The scores are right, but the caller's keys come back transposed: a name ending in "
            "`_` changes the tensor itself.",
            "What is the difference between `transpose_` and `transpose`?",
        ),
        Mistake(
            "squeezed",
            lambda queries, keys: (queries @ keys.mT).squeeze(),
            "A bare `squeeze()` drops every axis of size 1, also those you need.",
            "Which axes may have size 1 in a small batch?",
        ),
        Mistake(
            "gradient_cut",
            lambda queries, keys: (queries @ keys.mT).detach(),
            "The numbers are right, but no gradient reaches queries and keys.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
        Mistake(
            "gradient_of_keys_cut",
            lambda queries, keys: queries @ keys.detach().mT,
            "The numbers are right, but no gradient reaches the keys.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
    ),
    hints=(
        "One query and one key give one number, the sum of the products of their d entries. A "
        "matrix product multiplies rows with columns; here both are rows.",
        "Swap the last two axes of the keys, (..., m, d) to (..., d, m), so that a matrix product "
        "sums over d. Count axes from the end, and do not reshape.",
        "return queries @ keys.transpose(..., ...)\n"
        "# or: torch.einsum('...nd,...md->...', queries, keys)",
    ),
)
