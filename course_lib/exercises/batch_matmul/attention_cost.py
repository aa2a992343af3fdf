"""`attention_cost`: the operations of the two products, and the bytes of the scores."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.comparisons import Cause, Problem, close
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import a_or_an
from course_lib.exercises._builders import Given, case, edge, in_steps, mistake

_EXACT: Given = {"tolerance": 0.0}


def _named(*sizes) -> Given:
    names = ("batch", "num_queries", "num_keys", "d", "d_v")
    return dict(zip(names, map(int, sizes), strict=True))


def _probes(rng) -> list[Probe]:
    def drawn(low, high) -> Given:
        return _named(*rng.permutation(np.arange(low, high))[:5])

    # The counts of the long sequences are odd multiples of numbers that a float cannot hold.
    long = [7, *(2 * rng.integers(1000, size=2) + [10_000_019, 50_000_021]), 130, 61]
    few = rng.integers(2, 10, 4).tolist()
    small = drawn(2, 9) | {"batch": 1, "bytes_per_element": 4}
    return [
        case("worked", **_named(1, 2, 3, 4, 5), **_EXACT).says(
            "1 item, 2 queries, 3 keys, d = 4 and d_v = 5: each product has n m d (or n m d_v) "
            "multiply-adds, and a score takes 4 bytes unless the caller says otherwise."
        ),
        case("by_name", by_name={**drawn(21, 60), "bytes_per_element": 8}, **_EXACT).says(
            "The sizes must be accepted by name."
        ),
        case("half_precision", **drawn(3, 30) | {"batch": 1}, bytes_per_element=2, **_EXACT).says(
            "`bytes_per_element` must change the memory and nothing else."
        ),
        edge("very_long", **_named(*long), compare="whole", **_EXACT).says(
            "Long sequences must be counted exactly, to the last operation."
        ),
        edge("beyond_int64", **_named(*few[:2], 2**62, *few[2:]), **_EXACT).says(
            "Counts may exceed the largest int64, where NumPy's integers overflow."
        ),
        edge("empty", **_named(*few, 0), **_EXACT).says(
            "A size may be 0: without features in the values, the second product is free."
        ),
        edge("whole_numbers", **small, compare="whole", **_EXACT).says(
            "Counts are whole numbers: both must be int."
        ),
    ]


def _whole(probe, expected, recorded) -> Problem | None:
    for key in expected:
        if recorded.items[key].kind != "int":
            return Cause(
                "not_whole",
                f"`{key}` must be an int; yours is {a_or_an(recorded.items[key].type_name)}.",
                "Which step gives that type, such as a `/`, a float factor, or NumPy's numbers?",
            )
    if problem := close(probe, expected, recorded):
        return problem
    for key, count in expected.items():
        if (yours := recorded.items[key].text) != str(count):
            return Cause(
                "rounded",
                f"Your `{key}` is {yours}, and the exact count is {count}.",
                "Does a float enter your count? A float holds only about 16 digits.",
            )
    return None


@in_steps(
    flops=lambda scores, d, d_v: 2 * scores * (d + d_v),
    size=lambda scores, bytes_per_element: scores * bytes_per_element,
    count=lambda batch, n, m: batch * n * m,
    size_of_an_item=False,
)
def _cost(flops, size, count, size_of_an_item) -> Callable:
    """Make a wrong count. `flops` and `size` get the number of scores."""

    def model(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
        scores = count(batch, num_queries, num_keys)
        held = num_queries * num_keys if size_of_an_item else scores
        return {"flops": flops(scores, d, d_v), "score_bytes": size(held, bytes_per_element)}

    return model


def _in_int64(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    scores = np.array([batch * num_queries]) * num_keys
    with np.errstate(over="ignore"):
        flops, size = 2 * scores * (d + d_v), scores * bytes_per_element
    return {"flops": int(flops[0]), "score_bytes": int(size[0])}


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=1,
    starred=True,
    returns=(Returned("cost", "dict"),),
    probes=_probes,
    comparisons={"whole": _whole},
    mistakes=(
        mistake("factor_2_missing", _cost(lambda scores, d, d_v: scores * (d + d_v))).says(
            "You count multiply-adds. Each one is 2 operations, so your count is half of what it "
            "should be.",
            "How many operations does `total += x * y` do?",
        ),
        mistake("d_used_twice", _cost(lambda scores, d, d_v: 4 * scores * d)).says(
            "You use `d` for both products, but a value has `d_v` entries.",
            "What shape does the product of weights and values have?",
        ),
        mistake("int64_overflow", _in_int64).says(
            "Your numbers wrap around beyond the largest int64, as those of NumPy and torch do.",
            "Which step makes them? Python's own integers have no upper limit.",
        ),
        mistake("always_4_bytes", _cost(size=lambda scores, _: 4 * scores)).says(
            "You count 4 bytes per element, whatever `bytes_per_element` is.",
            "Where does your code use `bytes_per_element`?",
        ),
        mistake(
            "batch_forgotten",
            _cost(count=lambda batch, n, m: n * m),
            twins=(_cost(size_of_an_item=True),),
        ).says(
            "You count a single item of the batch, in one or both of the numbers.",
            "What happens to both numbers if the batch is twice as large?",
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
