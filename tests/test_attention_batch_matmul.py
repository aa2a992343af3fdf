"""Lesson 03's solutions against the oracle, torch, and bad input."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from course_lib.attention import (
    attention_cost,
    attention_pooling,
    batched_scores,
    bmm,
    bmm_loops,
)
from course_lib.checks import grade
from course_lib.reference import batch_matmul as oracle

sizes = st.integers(1, 5)
PRODUCTS = {
    "bmm": (bmm, oracle.bmm),
    "batched_scores": (batched_scores, oracle.batched_scores),
}
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def shapes_for(name, lead, n, k, m):
    """Shapes of the two arguments whose product is (*lead, n, m)."""
    return (*lead, n, k), (*lead, m, k) if name == "batched_scores" else (*lead, k, m)


@st.composite
def problems(draw, least_axes=0, most_axes=3):
    """A function's name with two arrays that fit it, from a drawn seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    name = draw(st.sampled_from(sorted(PRODUCTS)))
    lead = tuple(draw(st.lists(sizes, min_size=least_axes, max_size=most_axes)))
    shapes = shapes_for(name, lead, draw(sizes), draw(sizes), draw(sizes))
    return name, *(rng.normal(0, 1.5, shape) for shape in shapes)


def strided(array):
    """The same numbers in a tensor that is not contiguous."""
    return torch.from_numpy(np.repeat(array, 2, axis=-1))[..., ::2]


@given(problems(), st.booleans())
def test_products_are_the_oracles_for_any_leading_axes_and_change_nothing(problem, gaps):
    name, a, b = problem
    ours, theirs = PRODUCTS[name]
    left, right = (strided(x) if gaps else torch.from_numpy(x.copy()) for x in (a, b))
    np.testing.assert_allclose(ours(left, right).numpy(), theirs(a, b).outputs, atol=1e-12)
    assert np.array_equal(left.numpy(), a)
    assert np.array_equal(right.numpy(), b)


@given(st.integers(0, 2**32 - 1), sizes, sizes, sizes, sizes)
def test_loops_are_the_oracles_and_torchs(seed, batch, n, k, m):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(batch, n, k)), rng.normal(size=(batch, k, m))
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    ours = bmm_loops(left, right)
    np.testing.assert_allclose(ours.numpy(), oracle.bmm_loops(a, b).outputs, atol=1e-12)
    torch.testing.assert_close(ours, torch.bmm(left, right))


@given(problems())
def test_each_item_is_the_product_of_its_own_matrices(problem):
    name, a, b = problem
    ours = PRODUCTS[name][0]
    together = ours(torch.from_numpy(a), torch.from_numpy(b))
    for item in np.ndindex(a.shape[:-2]):
        alone = ours(torch.from_numpy(a[item]), torch.from_numpy(b[item]))
        torch.testing.assert_close(together[item], alone)


@given(problems())
def test_changing_one_key_changes_only_its_column(problem):
    _, a, b = problem
    keys = b.swapaxes(-1, -2) if a.shape[-1] == b.shape[-2] else b
    queries, keys = torch.from_numpy(a), torch.from_numpy(np.ascontiguousarray(keys))
    before = batched_scores(queries, keys)
    changed = keys.clone()
    changed[..., -1, :] += 1.0
    after = batched_scores(queries, changed)
    torch.testing.assert_close(after[..., :-1], before[..., :-1])
    torch.testing.assert_close(after[..., -1] - before[..., -1], queries.sum(dim=-1))


def attention_problem(seed, lead=(2,), sizes=(3, 5, 4, 6)):
    rng = np.random.default_rng(seed)
    n, m, d, v = sizes
    return [rng.normal(0, 1.5, (*lead, *shape)) for shape in ((n, d), (m, d), (m, v))]


@given(st.integers(0, 2**32 - 1), st.lists(sizes, max_size=3), st.tuples(*[sizes] * 4))
def test_attention_pooling_is_the_oracles_and_torchs(seed, lead, sizes):
    arrays = attention_problem(seed, lead, sizes)
    outputs, weights = attention_pooling(*map(torch.from_numpy, arrays))
    for ours, theirs in zip(
        (outputs, weights), oracle.attention_pooling(*arrays).outputs, strict=True
    ):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)
    torchs = F.scaled_dot_product_attention(*map(torch.from_numpy, arrays), scale=1.0)
    torch.testing.assert_close(outputs, torchs)


