"""Problems with injected weights and wrong blocks for both exercises about a block."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.checks.judge.comparisons import Problem, arrays_agree, close, tolerance_for
from course_lib.checks.judge.definitions import Mistake
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.steps import Stepped
from course_lib.exercises._builders import FLOAT32, Given, case, edge, mistake
from course_lib.exercises.bug_hunt.CausalSelfAttention import Causal
from course_lib.exercises.multi_head.MultiHeadAttention import MultiHead

Sizes = tuple[int, int, int]  # embed_dim, num_heads, hidden_dim


def _weight(rng, rows, columns) -> np.ndarray:
    return rng.normal(0, 1.3 / columns**0.5, (rows, columns))


def linear_weights(rng, name, rows, columns) -> Given:
    """Return weights of an `nn.Linear`."""
    weight = _weight(rng, rows, columns)
    return {f"{name}.weight": weight, f"{name}.bias": rng.normal(0, 0.5, rows)}


def norm_weights(rng, name, d) -> Given:
    """Return weights of an `nn.LayerNorm`."""
    return {f"{name}.weight": rng.uniform(0.6, 1.5, d), f"{name}.bias": rng.normal(0, 0.5, d)}


def built(rng, attentions, num_norms, sizes: Sizes) -> Given:
    """Return a block's constructor arguments and weights. `eps` only affects problems about it."""
    d, num_heads, hidden = sizes
    state = {
        f"{name}.{layer}.weight": _weight(rng, times * d, d)
        for name, layers in attentions.items()
        for layer, times in layers.items()
    }
    for number in range(1, num_norms + 1):
        state |= norm_weights(rng, f"norm_{number}", d)
    state |= linear_weights(rng, "feed_forward.0", hidden, d)
    state |= linear_weights(rng, "feed_forward.2", d, hidden)
    construct = {"embed_dim": d, "num_heads": num_heads, "hidden_dim": hidden}
    return {"construct": construct, "state": state, "tolerance": 1e-3}


def identities(problem: Given) -> Given:
    """Return the problem with weights that have no effect, so that it can be solved by hand."""
    for name, value in problem["state"].items():
        if value.ndim == 2:
            value[:] = np.resize(np.eye(value.shape[1]), value.shape)
        else:
            value[:] = name.endswith("weight")
    return problem


def without(problem: Given, *parts: str) -> Given:
    """Return the problem with weights for which these parts return zeros."""
    for name, value in problem["state"].items():
        if name.startswith(tuple(f"{part}.{last}" for part in parts for last in ("W_o", "2"))):
            value[:] = 0.0
    return problem


def inputs(rng, shape, **options) -> Array:
    return tensor(rng.normal(0, 1.3, shape), **options)


def first_array(problem: Given) -> np.ndarray:
    """Return the numbers of x or y."""
    return next(iter(problem["args"].values())).data


def with_equal_items(problem: Given) -> Given:
    """Return the problem with one item repeated. `alike` compares the two outputs."""
    for value in problem["args"].values():
        value.data[1] = value.data[0]
    return problem | {"compare": "alike"}


