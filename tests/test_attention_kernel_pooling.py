"""Lesson 01's solutions, and fused pooling, against the oracle, by properties, on bad input."""

import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from course_lib import attention as taught
from course_lib import fused
from course_lib.attention import (
    fit_bandwidth,
    gaussian_as_dot_product,
    kernel_pooling,
    leave_one_out,
    squared_distances,
)
from course_lib.exercises.kernel_pooling import fit_bandwidth as problems
from course_lib.reference import kernel_pooling as oracle

SIZES = st.integers(1, 6)
SEEDS = st.integers(0, 10_000)
BANDWIDTHS = st.floats(0.05, 20.0)


@pytest.fixture(
    scope="module", name="kernel_pooling", params=[taught, fused], ids=["taught", "fused"]
)
def pooling_of_package(request):
    """`kernel_pooling` as taught, then the fused one."""
    return request.param.kernel_pooling


def normal(seed, *shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [1.3 * torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


def assert_close(ours, theirs, tolerance=1e-10):
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tolerance, atol=tolerance)


@pytest.fixture
def problem():
    """Queries, keys and values with pairwise distinct sizes."""
    return normal(3, (3, 4), (5, 4), (5, 2))


# ---------------------------------------------------------------- against the oracle
@given(SIZES, SIZES, SIZES, SEEDS)
def test_squared_distances_agree_with_the_oracle(n, m, d, seed):
    queries, keys = normal(seed, (n, d), (m, d))
    assert_close(squared_distances(queries, keys), oracle.squared_distances(queries, keys).outputs)


@given(SIZES, SIZES, SIZES, SIZES, BANDWIDTHS, SEEDS)
def test_kernel_pooling_agrees_with_the_oracle(kernel_pooling, n, m, d, v, bandwidth, seed):
    queries, keys, values = normal(seed, (n, d), (m, d), (m, v))
    outputs, weights = kernel_pooling(queries, keys, values, bandwidth)
    expected = oracle.kernel_pooling(
        queries.numpy(), keys.numpy(), values.numpy(), bandwidth
    ).outputs
    assert_close(outputs, expected[0])
    assert_close(weights, expected[1])
    assert_close(weights.sum(dim=-1), np.ones(n))


@given(st.integers(1, 9), BANDWIDTHS, SEEDS)
def test_leave_one_out_agrees_with_the_oracle(count, bandwidth, seed):
    inputs, targets = normal(seed, (count,), (count,))
    expected = oracle.leave_one_out(inputs.numpy(), targets.numpy(), bandwidth).outputs
    assert_close(leave_one_out(inputs, targets, bandwidth), expected)


@given(SIZES, SIZES, SIZES, BANDWIDTHS, SEEDS)
def test_dot_products_give_the_weights_of_the_gaussian(kernel_pooling, n, m, d, bandwidth, seed):
    queries, keys = normal(seed, (n, d), (m, d))
    scores = gaussian_as_dot_product(queries, keys, bandwidth)
    _, weights = kernel_pooling(queries, keys, torch.ones(m, 1, dtype=torch.float64), bandwidth)
    assert_close(torch.softmax(scores, dim=-1), weights, 1e-8)


@pytest.mark.parametrize("initial", [0.1, 1.0, 2])
def test_fit_bandwidth_finds_the_smallest_leave_one_out_error(initial):
    x = torch.linspace(-3, 3, 17, dtype=torch.float64)
    y = 2 * torch.sin(1.4 * x + 1) + 0.3 * normal(0, (17,))[0]
    best = oracle.fit_bandwidth(x.numpy(), y.numpy()).outputs
    found = fit_bandwidth(x, y, initial=initial)
    assert isinstance(found, float)
    errors = [oracle.leave_one_out_error(x.numpy(), y.numpy(), h) for h in (found, best)]
    assert errors[0] <= 1.001 * errors[1]


@pytest.mark.parametrize("seed", problems.SEEDS)
def test_gradient_steps_on_the_logarithm_solve_each_problem_of_the_check(seed, rng):
    given = problems.problem(rng, 1.0, seed)
    x, y = given["inputs"].data, given["targets"].data
    log_h = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for _ in range(200):
        predictions = leave_one_out(torch.from_numpy(x), torch.from_numpy(y), log_h.exp())
        error = (predictions - torch.from_numpy(y)).square().mean()
        (gradient,) = torch.autograd.grad(error, log_h)
        log_h = (log_h - 0.1 * gradient).detach().requires_grad_()
    best = oracle.leave_one_out_error(x, y, oracle.fit_bandwidth(x, y).outputs)
    assert error.item() <= 1.02 * best


def test_fit_bandwidth_stays_where_every_bandwidth_is_the_best():
    found = fit_bandwidth(torch.tensor([0.0, 5.0]), torch.tensor([3.0, 8.0]), initial=0.7)
    assert math.isclose(found, 0.7, rel_tol=1e-6)


def test_fit_bandwidth_is_positive_whatever_the_step_size():
    inputs, targets = normal(1, (8,), (8,))
    assert fit_bandwidth(inputs, targets, num_steps=20, lr=3.0) > 0


def test_fit_bandwidth_leaves_gradients_of_its_arguments_alone():
    inputs, targets = (part.requires_grad_() for part in normal(1, (6,), (6,)))
    fit_bandwidth(inputs, targets, num_steps=3)
    assert inputs.grad is None
    assert targets.grad is None


# ---------------------------------------------------------------- properties
def test_small_bandwidth_returns_the_nearest_value(kernel_pooling, problem):
    queries, keys, values = problem
    outputs, _ = kernel_pooling(queries, keys, values, 0.01)
    assert torch.allclose(outputs, values[squared_distances(queries, keys).argmin(dim=1)])


def test_large_bandwidth_returns_the_mean_of_the_values(kernel_pooling, problem):
    queries, keys, values = problem
    outputs, _ = kernel_pooling(queries, keys, values, 1e6)
    assert torch.allclose(outputs, values.mean(dim=0).expand(3, 2))


def test_far_query_still_attends(kernel_pooling, problem):
    queries, keys, values = problem
    _, weights = kernel_pooling(queries + 1e4, keys, values, 0.1)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(3, dtype=torch.float64))


