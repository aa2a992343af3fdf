"""Lesson 10: a small language model whose heads are switched off, and what is left of that."""

from collections.abc import Callable

import torch
from torch import nn

from course_lib.checks.observe.scenarios import builder, scenario


class _Part(nn.Module):
    """Heads that each average what came so far, like attention with equal weights."""

    def __init__(self, num_heads, read, W_o, bias):
        super().__init__()
        self.num_heads, self.overwritten = num_heads, False
        self.read, self.W_o = _linear(read), _linear(W_o, bias)

    def forward(self, x):
        so_far = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        heads = self.read(x).cumsum(1) / so_far[:, None]
        before = heads.detach().clone()
        outputs = self.W_o(heads)
        self.overwritten |= not torch.equal(heads, before)
        return outputs


class _Block(nn.Module):
    """Adds what its part makes, which is the attribute of that name, or deeper ("mixer.heads")."""

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
    with torch.random.fork_rng(devices=[]):  # what we draw is not held against the answer
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
    """Return the model's output at one moment of `with target(model, layer, head)`.

    A second head is switched off inside the first `with`; for the moment "inside the second",
    after it.

    Returns:
        The logits, and in words what is not as it was, "nothing" if all is.
    """
    given = {**args, **kwargs}
    model, tokens, moment = given["model"], given["tokens"], given["moment"]
    heads = [(given["layer"], given["head"])]
    if "second_head" in given:
        heads.append((given["second_layer"], given["second_head"]))
    before, found = _state_of(model), []

    def look(now):
        if now == moment:
            found.append(_seen(model, tokens, now, given["layer"]))

    if moment == "after the with, after a step from inside":
        with target(model, *heads[0]):
            logits = model(tokens)
        return _after_a_step(model, tokens, logits, given["layer"]), _NOTHING
    came_out = _through(target, model, heads, moment, look)
    if not moment.startswith("after the with"):
        return found[0]
    logits, changes = _seen(model, tokens, moment, given["layer"])
    if "error" in moment and not came_out:
        return logits, "the error raised inside, which does not come out"
    return logits, changes if changes != _NOTHING else _changed(before, _state_of(model))


_NOTHING = "nothing"


class _Stopped(Exception):
    """What is raised inside a `with`."""


def _through(target, model, heads, moment, look: Callable[[str], None]) -> bool:
    """Enter one `with` or two and look; return whether an error raised inside left them."""
    (first, *others) = heads
    apart = moment == "inside the second"
    try:
        with target(model, *first):
            look("inside")
            look("inside, after a step of training")
            for second in [] if apart else others:
                with target(model, *second):
                    look("inside both")
                look("inside the outer, after the inner")
            if "error" in moment:
                raise _Stopped("raised inside the with")
    except _Stopped:
        return True
    for second in others if apart else []:
        with target(model, *second):
            look("inside the second")
    return False


def _seen(model, tokens, moment, layer):
    """Return logits after a call with fewer tokens, or after a training step if that is meant."""
    model(tokens[:1, :1])
    logits = model(tokens)
    if any(getattr(module, "overwritten", False) for module in model.modules()):
        return logits, "the heads' own tensor, which you overwrite"
    if moment.startswith("inside") and "step" not in moment:
        return logits, _NOTHING
    if not logits.requires_grad:
        return logits, "its logits, which have no graph for gradients"
    if "step" in moment:
        logits = _after_a_step(model, tokens, logits, layer)
    return logits, _NOTHING


def _after_a_step(model, tokens, logits, layer):
    """Return the model's output after one gradient step, and restore its weights.

    The step changes the embedding, and W_o of the layer unless that is frozen.
    """
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


class _Same:
    """Equal to another of the same object."""

    def __init__(self, thing):
        self.thing = thing

    def __eq__(self, other):
        return self.thing is other.thing


def _state_of(model):
    """Return the state that must be restored, by the name that a report uses."""
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return {
        "its hooks": [list(getattr(m, kind)) for m in modules.values() for kind in kinds],
        "its layers": [(name, _Same(module)) for name, module in modules.items()],
        "its parameters": [(name, _Same(p), p.tolist()) for name, p in parameters.items()],
        "requires_grad": [p.requires_grad for p in parameters.values()],
        "the gradients": [
            p.grad if p.grad is None else p.grad.tolist() for p in model.parameters()
        ],
        "its training mode": [module.training for module in modules.values()],
    }


def _changed(before, after):
    return ", ".join(name for name in before if before[name] != after[name]) or _NOTHING
