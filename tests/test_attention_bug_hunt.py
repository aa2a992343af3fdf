"""Lessons 06 and 07, in which students write tests: their checks, modules and black boxes."""

import itertools
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from test_fused import normal

from course_lib import broken_invariants
from course_lib.authoring.assemble import assemble
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.release import release_files
from course_lib.authoring.variants import faulty_answers, variants
from course_lib.checks import exercises, grade
from course_lib.checks.judge.html import MARK
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.observe.call import materialise
from course_lib.checks.observe.scenarios import BUILDERS, without_last_digits
from course_lib.exercises._student_tests import DESCRIBED
from course_lib.exercises.bug_hunt.broken_invariants import GROUPS
from course_lib.exercises.bug_hunt.fixtures_broken import BUGS, INVARIANTS, Sound
from course_lib.exercises.bug_hunt.fixtures_hidden import HIDDEN, build
from course_lib.notebook import hunt, own_library
from course_lib.notebook.own_tests import run_tests
from course_lib.reference import bug_hunt as oracle

ROOT, SLUG = Path(__file__).parent.parent, "07_bug_hunt"
TESTS = ("masking_equals_deleting", "keys_permutation_invariant", "batch_items_independent")
JUDGED = ("masking_equals_deleting", "keys_permutation", "items_apart")


INPUTS = QUERIES, KEYS, VALUES = normal(1, 3, 4, 6), normal(2, 3, 5, 6), normal(3, 3, 5, 6)
LENS = torch.tensor([3, 1, 2])


def agree(a, b):
    return bool(torch.allclose(a, b, rtol=1e-6, atol=1e-6))


@pytest.mark.parametrize("name", [*TESTS, "is_permutation_equivariant", "is_causal"])
def test_no_hidden_object_has_an_output_above_100(name):
    exercise = exercises()[name]
    for probe, _ in prepare(exercise, "any"):
        objects, inputs = [], []
        for key, value in probe.args.items():
            made = materialise(value, probe.dtype)
            (objects if key.startswith("object_") else inputs).append(made)
        for each in objects:
            outputs = each(*inputs)
            assert not outputs.abs().max() > 100, (probe.name, each)  # a NaN is not above 100


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


@pytest.mark.parametrize("name", ["sound", *BUGS, *HIDDEN])
def test_each_module_breaks_what_the_oracle_says_and_nothing_else(name):
    # For the modules of the checks, only the invariants of students' tests count.
    kind, module = {"sound": Sound, **BUGS, **HIDDEN}[name], build(name, 6, 2, 1)
    judged = set(JUDGED if name in HIDDEN else INVARIANTS)
    broken = {what for what in judged if not globals()[what](kind, module)}
    assert broken == set(oracle.BROKEN[name]) & judged


def test_a_hidden_module_does_not_tell_which_one_it_is():
    sizes, seen = {"embed_dim": 6, "num_heads": 2, "seed": 1, "dtype": torch.float64}, set()
    nudge = {"of": "order", "amount": 0.0, "direction": [1.0] * 6}
    for name in ["sound", "nudged", "rounding", *BUGS, *HIDDEN]:
        options = {"name": name, **sizes, **(nudge if name == "nudged" else {})}
        shown = BUILDERS["attention_module"](**options)
        same = without_last_digits(build(**options)(*INPUTS, LENS))
        assert torch.allclose(shown(*INPUTS, LENS), same, 0, 0, equal_nan=True)
        seen.add((type(shown).__qualname__, type(shown).__mro__[1:], *vars(shown)))
    assert len(seen) == 1


def test_every_bird_has_one_answer_of_the_list_and_is_in_a_group_that_counts_as_a_whole():
    answers = broken_invariants()
    assert set(answers) == set(BUGS)
    assert all(said in oracle.BROKEN[bird] for bird, said in answers.items())
    assert sorted(itertools.chain(*GROUPS.values())) == sorted(BUGS)
    assert min(map(len, GROUPS.values())) >= 3
    (finding, *_) = grade("broken_invariants", lambda: {"avocet": ["rows_sum_to_1"]}).findings
    assert finding.message == "For `avocet` your dict must hold one id, a str. It holds a list."


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
    revealed, broken, accused, right = counts(written)
    assert revealed == broken >= 15 and accused == 0 and right >= (20 if name in TESTS else 15)
    assert counts(lambda *args: False) == [broken, broken, right, right]
    assert counts(lambda *args: True) == [0, broken, 0, right]
    assert counts(lambda *args: 1 / 0) == [0, broken, 0, right]


