"""Lesson 06: load weights into torch's module, and make functions of a sequence to test."""

import torch

from course_lib.checks.observe.fake_device import Refused
from course_lib.checks.observe.scenarios import (
    BUILDERS,
    NotAsRequested,
    builder,
    scenario,
    without_last_digits,
)
from course_lib.exercises.multi_head.fixtures_functions import (
    SEQUENCE_FUNCTIONS,
    nudged,
    rounding,
)


@scenario
def load_weights(target, probe, args, kwargs):
    """Call `target(mha, reference)`, then return the torch module's results in five parts."""
    given = {**args, **kwargs}
    with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
        mha, reference = _modules_for_loading(given)
    mha.train(given["training"])
    reference.train(given["training"])
    target(mha, reference)
    changed = {mha.training, reference.training} != {given["training"]}
    source = torch.cat([p.detach().clone().flatten() for p in mha.parameters()])
    parameters = reference.parameters() if given["training"] else ()
    trainable = sum(p.requires_grad and p.is_leaf for p in parameters)
    if given["change_afterwards"]:
        with torch.no_grad():
            for parameter in mha.parameters():
                parameter.fill_(7.0)
    inputs = given["queries"], given["keys"], given["values"]
    try:
        outputs, weights = reference(*inputs, average_attn_weights=False)
    except Refused:
        raise
    except Exception as error:
        raise NotAsRequested(
            f"After your function, `reference` raises {type(error).__name__} when it is called: "
            f"{' '.join(str(error).split())}",
            "What are the shape and dtype of each parameter before and after your call?",
        ) from error
    return outputs, weights, source, trainable, changed


def _modules_for_loading(given):
    embed_dim, num_heads = given["queries"].shape[-1], given["num_heads"]
    like = {"dtype": given["queries"].dtype}
    mha, has_bias = torch.nn.Module(), "b_q" in given
    mha.embed_dim, mha.num_heads = embed_dim, num_heads
    reference = torch.nn.MultiheadAttention(
        embed_dim, num_heads, bias=given["reference_bias"], batch_first=True, **like
    )
    with torch.no_grad():
        for part in "qkvo":
            layer = torch.nn.Linear(embed_dim, embed_dim, bias=has_bias, **like)
            layer.weight.copy_(given[f"W_{part}"])
            if has_bias:
                layer.bias.copy_(given[f"b_{part}"])
            setattr(mha, f"W_{part}", layer)
        for parameter in reference.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    there = given["queries"].device
    return mha.eval().to(there), reference.eval().to(there)


@builder
def nudged_function(*, dtype, **options):
    """Return a function with a small error (`sequence_functions.nudged`)."""
    return nudged(**options)


for _name, _function in {**SEQUENCE_FUNCTIONS, "rounding": rounding}.items():
    BUILDERS[_name] = lambda *, dtype, f=_function: lambda x: without_last_digits(f(x))
