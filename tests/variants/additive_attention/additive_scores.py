"""Answers to `additive_scores`."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong


def projected(score):
    """Scores from the projected queries, (b, n, h), the projected keys, (b, m, h), and w_v."""
    return lambda queries, keys, w_q, w_k, w_v: score(queries @ w_q.T, keys @ w_k.T, w_v)


def paired(score):
    """Scores from the sums of all pairs, (b, n, m, h), and w_v."""
    return projected(lambda q, k, v: score(q.unsqueeze(2) + k.unsqueeze(1), v))


@right
def unsqueeze(queries, keys, w_q, w_k, w_v):
    q, k = F.linear(queries, w_q), F.linear(keys, w_k)
    return torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)).matmul(w_v)


@right
def einsum_everywhere(queries, keys, w_q, w_k, w_v):
    q = torch.einsum("bnd,hd->bnh", queries, w_q)
    k = torch.einsum("bmd,hd->bmh", keys, w_k)
    return torch.einsum("bnmh,h->bnm", torch.tanh(q[:, :, None] + k[:, None]), w_v)


@right
def concatenated(queries, keys, w_q, w_k, w_v):
    n, m = queries.shape[1], keys.shape[1]
    pairs = torch.cat(
        [
            queries.unsqueeze(2).expand(-1, -1, m, -1),
            keys.unsqueeze(1).expand(-1, n, -1, -1),
        ],
        dim=-1,
    )
    return (torch.tanh(pairs @ torch.cat([w_q, w_k], dim=1).T) * w_v).sum(-1)


@right
def triple_loop(queries, keys, w_q, w_k, w_v):
    rows = []
    for b in range(queries.shape[0]):
        for i in range(queries.shape[1]):
            for j in range(keys.shape[1]):
                hidden = torch.tanh(w_q @ queries[b, i] + w_k @ keys[b, j])
                rows.append(torch.dot(w_v, hidden))
    return torch.stack(rows).reshape(queries.shape[0], queries.shape[1], keys.shape[1])


@right
def one_query_at_a_time(queries, keys, w_q, w_k, w_v):
    k = keys @ w_k.T
    columns = [torch.tanh((q @ w_q.T)[:, None] + k) @ w_v for q in queries.unbind(1)]
    return torch.stack(columns, dim=1)


@right
def one_feature_at_a_time(queries, keys, w_q, w_k, w_v):
    scores = 0
    for h in range(len(w_v)):
        q, k = queries @ w_q[h], keys @ w_k[h]
        scores = scores + w_v[h] * torch.tanh(q[:, :, None] + k[:, None, :])
    return scores


@right
def in_place_on_its_own_tensor(queries, keys, w_q, w_k, w_v):
    features = (queries @ w_q.T)[:, :, None] + (keys @ w_k.T)[:, None]
    features.tanh_()
    return features @ w_v


@right
def through_linear_layers(queries, keys, w_q, w_k, w_v):
    features = torch.tanh(F.linear(queries, w_q)[:, :, None] + F.linear(keys, w_k)[:, None])
    return F.linear(features, w_v[None]).squeeze(-1)


@right
def repeat_and_view(queries, keys, w_q, w_k, w_v):
    b, n, m, h = len(queries), queries.shape[1], keys.shape[1], len(w_v)
    q = (queries @ w_q.T).repeat_interleave(m, dim=1)
    k = (keys @ w_k.T).repeat(1, n, 1)
    return torch.tanh(q + k).view(b, n, m, h) @ w_v


@right
def filled_cell_by_cell(queries, keys, w_q, w_k, w_v):
    scores = queries.new_empty(len(queries), queries.shape[1], keys.shape[1])
    for i in range(queries.shape[1]):
        for j in range(keys.shape[1]):
            scores[:, i, j] = torch.tanh(queries[:, i] @ w_q.T + keys[:, j] @ w_k.T) @ w_v
    return scores


@right
def one_score_mapped_over_all(queries, keys, w_q, w_k, w_v):
    def score(query, key):
        return torch.dot(w_v, torch.tanh(w_q @ query + w_k @ key))

    for query_axis, key_axis in ((None, 0), (0, None), (0, 0)):
        score = torch.vmap(score, (query_axis, key_axis))
    return score(queries, keys)


@right
def as_a_convolution(queries, keys, w_q, w_k, w_v):
    q = (queries @ w_q.T).permute(0, 2, 1).unsqueeze(3)
    k = (keys @ w_k.T).permute(0, 2, 1).unsqueeze(2)
    return torch.conv2d(torch.tanh(q + k), w_v[None, :, None, None])[:, 0]


@right
def pairs_by_index(queries, keys, w_q, w_k, w_v):
    n, m = queries.shape[1], keys.shape[1]
    i, j = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
    return torch.tanh((queries @ w_q.T)[:, i] + (keys @ w_k.T)[:, j]) @ w_v


@right
def some_features_at_a_time(queries, keys, w_q, w_k, w_v):
    total = queries.new_zeros(len(queries), queries.shape[1], keys.shape[1])
    for parts in zip(w_q.split(2), w_k.split(2), w_v.split(2), strict=True):
        total = total + unsqueeze(queries, keys, *parts)
    return total


@right
def in_float64_and_back(queries, keys, w_q, w_k, w_v):
    scores = unsqueeze(*(x.double() for x in (queries, keys, w_q, w_k, w_v)))
    return scores.to(queries.dtype)


@right
def tanh_from_expm1(queries, keys, w_q, w_k, w_v):
    x = (queries @ w_q.T).unsqueeze(2) + (keys @ w_k.T).unsqueeze(1)
    less = torch.expm1(-2 * x.abs())
    return (x.sign() * -less / (less + 2)) @ w_v


# wrong


@wrong()
def as_given(queries, keys, w_q, w_k, w_v):
    return torch.tanh((queries @ w_q)[:, :, None] + (keys @ w_k)[:, None]) @ w_v


@wrong()
def repeat_instead_of_interleave(queries, keys, w_q, w_k, w_v):
    b, n, m = len(queries), queries.shape[1], keys.shape[1]
    q = (queries @ w_q.T).repeat(1, m, 1)
    k = (keys @ w_k.T).repeat(1, n, 1)
    return torch.tanh(q + k).view(b, n, m, -1) @ w_v


@wrong("gradient_cut")
def through_numpy(queries, keys, w_q, w_k, w_v):
    q, k, a, b, v = (x.detach().numpy() for x in (queries, keys, w_q, w_k, w_v))
    features = np.tanh((q @ a.T)[:, :, None] + (k @ b.T)[:, None])
    return torch.from_numpy(features @ v)


_projected = {}


@wrong()
def keys_remembered_by_shape(queries, keys, w_q, w_k, w_v):
    k = _projected.setdefault((keys.shape, w_k.shape, keys.dtype), keys @ w_k.T)
    return torch.tanh((queries @ w_q.T).unsqueeze(2) + k.unsqueeze(1)) @ w_v


def changed(change):
    """The right scores of changed inputs."""
    return lambda *inputs: unsqueeze(*change(*inputs))


linear_only = wrong("no_tanh")(projected(lambda q, k, v: (q @ v)[:, :, None] + (k @ v)[:, None, :]))
two_tanhs = wrong("tanh_apart")(
    projected(lambda q, k, v: (q.tanh() @ v).unsqueeze(2) + (k.tanh() @ v).unsqueeze(1))
)
tanh_of_score = wrong("tanh_after_w_v")(paired(lambda x, v: torch.tanh((x * v).sum(-1))))
clamped = wrong("relu")(paired(lambda x, v: x.clamp(min=0) @ v))
bare_squeeze = wrong("squeezed")(
    paired(lambda x, v: F.linear(torch.tanh(x), v.unsqueeze(0)).squeeze())
)
batch_forgotten = wrong()(projected(lambda q, k, v: torch.tanh(q.unsqueeze(2) + k[0]) @ v))
keys_without_gradient = wrong()(
    projected(lambda q, k, v: torch.tanh(q[:, :, None] + k.data[:, None]) @ v)
)
exponential_formula = wrong()(
    paired(lambda x, v: ((torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1)) @ v)
)
straight_through = wrong("wrong_gradient")(
    paired(lambda x, v: (x + (torch.tanh(x) - x).detach()) @ v)
)
features_added_up = wrong("no_w_v")(paired(lambda x, v: torch.tanh(x).sum(dim=3)))
bilinear = wrong("dot_product")(projected(lambda q, k, v: q @ k.mT))
no_new_axes = wrong("not_paired")(projected(lambda q, k, v: torch.tanh(q + k) @ v))
always_float32 = wrong("dtype_changed")(changed(lambda *inputs: [x.float() for x in inputs]))
columns_for_features = wrong("weights_not_transposed")(
    lambda queries, keys, w_q, w_k, w_v: (
        torch.tanh((queries @ w_q)[:, :, None] + (keys @ w_k)[:, None]) @ w_v
    )
)
crossed = wrong("weights_swapped")(changed(lambda q, k, w_q, w_k, w_v: (q, k, w_k, w_q, w_v)))
scaled_like_dot_product = wrong("scaled")(
    lambda queries, keys, w_q, w_k, w_v: unsqueeze(queries, keys, w_q, w_k, w_v) / len(w_v) ** 0.5
)
weights_already = wrong("softmax_already")(lambda *inputs: unsqueeze(*inputs).softmax(dim=2))
keys_first_then_transposed = right(
    projected(lambda q, k, v: (torch.tanh(k.unsqueeze(2) + q.unsqueeze(1)) @ v).transpose(1, 2))
)
tanh_by_sigmoid = right(paired(lambda x, v: (2 * torch.sigmoid(2 * x) - 1) @ v))
unsqueezed_the_other_way = wrong("axes_swapped")(
    projected(lambda q, k, v: torch.tanh(q.unsqueeze(1) + k.unsqueeze(2)) @ v)
)


@wrong()
def right_way_round_unless_square(*inputs):
    scores = unsqueezed_the_other_way(*inputs)
    return scores if scores.shape[1] == scores.shape[2] else scores.mT


@faulty("no tanh", "squeezed")
def with_faults(faults):
    def scores(queries, keys, w_q, w_k, w_v):
        features = (queries @ w_q.T).unsqueeze(2) + (keys @ w_k.T).unsqueeze(1)
        features = features if "no tanh" in faults else features.tanh()
        result = (features * w_v).sum(dim=-1)
        return result.squeeze() if "squeezed" in faults else result

    return scores
