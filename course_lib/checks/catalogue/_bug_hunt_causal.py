"""Lesson 07: `CausalSelfAttention`, a broken module mended."""

import numpy as np

from course_lib.checks.catalogue import _bug_hunt_mistakes as models
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.checks.specimens import BrokenCausalSelfAttention
from course_lib.reference import bug_hunt as oracle


def _causal_problem(rng, b, n, d, h, valid_lens=None, **options):
    args = {"x": tensor(rng.normal(0, 1.2, (b, n, d)), **options)}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    return {
        "construct": {"embed_dim": d, "num_heads": h},
        "state": {
            "W_qkv.weight": rng.normal(0, 0.7, (3 * d, d)),
            "W_o.weight": rng.normal(0, 0.7, (d, d)),
        },
        "args": args,
        "attributes": ("attention_weights",),
    }


def _causal_probes(rng):
    identity = _causal_problem(rng, 2, 4, 6, 2)
    identity["state"] = identity["state"] | {"W_o.weight": np.eye(6)}
    back = _causal_problem(rng, 1, 3, 2, 1, [2], requires_grad=True)
    back_empty = _causal_problem(rng, 2, 2, 2, 2, [0, 2], requires_grad=True)
    return [
        Probe("first", "In each head position i averages the values of the positions j <= i with "
              "the weights softmax(q k^T / sqrt(head_dim)); the first one sees itself only.",
              **_causal_problem(rng, 1, 2, 4, 2)),
        Probe("one_head", "With one head nothing is split or merged.",
              **_causal_problem(rng, 2, 5, 3, 1)),
        Probe("two_heads", "Each head compares its own block of features.",
              **_causal_problem(rng, 2, 5, 6, 2)),
        Probe("three_heads", "Three heads of two features over seven positions.",
              **_causal_problem(rng, 3, 7, 6, 3)),
        Probe("heads_side_by_side", "With W_o the identity a position holds the features of head "
              "0, then those of head 1.", **identity),
        Probe("padded", "Positions behind an item's length are not attended.",
              **_causal_problem(rng, 3, 4, 8, 2, [2, 4, 1])),
        Probe("empty", "An item of length 0 gets zeros.", "edges",
              **_causal_problem(rng, 3, 4, 6, 2, [0, 4, 2])),
        Probe("all_empty", "Where no item has a real position, all is zero: 0 is a length too.",
              "edges", **_causal_problem(rng, 2, 4, 6, 3, [0, 0])),
        Probe("train", "The module has no dropout: train mode gives the same as eval mode.",
              "edges", training=True, **_causal_problem(rng, 2, 5, 6, 2, [3, 5])),
        Probe("after_another_call", "Each call counts on its own: outputs and `attention_weights` "
              "are those of the last.", "edges", scenario="after_another_call",
              **_causal_problem(rng, 2, 5, 6, 2, [2, 4])),
        Probe("float32", "Inputs and weights in float32 give outputs in float32.", "edges",
              dtype="float32", tolerance=1e-4, **_causal_problem(rng, 2, 5, 6, 2, [2, 4])),
        Probe("longer", "Any number of positions must work.", "edges",
              **_causal_problem(rng, 1, 18, 4, 2)),
        Probe("one_position", "A sequence of one position.", "edges",
              **_causal_problem(rng, 2, 1, 6, 3)),
        Probe("strided", "Where a tensor lies in memory does not matter.", "edges",
              **_causal_problem(rng, 2, 5, 4, 2, [5, 3], strided=True)),
        Probe("gradient", "The gradients of inputs and weights are those of the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 3, 2)), **back),
        Probe("gradient_empty", "An item of length 0 leaves every gradient finite.",
              "gradients", grad_outputs=rng.uniform(-1, 1, (2, 2, 2)), **back_empty),
    ]  # fmt: skip


CAUSAL_SELF_ATTENTION = Exercise(
    name="CausalSelfAttention",
    points=5,
    minutes=25,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=_causal_probes,
    oracle=oracle.causal_self_attention,
    builds_on=("masked_softmax", "causal_mask", "split_heads", "merge_heads"),
    mistakes=(
        Mistake(
            "not_mended",
            BrokenCausalSelfAttention,
            "This still computes what `BrokenCausalSelfAttention` does: all its faults are there.",
            "Which outputs change when you change the last position?",
        ),
        Mistake(
            "sees_the_future",
            models.causal(past=models.upper),
            "Each position sees itself and the later ones.",
            "Rows are queries: which triangle holds the keys j <= i?",
        ),
        Mistake(
            "never_sees_itself",
            models.causal(past=models.strict),
            "A position does not see itself, and the first one sees nothing.",
            "Which keys does query 0 see?",
        ),
        Mistake(
            "not_causal",
            models.causal(past=lambda self, n: models.torch.ones(n, n, dtype=models.torch.bool)),
            "Every position sees all others, the later ones too.",
            "Where is the mask applied?",
        ),
        Mistake(
            "merge_without_transpose",
            models.causal(merge=models.merge_without_transpose),
            "Your merge reshapes (batch, heads, n, head_dim) as it lies in memory, so the features "
            "of a position come from other positions.",
            "Which axes must be neighbours before they are flattened together?",
        ),
        Mistake(
            "split_without_transpose",
            models.causal(split=models.split_without_transpose),
            "Your heads are pieces of the sequence instead of blocks of features.",
            "Which axis do you cut, and which do you move?",
        ),
        Mistake(
            "scale_embed_dim",
            models.causal(scale=lambda self, q, x: x.shape[-1] ** 0.5),
            "You divide by the root of embed_dim, but each head compares head_dim features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "no_scale",
            models.causal(scale=lambda self, q, x: 1.0),
            "Your scores are not divided by anything.",
            "How does the size of a dot product grow with the number of features?",
        ),
        Mistake(
            "empty_row_nan",
            models.causal(normalise=models.nan_in_empty_rows),
            "An item of length 0 becomes NaN.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "lengths_ignored",
            models.causal(real=lambda self, allowed, valid_lens: allowed),
            "The lengths change nothing: padded positions are attended.",
            "Where do `valid_lens` enter?",
        ),
        Mistake(
            "only_lengths",
            models.causal(
                real=lambda self, allowed, valid_lens: models.CausalSteps.real(
                    self, models.torch.ones_like(allowed), valid_lens
                )
            ),
            "With lengths given, the future is visible again.",
            "Are both conditions combined, or does one replace the other?",
        ),
        Mistake(
            "causal_with_lengths_only",
            models.causal(
                past=lambda self, n: models.torch.ones(n, n, dtype=models.torch.bool),
                real=lambda self, allowed, valid_lens: models.CausalSteps.real(
                    self, allowed.tril(), valid_lens
                ),
            ),
            "Without lengths every position sees all others, the later ones too.",
            "Which of your conditions stands inside `if valid_lens is not None`?",
        ),
        Mistake(
            "length_of_first_item_for_all",
            models.causal(
                real=lambda self, allowed, valid_lens: models.CausalSteps.real(
                    self, allowed, valid_lens[:1].expand_as(valid_lens)
                )
            ),
            "Every item gets the length of the first one.",
            "Which axis must `valid_lens` have before it is compared with positions?",
        ),
        Mistake(
            "one_position_more",
            models.causal(
                real=lambda self, allowed, valid_lens: models.CausalSteps.real(
                    self, allowed, valid_lens + 1
                )
            ),
            "One position too many is kept: length 2 keeps positions 0, 1 and 2.",
            "Which is the last real position of an item of length 2?",
        ),
        Mistake(
            "over_queries",
            models.causal(normalise=models.over_queries),
            "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
            "Which axis holds the keys?",
        ),
        *(
            Mistake(
                f"thirds_read_as_{order}",
                models.causal(heads=models.thirds(order)),
                "You read the three parts of `W_qkv` in another order than W_q, W_k, W_v.",
                "Which rows of `W_qkv` belong to the queries?",
            )
            for order in ("vkq", "kqv", "qvk", "kvq", "vqk")
        ),
        Mistake(
            "thirds_in_turn",
            models.causal(heads=models.thirds_in_turn),
            "Your queries, keys and values take the outputs of `W_qkv` in turn; each of them is a "
            "third in one piece.",
            "In `(..., 3, embed_dim)`, which axis moves fastest? And in `(..., embed_dim, 3)`?",
        ),
        Mistake(
            "heads_in_turn",
            models.causal(split=models.split_in_turn),
            "Your heads take every h-th feature instead of a block of neighbours.",
            "In `(..., num_heads, head_dim)`, which axis moves fastest?",
        ),
        Mistake(
            "heads_in_turn_and_back",
            models.causal(split=models.split_in_turn, merge=models.merge_in_turn),
            "Your heads take every h-th feature instead of a block of neighbours.",
            "In `(..., num_heads, head_dim)`, which axis moves fastest?",
        ),
        Mistake(
            "sees_one_ahead",
            models.causal(past=lambda self, n: models.torch.ones(n, n).tril(1).bool()),
            "Each position sees one later position too.",
            "Which diagonal is the last one that position i may see?",
        ),
        Mistake(
            "either_is_enough",
            models.causal(real=models.either),
            "A position is attended if it is real or lies in the past; it must be both.",
            "A padded position in the past: may it be attended?",
        ),
        Mistake(
            "lengths_tiled",
            models.causal(real=models.tiled_lengths),
            "The lengths reach the wrong items: the heads of all items, one after the other, take "
            "the lengths of items 0, 1, 0, 1, ... in turn.",
            "What is the difference between `repeat` and `repeat_interleave`?",
        ),
        Mistake(
            "masked_after_softmax",
            models.causal(normalise=models.past_after_softmax),
            "You mask after the softmax: what is left of a row no longer sums to 1.",
            "Does masking before the softmax need a second normalisation?",
        ),
        Mistake(
            "filled_with_zero",
            models.causal(normalise=models.filled(0.0)),
            "Masked scores become 0, but exp(0) = 1: those positions still get weight.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "empty_row_uniform",
            models.causal(normalise=models.filled(-1e9)),
            "An item of length 0 gets the average of its pads.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "pads_zeroed",
            models.causal(result=models.pads_zeroed),
            "You set the outputs of padded positions to 0. They may attend to the real ones; only "
            "nobody attends to them.",
            "Which axis of the weights do the lengths cut: queries or keys?",
        ),
        Mistake(
            "scale_num_heads",
            models.causal(scale=lambda self, q, x: self.num_heads**0.5),
            "You divide by the root of the number of heads.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "scale_without_root",
            models.causal(scale=lambda self, q, x: q.shape[-1]),
            "You divide by head_dim instead of its root.",
            "What is the standard deviation of a sum of d products?",
        ),
        Mistake(
            "weights_averaged",
            models.causal(keep=lambda self, w: setattr(self, "attention_weights", w.mean(1).data)),
            "`attention_weights` holds the average over the heads; it must hold each head's own.",
            "Which shape do the weights of several heads have?",
        ),
        Mistake(
            "scores_kept",
            models.causal(keep=lambda self, w: setattr(self, "attention_weights", self.scores)),
            "`attention_weights` holds your scores, before the softmax.",
            "Which of your tensors has rows that sum to 1?",
        ),
        Mistake(
            "weights_returned_too",
            models.causal(
                result=lambda self, outputs, valid_lens: (outputs, self.attention_weights)
            ),
            "Your `forward` returns the weights too; it should return the outputs only.",
            "What does `return` hold?",
        ),
        Mistake(
            "lengths_of_the_first_call_kept",
            models.CausalRemembers,
            "A second call still uses the lengths of the first one.",
            "What does your module store in a call that it uses in the next?",
        ),
        Mistake(
            "heads_before_thirds",
            models.causal(heads=models.heads_before_thirds),
            "You split into heads before you cut the projection into queries, keys and values.",
            "Which features does head 0 of the queries take from the 3 * embed_dim?",
        ),
        Mistake(
            "no_W_o",
            models.causal(finish=lambda self, merged, x: merged),
            "The heads are never mixed: `W_o` is missing.",
            "What does the last line return?",
        ),
        Mistake(
            "residual_added",
            models.causal(finish=lambda self, merged, x: self.W_o(merged) + x),
            "You add the input to the outputs; the block does that, the attention does not.",
            "What does the last line return?",
        ),
        Mistake(
            "weights_not_kept",
            models.causal(keep=lambda self, weights: None),
            "`attention_weights` is not kept any more.",
            "Which line of `BrokenCausalSelfAttention` did that?",
        ),
        Mistake(
            "graph_kept",
            models.causal(keep=lambda self, w: setattr(self, "attention_weights", w)),
            "`attention_weights` still carries its graph.",
            "What does `.detach()` do?",
        ),
    ),
    hints=(
        "Test it with lesson 06's `is_causal` and with an item of length 0, and look at the sizes "
        "under the root. It has four faults.",
        "Look at the number under the root, the triangle, what happens to a row without any "
        "allowed key, and at the last line: which axes does the reshape put together?",
        "scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "past = causal_mask(x.shape[1]).to(x.device)\n"
        "weights = masked_softmax(scores, valid_lens, past)\n"
        "return self.W_o(merge_heads(weights @ v))",
    ),
)
