import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib import attention as taught
from course_lib import causal_mask, fused, length_mask
from course_lib.attention import (
    MultiHeadAttention,
    is_causal,
    is_permutation_equivariant,
    load_into_torch,
    merge_heads,
    positional_encoding,
    shift_matrix,
    split_heads,
)
from course_lib.checks import grade
from course_lib.checks.observe.lessons.sequence_functions import SEQUENCE_FUNCTIONS
from course_lib.exercises.variants import variants
from course_lib.reference import multi_head as oracle

ROOT = Path(__file__).parents[1]

SIZES = st.integers(1, 4)
both = pytest.mark.parametrize("package", [taught, fused], ids=["taught", "fused"])


def normal(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def module(embed_dim, num_heads, package=taught, *, dropout=0.0, bias=False, seed=0, dtype=None):
    """A module in eval mode whose weights depend on `seed` alone."""
    made = package.MultiHeadAttention(embed_dim, num_heads, dropout, bias)
    made = made.to(dtype or torch.float64).eval()
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.copy_(normal(100 * seed + i, *parameter.shape))
    return made


def as_in(package, made):
    """The same module of `package`, with the same weights."""
    bias = made.W_o.bias is not None
    other = package.MultiHeadAttention(made.embed_dim, made.num_heads, made.dropout.p, bias)
    other.load_state_dict(made.state_dict())
    return other.to(made.W_o.weight.dtype).train(made.training)


def state_of(made):
    return {name: value.detach().numpy() for name, value in made.named_parameters()}


@st.composite
def problems(draw):
    """A module, its inputs and perhaps lengths and a mask of any of the shapes allowed."""
    batch, n, m, heads, head_dim = (draw(SIZES) for _ in range(5))
    size = heads * head_dim
    made = module(size, heads, bias=draw(st.booleans()), seed=draw(st.integers(0, 9)))
    inputs = [normal(i, batch, length, size) for i, length in enumerate((n, m, m))]
    lens_shape = draw(st.sampled_from([None, (batch,), (batch, n)]))
    mask_shape = draw(st.sampled_from([None, (n, m), (batch, n, m), (batch, heads, n, m)]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    lens = None if lens_shape is None else torch.from_numpy(rng.integers(0, m + 1, lens_shape))
    mask = None if mask_shape is None else torch.from_numpy(rng.random(mask_shape) < 0.6)
    return made, inputs, lens, mask


@given(SIZES, SIZES, SIZES, SIZES)
def test_split_agrees_with_the_oracle_and_merge_undoes_it(batch, n, heads, head_dim):
    x = normal(0, batch, n, heads * head_dim)
    found = split_heads(x, heads)
    assert np.array_equal(found.numpy(), oracle.split_heads(x.numpy(), heads).outputs)
    assert np.array_equal(merge_heads(found).numpy(), oracle.merge_heads(found.numpy()).outputs)
    assert torch.equal(merge_heads(found), x)


def test_split_and_merge_take_strided_inputs_and_leave_them_alone():
    x = normal(0, 2, 3, 8)[..., ::2]
    before = x.clone()
    assert torch.equal(merge_heads(split_heads(x, 2)), before)
    assert torch.equal(x, before)


@both
@given(problems())
def test_attention_agrees_with_the_oracle(package, problem):
    made, inputs, lens, mask = problem
    made = as_in(package, made)
    before = [value.clone() for value in inputs]
    outputs = made(*inputs, lens, mask)
    arrays = [value.numpy() for value in inputs]
    expected = oracle.multi_head_attention(
        {"num_heads": made.num_heads},
        state_of(made),
        *arrays,
        None if lens is None else lens.numpy(),
        None if mask is None else mask.numpy(),
    )
    assert np.allclose(outputs.detach().numpy(), expected.outputs, atol=1e-10)
    weights = expected.attributes["attention_weights"]
    if package is taught:
        assert np.allclose(made.attention_weights.numpy(), weights, atol=1e-10)
        assert not made.attention_weights.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


@both
@given(problems())
def test_attention_agrees_with_torch_after_loading(package, problem):
    made, inputs, lens, mask = problem
    made = as_in(package, made)
    batch, n, m = len(inputs[0]), inputs[0].shape[1], inputs[1].shape[1]
    allowed = torch.ones(batch, made.num_heads, n, m, dtype=torch.bool)
    if lens is not None:
        real = length_mask(lens, m)
        allowed &= (real if lens.dim() == 2 else real[:, None])[:, None]
    if mask is not None:
        allowed &= mask[:, None] if mask.dim() == 3 else mask
    reference = nn.MultiheadAttention(
        made.embed_dim, made.num_heads, bias=True, batch_first=True, dtype=torch.float64
    ).eval()
    load_into_torch(made, reference)
    theirs, weights = reference(
        *inputs, attn_mask=~allowed.flatten(0, 1), average_attn_weights=False
    )
    filled = allowed.any(-1)  # torch answers nan for a query without keys
    outputs = made(*inputs, lens, mask)
    if package is taught:
        assert torch.allclose(made.attention_weights[filled], weights[filled], atol=1e-10)
    everywhere = filled.all(1)
    assert torch.allclose(outputs[everywhere], theirs[everywhere], atol=1e-10)


@both
def test_gradients_are_right_and_finite_where_an_item_has_no_key(package):
    made = module(4, 2, package)
    inputs = [normal(i, 2, size, 4).requires_grad_() for i, size in enumerate((2, 3, 3))]
    lens = torch.tensor([0, 2])
    assert torch.autograd.gradcheck(lambda *x: made(*x, lens), inputs, fast_mode=True)
    made(*inputs, lens).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in made.parameters())
    assert not made(*inputs, lens)[0].any()


@both
def test_a_masked_key_is_as_if_it_were_deleted(package):
    made, q = module(6, 3, package), normal(0, 2, 4, 6)
    k, v = normal(1, 2, 5, 6), normal(2, 2, 5, 6)
    keep = torch.tensor([True, False, True, True, False])
    masked = made(q, k, v, mask=keep.expand(4, 5))
    assert torch.allclose(masked, made(q, k[:, keep], v[:, keep]))
    k[:, ~keep], v[:, ~keep] = 1e6, -1e6
    assert torch.allclose(masked, made(q, k, v, mask=keep.expand(4, 5)))


def test_each_head_obeys_its_own_mask():
    made, x = module(6, 3), normal(0, 2, 4, 6)
    mask = torch.stack([causal_mask(4), causal_mask(4).mT, torch.eye(4).bool()])
    made(x, x, x, mask=mask.expand(2, 3, 4, 4))
    assert not made.attention_weights[:, ~mask].any()
    assert torch.allclose(made.attention_weights.sum(-1), torch.ones(2, 3, 4).double())


@both
def test_dropout_acts_in_train_mode_only_and_is_right_on_average(package):
    made = module(4, 2, package, dropout=0.5)
    x = normal(0, 1, 3, 4)
    quiet = made(x, x, x)
    assert torch.equal(quiet, made(x, x, x))
    made.train()
    torch.manual_seed(0)
    many = x.expand(4000, -1, -1)
    noisy = made(many, many, many)
    assert torch.allclose(noisy.mean(0), quiet[0], atol=0.25)
    assert noisy.std(0).min() > 0.1
    if package is taught:
        assert torch.allclose(made.attention_weights.sum(-1), torch.ones(1, 2, 3).double())


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_small_dtypes_are_kept(package, dtype):
    made, x = module(6, 2, package, dtype=dtype), normal(0, 2, 3, 6, dtype=dtype)
    outputs = made(x, x, x, torch.tensor([0, 2]), causal_mask(3))
    assert outputs.dtype == dtype
    assert outputs.isfinite().all()
    heads = split_heads(x, 2)
    assert heads.dtype == merge_heads(heads).dtype == dtype


@pytest.mark.filterwarnings("ignore:The tensor attribute self.attention_weights was assigned")
@pytest.mark.slow
def test_module_compiles_as_one_graph_and_exports(plain_import):
    lesson = plain_import(taught.__name__)
    made, x = lesson.MultiHeadAttention(6, 2).double().eval(), normal(0, 2, 3, 6)
    masks = torch.tensor([1, 3]), causal_mask(3)
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(made, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(x, x, x, *masks), made(x, x, x, *masks))
    exported = torch.export.export(made, (x, x, x, *masks)).module()
    torch.testing.assert_close(exported(x, x, x, *masks), made(x, x, x, *masks))


@both
def test_state_dict_holds_four_layers_and_goes_round(package):
    made, x = module(6, 2, package), normal(0, 2, 3, 6)
    made(x, x, x)
    state = made.state_dict()
    assert sorted(state) == [f"W_{part}.weight" for part in "koqv"]
    other = MultiHeadAttention(6, 2).double().eval()
    other.load_state_dict(state)
    torch.testing.assert_close(other(x, x, x), made(x, x, x))


@both
@pytest.mark.parametrize("own_bias", [True, False])
def test_loading_copies_and_leaves_the_source_alone(package, own_bias):
    made, x = module(6, 2, package, bias=own_bias), normal(0, 2, 3, 6)
    reference = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64).eval()
    nn.init.normal_(reference.in_proj_bias)
    nn.init.normal_(reference.out_proj.bias)
    before = made(x, x, x)
    load_into_torch(made, reference)
    assert torch.equal(made(x, x, x), before)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
    assert torch.allclose(reference(x, x, x)[0], before)
    assert all(parameter.requires_grad for parameter in reference.parameters())


@pytest.mark.parametrize("kind", sorted(SEQUENCE_FUNCTIONS))
@pytest.mark.parametrize("seed", [0, 1])
def test_both_tests_of_functions_agree_with_the_oracle(kind, seed):
    x = 1.3 * normal(seed, 2, 4, 3)
    fn, before = SEQUENCE_FUNCTIONS[kind], x.clone()
    state = torch.get_rng_state()
    assert is_permutation_equivariant(fn, x) == oracle.is_permutation_equivariant(kind, x.numpy())
    assert is_causal(fn, x) == oracle.is_causal(kind, x.numpy())
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["is_causal", "is_permutation_equivariant"])
def test_a_report_counts_the_hidden_functions_that_a_test_reveals_and_accuses(name):
    def counts(answer):
        said = grade(name, answer, seed="tally").tally
        return [int(number) for number in re.findall(r"\d+", said)]

    written = next(one.answer for one in variants(ROOT, name) if one.is_right)
    wrong, revealed, right, accused = counts(written)
    assert revealed == wrong >= 15 and accused == 0 and right >= 15
    assert counts(lambda *args: False) == [wrong, wrong, right, right]
    assert counts(lambda *args: True) == [wrong, 0, right, 0]


