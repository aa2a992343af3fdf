"""Lesson 06: several attentions side by side, and what they cannot see without positions."""

# `load_into_torch` takes any module with these four layers, which no type of torch can say.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention._checked import checked
from course_lib.attention._masked_softmax import masked_softmax


@checked
def split_heads(
    x: Float[Tensor, "batch num_positions embed_dim"], num_heads: int
) -> Float[Tensor, "batch num_heads num_positions head_dim"]:
    """Cut the features into equal blocks and make one head of each.

    Head `i` holds the features `i * head_dim` to `(i + 1) * head_dim - 1` of every position, the
    block layout of `nn.MultiheadAttention`.

    Args:
        x: projected queries, keys or values.
        num_heads: how many blocks; must divide the number of features.

    Returns:
        Tensor `(batch, num_heads, num_positions, embed_dim / num_heads)`.

    Raises:
        ValueError: the features cannot be shared out evenly.
    """
    batch, num_positions, embed_dim = x.shape
    if num_heads < 1 or embed_dim % num_heads != 0:
        raise ValueError(
            f"`num_heads` must be >= 1 and divide embed_dim = {embed_dim}; got {num_heads}."
        )
    x = x.reshape(batch, num_positions, num_heads, embed_dim // num_heads)
    return x.transpose(1, 2)  # (batch, num_heads, num_positions, head_dim)


@checked
def merge_heads(
    x: Float[Tensor, "batch num_heads num_positions head_dim"],
) -> Float[Tensor, "batch num_positions embed_dim"]:
    """Put the heads' results side by side again, the inverse of `split_heads`.

    Args:
        x: one result for each head and position.

    Returns:
        Tensor `(batch, num_positions, num_heads * head_dim)`: at each position the features of
        head 0, then those of head 1, and so on.
    """
    x = x.transpose(1, 2)  # (batch, num_positions, num_heads, head_dim)
    return x.flatten(start_dim=2)  # (batch, num_positions, embed_dim)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in several subspaces at once.

    head_i = softmax(Q W_q_i (K W_k_i)^T / sqrt(head_dim)) V W_v_i, output = [head_0, ...] W_o,
    with head_dim = embed_dim / num_heads; W_q_i is the i-th block of features of one projection.

    Differs from the paper only in notation. Unlike `nn.MultiheadAttention`, it takes the batch
    first, has no bias unless asked for, and reads True in a mask as may attend. It returns only
    the outputs, and a query with no allowed key gets zeros from every head. After a call
    `attention_weights` holds the weights before dropout, detached, as
    `(batch, num_heads, num_queries, num_keys)`.

    Args:
        embed_dim: features of queries, keys, values and outputs.
        num_heads: how many heads share them; must divide `embed_dim`.
        dropout: probability of dropping a weight, in train mode.
        bias: whether the four projections have a bias.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Source: Vaswani et al. 2017, section 3.2.2, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        device=None,
        dtype=None,
    ):
        """Make the four projections, each `(embed_dim, embed_dim)`."""
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(
                f"`num_heads` must be >= 1 and divide embed_dim = {embed_dim}; got {num_heads}."
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        factory_kwargs = {"device": device, "dtype": dtype}
        self.W_q = nn.Linear(embed_dim, embed_dim, bias, **factory_kwargs)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias, **factory_kwargs)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias, **factory_kwargs)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias, **factory_kwargs)
        self.dropout = nn.Dropout(dropout)

    @checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries embed_dim"],
        keys: Float[Tensor, "batch num_keys embed_dim"],
        values: Float[Tensor, "batch num_keys embed_dim"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch num_queries embed_dim"]:
        """Attend in every head and mix the results.

        Args:
            queries, keys, values: what is projected; one sequence three times in self-attention.
            valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`.
            mask: True = may attend: `(num_queries, num_keys)` for all, `(batch, ...)` for each
                item, or `(batch, num_heads, ...)` for each head.

        Returns:
            One output for each query; with no allowed key, `W_o(0)`.
        """
        q = split_heads(self.W_q(queries), self.num_heads)  # (batch, num_heads, num_queries, d)
        k = split_heads(self.W_k(keys), self.num_heads)  # (batch, num_heads, num_keys, d)
        v = split_heads(self.W_v(values), self.num_heads)
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (batch, num_heads, num_queries, num_keys)
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # one mask an item, the same for every head
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        heads = self.dropout(weights) @ v  # (batch, num_heads, num_queries, head_dim)
        return self.W_o(merge_heads(heads))


def load_into_torch(mha: nn.Module, reference: nn.MultiheadAttention) -> None:
    """Copy the weights of a `MultiHeadAttention` into torch's own module.

    torch keeps the three input projections in one matrix, queries above keys above values, and
    it may have biases where ours has none: those become 0. Afterwards both compute the same,
    but torch's masks must be inverted: there True = ignore.

    Args:
        mha: has `W_q`, `W_k`, `W_v` and `W_o`, all `nn.Linear`; stays as it is.
        reference: of the same `embed_dim` and `num_heads`; overwritten.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html
    """
    projections = [mha.W_q, mha.W_k, mha.W_v]
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([layer.weight for layer in projections]))
        reference.out_proj.weight.copy_(mha.W_o.weight)
        if mha.W_o.bias is not None:
            reference.in_proj_bias.copy_(torch.cat([layer.bias for layer in projections]))
            reference.out_proj.bias.copy_(mha.W_o.bias)
        elif reference.in_proj_bias is not None:
            reference.in_proj_bias.zero_()
            reference.out_proj.bias.zero_()


