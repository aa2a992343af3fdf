"""Lesson 07: which invariant each of three boxes breaks."""

from course_lib.exercises.bug_hunt._diagnoses import diagnosing

EXERCISE = diagnosing(
    {"three_boxes": ("curlew", "fulmar", "ibis")},
    points=5,
    minutes=15,
    difficulty=2,
    builds_on=("masking_equals_deleting", "keys_permutation_invariant", "batch_items_independent"),
    hints=(
        "Do not look for the fault first. Run your three tests on each box. A test that says "
        "False names the invariant.",
        "If all three tests pass, go through the rest of `INVARIANTS`. Each one is two calls and "
        "a comparison, or one call and a look at the outputs or the weights.",
        "queries_apart: change queries[:, 1], compare outputs[:, 0].\n"
        "all_parameters_learn: outputs.sum().backward(), then which p.grad is None?\n"
        'eval_repeats: fresh("avocet", dropout=0.5), two calls.\n'
        "empty_rows_zero: valid_lens with a 0: are those outputs all 0?\n"
        "rows_sum_to_one: attention_weights.sum(-1), with lengths and without.",
    ),
)
