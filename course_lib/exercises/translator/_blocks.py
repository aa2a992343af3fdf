"""The right blocks of lesson 09 in steps that mistakes change, and the mistakes that both share.

At each place in turn a part reads something, finds a result, and a total is made of that and what
is added: total_PLACE(added_PLACE(x) + found_PLACE(part_PLACE(read_PLACE(x)))). Each step is a
method or value of the class, as in `exercises/_attention`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.exercises._attention.mistakes import Row
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.steps import Stepped


class Heads(WithHeads, AttentionModule):
    """Multi-head attention with the four layers of lesson 06."""

    is_no_answer = True  # but a part of one

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        layers = (
            nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)
            for _ in range(4)
        )
        self.W_q, self.W_k, self.W_v, self.W_o = layers

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return [self.split(x) for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))]

    def out(self, averages) -> Tensor:
        return self.W_o(self.merge(averages))


class HeadsOfOne(Heads):
    """Multi-head self-attention with the two layers of lesson 07."""

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        AttentionModule.__init__(self)
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return [self.split(x) for x in self.W_qkv(queries).chunk(3, dim=-1)]


def tril(n) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


class Block(Stepped, nn.Module):
    """What both have: the steps entry, order, norms, pick, heads, activate, last, result."""

    order: tuple[str, ...]
    norms: Mapping[str, int]

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.feed_forward = nn.Sequential(*self.layers(embed_dim, hidden_dim)).to(
            device=device, dtype=dtype
        )
        for number in range(1, len(self.order) + 1):
            setattr(self, f"norm_{number}", nn.LayerNorm(embed_dim, device=device, dtype=dtype))

    def layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
        return nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)

    def run(self, x, *given) -> Tensor:
        start = x = self.entry(x, *given)
        for place in self.order:
            norm = self.pick(getattr(self, f"norm_{self.norms[place]}"))
            read = getattr(self, f"read_{place}")(x, norm, start)
            result = getattr(self, f"part_{place}")(given, read, x)
            found = getattr(self, f"found_{place}")(result, norm)
            added = getattr(self, f"added_{place}")(x, norm, start)
            x = getattr(self, f"total_{place}")(added + found, norm)
        return self.result(x, *given)

    def entry(self, x, *given) -> Tensor:
        return x

    def added(self, x, norm, start) -> Tensor:
        return x

    def read(self, x, norm, start) -> Tensor:
        return norm(x)

    def found(self, result, norm) -> Tensor:
        return result

    def total(self, total, norm) -> Tensor:
        return total

    def pick(self, norm) -> Callable:
        return norm

    def attend(self, attention, *inputs) -> Tensor:
        attention.num_heads = self.heads(self.num_heads)
        return attention(*inputs)

    def heads(self, num_heads) -> int:
        return num_heads

    def part_feed(self, given, normed, x) -> Tensor:
        first, _, second = self.feed_forward
        return self.last(second(self.activate(first(normed))))

    def activate(self, hidden) -> Tensor:
        return hidden.relu()

    def last(self, outputs) -> Tensor:
        return outputs

    def result(self, x, *given) -> Tensor:
        return x


_Steps = dict[str, Callable]


def _as_it_is(self, x, norm, start) -> Tensor:
    return x


def _normed(self, x, norm) -> Tensor:
    return norm(x)


# How a part can be joined with what came in, other than x + part(norm(x)): steps at one place.
_AROUND: Mapping[str, _Steps] = {
    "no_residual": {"added": lambda self, x, norm, start: torch.zeros_like(x)},
    "residual_of_the_normed": {"added": lambda self, x, norm, start: norm(x)},
    "post_norm": {"read": _as_it_is, "total": _normed},
    "not_normed": {"read": _as_it_is},
    "norm_of_the_result": {"read": _as_it_is, "found": _normed},
    "normed_twice": {"total": _normed},
}
_ALL = {
    "no_residual": (
        "You add nothing anywhere: the result of each part replaces its input.",
        "In x + f(norm(x)), what is in front of the plus?",
    ),
    "residual_of_the_normed": (
        "You add each result to the normalised x, so the input itself is lost after the first "
        "norm.",
        "Does a line like `x = norm(x)` overwrite what you still need for the sum?",
    ),
    "post_norm": (
        "Your norms follow the sums, norm(x + f(x)), as in the original paper. Here each comes "
        "before its part, x + f(norm(x)), and the sums are left alone.",
        "What does the part read, and what is added to its result?",
    ),
    "not_normed": (
        "You normalise nothing: each part reads its x as it is.",
        "Which layers does your `forward` never call?",
    ),
    "norm_of_the_result": (
        "You apply the norms to the results of the parts, x + norm(f(x)); they belong on the "
        "inputs.",
        "In x + f(norm(x)), what is inside the brackets of f?",
    ),
    "normed_twice": (
        "You normalise each sum once more.",
        "How often does each formula in the statement use its norm?",
    ),
}
_ONE = {
    "no_residual": (
        "Around {part} you add nothing: its result replaces its input.",
        "In x + f(norm(x)), what is in front of the plus?",
    ),
    "residual_of_the_normed": (
        "You add the result of {part} to the normalised x, not to x itself.",
        "Does a line like `x = norm(x)` overwrite what you still need for the sum?",
    ),
    "post_norm": (
        "Around {part} the norm follows the sum, norm(x + f(x)), instead of x + f(norm(x)).",
        "What does {part} read, and what is added to its result?",
    ),
    "not_normed": (
        "You do not normalise the input of {part}.",
        "Which norm belongs to {part}, and where do you call it?",
    ),
    "norm_of_the_result": (
        "You apply the norm to the result of {part}, not to its input.",
        "In x + f(norm(x)), what is inside the brackets of f?",
    ),
}


def _at(place: str, steps: _Steps) -> _Steps:
    return {f"{step}_{place}": change for step, change in steps.items()}


def everywhere(kind: str, *places: str) -> Row:
    """The same mistake around every part."""
    changes: _Steps = {}
    for place in places:
        changes |= _at(place, _AROUND[kind])
    behind_too = {step: change for step, change in changes.items() if step.startswith("found")}
    return Row(f"{kind}_everywhere", changes, (behind_too,) * bool(behind_too)).says(*_ALL[kind])


class Part(NamedTuple):
    """A part of a block: for the ids of mistakes, and in the words of reports."""

    id: str
    words: str


def around(kind: str, place: str, part: Part) -> Row:
    """A mistake around one part."""
    fact, question = _ONE[kind]
    row = Row(f"{kind}_around_{part.id}", _at(place, _AROUND[kind]))
    return row.says(fact.format(part=part.words), question.format(part=part.words))


def all_around(parts: Mapping[str, Part]) -> dict[str, Row]:
    """Each such mistake, everywhere and around each of the parts, by its id."""
    rows = [everywhere(kind, *parts) for kind in _ALL]
    rows += [around(kind, *pair) for kind in _ONE for pair in parts.items()]
    return {row.id: row for row in rows}


def _without_relu(self, embed_dim, hidden_dim) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(embed_dim, hidden_dim), nn.Linear(hidden_dim, embed_dim)


NETWORK = (
    Row(
        "no_relu", {"activate": lambda self, hidden: hidden}, twins=({"layers": _without_relu},)
    ).says(
        "There is no ReLU between the two linear layers, so together they are one linear layer.",
        "What do two matrices, one after the other, amount to?",
    ),
    Row(
        "relu_at_the_end",
        {"last": lambda self, outputs: outputs.relu()},
        twins=({"activate": lambda self, h: h, "last": lambda self, outputs: outputs.relu()},),
    ).says(
        "A ReLU follows the second linear layer, so the network can only add, never take away.",
        "Which numbers should the ReLU between the layers cut, and which should stay?",
    ),
    Row(
        "another_activation",
        {"activate": lambda self, hidden: F.gelu(hidden)},
        twins=tuple(
            {"activate": lambda self, hidden, function=function: function(hidden)}
            for function in (F.silu, F.tanh, F.sigmoid, F.leaky_relu, F.elu)
        ),
    ).says(
        "The function between your two linear layers is not ReLU.",
        "What does ReLU make of -1, and what does yours?",
    ),
)


def _with_sample_deviation(self, norm) -> Callable:
    def normed(x) -> Tensor:
        deviation = x.std(-1, keepdim=True) + norm.eps
        return (x - x.mean(-1, keepdim=True)) / deviation * norm.weight + norm.bias

    return normed


def _as_batch_norm(self, norm) -> Callable:
    return lambda x: x / math.sqrt(1 + norm.eps) * norm.weight + norm.bias


def _over(*axes) -> Callable:
    def pick(self, norm) -> Callable:
        def normed(x) -> Tensor:
            variance, mean = torch.var_mean(x, dim=axes, keepdim=True, correction=0)
            return (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias

        return normed

    return pick


_NORMS = (
    Row(
        "norms_without_weights",
        {"pick": lambda self, norm: lambda x: F.layer_norm(x, x.shape[-1:])},
        twins=(
            {"pick": lambda self, norm: lambda x: F.layer_norm(x, x.shape[-1:], norm.weight)},
            {"pick": lambda self, norm: lambda x: F.layer_norm(x, x.shape[-1:]) + norm.bias},
        ),
    ).says(
        "Your norms ignore their own weight or bias, so what is learned there changes nothing.",
        "What does `nn.LayerNorm` do after dividing by the standard deviation?",
    ),
    Row("sample_deviation", {"pick": _with_sample_deviation}).says(
        "Your norms divide by the sample standard deviation, which has embed_dim - 1 in its "
        "denominator.",
        "What does `nn.LayerNorm` divide the sum of squares by, and what does `std`?",
    ),
    Row("batch_norm", {"pick": _as_batch_norm}).says(
        "Your norms do not run over the features of a position: they are batch norms.",
        "Over which axis does `nn.LayerNorm` take the mean and the standard deviation?",
    ),
    Row(
        "norm_over_positions",
        {"pick": _over(1)},
        twins=({"pick": _over(1, 2)}, {"pick": _over(0, 1, 2)}),
    ).says(
        "Your norms take the mean and the standard deviation over several positions.",
        "Over which axis does `nn.LayerNorm` take the mean and the standard deviation?",
    ),
)


def _after_relu(self, given, normed, x) -> Tensor:
    return Block.part_feed(self, given, normed.relu(), x)


def _if_given(change) -> Callable:
    return lambda self, valid_lens: None if valid_lens is None else change(valid_lens)


_LENGTHS = "How many positions of item 0 are real, and which is the last of them?"


_RARE = (
    Row("normed_at_the_end", {"total_feed": _normed}).says(
        "You normalise the last sum once more.",
        "What does the last formula do after the plus?",
    ),
    Row("input_added_again", {"added_feed": lambda self, x, norm, start: x + start}).says(
        "You add the input of the block once more at the end; it is already in the sum.",
        "Which of your variables holds the previous sum?",
    ),
    Row(
        "network_reads_what_was_found",
        {"read_feed": lambda self, x, norm, start: norm(x - start)},
    ).says(
        "The network reads the attention's result without the block's input.",
        "Which of your variables holds the previous sum?",
    ),
    Row(
        "relu_before",
        {"part_feed": _after_relu},
        twins=({"part_feed": _after_relu, "activate": lambda self, hidden: hidden},),
    ).says(
        "A ReLU comes before the first linear layer.",
        "Which numbers should the ReLU cut, and which should the network still see?",
    ),
    Row("lengths_one_more", {"lengths": _if_given(lambda lens: lens + 1)}).says(
        "One padded position too many is attended to.", _LENGTHS
    ),
    Row(
        "lengths_of_another_item",
        {"lengths": _if_given(lambda lens: lens.max().expand_as(lens))},
        twins=({"lengths": _if_given(lambda lens: lens[:1].expand_as(lens))},),
    ).says("All items get the length of one of them.", _LENGTHS),
    *_NORMS,
)


def rare(parts: Mapping[str, Part]) -> tuple[Row, ...]:
    """Mistakes that are looked for in the problems about one part only."""
    return (
        *(
            Row(
                f"{part.id}_skipped",
                {f"part_{place}": lambda self, given, normed, x: torch.zeros_like(x)},
            ).says(
                f"The result of {part.words} goes into no sum.", "Which line adds it, and to what?"
            )
            for place, part in parts.items()
        ),
        *(
            Row(f"normed_again_after_{part.id}", {f"total_{place}": _normed}).says(
                f"You normalise the sum after {part.words} once more.",
                f"How often does the formula for {part.words} use its norm?",
            )
            for place, part in parts.items()
            if place != "feed"
        ),
        *_RARE,
    )


ONE_HEAD = Row("one_head", {"heads": lambda self, num_heads: 1}).says(
    "Your attention has a single head, whatever `num_heads` is.",
    "Where does `num_heads` enter your `__init__`?",
)
ADDED_TO_THE_INPUT = Row(
    "added_to_the_input",
    {"added_feed": lambda self, x, norm, start: start},
).says(
    "You add the result of the feed-forward network to the input of the whole block, so the "
    "attention's result is lost from the sum.",
    "Which of your variables holds the previous sum?",
)
