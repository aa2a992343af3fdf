import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib import MultiHeadAttention, causal_mask, scaled_dot_product_attention
from course_lib.attention import (
    CausalSelfAttention,
    LanguageModel,
    ablate_head,
    grouped_query_attention,
    induction_score,
    positional_encoding,
)
from course_lib.reference import language_model as oracle

SIZES = st.integers(1, 4)


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(SIZES, st.integers(1, 7), st.sampled_from([None, 1, 2, 3, 5, 9]))
def test_the_score_agrees_with_the_oracle(num_heads, n, period):
    weights = normal(0, num_heads, n, n).softmax(-1)
    found = induction_score(weights, period)
    np.testing.assert_allclose(
        found, oracle.induction_score(weights.numpy(), period).outputs, atol=1e-12
    )


def test_a_head_that_always_looks_there_has_the_score_one():
    n, period = 9, 3
    follower = torch.eye(n)[[0, 1, 2, *range(1, n - period + 1)]]
    both = torch.stack([torch.eye(n), follower])
    assert induction_score(both, period).tolist() == [0.0, 1.0]


def test_the_score_refuses_a_map_that_is_not_square():
    with pytest.raises(ValueError, match="must have shape"):
        induction_score(torch.ones(2, 3, 4))


def test_a_language_model_is_causal_and_refuses_more_than_its_context():
    torch.manual_seed(0)
    parts = [CausalSelfAttention(16, 2) for _ in range(2)]
    model = LanguageModel(9, parts, positional_encoding(12, 16), hidden_dim=20)
    tokens = torch.randint(9, (2, 12))
    changed = torch.cat([tokens[:, :7], (tokens[:, 7:] + 1) % 9], dim=1)
    torch.testing.assert_close(model(tokens)[:, :7], model(changed)[:, :7])
    assert model.context_length == 12
    with pytest.raises(ValueError, match="At most 12 tokens; got 13"):
        model(torch.zeros(1, 13).long())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention = MultiHeadAttention(6, 3, bias=True)

    def forward(self, x):
        return x + self.self_attention(x, x, x, mask=causal_mask(x.shape[1]))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def model():
    torch.manual_seed(10)
    return Model().double().eval()


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 2), (1, 1)])
def test_a_head_that_is_off_is_one_whose_values_do_not_count(model, layer, head):
    x, own = normal(1, 2, 5, 6), slice(2 * head, 2 * head + 2)
    with ablate_head(model, layer, head):
        found = model(x)
    with torch.no_grad():
        model.blocks[layer].self_attention.W_o.weight[:, own] = 0.0
    assert torch.allclose(found, model(x)) and found.requires_grad


def test_heads_are_on_again_whatever_happened_inside(model):
    x = normal(1, 2, 5, 6)
    before, state = model(x), {name: p.clone() for name, p in model.named_parameters()}
    with (
        contextlib.suppress(KeyboardInterrupt),
        ablate_head(model, 0, 1),
        ablate_head(model, 1, 1),
    ):
        assert not torch.allclose(model(x), before)
        raise KeyboardInterrupt
    assert torch.equal(model(x), before)
    assert all(torch.equal(p, state[name]) for name, p in model.named_parameters())


@st.composite
def problems(draw):
    batch, n, m, d, v, groups, times = (draw(SIZES) for _ in range(7))
    heads = groups * times
    shapes = (heads, n, d), (groups, m, d), (groups, m, v)
    inputs = [normal(i, batch, *shape) for i, shape in enumerate(shapes)]
    lens_shape = draw(st.sampled_from([None, (batch,), (batch, n)]))
    mask_shape = draw(
        st.sampled_from([None, (n, m), (batch, 1, n, m), (batch, heads, n, m), (heads, 1, m)])
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    lens = None if lens_shape is None else torch.from_numpy(rng.integers(0, m + 1, lens_shape))
    mask = None if mask_shape is None else torch.from_numpy(rng.random(mask_shape) < 0.6)
    return inputs, lens, mask


@given(problems())
def test_grouped_query_attention_agrees_with_the_oracle(problem):
    inputs, lens, mask = problem
    arrays = [None if x is None else x.numpy() for x in (*inputs, lens, mask)]
    expected = oracle.grouped_query_attention(*arrays).outputs
    np.testing.assert_allclose(grouped_query_attention(*inputs, lens, mask), expected, atol=1e-12)


def test_as_many_groups_as_heads_is_attention_in_each_head():
    q, k, v = normal(0, 2, 3, 4, 5), normal(1, 2, 3, 6, 5), normal(2, 2, 3, 6, 7)
    lens = torch.tensor([6, 0])
    expected = scaled_dot_product_attention(q, k, v, lens)[0]
    assert torch.allclose(grouped_query_attention(q, k, v, lens), expected)


@pytest.mark.parametrize(("heads", "groups"), [(5, 2), (2, 4)])
def test_heads_that_cannot_be_shared_out_are_refused(heads, groups):
    q, k = normal(0, 1, heads, 2, 3), normal(1, 1, groups, 4, 3)
    match = f"`num_groups` must divide num_heads = {heads}; got {groups}"
    with pytest.raises(ValueError, match=match):
        grouped_query_attention(q, k, k)


def test_gradients_of_empty_rows_are_zero():
    inputs = [normal(i, 2, heads, 3, 2).requires_grad_() for i, heads in enumerate((4, 2, 2))]
    outputs = grouped_query_attention(*inputs, torch.tensor([0, 2]))
    outputs.sum().backward()
    assert not outputs[0].any() and all(not x.grad[0].any() for x in inputs)
    assert all(x.grad.isfinite().all() for x in inputs)


def test_masks_that_do_not_fit_the_heads_are_refused():
    q, k = normal(0, 2, 4, 3, 5), normal(1, 2, 2, 6, 5)
    with pytest.raises(ValueError, match="`mask` must be broadcastable"):
        grouped_query_attention(q, k, k, mask=torch.ones(2, 3, 6, dtype=torch.bool))
    with pytest.raises(TypeError, match="`mask` must be a bool tensor"):
        grouped_query_attention(q, k, k, mask=torch.ones(3, 6))
