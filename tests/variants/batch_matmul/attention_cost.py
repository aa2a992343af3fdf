"""Answers to `attention_cost`."""

import collections

from course_lib.authoring.variants import faulty, right, wrong


@right
def two_products(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    scores = 2 * batch * num_queries * d * num_keys
    outputs = 2 * batch * num_queries * num_keys * d_v
    return dict(
        score_bytes=bytes_per_element * batch * num_keys * num_queries, flops=scores + outputs
    )


@right
def shifted(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    entries = batch * num_queries * num_keys
    cost = {}
    cost["flops"] = (entries * (d + d_v)) << 1
    cost["score_bytes"] = entries * bytes_per_element
    cost["comment"] = 0
    return cost


@wrong("rounded")
def in_floats(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    cells = float(batch * num_queries * num_keys)
    return {"flops": int(2 * cells * (d + d_v)), "score_bytes": int(cells * bytes_per_element)}


@wrong("raised")
def six_sizes(batch, num_queries, num_keys, d, d_v, bytes_per_element):
    cells = batch * num_queries * num_keys
    return {"flops": 2 * cells * (d + d_v), "score_bytes": cells * bytes_per_element}


@right
def added_up_in_a_defaultdict(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    cost = collections.defaultdict(int)
    for size in (d, d_v):
        cost["flops"] += 2 * batch * num_queries * num_keys * size
    cost["score_bytes"] += batch * num_queries * num_keys * bytes_per_element
    return cost


def counting(count):
    """A cost from `count(batch, num_queries, num_keys, d, d_v, bytes_per_element)`: two numbers."""

    def attention_cost(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
        flops, size = count(batch, num_queries, num_keys, d, d_v, bytes_per_element)
        return {"flops": flops, "score_bytes": size}

    return attention_cost


def of_pairs(count):
    """A cost from `count(number of scores, d, d_v, bytes_per_element)`."""
    return counting(lambda b, n, m, *sizes: count(b * n * m, *sizes))


@wrong()
def a_tuple(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = batch * num_queries * num_keys
    return 2 * pairs * (d + d_v), pairs * bytes_per_element


halves = wrong("not_whole")(
    of_pairs(lambda pairs, d, d_v, size: (pairs * (d + d_v) / 0.5, float(pairs * size)))
)
zero_taken_for_not_given = wrong()(
    of_pairs(lambda pairs, d, d_v, size: (2 * pairs * (d + (d_v or d)), pairs * size))
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
