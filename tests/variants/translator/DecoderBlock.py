"""Answers to `DecoderBlock`, as different hands would write them."""

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import CausalSelfAttention, MultiHeadAttention
from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Layers(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__()
        self.self_attention = CausalSelfAttention(embed_dim, num_heads, device=device, dtype=dtype)
        self.cross_attention = MultiHeadAttention(embed_dim, num_heads, device=device, dtype=dtype)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim, device=device, dtype=dtype),
        )
        self.norm_1 = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.norm_2 = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.norm_3 = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.change(embed_dim, num_heads, {"device": device, "dtype": dtype})

    def change(self, d, h, options):
        """Replace some layers."""


@right
class ThreeLines(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.self_attention(self.norm_1(y))
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@right
class LengthsAsAMask(Layers):
    def forward(self, y, memory, valid_lens=None):
        mask = None
        if valid_lens is not None:
            at = torch.arange(memory.shape[1], device=memory.device)
            mask = at < valid_lens[:, None, None]
            mask = mask.expand(-1, y.shape[1], -1)
        y = y + self.self_attention(self.norm_1(y))
        y = y + self.cross_attention(self.norm_2(y), memory, memory, mask=mask)
        return y + self.feed_forward(self.norm_3(y))


@right
class PositionByPosition(Layers):
    """The last output for each beginning of y, as in generation."""

    def forward(self, y, memory, valid_lens=None):
        outputs = [self.last(y[:, : i + 1], memory, valid_lens) for i in range(y.shape[1])]
        return torch.cat(outputs, dim=1)

    def last(self, y, memory, valid_lens):
        now = y[:, -1:] + self.self_attention(self.norm_1(y))[:, -1:]
        now = now + self.cross_attention(self.norm_2(now), memory, memory, valid_lens)
        return now + self.feed_forward(self.norm_3(now))


class OwnCausal(nn.Module):
    """Somebody's own, by torch."""

    is_causal = True

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None):
        q, k, v = self.W_qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.W_o(heads.transpose(1, 2).flatten(2))


@right
class WithTheirOwnAttention(ThreeLines):
    def change(self, d, h, options):
        self.self_attention = OwnCausal(d, h, **options)


@wrong("input_mutated")
class InPlace(Layers):
    def forward(self, y, memory, valid_lens=None):
        y += self.self_attention(self.norm_1(y))
        y += self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        y += self.feed_forward(self.norm_3(y))
        return y


class Almost(Layers):
    """A right block in steps; what follows changes one of them."""

    def forward(self, y, memory, valid_lens=None):
        y = self.read(y, self.norm_1(y), valid_lens)
        y = self.ask(y, self.norm_2(y), memory, valid_lens)
        return self.think(y, self.norm_3(y))

    def read(self, y, z, valid_lens):
        return y + self.self_attention(z)

    def ask(self, y, z, memory, valid_lens):
        return y + self.cross_attention(z, memory, memory, valid_lens)

    def think(self, y, z):
        return y + self.feed_forward(z)


def with_the_first_lengths(self, y, z, memory, valid_lens):
    lens = vars(self).setdefault("lens", valid_lens)
    return y + self.cross_attention(z, memory, memory, lens)


but = wrong_in(Almost)
KeepsTheFirstLengths = but(ask=with_the_first_lengths)
ReadsItself = but(
    ask=lambda self, y, z, memory, lens: y + self.cross_attention(z, z, z, lens),
)
SecondNormTwice = but(think=lambda self, y, z: y + self.feed_forward(self.norm_2(y)))


class NotCausal(OwnCausal):
    is_causal = False


@wrong()
class OneHeadEach(ThreeLines):
    def change(self, d, h, options):
        self.self_attention = CausalSelfAttention(d, 1, **options)
        self.cross_attention = MultiHeadAttention(d, 1, **options)


@wrong("missing_parameter")
class TwoNorms(ThreeLines):
    def change(self, d, h, options):
        self.norm_3 = self.norm_2


@faulty("post-norm", "lengths on the first", "not causal", "no relu")
def in_several_ways(faults):
    class Module(Layers):
        def forward(self, y, memory, valid_lens=None):
            on_first = "lengths on the first" in faults
            own, lens = (valid_lens, None) if on_first else (None, valid_lens)
            if "post-norm" in faults:
                y = self.norm_1(y + self.self_attention(y, own))
                y = self.norm_2(y + self.cross_attention(y, memory, memory, lens))
                return self.norm_3(y + self.feed_forward(y))
            y = y + self.self_attention(self.norm_1(y), own)
            y = y + self.cross_attention(self.norm_2(y), memory, memory, lens)
            return y + self.feed_forward(self.norm_3(y))

        def change(self, d, h, options):
            if "not causal" in faults:
                self.self_attention = NotCausal(d, h, **options)
            if "no relu" in faults:
                self.feed_forward[1] = nn.Identity()

    return Module
