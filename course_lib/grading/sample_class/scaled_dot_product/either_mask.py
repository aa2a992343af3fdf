"""attention_backward: forgets the row sum of the softmax."""

import math

import torch


# %% attention_backward
def attention_backward(queries, keys, values, grad_outputs):
    root = math.sqrt(queries.shape[-1])
    weights = torch.softmax(queries @ keys.mT / root, dim=-1)
    grad_scores = weights * (grad_outputs @ values.mT) / root
    return grad_scores @ keys, grad_scores.mT @ queries, weights.mT @ grad_outputs
