"""Lesson 03: what the two products cost."""

import itertools
from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import a_or_an
from course_lib.exercises._rows import Given, case, edge, mistake
from course_lib.reference import batch_matmul as oracle


def _named(sizes) -> Given:
    return dict(zip(("batch", "num_queries", "num_keys", "d", "d_v"), sizes, strict=True))


def _attention_cost_probes(rng) -> list[Probe]:
    def sizes(low, high, **more) -> Given:
        drawn = rng.permutation(np.arange(low, high))[:5]
        return _named(int(size) for size in drawn) | more

    counts: Given = {"compare": "counts"}
    whole: Given = {"compare": "whole_counts"}
    return [
        case("worked", **_named((1, 2, 3, 4, 5)), **counts).says(
            "1 item, 2 queries, 3 keys, d = 4 and d_v = 5: each product has n m d (or n m d_v) "
            "multiply-adds, and a score takes 4 bytes unless the caller says otherwise."
        ),
        case("different_sizes", **sizes(2, 20), **counts).says(
            "Both products count, a multiply-add counts as 2 operations, and each size must enter "
            "in the right place."
        ),
        case("by_name", by_name={**sizes(21, 60), "bytes_per_element": 4}, **counts).says(
            "The sizes must be accepted by name."
        ),
        case("half_precision", **sizes(3, 30), by_name={"bytes_per_element": 2}, **counts).says(
            "`bytes_per_element` must change the memory and nothing else."
        ),
        case("double_precision", **sizes(3, 30, batch=1, bytes_per_element=8), **counts).says(
            "`bytes_per_element` must be used as given."
        ),
        edge("no_queries", **_named((3, 0, 7, 5, 4)), **counts).says(
            "With no queries there is nothing to compute and nothing to store."
        ),
        edge("very_long", **_named((7, 100_003, 50_021, 131, 61)), **counts).says(
            "Long sequences must be counted exactly, to the last operation."
        ),
        edge("whole_numbers", args=sizes(2, 9, batch=1, bytes_per_element=4), **whole).says(
            "Counts are whole numbers: both must be int."
        ),
    ]


def _counts(probe, expected, recorded) -> Problem | None:
    """Both counts to the last unit; says which of the two is wrong."""
    wrong = [key for key, value in expected.items() if not _is_count(recorded.items[key], value)]
    if not wrong:
        return None
    right = [key for key in expected if key not in wrong]
    said = f"`{right[0]}` is right, `{wrong[0]}` is not." if right else ""
    return Problem("wrong_values", said)


def _is_count(recorded, value) -> bool:
    return recorded.data.size == 1 and float(recorded.data.reshape(())) == float(value)


def _whole_counts(probe, expected, recorded) -> Problem | None:
    kinds = {key: recorded.items[key].kind for key in expected}
    if all(kind == "int" for kind in kinds.values()):
        return _counts(probe, expected, recorded)
    key = next(key for key, kind in kinds.items() if kind != "int")
    return Problem(
        "not_whole",
        f"`{key}` must be an int; yours is {a_or_an(recorded.items[key].type_name)}.",
        "Is there a `/` somewhere, or a float among the factors?",
    )


def _wrong_counts(probe, outputs) -> dict[str, tuple[float, int, set[str]]]:
    """Each wrong count: what it is, what it should be, and the mistakes that would explain it."""
    given = {"bytes_per_element": 4} | {name: int(n) for name, n in probe.inputs().items()}
    found = {}
    for key, right in oracle.attention_cost(**given).outputs.items():
        got = outputs.items.get(key)
        if got is None or got.data is None or got.data.size != 1 or _is_count(got, right):
            continue
        models = {f"`{key}`: {known.message}": known.model for known in EXERCISE.mistakes}
        fits = {said for said, model in models.items() if _is_count(got, model(**given)[key])}
        found[key] = float(got.data.reshape(())), right, fits
    return found


def _counts_that_differ(probe, outputs) -> str | None:
    wrong = _wrong_counts(probe, outputs)
    said = [f"`{key}` is {got:g} instead of {right}" for key, (got, right, _) in wrong.items()]
    return f"Your {', and your '.join(said)}." if said else None


def _formulas(probe, outputs) -> set[str] | None:
    wrong = _wrong_counts(probe, outputs)
    choices = itertools.product(*(fits for *_, fits in wrong.values()))
    return {" ".join(said) for said in choices} if wrong else None


def _cost(count) -> Callable:
    """Return the two numbers of `count(batch, num_queries, num_keys, d, d_v, bytes)`."""

    def model(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
        flops, size = count(batch, num_queries, num_keys, d, d_v, bytes_per_element)
        return {"flops": flops, "score_bytes": size}

    return model


def _flops(count) -> Callable:
    """Change the operations: `count(number of scores, d, d_v)`."""
    return _cost(lambda B, n, m, d, v, e: (count(B * n * m, d, v), B * n * m * e))


def _bytes(count) -> Callable:
    """Change the bytes: `count(number of scores, bytes_per_element)`."""
    return _cost(lambda B, n, m, d, v, e: (2 * B * n * m * (d + v), count(B * n * m, e)))


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=1,
    starred=True,
    returns=(Returned("cost", "dict"),),
    probes=_attention_cost_probes,
    oracle=oracle.attention_cost,
    comparisons={"counts": _counts, "whole_counts": _whole_counts},
    exact=("counts",),
    mistakes=(
        mistake("factor_2_missing", _flops(lambda scores, d, v: scores * (d + v))).says(
            "You count multiply-adds. Each one is 2 operations, so your count is half of what it "
            "should be.",
            "How many operations does `total += x * y` do?",
        ),
        mistake("second_product_missing", _flops(lambda scores, d, v: 2 * scores * d)).says(
            "Only Q K^T is counted; the product of weights and values is missing.",
            "Which product comes after the softmax, and how long are its sums?",
        ),
        mistake("elements_for_bytes", _bytes(lambda scores, e: scores)).says(
            "You count the scores; the exercise asks how many bytes they take.",
            "How many bytes does one element take?",
        ),
        mistake(
            "queries_used_twice",
            _cost(lambda B, n, m, d, v, e: (2 * B * n * n * (d + v), B * n * n * e)),
        ).says(
            "You use the number of queries where the number of keys belongs.",
            "What are the sizes of the score matrix if there are more keys than queries?",
        ),
        mistake(
            "batch_forgotten", _cost(lambda B, n, m, d, v, e: (2 * n * m * (d + v), n * m * e))
        ).says(
            "You count the cost of a single item of the batch.",
            "What happens to both numbers if the batch is twice as large?",
        ),
        mistake("d_used_twice", _flops(lambda scores, d, v: 4 * scores * d)).says(
            "Values are counted as if they had the size of the keys.",
            "What size does a value have, and where does `d_v` enter?",
        ),
        mistake("always_4_bytes", _bytes(lambda scores, e: 4 * scores)).says(
            "Every element counts 4 bytes, whatever `bytes_per_element` says.",
            "Where does your code use `bytes_per_element`?",
        ),
    ),
    properties=(
        Property(
            "counts_explained",
            _counts_that_differ,
            "Which sizes does this count multiply?",
            formulas=_formulas,
        ),
    ),
    hints=(
        "Count the entries of the scores first, then how many multiply-adds one entry takes. Do "
        "the same for the outputs.",
        "The scores have B n m entries, each a sum over d: 2 operations for each of the d "
        "products. The outputs have B n d_v entries, each a sum over m.",
        "num_scores = batch * num_queries * num_keys\n"
        'return {"flops": 2 * num_scores * (...), "score_bytes": num_scores * ...}',
    ),
)
