"""`DotProductAttention`: in eval and in train mode, with dropout judged from one call."""

import numpy as np

from course_lib.checks.catalogue import _scaled_dot_product_mistakes as make
from course_lib.checks.catalogue._scaled_dot_product_forward import RETURNS
from course_lib.checks.catalogue._scaled_dot_product_pairs import pairs, singles
from course_lib.checks.catalogue._scaled_dot_product_problems import (
    PROPERTIES,
    far_above,
    problem_of,
    random_mask,
    replaced,
    tiny,
)
from course_lib.checks.compare import dropout_values
from course_lib.checks.exercise import Exercise, Mistake
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import scaled_dot_product as oracle


def _module_probes(rng):
    def probe(name, says, construct, args, **options):
        return Probe(
            name,
            says,
            args=args,
            construct=construct,
            attributes=("attention_weights",),
            **({"kwargs": {}} | options),
        )

    def problem(*shape, **options):
        return problem_of(rng, *shape, **options)

    wide = {
        "queries": tensor(rng.normal(0, 1.2, (8, 16, 5))),
        "keys": tensor(rng.normal(0, 1.2, (8, 20, 5))),
        "values": tensor(dropout_values(rng, 8, 20)),
    }
    item = replaced(problem((2,), 2, 3, 4, 5), queries=np.zeros((2, 2, 4)))
    grads = problem((1,), 2, 4, 3, 2, requires_grad=True)
    long = tensor(np.array([14, 20, 17, 19, 20, 16, 18, 15]))
    return [
        probe(
            "plain",
            "Without dropout the module gives softmax(Q K^T / sqrt(d)) V and keeps the weights.",
            {},
            tiny(),
        ),
        probe(
            "eval_with_dropout",
            "In eval mode nothing is dropped, whatever `dropout` is.",
            {"dropout": 0.5},
            problem((2,), 3, 5, 6, 4),
        ),
        probe(
            "lengths",
            "Lengths must reach the softmax.",
            {"dropout": 0.1},
            {**problem((3,), 2, 5, 4, 6), "valid_lens": tensor([4, 1, 3])},
        ),
        probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            {"dropout": 0.0},
            {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([[1, 4, 2], [3, 2, 4]])},
        ),
        probe(
            "mask_by_hand",
            "A mask must reach the softmax: a key that is masked gets no weight.",
            {},
            tiny(),
            kwargs={"mask": tensor([[True, False, True], [True, True, False]])},
        ),
        probe(
            "mask",
            "The mask must reach the softmax.",
            {"dropout": 0.0},
            problem((2,), 3, 5, 7, 6, strided=True),
            kwargs={"mask": tensor(random_mask(rng, 2, 3, 5))},
        ),
        probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            {"dropout": 0.3},
            {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([3, 4])},
            kwargs={"mask": tensor(np.tril(np.ones((3, 5), dtype=bool), 1))},
        ),
        probe(
            "train_without_dropout",
            "With dropout=0 train mode gives the same as eval mode, lengths and mask included.",
            {"dropout": 0.0},
            {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([2, 4])},
            kwargs={"mask": tensor(random_mask(rng, 3, 5))},
            training=True,
        ),
        probe(
            "train_with_dropout",
            "In train mode each attention weight is dropped with probability `dropout`, the others "
            "are divided by 1 - dropout; `attention_weights` holds them before that.",
            {"dropout": 0.5},
            wide,
            training=True,
            compare="dropout_on_weights",
            seed=int(rng.integers(1, 10_000)),
        ),
        probe(
            "train_with_rare_dropout",
            "In train mode each attention weight is dropped with probability `dropout`, the others "
            "are divided by 1 - dropout; `attention_weights` holds them before that.",
            {"dropout": 0.2},
            {**wide, "valid_lens": long},
            training=True,
            compare="dropout_on_weights",
            seed=int(rng.integers(1, 10_000)),
        ),
        probe(
            "train_as_made",
            "`dropout` is 0 unless something else is asked for.",
            {},
            problem((2,), 3, 5, 4, 6),
            training=True,
        ),
        probe(
            "lengths_zero",
            "Where no item has a real key, all outputs and weights are 0: 0 is a length too.",
            {"dropout": 0.0},
            {**problem((2,), 3, 4, 5, 2), "valid_lens": tensor([0, 0])},
            part="edges",
        ),
        probe(
            "empty_mask",
            "Where a mask allows no key at all, all outputs and weights are 0.",
            {"dropout": 0.0},
            problem((2,), 3, 4, 5, 2),
            kwargs={"mask": tensor(np.zeros((3, 4), dtype=bool))},
            part="edges",
        ),
        probe(
            "mask_of_keys",
            "A (num_keys,) mask holds for every query of every item.",
            {"dropout": 0.0},
            problem((2,), 3, 5, 4, 6),
            kwargs={"mask": tensor([True, False, True, True, False])},
            part="edges",
        ),
        probe(
            "heads_lengths_and_mask",
            "With heads, int32 lengths of shape (batch, num_queries) and a mask for each head, a "
            "key must be allowed by both.",
            {"dropout": 0.0},
            {
                **problem((2, 3), 4, 5, 7, 6),
                "valid_lens": tensor(np.array([[3, 5, 2, 4], [4, 1, 5, 3]], dtype=np.int32)),
            },
            kwargs={"mask": tensor(random_mask(rng, 2, 3, 4, 5) | (np.arange(5) == 0))},
            part="edges",
        ),
        probe(
            "masked_score_far_above",
            "A masked key changes nothing, however large its score is.",
            {"dropout": 0.0},
            far_above(rng),
            kwargs={"mask": tensor([[True, True, False]])},
            part="edges",
        ),
        probe(
            "length_zero",
            "An item of length 0 gets outputs 0 and weights 0.",
            {"dropout": 0.0},
            {**item, "valid_lens": tensor([0, 2])},
            part="edges",
        ),
        probe(
            "heads",
            "With (batch, heads, n, d) the weights are (batch, heads, n, m).",
            {"dropout": 0.1},
            {**problem((2, 3), 4, 5, 7, 6), "valid_lens": tensor([2, 4])},
            part="edges",
        ),
        probe(
            "float32",
            "Inputs in float32 give outputs in float32.",
            {"dropout": 0.1},
            {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([2, 4])},
            part="edges",
            dtype="float32",
            tolerance=1e-4,
        ),
        probe(
            "after_another_call",
            "Each call counts on its own: outputs and `attention_weights` are those of the last.",
            {"dropout": 0.1},
            {**problem((2,), 3, 4, 5, 2), "valid_lens": tensor([3, 2])},
            part="edges",
            scenario="after_another_call",
        ),
        probe(
            "ones",
            "One item, one query, one key: no axis may be lost.",
            {"dropout": 0.1},
            problem((1,), 1, 1, 1, 1),
            part="edges",
        ),
        probe(
            "gradient",
            "The gradients of queries, keys and values must be those of the formula.",
            {"dropout": 0.5},
            {**grads, "valid_lens": tensor([3])},
            part="gradients",
            grad_outputs=rng.normal(0, 1, (1, 2, 2)),
        ),
        probe(
            "gradient_in_train_mode",
            "In train mode the gradients are those of the formula, too.",
            {"dropout": 0.0},
            {**grads, "valid_lens": tensor([3])},
            part="gradients",
            training=True,
            grad_outputs=rng.normal(0, 1, (1, 2, 2)),
        ),
    ]


