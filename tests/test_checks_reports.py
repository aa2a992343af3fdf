"""The contents of reports: expected results, named mistakes, and failing parts."""

import ast
import contextlib
import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from test_checks import right_mask
from test_checks_hostile import masked
from test_checks_judge import exercise
from torch import nn
from torch.nn import functional as F

from course_lib import masked_softmax
from course_lib.authoring.variants import variants
from course_lib.checks import exercises, grade
from course_lib.checks.judge import explain
from course_lib.checks.judge.comparisons import in_digits
from course_lib.checks.judge.definitions import Mistake, Returned
from course_lib.checks.judge.example import _beside
from course_lib.checks.judge.formatting import MARK
from course_lib.checks.judge.prepare import drawn
from course_lib.checks.judge.score import shares_of
from course_lib.checks.judge.verdict import judge_answer
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.checks.observe.record import Recorded
from course_lib.exercises import find
from course_lib.reference import Expected


def without_itself(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return right_mask(num_queries, num_keys).tril(num_keys - num_queries - 1)


def test_the_students_numbers_are_beside_those_of_the_definition_and_marked():
    report = grade("causal_mask", lambda *sizes: right_mask(*sizes).repeat(2, 1))
    (shown,) = report.example.results
    assert len(shown.yours) == 2 * len(shown.expected) > 0

    square = grade("causal_mask", without_itself)
    assert "mask, yours:" in square.example.text()
    assert "by the definition:" in square.example.text()
    html = square.html()  # a color is not the only cue
    assert f"<strong>False{MARK}</strong>" in html and "1px solid currentColor" in html
    (shown,) = square.example.results
    assert len(shown.yours) == len(shown.expected)
    for yours, expected in zip(shown.yours, shown.expected, strict=True):
        for mine, wanted in zip(yours, expected, strict=True):
            assert (mine.removesuffix(MARK) == wanted) == (not mine.endswith(MARK))


def test_where_all_entries_differ_the_students_numbers_are_shown_and_one_is_marked():
    example = grade("squared_distances", lambda a, b: -((a[:, None] - b) ** 2).sum(-1)).example
    numbers = [number for row in example.results[0].yours for number in row]
    assert len(numbers) > 1 and all(number.startswith(("-", "0")) for number in numbers)
    assert sum(number.endswith(MARK) for number in numbers) == 1
    assert all(
        "by the definition (all differ):" in said for said in (example.text(), example.html())
    )


def test_numbers_that_differ_late_are_shown_with_enough_digits():
    assert in_digits([0.5, 0.5]) == ["0.5", "0.5"]
    a, b = in_digits([0.1234567, 0.1234561])
    assert a != b and abs(float(a) - float(b)) < 1e-5


def test_a_large_result_is_shown_by_the_entry_that_differs():
    data, expected = np.zeros((40, 50)), np.zeros((40, 50))
    data[17, 44] = 1.0
    got = Recorded("tensor", "torch.Tensor", "float64", data.shape, data=data)
    shown = _beside("scores", expected, got, 1e-7)
    assert shown.name == "scores[17, 44]"
    assert (shown.yours, shown.expected) == (((f"1{MARK}",),), (("0",),))


def lookups(**mistakes):
    """Return an exercise of four problems, which asks for x + n, with its mistakes by id."""
    probes = [
        Probe(
            f"p{n}", f"It must hold for n = {n}.", part, {"x": tensor([1.0] * size), "n": float(n)}
        )
        for n, size, part in ((3, 2, "values"), (4, 2, "values"), (5, 3, "values"), (2, 1, "edges"))
    ]
    return exercise(
        returns=(Returned("sum"),),
        probes=lambda rng: probes,
        oracle=lambda x, n: Expected(x + n),
        mistakes=[Mistake(id, (model,), f"{id}!", "Why?") for id, model in mistakes.items()],
    )


def off(**by):
    """Return an answer to `lookups` that is off by a number for some n: `off(n3=1)`."""
    return lambda x, n: x + n + by.get(f"n{n:g}", 0)


def test_a_mistake_is_named_if_it_shows_in_most_failing_problems_or_half_and_the_plainest_one():
    known = lookups(one_more=off(n2=1, n3=1, n4=1, n5=1))
    whole = judge_answer(known, off(n2=1, n3=1, n4=1, n5=1))
    assert [finding.message for finding in whole.findings] == ["one_more!"]
    most = judge_answer(known, off(n2=7, n3=1, n4=1, n5=1))
    assert most.mistake == "one_more" and most.findings[0].message.startswith("On 3 of the 4 ")
    assert len(most.findings) > 1, "nothing is said of what it leaves unexplained"
    # The plainest problem is n = 3.
    for answer in (off(n2=1, n3=7, n4=1, n5=1), off(n2=7, n3=1, n4=1, n5=7)):
        assert judge_answer(known, answer).mistake == "one_more"
    # Half without the plainest is too little, and the mistake must show wherever it would.
    for answer in (off(n2=7, n3=7, n4=1, n5=1), off(n3=1, n4=1, n5=7), off(n3=1, n4=1, n5=1)):
        assert judge_answer(known, answer).mistake is None


def test_a_known_mistake_is_named_beside_a_second_flaw_in_an_edge_case():
    report = judge_answer(lookups(one_more=off(n3=1, n4=1, n5=1)), off(n3=1, n4=1, n5=1, n2=7))
    assert report.mistake == "one_more" and report.findings[1].id == "wrong_values"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (off(n2=1), "It must hold for n = 2. In your `sum`, [0] is 4; the definition gives 3."),
        (off(n2=1, n4=1), "It must hold for n = 4."),
        (off(n4=1, n5=1), "In your `sum`, [0] is 6; the definition gives 5."),
    ],
)
def test_what_a_problem_is_about_is_said_only_if_it_can_be_the_reason(answer, said):
    (finding,) = judge_answer(lookups(), answer).findings
    assert finding.message.startswith(said)


