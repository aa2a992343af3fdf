"""Lesson 09: the block of a decoder, judged with injected weights."""

import functools

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, Given, case, edge
from course_lib.exercises.translator._alone import alone, told_first
from course_lib.exercises.translator._decoder import BLOCK, MISTAKES
from course_lib.exercises.translator._problems import (
    OUTPUTS_NORMED,
    Sizes,
    built,
    far_from_the_bend,
    identities,
    inputs,
    judged_eps,
    nearly_equal,
    up_to_eps,
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


_ALONE = {  # the same problem for each: the steps that it is about, and what must hold
    "self_attention_reads": (
        ("read_own", "found_own", "part_own"),
        "The self-attention reads norm_1(y), and its result is used as it is.",
    ),
    "first_sum": (("added_own", "total_own"), "a is the sum of this result and y."),
    "queries_across": (
        ("read_across", "found_across"),
        "The queries of the cross-attention are norm_2(a), and its result is used as it is.",
    ),
    "second_sum": (("added_across", "total_across"), "b is the sum of this result and a."),
    "network_reads": (
        ("read_feed", "found_feed", "part_feed"),
        "The network reads norm_3(b), and its result is used as it is.",
    ),
    "third_sum": (("added_feed", "total_feed"), "The outputs are the sum of this result and b."),
    "order": (
        ("order", "norms", "pick"),
        "Self-attention with norm_1, cross-attention with norm_2, the network with norm_3, in "
        "this order.",
    ),
    "causal": (("seen", "heads"), "A position of y attends to none after it."),
    "memory": (
        ("roles", "stored"),
        "In the cross-attention, the queries come from y; keys and values are the memory as it is.",
    ),
    "lengths": (
        ("lengths", "own_lengths", "entry", "result", "part_across"),
        "The lengths are those of the memory and concern only the cross-attention.",
    ),
    "relu": (
        ("activate", "last"),
        "There is a ReLU between the two linear layers, and nowhere else.",
    ),
}


def _values(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    whole = problem(2, (4, 3), (6, 2, 5), [1, 2])
    given = {"y": tensor([[[1.0, 3.0]]]), "memory": tensor([[[2.0, 0.0]]])}
    worked = identities(problem(1, (1, 1), (2, 1, 2), **given))
    named = problem(3, (5, 4), (4, 2, 7))
    by_name = {"valid_lens": tensor([3, 1, 2])}
    return [
        case("worked", **worked).says("With one position, each step can be done by hand."),
        *(Probe(name, says, compare=name, **whole) for name, (_, says) in _ALONE.items()),
        case("one_position", compare="any", **problem(2, (1, 3), (6, 3, 4))).says(
            "A single position sees itself, and all of the memory."
        ),
        case("one_in_memory", **problem(2, (3, 1), (5, 1, 3))).says(
            "If the memory has one position, every position of y finds that one."
        ),
        case("longer_memory", **problem(2, (3, 5), (6, 2, 4), [3, 2])).says(
            "The memory may be longer than y."
        ),
        case("as_long", **problem(2, (4, 4), (4, 2, 5))).says(
            "Queries, keys and values keep their roles even if y and memory have the same shape."
        ),
        case("by_name", by_name=by_name, **named).says("The lengths may be passed by name."),
        case(
            "built_by_position",
            scenario="built_by_position",
            **problem(2, (4, 3), (6, 3, 4), [3, 2]),
        ).says("`__init__` takes embed_dim, num_heads and hidden_dim in this order."),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    garbage = problem(2, (5, 4), (4, 1, 5), [2, 3])
    garbage["args"]["memory"].data[0, 2:] *= 1e4
    garbage["args"]["memory"].data[1, 3:] *= -1e4
    sizes = 6, 2, 5
    nearly = problem(2, (3, 2), sizes, [2, 1], y=nearly_equal(rng, (2, 3, 6)))
    return [
        edge("length_0", **problem(3, (5, 4), (6, 3, 4), [0, 4, 2])).says(
            "If the memory of an item has length 0, the cross-attention adds nothing."
        ),
        edge("all_of_length_0", **problem(2, (4, 3), (4, 2, 5), [0, 0])).says(
            "If no item has a memory, the cross-attention adds nothing."
        ),
        edge(
            "device_and_dtype",
            scenario="made_with_device_and_dtype",
            **problem(1, (2, 3), (4, 2, 5), [2]),
        ).says(
            "`device=` and `dtype=` say where and in which dtype the weights are made. Pass both "
            "on to each layer."
        ),
        edge("garbage", **garbage).says(
            "The contents of padded positions of the memory change no output, however large."
        ),
        edge("small_differences", compare="eps", **nearly).says(
            "Features that hardly differ are normalised with 1e-5 under the root."
        ),
        edge("train", training=True, **problem(2, (5, 4), sizes, [3, 4])).says(
            "The block has no dropout: train and eval mode give the same."
        ),
        edge("after_another_call", scenario="after_another_call", **problem(
            2, (5, 4), sizes, [2, 4]
        )).says("Each call is independent of those before it."),
        edge("float32", **FLOAT32, **problem(2, (5, 4), sizes, [2, 4])).says(
            "Float32 inputs and weights give float32 outputs."
        ),
        edge("longer", **problem(1, (60, 50), (4, 2, 3))).says(
            "Any number of positions must work."
        ),
        edge("strided", **problem(2, (5, 4), (4, 1, 6), [4, 3], strided=True)).says(
            "The memory layout of a tensor does not matter."
        ),
    ]  # fmt: skip


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


_PROMISES = {
    "The decoder writes one token": "",
    "A position of it reads what was written": "",
    "With $y$ for what was written": "",
    "Built as": "built_by_position",
    "| `self_attention` |": "causal",
    "| `cross_attention` |": "memory",
    "| `feed_forward` |": "relu",
    "numbered in order of use": "order small_differences",
    "Called as": "by_name longer strided float32",
    "There may be more positions": "longer_memory as_long one_position one_in_memory",
    "sees the positions $j \\le i$ of `y`": "causal",
    "positions of the *memory* are real": "lengths",
    "changes nothing, however large it is": "garbage",
    "`y` needs no lengths": "lengths",
    "The memory is attended to as it is": "memory",
    "Where the memory has length 0": "length_0 all_of_length_0 gradient_length_0",
    "Nothing is dropped, and nothing is remembered": ("train after_another_call"),
    "One position $y = (1, 3)$": "worked",
    "The self-attention gives": "worked",
    "With one key, whatever is asked": "worked one_in_memory",
    "and the output is": "worked",
    # the docstring
    "One layer of a decoder": "",
    "a = y + self_attention(norm_1(y)), b = a +": (
        "self_attention_reads first_sum queries_across second_sum network_reads third_sum gradient"
    ),
    "Differs from the paper in where the norms are": "self_attention_reads",
    "embed_dim: features of inputs, memory and outputs": "",
    "Source": "",
    "Makes `self_attention`, `cross_attention`, `feed_forward`": "built_by_position",
    "Lets each position read what was written so far": "order",
    "y: what was written so far": "lengths",
    "One output for each position of `y`": "longer_memory",
}

EXERCISE = Exercise(
    points=5,
    minutes=20,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=lambda rng: up_to_eps([*_values(rng), *_edges(rng), *_gradients(rng)]),
    oracle=oracle.decoder_block,
    builds_on=("MultiHeadAttention", "CausalSelfAttention"),
    comparisons={name: alone(BLOCK, *steps) for name, (steps, _) in _ALONE.items()}
    | {"any": alone(BLOCK), "eps": judged_eps(oracle.decoder_block)},
    mistakes=MISTAKES,
    properties=(*told_first(BLOCK, ("any", *_ALONE)), OUTPUTS_NORMED),
    promises=_PROMISES,
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