def test_moving_queries_and_keys_together_changes_nothing(kernel_pooling, problem):
    queries, keys, values = problem
    outputs, _ = kernel_pooling(queries, keys, values, 0.8)
    moved, _ = kernel_pooling(queries + 7, keys + 7, values, 0.8)
    assert torch.allclose(outputs, moved)


def test_scaling_lengths_and_bandwidth_together_changes_nothing(kernel_pooling, problem):
    queries, keys, values = problem
    outputs, _ = kernel_pooling(queries, keys, values, 0.8)
    scaled, _ = kernel_pooling(3 * queries, 3 * keys, values, 2.4)
    assert torch.allclose(outputs, scaled)


def test_duplicated_features_narrow_the_kernel_by_root_two(kernel_pooling, problem):
    queries, keys, values = problem
    twice = [torch.cat([part, part], dim=-1) for part in (queries, keys)]
    outputs, _ = kernel_pooling(*twice, values, 0.8 * math.sqrt(2))
    assert torch.allclose(outputs, kernel_pooling(queries, keys, values, 0.8)[0])


def test_outputs_lie_in_the_range_of_the_values(kernel_pooling, problem):
    outputs, _ = kernel_pooling(*problem, 0.5)
    values = problem[2]
    assert (outputs <= values.amax(dim=0)).all()
    assert (outputs >= values.amin(dim=0)).all()


def test_own_target_does_not_change_its_prediction():
    inputs, targets = normal(2, (6,), (6,))
    changed = targets.clone()
    changed[2] = 1e6
    before, after = (leave_one_out(inputs, part, 0.9) for part in (targets, changed))
    assert before[2] == after[2]
    assert (before[[0, 1, 3, 4, 5]] != after[[0, 1, 3, 4, 5]]).all()


def test_a_point_alone_is_predicted_by_zero_with_a_finite_gradient():
    inputs, targets = torch.tensor([2.0]).requires_grad_(), torch.tensor([5.0])
    prediction = leave_one_out(inputs, targets, 1.0)
    (gradient,) = torch.autograd.grad(prediction.sum(), inputs)
    assert prediction.item() == 0
    assert gradient.isfinite().all()


def test_unit_keys_make_it_torchs_attention(kernel_pooling, problem):
    queries, keys, values = problem
    keys = F.normalize(keys, dim=-1)
    theirs = F.scaled_dot_product_attention(queries, keys, values, scale=1 / 0.8**2)
    assert torch.allclose(kernel_pooling(queries, keys, values, 0.8)[0], theirs)


# ---------------------------------------------------------------- gradients and hygiene
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (squared_distances, [(2, 3), (4, 3)]),
        (lambda q, k, v: kernel_pooling(q, k, v, 0.9), [(2, 3), (4, 3), (4, 2)]),
        (lambda x, y: leave_one_out(x, y, 1.2), [(5,), (5,)]),
        (lambda q, k: gaussian_as_dot_product(q, k, 0.9), [(2, 3), (4, 3)]),
    ],
)
def test_gradients_are_those_of_the_formula(function, shapes):
    assert torch.autograd.gradcheck(function, [p.requires_grad_() for p in normal(5, *shapes)])


