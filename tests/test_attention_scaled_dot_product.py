"""Lesson 05: the solutions against the oracle, autograd, PyTorch and bad input."""

import io
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
    attention_backward,
    jacobian_wrt_query,
    numpy_attention,
    scaled_dot_product_attention,
    score_variance,
)
from course_lib.reference import scaled_dot_product as oracle

SIZES = st.integers(1, 5)
both = pytest.mark.parametrize("package", [taught, fused], ids=["taught", "fused"])


@st.composite
def problems(draw, max_batch_axes=2, lengths=True):
    """Queries, keys, values, and None or a draw of lengths and of a mask."""
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=max_batch_axes)))
    n, m, d, v = (draw(SIZES) for _ in range(4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1.3, 40.0]))
    arrays = [scale * rng.normal(size=(*batch, *shape)) for shape in ((n, d), (m, d), (m, v))]
    valid_lens = mask = None
    if lengths and batch and draw(st.booleans()):
        shape = draw(st.sampled_from([batch[:1], (batch[0], n)]))
        valid_lens = rng.integers(0, m + 1, shape)
    if draw(st.booleans()):
        mask = rng.random(draw(st.sampled_from([(n, m), (1, m), (*batch, n, m)]))) < 0.6
    return arrays, valid_lens, mask


def as_tensors(*arrays):
    return [None if a is None else torch.from_numpy(np.array(a)) for a in arrays]


def random_problem(generator, batch=(2,), n=3, m=5, d=4, v=6, dtype=torch.float64):
    shapes = (n, d), (m, d), (m, v)
    return [torch.randn(*batch, *s, generator=generator, dtype=dtype) for s in shapes]


# ---------------------------------------------------------------- the function
@both
@given(problems())
def test_agrees_with_the_oracle(package, problem):
    arrays, valid_lens, mask = problem
    expected = oracle.scaled_dot_product_attention(*arrays, valid_lens, mask).outputs
    found = package.scaled_dot_product_attention(*as_tensors(*arrays, valid_lens, mask))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-9, rtol=1e-9)


@both
@given(problems(lengths=False))
def test_agrees_with_torch_also_in_empty_rows(package, problem):
    arrays, _, mask = problem
    q, k, v, mask = as_tensors(*arrays, mask)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(package.scaled_dot_product_attention(q, k, v, mask=mask)[0], theirs)


@given(problems(max_batch_axes=0, lengths=False))
def test_numpy_version_agrees_with_the_oracle(problem):
    arrays, _, mask = problem
    before = [a.copy() for a in arrays]
    expected = oracle.numpy_attention(*arrays, mask).outputs
    for ours, theirs in zip(numpy_attention(*arrays, mask), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9, rtol=1e-9)
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays, strict=True))


def test_numpy_version_keeps_float32_and_survives_large_scores():
    q, k, v = (np.full(s, 900.0, dtype=np.float32) for s in ((2, 4), (3, 4), (3, 5)))
    for result in numpy_attention(q, k, v, np.array([[True, False, True], [False] * 3])):
        assert result.dtype == np.float32
        assert np.isfinite(result).all()


@both
def test_zero_query_gives_the_mean_of_the_allowed_values(package, generator):
    q, k, v = random_problem(generator)
    outputs, _ = package.scaled_dot_product_attention(0 * q, k, v, torch.tensor([2, 4]))
    torch.testing.assert_close(outputs[1, 0], v[1, :4].mean(dim=0))


@both
def test_log_ratio_of_weights_is_the_difference_of_scaled_products(package, generator):
    q, k, v = random_problem(generator)
    _, weights = package.scaled_dot_product_attention(q, k, v)
    products = q @ k.mT / 2
    torch.testing.assert_close(
        (weights[..., :1] / weights).log(), products[..., :1] - products, rtol=1e-9, atol=1e-9
    )


