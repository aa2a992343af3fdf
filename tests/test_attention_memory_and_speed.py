"""Lesson 08: the same numbers as attention at once, in less memory, with fewer functions."""

import math

import numpy as np
import pytest
import torch
from bounds import assert_rounded, exactly
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from course_lib import additive_scores, scaled_dot_product_attention
from course_lib.attention import (
    RecomputedAttention,
    blocked_attention,
    factored_additive_scores,
    softmax_statistics,
)
from course_lib.checks.observe.cost_meter import Spending
from course_lib.checks.observe.remote import Request, answer
from course_lib.exercises import find
from course_lib.reference import memory_and_speed as oracle

SIZES = st.integers(1, 5)
BATCHES = st.lists(st.integers(1, 3), max_size=2)


def normal(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (1.4 * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


@st.composite
def problems(draw):
    """Queries, keys, values, perhaps a mask with some of its axes of length 1, a block size."""
    n, m, d, v = (draw(SIZES) for _ in range(4))
    batch = draw(BATCHES)
    inputs = [normal(i, *batch, *shape) for i, shape in enumerate(((n, d), (m, d), (m, v)))]
    shape = [draw(st.sampled_from([1, size])) for size in (*batch, n, m)]
    shape = shape[draw(st.integers(0, len(shape) - 1)) :]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mask = draw(st.sampled_from([None, torch.from_numpy(rng.random(shape) < 0.6)]))
    return inputs, mask, draw(st.integers(1, 7))


def arrays(inputs, mask):
    return [x.detach().numpy() for x in inputs], None if mask is None else mask.numpy()


@given(st.lists(SIZES, min_size=1, max_size=4), BATCHES, st.floats(0, 1), st.integers(0, 99))
def test_statistics_agree_with_the_oracle(sizes, rows, share, seed):
    scores = normal(seed, *rows, sum(sizes))
    holes = torch.from_numpy(np.random.default_rng(seed).random(scores.shape) < share)
    blocks = scores.masked_fill(holes, -math.inf).split(sizes, dim=-1)
    found = softmax_statistics(iter(blocks))
    expected = oracle.softmax_statistics([block.numpy() for block in blocks]).outputs
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


def test_statistics_do_not_depend_on_how_the_scores_are_cut():
    scores = normal(3, 4, 12)
    whole = softmax_statistics([scores])
    for size in range(1, 12):
        cut = softmax_statistics(scores.split(size, dim=-1))
        assert torch.equal(cut[0], whole[0])
        torch.testing.assert_close(cut[1], whole[1])


@given(problems())
def test_blocked_attention_agrees_with_the_oracle(problem):
    inputs, mask, block_size = problem
    before = [x.clone() for x in inputs]
    found = blocked_attention(*inputs, mask, block_size)
    expected = oracle.blocked_attention(*arrays(inputs, mask)[0], arrays(inputs, mask)[1]).outputs
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-10, atol=1e-12)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


@given(problems())
def test_recomputed_gradients_are_those_of_autograd(problem):
    inputs, mask, block_size = problem
    inputs = [x.requires_grad_() for x in inputs]
    plain = scaled_dot_product_attention(*inputs, mask=mask)[0]
    outputs = RecomputedAttention.apply(*inputs, mask, block_size)
    torch.testing.assert_close(outputs, plain)
    grad = normal(9, *outputs.shape)
    found = torch.autograd.grad(outputs, inputs, grad)
    expected = torch.autograd.grad(plain, inputs, grad)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_gradients_pass_gradcheck():
    inputs = [normal(i, 2, *s).requires_grad_() for i, s in enumerate(((3, 2), (5, 2), (5, 3)))]
    mask = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[0, 1] = False
    for way in (RecomputedAttention.apply, lambda *x: blocked_attention(*x)[0]):
        assert torch.autograd.gradcheck(lambda *x, way=way: way(*x, mask, 2), inputs)


def test_an_empty_row_gets_zeros_and_sends_back_zeros():
    inputs = [normal(i, *s).requires_grad_() for i, s in enumerate(((3, 2), (4, 2), (4, 3)))]
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    outputs, logsumexp = blocked_attention(*inputs, mask, 3)
    assert not outputs[1].any() and logsumexp[1] == -math.inf
    grads = torch.autograd.grad(RecomputedAttention.apply(*inputs, mask, 3).sum(), inputs)
    assert not grads[0][1].any() and all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_is_kept(dtype):
    inputs = [normal(i, 2, 4, 3, dtype=dtype).requires_grad_() for i in range(3)]
    outputs, logsumexp = blocked_attention(*inputs, None, 3)
    assert outputs.dtype == logsumexp.dtype == dtype
    own = RecomputedAttention.apply(*inputs, None, 3)
    exact = scaled_dot_product_attention(*(exactly(x, dtype) for x in inputs))[0]
    assert_rounded(own, exact)
    assert torch.autograd.grad(own.sum(), inputs[0])[0].dtype == dtype
    scores = factored_additive_scores(inputs[0], inputs[1], inputs[2][0, 0])
    assert scores.dtype == dtype


def test_no_key_gives_zeros():
    inputs = torch.randn(2, 3), torch.randn(0, 3), torch.randn(0, 4)
    outputs, logsumexp = blocked_attention(*inputs)
    assert not outputs.any() and (logsumexp == -math.inf).all()


def test_memory_is_linear_and_less_is_kept():
    def spend(way, n):
        inputs = [normal(i, n, 8).requires_grad_() for i in range(3)]
        with Spending(inputs) as spent:
            outputs = way(*inputs)
            kept = spent.alive()
            torch.autograd.grad(outputs.sum(), inputs)
        return np.array([kept, spent.peak])

    def own(*inputs):
        return RecomputedAttention.apply(*inputs, None, 16)

    assert (spend(own, 512) < 2.2 * spend(own, 256)).all()
    plain = spend(lambda *x: scaled_dot_product_attention(*x)[0], 512)
    assert (spend(own, 512) < 0.1 * plain).all()
    in_blocks = spend(lambda *x: blocked_attention(*x, None, 16)[0], 512)
    assert in_blocks[0] > plain[0]  # as the lesson says of autograd


def test_fused_kernel_of_torch_agrees():
    inputs = [normal(i, 2, 2, 5, 4) for i in range(3)]
    outputs, _ = blocked_attention(*inputs, None, 2)
    torch.testing.assert_close(outputs, F.scaled_dot_product_attention(*inputs))


@given(SIZES, SIZES, SIZES, SIZES, st.floats(-3, 3))
def test_factored_scores_agree_with_the_oracle_at_every_size(batch, n, m, h, power):
    queries, keys = 10**power * normal(0, batch, n, h), 10**power * normal(1, batch, m, h)
    w_v = normal(2, h)
    found = factored_additive_scores(queries, keys, w_v)
    expected = oracle.factored_additive_scores(queries.numpy(), keys.numpy(), w_v.numpy()).outputs
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.99, 1.01, 1.2, 3.0])
def test_factored_scores_are_right_on_both_sides_of_the_border(dtype, share):
    limit = -0.5 * math.log(torch.finfo(dtype).tiny) * share
    x = torch.tensor([limit, -limit, limit / 2, 0.0], dtype=dtype).reshape(1, 4, 1)
    found = factored_additive_scores(x, x, torch.ones(1, dtype=dtype))
    expected = torch.tanh((x + x.mT).double())
    assert (found.double() - expected).abs().max() < 4 * torch.finfo(dtype).eps
    with Spending([x]) as spent:
        factored_additive_scores(x, x, torch.ones(1, dtype=dtype))
    assert spent.functions == (8 if share < 1 else 16)


