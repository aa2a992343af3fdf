"""Lesson 09: the block of an encoder, judged with injected weights."""

import functools

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, Given, case, edge
from course_lib.exercises.translator._alone import alone, told_first
from course_lib.exercises.translator._encoder import BLOCK, MISTAKES
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

_LAYERS = {"attention": dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 1)}


def _problem(rng, batch, n, sizes: Sizes, valid_lens=None, **options) -> Given:
    """The fields of a probe; `x` may be given."""
    x = options.pop("x", None)
    args = {"x": inputs(rng, (batch, n, sizes[0]), **options) if x is None else x}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {"args": args, **built(rng, _LAYERS, 2, sizes)}


_ALONE = {  # the same problem for each: the steps that it is about, and what must hold
    "attention_reads": (
        ("read_attention", "found_attention"),
        "The attention reads norm_1(x), and its result is used as it is.",
    ),
    "first_sum": (("added_attention", "total_attention"), "h is the sum of this result and x."),
    "network_reads": (
        ("read_feed", "found_feed", "part_feed"),
        "The network reads norm_2(h), and its result is used as it is.",
    ),
    "second_sum": (("added_feed", "total_feed"), "The outputs are the sum of this result and h."),
    "each_norm": (
        ("norms", "pick", "order"),
        "norm_1 comes before the attention, norm_2 before the network.",
    ),
    "relu": (
        ("activate", "last"),
        "There is a ReLU between the two linear layers, and nowhere else.",
    ),
    "lengths": (
        ("lengths", "result", "entry", "part_attention"),
        "Positions beyond an item's length are not attended to, but still get outputs.",
    ),
    "self_attention": (
        ("roles", "seen", "heads"),
        "Queries, keys and values are all the normalised x, in `num_heads` heads, and each "
        "position may attend to every real one.",
    ),
}


def _values(rng) -> list[Probe]:
    whole = _problem(rng, 2, 3, (6, 2, 5), [1, 2])
    worked = identities(_problem(rng, 1, 1, (2, 1, 2), x=tensor([[[2.0, 4.0]]])))
    named = _problem(rng, 3, 4, (4, 2, 7))
    by_name = {"valid_lens": tensor([3, 1, 2])}
    return [
        case("worked", **worked).says("With one position, each step can be done by hand."),
        case("one_position", compare="any", **_problem(rng, 2, 1, (5, 1, 3))).says(
            "A lone position attends to itself with weight 1."
        ),
        *(
            Probe(name, says, compare=name, **whole) for name, (_, says) in _ALONE.items()
        ),
        case("no_lengths", **_problem(rng, 2, 5, (6, 3, 4))).says(
            "Without lengths, every position is real."
        ),
        case("by_name", by_name=by_name, **named).says("The lengths may be passed by name."),
        case(
            "built_by_position",
            scenario="built_by_position",
            **_problem(rng, 2, 3, (6, 3, 4), [3, 2]),
        ).says("`__init__` takes embed_dim, num_heads and hidden_dim in this order."),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    garbage = problem(2, 4, (4, 1, 5), [2, 3])
    garbage["args"]["x"].data[0, 2:] *= 1e4
    garbage["args"]["x"].data[1, 3:] *= -1e4
    sizes = 6, 2, 5
    return [
        edge("length_0", **problem(3, 4, (6, 3, 4), [0, 4, 2])).says(
            "In an item of length 0 the attention adds nothing."
        ),
        edge("all_of_length_0", **problem(2, 3, (4, 2, 5), [0, 0])).says(
            "If no item has a real position, the attention adds nothing."
        ),
        edge(
            "device_and_dtype",
            scenario="made_with_device_and_dtype",
            **problem(1, 2, (4, 2, 5), [2]),
        ).says(
            "`device=` and `dtype=` say where and in which dtype the weights are made. Pass both "
            "on to each layer."
        ),
        edge("garbage", **garbage).says(
            "The contents of padded positions change no other output, however large."
        ),
        edge("small_differences", compare="eps", **problem(
            2, 3, sizes, [2, 3], x=nearly_equal(rng, (2, 3, 6))
        )).says("Features that hardly differ are normalised with 1e-5 under the root."),
        edge("train", training=True, **problem(2, 5, sizes, [3, 5])).says(
            "The block has no dropout: train and eval mode give the same."
        ),
        edge("after_another_call", scenario="after_another_call", **problem(
            2, 5, sizes, [2, 4]
        )).says("Each call is independent of those before it."),
        edge("float32", **FLOAT32, **problem(2, 5, sizes, [2, 4])).says(
            "Float32 inputs and weights give float32 outputs."
        ),
        edge("longer", **problem(1, 70, (4, 2, 3))).says("Any number of positions must work."),
        edge("strided", **problem(2, 5, (4, 1, 6), [5, 3], strided=True)).says(
            "The memory layout of a tensor does not matter."
        ),
    ]  # fmt: skip


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


_PROMISES = {
    "Attention only moves information": "",
    "To make something new of what it found": "",
    "An encoder block has both": "first_sum second_sum",
    "The sums keep a path": "",
    "Built as": "built_by_position",
    "| `attention` |": "self_attention",
    "adds its default of 1e-5 under the root": "each_norm small_differences",
    "| `feed_forward` |": "relu",
    "Called as": "by_name no_lengths longer strided float32",
    "Queries, keys and values are all": "self_attention",
    "attends to the real positions of its item": "lengths one_position",
    "changes no other output, however large it is": "garbage",
    "In an item of length 0 the attention adds nothing": (
        "length_0 all_of_length_0 gradient_length_0"
    ),
    "Nothing is dropped, and nothing is remembered": ("train after_another_call"),
    "One position $x = (2, 4)$": "worked",
    "takes off the mean 3": "worked",
    "A position alone attends to itself": "worked",
    "of which ReLU leaves": "worked",
    # the docstring
    "One layer of an encoder": "",
    "h = x + attention(norm_1(x)), outputs": (
        "attention_reads first_sum network_reads second_sum gradient"
    ),
    "Differs from the paper in where the norms are": "attention_reads network_reads",
    "embed_dim: features of inputs and outputs": "",
    "Source": "",
    "Makes `attention`, `norm_1`, `norm_2` and `feed_forward`": "built_by_position",
    "Lets each position attend to the real ones": "lengths",
    "x: one sequence for each item": "lengths no_lengths",
    "One output for each position, padded ones included": "lengths",
}

EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=lambda rng: up_to_eps([*_values(rng), *_edges(rng), *_gradients(rng)]),
    oracle=oracle.encoder_block,
    builds_on=("MultiHeadAttention",),
    comparisons={name: alone(BLOCK, *steps) for name, (steps, _) in _ALONE.items()}
    | {"any": alone(BLOCK), "eps": judged_eps(oracle.encoder_block)},
    mistakes=MISTAKES,
    properties=(*told_first(BLOCK, ("any", *_ALONE)), OUTPUTS_NORMED),
    promises=_PROMISES,
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
