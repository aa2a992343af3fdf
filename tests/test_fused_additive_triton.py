"""The Triton kernels of additive attention: by Triton's interpreter on a CPU, and on a GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from course_lib.attention.additive_attention import AdditiveAttention as Taught
from course_lib.fused.additive_attention import AdditiveAttention

HAS_TRITON = importlib.util.find_spec("triton") is not None


def needs_triton(test):
    """Skips where Triton is not installed; like lack of a GPU, that is allowed in CI too."""
    if HAS_TRITON:
        return test
    reason = "Triton is not installed; `pip install triton` lets its interpreter run this"
    return pytest.mark.gpu(pytest.mark.skip(reason=reason)(test))


INTERPRETED = """
import torch
from course_lib.fused import _additive_triton as kernels
from course_lib.fused._additive_function import BlockedAdditive

def check(seed, batch, n, m, hiddens, v, scale, kind):
    draw = torch.Generator().manual_seed(seed)
    shapes = (batch, n, hiddens), (batch, m, hiddens), (1, hiddens), (batch, m, v), (batch, n, v)
    q, k, w, values, grad = (torch.randn(shape, generator=draw) for shape in shapes)
    q, k, lengths, mask = q * scale, k * scale, None, None
    if "items" in kind:
        lengths = torch.randint(0, m + 1, (batch, 1), generator=draw)
    if "queries" in kind:
        lengths = torch.randint(0, m + 1, (batch, n), generator=draw)
    if "mask" in kind:
        mask = (torch.rand(n, m, generator=draw) < 0.5).expand(batch, n, m)
    leaves = [part.clone().requires_grad_() for part in (q, k, w, values)]
    outputs, weights = BlockedAdditive.apply(*leaves, lengths, mask, 0.0, True, True)
    expected = outputs, weights, *torch.autograd.grad(outputs, leaves, grad)
    given = q, k, w[0], values, lengths, mask
    found = kernels.averages(*given, True)
    grads = kernels.gradients(*given, *found[:2], grad)
    found = found[0], found[2], *grads
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.float().view_as(other), other, rtol=2e-5, atol=2e-5)
    assert kernels.averages(*given, False)[2] is None

for kind in ("", "items", "queries", "mask", "queries and mask"):
    check(1, 3, 40, 70, 5, 17, 1.0, kind)
check(2, 2, 5, 7, 3, 4, 1.0, "items")
check(3, 1, 3, 70, 2, 65, 1.0, "mask")
check(4, 2, 33, 65, 4, 6, 80.0, "items")
"""


@needs_triton
def test_kernels_compute_what_the_blocks_do():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_without_triton_the_package_works():
    """None of the modules but the kernels' own may import Triton."""
    code = "import sys; sys.modules['triton'] = None; from course_lib.fused import *; "
    code += "import torch; AdditiveAttention(2, 2, 80)(*3 * [torch.randn(2, 20, 2)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("masked", ["", "lengths", "mask"])
def test_cuda_gives_the_numbers_and_gradients_taught(generator, dtype, dropout, masked):
    torch.manual_seed(0)
    taught, ours = Taught(4, 6, 96), AdditiveAttention(4, 6, 96, dropout).eval()
    ours.load_state_dict(taught.state_dict())
    inputs = [torch.randn(3, s, d, generator=generator) for s, d in ((70, 4), (130, 6), (130, 20))]
    lengths = torch.tensor([0, 130, 57]) if masked == "lengths" else None
    mask = torch.rand(70, 130, generator=generator) < 0.5 if masked == "mask" else None
    results = []
    for module, device, kind in ((taught, "cpu", torch.float64), (ours, "cuda", dtype)):
        module.to(device, kind)
        leaves = [part.to(device, kind).requires_grad_() for part in inputs]
        given = [part if part is None else part.to(device) for part in (lengths, mask)]
        outputs = module(*leaves, *given)
        outputs.square().sum().backward()
        grads = [part.grad for part in (*leaves, *module.parameters())]
        results.append([part.detach().double().cpu() for part in (outputs, *grads)])
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4}.get(dtype, 0.1)
    for found, expected in zip(results[1], results[0], strict=True):
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=tolerance)
