"""Lesson 10, the half that writes: its loss, its texts, its cache and its positions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from course_lib import causal_mask, scaled_dot_product_attention
from course_lib.attention import (
    KVCache,
    generate,
    next_token_loss,
    rotary_embedding,
)
from course_lib.checks.observe.lessons.language_model import TableModel
from course_lib.reference import language_model as oracle

SIZES = st.integers(1, 4)


def normal(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def tokens_of(seed, vocabulary, *shape):
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- next_token_loss
@given(SIZES, st.integers(2, 5), SIZES)
def test_the_loss_agrees_with_the_oracle(batch, n, vocabulary):
    logits, tokens = normal(0, batch, n, vocabulary), tokens_of(1, vocabulary, batch, n)
    expected = oracle.next_token_loss(logits.numpy(), tokens.numpy()).outputs
    for kind in (torch.int64, torch.int32):
        assert next_token_loss(logits, tokens.to(kind)).item() == pytest.approx(expected.item())


def test_alike_logits_cost_the_logarithm_of_the_vocabulary():
    tokens = tokens_of(0, 7, 2, 5)
    assert next_token_loss(torch.zeros(2, 5, 7), tokens).item() == pytest.approx(math.log(7))


def test_neither_the_last_logits_nor_the_first_token_count():
    logits, tokens = normal(0, 2, 4, 5).requires_grad_(), tokens_of(1, 5, 2, 4)
    loss = next_token_loss(logits, tokens)
    loss.backward()
    assert not logits.grad[:, -1].any() and logits.grad[:, :-1].all()
    tokens[:, 0] = (tokens[:, 0] + 1) % 5
    assert next_token_loss(logits, tokens) == loss


def test_the_loss_says_what_does_not_fit():
    with pytest.raises(ValueError, match="`tokens` must have shape"):
        next_token_loss(torch.zeros(2, 4, 5), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="`tokens` must be an integer"):
        next_token_loss(torch.zeros(2, 4, 5), torch.zeros(2, 4))


# ---------------------------------------------------------------- generate
def tables_of(seed, context_length, vocabulary):
    return normal(seed, context_length, vocabulary, vocabulary).numpy() * 1.5


def written(tables, training=False):
    return TableModel(tables, "cpu", torch.float64).train(training)


def next_logits(tables):
    return lambda text: sum(tables[k][token] for k, token in enumerate(reversed(text)))


@given(SIZES, SIZES, st.integers(0, 6), SIZES, st.booleans())
def test_the_likeliest_text_agrees_with_the_oracle(batch, n, num_tokens, context, training):
    tables, prompt = tables_of(0, context, 5), tokens_of(1, 5, batch, n)
    model = written(tables, training)
    found = generate(model, prompt, num_tokens, temperature=0.0)
    expected = oracle.generate(next_logits(tables), context, prompt.numpy(), num_tokens).outputs
    assert found.tolist() == expected.tolist()
    assert model.training == training and not model.had_gradients and torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("temperature", "top_k"), [(1.0, None), (0.5, None), (3.0, 2), (1.0, 9), (1e-4, None)]
)
def test_tokens_come_as_often_as_the_oracle_says(temperature, top_k):
    tables = tables_of(0, 1, 5)
    prompt, generator = torch.full((20_000, 1), 3), torch.Generator().manual_seed(0)
    text = generate(written(tables), prompt, 1, temperature, top_k, generator)
    found = torch.bincount(text[:, 1], minlength=5).numpy() / len(text)
    expected = oracle.next_probabilities(tables[0][3], temperature, top_k)
    assert np.abs(found - expected).max() < 0.02  # five deviations of 0.0035 and more
    assert not found[expected == 0].any()


def test_a_text_depends_on_the_generator_alone():
    model, prompt = written(tables_of(0, 3, 5)), tokens_of(1, 5, 4, 2)
    state = torch.get_rng_state()
    one, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    texts = [generate(model, prompt, 8, generator=g) for g in (one, other, one)]
    assert torch.equal(texts[0], texts[1]) and not torch.equal(texts[0], texts[2])
    assert torch.equal(state, torch.get_rng_state())


# ---------------------------------------------------------------- KVCache
@given(SIZES, SIZES, SIZES, SIZES, st.lists(SIZES, min_size=1, max_size=5))
def test_steps_with_a_cache_give_what_a_causal_pass_gives(batch, heads, d, v, parts):
    n = sum(parts)
    queries, keys, values = (normal(i, batch, heads, n, size) for i, size in enumerate((d, d, v)))
    whole, _ = scaled_dot_product_attention(queries, keys, values, mask=causal_mask(n))
    cache, ends = KVCache(), np.cumsum(parts).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        cache.append(keys[:, :, start:end], values[:, :, start:end])
        found = cache.attend(queries[:, :, end - 1 : end])
        torch.testing.assert_close(found, whole[:, :, end - 1 : end])
    steps = oracle.kv_cache(
        keys.numpy(), values.numpy(), queries[:, :, [e - 1 for e in ends]].numpy(), tuple(parts)
    ).outputs
    np.testing.assert_allclose(steps, whole[:, :, [e - 1 for e in ends]], atol=1e-12)


def test_a_cache_says_what_does_not_fit():
    with pytest.raises(ValueError, match="`values` must have shape"):
        KVCache().append(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 1, 5))
    with pytest.raises(ValueError, match="`query` must have shape"):
        KVCache().attend(torch.zeros(2, 3, 4, 5))


# ---------------------------------------------------------------- rotary_embedding
@given(st.lists(SIZES, max_size=2), st.integers(1, 6), SIZES, st.integers(0, 40))
def test_the_turn_agrees_with_the_oracle(leading, n, pairs, offset):
    x = normal(0, *leading, n, 2 * pairs)
    found = rotary_embedding(x, offset)
    np.testing.assert_allclose(
        found, oracle.rotary_embedding(x.numpy(), offset).outputs, atol=1e-12
    )
    torch.testing.assert_close(found[..., 2:, :], rotary_embedding(x[..., 2:, :], offset + 2))
    torch.testing.assert_close(found.norm(dim=-1), x.norm(dim=-1))


def test_scores_depend_on_the_distance_alone():
    query, key = normal(0, 8), normal(1, 8)
    turned = [rotary_embedding(x.expand(12, 8)) for x in (query, key)]
    scores = turned[0] @ turned[1].T
    for distance in range(-11, 12):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(scores[0, 0], scores[0, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_turn_keeps_the_dtype(dtype):
    x = normal(0, 3, 5, 6).to(dtype)
    found = rotary_embedding(x, 3)
    assert found.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps  # four roundings of numbers below 4
    exact = rotary_embedding(x.double(), 3)
    torch.testing.assert_close(found.double(), exact, atol=tolerance, rtol=0)


def test_an_odd_number_of_features_is_refused():
    with pytest.raises(ValueError, match="`x` must have an even number of features; got 5"):
        rotary_embedding(torch.zeros(2, 5))


# ---------------------------------------------------------------- the model of the check
def test_the_model_of_the_check_sees_all_it_is_given_and_refuses_more():
    tables = tables_of(0, 3, 5)
    model, tokens = written(tables), tokens_of(1, 5, 2, 3)
    logits = model(tokens)
    for b, i in np.ndindex(2, 3):
        expected = next_logits(tables)(tokens[b, : i + 1].tolist())
        np.testing.assert_allclose(logits[b, i].detach(), expected, atol=1e-12)
    assert torch.equal(F.softmax(logits, -1).sum(-1).round(decimals=9), torch.ones(2, 3))
    with pytest.raises(ValueError, match="1 to context_length = 3 positions; got 4"):
        model(tokens_of(1, 5, 2, 4))
    with pytest.raises(ValueError, match=r"must have shape \(batch, num_positions\)"):
        model(tokens[0])
