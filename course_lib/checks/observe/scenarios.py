"""Ways to drive a student's object, and arguments that must be made where they are used.

Runs beside the student's code: torch and NumPy only, no decision taken here. A probe names a
scenario (`Probe.scenario`) or a builder (`Built.name`) by its function's name.
"""

from collections.abc import Callable

import torch

from course_lib.checks.observe.fake_device import REFUSAL, Elsewhere
from course_lib.checks.observe.sequence_functions import SEQUENCE_FUNCTIONS, nudged, rounding

SCENARIOS: dict[str, Callable] = {}
BUILDERS: dict[str, Callable] = {}


def scenario(function: Callable) -> Callable:
    """Registers `function(target, probe, args, kwargs) -> result`."""
    SCENARIOS[function.__name__] = function
    return function


def builder(function: Callable) -> Callable:
    """Registers `function(*, device, dtype, **options) -> argument`."""
    BUILDERS[function.__name__] = function
    return function


@scenario
def call(target, probe, args, kwargs):
    """One plain call."""
    return target(*args.values(), **kwargs)


@scenario
def unscaled_attention(target, probe, args, kwargs):
    """Attention from an answer to `batched_scores` and one to `weighted_sum`, by name."""
    queries, keys, values = args.values()
    weights = torch.softmax(target["batched_scores"](queries, keys), dim=-1)
    return target["weighted_sum"](weights, values)


@scenario
def one_at_a_time(target, probe, args, kwargs):
    """`target(blocks)`, where each block comes once, is made when it is asked for, and is gone."""
    return target(block.clone() for block in args["blocks"])


@scenario
def apply_function(target, probe, args, kwargs):
    """`target.apply(...)` of a `torch.autograd.Function`, which takes no keywords."""
    return target.apply(*args.values(), *kwargs.values())


@scenario
def apply_function_twice(target, probe, args, kwargs):
    """`target.apply(...)`, and once more on other numbers before the backward pass of the first."""
    result = target.apply(*args.values(), *kwargs.values())
    others = [v.detach().flip(0) if torch.is_tensor(v) else v for v in args.values()]
    target.apply(*others, *kwargs.values())
    return result


@scenario
def between_calls(target, probe, args, kwargs):
    """One call, with calls on other numbers of the same shapes before and after it."""

    def other(value):
        return value.flip(0) if isinstance(value, torch.Tensor) and value.dim() else value

    others = [other(value) for value in args.values()]
    other_kwargs = {name: other(value) for name, value in kwargs.items()}
    target(*others, **other_kwargs)
    result = target(*args.values(), **kwargs)
    target(*others, **other_kwargs)
    return result


@scenario
def after_another_call(target, probe, args, kwargs):
    """One call, after one with other numbers of the same shapes."""
    first = {n: v.flip(0) if isinstance(v, torch.Tensor) else v for n, v in args.items()}
    target(*first.values(), **kwargs)
    return target(*args.values(), **kwargs)


@scenario
def after_a_shorter_call(target, probe, args, kwargs):
    """One call, after one without the last query and the last key, in lengths and masks as well.

    A module without parameters, which any size fits, first gets queries and keys that are narrower.
    """
    fits_any = isinstance(target, torch.nn.Module) and not list(target.parameters())

    def shorter(name, value):
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype == torch.bool:
            return value[..., :-1, :-1]
        if value.is_floating_point():
            narrower = fits_any and name in ("queries", "keys")
            return value[..., :-1, :-1] if narrower else value[..., :-1, :]
        return ((value if value.dim() == 1 else value[:, :-1]) - 1).clamp(min=0)

    target(
        *(shorter(name, value) for name, value in args.items()),
        **{name: shorter(name, value) for name, value in kwargs.items()},
    )
    return target(*args.values(), **kwargs)


@scenario
def among_other_calls(target, probe, args, kwargs):
    """One call of a module, between others that must not matter to it or to what it keeps.

    Before it, the module gets one key fewer and neither lengths nor a mask, then other numbers,
    lengths and masks of the same shapes; after it, a second module gets those.
    """

    def other(value):
        return value.flip(0) if torch.is_tensor(value) and value.dim() else value

    others = [other(value) for value in args.values()]
    other_kwargs = {name: other(value) for name, value in kwargs.items()}
    target(args["queries"], args["keys"][:, :-1], args["values"][:, :-1])
    target(*others, **other_kwargs)
    result = target(*args.values(), **kwargs)
    with torch.random.fork_rng(devices=[]):  # what we draw is not held against the answer
        second = type(target)(**probe.construct).to(args["queries"])
    second.load_state_dict(target.state_dict())
    second.train(target.training)(*others, **other_kwargs)
    return result


@scenario
def built_by_position(target, probe, args, kwargs):
    """One call of a module whose sizes were handed over by position, with the same weights."""
    with torch.random.fork_rng(devices=[]):  # what we draw is not held against the answer
        module = type(target)(*probe.construct.values()).to(args["queries"])
    module.load_state_dict(target.state_dict())
    result = module.train(target.training)(*args.values(), **kwargs)
    vars(target).update(vars(module))  # where the attributes are looked for
    return result


