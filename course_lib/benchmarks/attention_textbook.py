"""Attention as textbooks publish it, written again here from the formulas to measure against.

The forms are those of Zhang, Lipton, Li & Smola, Dive into Deep Learning, chapter 11,
https://d2l.ai/chapter_attention-mechanisms-and-transformers/: lengths only, masked scores
overwritten with -1e6 through a boolean index, every intermediate result a tensor of its own.
They are what a reader would otherwise copy, not what this course teaches: no query may be empty.
"""

import math

import torch
from torch import Tensor, nn

FILL = -1e6


def masked_softmax(scores: Tensor, valid_lens: Tensor | None) -> Tensor:
    """Softmax of `(batch, n, m)` scores, overwritten; lengths are `(batch,)` or `(batch, n)`."""
    if valid_lens is None:
        return torch.softmax(scores, dim=-1)
    batch, num_queries, num_keys = scores.shape
    if valid_lens.dim() == 1:
        lens = torch.repeat_interleave(valid_lens, num_queries)
    else:
        lens = valid_lens.reshape(-1)
    rows = scores.reshape(-1, num_keys)  # a view: what was given is overwritten, as published
    positions = torch.arange(num_keys, dtype=torch.float32, device=scores.device)
    rows[~(positions[None, :] < lens[:, None])] = FILL
    return torch.softmax(rows.reshape(batch, num_queries, num_keys), dim=-1)


class AdditiveAttention(nn.Module):
    """w_v . tanh(W_q q + W_k k), with all features of all pairs in one tensor."""

    def __init__(self, query_size: int, key_size: int, num_hiddens: int):
        """Makes three layers without bias, named as the course names them."""
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)

    def forward(self, queries, keys, values, valid_lens=None) -> Tensor:
        """Returns `(batch, n, v)`."""
        queries, keys = self.W_q(queries), self.W_k(keys)
        features = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))  # (batch, n, m, H)
        scores = self.w_v(features).squeeze(-1)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return torch.bmm(self.attention_weights, values)


def dot_product_attention(queries, keys, values, valid_lens=None) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V for three axes."""
    scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1])
    return torch.bmm(masked_softmax(scores, valid_lens), values)


class MultiHeadAttention(nn.Module):
    """Heads moved into the batch by copies, then one batched attention."""

    def __init__(self, embed_dim: int, num_heads: int):
        """Makes four projections without bias, named as the course names them."""
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, queries, keys, values, valid_lens=None) -> Tensor:
        """Returns `(batch, n, embed_dim)`."""
        batch, num_heads = len(queries), self.num_heads
        q, k, v = (
            layer(x).reshape(batch, x.shape[1], num_heads, -1).permute(0, 2, 1, 3).flatten(0, 1)
            for layer, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, num_heads, dim=0)
        heads = dot_product_attention(q, k, v, valid_lens)  # (batch * num_heads, n, head_dim)
        heads = heads.reshape(batch, num_heads, *heads.shape[1:]).permute(0, 2, 1, 3)
        return self.W_o(heads.reshape(*heads.shape[:2], -1))


KERNELS = {
    "gaussian": lambda u: torch.exp(-(u**2) / 2),
    "boxcar": lambda u: (u.abs() < 1).to(u.dtype),
    "epanechnikov": lambda u: torch.clamp(1 - u**2, min=0),
}


def kernel_regression(queries, keys, values, bandwidth: float, kernel: str) -> Tensor:
    """Nadaraya-Watson for numbers: `(n,)` places, `(m,)` places and values; returns `(n,)`."""
    distances = (queries[:, None] - keys[None, :]) / bandwidth  # (n, m)
    weights = KERNELS[kernel](distances)
    return (weights / weights.sum(dim=1, keepdim=True)) @ values
