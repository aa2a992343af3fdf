"""The right `EncoderBlock` in steps, and its known mistakes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises.translator._alone import Stepwise
from course_lib.exercises.translator._blocks import Block, Heads, tril
from course_lib.exercises.translator._mistakes import (
    ADDED_TO_THE_INPUT,
    NETWORK,
    ONE_HEAD,
    Part,
    all_around,
    rare,
)


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
MISTAKES = known(Encoder, *(_AROUND[name] for name in _KNOWN), *_OWN)
