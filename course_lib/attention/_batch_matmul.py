"""Lesson 03: the two products of attention, for every item of a batch at once, and their cost."""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def bmm_loops(
    a: Float[Tensor, "batch n k"], b: Float[Tensor, "batch k m"]
) -> Float[Tensor, "batch n m"]:
    """Matrix product of each pair of a batch, one number at a time.

    c[item, i, j] = sum over t of a[item, i, t] * b[item, t, j]. Slow on purpose: it is the
    formula, and what the other functions of this lesson are compared with.

    Args:
        a: one matrix (n, k) for each item.
        b: one matrix (k, m) for each item; item 0 of `a` meets item 0 of `b` and no other.

    Returns:
        A new tensor (batch, n, m) with the dtype and device of `a`; gradients flow to both.
    """
    batch, n, k = a.shape
    m = b.shape[-1]
    product = a.new_zeros(batch, n, m)
    for item in range(batch):
        for i in range(n):
            for j in range(m):
                for t in range(k):
                    product[item, i, j] += a[item, i, t] * b[item, t, j]
    return product


@checked
def bmm(
    a: Float[Tensor, "*batch n k"], b: Float[Tensor, "*batch k m"]
) -> Float[Tensor, "*batch n m"]:
    """Matrix product over the last two axes, for any number of leading ones and without a loop.

    Differs from `torch.bmm`, which takes exactly three axes, and from `torch.matmul`, which
    stretches leading axes of size 1: here both arguments have the same leading axes.

    Args:
        a: matrices (n, k) under leading axes of any number, none included.
        b: matrices (k, m) under the same leading axes.

    Returns:
        The products, (..., n, m).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.einsum.html
    """
    return torch.einsum("...nk,...km->...nm", a, b)


@checked
def batched_scores(
    queries: Float[Tensor, "*batch num_queries d"], keys: Float[Tensor, "*batch num_keys d"]
) -> Float[Tensor, "*batch num_queries num_keys"]:
    """Dot product of every query with every key of the same item: Q K^T.

    The scores are as they come: not scaled (lesson 05 says why one divides by sqrt(d)), not
    masked, not normalised.

    Args:
        queries: one row of d numbers for each query.
        keys: one row of d numbers for each key.

    Returns:
        Scores (..., num_queries, num_keys): rows belong to queries, columns to keys.

    Source: Luong et al. 2015, section 3.1 ("dot"), https://arxiv.org/abs/1508.04025
    """
    return queries @ keys.mT  # (..., n, d) @ (..., d, m)


@checked
def weighted_sum(
    weights: Float[Tensor, "*batch num_queries num_keys"],
    values: Float[Tensor, "*batch num_keys d_v"],
) -> Float[Tensor, "*batch num_queries d_v"]:
    """Output of attention: for each query, the sum of all values, each times its weight.

    Args:
        weights: (..., num_queries, num_keys), taken as they are: rows need not sum to 1.
        values: one row of d_v numbers for each key.

    Returns:
        Outputs (..., num_queries, d_v). Where a row of weights is non-negative and sums to 1,
        its output lies between the smallest and the largest value of each column.

    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762
    """
    return weights @ values


@checked
def attention_cost(
    batch: int, num_queries: int, num_keys: int, d: int, d_v: int, bytes_per_element: int = 4
) -> dict[str, int]:
    """What the two products of attention cost, before anything is computed.

    A multiplication with its addition counts as 2 operations. The softmax between the products
    is left out: it grows with B n m too, but not with d.

    Args:
        batch: number of items (times the number of heads, if there are several).
        num_queries: n.
        num_keys: m.
        d: size of a query and of a key.
        d_v: size of a value.
        bytes_per_element: 4 for float32, 2 for float16 and bfloat16, 8 for float64.

    Returns:
        "flops", the operations of Q K^T and of W V: 2 B n m (d + d_v); and "score_bytes", the
        memory that the scores (batch, num_queries, num_keys) take.

    Source: Dao et al. 2022, section 2.2, https://arxiv.org/abs/2205.14135
    """
    num_scores = batch * num_queries * num_keys
    return {
        "flops": 2 * num_scores * (d + d_v),
        "score_bytes": num_scores * bytes_per_element,
    }
