"""Lesson 09: the block of a decoder, judged with injected weights."""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._rows import FLOAT32, Given, case, edge
from course_lib.exercises.translator._blocks import (
    ADDED_TO_THE_INPUT,
    NETWORK,
    ONE_HEAD,
    Block,
    Heads,
    HeadsOfOne,
    Part,
    all_around,
    rare,
    tril,
)
from course_lib.exercises.translator._problems import (
    OUTPUTS_NORMED,
    Sizes,
    Stepwise,
    alone,
    built,
    far_from_the_bend,
    identities,
    inputs,
    judged_eps,
    nearly_equal,
    told_first,
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
    whole = problem(2, (5, 4), (6, 3, 7), [1, 3])
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
            "`device=` and `dtype=` set the device and the dtype of the weights. Pass both "
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
        )).says("Calls and blocks are independent of each other."),
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


class Decoder(Block):
    """`DecoderBlock`, with the steps seen, own_lengths; stored, roles, lengths."""

    order = ("own", "across", "feed")
    norms: Mapping[str, int] = {"own": 1, "across": 2, "feed": 3}
    read_own = read_across = read_feed = Block.read
    found_own = found_across = found_feed = Block.found
    added_own = added_across = added_feed = Block.added
    total_own = total_across = total_feed = Block.total
    self_layer: Any = HeadsOfOne

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.self_attention = self.self_layer(embed_dim, num_heads).to(device=device, dtype=dtype)
        self.cross_attention = Heads(embed_dim, num_heads, device=device, dtype=dtype)

    def forward(self, y, memory, valid_lens=None) -> Tensor:
        return self.run(y, memory, valid_lens)

    def part_own(self, given, normed, x) -> Tensor:
        inputs = normed, normed, normed, self.own_lengths(given[1]), self.seen(x.shape[1])
        return self.attend(self.self_attention, *inputs)

    def own_lengths(self, valid_lens) -> Tensor | None:
        return None

    def seen(self, n) -> Tensor | None:
        return tril(n)

    def part_across(self, given, normed, x) -> Tensor:
        inputs = *self.roles(normed, x, self.stored(given[0])), self.lengths(given[1])
        return self.attend(self.cross_attention, *inputs)

    def stored(self, memory) -> Tensor:
        return memory

    def roles(self, normed, x, memory) -> tuple[Tensor, Tensor, Tensor]:
        return normed, memory, memory

    def lengths(self, valid_lens) -> Tensor | None:
        return valid_lens


_PLACES = ("own", "across", "feed")


def _other_norms() -> tuple[dict, ...]:
    """The three norms in any other order, or one of them twice."""
    chosen = [
        numbers
        for numbers in itertools.product((1, 2, 3), repeat=3)
        if numbers != (1, 2, 3) and len(set(numbers)) > 1
    ]
    likely = sorted(chosen, key=lambda numbers: -sum(map(int.__eq__, numbers, (1, 2, 3))))
    return tuple({"norms": dict(zip(_PLACES, numbers, strict=True))} for numbers in likely[:11])


def _real(x, valid_lens) -> Tensor:
    """1 for real positions and 0 for the others, with an axis for the features."""
    if valid_lens is None:
        return x.new_ones(1)
    return (torch.arange(x.shape[1]) < valid_lens[:, None])[..., None]


def _memory_zeroed(self, given, normed, x) -> Tensor:
    memory, valid_lens = given
    return Decoder.part_across(self, (memory * _real(memory, valid_lens), None), normed, x)


def _across_causal(self, given, normed, x) -> Tensor:
    memory, valid_lens = given
    past = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
    return self.attend(self.cross_attention, normed, memory, memory, valid_lens, past)


def _zeroed(self, y, memory, valid_lens) -> Tensor:
    return y * _real(y, valid_lens)


