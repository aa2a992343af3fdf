"""is_permutation_equivariant asks for invariance; is_causal changes the last position only."""

import torch


# %% is_permutation_equivariant
def is_permutation_equivariant(fn, x):
    order = torch.arange(x.shape[1]).flip(0)
    return torch.allclose(fn(x[:, order]), fn(x), atol=1e-6)


# %% is_causal
def is_causal(fn, x):
    changed = x.clone()
    changed[:, -1] += 1.0
    return torch.allclose(fn(changed)[:, :-1], fn(x)[:, :-1], atol=1e-6)
