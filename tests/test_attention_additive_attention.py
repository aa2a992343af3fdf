"""Lesson 04's solutions against the oracle, by their properties, as modules, and on bad input.

What holds for the taught module holds for the fused one too.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib import attention as taught
from course_lib import fused
from course_lib.attention import additive_scores, masked_softmax
from course_lib.reference import additive_attention as oracle

sizes = st.integers(1, 4)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", params=[taught, fused], ids=["taught", "fused"])
def AdditiveAttention(request):
    """`AdditiveAttention` as taught, then the fused one."""
    return request.param.AdditiveAttention


def scores_problem(seed, b, n, m, d_q, d_k, h, dtype=torch.float64):
    """The five arguments of `additive_scores`."""
    rng = np.random.default_rng(seed)
    shapes = (b, n, d_q), (b, m, d_k), (h, d_q), (h, d_k), (h,)
    return [torch.from_numpy(rng.normal(0, 1.2, shape)).to(dtype) for shape in shapes]


@st.composite
def module_problems(draw):
    """Sizes and seed of a module, its inputs, and optional lengths and mask."""
    rng = np.random.default_rng(draw(seeds))
    b, n, m, d_q, d_k, v, h = (draw(sizes) for _ in range(7))
    inputs = [rng.normal(0, 1.2, shape) for shape in ((b, n, d_q), (b, m, d_k), (b, m, v))]
    lengths = mask = None
    if draw(st.booleans()):
        lengths = rng.integers(0, m + 1, (b,) if draw(st.booleans()) else (b, n))
    if draw(st.booleans()):
        mask = rng.random((n, m) if draw(st.booleans()) else (b, n, m)) < 0.5
    return (d_q, d_k, h), inputs, lengths, mask


def built(kind, rng, d_q, d_k, h, dropout=0.0):
    """A float64 module of this class in eval mode with random weights."""
    module = kind(d_q, d_k, h, dropout).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(0, 1, tuple(parameter.shape))))
    return module


def state_of(module):
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def as_tensor(value):
    return None if value is None else torch.from_numpy(np.asarray(value))


@given(seeds, sizes, sizes, sizes, sizes, sizes, sizes)
def test_additive_scores_are_the_oracles(seed, b, n, m, d_q, d_k, h):
    problem = scores_problem(seed, b, n, m, d_q, d_k, h)
    theirs = oracle.additive_scores(*(x.numpy() for x in problem)).outputs
    np.testing.assert_allclose(additive_scores(*problem).numpy(), theirs, atol=1e-12)


@given(seeds, st.floats(0.1, 1e6))
def test_no_score_exceeds_the_sum_of_the_sizes_of_w_v(seed, scale):
    queries, keys, w_q, w_k, w_v = scores_problem(seed, 2, 3, 4, 2, 3, 5)
    scores = additive_scores(scale * queries, scale * keys, w_q, w_k, w_v)
    assert (scores.abs() <= w_v.abs().sum() * (1 + 1e-12)).all()


@given(seeds)
def test_a_score_belongs_to_its_query_and_its_key_alone(seed):
    queries, keys, *weights = scores_problem(seed, 2, 3, 5, 4, 2, 6)
    scores = additive_scores(queries, keys, *weights)
    alone = additive_scores(queries[1:, 2:], keys[1:, 4:], *weights)
    torch.testing.assert_close(scores[1:, 2:, 4:], alone)


def test_scores_are_odd_and_those_of_zeros_are_zero():
    queries, keys, *weights = scores_problem(0, 2, 3, 5, 4, 2, 6)
    torch.testing.assert_close(
        additive_scores(-queries, -keys, *weights), -additive_scores(queries, keys, *weights)
    )
    assert not additive_scores(0 * queries, 0 * keys, *weights).any()


def test_queries_and_keys_change_places_with_their_weights():
    queries, keys, w_q, w_k, w_v = scores_problem(1, 2, 3, 5, 4, 2, 6)
    torch.testing.assert_close(
        additive_scores(keys, queries, w_k, w_q, w_v),
        additive_scores(queries, keys, w_q, w_k, w_v).mT,
    )


def test_both_pass_gradcheck(AdditiveAttention):
    problem = [x.requires_grad_() for x in scores_problem(2, 2, 2, 3, 2, 1, 3)]
    assert torch.autograd.gradcheck(additive_scores, problem)
    module = built(AdditiveAttention, np.random.default_rng(0), 2, 1, 3)
    inputs = [torch.randn(2, s, d, dtype=torch.float64) for s, d in ((2, 2), (3, 1), (3, 2))]
    inputs = [x.requires_grad_() for x in inputs]
    lengths = torch.tensor([[0, 2], [3, 1]])
    assert torch.autograd.gradcheck(lambda *x: module(*x, valid_lens=lengths), inputs)


@given(module_problems())
def test_the_module_is_the_oracles(AdditiveAttention, problem):
    sizes, inputs, lengths, mask = problem
    module = built(AdditiveAttention, np.random.default_rng(0), *sizes)
    outputs = module(*map(torch.from_numpy, inputs), as_tensor(lengths), as_tensor(mask))
    expected = oracle.additive_attention({}, state_of(module), *inputs, lengths, mask)
    np.testing.assert_allclose(outputs.detach().numpy(), expected.outputs, atol=1e-12)
    weights = module.attention_weights
    if AdditiveAttention is taught.AdditiveAttention:
        assert not weights.requires_grad
        expected_weights = expected.attributes["attention_weights"]
        np.testing.assert_allclose(weights.numpy(), expected_weights, atol=1e-12)


@given(module_problems())
def test_the_module_mutates_nothing_and_its_gradients_are_finite(AdditiveAttention, problem):
    sizes, inputs, lengths, mask = problem
    module = built(AdditiveAttention, np.random.default_rng(0), *sizes)
    given_inputs = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    given_masks = as_tensor(lengths), as_tensor(mask)
    module(*given_inputs, *given_masks).square().sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in [*given_inputs, *module.parameters()])
    assert all(np.array_equal(x.detach(), y) for x, y in zip(given_inputs, inputs, strict=True))
    assert mask is None or np.array_equal(given_masks[1].numpy(), mask)


def test_masking_a_key_is_deleting_it(AdditiveAttention, rng):
    module = built(AdditiveAttention, rng, 4, 3, 5)
    queries, keys, values = (torch.randn(1, s, d).double() for s, d in ((2, 4), (5, 3), (5, 6)))
    mask = torch.tensor([True, False, True, True, False])
    deleted = module(queries, keys[:, mask], values[:, mask])
    torch.testing.assert_close(module(queries, keys, values, mask=mask), deleted)


def test_one_allowed_key_returns_its_value_and_none_returns_zeros(AdditiveAttention, rng):
    module = built(AdditiveAttention, rng, 4, 3, 5)
    queries, keys, values = (torch.randn(2, s, d).double() for s, d in ((2, 4), (5, 3), (5, 6)))
    outputs = module(queries, keys, values, torch.tensor([1, 0]))
    torch.testing.assert_close(outputs[0], values[0, :1].expand(2, 6))
    assert not outputs[1].any()


def test_without_tanh_every_query_would_have_the_same_weights():
    queries, keys, w_q, w_k, w_v = scores_problem(3, 1, 3, 5, 4, 2, 6)
    features = (queries @ w_q.mT).unsqueeze(2) + (keys @ w_k.mT).unsqueeze(1)
    linear = masked_softmax(features @ w_v)
    torch.testing.assert_close(linear, linear[:, :1].expand_as(linear))
    ours = masked_softmax(additive_scores(queries, keys, w_q, w_k, w_v))
    assert not torch.allclose(ours, ours[:, :1].expand_as(ours), atol=1e-3)


def test_dropout_acts_on_the_weights_in_train_mode_only(AdditiveAttention, rng):
    module = built(AdditiveAttention, rng, 4, 3, 5, dropout=0.4)
    queries, keys = torch.randn(6, 20, 4).double(), torch.randn(6, 30, 3).double()
    values = torch.eye(30).double().expand(6, 30, 30)
    expected = module(queries, keys, values)
    torch.testing.assert_close(expected, module(queries, keys, values))
    torch.manual_seed(0)
    dropped = module.train()(queries, keys, values)
    if AdditiveAttention is taught.AdditiveAttention:
        torch.testing.assert_close(module.attention_weights, expected.detach())
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], expected[kept] / 0.6)
    assert abs(1 - kept.double().mean().item() - 0.4) < 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtype_is_kept(AdditiveAttention, dtype):
    module = AdditiveAttention(4, 3, 5).to(dtype).eval()
    inputs = [torch.randn(2, s, d).to(dtype) for s, d in ((2, 4), (5, 3), (5, 6))]
    outputs = module(*inputs, torch.tensor([0, 3]))
    assert outputs.dtype == dtype
    assert torch.isfinite(outputs).all()


def test_state_dict_makes_the_round_trip(AdditiveAttention, rng, tmp_path):
    module, copy = (
        built(AdditiveAttention, rng, 4, 3, 5),
        AdditiveAttention(4, 3, 5).double().eval(),
    )
    assert list(module.state_dict()) == ["W_q.weight", "W_k.weight", "w_v.weight"]
    inputs = [torch.randn(2, s, d).double() for s, d in ((2, 4), (5, 3), (5, 6))]
    module(*inputs)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    copy.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(copy(*inputs), module(*inputs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attribute self.attention_weights was assigned")
def test_the_module_compiles_and_exports(plain_import):
    lesson = plain_import("course_lib.attention")
    module = lesson.AdditiveAttention(4, 3, 5).eval()
    inputs = [torch.randn(2, s, d) for s, d in ((2, 4), (5, 3), (5, 6))]
    masks = torch.tensor([0, 3]), torch.rand(2, 5) < 0.7
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(module, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(*inputs, *masks), module(*inputs, *masks))
        torch.testing.assert_close(compiled(*inputs), module(*inputs))
    exported = torch.export.export(module, (*inputs, *masks)).module()
    torch.testing.assert_close(exported(*inputs, *masks), module(*inputs, *masks))


def test_non_contiguous_inputs(AdditiveAttention, rng):
    module = built(AdditiveAttention, rng, 4, 3, 5)
    queries, keys, values = (torch.randn(2, d, s).double() for s, d in ((2, 4), (5, 3), (5, 6)))
    contiguous = [x.mT.contiguous() for x in (queries, keys, values)]
    torch.testing.assert_close(module(queries.mT, keys.mT, values.mT), module(*contiguous))


@pytest.mark.gpu
def test_the_module_runs_on_cuda(AdditiveAttention):
    module = AdditiveAttention(4, 3, 5).eval()
    inputs = [torch.randn(2, s, d) for s, d in ((2, 4), (5, 3), (5, 6))]
    expected = module(*inputs, torch.tensor([0, 3]))
    on_device = module.cuda()(*(x.cuda() for x in inputs), torch.tensor([0, 3]).cuda())
    torch.testing.assert_close(on_device.cpu(), expected)


def test_the_module_trains(AdditiveAttention, generator):
    torch.manual_seed(0)
    module = AdditiveAttention(2, 1, 8)
    keys = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]).expand(16, 5)[..., None]
    values = torch.randn(16, 5, 3, generator=generator)
    queries = torch.cat([keys[:, :4], torch.ones(16, 4, 1)], dim=-1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    losses = []
    for _ in range(150):
        loss = nn.functional.mse_loss(module(queries, keys, values), values[:, :4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 < 0.5 < losses[0]


QUERIES, KEYS, VALUES = torch.zeros(2, 3, 4), torch.zeros(2, 5, 6), torch.zeros(2, 5, 7)
W_Q, W_K, W_V = torch.zeros(8, 4), torch.zeros(8, 6), torch.zeros(8)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda _: additive_scores(QUERIES[0], KEYS, W_Q, W_K, W_V), ValueError, r"`queries` must"),
        (
            lambda _: additive_scores(QUERIES, KEYS[:1], W_Q, W_K, W_V),
            ValueError,
            r"`keys` must have shape .*; got \(1, 5, 6\)",
        ),
        (
            lambda _: additive_scores(QUERIES, KEYS, W_K, W_K, W_V),
            ValueError,
            r"`w_q` must have shape \(num_hiddens, query_size\); got \(8, 6\)",
        ),
        (
            lambda _: additive_scores(QUERIES, KEYS, W_Q, W_K[:7], W_V),
            ValueError,
            r"`w_k` must have shape .*; got \(7, 6\)",
        ),
        (lambda _: additive_scores(QUERIES, KEYS, W_Q, W_K, W_V[None]), ValueError, r"`w_v` must"),
        (lambda _: additive_scores([[1.0]], KEYS, W_Q, W_K, W_V), TypeError, r"got list"),
        (
            lambda kind: kind(4, 6, 8)(QUERIES, KEYS, VALUES[:, :4]),
            ValueError,
            r"`values` must have shape",
        ),
        (
            lambda kind: kind(4, 6, 8)(QUERIES, KEYS, VALUES[0]),
            ValueError,
            r"`values` must have shape",
        ),
        (
            lambda _: taught.AdditiveAttention(4, 6, 8)(KEYS, QUERIES, VALUES[:, :3]),
            ValueError,
            r"`w_q` must have shape",
        ),
        (
            lambda kind: kind(4, 6, 8)(QUERIES, KEYS, VALUES, mask=torch.ones(3, 5)),
            TypeError,
            r"`mask` must be a bool tensor",
        ),
        (
            lambda kind: kind(4, 6, 8)(QUERIES, KEYS, VALUES, mask=torch.ones(5, 3).bool()),
            ValueError,
            r"broadcastable .* = \(2, 3, 5\); got \(5, 3\)",
        ),
        (
            lambda kind: kind(4, 6, 8)(QUERIES, KEYS, VALUES, torch.tensor([1, 6])),
            ValueError,
            r"0..num_keys = 0..5; got 6",
        ),
        (
            lambda kind: kind(4, 6, 8)(QUERIES, KEYS, VALUES, torch.tensor([1, 2, 3])),
            ValueError,
            r"\(batch,\) = \(2,\)",
        ),
        (lambda kind: kind(4, 6, 8)(QUERIES, KEYS), TypeError, r"missing .*'values'"),
        (lambda kind: kind(4, 6, 8, 1.5), ValueError, r"between 0 and 1"),
    ],
)
def test_bad_input_is_refused_with_rule_and_numbers(AdditiveAttention, call, error, match):
    with pytest.raises(error, match=match):
        call(AdditiveAttention)
