"""Another device, pretended: it computes what a GPU would, and refuses what a GPU would."""

import subprocess
import sys

import pytest
import torch
from waiting import PATIENCE

from course_lib.checks.observe.fake_device import NAME, REFUSAL, Elsewhere
from course_lib.checks.observe.scenarios import SCENARIOS

LENGTHS = torch.tensor([1, 0, 3])


def filled_by_index(lengths):
    out = torch.zeros(len(lengths), 4, dtype=torch.bool, device=lengths.device)
    for row, length in enumerate(lengths):
        out[row, :length] = True
    return out


def counted_in_place(lengths):
    ones = lengths.new_zeros(4)
    ones += 1
    return ones.cumsum(0).sub_(1) < lengths.view(-1, 1)


def with_single_numbers(lengths):
    kept = torch.arange(4, device=lengths.device) < lengths[:, None]
    return torch.where(kept, torch.tensor(True), torch.tensor(False))


@pytest.mark.parametrize(
    "function",
    [
        lambda lengths: torch.arange(4).to(lengths.device) < lengths.unsqueeze(-1),
        lambda lengths: (torch.arange(4) < lengths.cpu()[:, None]).to(lengths.device),
        filled_by_index,
        counted_in_place,
        with_single_numbers,
    ],
)
def test_what_keeps_to_one_device_computes_there(function):
    with Elsewhere() as device:
        result = function(device.moved(LENGTHS))
        assert torch.equal(torch.arange(3) + 1, torch.tensor([1, 2, 3])), "the CPU is left alone"
        there = torch.tensor(LENGTHS.tolist(), device=result.device)
        assert (there < device.moved(LENGTHS)).device.type == NAME
    assert result.device.type == NAME
    assert torch.equal(result.cpu(), function(LENGTHS))


def test_a_tensor_of_the_cpu_is_refused():
    with Elsewhere() as device, pytest.raises(RuntimeError, match=REFUSAL):
        torch.arange(4) < device.moved(LENGTHS)[:, None]  # noqa: B015


def refused_by_torch(lengths):
    if lengths.device.type == NAME:
        raise RuntimeError("Tensor on device cpu is not on the expected device meta!")
    return lengths


def test_what_torch_itself_refuses_there_is_let_pass():
    # In inference mode some of torch's functions mix up devices that an answer keeps apart.
    scenario = SCENARIOS["after_another_device"]
    assert scenario(refused_by_torch, None, {"lengths": LENGTHS}, {}) is LENGTHS


def test_a_first_check_imports_neither_compiler_nor_computer_algebra():
    # Importing sympy takes a second. `torch.autograd.grad` with a gradient given imports it.
    code = (
        "import sys, torch\n"
        "from course_lib.checks import grade\n"
        "from course_lib.checks.observe import remote\n"
        "remote._restore_defaults()\n"
        "def length_mask(lens, n): return torch.arange(n, device=lens.device) < lens[..., None]\n"
        "assert grade('length_mask', length_mask, seed='x').outcome == 'correct'\n"
        "assert grade('batched_scores', lambda q, k: q @ k.mT).outcome == 'correct'\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
