"""The fake device computes and refuses the same operations as a GPU."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from waiting import PATIENCE

from course_lib import attention
from course_lib.attention import merge_heads, split_heads
from course_lib.authoring.variants import variants
from course_lib.checks import grade
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_observed
from course_lib.checks.observe.call import _run_elsewhere
from course_lib.checks.observe.codec import decode, encode
from course_lib.checks.observe.fake_device import MIXED_UP, NAME, Elsewhere
from course_lib.checks.observe.observation import subject_of
from course_lib.checks.observe.remote import REPLY_TYPES, Reply, Request, reply_to
from course_lib.exercises import find, names

ROOT = Path(__file__).parent.parent
LENGTHS = torch.tensor([1, 0, 3])


def test_a_tensor_of_the_cpu_is_refused():
    with Elsewhere() as device, pytest.raises(RuntimeError, match=MIXED_UP):
        torch.arange(4) < device.moved(LENGTHS)[:, None]  # noqa: B015


class Marked(torch.Tensor):
    """A subclass, which torch cannot create in a dispatch mode."""


def test_subclasses_and_tensors_of_the_cpu_are_made_as_usual():
    with Elsewhere() as device:
        assert type(Marked(2, 3)) is Marked and torch.ones(2).device.type == "cpu"
        there = device.moved(LENGTHS)
        made = [torch.ones(3, device=NAME), LENGTHS.to(NAME), LENGTHS.to(there)]
        assert [(there + one).tolist() for one in made] == [[2, 1, 4], [2, 0, 6], [2, 0, 6]]


def test_numbers_are_those_of_the_cpu():
    rows = torch.arange(6.0).reshape(2, 3)
    with Elsewhere() as device:
        there = device.moved(rows)
        assert (there[0] @ there.mT).tolist() == (rows[0] @ rows.mT).tolist()  # uses `squeeze_`
        assert (torch.tensor([1, 2, 3], device=NAME) * there).tolist() == [[0, 2, 6], [3, 8, 15]]
        with torch.inference_mode():
            assert there[0].tolist() == rows[0].tolist()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch.func.jvp
@pytest.mark.parametrize("name", names())
def test_every_right_answer_runs_there_without_any_error(name):
    for probe in (probe for probe, _ in prepare(find(name), "there") if probe.elsewhere):
        for answer in (v.answer for v in variants(ROOT, name) if v.is_right):
            assert _run_elsewhere(answer, probe) is None


def test_what_is_called_there():
    """Each argument is passed at least once, unless an answer gets or returns no tensor."""
    repeated = {n: [p for p, _ in prepare(find(n), "there") if p.elsewhere] for n in names()}
    assert {name for name, probes in repeated.items() if not probes} == {
        *("attention_cost", "diagnosed_boxes", "broken_invariants"),  # no tensors at all
        "stable_softmax",  # NumPy
        *("causal_mask", "positional_encoding", "shift_matrix"),  # take numbers
        "score_variance",  # returns a Python number
        *("is_permutation_equivariant", "is_causal", "masking_equals_deleting"),  # return a bool
        *("keys_permutation_invariant", "batch_items_independent"),
    }
    assert [p.name for p in repeated["masked_softmax"]] == ["problem_1", "problem_4"]
    assert [p.name for p in repeated["split_heads"]] == ["problem_1"]


class KeepsItsMask(torch.nn.Module):
    """Self-attention in which each position attends to earlier ones only."""

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        layers = (torch.nn.Linear(embed_dim, size * embed_dim, bias=False, device=device,
                                  dtype=dtype) for size in (3, 1))  # fmt: skip
        self.W_qkv, self.W_o = layers
        self.past = [torch.ones(999, 999).tril().bool()]

    def forward(self, x, valid_lens=None):
        q, k, v = (split_heads(part, self.num_heads) for part in self.W_qkv(x).chunk(3, -1))
        n = x.shape[1]
        weights = masked_softmax_of(q, k, valid_lens, self.past[0][:n, :n])
        self.attention_weights = weights.detach()
        return self.W_o(merge_heads(weights @ v))


def masked_softmax_of(q, k, valid_lens, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    heads = q.shape[1]
    if valid_lens is not None:
        valid_lens = valid_lens.repeat_interleave(heads)
    return attention.masked_softmax(scores.flatten(0, 1), valid_lens, mask).view(scores.shape)


def made(valid_lens, max_len):
    row = torch.tensor(range(max_len))
    return row < valid_lens[..., None]


def made_in_a_helper(valid_lens, max_len):
    return positions(max_len) < valid_lens[..., None]


def positions(n):
    return torch.arange(n)


def moved(attention_weights):
    return attention_weights.cpu().argmax(-1)


def through_numpy(valid_lens, max_len):
    return torch.from_numpy(np.arange(max_len) < valid_lens.numpy()[..., None])


POSITIONS = torch.arange(999)


def used(valid_lens, max_len):
    return POSITIONS[:max_len] < valid_lens[..., None]


def legacy(attention_weights):
    return torch.LongTensor(attention_weights.argmax(-1).tolist())


@pytest.mark.parametrize(
    ("name", "answer", "said", "fix"),
    [
        ("length_mask", made, "stops with an error, because `row = torch.tensor(range(max_len))` "
         "makes a tensor on the CPU.", "with `device=valid_lens.device` or"),
        ("length_mask", made_in_a_helper, "`return torch.arange(n)` makes a tensor",
         "with `device=...` or"),
        ("length_mask", through_numpy, "passes a tensor to NumPy",
         "`.to(valid_lens.device)` after"),
        ("most_attended", moved, "your result is on the CPU, because `return attention_weights.cpu"
         "().argmax(-1)` moves a tensor", "where it is"),
        ("most_attended", legacy, "or by a function such as `torch.LongTensor`", "`.to(...)`"),
        ("length_mask", used, "`return POSITIONS[:max_len] < valid_lens[..., None]` uses a tensor",
         "`.to(valid_lens.device)`"),
        ("CausalSelfAttention", KeepsItsMask, "`self.past` stays", "`self.register_buffer("),
    ],
)  # fmt: skip
def test_the_report_names_the_line_and_the_change(name, answer, said, fix):
    report = grade(name, answer)
    (finding,) = report.findings
    assert said in finding.message and fix in finding.hint, report.text()
    assert report.mistake == finding.id == "cpu_tensor" and finding.part == "hygiene"
    assert report.points < report.max_points and report.score >= 0.9
    probes = [probe for probe, _ in prepare(find(name), "None")]
    reply = decode(reply_to(encode(Request(name, probes)), {name: answer}), Reply, REPLY_TYPES)
    judged = judge_observed(find(name), "None", subject_of(answer), reply.seen)
    assert judged.findings == report.findings and judged.points == report.points


def with_what_the_fake_device_lacks(valid_lens, max_len):
    torch.Generator(valid_lens.device)
    return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]


def by_device(attention_weights):
    device = attention_weights.device
    if device not in SEEN:
        SEEN[device] = torch.arange(9, device=device)
    return SEEN[device][attention_weights.argmax(-1)]


def kept_from_the_last_call(valid_lens, max_len):
    SEEN.setdefault(max_len, valid_lens)
    assert type(SEEN[max_len]) is torch.Tensor  # no call before has been on another device
    return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]


SEEN = {}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("most_attended", by_device),
        ("length_mask", with_what_the_fake_device_lacks),
        ("length_mask", kept_from_the_last_call),
    ],
)
def test_other_answers_lose_nothing(name, answer):
    assert grade(name, answer).outcome == "correct"


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
