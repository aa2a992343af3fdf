"""Answers to `DecoderBlock`, as different hands would write them."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import CausalSelfAttention, MultiHeadAttention
from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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


@right
class ThreeLines(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.self_attention(self.norm_1(y))
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@right
class StepByStep(Layers):
    def forward(self, y, memory, valid_lens=None):
        normed = self.norm_1(y)
        attended = self.self_attention(normed)
        a = attended + y
        queries = self.norm_2(a)
        read = self.cross_attention(
            queries=queries, keys=memory, values=memory, valid_lens=valid_lens
        )
        b = read + a
        hidden = self.feed_forward[0](self.norm_3(b))
        hidden = torch.where(hidden > 0, hidden, torch.zeros_like(hidden))
        return self.feed_forward[2](hidden) + b


@right
class ByFunctions(Layers):
    def normed(self, x, norm):
        return F.layer_norm(x, (x.shape[-1],), norm.weight, norm.bias, 1e-5)

    def forward(self, y, memory, valid_lens=None):
        y = torch.add(y, self.self_attention(self.normed(y, self.norm_1)))
        z = self.normed(y, self.norm_2)
        y = torch.add(y, self.cross_attention(z, memory, memory, valid_lens))
        return torch.add(y, self.feed_forward(self.normed(y, self.norm_3)))


@right
class LengthsAsAMask(Layers):
    def forward(self, y, memory, valid_lens=None):
        mask = None
        if valid_lens is not None:
            mask = torch.arange(memory.shape[1]) < valid_lens[:, None, None]
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


@right
class OneHelper(Layers):
    def forward(self, y, memory, valid_lens=None):
        def across(z):
            return self.cross_attention(z, memory, memory, valid_lens)

        parts = (
            (self.norm_1, self.self_attention),
            (self.norm_2, across),
            (self.norm_3, self.feed_forward),
        )
        for norm, part in parts:
            y = y + part(norm(y))
        return y


class OwnCausal(nn.Module):
    """Somebody's own, by torch."""

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x):
        q, k, v = self.W_qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.W_o(heads.transpose(1, 2).flatten(2))


@right
class WithTheirOwnAttention(ThreeLines):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.self_attention = OwnCausal(embed_dim, num_heads, device=device, dtype=dtype)


# wrong: the whole forward


@wrong("all_read_the_input")
class SideBySide(Layers):
    def forward(self, y, memory, valid_lens=None):
        read = self.self_attention(self.norm_1(y))
        found = self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + read + found + self.feed_forward(self.norm_3(y))


