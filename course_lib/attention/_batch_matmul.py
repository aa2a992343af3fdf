"""Lesson 03: the two products of attention, for every item of a batch at once, and their cost."""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def bmm_loops(
    a: Float[Tensor, "batch n k"], b: Float[Tensor, "batch k m"]
) -> Float[Tensor, "batch n m"]:
    """Multiply the two matrices of each item, one number at a time.

    c[item, i, j] = sum over t of a[item, i, t] * b[item, t, j]. Slow on purpose: it is the
    formula, and what the other functions of this lesson are compared with.

    Args:
        a: one matrix (n, k) for each item.
        b: one matrix (k, m) for each item; item 0 of `a` is multiplied by item 0 of `b`.

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
    """Multiply matrices over the last two axes, for any number of leading axes and without a loop.

    Differs from `torch.bmm`, which takes exactly three axes, and from `torch.matmul`, which
    stretches leading axes of size 1: here both arguments have the same leading axes.

    Args:
        a: matrices (n, k) with any number of leading axes, including none.
        b: matrices (k, m) with the same leading axes. Neither needs to be contiguous.

    Returns:
        The products, (..., n, m).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.einsum.html
    """
    return torch.einsum("...nk,...km->...nm", a, b)


@checked
def batched_scores(
    queries: Float[Tensor, "*batch num_queries d"], keys: Float[Tensor, "*batch num_keys d"]
) -> Float[Tensor, "*batch num_queries num_keys"]:
    """Return the dot product of every query with every key of the same item: Q K^T.

    The scores are not scaled (lesson 05 says why one divides by sqrt(d)), not masked and not
    normalized.

    Args:
        queries: one row of d numbers for each query.
        keys: one row of d numbers for each key.

    Returns:
        Scores (..., num_queries, num_keys): rows belong to queries, columns to keys.

    Source: Luong et al. 2015, section 3.1 ("dot"), https://arxiv.org/abs/1508.04025
    """
    return queries @ keys.mT  # (..., n, d) @ (..., d, m)


@checked
def attention_pooling(
    queries: Float[Tensor, "*batch num_queries d"],
    keys: Float[Tensor, "*batch num_keys d"],
    values: Float[Tensor, "*batch num_keys d_v"],
) -> tuple[Float[Tensor, "*batch num_queries d_v"], Float[Tensor, "*batch num_queries num_keys"]]:
    """Average the values with weights from the dot products of queries and keys.

    attention_weights = softmax(Q K^T) over the keys, outputs = attention_weights V. The scores are
    not scaled: lesson 05 explains why one divides them by sqrt(d).

    Args:
        queries: one row of d numbers for each query.
        keys: one row of d numbers for each key.
        values: one row of d_v numbers for each key.

    Returns:
        The outputs (..., num_queries, d_v) and the attention weights (..., num_queries, num_keys).
        Each row of the weights sums to 1.

    Source: Luong et al. 2015, section 3.1 ("dot"), https://arxiv.org/abs/1508.04025
    """
    attention_weights = torch.softmax(batched_scores(queries, keys), dim=-1)
    return attention_weights @ values, attention_weights


@checked
def attention_cost(
    batch: int, num_queries: int, num_keys: int, d: int, d_v: int, bytes_per_element: int = 4
) -> dict[str, int]:
    """Count the operations of attention's two products and the memory of its scores.

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
        "flops", the operations of Q K^T and of W V, and "score_bytes", the memory that the scores
        (batch, num_queries, num_keys) take.

    Source: Dao et al. 2022, section 2.2, https://arxiv.org/abs/2205.14135
    """
    num_scores = batch * num_queries * num_keys
    return {
        "flops": 2 * num_scores * (d + d_v),
        "score_bytes": num_scores * bytes_per_element,
    }
