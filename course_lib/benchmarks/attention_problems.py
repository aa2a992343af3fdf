"""What `course bench attention` computes: each problem with all who can solve it.

A candidate is made from the problem's inputs by one function and is called without arguments;
all of a problem start from the same numbers and must agree with its first, the textbook form.
Names of candidates: textbook; taught, course_lib.attention; fast, course_lib.fused without
weights; compiled, torch.compile of fast; formula, torch.compile of taught; torch and flex, what
PyTorch itself offers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from course_lib.benchmarks.attention_measure import Work

PASSES = ("forward", "both")
Call = Callable[[], Tensor]
Maker = Callable[[dict], Call]
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Problem:
    """One computation at one size.

    Attributes:
        name: of the kind and the size.
        size: teaching, training or long.
        inputs: makes named tensors with a generator on a device; those in `leaves` get gradients.
        candidates: by name, how to make each of them from the inputs.
        work: what forward alone, and what both passes need at least.
        passes: which of `PASSES` to measure.
        quick: whether `--quick` measures it.
    """

    name: str
    size: str
    inputs: Callable[[torch.Generator], dict]
    candidates: dict[str, Maker]
    work: dict[str, Work] = field(default_factory=dict)
    passes: tuple[str, ...] = PASSES
    quick: bool = False


def step(problem: Problem, candidate: str, passes: str, device: str = "cpu") -> Callable:
    """Returns one call of a candidate, forward alone or with backward, on fresh inputs."""
    generator = torch.Generator(device).manual_seed(0)
    torch.manual_seed(0)  # of the weights of modules
    inputs = problem.inputs(generator)
    forward = problem.candidates[candidate](inputs)
    if passes == "forward":
        return torch.no_grad()(forward)
    leaves = [inputs[name].requires_grad_() for name in inputs["leaves"]]
    leaves += inputs.get("parameters", [])
    grads = []  # of the outputs, whose shape the first call tells

    def both() -> Tensor:
        for leaf in leaves:
            leaf.grad = None
        outputs = forward()
        if not grads:
            grads.append(torch.randn(outputs.shape, generator=generator, device=device))
        outputs.backward(*grads)
        return outputs

    return both


def same_weights(inputs: dict, module: Module) -> Module:
    """Gives a module the weights in `inputs["state"]`, and its parameters a place there."""
    module = module.to(inputs["queries"].device)
    module.load_state_dict(inputs["state"])
    inputs["parameters"] = list(module.parameters())
    return module


def compiled(maker: Maker) -> Maker:
    """The candidate through `torch.compile`, as one graph of fixed shapes."""
    return lambda inputs: torch.compile(maker(inputs), fullgraph=True, dynamic=False)


def tensors(generator, leaves, **shapes) -> dict:
    """Normal numbers by name, and which of them get gradients."""
    made = {
        name: torch.randn(shape, generator=generator, device=generator.device)
        for name, shape in shapes.items()
    }
    return {**made, "leaves": leaves}
