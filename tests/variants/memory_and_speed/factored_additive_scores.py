"""Answers to `factored_additive_scores`."""

import math

import torch

from course_lib.exercises.variants import faulty, right, wrong


def widest(dtype):
    return math.log(torch.finfo(dtype).max) / 2 - 1


def spread(q, k):
    return q[:, :, None, :], k[:, None, :, :]


@right
def reciprocal(q, k, w):
    a, b = spread(q, k)
    if max(q.abs().max(), k.abs().max()) > widest(q.dtype) * 0.95:
        return torch.tanh(a + b) @ w
    s = (1 + torch.exp(-2 * a) * torch.exp(-2 * b)).reciprocal()
    return (2 * s - 1) @ w


@right
def with_tanh_addition(q, k, w):
    """tanh(q + k) = (tanh q + tanh k) / (1 + tanh q tanh k), where neither is nearly 1."""
    a, b = spread(q, k)
    near = 3.0
    if q.abs().max() <= near and k.abs().max() <= near and q.dtype == torch.float64:
        tq, tk = torch.tanh(a), torch.tanh(b)
        return ((tq + tk) / (1 + tq * tk)) @ w
    return reciprocal(q, k, w)


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


@right
def one_query_at_a_time(q, k, w):
    if (q.abs() > widest(q.dtype) * 0.95).any() or (k.abs() > widest(k.dtype) * 0.95).any():
        return torch.tanh(sum(spread(q, k))) @ w
    eq, ek = torch.exp(-2 * q), torch.exp(-2 * k)
    rows = [2 * ((1 / (1 + eq[:, i : i + 1] * ek)) @ w) for i in range(q.shape[1])]
    return torch.stack(rows, dim=1) - w.sum()


@right
def slow_where_needed(q, k, w):
    """The slow form for those pairs alone that are out of range."""
    limit = widest(q.dtype) * 0.95
    (a, b), (exp_a, exp_b) = spread(q, k), spread(torch.exp(-2 * q), torch.exp(-2 * k))
    fast = 2 * (1 + exp_a * exp_b) ** -1 - 1
    far = ((a.abs() > limit) | (b.abs() > limit)).expand_as(fast)
    if far.any():
        fast = fast.masked_scatter(far, torch.tanh((a + b)[far]))
    return fast @ w


@right
def feature_by_feature(q, k, w):
    if max(q.abs().max(), k.abs().max()) > widest(q.dtype) * 0.95:
        return torch.tanh(sum(spread(q, k))) @ w
    eq, ek = torch.exp(-q).square(), torch.exp(-k).square()
    scores = -w.sum()
    for h in range(q.shape[-1]):
        scores = scores + 2 * w[h] / (1 + eq[:, :, None, h] * ek[:, None, :, h])
    return scores


@wrong()
def changes_its_input(q, k, w):
    with torch.no_grad():
        q *= -2
    a, b = spread(q, -2 * k)
    if a.abs().max() > 80 or b.abs().max() > 80 or q.dtype == torch.float16:
        return torch.tanh((a + b) / -2) @ w
    return 2 * (1 / (1 + torch.exp(a) * torch.exp(b))) @ w - w.sum()


@wrong("pairs")
def both_forms_and_where(q, k, w):
    a, b = spread(q, k)
    near = (a.abs() <= widest(q.dtype) * 0.8) & (b.abs() <= widest(q.dtype) * 0.8)
    fast = 2 / (1 + torch.exp(-2 * a) * torch.exp(-2 * b)) - 1
    return torch.where(near, fast, torch.tanh(a + b)) @ w


def fast_if(near, q, k, w):
    a, b = spread(q, k)
    if not near:
        return torch.tanh(a + b) @ w
    return 2 * (1 / (1 + torch.exp(-2 * a) * torch.exp(-2 * b))) @ w - w.sum()


@right
def item_by_item(q, k, w):
    """Each item of the batch takes the way that its own numbers allow."""
    limit = 0.95 * widest(q.dtype)
    near = [max(a.abs().max(), b.abs().max()) <= limit for a, b in zip(q, k, strict=True)]
    items = zip(near, q.split(1), k.split(1), strict=True)
    return torch.cat([fast_if(here, a, b, w) for here, a, b in items])


def limit(dtype):
    return -math.log(torch.finfo(dtype).tiny) / 2


def guarded_by(near):
    """The fast form where `near(q, k)`."""
    return lambda q, k, w: fast_if(near(q, k), q, k, w)


@wrong("clamped")
def cut_off(q, k, w):
    most = limit(q.dtype)
    return fast_if(True, q.clamp(-most, most), k.clamp(-most, most), w)


@wrong("wrong_beyond_the_range")
def slow_where_nan(q, k, w):
    scores = fast_if(True, q, k, w)
    return fast_if(False, q, k, w) if scores.isnan().any() else scores


@wrong("wrong_far_from_0")
@guarded_by
def first_rows_guarded(q, k):
    return max(q[:, 0].abs().max(), k[:, 0].abs().max()) <= limit(q.dtype)


trusting = wrong("no_guard")(guarded_by(lambda q, k: True))
forty_for_all = wrong("guard_for_float32")(
    guarded_by(lambda q, k: q.abs().max() <= 40 and k.abs().max() <= 40)
)
guard_88 = wrong("wrong_beyond_the_range")(
    guarded_by(lambda q, k: q.abs().max() <= 88 and k.abs().max() <= 88)
)
without_abs = wrong("wrong_far_from_0")(
    guarded_by(lambda q, k: q.max() <= limit(q.dtype) and k.max() <= limit(k.dtype))
)
plain_tanh = wrong("pairs")(guarded_by(lambda q, k: False))
gradient_cut = wrong()(torch.no_grad()(lambda q, k, w: reciprocal(q, k, w)))
softmax_would_not_mind = wrong("constant_forgotten")(lambda q, k, w: reciprocal(q, k, w) + w.sum())
features_added_up = wrong("w_v_forgotten")(lambda q, k, w: reciprocal(q, k, torch.ones_like(w)))


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


@faulty("pairs", "constant_forgotten", "no_gradient")
def slips_of_a_slow_form(faults):
    def factored_additive_scores(q, k, w):
        with torch.set_grad_enabled("no_gradient" not in faults):
            scores = plain_tanh(q, k, w) if "pairs" in faults else reciprocal(q, k, w)
            return scores + w.sum() if "constant_forgotten" in faults else scores

    return factored_additive_scores
