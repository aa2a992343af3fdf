"""Answers to `load_into_torch`."""

import torch
from torch import nn

from course_lib.exercises.variants import faulty, right, wrong


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


@right
def new_parameters(mha, reference):
    parts = [mha.W_q, mha.W_k, mha.W_v]
    reference.in_proj_weight = nn.Parameter(torch.cat([p.weight.detach() for p in parts]))
    reference.out_proj.weight = nn.Parameter(mha.W_o.weight.detach().clone())
    if mha.W_o.bias is not None:
        reference.in_proj_bias = nn.Parameter(torch.cat([p.bias.detach() for p in parts]))
        reference.out_proj.bias = nn.Parameter(mha.W_o.bias.detach().clone())
    elif reference.in_proj_bias is not None:
        nn.init.zeros_(reference.in_proj_bias)
        nn.init.zeros_(reference.out_proj.bias)


def _copy(reference, weights, out):
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat(weights))
        reference.out_proj.weight.copy_(out)


def _bias(mha, reference):
    with torch.no_grad():
        if mha.W_q.bias is not None:
            stacked = torch.cat([mha.W_q.bias, mha.W_k.bias, mha.W_v.bias])
            reference.in_proj_bias.copy_(stacked)
            reference.out_proj.bias.copy_(mha.W_o.bias)
        elif reference.in_proj_bias is not None:
            reference.in_proj_bias.fill_(0)
            reference.out_proj.bias.fill_(0)


@wrong("order_kqv")
def keys_first(mha, reference):
    _copy(reference, [mha.W_k.weight, mha.W_q.weight, mha.W_v.weight], mha.W_o.weight)
    with torch.no_grad():
        if mha.W_q.bias is not None:
            stacked = torch.cat([mha.W_k.bias, mha.W_q.bias, mha.W_v.bias])
            reference.in_proj_bias.copy_(stacked)
            reference.out_proj.bias.copy_(mha.W_o.bias)
        elif reference.in_proj_bias is not None:
            reference.in_proj_bias.fill_(0)
            reference.out_proj.bias.fill_(0)


@wrong("transposed")
def all_transposed(mha, reference):
    weights = [mha.W_q.weight.t(), mha.W_k.weight.t(), mha.W_v.weight.t()]
    _copy(reference, weights, mha.W_o.weight.t())
    _bias(mha, reference)


@wrong("biases_never_touched")
def only_weights(mha, reference):
    _copy(reference, [mha.W_q.weight, mha.W_k.weight, mha.W_v.weight], mha.W_o.weight)


@wrong("old_biases_left")
def biases_if_any(mha, reference):
    only_weights(mha, reference)
    if mha.W_q.bias is not None:
        _bias(mha, reference)


@wrong("output_forgotten")
def only_the_inputs(mha, reference):
    with torch.no_grad():
        stacked = torch.cat([mha.W_q.weight, mha.W_k.weight, mha.W_v.weight])
        reference.in_proj_weight.copy_(stacked)
    _bias(mha, reference)


@wrong("nothing_loaded")
def not_strict(mha, reference):
    reference.load_state_dict(mha.state_dict(), strict=False)


@wrong()
def assumes_biases(mha, reference):
    only_weights(mha, reference)
    with torch.no_grad():
        stacked = torch.cat([mha.W_q.bias, mha.W_k.bias, mha.W_v.bias])
        reference.in_proj_bias.copy_(stacked)
        reference.out_proj.bias.copy_(mha.W_o.bias)


@wrong()
def assumes_the_reference_has_biases(mha, reference):
    only_weights(mha, reference)
    with torch.no_grad():
        reference.in_proj_bias.zero_()
        reference.out_proj.bias.zero_()


@wrong("raised")
def assigns_a_tensor(mha, reference):
    reference.in_proj_weight = torch.cat([mha.W_q.weight, mha.W_k.weight, mha.W_v.weight])


@wrong("shared")
def shares_the_output_layer(mha, reference):
    with torch.no_grad():
        stacked = torch.cat([mha.W_q.weight, mha.W_k.weight, mha.W_v.weight])
        reference.in_proj_weight.copy_(stacked)
    reference.out_proj.weight = mha.W_o.weight
    _bias(mha, reference)


@wrong("source_changed")
@torch.no_grad()
def empties_the_source(mha, reference):
    reference.in_proj_weight.copy_(torch.cat([mha.W_q.weight, mha.W_k.weight, mha.W_v.weight]))
    reference.out_proj.weight.copy_(mha.W_o.weight)
    if reference.in_proj_bias is not None:
        sources = [getattr(mha, f"W_{part}").bias for part in "qkvo"]
        own = [torch.zeros(mha.embed_dim) if bias is None else bias for bias in sources]
        reference.in_proj_bias.copy_(torch.cat(own[:3]))
        reference.out_proj.bias.copy_(own[3])
    mha.W_q.weight.zero_()


@wrong("input_forgotten")
@torch.no_grad()
def only_the_output(mha, reference):
    reference.out_proj.weight.copy_(mha.W_o.weight)


@wrong()
def left_in_eval_mode(mha, reference):
    mha.eval()
    reference.eval()
    through_data(mha, reference)


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
