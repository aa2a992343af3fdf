"""length_mask: True where a key is padding."""

import torch


# %% length_mask
def length_mask(valid_lens, max_len):
    positions = torch.arange(max_len, device=valid_lens.device)
    return positions >= valid_lens.unsqueeze(-1)


# %% [markdown] empty_row_choice
# It attends to padding.
