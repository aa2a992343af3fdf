"""Answers to `ablate_head`."""

import contextlib

import torch

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


def part_of(model, layer):
    for module in model.blocks[layer].modules():
        if hasattr(module, "W_o") and hasattr(module, "num_heads"):
            return module
    raise LookupError("no part with W_o")


def columns_of(part, head):
    size = part.W_o.in_features // part.num_heads
    return slice(head * size, (head + 1) * size)


def zeroing(own):
    """A hook that puts zeros in the place of these features."""

    def hook(module, inputs):
        x = inputs[0].clone()
        x[..., own] = 0
        return x

    return hook


@right
@contextlib.contextmanager
def factor_in_a_hook(model, layer, head):
    part = part_of(model, layer)
    factor = torch.ones(part.num_heads, part.W_o.in_features // part.num_heads)
    factor[head] = 0.0
    factor = factor.flatten()
    hook = part.W_o.register_forward_pre_hook(lambda _, inputs: (inputs[0] * factor.to(inputs[0]),))
    try:
        yield part
    finally:
        hook.remove()


@right
class ClassOfThisSignature:
    def __init__(self, model, layer, head):
        self.part, self.head = part_of(model, layer), head

    def __enter__(self):
        hook = zeroing(columns_of(self.part, self.head))
        self.handle = self.part.W_o.register_forward_pre_hook(hook)
        return self

    def __exit__(self, *error):
        self.handle.remove()


@right
@contextlib.contextmanager
def share_taken_off_the_output(model, layer, head):
    part = part_of(model, layer)
    own = columns_of(part, head)

    def hook(module, inputs, output):
        return output - inputs[0][..., own] @ module.weight[:, own].mT

    with contextlib.ExitStack() as stack:
        stack.callback(part.W_o.register_forward_hook(hook).remove)
        yield


@contextlib.contextmanager
def stepwise(
    model,
    layer,
    head,
    *,
    features=columns_of,
    zero=lambda x, own: x.index_fill(-1, torch.arange(x.shape[-1])[own], 0.0),
    begin=lambda model: None,
    end=lambda handle, part: handle.remove(),
):
    """A right answer in steps; what follows changes one of them."""
    begin(model)
    part = part_of(model, layer)
    own = features(part, head)
    handle = part.W_o.register_forward_pre_hook(lambda _, inputs: zero(inputs[0], own))
    try:
        yield
    finally:
        end(handle, part)


but = wrong_in(stepwise)
written_into = but(
    "left_over", zero=lambda x, own: x.index_fill_(-1, torch.arange(x.shape[-1])[own], 0.0)
)
eval_mode = but("left_over", begin=lambda model: model.eval())
all_hooks_removed = but("left_over", end=lambda handle, part: part.W_o._forward_pre_hooks.clear())


@wrong("left_over")
@contextlib.contextmanager
def errors_suppressed(model, layer, head):
    with contextlib.suppress(Exception), stepwise(model, layer, head):
        yield


@wrong("not_as_requested")
def plain_generator(model, layer, head):
    with stepwise(model, layer, head):
        yield


@faulty("no finally", "every layer", "size of the output", "no gradient")
def with_faults(faults):
    @contextlib.contextmanager
    def ablate(model, layer, head):
        layers = range(len(model.blocks)) if "every layer" in faults else [layer]
        handles = []
        for part in [part_of(model, i) for i in layers]:
            wide = part.W_o.out_features if "size of the output" in faults else part.W_o.in_features
            size = wide // part.num_heads
            own = slice(head * size, (head + 1) * size)
            handles.append(part.W_o.register_forward_pre_hook(zeroing(own)))
        try:
            with torch.set_grad_enabled("no gradient" not in faults):
                yield
        except Exception:
            for handle in handles if "no finally" not in faults else []:
                handle.remove()
            raise
        for handle in handles:
            handle.remove()

    return ablate
