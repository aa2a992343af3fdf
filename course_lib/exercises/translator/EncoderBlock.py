"""Lesson 09: the block of an encoder, judged with injected weights."""

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
    PREVIOUS_SUM,
    Block,
    Heads,
    Sizes,
    built,
    far_from_the_bend,
    identities,
    inputs,
    nearly_equal,
    no_residual,
    not_normed,
    of_the_normed,
    post_norm,
    pre_norm,
    small_differences,
    two_layers,
    without,
    without_relu,
)
from course_lib.reference import translator as oracle

_LAYERS = {"attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1)}


def _problem(rng, batch, n, sizes: Sizes, valid_lens=None, **options) -> Given:
    """The fields of a probe; `x` may be given."""
    x = options.pop("x", None)
    args = {"x": inputs(rng, (batch, n, sizes[0]), **options) if x is None else x}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {"args": args, **built(rng, _LAYERS, 2, sizes)}


def _values(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    worked = identities(problem(1, 1, (2, 1, 2), x=tensor([[[2.0, 4.0]]])))
    nothing = without(problem(2, 3, (6, 2, 4), [3, 2]), "attention", "feed_forward")
    by_name = {"valid_lens": tensor([3, 1, 2])}
    by_position = {"scenario": "built_by_position"}
    return [
        case("worked", **worked).says("With one position, each step can be done by hand."),
        case("no_part", **nothing).says(
            "If both parts return zeros, the block returns x itself, even where it is padded."
        ),
        case("attention_alone", **without(problem(2, 4, (6, 3, 5)), "feed_forward")).says(
            "If the network returns zeros, the outputs are x + attention(norm_1(x))."
        ),
        case("network_alone", **without(problem(2, 3, (5, 1, 4)), "attention")).says(
            "If the attention returns zeros, the outputs are x + network(norm_2(x))."
        ),
        case("lengths", **without(problem(2, 4, (6, 3, 5), [1, 3]), "feed_forward")).says(
            "Positions beyond an item's length are not attended to, but still get outputs."
        ),
        case("both_parts", **problem(2, 5, (6, 3, 4))).says(
            "The network reads norm_2(h), and its result is added to h."
        ),
        case("by_name", by_name=by_name, **problem(3, 4, (6, 2, 7))).says(
            "The lengths may be passed by name."
        ),
        case("built_by_position", **by_position, **problem(2, 3, (6, 3, 4), [3, 2])).says(
            "`__init__` takes embed_dim, num_heads and hidden_dim in this order."
        ),
    ]


def _edges(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    garbage = problem(2, 4, (4, 1, 5), [2, 3])
    garbage["args"]["x"].data[0, 2:] *= 1e4
    garbage["args"]["x"].data[1, 3:] *= -1e4
    sizes = 6, 2, 5
    nearly = problem(2, 3, sizes, [2, 3], x=nearly_equal(rng, (2, 3, 6)))
    meta = {"scenario": "made_with_device_and_dtype"}
    again = {"scenario": "after_another_call"}
    return [
        edge("length_0", **problem(3, 4, (6, 3, 4), [0, 4, 2])).says(
            "In an item of length 0 the attention adds nothing."
        ),
        edge("device_and_dtype", **meta, **problem(1, 2, (4, 2, 5), [2])).says(DEVICE_AND_DTYPE),
        edge("garbage", **garbage).says(
            "The contents of padded positions change no other output, however large."
        ),
        edge("small_differences", **nearly | {"tolerance": None, "compare": "small"}).says(
            "Features that hardly differ are normalized with 1e-5 under the root, the default of "
            "`nn.LayerNorm`."
        ),
        edge("train", training=True, **problem(2, 5, sizes, [3, 5])).says(
            "The block has no dropout: train and eval mode give the same."
        ),
        edge("after_another_call", **again, **problem(2, 5, sizes, [2, 4])).says(
            "Calls and blocks are independent of each other."
        ),
        edge("float32", **problem(2, 5, sizes, [2, 4]) | FLOAT32).says(
            "Float32 inputs and weights give float32 outputs."
        ),
        edge("longer", **problem(1, 70, (4, 2, 3))).says("Any number of positions must work."),
    ]


def _gradients(rng) -> list[Probe]:
    def back(batch, valid_lens) -> Given:
        problem = _problem(rng, batch, 2, (3, 1, 2), valid_lens, requires_grad=True)
        return far_from_the_bend(problem) | {"grad_outputs": rng.normal(size=(batch, 2, 3))}

    return [
        case("gradient", **back(1, [1])).says("Gradients must reach x and all layers."),
        case("gradient_length_0", **back(2, [0, 2])).says(
            "An item of length 0 leaves every gradient finite."
        ),
    ]


class _Encoder(Block):
    norms = (1, 2)

    def make_attentions(self, embed_dim, num_heads) -> None:
        self.attention = Heads(embed_dim, num_heads)

    def parts(self, valid_lens=None) -> Sequence[Callable]:
        return lambda *z: self.attend(*z, valid_lens=valid_lens), self.network

    def attend(self, queries, keys=None, values=None, *, valid_lens) -> Tensor:
        keys = queries if keys is None else keys
        return self.attention(queries, keys, keys if values is None else values, valid_lens)


def _lengths_ignored(self, valid_lens=None) -> Sequence[Callable]:
    return _Encoder.parts(self)


def _one_head(self, valid_lens=None) -> Sequence[Callable]:
    self.attention.num_heads = 1
    return _Encoder.parts(self, valid_lens)


def _pads_zeroed(self, x, valid_lens=None) -> Tensor:
    outputs = _Encoder.forward(self, x, valid_lens)
    if valid_lens is None:
        return outputs
    return outputs * (torch.arange(x.shape[1]) < valid_lens[:, None])[..., None]


def _added_to_the_input(self, x, valid_lens=None) -> Tensor:
    attend, network = self.parts(valid_lens)
    return x + network(self.norm_2(pre_norm(x, self.norm_1, attend)))


def _network_reads_the_input(self, x, valid_lens=None) -> Tensor:
    attend, network = self.parts(valid_lens)
    return pre_norm(x, self.norm_1, attend) + network(self.norm_2(x))


def _queries_normed(x, norm, part) -> Tensor:
    return x + part(norm(x), x)


def _all_but_values_normed(x, norm, part) -> Tensor:
    return x + part(norm(x), norm(x), x)


EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    oracle=oracle.encoder_block,
    builds_on=("MultiHeadAttention",),
    comparisons={"small": small_differences},
    mistakes=(
        mistake("post_norm", _Encoder.but(joins=(post_norm, post_norm))).says(*POST_NORM),
        mistake(
            "residual_of_the_normed",
            _Encoder.but(joins=(of_the_normed, of_the_normed)),
        ).says(*OF_THE_NORMED),
        mistake(
            "no_residual",
            _Encoder.but(joins=(no_residual, no_residual)),
            twins=(
                _Encoder.but(joins=(no_residual, pre_norm)),
                _Encoder.but(joins=(pre_norm, no_residual)),
            ),
        ).says(*NO_RESIDUAL),
        mistake(
            "not_normed",
            _Encoder.but(joins=(not_normed, pre_norm)),
            twins=(_Encoder.but(joins=(pre_norm, not_normed)),),
        ).says(
            "One of the two parts reads its input without normalizing it.",
            "Which norm belongs to which part, and where do you call it?",
        ),
        mistake(
            "one_norm_for_both",
            _Encoder.but(norms=(1, 1)),
            twins=(_Encoder.but(norms=(2, 2)),),
        ).says(
            "You use one of the two norms in both places and the other never.",
            "Which norm does each of the two formulas name?",
        ),
        mistake(
            "only_queries_normed",
            _Encoder.but(joins=(_queries_normed, pre_norm)),
            twins=(_Encoder.but(joins=(_all_but_values_normed, pre_norm)),),
        ).says(
            "Your queries, keys and values are not all norm_1(x): some of them are x itself.",
            "What are the three arguments of the attention?",
        ),
        mistake("added_to_the_input", _Encoder.but(forward=_added_to_the_input)).says(
            *ADDED_TO_THE_INPUT
        ),
        mistake("network_reads_the_input", _Encoder.but(forward=_network_reads_the_input)).says(
            "The feed-forward network reads the block's input x; it never sees the attention's "
            "result.",
            PREVIOUS_SUM,
        ),
        mistake(
            "no_relu", _Encoder.but(network=without_relu), twins=(_Encoder.but(layers=two_layers),)
        ).says(*NO_RELU),
        mistake("lengths_ignored", _Encoder.but(parts=_lengths_ignored)).says(
            "The lengths change nothing: padded positions are attended to.",
            "Which call takes `valid_lens`, and do you pass it?",
        ),
        mistake("pads_zeroed", _Encoder.but(forward=_pads_zeroed)).says(
            "You set the outputs of padded positions to 0. No position attends to them, so leave "
            "them as they are.",
            "Which axis of the weights do the lengths cut: queries or keys?",
        ),
        mistake("one_head", _Encoder.but(parts=_one_head)).says(
            "Your attention has a single head, whatever `num_heads` is.",
            "Where does `num_heads` enter your `__init__`?",
        ),
    ),
    hints=(
        "Two parts, joined in the same way: normalise the input, let the part work on that, add "
        "its result to the input. Keep the two apart: the normalised input and the one you add "
        "to.",
        "In `__init__`, make four layers with the names in the statement. In `forward`, normalise "
        "x and give the result to the attention three times, with the lengths; add x. Then "
        "normalise this sum with the other norm, pass it through the network, and add the sum.",
        "Two tests without a single number: with the weights of both parts set to 0, the block "
        "must return x itself; with only those of the network set to 0, x plus the attention's "
        "result for the normalised x. Which of the two tensors do you add, and which do you pass "
        "on?",
    ),
)
