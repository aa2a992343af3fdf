"""What only the fused multi-head attention promises: views, linear memory, and decoding."""

import math

import pytest
import torch
from bounds import assert_rounded, exact_twin, exactly
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.attention import _multi_head as taught
from course_lib.attention._masked_softmax import causal_mask
from course_lib.fused import _attend, _cache, _quick
from course_lib.fused import multi_head as fused

pytestmark = pytest.mark.slow
SIZES = st.integers(1, 6)
B, N, E, H = 2, 520, 12, 3
LONG = {
    "none": (None, None),
    "causal": (None, causal_mask(N)),
    "padded": (torch.tensor([0, 200]), None),
    "padded and causal": (torch.tensor([0, 200]), causal_mask(N)),
    "a mask an item": (None, torch.rand(B, N, N) < 0.7),
    "a mask a head": (torch.tensor([100, 520]), torch.rand(B, H, N, N) < 0.7),
    "lengths a query": (torch.randint(0, N, (B, N)), None),
}


def normal(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def pair(embed_dim=E, num_heads=H, *, bias=True, dropout=0.0, dtype=torch.float64):
    """The taught and the fused module with the same weights."""
    torch.manual_seed(7)
    modules = [p.MultiHeadAttention(embed_dim, num_heads, dropout, bias) for p in (taught, fused)]
    modules[1].load_state_dict(modules[0].state_dict())
    return [module.to(dtype).eval() for module in modules]


def value_and_gradients(module, inputs, grad, *masks, **options):
    leaves = [x.clone().requires_grad_() for x in inputs]
    outputs = module(*leaves, *masks, **options)
    return outputs, *torch.autograd.grad(outputs, [*leaves, *module.parameters()], grad)


def assert_same(modules, inputs, *masks):
    dtype = inputs[0].dtype
    grad = normal(9, *inputs[0].shape, dtype=dtype)
    exact = [exactly(x, dtype) for x in inputs]
    expected = value_and_gradients(
        exact_twin(modules[0], dtype), exact, exactly(grad, dtype), *masks
    )
    for need_weights in (True, False):
        found = value_and_gradients(modules[1], inputs, grad, *masks, need_weights=need_weights)
        assert_rounded(found, expected)


@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.sampled_from([None, "items", "queries"]))
def test_values_and_gradients_are_the_taught_ones(batch, n, m, num_heads, head_dim, lens):
    modules = pair(num_heads * head_dim, num_heads)
    inputs = [normal(i, batch, size, num_heads * head_dim) for i, size in enumerate((n, m, m))]
    shape = {"items": (batch,), "queries": (batch, n)}.get(lens)
    lens = None if shape is None else torch.randint(0, m + 1, shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_attend, "MANY_KEYS", 3)
        for mask in (None, causal_mask(n, m), torch.rand(batch, num_heads, n, m) < 0.6):
            assert_same(modules, inputs, lens, mask)


@pytest.mark.parametrize("case", LONG)
def test_long_sequences_give_the_taught_numbers(case):
    inputs = [normal(i, B, N, E) for i in range(3)]
    assert_same(pair(), inputs, *LONG[case])
    assert_same(pair(dtype=torch.float32), [x.float() for x in inputs], *LONG[case])


