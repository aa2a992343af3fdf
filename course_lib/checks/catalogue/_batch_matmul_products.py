"""Lesson 03: products of two batches of matrices, with loops and without."""

import torch

from course_lib.checks.catalogue import _batch_matmul_mistakes as models
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import batch_matmul as oracle


def _pair(rng, a_shape, b_shape, **options):
    return {
        "a": tensor(rng.normal(0, 1.3, a_shape), **options),
        "b": tensor(rng.normal(0, 1.3, b_shape), **options),
    }


def in_float32(name, says, args):
    """A probe whose numbers are float32, and whose result must be, too."""
    return Probe(name, says, part="edges", args=args, dtype="float32", tolerance=1e-4)


def with_gradients(rng, name, says, args, output_shape):
    return Probe(
        name, says, part="gradients", args=args, grad_outputs=rng.normal(size=output_shape)
    )


_BY_HAND = {
    "a": tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
    "b": tensor([[[10.0], [1.0]], [[1.0], [10.0]]]),
}


def _bmm_loops_probes(rng):
    return [
        Probe(
            "worked",
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
        Probe(
            "one_of_each",
            "One row and one column must keep their axes.",
            part="edges",
            args={"a": tensor([[[2.0]], [[3.0]]]), "b": tensor([[[5.0]], [[7.0]]])},
        ),
        in_float32(
            "float32", "The result has the dtype of `a` and `b`.", _pair(rng, (2, 3, 4), (2, 4, 5))
        ),
        Probe(
            "between_other_calls",
            "Each call returns a new tensor: other calls with the same shapes change nothing.",
            part="edges",
            args=_pair(rng, (2, 2, 3), (2, 3, 5)),
            scenario="between_calls",
        ),
        with_gradients(
            rng,
            "gradients",
            "The result must be as differentiable as the formula.",
            _pair(rng, (2, 3, 4), (2, 4, 1), requires_grad=True),
            (2, 3, 1),
        ),
        with_gradients(
            rng,
            "gradients_one_item",
            "A single item of one term must be differentiable as well.",
            _pair(rng, (1, 2, 1), (1, 1, 3), requires_grad=True),
            (1, 2, 3),
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
        Mistake(
            "sum_never_reset",
            lambda a, b: models.running_total(a, b, 3),
            _NOT_RESET + " It starts only once.",
            "Inside which of the loops must `total = 0` stand?",
        ),
        Mistake(
            "sum_not_reset_in_row",
            lambda a, b: models.running_total(a, b, 1),
            _NOT_RESET + " It starts once per row.",
            "Inside which of the loops must `total = 0` stand?",
        ),
        _one_matrix("b0_for_all", "b", lambda a, b: models.product(a, models.first_for_all(b))),
        _one_matrix("a0_for_all", "a", lambda a, b: models.product(models.first_for_all(a), b)),
        Mistake(
            "same_matrix_for_all_items",
            models.same_buffer_for_all,
            "All items show the same matrix, the sum over the batch.",
            "Where is the matrix made that an item's products are added to?",
        ),
        Mistake(
            "items_accumulated",
            models.accumulated_over_items,
            "Each item's result also holds those of the items before it.",
            "Where is the matrix made that an item's products are added to?",
        ),
        Mistake(
            "only_first_item",
            models.only_first_item,
            "Item 0 is right, the other items are still 0.",
            "How far does the outermost loop get: does a `return` or a `break` stop it?",
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
            "rounded_terms",
            models.truncated_terms,
            "Each product is cut to a whole number before it is added.",
            "Which line turns a product into an integer?",
        ),
        Mistake(
            "integer_result",
            lambda a, b: models.product(a, b).long(),
            "Your result holds whole numbers: everything after the decimal point is lost.",
            "Which dtype has the tensor that you write into, and which dtype has `a`?",
        ),
        Mistake(
            "indices_of_b_swapped",
            models.swapped_indices_of_b,
            "The two indices of `b` are swapped, which is the product with b transposed.",
            "Which index of `b` counts its rows: the one you sum over, or the column's?",
            fails=True,
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
    promises={
        "`a` of shape `(B, n, k)` and `b` of shape": "rectangular more_rows_than_terms strided "
        "loops_small one_item square one_term one_of_each",
        "a new tensor `(B, n, m)` in the dtype of `a`": "float32 small_numbers between_other_calls",
        "It loops: over entries, or at least": "loops loops_small loops_large",
        "Gradients reach `a` and `b`, so": "gradients gradients_one_item",
        "give $1 \\cdot 10 + 2 \\cdot 1 = 12$ for item 0": "worked",
        "It will be slow, and it will be right": "",
        "Write the formula down as it stands": "",
        "Matrix product of each pair of a batch": "",
        "c[item, i, j] = sum over t": "rectangular",
        "Slow on purpose": "",
        "one matrix (n, k) for each item": "one_item",
        "A new tensor (batch, n, m) with the dtype": "float32 gradients",
    },
)


# ---------------------------------------------------------------- bmm
def _bmm_probes(rng):
    return [
        Probe(
            "worked",
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
            "one_of_each",
            "One row and one column must keep their axes.",
            part="edges",
            args={"a": tensor([[[2.0]], [[3.0]]]), "b": tensor([[[5.0]], [[7.0]]])},
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
        Probe(
            "strided_four_axes",
            "Non-contiguous tensors with two leading axes must work.",
            part="edges",
            args=_pair(rng, (2, 3, 4, 5), (2, 3, 5, 2), strided=True),
        ),
        in_float32(
            "float32", "The result has the dtype of `a` and `b`.", _pair(rng, (2, 3, 4), (2, 4, 5))
        ),
        with_gradients(
            rng,
            "gradients",
            "The result must be differentiable in both arguments.",
            _pair(rng, (2, 3, 4), (2, 4, 1), requires_grad=True),
            (2, 3, 1),
        ),
        with_gradients(
            rng,
            "gradients_one_item",
            "A single item of one term must be differentiable as well.",
            _pair(rng, (1, 2, 1), (1, 1, 3), requires_grad=True),
            (1, 2, 3),
        ),
        with_gradients(
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
    *("mv", "addmv", "conv1d", "tensordot", "inner", "bilinear"),
    *("_sparse_mm", "smm", "hspmm", "sspaddmm"),
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
        Mistake(
            "reshape_for_transpose",
            lambda a, b: (a[..., :, None, :] * models.reshaped(b)[..., None, :, :]).sum(dim=-1),
            "You change the shape of `b` from (k, m) to (m, k) with a reshape. A reshape keeps "
            "the order of the numbers and cuts it anew, so its rows are not the columns of `b`.",
            "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, and what "
            "with `.mT`?",
        ),
        Mistake(
            "summed_over_batch",
            models.summed_over_batch,
            "The items are added up: the leading axes are gone from the result.",
            "Which axes does your sum run over, and which letters stand after `->`?",
        ),
        Mistake(
            "only_three_axes",
            lambda a, b: torch.einsum("bnk,bkm->bnm", a, b),
            "Three axes work, any other number fails.",
            "Which step asks for three: letters of an einsum, `torch.bmm`, or axes counted from "
            "the left?",
            fails=True,
        ),
        Mistake(
            "transposed_result",
            lambda a, b: models.product(a, b).mT,
            "The entries are right, but rows and columns of the result have changed places.",
            "Which index comes first in the result: the row of `a` or the column of `b`?",
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
            "leading_axes_lost",
            models.leading_axes_lost(models.product),
            "The leading axes come back flattened into one.",
            "Which shape must the result get back, after a reshape to three axes?",
        ),
        Mistake(
            "terms_summed_apart",
            lambda a, b: a.sum(-1)[..., :, None] * b.sum(-2)[..., None, :],
            "You add up the rows of `a` and the columns of `b`, each on its own, and multiply the "
            "sums.",
            "Which letter of your einsum stands for the axis that both share, in both places?",
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
    promises={
        "with the same leading axes, of any number": "rectangular four_axes no_leading_axis "
        "five_axes one_item strided strided_four_axes float32",
        "**Returns** `(..., n, m)`": "rectangular square square_four_axes",
        "Gradients reach both arguments": "gradients gradients_one_item gradients_four_axes",
        "a loop of any kind, and without a ready-made": "forbidden loops",
        "`torch.einsum` is allowed": "",
        "The check watches what your code calls": "loops loops_three_small loops_three_large "
        "loops_four_small loops_four_large",
        "again give `[[[12]], [[43]]]`": "worked four_axes",
        "Matrix product over the last two axes": "four_axes",
        "Differs from `torch.bmm`": "",
        "matrices (n, k) under leading axes": "no_leading_axis one_of_each",
        "The products, (..., n, m)": "",
        "docs.pytorch.org": "",
    },
)