def test_the_example_does_not_contradict_the_tally():
    def trims_all_items_to_the_longest(module, queries, keys, values, valid_lens):
        longest = int(valid_lens.max())
        trimmed = module(queries, keys[:, :longest], values[:, :longest])
        return torch.allclose(module(queries, keys, values, valid_lens), trimmed, atol=1e-5)

    text = grade("masking_equals_deleting", trims_all_items_to_the_longest, seed="t").text()
    revealed, broken = re.search(r"rejects (\d+) of (\d+) broken modules", text).groups()
    assert revealed == broken and f"False{MARK}" in text and f"True{MARK}" not in text


@pytest.mark.parametrize("kind", sorted(oracle.SEQUENCE_FUNCTIONS))
def test_the_oracle_swaps_pairs_and_decides_as_all_orders_would(kind):
    x = 1.3 * normal(2, 2, 4, 3).numpy()
    outputs = oracle.apply_to_batch(kind, x)
    moved = (
        np.allclose(oracle.apply_to_batch(kind, x[:, list(order)]), outputs[:, list(order)])
        for order in itertools.permutations(range(4))
    )
    assert oracle.is_permutation_equivariant(kind, x) == all(moved)


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
        named -= {"cpu_tensor"}  # the module was never run on a GPU
        assert named == ({FAULTS[fault] for fault in faults} if number < 4 else {"not_fixed"})


# ---------------------------------------------------------------- the black boxes
def made(kind, heads=2, dropout=0.0):
    torch.manual_seed(4)
    return kind(6, heads, dropout).double().eval()


def result(kind, queries=QUERIES, keys=KEYS, values=VALUES, lens=None, heads=2):
    """Return outputs and weights of a module whose layers equal those of all others."""
    module = made(kind, heads)
    return module(queries, keys, values, lens), module.attention_weights


def right(kind, what, items=slice(None), lens=None, **sizes):
    """Return whether outputs (0) or weights (1) are those of the sound module."""
    inputs = QUERIES[items], KEYS[items], VALUES[items], None if lens is None else lens[items]
    return agree(result(kind, *inputs, **sizes)[what], result(Sound, *inputs, **sizes)[what])


def differs_in_eval_mode(kind):
    module = made(kind, dropout=0.5)
    return not agree(module(QUERIES, KEYS, VALUES), module(QUERIES, KEYS, VALUES))


def lengths_mixed_up(kind):
    alone = all(right(kind, 0, slice(i, i + 1), LENS) for i in range(3))
    return alone and not right(kind, 0, slice(2), LENS)


def masked_keys_alike(kind):
    weights = result(kind, lens=LENS)[1]
    masked = [weights[i, :, :, n:] for i, n in enumerate(LENS)]
    return all(bool((w == w[..., :1]).all() and (w > 0).all()) for w in masked)


def weights_for(factor):
    return lambda kind: agree(result(kind)[1], result(Sound, queries=factor * QUERIES)[1])


def nan_of_nothing(kind):
    outputs = result(kind, lens=torch.tensor([0, 2, 5]))[0]
    others = right(kind, 0, slice(1, None), torch.tensor([0, 2, 5]))
    return bool(outputs[0].isnan().all()) and others


def columns_sum_to_1(kind):
    sums = result(kind)[1].sum(-2)
    return agree(sums, torch.ones_like(sums))


def values_matter(kind):
    return not agree(result(kind)[0], result(kind, values=VALUES.flip(1) + 1)[0])


def learns(kind, layer):
    module = made(kind)
    module(QUERIES, KEYS, VALUES).sum().backward()
    return getattr(module, layer).weight.grad is not None


