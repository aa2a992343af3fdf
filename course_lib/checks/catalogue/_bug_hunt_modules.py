"""Lesson 07: two broken modules, mended."""

import numpy as np

from course_lib.checks.catalogue import _bug_hunt_mistakes as models
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.checks.specimens import BrokenCausalSelfAttention, BrokenLookup
from course_lib.reference import bug_hunt as oracle


# ---------------------------------------------------------------- Lookup
def lookup_problem(rng, b, n, m, sizes, v, valid_lens=None, dropout=0.0, **options):
    query_size, key_size, hiddens = sizes
    shapes = {"queries": (b, n, query_size), "keys": (b, m, key_size), "values": (b, m, v)}
    args = {name: tensor(rng.normal(0, 1.2, s), **options) for name, s in shapes.items()}
    if valid_lens is not None:
        args["valid_lens"] = tensor(valid_lens)
    construct = {"query_size": query_size, "key_size": key_size, "num_hiddens": hiddens}
    return {
        "construct": construct | ({"dropout": dropout} if dropout else {}),
        "state": {
            "W_q.weight": rng.normal(0, 0.7, (hiddens, query_size)),
            "W_k.weight": rng.normal(0, 0.7, (hiddens, key_size)),
        },
        "args": args,
        "attributes": ("attention_weights",),
    }


def _dropout_probe(rng):
    problem = lookup_problem(rng, 4, 24, 24, (5, 3, 7), 27, dropout=0.3)
    values = tensor(dropout_values(rng, 4, 24))
    lens = tensor(np.array([24, 19, 22, 24]))
    problem["args"] = problem["args"] | {"values": values, "valid_lens": lens}
    return Probe(
        "dropout",
        "In train mode each weight is dropped on its own with probability `dropout`.",
        "edges",
        training=True,
        compare="dropout_on_weights",
        seed=int(rng.integers(10**6)),
        **problem,
    )


def _lookup_probes(rng):
    few = lookup_problem(rng, 1, 2, 3, (3, 4, 2), 2)
    plain = lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2)
    padded = lookup_problem(rng, 3, 4, 6, (5, 2, 3), 7, [2, 6, 4])
    quiet = lookup_problem(rng, 2, 5, 4, (3, 6, 8), 3, [3, 1], dropout=0.6)
    one = lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [1, 1])
    empty = lookup_problem(rng, 3, 2, 5, (4, 3, 6), 7, [0, 3, 5])
    big = lookup_problem(rng, 2, 3, 4, (4, 5, 6), 3)
    big["state"] = {name: 30 * w for name, w in big["state"].items()}
    garbage = lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [3, 4])
    for name in ("keys", "values"):
        data = garbage["args"][name].data.copy()
        data[0, 3:], data[1, 4:] = 20.0, -20.0
        garbage["args"] = garbage["args"] | {name: tensor(data)}
    back = lookup_problem(rng, 1, 2, 3, (2, 3, 4), 2, [2], requires_grad=True)
    back_empty = lookup_problem(rng, 2, 1, 3, (2, 3, 4), 1, [0, 2], requires_grad=True)
    return [
        Probe("few", "The outputs are softmax(q k^T / sqrt(num_hiddens)) V: here two queries over "
              "three keys.", **few),
        Probe("plain", "Without lengths all keys are real; query, key and hidden sizes differ "
              "and only one of them belongs under the root.", **plain),
        Probe("padded", "Rows sum to 1 over the real keys.", **padded),
        Probe("garbage", "What stands in padded keys and values changes nothing.", **garbage),
        Probe("quiet", "In eval mode nothing is dropped, whatever `dropout` is.", **quiet),
        Probe("one_key", "One real key: every query gets its value.", **one),
        Probe("empty", "An item without a real key gets zeros.", "edges", **empty),
        Probe("all_empty", "Where no item has a real key, all is zero: 0 is a length too.",
              "edges", **lookup_problem(rng, 2, 3, 4, (3, 5, 2), 6, [0, 0])),
        Probe("train", "With dropout=0 train mode gives the same as eval mode, lengths included.",
              "edges", training=True, **lookup_problem(rng, 2, 3, 5, (4, 3, 6), 2, [2, 4])),
        Probe("after_another_call", "Each call counts on its own: outputs and `attention_weights` "
              "are those of the last.", "edges", scenario="after_another_call",
              **lookup_problem(rng, 2, 3, 5, (4, 3, 6), 2, [2, 4])),
        Probe("float32", "Inputs and weights in float32 give outputs in float32.", "edges",
              dtype="float32", tolerance=1e-4,
              **lookup_problem(rng, 2, 3, 5, (4, 3, 6), 2, [2, 4])),
        Probe("big", "Scores of any size are survived.", "edges", **big),
        Probe("strided", "Where a tensor lies in memory does not matter.", "edges",
              **lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [5, 2], strided=True)),
        _dropout_probe(rng),
        Probe("gradient", "The gradients of inputs and weights are those of the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 2, 2)), **back),
        Probe("gradient_empty", "An item without a real key leaves every gradient finite.",
              "gradients", grad_outputs=rng.normal(size=(2, 1, 1)), **back_empty),
    ]  # fmt: skip