def test_heads_are_split_and_merged_without_a_copy():
    module, names = pair()[1], []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__.split(".")[0])
            return func(*args, **(kwargs or {}))

    inputs = [normal(i, B, 130, E) for i in range(3)]
    with Recorder():
        module(*inputs, need_weights=False)
    assert "_scaled_dot_product_flash_attention_for_cpu" in names
    assert not {"clone", "copy_", "_to_copy"} & set(names)
    with Recorder():
        module(*inputs)
    assert "clone" in names  # which a batched product does, and this test would see


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_nothing_as_large_as_the_scores_is_kept_for_backward(case, dropout):
    lens, mask = LONG[case]
    module = pair(dropout=dropout)[1].train()
    inputs = [normal(i, B, N, E).requires_grad_() for i in range(3)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        module(*inputs, lens, mask, need_weights=False)
    masks = 0 if mask is None else mask.numel()
    masks = max(masks, B * N * N) if lens is not None and (dropout or lens.dim() == 2) else masks
    assert 0 < sum(kept) <= masks + 16 * B * N * E < masks + B * H * N * N


def test_without_weights_there_are_none():
    module, x = pair()[1], normal(0, B, 5, E)
    assert module.attention_weights is None
    module(x, x, x)
    assert module.attention_weights.shape == (B, H, 5, 5)
    module(x, x, x, need_weights=False)
    assert module.attention_weights is None


def test_dropout_is_drawn_in_train_mode_without_weights_too():
    module, x = pair(dropout=0.5)[1], normal(0, 1, N, E)
    quiet = module(x, x, x, need_weights=False)
    assert torch.equal(quiet, module(x, x, x, need_weights=False))
    torch.manual_seed(0)
    noisy = [module.train()(x, x, x, need_weights=False) for _ in range(40)]
    assert not torch.equal(noisy[0], noisy[1])
    error = torch.stack(noisy).mean(0) - quiet
    assert error.std() < 2 * noisy[0].sub(quiet).std() / math.sqrt(40)


@pytest.mark.parametrize("case", ["none", "padded and causal", "a mask a head"])
def test_compiles_as_one_graph_without_weights(plain_import, case):
    lesson = plain_import("course_lib.fused.multi_head")
    made = lesson.MultiHeadAttention(E, H).double().eval()
    inputs = [normal(i, B, N, E) for i in range(3)]
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    expected = made(*inputs, *LONG[case])
    found = compiled(*inputs, *LONG[case], need_weights=False)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


# ---------------------------------------------------------------- arguments
def test_what_fitted_once_is_refused_when_something_changed():
    module, x = pair(dtype=torch.float32)[1], normal(0, B, 3, E, dtype=torch.float32)
    lens = torch.tensor([1, 3])
    for _ in range(2):
        module(x, x, x, lens)
    with pytest.raises(ValueError, match=r"0\.\.3; got 4"):
        module(x, x, x, torch.tensor([1, 4]))
    with pytest.raises(TypeError, match="integer tensor"):
        module(x, x, x, lens.float())
    with pytest.raises(ValueError, match="`values` must have shape"):
        module(x, x, x[:, :2], lens)


def test_the_full_checks_run_once_for_each_combination(monkeypatch):
    counted = []

    def counting(function):
        def call(*args, **kwargs):
            counted.append(len(args))
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(_quick, "checked", counting)
    monkeypatch.setattr(_quick, "MOST", 2)

    @_quick.quickly_checked
    def total(keys, valid_lens=None):
        return keys.sum()

    first, second, third = (torch.ones(n, n) for n in (2, 3, 4))
    for keys in (first, second, first, second, -first):
        assert total(keys) == keys.sum()
    assert len(counted) == 2
    total(third)  # one too many: all are forgotten but this one
    total(third)
    total(first)
    assert len(counted) == 4
    for _ in range(2):
        total(first, valid_lens=[1, 2])  # of no kind that could be compared
    assert len(counted) == 6


# ---------------------------------------------------------------- decoding
@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3], [9]])
def test_decoding_gives_what_causal_attention_gives(monkeypatch, chunks):
    monkeypatch.setattr(_cache, "FIRST_ROOM", 2)  # so that it is outgrown twice
    module, x = pair()[1], normal(0, B, 9, E)
    expected = module(x, x, x, mask=causal_mask(9))
    weights, cache, found = module.attention_weights, None, []
    for new in x.split(chunks, dim=1):
        cache = module.remember(new, new, cache)
        mask = causal_mask(new.shape[1], len(cache))
        found.append(module.recall(new, cache, mask=mask, need_weights=True))
    assert len(cache) == 9
    torch.testing.assert_close(torch.cat(found, dim=1), expected)
    torch.testing.assert_close(module.attention_weights, weights[:, :, 9 - chunks[-1] :])
    module.recall(x[:, -1:], cache)
    assert module.attention_weights is None


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("lens", [None, torch.tensor([3, 0]), torch.tensor([[3, 7], [0, 1]])])
def test_what_an_encoder_returned_is_projected_once(lens):
    module, q = pair()[1], normal(0, B, 2, E)
    keys, values = normal(1, B, 7, E), normal(2, B, 7, E)
    mask = torch.rand(B, H, 2, 7) < 0.6
    cache = module.remember(keys, values)
    torch.testing.assert_close(module.recall(q, cache, lens), module(q, keys, values, lens))
    found = module.recall(q, cache, lens, mask)
    torch.testing.assert_close(found, module(q, keys, values, lens, mask))


