"""Everything right, written in other ways than the course does."""

import math

import torch
from torch import nn


# %% split_heads
def split_heads(x, num_heads):
    if x.shape[-1] % num_heads:
        raise ValueError("the features cannot be shared out")
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


# %% merge_heads
def merge_heads(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


# %% MultiHeadAttention
class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            self.add_module(name, nn.Linear(embed_dim, embed_dim, bias=bias))
        self.drop = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        heads, kept = [], []
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        blocks = (x.chunk(self.num_heads, dim=-1) for x in (q, k, v))
        for i, (a, b, c) in enumerate(zip(*blocks, strict=True)):
            own = mask[:, i] if mask is not None and mask.dim() == 4 else mask
            weights = masked_softmax(a @ b.mT / math.sqrt(a.shape[-1]), valid_lens, own)
            kept.append(weights.detach())
            heads.append(self.drop(weights) @ c)
        self.attention_weights = torch.stack(kept, dim=1)
        return self.W_o(torch.cat(heads, dim=-1))


# %% load_into_torch
def load_into_torch(mha, reference):
    ours, theirs = mha.state_dict(), reference.state_dict()
    theirs["in_proj_weight"] = torch.cat([ours[f"W_{part}.weight"] for part in "qkv"])
    theirs["out_proj.weight"] = ours["W_o.weight"]
    if "in_proj_bias" in theirs:
        zeros = torch.zeros_like(theirs["out_proj.bias"])
        biases = [ours.get(f"W_{part}.bias", zeros) for part in "qkvo"]
        theirs["in_proj_bias"], theirs["out_proj.bias"] = torch.cat(biases[:3]), biases[3]
    reference.load_state_dict(theirs)


# %% is_permutation_equivariant
def is_permutation_equivariant(fn, x):
    y, n = fn(x), x.shape[1]
    for i in range(n - 1):
        order = [*range(i), i + 1, i, *range(i + 2, n)]
        if not torch.allclose(fn(x[:, order]), y[:, order], atol=1e-6):
            return False
    return True


# %% is_causal
def is_causal(fn, x):
    jacobian = torch.autograd.functional.jacobian(fn, x)
    reach = jacobian.abs().sum(dim=(0, 2, 3, 5))
    return bool((reach.triu(1) < 1e-9).all())


# %% positional_encoding
def positional_encoding(num_positions, embed_dim):
    table = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
    for p in range(num_positions):
        for c in range(embed_dim):
            angle = p / 10000 ** ((c - c % 2) / embed_dim)
            table[p, c] = math.cos(angle) if c % 2 else math.sin(angle)
    return table


# %% shift_matrix
def shift_matrix(offset, embed_dim):
    rates = 10000 ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)
    quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(offset * torch.block_diag(*(rate * quarter for rate in rates)))


# %% [markdown] heads_and_positions
# 1. Fine, if memory allows for 64 matrices of weights. 2. No: then heads cannot be mixed.
# 3. The test says it is not equivariant any more, so the mask is enough.
