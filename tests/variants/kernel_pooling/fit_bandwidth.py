"""Answers to `fit_bandwidth`."""

import math

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


def predict(inputs, targets, bandwidth, leave_out=True):
    scores = -((inputs[:, None] - inputs[None, :]) ** 2) / (2 * bandwidth**2)
    if leave_out:
        scores = scores.masked_fill(torch.eye(len(inputs), dtype=torch.bool), -math.inf)
    return torch.softmax(scores, -1) @ targets


def loss(inputs, targets, bandwidth, leave_out=True):
    return ((predict(inputs, targets, bandwidth, leave_out) - targets) ** 2).mean()


def train(leaf, num_steps, lr, error, method=torch.optim.Adam):
    optimizer = method([leaf], lr=lr)
    for _ in range(num_steps):
        optimizer.zero_grad()
        error().backward()
        optimizer.step()


def descend(inputs, targets, initial=1.0, num_steps=200, lr=0.1, leave_out=True, sign=1.0):
    log_h = torch.tensor(math.log(initial), dtype=inputs.dtype, requires_grad=True)
    train(log_h, num_steps, lr, lambda: sign * loss(inputs, targets, log_h.exp(), leave_out))
    return log_h


@right
def sgd_on_log_h(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    log_h = torch.tensor(float(np.log(initial)), dtype=torch.float64, requires_grad=True)
    for _ in range(num_steps):
        (grad,) = torch.autograd.grad(loss(inputs, targets, torch.exp(log_h)), log_h)
        with torch.no_grad():
            log_h -= lr * grad
    return float(log_h.exp())


@right
def grid_and_refine(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    low, high = (math.log(size * inputs.std()) for size in (0.01, 10))
    for _ in range(4):
        grid = torch.linspace(low, high, 40, dtype=torch.float64)
        errors = torch.stack([loss(inputs, targets, h) for h in grid.exp()])
        best = int(errors.argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 39)])
    return math.exp((low + high) / 2)


@wrong("initial_returned")
def step_forgotten(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    log_h = torch.tensor(math.log(initial), requires_grad=True)
    optimizer = torch.optim.Adam([log_h], lr=lr)
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss(inputs, targets, log_h.exp()).backward()
    return log_h.exp().item()


@wrong()
def adam_on_h_itself(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    h = torch.tensor(float(initial), dtype=torch.float64, requires_grad=True)
    train(h, num_steps, lr, lambda: loss(inputs, targets, h))
    return h.item()


@wrong("input_mutated")
def centres_the_targets(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    targets -= targets.mean()
    return descend(inputs, targets, initial, num_steps, lr).exp().item()


@wrong("leaf_changed_in_place")
def in_place_without_no_grad(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    place = torch.tensor(math.log(initial), dtype=inputs.dtype, requires_grad=True)
    for _ in range(num_steps):
        loss(inputs, targets, place.exp()).backward()
        place -= lr * place.grad
        place.grad = None
    return place.exp().item()


@wrong("not_the_best")
def grid_of_the_notebook(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    grid = torch.logspace(-1.3, 1, 200, dtype=torch.float64)
    return float(min(grid, key=lambda h: loss(inputs, targets, h).nan_to_num(math.inf)))


@wrong("not_the_best")
def absolute_errors(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    grid = torch.logspace(-2, 1, 300, dtype=torch.float64)
    errors = [(predict(inputs, targets, h) - targets).abs().mean() for h in grid]
    return float(grid[int(torch.stack(errors).argmin())])


adam_on_log_h = right(lambda *args, **given: descend(*args, **given).exp().item())
forgets_to_leave_out = wrong("not_the_best")(
    lambda *args, **given: descend(*args, **given, leave_out=False).exp().item()
)
forgets_exp = wrong("logarithm_returned")(lambda *args, **given: descend(*args, **given).item())
tensor = wrong("wrong_type")(lambda *args, **given: descend(*args, **given).exp().detach())


@faulty("training_error", "reseeds", "centred_in_place")
def several_faults(faults):
    def fit_bandwidth(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
        if "reseeds" in faults:
            torch.manual_seed(0)
        if "centred_in_place" in faults:
            targets -= targets.mean()
        low, high = (math.log(size * inputs.std()) for size in (0.01, 10))
        for _ in range(4):
            grid = torch.linspace(low, high, 40, dtype=torch.float64)
            leave_out = "training_error" not in faults
            errors = torch.stack([loss(inputs, targets, h, leave_out) for h in grid.exp()])
            best = int(errors.argmin())
            low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 39)])
        return math.exp((low + high) / 2)

    return fit_bandwidth
