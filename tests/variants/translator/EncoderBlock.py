"""Answers to `EncoderBlock`, as different hands would write them."""

import math
from collections import OrderedDict

import torch
from torch import nn

from course_lib.attention import MultiHeadAttention
from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Layers(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__()
        self.attention = MultiHeadAttention(embed_dim, num_heads, device=device, dtype=dtype)
        self.norm_1 = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.norm_2 = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim, device=device, dtype=dtype),
        )
        self.change(embed_dim, num_heads, {"device": device, "dtype": dtype})

    def change(self, d, h, options):
        """Replace some layers."""


@right
class OneStatementEach(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x = x + self.attention(z, z, z, valid_lens=valid_lens)
        x = x + self.feed_forward(self.norm_2(x))
        return x


@right
class NormsByHand(Layers):
    def normed(self, x, norm):
        mean = x.mean(dim=-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias

    def forward(self, x, valid_lens=None):
        z = self.normed(x, self.norm_1)
        h = x + self.attention(z, z, z, valid_lens)
        return h + self.feed_forward(self.normed(h, self.norm_2))


@right
class ItemByItem(Layers):
    """No padding inside: each item attends to its real positions alone."""

    def forward(self, x, valid_lens=None):
        lens = [x.shape[1]] * len(x) if valid_lens is None else valid_lens.tolist()
        found = []
        for item, n in zip(self.norm_1(x).split(1), lens, strict=True):
            real = item[:, :n]
            found.append(self.attention(item, real, real) if n else torch.zeros_like(item))
        h = torch.cat(found) + x
        return self.feed_forward(self.norm_2(h)) + h


class OwnAttention(nn.Module):
    """Somebody's own: by einsum, with lengths only."""

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None):
        super().__init__()
        self.h = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            layer = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)
            setattr(self, name, layer)

    def forward(self, queries, keys, values, valid_lens=None):
        projected = self.W_q(queries), self.W_k(keys), self.W_v(values)
        q, k, v = (x.unflatten(-1, (self.h, -1)) for x in projected)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
        if valid_lens is None:
            weights = scores.softmax(-1)
        else:
            real = torch.arange(keys.shape[1], device=keys.device) < valid_lens[:, None]
            scores = scores.masked_fill(~real[:, None, None], torch.finfo(scores.dtype).min)
            weights = scores.softmax(-1) * real[:, None, None]
        return self.W_o(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


@right
class WithTheirOwnAttention(OneStatementEach):
    def change(self, d, h, options):
        self.attention = OwnAttention(d, h, **options)


@right
class NamedLayers(OneStatementEach):
    def change(self, d, h, options):
        up, relu, down = self.feed_forward
        self.feed_forward = nn.Sequential(OrderedDict(up=up, relu=relu, down=down))


@wrong("parameters_renamed")
class OtherNames(Layers):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.mlp = self._modules.pop("feed_forward")

    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z, valid_lens)
        return h + self.mlp(self.norm_2(h))


@wrong()
class OtherOrderOfSizes(OneStatementEach):
    def __init__(self, embed_dim, hidden_dim, num_heads, **options):
        super().__init__(embed_dim, num_heads, hidden_dim, **options)


@wrong("input_mutated")
class InPlace(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x += self.attention(z, z, z, valid_lens)
        x += self.feed_forward(self.norm_2(x))
        return x


class Almost(Layers):
    """A right block in steps; what follows changes one of them."""

    def forward(self, x, valid_lens=None):
        h = self.attend(x, self.norm_1(x), valid_lens)
        return self.think(h, self.norm_2(h))

    def attend(self, x, z, valid_lens):
        return x + self.attention(z, z, z, valid_lens)

    def think(self, h, z):
        return h + self.feed_forward(z)


def with_the_first_lengths(self, x, z, valid_lens):
    return x + self.attention(z, z, z, vars(self).setdefault("lens", valid_lens))


but = wrong_in(Almost)
KeepsTheFirstLengths = but(attend=with_the_first_lengths)
ReluAfterBoth = but(change=lambda self, d, h, options: self.feed_forward.append(nn.ReLU()))
WithDropout = but(change=lambda self, d, h, options: self.feed_forward.append(nn.Dropout(0.1)))


@wrong("parameter_shape")
class FourTimesAsWide(OneStatementEach):
    def change(self, d, h, options):
        layers = nn.Linear(d, 4 * d, **options), nn.ReLU(), nn.Linear(4 * d, d, **options)
        self.feed_forward = nn.Sequential(*layers)


@faulty("post-norm", "lengths forgotten", "no relu")
def in_several_ways(faults):
    class Module(Layers):
        def forward(self, x, valid_lens=None):
            lens = None if "lengths forgotten" in faults else valid_lens
            if "post-norm" in faults:
                x = self.norm_1(x + self.attention(x, x, x, lens))
                return self.norm_2(x + self.feed_forward(x))
            z = self.norm_1(x)
            x = x + self.attention(z, z, z, lens)
            return x + self.feed_forward(self.norm_2(x))

        def change(self, d, h, options):
            if "no relu" in faults:
                self.feed_forward[1] = nn.Identity()

    return Module
