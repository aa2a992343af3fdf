"""What a report says: what was expected, whose mistake, and for which part of what failed."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib.checks import exercises, grade
from course_lib.checks.judge.comparisons import entry_that_differs, in_digits
from course_lib.checks.judge.example import MARK, _beside
from course_lib.checks.judge.score import shares_of
from course_lib.checks.observe.record import Recorded
from course_lib.exercises.variants import variants

ROOT = Path(__file__).parent.parent


def lower(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(
        num_keys - num_queries
    )


def test_the_students_numbers_are_beside_those_of_the_definition():
    report = grade("causal_mask", lambda num_queries, num_keys=None: lower(num_queries, num_keys).T)
    text = report.example.text()
    assert "mask, yours:" in text and "by the definition:" in text
    square = grade("causal_mask", lambda num_queries, num_keys=None: lower(num_queries).mT)
    (shown,) = square.example.results
    assert len(shown.yours) == len(shown.expected)
    for yours, expected in zip(shown.yours, shown.expected, strict=True):
        for mine, wanted in zip(yours, expected, strict=True):
            assert (mine.removesuffix(MARK) == wanted) == (not mine.endswith(MARK))


def test_a_differing_entry_is_marked_without_colour_too():
    html = grade("causal_mask", lambda n, num_keys=None: lower(n).mT).html()
    assert f"<strong>True{MARK}</strong>" in html and "1px solid currentColor" in html


def test_values_have_names():
    def swapped(queries, keys, values, valid_lens=None, mask=None):
        weights = torch.softmax(queries @ keys.mT, -1)
        return weights @ values, weights

    report = grade("scaled_dot_product_attention", swapped)
    names = {result.name.split("[")[0] for result in report.example.results}
    assert names <= {"outputs", "attention_weights"}
    assert not re.search(r"^\s*[01]:", report.text(), re.MULTILINE)


def test_numbers_that_differ_late_are_shown_with_enough_digits():
    assert in_digits([0.5, 0.5]) == ["0.5", "0.5"]
    a, b = in_digits([0.1234567, 0.1234561])
    assert a != b and abs(float(a) - float(b)) < 1e-5
    entry = entry_that_differs(np.array([[1.0, 2.0]]), np.array([[1.0, 2.25]]), 1e-7)
    assert entry == "[0, 1] is 2.25; the definition gives 2"


@pytest.mark.parametrize("name", ["yields_last", "eval_mode"])
def test_words_are_shown_where_they_are_wrong(name):
    answers = {variant.name: variant.answer for variant in variants(ROOT, "ablate_head")}
    text = grade("ablate_head", answers[name], seed=0).example.text()
    assert ("your changes = 'its training mode'" in text) == (name == "eval_mode")
    assert ("changes" in text) == (name == "eval_mode")


def test_a_large_result_is_shown_by_the_first_row_that_differs():
    def constant(a, b):
        return torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)

    report = grade("bmm", constant)
    assert report.example.results
    for shown in report.example.results:
        assert len(shown.yours) <= 6 and all(len(row) <= 8 for row in shown.yours)
        assert any(number.endswith(MARK) for row in shown.yours for number in row)


def test_of_a_wide_row_the_part_that_differs_is_shown():
    data, expected = np.zeros((40, 50)), np.zeros((40, 50))
    data[17, 44] = 1.0
    got = Recorded("tensor", "torch.Tensor", "float64", data.shape, data=data)
    shown = _beside("scores", expected, got, 1e-7)
    assert shown.name == "scores[17, 42:50]"
    assert shown.yours == (("0", "0", f"1{MARK}", *["0"] * 5),)
    assert shown.expected == (("0",) * 8,)


def test_a_mistake_that_explains_a_part_says_which():
    def empty_if_large(num_queries, num_keys=None, *, device=None):
        num_keys = num_queries if num_keys is None else num_keys
        ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
        return ones.triu(num_keys - num_queries) if num_keys < 100 else ~ones

    report = grade("causal_mask", empty_if_large)
    assert report.mistake == "upper_triangular"
    said = re.match(r"In (\d+) of the (\d+) problems that fail, your", report.findings[0].message)
    assert 0 < int(said[1]) < int(said[2])
    assert len(report.findings) > 1, "nothing is said of what it leaves unexplained"


def test_a_mistake_that_explains_everything_is_named_without_a_number():
    def upper(num_queries, num_keys=None, *, device=None):
        num_keys = num_queries if num_keys is None else num_keys
        return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).triu()

    report = grade("causal_mask", upper)
    assert report.mistake == "upper_triangular"
    assert "problems that fail" not in report.text()


def test_a_changed_argument_is_said_before_what_it_breaks():
    def cleaning_up(queries, keys):
        scores = queries @ keys.mT
        with torch.no_grad():
            queries.zero_()
        return scores

    assert grade("batched_scores", cleaning_up).findings[0].id == "input_mutated"


@pytest.mark.parametrize("convert", [torch.Tensor.float, torch.Tensor.long])
def test_a_right_mask_of_numbers_earns_half(convert):
    report = grade("causal_mask", lambda n, num_keys=None: convert(lower(n, num_keys)))
    assert 0.3 < report.score < 0.7


def test_a_right_number_as_a_tensor_earns_half():
    def cost(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
        pairs = torch.tensor(batch * num_queries * num_keys)
        return {"flops": 2 * pairs * (d + d_v), "score_bytes": pairs * bytes_per_element}

    assert grade("attention_cost", cost).score > 0.3


def test_right_distances_by_a_loop_earn_half():
    def loop(queries, keys):
        rows = [torch.stack([((q - k) ** 2).sum() for k in keys]) for q in queries]
        return torch.stack(rows)

    report = grade("squared_distances", loop)
    assert 0.3 < report.score <= 0.5 and report.findings[0].id == "loops"


@pytest.mark.parametrize("name", list(exercises()))
def test_the_shares_of_an_exercise_sum_to_one(name):
    exercise = exercises()[name]
    shares = shares_of(exercise, exercise.probes(np.random.default_rng(0)))
    assert sum(shares.values()) == pytest.approx(1) and all(s >= 0 for s in shares.values())
    assert not exercise.shares or sum(exercise.shares.values()) == pytest.approx(1)