@given(st.integers(0, 2**32 - 1))
def test_outputs_stay_between_the_smallest_and_largest_value(seed):
    queries, keys, values = map(torch.from_numpy, attention_problem(seed))
    outputs, weights = attention_pooling(queries, keys, values)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    assert (outputs >= values.amin(dim=-2, keepdim=True) - 1e-12).all()
    assert (outputs <= values.amax(dim=-2, keepdim=True) + 1e-12).all()


def test_attention_pooling_passes_gradcheck_and_keeps_the_dtype():
    inputs = [torch.from_numpy(array) for array in attention_problem(0, sizes=(2, 3, 4, 2))]
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    assert torch.autograd.gradcheck(attention_pooling, leaves)
    for dtype in DTYPES:
        results = attention_pooling(*(tensor.to(dtype) for tensor in inputs))
        assert {result.dtype for result in results} == {dtype}


@pytest.mark.parametrize("name", [*PRODUCTS, "bmm_loops"])
def test_products_pass_gradcheck(name, generator):
    function = bmm_loops if name == "bmm_loops" else PRODUCTS[name][0]
    lead = (2,) if name == "bmm_loops" else (2, 1)
    inputs = [
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes_for(name, lead, 2, 3, 4)
    ]
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*PRODUCTS, "bmm_loops"])
def test_products_keep_the_dtype(name, dtype, generator):
    function = bmm_loops if name == "bmm_loops" else PRODUCTS[name][0]
    left, right = (
        torch.randn(shape, generator=generator) for shape in shapes_for(name, (2,), 3, 4, 5)
    )
    low = function(left.to(dtype), right.to(dtype))
    assert low.dtype == dtype
    torch.testing.assert_close(low.float(), function(left, right), atol=0.1, rtol=0.1)


@pytest.mark.parametrize("name", sorted(PRODUCTS))
def test_products_compile_and_export(name, generator, plain_import):
    function = getattr(plain_import("course_lib.attention._batch_matmul"), name)
    inputs = tuple(
        torch.randn(shape, generator=generator) for shape in shapes_for(name, (2,), 3, 4, 5)
    )
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), function(*inputs))

    class Wrapped(torch.nn.Module):
        def forward(self, left, right):
            return function(left, right)

    exported = torch.export.export(Wrapped(), inputs).module()
    torch.testing.assert_close(exported(*inputs), function(*inputs))


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(PRODUCTS))
def test_products_stay_on_the_device(name, generator):
    inputs = [torch.randn(s, generator=generator) for s in shapes_for(name, (2, 3), 4, 5, 6)]
    there = PRODUCTS[name][0](*(tensor.cuda() for tensor in inputs))
    assert there.device.type == "cuda"
    torch.testing.assert_close(there.cpu(), PRODUCTS[name][0](*inputs), atol=1e-2, rtol=1e-2)


@given(*[st.integers(0, 6)] * 3, sizes, sizes, st.sampled_from([1, 2, 4, 8]))
def test_cost_is_the_oracles(batch, n, m, d, d_v, size):
    ours = attention_cost(batch, n, m, d, d_v, bytes_per_element=size)
    assert ours == oracle.attention_cost(batch, n, m, d, d_v, size).outputs


