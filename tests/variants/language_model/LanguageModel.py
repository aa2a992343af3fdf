"""Answers to `LanguageModel`."""

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Block(nn.Module):
    def __init__(self, attention, d, hidden, **kw):
        super().__init__()
        self.attention = attention
        self.norm_1 = nn.LayerNorm(d, **kw)
        if hidden > 0:
            self.norm_2 = nn.LayerNorm(d, **kw)
            layers = nn.Linear(d, hidden, **kw), nn.GELU(), nn.Linear(hidden, d, **kw)
            self.feed_forward = nn.Sequential(*layers)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        if hasattr(self, "feed_forward"):
            x = x + self.feed_forward(self.norm_2(x))
        return x


@right
class ListOfBlocks(nn.Module):
    def __init__(self, num_tokens, attentions, positions, hidden_dim=0, **kw):
        super().__init__()
        d = positions.size(1)
        self.context_length = positions.size(0)
        self.register_buffer("positions", positions.to(**kw), persistent=False)
        self.tokens = nn.Embedding(num_tokens, d, **kw)
        self.blocks = nn.ModuleList([Block(a, d, hidden_dim, **kw) for a in attentions])
        self.norm = nn.LayerNorm(d, **kw)
        self.to_logits = nn.Linear(d, num_tokens, **kw)

    def forward(self, tokens):
        n = tokens.shape[1]
        if n > self.context_length:
            raise ValueError(f"{n} tokens are too many")
        x = self.tokens(tokens) + self.positions[:n]
        for block in self.blocks:
            x = block(x)
        return self.to_logits(self.norm(x))


@right
class Functional(ListOfBlocks):
    """The same by functions; the positions are looked up."""

    def forward(self, tokens):
        if tokens.shape[-1] > len(self.positions):
            raise ValueError("too long")
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.embedding(tokens, self.tokens.weight) + F.embedding(places, self.positions)[None]
        for block in self.blocks:
            x = x + block.attention(F.layer_norm(x, x.shape[-1:], *block.norm_1.parameters()))
            if "feed_forward" in dict(block.named_children()):
                up, _, down = block.feed_forward
                hidden = F.gelu(F.linear(block.norm_2(x), up.weight, up.bias))
                x = x + F.linear(hidden, down.weight, down.bias)
        x = F.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)
        return x @ self.to_logits.weight.T + self.to_logits.bias


@right
class BlocksInOne(nn.Module):
    """Blocks are plain modules with attributes; the feed-forward network may be None."""

    def __init__(self, num_tokens, attentions, positions, hidden_dim=0, *, device=None, dtype=None):
        super().__init__()
        d = positions.shape[1]
        self.tokens = nn.Embedding(num_tokens, d)
        self.register_buffer("positions", positions.clone(), persistent=False)
        self.blocks = nn.ModuleList()
        for _ in attentions:
            block = nn.Module()
            block.attention, block.feed_forward = None, None
            block.norm_1 = nn.LayerNorm(d)
            if hidden_dim:
                block.norm_2 = nn.LayerNorm(d)
                block.feed_forward = nn.Sequential(
                    nn.Linear(d, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, d)
                )
            self.blocks.append(block)
        self.norm = nn.LayerNorm(d)
        self.to_logits = nn.Linear(d, num_tokens)
        self.to(device=device, dtype=dtype)
        for block, attention in zip(self.blocks, attentions, strict=True):
            block.attention = attention

    @property
    def context_length(self):
        return self.positions.shape[0]

    def forward(self, tokens):
        if tokens.shape[1] > self.context_length:
            raise ValueError(f"at most {self.context_length}")
        x = self.tokens(tokens)
        x = x + self.positions[: x.shape[1]].expand_as(x)
        for block in self.blocks:
            x = x + block.attention(block.norm_1(x))
            if block.feed_forward is not None:
                x = x + block.feed_forward(block.norm_2(x))
        return self.to_logits(self.norm(x))


