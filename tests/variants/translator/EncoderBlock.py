"""Answers to `EncoderBlock`, as different hands would write them."""

import math
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import MultiHeadAttention
from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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


@right
class OneStatementEach(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x = x + self.attention(z, z, z, valid_lens=valid_lens)
        x = x + self.feed_forward(self.norm_2(x))
        return x


@right
class ByFunctions(Layers):
    """The norms by `F.layer_norm`, the network by `F.linear`, the layers made in another order."""

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        nn.Module.__init__(self)
        wide, narrow = (
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.Linear(hidden_dim, embed_dim, device=device, dtype=dtype),
        )
        self.feed_forward = nn.Sequential(wide, nn.ReLU(), narrow)
        self.norm_2, self.norm_1 = (
            nn.LayerNorm(embed_dim, device=device, dtype=dtype),
            nn.LayerNorm(embed_dim, device=device, dtype=dtype),
        )
        self.attention = MultiHeadAttention(
            embed_dim=embed_dim, num_heads=num_heads, device=device, dtype=dtype
        )

    def forward(self, x, valid_lens=None):
        z = F.layer_norm(x, x.shape[-1:], self.norm_1.weight, self.norm_1.bias)
        h = torch.add(x, self.attention(z, z, z, valid_lens))
        z = F.layer_norm(h, h.shape[-1:], self.norm_2.weight, self.norm_2.bias)
        first, second = self.feed_forward[0], self.feed_forward[2]
        hidden = F.linear(z, first.weight, first.bias).clamp(min=0)
        return torch.add(h, F.linear(hidden, second.weight, second.bias))


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
class HelperMethods(Layers):
    def attend(self, x, valid_lens):
        return self.attention(x, x, x, valid_lens)

    def add(self, x, part, norm):
        return x + part(norm(x))

    def forward(self, x, valid_lens=None):
        x = self.add(x, lambda z: self.attend(z, valid_lens), self.norm_1)
        return self.add(x, self.feed_forward, self.norm_2)


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
            setattr(
                self, name, nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)
            )

    def forward(self, queries, keys, values, valid_lens=None):
        q, k, v = (
            x.unflatten(-1, (self.h, -1))
            for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))
        )
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
        if valid_lens is not None:
            real = torch.arange(keys.shape[1]) < valid_lens[:, None]
            scores = scores.masked_fill(~real[:, None, None], torch.finfo(scores.dtype).min)
            weights = scores.softmax(-1) * real[:, None, None]
        else:
            weights = scores.softmax(-1)
        return self.W_o(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


@right
class WithTheirOwnAttention(Layers):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.attention = OwnAttention(embed_dim, num_heads, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None):
        residual = x
        x = self.norm_1(x)
        x = residual + self.attention(x, x, x, valid_lens)
        residual = x
        x = self.norm_2(x)
        return residual + self.feed_forward(x)


# wrong: norms and sums


@wrong("post_norm_everywhere")
class AsInTheFirstPaper(Layers):
    def forward(self, x, valid_lens=None):
        x = self.norm_1(x + self.attention(x, x, x, valid_lens))
        return self.norm_2(x + self.feed_forward(x))


@wrong("residual_of_the_normed_everywhere")
class OverwritesX(Layers):
    def forward(self, x, valid_lens=None):
        x = self.norm_1(x)
        x = x + self.attention(x, x, x, valid_lens)
        x = self.norm_2(x)
        return x + self.feed_forward(x)


@wrong("residual_of_the_normed_around_attention")
class OverwritesXOnce(Layers):
    def forward(self, x, valid_lens=None):
        x = self.norm_1(x)
        h = x + self.attention(x, x, x, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


@wrong("residual_of_the_normed_around_feed_forward_network")
class OverwritesH(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = self.norm_2(x + self.attention(z, z, z, valid_lens))
        return h + self.feed_forward(h)


@wrong("no_residual_around_attention")
class AttentionOnly(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = self.attention(z, z, z, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


@wrong("no_residual_around_feed_forward_network")
class NetworkOnly(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        return self.feed_forward(self.norm_2(x + self.attention(z, z, z, valid_lens)))


@wrong("no_residual_around_attention+no_residual_around_feed_forward_network")
class NothingAdded(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        return self.feed_forward(self.norm_2(self.attention(z, z, z, valid_lens)))


@wrong("norm_of_the_result_everywhere")
class NormsTheResults(Layers):
    def forward(self, x, valid_lens=None):
        x = x + self.norm_1(self.attention(x, x, x, valid_lens))
        return x + self.norm_2(self.feed_forward(x))


@wrong("normed_twice_everywhere")
class BothSides(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x = self.norm_1(x + self.attention(z, z, z, valid_lens))
        return self.norm_2(x + self.feed_forward(self.norm_2(x)))


@wrong("not_normed_around_attention")
class FirstNormForgotten(Layers):
    def forward(self, x, valid_lens=None):
        h = x + self.attention(x, x, x, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


@wrong("not_normed_around_feed_forward_network")
class SecondNormForgotten(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x = x + self.attention(z, z, z, valid_lens)
        return x + self.feed_forward(x)


@wrong("post_norm_around_feed_forward_network")
class PostNormAtTheEnd(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x = x + self.attention(z, z, z, valid_lens)
        return self.norm_2(x + self.feed_forward(x))


@wrong("one_norm_for_both")
class CopiedLine(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x = x + self.attention(z, z, z, valid_lens)
        z = self.norm_1(x)
        return x + self.feed_forward(z)


@wrong("norms_exchanged")
class SecondFirst(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_2(x)
        x = x + self.attention(z, z, z, valid_lens)
        return x + self.feed_forward(self.norm_1(x))


@wrong("only_queries_normed")
class NormsTheQueries(Layers):
    def forward(self, x, valid_lens=None):
        h = x + self.attention(self.norm_1(x), x, x, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


@wrong("only_queries_normed")
class ValuesAsTheyAre(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, x, valid_lens)
        return h + self.feed_forward(self.norm_2(h))


@wrong("added_to_the_input")
class AddsX(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z, valid_lens)
        return x + self.feed_forward(self.norm_2(h))


@wrong("network_reads_the_input")
class SideBySide(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        return x + self.attention(z, z, z, valid_lens) + self.feed_forward(self.norm_2(x))


@wrong("input_added_again")
class AddsXTwice(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z, valid_lens)
        return x + h + self.feed_forward(self.norm_2(h))


@wrong("normed_at_the_end")
class NormAtTheEnd(OneStatementEach):
    def forward(self, x, valid_lens=None):
        return self.norm_2(super().forward(x, valid_lens))


@wrong("feed_forward_network_skipped")
class NoNetwork(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        return x + self.attention(z, z, z, valid_lens)


@wrong("normed_again_after_attention")
class NormsTwiceAtFirst(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = self.norm_1(x + self.attention(z, z, z, valid_lens))
        return h + self.feed_forward(self.norm_2(h))


@wrong("relu_before")
class ReluTooEarly(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z, valid_lens)
        wide, _, narrow = self.feed_forward
        return h + narrow(wide(F.relu(self.norm_2(h))))


@wrong("network_reads_what_was_found")
class NetworkReadsTheResult(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        found = self.attention(z, z, z, valid_lens)
        return x + found + self.feed_forward(self.norm_2(found))


@wrong("items_attended")
class BatchSecond(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x).transpose(0, 1)
        h = x + self.attention(z, z, z).transpose(0, 1)
        return h + self.feed_forward(self.norm_2(h))


@wrong("network_first")
class NetworkFirst(Layers):
    def forward(self, x, valid_lens=None):
        x = x + self.feed_forward(self.norm_1(x))
        z = self.norm_2(x)
        return x + self.attention(z, z, z, valid_lens)


@wrong("post_norm_everywhere+lengths_ignored")
class FirstPaperWithoutLengths(Layers):
    def forward(self, x, valid_lens=None):
        x = self.norm_1(self.attention(x, x, x) + x)
        return self.norm_2(self.feed_forward(x) + x)


@wrong("residual_of_the_normed_everywhere+one_norm_for_both")
class OneNormOverwritesX(Layers):
    def forward(self, x, valid_lens=None):
        x = self.norm_1(x)
        x = x + self.attention(x, x, x, valid_lens)
        x = self.norm_1(x)
        return x + self.feed_forward(x)


@wrong("outputs_are_normed")
class FourSlips(Layers):
    def forward(self, x, valid_lens=None):
        x = self.norm_2(self.attention(x, x, x))
        thought = self.feed_forward[2](torch.sigmoid(self.feed_forward[0](x)))
        return self.norm_1(thought)


# wrong: attention and lengths


@wrong("lengths_ignored")
class LengthsForgotten(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z)
        return h + self.feed_forward(self.norm_2(h))


@wrong("looks_back_only")
class Causal(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        past = torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
        h = x + self.attention(z, z, z, valid_lens, past)
        return h + self.feed_forward(self.norm_2(h))


@wrong("pads_zeroed")
class PadsSetToZero(OneStatementEach):
    def forward(self, x, valid_lens=None):
        out = super().forward(x, valid_lens)
        if valid_lens is not None:
            pads = torch.arange(x.shape[1]) >= valid_lens.unsqueeze(1)
            out = out.masked_fill(pads.unsqueeze(2), 0.0)
        return out


def real(x, valid_lens):
    if valid_lens is None:
        return torch.ones(x.shape[:2], dtype=torch.bool)
    return torch.arange(x.shape[1]) < valid_lens[:, None]


@wrong("pads_zeroed_before")
class PadsZeroedFirst(Layers):
    def forward(self, x, valid_lens=None):
        x = x * real(x, valid_lens).unsqueeze(-1)
        z = self.norm_1(x)
        h = x + self.attention(z, z, z)
        return h + self.feed_forward(self.norm_2(h))


@wrong("queries_masked")
class MasksBothAxes(Layers):
    def forward(self, x, valid_lens=None):
        z, ok = self.norm_1(x), real(x, valid_lens)
        h = x + self.attention(z, z, z, mask=ok[:, :, None] & ok[:, None, :])
        return h + self.feed_forward(self.norm_2(h))


@wrong("pads_attended")
class TorchsPolarity(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        mask = None
        if valid_lens is not None:
            mask = ~real(x, valid_lens)[:, None].expand(-1, x.shape[1], -1)
        h = x + self.attention(z, z, z, mask=mask)
        return h + self.feed_forward(self.norm_2(h))


@wrong()
class LengthsAsMask(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        h = x + self.attention(z, z, z, mask=valid_lens)
        return h + self.feed_forward(self.norm_2(h))


@wrong("one_head")
class NumHeadsForgotten(OneStatementEach):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.attention = MultiHeadAttention(embed_dim, 1, device=device, dtype=dtype)


# wrong: layers


class Almost(OneStatementEach):
    """A right block whose network is made by the step `network`."""

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        network = nn.Sequential(*self.network(embed_dim, hidden_dim))
        self.feed_forward = network.to(device=device, dtype=dtype)

    def network(self, d, h):
        return nn.Linear(d, h), nn.ReLU(), nn.Linear(h, d)


but = wrong_in(Almost)
NoActivation = but("no_relu", network=lambda self, d, h: (nn.Linear(d, h), nn.Linear(h, d)))
IdentityBetween = but(
    "no_relu", network=lambda self, d, h: (nn.Linear(d, h), nn.Identity(), nn.Linear(h, d))
)
ReluAfterBoth = but(
    "relu_at_the_end",
    network=lambda self, d, h: (nn.Linear(d, h), nn.ReLU(), nn.Linear(h, d), nn.ReLU()),
)
Gelu = but(
    "another_activation",
    network=lambda self, d, h: (nn.Linear(d, h), nn.GELU(), nn.Linear(h, d)),
)
FourTimesAsWide = but(
    "parameter_shape",
    network=lambda self, d, h: (nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d)),
)
WithDropout = but(
    network=lambda self, d, h: (nn.Linear(d, h), nn.ReLU(), nn.Linear(h, d), nn.Dropout(0.1))
)


@wrong()
class OtherOrderOfSizes(OneStatementEach):
    def __init__(self, embed_dim, hidden_dim, num_heads, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)


@wrong("extra_parameters")
class BiasInAttention(OneStatementEach):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.attention = MultiHeadAttention(
            embed_dim, num_heads, bias=True, device=device, dtype=dtype
        )


@wrong("parameters_renamed")
class OtherNames(nn.Module):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__()
        self.self_attention = MultiHeadAttention(embed_dim, num_heads, device=device, dtype=dtype)
        self.ln_1, self.ln_2 = (
            nn.LayerNorm(embed_dim, device=device, dtype=dtype),
            nn.LayerNorm(embed_dim, device=device, dtype=dtype),
        )
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim, device=device, dtype=dtype),
        )

    def forward(self, x, valid_lens=None):
        z = self.ln_1(x)
        h = x + self.self_attention(z, z, z, valid_lens)
        return h + self.mlp(self.ln_2(h))


@wrong("module_not_begun")
class NotBegun(OneStatementEach):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        self.attention = MultiHeadAttention(embed_dim, num_heads, device=device, dtype=dtype)
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)


@wrong("input_mutated")
class InPlace(Layers):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        x += self.attention(z, z, z, valid_lens)
        x += self.feed_forward(self.norm_2(x))
        return x


@wrong("another_eps")
class EpsOfAnotherLibrary(OneStatementEach):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.norm_1 = nn.LayerNorm(embed_dim, eps=1e-6, device=device, dtype=dtype)
        self.norm_2 = nn.LayerNorm(embed_dim, eps=1e-6, device=device, dtype=dtype)


@wrong("sample_deviation")
class SampleDeviation(NormsByHand):
    def normed(self, x, norm):
        z = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        return z * norm.weight + norm.bias


@wrong("norms_without_weights")
class NormsWithoutWeights(NormsByHand):
    def normed(self, x, norm):
        return F.layer_norm(x, x.shape[-1:])


@wrong("batch_norm")
class BatchNorms(Layers):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.norm_1, self.norm_2 = (
            nn.BatchNorm1d(embed_dim, device=device, dtype=dtype),
            nn.BatchNorm1d(embed_dim, device=device, dtype=dtype),
        )

    def forward(self, x, valid_lens=None):
        z = self.norm_1(x.transpose(1, 2)).transpose(1, 2)
        h = x + self.attention(z, z, z, valid_lens)
        return h + self.feed_forward(self.norm_2(h.transpose(1, 2)).transpose(1, 2))


@wrong("norm_over_positions")
class OverAllFeatures(NormsByHand):
    def normed(self, x, norm):
        z = F.layer_norm(x, x.shape[1:])
        return z * norm.weight + norm.bias


@faulty("post-norm", "lengths forgotten", "no relu", "one norm")
def in_several_ways(faults):
    class Module(Layers):
        def network(self, x):
            first, relu, second = self.feed_forward
            hidden = first(x)
            return second(hidden if "no relu" in faults else relu(hidden))

        def attend(self, x, valid_lens):
            return self.attention(x, x, x, None if "lengths forgotten" in faults else valid_lens)

        def forward(self, x, valid_lens=None):
            other = self.norm_1 if "one norm" in faults else self.norm_2
            if "post-norm" in faults:
                x = self.norm_1(x + self.attend(x, valid_lens))
                return other(x + self.network(x))
            x = x + self.attend(self.norm_1(x), valid_lens)
            return x + self.network(other(x))

    return Module


@faulty("no residual at first", "no residual at last", "first norm forgotten", "last too")
def around_the_parts(faults):
    class Module(Layers):
        def forward(self, x, valid_lens=None):
            z = x if "first norm forgotten" in faults else self.norm_1(x)
            found = self.attention(z, z, z, valid_lens)
            h = found if "no residual at first" in faults else x + found
            thought = self.feed_forward(h if "last too" in faults else self.norm_2(h))
            return thought if "no residual at last" in faults else h + thought

    return Module


@right
class NamedLayers(OneStatementEach):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        up, relu, down = self.feed_forward
        self.feed_forward = nn.Sequential(OrderedDict(up=up, relu=relu, down=down))
