"""Lesson 03: products for a whole batch, and what they cost."""

import numpy as np
import torch

from course_lib.checks.catalogue import _batch_matmul_mistakes as models
from course_lib.checks.compare import Problem
from course_lib.checks.exercise import (
    Exercise,
    Integration,
    Lesson,
    Mistake,
    Property,
    Returned,
    Written,
)
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import batch_matmul as oracle


def _pair(rng, a_shape, b_shape, **options):
    return {
        "a": tensor(rng.normal(0, 1.3, a_shape), **options),
        "b": tensor(rng.normal(0, 1.3, b_shape), **options),
    }


def _with_gradients(rng, name, says, args, output_shape):
    return Probe(
        name, says, part="gradients", args=args, grad_outputs=rng.normal(size=output_shape)
    )


# ---------------------------------------------------------------- bmm_loops
_BY_HAND = {
    "a": tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
    "b": tensor([[[10.0], [1.0]], [[1.0], [10.0]]]),
}


def _bmm_loops_probes(rng):
    return [
        Probe(
            "by_hand",
            "Each item's matrices must be multiplied with each other: row times column.",
            args=_BY_HAND,
        ),
        Probe(
            "rectangular",
            "Entry (i, j) of an item is the sum over t of a[item, i, t] * b[item, t, j].",
            args=_pair(rng, (2, 3, 4), (2, 4, 5)),
        ),
        Probe(
            "more_rows_than_terms",
            "Three different sizes n, k and m must work, in any order.",
            args=_pair(rng, (3, 5, 2), (3, 2, 4)),
        ),
        Probe(
            "strided",
            "Non-contiguous tensors must work.",
            args=_pair(rng, (2, 4, 5), (2, 5, 3), strided=True),
        ),
        Probe(
            "loops_small",
            "Two items of a few rows must work.",
            args=_pair(rng, (2, 1, 3), (2, 3, 2)),
        ),
        Probe(
            "loops_large",
            "More items, rows and columns must work.",
            args=_pair(rng, (4, 3, 5), (4, 5, 6)),
        ),
        Probe(
            "one_item",
            "A batch of one item must keep its batch axis.",
            part="edges",
            args=_pair(rng, (1, 2, 3), (1, 3, 4)),
        ),
        Probe(
            "square",
            "Square matrices must not hide which index runs over rows and which over columns.",
            part="edges",
            args=_pair(rng, (2, 3, 3), (2, 3, 3)),
        ),
        Probe(
            "one_term",
            "With k = 1 each entry is a single product.",
            part="edges",
            args=_pair(rng, (2, 3, 1), (2, 1, 4)),
        ),
        Probe(
            "small_numbers",
            "Numbers below 1 must not be rounded on the way.",
            part="edges",
            args={
                "a": tensor(rng.uniform(0.1, 0.4, (2, 3, 2))),
                "b": tensor(rng.uniform(0.1, 0.4, (2, 2, 4))),
            },
        ),
        _with_gradients(
            rng,
            "gradients",
            "The result must be as differentiable as the formula.",
            _pair(rng, (2, 3, 4), (2, 4, 1), requires_grad=True),
            (2, 3, 1),
        ),
    ]


def _one_matrix(name, which, model):
    return Mistake(
        name,
        model,
        f"Every item is multiplied with one and the same matrix of `{which}`.",
        f"Which index of `{which}` should move along with the loop over items?",
    )


_NOT_RESET = "The sum is not started anew for each entry, so an entry also holds earlier ones."

