"""Lesson 07: tests that tell a sound attention from a broken one, and two modules fixed."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.attention._checked import checked
from course_lib.attention._masked_softmax import causal_mask, masked_softmax
from course_lib.attention._multi_head import merge_heads, split_heads


@checked
def masking_equals_deleting(
    module: Callable,
    queries: Float[Tensor, "batch num_queries d_q"],
    keys: Float[Tensor, "batch num_keys d_k"],
    values: Float[Tensor, "batch num_keys v"],
    valid_lens: Int[Tensor, "batch"],
) -> bool:
    """Return whether masking the padded keys gives the same outputs as deleting them.

    It is a test at these inputs, not a proof. Some items must have padded keys.

    Args:
        module: attention without randomness, called as `module(queries, keys, values)` or with
            `valid_lens` as its fourth argument.
        queries, keys, values: what it is called with.
        valid_lens: the number of real keys of each item, at least 1.

    Returns:
        True if every item's outputs agree within 1e-5.
    """
    masked = module(queries, keys, values, valid_lens)
    for b, length in enumerate(valid_lens.tolist()):
        item = slice(b, b + 1)  # keeps the batch axis
        deleted = module(queries[item], keys[item, :length], values[item, :length])
        if not torch.allclose(masked[item], deleted, rtol=1e-5, atol=1e-5):
            return False
    return True


@checked
def keys_permutation_invariant(
    module: Callable,
    queries: Float[Tensor, "batch num_queries d_q"],
    keys: Float[Tensor, "batch num_keys d_k"],
    values: Float[Tensor, "batch num_keys v"],
) -> bool:
    """Return whether the outputs are independent of the order of the keys and their values.

    This is a test of some orders at these inputs, not a proof.

    Args:
        module: attention without randomness, called as `module(queries, keys, values)`.
        queries, keys, values: what it is called with.

    Returns:
        True if none of these orders changes an output by more than 1e-5.
    """
    outputs = module(queries, keys, values)
    # Any single order may leave in place what a broken module depends on.
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        order = torch.randperm(keys.shape[1], generator=generator)
        shuffled = module(queries, keys[:, order], values[:, order])
        if not torch.allclose(shuffled, outputs, rtol=1e-5, atol=1e-5):
            return False
    return True


@checked
def batch_items_independent(
    module: Callable,
    queries: Float[Tensor, "batch num_queries d_q"],
    keys: Float[Tensor, "batch num_keys d_k"],
    values: Float[Tensor, "batch num_keys v"],
    valid_lens: Int[Tensor, "batch"],
) -> bool:
    """Return whether each item has the same output alone as in the batch.

    It is a test at these inputs, not a proof. The items and their lengths must differ.

    Args:
        module: attention without randomness, called as
            `module(queries, keys, values, valid_lens)`.
        queries, keys, values, valid_lens: what it is called with.

    Returns:
        True if every item's outputs agree within 1e-5.
    """
    together = module(queries, keys, values, valid_lens)
    for b in range(len(queries)):
        item = slice(b, b + 1)  # keeps the batch axis
        alone = module(queries[item], keys[item], values[item], valid_lens[item])
        if not torch.allclose(together[item], alone, rtol=1e-5, atol=1e-5):
            return False
    return True


def diagnosed_boxes() -> dict[str, str]:
    """Return an invariant that each of the three boxes breaks.

    Returns:
        A dict from the box's name to the id of an invariant. If a box breaks several, any one of
        them will do.
    """
    return {
        "curlew": "masking_equals_deleting",  # masked scores become 0, and exp(0) = 1
        "fulmar": "items_apart",  # lengths repeated in the wrong order
        "ibis": "empty_rows_zero",  # softmax of nothing but -inf
    }


def broken_invariants() -> dict[str, str]:
    """Return an invariant that each of the ten boxes breaks.

    Returns:
        A dict from the box's name to the id of an invariant, both as the lesson prints them.
        If a box breaks several, any one of them will do.
    """
    return {
        "avocet": "rows_sum_to_one",  # softmax over the queries
        "bittern": "queries_apart",  # heads merged without a transpose
        "curlew": "masking_equals_deleting",  # masked scores become 0, and exp(0) = 1
        "dunlin": "linear_in_values",  # W_v reads the keys
        "egret": "scale_free",  # no 1 / sqrt(head_dim)
        "fulmar": "items_apart",  # lengths repeated in the wrong order
        "grebe": "eval_repeats",  # dropout never asks for self.training
        "heron": "all_parameters_learn",  # W_k projects the values, W_v is never used
        "ibis": "empty_rows_zero",  # softmax of nothing but -inf
        "jacana": "keys_permutation",  # heads split without a transpose
    }


class Lookup(nn.Module):
    """Attention with learned queries and keys and the values as they are; `BrokenLookup` fixed.

    weights = softmax(Q W_q (K W_k)^T / sqrt(num_hiddens)), outputs = weights V. After a call
    `attention_weights` holds the weights before dropout, detached, `(batch, num_queries,
    num_keys)`.

    Args:
        query_size: features of a query.
        key_size: features of a key.
        num_hiddens: features that the two are compared in.
        dropout: probability of dropping a weight, in train mode.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        device=None,
        dtype=None,
    ):
        """Make `W_q` and `W_k`, both without bias."""
        super().__init__()
        self.query_size, self.key_size = query_size, key_size
        factory_kwargs = {"device": device, "dtype": dtype}
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, **factory_kwargs)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, **factory_kwargs)
        self.dropout = nn.Dropout(dropout)

    @checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries query_size"],
        keys: Float[Tensor, "batch num_keys key_size"],
        values: Float[Tensor, "batch num_keys v"],
        valid_lens: Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch num_queries v"]:
        """Average the values of the real keys.

        Args:
            queries, keys, values: see the class.
            valid_lens: the number of real keys of each item; all of them if not given.

        Returns:
            One output for each query; zeros for an item without a real key.
        """
        q, k = self.W_q(queries), self.W_k(keys)
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (batch, num_queries, num_keys)
        weights = masked_softmax(scores, valid_lens)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


