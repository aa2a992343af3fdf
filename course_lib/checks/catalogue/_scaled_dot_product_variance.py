"""`score_variance`: an estimate, judged by its mean and by its scatter over seeds."""

import math

import torch

from course_lib.checks.compare import Problem
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Built, Probe
from course_lib.reference import scaled_dot_product as oracle

# The relative standard deviation of a sample variance of N products is sqrt((2 + 6 / d) / N): the
# excess kurtosis of q . k is 6 / d. Values may be off by 7 of them; a right answer is with a
# probability below 1e-7, heavy tails included. Over 60 seeds the scatter itself is known to 10 %:
# a right answer leaves the bounds below with a probability below 1e-6.
DEVIATIONS = 7.0
SCATTER = (0.55, 1.6)


def _one_deviation(probe):
    d, num_samples = probe.args["d"], probe.args["num_samples"]
    return math.sqrt((2 + 6 / d) / num_samples)


def _near(probe, expected, recorded):
    found = float(recorded.data)
    if abs(found - expected) <= DEVIATIONS * _one_deviation(probe) * expected:
        return None
    return Problem(
        "wrong_variance",
        f"{probe.says} Yours is {found:.3f} for d = {probe.args['d']}.",
        "What is the variance of a sum of d independent terms, and what does a factor do to it?",
    )


def _scatter(probe, expected, recorded):
    ratio = float(recorded.data) / _one_deviation(probe)
    if SCATTER[0] <= ratio <= SCATTER[1]:
        return None
    if ratio < 1e-6:
        return Problem(
            "same_for_every_seed",
            "Your result is the same for every seed of the generator: it is not estimated from "
            "draws.",
            "Which generator do your random numbers come from?",
        )
    return Problem(
        "wrong_number_of_pairs",
        f"{probe.says} Over 60 seeds your estimate scatters {ratio:.1f} times as much as that.",
        "How many pairs do you draw, and does each query meet one key of its own?",
    )


def _equal(probe, expected, recorded):
    if float(recorded.data) == 0.0:
        return None
    return Problem(
        "not_from_the_generator",
        "Two calls with equally seeded generators give different results: some numbers do not "
        "come from `generator`.",
        "Which call of `torch.randn` lacks `generator=generator`?",
    )


def _probes(rng):
    def seed():
        return Built("generator", {"seed": int(rng.integers(1, 10_000))})

    def probe(name, says, d, scaled, num_samples=3000, **options):
        args = {"d": d, "num_samples": num_samples, "scaled": scaled, "generator": seed()}
        return Probe(name, says, args=args, **({"compare": "near", "tolerance": 0.2} | options))

    unscaled = "Without scaling the variance of q . k is near d."
    scaled = "After division by sqrt(d) the variance is near 1, whatever d."
    return [
        probe("unscaled", unscaled, 4, False),
        probe("scaled", scaled, 2, True),
        probe("unscaled_wide", unscaled, 37, False),
        probe("scaled_wide", scaled, 64, True),
        probe("one_feature", scaled, 1, True, num_samples=8000, part="edges"),
        probe(
            "scatter_wide",
            "The estimate must come from `num_samples` independent pairs.",
            24,
            False,
            num_samples=200,
            compare="scatter",
            scenario="scatter",
            part="edges",
            tolerance=0.005,
        ),
        probe(
            "scatter_narrow",
            "The estimate must come from `num_samples` independent pairs.",
            2,
            False,
            num_samples=400,
            compare="scatter",
            scenario="scatter",
            part="edges",
            tolerance=0.005,
        ),
        probe(
            "same_seed",
            "The same seed must give the same number.",
            5,
            True,
            num_samples=50,
            compare="equal",
            scenario="same_seed_twice",
            part="edges",
            tolerance=3.0,
        ),
    ]


def _estimate(
    draw=lambda shape, generator: torch.randn(shape, generator=generator),
    power=0.5,
    measure=lambda products: products.var(correction=0),
    pairs=None,
    keys_are_queries=False,
    is_scaled=lambda scaled: scaled,
):
    def model(d, num_samples, scaled, generator):
        if pairs is not None:
            rows = pairs(num_samples)
            products = (draw((rows, d), generator) @ draw((rows, d), generator).T).flatten()
        else:
            queries = draw((num_samples, d), generator)
            keys = queries if keys_are_queries else draw((num_samples, d), generator)
            products = (queries * keys).sum(-1)
        return measure(products / d**power if is_scaled(scaled) else products).item()

    return model


def _one_query(d, num_samples, scaled, generator):
    query = torch.randn(d, generator=generator)
    products = torch.randn(num_samples, d, generator=generator) @ query
    return (products / math.sqrt(d) if scaled else products).var().item()


def _variance_scaled(d, num_samples, scaled, generator):
    queries = torch.randn(num_samples, d, generator=generator)
    keys = torch.randn(num_samples, d, generator=generator)
    variance = (queries * keys).sum(-1).var()
    return (variance / math.sqrt(d) if scaled else variance).item()


