"""Mistakes that both blocks of lesson 09 share: where norms and sums are, and the network."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.exercises._attention.mistakes import Row
from course_lib.exercises.translator._blocks import Block

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
        "Nothing is added anywhere: the result of each part replaces what came in.",
        "In x + f(norm(x)), what is in front of the plus?",
    ),
    "residual_of_the_normed": (
        "You add each result to the normed x: what came in is lost after the first norm.",
        "Does a line like `x = norm(x)` overwrite what you still need for the sum?",
    ),
    "post_norm": (
        "Your norms follow the sums, norm(x + f(x)), as in the first paper. Here each comes before "
        "its part, x + f(norm(x)), and the sums stay as they are.",
        "What does the part read, and what is added to its result?",
    ),
    "not_normed": (
        "Nothing is normed: each part reads its x as it is.",
        "Which layers does your `forward` never call?",
    ),
    "norm_of_the_result": (
        "Your norms are applied to what the parts return, x + norm(f(x)); they belong to what the "
        "parts read.",
        "In x + f(norm(x)), what stands between the brackets of f?",
    ),
    "normed_twice": (
        "Each sum is normed once more after it is made.",
        "How often does each formula of the statement use its norm?",
    ),
}
_ONE = {
    "no_residual": (
        "Around {part} nothing is added: its result replaces what came in.",
        "In x + f(norm(x)), what is in front of the plus?",
    ),
    "residual_of_the_normed": (
        "The result of {part} is added to the normed x, not to the x that came in.",
        "Does a line like `x = norm(x)` overwrite what you still need for the sum?",
    ),
    "post_norm": (
        "Around {part} the norm follows the sum, norm(x + f(x)), instead of x + f(norm(x)).",
        "What does {part} read, and what is added to its result?",
    ),
    "not_normed": (
        "The input of {part} is not normed.",
        "Which norm belongs to {part}, and where is it called?",
    ),
    "norm_of_the_result": (
        "The norm is applied to the result of {part}, not to what it reads.",
        "In x + f(norm(x)), what stands between the brackets of f?",
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


def around(kind: str, place: str, part: str) -> Row:
    """A mistake around one part, which its name in words tells."""
    fact, question = _ONE[kind]
    row = Row(f"{kind}_around_{_name(part)}", _at(place, _AROUND[kind]))
    return row.says(fact.format(part=part), question.format(part=part))


def all_around(parts: Mapping[str, str]) -> dict[str, Row]:
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
        "A ReLU follows the second linear layer: the network can only add, never take away.",
        "Which numbers between the layers should the ReLU cut, and which should stay?",
    ),
    Row(
        "another_activation",
        {"activate": lambda self, hidden: F.gelu(hidden)},
        twins=tuple(
            {"activate": lambda self, hidden, function=function: function(hidden)}
            for function in (F.silu, F.tanh, F.sigmoid, F.leaky_relu, F.elu)
        ),
    ).says(
        "Between the two linear layers is another function than ReLU.",
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
        "Your norms leave out their own weight or bias: what is learned there changes nothing.",
        "What does `nn.LayerNorm` do after dividing by the deviation?",
    ),
    Row("sample_deviation", {"pick": _with_sample_deviation}).says(
        "Your norms divide by the deviation of a sample, with embed_dim - 1 under it.",
        "By how many does `nn.LayerNorm` divide the sum of squares, and by how many does `std`?",
    ),
    Row("batch_norm", {"pick": _as_batch_norm}).says(
        "Your norms do not look at the features of a position: they are those of a batch.",
        "Over which axis does `nn.LayerNorm` take mean and deviation?",
    ),
    Row(
        "norm_over_positions",
        {"pick": _over(1)},
        twins=({"pick": _over(1, 2)}, {"pick": _over(0, 1, 2)}),
    ).says(
        "Your norms take mean and deviation over several positions.",
        "Over which axis does `nn.LayerNorm` take mean and deviation?",
    ),
)


def _after_relu(self, given, normed, x) -> Tensor:
    return Block.part_feed(self, given, normed.relu(), x)


def _name(part: str) -> str:
    return part.removeprefix("the ").replace(" ", "_").replace("-", "_")


def _if_given(change) -> Callable:
    return lambda self, valid_lens: None if valid_lens is None else change(valid_lens)


_LENGTHS = "How many positions of item 0 are real, and which is the last of them?"


_RARE = (
    Row("normed_at_the_end", {"total_feed": _normed}).says(
        "The last sum is normed once more.",
        "What does the last formula do after the plus?",
    ),
    Row("input_added_again", {"added_feed": lambda self, x, norm, start: x + start}).says(
        "The input of the block is added once more at the end; it is in the sum already.",
        "Which of your variables holds the sum made before?",
    ),
    Row(
        "network_reads_what_was_found",
        {"read_feed": lambda self, x, norm, start: norm(x - start)},
    ).says(
        "The network reads what attention found, without what came in.",
        "Which of your variables holds the sum made before?",
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
        "One padded position too many is attended.", _LENGTHS
    ),
    Row(
        "lengths_of_another_item",
        {"lengths": _if_given(lambda lens: lens.max().expand_as(lens))},
        twins=({"lengths": _if_given(lambda lens: lens[:1].expand_as(lens))},),
    ).says("All items get the length of one of them.", _LENGTHS),
    *_NORMS,
)


def rare(parts: Mapping[str, str]) -> tuple[Row, ...]:
    """Mistakes that are looked for in the problems about one part only."""
    return (
        *(
            Row(
                f"{_name(part)}_skipped",
                {f"part_{place}": lambda self, given, normed, x: torch.zeros_like(x)},
            ).says(f"The result of {part} is in no sum.", "Which line adds it, and to what?")
            for place, part in parts.items()
        ),
        *(
            Row(f"normed_again_after_{_name(part)}", {f"total_{place}": _normed}).says(
                f"The sum after {part} is normed once more.",
                f"How often does the formula for {part} use its norm?",
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
    "The result of the feed-forward network is added to the input of the whole block: what "
    "attention found is lost from the sum.",
    "Which of your variables holds the sum made before?",
)
