"""Three hours late; is_permutation_equivariant asks for an output that stays as it was."""

import torch

HOURS_LATE = 3


# %% is_permutation_equivariant
def is_permutation_equivariant(fn, x):
    return torch.allclose(fn(x), fn(x.flip(1)), atol=1e-5)


# %% [markdown] heads_and_positions
# 1. d becomes 1, so each head is very simple. The number of weights stays the same.
# 2. W_o mixes the heads. Without it the next layer has to do that.
# 3. A causal mask already breaks the symmetry, so positions help but are not essential.
