"""The cost meter counts torch's bytes alive at once, bytes kept and functions evaluated."""

import torch

from course_lib.checks.observe.cost_meter import Spending


def test_the_peak_is_what_is_alive_at_once():
    x = torch.zeros(1000, dtype=torch.float64)
    with Spending([x]) as spent:
        for _ in range(5):
            y = x + 1
            del y
        assert (spent.peak, spent.alive()) == (8000, 0)
        kept = [x + 1, x + 2]
        assert (spent.peak, spent.alive()) == (16000, 16000)
    assert len(kept) == 2


def test_what_the_graph_keeps_is_alive_until_backward():
    x = torch.zeros(1000, dtype=torch.float64, requires_grad=True)
    with Spending([x]) as spent:
        y = x.exp().exp().sum()
        assert spent.alive() == 16008  # both results, for the derivatives, and the sum
        y.backward()
        del y
        assert spent.alive() == 8000  # the gradient
    assert spent.functions == 2000


def test_what_an_own_function_hides_on_its_context_is_found():
    class Hiding(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.hidden = [x * 2]
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            torch.zeros(5000, dtype=torch.float64)
            return grad * ctx.hidden[0]

    x = torch.zeros(100, dtype=torch.float64, requires_grad=True)
    with Spending([x]) as spent:
        y = Hiding.apply(x)
        assert spent.alive() == 808
        y.backward()
    assert spent.peak > 40_000  # seen in the backward pass too
