"""`attention_cost`: the operations of the two products, and the bytes of the scores."""

import functools

import numpy as np

from course_lib.checks.judge.comparisons import Cause, Problem, close
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.record import a_or_an
from course_lib.exercises import kit
from course_lib.exercises.kit import Problems, like, mistake

call, edge = (functools.partial(one, tolerance=0.0) for one in (kit.call, kit.edge))


def problems(rng) -> Problems:
    def drawn(low, high) -> list[int]:
        return rng.permutation(np.arange(low, high))[:5].tolist()

    names = ("batch", "num_queries", "num_keys", "d", "d_v")
    # The counts of the long sequences are odd multiples of numbers that a float cannot hold.
    long = (2 * rng.integers(1000, size=2) + [10_000_019, 50_000_021]).tolist()
    few = rng.integers(2, 10, 4).tolist()
    small = drawn(2, 9)[1:]
    yield (
        "1 item, 2 queries, 3 keys, d = 4 and d_v = 5: each product has n m d (or n m d_v) "
        "multiply-adds, and a score takes 4 bytes unless the caller says otherwise."
    )
    yield call(1, 2, 3, 4, 5)
    yield "The sizes must be accepted by name."
    yield call(**dict(zip(names, drawn(21, 60), strict=True)), bytes_per_element=8)
    yield "`bytes_per_element` must change the memory and nothing else."
    yield call(1, *drawn(3, 30)[1:], 2)
    yield "Long sequences must be counted exactly, to the last operation."
    yield edge(7, *long, 130, 61, compare="whole")
    yield "Counts may exceed the largest int64, where NumPy's integers overflow."
    yield edge(*few[:2], 2**62, *few[2:])
    yield "A size may be 0: without features in the values, the second product is free."
    yield edge(*few, 0)
    yield "Counts are whole numbers: both must be int."
    yield edge(1, *small, 4, compare="whole")


def whole(probe, expected, recorded) -> Problem | None:
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


def cost(flops, score_bytes) -> dict[str, int]:
    return {"flops": flops, "score_bytes": score_bytes}


@mistake
def factor_2_missing(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    """You do not count 2 operations for each product that a matrix product adds up: a multiply-add
    counts once, the first addition is left out, or the softmax counts, too.

    Which operations does the statement count, and how many are in `total += x * y`?
    """
    scores = batch * num_queries * num_keys
    return cost(scores * (d + d_v), scores * bytes_per_element)


@like(factor_2_missing)
def first_addition_left_out(
    batch, num_queries, num_keys, d, d_v, bytes_per_element=4
) -> dict[str, int]:
    scores = batch * num_queries * num_keys
    flops = scores * (2 * d - 1) + batch * num_queries * d_v * (2 * num_keys - 1)
    return cost(flops, scores * bytes_per_element)


for _more in range(1, 7):

    @like(factor_2_missing)
    def softmax_counted(
        batch, num_queries, num_keys, d, d_v, bytes_per_element=4, more=_more
    ) -> dict[str, int]:
        scores = batch * num_queries * num_keys
        return cost(scores * (2 * d + 2 * d_v + more), scores * bytes_per_element)


@mistake
def d_used_twice(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    """You use `d` for both products, but a value has `d_v` entries.

    What shape does the product of weights and values have?
    """
    scores = batch * num_queries * num_keys
    return cost(2 * scores * (d + d), scores * bytes_per_element)


@mistake
def queries_used_twice(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    """You use `num_queries` where the number of keys belongs, in one or both of the numbers.

    How many scores does each query have?
    """
    scores = batch * num_queries * num_queries
    return cost(2 * scores * (d + d_v), scores * bytes_per_element)


@like(queries_used_twice)
def and_always_4_bytes(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    return queries_used_twice(batch, num_queries, num_keys, d, d_v)


@mistake
def int64_overflow(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    """Your numbers wrap around beyond the largest int64, as those of NumPy and torch do.

    Which step makes them? Python's own integers have no upper limit.
    """
    scores = np.array([batch * num_queries]) * num_keys
    with np.errstate(over="ignore"):
        flops, size = 2 * scores * (d + d_v), scores * bytes_per_element
    return cost(int(flops[0]), int(size[0]))


@mistake
def always_4_bytes(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    """Your bytes are not `bytes_per_element` for each score: they are 4 for each, bits, or those of
    more tensors than the scores.

    Where does your code use `bytes_per_element`, and of which tensor is it an element?
    """
    scores = batch * num_queries * num_keys
    return cost(2 * scores * (d + d_v), scores * 4)


@like(always_4_bytes)
def bits(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    scores = batch * num_queries * num_keys
    return cost(2 * scores * (d + d_v), 8 * scores * bytes_per_element)


@like(always_4_bytes)
def weights_too(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    scores = batch * num_queries * num_keys
    return cost(2 * scores * (d + d_v), 2 * scores * bytes_per_element)


@like(always_4_bytes)
def arguments_too(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    scores = batch * num_queries * num_keys
    given = batch * (num_queries * d + num_keys * (d + d_v))
    return cost(2 * scores * (d + d_v), (scores + given) * bytes_per_element)


@mistake
def batch_forgotten(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    """You count a single item of the batch, in one or both of the numbers.

    What happens to both numbers if the batch is twice as large?
    """
    scores = num_queries * num_keys
    return cost(2 * scores * (d + d_v), scores * bytes_per_element)


@like(batch_forgotten)
def bytes_of_an_item(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
    scores = num_queries * num_keys
    return cost(2 * batch * scores * (d + d_v), scores * bytes_per_element)


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=1,
    starred=True,
    returns=(Returned("cost", "dict"),),
    probes=problems,
    hints=(
        "Count the entries of the scores first, then how many multiply-adds one entry takes. Do "
        "the same for the outputs.",
        "The scores have B n m entries, each a sum over d: 2 operations for each of the d "
        "products. The outputs have B n d_v entries, each a sum over m.",
        "num_scores = batch * num_queries * num_keys\n"
        'return {"flops": 2 * num_scores * (...), "score_bytes": num_scores * ...}',
    ),
    marking=Marking(comparisons={"whole": whole}),
)
