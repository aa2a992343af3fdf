"""`score_variance`: an estimate, judged by its mean and its deviation over repeated calls."""

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises.kit import Problems, call, like, mistake

# The relative standard deviation of a sample variance of N products is sqrt((2 + 6 / d) / N): the
# excess kurtosis of q . k is 6 / d. A correct answer leaves these bounds with a probability below
# 1e-6: 7 deviations for values, `SCATTER` for the deviation over 60 calls, which is
# accurate to about 10%.
DEVIATIONS = 7.0
SCATTER = (0.55, 1.6)
EXACT = 1e-8


_FACTORS = {  # mistakes that multiply the variance
    "one_vector": (2.0, "Your variance is that of q . q, as if query and key were one vector."),
    "not_normal": (7 / 144, "Your variance is that of numbers that are uniform between 0 and 1."),
}


def one_deviation(probe) -> float:
    d, num_samples = probe.args["d"], probe.args["num_samples"]
    return math.sqrt((2 + 6 / d) / num_samples)


def near(probe, expected, recorded) -> Problem | None:
    found = float(recorded.data)
    if abs(found - expected) < EXACT * expected:
        return Cause(
            "not_an_estimate",
            f"Your result is exactly the theoretical value, {found:g}. An estimate from "
            f"{probe.args['num_samples']} random pairs hardly ever equals it.",
            "Do you draw the pairs and measure their variance?",
        )
    if abs(found - expected) <= DEVIATIONS * one_deviation(probe) * expected:
        return None
    for name, (factor, fact) in _FACTORS.items():
        if abs(found / factor - expected) <= DEVIATIONS * one_deviation(probe) * expected:
            return Cause(name, fact, "How do you draw the queries, and how do you draw the keys?")
    return Problem(
        "wrong_variance",
        f"{probe.says} Yours is {found:.3f} for d = {probe.args['d']}.",
        "Is each dot product a sum over d features? Are all numbers drawn independently, from the "
        "distribution that the statement names? How does a factor change a variance?",
    )


def scatter(probe, expected, recorded) -> Problem | None:
    ratio = float(recorded.data) / one_deviation(probe)
    if SCATTER[0] <= ratio <= SCATTER[1]:
        return None
    if ratio < 1e-6:
        return Cause(
            "same_in_every_call",
            "Sixty calls with the same `generator` return the same result, although each call "
            "should draw new numbers from it.",
            "Does each call draw from `generator` without seeding or copying it?",
        )
    return Problem(
        "wrong_number_of_pairs",
        f"{probe.says} Over 60 calls, the relative standard deviation of your estimates is "
        f"{ratio:.1f} times the value expected for this many pairs.",
        "Do you return the variance of `num_samples` products, each of one query with its own key?",
    )


def equal(probe, expected, recorded) -> Problem | None:
    if float(recorded.data) == 0.0:
        return None
    return Cause(
        "not_from_the_generator",
        "Two calls with equally seeded generators give different results, but the result must "
        "depend only on the arguments and draws from `generator`.",
        "Do all of your random draws use `generator`, and does anything remain from other calls?",
    )


def problems(rng) -> Problems:
    def probe(d, scaled, num_samples=2000, **options: Any) -> Probe:
        generator = Built("generator", {"seed": int(rng.integers(1, 10_000))})
        options = {"compare": "near", "tolerance": 0.2} | options
        return call(d, num_samples, scaled, generator, **options)

    scaled = "After division by sqrt(d) the variance is near 1, whatever d is."
    again = {"compare": "equal", "scenario": "same_seed_twice", "part": "edges", "tolerance": 3.0}
    spread = {"compare": "scatter", "scenario": "scatter", "part": "edges", "tolerance": 0.005}
    yield "Without scaling the variance of q . k is near d."
    yield probe(8, False)
    yield scaled
    yield probe(8, True)
    yield probe(64, True)
    yield "The estimate must come from `num_samples` independent pairs."
    yield probe(24, False, num_samples=200, **spread)
    yield probe(2, False, num_samples=400, **spread)
    yield "The same seed must give the same number."
    yield probe(5, True, num_samples=50, **again)


def pairs(generator, *shapes) -> list[Tensor]:
    return [torch.randn(shape, generator=generator) for shape in shapes]


@mistake
def std_for_variance(d, num_samples, scaled, generator) -> float:
    """You return the standard deviation; the variance is its square.

    What is the standard deviation of a sum of d terms of variance 1?
    """
    queries, keys = pairs(generator, (num_samples, d), (num_samples, d))
    return ((queries * keys).sum(-1) / (d**0.5 if scaled else 1)).std().item()


@mistake
def divided_by_d(d, num_samples, scaled, generator) -> float:
    """If `scaled` is True, you divide the products by d instead of the square root of d.

    What does a factor c do to a variance, and which c brings d down to 1?
    """
    queries, keys = pairs(generator, (num_samples, d), (num_samples, d))
    return ((queries * keys).sum(-1) / (d if scaled else 1)).var(correction=0).item()


@mistake
def variance_by_root(d, num_samples, scaled, generator) -> float:
    """Your scaled variance is the other one divided by sqrt(d). If each score is divided by
    sqrt(d), the variance falls by the factor d.

    What does a factor before the sum do to a variance?
    """
    queries, keys = pairs(generator, (num_samples, d), (num_samples, d))
    variance = (queries * keys).sum(-1).var().item()
    return variance / d**0.5 if scaled else variance


@mistake
def one_side_shared(d, num_samples, scaled, generator) -> float:
    """You draw a single query or a single key, and all pairs share it, so they are not independent.

    What are the shapes of your two random tensors?
    """
    query, keys = pairs(generator, (1, d), (num_samples, d))
    return ((query * keys).sum(-1) / (d**0.5 if scaled else 1)).var().item()


@like(one_side_shared)
def one_key_shared(d, num_samples, scaled, generator) -> float:
    queries, key = pairs(generator, (num_samples, d), (1, d))
    return ((queries * key).sum(-1) / (d**0.5 if scaled else 1)).var().item()


@mistake
def all_pairs(d, num_samples, scaled, generator) -> float:
    """You let every query meet every key. The pairs share queries and keys, so they are not
    independent, and there are too many of them.

    How many pairs does `num_samples` ask for?
    """
    queries, keys = pairs(generator, (num_samples, d), (num_samples, d))
    products = queries @ keys.T / (d**0.5 if scaled else 1.0)
    return products.var(unbiased=False).item()


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    starred=True,
    returns=(Returned("variance", "float"),),
    probes=problems,
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
    marking=Marking(
        comparisons={"near": near, "scatter": scatter, "equal": equal},
        shares={"values": 0.5, "edges": 0.4, "hygiene": 0.1},
    ),
)
