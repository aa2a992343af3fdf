"""Answers to `additive_scores`."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong


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


# wrong


@wrong("gradient_cut")
def through_numpy(queries, keys, w_q, w_k, w_v):
    q, k, a, b, v = (x.detach().numpy() for x in (queries, keys, w_q, w_k, w_v))
    features = np.tanh((q @ a.T)[:, :, None] + (k @ b.T)[:, None])
    return torch.from_numpy(features @ v)


@wrong()
def turned_unless_it_fits(queries, keys, w_q, w_k, w_v):
    w_q = w_q if w_q.shape[0] == queries.shape[-1] else w_q.T
    w_k = w_k if w_k.shape[0] == keys.shape[-1] else w_k.T
    return torch.tanh((queries @ w_q)[:, :, None] + (keys @ w_k)[:, None]) @ w_v


_projected = {}


@wrong()
def keys_remembered_by_shape(queries, keys, w_q, w_k, w_v):
    k = _projected.setdefault((keys.shape, w_k.shape, keys.dtype), keys @ w_k.T)
    return torch.tanh((queries @ w_q.T).unsqueeze(2) + k.unsqueeze(1)) @ w_v


def changed(change):
    """The right scores of changed inputs."""
    return lambda *inputs: unsqueeze(*change(*inputs))


bare_squeeze = wrong("squeezed")(
    paired(lambda x, v: F.linear(torch.tanh(x), v.unsqueeze(0)).squeeze())
)
batch_forgotten = wrong()(projected(lambda q, k, v: torch.tanh(q.unsqueeze(2) + k[0]) @ v))
keys_without_gradient = wrong()(
    projected(lambda q, k, v: torch.tanh(q[:, :, None] + k.data[:, None]) @ v)
)
always_float32 = wrong("dtype_changed")(changed(lambda *inputs: [x.float() for x in inputs]))
tanh_by_hand = wrong("not_a_number")(
    paired(lambda x, v: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()) @ v)
)
unsqueezed_the_other_way = wrong("transposed_result")(
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
