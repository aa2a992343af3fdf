"""`score_variance`: an estimate, judged by its mean and its deviation over seeds."""

import math
from collections.abc import Callable

import torch

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises._builders import Case, case, in_steps, mistake

# The relative standard deviation of a sample variance of N products is sqrt((2 + 6 / d) / N): the
# excess kurtosis of q . k is 6 / d. A correct answer leaves these bounds with a probability below
# 1e-6: 7 deviations for values, `SCATTER` for the deviation over 60 seeds, known to 10%.
DEVIATIONS = 7.0
SCATTER = (0.55, 1.6)
EXACT = 1e-8


def _one_deviation(probe) -> float:
    d, num_samples = probe.args["d"], probe.args["num_samples"]
    return math.sqrt((2 + 6 / d) / num_samples)


def _near(probe, expected, recorded) -> Problem | None:
    found = float(recorded.data)
    if abs(found - expected) < EXACT * expected:
        return Cause(
            "not_an_estimate",
            f"Your result is exactly the theoretical value, {found:g}. An estimate from "
            f"{probe.args['num_samples']} random pairs hardly ever equals it.",
            "Do you draw the pairs and measure their variance?",
        )
    if abs(found - expected) <= DEVIATIONS * _one_deviation(probe) * expected:
        return None
    return Problem(
        "wrong_variance",
        f"{probe.says} Yours is {found:.3f} for d = {probe.args['d']}.",
        "Are all numbers drawn independently, from the distribution that the statement names? "
        "What does a factor before the sum do to its variance?",
    )


def _scatter(probe, expected, recorded) -> Problem | None:
    ratio = float(recorded.data) / _one_deviation(probe)
    if SCATTER[0] <= ratio <= SCATTER[1]:
        return None
    if ratio < 1e-6:
        return Cause(
            "same_for_every_seed",
            "Your result is the same for 60 seeds of the generator, so it does not depend on draws "
            "from `generator`.",
            "Which generator do your random numbers come from?",
        )
    return Problem(
        "wrong_number_of_pairs",
        f"{probe.says} Over 60 seeds, the standard deviation of your estimates, divided by their "
        f"mean, is {ratio:.1f} times what this gives.",
        "How many pairs do you draw, and does each query meet its own key?",
    )


def _equal(probe, expected, recorded) -> Problem | None:
    if float(recorded.data) == 0.0:
        return None
    return Cause(
        "not_from_the_generator",
        "Two calls with equally seeded generators give different results, but the result must "
        "depend only on the arguments and draws from `generator`.",
        "Do all of your random draws use `generator`, and does anything remain from other calls?",
    )


def _probes(rng) -> list[Probe]:
    def seed() -> Built:
        return Built("generator", {"seed": int(rng.integers(1, 10_000))})

    def probe(name, d, scaled, num_samples=2000, **options) -> Case:
        args = {"d": d, "num_samples": num_samples, "scaled": scaled, "generator": seed()}
        return case(name, **args, **({"compare": "near", "tolerance": 0.2} | options))

    unscaled = "Without scaling the variance of q . k is near d."
    scaled = "After division by sqrt(d) the variance is near 1, whatever d is."
    pairs = "The estimate must come from `num_samples` independent pairs."
    again = {"compare": "equal", "scenario": "same_seed_twice", "part": "edges", "tolerance": 3.0}
    drawn = {"compare": "scatter", "scenario": "scatter", "part": "edges", "tolerance": 0.005}
    return [
        probe("unscaled", 4, False).says(unscaled),
        probe("scaled", 4, True).says(scaled),
        probe("scaled_wide", 64, True).says(scaled),
        probe("scatter_wide", 24, False, num_samples=200, **drawn).says(pairs),
        probe("scatter_narrow", 2, False, num_samples=400, **drawn).says(pairs),
        probe("same_seed", 5, True, num_samples=50, **again).says(
            "The same seed must give the same number."
        ),
    ]


@in_steps(
    power=0.5,
    measure=lambda products: products.var(correction=0),
    is_scaled=lambda scaled: scaled,
)
def _estimate(power, measure, is_scaled) -> Callable:
    """Make a wrong estimate."""

    def model(d, num_samples, scaled, generator) -> float:
        queries, keys = (torch.randn(num_samples, d, generator=generator) for _ in range(2))
        products = (queries * keys).sum(-1)
        return measure(products / d**power if is_scaled(scaled) else products).item()

    return model


def _all_pairs(d, num_samples, scaled, generator) -> float:
    queries, keys = (torch.randn(num_samples, d, generator=generator) for _ in range(2))
    products = queries @ keys.T / (d**0.5 if scaled else 1.0)
    return products.var(unbiased=False).item()


def _variance_by_root(d, num_samples, scaled, generator) -> float:
    queries, keys = (torch.randn(num_samples, d, generator=generator) for _ in range(2))
    variance = (queries * keys).sum(-1).var().item()
    return variance / d**0.5 if scaled else variance


def _shared(side) -> Callable:
    def model(d, num_samples, scaled, generator) -> float:
        rows = [num_samples, num_samples]
        rows[side] = 1
        queries, keys = (torch.randn(n, d, generator=generator) for n in rows)
        products = (queries * keys).sum(-1)
        return (products / d**0.5 if scaled else products).var().item()

    return model


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("variance", "float"),),
    probes=_probes,
    comparisons={"near": _near, "scatter": _scatter, "equal": _equal},
    mistakes=(
        mistake("std_for_variance", _estimate(measure=lambda products: products.std())).says(
            "You return the standard deviation; the variance is its square.",
            "What is the standard deviation of a sum of d terms of variance 1?",
        ),
        mistake("divided_by_d", _estimate(power=1.0)).says(
            "You scale by dividing the products by d, so the variance falls to 1/d.",
            "What does a factor c do to a variance, and which c brings d down to 1?",
        ),
        mistake("variance_by_root", _variance_by_root).says(
            "You divide the variance by sqrt(d) to scale it, but each product must be divided.",
            "What does a factor before the sum do to a variance?",
        ),
        mistake("one_side_shared", _shared(0), twins=(_shared(1),)).says(
            "You draw a single query or a single key, and all pairs share it, so they are not "
            "independent.",
            "What are the shapes of your two random tensors?",
        ),
        mistake("all_pairs", _all_pairs).says(
            "You let every query meet every key. The pairs share queries and keys, so they are not "
            "independent, and there are too many of them.",
            "How many pairs does `num_samples` ask for?",
        ),
    ),
    shares={"values": 0.5, "edges": 0.4, "hygiene": 0.1},
    hints=(
        "Draw many pairs, compute one product for each, and measure how far the products spread.",
        "Draw two tensors of shape (num_samples, d) from `torch.randn(..., generator=generator)`; "
        "multiply them entry by entry, sum over the features, divide by sqrt(d) if asked, take "
        "the variance, and return a Python float.",
        "queries = torch.randn(num_samples, d, generator=generator)\n"
        "keys = ...\n"
        "products = (queries * keys).sum(dim=...)\n"
        "return (products / ... if scaled else products).var().item()",
    ),
)