def test_cost_counts_what_the_loops_do(generator):
    sizes = {"batch": 2, "num_queries": 3, "num_keys": 5, "d": 4, "d_v": 6}
    queries, keys = (torch.randn(2, size, 4, generator=generator) for size in (3, 5))
    scores = batched_scores(queries, keys)
    counted = sum(2 * 4 for _ in scores.flatten()) + sum(2 * 5 for _ in range(2 * 3 * 6))
    cost = attention_cost(**sizes)
    assert cost == {"flops": counted, "score_bytes": scores.numel() * scores.element_size()}
    assert all(type(count) is int for count in cost.values())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: bmm(torch.ones(2, 3, 4), torch.ones(2, 5, 6)),
            ValueError,
            r"`b` must have shape \(\*batch, k, m\); got \(2, 5, 6\)",
        ),
        (
            lambda: bmm(torch.ones(2, 3, 4), torch.ones(1, 4, 6)),
            ValueError,
            r"`b` must have shape .* got \(1, 4, 6\)",
        ),
        (lambda: bmm(torch.ones(4), torch.ones(4, 2)), ValueError, r"`a` must have shape"),
        (
            lambda: bmm_loops(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 4, 5)),
            ValueError,
            r"`a` must have shape \(batch, n, k\)",
        ),
        (
            lambda: bmm_loops(torch.ones(2, 3, 4), torch.ones(3, 4, 5)),
            ValueError,
            r"`b` must have shape \(batch, k, m\); got \(3, 4, 5\)",
        ),
        (
            lambda: batched_scores(torch.ones(2, 3, 4), torch.ones(2, 5, 3)),
            ValueError,
            r"`keys` must have shape .* got \(2, 5, 3\)",
        ),
        (
            lambda: batched_scores(torch.ones(2, 3, dtype=torch.long), torch.ones(4, 3)),
            TypeError,
            "`queries` must be a float tensor; got a tensor of int64",
        ),
        (
            lambda: attention_pooling(*(torch.ones(2, size, 4) for size in (3, 5, 6))),
            ValueError,
            r"`values` must have shape .* got \(2, 6, 4\)",
        ),
        (
            lambda: attention_pooling([[1.0]], torch.ones(1, 1), torch.ones(1, 1)),
            TypeError,
            r"`queries` must be a float tensor; got list",
        ),
    ],
)
def test_bad_input_is_refused_with_rule_and_numbers(call, error, words):
    with pytest.raises(error, match=words):
        call()


# ------------------------------------------------------------------ what the checks say


def messages(exercise, answer):
    return grade(exercise, answer, seed="words").text()


def test_a_loop_is_seen_even_where_torch_sees_none():
    def rows_in_numpy(a, b):
        x, y = a.detach().numpy(), b.detach().numpy()
        out = np.zeros((*a.shape[:-1], b.shape[-1]))
        for index in np.ndindex(out.shape):
            out[index] = (x[index[:-1]] * y[index[:-2]][:, index[-1]]).sum()
        return torch.from_numpy(out)

    report = grade("bmm", rows_in_numpy, seed="words")
    assert 0 < report.score <= 0.5
    assert "Python steps for a small one" in report.text()


def test_a_loop_over_axes_is_no_loop_over_the_problem():
    def letters(a, b):
        lead = "".join("pqrs"[i] for i in range(a.dim() - 2))
        return torch.einsum(f"{lead}xy,{lead}yz->{lead}xz", a, b)

    assert grade("bmm", letters, seed="words").score == 1.0


def test_one_call_for_the_batch_is_no_loop():
    text = messages("bmm_loops", lambda a, b: a @ b)
    assert "asks for the loops" in text
    assert "0 of 2 points" in text


def test_a_ready_made_product_is_named():
    assert "Your code calls `matmul`" in messages("bmm", lambda a, b: a @ b)
    assert "Your code calls `bmm`" in messages("bmm", torch.bmm)


def test_reports_say_what_a_reshape_does():
    def reshaped(queries, keys):
        return queries @ keys.reshape(*keys.shape[:-2], keys.shape[-1], keys.shape[-2])

    text = messages("batched_scores", reshaped)
    assert "keeps the numbers in order" in text
    assert "The smallest input that fails" in text


def test_two_wrong_counts_are_told_apart():
    def cost(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
        pairs = batch * num_queries * num_keys
        return {"flops": pairs * (d + d_v), "score_bytes": pairs}

    text = messages("attention_cost", cost)
    assert "You count multiply-adds" in text
    assert "You count the scores" in text


def test_the_integration_runs_on_the_students_scores():
    def pooling(queries, keys, values):
        weights = torch.softmax(queries @ keys.mT, dim=-1)
        return weights @ values, weights

    answers = {"batched_scores": lambda queries, keys: queries @ keys.mT}
    assert grade("03_batch_matmul", answers | {"attention_pooling": pooling}).score == 1.0
    missing = grade("03_batch_matmul", answers | {"attention_pooling": None})
    assert missing.outcome == "not_attempted"
