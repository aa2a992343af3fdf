"""Answers to `attention_cost`."""

import collections
import math

import torch

from course_lib.exercises.variants import faulty, right, wrong


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


@wrong("not_whole")
def halves(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return {"flops": pairs * (d + d_v) / 0.5, "score_bytes": float(pairs * bytes_per_element)}


@wrong()
def a_tuple(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return 2 * pairs * (d + d_v), pairs * bytes_per_element


@right
def from_any_arguments(*sizes, bytes_per_element=4, **named):
    names = "batch", "num_queries", "num_keys", "d", "d_v", "bytes_per_element"
    given = {"bytes_per_element": bytes_per_element}
    given |= dict(zip(names, sizes, strict=False)) | named
    cells = given["batch"] * given["num_queries"] * given["num_keys"]
    return {
        "score_bytes": cells * given["bytes_per_element"],
        "flops": sum(2 * cells * given[size] for size in ("d", "d_v")),
    }


@wrong("raised")
def six_sizes(batch, num_queries, num_keys, d, d_v, bytes_per_element):
    cells = batch * num_queries * num_keys
    return {"flops": 2 * cells * (d + d_v), "score_bytes": cells * bytes_per_element}


@wrong("softmax_counted")
def with_the_softmax(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    cells = batch * num_queries * num_keys
    flops = 2 * cells * d + 3 * cells + 2 * cells * d_v
    return {"flops": flops, "score_bytes": cells * bytes_per_element}


@wrong("wrong_values")
def queries_and_keys_stored(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    flops = 2 * batch * num_queries * num_keys * (d + d_v)
    size = batch * (num_queries + num_keys) * bytes_per_element
    return {"flops": flops, "score_bytes": size}


@wrong()
def rounded_to_float32(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    cells = float(batch) * num_queries * num_keys
    flops, size = torch.tensor([2 * cells * (d + d_v), cells * bytes_per_element]).tolist()
    return {"flops": int(flops), "score_bytes": int(size)}


@right
def added_up_in_a_defaultdict(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    cost = collections.defaultdict(int)
    for size in (d, d_v):
        cost["flops"] += 2 * batch * num_queries * num_keys * size
    cost["score_bytes"] += batch * num_queries * num_keys * bytes_per_element
    return cost


@wrong("counts_explained")
def operations_of_one_item(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    scores = num_queries * num_keys
    return {"flops": 2 * scores * (d + d_v), "score_bytes": batch * scores * bytes_per_element}


one_formula = right(
    lambda batch, num_queries, num_keys, d, d_v, bytes_per_element=4: {
        "flops": 2 * batch * num_queries * num_keys * (d + d_v),
        "score_bytes": batch * num_queries * num_keys * bytes_per_element,
    }
)


@faulty("no_batch", "always_4", "no_default", "floats")
def several_faults(faults):
    def attention_cost(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
        scores = num_queries * num_keys * (1 if "no_batch" in faults else batch)
        size = 4 if "always_4" in faults else bytes_per_element
        factor = 2.0 if "floats" in faults else 2
        return {"flops": factor * scores * (d + d_v), "score_bytes": scores * size}

    def without_default(batch, num_queries, num_keys, d, d_v, bytes_per_element):
        return attention_cost(batch, num_queries, num_keys, d, d_v, bytes_per_element)

    return without_default if "no_default" in faults else attention_cost
