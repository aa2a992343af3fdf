"""Answers to `broken_invariants`, as different hands would write them."""

import collections

from course_lib.authoring.variants import faulty, right, wrong

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
def others_that_break_too():
    found = dict(KEY)
    found.update(avocet="queries_apart", curlew="empty_rows_zero")
    found.update(fulmar="masking_equals_deleting", jacana="queries_apart")
    return found


one_confusion = wrong("some_entries_are_wrong")(lambda: KEY | {"bittern": "items_apart"})
nine_of_ten = wrong("ibis_missing")(
    lambda: {name: said for name, said in KEY.items() if name != "ibis"}
)
an_unknown_id = wrong("egret_unknown_id")(lambda: KEY | {"egret": "scale"})
two_in_one = wrong("avocet_unknown_id")(
    lambda: KEY | {"avocet": "queries_apart\nrows_sum_to_one", "ibis": "a, b, empty_rows_zero"}
)
lists_of_ids = wrong("avocet_no_id")(lambda: {name: [said] for name, said in KEY.items()})
a_list = wrong("no_dict")(lambda: list(KEY.items()))
most_telling = right(lambda: dict(KEY))
in_a_defaultdict = right(lambda: collections.defaultdict(lambda: "rows_sum_to_one", KEY))


@faulty("avocet_and_ibis", "grebe", "no_egret")
def with_faults(faults):
    """One fault in each group of entries that count as a whole."""

    def broken_invariants():
        found = dict(KEY)
        if "no_egret" in faults:
            found.pop("egret")
        if "grebe" in faults:
            found["grebe"] = "rows_sum_to_one"
        if "avocet_and_ibis" in faults:
            found.update(avocet="items_apart", ibis="rows_sum_to_one")
        return found

    return broken_invariants
