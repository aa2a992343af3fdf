"""Lesson 06: load the module's weights into torch's own module."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import Case, Given, case, in_steps, mistake
from course_lib.exercises.multi_head.MultiHeadAttention import state_of
from course_lib.reference import Expected
from course_lib.reference import multi_head as oracle


def _probe(name, args, part="values", **changed) -> Case:
    options = {"num_heads": 2, "reference_bias": True, "change_afterwards": False}
    options |= {"training": False} | changed
    return case(name, part=part, args=args, by_name=options, scenario="load_weights")


def _drawn(rng, bias=False) -> Given:
    sizes = {"queries": 4, "keys": 5, "values": 5}
    args = {name: tensor(rng.normal(0, 1.3, (2, size, 6))) for name, size in sizes.items()}
    state = state_of(rng, 6, bias=bias, scale=1.3)
    args |= {f"W_{n}": tensor(state[f"W_{n}.weight"]) for n in "qkvo"}
    return args | {f"b_{n}": tensor(state[f"W_{n}.bias"]) for n in "qkvo" if bias}


def _loading_probes(rng) -> list[Probe]:
    eye, zeros = np.eye(2), np.zeros((2, 2))
    worked = {"queries": np.zeros((1, 1, 2)), "keys": np.zeros((1, 2, 2)), "values": eye[None]}
    worked |= {"W_q": zeros, "W_k": zeros, "W_v": 2 * eye, "W_o": 3 * eye}
    copied = "The weights must be copied: changing `mha` later must not change the reference."
    edge = functools.partial(_probe, part="edges")
    alone: Given = {"reference_bias": False}
    return [
        _probe("worked_number", worked, num_heads=1, **alone).says(
            "The reference must project the values by W_v and the heads by W_o."
        ),
        _probe("reference_with_biases", _drawn(rng)).says(
            "A reference that has biases where `mha` has none must give the same outputs: its old "
            "biases must not stay."
        ),
        _probe("both_with_biases", _drawn(rng, bias=True)).says(
            "The four biases must be loaded too."
        ),
        edge("still_trained", _drawn(rng), **alone, training=True).says(
            "The parameters of the reference must still be trainable, and both modules must stay "
            "in the mode, train or eval, that they were in."
        ),
        edge("changed_afterwards", _drawn(rng, bias=True), change_afterwards=True).says(copied),
        edge("changed_afterwards_without_bias", _drawn(rng), **alone, change_afterwards=True).says(
            copied
        ),
    ]


def _loading_oracle(*args, **kwargs) -> Expected:
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


@in_steps(
    order="qkv",
    change=lambda w: w,
    out=True,
    out_bias=True,
    zeros=True,
    after=lambda mha, reference: None,
)
def _loader(order, change, out, out_bias, zeros, after) -> Callable:
    """Return a wrong `load_into_torch`: `zeros` replace biases that `mha` does not have."""

    def load_into_torch(mha, reference) -> None:
        layers = [getattr(mha, f"W_{part}") for part in order]
        with torch.no_grad():
            reference.in_proj_weight.copy_(torch.cat([change(x.weight) for x in layers]))
            if out:
                reference.out_proj.weight.copy_(change(mha.W_o.weight))
            if mha.W_o.bias is not None:
                reference.in_proj_bias.copy_(torch.cat([x.bias for x in layers]))
                if out_bias:
                    reference.out_proj.bias.copy_(mha.W_o.bias)
            elif zeros and reference.in_proj_bias is not None:
                reference.in_proj_bias.zero_()
                if out_bias and zeros != "in_proj_bias":
                    reference.out_proj.bias.zero_()
        after(mha, reference)

    return load_into_torch


def _shared(mha, reference) -> None:
    reference.out_proj.weight = mha.W_o.weight


def _all_shared(mha, reference) -> None:
    _shared(mha, reference)
    if mha.W_o.bias is not None:
        reference.out_proj.bias = mha.W_o.bias


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
    probes=_loading_probes,
    oracle=_loading_oracle,
    mistakes=(
        mistake(
            "another_order", _loader("kqv"), twins=tuple(map(_loader, ("qvk", "kvq", "vqk", "vkq")))
        ).says(
            "`in_proj_weight` must hold W_q above W_k above W_v; yours are in another order.",
            "In which order does torch cut `in_proj_weight` into three?",
        ),
        mistake("output_forgotten", _loader(out=False), twins=(_loader(out_bias=False),)).says(
            "You load the three input projections but not the output projection, or not its bias.",
            "Which parameters of `reference` does your code never set?",
        ),
        mistake(
            "old_biases_left", _loader(zeros=False), twins=(_loader(zeros="in_proj_bias"),)
        ).says(
            "Where `mha` has no biases, the reference keeps its old ones, or some of them.",
            "Which parameters does `reference` have that `mha` does not?",
        ),
        mistake("weights_shared", _loader(after=_shared), twins=(_loader(after=_all_shared),)).says(
            "The two modules share a parameter's storage, so training one changes the other.",
            "Which of your lines assigns a parameter of `mha` instead of copying its numbers?",
        ),
        mistake(
            "reference_frozen",
            _loader(after=lambda mha, reference: reference.requires_grad_(False)),
        ).says(
            "After the call, the parameters of the reference do not require gradients.",
            "Which of your lines makes new parameters or calls `requires_grad_`?",
        ),
        mistake(
            "mode_changed",
            _loader(after=lambda mha, reference: reference.eval()),
            twins=(_loader(after=lambda mha, reference: mha.eval()),),
        ).says(
            "You change the mode (train or eval) of a module and do not restore it.",
            "Does copying weights depend on the mode?",
        ),
    ),
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
