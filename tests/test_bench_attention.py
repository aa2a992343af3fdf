"""`course bench attention`: equal numbers, honest ratios, and what is said about them."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from rich.console import Console

from course_lib.benchmarks import attention, attention_measure, attention_plan, attention_report
from course_lib.benchmarks.attention_measure import MEBIBYTE, Ceilings, Work
from course_lib.benchmarks.attention_problems import step
from course_lib.benchmarks.attention_problems_additive import (
    additive,
    additive_decoding,
    kernel_regression,
    masked_softmax,
)
from course_lib.benchmarks.attention_problems_dot import (
    MASKS,
    dot_product,
    multi_head,
    multi_head_decoding,
)
from course_lib.cli import main as cli

ROOT = Path(__file__).resolve().parent.parent
SMALL = [
    masked_softmax(3, 6, per_query=False, size="teaching"),
    masked_softmax(3, 6, per_query=True, size="teaching"),
    *(kernel_regression(300, kernel, 0.2, size="teaching") for kernel in attention_plan.KERNELS),
    additive(2, 5, 4, features=3, size="teaching"),
    additive_decoding(2, 5, 4, 3, features=3, size="teaching"),
    *(dot_product(3, 6, 4, kind, size="teaching") for kind in MASKS),
    *(multi_head(3, 6, 8, 2, kind, size="teaching") for kind in MASKS),
    multi_head_decoding(2, 5, 8, 2, size="teaching"),
]
SLOW = {*attention.COMPILED, "textbook"}  # a compiler takes too long for a test
CANDIDATES = [(p, name) for p in SMALL for name in p.candidates if name not in SLOW]


# ---------------------------------------------------------------- problems
@pytest.fixture
def in_float64():
    """Different orders of the same sums agree to ten digits then, on any processor."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(
    ("problem", "name"), CANDIDATES, ids=[f"{p.name}, {name}" for p, name in CANDIDATES]
)
def test_everybody_computes_what_the_textbook_form_does(problem, name):
    for passes in problem.passes:
        expected, found = (step(problem, who, passes)() for who in ("textbook", name))
        assert found.requires_grad == (passes == "both")
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def gradients_of(problem, name):
    """Gradients of the inputs after one step, with a gradient of the outputs that is the same."""
    kept = {}
    made = problem.inputs
    patched = dict(vars(problem), inputs=lambda generator: kept.setdefault("x", made(generator)))
    step(type(problem)(**patched), name, "both")()
    return [kept["x"][leaf].grad for leaf in kept["x"]["leaves"]]


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("problem", [p for p in SMALL if "both" in p.passes], ids=lambda p: p.name)
def test_backward_gives_everybody_the_same_gradients(problem):
    expected = gradients_of(problem, "textbook")
    for name in problem.candidates.keys() - SLOW:
        for ours, theirs in zip(gradients_of(problem, name), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_problems_have_names_of_their_own_and_every_promise_has_a_problem():
    every = attention_plan.problems()
    by_name = {problem.name: problem for problem in every}
    assert len(by_name) == len(every)
    assert {problem.size for problem in every} == {"teaching", "training", "long"}
    assert {p.name for p in attention_plan.problems(quick=True) if p.size == "teaching"} <= {
        *by_name
    }
    for target in attention_plan.TARGETS:
        fitting = [p for name, p in by_name.items() if name.startswith(target.problem)]
        assert fitting, target
        for problem in fitting:
            assert target.passes in problem.passes
            assert {target.candidate, target.base} <= problem.candidates.keys()


# ---------------------------------------------------------------- measuring
@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when someone works."""
    now = [0.0]
    monkeypatch.setattr(attention_measure, "clock", lambda device: lambda: now[0])

    def work(seconds):
        now[0] += seconds

    return work


def test_ratios_are_taken_within_rounds_so_a_slow_machine_does_not_count(clock):
    slowness = iter([1, 1] + [1, 1] * 2 + [9, 9] * 3 + [1, 1] * 100)
    order = []

    def candidate(name, seconds):
        order.append(name)
        clock(seconds * next(slowness))

    steps = {
        "textbook": lambda: candidate("textbook", 1.0),
        "fast": lambda: candidate("fast", 0.25),
    }
    times = attention_measure.race(steps, seconds=30.0)
    assert attention_measure.ratio(times, "fast", "textbook") == 0.25
    rounds = [tuple(order[i : i + 2]) for i in range(2, len(order), 2)]
    assert all(sorted(found) == ["fast", "textbook"] for found in rounds)
    assert len(set(rounds)) == 2, "the order is drawn anew"


def test_short_calls_are_repeated_and_long_ones_run_three_times(clock):
    calls = {"short": 0, "long": 0}

    def candidate(name, seconds):
        calls[name] += 1
        clock(seconds)

    steps = {
        name: lambda n=name, s=s: candidate(n, s) for name, s in (("short", 1e-4), ("long", 100.0))
    }
    times = attention_measure.race(steps, seconds=1.0)
    assert calls == {"short": 1 + 3 * 40, "long": 1 + 3}
    assert times["short"] == pytest.approx([1e-4] * 3)


def test_the_floor_is_arithmetic_or_memory_whichever_takes_longer():
    ceilings = Ceilings(flops=100.0, exps=10.0, reciprocals=5.0, numbers=1.0)
    assert ceilings.floor(Work(flops=200, exps=10, reciprocals=10, numbers=3)) == 2 + 1 + 2
    assert ceilings.floor(Work(flops=200, numbers=7)) == 7


HELD_AT_ONCE = """
import torch
from course_lib.benchmarks import attention_measure

def call():
    first = torch.zeros(8 * 2**20)
    del first
    return torch.zeros(16 * 2**20)  # of four bytes each

print(max(attention_measure.peak_of(call, "cpu") for _ in range(3)))
"""


def test_peak_memory_is_what_a_call_held_at_once():
    """In a process where nothing else gives memory back meanwhile, as the benchmark does it.

    The system may take pages back from any process; that makes a peak smaller, never larger.
    """
    command = [sys.executable, "-c", HELD_AT_ONCE]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 60 * MEBIBYTE < peak < 70 * MEBIBYTE


@pytest.mark.slow
def test_peak_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    arguments = "dot product 8x2048, d=64, none", "fast", "forward", "cpu"
    scores = 4 * 8 * 2048 * 2048
    textbook = (arguments[0], "textbook", *arguments[2:])
    assert attention_measure.peak_in_fresh_process(*textbook) > scores
    assert 0 < attention_measure.peak_in_fresh_process(*arguments) < scores / 10
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert attention_measure.peak_in_fresh_process(*arguments) is None


# ---------------------------------------------------------------- comparing
@pytest.fixture
def small_plan(monkeypatch):
    """A run over one problem with what may go wrong."""

    def refuses(inputs):
        raise NotImplementedError("no backward here\nmore about it")

    problem = dot_product(2, 6, 4, "none", size="teaching")
    candidates = {**problem.candidates, "flex": refuses}
    problem = type(problem)(**dict(vars(problem), candidates=candidates))
    monkeypatch.setattr(attention, "problems", lambda quick: [problem])
    monkeypatch.setattr(attention, "COMPILED", ())
    monkeypatch.setattr(
        attention_measure, "measure_ceilings", lambda device: Ceilings(1e9, 1e9, 1e9, 1e9)
    )
    return problem


def test_a_run_tells_ratios_the_floor_and_who_could_not_run(small_plan):
    threads, told = torch.get_num_threads(), []
    comparison = attention.compare(quick=True, tell=told.append)
    (row,) = comparison.rows
    assert torch.get_num_threads() == threads
    assert row.ratios.keys() == small_plan.candidates.keys() - {"flex"}
    assert row.ratios["textbook"] == 1.0
    assert row.against_torch > 0
    assert row.failures == {"flex": "NotImplementedError: no backward here"}
    pairs = 2 * 6 * 6
    assert row.floor == pytest.approx((14 * pairs * 4 + 2 * pairs) / 1e9)
    assert told[-1] == f"{small_plan.name}, both"


def test_a_candidate_with_other_numbers_is_an_error(small_plan, monkeypatch):
    wrong = {**small_plan.candidates, "fast": lambda x: lambda: 2 * x["queries"]}
    changed = type(small_plan)(**dict(vars(small_plan), candidates=wrong))
    monkeypatch.setattr(attention, "problems", lambda quick: [changed])
    with pytest.raises(RuntimeError, match="fast differs from the textbook by"):
        attention.compare(quick=True)


@pytest.mark.gpu
def test_a_quick_run_on_cuda_measures_every_candidate():
    comparison = attention.compare(quick=True, device="cuda")
    assert comparison.rows
    assert [row.failures for row in comparison.rows if row.failures] == []


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="`device` must be cpu, or cuda"):
        attention.compare(device="abacus")


@pytest.fixture
def comparison():
    """A made-up run in which some promises are kept, some not, some not measured."""
    heads = "multi-head 1x2048, 512, 8 heads"
    rows = [
        attention.Row(
            "dot product 8x2048, d=64, none", "long", "both",
            {"textbook": 2.0, "fast": 0.8, "torch": 0.8},
            {"textbook": 1.0, "fast": 0.4, "torch": 0.4},
            1.0, {"textbook": 1000 * MEBIBYTE, "fast": 100 * MEBIBYTE}, 0.2,
        ),
        attention.Row(
            f"{heads}, none", "long", "both", {"textbook": 1.0, "fast": 0.5, "torch": 0.52},
            {"textbook": 1.0, "fast": 0.5, "torch": 0.52}, 0.96,
        ),
        attention.Row(
            f"{heads}, causal", "long", "both", {"textbook": 1.0, "fast": 0.3, "torch": 0.27},
            {"textbook": 1.0, "fast": 0.3, "torch": 0.27}, 1.11, failures={"flex": "no compiler"},
        ),
    ]  # fmt: skip
    ceilings = Ceilings(1e11, 5e9, 5e9, 3e9)
    return attention.Comparison(rows, "a machine", "cpu", "2026-01-31", False, ceilings)


def test_promises_are_judged_by_the_worst_that_was_measured(comparison):
    found = {
        (v.target.problem, v.target.base, v.target.memory): (v.measured, v.met)
        for v in comparison.verdicts()
    }
    assert found["dot product 8x2048, d=64, none", "textbook", False] == (0.4, True)
    assert found["dot product 8x2048, d=64, none", "textbook", True] == (0.1, False)
    assert found["multi-head 1x2048", "torch", False] == (1.11, False)
    assert found["multi-head 1x2048, 512, 8 heads, causal", "textbook", False] == (0.3, True)
    assert found["multi-head 2x10", "torch", False] == (None, None)


def test_tables_show_ratios_memory_promises_and_failures(comparison):
    text = io.StringIO()
    attention_report.show(comparison, Console(file=text, width=60))  # tables keep their width
    shown = text.getvalue()
    assert "a machine; 2026-01-31" in shown
    assert re.search(
        r"dot product 8x2048, d=64, none +both +2000\.00 +0\.40 +0\.40 +1\.00 +4\.0", shown
    )
    assert re.search(r"dot product 8x2048, d=64, none +both +1000\.0 +100\.0", shown)
    assert re.search(r"memory, fast / textbook +0\.0667 +0\.100 +no", shown)
    assert "no flex; no compiler" in shown


def test_numbers_and_a_picture_with_words_are_written(comparison, tmp_path):
    document, picture = attention_report.save(comparison, tmp_path / "new")
    assert document.name == "attention_2026-01-31_cpu.json"
    saved = json.loads(document.read_text(encoding="utf-8"))
    assert saved["machine"] == "a machine"
    assert attention.from_json(document.read_text(encoding="utf-8")) == comparison
    assert saved["rows"][0]["peaks"]["fast"] == 100 * MEBIBYTE
    assert [v["met"] for v in saved["held_to"]].count(True) == 3
    drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    said = [part.text for part in drawn.iter() if part.text]
    words = said[0]
    assert words == attention_report.alt_text(comparison)
    assert {row.problem for row in comparison.rows} <= set(said)
    assert "from 0.30 (multi-head 1x2048, 512, 8 heads, causal) to 0.50" in words
    (axes,) = attention_report.plot(comparison).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        row.problem for row in comparison.rows
    ]


def test_the_verb_prints_one_document_and_writes_where_it_is_told(
    comparison, monkeypatch, capsys, tmp_path
):
    asked = {}
    monkeypatch.setattr(attention, "compare", lambda **options: asked.update(options) or comparison)
    monkeypatch.chdir(tmp_path)  # outside of any course
    arguments = ["bench", "attention", "--quick", "--json", "--quiet", "--into", "runs"]
    assert cli.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["date"] == "2026-01-31"
    assert asked["quick"] is True
    assert sorted(path.suffix for path in (tmp_path / "runs").iterdir()) == [".json", ".svg"]
    assert cli.main(["bench", "attention", "--quiet"]) == 0
    assert "Held to, on a CPU" in capsys.readouterr().out


def test_the_verb_names_a_device_that_is_not_there(capsys):
    assert cli.main(["bench", "attention", "--device", "abacus"]) == 2
    assert "`device` must be cpu" in capsys.readouterr().err


# ---------------------------------------------------------------- the page
def test_the_page_shows_the_run_that_lies_beside_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import attention_speed

    page, texts = attention_speed.PAGE.read_text(encoding="utf-8"), attention_speed.sections()
    assert page == attention_speed.filled(page, texts), "run: python docs/attention_speed.py"
    alt, picture = re.fullmatch(r"!\[([^\]]*)\]\(([^)]*)\)", texts["picture"]).groups()
    drawn = ElementTree.parse(ROOT / "docs" / picture).getroot()
    assert drawn[0].text == alt
    with pytest.raises(ValueError, match="the marks are gone"):
        attention_speed.filled(page, {"nothing": ""})


def test_the_kept_run_is_a_whole_one_of_every_promise():
    run = max(ROOT.glob("docs/benchmarks/attention_*_cpu.json"))
    comparison = attention.from_json(run.read_text(encoding="utf-8"))
    assert not comparison.quick
    assert [verdict.target for verdict in comparison.verdicts() if verdict.met is None] == []
