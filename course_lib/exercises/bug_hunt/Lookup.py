"""Lesson 07: `Lookup`, a broken module fixed."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.checks.judge.comparisons import Problem, arrays_agree, close, dropout_values
from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.lessons.broken_modules import BrokenLookup
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.properties import INSIDE_THE_VALUES, WEIGHTS, ZERO_QUERY
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises._rows import INDEPENDENT, Given, mistake
from course_lib.reference import bug_hunt as oracle
from course_lib.reference.masked_softmax import softmax_of


def lookup_problem(rng, b, n, m, sizes, v, valid_lens=None, dropout=0.0, **options) -> Given:
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


def _dropout_probe(rng) -> Probe:
    problem = lookup_problem(rng, 4, 24, 24, (5, 3, 7), 27, dropout=0.3)
    values = tensor(dropout_values(rng, 4, 24))
    lens = tensor(np.array([24, 19, 22, 24]))
    problem["args"] = problem["args"] | {"values": values, "valid_lens": lens}
    return Probe(
        "dropout",
        "In train mode each weight is dropped independently with probability `dropout`.",
        "edges",
        training=True,
        compare="dropout_on_weights",
        seed=int(rng.integers(10**6)),
        **problem,
    )


# Two of the four faults show alone in a problem of their own, whatever the others do.
def _root_alone(rng) -> Probe:
    """Scores ((a, b), (b, a)): a softmax over the queries gives the same."""
    problem = lookup_problem(rng, 1, 2, 2, (2, 2, 3), 2)
    column = rng.normal(0, 1.2, 3)
    for name in problem["state"]:
        problem["state"][name] = np.stack([column, np.roll(column, 1)], axis=1)
    for name in ("queries", "keys"):
        problem["args"][name] = tensor(np.eye(2)[None])
    says = "Each score is divided by the root of num_hiddens = 3."
    return Probe("root", says, compare="root", **problem)


def _judged_root(probe, expected, recorded) -> Problem | None:
    """Names the root by which the scores were divided."""
    if arrays_agree(expected, recorded.data, 1e-7):
        return None
    W_q, W_k = (probe.state[name] for name in ("W_q.weight", "W_k.weight"))
    scores = (probe.args["queries"].data @ W_q.T) @ (probe.args["keys"].data @ W_k.T).mT
    for root, (name, message) in _ROOTS.items():
        weights = np.array([[softmax_of(list(row / root)) for row in scores[0]]])
        if arrays_agree(weights @ probe.args["values"].data, recorded.data, 1e-7):
            return Problem(name, message, "How many products does one score sum?")
    return close(probe, expected, recorded)


_ROOTS = {
    2**0.5: (
        "another_root",
        "Your scores are divided by the root of 2. Here queries and keys have 2 features and "
        "there are 2 of each, but the dot product runs over `num_hiddens` = 3.",
    ),
    1.0: ("unscaled", "Your scores are not divided by anything."),
    3.0: ("divided_by_d", "You divide by `num_hiddens` instead of its root."),
}


def _no_preference(rng) -> Probe:
    problem = lookup_problem(rng, 2, 2, 5, (4, 3, 6), 7)
    problem["args"]["queries"].data[:] = 0.0
    says = "With queries of 0, all scores are equal and each output is the plain average."
    return Probe("no_preference", says, compare="axis", **problem)


def _judged_axis(probe, expected, recorded) -> Problem | None:
    """Says which axis the softmax runs over."""
    if arrays_agree(expected * (5 / 2), recorded.data, 1e-7):
        return Problem(
            "over_queries",
            "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
            "Which axis of (batch, num_queries, num_keys) holds the keys?",
        )
    return close(probe, expected, recorded)


def _quiet(rng) -> Probe:
    problem = lookup_problem(rng, 2, 3, 3, (3, 6, 8), 3, dropout=0.6)
    problem["args"]["queries"].data[:] = 0.0
    says = "In eval mode nothing is dropped, whatever `dropout` is."
    return Probe("quiet", says, compare="quiet", **problem)


def _judged_quiet(probe, expected, recorded) -> Problem | None:
    """With equal weights of 1/3, each output is the sum of the kept values divided by 3 (1 - p)."""
    if arrays_agree(expected, recorded.data, 1e-7):
        return None
    kept = np.array(list(np.ndindex(2, 2, 2))) / (3 * 0.4)
    sums = np.einsum("sm,bmv->bsv", kept, probe.args["values"].data)
    gaps = np.abs(recorded.data[:, :, None] - sums[:, None]).max(-1).min(-1)
    if recorded.data.shape == expected.shape and (gaps < 1e-7).all():
        return Problem(
            "dropout_in_eval",
            "Your dropout acts in eval mode too.",
            "What does `nn.Dropout` know that `F.dropout(weights, p)` does not?",
        )
    return close(probe, expected, recorded)


def _lookup_probes(rng) -> list[Probe]:
    padded = lookup_problem(rng, 3, 4, 6, (5, 2, 3), 7, [2, 6, 4])
    one = lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [1, 1])
    return [
        Probe("few", "The outputs are softmax(q k^T / sqrt(num_hiddens)) V, here for two queries "
                     "over three keys.", **lookup_problem(rng, 1, 2, 3, (3, 4, 2), 2)),
        _root_alone(rng),
        _no_preference(rng),
        _quiet(rng),
        Probe("plain", "Without lengths, all keys are real. Query, key and hidden sizes differ; "
                       "only one of them belongs under the root.",
              **lookup_problem(rng, 2, 3, 5, (4, 6, 7), 8)),
        Probe("padded", "Rows sum to 1 over the real keys.", **padded),
        Probe("one_key", "One real key: every query gets its value.", **one),
        Probe("key_alone", "One query and one key: the output is its value.",
              **lookup_problem(rng, 2, 1, 1, (2, 3, 4), 3)),
    ]  # fmt: skip


def _lookup_edges(rng) -> list[Probe]:
    empty = lookup_problem(rng, 3, 2, 5, (4, 4, 4), 7, [0, 3, 5])
    big = lookup_problem(rng, 2, 3, 4, (4, 5, 6), 3)
    big["state"] = {name: 30 * w for name, w in big["state"].items()}
    back = lookup_problem(rng, 1, 2, 3, (3, 3, 3), 2, [2], requires_grad=True)
    back_empty = lookup_problem(rng, 2, 1, 3, (3, 3, 3), 1, [0, 2], requires_grad=True)
    return [
        Probe("garbage", "The contents of padded keys and values change nothing, however large.",
              "edges", **_with_garbage(rng, 1e30)),
        Probe("empty", "An item without a real key gets zeros.", "edges", **empty),
        Probe("all_empty", "If no item has a real key, everything is zero: 0 is a valid length.",
              "edges", **lookup_problem(rng, 2, 3, 4, (3, 5, 2), 6, [0, 0])),
        Probe("train", "With dropout=0, train and eval mode give the same, also with lengths.",
              "edges", training=True, **lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [2, 4])),
        Probe("train_empty", "An item without a real key gets zeros in train mode too.",
              "edges", training=True, **lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [0, 4])),
        Probe("device_and_dtype", "`device=` and `dtype=` set the device and the dtype of "
              "the weights. Pass both on to each layer.", "edges",
              scenario="made_with_device_and_dtype",
              **lookup_problem(rng, 1, 2, 3, (2, 3, 4), 5, [2])),
        Probe("after_another_call", INDEPENDENT, "edges", scenario="after_another_call",
              **lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [2, 4])),
        Probe("after_a_shorter_call", "Each call is independent: the one before had one query and "
                                      "one key less.",
              "edges", scenario="after_a_shorter_call", training=True,
              **lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [2, 5])),
        Probe("float32", "Float32 inputs and weights give float32 outputs.", "edges",
              dtype="float32", tolerance=1e-4,
              **lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [2, 4])),
        Probe("big", "Scores may be of any size.", "edges", **big),
        Probe("many_keys", "Any number of keys must work.", "edges",
              **lookup_problem(rng, 1, 2, 300, (4, 4, 4), 2, [290])),
        Probe("strided", "The memory layout of a tensor does not matter.", "edges",
              **lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [5, 2], strided=True)),
        _dropout_probe(rng),
        Probe("gradient", "The gradients of inputs and weights are those of the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 2, 2)), **back),
        Probe("gradient_empty", "An item without a real key leaves every gradient finite.",
              "gradients", grad_outputs=rng.uniform(-1, 1, (2, 1, 1)), **back_empty),
    ]  # fmt: skip


def _with_garbage(rng, size) -> Given:
    problem = lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [3, 4])
    for name in ("keys", "values"):
        data = problem["args"][name].data
        data[0, 3:], data[1, 4:] = size, -size
    return problem


class _Lookup(AttentionModule):
    """The right module."""

    own = NO_STEP

    def __init__(
        self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None) -> Tensor:
        return self.attend((queries, keys, values), valid_lens)[0]

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.W_q(queries), self.W_k(keys), values

    def product(self, q, k) -> Tensor:
        self.num_keys = k.shape[-2]
        return q @ k.mT


def _values_dropped(self, weights, v) -> Tensor:
    self.keep(weights, weights)
    return weights @ F.dropout(v, self.p, self.training)


_BROKEN = mistake("not_fixed", BrokenLookup).says(
    "This still computes what `BrokenLookup` does.",
    "Which invariants on the list does it break? One fault may hide the effect of fixing another.",
)
_SUMMED = "How many products does one score sum?"
_OWN = (
    Row("scale_of_the_queries", {"root": lambda self, q: self.W_q.in_features**0.5}).says(
        "You divide by the root of the query's size, but the dot product runs over the "
        "`num_hiddens` projected features.",
        _SUMMED,
    ),
    Row("scale_of_the_number_of_keys", {"root": lambda self, q: self.num_keys**0.5}).says(
        "You divide by the root of the number of keys, but the dot product runs over the "
        "`num_hiddens` projected features.",
        _SUMMED,
    ),
    Row("dropout_on_values", {"average": _values_dropped}).says(
        "Dropout acts on the values; it belongs on the attention weights.",
        "Which tensor should lose entries in train mode?",
    ),
)
_THERE = "What does `masked_softmax` of lesson 02 do there?"
_WORDS = {
    "empty_row_nan": ("An item without a real key becomes NaN.", _THERE),
    "empty_row_uniform": ("An item without a real key gets the average of its pads.", _THERE),
}


EXERCISE = Exercise(
    points=5,
    minutes=12,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "v")),),
    probes=lambda rng: [*_lookup_probes(rng), *_lookup_edges(rng)],
    oracle=oracle.lookup,
    builds_on=("masked_softmax",),
    comparisons={"root": _judged_root, "axis": _judged_axis, "quiet": _judged_quiet},
    mistakes=(_BROKEN, *known(_Lookup, *_OWN, words=_WORDS)),
    properties=(*WEIGHTS, ZERO_QUERY, INSIDE_THE_VALUES),
    hints=(
        "`BrokenLookup` has four faults, and one of them hides another. After each fix, run your "
        "three tests and check the row sums again.",
        "Look at the number under the root, at the axis of the softmax, at the order of softmax "
        "and mask, and at what dropout does in eval mode.",
        "scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "weights = masked_softmax(scores, valid_lens)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(weights) @ values  # an nn.Dropout made in __init__",
    ),
)
