"""broken_invariants: dunlin and heron are confused with each other."""


# %% broken_invariants
def broken_invariants():
    return {
        "avocet": "rows_sum_to_one",
        "bittern": "queries_apart",
        "curlew": "masking_equals_deleting",
        "dunlin": "all_parameters_learn",
        "egret": "scale_free",
        "fulmar": "items_apart",
        "grebe": "eval_repeats",
        "heron": "linear_in_values",
        "ibis": "empty_rows_zero",
        "jacana": "keys_permutation",
    }