_PARTS = {
    "own": Part("self_attention", "the self-attention"),
    "across": Part("attention_across", "the cross-attention"),
    "feed": Part("feed_forward_network", "the feed-forward network"),
}
_AROUND = all_around(_PARTS)
_LENGTHS = "Which sequence's length does `valid_lens` give?"
_OWN = (
    Row("not_causal", {"seen": lambda self, n: None}).says(
        "In your self-attention a position sees later ones, which are not written yet.",
        "Which of the two attention modules that you have written never looks ahead?",
    ),
    Row("self_attention_with_four_layers", {"self_layer": Heads}, fails=True).says(
        "Your `self_attention` is a `MultiHeadAttention`; it must be a `CausalSelfAttention`, with "
        "`W_qkv` and `W_o`.",
        "Which of the two attention modules that you have written never looks ahead?",
    ),
    Row(
        "across_to_itself",
        {"roles": lambda self, normed, x, memory: (normed,) * 3},
        twins=({"roles": lambda self, normed, x, memory: (normed, x, x)},),
    ).says(
        "Your cross-attention reads y again: the memory changes nothing.",
        "Where should its keys and values come from?",
    ),
    Row(
        "memory_asks",
        {"roles": lambda self, normed, x, memory: (memory, normed, normed)},
        twins=({"roles": lambda self, normed, x, memory: (memory, memory, normed)},),
        fails=True,
    ).says(
        "Your cross-attention takes its queries from the memory. They should come from y; the "
        "memory gives keys and values.",
        "How many outputs are there for each item, and which argument decides that?",
    ),
    Row(
        "values_from_y",
        {"roles": lambda self, normed, x, memory: (normed, memory, normed)},
        fails=True,
    ).says(
        "In your cross-attention the keys are the memory and the values are y; both must be the "
        "memory.",
        "Where do keys and values of the cross-attention come from?",
    ),
    Row("lengths_ignored", {"lengths": lambda self, valid_lens: None}).says(
        "The lengths change nothing: padded positions of the memory are attended to.", _LENGTHS
    ),
    Row(
        "lengths_on_self_attention",
        {
            "lengths": lambda self, valid_lens: None,
            "own_lengths": lambda self, valid_lens: valid_lens,
        },
    ).says("The lengths go to the self-attention instead of the cross-attention.", _LENGTHS),
    Row("lengths_on_both", {"own_lengths": lambda self, valid_lens: valid_lens}).says(
        "The lengths also go to the self-attention, but they are those of the memory.", _LENGTHS
    ),
    Row(
        "memory_normed",
        {"stored": lambda self, memory: self.norm_2(memory)},
        twins=tuple(
            {"stored": lambda self, memory, name=name: getattr(self, name)(memory)}
            for name in ("norm_1", "norm_3")
        ),
    ).says(
        "You also normalise the memory. It should be attended to as the encoder left it.",
        "What does the second formula do to `memory`?",
    ),
    Row(
        "one_norm_for_all",
        {"norms": dict.fromkeys(_PLACES, 1)},
        twins=tuple({"norms": dict.fromkeys(_PLACES, number)} for number in (2, 3)),
    ).says(
        "You use one of the three norms everywhere and the others never.",
        "Which norm does each of the three formulas name?",
    ),
    Row("norms_out_of_order", _other_norms()[0], twins=_other_norms()[1:]).says(
        "Not each norm is where it belongs: norm_1 before the self-attention, norm_2 before the "
        "cross-attention, norm_3 before the network.",
        "Which norm does each of the three formulas name?",
    ),
    Row(
        "across_comes_first",
        {"order": ("across", "own", "feed"), "norms": {"across": 1, "own": 2, "feed": 3}},
        twins=({"order": ("across", "own", "feed")},),
    ).says(
        "Your cross-attention comes before the self-attention.",
        "What should a position know before it queries the memory?",
    ),
    ADDED_TO_THE_INPUT,
    *(row for row in NETWORK if row.id != "relu_at_the_end"),
    ONE_HEAD,
)
_MORE = (  # seen in the problems about one part, and not worth a look in all
    Row(
        "network_before_the_memory",
        {"order": ("own", "feed", "across"), "norms": {"own": 1, "feed": 2, "across": 3}},
        twins=({"order": ("own", "feed", "across")},),
    ).says(
        "Your network comes before the cross-attention.",
        "Can the network work on what the memory has not said yet?",
    ),
    Row(
        "across_added_to_the_input",
        {"added_across": lambda self, x, norm, start: start},
    ).says(
        "You add the result of the cross-attention to the block's input y, so the result of the "
        "self-attention is lost from the sum.",
        "Which of your variables holds the previous sum?",
    ),
    Row(
        "the_input_asks",
        {"read_across": lambda self, x, norm, start: norm(start)},
    ).says(
        "The queries of your cross-attention come from the block's input y, not from a, which has "
        "read the past.",
        "Which of your variables holds the previous sum?",
    ),
    Row(
        "network_reads_the_input",
        {"read_feed": lambda self, x, norm, start: norm(start)},
    ).says(
        "The feed-forward network reads the block's input y; it never sees the attention's result.",
        "Which of your variables holds the previous sum?",
    ),
)
_KNOWN = (
    *("post_norm_everywhere", "residual_of_the_normed_everywhere"),
    *("norm_of_the_result_everywhere", "normed_twice_everywhere"),
    *("no_residual_around_self_attention", "no_residual_around_attention_across"),
    "no_residual_around_feed_forward_network",
)
_RARE = (
    Row(
        "only_keys_normed",
        {"roles": lambda self, normed, x, memory: (normed, self.norm_2(memory), memory)},
        twins=({"roles": lambda self, normed, x, memory: (normed, memory, self.norm_2(memory))},),
    ).says(
        "You normalise the memory in one of its two roles. It should be attended to as the "
        "encoder left it.",
        "What does the second formula do to `memory`?",
    ),
    Row("across_causal", {"part_across": _across_causal}).says(
        "Your cross-attention sees only the first positions of the memory, as if the memory were "
        "y.",
        "Is the whole memory known before anything is written?",
    ),
    Row(
        "all_read_the_input",
        {
            "read_across": lambda self, x, norm, start: norm(start),
            "read_feed": lambda self, x, norm, start: norm(start),
        },
    ).says(
        "All three parts read the block's input y; none sees the result of the one before it.",
        "Which of your variables holds the previous sum?",
    ),
    Row("looks_ahead_only", {"seen": lambda self, n: tril(n).mT}).says(
        "In your self-attention a position sees itself and the later ones.",
        "Rows are queries: which triangle holds the keys j <= i?",
    ),
    Row("memory_zeroed", {"part_across": _memory_zeroed}).says(
        "You set padded positions of the memory to 0 instead of passing the lengths: a zero still "
        "gets attention.",
        "What weight does a score of 0 get?",
    ),
    Row("y_zeroed_before", {"entry": _zeroed}).says(
        "You set y to 0 beyond the lengths, but they are those of the memory, not of y.",
        _LENGTHS,
    ),
    Row("pads_zeroed", {"result": _zeroed}).says(
        "You set outputs to 0 beyond the lengths, but they are those of the memory, not of y.",
        _LENGTHS,
    ),
    *(row for row in NETWORK if row.id == "relu_at_the_end"),
    *_MORE,
    *rare(_PARTS),
)
BLOCK = Stepwise(Decoder, (*_AROUND.values(), *(row for row in _OWN if not row.fails)), _RARE)


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
    mistakes=known(Decoder, *(_AROUND[name] for name in _KNOWN), *_OWN),
    properties=(*told_first(BLOCK, ("any", *_ALONE)), OUTPUTS_NORMED),
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
