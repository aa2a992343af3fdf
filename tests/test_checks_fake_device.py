"""The fake device computes and refuses the same operations as a GPU."""

import subprocess
import sys

import pytest
import torch
from waiting import PATIENCE

from course_lib.checks.observe.fake_device import NAME, REFUSAL, Elsewhere
from course_lib.checks.observe.scenarios import SCENARIOS

LENGTHS = torch.tensor([1, 0, 3])


def test_a_tensor_of_the_cpu_is_refused():
    with Elsewhere() as device, pytest.raises(RuntimeError, match=REFUSAL):
        torch.arange(4) < device.moved(LENGTHS)[:, None]  # noqa: B015


class Marked(torch.Tensor):
    """A subclass, which torch cannot create in a dispatch mode."""


def test_subclasses_and_tensors_of_the_cpu_are_made_as_usual():
    with Elsewhere() as device:
        assert type(Marked(2, 3)) is Marked and torch.ones(2).device.type == "cpu"
        there = device.moved(LENGTHS)
        made = [torch.ones(3, device=NAME), LENGTHS.to(NAME), LENGTHS.to(there)]
        assert [(there + one).tolist() for one in made] == [[2, 1, 4], [2, 0, 6], [2, 0, 6]]


def refused_by_torch(lengths):
    if lengths.device.type == NAME:
        raise RuntimeError("Tensor on device cpu is not on the expected device meta!")
    return lengths


def test_what_torch_itself_refuses_there_is_let_pass():
    # In inference mode some of torch's functions mix up devices that an answer keeps apart.
    scenario = SCENARIOS["after_another_device"]
    assert scenario(refused_by_torch, None, {"lengths": LENGTHS}, {}) is LENGTHS


def test_a_first_check_imports_no_compiler_and_spares_torch_the_garbage_collector():
    # Importing sympy takes a second. `torch.autograd.grad` with a gradient given imports it.
    code = (
        "import gc, sys, torch\n"
        "from course_lib import check\n"
        "from course_lib.checks import grade\n"
        "from course_lib.checks.observe import remote\n"
        "remote._restore_defaults()\n"
        "def length_mask(lens, n): return torch.arange(n, device=lens.device) < lens[..., None]\n"
        "assert grade('length_mask', length_mask, seed='x').outcome == 'correct'\n"
        "assert grade('batched_scores', lambda q, k: q @ k.mT).outcome == 'correct'\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)\n"
        "assert gc.get_freeze_count() > 50_000, 'torch is searched for garbage'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
