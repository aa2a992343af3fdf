"""`course_lib.fused` gives the results of `course_lib.attention` without storing the scores."""

import copy
import functools
import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import attention, fused
from course_lib.attention import causal_mask
from course_lib.checks.observe import fake_device
from course_lib.checks.observe.fake_device import NAME, Elsewhere

pytestmark = pytest.mark.slow
taught_function = attention.scaled_dot_product_attention
SIZES = st.integers(1, 6)
MODULES = {"DotProductAttention": (), "MultiHeadAttention": (6, 3)}
KINDS = ("none", "items", "queries", "mask", "keys", "both", "causal", "nothing")


def normal(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def masks(kind, batch, n, m):
    """Return `(valid_lens, mask)` of one kind. Some queries and items see no key."""
    generator = torch.Generator().manual_seed(batch + 10 * n + 100 * m)
    of_items = torch.randint(0, m + 1, (batch,), generator=generator)
    allowed = torch.rand(batch, n, m, generator=generator) < 0.5
    return {
        "none": (None, None),
        "items": (of_items, None),
        "queries": (torch.randint(0, m + 1, (batch, n), generator=generator), None),
        "mask": (None, allowed),
        "keys": (None, allowed[0, 0]),
        "both": (of_items, allowed),
        "causal": (None, causal_mask(n, m)),
        "nothing": (torch.zeros(batch, dtype=torch.int64), None),
    }[kind]


def with_gradients(function, inputs, parameters=()):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    grad = torch.linspace(-1, 1, outputs.numel()).to(outputs).view(outputs.shape)
    return outputs.detach(), *torch.autograd.grad(outputs, [*leaves, *parameters], grad)


def outcome(function, inputs, given):
    parameters = function.parameters() if isinstance(function, torch.nn.Module) else ()
    return with_gradients(lambda *x: function(*x, *given), inputs, parameters)


def assert_same(ours, taught, inputs, *given):
    found = outcome(ours, inputs, given)
    assert all(part.isfinite().all() for part in found)
    torch.testing.assert_close(found, outcome(taught, inputs, given))


def pair(name, *, dropout=0.0, dtype=torch.float64):
    """Return the fused and the taught module with the same weights, and the input sizes."""
    torch.manual_seed(0)
    kinds = (getattr(package, name) for package in (fused, attention))
    ours, taught = (kind(*MODULES[name], dropout=dropout).to(dtype) for kind in kinds)
    ours.load_state_dict(taught.state_dict())
    return ours, taught, (4, 4, 7) if name == "DotProductAttention" else (6, 6, 6)


def inputs_for(widths, batch, n, m, dtype=torch.float64):
    sizes = zip((n, m, m), widths, strict=True)
    return [normal(i, batch, size, width, dtype=dtype) for i, (size, width) in enumerate(sizes)]


def attend(*inputs, **options):
    return fused.scaled_dot_product_attention(*inputs, **options)[0]


# ---------------------------------------------------------------- modules
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODULES)
def test_modules_give_the_taught_numbers_and_gradients(name, kind):
    ours, taught, widths = pair(name)
    for batch, n, m in ((3, 4, 5), (2, 9, 9), (1, 1, 30)):
        inputs = inputs_for(widths, batch, n, m)
        assert_same(ours, taught, inputs, *masks(kind, batch, n, m))
    assert ours.attention_weights is None


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_the_taught_arguments_and_accept_zero_items_queries_and_keys(name):
    ours, taught, widths = pair(name)
    for shape in ((0, 3, 5), (2, 0, 5), (2, 3, 0)):
        inputs = inputs_for(widths, *shape)
        torch.testing.assert_close(ours(*inputs), taught(*inputs))
    for method in ("__init__", "forward"):
        found, expected = (inspect.signature(getattr(type(m), method)) for m in (ours, taught))
        assert list(found.parameters) == list(expected.parameters)


