"""fit_bandwidth: minimises the error on the training points."""

import torch


# %% fit_bandwidth
def fit_bandwidth(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    log_bandwidth = torch.tensor(math.log(initial), dtype=inputs.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([log_bandwidth], lr=lr)
    points = inputs[:, None]
    for _ in range(num_steps):
        outputs, _ = kernel_pooling(points, points, targets[:, None], log_bandwidth.exp())
        error = ((outputs[:, 0] - targets) ** 2).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return log_bandwidth.exp().item()
