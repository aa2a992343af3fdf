"""Answers to `broken_invariants`, as different hands would write them."""

import collections

from course_lib.checks.matrix import right, wrong

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


@wrong("bittern_about_items")
def one_confusion():
    return KEY | {"bittern": "items_apart"}


@wrong("everywhere_queries_apart")
def the_same_everywhere():
    return {name: "queries_apart" for name in KEY}


@wrong()
def nine_of_ten():
    return {name: said for name, said in KEY.items() if name != "ibis"}


@wrong("egret_unknown_id")
def an_unknown_id():
    return KEY | {"egret": "scale"}


@wrong("wrong_type")
def lists_of_ids():
    return {name: [said] for name, said in KEY.items()}


@wrong()
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


@wrong("avocet_about_keys")
def two_confusions():
    return KEY | {"avocet": "keys_permutation", "egret": "rows_sum_to_one"}
