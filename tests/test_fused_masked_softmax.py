"""What only the fused masked softmax and its package promise; the rest is tested as taught."""

import subprocess
import sys

import pytest
import torch
from bounds import assert_rounded, exactly
from torch.autograd import forward_ad
from waiting import PATIENCE

from course_lib import fused
from course_lib.attention._masked_softmax import masked_softmax as taught
from course_lib.fused.masked_softmax import masked_softmax


def masks(generator):
    """Every kind of mask for scores (4, 6, 9), with and without empty rows, by name."""

    def lengths(low, *shape):
        return torch.randint(low, 10, shape, generator=generator)

    kept = torch.rand(4, 6, 9, generator=generator) < 0.7
    return {
        "none": (None, None),
        "lengths of items": (lengths(1, 4), None),
        "lengths of queries": (lengths(1, 4, 6), None),
        "mask": (None, kept),
        "mask of keys": (None, kept[0, :1]),
        "mask without query axis": (None, kept[0, 0]),
        "lengths and mask": (lengths(1, 4), kept[:, :1]),
        "an item without keys": (torch.tensor([3, 0, 9, 1]), None),
        "queries without keys": (lengths(0, 4, 6), kept),
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", masks(torch.Generator()))
def test_numbers_and_gradients_are_those_taught(generator, name, dtype):
    given = masks(generator)[name]
    scores = 3 * torch.randn(4, 6, 9, generator=generator, dtype=dtype)
    grad = torch.randn(4, 6, 9, generator=generator, dtype=dtype)
    results = []
    for function, leaf, upstream in (
        (masked_softmax, scores.clone().requires_grad_(), grad),
        (taught, exactly(scores, dtype).requires_grad_(), exactly(grad, dtype)),
    ):
        weights = function(leaf, *given)
        gradient = torch.autograd.grad(weights, leaf, upstream)
        results.append((weights.detach(), *gradient))
    assert_rounded(*results)


@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_garbage_behind_the_lengths_takes_the_form_that_ignores_it(garbage, generator):
    scores = torch.randn(3, 4, 5, generator=generator)
    lengths = torch.tensor([5, 2, 3])
    dirty = scores.masked_fill(torch.arange(5) >= lengths[:, None, None], garbage).requires_grad_()
    weights = masked_softmax(dirty, lengths)
    torch.testing.assert_close(weights, taught(scores, lengths))
    weights.square().sum().backward()
    assert dirty.grad.isfinite().all()


def test_heads_and_second_derivatives(generator):
    scores = torch.randn(2, 3, 2, 4, generator=generator, dtype=torch.float64).requires_grad_()
    for lengths in (torch.tensor([1, 4]), torch.tensor([[1, 4], [2, 3]])):
        torch.testing.assert_close(masked_softmax(scores, lengths), taught(scores, lengths))
        assert torch.autograd.gradgradcheck(lambda s, k=lengths: masked_softmax(s, k), (scores,))


@pytest.mark.parametrize("given", ["lengths of items", "lengths of queries", "mask"])
def test_nothing_is_left_for_backward_but_the_weights(generator, given):
    stored = []
    scores = torch.randn(4, 6, 9, generator=generator).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (stored.append(t), t)[1], lambda t: t):
        weights = masked_softmax(scores, *masks(generator)[given])
    assert [tensor.data_ptr() for tensor in stored] == [weights.data_ptr()]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_lengths_are_any_integers(generator, dtype):
    scores = torch.randn(4, 6, 9, generator=generator)
    for name in ("lengths of items", "lengths of queries"):
        lengths, _ = masks(generator)[name]
        weights = masked_softmax(scores, lengths.to(dtype))
        torch.testing.assert_close(weights, taught(scores, lengths))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_gives_the_derivative_of_the_taught_form(generator):
    scores, tangent = torch.randn(2, 4, 6, 9, generator=generator)
    lengths, _ = masks(generator)["lengths of queries"]
    derivatives = []
    with forward_ad.dual_level():
        for function in (taught, masked_softmax):
            weights = function(forward_ad.make_dual(scores, tangent), lengths)
            derivatives.append(forward_ad.unpack_dual(weights).tangent)
    torch.testing.assert_close(*derivatives)


def test_it_maps_over_a_batch_of_problems(generator):
    scores = torch.randn(3, 2, 4, 5, generator=generator)
    mask = torch.rand(3, 2, 4, 5, generator=generator) < 0.5
    mapped = torch.vmap(lambda s, m: masked_softmax(s, mask=m))(scores, mask)
    torch.testing.assert_close(mapped, taught(scores, mask=mask))


@pytest.mark.gpu
@pytest.mark.parametrize("name", masks(torch.Generator()))
def test_cuda_gives_the_same(generator, name):
    scores, given = torch.randn(4, 6, 9, generator=generator), masks(generator)[name]
    on_device = [part if part is None else part.cuda() for part in given]
    weights = masked_softmax(scores.cuda(), *on_device)
    torch.testing.assert_close(weights.cpu(), taught(scores, *given))


def test_the_package_gives_functions_and_classes_not_their_modules():
    assert {"AdditiveAttention", "masked_softmax", "kernel_pooling"} <= set(fused.__all__)
    for name in fused.__all__:
        assert callable(getattr(fused, name))
        assert getattr(fused, name).__module__.startswith("course_lib.fused.")
    assert dir(fused) == sorted(fused.__all__)
    with pytest.raises(AttributeError, match=r"course_lib\.fused' has no attribute 'softmax'"):
        _ = fused.softmax


def test_the_package_is_cheap_to_import():
    code = "import sys, course_lib.fused; assert 'torch' not in sys.modules; "
    code += "from course_lib.fused.masked_softmax import masked_softmax as f; "
    code += "from course_lib.fused import masked_softmax as g; assert f is g"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=PATIENCE)
