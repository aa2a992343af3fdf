"""Answers to `factored_additive_scores`."""

import math

import torch

from course_lib.authoring.variants import faulty, right, wrong


def widest(dtype):
    return math.log(torch.finfo(dtype).max) / 2 - 1


def spread(q, k):
    return q[:, :, None, :], k[:, None, :, :]


@right
def one_query_at_a_time(q, k, w):
    if (q.abs() > widest(q.dtype) * 0.95).any() or (k.abs() > widest(k.dtype) * 0.95).any():
        return torch.tanh(sum(spread(q, k))) @ w
    eq, ek = torch.exp(-2 * q), torch.exp(-2 * k)
    rows = [2 * ((1 / (1 + eq[:, i : i + 1] * ek)) @ w) for i in range(q.shape[1])]
    return torch.stack(rows, dim=1) - w.sum()


@right
def reciprocal(q, k, w):
    a, b = spread(q, k)
    if max(q.abs().max(), k.abs().max()) > widest(q.dtype) * 0.95:
        return torch.tanh(a + b) @ w
    s = (1 + torch.exp(-2 * a) * torch.exp(-2 * b)).reciprocal()
    return (2 * s - 1) @ w


@right
def in_float64(q, k, w):
    """float64 holds exp(160) and exp(-160), whatever the dtype asked for."""
    wide = torch.float64
    a, b = spread(q.to(wide), k.to(wide))
    limit = 350.0
    if (a.abs() > limit).any() or (b.abs() > limit).any():
        return (torch.tanh(a + b) @ w.to(wide)).to(w.dtype)
    s = 1 / (1 + torch.exp(-2 * a) * torch.exp(-2 * b))
    return (2 * torch.einsum("bnmh,h->bnm", s, w.to(wide)) - w.to(wide).sum()).to(w.dtype)


@wrong()
def changes_its_input(q, k, w):
    with torch.no_grad():
        q *= -2
    a, b = spread(q, -2 * k)
    if a.abs().max() > 80 or b.abs().max() > 80 or q.dtype == torch.float16:
        return torch.tanh((a + b) / -2) @ w
    return 2 * (1 / (1 + torch.exp(a) * torch.exp(b))) @ w - w.sum()


def fast_if(near, q, k, w):
    a, b = spread(q, k)
    if not near:
        return torch.tanh(a + b) @ w
    return 2 * (1 / (1 + torch.exp(-2 * a) * torch.exp(-2 * b))) @ w - w.sum()


def limit(dtype):
    return -math.log(torch.finfo(dtype).tiny) / 2


def guarded_by(near):
    """The fast form where `near(q, k)`."""
    return lambda q, k, w: fast_if(near(q, k), q, k, w)


plain_tanh = wrong("spent_functions")(guarded_by(lambda q, k: False))
gradient_cut = wrong("gradient_cut")(torch.no_grad()(lambda q, k, w: reciprocal(q, k, w)))


@faulty("guard_40", "constant_forgotten", "both_signs", "in_place")
def slips_of_a_fast_form(faults):
    def factored_additive_scores(q, k, w):
        limit = 40.0 if "guard_40" in faults else widest(q.dtype) * 0.95
        far = q.abs().max() > limit or k.abs().max() > limit
        a, b = spread(q, k)
        if far:
            sigmoids = torch.sigmoid(2 * (a + b))
        elif "both_signs" in faults:
            up, down = (torch.exp(sign * a) * torch.exp(sign * b) for sign in (1, -1))
            sigmoids = up / (up + down)
        else:
            sigmoids = 1 / (1 + torch.exp(-2 * a) * torch.exp(-2 * b))
        scores = 2 * sigmoids @ w
        if "constant_forgotten" not in faults:
            scores = scores - w.sum()
        if "in_place" in faults:
            with torch.no_grad():
                k.neg_()
        return scores

    return factored_additive_scores
