"""`load_into_torch`: load the module's weights into torch's own module."""

import functools
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises.kit import Problems, call, like, mistake
from course_lib.exercises.multi_head.MultiHeadAttention import state_of
from course_lib.reference import Expected
from course_lib.reference import multi_head as oracle


def loaded(given, part="values", **changed: Any) -> Probe:
    options = {"num_heads": 2, "reference_bias": True, "change_afterwards": False}
    options |= {"training": False} | changed
    return call(*given.values(), names=given, by_name=options, part=part, scenario="load_weights")


def drawn(rng, *, bias=False) -> dict[str, Any]:
    sizes = {"queries": 4, "keys": 5, "values": 5}
    given = {name: tensor(rng.normal(0, 1.3, (2, size, 6))) for name, size in sizes.items()}
    state = state_of(rng, 6, bias=bias, scale=1.3)
    given |= {f"W_{n}": tensor(state[f"W_{n}.weight"]) for n in "qkvo"}
    return given | {f"b_{n}": tensor(state[f"W_{n}.bias"]) for n in "qkvo" if bias}


def problems(rng) -> Problems:
    eye, zeros = np.eye(2), np.zeros((2, 2))
    worked = {"queries": np.zeros((1, 1, 2)), "keys": np.zeros((1, 2, 2)), "values": eye[None]}
    worked |= {"W_q": zeros, "W_k": zeros, "W_v": 2 * eye, "W_o": 3 * eye}
    yield "The reference must project the values by W_v and the heads by W_o."
    yield loaded(worked, num_heads=1, reference_bias=False)
    yield (
        "A reference that has biases where `mha` has none must give the same outputs: its old "
        "biases must not stay."
    )
    yield loaded(drawn(rng))
    yield "The four biases must be loaded too."
    yield loaded(drawn(rng, bias=True))
    yield (
        "The parameters of the reference must still be trainable, and both modules must stay in "
        "the mode, train or eval, that they were in."
    )
    yield loaded(drawn(rng), "edges", reference_bias=False, training=True)
    yield "The weights must be copied: changing `mha` later must not change the reference."
    yield loaded(drawn(rng, bias=True), "edges", change_afterwards=True)
    yield loaded(drawn(rng), "edges", reference_bias=False, change_afterwards=True)


def _oracle(*args, **kwargs) -> Expected:
    names = ("queries", "keys", "values", *(f"{kind}_{n}" for kind in "Wb" for n in "qkvo"))
    given = dict(zip(names, args, strict=False)) | kwargs
    state = {f"W_{n}.weight": given[f"W_{n}"] for n in "qkvo"}
    state |= {f"W_{n}.bias": given[f"b_{n}"] for n in "qkvo" if "b_q" in given}
    found = oracle.multi_head_attention({"num_heads": given["num_heads"]}, state, *args[:3])
    names = [f"W_{n}.{kind}" for n in "qkvo" for kind in ("weight", "bias")]
    source = np.concatenate([state[name].ravel() for name in names if name in state])
    trainable = (4 if given["reference_bias"] else 2) if given["training"] else 0
    weights = found.attributes["attention_weights"]
    return Expected((found.outputs, weights, source, trainable, False))


def load(mha, reference, order, *, out_weight=True, out_bias=True, zeros=("in", "out")) -> None:
    """Load the layers in this order; `zeros` are the biases to replace that `mha` does not have."""
    layers = [getattr(mha, f"W_{part}") for part in order]
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        if out_weight:
            reference.out_proj.weight.copy_(mha.W_o.weight)
        if mha.W_o.bias is not None:
            reference.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
            if out_bias:
                reference.out_proj.bias.copy_(mha.W_o.bias)
        elif reference.in_proj_bias is not None:
            if "in" in zeros:
                reference.in_proj_bias.zero_()
            if "out" in zeros and out_bias:
                reference.out_proj.bias.zero_()


