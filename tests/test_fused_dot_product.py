"""What only the fused dot product promises: the taught numbers by other ways, and linear memory."""

import math

import pytest
import torch
from bounds import assert_rounded, exactly
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.attention import _scaled_dot_product as taught
from course_lib.attention._masked_softmax import causal_mask
from course_lib.fused import _attend, _blocked
from course_lib.fused import scaled_dot_product as fused

pytestmark = pytest.mark.slow
KERNEL = "_scaled_dot_product_flash_attention_for_cpu"


class Recorder(TorchDispatchMode):
    """Notes each operation with the shapes of its tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        self.calls.append((func.__name__.split(".")[0], shapes))
        return func(*args, **(kwargs or {}))

    def shapes_of(self, name):
        return [shapes for found, shapes in self.calls if found == name]


@pytest.fixture
def small_blocks(monkeypatch):
    """Every path is taken at sizes that a test can afford."""
    monkeypatch.setattr(_attend, "FEW_KEYS", 3)
    monkeypatch.setattr(fused, "FEW_KEYS", 3)
    monkeypatch.setattr(_attend, "MANY_KEYS", 4)
    monkeypatch.setattr(_blocked, "BLOCK_SIZE", 30)


def tensors(seed, lead, n, m, d, v, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = (n, d), (m, d), (m, v), (n, v)
    made = [torch.randn(*lead, *s, generator=generator, dtype=torch.float64) for s in shapes]
    return [x.to(dtype) for x in made]


def value_and_gradients(function, inputs, grad, *masks, **options):
    leaves = [x.clone().requires_grad_() for x in inputs]
    outputs = function(*leaves, *masks, **options)
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    return outputs, *torch.autograd.grad(outputs, leaves, grad)


def assert_same(inputs, grad, *masks):
    exact = [exactly(x, grad.dtype) for x in inputs]
    expected = value_and_gradients(
        taught.scaled_dot_product_attention, exact, exactly(grad, grad.dtype), *masks
    )
    for need_weights in (True, False):
        found = value_and_gradients(
            fused.scaled_dot_product_attention, inputs, grad, *masks, need_weights=need_weights
        )
        assert_rounded(found, expected)


@st.composite
def problems(draw):
    """Shapes around the limits of `small_blocks`, with any lengths and masks."""
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    n, m, d, v = (draw(st.integers(1, 7)) for _ in range(4))
    m, v = draw(st.sampled_from([(m, v), (n, v), (n, d), (m, d)]))
    seed = draw(st.integers(0, 999))
    generator = torch.Generator().manual_seed(seed)
    lens = mask = None
    lens_kind = draw(st.sampled_from(["none", "items", "queries", "causal"] if lead else ["none"]))
    if lens_kind in ("items", "queries"):
        shape = (lead[0],) if lens_kind == "items" else (lead[0], n)
        lens = torch.randint(0, m + 1, shape, generator=generator)
    elif lens_kind == "causal" and n == m:
        lens = torch.arange(1, n + 1).expand(lead[0], n)
    mask_kind = draw(st.sampled_from(["none", "causal", "keys", "pairs", "whole", "part"]))
    shapes = {"keys": (m,), "pairs": (n, m), "whole": (*lead, n, m), "part": (*lead[1:], n, 1)}
    if mask_kind == "causal":
        mask = causal_mask(n, m)
    elif mask_kind in shapes:
        mask = torch.rand(shapes[mask_kind], generator=generator) < 0.6
    return tensors(seed, lead, n, m, d, v), lens, mask


@pytest.mark.usefixtures("small_blocks")
class TestEveryPath:
    """At sizes where all of them are taken."""

    @given(problems())
    def test_values_and_gradients_are_the_taught_ones(self, problem):
        (*inputs, grad), lens, mask = problem
        assert_same(inputs, grad, lens, mask)

    @given(*[st.integers(1, 6)] * 6, st.sampled_from([0.0, 0.3]))
    def test_gradients_with_dropout_are_those_of_the_numbers_drawn(
        self, batch, heads, n, m, d, v, dropout
    ):
        *inputs, _ = tensors(0, (batch, heads), n, m, d, v)
        four = [x.requires_grad_() for x in inputs]
        generator = torch.Generator().manual_seed(1)
        allowed = torch.rand(batch, heads, n, m, generator=generator) < 0.7

        def attend(*leaves):
            torch.manual_seed(5)
            return _blocked.BlockedAttention.apply(*leaves, allowed, dropout)

        assert torch.autograd.gradcheck(attend, four, fast_mode=True)
        if not dropout:
            expected = taught.scaled_dot_product_attention(*four, mask=allowed)[0]
            torch.testing.assert_close(attend(*four), expected)

    def test_dropout_drops_the_given_share_and_keeps_the_mean(self):
        q, k, _, _ = tensors(0, (8,), 20, 20, 4, 4)
        values = torch.eye(20, dtype=torch.float64).expand(8, 20, 20)
        module = fused.DotProductAttention(dropout=0.25)
        torch.manual_seed(0)
        dropped = module.train()(q, k, values, need_weights=False)
        weights = taught.scaled_dot_product_attention(q, k, values)[1]
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)
        assert 0.2 < 1 - kept.double().mean() < 0.3
        torch.manual_seed(0)
        assert torch.equal(module(q, k, values, need_weights=False), dropped)
        assert not torch.equal(module(q, k, values, need_weights=False), dropped)
        torch.testing.assert_close(module.eval()(q, k, values, need_weights=False), weights)

    @pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e300])
    def test_garbage_in_masked_keys_changes_nothing(self, garbage):
        q, k, v, _ = tensors(0, (2,), 5, 6, 4, 4)
        mask = torch.tensor([True, False, True, True, False, True])
        k[:, ~mask] = garbage
        expected = taught.scaled_dot_product_attention(q, k, v, mask=mask)[0]
        found, _ = fused.scaled_dot_product_attention(q, k, v, mask=mask, need_weights=False)
        assert expected.isfinite().all()
        torch.testing.assert_close(found, expected)

    def test_nothing_random_is_drawn_without_dropout(self):
        *inputs, _ = tensors(0, (2,), 5, 6, 4, 4)
        state = torch.get_rng_state()
        module = fused.DotProductAttention(dropout=0.5).eval()
        module(*inputs, need_weights=False)
        assert torch.equal(torch.get_rng_state(), state)


B, N = 3, 520
LONG = {
    "none": (None, None),
    "causal": (None, causal_mask(N)),
    "causal by lengths": (torch.arange(1, N + 1).expand(B, N), None),
    "padded": (torch.tensor([0, 30, 520]), None),
    "padded and causal": (torch.tensor([0, 30, 520]), causal_mask(N)),
    "hardly padded": (torch.tensor([519, 520, 500]), None),
    "padded and masked": (torch.tensor([0, 30, 520]), torch.rand(B, N, N) < 0.7),
    "lengths a query": (torch.randint(0, N, (B, N)), None),
    "lengths a query and causal": (torch.randint(0, N, (B, N)), causal_mask(N)),
}


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("sizes", [(4, 4), (4, 7)], ids=["same size", "wider values"])
def test_long_sequences_give_the_taught_numbers(case, sizes):
    lens, mask = LONG[case]
    *inputs, grad = tensors(1, (B,), N, N, *sizes)
    assert_same(inputs, grad, lens, mask)
    *inputs, grad = (x.float() for x in (*inputs, grad))
    assert_same(inputs, grad, lens, mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_near_and_keeps_its_dtype(dtype):
    *inputs, _ = tensors(1, (2,), 130, 140, 4, 4)
    lens = torch.tensor([0, 77])
    expected, _ = taught.scaled_dot_product_attention(*inputs, lens)
    halves = [x.to(dtype) for x in inputs]
    found, _ = fused.scaled_dot_product_attention(*halves, lens, need_weights=False)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, atol=0.03, rtol=0.03)


def test_three_axes_reach_the_fused_kernel_with_one_head():
    *inputs, _ = tensors(0, (2,), 130, 140, 4, 4)
    with Recorder() as recorder:
        fused.scaled_dot_product_attention(*inputs, need_weights=False)
    assert recorder.shapes_of(KERNEL) == [[(2, 1, 130, 4), (2, 1, 140, 4), (2, 1, 140, 4)]]


def test_padded_items_are_called_on_their_real_keys():
    lens = torch.tensor([520, 1, 200])
    for num_queries, expected in ((512, [520, 1, 200]), (5, [520])):  # few queries: one call
        *inputs, _ = tensors(0, (3,), num_queries, 520, 4, 4)
        with Recorder() as recorder:
            fused.scaled_dot_product_attention(*inputs, lens, need_weights=False)
        assert [shapes[1][2] for shapes in recorder.shapes_of(KERNEL)] == expected


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("case", LONG)
def test_nothing_as_large_as_the_scores_is_kept_for_backward(case, dropout):
    lens, mask = LONG[case]
    q, k, v, _ = (x.requires_grad_() for x in tensors(1, (B,), N, N, 4, 4))
    kept = []
    module = fused.DotProductAttention(dropout).train()
    given = {x.data_ptr() for x in (mask, lens) if x is not None}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append((x.data_ptr(), x.numel())) or x, lambda x: x
    ):
        module(q, k, v, lens, mask, need_weights=False)
    masks = B * N * N if mask is not None or (lens is not None and lens.dim() == 2) else 0
    assert kept
    total = sum(size for pointer, size in kept if pointer not in given)
    assert total <= masks + 8 * B * N * 4 + 2 * B * N


def test_without_weights_there_are_none():
    *inputs, _ = tensors(0, (2,), 3, 5, 4, 4)
    outputs, weights = fused.scaled_dot_product_attention(*inputs, need_weights=False)
    assert weights is None
    module = fused.DotProductAttention()
    torch.testing.assert_close(module(*inputs), outputs)
    assert module.attention_weights is not None
    torch.testing.assert_close(module(*inputs, need_weights=False), outputs)
    assert module.attention_weights is None


@pytest.mark.parametrize("lens", [None, torch.tensor([0, 100])])
def test_compiles_as_one_graph_without_weights(plain_import, lens):
    module = plain_import("course_lib.fused.scaled_dot_product").DotProductAttention(0.5).eval()
    *inputs, grad = tensors(0, (2,), 130, 130, 4, 4)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    expected = value_and_gradients(module, inputs, grad, lens, causal_mask(130))
    found = value_and_gradients(compiled, inputs, grad, lens, causal_mask(130), need_weights=False)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


def test_torch_func_gets_the_formula_and_so_all_derivatives():
    q, k, v, _ = tensors(0, (2,), 3, 130, 4, 4)
    mask = causal_mask(3, 130)

    def outputs(package, q, **options):
        return package.scaled_dot_product_attention(q, k[0], v[0], mask=mask, **options)[0].sum()

    found = torch.func.vmap(lambda q: outputs(fused, q, need_weights=False))(q)
    torch.testing.assert_close(found, torch.func.vmap(lambda q: outputs(taught, q))(q))
    twice = [
        torch.func.jacrev(torch.func.jacrev(lambda q, p=package, o=options: outputs(p, q, **o)))
        for package, options in ((fused, {"need_weights": False}), (taught, {}))
    ]
    torch.testing.assert_close(twice[0](q[0]), twice[1](q[0]))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_second_derivatives_are_refused_not_wrong(dropout):
    q, k, v, _ = tensors(0, (1,), 3, 520, 4, 4)
    module = fused.DotProductAttention(dropout).train()
    outputs = module(q.requires_grad_(), k, v, need_weights=False)
    with pytest.raises(RuntimeError, match=r"is not implemented|call with need_weights=True\."):
        torch.autograd.grad(outputs.sum(), q, create_graph=True)[0].sum().backward()


@pytest.mark.parametrize("shapes", [(0, 3, 200), (2, 0, 200), (2, 3, 0), (0, 512, 512)])
def test_nothing_to_attend_with_or_to(shapes):
    batch, n, m = shapes
    *inputs, grad = tensors(0, (batch,), n, m, 4, 4)
    assert_same(inputs, grad)
    lens, mask = torch.zeros(batch, dtype=torch.int64), causal_mask(n, m)
    found, _ = fused.scaled_dot_product_attention(*inputs, lens, mask, need_weights=False)
    assert found.shape == grad.shape
    assert not found.any()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"keys": torch.zeros(2, 140, 3)}, ValueError, "`keys` must have shape"),
        ({"mask": torch.ones(130, 140)}, TypeError, "`mask` must be a bool tensor"),
        ({"mask": torch.ones(2, 140).bool()}, ValueError, "`mask` must be broadcastable"),
        ({"valid_lens": torch.tensor([1, 141])}, ValueError, r"0\.\.140; got 141"),
        ({"values": torch.zeros(2, 140, 4).double()}, TypeError, "the same dtype"),
    ],
)
def test_bad_input_is_named_before_any_work(change, error, match):
    names = ("queries", "keys", "values")
    good = dict(zip(names, tensors(0, (2,), 130, 140, 4, 4, torch.float32), strict=False))
    with Recorder() as recorder, pytest.raises(error, match=match):
        fused.scaled_dot_product_attention(**good | change, need_weights=False)
    assert not {name for name, _ in recorder.calls} & {KERNEL, "bmm", "baddbmm", "mm"}


@pytest.mark.gpu
@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_fused_dot_product_on_cuda(case, dtype):
    *inputs, grad = tensors(1, (B,), N, N, 16, 16)
    masks = LONG[case]
    expected = value_and_gradients(taught.scaled_dot_product_attention, inputs, grad, *masks)
    *inputs, grad = (x.to("cuda", dtype) for x in (*inputs, grad))
    masks = [None if x is None else x.cuda() for x in masks]
    found = value_and_gradients(
        fused.scaled_dot_product_attention, inputs, grad, *masks, need_weights=False
    )
    tolerance = 2e-4 if dtype == torch.float32 else 0.03
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, atol=tolerance, rtol=tolerance)
