"""Lesson 09: the block of an encoder, judged with injected weights."""

import functools
from collections.abc import Mapping

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
    whole = _problem(rng, 2, 4, (6, 3, 5), [1, 3])
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
            "`device=` and `dtype=` set the device and the dtype of the weights. Pass both "
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
        )).says("Calls and blocks are independent of each other."),
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


class Encoder(Block):
    """`EncoderBlock`, with the steps roles, lengths and seen."""

    order = ("attention", "feed")
    norms: Mapping[str, int] = {"attention": 1, "feed": 2}
    read_attention = read_feed = Block.read
    found_attention = found_feed = Block.found
    added_attention = added_feed = Block.added
    total_attention = total_feed = Block.total

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        super().__init__(embed_dim, num_heads, hidden_dim, device=device, dtype=dtype)
        self.attention = Heads(embed_dim, num_heads, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None) -> Tensor:
        return self.run(x, valid_lens)

    def part_attention(self, given, normed, x) -> Tensor:
        inputs = *self.roles(normed, x), self.lengths(*given), self.seen(x.shape[1])
        return self.attend(self.attention, *inputs)

    def roles(self, normed, x) -> tuple[Tensor, Tensor, Tensor]:
        return normed, normed, normed

    def lengths(self, valid_lens) -> Tensor | None:
        return valid_lens

    def seen(self, n) -> Tensor | None:
        return None


def _real(x, valid_lens) -> Tensor:
    """Which positions are real, (batch, num_positions)."""
    if valid_lens is None:
        return torch.ones(x.shape[:2], dtype=torch.bool)
    return torch.arange(x.shape[1]) < valid_lens[:, None]


def _zeroed(self, x, valid_lens) -> Tensor:
    return x * _real(x, valid_lens)[..., None]


def _queries_masked(self, given, normed, x) -> Tensor:
    return _zeroed(self, Encoder.part_attention(self, given, normed, x), *given)


def _pads_attended(self, given, normed, x) -> Tensor:
    real = _real(x, *given)[:, None, None]
    mask = ~real if given[0] is not None else None
    return self.attend(self.attention, normed, normed, normed, None, mask)


def _items_attended(self, given, normed, x) -> Tensor:
    turned = normed.transpose(0, 1)
    return self.attend(self.attention, turned, turned, turned).transpose(0, 1)


_PARTS = {
    "attention": Part("attention", "the attention"),
    "feed": Part("feed_forward_network", "the feed-forward network"),
}
_AROUND = all_around(_PARTS)
_OWN = (
    Row("lengths_ignored", {"lengths": lambda self, valid_lens: None}).says(
        "The lengths change nothing: padded positions are attended to.",
        "Which call takes `valid_lens`, and do you pass it?",
    ),
    Row(
        "one_norm_for_both",
        {"norms": {"attention": 1, "feed": 1}},
        twins=({"norms": {"attention": 2, "feed": 2}},),
    ).says(
        "You use one of the two norms in both places and the other never.",
        "Which norm does each of the two formulas name?",
    ),
    Row("norms_exchanged", {"norms": {"attention": 2, "feed": 1}}).says(
        "Your two norms are swapped.",
        "Which of them comes first?",
    ),
    Row(
        "only_queries_normed",
        {"roles": lambda self, normed, x: (normed, x, x)},
        twins=(
            {"roles": lambda self, normed, x: (normed, normed, x)},
            {"roles": lambda self, normed, x: (normed, x, normed)},
            {"roles": lambda self, normed, x: (x, normed, normed)},
        ),
    ).says(
        "Your queries, keys and values are not all the normalised x: some of them are x itself.",
        "What are the three arguments in attention(norm_1(x))?",
    ),
    ADDED_TO_THE_INPUT,
    Row(
        "network_reads_the_input",
        {"read_feed": lambda self, x, norm, start: norm(start)},
    ).says(
        "The feed-forward network reads the block's input x; it never sees the attention's result.",
        "What is h, and where does the second formula use it?",
    ),
    *NETWORK,
    Row("looks_back_only", {"seen": lambda self, n: tril(n)}).says(
        "Your attention is causal. An encoder reads the whole sequence.",
        "Is the whole source known before anything is written?",
    ),
    Row("pads_zeroed", {"result": _zeroed}).says(
        "You set the outputs of padded positions to 0. Nothing attends to them, so you can leave "
        "them alone.",
        "Which axis of the weights do the lengths cut: queries or keys?",
    ),
    ONE_HEAD,
)
_KNOWN = (
    *("post_norm_everywhere", "residual_of_the_normed_everywhere"),
    *("norm_of_the_result_everywhere", "normed_twice_everywhere"),
    *("no_residual_around_attention", "no_residual_around_feed_forward_network"),
    *("not_normed_around_attention", "not_normed_around_feed_forward_network"),
    "residual_of_the_normed_around_attention",
    "residual_of_the_normed_around_feed_forward_network",
)
_RARE = (
    Row(
        "network_first",
        {"order": ("feed", "attention"), "norms": {"feed": 1, "attention": 2}},
        twins=({"order": ("feed", "attention")},),
    ).says(
        "Your network comes before the attention.",
        "What should a position have read before the network works on it?",
    ),
    Row("queries_masked", {"part_attention": _queries_masked}).says(
        "In your attention padded positions find nothing; they too should attend to the real ones.",
        "Which axis of the weights do the lengths cut: queries or keys?",
    ),
    Row("pads_attended", {"part_attention": _pads_attended}).says(
        "Your mask is inverted: padded positions are attended to, real ones are not.",
        "True means 'may attend'. Which positions does your code allow?",
    ),
    Row("pads_zeroed_before", {"entry": _zeroed, "lengths": lambda self, valid_lens: None}).says(
        "You set padded positions to 0 instead of passing the lengths: a zero still gets "
        "attention.",
        "What weight does a score of 0 get?",
    ),
    Row("items_attended", {"part_attention": _items_attended}).says(
        "Your attention runs along the batch: the items attend to each other.",
        "Which axis of x holds the positions, and which one does `MultiHeadAttention` expect?",
    ),
    *rare(_PARTS),
)
BLOCK = Stepwise(Encoder, (*_AROUND.values(), *_OWN), _RARE)


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
    mistakes=known(Encoder, *(_AROUND[name] for name in _KNOWN), *_OWN),
    properties=(*told_first(BLOCK, ("any", *_ALONE)), OUTPUTS_NORMED),
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
