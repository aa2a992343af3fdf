"""What only the fused additive attention promises; the rest is tested as taught."""

import math
import subprocess
import sys

import pytest
import torch
from bounds import assert_rounded, exact_twin, exactly
from waiting import PATIENCE

from course_lib.attention._additive_attention import AdditiveAttention as Taught
from course_lib.fused import _additive_blocks, _additive_passes
from course_lib.fused._additive_function import FEW_FEATURES
from course_lib.fused.additive_attention import AdditiveAttention

pytestmark = pytest.mark.slow
SIZES = {  # batch, num_queries, num_keys, num_hiddens
    "small": (2, 3, 5, 7),
    "no item": (0, 3, 5, 7),
    "no query": (2, 0, 5, 7),
    "no key": (2, 3, 0, 7),
    "items in one block": (40, 9, 8, 16),
    "rows in blocks": (3, 33, 65, 130),
    "one query": (4, 1, 90, 70),
    "keys in blocks": (1, 3, 2500, 120),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks small enough that small problems have many."""
    monkeypatch.setattr(_additive_blocks, "CPU_BLOCK", 2**15)


def problem(generator, sizes, dtype, dropout=0.0, scale=1.0):
    """A fused module, its taught twin, and queries, keys and values that ask for gradients."""
    batch, n, m, num_hiddens = sizes
    torch.manual_seed(0)
    ours, taught = (kind(4, 6, num_hiddens, dropout) for kind in (AdditiveAttention, Taught))
    taught.load_state_dict(ours.state_dict())
    inputs = [
        (scale * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_()
        for shape in ((batch, n, 4), (batch, m, 6), (batch, m, 5))
    ]
    return ours.to(dtype), taught.to(dtype), inputs


def masks(generator, sizes):
    """Lengths and masks of every kind, with queries and items that see no key."""
    batch, n, m, _ = sizes
    of_items = torch.randint(0, m + 1, (batch,), generator=generator)
    of_queries = torch.randint(0, m + 1, (batch, n), generator=generator)
    allowed = torch.rand(batch, n, m, generator=generator) < 0.5
    return {
        "none": (None, None),
        "lengths": (of_items, None),
        "lengths of queries": (of_queries, None),
        "mask": (None, torch.rand(n, m, generator=generator) < 0.5),
        "both": (of_items, allowed),
        "causal": (None, torch.ones(n, m, dtype=torch.bool).tril()),
        "nothing": (torch.zeros(batch, dtype=torch.int64), None),
    }


def outcome(module, inputs, given, **options):
    """Outputs, weights and all gradients of a call, for one gradient of the outputs."""
    leaves = [*inputs, *module.parameters()]
    outputs = module(*inputs, *given, **options)
    grad = torch.linspace(-1, 1, outputs.numel()).to(outputs.dtype).view(outputs.shape)
    return outputs.detach(), module.attention_weights, *torch.autograd.grad(outputs, leaves, grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", masks(torch.Generator(), (1, 1, 1, 1)))
@pytest.mark.parametrize("name", SIZES)
def test_numbers_and_gradients_are_those_taught(generator, name, kind, dtype):
    sizes = SIZES[name]
    ours, taught, inputs = problem(generator, sizes, dtype)
    given = masks(generator, sizes)[kind]
    exact = outcome(exact_twin(taught, dtype), [exactly(x, dtype) for x in inputs], given)
    assert_rounded(outcome(ours, inputs, given), exact)
    outputs, weights, *gradients = outcome(ours, inputs, given, need_weights=False)
    assert weights is None
    assert_rounded([outputs, *gradients], [exact[0], *exact[2:]])


@pytest.mark.parametrize("name", ["rows in blocks", "keys in blocks"])
def test_weights_that_are_not_kept_are_computed_again(generator, name, monkeypatch):
    ours, taught, inputs = problem(generator, SIZES[name], torch.float64)
    given = masks(generator, SIZES[name])["both"]
    monkeypatch.setattr(_additive_passes, "FEW_WEIGHTS", 0)
    expected = outcome(taught, inputs, given)
    found = outcome(ours, inputs, given, need_weights=False)
    torch.testing.assert_close(found[2:], expected[2:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_large_projections_and_large_scores_take_the_safe_ways(generator, dtype, scale):
    ours, taught, inputs = problem(generator, (2, 30, 40, 64), dtype, scale=scale)
    with torch.no_grad():
        for module in (ours, taught):
            module.w_v.weight *= 40  # exp of such scores overflows
    found = outcome(ours, inputs, ())
    assert all(part.isfinite().all() for part in found)
    exact = outcome(exact_twin(taught, dtype), [exactly(x, dtype) for x in inputs], ())
    assert_rounded(found, exact)


def test_opposite_projections_do_not_pass_the_guard():
    """With q = 60 and k = -60 the exponentials would be 0 and infinity, whose product is NaN."""
    module = AdditiveAttention(1, 1, 64)
    with torch.no_grad():
        for layer in (module.W_q, module.W_k, module.w_v):
            layer.weight.fill_(1.0)
    ones = torch.ones(1, 20, 1)
    sigmas = _additive_blocks.Sigmas(*(60 * sign * ones.expand(1, 20, 64) for sign in (1, -1)))
    assert not sigmas.by_exponentials
    values = torch.arange(20.0).view(1, 20, 1)
    torch.testing.assert_close(module(60 * ones, -60 * ones, values), 9.5 * ones)


def test_dropout_is_the_same_in_both_passes_and_scales_what_it_keeps(generator):
    ours, _, (queries, keys, _) = problem(generator, (3, 33, 65, 64), torch.float64, dropout=0.3)
    values = torch.eye(65, dtype=torch.float64).expand(3, 65, 65).clone().requires_grad_()
    state = torch.get_rng_state()
    dropped = ours(queries, keys, values)  # the weights themselves, after dropout
    kept = dropped.detach() != 0
    assert abs(kept.double().mean() - 0.7) < 0.02
    torch.testing.assert_close(dropped.detach()[kept], ours.attention_weights[kept] / 0.7)
    assert not torch.equal(torch.get_rng_state(), state)
    grad = torch.randn(dropped.shape, generator=generator, dtype=torch.float64)
    leaves = [queries, keys, values, *ours.parameters()]
    found = torch.autograd.grad(dropped, leaves, grad)
    weights = Taught.forward.__wrapped__(ours.eval(), queries, keys, values)
    expected = torch.autograd.grad((weights * kept / 0.7), leaves[:2], grad)
    torch.testing.assert_close(found[:2], expected)
    torch.testing.assert_close(found[2], dropped.detach().mT @ grad)


def test_dropping_every_weight_gives_zeros(generator):
    ours, _, inputs = problem(generator, SIZES["rows in blocks"], torch.float32, dropout=1.0)
    found = outcome(ours, inputs, ())
    assert not found[0].any() and all(part.isfinite().all() for part in found)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("few_features", [0, FEW_FEATURES])
def test_first_and_second_derivatives(generator, few_features, dropout, monkeypatch):
    monkeypatch.setattr("course_lib.fused._additive_function.FEW_FEATURES", few_features)
    monkeypatch.setattr(_additive_blocks, "CPU_BLOCK", 12)
    ours, _, inputs = problem(generator, (2, 3, 4, 3), torch.float64, dropout)
    lengths = torch.tensor([[0, 2, 4], [3, 1, 2]])

    def function(*tensors):
        torch.manual_seed(3)
        return ours(*tensors, valid_lens=lengths)

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("need_weights", [True, False])
def test_nothing_of_the_size_of_the_features_is_kept_for_backward(generator, need_weights):
    batch, n, m, num_hiddens = sizes = (2, 40, 60, 64)
    ours, _, inputs = problem(generator, sizes, torch.float32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        ours(*inputs, torch.tensor([60, 7]), need_weights=need_weights)
    assert max(tensor.numel() for tensor in kept) <= batch * max(n * m, m * num_hiddens)


def test_projected_keys_serve_many_steps_and_grow(generator):
    ours, taught, (queries, keys, values) = problem(generator, (3, 6, 90, 70), torch.float64)
    lengths = torch.tensor([90, 1, 33])
    expected = taught(queries, keys, values, lengths)
    projected = ours.project_keys(keys[:, :50])
    projected = torch.cat([projected, ours.project_keys(keys[:, 50:])], dim=1)
    steps = [ours.attend(queries[:, i : i + 1], projected, values, lengths) for i in range(6)]
    outputs = torch.cat(steps, dim=1)
    torch.testing.assert_close(outputs, expected)
    leaves = [queries, keys, values]
    torch.testing.assert_close(
        torch.autograd.grad(outputs.sum(), leaves), torch.autograd.grad(expected.sum(), leaves)
    )
    ours.attend(queries, projected, values, need_weights=False)
    assert ours.attention_weights is None


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            {"projected_keys": torch.zeros(2, 5, 9)},
            ValueError,
            r"num_hiddens\) = .*got \(2, 5, 9\)",
        ),
        (
            {"queries": torch.zeros(2, 3, 5)},
            ValueError,
            r"`w_q` must have shape .* = \(8, 5\); got \(8, 4\)",
        ),
        ({"values": torch.zeros(2, 4, 7)}, ValueError, r"`values` must have shape"),
        ({"valid_lens": torch.tensor([6, 1])}, ValueError, r"0..num_keys = 0..5; got 6"),
        ({"mask": torch.ones(3, 5)}, TypeError, r"`mask` must be a bool tensor"),
    ],
)
def test_a_step_refuses_what_does_not_fit(change, error, match):
    module = AdditiveAttention(4, 6, 8)
    arguments = {
        "queries": torch.zeros(2, 3, 4),
        "projected_keys": torch.zeros(2, 5, 8),
        "values": torch.zeros(2, 5, 7),
    }
    with pytest.raises(error, match=match):
        module.attend(**arguments | change)
    with pytest.raises(ValueError, match=r"`keys` must have shape .*key_size\)"):
        module.project_keys(torch.zeros(2, 6))
    with pytest.raises(ValueError, match=r"`w_k` must have shape .* = \(8, 5\); got \(8, 6\)"):
        module.project_keys(torch.zeros(2, 3, 5))


def test_changing_a_mask_before_backward_is_an_error(generator):
    ours, _, inputs = problem(generator, SIZES["rows in blocks"], torch.float32)
    lengths = torch.tensor([5, 6, 7])
    outputs = ours(*inputs, lengths)
    lengths += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(generator, dtype):
    ours, taught, inputs = problem(generator, SIZES["rows in blocks"], torch.float32)
    halves = [part.detach().to(dtype).requires_grad_() for part in inputs]
    found = outcome(ours.to(dtype), halves, ())
    assert {part.dtype for part in found} == {dtype}
    for one, other in zip(found, outcome(taught, inputs, ()), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["small", "rows in blocks"])
def test_autocast_gives_the_dtype_taught(generator, name):
    ours, taught, inputs = problem(generator, SIZES[name], torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = ours(*inputs), taught(*inputs)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in [*inputs, *ours.parameters()])


@pytest.mark.parametrize("name", ["small", "items in one block"])
def test_func_transforms_take_the_formula(generator, name):
    ours, taught, inputs = problem(generator, SIZES[name], torch.float64)
    assert (math.prod(SIZES[name]) <= FEW_FEATURES) == (name == "small")
    found, expected = (
        torch.func.grad(lambda q, m=m: m(q, *inputs[1:]).square().sum())(inputs[0])
        for m in (ours, taught)
    )
    torch.testing.assert_close(found, expected)


def test_long_problems_stay_small_in_memory():
    """The taught form needs about 3 GB here; this one takes less than 100 MB."""
    code = """
import torch
from course_lib.benchmarks.memory import status
from course_lib.fused import AdditiveAttention
module = AdditiveAttention(8, 8, 256)
inputs = [torch.randn(1, 1024, 8, requires_grad=True) for _ in range(3)]
module(*inputs, torch.tensor([40]), need_weights=False).sum().backward()
before = status("VmHWM")
module(*inputs, torch.tensor([1024]), need_weights=False).sum().backward()
print((status("VmHWM") - before) / 1e6)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100


@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated")  # by dynamo itself
@pytest.mark.parametrize(("scale", "num_hiddens"), [(1.0, 16), (1.0, 15), (60.0, 16), (5000.0, 15)])
def test_compiled_gradients_are_those_taught_on_both_sides_of_the_guard(
    generator, plain_import, scale, num_hiddens
):
    lesson = plain_import("course_lib.fused.additive_attention")
    _, taught, inputs = problem(generator, (2, 9, 11, num_hiddens), torch.float64, scale=scale)
    module = lesson.AdditiveAttention(4, 6, num_hiddens).double()
    module.load_state_dict(taught.state_dict())
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    lengths = torch.tensor([0, 7])
    outputs, grads = compiled(*inputs, lengths), []
    for found in (outputs, taught(*inputs, lengths)):
        grads.append(torch.autograd.grad(found.square().sum(), [inputs[0], inputs[1], inputs[2]]))
    torch.testing.assert_close(outputs, taught(*inputs, lengths))
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("block", [270 * 50, 270 * 200])
def test_a_step_without_gradients_walks_over_blocks_of_keys_and_of_items(
    generator, monkeypatch, block
):
    monkeypatch.setattr(_additive_blocks, "CPU_BLOCK", block)
    ours, taught, inputs = problem(generator, (3, 1, 90, 270), torch.float64)
    lengths = torch.tensor([90, 0, 33])
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs, lengths), taught(*inputs, lengths))
    torch.testing.assert_close(ours.attention_weights, taught.attention_weights)
