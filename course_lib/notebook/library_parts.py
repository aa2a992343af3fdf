"""Map exercises to the parts of a Transformer, for the map of a student's library.

The parts are in the order of the computation, each with its depth in the model. The map leaves out
names that are not exercises.
"""

from collections.abc import Iterable

from course_lib.notebook.library_map import Part

_EXERCISES = {
    ("tokens", 0): """shift_right positional_encoding shift_matrix""",
    ("scores", 2): """squared_distances gaussian_as_dot_product bmm batched_scores
        additive_scores score_variance rotary_embedding""",
    ("mask", 2): """length_mask causal_mask combine_masks additive_mask""",
    ("softmax", 2): """stable_softmax masked_softmax softmax_statistics""",
    ("weighted sum", 2): """kernel_pooling""",
    ("attention", 2): """attend attention_pooling AdditiveAttention
        scaled_dot_product_attention DotProductAttention blocked_attention RecomputedAttention""",
    ("heads", 1): """split_heads merge_heads MultiHeadAttention CausalSelfAttention load_into_torch
        grouped_query_attention GroupedQueryAttention""",
    ("blocks", 1): """EncoderBlock DecoderBlock LanguageModel""",
    ("words", 0): """greedy_decode generate KVCache""",
    ("learning", -1): """masked_cross_entropy next_token_loss leave_one_out
        jacobian_wrt_query attention_backward""",
    ("looking inside", -1): """effect_of_masking induction_score ablate_head""",
    ("tests", -1): """is_permutation_equivariant is_causal masking_equals_deleting
        keys_permutation_invariant batch_items_independent diagnosed_boxes broken_invariants
        attention_cost""",
}
PARTS = [Part(name, depth, tuple(listed.split())) for (name, depth), listed in _EXERCISES.items()]
_PURPOSES = {
    "tokens": "turn sequences into vectors that attention can read",
    "scores": "compute how well each key matches each query",
    "mask": "exclude the keys that a query must not use",
    "softmax": "turn scores into weights that sum to 1",
    "weighted sum": "average the values with the attention weights",
    "attention": "turn queries, keys and values into outputs",
    "heads": "attend in several ways at once",
    "blocks": "stack attention into a deep model",
    "words": "write the output one token at a time",
    "learning": "fit a model to its data",
    "looking inside": "find out what a trained model attends to",
    "tests": "measure the properties of an attention layer",
}


def purpose_of(exercise: str) -> str:
    """Return what an exercise's part of the Transformer is for: what it "helps to" do."""
    part = next((part.name for part in PARTS if exercise in part.exercises), "")
    return _PURPOSES.get(part, "complete the model")


def parts_of(exercises: Iterable[str]) -> list[Part]:
    """Return the parts that hold these exercises, without empty parts."""
    known = set(exercises)
    shown = [(part, tuple(n for n in part.exercises if n in known)) for part in PARTS]
    return [part._replace(exercises=those) for part, those in shown if those]