BMM_LOOPS = Exercise(
    name="bmm_loops",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("product", "tensor", "float", ("batch", "n", "m")),),
    probes=_bmm_loops_probes,
    oracle=oracle.bmm_loops,
    needs_loops=True,
    mistakes=(
        _one_matrix("b0_for_all", "b", lambda a, b: models.product(a, models.first_for_all(b))),
        _one_matrix("a0_for_all", "a", lambda a, b: models.product(models.first_for_all(a), b)),
        _one_matrix("last_b_for_all", "b", lambda a, b: models.product(a, models.last_for_all(b))),
        _one_matrix("last_a_for_all", "a", lambda a, b: models.product(models.last_for_all(a), b)),
        Mistake(
            "only_first_item",
            models.only_first_item,
            "Item 0 is right, the other items are still 0.",
            "How far does the outermost loop get: does a `return` or a `break` stop it?",
        ),
        Mistake(
            "sum_not_reset_in_row",
            lambda a, b: models.running_total(a, b, 1),
            _NOT_RESET + " It starts once per row.",
            "Inside which of the loops must `total = 0` stand?",
        ),
        Mistake(
            "sum_not_reset_in_item",
            lambda a, b: models.running_total(a, b, 2),
            _NOT_RESET + " It starts once per item.",
            "Inside which of the loops must `total = 0` stand?",
        ),
        Mistake(
            "sum_never_reset",
            lambda a, b: models.running_total(a, b, 3),
            _NOT_RESET + " It starts only once.",
            "Inside which of the loops must `total = 0` stand?",
        ),
        Mistake(
            "items_accumulated",
            models.accumulated_over_items,
            "Each item's result also holds those of the items before it.",
            "Where is the matrix made that an item's products are added to?",
        ),
        Mistake(
            "same_matrix_for_all_items",
            models.same_buffer_for_all,
            "All items show the same matrix, the sum over the batch.",
            "Where is the matrix made that an item's products are added to?",
        ),
        Mistake(
            "integer_result",
            lambda a, b: models.product(a, b).long(),
            "Your result holds whole numbers: everything after the decimal point is lost.",
            "Which dtype has the tensor that you write into, and which dtype has `a`?",
        ),
        Mistake(
            "rounded_entries",
            lambda a, b: models.product(a, b).trunc(),
            "Each entry has lost what stands after its decimal point.",
            "Which line turns the sum into an integer?",
        ),
        Mistake(
            "rounded_terms",
            models.truncated_terms,
            "Each product is cut to a whole number before it is added.",
            "Which line turns a product into an integer?",
        ),
        Mistake(
            "only_last_term",
            lambda a, b: a[..., -1:] * b[..., -1:, :],
            "Each entry holds only the last of its k products.",
            "Does the innermost loop add to the entry (`+=`) or overwrite it (`=`)?",
        ),
        Mistake(
            "last_term_missing",
            lambda a, b: models.product(a[..., :-1], b[..., :-1, :]),
            "The last of the k products is missing in every entry.",
            "Which numbers does `range(k - 1)` go through?",
        ),
        Mistake(
            "first_term_missing",
            lambda a, b: models.product(a[..., 1:], b[..., 1:, :]),
            "The first of the k products is missing in every entry.",
            "Which numbers does `range(1, k)` go through?",
        ),
        Mistake(
            "indices_of_b_swapped",
            models.swapped_indices_of_b,
            "The two indices of `b` are swapped, which is the product with b transposed.",
            "Which index of `b` counts its rows: the one you sum over, or the column's?",
        ),
        Mistake(
            "columns_counted_like_rows",
            models.columns_counted_like_rows,
            "The loop over columns has as many steps as there are rows.",
            "Which tensor's size tells the number of columns, and which axis of it?",
        ),
        Mistake(
            "terms_counted_like_rows",
            models.terms_counted_like_rows,
            "The sum has as many terms as there are rows.",
            "Over which size do the columns of `a` and the rows of `b` agree?",
        ),
        Mistake(
            "transposed_result",
            lambda a, b: models.product(a, b).mT.contiguous(),
            "The entries are right, but rows and columns of the result have changed places.",
            "Which index comes first in the result: the row of `a` or the column of `b`?",
        ),
        Mistake(
            "mean_instead_of_sum",
            lambda a, b: models.product(a, b) / a.shape[-1],
            "Each entry is the mean of its k products, not their sum.",
            "What does a matrix product do with the k products of an entry?",
        ),
        Mistake(
            "a_list_of_lists",
            lambda a, b: models.product(a, b).tolist(),
            "The numbers are right, but they come as Python lists instead of a tensor.",
            "Which function makes one tensor of many?",
        ),
        Mistake(
            "gradient_cut",
            lambda a, b: models.product(a, b).detach(),
            "The numbers are right, but no gradient reaches `a` and `b`.",
            "Which step turns tensors into plain numbers (`.item()`, `float`, `.tolist()`)?",
        ),
    ),
    hints=(
        "Forget the batch first: how do you get the one number in row i and column j of a matrix "
        "product? Then do this for each column, each row, each item.",
        "Make a tensor of zeros (batch, n, m) with the dtype and device of `a`, then four loops: "
        "items, rows, columns, and the k products that are added up. `m` is the last size of `b`.",
        "product = a.new_zeros(batch, n, m)\n"
        "for item in ...:\n    for i in ...:\n        for j in ...:\n            for t in ...:\n"
        "                product[item, i, j] += ...",
    ),
)


