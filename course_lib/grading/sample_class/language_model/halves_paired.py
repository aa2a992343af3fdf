"""rotary_embedding: feature i is paired with feature i + d / 2, as in many checkpoints."""


# %% rotary_embedding
def rotary_embedding(x, offset=0):
    n, d = x.shape[-2:]
    if d % 2:
        raise ValueError(f"{d} features cannot be paired")
    rates = 10000.0 ** (-torch.arange(0, d, 2, device=x.device) / d)
    angles = torch.outer(torch.arange(offset, offset + n, device=x.device), rates)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