@scenario
def after_another_device(target, probe, args, kwargs):
    """One call, after one with all tensors on another device (`elsewhere`).

    A tensor that was made on the CPU mixes with them as little as with those of a GPU; whatever
    else fails there is let pass.
    """
    with Elsewhere() as device:
        moved = {n: device.moved(v) if torch.is_tensor(v) else v for n, v in args.items()}
        try:
            target(*moved.values(), **kwargs)
        except Exception as error:
            if REFUSAL in str(error):
                raise
    return target(*args.values(), **kwargs)


# What these give is a number about many calls, which no student has seen as a result.
STATISTICS = {"scatter", "same_seed_twice"}


@scenario
def scatter(target, probe, args, kwargs):
    """Standard deviation over mean of the results with 60 generators of different seeds."""
    results = []
    for repeat in range(60):
        generator = torch.Generator().manual_seed(1000 + repeat)
        results.append(float(target(*{**args, "generator": generator}.values(), **kwargs)))
    numbers = torch.tensor(results, dtype=torch.float64)
    return float(numbers.std() / numbers.mean().abs().clamp(min=1e-12))


@scenario
def same_seed_twice(target, probe, args, kwargs):
    """How far two results with equally seeded generators are apart."""
    twice = [{**args, "generator": torch.Generator().manual_seed(5)} for _ in range(2)]
    first, second = (float(target(*given.values(), **kwargs)) for given in twice)
    return abs(first - second)


@builder
def generator(*, seed, device, dtype):
    """A seeded torch generator."""
    return torch.Generator().manual_seed(seed)


@scenario
def entry(target, probe, args, kwargs):
    """What the dict that `target()` returns holds for `key`; "" where it holds nothing."""
    found = target()
    if isinstance(found, dict):
        return found.get(args["key"], "")
    return found if found is None else f"no dict: {type(found).__name__}"


@scenario
def ask_about_each(target, probe, args, kwargs):
    """What `target(object, ...)` says of `object_1`, ..., so that a constant is never right.

    Each but the first gets a copy of the inputs: what an answer writes into them is its own.
    """
    objects = [value for name, value in args.items() if name.startswith("object_")]
    rest = [value for name, value in args.items() if not name.startswith("object_")]
    copies = [[value.clone() for value in rest] for _ in objects[1:]]
    return tuple(
        target(each, *given, **kwargs) for each, given in zip(objects, [rest, *copies], strict=True)
    )


@scenario
def own_tests_on_own_module(answers, probe, args, kwargs):
    """What three tests of lesson 07 say of the same student's `Lookup`, and of three birds."""
    from course_lib.checks.observe.broken_modules import (
        build,  # lesson 07's; earlier bundles lack them
    )

    weights = [value for name, value in args.items() if name.startswith("weight_")]
    inputs = [value for name, value in args.items() if not name.startswith("weight_")]
    sizes = weights[0].shape[1], weights[1].shape[1], weights[0].shape[0]
    with torch.random.fork_rng(devices=[]):
        own = answers["Lookup"](*sizes).to(inputs[0]).eval()
    with torch.no_grad():
        own.W_q.weight.copy_(weights[0])
        own.W_k.weight.copy_(weights[1])
    tests = {
        "masking_equals_deleting": ("curlew", inputs),
        "keys_permutation_invariant": ("jacana", inputs[:3]),
        "batch_items_independent": ("fulmar", inputs),
    }
    like = {"device": inputs[0].device, "dtype": inputs[0].dtype}
    birds = {name: build(bird, sizes[0], 2, seed=7, **like) for name, (bird, _) in tests.items()}
    passed = [answers[name](own, *given) for name, (_, given) in tests.items()]
    caught = [not answers[name](birds[name], *given) for name, (_, given) in tests.items()]
    return *passed, all(caught)


@scenario
def load_weights(target, probe, args, kwargs):
    """`target(mha, reference)` fills a torch module; what that module then does, in five parts.

    Both modules are made of the tensors handed over: `W_q`, ..., optionally `b_q`, ...; the
    reference starts with other numbers everywhere. With `change_afterwards` the source is
    overwritten before the reference is used. With `training` both modules start in train mode, and
    the reference's trainable parameters are counted.
    """
    given = {**args, **kwargs}
    with torch.random.fork_rng(devices=[]):  # what we draw is not held against the answer
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
    outputs, weights = reference(*inputs, average_attn_weights=False)
    return outputs, weights, source, trainable, changed


def _modules_for_loading(given):
    like = {"device": given["queries"].device, "dtype": given["queries"].dtype}
    embed_dim, num_heads = given["queries"].shape[-1], given["num_heads"]
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
    return mha.eval(), reference.eval()


def _settled(outputs):
    """Outputs without their last digits, so that only `rounding` asks for a tolerance."""
    if outputs.dtype != torch.float64:
        return outputs
    return outputs + (outputs.round(decimals=9) - outputs).detach()


@builder
def specimen(*, name, device, dtype, training=False, **options):
    """A sound or broken attention of lesson 07, by name."""
    from course_lib.checks.observe.broken_modules import build

    module = build(name, device=device, dtype=dtype, **options).train(training)
    module.register_forward_hook(lambda module, inputs, outputs: _settled(outputs))
    return module


@builder
def nudged_function(*, device, dtype, **options):
    """A function that is off by a little where it should not be (`sequences.nudged`)."""
    return nudged(**options)


for _name, _function in {**SEQUENCE_FUNCTIONS, "rounding": rounding}.items():
    BUILDERS[_name] = lambda *, device, dtype, _function=_function: lambda x: _settled(_function(x))
