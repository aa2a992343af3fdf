"""Map exercises to the parts of a Transformer, for the picture of a student's library.

The parts are in the order of the computation. The picture leaves out names that are not exercises,
and it shows exercises that are not listed here at its end.
"""

from collections.abc import Iterable

from course_lib.plotting.library_map import Part

PARTS = (
    Part("tokens", 0, ("pad_batch", "shift_right", "positional_encoding", "shift_matrix")),
    Part(
        "scores",
        2,
        (
            "squared_distances", "gaussian_as_dot_product", "bmm_loops", "bmm", "batched_scores",
            "additive_scores", "factored_additive_scores", "score_variance", "rotary_embedding",
        ),
    ),
    Part("mask", 2, ("length_mask", "causal_mask", "combine_masks", "additive_mask")),
    Part("softmax", 2, ("stable_softmax", "masked_softmax", "softmax_statistics")),
    Part("weighted sum", 2, ("weighted_sum", "kernel_pooling")),
    Part(
        "attention",
        2,
        (
            "numpy_attention", "AdditiveAttention", "scaled_dot_product_attention",
            "DotProductAttention", "blocked_attention", "RecomputedAttention", "Lookup",
        ),
    ),
    Part(
        "heads",
        1,
        (
            "split_heads", "merge_heads", "MultiHeadAttention", "CausalSelfAttention",
            "load_into_torch", "grouped_query_attention",
        ),
    ),
    Part("blocks", 1, ("EncoderBlock", "DecoderBlock")),
    Part("words", 0, ("greedy_decode", "generate", "KVCache")),
    Part(
        "learning",
        -1,
        (
            "masked_cross_entropy", "next_token_loss", "leave_one_out", "fit_bandwidth",
            "jacobian_wrt_query", "attention_backward",
        ),
    ),
    Part(
        "looking inside",
        -1,
        (
            "most_attended", "effect_of_masking", "previous_token_score", "induction_score",
            "ablate_head",
        ),
    ),
    Part(
        "tests",
        -1,
        (
            "is_permutation_equivariant", "is_causal", "masking_equals_deleting",
            "keys_permutation_invariant", "batch_items_independent", "broken_invariants",
            "attention_cost",
        ),
    ),
)  # fmt: skip


def parts_of(exercises: Iterable[str]) -> list[Part]:
    """Return the parts that hold these exercises, without empty parts."""
    known = list(exercises)
    placed = {name for part in PARTS for name in part.exercises}
    others = Part("others", -1, tuple(name for name in known if name not in placed))
    kept = [
        part._replace(exercises=tuple(name for name in part.exercises if name in known))
        for part in (*PARTS, others)
    ]
    return [part for part in kept if part.exercises]
