"""Both packages on a device that is not the CPU: the same numbers, all there, never looked at.

No GPU is needed: `Elsewhere` computes on the CPU and refuses to mix devices. Here it also refuses
what would make a GPU wait: telling Python a number, or how many of them there are.
"""

import copy

import pytest
import torch

from course_lib import attention, causal_mask, fused
from course_lib.checks.observe.fake_device import NAME, Elsewhere

pytestmark = pytest.mark.slow
STALLS = ("_local_scalar_dense", "nonzero", "masked_select", "unique")
BATCH, NUM_QUERIES, NUM_KEYS, SIZE = 2, 13, 40, 8


class Device(Elsewhere):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Compute as `Elsewhere` does, unless someone would have to wait for the result."""
        assert func.overloadpacket.__name__ not in STALLS, f"{func} would stall the device"
        return super().__torch_dispatch__(func, types, args, kwargs)


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


LENGTHS = torch.arange(BATCH * NUM_QUERIES).reshape(BATCH, NUM_QUERIES) * 3 % (NUM_KEYS + 1)
ALLOWED = normal(9, BATCH, NUM_QUERIES, NUM_KEYS) < 0
MASKS = {  # lengths and masks of every kind, with queries that see no key
    "none": (None, None),
    "lengths": (LENGTHS[:, 0], None),
    "lengths of queries": (LENGTHS, None),
    "mask": (None, ALLOWED),
    "causal": (None, causal_mask(NUM_QUERIES, NUM_KEYS)),
    "both": (LENGTHS[:, 0], ALLOWED[0]),
}
QUERIES, KEYS, VALUES = (
    normal(i, BATCH, n, SIZE) for i, n in enumerate((NUM_QUERIES, NUM_KEYS, NUM_KEYS))
)
MODULES = {
    "AdditiveAttention": (SIZE, SIZE, 8),
    "DotProductAttention": (),
    "MultiHeadAttention": (SIZE, 2),
}


def moved(value, device):
    if isinstance(value, torch.nn.Module):
        module = copy.deepcopy(value)
        for part in module.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    part._parameters[name] = device.moved(parameter).requires_grad_()
        return module
    return value if value is None else device.moved(value)


def outcome(function, inputs, given, **options):
    """Return the outputs of a function or module and the gradients of all that it computes with."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = function(*leaves, *given, **options)
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    leaves += function.parameters() if isinstance(function, torch.nn.Module) else []
    return outputs, *torch.autograd.grad(outputs, leaves, torch.ones_like(outputs))


def assert_same_there(taught, function, inputs, given=(), **options):
    """Compare outputs and gradients of `taught` here and `function` on the device."""
    expected = outcome(taught, inputs, given)
    with Device() as device:
        if isinstance(function, torch.nn.Module):
            function = moved(function, device)
        there = ([moved(x, device) for x in group] for group in (inputs, given))
        found = outcome(function, *there, **options)
        assert all(part.device.type == NAME for part in found)
        found = [part.detach().numbers for part in found]
    torch.testing.assert_close(found, [part.detach() for part in expected])


every_mask = pytest.mark.parametrize("given", MASKS.values(), ids=MASKS)
both_packages = pytest.mark.parametrize("package", [attention, fused])
with_and_without_weights = pytest.mark.parametrize(
    ("package", "options"), [(attention, {}), (fused, {}), (fused, {"need_weights": False})]
)


@every_mask
@pytest.mark.parametrize("name", MODULES)
@both_packages
def test_modules_compute_the_same(monkeypatch, package, name, given):
    monkeypatch.setattr("course_lib.fused._blocks.BLOCK", 2**8)
    taught, module = (getattr(p, name)(*MODULES[name]).double() for p in (attention, package))
    module.load_state_dict(taught.state_dict())
    assert_same_there(taught, module, (QUERIES, KEYS, VALUES), given)


@every_mask
@with_and_without_weights
def test_functions_compute_the_same(package, options, given):
    name = "scaled_dot_product_attention"
    functions = (getattr(p, name) for p in (attention, package))
    assert_same_there(*functions, (QUERIES, KEYS, VALUES), given, **options)
    h = torch.tensor(1.3, dtype=torch.float64)
    functions = attention.kernel_pooling, package.kernel_pooling
    assert_same_there(*functions, (QUERIES[0], KEYS[0], VALUES[0]), [h], **options)
    functions = (p.masked_softmax for p in (attention, package))
    assert_same_there(*functions, [3 * QUERIES @ KEYS.mT], given)


def test_a_look_at_the_numbers_is_noticed():
    with Device() as device, pytest.raises(AssertionError, match="would stall the device"):
        float(device.moved(torch.ones(())))


@pytest.mark.parametrize("name", MODULES)
@both_packages
def test_shapes_can_be_computed_without_numbers(package, name):
    x = torch.empty(2, 3, SIZE, device="meta")
    module = getattr(package, name)(*MODULES[name]).to("meta")
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    assert module(x, x, x, lengths).shape == x.shape
