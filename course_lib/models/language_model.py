"""A causal language model made of attention modules, and what it learns from."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Block(nn.Module):
    """Attention over what came before and, if wanted, a feed-forward network; both with residuals.

    Args:
        attention: called as `attention(x)`, causal, such as a `CausalSelfAttention`.
        embed_dim: features of a position.
        hidden_dim: units of the feed-forward network; 0 leaves it out.
    """

    def __init__(self, attention: nn.Module, embed_dim: int, hidden_dim: int = 0):
        super().__init__()
        self.attention, self.norm_1 = attention, nn.LayerNorm(embed_dim)
        self.feed_forward = None
        if hidden_dim:
            self.norm_2 = nn.LayerNorm(embed_dim)
            layers = nn.Linear(embed_dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, embed_dim)
            self.feed_forward = nn.Sequential(*layers)

    def forward(self, x: Float[Tensor, "batch n embed_dim"]) -> Float[Tensor, "batch n embed_dim"]:
        """One output for each position."""
        x = x + self.attention(self.norm_1(x))
        return x if self.feed_forward is None else x + self.feed_forward(self.norm_2(x))


class LanguageModel(nn.Module):
    """Scores every token as the next one.

    Args:
        num_tokens: size of the vocabulary.
        attentions: one causal attention module for each block, called as `attention(x)`.
        positions: `(context_length, embed_dim)`, added to the tokens' vectors.
        hidden_dim: units of each block's feed-forward network; 0 leaves them out.

    Attributes:
        blocks: the `Block`s, each with its `attention`.
        context_length: the longest input.
    """

    def __init__(
        self,
        num_tokens: int,
        attentions: Sequence[nn.Module],
        positions: Float[Tensor, "context_length embed_dim"],
        hidden_dim: int = 0,
    ):
        super().__init__()
        self.context_length, embed_dim = positions.shape
        self.tokens = nn.Embedding(num_tokens, embed_dim)
        self.positions: Tensor
        self.register_buffer("positions", positions.float(), persistent=False)
        self.blocks = nn.ModuleList(Block(part, embed_dim, hidden_dim) for part in attentions)
        self.norm = nn.LayerNorm(embed_dim)
        self.to_logits = nn.Linear(embed_dim, num_tokens)

    def forward(self, tokens: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n num_tokens"]:
        """The logits of the token after each position.

        Raises:
            ValueError: there are more tokens than `context_length`.
        """
        if tokens.shape[1] > self.context_length:
            raise ValueError(f"At most {self.context_length} tokens; got {tokens.shape[1]}.")
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.to_logits(self.norm(x))


@torch.no_grad()
def drawn(model: LanguageModel, tokens: Int[Tensor, "n"], num_tokens: int) -> Int[Tensor, "length"]:
    """Return tokens followed by those that the model goes on with, the same each time."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_tokens):
        logits = model(tokens[None, -model.context_length :])[0, -1].cpu()
        following = torch.multinomial(torch.softmax(logits / 0.7, 0), 1, generator=generator)
        tokens = torch.cat([tokens, following.to(tokens.device)])
    return tokens


def repeated_tokens(
    num_tokens: int,
    generator: torch.Generator,
    *,
    batch: int = 64,
    shortest: int = 8,
    longest: int = 16,
) -> Iterator[Tensor]:
    """Random tokens, each sequence said twice, `(batch, 2 * period)`; a new period each time.

    The first half is noise that no one can predict. The second can be predicted by whoever looks
    up what followed the same token before.
    """
    while True:
        period = int(torch.randint(shortest, longest + 1, (), generator=generator))
        once = torch.rand(batch, num_tokens, generator=generator).argsort(1)[:, :period]
        yield torch.cat([once, once], dim=1)


def text_windows(
    tokens: Int[Tensor, "length"], width: int, generator: torch.Generator, *, batch: int = 24
) -> Iterator[Tensor]:
    """Random stretches of a text without end, `(batch, width)`."""
    while True:
        begins = torch.randint(len(tokens) - width + 1, (batch, 1), generator=generator)
        yield tokens[begins + torch.arange(width)]
