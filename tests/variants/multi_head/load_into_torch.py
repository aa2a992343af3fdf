"""Answers to `load_into_torch`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def through_data(mha, reference):
    reference.in_proj_weight.data = torch.cat(
        [mha.W_q.weight.data, mha.W_k.weight.data, mha.W_v.weight.data]
    )
    reference.out_proj.weight.data = mha.W_o.weight.data.clone()
    if reference.in_proj_bias is not None:
        if mha.W_q.bias is None:
            reference.in_proj_bias.data = torch.zeros_like(reference.in_proj_bias)
            reference.out_proj.bias.data = torch.zeros_like(reference.out_proj.bias)
        else:
            parts = [mha.W_q.bias.data, mha.W_k.bias.data, mha.W_v.bias.data]
            reference.in_proj_bias.data = torch.cat(parts)
            reference.out_proj.bias.data = mha.W_o.bias.data.clone()


@right
def state_dict(mha, reference):
    ours, theirs = mha.state_dict(), reference.state_dict()
    theirs["in_proj_weight"] = torch.cat([ours[f"W_{n}.weight"] for n in "qkv"])
    theirs["out_proj.weight"] = ours["W_o.weight"]
    if "in_proj_bias" in theirs:
        zero = torch.zeros_like(theirs["out_proj.bias"])
        theirs["in_proj_bias"] = torch.cat([ours.get(f"W_{n}.bias", zero) for n in "qkv"])
        theirs["out_proj.bias"] = ours.get("W_o.bias", zero)
    reference.load_state_dict(theirs)


@right
@torch.no_grad()
def slice_by_slice(mha, reference):
    size = mha.W_q.weight.shape[0]
    for i, layer in enumerate((mha.W_q, mha.W_k, mha.W_v)):
        rows = slice(i * size, (i + 1) * size)
        reference.in_proj_weight[rows] = layer.weight
        if reference.in_proj_bias is not None:
            reference.in_proj_bias[rows] = 0.0 if layer.bias is None else layer.bias
    reference.out_proj.weight[:] = mha.W_o.weight
    if reference.out_proj.bias is not None:
        reference.out_proj.bias[:] = 0.0 if mha.W_o.bias is None else mha.W_o.bias


@torch.no_grad()
def _copy(mha, reference, order="qkv", change=lambda x: x, weights=True, out=True, bias=True):
    layers = [getattr(mha, f"W_{name}") for name in order]
    if weights:
        reference.in_proj_weight.copy_(torch.cat([change(layer.weight) for layer in layers]))
    if out:
        reference.out_proj.weight.copy_(change(mha.W_o.weight))
    if bias and mha.W_q.bias is not None:
        reference.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        reference.out_proj.bias.copy_(mha.W_o.bias)
    elif bias and reference.in_proj_bias is not None:
        reference.in_proj_bias.fill_(0)
        reference.out_proj.bias.fill_(0)


@wrong()
@torch.no_grad()
def empties_the_source(mha, reference):
    _copy(mha, reference)
    mha.W_q.weight.zero_()


@faulty("biases left", "frozen", "shared")
def with_faults(faults):
    def load(mha, reference):
        before = [
            p.detach().clone()
            for p in (reference.in_proj_bias, reference.out_proj.bias)
            if p is not None
        ]
        through_data(mha, reference)
        with torch.no_grad():
            if "biases left" in faults and before:
                reference.in_proj_bias.copy_(before[0])
                reference.out_proj.bias.copy_(before[1])
        if "shared" in faults:
            reference.out_proj.weight.data = mha.W_o.weight.data
        if "frozen" in faults:
            reference.requires_grad_(False)

    return load