class CausalSelfAttention(nn.Module):
    """Multi-head self-attention that never looks ahead; `BrokenCausalSelfAttention` fixed.

    One projection makes queries, keys and values of all heads: `W_qkv` holds `W_q` above `W_k`
    above `W_v`. After a call `attention_weights` holds the weights, detached,
    `(batch, num_heads, num_positions, num_positions)`.

    Args:
        embed_dim: features of inputs and outputs.
        num_heads: how many heads share them; must divide `embed_dim`.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, embed_dim: int, num_heads: int, *, device=None, dtype=None):
        """Make `W_qkv` and `W_o`, both without bias."""
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(
                f"`num_heads` must be >= 1 and divide embed_dim = {embed_dim}; got {num_heads}."
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        factory_kwargs = {"device": device, "dtype": dtype}
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, **factory_kwargs)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, **factory_kwargs)

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch num_positions embed_dim"],
        valid_lens: Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch num_positions embed_dim"]:
        """Let each position attend to itself and to the real positions before it.

        Args:
            x: one sequence for each item.
            valid_lens: the number of real positions of each item; all of them if not given.

        Returns:
            One output for each position; zeros where no key is allowed.
        """
        projected = self.W_qkv(x).chunk(3, dim=-1)
        q, k, v = (split_heads(part, self.num_heads) for part in projected)
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (batch, num_heads, n, n)
        past = causal_mask(x.shape[1], device=x.device)
        weights = masked_softmax(scores, valid_lens, past)
        self.attention_weights = weights.detach()
        return self.W_o(merge_heads(weights @ v))


@checked
def is_permutation_equivariant(fn: Callable, x: Float[Tensor, "batch num_positions d"]) -> bool:
    """Return whether permuting the positions of `x` only permutes the outputs in the same way.

    This is a test of some permutations at this `x`, not a proof.

    Args:
        fn: from `(batch, num_positions, d)` to `(batch, num_positions, ...)`, without randomness.
        x: where to try it; the positions must differ.

    Returns:
        True if the outputs agree within 1e-5, plus 1e-5 of their size.
    """
    positions = torch.arange(x.shape[1], device=x.device)
    swapped = torch.cat([positions[:2].flip(0), positions[2:]])
    outputs = fn(x)
    return all(
        torch.allclose(fn(x[:, order]), outputs[:, order], rtol=1e-5, atol=1e-5)
        for order in (swapped, positions.roll(1))
    )


@checked
def is_causal(fn: Callable, x: Float[Tensor, "batch num_positions d"]) -> bool:
    """Return whether no output depends on a later position of `x`.

    This is a test at this `x`, not a proof.

    Args:
        fn: from `(batch, num_positions, d)` to `(batch, num_positions, ...)`, without randomness.
        x: where to try it.

    Returns:
        True if no earlier output changes by more than 1e-5.
    """
    generator = torch.Generator().manual_seed(0)  # leaves the global random numbers alone
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    outputs = fn(x)
    for t in range(1, x.shape[1]):
        changed = torch.cat([x[:, :t], x[:, t:] + 3 * noise[:, t:]], dim=1)
        if not torch.allclose(fn(changed)[:, :t], outputs[:, :t], rtol=1e-5, atol=1e-5):
            return False
    return True
