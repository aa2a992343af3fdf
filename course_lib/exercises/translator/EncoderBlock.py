"""Lesson 09: the block of an encoder, judged with injected weights."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import Given, case, mistake
from course_lib.exercises.translator import _blocks as blocks
from course_lib.reference import translator as oracle

_LAYERS = {"attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1)}


def _problem(rng, batch, n, sizes: blocks.Sizes, valid_lens=None, **options) -> Given:
    """Return the fields of a probe."""
    args = {"x": blocks.inputs(rng, (batch, n, sizes[0]), **options)}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {"args": args, **blocks.built(rng, _LAYERS, 2, sizes)}


def _probes(rng) -> list[Probe]:
    problem, without = functools.partial(_problem, rng), blocks.without
    worked = blocks.identities(problem(1, 1, (2, 1, 2)))
    worked["args"]["x"] = tensor([[[2.0, 4.0]]])
    nothing = without(problem(2, 3, (6, 2, 4), [3, 2]), "attention", "feed_forward")
    padded = blocks.with_equal_items(problem(2, 5, (4, 1, 6), [3, 3]))
    padded["args"]["x"].data[1, 3:] *= -1e4
    return [
        case("worked", **worked).says(
            "With h = x + attention(norm_1(x)), the outputs must be h + network(norm_2(h))."
        ),
        case("no_part", **nothing).says(
            "If both parts return zeros, the block must return x itself, even where it is padded."
        ),
        case("attention_alone", **without(problem(2, 4, (6, 3, 5)), "feed_forward")).says(
            "If the network returns zeros, the outputs must be x + attention(norm_1(x))."
        ),
        case("network_alone", **without(problem(2, 3, (5, 1, 4)), "attention")).says(
            "If the attention returns zeros, the outputs must be x + network(norm_2(x))."
        ),
        case("lengths", **without(problem(2, 4, (6, 3, 5), [1, 3]), "feed_forward")).says(
            "Positions beyond an item's length must not be attended to, but must get outputs."
        ),
        case("both_parts", **problem(2, 5, (6, 3, 4))).says(
            "The network must read norm_2(h), and its result must be added to h."
        ),
        case("padding", **padded).says(
            "However large, the contents of padded positions must change no other output."
        ),
        *blocks.gradients(rng, problem),
        *blocks.probes_of_both(rng, problem, "attention"),
    ]


class _Encoder(blocks.Block):
    norms = (1, 2)

    def make_attentions(self, embed_dim, num_heads) -> None:
        self.attention = blocks.Heads(embed_dim, num_heads)

    def parts(self, valid_lens=None) -> Sequence[Callable]:
        return functools.partial(self.attend, valid_lens=self.lens(valid_lens)), self.network

    def attend(self, queries, keys=None, values=None, *, valid_lens) -> Tensor:
        keys = queries if keys is None else keys
        return self.attention(queries, keys, keys if values is None else values, valid_lens)


def _queries_normed(x, norm, part) -> Tensor:
    return x + part(norm(x), x)


def _real(x, valid_lens) -> Tensor:
    return torch.arange(x.shape[1]) < valid_lens[:, None]


def _blanked(self, x, valid_lens=None) -> Tensor:
    outputs = blocks.Block.forward(self, x, valid_lens)
    return outputs if valid_lens is None else outputs * _real(x, valid_lens)[..., None]


def _rows_masked(self, x, *, valid_lens) -> Tensor:
    mask = None if valid_lens is None else _real(x, valid_lens)[..., None]
    return self.attention(x, x, x, mask=mask)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=_probes,
    oracle=oracle.encoder_block,
    comparisons=blocks.COMPARISONS,
    mistakes=(
        *blocks.mistakes_of_both(_Encoder),
        mistake("pads_blanked", _Encoder.answer({"forward": _blanked})).says(
            "You set the outputs of padded positions to 0, but each position must get an output.",
            "What does the statement say about the outputs at padded positions?",
        ),
        mistake("queries_masked", _Encoder.answer({"attend": _rows_masked})).says(
            "You apply the lengths to the queries instead of the keys, so real positions attend to "
            "padding.",
            "Which axis of the mask belongs to the keys?",
        ),
        mistake(
            "only_queries_normed", _Encoder.answer({"joins": (_queries_normed, blocks.pre_norm)})
        ).says(
            "Only the queries are norm_1(x). The keys and values are x itself.",
            "What are the three arguments of the attention?",
        ),
    ),
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
)