@pytest.mark.usefixtures("no_grad")
def test_room_grows_by_doubling_and_keeps_what_was_there(monkeypatch):
    monkeypatch.setattr(_cache, "FIRST_ROOM", 2)
    cache, x, places = _cache.KeyValueCache(), normal(0, B, H, 40, 4), set()
    for i in range(40):
        cache.append(x[:, :, i : i + 1], -x[:, :, i : i + 1])
        places.add(cache.keys.data_ptr())
    assert torch.equal(cache.keys, x)
    assert torch.equal(cache.values, -x)
    assert len(places) <= 6  # 2, 4, 8, ..., 64


def test_gradients_are_refused_not_lost():
    module, x = pair()[1], normal(0, B, 3, E)
    with pytest.raises(ValueError, match=r"call `remember` under `torch\.no_grad\(\)`"):
        module.remember(x, x)


@pytest.mark.usefixtures("no_grad")
def test_a_cache_that_does_not_fit_is_named():
    module, x = pair()[1], normal(0, B, 3, E)
    cache = module.remember(x, x)
    with pytest.raises(ValueError, match="must hold at least one position; call `remember` first"):
        module.recall(x, _cache.KeyValueCache())
    with pytest.raises(ValueError, match=r"num_heads, head_dim\) = \(1, 3, 4\); got \(2, 3, 4\)"):
        module.recall(x[:1], cache)
    with pytest.raises(ValueError, match=r"dtype = torch\.float32; got torch\.float64"):
        module.float().remember(x.float(), x.float(), cache)
    assert len(cache) == 3


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize(
    ("masks", "error", "match"),
    [
        ({"mask": torch.ones(3, 3)}, TypeError, "`mask` must be a bool tensor"),
        ({"mask": torch.ones(2, 3).bool()}, ValueError, r"= \(2, 3, 3\); got \(2, 3\)"),
        ({"mask": torch.ones(2, 2, 3, 3).bool()}, ValueError, r"= \(2, 3, 3, 3\)"),
        ({"valid_lens": torch.tensor([1, 4])}, ValueError, r"0\.\.3; got 4"),
        ({"valid_lens": torch.ones(2)}, TypeError, "integer tensor"),
    ],
)
def test_bad_masks_of_a_cache_are_named(masks, error, match):
    module, x = pair()[1], normal(0, B, 3, E)
    cache = module.remember(x, x)
    with pytest.raises(error, match=match):
        module.recall(x, cache, **masks)
    with pytest.raises(ValueError, match="`queries` must have shape"):
        module.recall(x[0], cache)


@pytest.mark.gpu
@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_fused_multi_head_on_cuda(case, dtype):
    modules = pair()
    inputs = [normal(i, B, N, E) for i in range(3)]
    expected = modules[0](*inputs, *LONG[case])
    module = modules[1].to("cuda", dtype)
    masks = [None if x is None else x.cuda() for x in LONG[case]]
    found = module(*[x.to("cuda", dtype) for x in inputs], *masks, need_weights=False)
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    tolerance = 1e-3 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(found.cpu().double(), expected, atol=tolerance, rtol=tolerance)
