"""Lesson 03: what the two products cost."""

import numpy as np

from course_lib.checks.catalogue import _batch_matmul_mistakes as models
from course_lib.checks.compare import Problem
from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe
from course_lib.checks.record import a_or_an
from course_lib.reference import batch_matmul as oracle


def _distinct(rng, low, high, count):
    return [int(n) for n in rng.permutation(np.arange(low, high))[:count]]


_SIZES = ("batch", "num_queries", "num_keys", "d", "d_v")


def _attention_cost_probes(rng):
    def sizes(low, high):
        return dict(zip(_SIZES, _distinct(rng, low, high, 5), strict=True))

    return [
        Probe(
            "by_hand",
            "1 item, 2 queries, 3 keys, d = 4 and d_v = 5: each product has n m d (or n m d_v) "
            "multiply-adds, and a score takes 4 bytes unless the caller says otherwise.",
            args=dict(zip(_SIZES, (1, 2, 3, 4, 5), strict=True)),
            compare="counts",
        ),
        Probe(
            "different_sizes",
            "Both products count, a multiply-add as 2, and each size enters where it belongs.",
            args=sizes(2, 20),
            compare="counts",
        ),
        Probe(
            "by_name",
            "The sizes must be accepted by name.",
            kwargs=sizes(21, 60),
            compare="counts",
        ),
        Probe(
            "half_precision",
            "`bytes_per_element` must change the memory and nothing else.",
            args=sizes(3, 30),
            kwargs={"bytes_per_element": 2},
            compare="counts",
        ),
        Probe(
            "double_precision",
            "`bytes_per_element` must be used as given.",
            args={**sizes(3, 30), "bytes_per_element": 8},
            compare="counts",
        ),
        Probe(
            "no_queries",
            "Without queries there is nothing to do and nothing to store.",
            part="edges",
            args=dict(zip(_SIZES, (3, 0, 7, 5, 4), strict=True)),
            compare="counts",
        ),
        Probe(
            "very_long",
            "Long sequences must be counted exactly, to the last operation.",
            part="edges",
            args=dict(zip(_SIZES, (2, 100_003, 50_021, 128, 64), strict=True)),
            compare="counts",
        ),
        Probe(
            "whole_numbers",
            "Counts are whole numbers: both must be int.",
            part="edges",
            args=sizes(2, 9),
            compare="whole_counts",
        ),
    ]


def _counts(probe, expected, recorded):
    """Both counts to the last unit; says which of the two is wrong."""
    wrong = [key for key, value in expected.items() if not _is_count(recorded.items[key], value)]
    if not wrong:
        return None
    right = [key for key in expected if key not in wrong]
    start = f"`{right[0]}` is right, `{wrong[0]}` is not. " if right else ""
    return Problem("wrong_values", start + probe.says)


def _is_count(recorded, value):
    return recorded.data.size == 1 and float(recorded.data.reshape(())) == float(value)


def _whole_counts(probe, expected, recorded):
    kinds = {key: recorded.items[key].kind for key in expected}
    if all(kind == "int" for kind in kinds.values()):
        return _counts(probe, expected, recorded)
    key = next(key for key, kind in kinds.items() if kind != "int")
    return Problem(
        "not_whole",
        f"`{key}` must be an int; yours is {a_or_an(recorded.items[key].type_name)}.",
        "Does `/` stand somewhere, or a float among the factors?",
    )


def _cost_mistake(name, message, hint, flops=models.right_flops, size=models.right_size):
    return Mistake(name, models.cost(flops, size), message, hint)


def _two_mistakes(probe, outputs):
    """What is known of each count on its own, where no single mistake explains both."""
    given = {name: int(value) for name, value in probe.inputs().items()}
    given.setdefault("bytes_per_element", 4)
    expected = oracle.attention_cost(**given)
    said = []
    for key, right in expected.items():
        got = outputs.items.get(key)
        if got is None or got.data is None or got.data.size != 1 or _is_count(got, right):
            continue
        for mistake in ATTENTION_COST.mistakes:
            wrong = mistake.model(**given)[key]
            if wrong != right and _is_count(got, wrong):
                said.append(f"`{key}`: {mistake.message}")
                break
    return " ".join(said) if len(said) == 2 else None


