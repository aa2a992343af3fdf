"""`DecoderBlock`: the block of a decoder, judged with injected weights."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.exercises.translator import _blocks as blocks
from course_lib.exercises.translator._blocks import Block, without
from course_lib.reference import translator as oracle

_LAYERS = {
    "self_attention": {"W_qkv": 3, "W_o": 1},
    "cross_attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1),
}


def problems(rng) -> Problems:
    def problem(batch, n, *given, m=None, **fields: Any) -> Probe:
        """Return a call with n positions of y, and m or n - 1 of memory."""
        return blocks.module(rng, [n, m or n - 1], _LAYERS, batch, *given, **fields)

    own, cross, network = "self_attention", "cross_attention", "feed_forward"

    def worked(inputs, state) -> None:
        blocks.identities(inputs, state)
        inputs[0].data[:], inputs[1].data[:] = [1.0, 3.0], [2.0, 0.0]

    def causal(inputs, state) -> None:
        blocks.equal_items(inputs, state)
        inputs[0].data[1, 2:] += 1

    def padded(inputs, state) -> None:
        blocks.equal_items(inputs, state)
        inputs[1].data[1, 2:] *= -1e4

    by_hand = problem(1, 1, (2, 1, 2), m=1, change=worked)
    nothing = problem(2, 4, (6, 2, 5), [3, 2], change=without(own, cross, network))
    own_alone = problem(2, 5, (6, 3, 7), [1, 3], change=without(cross, network))
    with_future = problem(2, 5, (6, 2, 7), [3, 3], change=causal, compare="alike")
    with_padding = problem(2, 5, (4, 1, 6), [2, 2], change=padded, compare="alike")
    yield (
        "Self-attention, cross-attention to the memory as given, and network must follow in this "
        "order, each reading its norm of the sum so far and adding its result to it."
    )
    yield by_hand
    yield "If all parts return zeros, the block must return y itself, whatever the lengths are."
    yield nothing
    yield (
        "If the other parts return zeros, the outputs must be y + self_attention(norm_1(y)), in "
        "which no position attends to a later one, whatever the lengths of the memory are."
    )
    yield own_alone
    yield (
        "If the two other parts return zeros, the outputs must be y plus the result of the "
        "cross-attention: its queries are norm_2(y), its keys and values are the memory."
    )
    yield problem(2, 5, (6, 3, 7), change=without(own, network))
    yield "If both attentions return zeros, the outputs must be y + network(norm_3(y))."
    yield problem(2, 4, (6, 3, 5), change=without(own, cross))
    yield "Positions of the memory beyond an item's length must not be attended to."
    yield problem(2, 5, (6, 3, 7), [1, 3], change=without(own, network))
    yield "The memory may be longer than y."
    yield problem(2, 3, (6, 2, 4), [3, 2], m=5)
    yield "Queries, keys and values must keep their roles even if y and memory are equally long."
    yield problem(2, 4, (6, 2, 5), m=4)
    yield "No output may depend on later positions of y."
    yield with_future
    yield "However large, the contents of padded positions of the memory must change no output."
    yield with_padding
    yield from blocks.gradients(problem)
    yield from blocks.problems_of_both(rng, problem, without(own, cross))


class Decoder(Block):
    def make_attentions(self, embed_dim, num_heads) -> None:
        self.self_attention = blocks.HeadsOfOne(embed_dim, num_heads)
        self.cross_attention = blocks.Heads(embed_dim, num_heads)

    def parts(self, memory, valid_lens=None) -> Sequence[Callable]:
        return self.read, lambda z: self.ask(z, memory, self.lens(valid_lens)), self.network

    def read(self, z, valid_lens=None) -> Tensor:
        return self.self_attention(z, valid_lens)

    def ask(self, z, memory, valid_lens) -> Tensor:
        return self.cross_attention(z, memory, memory, valid_lens)


@mistake
class LengthsOnSelfAttention(Decoder):
    """You pass the lengths to the self-attention. Only the cross-attention may get them.

    Which sequence's length does `valid_lens` give?
    """

    def parts(self, memory, valid_lens=None) -> Sequence[Callable]:
        return lambda z: self.read(z, valid_lens), lambda z: self.ask(z, memory, None), self.network


@like(LengthsOnSelfAttention)
class LengthsOnBoth(Decoder):
    def parts(self, memory, valid_lens=None) -> Sequence[Callable]:
        _, *others = super().parts(memory, valid_lens)
        return lambda z: self.read(z, valid_lens), *others


@mistake
class MemoryNormed(Decoder):
    """You normalize the memory. Only the queries of the cross-attention may go through a norm.

    In the formula, which argument goes through norm_2?
    """

    def ask(self, z, memory, valid_lens) -> Tensor:
        return super().ask(z, self.norm(2)(memory), valid_lens)


@like(MemoryNormed)
class MemoryNormedByAnother(Decoder):
    def ask(self, z, memory, valid_lens) -> Tensor:
        return super().ask(z, self.norm(1)(memory), valid_lens)


@like(MemoryNormed)
class MemoryStandardized(Decoder):
    def ask(self, z, memory, valid_lens) -> Tensor:
        return super().ask(z, torch.layer_norm(memory, memory.shape[-1:]), valid_lens)


@mistake
class CrossAttentionFirst(Decoder):
    """Your cross-attention comes before the self-attention.

    Which of the two formulas comes first?
    """

    def parts(self, memory, valid_lens=None) -> Sequence[Callable]:
        read, ask, network = super().parts(memory, valid_lens)
        return ask, read, network


@like(CrossAttentionFirst)
class CrossAttentionFirstWithItsNorm(CrossAttentionFirst):
    norms = 2, 1, 3


EXERCISE = Exercise(
    points=5,
    minutes=15,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=problems,
    oracle=oracle.decoder_block,
    mistakes=blocks.mistakes_of_both(Decoder),
    hints=(
        "Now there are three parts, joined like the encoder's two. The first reads what was "
        "written, the second queries the memory, the third works at each position alone.",
        "Three sums in a row, each with its own norm. Only the second part has two sources: what "
        "you have so far gives the queries, the memory gives keys and values, and the lengths say "
        "how much of it is real. The first part already knows not to look ahead.",
        "Three sums where `EncoderBlock` has two. Set the weights of two of the parts to 0 and "
        "look at the third alone. Which part must not see later tokens, and which one needs the "
        "lengths of the source?",
    ),
    marking=Marking(comparisons=blocks.COMPARISONS),
)
