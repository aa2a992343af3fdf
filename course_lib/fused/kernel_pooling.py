"""Nadaraya-Watson regression with memory that grows with n + m if the weights are not wanted.

For the Gaussian, -|q - k|^2 / (2 h^2) = q.k / h^2 - |k|^2 / (2 h^2) - |q|^2 / (2 h^2), whose last
term the softmax cancels: with features (q, 1) / h and (k, -|k|^2 / 2) / h it is dot-product
attention, which torch computes in blocks. The difference of large products loses digits, the more
the further the data reaches in bandwidths: past a bound float64 is taken, and past the next the
distances themselves, block by block. `_kernel_windows` has the other kernels.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from course_lib.attention._checked import checked
from course_lib.fused._kernel_windows import window_averages
from course_lib.fused.masked_softmax import is_traced

KERNELS = ("gaussian", "boxcar", "epanechnikov")
FEW_PAIRS = 2**16  # up to so many, one formula for all pairs is the fastest
BLOCK = 2**18  # numbers; a megabyte stays in the second-level cache
ERRORS = {  # by how much a score may be off, for values of a dtype
    torch.float64: 1e-11,
    torch.float32: 6e-6,
    torch.bfloat16: 1e-3,
    torch.float16: 1e-3,
}


@checked
def kernel_pooling(
    queries: Float[Tensor, "num_queries d"],
    keys: Float[Tensor, "num_keys d"],
    values: Float[Tensor, "num_keys v"],
    bandwidth: int | float | Tensor,
    *,
    kernel: str = "gaussian",
    need_weights: bool = True,
) -> tuple[Float[Tensor, "num_queries v"], Float[Tensor, "num_queries num_keys"] | None]:
    """Predicts at each query the average of all values, near keys counting most.

    With u = distance / bandwidth the kernels are exp(-u^2 / 2), as taught; 1 where u < 1; and
    max(0, 1 - u^2). Whether a key lies within the bandwidth is decided in float64. A query that
    has no key there gets zeros.

    Args:
        queries: the places to predict at.
        keys: the places where a value is known.
        values: the value of each key, one row a key.
        bandwidth: h > 0, in the units of the distances; a number or a tensor that holds one.
        kernel: "gaussian", "boxcar" or "epanechnikov".
        need_weights: whether to return the attention weights too.

    Returns:
        The outputs `(num_queries, v)` and the attention weights `(num_queries, num_keys)` or None.

    Raises:
        ValueError: `values` does not have two axes, or there is no such kernel.
    """
    if kernel not in KERNELS:
        raise ValueError(f"`kernel` must be one of {', '.join(KERNELS)}; got {kernel!r}.")
    if need_weights or is_traced() or len(queries) * len(keys) <= FEW_PAIRS:
        weights = _weights(queries, keys, bandwidth, kernel)
        return weights @ values, weights if need_weights else None
    if kernel == "gaussian":
        outputs = _as_dot_product(queries, keys, values, bandwidth)
    elif keys.shape[1] == 1:
        outputs, doubtful = window_averages(queries, keys, values, bandwidth, kernel)
        if len(doubtful):
            again = _in_blocks(queries[doubtful], keys, values, bandwidth, kernel)
            outputs = outputs.index_copy(0, doubtful, again)
    else:
        outputs = _in_blocks(queries, keys, values, bandwidth, kernel)
    return outputs, None


def _weights(queries: Tensor, keys: Tensor, bandwidth: float | Tensor, kernel: str) -> Tensor:
    """All weights at once, `(num_queries, num_keys)`."""
    dtype = queries.dtype
    if kernel != "gaussian":
        queries, keys = queries.double(), keys.double()
    if keys.shape[1] == 1:
        squares = (queries - keys.mT).square()
    else:
        squares = (queries.unsqueeze(1) - keys).square().sum(dim=-1)
    if kernel == "gaussian":
        return torch.softmax(-squares / (2 * bandwidth**2), dim=-1)
    heights = (squares.detach().sqrt() < bandwidth).double()
    if kernel == "epanechnikov":
        heights = heights * (1 - squares / bandwidth**2)
    totals = heights.sum(dim=-1, keepdim=True)
    return (heights / totals.masked_fill(totals == 0, 1)).to(dtype)


def _as_dot_product(queries, keys, values, bandwidth) -> Tensor:
    """The Gaussian kernel by torch's attention, or in blocks where that would lose digits."""
    dtype = _wide_enough(queries, keys, values, bandwidth)
    if dtype is None:
        return _in_blocks(queries, keys, values, bandwidth, "gaussian")
    centre = keys.detach().to(dtype).mean(dim=0)
    q, k = ((x.to(dtype) - centre) / bandwidth for x in (queries, keys))
    half_norms = k.square().sum(dim=-1, keepdim=True) / 2  # (num_keys, 1)
    q, k = torch.cat([q, torch.ones_like(q[:, :1])], dim=1), torch.cat([k, -half_norms], dim=1)
    wide = max(q.shape[1], values.shape[1])  # torch's kernel wants one size
    q, k, v = (
        functional.pad(x, (0, wide - x.shape[1]))[None, None] for x in (q, k, values.to(dtype))
    )
    outputs = functional.scaled_dot_product_attention(q, k, v, scale=1.0)
    return outputs[0, 0, :, : values.shape[1]].to(values.dtype)


@torch.no_grad()
def _wide_enough(queries, keys, values, bandwidth) -> torch.dtype | None:
    """In which dtype the products keep the digits that count; None if in none that pays."""
    centre = keys.double().mean(dim=0)
    scaled = ((x.double() - centre) / bandwidth for x in (queries, keys))
    reach = max(float(x.square().sum(dim=-1).amax()) for x in scaled) / 2
    error = ERRORS[values.dtype]
    on_cpu = queries.device.type == "cpu"  # elsewhere float64 is not computed in blocks
    for dtype in (torch.float32, torch.float64):
        fits = torch.promote_types(dtype, values.dtype) == dtype
        if fits and (on_cpu or dtype == torch.float32) and reach * torch.finfo(dtype).eps <= error:
            return dtype
    return None


def _in_blocks(queries, keys, values, bandwidth, kernel) -> Tensor:
    """Averages for some queries at a time, computed again in the backward pass."""
    rows = max(1, BLOCK // keys.numel())
    parts = []
    for part in queries.split(rows):
        if torch.is_grad_enabled():
            arguments = part, keys, values, bandwidth, kernel
            again = checkpoint(_average, *arguments, use_reentrant=False, preserve_rng_state=False)
            parts.append(again)
        else:
            parts.append(_average(part, keys, values, bandwidth, kernel))
    return torch.cat(parts)


def _average(queries, keys, values, bandwidth, kernel) -> Tensor:
    return _weights(queries, keys, bandwidth, kernel) @ values
