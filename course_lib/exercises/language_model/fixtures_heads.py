"""Lesson 10: a small language model whose heads an answer switches off and on again."""

import inspect

import torch
from torch import nn

from course_lib.checks.observe.scenarios import NotAsRequested, builder, scenario


class _Part(nn.Module):
    """Heads that average all positions so far, like attention with equal weights."""

    def __init__(self, num_heads, read, W_o, bias):
        super().__init__()
        self.num_heads, self.overwritten = num_heads, False
        self.read, self.W_o = _linear(read), _linear(W_o, bias)
        self.original = [weight.detach().clone() for weight in self.W_o.parameters()]

    def forward(self, x):
        so_far = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        heads = self.read(x).cumsum(1) / so_far[:, None]
        before = heads.detach().clone()
        outputs = self.W_o(heads)
        self.overwritten |= not torch.equal(heads, before)
        return outputs


class _Block(nn.Module):
    """A block that adds the output of a part, an attribute that may be nested ("mixer.heads")."""

    def __init__(self, name, **given):
        super().__init__()
        self.path, part = name, _Part(**given)
        first, *deeper = name.split(".")
        for step in reversed(deeper):
            part = nn.ModuleDict({step: part})
        self.add_module(first, part)

    def forward(self, x):
        return x + self.get_submodule(self.path)(x)


class _Model(nn.Module):
    def __init__(self, embedding, num_heads, layers):
        super().__init__()
        self.embedding = _parameter(embedding)
        self.blocks = nn.ModuleList(_Block(num_heads=num_heads, **layer) for layer in layers)

    def forward(self, tokens):
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x)
        return x @ self.embedding.mT


def _parameter(data):
    return nn.Parameter(torch.from_numpy(data.copy()))


def _linear(weight, bias=None):
    layer = nn.Linear(*reversed(weight.shape), bias=bias is not None)
    layer.weight = _parameter(weight)
    if bias is not None:
        layer.bias = _parameter(bias)
    return layer


@builder
def small_language_model(*, dtype, training=False, **given):
    """Return a model in use: with gradients, hooks, and a frozen first block."""
    with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
        model = _Model(**given).to(dtype=dtype).train(training)
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.5 + number)
    model.blocks[0].requires_grad_(False)
    for module in model.modules():
        if isinstance(module, _Part):
            module.W_o.register_forward_pre_hook(lambda module, inputs: None)
    return model


@scenario
def head_switched_off(target, probe, args, kwargs):
    """Return the model's output at a moment of `with target(...)`, and what it left changed."""
    if inspect.isgeneratorfunction(target):
        raise NotAsRequested(
            "Your function returns a generator, and `with` cannot use a generator directly.",
            "Which decorator in `contextlib` turns a function with a `yield` into a context "
            "manager?",
        )
    model, tokens, layer, head, *second = args.values()
    moment, first = kwargs["model_runs"], (layer, head)
    before, logits = _state_of(model), None
    if moment == "inside the second":  # after the first
        with target(model, *first):
            pass
        first = second
    came_out = False
    try:
        with target(model, *first):
            if moment == "inside both":
                with target(model, *second):
                    return _seen(model, tokens)
            if moment == "inside the outer, after the inner":
                with target(model, *second):
                    pass
            if moment == "inside, after a step of training":
                logits, changes = _seen(model, tokens, trained=True)
                if changes == _NOTHING:
                    logits = _after_a_step(model, tokens, logits, layer)
                return logits, changes
            if moment.startswith("inside"):
                return _seen(model, tokens)
            if "step from inside" in moment:
                logits = model(tokens)
            if "error" in moment:
                raise _Stopped("raised inside the with")
    except _Stopped:
        came_out = True
    if logits is not None:
        return _after_a_step(model, tokens, logits, layer), _NOTHING
    logits, changes = _seen(model, tokens, trained=True)
    if "error" in moment and not came_out:
        return logits, "an error raised inside the `with` does not propagate"
    if changes == _NOTHING:
        after = _state_of(model)
        changed = ", ".join(name for name in before if before[name] != after[name])
        changes = (
            f"after the `with`, parts of the model have changed: {changed}" if changed else _NOTHING
        )
        if "its hooks" in changes:
            kept = zip(before["its hooks"], after["its hooks"], strict=False)
            lost = any(not set(earlier) <= set(later) for earlier, later in kept)
            which = "one that it had before is gone" if lost else "one of yours is left"
            changes = changes.replace("its hooks", f"its hooks ({which})")
    return logits, changes


_NOTHING = "nothing"
WEIGHTS_CHANGED = "inside the `with`, you change the parameters of `W_o` instead of what it reads"


class _Stopped(Exception):
    """The exception that is raised inside a `with`."""


def _seen(model, tokens, trained=False):
    """Return logits after a call with fewer tokens, and what is wrong with them."""
    model(tokens[:1, :1])
    logits = model(tokens)
    if any(getattr(module, "overwritten", False) for module in model.modules()):
        return logits, "you change the heads' outputs in place"
    if any(_is_changed(module) for module in model.modules() if isinstance(module, _Part)):
        return logits, WEIGHTS_CHANGED
    if trained and not logits.requires_grad:
        return logits, "the logits have no autograd graph"
    return logits, _NOTHING


def _is_changed(part):
    now = [weight.cpu() for weight in part.W_o.parameters()]
    return len(now) != len(part.original) or not all(
        torch.equal(one, other.cpu()) for one, other in zip(now, part.original, strict=True)
    )


def _after_a_step(model, tokens, logits, layer):
    """Return the output after a step of the embedding and W_o, and restore these weights."""
    parts = (part for part in model.blocks[layer].modules() if isinstance(part, _Part))
    weights = [model.embedding, *(part.W_o.weight for part in parts)]
    weights = [weight for weight in weights if weight.requires_grad]
    gradients = torch.autograd.grad((logits**2).sum() / 2, weights, allow_unused=True)
    kept = [weight.detach().clone() for weight in weights]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.data -= 0.0 if gradient is None else 0.01 * gradient
    logits = model(tokens)
    for weight, before in zip(weights, kept, strict=True):
        weight.data.copy_(before)
    return logits


def _state_of(model):
    """Return the state that must be restored, by the name that a report uses."""
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return {
        "its hooks": [list(getattr(m, kind)) for m in modules.values() for kind in kinds],
        "its layers": list(modules.items()),
        "its parameters": {p: (name, p.tolist()) for name, p in parameters.items()},
        "its requires_grad": [p.requires_grad for p in parameters.values()],
        "its gradients": [
            p.grad if p.grad is None else p.grad.tolist() for p in model.parameters()
        ],
        "its training mode": [module.training for module in modules.values()],
    }