@pytest.mark.parametrize("kind", sorted(oracle.SEQUENCE_FUNCTIONS))
def test_the_oracle_swaps_pairs_and_decides_as_all_orders_would(kind):
    x = 1.3 * normal(2, 2, 4, 3).numpy()
    outputs = oracle.apply_to_batch(kind, x)
    moved = (
        np.allclose(oracle.apply_to_batch(kind, x[:, list(order)]), outputs[:, list(order)])
        for order in itertools.permutations(range(4))
    )
    assert oracle.is_permutation_equivariant(kind, x) == all(moved)


@both
def test_attention_is_equivariant_until_a_mask_or_positions_come_in(package):
    made, x = module(6, 2, package), normal(0, 2, 5, 6)
    assert is_permutation_equivariant(lambda x: made(x, x, x), x)
    assert not is_causal(lambda x: made(x, x, x), x)
    masked = lambda x: made(x, x, x, mask=causal_mask(5))  # noqa: E731
    assert not is_permutation_equivariant(masked, x)
    assert is_causal(masked, x)
    placed = x + positional_encoding(5, 6)
    assert not is_permutation_equivariant(lambda y: made(*[y + placed - x] * 3), x)


@given(st.integers(0, 40), st.integers(1, 12))
def test_encoding_agrees_with_the_oracle(num_positions, embed_dim):
    table = positional_encoding(num_positions, embed_dim)
    assert table.dtype == torch.float32
    expected = oracle.positional_encoding(num_positions, embed_dim).outputs
    assert np.allclose(table.numpy(), expected, atol=1e-6)


