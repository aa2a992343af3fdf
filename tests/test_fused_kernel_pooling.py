"""What only the fused kernel pooling promises; the rest is tested as taught."""

import importlib

import numpy as np
import pytest
import torch
from bounds import assert_rounded, exactly
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention._kernel_pooling import kernel_pooling as taught
from course_lib.fused.kernel_pooling import KERNELS, kernel_pooling
from course_lib.reference import kernel_pooling as oracle

module = importlib.import_module("course_lib.fused.kernel_pooling")


@pytest.fixture(autouse=True, scope="module")
def every_problem_is_large():
    """Without weights even small problems take the ways of large ones, in several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW_PAIRS", 0)
        patch.setattr(module, "BLOCK", 64)
        yield


def normal(seed, *shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [1.3 * torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


def by_hand(queries, keys, values, bandwidth, kernel):
    """Averages one by one, in exact comparisons of float64."""
    heights = {
        "gaussian": lambda u: np.exp(-(u**2) / 2),
        "boxcar": lambda u: float(u < 1),
        "epanechnikov": lambda u: max(0.0, 1 - u**2),
    }[kernel]
    outputs = np.zeros((len(queries), values.shape[1]))
    for i, query in enumerate(queries.astype(float)):
        weights = [heights(np.linalg.norm(query - key) / bandwidth) for key in keys.astype(float)]
        if sum(weights):
            outputs[i] = np.average(values, axis=0, weights=weights)
    return outputs


@given(st.integers(0, 10_000), st.sampled_from(KERNELS), st.integers(1, 3), st.floats(0.01, 30.0))
def test_every_kernel_is_the_average_by_hand(seed, kernel, d, bandwidth):
    queries, keys, values = normal(seed, (7, d), (40, d), (40, 2))
    keys[3] = keys[4]  # a tie
    expected = by_hand(queries.numpy(), keys.numpy(), values.numpy(), bandwidth, kernel)
    if kernel == "gaussian":  # by hand 0 / 0 far from all keys
        expected, _ = oracle.kernel_pooling(
            queries.numpy(), keys.numpy(), values.numpy(), bandwidth
        ).outputs
    with_weights, weights = kernel_pooling(queries, keys, values, bandwidth, kernel=kernel)
    without, nothing = kernel_pooling(
        queries, keys, values, bandwidth, kernel=kernel, need_weights=False
    )
    assert nothing is None
    np.testing.assert_allclose(with_weights, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(without, expected, rtol=1e-10, atol=1e-10)
    totals = weights.sum(dim=1)
    assert (((totals - 1).abs() < 1e-12) | (totals == 0)).all()


@pytest.mark.parametrize("kernel", ["boxcar", "epanechnikov"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_key_at_the_very_edge_does_not_count(kernel, dtype):
    keys = torch.tensor([[0.0], [1.0], [2.0]], dtype=dtype)
    values = torch.tensor([[1.0], [10.0], [100.0]], dtype=dtype)
    queries = torch.tensor([[1.0], [1.5], [3.0], [9.0]], dtype=dtype)
    for need_weights in (True, False):
        outputs, _ = kernel_pooling(
            queries, keys, values, 1.0, kernel=kernel, need_weights=need_weights
        )
        torch.testing.assert_close(outputs.squeeze(1), torch.tensor([10, 55, 0, 0], dtype=dtype))


@pytest.mark.parametrize("bandwidth", [1e-6, 1e-3, 0.02, 1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gaussian_loses_no_digits_however_small_its_bandwidth(bandwidth, dtype):
    keys = torch.linspace(99, 101, 400, dtype=dtype).unsqueeze(1)  # far from 0
    queries = keys[::7] + 0.3 * (keys[1] - keys[0])
    values = torch.sin(9 * keys)
    exact, _ = taught(*(exactly(x, dtype) for x in (queries, keys, values)), bandwidth)
    outputs, _ = kernel_pooling(queries, keys, values, bandwidth, need_weights=False)
    assert_rounded(outputs, exact)


def test_one_key_barely_inside_gives_its_value():
    """The height is 2e-12 there, less than the rounding of the running sums."""
    keys = torch.linspace(0, 100, 5000, dtype=torch.float64).unsqueeze(1)
    values = torch.cos(keys)
    queries = torch.tensor([[101.0 - 1e-12]], dtype=torch.float64)
    outputs, _ = kernel_pooling(
        queries, keys, values, 1.0, kernel="epanechnikov", need_weights=False
    )
    torch.testing.assert_close(outputs, values[-1:])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("spread", [1.0, 3e3])
def test_gradients_are_those_of_the_weights(kernel, d, spread):
    parts = [p.requires_grad_() for p in normal(5, (3, d), (9, d), (9, 2))]
    h = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for part in (*parts[:2], h):
            part *= spread
        parts[0][0] += 1e6 * spread  # far from everything
    results = []
    for need_weights in (True, False):
        outputs, _ = kernel_pooling(*parts, h, kernel=kernel, need_weights=need_weights)
        found = torch.autograd.grad(
            outputs.square().sum(), [*parts, h], allow_unused=True, materialize_grads=True
        )
        results.append(
            [part * scale for part, scale in zip(found, (spread, spread, 1, spread), strict=True)]
        )
    torch.testing.assert_close(results[1], results[0], rtol=1e-8, atol=1e-8)
    if kernel == "gaussian":
        outputs, _ = taught(*parts, h)
        found = torch.autograd.grad(outputs.square().sum(), parts)
        torch.testing.assert_close(results[1][2], found[2], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_of_the_size_of_the_weights_is_kept_for_backward(kernel):
    queries, keys, values = (p.requires_grad_() for p in normal(1, (300, 1), (400, 1), (400, 1)))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        kernel_pooling(queries, keys, values, 0.1, kernel=kernel, need_weights=False)
    assert max(tensor.numel() for tensor in kept) <= 10 * 400


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_is_kept_without_weights(kernel, dtype):
    problem = normal(2, (6, 1), (50, 1), (50, 3))
    exact, _ = kernel_pooling(*problem, 1.1, kernel=kernel)
    narrow = [part.to(dtype) for part in problem]
    outputs, _ = kernel_pooling(*narrow, 1.1, kernel=kernel, need_weights=False)
    assert outputs.dtype == dtype
    torch.testing.assert_close(outputs.double(), exact, rtol=0.1, atol=0.1)


def test_it_compiles(plain_import):
    pooling = plain_import("course_lib.fused.kernel_pooling").kernel_pooling
    problem = normal(2, (6, 1), (50, 1), (50, 3))
    compiled = torch.compile(pooling, backend="eager", fullgraph=True)
    for kernel in KERNELS:
        outputs, _ = compiled(*problem, 1.1, kernel=kernel, need_weights=False)
        torch.testing.assert_close(outputs, pooling(*problem, 1.1, kernel=kernel)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_cuda_gives_the_same(kernel):
    problem = normal(2, (60, 1), (500, 1), (500, 3), dtype=torch.float32)
    expected, _ = kernel_pooling(*problem, 0.4, kernel=kernel)
    on_device = [part.cuda() for part in problem]
    outputs, _ = kernel_pooling(*on_device, 0.4, kernel=kernel, need_weights=False)
    torch.testing.assert_close(outputs.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"kernel": "triangular"}, r"`kernel` must be one of gaussian, boxcar, epan.*'triangular'"),
        ({"values": torch.zeros(5)}, r"`values` must have shape \(num_keys, v\).*got \(5,\)"),
    ],
)
def test_bad_input_is_refused_on_every_way(change, match):
    arguments = {
        "queries": torch.zeros(3, 1),
        "keys": torch.zeros(5, 1),
        "values": torch.zeros(5, 2),
        "bandwidth": 1.0,
        "need_weights": False,
    }
    with pytest.raises(ValueError, match=match):
        kernel_pooling(**arguments | change)