def _module(mistake):
    return Mistake(mistake.id, make.module(mistake.model), mistake.message, mistake.hint)


_FOR_MODULES = (
    "unscaled",
    "divided_by_d",
    "times_root",
    "root_of_num_keys",
    "root_of_value_size",
    "mask_ignored",
    "inverted",
    "filled_with_zero",
    "zero_after_softmax",
    "zero_one_mask_added",
    "empty_row_nan",
    "empty_row_uniform",
    "over_queries",
    "over_queries_nan",
    "over_queries_filled",
    "bool_mask_inverted",
    "one_key_too_few",
    "always_causal",
    "lengths_ignored",
    "bool_mask_ignored",
    "only_lengths_if_both",
    "only_mask_if_both",
    "either_is_enough",
    "mask_passed_as_lengths",
    "lengths_required",
    "lengths_tiled",
    "lengths_tiled_over_heads",
    "query_lengths_read_as_item_lengths",
    "one_key_too_many",
    "weights_divided_by_root",
    "hard_coded_d",
    "divided_by_half_of_d",
    "divided_by_twice_d",
    "three_axes_only",
    "gradient_cut",
    "keys_reshaped",
    "unscaled_and_mask_ignored",
    "unscaled_and_over_queries",
    "unscaled_and_lengths_ignored",
    "unscaled_and_bool_mask_ignored",
)


def _outputs_and_weights(attend):
    class Wrong(make.module(attend)):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs), self.attention_weights

    return Wrong


_RIGHT = make.wrong()


def _always(p):
    """Drops with this probability, whatever was asked for."""

    class Wrong(make.module(_RIGHT)):
        def __init__(self, dropout=0.0):
            super().__init__(p(dropout))

    return Wrong


def _first_weights_kept():
    class Wrong(make.module(_RIGHT)):
        def __setattr__(self, name, value):
            if name != "attention_weights" or getattr(self, name, None) is None:
                super().__setattr__(name, value)

    return Wrong


class _WithoutMask(make.module(_RIGHT)):
    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


