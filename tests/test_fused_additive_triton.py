"""The Triton kernels of additive attention: by Triton's interpreter on a CPU, and on a GPU."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from waiting import PATIENCE

from course_lib.attention._additive_attention import AdditiveAttention as Taught
from course_lib.fused.additive_attention import AdditiveAttention

pytestmark = pytest.mark.slow
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
check(5, 2, 33, 65, 5, 6, 8.0, "mask")
"""

COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from course_lib.fused import _additive_triton as kernels

def kind(name):
    if name in ("flag", "mask", "lengths"):
        return "*i64" if name == "lengths" else "*i1"
    is_size = name in ("n", "m", "num_hiddens", "v_size") or name.startswith(("length_", "stride_"))
    return "i32" if is_size else "*fp32"

def code(kernel, **fixed):
    names = {name: "constexpr" if name in fixed else kind(name) for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=names, constexprs=fixed)
    target = GPUTarget("cuda", 90, 32)
    return compile(source, target=target, options={"num_warps": 8}).asm["cubin"]

for wide, columns in ((16, kernels.COLUMNS), (256, kernels.COLUMNS // 2)):
    for masked in (False, True):
        fixed = {"HAS_MASK": masked, "ROWS": kernels.ROWS, "COLUMNS": columns, "WIDE": wide}
        assert code(kernels._forward, WANT_SCORES=masked, **fixed)
        assert code(kernels._backward, PART=min(wide, kernels.PART), **fixed)
"""


@needs_triton
def test_kernels_compute_what_the_blocks_do():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


@needs_triton
def test_kernels_become_machine_code_of_an_h200(tmp_path):
    """The interpreter takes what the compiler refuses; compiling needs no GPU."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


def test_without_triton_the_package_works():
    """None of the modules but the kernels' own may import Triton."""
    code = "import sys; sys.modules['triton'] = None; from course_lib.fused import *; "
    code += "import torch; AdditiveAttention(2, 2, 80)(*3 * [torch.randn(2, 20, 2)])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
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
