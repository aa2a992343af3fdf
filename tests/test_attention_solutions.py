"""Properties of the solutions that no check tests.

A check compares numbers, gradients, dtypes, devices and side effects with the oracle's. It does not
see how solutions refuse bad input, compile, or agree with PyTorch's own layers.
"""

import inspect

import jaxtyping
import numpy as np
import pytest
import torch
from test_fused import normal
from torch import nn

from course_lib import attention as A
from course_lib.checks import exercises
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.observe.call import materialise
from course_lib.exercises import find


# ---------------------------------------------------------------- PyTorch
def filled(module):
    with torch.no_grad():
        for i, parameter in enumerate(module.double().parameters()):
            parameter.copy_(normal(100 + i, *parameter.shape))
    return module.eval()


def copied(theirs, ours, norms):
    """Return torch's layer with our network and norms."""
    pairs = [(theirs.linear1, ours.feed_forward[0]), (theirs.linear2, ours.feed_forward[2])]
    pairs += [(getattr(theirs, f"norm{i}"), getattr(ours, f"norm_{i}")) for i in norms]
    for layer, own in pairs:
        layer.load_state_dict(own.state_dict())
    return theirs


OPTIONS = {"dropout": 0.0, "norm_first": True, "batch_first": True, "dtype": torch.float64}
LENS = torch.tensor([3, 4, 1])
PADS = torch.arange(4) >= LENS[:, None]


def test_blocks_are_torchs_with_norm_first():
    block = filled(A.EncoderBlock(6, 2, 5))
    theirs = copied(nn.TransformerEncoderLayer(6, 2, 5, **OPTIONS), block, (1, 2))
    A.load_into_torch(block.attention, theirs.self_attn)
    x = normal(1, 3, 4, 6)
    torch.testing.assert_close(block(x, LENS), theirs(x, src_key_padding_mask=PADS))

    block = filled(A.DecoderBlock(6, 2, 5))
    theirs = copied(nn.TransformerDecoderLayer(6, 2, 5, **OPTIONS), block, (1, 2, 3))
    A.load_into_torch(block.cross_attention, theirs.multihead_attn)
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(block.self_attention.W_qkv.weight)
        theirs.self_attn.out_proj.weight.copy_(block.self_attention.W_o.weight)
        theirs.self_attn.in_proj_bias.zero_()
        theirs.self_attn.out_proj.bias.zero_()
    y, memory = normal(1, 3, 5, 6), normal(2, 3, 4, 6)
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(y, memory, tgt_mask=ahead, memory_key_padding_mask=PADS)
    torch.testing.assert_close(block(y, memory, LENS), expected)


# ---------------------------------------------------------------- compilers
X = normal(1, 2, 3, 6)
MASKS = torch.tensor([1, 3]), normal(3, 2, 3, 3) < 0.5
COMPILED = {
    "masked_softmax": ((), (X @ X.mT, *MASKS)),
    "AdditiveAttention": ((6, 6, 5), (X, X, X, *MASKS)),
    "DotProductAttention": ((0.5,), (X, X, X, *MASKS)),
    "MultiHeadAttention": ((6, 2), (X, X, X, *MASKS)),
    "CausalSelfAttention": ((6, 2), (X, MASKS[0])),
    "EncoderBlock": ((6, 2, 3), (X, MASKS[0])),
    "DecoderBlock": ((6, 2, 3), (X, X.flip(1), MASKS[0])),
}


@pytest.fixture
def untyped(monkeypatch):
    """Switch off the checks of types, and forget what dynamo counts by code, which is equal."""
    torch._dynamo.reset()
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.slow
@pytest.mark.usefixtures("untyped")
@pytest.mark.filterwarnings("ignore:The tensor attributes? self.*attention_weights")
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
@pytest.mark.parametrize("name", COMPILED)
def test_a_solution_compiles_as_one_graph_and_exports(name):
    sizes, inputs = COMPILED[name]
    solution = getattr(A, name)
    if isinstance(solution, type):
        solution = module = filled(solution(*sizes))
    else:
        module = nn.Module()
        module.forward = solution
    compiled = torch.compile(solution, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), solution(*inputs))
    exported = torch.export.export(module, inputs).module()
    torch.testing.assert_close(exported(*inputs), solution(*inputs))


