"""Training data for lesson 10's language models, and a score of their heads."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def repeated_tokens(
    num_tokens: int,
    generator: torch.Generator,
    *,
    batch: int = 64,
    shortest: int = 8,
    longest: int = 16,
) -> Iterator[Tensor]:
    """Yield random tokens, each sequence repeated once, `(batch, 2 * period)`, with a new period.

    They are on the device of the generator.

    The tokens of a sequence differ. The first half cannot be predicted. In the second half, the
    next token is the one that followed the same token before.
    """
    while True:
        options: Any = {"generator": generator, "device": generator.device}
        period = int(torch.randint(shortest, longest + 1, (), **options))
        once = torch.rand(batch, num_tokens, **options).argsort(1)[:, :period]
        yield torch.cat([once, once], dim=1)


def text_windows(
    tokens: Int[Tensor, "length"], width: int, generator: torch.Generator, *, batch: int = 24
) -> Iterator[Tensor]:
    """Yield random stretches of a text, `(batch, width)`, without end, on the device of the text.

    The generator may belong to another device.
    """
    largest, device = len(tokens) - width, generator.device
    while True:
        begins = torch.randint(largest + 1, (batch, 1), generator=generator, device=device)
        yield tokens[begins.to(tokens.device) + torch.arange(width, device=tokens.device)]


def previous_token_score(
    attention_weights: Float[Tensor, "num_heads num_positions num_positions"],
) -> Float[Tensor, "num_heads"]:
    """Return for each head the mean weight of positions i >= 1 on position i - 1."""
    return attention_weights.diagonal(offset=-1, dim1=1, dim2=2).mean(dim=-1)
