"""The right `DecoderBlock` in steps, and its known mistakes."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises.translator._alone import Stepwise
from course_lib.exercises.translator._blocks import Block, Heads, HeadsOfOne, tril
from course_lib.exercises.translator._mistakes import (
    ADDED_TO_THE_INPUT,
    NETWORK,
    ONE_HEAD,
    Part,
    all_around,
    rare,
)


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
MISTAKES = known(Decoder, *(_AROUND[name] for name in _KNOWN), *_OWN)
