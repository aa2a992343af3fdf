"""Both packages on a device that is not the CPU: the same numbers, all there, never looked at.

No GPU is needed: `Elsewhere` computes on the CPU and refuses to mix devices. Here it also refuses
what would make a GPU wait: telling Python a number, or how many of them there are.
"""

import copy
import importlib

import pytest
import torch
from bounds import assert_rounded, exact_twin, exactly

from course_lib import causal_mask
from course_lib.checks.observe.fake_device import NAME, Elsewhere

pytestmark = pytest.mark.slow
STALLS = ("_local_scalar_dense", "nonzero", "masked_select", "unique")
SIZES = {"small": (2, 3, 5, 8), "long": (2, 130, 600, 16)}  # batch, num_queries, num_keys, features


class Device(Elsewhere):
    """The device, which never stalls."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Computes as `Elsewhere` does, unless someone would have to wait for the result."""
        assert func.overloadpacket.__name__ not in STALLS, f"{func} would stall the device"
        return super().__torch_dispatch__(func, types, args, kwargs)


def found_in(package, name):
    return getattr(importlib.import_module(f"course_lib.{package}"), name)


def masks(sizes, generator):
    """Lengths and masks of every kind, with queries that see no key."""
    batch, n, m, _ = sizes
    lengths = torch.randint(0, m + 1, (batch, n), generator=generator)
    allowed = torch.rand(batch, n, m, generator=generator) < 0.5
    return {
        "none": (None, None),
        "lengths": (lengths[:, 0], None),
        "lengths of queries": (lengths, None),
        "mask": (None, allowed),
        "causal": (None, causal_mask(n, m)),
        "both": (lengths[:, 0], allowed[0]),
    }


MAKERS = {
    "AdditiveAttention": lambda kind, size: kind(size, size, 8),
    "DotProductAttention": lambda kind, _: kind(),
    "MultiHeadAttention": lambda kind, size: kind(size, 2),
}


def moved(value, device):
    """The tensor on the device, or a copy of the module with its parameters there."""
    if isinstance(value, torch.nn.Module):
        module = copy.deepcopy(value)
        for part in module.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    part._parameters[name] = device.moved(parameter).requires_grad_()
        return module
    return value if value is None else device.moved(value)


def outcome(function, inputs, given, parameters=(), **options):
    """Outputs and all gradients."""
    leaves = [*[x.requires_grad_() for x in inputs], *parameters]
    outputs = function(*inputs, *given, **options)
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    return outputs, *torch.autograd.grad(outputs, leaves, torch.ones_like(outputs))


def numbers(found):
    """The numbers found, which live on the device."""
    assert all(part.device.type == NAME for part in found)
    return [part.detach().numbers for part in found]


KINDS = list(masks((1, 1, 1, 1), torch.Generator()))
every_mask = pytest.mark.parametrize("kind", KINDS)
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
both_packages = pytest.mark.parametrize("package", ["attention", "fused"])
with_and_without_weights = pytest.mark.parametrize(
    ("package", "options"),
    [("attention", {}), ("fused", {}), ("fused", {"need_weights": False})],
    ids=["taught", "fused", "without weights"],
)


@every_mask
@every_size
@pytest.mark.parametrize("name", MAKERS)
@both_packages
def test_modules_compute_the_same(generator, monkeypatch, package, name, sizes, kind):
    monkeypatch.setattr("course_lib.fused._blocks.BLOCK", 2**15)
    make = MAKERS[name]
    batch, n, m, features = sizes
    torch.manual_seed(0)
    taught, module = (make(found_in(p, name), features) for p in ("attention", package))
    module.load_state_dict(taught.state_dict())
    shapes = (batch, n, features), (batch, m, features), (batch, m, features)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    given = masks(sizes, generator)[kind]
    exact = exact_twin(taught)
    expected = outcome(exact, [exactly(x) for x in inputs], given, exact.parameters())
    with Device() as device:
        module = moved(module, device)
        there = [[moved(x, device) for x in group] for group in (inputs, given)]
        found = outcome(module, *there, module.parameters())
    assert_rounded(numbers(found), expected)


@every_mask
@every_size
@with_and_without_weights
def test_functions_compute_the_same(generator, package, options, sizes, kind):
    batch, n, m, features = sizes
    shapes = (batch, n, features), (batch, m, features), (batch, m, features)
    given = masks(sizes, generator)[kind]
    softmax, attention = (
        [found_in(p, name) for p in ("attention", package)]
        for name in ("masked_softmax", "scaled_dot_product_attention")
    )
    scores = [torch.randn(batch, n, m, generator=generator).mul_(3)]
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    for functions, tensors, its_options in ((softmax, scores, {}), (attention, inputs, options)):
        taught, function = functions
        expected = outcome(taught, [exactly(x) for x in tensors], given)
        with Device() as device:
            there = [[moved(x, device) for x in group] for group in (tensors, given)]
            found = outcome(function, *there, **its_options)
        assert_rounded(numbers(found), expected)


@with_and_without_weights
def test_kernel_pooling_computes_the_same(generator, package, options):
    function = found_in(package, "kernel_pooling")
    exact = {"dtype": torch.float64, "generator": generator}
    places = [torch.rand(size, 1, **exact) for size in (30, 40)]
    values = torch.randn(40, 1, **exact)
    expected = outcome(lambda v: function(*places, v, 0.3, **options), [values], ())
    with Device() as device:
        places = [moved(x, device) for x in places]
        found = outcome(lambda v: function(*places, v, 0.3, **options), [moved(values, device)], ())
    for one, other in zip(numbers(found), expected, strict=True):
        torch.testing.assert_close(one, other.detach())


def test_a_look_at_the_numbers_is_noticed():
    with Device() as device, pytest.raises(AssertionError, match="would stall the device"):
        float(device.moved(torch.ones(())))


@pytest.mark.parametrize("name", MAKERS)
@both_packages
def test_shapes_can_be_computed_without_numbers(package, name):
    make = MAKERS[name]
    x = torch.empty(2, 3, 8, device="meta")
    module = make(found_in(package, name), 8).to("meta")
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    assert module(x, x, x, lengths).shape == x.shape