def test_factored_scores_are_those_of_lesson_04_and_so_is_the_gradient():
    queries, keys = (normal(i, 2, n, 4).requires_grad_() for i, n in enumerate((3, 5)))
    w_v, eye = normal(2, 4).requires_grad_(), torch.eye(4, dtype=torch.float64)
    found = factored_additive_scores(queries, keys, w_v)
    expected = additive_scores(queries, keys, eye, eye, w_v)
    torch.testing.assert_close(found, expected)
    grad = normal(3, *found.shape)
    for ours, theirs in zip(
        torch.autograd.grad(found, (queries, keys, w_v), grad),
        torch.autograd.grad(expected, (queries, keys, w_v), grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch's compiler does it
def test_functions_compile(plain_import):
    plain = plain_import("course_lib.attention._memory_and_speed")
    inputs = [normal(i, 2, 5, 3).requires_grad_() for i in range(3)]
    mask = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)) < 0.7

    def own(*x):
        return plain.RecomputedAttention.apply(*x, mask, 2)

    def blocked(*x):
        return plain.blocked_attention(*x, mask, 2)[0]

    for way in (own, blocked):
        compiled = torch.compile(way, backend="aot_eager", fullgraph=True)
        found, expected = compiled(*inputs), way(*inputs)
        torch.testing.assert_close(found, expected)
        ours, theirs = (torch.autograd.grad(x.sum(), inputs) for x in (found, expected))
        torch.testing.assert_close(ours, theirs)


BAD = [
    (lambda: softmax_statistics(3), TypeError, "`blocks` must be an iterable"),
    (lambda: softmax_statistics([]), ValueError, "`blocks` must hold >= 1 block"),
    (lambda: softmax_statistics([np.ones((2, 3))]), TypeError, "floating tensor"),
    (lambda: softmax_statistics([torch.ones(2, 3).long()]), TypeError, "floating tensor"),
    (lambda: softmax_statistics([torch.ones(2, 0)]), ValueError, r"block_size >= 1\)"),
    (lambda: softmax_statistics([torch.ones(2, 3), torch.ones(3, 3)]), ValueError, "the rows"),
    (
        lambda: softmax_statistics([torch.ones(2, 3), torch.ones(2, 3).double()]),
        TypeError,
        "each block must have dtype",
    ),
]
Q, K, V = torch.ones(3, 2), torch.ones(5, 2), torch.ones(5, 4)
for attend in (blocked_attention, RecomputedAttention.apply):
    BAD += [
        (lambda f=attend: f(Q, torch.ones(5, 3), V), ValueError, "`keys` must have shape"),
        (lambda f=attend: f(Q, K, V[:4]), ValueError, "`values` must have shape"),
        (lambda f=attend: f(Q, K, V, torch.ones(3, 5)), TypeError, "`mask` must be a bool"),
        (lambda f=attend: f(Q, K, V, torch.ones(3, 4).bool()), ValueError, "broadcastable"),
    ]
BAD += [
    (
        lambda: factored_additive_scores(Q[None], torch.ones(1, 5, 3), torch.ones(2)),
        ValueError,
        "`projected_keys` must have shape",
    ),
    (
        lambda: factored_additive_scores(Q[None], K[None], torch.ones(3)),
        ValueError,
        "`w_v` must have shape",
    ),
    (
        lambda: factored_additive_scores(Q[None].long(), K[None], torch.ones(2)),
        TypeError,
        "`projected_queries` must be a float",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_courses_own_function_refuses_where_answers_are_observed():
    class Own(RecomputedAttention):
        pass

    from course_lib.checks.judge.prepare import prepare

    probes = [probe for probe, _ in prepare(find("RecomputedAttention"), "own")][:1]
    reply = answer(Request("RecomputedAttention", probes), {"RecomputedAttention": Own})
    assert "the course's own solution" in reply.seen["worked_number"].raised.message
