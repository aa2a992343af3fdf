"""Lesson 07: `Lookup`, a broken module to fix."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from course_lib.checks.judge.comparisons import dropout_values
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.lessons.broken_modules import BrokenLookup
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import far_above, largest_padding
from course_lib.exercises._attention.properties import WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises._builders import INDEPENDENT, Given, mistake
from course_lib.reference import bug_hunt as oracle


def _lookup_problem(rng, b, n, m, sizes, v, valid_lens=None, dropout=0.0, **options) -> Given:
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
    problem = _lookup_problem(rng, 4, 24, 24, (5, 3, 7), 27, dropout=0.3)
    values = tensor(dropout_values(rng, 4, 24))
    lens = tensor(np.array([24, 19, 22, 24]))
    problem["args"] = problem["args"] | {"values": values, "valid_lens": lens}
    return Probe(
        "dropout",
        "In train mode each weight must be dropped independently with probability `dropout`.",
        "edges",
        training=True,
        compare="dropout_on_weights",
        seed=int(rng.integers(10**6)),
        **problem,
    )


# Three of the four faults have a problem that shows only that fault, even if others are present.
def _root_alone(rng) -> Probe:
    """Return a problem with scores ((a, b), (b, a)), where the softmax's axis has no effect."""
    problem = _lookup_problem(rng, 1, 2, 2, (2, 2, 3), 2)
    column = rng.normal(0, 1.2, 3)
    for name in problem["state"]:
        problem["state"][name] = np.stack([column, np.roll(column, 1)], axis=1)
    for name in ("queries", "keys"):
        problem["args"][name] = tensor(np.eye(2)[None])
    return Probe("root", "Each score must be divided by the root of num_hiddens.", **problem)


def _axis_alone(rng) -> Probe:
    problem = _lookup_problem(rng, 2, 2, 5, (4, 3, 6), 7)
    problem["args"]["queries"].data[:] = 0.0
    says = "With queries of 0, all scores are equal and each output must be the plain average."
    return Probe("axis", says, **problem)


def _eval_alone(rng) -> Probe:
    problem = _lookup_problem(rng, 2, 3, 3, (3, 6, 8), 3, dropout=0.6)
    problem["args"]["queries"].data[:] = 0.0
    return Probe("eval", "In eval mode nothing may be dropped, whatever `dropout` is.", **problem)


def _lookup_probes(rng) -> list[Probe]:
    padded = _lookup_problem(rng, 3, 4, 6, (5, 2, 3), 7, [2, 6, 4])
    return [
        Probe("few", "The outputs are softmax(q k^T / sqrt(num_hiddens)) V.",
              **_lookup_problem(rng, 1, 2, 3, (3, 4, 2), 2)),
        _root_alone(rng),
        _axis_alone(rng),
        _eval_alone(rng),
        Probe("plain", "Without lengths, all keys are real. Query, key and hidden sizes may "
                       "differ; only one of them belongs under the root.",
              **_lookup_problem(rng, 2, 3, 5, (4, 6, 7), 8)),
        Probe("padded", "Rows of the weights must sum to 1 over the real keys.", **padded),
        Probe("one_key", "With one real key, every query must get its value.",
              **_lookup_problem(rng, 2, 3, 5, (4, 6, 7), 2, [1, 1])),
    ]  # fmt: skip


def _lookup_edges(rng) -> list[Probe]:
    empty = _lookup_problem(rng, 3, 2, 5, (4, 4, 4), 7, [0, 3, 5])
    back = _lookup_problem(rng, 1, 2, 3, (3, 3, 3), 2, [2], requires_grad=True)
    back_empty = _lookup_problem(rng, 2, 1, 3, (3, 3, 3), 1, [0, 2], requires_grad=True)
    one: Given = {
        "valid_lens": [2],
        "construct": {"query_size": 1, "key_size": 1, "num_hiddens": 1},
        "state": {"W_q.weight": np.eye(1), "W_k.weight": np.eye(1)},
        "attributes": ("attention_weights",),
    }
    return [
        *largest_padding(rng, **one),
        *far_above(rng, **one),
        Probe("as_many_items_as_queries", "Lengths belong to items, even if there are as many "
              "queries.", "edges", **_lookup_problem(rng, 3, 3, 5, (4, 6, 7), 2, [1, 5, 3])),
        Probe("empty", "An item without a real key must get zeros.", "edges", **empty),
        Probe("device_and_dtype", "`device=` and `dtype=` must set the device and the dtype of the "
              "weights. Pass both on to each layer.", "edges",
              scenario="made_with_device_and_dtype",
              **_lookup_problem(rng, 1, 2, 3, (2, 3, 4), 5, [2])),
        Probe("after_another_call", INDEPENDENT, "edges", scenario="after_another_call",
              **_lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [2, 4])),
        Probe("after_a_call_with_lengths", INDEPENDENT, "edges",
              scenario="after_a_call_with_lengths",
              **_lookup_problem(rng, 1, 2, 3, (2, 2, 2), 1)),
        Probe("float32", "Float32 inputs and weights must give float32 outputs.", "edges",
              dtype="float32",
              **_lookup_problem(rng, 2, 3, 5, (4, 4, 4), 2, [2, 4])),
        _dropout_probe(rng),
        Probe("gradient", "The gradients of inputs and weights must match the formula.",
              "gradients", grad_outputs=rng.normal(size=(1, 2, 2)), **back),
        Probe("gradient_empty", "An item without a real key must leave every gradient finite.",
              "gradients", grad_outputs=rng.uniform(-1, 1, (2, 1, 1)), **back_empty),
    ]  # fmt: skip


class _Lookup(AttentionModule):
    """The correct module."""

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


_BROKEN = mistake("not_fixed", BrokenLookup).says(
    "This still computes what `BrokenLookup` does, with all its faults.",
    "Which invariants on the list does it break? One fault may hide the effect of fixing another.",
)
_OWN = (
    Row("scale_of_the_queries", {"root": lambda self, q: self.W_q.in_features**0.5}).says(
        "You divide the scores by the root of `query_size`, but a dot product runs over the "
        "`num_hiddens` projected features.",
        "How many products are summed in one score?",
    ),
)
_WORDS = {
    "empty_row_nan": (
        "An item without a real key becomes NaN.",
        "What does `masked_softmax` of lesson 02 do there?",
    )
}
_KNOWN = known(_Lookup, *_OWN, without={"divided_by_d"}, words=_WORDS)


EXERCISE = Exercise(
    points=5,
    minutes=12,
    difficulty=2,
    starred=True,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "v")),),
    probes=lambda rng: [*_lookup_probes(rng), *_lookup_edges(rng)],
    oracle=oracle.lookup,
    mistakes=(_BROKEN, *_KNOWN),
    properties=WEIGHTS,
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
