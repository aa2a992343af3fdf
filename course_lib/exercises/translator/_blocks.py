"""Problems with injected weights and wrong blocks for both exercises about a block."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.checks.judge.comparisons import Problem, arrays_agree, close, tolerance_for
from course_lib.checks.judge.definitions import Mistake
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.steps import Stepped
from course_lib.exercises.bug_hunt.CausalSelfAttention import Causal
from course_lib.exercises.kit import Problems, call, id_of, mistake, words
from course_lib.exercises.multi_head.MultiHeadAttention import MultiHead

Sizes = tuple[int, int, int]  # embed_dim, num_heads, hidden_dim
State = dict[str, np.ndarray]
Change = Callable[[list[Array], State], None]  # of inputs and weights, in place


def _weight(rng, rows, columns) -> np.ndarray:
    return rng.normal(0, 1.3 / columns**0.5, (rows, columns))


def linear_weights(rng, name, rows, columns) -> State:
    """Return weights of an `nn.Linear`."""
    weight = _weight(rng, rows, columns)
    return {f"{name}.weight": weight, f"{name}.bias": rng.normal(0, 0.5, rows)}


def norm_weights(rng, name, d) -> State:
    """Return weights of an `nn.LayerNorm`."""
    return {f"{name}.weight": rng.uniform(0.6, 1.5, d), f"{name}.bias": rng.normal(0, 0.5, d)}


def module(
    rng,
    lengths,
    attentions,
    batch,
    sizes: Sizes,
    *lens,
    change: Change | None = None,
    **fields: Any,
) -> Probe:
    """Return a call of a block of these sizes, with one norm for each attention and the network.

    `lengths` are the numbers of positions of its inputs, and `change` gets the inputs and the
    weights. The part "gradients" runs the backward pass, too.
    """
    d, num_heads, hidden = sizes
    with_gradient = fields.get("part") == "gradients"
    shapes = [(batch, n, d) for n in lengths]
    inputs = [tensor(rng.normal(0, 1.3, shape), requires_grad=with_gradient) for shape in shapes]
    state = {
        f"{name}.{layer}.weight": _weight(rng, times * d, d)
        for name, layers in attentions.items()
        for layer, times in layers.items()
    }
    for number in range(1, len(attentions) + 2):
        state |= norm_weights(rng, f"norm_{number}", d)
    state |= linear_weights(rng, "feed_forward.0", hidden, d)
    state |= linear_weights(rng, "feed_forward.2", d, hidden)
    if change is not None:
        change(inputs, state)
    if with_gradient:
        fields["grad_outputs"] = rng.normal(size=shapes[0])
    construct = {"embed_dim": d, "num_heads": num_heads, "hidden_dim": hidden}
    # The epsilon of a norm only affects problems about it.
    fields.setdefault("tolerance", 1e-3)
    return call(*inputs, *lens, construct=construct, state=state, **fields)


def identities(inputs, state) -> None:
    """Set weights that have no effect, so that the problem can be solved by hand."""
    for name, value in state.items():
        if value.ndim == 2:
            value[:] = np.resize(np.eye(value.shape[1]), value.shape)
        else:
            value[:] = name.endswith("weight")


def without(*parts: str) -> Change:
    """Return a change that sets weights for which these parts return zeros."""
    names = tuple(f"{part}.{last}" for part in parts for last in ("W_o", "2"))

    def change(inputs, state) -> None:
        for name, value in state.items():
            if name.startswith(names):
                value[:] = 0.0

    return change


def equal_items(inputs, state) -> None:
    """Repeat the first item. `alike` compares the two outputs."""
    for value in inputs:
        value.data[1] = value.data[0]


def problems_of_both(rng, problem: Callable[..., Probe], no_attention: Change) -> Problems:
    """Yield the problems of both blocks; `problem(batch, n, sizes, *lens)` makes them.

    Some of them compare outputs with each other, so that a block with one fault everywhere, such
    as norms in the wrong place, still earns points for its other parts.
    """
    sizes = 6, 2, 5

    def nearly_equal(inputs, state) -> None:
        inputs[0].data[:] = rng.normal(0, 2e-3, (2, 3, 6))
        inputs[0].data[0, 0] = 0.5

    def dead(inputs, state) -> None:
        no_attention(inputs, state)
        normal = inputs[0].data  # so that norms have no effect in any place
        normal -= normal.mean(-1, keepdims=True)
        normal /= normal.std(-1, keepdims=True)
        for name, value in state.items():
            if value.ndim == 1:
                value[:] = name.startswith("norm") and name.endswith("weight")
        state["feed_forward.0.bias"][:] = -1e3

    def edge(*given, **fields: Any) -> Probe:
        return problem(*given, part="edges", **fields)

    alike = {"change": equal_items, "compare": "alike"}
    nearly = edge(2, 3, sizes, [2, 1], change=nearly_equal, tolerance=None)
    hidden_negative = problem(2, 4, (6, 3, 5), change=dead)
    yield (
        "`__init__` must take embed_dim, num_heads and hidden_dim in this order, and `forward` "
        "must take the lengths by name, too."
    )
    yield problem(2, 4, (6, 3, 5), valid_lens=[3, 2], scenario="built_by_position")
    yield (
        "If all numbers between the two linear layers are negative, ReLU makes them 0, and the "
        "network must add only the bias of its second layer."
    )
    yield hidden_negative
    yield (
        "`device=` and `dtype=` must set the device and the dtype of the weights. Pass both on to "
        "each layer."
    )
    yield edge(2, 3, sizes, [2, 2], scenario="made_with_device_and_dtype", **alike)
    yield (
        "Features that hardly differ must be normalized with 1e-5 under the root, the default of "
        "`nn.LayerNorm`."
    )
    yield nearly
    yield "There must be no dropout: in train mode, too, equal items must get equal outputs."
    yield edge(2, 5, sizes, [3, 3], training=True, **alike)
    yield "Where the length of an item is 0, the attention to its positions must add nothing."
    yield edge(3, 5, (6, 3, 4), [0, 4, 2])
    yield "Neither other calls nor other blocks may change what a block returns."
    yield edge(2, 5, sizes, [2, 4], scenario="after_another_call")
    yield edge(2, 5, sizes, scenario="after_a_call_with_lengths")
    yield "Float32 inputs and weights must give float32 outputs."
    yield edge(2, 5, sizes, [4, 4], dtype="float32", **alike)


def gradients(problem: Callable[..., Probe]) -> Problems:
    """Yield the problems of the gradients of both blocks."""

    def away_from_0(inputs, state) -> None:
        bias = state["feed_forward.0.bias"]
        bias[:] = np.resize([12.0, -12.0], bias.shape)  # ReLU has no derivative at 0

    yield "Gradients must reach every input and all layers."
    yield problem(1, 3, (3, 1, 2), [2], change=away_from_0, part="gradients")
    yield "An item of length 0 must leave every gradient finite."
    yield problem(1, 3, (3, 1, 2), [0], change=away_from_0, part="gradients")


def alike(probe, expected, recorded) -> Problem | None:
    """Compare the two items where their first arguments are equal, and reject constant outputs."""
    arrays = [array.data for array in probe.arrays().values()]
    same, outputs = (arrays[0][0] == arrays[0][-1]).all(-1), recorded.numbers
    one, other = outputs[0][same], outputs[-1][same]
    if not np.ptp(outputs):
        return close(probe, expected, recorded)
    if arrays_agree(one, other, tolerance_for(probe, recorded)):
        return None
    alike = "are equal, yet your outputs for them"
    if any((array[0] != array[-1]).any() for array in arrays):
        alike = "differ only in what must not affect the outputs compared here, yet these"
    return Problem(
        "items_differ",
        f"{probe.says} Two items {alike} differ by up to {np.abs(one - other).max():.3g}.",
        "What enters these outputs: masked positions, other items, other calls or random numbers?",
    )


COMPARISONS = {"alike": alike}


# The attentions of lessons 06 and 07, with a step that has no effect.
Heads = MultiHead.changed({"drop": lambda self, weights: weights})
HeadsOfOne = Causal.changed({"drop": lambda self, weights: weights})


# Ways to join a part with its input. The first one is correct.
def pre_norm(x, norm, part) -> Tensor:
    return x + part(norm(x))


@mistake
def post_norm(x, norm, part) -> Tensor:
    """A norm follows a sum, norm(x + f(x)), as in the original paper. Here each norm must come
    before its part, x + f(norm(x)).

    What does each part read, and what is added to its result?
    """
    return norm(x + part(x))


@mistake
def residual_of_the_normed(x, norm, part) -> Tensor:
    """At least one sum adds a result to a norm's output instead of the norm's input.

    What is the first term of each of your sums?
    """
    x = norm(x)
    return x + part(x)


@mistake
def no_residual(x, norm, part) -> Tensor:
    """In at least one of your sums the first term is missing or doubled: the result of a part must
    be added to the sum so far, once.

    In x + f(norm(x)), which term comes before the plus?
    """
    return part(norm(x))


def doubled_residual(x, norm, part) -> Tensor:
    return 2 * x + part(norm(x))


@mistake
def no_norm(x, norm, part) -> Tensor:
    """At least one part reads the sum so far itself instead of its norm.

    In x + f(norm(x)), what does f read?
    """
    return x + part(x)


def mistakes_of_joins(make: Callable[..., Callable], num_parts: int) -> list[Mistake]:
    """Return the known mistakes in how parts are joined. `make(joins)` makes an answer."""

    def made(*joins) -> Mistake:
        places = [[True] * num_parts, *np.eye(num_parts, dtype=bool)]
        all_joins = [[j if here else pre_norm for here in place] for j in joins for place in places]
        return Mistake(id_of(joins[0]), tuple(map(make, all_joins)), *words(joins[0]))

    others = made(residual_of_the_normed), made(no_residual, doubled_residual), made(no_norm)
    return [made(post_norm), *others]


class Block(Stepped, nn.Module):
    """A block in steps, whose `parts` are joined one after the other."""

    num_parts = 3
    joins: Sequence[Callable] = (pre_norm,) * 3
    norms: Sequence[int] = (1, 2, 3)
    shares_norms = False

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        super().__init__()
        self.make_attentions(embed_dim, num_heads)
        self.feed_forward = nn.Sequential(*self.layers(embed_dim, hidden_dim))
        for number in range(1, self.num_parts + 1):
            norm = self.norm(1) if self.shares_norms and number > 1 else nn.LayerNorm(embed_dim)
            setattr(self, f"norm_{number}", norm)
        self.to(device=device, dtype=dtype)

    def make_attentions(self, embed_dim, num_heads) -> None:
        raise NotImplementedError

    def parts(self, *given, **named) -> Sequence[Callable]:
        raise NotImplementedError

    def norm(self, number) -> nn.Module:
        return self.get_submodule(f"norm_{number}")

    def forward(self, x, *given, **named) -> Tensor:
        parts = self.parts(*given, **named)
        for join, number, part in zip(self.joins, self.norms, parts, strict=False):
            x = join(x, self.norm(number), part)
        return x

    def layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
        return nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)

    def network(self, x) -> Tensor:
        return self.feed_forward(x)

    def lens(self, valid_lens) -> Tensor | None:
        return valid_lens


@mistake
class NormsMixedUp(Block):
    """The norms are mixed up: at least one part reads its input through the norm of another part.

    Which norm does each of the formulas name, and is each of them a layer of its own?
    """


@mistake
class PreviousSumLost(Block):
    """A later part reads the input of the whole block, or its result is added to that input. Either
    way, an earlier result is missing there.

    Which of your variables holds the sum so far, and where do you use it?
    """

    def forward(self, x, *given, **named) -> Tensor:
        *parts, network = self.parts(*given, **named)
        z = x
        for number, part in enumerate(parts, start=1):
            z = pre_norm(z, self.norm(number), part)
        return x + network(self.norm(len(parts) + 1)(z))


def _second_added_to_the_input(self, x, *given, **named) -> Tensor:
    first, second, *others = self.parts(*given, **named)
    z = x + second(self.norm(2)(pre_norm(x, self.norm(1), first)))
    for number, part in enumerate(others, start=3):
        z = pre_norm(z, self.norm(number), part)
    return z


def _reading_the_input(*numbers) -> Callable:
    def forward(self, x, *given, **named) -> Tensor:
        z = x
        for number, part in enumerate(self.parts(*given, **named), start=1):
            z = z + part(self.norm(number)(x if number in numbers else z))
        return z

    return forward


@mistake
class NoRelu(Block):
    """Between the two linear layers there is a function other than ReLU, or none.

    What does the statement put between the two layers?
    """

    def network(self, x) -> Tensor:
        return _with(lambda x: x)(self, x)


def _with(activation) -> Callable:
    def network(self, x) -> Tensor:
        first, *_, second = self.feed_forward
        return second(activation(first(x)))

    return network


def _two_layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
    return nn.Linear(embed_dim, hidden_dim), nn.Linear(hidden_dim, embed_dim)


@mistake
class LengthsIgnored(Block):
    """The lengths have no effect, so padded positions are attended to.

    Which call takes `valid_lens`, and do you pass it?
    """

    def lens(self, valid_lens) -> None:
        """Ignore the lengths."""


def mistakes_of_both(block: type[Block]) -> list[Mistake]:
    """Return the known mistakes of both blocks."""

    def made(one: type, *changes: dict[str, Any]) -> Mistake:
        return Mistake(id_of(one), tuple(map(block.changed, changes)), *words(one))

    right = block.norms[: block.num_parts]
    orders = [*itertools.permutations(right), (2,) * len(right)]
    others = [{"norms": order} for order in orders if order != right]
    sums = _second_added_to_the_input, _reading_the_input(2), _reading_the_input(2, 3)
    activations = _with(F.gelu), _with(torch.tanh)
    return [
        *mistakes_of_joins(lambda joins: block.changed({"joins": joins}), block.num_parts),
        made(NormsMixedUp, {"norms": (1,) * len(right)}, {"shares_norms": True}, *others),
        made(
            PreviousSumLost,
            {"forward": PreviousSumLost.forward},
            *({"forward": forward} for forward in sums),
        ),
        made(
            NoRelu,
            {"network": NoRelu.network},
            {"layers": _two_layers},
            *({"network": network} for network in activations),
        ),
        made(LengthsIgnored, {"lens": LengthsIgnored.lens}),
    ]
