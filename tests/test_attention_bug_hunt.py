"""The checks of the lessons in which students write tests: 06 and 07."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib import broken_invariants
from course_lib.checks import exercises, grade
from course_lib.checks.observe.lessons.broken_modules import BUGS, INVARIANTS, Sound
from course_lib.checks.observe.lessons.hidden_modules import HIDDEN, build
from course_lib.exercises._student_tests import DESCRIBED
from course_lib.exercises.bug_hunt.broken_invariants import GROUPS
from course_lib.exercises.variants import faulty_answers, variants
from course_lib.reference import bug_hunt as oracle
from course_lib.reference import multi_head

ROOT = Path(__file__).parent.parent
TESTS = ("masking_equals_deleting", "keys_permutation_invariant", "batch_items_independent")
JUDGED = ("masking_equals_deleting", "keys_permutation", "items_apart")


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


INPUTS = QUERIES, KEYS, VALUES = normal(1, 3, 4, 6), normal(2, 3, 5, 6), normal(3, 3, 5, 6)
LENS = torch.tensor([3, 1, 4])


def agree(a, b):
    return bool(torch.allclose(a, b, rtol=1e-6, atol=1e-6))


# ---------------------------------------------------------------- the table of the oracle


def rows_sum_to_one(kind, module):
    ones = torch.ones(3, 2, 4, dtype=torch.float64)
    module(*INPUTS)
    without_lengths = agree(module.attention_weights.sum(-1), ones)
    module(*INPUTS, torch.tensor([2, 0, 5]))
    return without_lengths and agree(module.attention_weights.sum(-1)[[0, 2]], ones[:2])


def queries_apart(kind, module):
    other = torch.cat([QUERIES[:, :1], QUERIES[:, 1:].flip(-1) + 1], dim=1)
    return agree(module(*INPUTS)[:, 0], module(other, KEYS, VALUES)[:, 0])


def keys_permutation(kind, module):
    orders = [list(order) for order in itertools.permutations(range(5))]
    outputs = module(*INPUTS)
    return all(agree(module(QUERIES, KEYS[:, o], VALUES[:, o]), outputs) for o in orders)


def masking_equals_deleting(kind, module):
    parts = zip(*INPUTS, LENS, strict=True)
    alone = [module(q[None], k[None, :size], v[None, :size]) for q, k, v, size in parts]
    return agree(module(*INPUTS, LENS), torch.cat(alone))


def items_apart(kind, module):
    alone = [module(*(x[i : i + 1] for x in (*INPUTS, LENS))) for i in range(3)]
    return agree(module(*INPUTS, LENS), torch.cat(alone))


def linear_in_values(kind, module):
    return agree(module(QUERIES, KEYS, 2 * VALUES), 2 * module(*INPUTS))


def scale_free(kind, module):
    spreads = []
    for d in (4, 256):
        made = kind(d, 1).double().eval()
        for layer in (made.W_q, made.W_k):
            layer.weight.data = torch.eye(d, dtype=torch.float64)
        made(normal(4, 4, 50, d), normal(5, 4, 50, d), normal(6, 4, 50, d))
        spreads.append(made.attention_weights.log().clamp(min=-700).std(-1).mean().item())
    return 0.8 < spreads[1] / spreads[0] < 1.25


def eval_repeats(kind, module):
    made = kind(6, 2, dropout=0.5).double().eval()
    return torch.equal(made(*INPUTS), made(*INPUTS))


def all_parameters_learn(kind, module):
    module.zero_grad()
    module(*INPUTS).square().sum().backward()
    return all(p.grad is not None and bool(p.grad.any()) for p in module.parameters())


def empty_rows_zero(kind, module):
    outputs = module(*INPUTS, torch.tensor([0, 2, 5]))
    return agree(outputs[0], torch.zeros_like(outputs[0]))


def arguments_unchanged(kind, module):
    given = [x.clone() for x in (*INPUTS, LENS)]
    module(*given)
    return all(map(torch.equal, given, (*INPUTS, LENS)))


MEASURED = (
    rows_sum_to_one,
    queries_apart,
    keys_permutation,
    masking_equals_deleting,
    items_apart,
    linear_in_values,
    scale_free,
    eval_repeats,
    all_parameters_learn,
    empty_rows_zero,
    arguments_unchanged,
)


@pytest.mark.parametrize("name", ["sound", *BUGS, *HIDDEN])
def test_each_module_breaks_what_the_oracle_says_and_nothing_else(name):
    # Of the modules of the checks, only the invariants count that students' tests are for.
    kind, module = {"sound": Sound, **BUGS, **HIDDEN}[name], build(name, 6, 2, 1)
    kept = {holds.__name__: holds for holds in MEASURED}
    assert set(kept) == set(INVARIANTS)
    judged = set(JUDGED if name in HIDDEN else kept)
    broken = {what for what in judged if not kept[what](kind, module)}
    assert broken == set(oracle.BROKEN[name]) & judged


def test_every_bird_has_one_answer_of_the_list_and_is_in_a_group_that_counts_as_a_whole():
    answers = broken_invariants()
    assert set(answers) == set(BUGS)
    assert all(said in oracle.BROKEN[bird] for bird, said in answers.items())
    assert sorted(itertools.chain(*GROUPS.values())) == sorted(BUGS)
    assert min(map(len, GROUPS.values())) >= 3
    (finding, *_) = grade("broken_invariants", lambda: {"avocet": ["rows_sum_to_1"]}).findings
    assert finding.message == "For `avocet` your dict holds a list; it must hold one id, a str."


@pytest.mark.parametrize("bird", BUGS)
def test_a_report_confirms_no_single_entry(bird):
    # One right entry among wrong ones, or one wrong one in a group, looks like any other.
    wrong = dict.fromkeys(BUGS, "arguments_unchanged")
    reports = [
        grade("broken_invariants", lambda found=found: found, seed="one")
        for found in (wrong, wrong | {bird: broken_invariants()[bird]})
    ]
    assert reports[0].findings == reports[1].findings
    assert reports[0].score == reports[1].score < 0.1


# ---------------------------------------------------------------- the three tests
@pytest.mark.parametrize("name", [*TESTS, "is_causal", "is_permutation_equivariant"])
def test_a_report_counts_what_a_students_test_reveals_and_accuses(name):
    def counts(answer):
        said = grade(name, answer, seed="tally").tally
        return [int(number) for number in re.findall(r"\d+", said)]

    written = next(one.answer for one in variants(ROOT, name) if one.is_right)
    broken, revealed, right, accused = counts(written)
    assert revealed == broken >= 15 and accused == 0 and right >= (20 if name in TESTS else 15)
    assert counts(lambda *args: False) == [broken, broken, right, right]
    assert counts(lambda *args: True) == [broken, 0, right, 0]
    assert counts(lambda *args: 1 / 0) == [broken, 0, right, 0]


@pytest.mark.parametrize("kind", sorted(multi_head.SEQUENCE_FUNCTIONS))
def test_the_oracle_swaps_pairs_and_decides_as_all_orders_would(kind):
    x = 1.3 * normal(2, 2, 4, 3).numpy()
    outputs = multi_head.apply_to_batch(kind, x)
    moved = (
        np.allclose(multi_head.apply_to_batch(kind, x[:, list(order)]), outputs[:, list(order)])
        for order in itertools.permutations(range(4))
    )
    assert multi_head.is_permutation_equivariant(kind, x) == all(moved)


@pytest.mark.parametrize("name", TESTS)
def test_a_report_on_a_test_names_no_bird(name):
    # Which of the ten is broken and how is for the student to find.
    answers = (lambda *given: True, lambda module, *given: bool(module(*given).sum() > 0))
    said = [grade(name, answer, seed="names").text() for answer in answers]
    said += [mistake.message for mistake in exercises()[name].mistakes]
    assert not [bird for bird in BUGS if bird in " ".join([*said, *DESCRIBED.values()])]


# ---------------------------------------------------------------- the fixed modules
FAULTS = {
    "root": "scale_embed_dim",
    "triangle": "sees_the_future",
    "nan": "empty_row_nan",
    "merge": "merge_without_transpose",
}


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_report_names_each_fault_that_is_left_in_causal_self_attention(number):
    (with_faults,) = faulty_answers(ROOT, "CausalSelfAttention")
    for faults in itertools.combinations(FAULTS, number):
        report = grade("CausalSelfAttention", with_faults(set(faults)), seed="here")
        named = {part for finding in report.findings for part in finding.id.split("+")}
        assert named == ({FAULTS[fault] for fault in faults} if number < 4 else {"not_fixed"})
