"""Everything right, written in other ways than the course does."""

import numpy as np
import torch


# %% stable_softmax
def stable_softmax(scores, axis=-1):
    top = np.max(scores, axis=axis, keepdims=True)
    log_total = top + np.log(np.sum(np.exp(scores - top), axis=axis, keepdims=True))
    return np.exp(scores - log_total)


# %% length_mask
def length_mask(valid_lens, max_len):
    shape = (*valid_lens.shape, max_len)
    ones = torch.ones(shape, dtype=torch.long, device=valid_lens.device)
    return ones.cumsum(dim=-1) <= valid_lens[..., None]


# %% causal_mask
def causal_mask(num_queries, num_keys=None):
    num_keys = num_queries if num_keys is None else num_keys
    rows = torch.arange(num_queries)[:, None]
    columns = torch.arange(num_keys)[None, :]
    return columns - rows <= num_keys - num_queries


# %% combine_masks
def combine_masks(*masks):
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    result = given[0].clone()
    for mask in given[1:]:
        result = torch.logical_and(result, mask)
    return result


# %% additive_mask
def additive_mask(mask, dtype):
    return torch.log(mask.to(dtype))


# %% masked_softmax
def allowed_keys(scores, valid_lens, mask):
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        real = length_mask(valid_lens, scores.shape[-1])
        if valid_lens.dim() == 1:
            real = real[:, None, :]
        while real.dim() < scores.dim():
            real = real.unsqueeze(1)
        allowed = allowed & real
    return allowed if mask is None else allowed & mask


def masked_softmax(scores, valid_lens=None, mask=None):
    allowed = allowed_keys(scores, valid_lens, mask)
    nobody = ~allowed.any(dim=-1, keepdim=True)
    filled = torch.where(allowed, scores, torch.full_like(scores, float("-inf")))
    top = torch.where(nobody, torch.zeros_like(scores[..., :1]), filled.amax(-1, keepdim=True))
    weights = torch.exp(torch.where(allowed, scores - top.detach(), torch.zeros_like(scores)))
    weights = weights * allowed
    return weights / (weights.sum(dim=-1, keepdim=True) + nobody)


# %% [markdown] empty_row_choice
# The query gets the mean of all the values. I would raise an error, because a row without keys
# nearly always means that the lengths are wrong.
