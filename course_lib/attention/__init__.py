"""The course's solutions: one module per lesson, written to be read along with it.

Every exported function and class is an exercise, and the build pastes its source into the lesson.
The modules are private, because two of them share their name with a function.

Functions documented as returning `(outputs, attention_weights)` return both. Modules return the
outputs and keep the detached weights of their last call in `attention_weights`, taken after the
softmax and before dropout. A `mask` is True where a query may attend. Layers take `device=` and
`dtype=`, like those of `torch.nn`.
"""

from course_lib.attention._additive_attention import AdditiveAttention, additive_scores
from course_lib.attention._batch_matmul import (
    attention_cost,
    attention_pooling,
    batched_scores,
    bmm,
    bmm_loops,
)
from course_lib.attention._bug_hunt import (
    CausalSelfAttention,
    Lookup,
    batch_items_independent,
    broken_invariants,
    diagnosed_boxes,
    is_causal,
    is_permutation_equivariant,
    keys_permutation_invariant,
    masking_equals_deleting,
)
from course_lib.attention._kernel_pooling import (
    fit_bandwidth,
    gaussian_as_dot_product,
    kernel_pooling,
    leave_one_out,
    squared_distances,
)
from course_lib.attention._language_model import (
    LanguageModel,
    ablate_head,
    generate,
    induction_score,
    next_token_loss,
)
from course_lib.attention._masked_softmax import (
    additive_mask,
    causal_mask,
    combine_masks,
    length_mask,
    masked_softmax,
    stable_softmax,
)
from course_lib.attention._memory_and_speed import (
    RecomputedAttention,
    attention_backward,
    blocked_attention,
    factored_additive_scores,
    jacobian_wrt_query,
    softmax_statistics,
)
from course_lib.attention._multi_head import (
    MultiHeadAttention,
    load_into_torch,
    merge_heads,
    positional_encoding,
    shift_matrix,
    split_heads,
)
from course_lib.attention._real_model import (
    GroupedQueryAttention,
    KVCache,
    grouped_query_attention,
    next_token_logits,
    rotary_embedding,
)
from course_lib.attention._scaled_dot_product import (
    DotProductAttention,
    numpy_attention,
    scaled_dot_product_attention,
    score_variance,
)
from course_lib.attention._translator import (
    DecoderBlock,
    EncoderBlock,
    effect_of_masking,
    greedy_decode,
    masked_cross_entropy,
    pad_batch,
    shift_right,
)
from course_lib.attention._whole_game import attend, most_attended