# ---------------------------------------------------------------- bmm
def _bmm_probes(rng):
    return [
        Probe(
            "by_hand",
            "Each item's matrices must be multiplied with each other: row times column.",
            args=_BY_HAND,
        ),
        Probe(
            "rectangular",
            "Entry (i, j) of an item is row i of `a` times column j of `b`, of the same item.",
            args=_pair(rng, (2, 3, 4), (2, 4, 5)),
        ),
        Probe(
            "four_axes",
            "Two leading axes must work: the product belongs to the last two axes.",
            args=_pair(rng, (2, 3, 4, 5), (2, 3, 5, 6)),
        ),
        Probe(
            "strided",
            "Non-contiguous tensors must work.",
            args=_pair(rng, (3, 5, 2), (3, 2, 4), strided=True),
        ),
        Probe(
            "loops_three_small",
            "Two items of a few rows must work.",
            args=_pair(rng, (2, 1, 3), (2, 3, 2)),
        ),
        Probe(
            "loops_three_large",
            "More items, rows and columns must work.",
            args=_pair(rng, (4, 3, 5), (4, 5, 6)),
        ),
        Probe(
            "loops_four_small",
            "Two leading axes of a few items must work.",
            args=_pair(rng, (2, 1, 2, 3), (2, 1, 3, 2)),
        ),
        Probe(
            "loops_four_large",
            "Two leading axes of more items must work.",
            args=_pair(rng, (3, 4, 5, 2), (3, 4, 2, 6)),
        ),
        Probe(
            "no_leading_axis",
            "Two plain matrices, without any leading axis, must work.",
            part="edges",
            args=_pair(rng, (3, 4), (4, 2)),
        ),
        Probe(
            "five_axes",
            "Three leading axes must work.",
            part="edges",
            args=_pair(rng, (2, 1, 3, 2, 4), (2, 1, 3, 4, 5)),
        ),
        Probe(
            "one_item",
            "Leading axes of size 1 must stay.",
            part="edges",
            args=_pair(rng, (1, 2, 3), (1, 3, 4)),
        ),
        Probe(
            "square",
            "Equal sizes everywhere must not hide which axis is which.",
            part="edges",
            args=_pair(rng, (3, 3, 3), (3, 3, 3)),
        ),
        Probe(
            "square_four_axes",
            "Equal sizes must not hide an exchange of leading axes with the last two.",
            part="edges",
            args=_pair(rng, (2, 3, 3, 3), (2, 3, 3, 3)),
        ),
        _with_gradients(
            rng,
            "gradients",
            "The result must be differentiable in both arguments.",
            _pair(rng, (2, 3, 4), (2, 4, 1), requires_grad=True),
            (2, 3, 1),
        ),
        _with_gradients(
            rng,
            "gradients_four_axes",
            "The result must be differentiable with two leading axes as well.",
            _pair(rng, (2, 1, 2, 3), (2, 1, 3, 2), requires_grad=True),
            (2, 1, 2, 2),
        ),
    ]


_READY_MADE = (
    *("bmm", "matmul", "__rmatmul__", "__matmul__", "linalg_matmul", "mm", "baddbmm", "addbmm"),
    *("addmm", "linalg_multi_dot", "chain_matmul", "linear", "scaled_dot_product_attention"),
    *("bmm.default", "matmul.default", "mm.default", "baddbmm.default"),
)
_WHY_NOT = "Build the product from smaller steps, or write it as one `torch.einsum`."