@wrong("post_norm_everywhere+lengths_ignored")
class FirstPaperWithoutLengths(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = self.norm_1(y + self.self_attention(y))
        y = self.norm_2(y + self.cross_attention(y, memory, memory))
        return self.norm_3(y + self.feed_forward(y))


@wrong("outputs_are_normed")
class FirstPaperWithOneNorm(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = self.norm_1(y + self.self_attention(y))
        y = self.norm_1(y + self.cross_attention(y, memory, memory, valid_lens))
        return self.norm_1(y + self.feed_forward[2](self.feed_forward[0](y)))


@wrong("no_residual_everywhere")
class NothingAdded(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = self.self_attention(self.norm_1(y))
        y = self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return self.feed_forward(self.norm_3(y))


@wrong("post_norm_everywhere")
class AsInTheFirstPaper(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = self.norm_1(y + self.self_attention(y))
        y = self.norm_2(y + self.cross_attention(y, memory, memory, valid_lens))
        return self.norm_3(y + self.feed_forward(y))


@wrong("residual_of_the_normed_everywhere")
class OverwritesY(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = self.norm_1(y)
        y = y + self.self_attention(y)
        y = self.norm_2(y)
        y = y + self.cross_attention(y, memory, memory, valid_lens)
        y = self.norm_3(y)
        return y + self.feed_forward(y)


@wrong("norm_of_the_result_everywhere")
class NormsTheResults(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.norm_1(self.self_attention(y))
        y = y + self.norm_2(self.cross_attention(y, memory, memory, valid_lens))
        return y + self.norm_3(self.feed_forward(y))


@wrong("normed_twice_everywhere")
class BothSides(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = self.norm_1(y + self.self_attention(self.norm_1(y)))
        y = self.norm_2(y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens))
        return self.norm_3(y + self.feed_forward(self.norm_3(y)))


@wrong("across_comes_first")
class AsksBeforeItReads(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.cross_attention(self.norm_1(y), memory, memory, valid_lens)
        y = y + self.self_attention(self.norm_2(y))
        return y + self.feed_forward(self.norm_3(y))


@wrong("added_to_the_input")
class AddsY(Layers):
    def forward(self, y, memory, valid_lens=None):
        a = y + self.self_attention(self.norm_1(y))
        b = a + self.cross_attention(self.norm_2(a), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(b))


@wrong("across_added_to_the_input")
class AddsYAcross(Layers):
    def forward(self, y, memory, valid_lens=None):
        a = y + self.self_attention(self.norm_1(y))
        b = y + self.cross_attention(self.norm_2(a), memory, memory, valid_lens)
        return b + self.feed_forward(self.norm_3(b))


@wrong("the_input_asks")
class AsksWithY(Layers):
    def forward(self, y, memory, valid_lens=None):
        a = y + self.self_attention(self.norm_1(y))
        b = a + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return b + self.feed_forward(self.norm_3(b))


@wrong("network_before_the_memory")
class NetworkInBetween(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.self_attention(self.norm_1(y))
        y = y + self.feed_forward(self.norm_2(y))
        return y + self.cross_attention(self.norm_3(y), memory, memory, valid_lens)


@wrong()
class NoSelfAttention(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@wrong("residual_of_the_normed_around_attention_across")
class OverwritesOnce(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.self_attention(self.norm_1(y))
        y = self.norm_2(y)
        y = y + self.cross_attention(y, memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@wrong("not_normed_around_attention_across")
class QueriesNotNormed(Layers):
    def forward(self, y, memory, valid_lens=None):
        y = y + self.self_attention(self.norm_1(y))
        y = y + self.cross_attention(y, memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@wrong("input_mutated")
class InPlace(Layers):
    def forward(self, y, memory, valid_lens=None):
        y += self.self_attention(self.norm_1(y))
        y += self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        y += self.feed_forward(self.norm_3(y))
        return y


@wrong()
class ReturnsTheMemoryToo(ThreeLines):
    def forward(self, y, memory, valid_lens=None):
        return super().forward(y, memory, valid_lens), memory


# wrong in one step


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


def and_lengths(self, y, z, valid_lens):
    return y + self.self_attention(z, valid_lens)


def without_lengths(self, y, z, memory, valid_lens):
    return y + self.cross_attention(z, memory, memory)


def of_all_three(norm):
    """The steps of a block that has one norm only."""
    return {
        "read": lambda self, y, z, lens: y + self.self_attention(getattr(self, norm)(y)),
        "ask": lambda self, y, z, memory, lens: (
            y + self.cross_attention(getattr(self, norm)(y), memory, memory, lens)
        ),
        "think": lambda self, y, z: y + self.feed_forward(getattr(self, norm)(y)),
    }


but = wrong_in(Almost)
NothingAddedFirst = but(
    "no_residual_around_self_attention", read=lambda self, y, z, lens: self.self_attention(z)
)
NothingAddedAcross = but(
    "no_residual_around_attention_across",
    ask=lambda self, y, z, memory, lens: self.cross_attention(z, memory, memory, lens),
)
NothingAddedLast = but(
    "no_residual_around_feed_forward_network", think=lambda self, y, z: self.feed_forward(z)
)
ReadsItself = but(
    "across_to_itself",
    ask=lambda self, y, z, memory, lens: y + self.cross_attention(z, z, z, lens),
)
MemoryAsks = but(
    "memory_asks",
    ask=lambda self, y, z, memory, lens: y + self.cross_attention(memory, z, z, lens),
)
ValuesFromY = but(
    "values_from_y",
    ask=lambda self, y, z, memory, lens: y + self.cross_attention(z, memory, z, lens),
)
LengthsForgotten = but("lengths_ignored", ask=without_lengths)
LengthsOnTheFirst = but("lengths_on_self_attention", read=and_lengths, ask=without_lengths)
LengthsOnBoth = but("lengths_on_both", read=and_lengths)
MemoryNormed = but(
    "memory_normed",
    ask=lambda self, y, z, memory, lens: (
        y + self.cross_attention(z, self.norm_2(memory), self.norm_2(memory), lens)
    ),
)
MemoryNormedByTheFirst = but(
    "memory_normed",
    ask=lambda self, y, z, memory, lens: (
        y + self.cross_attention(z, m := self.norm_1(memory), m, lens)
    ),
)
KeysNormed = but(
    "only_keys_normed",
    ask=lambda self, y, z, memory, lens: (
        y + self.cross_attention(z, self.norm_2(memory), memory, lens)
    ),
)
ReadsItselfAsItIs = but(
    "across_to_itself",
    ask=lambda self, y, z, memory, lens: y + self.cross_attention(z, y, y, lens),
)
CausalAcross = but(
    "across_causal",
    ask=lambda self, y, z, memory, lens: (
        y
        + self.cross_attention(
            z, memory, memory, lens, torch.ones(y.shape[1], memory.shape[1]).tril().bool()
        )
    ),
)
NothingFoundAcross = but("attention_across_skipped", ask=lambda self, y, z, memory, lens: y)
OneNorm = but("one_norm_for_all", **of_all_three("norm_1"))
SecondNormTwice = but(
    "norms_out_of_order", think=lambda self, y, z: y + self.feed_forward(self.norm_2(y))
)
FirstAndSecondExchanged = but(
    "norms_out_of_order",
    read=lambda self, y, z, lens: y + self.self_attention(self.norm_2(y)),
    ask=lambda self, y, z, memory, lens: (
        y + self.cross_attention(self.norm_1(y), memory, memory, lens)
    ),
)
PostNormAtTheEnd = but(
    "post_norm_around_feed_forward_network",
    think=lambda self, y, z: self.norm_3(y + self.feed_forward(y)),
)
NotCausal = but(
    "not_causal", read=lambda self, y, z, lens: y + whole_sequence(self.self_attention, z)
)
GeluInside = but(
    "another_activation",
    think=lambda self, y, z: y + self.feed_forward[2](F.gelu(self.feed_forward[0](z))),
)
ReluOutside = but("relu_at_the_end", think=lambda self, y, z: y + F.relu(self.feed_forward(z)))


def whole_sequence(attention, x):
    """`CausalSelfAttention` with the mask left out."""
    q, k, v = (
        part.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        for part in attention.W_qkv(x).chunk(3, -1)
    )
    return attention.W_o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@wrong("y_zeroed_before")
class ZeroesY(ThreeLines):
    def forward(self, y, memory, valid_lens=None):
        if valid_lens is not None:
            y = y.masked_fill((torch.arange(y.shape[1]) >= valid_lens[:, None])[..., None], 0.0)
        return super().forward(y, memory, valid_lens)


@wrong("self_attention_with_four_layers")
class MultiHeadTwice(Layers):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.self_attention = MultiHeadAttention(embed_dim, num_heads, device=device, dtype=dtype)

    def forward(self, y, memory, valid_lens=None):
        z = self.norm_1(y)
        y = y + self.self_attention(z, z, z)
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@wrong("module_not_begun")
class NotBegun(ThreeLines):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        self.norm_1 = nn.LayerNorm(embed_dim, device=device, dtype=dtype)


@wrong("parameters_renamed")
class OtherNames(Layers):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.masked_attention = self._modules.pop("self_attention")

    def forward(self, y, memory, valid_lens=None):
        y = y + self.masked_attention(self.norm_1(y))
        y = y + self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return y + self.feed_forward(self.norm_3(y))


@wrong("no_relu")
class TwoLinearLayers(ThreeLines):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.Linear(hidden_dim, embed_dim, device=device, dtype=dtype),
        )


@wrong("one_head")
class OneHeadEach(ThreeLines):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.self_attention = CausalSelfAttention(embed_dim, 1, device=device, dtype=dtype)
        self.cross_attention = MultiHeadAttention(embed_dim, 1, device=device, dtype=dtype)


@wrong("missing_parameter")
class TwoNorms(ThreeLines):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.norm_3 = self.norm_2


@wrong()
class MemoryFirst(ThreeLines):
    def forward(self, memory, y, valid_lens=None):
        return super().forward(y, memory, valid_lens)


@faulty("post-norm", "lengths on the first", "across to itself", "not causal")
def in_several_ways(faults):
    class Module(Layers):
        def read(self, z, valid_lens):
            if "not causal" in faults:
                return whole_sequence(self.self_attention, z)
            return self.self_attention(z, valid_lens if "lengths on the first" in faults else None)

        def ask(self, z, memory, valid_lens):
            keys = z if "across to itself" in faults else memory
            lens = None if "lengths on the first" in faults else valid_lens
            return self.cross_attention(z, keys, keys, lens)

        def forward(self, y, memory, valid_lens=None):
            if "post-norm" in faults:
                y = self.norm_1(y + self.read(y, valid_lens))
                y = self.norm_2(y + self.ask(y, memory, valid_lens))
                return self.norm_3(y + self.feed_forward(y))
            y = y + self.read(self.norm_1(y), valid_lens)
            y = y + self.ask(self.norm_2(y), memory, valid_lens)
            return y + self.feed_forward(self.norm_3(y))

    return Module


@faulty("memory normed", "nothing added first", "nothing added across", "lengths ignored")
def around_the_parts(faults):
    class Module(Layers):
        def forward(self, y, memory, valid_lens=None):
            memory = self.norm_2(memory) if "memory normed" in faults else memory
            valid_lens = None if "lengths ignored" in faults else valid_lens
            read = self.self_attention(self.norm_1(y))
            a = read if "nothing added first" in faults else y + read
            found = self.cross_attention(self.norm_2(a), memory, memory, valid_lens)
            b = found if "nothing added across" in faults else a + found
            return b + self.feed_forward(self.norm_3(b))

    return Module


@right
class NamedLayers(ThreeLines):
    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        up, relu, down = self.feed_forward
        self.feed_forward = nn.Sequential(OrderedDict(up=up, relu=relu, down=down))