def test_products_of_encodings_depend_on_the_distance_only():
    table = positional_encoding(30, 8).double()
    products = table @ table.T
    for distance in range(30):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5)


@given(st.integers(-30, 30), st.integers(1, 6))
def test_a_shift_takes_every_position_to_the_one_further_on(offset, pairs):
    matrix = shift_matrix(offset, 2 * pairs)
    assert matrix.dtype == torch.float32
    assert np.allclose(matrix.numpy(), oracle.shift_matrix(offset, 2 * pairs).outputs, atol=1e-6)
    table = oracle.positional_encoding(60, 2 * pairs).outputs
    start = max(0, -offset)
    assert np.allclose(
        table[start : start + 30] @ matrix.numpy().T, table[start + offset :][:30], atol=1e-5
    )


def test_a_shift_as_a_projection_of_queries_scores_one_position_highest():
    """What lesson 06 argues: the dot product alone is even, a rotated query is not."""
    table = positional_encoding(50, 32).double()
    even = table @ table.T
    assert torch.allclose(even[20, :41], even[20, :41].flip(0), atol=1e-5)
    back = (table @ shift_matrix(-3, 32).double().T) @ table.T
    assert back.argmax(dim=1)[3:].tolist() == list(range(47))


X, MASK = torch.zeros(2, 3, 6), torch.ones(3, 3, dtype=torch.bool)
BAD_CALLS = {
    "rank": ((X[0], X, X), {}, ValueError, "`queries` must have shape"),
    "values": ((X, X, X[:, :2]), {}, ValueError, "`values` must have shape"),
    "batch": ((X, X[:1], X[:1]), {}, ValueError, "`keys` must have shape"),
    "size": ((X[..., :5], X, X), {}, ValueError, r"embed_dim\); got \(2, 3, 6\)"),
    "array": ((X.numpy(), X, X), {}, TypeError, "`queries` must be a float tensor"),
    "whole": ((X.long(), X, X), {}, TypeError, "`queries` must be a float tensor"),
    "missing": ((), {"keys": X, "values": X}, TypeError, "missing .*'queries'"),
    "float mask": ((X, X, X), {"mask": MASK.float()}, TypeError, "`mask` must be a bool"),
    "mask": ((X, X, X), {"mask": MASK[:2]}, ValueError, "`mask` must be broadcastable"),
    "head mask": (
        (X, X, X),
        {"mask": MASK.expand(2, 4, 3, 3)},
        ValueError,
        r"= \(2, 2, 3, 3\); got \(2, 4, 3, 3\)",
    ),
    "lengths": ((X, X, X), {"valid_lens": torch.tensor([1, 4])}, ValueError, "0..3; got 4"),
    "float lengths": ((X, X, X), {"valid_lens": torch.ones(2)}, TypeError, "integer tensor"),
}