@checked
def positional_encoding(
    num_positions: int,
    embed_dim: int,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "num_positions embed_dim"]:
    """Return one vector for each position: sines and cosines from fast to slow.

    PE[p, 2i] = sin(p / 10000^(2i / embed_dim)), PE[p, 2i + 1] = cos of the same angle.

    Args:
        num_positions: positions 0 to `num_positions - 1`.
        embed_dim: columns; if odd, the last is a sine.
        device, dtype: device and dtype of the encoding, as in `torch.ones`.

    Returns:
        Tensor with every entry in -1..1.

    Source: Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762
    """
    # In float32, the angles of positions in the thousands have errors of about 1e-4.
    positions = torch.arange(num_positions, dtype=torch.float64).unsqueeze(1)
    even_columns = torch.arange(0, embed_dim, 2, dtype=torch.float64)
    angles = positions / 10000 ** (even_columns / embed_dim)  # (num_positions, pairs)
    encoding = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (num_positions, pairs, 2)
    encoding = encoding.flatten(start_dim=1)[:, :embed_dim]
    return encoding.to(device=device, dtype=dtype or torch.get_default_dtype())


@checked
def shift_matrix(
    offset: int,
    embed_dim: int,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "embed_dim embed_dim"]:
    """Return the matrix that maps the encoding of each position to that of position + `offset`.

    With PE of `positional_encoding`, shift_matrix(s, embed_dim) @ PE[p] is PE[p + s] for every p.

    Args:
        offset: how many positions further on; a negative number goes back.
        embed_dim: columns of the encoding, an even number.
        device, dtype: device and dtype of the matrix, as in `torch.ones`.

    Returns:
        A rotation of each pair of columns, and zeros elsewhere.

    Source: Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762
    """
    if embed_dim < 2 or embed_dim % 2:
        raise ValueError(f"`embed_dim` must be even and >= 2; got {embed_dim}.")
    even_columns = torch.arange(0, embed_dim, 2, dtype=torch.float64)
    angles = offset / 10000 ** (even_columns / embed_dim)  # (pairs,)
    sines, cosines = angles.sin(), angles.cos()
    for_sines, for_cosines = torch.stack([cosines, sines], -1), torch.stack([-sines, cosines], -1)
    turns = torch.stack([for_sines, for_cosines], dim=-2)  # (pairs, 2, 2)
    matrix = torch.block_diag(*turns)
    return matrix.to(device=device, dtype=dtype or torch.get_default_dtype())
