"""positional_encoding: sines in the first half, cosines in the second; shift_matrix for that."""

import torch


# %% positional_encoding
def positional_encoding(num_positions, embed_dim, *, device=None, dtype=None):
    positions = torch.arange(num_positions).unsqueeze(1)
    rates = 10000 ** (torch.arange(0, embed_dim, 2) / embed_dim)
    angles = positions / rates
    encoding = torch.cat([angles.sin(), angles.cos()[:, : embed_dim // 2]], dim=1)
    return encoding.to(device=device, dtype=dtype)


# %% shift_matrix
def shift_matrix(offset, embed_dim, *, device=None, dtype=None):
    angles = offset / 10000 ** (torch.arange(0, embed_dim, 2) / embed_dim)
    cosines, sines = angles.cos().diag(), angles.sin().diag()
    rows = [torch.cat([cosines, sines], dim=1), torch.cat([-sines, cosines], dim=1)]
    return torch.cat(rows).to(device=device, dtype=dtype)
