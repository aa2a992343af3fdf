"""Lesson 07: `Lookup`, a broken module mended."""

import numpy as np

from course_lib.checks.catalogue import _bug_hunt_mistakes as models
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.checks.specimens import BrokenLookup
from course_lib.reference import bug_hunt as oracle


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
        Probe("train_empty", "An item without a real key gets zeros in train mode too.",
              "edges", training=True, **lookup_problem(rng, 2, 3, 5, (4, 3, 6), 2, [0, 4])),
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
              "gradients", grad_outputs=rng.uniform(-1, 1, (2, 1, 1)), **back_empty),
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
            "one_key_less",
            models.lookup(lengths=lambda self, valid_lens: (valid_lens - 1).clamp(min=0)),
            "The last real key is left out: length 2 keeps keys 0 and 1.",
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