BMM = Exercise(
    name="bmm",
    points=3,
    minutes=15,
    difficulty=2,
    returns=(Returned("product", "tensor", "float", ("...", "n", "m")),),
    probes=_bmm_probes,
    oracle=oracle.bmm,
    no_loops=True,
    forbidden={
        **dict.fromkeys(_READY_MADE, _WHY_NOT),
        "tolist": "Loops over plain numbers are loops too, and no gradient comes back from them.",
    },
    mistakes=(
        _one_matrix("b0_for_all", "b", lambda a, b: models.product(a, models.first_for_all(b))),
        _one_matrix("a0_for_all", "a", lambda a, b: models.product(models.first_for_all(a), b)),
        Mistake(
            "summed_over_batch",
            models.summed_over_batch,
            "The items are added up: the leading axes are gone from the result.",
            "Which axes does your sum run over, and which letters stand after `->`?",
        ),
        Mistake(
            "batch_summed_and_repeated",
            lambda a, b: models.summed_over_batch(a, b).expand(*a.shape[:-1], b.shape[-1]),
            "Every item shows the same matrix, the sum over the batch.",
            "Which axes does your sum run over?",
        ),
        Mistake(
            "reshape_for_transpose",
            lambda a, b: (a[..., :, None, :] * models.reshaped(b)[..., None, :, :]).sum(dim=-1),
            "You change the shape of `b` from (k, m) to (m, k) with a reshape. A reshape keeps "
            "the order of the numbers and cuts it anew, so its rows are not the columns of `b`.",
            "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, and what "
            "with `.mT`?",
        ),
        Mistake(
            "reshape_of_a",
            lambda a, b: models.cube(models.reshaped(a).mT, b).sum(dim=-2),
            "The numbers of `a` are in the wrong rows: a reshape stands where a transpose is "
            "meant.",
            "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, and what "
            "with `.mT`?",
        ),
        Mistake(
            "only_three_axes",
            lambda a, b: torch.einsum("bnk,bkm->bnm", a, b),
            "Three axes work, any other number fails.",
            "Which step asks for three: letters of an einsum, `torch.bmm`, or axes counted from "
            "the left?",
        ),
        Mistake(
            "axes_counted_from_the_left",
            models.three_axes_by_position,
            "Three axes work, any other number fails: your axes are counted from the left.",
            "Which number has the last axis, whatever their number? And the last but one?",
        ),
        Mistake(
            "leading_axes_lost",
            models.leading_axes_lost(models.product),
            "The leading axes come back flattened into one.",
            "Which shape must the result get back, after a reshape to three axes?",
        ),
        Mistake(
            "transposed_result",
            lambda a, b: models.product(a, b).mT,
            "The entries are right, but rows and columns of the result have changed places.",
            "Which index comes first in the result: the row of `a` or the column of `b`?",
        ),
        Mistake(
            "summed_over_columns",
            lambda a, b: models.cube(a, b).sum(dim=-1),
            "You sum over the columns m, and the axis k stays in the result.",
            "Which letter do `a` (n, k) and `b` (k, m) have in common?",
        ),
        Mistake(
            "summed_over_rows",
            lambda a, b: models.cube(a, b).sum(dim=-3),
            "You sum over the rows n, and the axis k stays in the result.",
            "Which letter do `a` (n, k) and `b` (k, m) have in common?",
        ),
        Mistake(
            "not_summed",
            models.cube,
            "The products are all there, (..., n, k, m), but nothing adds them up.",
            "Over which axis does an entry of the product sum?",
        ),
        Mistake(
            "mean_instead_of_sum",
            lambda a, b: models.cube(a, b).mean(dim=-2),
            "Each entry is the mean of its k products, not their sum.",
            "What does a matrix product do with the k products of an entry?",
        ),
        Mistake(
            "items_crossed",
            lambda a, b: torch.tensordot(a, b, dims=([-1], [-2])),
            "Every item of `a` is multiplied with every item of `b`.",
            "Which function keeps the items paired instead of crossing them?",
        ),
        Mistake(
            "neighbour_items",
            lambda a, b: models.product(a, models.rolled(b)),
            "The items of `a` meet other items of `b` than their own.",
            "Which item of `b` belongs to item 0 of `a`?",
        ),
        Mistake(
            "b_transposed_where_square",
            lambda a, b: models.product(a, b.mT if b.shape[-1] == b.shape[-2] else b),
            "Square matrices come out as the product with `b` transposed.",
            "Is there a line that tells axes apart by their size?",
        ),
        Mistake(
            "gradient_cut",
            lambda a, b: models.product(a, b).detach(),
            "The numbers are right, but no gradient reaches `a` and `b`.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
        Mistake(
            "gradient_of_one_only",
            lambda a, b: models.product(a, b.detach()),
            "The numbers are right, but no gradient reaches `b`.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
    ),
    hints=(
        "First make all products a[..., i, t] * b[..., t, j] at once: which shape do they have "
        "together? Then one axis has to go.",
        "Give `a` a new last axis and `b` a new axis before its last two: (..., n, k, 1) and "
        "(..., 1, k, m) broadcast to (..., n, k, m). Sum over k. `torch.einsum` does both in one "
        "line and does not keep the products.",
        "products = a[..., :, :, None] * b[..., None, :, :]\nreturn products.sum(dim=...)\n"
        "# or: return torch.einsum('...nk,...km->...', a, b)",
    ),
)


# ---------------------------------------------------------------- batched_scores
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
        _with_gradients(
            rng,
            "gradients",
            "The scores must be differentiable in queries and keys.",
            _queries_keys(rng, (2, 3, 4), 2, requires_grad=True),
            (2, 3, 2),
        ),
        _with_gradients(
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


# ---------------------------------------------------------------- weighted_sum
def _weights_values(rng, weights_shape, d_v, *, normalised=True, **options):
    weights = rng.normal(0, 1.3, weights_shape)
    if normalised:
        weights = np.exp(weights)
        weights /= weights.sum(axis=-1, keepdims=True)
    values = rng.normal(0, 1.3, (*weights_shape[:-2], weights_shape[-1], d_v))
    return {"weights": tensor(weights, **options), "values": tensor(values, **options)}


def _weighted_sum_probes(rng):
    one_hot = np.eye(4)[rng.permutation(4)[:3]][None]
    return [
        Probe(
            "by_hand",
            "The output of a query is the sum of all values, each times its weight.",
            args={
                "weights": tensor([[[0.25, 0.75]]]),
                "values": tensor([[[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]]]),
            },
        ),
        Probe(
            "rectangular",
            "Row i of the outputs is the sum over j of weights[i, j] * values[j].",
            args=_weights_values(rng, (2, 3, 5), 6),
        ),
        Probe(
            "four_axes",
            "With heads, (batch, heads, n, m), each head has outputs of its own.",
            args=_weights_values(rng, (2, 3, 4, 5), 6),
        ),
        Probe(
            "strided",
            "Non-contiguous tensors must work.",
            args=_weights_values(rng, (3, 4, 2), 5, strided=True),
        ),
        Probe(
            "any_weights",
            "The weights are taken as they are, also negative ones and rows that do not sum to 1.",
            args=_weights_values(rng, (2, 4, 3), 5, normalised=False),
        ),
        Probe(
            "one_hot",
            "A weight of 1 on one key must return exactly that key's value.",
            part="edges",
            args={"weights": tensor(one_hot), "values": tensor(rng.normal(0, 1.3, (1, 4, 2)))},
        ),
        Probe(
            "no_weight_at_all",
            "A row of zeros, as in an empty row of lesson 02, gives an output of zeros.",
            part="edges",
            args={
                "weights": tensor([[[0.0, 0.0, 0.0], [0.5, 0.0, 0.5]]]),
                "values": tensor(rng.normal(0, 1.3, (1, 3, 4))),
            },
        ),
        Probe(
            "identity_values",
            "Values that form an identity matrix must return the weights themselves.",
            part="edges",
            args={
                "weights": _weights_values(rng, (1, 2, 4), 4)["weights"],
                "values": tensor(np.eye(4)[None]),
            },
        ),
        Probe(
            "no_leading_axis",
            "Weights (n, m) and values (m, d_v) without a batch must work.",
            part="edges",
            args=_weights_values(rng, (3, 4), 2),
        ),
        Probe(
            "five_axes",
            "Three leading axes must work.",
            part="edges",
            args=_weights_values(rng, (2, 1, 3, 2, 4), 5),
        ),
        Probe(
            "as_many_queries_as_keys",
            "Square weights (self-attention) must not hide a transposed matrix.",
            part="edges",
            args=_weights_values(rng, (2, 4, 4), 3),
        ),
        Probe(
            "square",
            "Equal sizes everywhere must not hide which axis is which.",
            part="edges",
            args=_weights_values(rng, (3, 3, 3), 3),
        ),
        Probe(
            "square_four_axes",
            "Equal sizes must not hide an exchange of leading axes with the last two.",
            part="edges",
            args=_weights_values(rng, (2, 3, 3, 3), 3),
        ),
        Probe(
            "one_of_each",
            "One query, one key and one feature must keep their axes.",
            part="edges",
            args=_weights_values(rng, (1, 1, 1), 1),
        ),
        _with_gradients(
            rng,
            "gradients",
            "The outputs must be differentiable in weights and values.",
            _weights_values(rng, (2, 3, 4), 2, normalised=False, requires_grad=True),
            (2, 3, 2),
        ),
    ]


def _outside_the_values(probe, outputs):
    """Averages with weights that sum to 1 cannot leave the range of what they average."""
    weights, values = probe.args["weights"].data, probe.args["values"].data
    data = outputs.data
    if not np.allclose(weights.sum(axis=-1), 1.0) or (weights < 0).any():
        return None
    if data is None or data.shape != (*weights.shape[:-1], values.shape[-1]):
        return None
    low, high = values.min(axis=-2, keepdims=True), values.max(axis=-2, keepdims=True)
    outside = (data < low - 1e-4) | (data > high + 1e-4)
    if not outside.any():
        return None
    index = tuple(int(i) for i in np.argwhere(outside)[0])
    return (
        f"Your output {list(index)} is {data[index]:.3f}, outside the range of the values that it "
        "is an average of: positive weights that sum to 1 cannot do that."
    )


WEIGHTED_SUM = Exercise(
    name="weighted_sum",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),),
    probes=_weighted_sum_probes,
    oracle=oracle.weighted_sum,
    builds_on=("bmm", "batched_scores"),
    mistakes=(
        Mistake(
            "weights_transposed",
            lambda weights, values: weights.mT @ values,
            "You multiply with the transposed weights: each key collects values from the queries.",
            "Which axis of the weights must meet the axis of keys of the values?",
        ),
        Mistake(
            "values_transposed",
            lambda weights, values: weights @ values.mT,
            "You multiply with the transposed values, as if they were keys.",
            "Which sizes stand side by side in (n, m) times (m, d_v)?",
        ),
        Mistake(
            "values_reshaped_back",
            lambda weights, values: weights @ models.reshaped(values.mT),
            "The values' numbers are in the wrong rows: a reshape stands where a transpose is "
            "meant, or none is needed at all.",
            "What has to be done to values (m, d_v) before weights (n, m) can meet them?",
        ),
        Mistake(
            "summed_over_queries",
            lambda weights, values: models.cube(weights, values).sum(dim=-3),
            "You sum over the queries, and the axis of the keys stays in the result.",
            "Over which axis does a query add up: which one do weights and values share?",
        ),
        Mistake(
            "summed_over_features",
            lambda weights, values: models.cube(weights, values).sum(dim=-1),
            "You sum over the features of the values, and the axis of the keys stays.",
            "Over which axis does a query add up: which one do weights and values share?",
        ),
        Mistake(
            "elementwise",
            lambda weights, values: weights * values,
            "`*` multiplies entry by entry, which fits only where the shapes agree by accident.",
            "How many values enter one output: one, or all m of them?",
        ),
        Mistake(
            "not_summed",
            models.cube,
            "The weighted values are all there, (..., n, m, d_v), but nothing adds them up.",
            "Over which axis does a query add up?",
        ),
        Mistake(
            "mean_over_keys",
            lambda weights, values: models.cube(weights, values).mean(dim=-2),
            "The outputs are divided by the number of keys; the weights have done that already.",
            "What do the weights of a row sum to, before and after your division?",
        ),
        Mistake(
            "renormalised",
            models.renormalised,
            "You divide by the sum of each row; the weights are to be taken as they are.",
            "What becomes of a row of zeros?",
        ),
        Mistake(
            "softmaxed_again",
            models.softmaxed_again,
            "You take a softmax of the weights, which have been through one already.",
            "What is the softmax of the row (1, 0, 0)?",
        ),
        Mistake(
            "weights_ignored",
            lambda weights, values: (
                values.mean(dim=-2, keepdim=True).expand(*weights.shape[:-1], -1).clone()
            ),
            "Every query gets the plain mean of the values: the weights change nothing.",
            "Where does your code use `weights`?",
        ),
        Mistake(
            "only_the_largest",
            models.hardest,
            "Each query gets only the value with its largest weight.",
            "What do the other keys contribute?",
        ),
        Mistake(
            "values_of_item_0",
            lambda weights, values: weights @ models.first_for_all(values),
            "All items average the values of item 0.",
            "Which axis of the values has been picked from, and should it have stayed?",
        ),
        Mistake(
            "weights_of_item_0",
            lambda weights, values: models.first_for_all(weights) @ values,
            "All items use the weights of item 0.",
            "Which axis of the weights has been picked from, and should it have stayed?",
        ),
        Mistake(
            "neighbour_items",
            lambda weights, values: weights @ models.rolled(values),
            "The weights meet the values of another item.",
            "Which item's values belong to the weights of item 0?",
        ),
        Mistake(
            "only_three_axes",
            lambda weights, values: torch.einsum("bnm,bmv->bnv", weights, values),
            "Three axes work, any other number fails.",
            "Which step asks for three: letters of an einsum, `torch.bmm`, or axes counted from "
            "the left?",
        ),
        Mistake(
            "axes_counted_from_the_left",
            models.three_axes_by_position,
            "Three axes work, any other number fails: your axes are counted from the left.",
            "Which numbers do the last axes have, counted from the end?",
        ),
        Mistake(
            "leading_axes_lost",
            models.leading_axes_lost(torch.matmul),
            "The leading axes come back flattened into one.",
            "Which shape must the result get back, after a reshape to three axes?",
        ),
        Mistake(
            "summed_over_batch",
            models.summed_over_batch,
            "The items are added up: the leading axes are gone from the outputs.",
            "Which axes does your sum run over, and which letters stand after `->`?",
        ),
        Mistake(
            "items_crossed",
            lambda weights, values: torch.tensordot(weights, values, dims=([-1], [-2])),
            "Every item's weights meet the values of every item.",
            "Which function keeps the items paired instead of crossing them?",
        ),
        Mistake(
            "transposed_result",
            lambda weights, values: (weights @ values).mT,
            "The entries are right, but the outputs have features in rows and queries in columns.",
            "Whose rows should the rows of the outputs be?",
        ),
        Mistake(
            "squeezed",
            models.weights_squeezed,
            "A bare `squeeze()` drops every axis of size 1, also those you need.",
            "Which axes may have size 1 in a small batch?",
        ),
        Mistake(
            "gradient_of_weights_cut",
            lambda weights, values: weights.detach() @ values,
            "The numbers are right, but no gradient reaches the weights, so nothing before them "
            "can learn.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
        Mistake(
            "gradient_of_values_cut",
            lambda weights, values: weights @ values.detach(),
            "The numbers are right, but no gradient reaches the values.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
        Mistake(
            "gradient_cut",
            lambda weights, values: (weights @ values).detach(),
            "The numbers are right, but no gradient reaches weights and values.",
            "Which step leaves the graph (`.detach()`, `.data`, NumPy, `torch.no_grad`)?",
        ),
    ),
    properties=(
        Property(
            "outside_the_values",
            _outside_the_values,
            "Does each output use each weight of its row once, with the value of that key?",
        ),
    ),
    hints=(
        "Take one query: it has m weights, and there are m values. Multiply each value with its "
        "weight and add up the m rows.",
        "This is a matrix product: (n, m) times (m, d_v) sums over the keys. No transpose, no "
        "softmax, no division is left to do.",
        "return torch.einsum('...nm,...mv->...', weights, values)\n# or one matrix product",
    ),
)


# ---------------------------------------------------------------- attention_cost
def _distinct(rng, low, high, count):
    return [int(n) for n in rng.permutation(np.arange(low, high))[:count]]


_SIZES = ("batch", "num_queries", "num_keys", "d", "d_v")


def _attention_cost_probes(rng):
    def sizes(low, high):
        return dict(zip(_SIZES, _distinct(rng, low, high, 5), strict=True))

    return [
        Probe(
            "by_hand",
            "1 item, 2 queries, 3 keys, d = 4 and d_v = 5: each product has n m d (or n m d_v) "
            "multiply-adds.",
            args=dict(zip(_SIZES, (1, 2, 3, 4, 5), strict=True)),
            compare="counts",
        ),
        Probe(
            "different_sizes",
            "Both products count, a multiply-add as 2, and each size enters where it belongs.",
            args=sizes(2, 20),
            compare="counts",
        ),
        Probe(
            "by_name",
            "The sizes must be accepted by name.",
            kwargs=sizes(21, 60),
            compare="counts",
        ),
        Probe(
            "half_precision",
            "`bytes_per_element` must change the memory and nothing else.",
            args=sizes(3, 30),
            kwargs={"bytes_per_element": 2},
            compare="counts",
        ),
        Probe(
            "double_precision",
            "`bytes_per_element` must be used as given.",
            args={**sizes(3, 30), "bytes_per_element": 8},
            compare="counts",
        ),
        Probe(
            "no_queries",
            "Without queries there is nothing to do and nothing to store.",
            part="edges",
            args=dict(zip(_SIZES, (3, 0, 7, 5, 4), strict=True)),
            compare="counts",
        ),
        Probe(
            "very_long",
            "Long sequences must be counted exactly, to the last operation.",
            part="edges",
            args=dict(zip(_SIZES, (2, 100_003, 50_021, 128, 64), strict=True)),
            compare="counts",
        ),
        Probe(
            "whole_numbers",
            "Counts are whole numbers: both must be int.",
            part="edges",
            args=sizes(2, 9),
            compare="whole_counts",
        ),
    ]


def _counts(probe, expected, recorded):
    """Both counts to the last unit; says which of the two is wrong."""
    wrong = [key for key, value in expected.items() if not _is_count(recorded.items[key], value)]
    if not wrong:
        return None
    right = [key for key in expected if key not in wrong]
    start = f"`{right[0]}` is right, `{wrong[0]}` is not. " if right else ""
    return Problem("wrong_values", start + probe.says)


def _is_count(recorded, value):
    return recorded.data.size == 1 and float(recorded.data.reshape(())) == float(value)


def _whole_counts(probe, expected, recorded):
    kinds = {key: recorded.items[key].kind for key in expected}
    if all(kind == "int" for kind in kinds.values()):
        return _counts(probe, expected, recorded)
    key = next(key for key, kind in kinds.items() if kind != "int")
    return Problem(
        "not_whole",
        f"`{key}` must be an int; yours is a {recorded.items[key].type_name}.",
        "Does `/` stand somewhere, or a float among the factors?",
    )


def _cost_mistake(name, message, hint, flops=models.right_flops, size=models.right_size):
    return Mistake(name, models.cost(flops, size), message, hint)


def _two_mistakes(probe, outputs):
    """What is known of each count on its own, where no single mistake explains both."""
    given = {name: int(value) for name, value in probe.inputs().items()}
    expected = oracle.attention_cost(**given)
    said = []
    for key, right in expected.items():
        got = outputs.items.get(key)
        if got is None or got.data is None or got.data.size != 1 or _is_count(got, right):
            continue
        for mistake in ATTENTION_COST.mistakes:
            wrong = mistake.model(**given)[key]
            if wrong != right and _is_count(got, wrong):
                said.append(f"`{key}`: {mistake.message}")
                break
    return " ".join(said) if len(said) == 2 else None


ATTENTION_COST = Exercise(
    name="attention_cost",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("cost", "dict"),),
    probes=_attention_cost_probes,
    oracle=oracle.attention_cost,
    comparisons={"counts": _counts, "whole_counts": _whole_counts},
    mistakes=(
        _cost_mistake(
            "factor_2_missing",
            "You count multiply-adds; one of them is 2 operations, so all is half of what it "
            "should be.",
            "How many operations does `total += x * y` do?",
            flops=lambda B, n, m, d, v, e: B * n * m * (d + v),
        ),
        _cost_mistake(
            "queries_used_twice",
            "The number of queries stands where the number of keys should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * n * (d + v),
            size=lambda B, n, m, d, v, e: B * n * n * e,
        ),
        _cost_mistake(
            "queries_used_twice_in_flops",
            "In the operations, the number of queries stands where the number of keys should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * n * (d + v),
        ),
        _cost_mistake(
            "queries_used_twice_in_bytes",
            "In the memory, the number of queries stands where the number of keys should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            size=lambda B, n, m, d, v, e: B * n * n * e,
        ),
        _cost_mistake(
            "queries_twice_in_second_product",
            "The second product is counted with n outputs of n values; each output takes m.",
            "Over how many values does one output sum?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d + 2 * B * n * n * v,
        ),
        _cost_mistake(
            "keys_used_twice",
            "The number of keys stands where the number of queries should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            flops=lambda B, n, m, d, v, e: 2 * B * m * m * (d + v),
            size=lambda B, n, m, d, v, e: B * m * m * e,
        ),
        _cost_mistake(
            "elements_for_bytes",
            "You count the scores; the question is how many bytes they take.",
            "How many bytes does one element take?",
            size=lambda B, n, m, d, v, e: B * n * m,
        ),
        _cost_mistake(
            "always_4_bytes",
            "Every element counts 4 bytes, whatever `bytes_per_element` says.",
            "Where does your code use `bytes_per_element`?",
            size=lambda B, n, m, d, v, e: B * n * m * 4,
        ),
        _cost_mistake(
            "bits_for_bytes",
            "You count bits: eight times the bytes.",
            "What is `bytes_per_element` measured in?",
            size=lambda B, n, m, d, v, e: 8 * B * n * m * e,
        ),
        _cost_mistake(
            "bytes_in_flops",
            "The operations depend on `bytes_per_element`; a multiplication is one operation in "
            "every dtype.",
            "Which of the two answers should know about bytes?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * (d + v) * e,
        ),
        _cost_mistake(
            "second_product_missing",
            "Only Q K^T is counted; the product of weights and values is missing.",
            "Which product comes after the softmax, and how long are its sums?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d,
        ),
        _cost_mistake(
            "first_product_missing",
            "Only the product of weights and values is counted; Q K^T is missing.",
            "Which product comes before the softmax, and how long are its sums?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * v,
        ),
        _cost_mistake(
            "d_used_twice",
            "Values are counted as if they had the size of the keys.",
            "Which size has a value: where does `d_v` enter?",
            flops=lambda B, n, m, d, v, e: 4 * B * n * m * d,
        ),
        _cost_mistake(
            "sizes_multiplied",
            "d and d_v are multiplied; the two products are done one after the other, so their "
            "costs add up.",
            "What does the second product cost if d is doubled?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d * v,
        ),
        _cost_mistake(
            "products_multiplied",
            "The costs of the two products are multiplied; one comes after the other.",
            "If the first takes 2 seconds and the second 3, how long do both take?",
            flops=lambda B, n, m, d, v, e: (2 * B * n * m * d) * (2 * B * n * m * v),
        ),
        _cost_mistake(
            "batch_forgotten",
            "The cost is that of a single item.",
            "What happens to both numbers if the batch is twice as large?",
            flops=lambda B, n, m, d, v, e: 2 * n * m * (d + v),
            size=lambda B, n, m, d, v, e: n * m * e,
        ),
        _cost_mistake(
            "batch_forgotten_in_flops",
            "The operations are those of a single item.",
            "What happens to both numbers if the batch is twice as large?",
            flops=lambda B, n, m, d, v, e: 2 * n * m * (d + v),
        ),
        _cost_mistake(
            "batch_forgotten_in_bytes",
            "The memory is that of a single item.",
            "What happens to both numbers if the batch is twice as large?",
            size=lambda B, n, m, d, v, e: n * m * e,
        ),
        _cost_mistake(
            "last_addition_left_out",
            "You count k multiplications and k - 1 additions; the convention here, as in most "
            "papers, is 2 operations for each of the k multiply-adds.",
            "What does the statement count a multiply-add as?",
            flops=lambda B, n, m, d, v, e: B * n * (m * (2 * d - 1) + v * (2 * m - 1)),
        ),
        _cost_mistake(
            "inputs_for_scores",
            "The memory is that of queries, keys and values; asked is that of the scores.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: B * (n * d + m * d + m * v) * e,
        ),
        _cost_mistake(
            "outputs_for_scores",
            "The memory is that of the outputs (B, n, d_v); asked is that of the scores.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: B * n * v * e,
        ),
        _cost_mistake(
            "scores_and_weights",
            "The memory counts scores and weights; asked is that of the scores alone.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: 2 * B * n * m * e,
        ),
        _cost_mistake(
            "floating_point_result",
            "The numbers are right, but counts are whole numbers and yours are floats.",
            "Does `/` stand somewhere, or a float among the factors?",
            flops=lambda B, n, m, d, v, e: float(2 * B * n * m * (d + v)),
            size=lambda B, n, m, d, v, e: float(B * n * m * e),
        ),
    ),
    properties=(
        Property("two_mistakes", _two_mistakes, "Which of the two is easier to put right first?"),
    ),
    hints=(
        "Count the entries of the scores first, then how many multiply-adds one entry takes. Do "
        "the same for the outputs.",
        "The scores have B n m entries, each a sum over d: 2 operations for each of the d "
        "products. The outputs have B n d_v entries, each a sum over m.",
        "num_scores = batch * num_queries * num_keys\n"
        'return {"flops": 2 * num_scores * (...), "score_bytes": num_scores * ...}',
    ),
)


# ---------------------------------------------------------------- all together
def _together_probes(rng):
    def problem(lead, n, m, d, v, **options):
        shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v)}
        return {
            name: tensor(rng.normal(0, 1.2, (*lead, *shape)), **options)
            for name, shape in shapes.items()
        }

    return [
        Probe(
            "one_item",
            "Your weights must reach your outputs: a softmax of your scores, then your sum.",
            args=problem((1,), 1, 2, 3, 1),
            scenario="unscaled_attention",
        ),
        Probe(
            "batch",
            "The two products must keep every item to itself.",
            args=problem((2,), 3, 5, 4, 6),
            scenario="unscaled_attention",
        ),
        Probe(
            "heads",
            "The two products must work with heads, (batch, heads, n, d).",
            args=problem((2, 3), 4, 5, 2, 6, strided=True),
            scenario="unscaled_attention",
        ),
        Probe(
            "no_leading_axis",
            "The two products must work for a single item without a batch axis.",
            part="edges",
            args=problem((), 3, 4, 2, 5),
            scenario="unscaled_attention",
        ),
        Probe(
            "gradients",
            "Gradients must come back through both products.",
            part="gradients",
            args=problem((2,), 2, 3, 2, 1, requires_grad=True),
            grad_outputs=rng.normal(size=(2, 2, 1)),
            scenario="unscaled_attention",
        ),
    ]


_TOGETHER = Exercise(
    name="unscaled_attention",
    points=1,
    minutes=2,
    difficulty=2,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),),
    probes=_together_probes,
    oracle=oracle.unscaled_attention,
    mistakes=(),
    hints=(
        "Which of your two functions gives other numbers than its own check asked for?",
        "Run the checks of `batched_scores` and `weighted_sum` again; both must be correct.",
        "weighted_sum(torch.softmax(batched_scores(queries, keys), dim=-1), values)",
    ),
)

LESSON = Lesson(
    3,
    "Batched matrix products",
    Written("what_a_shape_test_proves", points=3, minutes=10),
    Integration(("batched_scores", "weighted_sum"), judged_as=_TOGETHER),
)

EXERCISES = (BMM_LOOPS, BMM, BATCHED_SCORES, WEIGHTED_SUM, ATTENTION_COST)