@both
@pytest.mark.parametrize("name", sorted(BAD_CALLS))
def test_attention_says_what_is_wrong_with_its_arguments(package, name):
    args, kwargs, error, words = BAD_CALLS[name]
    with pytest.raises(error, match=words):
        package.MultiHeadAttention(6, 2)(*args, **kwargs)


@both
@pytest.mark.parametrize("num_heads", [4, 0, 7])
def test_features_that_cannot_be_shared_out_are_refused(package, num_heads):
    words = rf"`num_heads` must be >= 1 and divide embed_dim = 6; got {num_heads}\."
    with pytest.raises(ValueError, match=words):
        split_heads(X, num_heads)
    with pytest.raises(ValueError, match=words):
        package.MultiHeadAttention(6, num_heads)


def test_the_functions_refuse_what_they_cannot_use():
    with pytest.raises(ValueError, match="`x` must have shape"):
        split_heads(X[0], 2)
    with pytest.raises(ValueError, match="`x` must have shape"):
        merge_heads(X)
    with pytest.raises(ValueError, match="`x` must have shape"):
        is_causal(torch.tanh, X[0])
    with pytest.raises(TypeError, match=r"`x` must be a float tensor"):
        is_permutation_equivariant(torch.tanh, X.numpy())
    with pytest.raises(ValueError, match="`embed_dim` must be even and >= 2; got 5"):
        shift_matrix(1, 5)


BAD_LOADS = {
    "no mha": (nn.Linear(2, 2), nn.MultiheadAttention(6, 2), TypeError, "W_q is not"),
    "no torch": (MultiHeadAttention(6, 2), nn.Linear(2, 2), TypeError, "got Linear"),
    "size": (MultiHeadAttention(6, 2), nn.MultiheadAttention(8, 2), ValueError, "= 6; got 8"),
    "heads": (MultiHeadAttention(6, 2), nn.MultiheadAttention(6, 3), ValueError, "= 2; got 3"),
    "kdim": (MultiHeadAttention(6, 2), nn.MultiheadAttention(6, 2, kdim=4), ValueError, "kdim"),
    "bias": (
        MultiHeadAttention(6, 2, bias=True),
        nn.MultiheadAttention(6, 2, bias=False),
        ValueError,
        "bias=False",
    ),
    "device": (
        MultiHeadAttention(6, 2),
        nn.MultiheadAttention(6, 2, device="meta"),
        ValueError,
        "same device",
    ),
}


@pytest.mark.parametrize("name", sorted(BAD_LOADS))
def test_loading_says_what_does_not_fit(name):
    mha, reference, error, words = BAD_LOADS[name]
    with pytest.raises(error, match=words):
        load_into_torch(mha, reference)


@both
def test_a_head_is_attention_on_its_block(package):
    made = module(6, 3, package)
    q, k, v = (normal(i, 1, 4, 6) for i in range(3))
    with torch.no_grad():
        made.W_v.weight.copy_(torch.eye(6))
        made.W_o.weight.copy_(torch.eye(6))
    outputs = made(q, k, v)
    for head in range(3):
        block = slice(2 * head, 2 * head + 2)
        scores = made.W_q(q)[..., block] @ made.W_k(k)[..., block].mT / math.sqrt(2)
        assert torch.allclose(outputs[..., block], torch.softmax(scores, -1) @ v[..., block])


@both
def test_under_autocast_the_inputs_may_have_another_dtype_than_the_weights(package):
    module = package.MultiHeadAttention(6, 2)
    x = torch.randn(2, 3, 6, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(x, x, x).isfinite().all()
