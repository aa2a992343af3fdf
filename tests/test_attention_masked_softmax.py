"""Lesson 02's solutions, and their fused form, against the oracle, torch, and bad input."""

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
    additive_mask,
    causal_mask,
    combine_masks,
    length_mask,
    stable_softmax,
)
from course_lib.reference import masked_softmax as oracle

sizes = st.integers(1, 5)


@pytest.fixture(scope="module", params=[taught, fused], ids=["taught", "fused"])
def masked_softmax(request):
    """`masked_softmax` as taught, then the fused one."""
    return request.param.masked_softmax


@st.composite
def problems(draw):
    """Scores (..., n, m) with optional lengths and mask, from a drawn seed."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch = tuple(draw(st.lists(sizes, min_size=0, max_size=2)))
    n, m = draw(sizes), draw(sizes)
    scores = generator.normal(0, draw(st.sampled_from([1.0, 30.0, 1e4])), (*batch, n, m))
    lengths = mask = None
    if batch and draw(st.booleans()):
        shape = (batch[0],) if draw(st.booleans()) else (batch[0], n)
        lengths = generator.integers(0, m + 1, shape)
    if draw(st.booleans()):
        kept = [size if draw(st.booleans()) else 1 for size in (*batch, n, m)]
        mask = generator.random(kept[draw(st.integers(0, len(kept) - 1)) :]) < 0.5
    return scores, lengths, mask


def as_tensor(value):
    return None if value is None else torch.from_numpy(np.asarray(value))


@given(problems())
def test_masked_softmax_is_the_oracles(masked_softmax, problem):
    scores, lengths, mask = problem
    ours = masked_softmax(torch.from_numpy(scores), as_tensor(lengths), as_tensor(mask))
    np.testing.assert_allclose(
        ours.numpy(), oracle.masked_softmax(scores, lengths, mask).outputs, atol=1e-12
    )


@given(problems())
def test_masked_softmax_mutates_nothing_and_its_gradients_are_finite(masked_softmax, problem):
    scores, lengths, mask = problem
    given_scores = torch.from_numpy(scores.copy()).requires_grad_()
    given_lengths, given_mask = as_tensor(lengths), as_tensor(mask)
    masked_softmax(given_scores, given_lengths, given_mask).square().sum().backward()
    assert torch.isfinite(given_scores.grad).all()
    assert np.array_equal(given_scores.detach().numpy(), scores)
    assert mask is None or np.array_equal(given_mask.numpy(), mask)
    allowed = oracle.allowed_keys(scores.shape, lengths, mask)
    assert not given_scores.grad.numpy()[~allowed].any()


@given(problems())
def test_garbage_in_dropped_keys_changes_nothing(masked_softmax, problem):
    scores, lengths, mask = problem
    allowed = oracle.allowed_keys(scores.shape, lengths, mask)
    garbage = np.where(allowed, scores, np.nan)
    arguments = as_tensor(lengths), as_tensor(mask)
    clean = masked_softmax(torch.from_numpy(scores), *arguments)
    assert torch.equal(clean, masked_softmax(torch.from_numpy(garbage), *arguments))


def test_masked_softmax_passes_gradcheck(masked_softmax):
    scores = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([[0, 2, 4], [1, 3, 2]])
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, lengths), (scores,))


@given(st.integers(0, 2**32 - 1), st.lists(sizes, min_size=1, max_size=4), st.data())
def test_stable_softmax_is_the_oracles(seed, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    scores = np.random.default_rng(seed).normal(0, 500, shape)
    ours = stable_softmax(scores, axis=axis)
    np.testing.assert_allclose(ours, oracle.stable_softmax(scores, axis).outputs, atol=1e-12)


@given(st.integers(0, 7), st.integers(0, 7))
def test_causal_mask_is_the_oracles(n, m):
    assert np.array_equal(causal_mask(n, m).numpy(), oracle.causal_mask(n, m).outputs)
    assert np.array_equal(causal_mask(n).numpy(), oracle.causal_mask(n).outputs)


@given(st.integers(0, 2**32 - 1), sizes, sizes, sizes, st.booleans())
def test_length_mask_is_the_oracles(seed, batch, n, m, per_query):
    shape = (batch, n) if per_query else (batch,)
    lengths = np.random.default_rng(seed).integers(0, m + 1, shape)
    ours = length_mask(torch.from_numpy(lengths), m)
    assert np.array_equal(ours.numpy(), oracle.length_mask(lengths, m).outputs)


@given(st.integers(0, 2**32 - 1), st.lists(st.booleans(), max_size=4))
def test_combine_masks_is_the_oracles(seed, is_given):
    rng = np.random.default_rng(seed)
    masks = [
        rng.random((3, 1, 4) if i % 2 else (2, 4)) < 0.6 if g else None
        for i, g in enumerate(is_given)
    ]
    ours, theirs = combine_masks(*map(as_tensor, masks)), oracle.combine_masks(*masks).outputs
    assert (ours is None and theirs is None) or np.array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_additive_mask_then_softmax_is_masked_softmax(masked_softmax, dtype):
    mask = torch.tensor([[True, False, True], [True, True, False]])
    scores = torch.randn(2, 3).to(dtype)
    added = additive_mask(mask, dtype)
    assert added.dtype == dtype and torch.equal(added == 0, mask)
    torch.testing.assert_close(torch.softmax(scores + added, -1), masked_softmax(scores, mask=mask))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_is_kept_and_rows_sum_to_one(masked_softmax, dtype):
    weights = masked_softmax(torch.randn(2, 3, 5, dtype=dtype), torch.tensor([2, 5]))
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, dtype=dtype), atol=1e-2, rtol=0)


def test_masked_softmax_is_what_torch_computes_for_attention(masked_softmax):
    q, k, v = (torch.randn(2, 4, n, 6, dtype=torch.float64) for n in (3, 5, 5))
    mask = causal_mask(3, 5)
    ours = masked_softmax(q @ k.mT / math.sqrt(6), mask=mask) @ v
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


def test_causal_mask_differs_from_torch_where_n_is_not_m():
    q, k, v = (torch.randn(1, n, 4, dtype=torch.float64) for n in (2, 5, 5))
    torch_way = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    top_left = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(2, 5).tril().bool())
    torch.testing.assert_close(torch_way, top_left)
    assert not torch.equal(causal_mask(2, 5), torch.ones(2, 5).tril().bool())


def test_masked_softmax_compiles_and_exports(plain_import):
    masked_softmax = plain_import("course_lib.attention").masked_softmax
    scores, lengths = torch.randn(2, 3, 5), torch.tensor([2, 0])
    compiled = torch.compile(masked_softmax, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(scores, lengths), masked_softmax(scores, lengths))

    class Module(torch.nn.Module):
        def forward(self, scores, lengths):
            return masked_softmax(scores, lengths)

    exported = torch.export.export(Module(), (scores, lengths)).module()
    torch.testing.assert_close(exported(scores, lengths), masked_softmax(scores, lengths))


def test_non_contiguous_scores(masked_softmax):
    scores = torch.randn(2, 5, 3).mT
    assert torch.equal(masked_softmax(scores), masked_softmax(scores.contiguous()))


SCORES = torch.zeros(2, 3, 5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda masked_softmax: masked_softmax(torch.zeros(3)),
            ValueError,
            r"`scores` must have shape",
        ),
        (
            lambda masked_softmax: masked_softmax([[1.0]]),
            TypeError,
            r"`scores` must be a float tensor; got list",
        ),
        (
            lambda masked_softmax: masked_softmax(torch.zeros(2, 3, dtype=torch.int64)),
            TypeError,
            r"float tensor",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES, mask=torch.ones(3, 5)),
            TypeError,
            r"bool tensor",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES, mask=torch.ones(4, 5).bool()),
            ValueError,
            r"broadcastable .* = \(2, 3, 5\); got \(4, 5\)",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES, torch.tensor([1.0, 2.0])),
            TypeError,
            r"integer tensor",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES, torch.tensor([1, 6])),
            ValueError,
            r"0..num_keys = 0..5; got 6",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES, torch.tensor([-1, 2])),
            ValueError,
            r"got -1",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES, torch.tensor([1, 2, 3])),
            ValueError,
            r"\(batch,\) = \(2,\)",
        ),
        (
            lambda masked_softmax: masked_softmax(SCORES[0], torch.tensor([1, 2, 3])),
            ValueError,
            r"leading batch dimension",
        ),
        (lambda _: length_mask(torch.tensor([5]), 4), ValueError, r"0..max_len = 0..4; got 5"),
        (lambda _: length_mask(torch.tensor([1.0]), 4), TypeError, r"integer tensor"),
        (lambda _: length_mask([1], 4), TypeError, r"integer tensor; got list"),
        (lambda _: length_mask(torch.tensor([1])), TypeError, r"missing .*'max_len'"),
        (lambda f: f(valid_lens=torch.tensor([1])), TypeError, r"missing .*'scores'"),
        (lambda _: combine_masks(torch.ones(2)), TypeError, r"bool tensor"),
        (lambda _: additive_mask(torch.ones(2), torch.float32), TypeError, r"bool tensor"),
        (lambda _: stable_softmax([1.0]), TypeError, r"numpy.ndarray; got list"),
    ],
)
def test_bad_input_names_the_rule_and_the_value(masked_softmax, call, error, match):
    with pytest.raises(error, match=match):
        call(masked_softmax)


@pytest.mark.parametrize("shape", [(0, 2, 3), (0, 4, 2, 3), (2, 3, 0)])
def test_masked_softmax_of_nothing_is_nothing(masked_softmax, shape):
    lengths = torch.zeros(shape[0], dtype=torch.long)
    assert masked_softmax(torch.zeros(shape), lengths).shape == shape
    assert masked_softmax(torch.zeros(shape), lengths[:, None].expand(-1, shape[-2])).shape == shape