ATTENTION_COST = Exercise(
    name="attention_cost",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("cost", "dict"),),
    probes=_attention_cost_probes,
    oracle=oracle.attention_cost,
    comparisons={"counts": _counts, "whole_counts": _whole_counts},
    mistakes=(
        _cost_mistake(
            "factor_2_missing",
            "You count multiply-adds; one of them is 2 operations, so all is half of what it "
            "should be.",
            "How many operations does `total += x * y` do?",
            flops=lambda B, n, m, d, v, e: B * n * m * (d + v),
        ),
        _cost_mistake(
            "factor_2_missing_in_first_product",
            "A multiply-add counts as 2 in W V, but as 1 in Q K^T.",
            "What does the statement count a multiply-add as, in both products?",
            flops=lambda B, n, m, d, v, e: B * n * m * (d + 2 * v),
        ),
        _cost_mistake(
            "factor_2_missing_in_second_product",
            "A multiply-add counts as 2 in Q K^T, but as 1 in W V.",
            "What does the statement count a multiply-add as, in both products?",
            flops=lambda B, n, m, d, v, e: B * n * m * (2 * d + v),
        ),
        _cost_mistake(
            "operations_counted_twice",
            "The operations are twice what they should be.",
            "Where does a factor 2 enter: once, or once in each product and once in their sum?",
            flops=lambda B, n, m, d, v, e: 4 * B * n * m * (d + v),
        ),
        _cost_mistake(
            "batch_forgotten_in_second_product",
            "Q K^T is counted for the whole batch, W V for a single item.",
            "What happens to each product if the batch is twice as large?",
            flops=lambda B, n, m, d, v, e: 2 * n * m * (B * d + v),
        ),
        _cost_mistake(
            "only_d_multiplied",
            "d_v is added at the end, without being multiplied by anything.",
            "In which order does Python work out `2 * a * d + d_v`?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d + v,
        ),
        _cost_mistake(
            "queries_used_twice",
            "The number of queries stands where the number of keys should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * n * (d + v),
            size=lambda B, n, m, d, v, e: B * n * n * e,
        ),
        _cost_mistake(
            "queries_used_twice_in_flops",
            "In the operations, the number of queries stands where the number of keys should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * n * (d + v),
        ),
        _cost_mistake(
            "queries_used_twice_in_bytes",
            "In the memory, the number of queries stands where the number of keys should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            size=lambda B, n, m, d, v, e: B * n * n * e,
        ),
        _cost_mistake(
            "queries_twice_in_second_product",
            "The second product is counted with n outputs of n values; each output takes m.",
            "Over how many values does one output sum?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d + 2 * B * n * n * v,
        ),
        _cost_mistake(
            "keys_twice_in_second_product",
            "The second product is counted with m outputs; there are n, one for each query.",
            "How many outputs does attention have?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d + 2 * B * m * m * v,
        ),
        _cost_mistake(
            "keys_used_twice",
            "The number of keys stands where the number of queries should.",
            "What are the sizes of the score matrix if queries and keys differ in number?",
            flops=lambda B, n, m, d, v, e: 2 * B * m * m * (d + v),
            size=lambda B, n, m, d, v, e: B * m * m * e,
        ),
        _cost_mistake(
            "elements_for_bytes",
            "You count the scores; the question is how many bytes they take.",
            "How many bytes does one element take?",
            size=lambda B, n, m, d, v, e: B * n * m,
        ),
        _cost_mistake(
            "always_4_bytes",
            "Every element counts 4 bytes, whatever `bytes_per_element` says.",
            "Where does your code use `bytes_per_element`?",
            size=lambda B, n, m, d, v, e: B * n * m * 4,
        ),
        _cost_mistake(
            "bits_for_bytes",
            "You count bits: eight times the bytes.",
            "What is `bytes_per_element` measured in?",
            size=lambda B, n, m, d, v, e: 8 * B * n * m * e,
        ),
        _cost_mistake(
            "bytes_in_flops",
            "The operations depend on `bytes_per_element`; a multiplication is one operation in "
            "every dtype.",
            "Which of the two answers should know about bytes?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * (d + v) * e,
        ),
        _cost_mistake(
            "second_product_missing",
            "Only Q K^T is counted; the product of weights and values is missing.",
            "Which product comes after the softmax, and how long are its sums?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d,
        ),
        _cost_mistake(
            "first_product_missing",
            "Only the product of weights and values is counted; Q K^T is missing.",
            "Which product comes before the softmax, and how long are its sums?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * v,
        ),
        _cost_mistake(
            "d_used_twice",
            "Values are counted as if they had the size of the keys.",
            "Which size has a value: where does `d_v` enter?",
            flops=lambda B, n, m, d, v, e: 4 * B * n * m * d,
        ),
        _cost_mistake(
            "d_v_used_twice",
            "Queries and keys are counted as if they had the size of the values.",
            "Which size has a query: where does `d` enter?",
            flops=lambda B, n, m, d, v, e: 4 * B * n * m * v,
        ),
        _cost_mistake(
            "softmax_counted",
            "The operations hold more than the two products: a few for every score.",
            "Which steps between the two products did you count, and which are asked for?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * (d + v) + 3 * B * n * m,
        ),
        _cost_mistake(
            "numbers_exchanged",
            "The two numbers are right, each under the other's name.",
            "Which of the two is measured in bytes?",
            flops=models.right_size,
            size=models.right_flops,
        ),
        _cost_mistake(
            "numbers_of_positions_added",
            "The memory has n + m scores an item; every query has a score for every key.",
            "How many scores do 2 queries and 3 keys have?",
            size=lambda B, n, m, d, v, e: B * (n + m) * e,
        ),
        _cost_mistake(
            "inputs_and_scores",
            "The memory is that of queries, keys, values and scores; asked is that of the scores.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: B * (n * m + n * d + m * d + m * v) * e,
        ),
        _cost_mistake(
            "sizes_multiplied",
            "d and d_v are multiplied; the two products are done one after the other, so their "
            "costs add up.",
            "What does the second product cost if d is doubled?",
            flops=lambda B, n, m, d, v, e: 2 * B * n * m * d * v,
        ),
        _cost_mistake(
            "products_multiplied",
            "The costs of the two products are multiplied; one comes after the other.",
            "If the first takes 2 seconds and the second 3, how long do both take?",
            flops=lambda B, n, m, d, v, e: (2 * B * n * m * d) * (2 * B * n * m * v),
        ),
        _cost_mistake(
            "batch_forgotten",
            "The cost is that of a single item.",
            "What happens to both numbers if the batch is twice as large?",
            flops=lambda B, n, m, d, v, e: 2 * n * m * (d + v),
            size=lambda B, n, m, d, v, e: n * m * e,
        ),
        _cost_mistake(
            "batch_forgotten_in_flops",
            "The operations are those of a single item.",
            "What happens to both numbers if the batch is twice as large?",
            flops=lambda B, n, m, d, v, e: 2 * n * m * (d + v),
        ),
        _cost_mistake(
            "batch_forgotten_in_bytes",
            "The memory is that of a single item.",
            "What happens to both numbers if the batch is twice as large?",
            size=lambda B, n, m, d, v, e: n * m * e,
        ),
        _cost_mistake(
            "last_addition_left_out",
            "You count k multiplications and k - 1 additions; the convention here, as in most "
            "papers, is 2 operations for each of the k multiply-adds.",
            "What does the statement count a multiply-add as?",
            flops=lambda B, n, m, d, v, e: B * n * (m * (2 * d - 1) + v * (2 * m - 1)),
        ),
        _cost_mistake(
            "inputs_for_scores",
            "The memory is that of queries, keys and values; asked is that of the scores.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: B * (n * d + m * d + m * v) * e,
        ),
        _cost_mistake(
            "outputs_for_scores",
            "The memory is that of the outputs (B, n, d_v); asked is that of the scores.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: B * n * v * e,
        ),
        _cost_mistake(
            "scores_and_weights",
            "The memory counts scores and weights; asked is that of the scores alone.",
            "What is the shape of the scores?",
            size=lambda B, n, m, d, v, e: 2 * B * n * m * e,
        ),
        Mistake(
            "bytes_without_default",
            models.cost_without_default,
            "Your function cannot be called without `bytes_per_element`; the exercise gives it a "
            "default of 4.",
            "Which signature does the exercise ask for?",
        ),
        Mistake(
            "default_of_2_bytes",
            models.cost_of_half_precision,
            "Where the caller does not say, you count 2 bytes an element; the default is 4.",
            "Which signature does the exercise ask for?",
        ),
        _cost_mistake(
            "floating_point_result",
            "The numbers are right, but counts are whole numbers and yours are floats.",
            "Does `/` stand somewhere, or a float among the factors?",
            flops=lambda B, n, m, d, v, e: float(2 * B * n * m * (d + v)),
            size=lambda B, n, m, d, v, e: float(B * n * m * e),
        ),
    ),
    properties=(
        Property("two_mistakes", _two_mistakes, "Which of the two is easier to put right first?"),
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