LOOKUP = Exercise(
    name="Lookup",
    points=5,
    minutes=20,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "v")),),
    probes=_lookup_probes,
    oracle=oracle.lookup,
    builds_on=("masked_softmax",),
    mistakes=(
        Mistake(
            "not_mended",
            BrokenLookup,
            "This still computes what `BrokenLookup` does: all of its faults are there.",
            "Which invariants of the list does it break? Begin with the sums of the rows.",
        ),
        Mistake(
            "scale_of_the_queries",
            models.lookup(scale=models.by_query_size),
            "You divide by the root of the query's size, but the dot product runs over the "
            "`num_hiddens` projected features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "scale_of_the_keys",
            models.lookup(scale=lambda self, queries, keys, q: keys.shape[-1] ** 0.5),
            "You divide by the root of the key's size, but the dot product runs over the "
            "`num_hiddens` projected features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "scale_of_the_number_of_keys",
            models.lookup(scale=lambda self, queries, keys, q: keys.shape[1] ** 0.5),
            "You divide by the root of the number of keys, but the dot product runs over the "
            "`num_hiddens` projected features.",
            "How many products are summed in one score?",
        ),
        Mistake(
            "scale_without_root",
            models.lookup(scale=lambda self, queries, keys, q: q.shape[-1]),
            "You divide by `num_hiddens` instead of its root.",
            "What is the standard deviation of a sum of d products?",
        ),
        Mistake(
            "one_key_more",
            models.lookup(lengths=lambda self, valid_lens: valid_lens + 1),
            "One key too many is kept: length 2 keeps keys 0, 1 and 2.",
            "Which is the last real key of an item of length 2?",
        ),
        Mistake(
            "length_of_first_item_for_all",
            models.lookup(lengths=lambda self, valid_lens: valid_lens[:1].expand_as(valid_lens)),
            "Every item gets the length of the first one.",
            "Which axis must `valid_lens` have before it is compared with positions?",
        ),
        Mistake(
            "no_item_empty",
            models.lookup(lengths=lambda self, valid_lens: valid_lens.clamp(min=1)),
            "An item of length 0 attends to its first pad.",
            "What should an item without a real key get?",
        ),
        Mistake(
            "lengths_in_eval_mode_only",
            models.lookup(normalise=models.real_in_eval_mode),
            "In train mode the lengths change nothing.",
            "Which lines of your `forward` run in eval mode only?",
        ),
        Mistake(
            "dropout_on_output",
            models.lookup(
                drop=models.not_dropped, finish=lambda self, w, v: models.thinned(self, w @ v)
            ),
            "Dropout acts on your outputs; it belongs on the attention weights.",
            "Which tensor should lose entries: the weights, or their product with the values?",
        ),
        Mistake(
            "dropout_on_values",
            models.lookup(
                drop=models.not_dropped, finish=lambda self, w, v: w @ models.thinned(self, v)
            ),
            "Dropout acts on the values; it belongs on the attention weights.",
            "Which tensor should lose entries in train mode?",
        ),
        Mistake(
            "dropout_twice",
            models.lookup(drop=models.dropped_twice),
            "Dropout acts twice: the kept weights are divided by (1 - p) two times.",
            "On how many tensors is dropout called?",
        ),
        Mistake(
            "normalised_after_dropout",
            models.lookup(drop=models.normalised_again),
            "After dropout you bring each row of weights to sum 1 again: dropout has divided the "
            "kept ones by 1 - p already, and the sum is right on average only.",
            "Must each row still sum to 1 after dropout, or only on average?",
        ),
        Mistake(
            "weights_returned_too",
            models.lookup(finish=lambda self, w, v: (w @ v, self.attention_weights)),
            "Your `forward` returns the weights too; `BrokenLookup` returned the outputs only.",
            "What does `return` hold?",
        ),
        Mistake(
            "scores_kept",
            models.lookup(keep=models.keep_scores),
            "`attention_weights` holds your scores, before the softmax.",
            "Which of your tensors has rows that sum to 1?",
        ),
        Mistake(
            "weights_of_the_first_call_kept",
            models.LookupRemembers,
            "`attention_weights` still holds the weights of the first call after a second one.",
            "Under which condition does your `forward` set the attribute?",
        ),
        Mistake(
            "no_scale",
            models.lookup(scale=lambda self, queries, keys, q: 1.0),
            "Your scores are not divided by anything.",
            "How does the size of a dot product grow with the number of features?",
        ),
        Mistake(
            "over_queries",
            models.lookup(normalise=models.over_the_queries),
            "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
            "Which axis of (batch, num_queries, num_keys) holds the keys?",
        ),
        Mistake(
            "zero_after_softmax",
            models.lookup(normalise=models.zero_afterwards),
            "You mask after the softmax: what is left of a row no longer sums to 1.",
            "Does masking before the softmax need a second normalisation?",
        ),
        Mistake(
            "filled_with_zero",
            models.lookup(normalise=models.filled_with(0.0)),
            "Masked scores become 0, but exp(0) = 1: those keys still get weight.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "lengths_ignored",
            models.lookup(normalise=lambda self, scores, real: scores.softmax(-1)),
            "The lengths change nothing: padded keys get weight too.",
            "Where do `valid_lens` enter?",
        ),
        Mistake(
            "empty_row_nan",
            models.lookup(normalise=models.filled_with(-float("inf"))),
            "An item without a real key becomes NaN.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "empty_row_uniform",
            models.lookup(normalise=models.filled_with(-1e9)),
            "An item without a real key gets the average of its pads.",
            "What does `masked_softmax` of lesson 02 do there?",
        ),
        Mistake(
            "dropout_in_eval_mode",
            models.lookup(drop=models.always_dropping),
            "Your dropout acts in eval mode too: `F.dropout` drops unless told that it is not "
            "training.",
            "What does `nn.Dropout` know that `F.dropout(weights, p)` does not?",
        ),
        Mistake(
            "dropout_gone",
            models.lookup(drop=lambda self, weights: weights),
            "Your dropout is gone altogether: in train mode nothing is dropped.",
            "When should it act, and when not?",
        ),
        Mistake(
            "weights_after_dropout",
            models.lookup(
                keep=lambda self, w, used: setattr(self, "attention_weights", used.detach())
            ),
            "`attention_weights` holds the weights after dropout; it should show them before.",
            "Which of the two tensors sums to 1?",
        ),
        Mistake(
            "weights_not_kept",
            models.lookup(keep=lambda self, w, used: None),
            "`attention_weights` is not kept any more.",
            "Which line of `BrokenLookup` did that?",
        ),
        Mistake(
            "graph_kept",
            models.lookup(keep=lambda self, w, used: setattr(self, "attention_weights", w)),
            "`attention_weights` still carries its graph.",
            "What does `.detach()` do?",
        ),
        Mistake(
            "bias_added",
            models.lookup(bias=True),
            "Your projections have a bias; those of the module did not.",
            "What is the default of `nn.Linear`?",
        ),
    ),
    hints=(
        "Run your three tests and the row sums on `BrokenLookup` again after each repair. It has "
        "four faults, and one of them hides another.",
        "Look at the number under the root, the axis of the softmax, the order of softmax and "
        "mask, and at what dropout does in eval mode.",
        "scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "weights = masked_softmax(scores, valid_lens)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(weights) @ values  # an nn.Dropout made in __init__",
    ),
)


# ---------------------------------------------------------------- CausalSelfAttention
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
              "gradients", grad_outputs=rng.normal(size=(2, 2, 2)), **back_empty),
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
