"""leave_one_out: the diagonal of the scores is set to 0, which leaves nothing out."""

import torch


# %% leave_one_out
def leave_one_out(inputs, targets, bandwidth):
    points = inputs[:, None]
    scores = -squared_distances(points, points) / (2 * bandwidth**2)
    scores = scores.masked_fill(torch.eye(len(inputs), dtype=torch.bool), 0.0)
    return torch.softmax(scores, dim=-1) @ targets
