"""Answers to `score_variance`."""

import math

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def product_sum(d, num_samples, scaled, generator):
    q = torch.randn(num_samples, d, generator=generator)
    k = torch.randn(num_samples, d, generator=generator)
    s = (q * k).sum(dim=1)
    if scaled:
        s /= math.sqrt(d)
    return s.var().item()


@right
def python_loop(d, num_samples, scaled, generator):
    total, squares = 0.0, 0.0
    for _ in range(num_samples):
        q, k = torch.randn(2, d, generator=generator)
        s = torch.dot(q, k).item() * (d**-0.5 if scaled else 1.0)
        total += s
        squares += s * s
    mean = total / num_samples
    return squares / num_samples - mean * mean


@right
def numpy_seeded_by_the_generator(d, num_samples, scaled, generator):
    seed = int(torch.randint(0, 2**31 - 1, (1,), generator=generator))
    q, k = np.random.default_rng(seed).standard_normal((2, num_samples, d))
    products = (q * k).sum(axis=1)
    return float((products / np.sqrt(d) if scaled else products).var())


@wrong("not_from_the_generator")
def forgets_the_generator(d, num_samples, scaled, generator):
    s = (torch.randn(num_samples, d) * torch.randn(num_samples, d)).sum(-1)
    return (s.var() / (d if scaled else 1)).item()


@wrong("same_in_every_call")
def copies_the_seed_of_the_generator(d, num_samples, scaled, generator):
    copied = torch.Generator().manual_seed(generator.initial_seed())
    return product_sum(d, num_samples, scaled, copied)


theory = wrong("not_an_estimate")(
    lambda d, num_samples, scaled, generator: 1.0 if scaled else float(d)
)
always_ten_thousand = wrong("wrong_number_of_pairs")(
    lambda d, num_samples, scaled, generator: product_sum(d, 10_000, scaled, generator)
)


@faulty("std", "never_scaled", "global_rng")
def with_faults(faults):
    def score_variance(d, num_samples, scaled, generator):
        source = None if "global_rng" in faults else generator
        q, k = (torch.randn(num_samples, d, generator=source) for _ in range(2))
        s = (q * k).sum(dim=-1)
        if scaled and "never_scaled" not in faults:
            s = s / math.sqrt(d)
        return (s.std() if "std" in faults else s.var()).item()

    return score_variance
