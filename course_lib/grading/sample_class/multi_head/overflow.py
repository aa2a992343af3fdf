"""positional_encoding: sines in the first half, cosines in the second."""

import torch


# %% positional_encoding
def positional_encoding(num_positions, embed_dim):
    positions = torch.arange(num_positions).unsqueeze(1)
    rates = 10000 ** (torch.arange(0, embed_dim, 2) / embed_dim)
    angles = positions / rates
    return torch.cat([angles.sin(), angles.cos()[:, : embed_dim // 2]], dim=1)