def test_bandwidth_may_be_a_tensor_with_a_gradient(kernel_pooling):
    inputs, targets = normal(6, (5,), (5,))
    h = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: leave_one_out(inputs, targets, b), [h])
    column = inputs[:, None]
    assert torch.autograd.gradcheck(lambda b: kernel_pooling(column, column, column, b), [h])
    assert torch.autograd.gradcheck(lambda b: gaussian_as_dot_product(column, column, b), [h])


def test_gradient_is_finite_where_a_query_equals_a_key(kernel_pooling):
    (keys,) = normal(1, (3, 2))
    queries = keys[:2].clone().requires_grad_()
    outputs, _ = kernel_pooling(queries, keys, keys, 0.7)
    (gradient,) = torch.autograd.grad(outputs.sum(), queries)
    assert gradient.isfinite().all()


def test_arguments_are_left_as_they_were(kernel_pooling, problem):
    before = [part.clone() for part in problem]
    kernel_pooling(*problem, 0.7)
    gaussian_as_dot_product(*problem[:2], 0.7)
    leave_one_out(problem[0][:, 0], problem[0][:, 1], 0.7)
    fit_bandwidth(problem[1][:, 0], problem[1][:, 1], num_steps=2)
    assert all(torch.equal(a, b) for a, b in zip(before, problem, strict=True))


def test_views_give_the_same_as_copies(kernel_pooling, problem):
    queries, keys, values = problem
    views = [torch.stack([part, part], dim=-1)[..., 0] for part in problem]
    assert not views[0].is_contiguous()
    assert torch.equal(
        kernel_pooling(*views, 0.7)[0], kernel_pooling(queries, keys, values, 0.7)[0]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_is_kept(kernel_pooling, dtype, problem):
    queries, keys, values = (part.to(dtype) for part in problem)
    outputs, weights = kernel_pooling(queries, keys, values, 1.1)
    exact, _ = kernel_pooling(*problem, 1.1)
    assert outputs.dtype == weights.dtype == dtype
    assert torch.allclose(outputs.double(), exact, atol=0.05)
    assert gaussian_as_dot_product(queries, keys, 1.1).dtype == dtype
    assert leave_one_out(queries[:, 0], queries[:, 1], 1.1).dtype == dtype
    assert squared_distances(queries, keys).dtype == dtype


@pytest.mark.gpu
def test_device_is_kept(kernel_pooling, problem):
    queries, keys, values = (part.cuda() for part in problem)
    assert kernel_pooling(queries, keys, values, 0.9)[0].is_cuda
    assert leave_one_out(queries[:, 0], queries[:, 1], 0.9).is_cuda
    assert fit_bandwidth(keys[:, 0], keys[:, 1], num_steps=3) > 0


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(5)}, r"`values` must have shape \(num_keys, v\).*got \(5,\)"),
        ({"values": torch.zeros(4, 2)}, r"`values` must have shape .*got \(4, 2\)"),
        ({"keys": torch.zeros(5, 3)}, r"`keys` must have shape .*got \(5, 3\)"),
        ({"queries": torch.zeros(4)}, r"`queries` must have shape \(num_queries, d\)"),
    ],
)
def test_wrong_shapes_are_refused(kernel_pooling, change, message):
    arguments = {
        "queries": torch.zeros(3, 4),
        "keys": torch.zeros(5, 4),
        "values": torch.zeros(5, 2),
        "bandwidth": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        kernel_pooling(**arguments | change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: squared_distances([[1.0]], torch.ones(2, 1)), "`queries` must be a float tensor"),
        (
            lambda: squared_distances(torch.ones(2, 1, dtype=torch.long), torch.ones(2, 1)),
            "`queries` must be a float tensor; got a tensor of int64",
        ),
        (lambda: leave_one_out(torch.ones(3), bandwidth=1.0), "missing .*'targets'"),
    ],
)
def test_wrong_types_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: leave_one_out(torch.ones(3), torch.ones(4), 1.0),
            r"`targets` must have shape \(num_points\); got \(4,\)",
        ),
        (
            lambda: leave_one_out(torch.ones(3, 1), torch.ones(3), 1.0),
            r"`inputs` must have shape \(num_points\)",
        ),
        (
            lambda: gaussian_as_dot_product(torch.ones(2, 3), torch.ones(4, 2), 1.0),
            r"`keys` must have shape \(num_keys, d\); got \(4, 2\)",
        ),
    ],
)
def test_mismatched_sizes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_pasted_body_refuses_flat_values_itself(problem):
    with pytest.raises(ValueError, match=r"`values` must have shape \(num_keys, v\); got \(5,\)"):
        inspect.unwrap(kernel_pooling)(problem[0], problem[1], problem[2][:, 0], 1.0)