@both
def test_doubled_features_scale_the_logits_by_root_two(package, generator):
    q, k, v = random_problem(generator)
    _, once = package.scaled_dot_product_attention(q, k, v)
    _, twice = package.scaled_dot_product_attention(q.repeat(1, 1, 2), k.repeat(1, 1, 2), v)
    logits = [(w[..., :1] / w).log() for w in (once, twice)]
    torch.testing.assert_close(logits[1], math.sqrt(2) * logits[0])


@both
def test_masking_equals_deleting_and_garbage_does_not_matter(package, generator):
    q, k, v = random_problem(generator)
    deleted, _ = package.scaled_dot_product_attention(q, k[:, :3], v[:, :3])
    k[:, 3:], v[:, 3:] = 1e30, 1e30
    masked, weights = package.scaled_dot_product_attention(q, k, v, torch.tensor([3, 3]))
    torch.testing.assert_close(masked, deleted)
    assert not weights[..., 3:].any()


@both
def test_one_allowed_key_returns_its_value(package, generator):
    q, k, v = random_problem(generator)
    outputs, _ = package.scaled_dot_product_attention(q, k, v, mask=torch.arange(5) == 2)
    torch.testing.assert_close(outputs, v[:, 2:3].expand_as(outputs))


@both
def test_gradients_also_with_an_empty_row(package, generator):
    inputs = [x.requires_grad_() for x in random_problem(generator, n=2, m=3, d=2, v=2)]
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert torch.autograd.gradcheck(
        lambda q, k, v: package.scaled_dot_product_attention(q, k, v, mask=mask)[0], inputs
    )


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_keeps_dtype_and_strides_do_not_matter(package, generator, dtype):
    q, k, v = (x.to(dtype) for x in random_problem(generator))
    outputs, weights = package.scaled_dot_product_attention(q, k, v)
    assert outputs.dtype == weights.dtype == dtype
    strided = [torch.stack([x, x], dim=-1)[..., 0] for x in (q, k, v)]
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(package.scaled_dot_product_attention(*strided)[0], outputs)


@both
def test_half_precision_does_not_overflow_before_the_root(package):
    q = torch.full((1, 128), 30.0, dtype=torch.float16)
    outputs, _ = package.scaled_dot_product_attention(q, q.repeat(2, 1), torch.ones(2, 1).half())
    assert outputs.tolist() == [[1.0]]


@both
def test_no_argument_changes(package, generator):
    inputs = [*random_problem(generator), torch.tensor([2, 0])]
    before = [x.clone() for x in inputs]
    package.scaled_dot_product_attention(*inputs, mask=torch.ones(3, 5, dtype=torch.bool))
    assert all(map(torch.equal, before, inputs))


# ---------------------------------------------------------------- the module
def test_module_keeps_detached_weights_from_before_dropout(generator):
    inputs = [x.requires_grad_() for x in random_problem(generator)]
    outputs, weights = taught.scaled_dot_product_attention(*inputs, torch.tensor([4, 0]))
    module = taught.DotProductAttention(dropout=0.5).eval()
    torch.testing.assert_close(module(*inputs, torch.tensor([4, 0])), outputs)
    module.train()(*inputs, torch.tensor([4, 0]))
    torch.testing.assert_close(module.attention_weights, weights.detach())
    assert not module.attention_weights.requires_grad


@both
def test_dropout_acts_on_weights_in_train_mode_only(package, generator):
    q, k, _ = random_problem(generator, batch=(8,), n=20, m=20)
    values = torch.eye(20, dtype=torch.float64).expand(8, 20, 20)
    module = package.DotProductAttention(dropout=0.25)
    torch.manual_seed(0)
    dropped = module.train()(q, k, values)
    _, weights = package.scaled_dot_product_attention(q, k, values)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)
    assert 0.2 < 1 - kept.double().mean() < 0.3
    torch.testing.assert_close(module.eval()(q, k, values), weights)