def test_multi_head_takes_a_mask_for_each_head():
    ours, taught, widths = pair("MultiHeadAttention")
    mask = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    assert_same(ours, taught, inputs_for(widths, 2, 4, 5), torch.tensor([5, 2]), mask)


@pytest.mark.parametrize("name", MODULES)
def test_dropout_acts_only_in_train_mode(name):
    ours, taught, widths = pair(name, dropout=0.5)
    inputs = inputs_for(widths, 2, 4, 5)
    assert not torch.equal(ours(*inputs), ours(*inputs))
    torch.testing.assert_close(ours.eval()(*inputs), taught.eval()(*inputs))


def test_dropout_drops_its_share_and_scales_the_rest():
    ours, taught, _ = pair("DotProductAttention", dropout=0.25)
    queries, keys, _ = inputs_for((4, 4, 1), 8, 20, 20)
    values = torch.eye(20, dtype=torch.float64).expand(8, 20, 20)  # outputs are the weights
    dropped, weights = ours(queries, keys, values), taught.eval()(queries, keys, values)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)
    assert 0.2 < 1 - kept.double().mean() < 0.3


@pytest.mark.parametrize("kind", ["none", "items"])
@pytest.mark.parametrize("name", MODULES)
def test_modules_store_nothing_as_large_as_the_scores(name, kind):
    ours, _, widths = pair(name)
    n = 260
    inputs = [x.requires_grad_() for x in inputs_for(widths, 2, n, n)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        ours(*inputs, *masks(kind, 2, n, n))
    assert kept and max(tensor.numel() for tensor in kept) <= 2 * n * 20


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes_are_kept_and_stay_near(name, dtype):
    ours, taught, widths = pair(name)
    inputs = inputs_for(widths, 2, 13, 14)
    expected = taught(*inputs, torch.tensor([0, 7]))
    found = ours.to(dtype)(*(x.to(dtype) for x in inputs), torch.tensor([0, 7]))
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


def test_autocast_gives_the_taught_dtype():
    ours, taught, widths = pair("MultiHeadAttention", dtype=torch.float32)
    inputs = inputs_for(widths, 2, 4, 5, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = ours(*inputs), taught(*inputs)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in ours.parameters())


# ---------------------------------------------------------------- dot product
@st.composite
def problems(draw):
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    n, m, d, v = (draw(SIZES) for _ in range(4))
    seed = draw(st.integers(0, 999))
    generator = torch.Generator().manual_seed(seed)
    shapes = {"none": None, "items": lead[:1], "queries": (*lead[:1], n)}
    shape = shapes[draw(st.sampled_from([*shapes] if lead else ["none"]))]
    lens = None if shape is None else torch.randint(0, m + 1, shape, generator=generator)
    shapes = {"none": None, "keys": (m,), "pairs": (n, m), "whole": (*lead, n, m)}
    shapes |= {"one item": (*[1] * len(lead[:1]), *lead[1:], n, 1), "rows": (*lead, n, 1)}
    shape = shapes[draw(st.sampled_from([*shapes]))]
    mask = None if shape is None else torch.rand(shape, generator=generator) < 0.6
    inputs = [normal(seed + i, *lead, *s) for i, s in enumerate(((n, d), (m, d), (m, v)))]
    return inputs, lens, mask


@given(problems())
def test_the_function_gives_the_taught_numbers_for_any_leading_axes(problem):
    inputs, lens, mask = problem
    for need_weights in (True, False):
        ours = functools.partial(attend, need_weights=need_weights)
        assert_same(ours, lambda *x: taught_function(*x)[0], inputs, lens, mask)
    _, expected = taught_function(*inputs, lens, mask)
    _, weights = fused.scaled_dot_product_attention(*inputs, lens, mask)
    torch.testing.assert_close(weights, expected)
    assert fused.scaled_dot_product_attention(*inputs, need_weights=False)[1] is None


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e300])
def test_garbage_in_padding_changes_nothing(garbage, need_weights):
    q, k, v = inputs_for((4, 4, 4), 2, 5, 6)
    lengths = torch.tensor([2, 6])
    expected = taught_function(q, k, v, lengths)[0]
    k[0, 2:] = garbage
    torch.testing.assert_close(attend(q, k, v, lengths, need_weights=need_weights), expected)


