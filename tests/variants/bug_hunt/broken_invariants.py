"""Answers to `broken_invariants`, as different hands would write them."""

import collections

from course_lib.exercises.variants import faulty, right, wrong

KEY = {
    "avocet": "rows_sum_to_one",
    "bittern": "queries_apart",
    "curlew": "masking_equals_deleting",
    "dunlin": "linear_in_values",
    "egret": "scale_free",
    "fulmar": "items_apart",
    "grebe": "eval_repeats",
    "heron": "all_parameters_learn",
    "ibis": "empty_rows_zero",
    "jacana": "keys_permutation",
}


@right
def most_telling():
    return dict(KEY)


@right
def others_that_break_too():
    found = dict(KEY)
    found.update(avocet="queries_apart", curlew="empty_rows_zero")
    found.update(fulmar="masking_equals_deleting", jacana="queries_apart")
    return found


@right
def in_another_order_and_more():
    found = {name: KEY[name] for name in sorted(KEY, reverse=True)}
    return {"sound": "none", **found, "jacana": "masking_equals_deleting"}


@wrong("bittern_keeps_it")
def one_confusion():
    return KEY | {"bittern": "items_apart"}


@wrong("one_for_all")
def the_same_everywhere():
    return {name: "queries_apart" for name in KEY}


@wrong("ibis_missing")
def nine_of_ten():
    return {name: said for name, said in KEY.items() if name != "ibis"}


@wrong("egret_unknown_id")
def an_unknown_id():
    return KEY | {"egret": "scale"}


@wrong("wrong_type")
def lists_of_ids():
    return {name: [said] for name, said in KEY.items()}


@wrong("no_dict")
def a_list():
    return list(KEY.items())


@wrong()
def capital_names():
    return {name.capitalize(): said for name, said in KEY.items()}


@wrong("ibis_keeps_it")
def four_confused():
    return KEY | {
        "ibis": "rows_sum_to_one",
        "dunlin": "keys_permutation",
        "egret": "masking_equals_deleting",
        "grebe": "arguments_unchanged",
    }


@wrong("dunlin_and_heron_swapped")
def swapped():
    return {**KEY, "heron": KEY["dunlin"], "dunlin": KEY["heron"]}


@wrong()
def turned_round():
    return {said: name for name, said in KEY.items()}


@right
def in_a_defaultdict():
    return collections.defaultdict(lambda: "rows_sum_to_one", KEY)


@wrong("avocet_keeps_it")
def two_confusions():
    return KEY | {"avocet": "keys_permutation", "egret": "rows_sum_to_one"}


@right
def rows_of_fulmar():
    """With an item without keys, a head of another item gets its length, and sums to 0."""
    return {**KEY, "fulmar": "rows_sum_to_one"}


@wrong("order_reversed")
def two_lists_in_opposite_directions():
    return dict(zip(sorted(KEY), [KEY[bird] for bird in sorted(KEY, reverse=True)], strict=True))


@wrong("counted_on_by_one")
def begins_with_the_second():
    found = [KEY[bird] for bird in sorted(KEY)]
    return {bird: found[(i + 1) % 10] for i, bird in enumerate(sorted(KEY))}


@faulty("avocet", "dunlin", "ibis", "no_egret")
def with_faults(faults):
    def broken_invariants():
        found = dict(KEY)
        if "no_egret" in faults:
            found.pop("egret")
        for bird in ("avocet", "dunlin", "ibis"):
            if bird in faults:
                found[bird] = "arguments_unchanged"
        return found

    return broken_invariants