@mistake
def another_order(mha, reference, order="kqv") -> None:
    """`in_proj_weight` must hold W_q above W_k above W_v; yours are in another order.

    In which order does torch cut `in_proj_weight` into three?
    """
    load(mha, reference, order)


for order in ("qvk", "kvq", "vqk", "vkq"):
    like(another_order)(functools.partial(another_order, order=order))


@mistake
def output_forgotten(mha, reference) -> None:
    """You load the three input projections but not the output projection, or not its bias.

    Which parameters of `reference` does your code never set?
    """
    load(mha, reference, "qkv", out_weight=False)


@like(output_forgotten)
def output_bias_forgotten(mha, reference) -> None:
    load(mha, reference, "qkv", out_bias=False)


@mistake
def old_biases_left(mha, reference) -> None:
    """Where `mha` has no biases, the reference keeps its old ones, or some of them.

    Which parameters does `reference` have that `mha` does not?
    """
    load(mha, reference, "qkv", zeros=())


@like(old_biases_left)
def old_output_bias_left(mha, reference) -> None:
    load(mha, reference, "qkv", zeros=("in",))


@like(old_biases_left)
def all_old_biases_left(mha, reference) -> None:
    layers = mha.W_q, mha.W_k, mha.W_v
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        reference.out_proj.weight.copy_(mha.W_o.weight)


@mistake
def weights_transposed(mha, reference) -> None:
    """You transpose the weights. A linear layer of torch computes x W^T in both modules.

    What is the shape of `in_proj_weight`, and which of its rows are those of W_q?
    """
    load(mha, reference, "qkv")
    with torch.no_grad():
        weights = [layer.weight.T for layer in (mha.W_q, mha.W_k, mha.W_v)]
        reference.in_proj_weight.copy_(torch.cat(weights))
        reference.out_proj.weight.copy_(mha.W_o.weight.T)


@mistake
def weights_shared(mha, reference) -> None:
    """The two modules share a parameter's storage, so training one changes the other.

    Which of your lines assigns a parameter of `mha` instead of copying its numbers?
    """
    load(mha, reference, "qkv")
    reference.out_proj.weight = mha.W_o.weight


@like(weights_shared)
def weights_and_biases_shared(mha, reference) -> None:
    weights_shared(mha, reference)
    if mha.W_o.bias is not None:
        reference.out_proj.bias = mha.W_o.bias


@mistake
def reference_frozen(mha, reference) -> None:
    """After the call, the parameters of the reference do not require gradients.

    Which of your lines makes new parameters or calls `requires_grad_`?
    """
    load(mha, reference, "qkv")
    reference.requires_grad_(False)


@mistake
def mode_changed(mha, reference) -> None:
    """You change the mode (train or eval) of a module and do not restore it.

    Does copying weights depend on the mode?
    """
    load(mha, reference, "qkv")
    reference.eval()


EXERCISE = Exercise(
    points=3,
    minutes=20,
    difficulty=2,
    starred=True,
    returns=(
        Returned("outputs of the reference", "tensor", "float", ("batch", "n", "embed_dim")),
        Returned("attention weights", "tensor", "float", ("batch", "num_heads", "n", "m")),
        Returned("weights in mha", "tensor", "float"),
        Returned("number of trainable parameters of the reference", "int"),
        Returned("mode changed", "bool"),
    ),
    probes=problems,
    oracle=_oracle,
    hints=(
        "Print `{name: p.shape for name, p in reference.named_parameters()}`: four tensors "
        "against your four (or eight).",
        "Under `torch.no_grad()`, copy W_q, W_k, W_v stacked along axis 0 into `in_proj_weight`, "
        "W_o into `out_proj.weight`. Then the biases: copy them, or set them to 0 where the "
        "reference has some and `mha` has none.",
        "Begin without biases on both sides and compare the outputs of the two modules. Then the "
        "two odd cases: biases on one side and none on the other, and the other way round. "
        "`copy_` and `zero_` change a parameter in place, which is allowed only where no gradient "
        "is recorded.",
    ),
)
