"""Training data for lesson 10's language models, and a score of their heads."""

from collections.abc import Iterator

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

    The tokens of a sequence differ. The first half cannot be predicted. In the second half, the
    next token is the one that followed the same token before.
    """
    while True:
        period = int(torch.randint(shortest, longest + 1, (), generator=generator))
        once = torch.rand(batch, num_tokens, generator=generator).argsort(1)[:, :period]
        yield torch.cat([once, once], dim=1)


def text_windows(
    tokens: Int[Tensor, "length"], width: int, generator: torch.Generator, *, batch: int = 24
) -> Iterator[Tensor]:
    """Yield random stretches of a text, `(batch, width)`, without end."""
    while True:
        begins = torch.randint(len(tokens) - width + 1, (batch, 1), generator=generator)
        yield tokens[begins + torch.arange(width)]


def previous_token_score(
    attention_weights: Float[Tensor, "num_heads num_positions num_positions"],
) -> Float[Tensor, "num_heads"]:
    """Return for each head the mean weight of positions i >= 1 on position i - 1."""
    return attention_weights.diagonal(offset=-1, dim1=1, dim2=2).mean(dim=-1)
