"""Lesson 03: what the two products cost."""

import itertools
from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import a_or_an
from course_lib.exercises._rows import Given, Model, case, edge, in_steps, mistake
from course_lib.reference import batch_matmul as oracle


def _distinct(rng, low, high, count) -> list[int]:
    return [int(n) for n in rng.permutation(np.arange(low, high))[:count]]


_SIZES = ("batch", "num_queries", "num_keys", "d", "d_v")


def _named(sizes) -> Given:
    return dict(zip(_SIZES, sizes, strict=True))


def _attention_cost_probes(rng) -> list[Probe]:
    def sizes(low, high, **more) -> Given:
        return _named(_distinct(rng, low, high, 5)) | more

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


def _wrong_count(name, **formulas: Callable) -> Model:
    return mistake(name, _cost(**formulas))


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


@in_steps(
    flops=lambda B, n, m, d, v, e: 2 * B * n * m * (d + v),
    size=lambda B, n, m, d, v, e: B * n * m * e,
)
def _cost(flops, size) -> Callable:
    """A cost function from two formulas in (B, n, m, d, d_v, bytes)."""

    def model(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
        given = batch, num_queries, num_keys, d, d_v, bytes_per_element
        return {"flops": flops(*given), "score_bytes": size(*given)}

    return model


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
        _wrong_count("factor_2_missing", flops=lambda B, n, m, d, v, e: B * n * m * (d + v)).says(
            "You count multiply-adds. Each one is 2 operations, so your count is half of what it "
            "should be.",
            "How many operations does `total += x * y` do?",
        ),
        _wrong_count(
            "second_product_missing", flops=lambda B, n, m, d, v, e: 2 * B * n * m * d
        ).says(
            "Only Q K^T is counted; the product of weights and values is missing.",
            "Which product comes after the softmax, and how long are its sums?",
        ),
        _wrong_count("elements_for_bytes", size=lambda B, n, m, d, v, e: B * n * m).says(
            "You count the scores; the exercise asks how many bytes they take.",
            "How many bytes does one element take?",
        ),
        _wrong_count(
            "queries_used_twice",
            flops=lambda B, n, m, d, v, e: 2 * B * n * n * (d + v),
            size=lambda B, n, m, d, v, e: B * n * n * e,
        ).says(
            "You use the number of queries where the number of keys belongs.",
            "What are the sizes of the score matrix if there are more keys than queries?",
        ),
        _wrong_count(
            "batch_forgotten",
            flops=lambda B, n, m, d, v, e: 2 * n * m * (d + v),
            size=lambda B, n, m, d, v, e: n * m * e,
        ).says(
            "The cost is that of a single item.",
            "What happens to both numbers if the batch is twice as large?",
        ),
        _wrong_count("d_used_twice", flops=lambda B, n, m, d, v, e: 4 * B * n * m * d).says(
            "Values are counted as if they had the size of the keys.",
            "What size does a value have, and where does `d_v` enter?",
        ),
        _wrong_count("always_4_bytes", size=lambda B, n, m, d, v, e: B * n * m * 4).says(
            "Every element counts 4 bytes, whatever `bytes_per_element` says.",
            "Where does your code use `bytes_per_element`?",
        ),
        _wrong_count("sizes_multiplied", flops=lambda B, n, m, d, v, e: 2 * B * n * m * d * v).says(
            "You multiply d by d_v. The two products run one after the other, so their costs add "
            "up.",
            "What does the second product cost if d is doubled?",
        ),
        _wrong_count(
            "softmax_counted",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * (d + v) + 3 * B * n * m,
        ).says(
            "Your operations include more than the two products: a few for every score.",
            "Which steps between the two products did you count, and which does the exercise ask "
            "for?",
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
