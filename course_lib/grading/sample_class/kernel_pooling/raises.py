"""A cell that raises when it is run, and one whose function raises when it is called."""

import torch


# %% squared_distances
def squared_distances(queries, keys):
    differences = queries[:, None, :] - keys[None, :, :]
    return differences.square().sum(dim=-1)


print(squared_distances(torch.ones(2, 3), torch.ones(2, 4)))


# %% leave_one_out
def leave_one_out(inputs, targets, bandwidth):
    points = inputs.unsqueeze(2)
    scores = -squared_distances(points, points) / (2 * bandwidth**2)
    return torch.softmax(scores, dim=-1) @ targets