@pytest.mark.parametrize("need_weights", [True, False])
def test_half_precision_does_not_overflow_before_the_root(need_weights):
    q = torch.full((1, 64), 60.0, dtype=torch.float16)
    keys, values = q.repeat(2, 1), torch.ones(2, 1).half()
    assert attend(q, keys, values, need_weights=need_weights).item() == 1


def test_second_derivatives_need_the_weights():
    inputs = [x.requires_grad_() for x in inputs_for((4, 4, 4), 2, 3, 5)]
    masked = functools.partial(attend, mask=causal_mask(3, 5))
    assert torch.autograd.gradgradcheck(masked, inputs, fast_mode=True)
    with pytest.raises(RuntimeError, match="is not implemented"):
        torch.autograd.gradgradcheck(functools.partial(attend, need_weights=False), inputs)


# ---------------------------------------------------------------- devices
class Computing(fake_device._Computing):
    """Refuse calls that make a GPU wait: those that tell Python a number, or how many there are."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        stalls = ("_local_scalar_dense", "nonzero", "masked_select", "unique")
        assert func.overloadpacket.__name__ not in stalls, f"{func} would stall the device"
        return super().__torch_dispatch__(func, types, args, kwargs)


class Device(Elsewhere):
    """Compute on the CPU and refuse to mix devices, or to make a GPU wait."""

    def __enter__(self):
        self.usual, fake_device._Computing = fake_device._Computing, Computing
        return super().__enter__()

    def __exit__(self, *about):
        fake_device._Computing = self.usual
        return super().__exit__(*about)


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return device.moved(value)
    if not isinstance(value, torch.nn.Module):
        return value
    module = copy.deepcopy(value)
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = device.moved(parameter).requires_grad_()
    return module


def assert_same_there(ours, taught, inputs, *given):
    """Compare outputs and gradients of `taught` here and `ours` on the device."""
    with Device() as device:
        there = ([moved(x, device) for x in group] for group in (inputs, given))
        found = outcome(moved(ours, device), *there)
        assert all(part.device.type == NAME for part in found)
        found = tuple(part.detach().numbers for part in found)
    torch.testing.assert_close(found, outcome(taught, inputs, given))


@pytest.mark.parametrize("kind", KINDS)
def test_attention_of_both_packages_computes_the_same_on_another_device(kind):
    given = masks(kind, 2, 13, 40)
    for name in MODULES:
        ours, taught, widths = pair(name)
        for module in (ours, taught):
            assert_same_there(module, taught, inputs_for(widths, 2, 13, 40), *given)
    inputs = inputs_for((4, 6, 5), 2, 13, 40)
    module = attention.AdditiveAttention(4, 6, 5).double()
    assert_same_there(module, module, inputs, *given)
    function = functools.partial(attend, need_weights=True)
    assert_same_there(function, function, inputs_for((8, 8, 8), 2, 13, 40), *given)


def test_a_look_at_the_numbers_is_noticed():
    with Device() as device, pytest.raises(AssertionError, match="would stall the device"):
        float(device.moved(torch.ones(())))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODULES)
def test_modules_on_cuda(name, kind):
    ours, taught, widths = pair(name, dtype=torch.float32)
    given = masks(kind, 3, 40, 50)
    inputs = inputs_for(widths, 3, 40, 50, torch.float32)
    expected = taught(*inputs, *given)
    on_gpu = [None if part is None else part.cuda() for part in given]
    found = ours.cuda()(*(x.cuda() for x in inputs), *on_gpu)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-3, rtol=1e-3)
