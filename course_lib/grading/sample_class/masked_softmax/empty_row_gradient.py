"""masked_softmax: the weights are right, the gradient of an empty row is not a number."""

import torch


# %% masked_softmax
def masked_softmax(scores, valid_lens=None, mask=None):
    if valid_lens is not None:
        real = length_mask(valid_lens, scores.shape[-1])
        num_queries = real.shape[1] if valid_lens.dim() == 2 else 1
        heads = [1] * (scores.dim() - 3)
        mask = combine_masks(real.reshape(len(real), *heads, num_queries, -1), mask)
    if mask is None:
        return torch.softmax(scores, dim=-1)
    weights = torch.softmax(scores + additive_mask(mask, scores.dtype), dim=-1)
    return torch.where(mask.any(dim=-1, keepdim=True), weights, torch.zeros_like(weights))
