"""Answers to `leave_one_out`."""

import math

import torch

from course_lib.authoring.variants import faulty, right, wrong


def scores_of(inputs, bandwidth):
    return -((inputs[:, None] - inputs[None, :]) ** 2) / (2 * bandwidth**2)


def diagonal(inputs):
    return torch.eye(len(inputs), dtype=torch.bool, device=inputs.device)


@right
def masked_diagonal(inputs, targets, bandwidth):
    scores = scores_of(inputs, bandwidth).masked_fill(diagonal(inputs), float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ targets


@right
def zero_and_renormalise(inputs, targets, bandwidth):
    weights = torch.softmax(scores_of(inputs, bandwidth), -1)
    weights = weights * (1 - torch.eye(len(inputs)).to(weights))
    total = weights.sum(-1, keepdim=True)
    return (weights / torch.where(total > 0, total, 1.0)) @ targets


@right
def delete_and_loop(inputs, targets, bandwidth):
    predictions = []
    for i in range(len(inputs)):
        x = torch.cat([inputs[:i], inputs[i + 1 :]])
        y = torch.cat([targets[:i], targets[i + 1 :]])
        kernel = torch.exp(-((inputs[i] - x) ** 2) / (2 * bandwidth**2))
        total = kernel.sum()
        predictions.append((kernel * y).sum() / total if total > 0 else total)
    return torch.stack(predictions)


@wrong("dtype_changed")
def default_dtype(inputs, targets, bandwidth):
    predictions = torch.zeros(len(inputs))
    for i, p in enumerate(masked_diagonal(inputs, targets, bandwidth)):
        predictions[i] = p
    return predictions


@wrong("gradient_cut")
def detached(inputs, targets, bandwidth):
    if isinstance(bandwidth, torch.Tensor):
        bandwidth = bandwidth.detach()
    return masked_diagonal(inputs.detach(), targets.detach(), bandwidth)


@wrong("gradient_not_finite")
def nan_to_num_at_the_end(inputs, targets, bandwidth):
    scores = scores_of(inputs, bandwidth).masked_fill(diagonal(inputs), -math.inf)
    return torch.nan_to_num(scores.softmax(-1) @ targets)


column = wrong("axis_kept")(lambda *inputs: masked_diagonal(*inputs)[:, None])


@faulty("bandwidth_once", "by_value", "nan_when_alone", "detached", "always_float64")
def several_faults(faults):
    def leave_one_out(inputs, targets, bandwidth):
        if "always_float64" in faults:
            inputs, targets = inputs.double(), targets.double()
        if "detached" in faults:
            inputs = inputs.detach()
        squared = (inputs[:, None] - inputs[None, :]) ** 2
        own = squared == 0 if "by_value" in faults else diagonal(inputs)
        scores = -squared / (2 * (bandwidth if "bandwidth_once" in faults else bandwidth**2))
        weights = torch.softmax(scores.masked_fill(own, -math.inf), -1)
        if "nan_when_alone" not in faults:
            weights = weights.nan_to_num(0.0)
        return weights @ targets

    return leave_one_out