_MODULE_ONLY = (
    Mistake(
        "mask_not_accepted",
        _WithoutMask,
        "`forward` takes no `mask`.",
        "Which signature does `forward` have in the exercise?",
    ),
    Mistake(
        "dropout_in_eval",
        make.module(_RIGHT, on=True),
        "Weights are dropped in eval mode too.",
        "How does `F.dropout` learn whether the module is in train mode?",
    ),
    Mistake(
        "dropout_missing",
        make.module(_RIGHT, drop="nothing"),
        "Nothing is dropped in train mode.",
        "Where does `dropout` enter your `forward`?",
    ),
    Mistake(
        "dropout_on_output",
        make.module(_RIGHT, drop="outputs"),
        "Dropout acts on your outputs; it belongs on the attention weights.",
        "Which tensor should lose entries: the weights, or their product with the values?",
    ),
    Mistake(
        "dropout_on_scores",
        make.module(_RIGHT, drop="scores"),
        "Dropout acts on your scores: a dropped score becomes 0, whose exponential is 1.",
        "Which comes first, softmax or dropout?",
    ),
    Mistake(
        "dropout_on_queries",
        make.module(_RIGHT, drop="queries"),
        "Dropout acts on your queries; it belongs on the attention weights.",
        "Which tensor should lose entries in train mode?",
    ),
    Mistake(
        "dropout_on_values",
        make.module(_RIGHT, drop="values"),
        "Dropout acts on your values; it belongs on the attention weights.",
        "Which tensor should lose entries in train mode?",
    ),
    Mistake(
        "normalised_after_dropout",
        make.module(_RIGHT, drop="normalised"),
        "After dropout you bring each row of weights to sum 1 again: dropout has divided the kept "
        "ones by 1 - p already, and the sum is right on average only.",
        "Must each row still sum to 1 after dropout, or only on average?",
    ),
    Mistake(
        "dropout_not_rescaled",
        make.module(_RIGHT, drop="not_rescaled"),
        "The kept weights are not divided by 1 - p, so train and eval mode differ on average.",
        "What does `nn.Dropout` do to the entries it keeps?",
    ),
    Mistake(
        "dropout_twice",
        make.module(_RIGHT, drop="twice"),
        "Dropout acts twice: the kept weights are divided by (1 - p) two times.",
        "On how many tensors is dropout called?",
    ),
    Mistake(
        "dropout_keeps_p",
        _always(lambda dropout: 1 - dropout),
        "Your code keeps weights with probability p; `dropout` is the probability of dropping one.",
        "Which of the two is the argument of `nn.Dropout`?",
    ),
    Mistake(
        "fixed_dropout_of_a_tenth",
        _always(lambda dropout: 0.1),
        "A tenth of the weights is dropped in train mode, whatever `dropout` says.",
        "Where does your `__init__` use its argument?",
    ),
    Mistake(
        "fixed_dropout_of_a_half",
        _always(lambda dropout: 0.5),
        "Half of the weights are dropped in train mode, whatever `dropout` says.",
        "Where does your `__init__` use its argument?",
    ),
    Mistake(
        "weights_of_the_first_call_kept",
        _first_weights_kept(),
        "`attention_weights` still holds the weights of the first call after a second one.",
        "Under which condition does your `forward` set the attribute?",
    ),
    Mistake(
        "scores_stored",
        make.module(_RIGHT, keep="scores"),
        "`self.attention_weights` holds your scores, before the softmax.",
        "Which of your tensors has rows that sum to 1?",
    ),
    Mistake(
        "stored_after_dropout",
        make.module(_RIGHT, keep="dropped"),
        "`attention_weights` holds the weights after dropout; the course keeps them before it.",
        "In which order do you store and drop?",
    ),
    Mistake(
        "stored_after_dropout_in_eval_too",
        make.module(_RIGHT, keep="dropped", on=True),
        "Weights are dropped in eval mode too, and stored after that.",
        "How does `F.dropout` learn whether the module is in train mode?",
    ),
    Mistake(
        "graph_kept",
        make.module(_RIGHT, keep="attached"),
        "`attention_weights` still carries its graph, which keeps every intermediate in memory.",
        "What does `.detach()` do?",
    ),
    Mistake(
        "weights_not_stored",
        make.module(_RIGHT, keep="nothing"),
        "The outputs are right, but `self.attention_weights` holds no weights after the call.",
        "Which attribute does the text ask you to set in `forward`?",
    ),
    Mistake(
        "outputs_stored",
        make.module(_RIGHT, keep="outputs"),
        "`self.attention_weights` holds your outputs.",
        "Which of your tensors has the shape (..., num_queries, num_keys)?",
    ),
    Mistake(
        "weights_returned_too",
        _outputs_and_weights(_RIGHT),
        "Your `forward` returns the weights too; a module returns the outputs only and keeps the "
        "weights as an attribute.",
        "What does `return` hold?",
    ),
)

DOT_PRODUCT_ATTENTION = Exercise(
    name="DotProductAttention",
    points=3,
    minutes=15,
    difficulty=2,
    is_class=True,
    returns=(RETURNS[0],),
    probes=_module_probes,
    oracle=oracle.dot_product_attention,
    builds_on=("masked_softmax", "scaled_dot_product_attention"),
    mistakes=(
        *_MODULE_ONLY,
        *(_module(mistake) for mistake in (*singles(), *pairs()) if mistake.id in _FOR_MODULES),
    ),
    properties=PROPERTIES,
    hints=(
        "The function you wrote, with a dropout layer between its weights and the values, and one "
        "line that remembers the weights.",
        "Make `nn.Dropout(dropout)` in `__init__`: it follows train and eval mode by itself. In "
        "`forward`: weights, store them detached, drop, multiply with the values.",
        "_, weights = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(...) @ values",
    ),
)
