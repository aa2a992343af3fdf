"""The input that a report shows is small, fails, and fails for the reason that the report gives."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib.checks import exercises, grade
from course_lib.checks.judge.comparisons import same_record
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.prepare import expect, prepare
from course_lib.checks.judge.shrink import try_shrink
from course_lib.checks.judge.violations import find_violations
from course_lib.checks.observe.call import observe, observe_all
from course_lib.exercises import find

ROOT = Path(__file__).parent.parent


def failures_of(name, answer):
    found = []
    for probe, expected in prepare(find(name), "a"):
        seen = observe(answer, probe)
        found += find_violations(find(name), probe, expected, seen)
    return found


def over_queries(scores, valid_lens=None, mask=None):
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    return torch.softmax(scores.masked_fill(~allowed, -1e9), dim=-2)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("masked_softmax", "over_queries"),
        ("bmm_loops", "b0_for_all"),
        ("MultiHeadAttention", "no_W_o"),
    ],
)
def test_a_shrunken_input_fails_like_the_first_and_has_small_whole_entries(name, mistake):
    exercise = find(name)
    known = {m.id: m for m in exercise.mistakes}
    chosen = known[mistake]
    large = [f for f in failures_of(name, chosen.answers[0]) if f.aspect == "values"]
    first = max(large, key=lambda failure: failure.probe.num_inputs)
    small = try_shrink(
        exercise, [first], lambda probes: observe_all(chosen.answers[0], probes), chosen
    )
    assert small is not None
    probe = small.probe
    assert probe.num_inputs < first.probe.num_inputs
    assert small.problem.id == first.problem.id
    again = observe(chosen.answers[0], probe)
    assert find_violations(exercise, probe, expect(exercise, probe), again)
    assert same_record(probe, again.outputs, small.seen.outputs)
    for value in probe.inputs().values():
        if getattr(value, "data", None) is not None and value.data.dtype.kind == "f":
            assert np.isin(value.data, (-1, 0, 1, 2)).all()


def test_a_shrunken_map_still_has_rows_that_sum_to_1():
    def one_place_for_each_item(attention_weights):
        return torch.tensor([int(each.argmax()) for each in attention_weights])

    first = failures_of("most_attended", one_place_for_each_item)[0]
    small = try_shrink(
        find("most_attended"), [first], lambda probes: observe_all(one_place_for_each_item, probes)
    )
    assert small is not None and small.probe.num_inputs < first.probe.num_inputs
    weights = small.probe.inputs()["attention_weights"].data
    assert np.allclose(weights.sum(-1), 1, atol=2e-3)


def test_a_shrunken_mask_leaves_every_row_a_key_and_a_silent_answer_keeps_its_input():
    exercise = find("masked_softmax")
    failures = failures_of("masked_softmax", over_queries)
    assert try_shrink(exercise, failures, lambda probes: {}) is None
    masks = [f for f in failures if "mask" in f.probe.kwargs]
    full = [f for f in masks if f.probe.kwargs["mask"].data.any(-1).all()]
    small = try_shrink(exercise, full, lambda probes: observe_all(over_queries, probes))
    assert small.probe.kwargs["mask"].data.any(-1).all()


def test_an_example_has_few_numbers_counts_them_and_notes_objects():
    report = grade("masked_softmax", over_queries)
    assert report.example.is_small and report.example.numbers <= 6
    assert "A small input that fails:" in report.text()
    shown = dict(report.example.inputs)
    assert report.example.numbers == sum(
        len(re.findall(r"\d[\d.]*|True|False", v)) for v in shown.values()
    )
    assert not report.example.has_objects
    assert grade("score_variance", lambda *sizes: 0.5, seed="a").example.has_objects
    plain = {one.id: one.answers[0] for one in exercises()["DotProductAttention"].mistakes}
    for name in ("bool_mask_ignored", "mask_inverted"):
        # The edge case with the fewest numbers is not shown: a reader would blame its 1e30.
        example = grade("DotProductAttention", plain[name]).example.text()
        assert "e+" not in example and "mask = [[" in example, (name, example)


def test_a_large_input_is_folded_and_not_called_the_smallest():
    numbers = "\n".join(["[1, 2, 3]"] * 12)
    example = Example(inputs=(("scores", numbers),), numbers=36)
    assert "An input that fails:" in example.text() and "and 4 more lines" in example.text()
    assert "<summary>4 more lines</summary>" in example.html()
    assert example.html().count("[1, 2, 3]") == 12


@pytest.mark.parametrize(
    ("name", "mistake", "least"),
    [("keys_permutation_invariant", "only_a_flip", 3), ("is_causal", "errors_pass", 2)],
)
def test_an_input_of_a_test_is_not_too_small_to_tell(name, mistake, least):
    # Two keys have only one other order, and one position has no later one.
    known = {one.id: one for one in exercises()[name].mistakes}[mistake]
    failures = failures_of(name, known.answers[0])
    small = try_shrink(
        find(name), failures, lambda probes: observe_all(known.answers[0], probes), known
    )
    array = small.probe.args.get("keys") or small.probe.args["x"]
    assert array.data.shape[1] >= least


def test_no_generator_stops_inside_errstate():
    # Its end would set a context variable during garbage collection, and Python 3.11 may crash.
    for path in (ROOT / "course_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.With) and "errstate" in " ".join(map(ast.unparse, node.items)):
                assert not any(isinstance(part, ast.Yield) for part in ast.walk(node)), path


@pytest.mark.parametrize(
    ("name", "mistake", "parts"),
    [
        ("KVCache", "calls_counted", "appended"),
        ("KVCache", "new_first", "appended"),
        ("GroupedQueryAttention", "empty_cache_skipped", "pieces"),
    ],
)
def test_the_parts_of_an_axis_still_fill_it_after_a_cut(name, mistake, parts):
    chosen = {m.id: m for m in find(name).mistakes}[mistake]
    first = max(failures_of(name, chosen.answers[0]), key=lambda failure: failure.probe.num_inputs)
    small = try_shrink(
        find(name), [first], lambda probes: observe_all(chosen.answers[0], probes), chosen
    )
    assert small is not None and small.probe.num_inputs < first.probe.num_inputs
    cut, whole = next(iter(small.probe.args.values())).data, small.probe.args[parts]
    assert sum(whole) == cut.shape[-2]