class Almost(ListOfBlocks):
    """A right model in steps; what follows changes one of them."""

    def __init__(self, num_tokens, attentions, positions, hidden_dim=0, **kw):
        super().__init__(num_tokens, attentions, positions, hidden_dim, **kw)
        self.change(num_tokens, attentions, positions, hidden_dim)

    def change(self, num_tokens, attentions, positions, hidden_dim):
        """Replace some parts."""

    def forward(self, tokens):
        self.refuse(tokens)
        x = self.place(self.tokens(tokens), tokens)
        for block in self.blocks:
            x = self.attend(x, block)
            if hasattr(block, "feed_forward"):
                x = self.think(x, block)
        return self.finish(x)

    def refuse(self, tokens):
        if tokens.shape[1] > self.context_length:
            raise ValueError("too long")

    def place(self, x, tokens):
        return x + self.positions[: tokens.shape[1]]

    def attend(self, x, block):
        return x + block.attention(block.norm_1(x))

    def think(self, x, block):
        return x + block.feed_forward(block.norm_2(x))

    def finish(self, x):
        return self.to_logits(self.norm(x))


def gelu_replaced(activation):
    def change(self, num_tokens, attentions, positions, hidden_dim):
        for block in self.blocks:
            if hidden_dim:
                block.feed_forward[1] = activation

    return change


but = wrong_in(Almost)
CopiedLine = but(think=lambda self, x, block: x + block.feed_forward(block.norm_1(x)))
NoPositions = but(place=lambda self, x, tokens: x)
PositionsAfterTheNorm = but(
    place=lambda self, x, tokens: x,
    finish=lambda self, x: self.to_logits(self.norm(x) + self.positions[: x.shape[1]]),
)
FromPositionOne = but(
    place=lambda self, x, tokens: x + self.positions.roll(-1, 0)[: tokens.shape[1]]
)
NoActivation = but(change=gelu_replaced(nn.Identity()))
WithDropout = but(change=gelu_replaced(nn.Sequential(nn.GELU(), nn.Dropout(0.2))))
Probabilities = but(
    "softmax_of_the_result", finish=lambda self, x: self.to_logits(self.norm(x)).softmax(dim=-1)
)
LastPositionAlone = but(finish=lambda self, x: self.to_logits(self.norm(x[:, -1])))
KeepsTheFirstPositions = but(
    place=lambda self, x, tokens: (
        x + vars(self).setdefault("kept", self.positions[: tokens.shape[1]])
    )
)
FirstBlockAlone = but(finish=lambda self, x: self.to_logits(self.norm(self.blocks[0](x))))
AnyLength = but("other_error", refuse=lambda self, tokens: tokens.clamp(max=self.context_length))


@wrong("not_as_requested")
class PositionsLeftBehind(Almost):
    def change(self, num_tokens, attentions, positions, hidden_dim):
        del self.positions
        self.positions = positions


@wrong("not_as_requested")
class LogitsOnTheCpu(ListOfBlocks):
    """`device=` and `dtype=` do not reach the last layer."""

    def __init__(self, num_tokens, attentions, positions, hidden_dim=0, **kw):
        super().__init__(num_tokens, attentions, positions, hidden_dim, **kw)
        self.to_logits = nn.Linear(positions.shape[1], num_tokens)


@wrong("not_as_requested")
class AttentionConverted(ListOfBlocks):
    """Apply `device=` and `dtype=` to the given attention modules, too."""

    def __init__(self, *args, device=None, dtype=None, **kw):
        super().__init__(*args, **kw)
        self.to(device=device, dtype=dtype)


@faulty("post-norm", "no last norm", "last positions")
def in_several_ways(faults):
    class Model(Almost):
        def place(self, x, tokens):
            n = tokens.shape[1]
            return x + (self.positions[-n:] if "last positions" in faults else self.positions[:n])

        def attend(self, x, block):
            if "post-norm" in faults:
                return block.norm_1(x + block.attention(x))
            return super().attend(x, block)

        def finish(self, x):
            return self.to_logits(x if "no last norm" in faults else self.norm(x))

    return Model
