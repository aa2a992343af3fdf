"""Lesson 09: the block of a decoder, judged with injected weights."""

import functools
from collections.abc import Callable, Sequence

from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import Given, case, mistake
from course_lib.exercises.translator import _blocks as blocks
from course_lib.reference import translator as oracle

_LAYERS = {
    "self_attention": {"W_qkv": 3, "W_o": 1},
    "cross_attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1),
}


def _problem(rng, batch, n, sizes: blocks.Sizes, valid_lens=None, m=None, **options) -> Given:
    """Return the fields of a probe with n positions of y, and m or n - 1 of memory."""
    shapes = {"y": (batch, n, sizes[0]), "memory": (batch, m or n - 1, sizes[0])}
    args = {name: blocks.inputs(rng, shape, **options) for name, shape in shapes.items()}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {"args": args, **blocks.built(rng, _LAYERS, 3, sizes)}


def _probes(rng) -> list[Probe]:
    problem, without = functools.partial(_problem, rng), blocks.without
    own, cross, network = "self_attention", "cross_attention", "feed_forward"
    worked = blocks.identities(problem(1, 1, (2, 1, 2), m=1))
    worked["args"] = {"y": tensor([[[1.0, 3.0]]]), "memory": tensor([[[2.0, 0.0]]])}
    nothing = without(problem(2, 4, (6, 2, 5), [3, 2]), own, cross, network)
    own_alone = without(problem(2, 5, (6, 3, 7), [1, 3]), cross, network)
    causal = blocks.with_equal_items(problem(2, 5, (6, 2, 7), [3, 3]))
    causal["args"]["y"].data[1, 2:] += 1
    padded = blocks.with_equal_items(problem(2, 5, (4, 1, 6), [2, 2]))
    padded["args"]["memory"].data[1, 2:] *= -1e4
    return [
        case("worked", **worked).says(
            "Self-attention, cross-attention to the memory as given, and network must follow in "
            "this order, each reading its norm of the sum so far and adding its result to it."
        ),
        case("no_part", **nothing).says(
            "If all parts return zeros, the block must return y itself, whatever the lengths are."
        ),
        case("self_attention_alone", **own_alone).says(
            "If the other parts return zeros, the outputs must be y + self_attention(norm_1(y)), "
            "in which no position attends to a later one, whatever the lengths of the memory are."
        ),
        case("cross_attention_alone", **without(problem(2, 5, (6, 3, 7)), own, network)).says(
            "If the two other parts return zeros, the outputs must be y plus the result of the "
            "cross-attention: its queries are norm_2(y), its keys and values are the memory."
        ),
        case("network_alone", **without(problem(2, 4, (6, 3, 5)), own, cross)).says(
            "If both attentions return zeros, the outputs must be y + network(norm_3(y))."
        ),
        case("lengths", **without(problem(2, 5, (6, 3, 7), [1, 3]), own, network)).says(
            "Positions of the memory beyond an item's length must not be attended to."
        ),
        case("longer_memory", **problem(2, 3, (6, 2, 4), [3, 2], m=5)).says(
            "The memory may be longer than y."
        ),
        case("as_long", **problem(2, 4, (6, 2, 5), m=4)).says(
            "Queries, keys and values must keep their roles even if y and memory are equally long."
        ),
        case("causal", **causal).says("No output may depend on later positions of y."),
        case("padding", **padded).says(
            "However large, the contents of padded positions of the memory must change no output."
        ),
        *blocks.gradients(rng, problem),
        *blocks.probes_of_both(rng, problem, own, cross),
    ]


class _Decoder(blocks.Block):
    def make_attentions(self, embed_dim, num_heads) -> None:
        self.self_attention = blocks.HeadsOfOne(embed_dim, num_heads)
        self.cross_attention = blocks.Heads(embed_dim, num_heads)

    def parts(self, memory, valid_lens=None) -> Sequence[Callable]:
        return self.read, lambda z: self.ask(z, memory, self.lens(valid_lens)), self.network

    def read(self, z, valid_lens=None) -> Tensor:
        return self.self_attention(z, valid_lens)

    def ask(self, z, memory, valid_lens) -> Tensor:
        return self.cross_attention(z, memory, memory, valid_lens)


def _lengths_on_self_attention(self, memory, valid_lens=None) -> Sequence[Callable]:
    return lambda z: self.read(z, valid_lens), lambda z: self.ask(z, memory, None), self.network


def _lengths_on_both(self, memory, valid_lens=None) -> Sequence[Callable]:
    _, *others = _Decoder.parts(self, memory, valid_lens)
    return lambda z: self.read(z, valid_lens), *others


def _cross_first(self, memory, valid_lens=None) -> Sequence[Callable]:
    read, ask, network = _Decoder.parts(self, memory, valid_lens)
    return ask, read, network


EXERCISE = Exercise(
    points=5,
    minutes=15,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=_probes,
    oracle=oracle.decoder_block,
    comparisons=blocks.COMPARISONS,
    mistakes=(
        *blocks.mistakes_of_both(_Decoder),
        mistake(
            "lengths_on_self_attention",
            _Decoder.answer({"parts": _lengths_on_self_attention}),
            twins=(_Decoder.answer({"parts": _lengths_on_both}),),
        ).says(
            "You pass the lengths to the self-attention. Only the cross-attention may get them.",
            "Which sequence's length does `valid_lens` give?",
        ),
        mistake(
            "memory_normed",
            _Decoder.answer(
                {"ask": lambda self, z, x, lens: _Decoder.ask(self, z, self.norm(2)(x), lens)}
            ),
        ).says(
            "You normalize the memory with norm_2. Only the queries may go through this norm.",
            "In the formula, which argument goes through norm_2?",
        ),
        mistake("cross_attention_first", _Decoder.answer({"parts": _cross_first})).says(
            "Your cross-attention comes before the self-attention.",
            "Which of the two formulas comes first?",
        ),
    ),
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
)
