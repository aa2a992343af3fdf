"""Lesson 05: estimates that depend on a generator."""

import torch

from course_lib.checks.observe.scenarios import builder, statistic


@statistic
def scatter(target, probe, args, kwargs):
    """Return the relative standard deviation of the results of 60 calls that share a generator."""
    given = {**args, "generator": torch.Generator().manual_seed(1000)}
    results = [float(target(*given.values(), **kwargs)) for _ in range(60)]
    numbers = torch.tensor(results, dtype=torch.float64)
    return float(numbers.std() / numbers.mean().abs().clamp(min=1e-12))


@statistic
def same_seed_twice(target, probe, args, kwargs):
    """Return how far two results with equally seeded generators are apart."""
    twice = [{**args, "generator": torch.Generator().manual_seed(5)} for _ in range(2)]
    first, second = (float(target(*given.values(), **kwargs)) for given in twice)
    return abs(first - second)


@builder
def generator(*, seed, dtype):
    """Return a seeded torch generator."""
    return torch.Generator().manual_seed(seed)
