"""Problems for the blocks of lesson 09: sizes, injected weights, and what both must hold."""

import dataclasses
from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.comparisons import Problem, arrays_agree, close
from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._rows import Given

Sizes = tuple[int, int, int]  # embed_dim, num_heads, hidden_dim


def built(rng, attentions, num_norms, sizes: Sizes) -> Given:
    """How a block is built, and weights for it.

    Args:
        attentions: the shapes of the weights of each attention, as multiples of `embed_dim`.
        num_norms: how many norms there are; no two are alike.
    """
    d, num_heads, hidden = sizes

    def weight(rows, columns) -> np.ndarray:
        return rng.normal(0, 1.3 / columns**0.5, (rows, columns))

    state = {
        f"{name}.{layer}.weight": weight(times * d, d)
        for name, layers in attentions.items()
        for layer, times in layers.items()
    }
    for number in range(1, num_norms + 1):
        state[f"norm_{number}.weight"] = rng.uniform(0.6, 1.5, d)
        state[f"norm_{number}.bias"] = rng.normal(0, 0.5, d)
    for place, (rows, columns) in {"0": (hidden, d), "2": (d, hidden)}.items():
        state[f"feed_forward.{place}.weight"] = weight(rows, columns)
        state[f"feed_forward.{place}.bias"] = rng.normal(0, 0.5, rows)
    construct = {"embed_dim": d, "num_heads": num_heads, "hidden_dim": hidden}
    return {"construct": construct, "state": state}


def identities(problem: Given) -> Given:
    """The problem with weights that change nothing: one can do it by hand."""
    for name, value in problem["state"].items():
        is_matrix = value.ndim == 2
        plain = np.ones_like(value) if name.endswith("weight") else np.zeros_like(value)
        problem["state"][name] = (
            np.resize(np.eye(value.shape[1]), value.shape) if is_matrix else (plain)
        )
    return problem


def far_from_the_bend(problem: Given) -> Given:
    """The problem with hidden numbers far from 0, where ReLU has no derivative to compare."""
    bias = problem["state"]["feed_forward.0.bias"]
    bias[:] = np.resize([6.0, -6.0], bias.shape)
    return problem


def up_to_eps(probes: list[Probe]) -> list[Probe]:
    """The probes, all but that about it lenient to another number under the roots."""
    return [
        probe
        if probe.compare == "eps" or probe.tolerance
        else dataclasses.replace(probe, tolerance=1e-3)
        for probe in probes
    ]


def inputs(rng, shape, **options) -> Array:
    return tensor(rng.normal(0, 1.3, shape), **options)


def nearly_equal(rng, shape) -> Array:
    """Features that differ by thousandths, and at one position not at all."""
    x = rng.normal(0, 1.3, (*shape[:2], 1)) + rng.normal(0, 2e-3, shape)
    x[0, 0] = x[0, 0, 0]
    return tensor(x)


def judged_eps(oracle: Callable) -> Callable:
    """Names the number that an answer adds under the root of its norms."""

    def judged(probe, expected, recorded) -> Problem | None:
        if close(probe, expected, recorded) is None:
            return None
        given = [np.array(value.data) for value in probe.inputs().values()]
        for eps in (1e-3, 1e-4, 1e-6, 1e-8, 1e-12):
            outputs = oracle(probe.construct, probe.state, *given, eps=eps).outputs
            if arrays_agree(outputs, recorded.numbers, 1e-7):
                return Problem(
                    "another_eps",
                    f"Your norms add {eps:g} under the root; here it is 1e-5, the default of "
                    "`nn.LayerNorm`. Where features hardly differ, that number decides their size.",
                    "What is `eps` for, and what is yours?",
                )
        return close(probe, expected, recorded)

    return judged


def _normed_outputs(probe: Probe, recorded) -> str | None:
    """Whether the outputs are what one of the norms gives, whatever came before."""
    if recorded is None or recorded.data is None or recorded.data.dtype.kind != "f":
        return None
    for name in (key.removesuffix(".bias") for key in probe.state if key.startswith("norm_")):
        weight, bias = (probe.state.get(f"{name}.{part}") for part in ("weight", "bias"))
        if weight is None or bias is None or len(bias) < 3:  # two normed features are always 1, -1
            continue
        if recorded.data.shape[-1:] != bias.shape:
            continue
        plain = (recorded.data - bias) / weight
        if np.abs(plain.mean(-1)).max() < 1e-3 and np.abs(plain.var(-1) - 1).max() < 0.1:
            return f"Your outputs are what `{name}` gives, so the norm comes last. A sum should."
    return None


OUTPUTS_NORMED = Property(
    "outputs_are_normed", _normed_outputs, "Does each norm come before its part, or after the sum?"
)