@pytest.mark.filterwarnings("ignore:The tensor attribute self.attention_weights was assigned")
@pytest.mark.slow
def test_module_compiles_and_exports(generator, plain_import):
    module = plain_import(taught.__name__).DotProductAttention(0.5).eval()
    inputs = (*random_problem(generator), torch.tensor([2, 0]))
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        compiled = torch.compile(module, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(*inputs), module(*inputs))
    exported = torch.export.export(module, inputs).module()
    torch.testing.assert_close(exported(*inputs), module(*inputs))


@both
def test_module_has_no_state_and_survives_a_round_trip(package, generator):
    module = package.DotProductAttention(dropout=0.5)
    module(*random_problem(generator))
    assert not list(module.parameters())
    assert not module.state_dict()
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    package.DotProductAttention().load_state_dict(torch.load(buffer))


# ---------------------------------------------------------------- variance
@pytest.mark.parametrize("d", [1, 4, 37])
def test_variance_is_d_and_one_when_scaled(d):
    for scaled, expected in ((False, d), (True, 1)):
        found = score_variance(d, 20_000, scaled, torch.Generator().manual_seed(3))
        assert isinstance(found, float)
        assert found == pytest.approx(expected, rel=0.12)


def test_variance_draws_from_the_generator_only():
    state = torch.get_rng_state()
    twice = [score_variance(5, 100, True, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert twice[0] == twice[1] != twice[2]
    assert torch.equal(torch.get_rng_state(), state)


# ---------------------------------------------------------------- gradients
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_jacobian_is_that_of_autograd_and_of_the_oracle(d, m, seed):
    rng = np.random.default_rng(seed)
    query, keys = as_tensors(rng.normal(size=d), rng.normal(size=(m, d)))
    found = jacobian_wrt_query(query, keys)
    by_autograd = torch.autograd.functional.jacobian(
        lambda q: scaled_dot_product_attention(q[None], keys, keys)[0][0], query
    )
    torch.testing.assert_close(found, by_autograd)
    expected = oracle.jacobian_wrt_query(query.numpy(), keys.numpy()).outputs
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


@given(problems(max_batch_axes=0, lengths=False), st.integers(0, 2**32 - 1))
def test_backward_is_that_of_autograd_and_of_the_oracle(problem, seed):
    (queries, keys, values), _, _ = problem
    inputs = as_tensors(queries, keys, values)
    grad = np.random.default_rng(seed).normal(size=(*queries.shape[:-1], values.shape[-1]))
    found = attention_backward(*inputs, torch.from_numpy(grad))
    leaves = [x.clone().requires_grad_() for x in inputs]
    outputs, _ = scaled_dot_product_attention(*leaves)
    by_autograd = torch.autograd.grad(outputs, leaves, torch.from_numpy(grad))
    expected = oracle.attention_backward(queries, keys, values, grad).outputs
    for ours, theirs, oracles in zip(found, by_autograd, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(ours.numpy(), oracles, rtol=1e-7, atol=1e-7)


# ---------------------------------------------------------------- bad input
def tensors(*shapes, dtype=torch.float64):
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize(
    "attend",
    [
        attend
        for p in (taught, fused)
        for attend in (p.scaled_dot_product_attention, p.DotProductAttention())
    ],
)
@pytest.mark.parametrize(
    ("shapes", "extra", "error", "match"),
    [
        (((3,), (5, 4), (5, 6)), {}, ValueError, r"`queries` must have shape"),
        (((2, 3, 4), (2, 5, 3), (2, 5, 6)), {}, ValueError, r"`keys` must .*\(2, 5, 3\)"),
        (((2, 3, 4), (2, 5, 4), (2, 4, 6)), {}, ValueError, r"`values` must .*\(2, 4, 6\)"),
        (((2, 3, 4), (3, 5, 4), (3, 5, 6)), {}, ValueError, r"`keys` must .*\(3, 5, 4\)"),
        (
            ((2, 3, 4), (2, 5, 4), (2, 5, 6)),
            {"mask": torch.ones(3, 5)},
            TypeError,
            r"`mask` must be a bool tensor.*float32",
        ),
        (
            ((2, 3, 4), (2, 5, 4), (2, 5, 6)),
            {"mask": torch.ones(4, 5, dtype=torch.bool)},
            ValueError,
            r"`mask` must be broadcastable .*\(2, 3, 5\); got \(4, 5\)",
        ),
        (
            ((2, 3, 4), (2, 5, 4), (2, 5, 6)),
            {"valid_lens": torch.tensor([1, 6])},
            ValueError,
            r"`valid_lens` must lie in 0\.\.num_keys = 0\.\.5; got 6",
        ),
        (
            ((2, 3, 4), (2, 5, 4), (2, 5, 6)),
            {"valid_lens": torch.tensor([1.0, 2.0])},
            TypeError,
            r"`valid_lens` must be an integer tensor",
        ),
        (
            ((3, 4), (5, 4), (5, 6)),
            {"valid_lens": torch.tensor([1])},
            ValueError,
            r"give a `mask` instead",
        ),
    ],
)
def test_bad_input_is_named(attend, shapes, extra, error, match):
    with pytest.raises(error, match=match):
        attend(*tensors(*shapes), **extra)


@both
def test_integer_tensors_and_missing_arguments_are_named(package):
    scaled_dot_product_attention = package.scaled_dot_product_attention
    q, k, v = tensors((3, 4), (5, 4), (5, 6))
    with pytest.raises(TypeError, match=r"`queries` must be a float tensor"):
        scaled_dot_product_attention(q.long(), k, v)
    with pytest.raises(TypeError, match=r"missing .*'queries'"):
        scaled_dot_product_attention(keys=k, values=v)


@both
@pytest.mark.parametrize("dropout", [-0.1, 1.5])
def test_dropout_must_be_a_probability(package, dropout):
    with pytest.raises(ValueError, match="between 0 and 1"):
        package.DotProductAttention(dropout=dropout)


def test_numpy_version_names_bad_input():
    q, k, v = (np.zeros(s) for s in ((3, 4), (5, 4), (5, 6)))
    with pytest.raises(ValueError, match=r"`keys` must have shape .*\(5, 3\)"):
        numpy_attention(q, k[:, :3], v)
    with pytest.raises(TypeError, match=r"`mask` must be a bool numpy.ndarray.*float64"):
        numpy_attention(q, k, v, np.ones((3, 5)))
    with pytest.raises(TypeError, match=r"`mask` must be a bool numpy.ndarray.*tensor of bool"):
        numpy_attention(q, k, v, torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"`mask` must be broadcastable .*\(3, 5\)"):
        numpy_attention(q, k, v, np.ones((2, 5), dtype=bool))
    with pytest.raises(TypeError, match=r"`values` must be a float numpy.ndarray"):
        numpy_attention(q, k, v.tolist())


def test_other_functions_name_bad_input():
    with pytest.raises(ValueError, match=r"`keys` must have shape .*\(5, 3\)"):
        jacobian_wrt_query(torch.zeros(4), torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"`query` must have shape"):
        jacobian_wrt_query(torch.zeros(1, 4), torch.zeros(5, 4))
    with pytest.raises(ValueError, match=r"`grad_outputs` must have shape .*\(3, 5\)"):
        attention_backward(*tensors((3, 4), (5, 4), (5, 6), (3, 5)))


@both
@pytest.mark.gpu
def test_lesson_05_on_cuda(package, generator):
    inputs = random_problem(generator)
    expected = scaled_dot_product_attention(*inputs, torch.tensor([2, 0]))
    on_gpu = [x.cuda() for x in (*inputs, torch.tensor([2, 0]))]
    for ours, theirs in zip(package.scaled_dot_product_attention(*on_gpu), expected, strict=True):
        assert ours.is_cuda
        torch.testing.assert_close(ours.cpu(), theirs)
    assert score_variance(4, 5000, True, torch.Generator("cuda").manual_seed(1)) < 2
