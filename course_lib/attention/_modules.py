"""Checks of modules as arguments, kept out of the solutions that are pasted into lessons."""

import functools
from collections.abc import Callable
from typing import Any

from torch import nn


def checked_transfer(function: Callable) -> Callable:
    """Check that the weights of `mha` fit into `reference` before copying them.

    Raises:
        TypeError: an argument is not the module it should be.
        ValueError: the two modules differ in size, heads, biases or device.
    """

    @functools.wraps(function)
    def call(mha: nn.Module, reference: nn.MultiheadAttention) -> Any:
        for name in ("W_q", "W_k", "W_v", "W_o"):
            if not isinstance(getattr(mha, name, None), nn.Linear):
                raise TypeError(
                    f"`mha` must have nn.Linear layers W_q, W_k, W_v, W_o; {name} is not."
                )
        if not isinstance(reference, nn.MultiheadAttention):
            got = type(reference).__name__
            raise TypeError(f"`reference` must be a torch.nn.MultiheadAttention; got {got}.")
        _check_fit(mha, reference)
        return function(mha, reference)

    return call


def _check_fit(mha: Any, reference: nn.MultiheadAttention) -> None:
    embed_dim = mha.W_q.weight.shape[0]
    if reference.in_proj_weight is None:
        raise ValueError("`reference` must have kdim = vdim = embed_dim; got others.")
    if reference.embed_dim != embed_dim:
        raise ValueError(
            f"`reference` must have embed_dim = {embed_dim}; got {reference.embed_dim}."
        )
    num_heads = getattr(mha, "num_heads", reference.num_heads)
    if reference.num_heads != num_heads:
        raise ValueError(
            f"`reference` must have num_heads = {num_heads}; got {reference.num_heads}."
        )
    if mha.W_o.bias is not None and reference.in_proj_bias is None:
        raise ValueError("`reference` must have a bias = that of `mha`; got bias=False.")
    devices = mha.W_o.weight.device, reference.out_proj.weight.device
    if devices[0] != devices[1]:
        raise ValueError(
            f"all modules must have the same device; got `mha` {devices[0]}, "
            f"`reference` {devices[1]}."
        )
