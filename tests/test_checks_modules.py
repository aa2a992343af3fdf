"""Modules under check: dropout judged statistically, missing and extra parameters, lazy layers."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_lib.checks.observe.call import observe
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.checks.observe.record import record
from course_lib.exercises._attention.dropout import dropout_on_weights, dropout_values

P = 0.4


def problem(num_heads=1):
    rng = np.random.default_rng(3)
    scores = torch.from_numpy(rng.normal(0, 1.3, (4, num_heads, 24, 30)))
    scores[1, :, :, 20:] = -torch.inf
    weights = torch.softmax(scores, -1)
    values = dropout_values(rng, 4, 30, num_heads=num_heads)
    options = {"dropout": P, "num_heads": num_heads}
    probe = Probe("dropout", "It drops.", args={"values": tensor(values)}, construct=options)
    return probe, weights, outputs_of(weights, values)


def outputs_of(weights, values):
    """Turn weights (batch, heads, n, m) and values (batch, m, heads * v) into outputs.

    The outputs have the shape (batch, n, heads * v).
    """
    parts = torch.from_numpy(np.stack(np.split(np.asarray(values), weights.shape[1], -1), 1))
    return torch.cat(list((weights @ parts).unbind(1)), -1)


def verdict(change, num_heads=1, seed=0):
    probe, weights, plain = problem(num_heads)
    torch.manual_seed(seed)
    outputs = change(weights, plain, probe.args["values"].data)
    return dropout_on_weights(probe, plain.numpy(), record(outputs))


def on_weights(change):
    return lambda weights, plain, values: outputs_of(change(weights), values)


@pytest.mark.parametrize("num_heads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_right_dropout_is_accepted_whatever_it_draws(num_heads, dtype):
    right = on_weights(lambda w: F.dropout(w, P))
    for seed in range(40):
        assert verdict(lambda *x: right(*x).to(dtype), num_heads, seed) is None


def often_shared(weights, plain, values):
    """Drop each second column as its neighbour is dropped, three times out of four."""
    kept = torch.rand(weights.shape) >= P
    copied = torch.rand(weights[..., 1::2].shape) < 0.5
    kept[..., 1::2] = torch.where(copied, kept[..., ::2], kept[..., 1::2])
    return outputs_of(weights * kept / (1 - P), values)


def shared(*shape):
    return on_weights(lambda w: w * F.dropout(torch.ones(shape, dtype=w.dtype).expand(shape), P))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (on_weights(lambda w: torch.softmax(F.dropout(w.log(), P), -1)), "wrong_values"),
        (on_weights(lambda w: torch.softmax(F.dropout(w.clamp(min=1e-9).log(), P), -1)), "scores"),
        (on_weights(lambda w: F.dropout(F.dropout(w, P), P)), "dropout_twice"),
        (on_weights(lambda w: F.dropout(w, 0.25) * 0.75 / (1 - P)), "dropout_rate"),
        (often_shared, "dropout_shared"),
        (shared(4, 1, 1, 30), "dropout_shared"),
        (shared(4, 1, 24, 1), "dropout_shared"),
        (shared(1, 1, 24, 30), "dropout_shared"),
    ],
)
def test_wrong_dropout_is_named(change, expected):
    found = verdict(change)
    assert found is not None and expected in found.id


def test_heads_that_share_their_dropout_are_found():
    change = on_weights(lambda w: w * F.dropout(torch.ones(4, 1, 24, 30, dtype=w.dtype), P))
    assert verdict(change, num_heads=2).id == "dropout_shared"


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.LazyLinear(2, bias=False)

    def forward(self, x):
        return self.W(x)


def test_lazy_layers_take_the_injected_weights():
    state = {"W.weight": np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -1.0]])}
    args = {"x": tensor([[1.0, 2.0, 3.0]])}
    seen = observe(Lazy, Probe("module", "It multiplies.", args=args, construct={}, state=state))
    np.testing.assert_array_equal(seen.outputs.data, [[1.0, -1.0]])
