"""`EncoderBlock`: the block of an encoder, judged with injected weights."""

import functools
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

_LAYERS = {"attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1)}


def problems(rng) -> Problems:
    def problem(batch, n, *given, **fields: Any) -> Probe:
        return blocks.module(rng, [n], _LAYERS, batch, *given, **fields)

    def worked(inputs, state) -> None:
        blocks.identities(inputs, state)
        inputs[0].data[:] = [[[2.0, 4.0]]]

    def padded(inputs, state) -> None:
        blocks.equal_items(inputs, state)
        inputs[0].data[1, 3:] *= -1e4

    alone, network = without("feed_forward"), without("attention")
    by_hand = problem(1, 1, (2, 1, 2), change=worked)
    nothing = problem(2, 3, (6, 2, 4), [3, 2], change=without("attention", "feed_forward"))
    with_padding = problem(2, 5, (4, 1, 6), [3, 3], change=padded, compare="alike")
    yield "With h = x + attention(norm_1(x)), the outputs must be h + network(norm_2(h))."
    yield by_hand
    yield "If both parts return zeros, the block must return x itself, even where it is padded."
    yield nothing
    yield "If the network returns zeros, the outputs must be x + attention(norm_1(x))."
    yield problem(2, 4, (6, 3, 5), change=alone)
    yield "If the attention returns zeros, the outputs must be x + network(norm_2(x))."
    yield problem(2, 3, (5, 1, 4), change=network)
    yield "Positions beyond an item's length must not be attended to, but must get outputs."
    yield problem(2, 4, (6, 3, 5), [1, 3], change=alone)
    yield "The network must read norm_2(h), and its result must be added to h."
    yield problem(2, 5, (6, 3, 4))
    yield "However large, the contents of padded positions must change no other output."
    yield with_padding
    yield from blocks.gradients(problem)
    yield from blocks.problems_of_both(rng, problem, network)


class Encoder(Block):
    num_parts = 2

    def make_attentions(self, embed_dim, num_heads) -> None:
        self.attention = blocks.Heads(embed_dim, num_heads)

    def parts(self, valid_lens=None) -> Sequence[Callable]:
        return functools.partial(self.attend, valid_lens=self.lens(valid_lens)), self.network

    def attend(self, queries, keys=None, values=None, *, valid_lens) -> Tensor:
        keys = queries if keys is None else keys
        return self.attention(queries, keys, keys if values is None else values, valid_lens)


def real(x, valid_lens) -> Tensor:
    return torch.arange(x.shape[1]) < valid_lens[:, None]


@mistake
class PadsBlanked(Encoder):
    """You set the outputs of padded positions to 0, but each position must get an output.

    What does the statement say about the outputs at padded positions?
    """

    def forward(self, x, valid_lens=None) -> Tensor:
        outputs = super().forward(x, valid_lens)
        return outputs if valid_lens is None else outputs * real(x, valid_lens)[..., None]


@mistake
class QueriesMasked(Encoder):
    """You apply the lengths to the queries instead of the keys, so real positions attend to
    padding.

    Which axis of the mask belongs to the keys?
    """

    def attend(self, queries, keys=None, values=None, *, valid_lens) -> Tensor:
        mask = None if valid_lens is None else real(queries, valid_lens)[..., None]
        return self.attention(queries, queries, queries, mask=mask)


@mistake
class OnlyQueriesNormed(Encoder):
    """Only some of the queries, keys and values are norm_1(x). The others are x itself.

    What are the three arguments of the attention?
    """

    joins = (lambda x, norm, part: x + part(norm(x), x)), blocks.pre_norm


@like(OnlyQueriesNormed)
class ValuesNotNormed(Encoder):
    joins = (lambda x, norm, part: x + part(norm(x), norm(x), x)), blocks.pre_norm


@like(OnlyQueriesNormed)
class QueriesNotNormed(Encoder):
    joins = (lambda x, norm, part: x + part(x, norm(x))), blocks.pre_norm


@mistake
class CausalEncoder(Encoder):
    """Your encoder has a causal mask, so positions do not attend to later ones. Here each position
    attends to all positions within the length.

    Which mask does the statement give the encoder?
    """

    def attend(self, queries, keys=None, values=None, *, valid_lens) -> Tensor:
        n = queries.shape[1]
        past = torch.ones(n, n, dtype=torch.bool).tril()
        return self.attention(queries, queries, queries, valid_lens, past)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=problems,
    oracle=oracle.encoder_block,
    mistakes=blocks.mistakes_of_both(Encoder),
    hints=(
        "Two parts, joined in the same way: normalize the input, let the part work on that, add "
        "its result to the input. Keep the two apart: the normalized input and the one you add "
        "to.",
        "In `__init__`, make four layers with the names in the statement. In `forward`, normalize "
        "x and give the result to the attention three times, with the lengths; add x. Then "
        "normalize this sum with the other norm, pass it through the network, and add the sum.",
        "Two tests without a single number: with the weights of both parts set to 0, the block "
        "must return x itself; with only those of the network set to 0, x plus the attention's "
        "result for the normalized x. Which of the two tensors do you add, and which do you pass "
        "on?",
    ),
    marking=Marking(comparisons=blocks.COMPARISONS),
)