def probes_of_both(rng, problem: Callable[..., Given], *attentions: str) -> list[Probe]:
    """Return the probes of both blocks; `problem(batch, n, sizes, valid_lens)` makes the fields.

    Some of them compare outputs with each other, so that a block with one fault everywhere, such
    as norms in the wrong place, still earns points for its other parts.
    """
    sizes = 6, 2, 5
    nearly: Given = problem(2, 3, sizes, [2, 1]) | {"tolerance": None}
    first_array(nearly)[:] = rng.normal(0, 2e-3, (2, 3, 6))
    first_array(nearly)[0, 0] = 0.5
    dead: Given = without(problem(2, 4, (6, 3, 5)), *attentions)
    normal = first_array(dead)  # so that norms have no effect in any place
    normal -= normal.mean(-1, keepdims=True)
    normal /= normal.std(-1, keepdims=True)
    for name, value in dead["state"].items():
        if value.ndim == 1:
            value[:] = name.startswith("norm") and name.endswith("weight")
    dead["state"]["feed_forward.0.bias"][:] = -1e3
    by_position: Given = {
        "scenario": "built_by_position",
        "by_name": {"valid_lens": tensor([3, 2])},
    }
    meta: Given = {"scenario": "made_with_device_and_dtype"}
    calls = {"after_another_call": [2, 4], "after_a_call_with_lengths": None}
    return [
        case("built_by_position", **by_position, **problem(2, 4, (6, 3, 5))).says(
            "`__init__` must take embed_dim, num_heads and hidden_dim in this order, and `forward` "
            "must take the lengths by name, too."
        ),
        case("hidden_negative", **dead).says(
            "If all numbers between the two linear layers are negative, ReLU makes them 0, and the "
            "network must add only the bias of its second layer."
        ),
        edge("device_and_dtype", **meta, **with_equal_items(problem(2, 3, sizes, [2, 2]))).says(
            "`device=` and `dtype=` must set the device and the dtype of the weights. Pass both on "
            "to each layer."
        ),
        edge("small_differences", **nearly).says(
            "Features that hardly differ must be normalized with 1e-5 under the root, the default "
            "of `nn.LayerNorm`."
        ),
        edge("train", training=True, **with_equal_items(problem(2, 5, sizes, [3, 3]))).says(
            "There must be no dropout: in train mode, too, equal items must get equal outputs."
        ),
        edge("length_0", **problem(3, 5, (6, 3, 4), [0, 4, 2])).says(
            "Where the length of an item is 0, the attention to its positions must add nothing."
        ),
        *(
            edge(scenario, scenario=scenario, **problem(2, 5, sizes, lens)).says(
                "Neither other calls nor other blocks may change what a block returns."
            )
            for scenario, lens in calls.items()
        ),
        edge("float32", **with_equal_items(problem(2, 5, sizes, [4, 4])) | FLOAT32).says(
            "Float32 inputs and weights must give float32 outputs."
        ),
    ]


def gradients(rng, problem: Callable[..., Given]) -> list[Probe]:
    """Return the probes of the gradients of both blocks; `problem` is that of `probes_of_both`."""

    def back(length) -> Given:
        given = problem(1, 3, (3, 1, 2), [length], requires_grad=True)
        bias = given["state"]["feed_forward.0.bias"]
        bias[:] = np.resize([12.0, -12.0], bias.shape)  # ReLU has no derivative at 0
        return given | {"grad_outputs": rng.normal(size=(1, 3, 3))}

    return [
        case("gradient", **back(2)).says("Gradients must reach every input and all layers."),
        case("gradient_length_0", **back(0)).says(
            "An item of length 0 must leave every gradient finite."
        ),
    ]


def _alike(probe, expected, recorded) -> Problem | None:
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


COMPARISONS = {"alike": _alike}


# The attentions of lessons 06 and 07, with a step that has no effect.
Heads = MultiHead.changed({"drop": lambda self, weights: weights})
HeadsOfOne = Causal.changed({"drop": lambda self, weights: weights})


# Ways to join a part with its input. The first one is correct.
def pre_norm(x, norm, part) -> Tensor:
    return x + part(norm(x))


def _post_norm(x, norm, part) -> Tensor:
    return norm(x + part(x))


def _of_the_normed(x, norm, part) -> Tensor:
    x = norm(x)
    return x + part(x)


def _no_residual(x, norm, part) -> Tensor:
    return part(norm(x))


