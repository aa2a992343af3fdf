"""Lesson 10: what a language model learns from, how it writes, and what its heads do."""

# An attribute of a module, such as `context_length`, is a tensor or a module in torch's stubs.
# Options in a dict are of any type to it, too.
# pyright: reportOperatorIssue=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportArgumentType=false
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.attention._checked import checked


@checked
def next_token_loss(
    logits: Float[Tensor, "batch num_positions vocabulary"],
    tokens: Int[Tensor, "batch num_positions"],
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of each token given those before it.

    Position i predicts token i + 1. Token 0 is never predicted, and the last position has no
    target.

    Args:
        logits: a score for each token of the vocabulary at each position, of any size.
        tokens: what the model read, at least two positions, int64 or int32.

    Returns:
        The mean over all items and over all positions but the last.
    """
    predicted = logits[:, :-1].flatten(0, 1)  # (batch * (num_positions - 1), vocabulary)
    return F.cross_entropy(predicted, tokens[:, 1:].flatten().long())


class LanguageModel(nn.Module):
    """A causal model that predicts the next token after each position.

    In each block x becomes x + attention(norm_1(x)) and then, with a feed-forward network,
    x + feed_forward(norm_2(x)). A last norm and a linear layer turn x into logits.

    Args:
        num_tokens: size of the vocabulary.
        attentions: one causal attention module for each block, called as `attention(x)`.
        positions: `(context_length, embed_dim)`, added to the vectors of the tokens.
        hidden_dim: units of each block's feed-forward network; 0 leaves the networks out.
        device, dtype: device and dtype of the positions and of the layers made here, as in
            `torch.nn`. The attention modules stay as they are.

    Attributes:
        context_length: the longest text that the model reads.
    """

    def __init__(
        self,
        num_tokens: int,
        attentions: Sequence[nn.Module],
        positions: Float[Tensor, "context_length embed_dim"],
        hidden_dim: int = 0,
        *,
        device=None,
        dtype=None,
    ):
        """Create `tokens`, `positions`, `blocks`, `norm` and `to_logits`."""
        super().__init__()
        factory_kwargs = {"device": device, "dtype": dtype}
        self.context_length, embed_dim = positions.shape
        self.hidden_dim = hidden_dim
        self.tokens = nn.Embedding(num_tokens, embed_dim, **factory_kwargs)
        self.register_buffer("positions", positions.to(**factory_kwargs), persistent=False)
        self.blocks = nn.ModuleList()
        for attention in attentions:
            norm_1 = nn.LayerNorm(embed_dim, **factory_kwargs)
            block = nn.ModuleDict({"attention": attention, "norm_1": norm_1})
            if hidden_dim:
                block["norm_2"] = nn.LayerNorm(embed_dim, **factory_kwargs)
                block["feed_forward"] = nn.Sequential(
                    nn.Linear(embed_dim, hidden_dim, **factory_kwargs),
                    nn.GELU(),
                    nn.Linear(hidden_dim, embed_dim, **factory_kwargs),
                )
            self.blocks.append(block)
        self.norm = nn.LayerNorm(embed_dim, **factory_kwargs)
        self.to_logits = nn.Linear(embed_dim, num_tokens, **factory_kwargs)

    @checked
    def forward(
        self, tokens: Int[Tensor, "batch num_positions"]
    ) -> Float[Tensor, "batch num_positions num_tokens"]:
        """Return, at each position, a score for every token as the next one.

        Args:
            tokens: the texts.

        Raises:
            ValueError: a text is longer than `context_length`.
        """
        num_positions = tokens.shape[1]
        if num_positions > self.context_length:
            raise ValueError(f"At most {self.context_length} tokens; got {num_positions}.")
        x = self.tokens(tokens) + self.positions[:num_positions]  # (batch, num_positions, D)
        for block in self.blocks:
            x = x + block.attention(block.norm_1(x))
            if self.hidden_dim:
                x = x + block.feed_forward(block.norm_2(x))
        return self.to_logits(self.norm(x))


@checked
def generate(
    model: nn.Module,
    prompt: Int[Tensor, "batch num_positions"],
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch num_tokens_in_all"]:
    """Continue each prompt token by token.

    Each new token is drawn from softmax(logits / temperature) at the last position and read in the
    next step. The model reads at most the last `model.context_length` tokens, in eval mode and
    without gradients. Its mode is restored afterwards.

    Args:
        model: called as `model(tokens)`, tokens `(batch, n)` with n at most
            `model.context_length`; returns logits `(batch, n, vocabulary)`.
        prompt: the beginning of each text, at least one token.
        num_tokens: how many tokens to add; 0 gives the prompt.
        temperature: below 1 makes likely tokens more likely, above 1 less likely; 0 always takes
            the most likely token.
        top_k: the number of most likely tokens to draw from; all tokens if None, or if there are
            fewer.
        generator: the source of random numbers; torch's global generator if None.

    Returns:
        Each prompt followed by its new tokens.
    """
    was_training = model.training
    model.eval()
    tokens = prompt
    with torch.no_grad():
        for _ in range(num_tokens):
            logits = model(tokens[:, -model.context_length :])[:, -1]  # (batch, vocabulary)
            if temperature == 0:
                new = logits.argmax(dim=-1, keepdim=True)
            else:
                vocabulary = logits.shape[-1]
                likeliest, candidates = logits.topk(min(top_k or vocabulary, vocabulary))
                weights = torch.softmax(likeliest / temperature, dim=-1)  # (batch, top_k)
                new = candidates.gather(1, torch.multinomial(weights, 1, generator=generator))
            tokens = torch.cat([tokens, new], dim=1)
    model.train(was_training)
    return tokens


@checked
def induction_score(
    attention_weights: Float[Tensor, "num_heads num_positions num_positions"],
    period: int | None = None,
) -> Float[Tensor, "num_heads"]:
    """Return how much each head attends to what followed the same token last time.

    Args:
        attention_weights: the weights on one text, `[head, position, key]`; rows sum to 1.
        period: the number of tokens after which the text repeats, at least 1; by default half of
            the number of positions, rounded down.

    Returns:
        For each head, the mean over positions i >= period of the weight on position
        i - period + 1; 0 if there is no such position.

    Source: Olsson et al. 2022, https://arxiv.org/abs/2209.11895
    """
    if period is None:
        period = attention_weights.shape[-1] // 2
    diagonal = attention_weights.diagonal(offset=1 - period, dim1=1, dim2=2)
    on_follower = diagonal[:, 1:]  # its first entry is that of position period - 1
    return on_follower.sum(dim=-1) / max(on_follower.shape[-1], 1)


@contextlib.contextmanager
def ablate_head(model: Any, layer: int, head: int) -> Iterator[None]:
    """Switch one head off inside a `with` block, where its output is 0.

    Nothing else about the model changes. The head is restored when the block ends. An error raised
    inside is not suppressed.

    Args:
        model: has `blocks`. One submodule of `model.blocks[layer]` has `num_heads` and `W_o`, the
            `nn.Linear` that reads the heads' outputs in equal blocks of features.
        layer: the index of the block, from 0.
        head: the index of the head, from 0.
    """
    part = next(m for m in model.blocks[layer].modules() if hasattr(m, "W_o"))
    head_dim = part.W_o.in_features // part.num_heads

    def switch_off(_, inputs) -> Tensor:
        outputs = inputs[0].clone()  # (..., num_heads * head_dim)
        outputs[..., head * head_dim : (head + 1) * head_dim] = 0.0
        return outputs

    hook = part.W_o.register_forward_pre_hook(switch_off)
    try:
        yield
    finally:
        hook.remove()
