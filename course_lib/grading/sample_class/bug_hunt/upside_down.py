"""keys_permutation_invariant: the keys are only reversed."""

import torch


# %% keys_permutation_invariant
def keys_permutation_invariant(module, queries, keys, values):
    outputs = module(queries, keys, values)
    reversed_ones = module(queries, keys.flip(1), values.flip(1))
    return torch.allclose(outputs, reversed_ones, atol=1e-5)
