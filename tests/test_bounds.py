"""The bound on rounding lets through what float32 does, and nothing else."""

import pytest
import torch
from bounds import assert_rounded, exact_twin, exactly, gamma, unit

from course_lib.attention.additive_attention import AdditiveAttention
from course_lib.attention.scaled_dot_product import scaled_dot_product_attention


def test_gamma_is_highams():
    u = unit(torch.float32)
    assert u == 2**-24
    assert gamma(1000, torch.float32) == 1000 * u / (1 - 1000 * u)
    with pytest.raises(AssertionError):
        gamma(2**24, torch.float32)


@pytest.fixture
def problem(generator):
    """Queries, keys and values in float32, and the exact outputs with their bound."""
    inputs = [torch.randn(2, n, 6, generator=generator) for n in (5, 40, 40)]
    return inputs, scaled_dot_product_attention(*map(exactly, inputs))[0]


def attention(q, k, v):
    """Another order of the same sums: keys from behind, two halves of the features."""
    q, k, v = q, k.flip(1), v.flip(1)
    scores = q[..., :3] @ k[..., :3].mT + q[..., 3:] @ k[..., 3:].mT
    heights = (scores / 6**0.5).exp()
    return heights @ v / heights.sum(-1, keepdim=True)


def test_another_order_passes(problem):
    inputs, exact = problem
    found = attention(*inputs)
    assert not torch.equal(found.double(), exact.value)
    assert_rounded(found, exact)


def without_a_term(q, k, v):
    return attention(q, k[:, 1:], v[:, 1:])


def half_scores(q, k, v):
    scores = (q @ k.mT / 6**0.5).half().float()
    return torch.softmax(scores, -1) @ v


def half_result(q, k, v):
    return attention(q, k, v).half().float()


def bfloat16_inputs(q, k, v):
    return attention(*(x.bfloat16().float() for x in (q, k, v)))


def with_a_nan(q, k, v):
    return attention(q, k, v).index_fill(1, torch.tensor([2]), torch.nan)


@pytest.mark.parametrize(
    "wrong", [without_a_term, half_scores, half_result, bfloat16_inputs, with_a_nan]
)
def test_a_result_that_is_wrong_does_not_pass(problem, wrong):
    inputs, exact = problem
    with pytest.raises(AssertionError, match="farther from the exact ones than rounding allows"):
        assert_rounded(wrong(*inputs), exact)


def test_gradients_are_bounded_and_one_without_a_query_does_not_pass(generator):
    torch.manual_seed(0)
    module = AdditiveAttention(4, 4, 8)
    inputs = [torch.randn(2, n, 4, generator=generator) for n in (7, 9, 9)]
    lens = torch.tensor([9, 0])

    def gradients(module, queries, *others):
        outputs = module(queries, *others, lens)
        return torch.autograd.grad(outputs.sum(), list(module.parameters()))

    exact = gradients(exact_twin(module), *map(exactly, inputs))
    assert_rounded(gradients(module, *inputs), exact)
    with pytest.raises(AssertionError, match="result 0: "):
        assert_rounded(gradients(module, inputs[0][:, 1:], *inputs[1:]), exact)


def test_an_operation_without_a_rule_is_refused():
    with pytest.raises(NotImplementedError, match=r"no rule for aten\.erf"):
        exactly(torch.ones(2)).erf()