def test_type_and_shape_come_before_values_and_plain_values_before_edges():
    def answer(x, n):
        right = x + n
        if n == 5:
            return right[:-1]
        return {2: right / 0, 3: right, 4: right + 1}[n]

    ids = [finding.id for finding in judge_answer(lookups(), answer).findings]
    assert ids == ["wrong_shape", "wrong_values"]


def scaled_products(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT * 0.3, valid_lens, mask)
    return weights @ values, weights


def without_dim(scores, valid_lens=None, mask=None):
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    if valid_lens is not None:
        real = torch.arange(scores.shape[-1]) < valid_lens[..., None]
        while real.dim() < scores.dim():
            real = real.unsqueeze(1)
        allowed = allowed & real
    return torch.nan_to_num(F.softmax(scores.masked_fill(~allowed, -math.inf)))


class HeadsOfAPosition(nn.Module):
    """Without the transpose, the heads of a position attend to each other."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            layer = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
            setattr(self, name, layer)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        given = zip((self.W_q, self.W_k, self.W_v), (queries, keys, values), strict=True)
        q, k, v = (layer(x).unflatten(-1, (self.num_heads, -1)) for layer, x in given)
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        self.attention_weights = weights.detach()
        return self.W_o((weights @ v).flatten(2))


def rolled_over_all_items(targets, start):
    rolled = targets.roll(1)
    rolled[:1, :1] = start
    return rolled


@contextlib.contextmanager
def without_such_a_part(model, layer, head):
    int(model.blocks[layer])
    yield


def minus_inf_times_the_mask(mask, dtype):
    return mask.to(dtype) * -math.inf


def of_uniform_numbers(d, num_samples, scaled, generator):
    queries, keys = (torch.rand(num_samples, d, generator=generator) for _ in range(2))
    return ((queries * keys).sum(1) / (d**0.5 if scaled else 1)).var(correction=0)


def turned_as_before():
    """Return an answer that keeps the angles of its first offset for each number of positions."""
    kept = {}

    def rotary_embedding(x, offset=0, base=10000.0):
        if x.shape[-1] % 2:
            raise ValueError
        rates = base ** (-torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
        places = offset + torch.arange(x.shape[-2], device=x.device)
        angles = kept.setdefault(tuple(x.shape[1:]), places[:, None] * rates)
        a, b = x[..., ::2], x[..., 1::2]
        turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
        return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)

    return rotary_embedding


@pytest.mark.parametrize(
    ("name", "answer", "said", "unsaid"),
    [
        ("additive_mask", minus_inf_times_the_mask, "contains NaN", "logarithm"),
        ("score_variance", of_uniform_numbers, "must be a Python float", "square root"),
        ("rotary_embedding", turned_as_before(), "In your `turned`,", "radient"),
        ("scaled_dot_product_attention", scaled_products,
         "In your `outputs`, [0, 0", "number of queries"),
        ("masked_softmax", without_dim, "item 0 sum to 2.000 instead of 1.", "over the queries"),
        ("masked_softmax", without_dim, "Implicit dimension choice for softmax", "nan"),
        ("MultiHeadAttention", HeadsOfAPosition, "`self.attention_weights` must have shape",
         "gradient"),
        ("shift_right", rolled_over_all_items, "`inputs`, [1, 0] is", "the very word"),
        ("ablate_head", without_such_a_part, "in `int(model.blocks[layer])",
         "in `return next(self.gen)`"),
    ],
)  # fmt: skip
def test_a_report_says_nothing_false_of_answers_that_no_known_mistake_explains(
    name, answer, said, unsaid
):
    report = grade(name, answer, seed="a")
    text = "\n".join([*(f.message for f in report.findings[:1]), *report.notes])
    assert report.mistake is None and said in text and unsaid not in text, text


def allowed_by_any(*masks):
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(torch.logical_or, given) if given else torch.tensor(True)


def times_one_in_place(scores, valid_lens=None, mask=None):
    return masked(scores.mul_(1), valid_lens, mask)


def without_new_biases(mha, reference):
    with torch.no_grad():
        weights = [mha.W_q.weight, mha.W_k.weight, mha.W_v.weight]
        reference.in_proj_weight.copy_(torch.cat(weights))
        reference.out_proj.weight.copy_(mha.W_o.weight)
        if mha.W_q.bias is not None:
            biases = [mha.W_q.bias, mha.W_k.bias, mha.W_v.bias]
            reference.in_proj_bias.copy_(torch.cat(biases))
            reference.out_proj.bias.copy_(mha.W_o.bias)


enough_for_most = next(
    v.answer for v in variants(Path(__file__).parent.parent, "KVCache") if v.name == "EnoughForMost"
)


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("combine_masks", allowed_by_any, "On another input, the result must be None; got"),
        ("masked_softmax", times_one_in_place, "  requires_grad = True"),
        ("load_into_torch", without_new_biases, "each parameter of `reference` holds numbers"),
        ("KVCache", enough_for_most, "must match the existing size (2047)"),
    ],
)
def test_a_report_fits_the_input_that_it_shows(name, answer, said):
    text = grade(name, answer, seed="a").text()
    assert said in text, text


def over_the_items(queries, keys, values, valid_lens=None, mask=None):
    """Apply the softmax over axis 0. Return the weights times the values, and the weights."""
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    allowed = masked_softmax(torch.zeros_like(scores), valid_lens, mask) > 0
    weights = torch.softmax(scores.masked_fill(~allowed, -1e9), 0)
    return weights @ values, weights


def test_an_overflowing_product_is_not_compared_with_the_outputs():
    text = str(grade("scaled_dot_product_attention", over_the_items))
    assert "are not the weights" not in text and "may not attend to that key" in text, text


def test_errors_are_called_small_only_if_none_is_large():
    def smoothed(logits, targets, valid_lens):
        goal = F.one_hot(targets.long(), logits.shape[-1]).to(logits.dtype) * 0.9
        losses = -((goal + 0.1 / logits.shape[-1]) * logits.log_softmax(-1)).sum(-1)
        real = torch.arange(targets.shape[1], device=targets.device) < valid_lens[:, None]
        return losses[real].sum() / real.sum().clamp(min=1)

    def of_another_base(num_positions, embed_dim, *, device=None, dtype=None):
        pairs = torch.arange(0, embed_dim, 2, device=device, dtype=torch.float64)
        places = torch.arange(num_positions, device=device, dtype=torch.float64)
        angles = places[:, None] / 20_000 ** (pairs / embed_dim)
        both = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :embed_dim]
        return both.to(dtype or torch.get_default_dtype())

    for seed in ("public", *range(1, 8)):
        for name, answer in (
            ("masked_cross_entropy", smoothed),
            ("positional_encoding", of_another_base),
        ):
            text = str(grade(name, answer, seed=seed))
            assert "Which of your steps differs" in text and "small" not in text.split("A small")[0]
    shifted = grade("squared_distances", lambda q, k: (q[:, None] - k).square().sum(-1) + 1e-6)
    assert "adds a small constant" in str(shifted)


def test_weights_are_not_described_where_results_have_wrong_shapes():
    def swapped_and_scaled(queries, keys, values):
        weights = torch.softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), -1)
        return weights, weights @ values

    text = str(grade("attention_pooling", swapped_and_scaled, seed="a"))
    assert "in another order" in text and "sum to" not in text, text


def cost_of_tensors(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    pairs = torch.tensor(batch * num_queries * num_keys)
    return {"flops": 2 * pairs * (d + d_v), "score_bytes": pairs * bytes_per_element}


def loops(queries, keys):
    rows = [torch.stack([((q - k) ** 2).sum() for k in keys]) for q in queries]
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("name", "answer", "most", "first"),
    [
        ("causal_mask", lambda *sizes, **named: right_mask(*sizes, **named).float(), 0.7, ""),
        ("causal_mask", lambda *sizes, **named: right_mask(*sizes, **named).long(), 0.7, ""),
        ("attention_cost", cost_of_tensors, 0.9, ""),
        ("squared_distances", loops, 0.5, "loops"),
    ],
)
def test_right_numbers_of_another_kind_or_by_a_loop_earn_half(name, answer, most, first):
    report = grade(name, answer)
    assert 0.3 < report.score <= most and first in report.findings[0].id


@pytest.mark.parametrize("name", list(exercises()))
def test_the_shares_of_an_exercise_sum_to_one_and_are_worth_whole_tenths_of_a_point(name):
    exercise = exercises()[name]
    shares = shares_of(exercise, drawn(exercise, np.random.default_rng(0)))
    assert sum(shares.values()) == pytest.approx(1) and all(s >= 0 for s in shares.values())
    tenths = [10 * exercise.points * share for share in shares.values()]
    assert tenths == pytest.approx([round(number) for number in tenths])
    assert not exercise.marking.shares or sum(exercise.marking.shares.values()) == pytest.approx(1)


def test_a_mistake_that_only_raises_needs_the_same_message():
    report = grade("batched_scores", lambda queries, keys: queries @ keys)
    assert report.mistake and "Your code raised RuntimeError" in report.findings[0].message
    report = grade("batched_scores", lambda queries, keys: keys @ queries)
    assert report.mistake == "sizes_do_not_fit"
    assert " Your code raised " in report.findings[0].message


def mean_for_sum(a, b):
    return (a[..., :, :, None] * b[..., None, :, :]).mean(-2)


def product(a, b):
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def columns_reversed(a, b):
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2).flip(-1)


def one_sign_wrong(a, b):
    product = (a[..., :, :, None] * b[..., None, :, :]).sum(-2)
    return torch.cat([-product[..., :1], product[..., 1:]], dim=-1)


def first_factor_alone(a, b):
    return (a[..., :, :, None] * b.detach()[..., None, :, :]).sum(-2) ** 2


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (mean_for_sum, "another_factor"),
        (columns_reversed, "numbers_rearranged"),
        (one_sign_wrong, "negated"),
        (first_factor_alone, "gradient_cut"),
        (lambda a, b: product(a, b).flatten(0, -3), "leading_axes_joined"),
        (lambda a, b: product(a, b).mean(-1), "averaged_over_an_axis"),
        (lambda a, b: product(a, b).sum(), "averaged_over_an_axis"),
        (lambda a, b: product(a, b).round(decimals=2), "rounded"),
        (lambda a, b: mean_for_sum(a, b) + 1, None),
    ],
)
def test_a_relation_to_the_correct_numbers_is_named_in_any_exercise(answer, named):
    assert grade("bmm", answer).mistake == named


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda x, heads: x.transpose(1, 2).view(-1), "view_impossible"),
        (lambda x, heads: x.permute(0, 2, 1, 3), "another_number_of_axes"),
        (lambda x, heads: x + x.mT, "sizes_do_not_fit"),
        (lambda x, heads: x[..., heads + 99], "index_out_of_range"),
        (lambda x, heads: x if x > 0 else -x, "truth_of_many"),
        (lambda x, heads: x + None, "none_used"),
        (lambda x, heads: torch.bmm(x[None], x), "another_number_of_axes"),
        (lambda x, heads: torch.mm(x, x), "another_number_of_axes"),
        (lambda x, heads: torch.einsum("nd,md->nm", x, x), "another_number_of_axes"),
        (lambda x, heads: torch.cat([x, x[0]]), "another_number_of_axes"),
        (lambda x, heads: torch.bmm(x, x.new_zeros(99, 1, 1)), "sizes_do_not_fit"),
        (lambda x, heads: torch.stack([x, x[..., :1]]), "sizes_do_not_fit"),
        (lambda x, heads: x.float() @ x.mT, "dtypes_differ"),
        (lambda x, heads: x.heads, "no_such_attribute"),
        (lambda x, heads: heads.pow(2), "number_as_tensor"),
        (lambda x, heads: heads[0], "number_as_tensor"),
        (lambda x, heads: torch.sqrt(heads), "number_as_tensor"),
        (lambda x, heads: 1 / 0, None),
    ],
)
def test_an_error_is_named_if_its_message_tells_what_the_code_does(answer, named):
    report = grade("split_heads", answer)
    assert report.mistake == named and "Your code raised" in report.findings[0].message


@pytest.mark.parametrize(
    ("name", "answer", "mistake", "also"),
    [
        ("additive_mask", lambda *given: inverted(*given)[None], "inverted", "size 1 too many"),
        ("additive_mask", lambda *given: inverted(*given).mT, "inverted", "Two axes"),
        (
            "causal_mask",
            lambda *n, **more: next_allowed(*n, **more).float(),
            "own_key_dropped",
            "type",
        ),
        (
            "causal_mask",
            lambda *n, **more: next_allowed(*n, **more).long(),
            "own_key_dropped",
            "type",
        ),
        (
            "attention_pooling",
            lambda *given: scaled_pooling(*given)[::-1],
            "scaled_already",
            "results in another order",
        ),
        (
            "batched_scores",
            lambda queries, keys: (queries @ keys.mT / queries.shape[-1] ** 0.5).softmax(-1),
            "scaled_already",
            "the softmax of the result",
        ),
        (
            "attention_cost",
            lambda batch, n, m, d, d_v, **_: {
                "flops": batch * n * m * (d + d_v),
                "score_bytes": batch * n * n,
            },
            "factor_2_missing",
            "On some inputs, a separate mistake makes your `score_bytes` wrong",
        ),
    ],
)
def test_a_known_mistake_is_named_despite_a_second_flaw(name, answer, mistake, also):
    report = grade(name, answer)
    assert report.mistake == mistake and also in report.findings[0].message


def inverted(mask, dtype=torch.float32):
    return torch.where(mask, -math.inf, 0.0).to(dtype)


def next_allowed(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.tril(num_keys - num_queries + 1)


def scaled_pooling(queries, keys, values):
    weights = (queries @ keys.mT / queries.shape[-1] ** 0.5).softmax(-1)
    return weights @ values, weights


def test_changes_without_an_effect_are_not_tried_as_second_flaws(monkeypatch):
    made = []

    class Noted(explain.Replay):
        def __init__(self, exercise, model, prepared):
            made.append(model)
            super().__init__(exercise, model, prepared)

    written = variants(Path(__file__).parent.parent, "RecomputedAttention")
    answer = next(one.answer for one in written if one.name == "drops_the_rest")
    monkeypatch.setattr(explain, "Replay", Noted)
    assert grade("RecomputedAttention", answer).mistake is None
    assert not [model for model in made if getattr(model, "of", None)]


def test_a_bool_does_not_show_a_known_mistake_with_another_type():
    def constant(module, queries, keys, values, valid_lens):
        return torch.tensor(True)

    assert grade("batch_items_independent", constant).mistake is None


def with_a_table(num_queries, num_keys=None, *, device=None, table={}):  # noqa: B006
    num_keys = num_queries if num_keys is None else num_keys
    if num_queries not in table:
        table[num_queries] = right_mask(num_queries, num_keys, device=device)
    return table[num_queries]


class ParameterMadeInACall(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = nn.Parameter(weights.detach(), requires_grad=False)
        return self.dropout(weights) @ values


def test_parameters_created_in_a_call_are_counted():
    assert grade("DotProductAttention", ParameterMadeInACall).mistake == "extra_parameters"


def test_a_dict_with_wrong_keys_is_named():
    report = grade("attention_cost", lambda *sizes, **more: {"operations": 1, "bytes": 1})
    assert report.mistake == "wrong_keys" and "flops" in report.findings[0].message


KEPT_MASKS, KEPT_SIZES = {}, None


def with_a_global_table(num_queries, num_keys=None, *, device=None):
    return with_a_table(num_queries, num_keys, device=device, table=KEPT_MASKS)


def with_a_global_variable(num_queries, num_keys=None, *, device=None):
    global KEPT_SIZES
    KEPT_SIZES = KEPT_SIZES or (num_queries, num_keys)
    return right_mask(*KEPT_SIZES, device=device)


def in_a_closure():
    table = {}
    return lambda n, num_keys=None, **to: with_a_table(n, num_keys, **to, table=table)


def by_a_helper(num_queries, num_keys=None, *, device=None):
    return with_a_global_table(num_queries, num_keys, device=device)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (with_a_table, "table"),
        (with_a_global_table, "KEPT_MASKS"),
        (by_a_helper, "KEPT_MASKS"),
        (with_a_global_variable, "KEPT_SIZES"),
        (in_a_closure(), "table"),
    ],
)
def test_a_report_names_the_variable_that_keeps_state(answer, name):
    KEPT_MASKS.clear()
    report = grade("causal_mask", answer)
    assert report.score < 1
    assert any(f"keeps state in `{name}` between calls" in note for note in report.notes)


def test_no_report_names_variables_that_stay_the_same_or_cannot_be_read():
    def odd(n, num_keys=None, *, device=None):
        return right_mask(n, num_keys, device=device)

    odd.__kwdefaults__ = {"device": None, 3: {}}
    odd.__defaults__ = (1, 2, 3, None)
    assert not grade("causal_mask", odd).notes
    assert not grade("causal_mask", functools.lru_cache(right_mask)).notes
    assert not grade("causal_mask", right_mask).notes
    assert not any(
        "keeps state" in note for note in grade("causal_mask", lambda n, m=None: n).notes
    )


def test_a_second_flaw_may_change_the_values_of_half_of_the_problems():
    known = lookups(one_more=off(n2=1, n3=1, n4=1, n5=1))
    assert judge_answer(known, off(n2=1, n3=1, n4=1, n5=7)).mistake == "one_more"
    assert judge_answer(known, off(n2=1, n3=1, n4=7, n5=7)).mistake == "one_more"
    assert judge_answer(known, off(n2=1, n4=1)).mistake is None, "it is right where n is 3"


def test_a_problem_that_names_its_mistake_names_it_only_if_all_problems_are_this_one():
    def in_place(scores, axis=-1, times=1):
        scores -= scores.max(axis, keepdims=True)
        return times * np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)

    assert grade("stable_softmax", in_place).mistake == "input_mutated"
    assert grade("stable_softmax", lambda *given: in_place(*given, times=3)).mistake is None


def test_numbers_of_an_input_that_is_not_shown_are_said_to_be_of_another():
    def a_third_of_the_sum(logits, targets, valid_lens):
        losses = F.cross_entropy(logits.transpose(1, 2), targets.long(), reduction="none")
        real = torch.arange(targets.shape[1], device=targets.device) < valid_lens[:, None]
        return (losses * real).sum() / 3

    report = grade("masked_cross_entropy", a_third_of_the_sum)
    plain, empty = report.findings  # the plain problem comes first, although the other gives nan
    (shown,) = report.example.results
    assert (plain.id, empty.id) == ("wrong_values", "not_a_number")
    assert f"Your `loss` is {shown.yours[0][0].removesuffix(MARK)};" in plain.message
    assert empty.message == "On another input, your result contains NaN."


class WithRelu(nn.Module):
    """An additive attention that computes relu where the definition has tanh."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        hidden = self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None]
        weights = masked_softmax(self.w_v(torch.relu(hidden)).squeeze(-1), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


def test_an_example_of_a_module_shows_its_few_weights_so_that_it_can_be_typed():
    shown = grade("AdditiveAttention", WithRelu).example
    inputs = dict(shown.inputs)
    options = dict(pair.split("=") for pair in inputs["built with"].split(", "))
    module = WithRelu(*(int(options[name]) for name in ("query_size", "key_size", "num_hiddens")))
    weights = {name: inputs[name] for name in module.state_dict()}
    given = {name: inputs[name] for name in ("queries", "keys", "values")}
    weights, given = (
        {name: torch.tensor(ast.literal_eval(text)) for name, text in each.items()}
        for each in (weights, given)
    )
    module.load_state_dict(weights)
    lens = torch.tensor(ast.literal_eval(inputs["valid_lens"]))
    with torch.no_grad():
        ours = module(**given, valid_lens=lens).flatten().tolist()
    row = [float(entry.strip(MARK)) for entry in shown.results[0].yours[0]]
    assert ours == pytest.approx(row, abs=1e-3)


def test_the_dtype_is_shown_if_the_error_depends_on_it():
    def in_float32(x, offset=0, base=10000.0):
        return torch.einsum("...nd,de->...ne", x, torch.eye(x.shape[-1]))

    report = grade("rotary_embedding", in_float32)
    assert "expected scalar type" in report.findings[0].message
    assert ("dtype", "float64") in report.example.inputs


def test_a_fault_of_hygiene_is_told_beside_many_others_and_a_question_is_asked_once():
    def one_order(module, queries, keys, values):
        order = torch.randperm(keys.shape[1])
        changed = module(queries, keys[:, order], values[:, order])
        return torch.allclose(module(queries, keys, values), changed)

    findings = grade("keys_permutation_invariant", one_order).findings
    hints = [finding.hint for finding in findings if finding.hint]
    assert [finding.id for finding in findings][-1] == "global_rng_used" and len(findings) == 4
    assert len(set(hints)) == len(hints) == 2


def test_what_follows_from_a_named_mistake_is_not_told_again():
    known = {mistake.id: mistake.answers[0] for mistake in find("greedy_decode").mistakes}

    def greedy_decode(model, *args):
        model.eval()
        return known["start_returned"](model, *args)

    report = grade("greedy_decode", greedy_decode)
    assert report.mistake == "start_returned" and "must have shape" not in report.text()
    assert "must run in eval mode" in report.findings[1].message
