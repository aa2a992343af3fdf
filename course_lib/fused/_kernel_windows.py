"""Averages over the keys within a bandwidth on a line, by differences of running sums.

Sorted keys within (q - h, q + h) are neighbours, so a sum over them is the difference of two
running sums, found by bisection: n log m steps instead of n m. For 1 - (q - k)^2 / h^2 the sums
of 1, k and k^2, alone and times the values, are enough. Taken about one origin they would be far
larger than what is left of them; so keys are put in bins as wide as h, each with its own centre,
and a window is put together from the three bins it can meet.
"""

import torch
from torch import Tensor

DIGITS = {torch.float64: 1e-11}  # the relative error that is allowed; 1e-7 in other dtypes


def window_averages(
    queries: Tensor, keys: Tensor, values: Tensor, bandwidth: float | Tensor, kernel: str
) -> tuple[Tensor, Tensor]:
    """Returns averages `(num_queries, v)`, and the rows whose sum of heights is too near to 0.

    Args:
        queries, keys: `(num_queries, 1)` and `(num_keys, 1)`.
        values: `(num_keys, v)`.
        bandwidth: h > 0.
        kernel: "boxcar" or "epanechnikov".
    """
    order = keys.detach().squeeze(1).argsort()
    places = keys.double().squeeze(1)[order]  # (num_keys,)
    at = queries.double().squeeze(1)  # (num_queries,)
    middle = values.detach().double().mean(dim=0)  # small sums have small errors
    shifted = values.double()[order] - middle
    counted = torch.cat([torch.ones_like(shifted[:, :1]), shifted], dim=1)  # (num_keys, 1 + v)
    found = _bisect(places.detach(), at.detach(), bandwidth)
    if kernel == "boxcar":
        running = _running(counted)
        sums = running[found[1]] - running[found[0]]
    else:
        sums = _parabolas(places, at, counted, bandwidth, found)
    heights = sums[:, :1]  # (num_queries, 1)
    is_empty = (found[0] == found[1]).unsqueeze(1)
    averages = sums[:, 1:] / heights.masked_fill(is_empty | (heights == 0), 1) + middle
    outputs = averages.masked_fill(is_empty, 0).to(values.dtype)
    error = torch.finfo(torch.float64).eps * max(len(keys), 1)
    limit = error / DIGITS.get(values.dtype, 1e-7)
    doubtful = (heights.detach() < limit) & ~is_empty
    return outputs, doubtful.squeeze(1).nonzero().squeeze(1)


def _bisect(places: Tensor, at: Tensor, bandwidth: float | Tensor) -> tuple[Tensor, Tensor]:
    """Where each window begins and ends among the sorted places; its edges do not belong to it."""
    h = bandwidth.detach() if isinstance(bandwidth, Tensor) else bandwidth
    return (
        torch.searchsorted(places, at - h, right=True),
        torch.searchsorted(places, at + h, right=False),
    )


def _running(terms: Tensor) -> Tensor:
    """Running sums along the first axis, with 0 in front."""
    return torch.cat([terms.new_zeros(1, *terms.shape[1:]), terms.cumsum(dim=0)])


def _parabolas(places, at, counted, bandwidth, found) -> Tensor:
    """Sums of (1 - (q - k)^2 / h^2) times `counted` over the windows, `(num_queries, 1 + v)`."""
    places, at = places / bandwidth, at / bandwidth
    bins, own = places.detach().floor(), at.detach().floor()
    local = (places - bins - 0.5).unsqueeze(1)  # -0.5..0.5
    running = _running(torch.cat([counted, counted * local, counted * local**2], dim=1))
    borders = [torch.searchsorted(bins, own + step) for step in (-1, 0, 1, 2)]
    borders = [border.maximum(found[0]).minimum(found[1]) for border in borders]
    sums, before = running.new_zeros(()), running[borders[0]]
    for step, border in enumerate(borders[1:]):  # the bins left of, at and right of the query
        behind = running[border]
        zeroth, first, second = (behind - before).chunk(3, dim=1)
        offset = (at - own + 0.5 - step).unsqueeze(1)
        sums = sums + (1 - offset**2) * zeroth + 2 * offset * first - second
        before = behind
    return sums
