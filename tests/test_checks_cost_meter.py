"""What torch spends is counted: bytes alive at once, bytes kept, functions evaluated."""

import numpy as np
import torch

from course_lib.checks.observe.cost_meter import Spending


def test_what_was_there_before_and_views_of_it_cost_nothing():
    x = torch.randn(5, 7)
    with Spending([{"x": x}]) as spent:
        y = x.mT.expand(100, 7, 5)
    assert (spent.peak, spent.alive()) == (0, 0) and y.shape == (100, 7, 5)


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


def test_a_block_in_place_costs_nothing_and_numpy_tensors_do():
    x = torch.zeros(1000, dtype=torch.float64)
    with Spending([x]) as spent:
        x[:500].exp_().tanh_()
        assert (spent.peak, spent.functions) == (0, 1000)
        y = torch.from_numpy(np.ones(300)).mul_(2)
        assert spent.peak == 2400 and y[0] == 2


def test_small_powers_are_products_and_others_are_functions():
    x = torch.ones(10, dtype=torch.float64)
    with Spending([x]) as spent:
        x**2
        assert spent.functions == 0
        x**2.5
        assert spent.functions == 10
        x ** torch.full((10,), 2.0)
        assert spent.functions == 20