# ---------------------------------------------------------------- bad input
def first_problem(name, dtype="float64"):
    """Return a solution and the arguments of the first plain problem that calls it, or None."""
    probes = [probe for probe, _ in prepare(find(name), "kinds") if probe.part == "values"]
    probe = next((p for p in probes if p.scenario in ("call", "apply_function")), None)
    if probe is None:
        return None
    solution = getattr(A, name)
    if probe.construct is not None:
        sizes = {key: materialise(value) for key, value in probe.construct.items()}
        torch.manual_seed(0)
        solution = solution(**sizes).to(getattr(torch, dtype)).eval()
    solution = solution.apply if probe.scenario == "apply_function" else solution
    given = {**probe.args, **probe.kwargs}
    return solution, {key: materialise(value, dtype=dtype) for key, value in given.items()}


NO_ARRAYS = ("causal_mask", "attention_cost", "positional_encoding", "shift_matrix", "pad_batch")
NO_ARRAYS += ("score_variance", "combine_masks")  # WRONG_TYPES has the last one's refusal
ANY_AXES = ("most_attended", "stable_softmax", "length_mask", "additive_mask", "rotary_embedding")
CALLED = [name for name in exercises() if name not in NO_ARRAYS and first_problem(name)]
TENSORS = [
    name
    for name in CALLED
    if any(torch.is_tensor(x) and x.is_floating_point() for x in first_problem(name)[1].values())
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", TENSORS)
def test_half_precision_is_kept_and_stays_near(name, dtype):
    results = []
    for each in ("float64", dtype):
        solution, given = first_problem(name, each)
        found = solution(*given.values())
        results.append(found[0] if isinstance(found, tuple) else found)
    if isinstance(results[1], torch.Tensor) and results[1].is_floating_point():
        assert results[1].dtype == getattr(torch, dtype)
        torch.testing.assert_close(results[1].double(), results[0], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", CALLED)
def test_arrays_masks_and_lengths_of_another_kind_or_shape_are_refused_by_name(name):
    solution, given = first_problem(name)
    num_refused = 0

    def refused(error, message, **changed):
        nonlocal num_refused
        options = {key: value for key, value in changed.items() if key not in given}
        with pytest.raises(error, match=message):
            solution(*((given | changed)[key] for key in given), **options)
        num_refused += 1

    for key, value in given.items():
        if isinstance(value, torch.Tensor | np.ndarray):
            refused(TypeError, f"`{key}` must be an? .*; got list", **{key: value.tolist()})
            if name not in ANY_AXES and key != "scores":  # the message may name the next array
                shape = r"` must have shape \(.*; got \("
                refused(ValueError, shape, **{key: value[None, None, None]})
    taken = inspect.signature(getattr(getattr(A, name), "forward", getattr(A, name))).parameters
    if "mask" in taken and name != "additive_mask":
        mask = np.ones((7, 7)) if name == "numpy_attention" else torch.ones(7, 7)
        refused(TypeError, "`mask` must be a bool", mask=mask)
        refused(ValueError, "`mask` must be broadcastable to", mask=mask > 0)
    if "valid_lens" in taken:
        lens = torch.full(next(iter(given.values())).shape[:1], 99)
        refused(TypeError, "`valid_lens` must be an integer tensor", valid_lens=lens / 2)
        refused(ValueError, "`valid_lens` must", valid_lens=lens)
    assert num_refused, f"{name} takes no arrays: add it to NO_ARRAYS"


def f(*shape):
    return torch.ones(shape)


def b(*shape):
    return torch.ones(shape, dtype=torch.bool)


def i(*numbers):
    return torch.tensor(numbers)


def n(*shape):
    return np.ones(shape)


Q, K, V = f(2, 3, 4), f(2, 5, 4), f(2, 5, 6)
IDS = torch.ones(2, 3, dtype=torch.long)
SEQUENCE = f(2, 3, 6)
attend = A.scaled_dot_product_attention
causal = A.CausalSelfAttention(4, 2)
multi_head = A.MultiHeadAttention(6, 2)
sound = A.DotProductAttention()

WRONG_TYPES = [
    (lambda: A.combine_masks(None, f(2)), "`masks` must be a bool tensor"),
    (lambda: A.numpy_attention(n(3, 4), n(5, 4), n(5, 6), b(3, 5)), "got Tensor of torch.bool"),
    (lambda: A.is_permutation_equivariant(torch.tanh, n(2, 3, 6)), "`x` must be a float tensor"),
]


WRONG_VALUES = [
    # shapes that do not fit, in most cases to another argument
    (lambda: A.squared_distances(f(3, 4), f(5, 3)), r"`keys` must have shape .*got \(5, 3\)"),
    (lambda: A.bmm(f(2, 3, 4), f(1, 4, 6)), r"`b` must .*\(\*batch, k, m\); got \(1, 4, 6\)"),
    (lambda: attend(Q, K[..., :3], V), r"`keys` must .*got \(2, 5, 3\)"),
    # the body that a lesson shows refuses flat values itself
    (lambda: inspect.unwrap(A.kernel_pooling)(f(3, 4), f(5, 4), f(5), 1.0), r"v\); got \(5,\)"),
    (lambda: A.masked_softmax(Q, i(1, 5)), r"must lie in 0\.\.num_keys = 0\.\.4; got 5"),
    (lambda: A.masked_softmax(Q, i(1, 2, 3)), r"\(batch,\) = \(2,\) or .* = \(2, 3\); got \(3,\)"),
    (lambda: A.masked_softmax(Q[0], i(1, 2, 3)), "leading batch dimension.*give a `mask` instead"),
    (lambda: A.AdditiveAttention(4, 6, 8, 1.5), "between 0 and 1"),
    (lambda: A.split_heads(SEQUENCE, 0), ">= 1 and divide embed_dim = 6; got 0"),
    (lambda: A.MultiHeadAttention(6, 4), ">= 1 and divide embed_dim = 6; got 4"),
    (lambda: multi_head(*[SEQUENCE] * 3, mask=b(2, 4, 3, 3)), r"= \(2, 2, 3, 3\); got \(2, 4"),
    (lambda: A.is_causal(torch.tanh, f(3, 6)), "`x` must have shape"),
    (lambda: A.shift_matrix(1, 5), "`embed_dim` must be even and >= 2; got 5"),
    (lambda: A.batch_items_independent(sound, Q, K, V[:, :3], i(3, 1)), "`values` must have"),
    (lambda: A.LanguageModel(9, [causal], f(12, 4), 5)(IDS.repeat(1, 5)), "At most 12 .* got 15"),
    (lambda: A.KVCache().append(f(2, 3, 4, 5), f(2, 3, 1, 5)), "`values` must have shape"),
    (lambda: A.rotary_embedding(f(2, 5)), "`x` must have an even number of features; got 5"),
    (lambda: A.grouped_query_attention(f(1, 5, 2, 3), *[f(1, 2, 4, 3)] * 2), "heads = 5; got 2"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        *[(TypeError, *case) for case in WRONG_TYPES],
        *[(ValueError, *case) for case in WRONG_VALUES],
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_rule(error, call, message):
    with pytest.raises(error, match=message):
        call()


def test_a_call_is_checked_unless_one_like_it_passed():
    A.length_mask(torch.tensor([2]), 3)
    with pytest.raises(ValueError, match="valid_lens"):
        A.length_mask(torch.tensor([9]), 3)
    scores, mask = torch.zeros(1, 2, 4, 4), torch.ones(1, 2, 4, 4, dtype=torch.bool)
    for given in ({}, {"mask": mask}) * 2:
        A.masked_softmax(scores, **given)
    for wrong in (mask[:, :, :, :3], mask.expand(2, 2, 4, 4), mask.float()):
        with pytest.raises((ValueError, TypeError), match="mask"):
            A.masked_softmax(scores, mask=wrong)
    x = torch.zeros(1, 4, 8)
    A.MultiHeadAttention(8, 2)(x, x, x, mask=mask)
    with pytest.raises(ValueError, match="mask"):
        A.MultiHeadAttention(8, 4)(x, x, x, mask=mask)
