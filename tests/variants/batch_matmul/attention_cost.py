"""Answers to `attention_cost`."""

import math

from course_lib.checks.matrix import right, wrong


@right
def one_formula(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    return {
        "flops": 2 * batch * num_queries * num_keys * (d + d_v),
        "score_bytes": batch * num_queries * num_keys * bytes_per_element,
    }


@right
def two_products(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    scores = 2 * batch * num_queries * d * num_keys
    outputs = 2 * batch * num_queries * num_keys * d_v
    return dict(
        score_bytes=bytes_per_element * batch * num_keys * num_queries, flops=scores + outputs
    )


@right
def with_product(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    entries = math.prod((batch, num_queries, num_keys))
    return {
        "flops": sum(2 * entries * size for size in (d, d_v)),
        "score_bytes": entries * bytes_per_element,
    }


@right
def shifted(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    entries = batch * num_queries * num_keys
    cost = {}
    cost["flops"] = (entries * (d + d_v)) << 1
    cost["score_bytes"] = entries * bytes_per_element
    cost["comment"] = 0
    return cost


@wrong("factor_2_missing")
def multiply_adds(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": pairs * d + pairs * d_v, "score_bytes": pairs * bytes_per_element}


@wrong("queries_used_twice")
def squares(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries**2
    return {"flops": 2 * pairs * (d + d_v), "score_bytes": pairs * bytes_per_element}


@wrong("elements_for_bytes")
def elements(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 2 * pairs * (d + d_v), "score_bytes": pairs}


@wrong("d_used_twice")
def only_d(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 4 * pairs * d, "score_bytes": pairs * bytes_per_element}


@wrong("second_product_missing")
def only_scores(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 2 * pairs * d, "score_bytes": pairs * bytes_per_element}


@wrong("sizes_multiplied")
def times(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 2 * pairs * d * d_v, "score_bytes": pairs * bytes_per_element}


@wrong("batch_forgotten")
def one_item(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = num_queries * num_keys
    return {"flops": 2 * pairs * (d + d_v), "score_bytes": pairs * bytes_per_element}


@wrong("always_4_bytes")
def float32_only(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 2 * pairs * (d + d_v), "score_bytes": 4 * pairs}


@wrong("floating_point_result")
def halves(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": pairs * (d + d_v) / 0.5, "score_bytes": float(pairs * bytes_per_element)}


@wrong("not_whole")
def one_float(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": pairs * (d + d_v) * 2.0, "score_bytes": pairs * bytes_per_element}


@wrong()
def a_tuple(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return 2 * pairs * (d + d_v), pairs * bytes_per_element


@wrong()
def other_key(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 2 * pairs * (d + d_v), "bytes": pairs * bytes_per_element}


@wrong()
def mebibytes(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": 2 * pairs * (d + d_v), "score_bytes": pairs * bytes_per_element // 2**20}


@wrong()
def both_wrong(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_queries
    return {"flops": pairs * (d + d_v), "score_bytes": pairs}


@wrong()
def swapped_answers(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"score_bytes": 2 * pairs * (d + d_v), "flops": pairs * bytes_per_element}


@wrong("two_mistakes")
def single_item_multiply_adds_and_elements(
    batch, num_queries, num_keys, d, d_v, bytes_per_element=4
):
    pairs = num_queries * num_keys
    return {"flops": batch * pairs * (d + d_v), "score_bytes": pairs * bytes_per_element}