def mistakes_of_joins(make: Callable[..., Callable], num_parts: int) -> tuple[Mistake, ...]:
    """Return the known mistakes in how parts are joined. `make(joins)` makes an answer."""

    def once(join) -> tuple[Callable, ...]:
        places = np.eye(num_parts, dtype=bool)
        return tuple(make([join if here else pre_norm for here in place]) for place in places)

    return (
        mistake("post_norm", make([_post_norm] * num_parts)).says(
            "Your norms follow the sums, norm(x + f(x)), as in the original paper. Here each norm "
            "must come before its part, x + f(norm(x)).",
            "What does each part read, and what is added to its result?",
        ),
        mistake(
            "residual_of_the_normed",
            make([_of_the_normed] * num_parts),
            twins=once(_of_the_normed),
        ).says(
            "At least one sum adds a result to a norm's output instead of the norm's input.",
            "What is the first term of each of your sums?",
        ),
        mistake("no_residual", make([_no_residual] * num_parts), twins=once(_no_residual)).says(
            "In at least one of your sums the first term is missing: the result of a part "
            "replaces the sum so far instead of being added to it.",
            "In x + f(norm(x)), which term comes before the plus?",
        ),
    )


class Block(Stepped, nn.Module):
    """A block in steps, whose `parts` are joined one after the other."""

    joins: Sequence[Callable] = (pre_norm,) * 3
    norms: Sequence[int] = (1, 2, 3)
    shares_norms = False

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        super().__init__()
        self.make_attentions(embed_dim, num_heads)
        self.feed_forward = nn.Sequential(*self.layers(embed_dim, hidden_dim))
        for number in range(1, len(self.norms) + 1):
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


def _without_relu(self, x) -> Tensor:
    first, *_, second = self.feed_forward
    return second(first(x))


def _two_layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
    return nn.Linear(embed_dim, hidden_dim), nn.Linear(hidden_dim, embed_dim)


def _with(activation) -> Callable:
    def network(self, x) -> Tensor:
        first, *_, second = self.feed_forward
        return second(activation(first(x)))

    return network


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


def _added_to_the_input(self, x, *given, **named) -> Tensor:
    *parts, network = self.parts(*given, **named)
    z = x
    for number, part in enumerate(parts, start=1):
        z = pre_norm(z, self.norm(number), part)
    return x + network(self.norm(len(parts) + 1)(z))


def mistakes_of_both(block: type[Block]) -> tuple[Mistake, ...]:
    """Return the known mistakes of both blocks."""
    count = len(block.norms)
    orders = [*itertools.permutations(block.norms), (2,) * count]
    return (
        *mistakes_of_joins(lambda joins: block.answer({"joins": joins}), len(block.norms)),
        mistake(
            "norms_mixed_up",
            block.answer({"norms": (1,) * count}),
            twins=(
                block.answer({"shares_norms": True}),
                *(block.answer({"norms": order}) for order in orders if order != block.norms),
            ),
        ).says(
            "The norms are mixed up: at least one part reads its input through the norm of another "
            "part.",
            "Which norm does each of the formulas name, and is each of them a layer of its own?",
        ),
        mistake(
            "previous_sum_lost",
            block.answer({"forward": _added_to_the_input}),
            twins=(
                block.answer({"forward": _second_added_to_the_input}),
                block.answer({"forward": _reading_the_input(2)}),
                block.answer({"forward": _reading_the_input(2, 3)}),
            ),
        ).says(
            "A later part reads the input of the whole block, or its result is added to that "
            "input. Either way, an earlier result is missing there.",
            "Which of your variables holds the sum so far, and where do you use it?",
        ),
        mistake(
            "no_relu",
            block.answer({"network": _without_relu}),
            twins=(
                block.answer({"layers": _two_layers}),
                block.answer({"network": _with(F.gelu)}),
                block.answer({"network": _with(torch.tanh)}),
            ),
        ).says(
            "Between the two linear layers there is a function other than ReLU, or none.",
            "What does the statement put between the two layers?",
        ),
        mistake("lengths_ignored", block.answer({"lens": lambda self, valid_lens: None})).says(
            "The lengths have no effect, so padded positions are attended to.",
            "Which call takes `valid_lens`, and do you pass it?",
        ),
    )
