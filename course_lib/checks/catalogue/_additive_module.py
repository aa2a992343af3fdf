"""Lesson 04: additive attention as a module, with lengths, masks and dropout."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from course_lib.checks.catalogue import _additive_mistakes as models
from course_lib.checks.catalogue._additive_mistakes import changed, combined, filled, weighed
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import additive_attention as oracle


def _module_problem(rng, b, n, m, d_q, d_k, v, h, *, dtype=np.float64, dropout=0.0, **options):
    """`construct`, `state` and `args` of a probe of `AdditiveAttention`."""
    shapes = {"W_q.weight": (h, d_q), "W_k.weight": (h, d_k), "w_v.weight": (1, h)}
    inputs = {"queries": (b, n, d_q), "keys": (b, m, d_k), "values": (b, m, v)}
    return {
        "construct": {
            "query_size": d_q,
            "key_size": d_k,
            "num_hiddens": h,
            **({"dropout": dropout} if dropout else {}),
        },
        "state": {
            name: rng.normal(0, 1.5 if name == "w_v.weight" else 0.7, shape)
            for name, shape in shapes.items()
        },
        "args": {
            name: tensor(rng.normal(0, 1.2, shape).astype(dtype), **options)
            for name, shape in inputs.items()
        },
        "attributes": ("attention_weights",),
    }


def _probe(name, says, problem, valid_lens=None, mask=None, **options):
    """Lengths go by position if they are given alone, otherwise by name, as the mask does."""
    args = dict(problem["args"])
    if valid_lens is not None and mask is None:
        args["valid_lens"] = tensor(valid_lens)
    kwargs = {} if mask is None else {"mask": tensor(mask)}
    if valid_lens is not None and mask is not None:
        kwargs["valid_lens"] = tensor(valid_lens)
    return Probe(name, says, **(problem | {"args": args}), kwargs=kwargs, **options)


def _random_mask(rng, *shape):
    drawn = rng.random(shape) < 0.55
    drawn[..., int(rng.integers(shape[-1]))] = True
    drawn[..., 0, 0] = False
    drawn[..., 0, -1] = True
    return drawn


def _module_probes(rng):
    return [
        *_module_values(rng),
        *_module_dropout(rng),
        *_module_edges(rng),
        *_module_gradients(rng),
    ]


def _module_values(rng):
    return [
        _probe(
            "no_mask",
            "Without lengths and mask: softmax of the additive scores, times the values.",
            _module_problem(rng, 2, 3, 5, 4, 6, 8, 7),
        ),
        _probe(
            "lengths_per_item",
            "Keys beyond an item's length get weight 0.",
            _module_problem(rng, 3, 2, 5, 4, 6, 7, 8),
            valid_lens=[2, 5, 3],
        ),
        _probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            _module_problem(rng, 2, 3, 5, 6, 4, 7, 8, strided=True),
            valid_lens=[[1, 4, 2], [3, 5, 2]],
        ),
        _probe(
            "mask_shared_by_batch",
            "A bool mask of shape (num_queries, num_keys) holds for every item.",
            _module_problem(rng, 2, 3, 5, 4, 6, 8, 7),
            mask=_random_mask(rng, 3, 5),
        ),
        _probe(
            "mask_per_item",
            "A bool mask may have a batch axis.",
            _module_problem(rng, 2, 4, 3, 5, 6, 7, 8),
            mask=_random_mask(rng, 2, 4, 3),
        ),
        _probe(
            "mask_of_keys",
            "A bool mask of shape (batch, 1, num_keys) holds for every query of an item.",
            _module_problem(rng, 2, 3, 5, 4, 6, 7, 8),
            mask=_random_mask(rng, 2, 1, 5),
        ),
        _probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            _module_problem(rng, 2, 3, 5, 6, 4, 7, 8),
            valid_lens=[3, 4],
            mask=np.tril(np.ones((3, 5), dtype=bool), 1),
        ),
        _probe(
            "equal_sizes",
            "Queries, keys and values keep their roles where all have the same size.",
            _module_problem(rng, 2, 3, 4, 5, 5, 5, 6),
        ),
        _probe(
            "as_wide_as_hidden",
            "The values are averaged, not the projected keys.",
            _module_problem(rng, 2, 4, 4, 3, 5, 6, 6),
            valid_lens=[3, 2],
        ),
    ]


def _module_dropout(rng):
    large = _module_problem(rng, 4, 24, 30, 2, 3, 1, 2, dropout=0.4)
    large["args"]["values"] = tensor(dropout_values(rng, 4, 30))
    return [
        _probe(
            "dropout_off_in_eval",
            "In eval mode dropout does nothing.",
            _module_problem(rng, 2, 3, 5, 4, 6, 8, 7, dropout=0.5),
            valid_lens=[4, 3],
        ),
        _probe(
            "dropout_in_train",
            "In train mode each weight is dropped with probability p, the others are divided by "
            "1 - p; `attention_weights` holds the weights before that.",
            large,
            valid_lens=[30, 22, 27, 18],
            training=True,
            compare="dropout_on_weights",
        ),
        _probe(
            "train_without_dropout",
            "With dropout=0 train and eval mode agree.",
            _module_problem(rng, 2, 3, 4, 5, 6, 7, 8),
            training=True,
        ),
    ]


def _module_edges(rng):
    garbage = _module_problem(rng, 2, 3, 5, 4, 6, 8, 7)
    for name in ("keys", "values"):
        data = np.array(garbage["args"][name].data)
        data[0, 2:], data[1, 4:] = 1e4, -1e4
        garbage["args"][name] = tensor(data)
    empty = np.array([[True, False, True, True], [False] * 4, [False, True, True, False]])
    return [
        _probe(
            "length_zero",
            "An item without any real key gets outputs and weights of 0.",
            _module_problem(rng, 2, 3, 4, 5, 6, 8, 7),
            valid_lens=[0, 3],
            part="edges",
        ),
        _probe(
            "empty_row",
            "A query that may attend to nothing gets an output of 0.",
            _module_problem(rng, 2, 3, 4, 5, 6, 8, 7),
            mask=empty,
            part="edges",
        ),
        _probe(
            "garbage_in_pads",
            "What stands in padded keys and values changes nothing.",
            garbage,
            valid_lens=[2, 4],
            part="edges",
        ),
        _probe(
            "one_of_each",
            "One item, one query, one key, one value column: all axes stay.",
            _module_problem(rng, 1, 1, 1, 2, 3, 1, 4),
            part="edges",
        ),
        _probe(
            "one_query",
            "One item with one query: `attention_weights` keeps its three axes.",
            _module_problem(rng, 1, 1, 4, 2, 3, 5, 6),
            valid_lens=[3],
            part="edges",
        ),
    ]


def _module_gradients(rng):
    return [
        _probe(
            "gradient",
            "The gradients of queries, keys, values and weights are those of the formula.",
            _module_problem(rng, 2, 2, 3, 2, 1, 2, 3, requires_grad=True),
            valid_lens=[2, 3],
            part="gradients",
            grad_outputs=rng.normal(0, 1, (2, 2, 2)),
        ),
        _probe(
            "gradient_with_empty_row",
            "An empty row has gradient 0; it must not turn the other gradients into NaN.",
            _module_problem(rng, 1, 2, 3, 2, 1, 2, 3, requires_grad=True),
            mask=np.array([[False, True, True], [False, False, False]]),
            part="gradients",
            grad_outputs=rng.normal(0, 1, (1, 2, 2)),
        ),
    ]


def _zero_after(scores, valid_lens, mask):
    return torch.softmax(scores, -1) * models.allowed_keys(scores, valid_lens, mask)


def _nan_rows(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)


def _nan_gradient(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    added = torch.where(allowed, 0.0, -math.inf).to(scores.dtype)
    return torch.softmax(scores + added, -1).masked_fill(~allowed, 0.0)


def _inverted(scores, valid_lens, mask):
    if valid_lens is None and mask is None:
        return torch.softmax(scores, -1)
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return models.hand_masked_softmax(scores, None, ~allowed)


def _over_queries(scores, valid_lens, mask):
    allowed = models.allowed_keys(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), 1).nan_to_num(0.0)


def _keep(what):
    def keep(self, scores, weights, dropped):
        self.attention_weights = what(scores, weights, dropped)

    return changed(keep=keep)


def _last_axis_rows(probe, outputs):
    """Outputs of unmasked rows lie between the smallest and the largest value."""
    if probe.training or outputs.data is None or outputs.data.ndim != 3:
        return None
    values = np.asarray(probe.args["values"].data, dtype=float)
    theirs = np.asarray(outputs.data, dtype=float)
    if theirs.shape[2] != values.shape[2] or len(theirs) != len(values):
        return None
    low = np.minimum(values.min(1, keepdims=True), 0) - 1e-4
    high = np.maximum(values.max(1, keepdims=True), 0) + 1e-4
    outside = (theirs < low) | (theirs > high)
    if not outside.any():
        return None
    item, query, column = (int(i) for i in np.argwhere(outside)[0])
    return (
        f"The output of query {query} of item {item} is {theirs[item, query, column]:.3f} in "
        f"column {column}, outside the range of the values there. An average cannot leave it."
    )


ADDITIVE_ATTENTION = Exercise(
    name="AdditiveAttention",
    points=6,
    minutes=35,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "value_size")),),
    probes=_module_probes,
    oracle=oracle.additive_attention,
    builds_on=("additive_scores", "masked_softmax"),
    mistakes=(
        Mistake(
            "parameters_in_forward",
            models.ParametersInForward,
            "Your layers are made in `forward`: every call draws new weights, and no optimiser or "
            "checkpoint ever sees them.",
            "What belongs in `__init__`, and what in `forward`?",
        ),
        Mistake(
            "plain_tensors",
            models.PlainTensors,
            "Your weights are plain tensors: `parameters()` does not list them, so no optimiser, "
            "`.to()` or checkpoint reaches them.",
            "What does `nn.Linear` do that an assignment does not?",
        ),
        Mistake(
            "layers_in_a_list",
            models.LayersInAList,
            "Your layers are in a Python list: the module does not see them, and neither does an "
            "optimiser.",
            "What happens to a layer that is assigned to `self.W_q`?",
        ),
        Mistake(
            "sizes_swapped",
            models.SizesSwapped,
            "`W_q` reads key_size numbers and `W_k` reads query_size: their sizes are exchanged.",
            "In which order does `__init__` get the two sizes?",
        ),
        Mistake(
            "dropout_required",
            models.DropoutRequired,
            "Your class cannot be built without `dropout`; the exercise gives it a default of 0.",
            "Which signature does `__init__` have in the exercise?",
        ),
        Mistake(
            "with_bias",
            changed(bias=True),
            "Your layers have biases; the exercise asks for layers without.",
            "Which argument of `nn.Linear` leaves the bias out?",
        ),
        Mistake(
            "lengths_required",
            models.TextbookSignature,
            "The call fails when no lengths are given, or when a mask is: both are optional.",
            "Which signature does `forward` have in the exercise?",
        ),
        Mistake(
            "returns_both",
            models.ReturnsBoth,
            "`forward` returns the weights beside the outputs; a module returns the outputs and "
            "keeps the weights as an attribute.",
            "Which of the two would the next layer take?",
        ),
        Mistake(
            "no_tanh",
            combined(lambda q, k, w: (q[:, :, None] + k[:, None]) @ w),
            "Without tanh every query of an item has the same weights: the softmax cancels the "
            "query's part of the score.",
            "Which step lets a query change the order of the keys?",
        ),
        Mistake(
            "tanh_apart",
            combined(lambda q, k, w: (torch.tanh(q)[:, :, None] + torch.tanh(k)[:, None]) @ w),
            "You take tanh of query and key apart, so the query's part cancels in the softmax, and "
            "every query has the same weights.",
            "Does tanh come before or after the sum?",
        ),
        Mistake(
            "relu",
            combined(lambda q, k, w: torch.relu(q[:, :, None] + k[:, None]) @ w),
            "Your hidden features go through relu; the formula has tanh.",
            "Which values can tanh take that relu cannot?",
        ),
        Mistake(
            "product",
            combined(lambda q, k, w: torch.tanh(q[:, :, None] * k[:, None]) @ w),
            "You multiply the projected query and key; additive attention adds them.",
            "Which operation stands inside the tanh?",
        ),
        Mistake(
            "dot_product",
            combined(lambda q, k, w: q @ k.mT),
            "You take dot products of the projections: w_v and tanh do not enter.",
            "How do two vectors of H numbers become H features, and these one score?",
        ),
        Mistake(
            "no_w_v",
            combined(lambda q, k, w: torch.tanh(q[:, :, None] + k[:, None]).sum(-1)),
            "You add up the hidden features; `w_v` does not enter.",
            "Does every hidden feature count the same?",
        ),
        Mistake(
            "scaled",
            combined(
                lambda q, k, w: torch.tanh(q[:, :, None] + k[:, None]) @ w / math.sqrt(len(w))
            ),
            "You divide the scores by a square root, as dot-product attention does. The additive "
            "score has no such factor.",
            "Which scores grow with the number of features, and which are bounded by w_v?",
        ),
        Mistake(
            "layers_swapped",
            changed(
                score=lambda self, queries, keys: self.combine(self.W_k(queries), self.W_q(keys))
            ),
            "The queries go through `W_k` and the keys through `W_q`.",
            "Which layer reads query_size numbers?",
        ),
        Mistake(
            "query_forgotten",
            combined(lambda q, k, w: torch.tanh(k)[:, None].expand(-1, q.shape[1], -1, -1) @ w),
            "Your weights do not depend on the queries.",
            "What is added to the projected key?",
        ),
        Mistake(
            "squeezed",
            models.Squeezed,
            "`squeeze()` without an axis removes every axis of size 1: with one item, one query or "
            "one key an axis is lost.",
            "Which axis do you want to remove?",
        ),
        Mistake(
            "nothing_passed_on",
            weighed(lambda scores, valid_lens, mask: torch.softmax(scores, -1)),
            "Neither the lengths nor the mask reaches the softmax.",
            "What does `masked_softmax` take besides the scores?",
        ),
        Mistake(
            "mask_not_passed_on",
            weighed(
                lambda scores, valid_lens, mask: models.hand_masked_softmax(scores, valid_lens)
            ),
            "`mask` is accepted but never reaches the softmax.",
            "What does `masked_softmax` take besides the scores and the lengths?",
        ),
        Mistake(
            "lengths_not_passed_on",
            weighed(
                lambda scores, valid_lens, mask: models.hand_masked_softmax(scores, None, mask)
            ),
            "`valid_lens` is accepted but never reaches the softmax.",
            "What does `masked_softmax` take besides the scores and the mask?",
        ),
        Mistake(
            "only_lengths_if_both",
            weighed(
                lambda scores, valid_lens, mask: models.hand_masked_softmax(
                    scores, valid_lens, mask if valid_lens is None else None
                )
            ),
            "With lengths and a mask both given, only the lengths count.",
            "Which keys must be dropped when both are given?",
        ),
        Mistake(
            "inverted",
            weighed(_inverted),
            "The masking is upside down: the keys that should be dropped get all the weight.",
            "True means 'may attend'. Which keys does your code drop?",
        ),
        Mistake(
            "zero_after_softmax",
            weighed(_zero_after),
            "You set weights to 0 after the softmax, so what is left no longer sums to 1.",
            "Which function of lesson 02 masks before the softmax?",
        ),
        Mistake(
            "over_queries",
            weighed(_over_queries),
            "Your softmax runs over the queries: columns of the weights sum to 1, rows do not.",
            "Which axis holds the keys?",
        ),
        Mistake(
            "filled_with_zero",
            filled(0.0),
            "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "filled_with_1e6",
            filled(-1e6),
            "Dropped scores become -1e6. In a row without any allowed key all scores are then "
            "equal, and the output is an average of forbidden values.",
            "What should a query that may attend to nothing receive?",
        ),
        Mistake(
            "empty_row_nan",
            weighed(_nan_rows),
            "A row in which no key is allowed becomes NaN.",
            "What should a query that may attend to nothing receive?",
        ),
        Mistake(
            "empty_row_gradient_nan",
            weighed(_nan_gradient),
            "The outputs are right, but an empty row turns the gradients into NaN.",
            "Does the softmax ever see a row of nothing but -inf?",
        ),
        Mistake(
            "values_are_keys",
            changed(average=lambda self, weights, keys, values: weights @ keys),
            "You average the keys; the keys only decide how much each value counts.",
            "Which of the three inputs does attention return an average of?",
        ),
        Mistake(
            "projected_keys_averaged",
            changed(average=lambda self, weights, keys, values: weights @ self.W_k(keys)),
            "You average the projected keys; the outputs are averages of the values.",
            "Which variable did you overwrite on the way?",
        ),
        Mistake(
            "values_scored",
            changed(
                forward=lambda self, queries, keys, values, valid_lens=None, mask=None: (
                    models.Right.forward(self, queries, values, values, valid_lens, mask)
                )
            ),
            "You compare the queries with the values; it is the keys they are compared with.",
            "What goes through `W_k`?",
        ),
        Mistake(
            "dropout_in_eval",
            changed(drop=lambda self, weights: F.dropout(weights, self.dropout.p)),
            "Dropout acts in eval mode too.",
            "How does a layer learn that the module is in eval mode?",
        ),
        Mistake(
            "dropout_missing",
            changed(drop=lambda self, weights: weights),
            "In train mode nothing is dropped: `dropout` has no effect.",
            "Which tensor should go through `nn.Dropout`?",
        ),
        Mistake(
            "dropout_on_scores",
            changed(
                combine=lambda self, q, k: self.dropout(models.Right.combine(self, q, k)),
                drop=lambda self, weights: weights,
            ),
            "Dropout acts on the scores: a dropped score becomes 0, whose exponential is 1, so the "
            "key keeps its weight.",
            "Which comes first, softmax or dropout?",
        ),
        Mistake(
            "dropout_on_output",
            changed(
                drop=lambda self, weights: weights,
                average=lambda self, weights, keys, values: self.dropout(weights @ values),
            ),
            "Dropout acts on the outputs; it belongs on the attention weights.",
            "Which tensor should lose entries: the weights, or their product with the values?",
        ),
        Mistake(
            "dropout_on_features",
            models.DropoutOnFeatures,
            "Dropout acts on the hidden features; it belongs on the attention weights.",
            "Which tensor should lose entries?",
        ),
        Mistake(
            "dropout_twice",
            changed(drop=lambda self, weights: self.dropout(self.dropout(weights))),
            "Dropout acts twice.",
            "On how many tensors is dropout called?",
        ),
        Mistake(
            "kept_after_dropout",
            _keep(lambda scores, weights, dropped: dropped.detach()),
            "`attention_weights` holds the weights after dropout: in train mode its rows no longer "
            "sum to 1.",
            "Which line should come first, keeping or dropping?",
        ),
        Mistake(
            "kept_with_graph",
            _keep(lambda scores, weights, dropped: weights),
            "`attention_weights` still carries its graph: as long as the module keeps it, every "
            "intermediate of the call stays in memory.",
            "What does `.detach()` do?",
        ),
        Mistake(
            "kept_scores",
            _keep(lambda scores, weights, dropped: scores.detach()),
            "`attention_weights` holds the scores, before the softmax.",
            "In which range must a weight lie?",
        ),
        Mistake(
            "nothing_kept",
            changed(keep=lambda self, scores, weights, dropped: None),
            "The module has no `attention_weights` after the call.",
            "Where would you look to see what it attends to?",
        ),
    ),
    properties=(
        Property("outside_the_values", _last_axis_rows, "Do the weights of each query sum to 1?"),
    ),
    hints=(
        "`__init__` makes three linear layers without bias and a dropout layer. `forward` is "
        "scores, masked softmax, dropout, average of the values.",
        "`additive_scores` takes the weights of your layers: `self.W_q.weight` is (H, query_size), "
        "`self.w_v.weight` is (1, H). `masked_softmax` takes `valid_lens` and `mask`. Keep "
        "`weights.detach()` before dropout; `nn.Dropout` knows about train and eval mode.",
        "scores = additive_scores(queries, keys, self.W_q.weight, self.W_k.weight,\n"
        "                         self.w_v.weight[0])\n"
        "weights = masked_softmax(scores, valid_lens, mask)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(weights) @ values",
    ),
)
