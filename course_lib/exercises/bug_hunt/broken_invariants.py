"""Lesson 07: which invariant each of the ten boxes breaks."""

from course_lib.exercises.bug_hunt._diagnoses import diagnosing

GROUPS = {
    "first_group": ("avocet", "dunlin", "ibis"),
    "second_group": ("bittern", "fulmar", "grebe"),
    "third_group": ("curlew", "egret", "heron", "jacana"),
}

EXERCISE = diagnosing(
    GROUPS,
    points=10,
    minutes=25,
    difficulty=3,
    builds_on=("masking_equals_deleting", "keys_permutation_invariant", "batch_items_independent"),
    starred=True,
    hints=(
        "Do not look for the fault first. Run tests. Each invariant is two calls and a "
        "comparison, and a test that says False names the invariant.",
        "Make inputs with different sizes and lengths. For each invariant: call, change one "
        "thing, call again, compare. For the scale, set W_q and W_k to the identity and compare "
        "`attention_weights.log().std(-1)` for two sizes.",
        "queries_apart: change queries[:, 1], compare outputs[:, 0].\n"
        "linear_in_values: module(q, k, 2 * v) against 2 * module(q, k, v).\n"
        "all_parameters_learn: outputs.sum().backward(), then which p.grad is None?\n"
        'eval_repeats: fresh("avocet", dropout=0.5), two calls.\n'
        "rows_sum_to_one: attention_weights.sum(-1), with lengths and without.",
    ),
)