SCORE_VARIANCE = Exercise(
    name="score_variance",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("variance", "float"),),
    probes=_probes,
    oracle=oracle.score_variance,
    comparisons={"near": _near, "scatter": _scatter, "equal": _equal},
    mistakes=(
        Mistake(
            "std_for_variance",
            _estimate(measure=lambda products: products.std()),
            "You return the standard deviation; the variance is its square.",
            "What is the standard deviation of a sum of d terms of variance 1?",
        ),
        Mistake(
            "never_scaled",
            _estimate(is_scaled=lambda scaled: False),
            "`scaled=True` changes nothing: the variance stays near d.",
            "Where does your code use `scaled`?",
        ),
        Mistake(
            "always_scaled",
            _estimate(is_scaled=lambda scaled: True),
            "`scaled=False` changes nothing: you always divide.",
            "Where does your code ask for `scaled`?",
        ),
        Mistake(
            "scaled_the_other_way_round",
            _estimate(is_scaled=lambda scaled: not scaled),
            "You divide where `scaled` is False and do not where it is True.",
            "Which branch belongs to `scaled`?",
        ),
        Mistake(
            "divided_by_d",
            _estimate(power=1.0),
            "You divide the products by d, so the variance falls to 1/d.",
            "What does a factor c do to a variance, and which c brings d down to 1?",
        ),
        Mistake(
            "variance_divided_by_root",
            _variance_scaled,
            "The variance falls to sqrt(d) only: you divide it by sqrt(d), or the products by the "
            "fourth root of d.",
            "What does dividing the products by c do to their variance?",
        ),
        Mistake(
            "times_root",
            _estimate(power=-0.5),
            "You multiply by sqrt(d), so the variance grows to d squared.",
            "Should scaling make large products larger or smaller?",
        ),
        Mistake(
            "query_with_itself",
            _estimate(keys_are_queries=True),
            "Query and key are the same draw: the variance of q . q is 2d.",
            "How often do you draw random numbers?",
        ),
        Mistake(
            "uniform_numbers",
            _estimate(lambda shape, generator: torch.rand(shape, generator=generator)),
            "Your numbers are uniform on 0..1, not standard normal.",
            "What is the difference between `torch.rand` and `torch.randn`?",
        ),
        Mistake(
            "mean_for_variance",
            _estimate(measure=lambda products: products.mean()),
            "You return the mean of the products, which is near 0.",
            "Which average tells how far the products lie from their mean?",
        ),
        Mistake(
            "mean_size_for_variance",
            _estimate(measure=lambda products: products.abs().mean()),
            "You return the mean size of the products, not their variance.",
            "Which power of the deviations does a variance average?",
        ),
        Mistake(
            "sum_for_mean",
            _estimate(measure=lambda products: products.square().sum()),
            "You add up the squares without dividing by their number.",
            "By what is a sum of squares divided in a variance?",
        ),
        Mistake(
            "global_rng",
            _estimate(lambda shape, generator: torch.randn(shape)),
            "Your numbers come from the global random numbers: the same generator gives another "
            "result each time.",
            "Which argument makes `torch.randn` draw from `generator`?",
        ),
        Mistake(
            "own_seed",
            _estimate(
                lambda shape, generator: torch.randn(
                    shape, generator=torch.Generator().manual_seed(shape[0])
                )
            ),
            "The result does not depend on the generator, and queries and keys are the same draw.",
            "Which generator do your random numbers come from?",
        ),
        Mistake(
            "one_small_matrix",
            _estimate(pairs=lambda num_samples: math.isqrt(num_samples) + 1),
            "You take the variance over one matrix of products. Its entries share queries and "
            "keys, so they are not independent: the estimate scatters far more than "
            "`num_samples` pairs would.",
            "How many independent queries stand behind your products?",
        ),
        Mistake(
            "every_query_with_every_key",
            _estimate(pairs=lambda num_samples: num_samples),
            "You pair every query with every key: num_samples squared products that are not "
            "independent, and a matrix that large in memory.",
            "Which product gives each query one key of its own?",
        ),
        Mistake(
            "one_query_for_all_keys",
            _one_query,
            "All your keys meet the same query, so the result depends on how long that one happens "
            "to be: it is near the square of its length, not near d.",
            "How many queries do you draw?",
        ),
        Mistake(
            "four_rows",
            _estimate(pairs=lambda num_samples: 4),
            "You take the variance over one small matrix: 16 products that share 4 queries and 4 "
            "keys say little.",
            "Where does your code use `num_samples`?",
        ),
    ),
    hints=(
        "Draw many pairs, compute one product for each, and ask how far the products spread.",
        "Two tensors of shape (num_samples, d) from `torch.randn(..., generator=generator)`; "
        "multiply them entry by entry, add up over the features, divide by sqrt(d) if asked, take "
        "the variance, and return a Python float.",
        "queries = torch.randn(num_samples, d, generator=generator)\n"
        "keys = ...\n"
        "products = (queries * keys).sum(dim=...)\n"
        "return (products / ... if scaled else products).var().item()",
    ),
)
