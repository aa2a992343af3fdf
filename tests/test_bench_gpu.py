"""`course gpu` on a CPU: every row, the table, and what it says of faults."""

import json
import re
from pathlib import Path

import pytest
import torch
from elsewhere import NAME, Device, untyped

from course_lib import attention
from course_lib.benchmarks import gpu, gpu_training
from course_lib.checks import exercises
from course_lib.cli.main import main

ROOT = Path(__file__).parent.parent
untyped = pytest.fixture(autouse=True)(untyped)
SMALL = {"lengths": (5,), "seconds": 0.001, "steps": 2, "num_tokens": 2}


@pytest.fixture
def one_training(monkeypatch):
    found = gpu.trainings(ROOT)
    name = "translator of lesson 00"
    monkeypatch.setattr(gpu, "trainings", lambda root: {name: found[name]})
    monkeypatch.setattr(gpu_training, "WARM_UP", 1)


@pytest.mark.usefixtures("one_training")
def test_each_part_has_its_rows_and_the_table_has_all_of_them():
    told = []
    names = ["length_mask", "generate", "stable_softmax"]
    found = gpu.measure(ROOT, "cpu", names=names, tell=told.append, **SMALL)
    assert json.loads(json.dumps(found)) == found
    assert gpu.faults(found) == []
    assert len(told) == 2 + 1 + 2 + 4
    assert list(found["solutions"]) == ["length_mask", "generate"]  # the other one uses NumPy
    generate = found["solutions"]["generate"]
    assert generate["problems"] > 10 and generate["left_out"] == 0, "random ones are judged too"
    (training,) = found["training"].values()
    assert training["steps"] == 800 and training["gpu"] > 0 and training["cpu"] > 0
    assert list(found["writing"]) == ["writer, 1 text", "writer, 64 texts"]
    assert all(row["gpu"] > 0 and row["cpu"] > 0 for row in found["writing"].values())
    assert list(found["attention"])[1] == "5 keys, float32, forward and backward"
    about, empty, *rows = gpu.table(found).splitlines()
    assert about.startswith("cpu, ") and not empty
    assert len(rows) == 2 + 2 + 1 + 2 + 8 and len({len(row) for row in rows}) == 1
    assert re.fullmatch(
        r"\| fused, 5 keys, bfloat16, forward +\| [\d.]+ ms +\| torch [\d.]+ ms +\| [\d.]+ +\|",
        rows[-3],
    )


def test_nothing_is_started_after_the_limit():
    found = gpu.measure(ROOT, "cpu", limit=0, **SMALL)
    rows = [row for part in ("solutions", "training", "writing") for row in found[part].values()]
    assert {row["failed"] for row in rows} == {"not measured, because the time was over"}
    assert gpu.faults(found)
    assert gpu.table(found).count("because the time was over") > 60


@pytest.mark.usefixtures("one_training")
def test_a_measurement_that_fails_says_why_and_the_others_go_on(monkeypatch):
    def out_of_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32 GiB")

    def refused(*_):
        raise RuntimeError("a | b\nmore")

    monkeypatch.setitem(gpu.WAYS, "torch", out_of_memory)
    monkeypatch.setattr(gpu, "LANGUAGE_MODELS", {"letters": refused})
    found = gpu.measure(ROOT, "cpu", names=["length_mask"], **SMALL)
    assert {row["failed"] for row in found["attention"].values()} == {"out of memory"}
    assert found["writing"]["letters, 1 text"] == {"failed": "RuntimeError: a | b"}
    assert "RuntimeError: a / b" in gpu.table(found) and "failed" not in found["training"]


def forgetful(valid_lens, max_len):
    return torch.arange(max_len) < valid_lens[..., None]


def from_one(valid_lens, max_len):
    return torch.arange(1, max_len + 1, device=valid_lens.device) < valid_lens[..., None]


def back_again(valid_lens, max_len):
    return from_one(valid_lens + 1, max_len).cpu()


@pytest.mark.parametrize(
    ("wrong", "where", "said"),
    [
        (forgetful, NAME, "Tensor on device cpu"),
        (back_again, NAME, "the result is on cpu"),
        (from_one, "cpu", r"^\w+$"),  # the name of the problem alone
    ],
)
def test_a_wrong_solution_is_named_with_its_problems(monkeypatch, wrong, where, said):
    monkeypatch.setattr(attention, "length_mask", wrong)
    with Device():
        row = gpu.solution_row(exercises()["length_mask"], where)
    assert len(row["incorrect"]) >= 3 and all(re.search(said, one) for one in row["incorrect"])
    found = {part: {} for part in ("training", "writing", "attention")}
    found["solutions"] = {"length_mask": row}
    assert gpu.faults(found)
    ((_, problems, _, _),) = gpu._rows(found)
    assert f"of {row['problems']} problems correct (not {row['incorrect'][0]}" in problems


def test_a_training_that_stays_on_the_cpu_is_noticed():
    model = torch.nn.Linear(1, 1)

    def run(device, num_steps):
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(num_steps):
            optimizer.step()

    training = gpu_training.Training(5, run)
    assert gpu_training.seconds_per_step(training, "cpu", 2) > 0
    with pytest.raises(ValueError, match="the model that is trained is on cpu"):
        gpu_training.seconds_per_step(training, NAME, 2)
    assert gpu_training.seconds_per_step(training, "cpu", 2) > 0  # the hook is gone


def test_memory_is_the_most_beyond_what_was_there(monkeypatch):
    calls = []
    for name, value in (
        ("synchronize", None),
        ("reset_peak_memory_stats", None),
        ("memory_allocated", 100),
        ("max_memory_allocated", 350),
    ):
        known = lambda device, name=name, value=value: (calls.append(name), value)[1]  # noqa: E731
        monkeypatch.setattr(torch.cuda, name, known)
    assert gpu.peak_memory(lambda: calls.append("run"), "cuda") == 250
    assert calls.index("reset_peak_memory_stats") < calls.index("run") < len(calls) - 2
    assert calls[-2:] == ["synchronize", "max_memory_allocated"]
    assert gpu.peak_memory(lambda: None, "cpu") is None
    row = {way: {"ms": 2.0, "bytes": 2**21} for way in gpu.WAYS}
    (first, _) = gpu._attention_cells("n", row)
    assert first == ("blocked, n", "2.0 ms, 2 MiB", "torch 2.0 ms, 2 MiB", "1, 1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_sentence_says_so(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["gpu"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("course: course gpu needs a machine with an NVIDIA GPU")
    assert said.count("\n") == 1


def test_the_verb_prints_the_table_or_json(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(gpu, "gpu", lambda: torch.device("cpu"))
    monkeypatch.setattr(
        gpu, "_planned", lambda *_: iter([("writing", "x", lambda: {"gpu": 2, "cpu": 1})])
    )
    assert main(["gpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["writing"] == {"x": {"gpu": 2, "cpu": 1}}
    assert main(["gpu", "--quiet"]) == 0
    told = capsys.readouterr()
    assert "| x        | 2 tokens/s | CPU 1 tokens/s | 2 " in told.out and not told.err


def test_the_page_shows_the_last_run_or_says_that_there_is_none():
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    last = page.partition("## The last run")[2]
    assert ("has not been run" in last) != ("ratio or difference |" in last)