EVIDENCE = {  # the words that tell, and what they say as a measurement
    "two calls in eval mode": differs_in_eval_mode,
    "the weights would be right and the outputs wrong": lambda kind: (
        right(kind, 0, heads=1) and right(kind, 1) and not right(kind, 0)
    ),
    "even the weights would be wrong": lambda kind: right(kind, 0, heads=1) and not right(kind, 1),
    "a batch of one item would get the right result": lengths_mixed_up,
    "would have the same weight, which is not 0": masked_keys_alike,
    "queries times the root of head_dim": weights_for(3**0.5),
    "an item of length 0 would get nan": nan_of_nothing,
    "the columns of `attention_weights`": columns_sum_to_1,
    "would change no output": lambda kind: not values_matter(kind),
    "`W_v.weight.grad` would stay None": lambda kind: (
        not learns(kind, "W_v") and values_matter(kind)
    ),
}


DIAGNOSES = {diagnosis.box: diagnosis for diagnosis in hunt.DIAGNOSES if diagnosis.box}


@pytest.mark.parametrize("box", BUGS)
def test_evidence_is_true_of_the_box_with_the_fault_and_of_no_other(box):
    evidence = DIAGNOSES[box].evidence
    (is_so,) = [measured for words, measured in EVIDENCE.items() if words in evidence]
    kinds = {"sound": Sound, **BUGS}
    assert [name for name, kind in kinds.items() if is_so(kind)] == [box]


def test_the_list_has_a_diagnosis_for_each_box_and_more_and_its_order_tells_nothing(capsys):
    assert len({diagnosis.fault for diagnosis in hunt.DIAGNOSES}) >= len(BUGS) + 4
    hunt.diagnose("heron")
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(hunt.DIAGNOSES) and 'diagnose("heron", number)' in last
    assert not [name for name in BUGS if name in "".join(lines)]
    faults = [line[3:].lower() for line in lines]
    assert faults == sorted(faults, key=lambda words: words.replace("_", " "))


def test_no_cell_of_the_release_names_a_box_with_what_it_breaks():
    course = LessonTree.at(ROOT)
    notebook, _ = assemble(course, SLUG)
    text = release_files(course, SLUG, nbformat.writes(notebook))[f"{SLUG}.ipynb"].decode()
    cells = [cell.source for cell in nbformat.reads(text, as_version=4).cells]
    assert any("`curlew`" in cell for cell in cells)
    for box in BUGS:
        faults = [diagnosis.fault for diagnosis in hunt.DIAGNOSES if diagnosis.box == box]
        for cell in cells:
            assert box not in cell or not [
                word for word in (*oracle.BROKEN[box], *faults) if word in cell
            ], cell


def test_only_a_right_diagnosis_shows_what_differs_from_the_sound_module(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(hunt, "show_source", lambda *given, **named: shown.append((given, named)))
    for number, diagnosis in enumerate(hunt.DIAGNOSES, start=1):
        if diagnosis.box != "curlew":
            hunt.diagnose("curlew", number)
            said = capsys.readouterr().out
            assert diagnosis.evidence in said and len(said.splitlines()) == 2
    assert shown == []
    hunt.diagnose("curlew", 5)
    (((text,), named),) = shown
    assert "masked_fill(~allowed, 0)" in text and "masked_fill" not in named["against"]
    assert text.count("class ") == 1
    first = (text.splitlines()[0], named["against"].splitlines()[0])
    assert first == ("class Curlew(Attention):",) * 2
    assert "masked keys get the score 0" in named["title"]


OWN_TESTS = """
def test_items_are_independent():
    assert batch_items_independent(lambda *inputs: inputs[0], *INPUTS)


def test_that_fails():
    assert 1 == 2
"""
HERE = "import torch\nINPUTS = (*torch.ones(3, 2, 3, 4), torch.tensor([2, 3]))\n"


def test_a_students_tests_are_kept_with_their_answers_unless_a_program_runs_the_notebook(
    tmp_path, monkeypatch, capsys
):
    run_tests(HERE + OWN_TESTS)
    printed = capsys.readouterr().out
    assert "1 failed, 1 passed" in printed and "Written to" not in printed
    folder = tmp_path / "my_attention"
    folder.mkdir()
    (folder / "__init__.py").write_text("batch_items_independent = lambda *inputs: False\n")
    monkeypatch.setattr(own_library, "in_use", lambda: True)
    monkeypatch.setattr(own_library, "folder", lambda: folder)
    monkeypatch.setattr(own_library, "kept", lambda: {"batch_items_independent": ""})
    run_tests("INPUTS = ()\n" + OWN_TESTS)
    printed = capsys.readouterr().out
    assert "2 failed" in printed
    assert str(folder / "test_attention.py") in printed
