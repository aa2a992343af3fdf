"""Lesson 09: the block of a decoder, judged with injected weights."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, Given, case, edge, mistake
from course_lib.exercises.translator._blocks import (
    ADDED_TO_THE_INPUT,
    DEVICE_AND_DTYPE,
    NO_RELU,
    NO_RESIDUAL,
    OF_THE_NORMED,
    POST_NORM,
    Block,
    Heads,
    HeadsOfOne,
    Sizes,
    built,
    far_from_the_bend,
    identities,
    inputs,
    nearly_equal,
    no_residual,
    of_the_normed,
    post_norm,
    pre_norm,
    small_differences,
    two_layers,
    without,
    without_relu,
)
from course_lib.reference import translator as oracle

_LAYERS = {
    "self_attention": {"W_qkv": 3, "W_o": 1},
    "cross_attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1),
}


def _problem(rng, batch, positions, sizes: Sizes, valid_lens=None, **options) -> Given:
    """The fields of a probe with so many positions of y and of memory; `y` may be given."""
    n, m = positions
    y, memory = options.pop("y", None), options.pop("memory", None)
    args = {
        "y": inputs(rng, (batch, n, sizes[0]), **options) if y is None else y,
        "memory": inputs(rng, (batch, m, sizes[0]), **options) if memory is None else memory,
    }
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {"args": args, **built(rng, _LAYERS, 3, sizes)}


def _values(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    own, cross, network = "self_attention", "cross_attention", "feed_forward"
    given = {"y": tensor([[[1.0, 3.0]]]), "memory": tensor([[[2.0, 0.0]]])}
    worked = identities(problem(1, (1, 1), (2, 1, 2), **given))
    nothing = without(problem(2, (4, 3), (6, 2, 5), [3, 2]), own, cross, network)
    by_name = {"valid_lens": tensor([3, 1, 2])}
    by_position = {"scenario": "built_by_position"}
    return [
        case("worked", **worked).says("With one position, each step can be done by hand."),
        case("no_part", **nothing).says(
            "If all parts return zeros, the block returns y itself, whatever the lengths are."
        ),
        case("self_attention_alone", **without(
            problem(2, (5, 4), (6, 3, 7), [1, 3]), cross, network
        )).says(
            "If the two other parts return zeros, the outputs are y + self_attention(norm_1(y)). "
            "No position attends to a later one, and the lengths of the memory do not matter."
        ),
        case("cross_attention_alone", **without(problem(2, (5, 4), (6, 3, 7)), own, network)).says(
            "If the two other parts return zeros, the outputs are y plus the result of the "
            "cross-attention: its queries are norm_2(y), its keys and values are the memory."
        ),
        case("network_alone", **without(problem(2, (4, 3), (6, 3, 5)), own, cross)).says(
            "If both attentions return zeros, the outputs are y + network(norm_3(y))."
        ),
        case("lengths", **without(problem(2, (5, 4), (6, 3, 7), [1, 3]), own, network)).says(
            "Positions of the memory beyond an item's length are not attended to."
        ),
        case("longer_memory", **problem(2, (3, 5), (6, 2, 4), [3, 2])).says(
            "The memory may be longer than y."
        ),
        case("as_long", **problem(2, (4, 4), (6, 2, 5))).says(
            "Queries, keys and values keep their roles even if y and memory have the same shape."
        ),
        case("by_name", by_name=by_name, **problem(3, (5, 4), (6, 2, 7))).says(
            "The lengths may be passed by name."
        ),
        case("built_by_position", **by_position, **problem(2, (4, 3), (6, 3, 5), [3, 2])).says(
            "`__init__` takes embed_dim, num_heads and hidden_dim in this order."
        ),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    garbage = problem(2, (5, 4), (4, 1, 5), [2, 3])
    garbage["args"]["memory"].data[0, 2:] *= 1e4
    garbage["args"]["memory"].data[1, 3:] *= -1e4
    sizes = 6, 2, 5
    nearly = problem(2, (3, 2), sizes, [2, 1], y=nearly_equal(rng, (2, 3, 6)))
    meta = {"scenario": "made_with_device_and_dtype"}
    again = {"scenario": "after_another_call"}
    return [
        edge("length_0", **problem(3, (5, 4), (6, 3, 4), [0, 4, 2])).says(
            "If the memory of an item has length 0, the cross-attention adds nothing."
        ),
        edge("device_and_dtype", **meta, **problem(1, (2, 3), (4, 2, 5), [2])).says(
            DEVICE_AND_DTYPE
        ),
        edge("garbage", **garbage).says(
            "The contents of padded positions of the memory change no output, however large."
        ),
        edge("small_differences", **nearly | {"tolerance": None, "compare": "small"}).says(
            "Features that hardly differ are normalized with 1e-5 under the root, the default of "
            "`nn.LayerNorm`."
        ),
        edge("train", training=True, **problem(2, (5, 4), sizes, [3, 4])).says(
            "The block has no dropout: train and eval mode give the same."
        ),
        edge("after_another_call", **again, **problem(2, (5, 4), sizes, [2, 4])).says(
            "Calls and blocks are independent of each other."
        ),
        edge("float32", **problem(2, (5, 4), sizes, [2, 4]) | FLOAT32).says(
            "Float32 inputs and weights give float32 outputs."
        ),
        edge("longer", **problem(1, (60, 50), (4, 2, 3))).says(
            "Any number of positions must work."
        ),
    ]


def _gradients(rng) -> list[Probe]:
    def back(batch, valid_lens) -> Given:
        problem = _problem(rng, batch, (2, 2), (3, 1, 2), valid_lens, requires_grad=True)
        return far_from_the_bend(problem) | {"grad_outputs": rng.normal(size=(batch, 2, 3))}

    return [
        case("gradient", **back(1, [2])).says("Gradients must reach y, memory and all layers."),
        case("gradient_length_0", **back(2, [0, 2])).says(
            "A memory of length 0 leaves every gradient finite."
        ),
    ]


class _Decoder(Block):
    own: type[Heads] = HeadsOfOne

    def make_attentions(self, embed_dim, num_heads) -> None:
        self.self_attention = self.own(embed_dim, num_heads)
        self.cross_attention = Heads(embed_dim, num_heads)

    def parts(self, memory, valid_lens=None) -> Sequence[Callable]:
        return self.read, lambda z: self.ask(z, memory, valid_lens), self.network

    def read(self, z, valid_lens=None) -> Tensor:
        return self.self_attention(z, z, z, valid_lens, self.seen(z.shape[1]))

    def seen(self, n) -> Tensor | None:
        return torch.ones(n, n, dtype=torch.bool).tril()

    def ask(self, z, memory, valid_lens) -> Tensor:
        return self.cross_attention(z, memory, memory, valid_lens)


def _lengths_on_self_attention(self, memory, valid_lens=None) -> Sequence[Callable]:
    return lambda z: self.read(z, valid_lens), lambda z: self.ask(z, memory, None), self.network


def _added_to_the_input(self, y, memory, valid_lens=None) -> Tensor:
    read, ask, network = self.parts(memory, valid_lens)
    b = pre_norm(pre_norm(y, self.norm_1, read), self.norm_2, ask)
    return y + network(self.norm_3(b))


_WHOSE_LENGTH = "Which sequence's length does `valid_lens` give?"
_LOOKS_AHEAD = "Which of the two attention modules that you have written never looks ahead?"

EXERCISE = Exercise(
    points=5,
    minutes=20,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    oracle=oracle.decoder_block,
    builds_on=("MultiHeadAttention", "CausalSelfAttention"),
    comparisons={"small": small_differences},
    mistakes=(
        mistake("post_norm", _Decoder.but(joins=(post_norm,) * 3)).says(*POST_NORM),
        mistake("residual_of_the_normed", _Decoder.but(joins=(of_the_normed,) * 3)).says(
            *OF_THE_NORMED
        ),
        mistake(
            "no_residual",
            _Decoder.but(joins=(no_residual,) * 3),
            twins=(
                _Decoder.but(joins=(no_residual, pre_norm, pre_norm)),
                _Decoder.but(joins=(pre_norm, pre_norm, no_residual)),
            ),
        ).says(*NO_RESIDUAL),
        mistake("not_causal", _Decoder.but(seen=lambda self, n: None)).says(
            "In your self-attention a position attends to later ones, which do not exist yet when "
            "the model writes.",
            _LOOKS_AHEAD,
        ),
        mistake("self_attention_with_four_layers", _Decoder.but(own=Heads), fails=True).says(
            "Your `self_attention` is a `MultiHeadAttention`; it must be a `CausalSelfAttention`, "
            "with `W_qkv` and `W_o`.",
            _LOOKS_AHEAD,
        ),
        mistake(
            "across_to_itself",
            _Decoder.but(ask=lambda self, z, memory, lens: self.cross_attention(z, z, z, lens)),
        ).says(
            "Your cross-attention takes its keys and values from y, so the memory has no effect.",
            "Where do the keys and values of the second formula come from?",
        ),
        mistake(
            "lengths_ignored",
            _Decoder.but(parts=lambda self, memory, valid_lens=None: _Decoder.parts(self, memory)),
        ).says(
            "The lengths change nothing: padded positions of the memory are attended to.",
            _WHOSE_LENGTH,
        ),
        mistake("lengths_on_self_attention", _Decoder.but(parts=_lengths_on_self_attention)).says(
            "You pass the lengths to the self-attention instead of the cross-attention.",
            _WHOSE_LENGTH,
        ),
        mistake(
            "memory_normed",
            _Decoder.but(
                ask=lambda self, z, memory, lens: _Decoder.ask(self, z, self.norm_2(memory), lens)
            ),
        ).says(
            "You also normalize the memory. Its keys and values must be what the encoder returned.",
            "What does the second formula do to `memory`?",
        ),
        mistake(
            "one_norm_for_all",
            _Decoder.but(norms=(1, 1, 1)),
            twins=(_Decoder.but(norms=(2, 2, 2)),),
        ).says(
            "You use one of the three norms everywhere and the other two never.",
            "Which norm does each of the three formulas name?",
        ),
        mistake("added_to_the_input", _Decoder.but(forward=_added_to_the_input)).says(
            *ADDED_TO_THE_INPUT
        ),
        mistake(
            "no_relu", _Decoder.but(network=without_relu), twins=(_Decoder.but(layers=two_layers),)
        ).says(*NO_RELU),
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
