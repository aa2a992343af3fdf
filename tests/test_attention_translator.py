"""Lesson 09's solutions against the oracle and torch, and on bad input."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from course_lib.attention import (
    effect_of_masking,
    greedy_decode,
    masked_cross_entropy,
    pad_batch,
    shift_right,
)
from course_lib.checks.observe.call import materialise
from course_lib.checks.observe.probe import Built
from course_lib.exercises.translator._models import scripted
from course_lib.reference import translator as oracle

SEEDS = st.integers(0, 2**32 - 1)
INTEGERS = st.sampled_from([torch.int32, torch.int64])


@st.composite
def batches(draw):
    """Sequences of ids, pads among them, and the pad."""
    rng = np.random.default_rng(draw(SEEDS))
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    dtype = draw(INTEGERS)
    return [torch.from_numpy(rng.integers(0, 4, n)).to(dtype) for n in lengths], rng.integers(4)


@given(batches())
def test_a_batch_agrees_with_the_oracle_and_keeps_its_dtype(batch):
    sequences, pad = batch
    before = [sequence.clone() for sequence in sequences]
    tokens, valid_lens = pad_batch(sequences, int(pad))
    expected = oracle.pad_batch([sequence.numpy() for sequence in sequences], int(pad)).outputs
    assert np.array_equal(tokens.numpy(), expected[0])
    assert np.array_equal(valid_lens.numpy(), expected[1])
    assert tokens.dtype == sequences[0].dtype
    assert all(torch.equal(a, b) for a, b in zip(sequences, before, strict=True))


@given(SEEDS, st.integers(1, 4), st.integers(0, 5), INTEGERS)
def test_shifted_targets_agree_with_the_oracle(seed, batch, num_words, dtype):
    targets = torch.from_numpy(np.random.default_rng(seed).integers(0, 9, (batch, num_words)))
    targets = targets.to(dtype)
    before = targets.clone()
    inputs = shift_right(targets, 11)
    assert np.array_equal(inputs.numpy(), oracle.shift_right(targets.numpy(), 11).outputs)
    assert inputs.dtype == dtype
    assert torch.equal(targets, before)


@st.composite
def losses(draw):
    """Logits, targets and lengths."""
    rng = np.random.default_rng(draw(SEEDS))
    batch, num_positions, vocabulary = draw(
        st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(1, 5))
    )
    shape = batch, num_positions
    logits = torch.from_numpy(
        rng.normal(0, draw(st.sampled_from([1.0, 1e3])), (*shape, vocabulary))
    )
    targets = torch.from_numpy(rng.integers(0, vocabulary, shape)).to(draw(INTEGERS))
    return logits, targets, torch.from_numpy(rng.integers(0, num_positions + 1, batch))


@given(losses())
def test_the_loss_agrees_with_the_oracle_and_with_torch(problem):
    logits, targets, valid_lens = problem
    loss = masked_cross_entropy(*problem)
    expected = oracle.masked_cross_entropy(*(given.numpy() for given in problem)).outputs
    assert np.allclose(loss.numpy(), expected, atol=1e-10)
    real = torch.arange(targets.shape[1]) < valid_lens[:, None]
    if real.any():
        theirs = F.cross_entropy(logits[real], targets[real].long())
        assert torch.allclose(loss, theirs, atol=1e-10)


def test_the_gradient_of_the_loss_is_right_and_zero_where_nothing_is_real():
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[0, 3, 1], [2, 2, 0]])
    lens = torch.tensor([2, 0])
    assert torch.autograd.gradcheck(lambda x: masked_cross_entropy(x, targets, lens), [logits])
    masked_cross_entropy(logits, targets, 0 * lens).backward()
    assert logits.grad is not None and not logits.grad.any()


def made_of(built, training=False):
    return materialise(Built(built.name, {**built.options, "training": training}))


@given(SEEDS, st.integers(0, 6), st.booleans())
def test_a_translation_agrees_with_the_oracle(seed, max_len, training):
    rng = np.random.default_rng(seed)
    built = scripted(rng, says_pads=bool(rng.integers(2)))
    source, lens = rng.integers(0, 6, (3, 4)), rng.integers(0, 5, 3)
    start, end, pad = (built.options[name] for name in ("start", "end", "pad"))
    model = made_of(built, training)
    words = greedy_decode(
        model, torch.from_numpy(source), torch.from_numpy(lens), start, end, max_len
    )
    scripted_model = oracle.translator(built.name, built.options)
    expected = oracle.greedy_decode(scripted_model, pad, source, lens, start, end, max_len).outputs
    assert np.array_equal(words.numpy(), expected)
    assert not model.graph_built
    assert {module.training for module in model.modules()} == {training}


@given(SEEDS, st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_the_effect_of_masking_agrees_with_the_oracle(seed, num_positions, num_words, training):
    rng = np.random.default_rng(seed)
    built = scripted(rng)
    source, length = rng.integers(0, 6, (1, num_positions)), rng.integers(0, num_positions + 1, 1)
    target, position = rng.integers(0, 9, (1, num_words)), int(rng.integers(num_positions))
    model = made_of(built, training)
    arrays = source, length, target
    changes = effect_of_masking(model, *map(torch.from_numpy, arrays), position)
    scripted_model = oracle.translator(built.name, built.options)
    expected = oracle.effect_of_masking(
        scripted_model, built.options["start"], *arrays, position
    ).outputs
    assert np.allclose(changes.numpy(), expected, atol=1e-10)
    assert not model.graph_built
    assert {module.training for module in model.modules()} == {training}


IDS = torch.tensor([[1, 2], [3, 0]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: shift_right(IDS.double(), 1), TypeError, "`targets` must be an integer tensor"),
        (
            lambda: masked_cross_entropy(torch.zeros(2, 3, 4), IDS, torch.tensor([1, 2])),
            ValueError,
            r"`targets` must have shape \(batch, num_positions\); got \(2, 2\)",
        ),
        (
            lambda: masked_cross_entropy(torch.zeros(2, 2, 4), IDS, torch.tensor([1, 3])),
            ValueError,
            r"`valid_lens` must lie in 0\.\.max_len = 0\.\.2; got 3",
        ),
    ],
)
def test_bad_input_is_refused_by_its_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
