"""Answers to `is_causal`."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def replaced_by_zeros_and_more(fn, x):
    y = fn(x)
    for t in range(1, x.shape[1]):
        for value in (0.0, 2.5):
            changed = x.clone()
            changed[:, t:] = value
            if not torch.allclose(fn(changed)[:, :t], y[:, :t], atol=1e-6):
                return False
    return True


@right
def gradient(fn, x):
    x = x.detach().clone().requires_grad_()
    y = fn(x)
    for i in range(x.shape[1] - 1):
        for b in range(len(x)):
            for d in range(y.shape[2]):
                (grad,) = torch.autograd.grad(y[b, i, d], x, retain_graph=True, allow_unused=True)
                if grad is not None and grad[:, i + 1 :].abs().max() > 1e-9:
                    return False
    return True


def _close(a, b):
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def _suffixes(fn, x, change, agree=_close, first=1, reach=0):
    """Changes all from t on, for each t, and compares the outputs before t + reach."""
    outputs = fn(x)
    for t in range(first, x.shape[1]):
        other = x.clone()
        change(other, t)
        if not agree(fn(other)[:, : t + reach], outputs[:, : t + reach]):
            return False
    return True


def _moved(y, t):
    y[:, t:] = y[:, t:] * 3 + 1.1


def suffixes(change=_moved, **options):
    return lambda fn, x: _suffixes(fn, x, change, **options)


@right
def one_position_at_a_time_and_no_nan(fn, x):
    y = fn(x)
    for t in range(x.shape[1]):
        bump = torch.zeros_like(x)
        bump[:, t] = torch.tensor([1.0, -2.0, 3.0], dtype=x.dtype)[: x.shape[2]]
        if not (fn(x + bump)[:, :t] - y[:, :t]).norm() <= 1e-5:
            return False
    return True


more_than_allowed = wrong("accepts_always_nan")(
    suffixes(agree=lambda a, b: not (a - b).abs().max() > 1e-6)
)
global_noise = wrong("global_rng_used")(suffixes(lambda y, t: y[:, t:].normal_()))
exactly_equal = wrong("rejects_rounding")(suffixes(agree=torch.equal))
default_tolerance = wrong("tolerance_too_small")(suffixes(agree=torch.allclose))
signed = wrong()(suffixes(agree=lambda a, b: (b - a).max() < 1e-6))


@faulty("one_sided", "first_item", "last_position_only", "loose")
def with_faults(faults):
    def is_causal(fn, x):
        y, n = fn(x), x.shape[1]
        for t in range(max(n - 1, 1) if "last_position_only" in faults else 1, n):
            z = x.clone()
            z[:, t:] = z[:, t:] * 3 + 1.1
            gap = fn(z)[:, :t] - y[:, :t]
            gap = gap[:1] if "first_item" in faults else gap
            gap = gap if "one_sided" in faults else gap.abs()
            if not gap.max() < (0.03 if "loose" in faults else 1e-6):
                return False
        return True

    return is_causal


@wrong("rejects_share_of_all")
def cut_off(fn, x):
    return all(_close(fn(x[:, :t]), fn(x)[:, :t]) for t in range(1, x.shape[1] + 1))


@wrong("wrong_type")
def bool_of_numpy(fn, x):
    return np.bool_(replaced_by_zeros_and_more(fn, x))
