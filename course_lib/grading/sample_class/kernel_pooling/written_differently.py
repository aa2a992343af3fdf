"""Everything right, written in other ways than the course does."""

import torch


# %% squared_distances
def squared_distances(queries, keys):
    q2 = (queries**2).sum(dim=1).unsqueeze(1)
    k2 = (keys**2).sum(dim=1).unsqueeze(0)
    return q2 - 2 * torch.einsum("nd,md->nm", queries, keys) + k2


# %% kernel_pooling
def kernel_pooling(queries, keys, values, bandwidth):
    if values.ndim != 2:
        raise ValueError(f"values must be (m, v), not {tuple(values.shape)}")
    distances = torch.cdist(queries, keys) ** 2
    distances = distances - distances.min(dim=1, keepdim=True).values
    kernel = torch.exp(-distances / (2 * bandwidth**2))
    weights = kernel / kernel.sum(dim=1, keepdim=True)
    return torch.einsum("nm,mv->nv", weights, values), weights


# %% leave_one_out
def leave_one_out(inputs, targets, bandwidth):
    if len(inputs) == 1:
        return torch.zeros_like(targets)
    predictions = []
    for i in range(len(inputs)):
        others = torch.arange(len(inputs)) != i
        scores = -((inputs[others] - inputs[i]) ** 2) / (2 * bandwidth**2)
        predictions.append((scores.softmax(dim=0) * targets[others]).sum())
    return torch.stack(predictions)


# %% fit_bandwidth
def error_at(inputs, targets, bandwidth):
    return ((leave_one_out(inputs, targets, bandwidth) - targets) ** 2).mean()


def fit_bandwidth(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    low, high = 0.02, 20.0
    for _ in range(4):
        grid = torch.logspace(math.log10(low), math.log10(high), 30).tolist()
        errors = [error_at(inputs, targets, h).item() for h in grid]
        best = errors.index(min(errors))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 29)]
    return (low * high) ** 0.5


# %% gaussian_as_dot_product
def gaussian_as_dot_product(queries, keys, bandwidth):
    return -(torch.cdist(queries, keys) ** 2) / (2 * bandwidth**2)
