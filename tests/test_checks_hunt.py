"""The black boxes of lesson 07: each opens to its diagnosis, whose evidence is its own."""

from pathlib import Path

import nbformat
import pytest
import torch

from course_lib.authoring.assemble import assemble
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.release import release_files
from course_lib.checks.observe.lessons.broken_modules import BUGS, Sound
from course_lib.notebook import hunt, own_library
from course_lib.notebook.own_tests import run_tests
from course_lib.reference.bug_hunt import BROKEN

ROOT, SLUG = Path(__file__).parent.parent, "07_bug_hunt"

LENS = torch.tensor([3, 1, 2])
INPUTS = tuple(
    torch.randn(3, n, 6, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    for n in (4, 5, 6)
)
QUERIES, KEYS, VALUES = INPUTS[0], INPUTS[1], INPUTS[2][:, :5]


def made(kind, heads=2, dropout=0.0):
    torch.manual_seed(4)
    return kind(6, heads, dropout).double().eval()


def result(kind, queries=QUERIES, keys=KEYS, values=VALUES, lens=None, heads=2):
    """Return outputs and weights of a module whose layers equal those of all others."""
    module = made(kind, heads)
    return module(queries, keys, values, lens), module.attention_weights


def same(a, b):
    return torch.allclose(a, b, atol=1e-9)


def right(kind, what, items=slice(None), lens=None, **sizes):
    """Return whether outputs (0) or weights (1) are those of the sound module."""
    inputs = QUERIES[items], KEYS[items], VALUES[items], None if lens is None else lens[items]
    return same(result(kind, *inputs, **sizes)[what], result(Sound, *inputs, **sizes)[what])


def differs_in_eval_mode(kind):
    module = made(kind, dropout=0.5)
    return not same(module(QUERIES, KEYS, VALUES), module(QUERIES, KEYS, VALUES))


def lengths_mixed_up(kind):
    alone = all(right(kind, 0, slice(i, i + 1), LENS) for i in range(3))
    return alone and not right(kind, 0, slice(2), LENS)


def masked_keys_alike(kind):
    weights = result(kind, lens=LENS)[1]
    masked = [weights[i, :, :, n:] for i, n in enumerate(LENS)]
    return all(bool((w == w[..., :1]).all() and (w > 0).all()) for w in masked)


def one_key_too_many(kind):
    weights = result(kind, lens=LENS)[1]
    first = [weights[i, :, :, n] for i, n in enumerate(LENS)]
    second = [weights[i, :, :, n + 1] for i, n in enumerate(LENS)]
    return all((w > 0).all() for w in first) and not any(w.any() for w in second)


def masked_after(kind):
    without, sums = (result(kind, lens=lens)[1].sum(-1) for lens in (None, LENS))
    return same(without, torch.ones_like(without)) and bool((sums < 0.999).all())


def weights_for(factor):
    return lambda kind: same(result(kind)[1], result(Sound, queries=factor * QUERIES)[1])


def nan_of_nothing(kind):
    outputs = result(kind, lens=torch.tensor([0, 2, 5]))[0]
    others = right(kind, 0, slice(1, None), torch.tensor([0, 2, 5]))
    return bool(outputs[0].isnan().all()) and others


def columns_sum_to_1(kind):
    sums = result(kind)[1].sum(-2)
    return same(sums, torch.ones_like(sums))


def values_matter(kind):
    return not same(result(kind)[0], result(kind, values=VALUES.flip(1) + 1)[0])


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
    "the first padded key would have some weight": one_key_too_many,
    "to less than 1 with them": masked_after,
    "queries divided by the root of 2": weights_for(2**-0.5),
    "queries times the root of head_dim": weights_for(3**0.5),
    "an item of length 0 would get nan": nan_of_nothing,
    "the columns of `attention_weights`": columns_sum_to_1,
    "would change no output": lambda kind: not values_matter(kind),
    "`W_v.weight.grad` would stay None": lambda kind: (
        not learns(kind, "W_v") and values_matter(kind)
    ),
    "`W_o.weight.grad` would stay None": lambda kind: not learns(kind, "W_o"),
}


@pytest.mark.parametrize("diagnosis", hunt.DIAGNOSES, ids=lambda one: one.box or one.fault)
def test_evidence_is_true_of_the_box_with_the_fault_and_of_no_other(diagnosis):
    (is_so,) = [measured for words, measured in EVIDENCE.items() if words in diagnosis.evidence]
    kinds = {"sound": Sound, **BUGS}
    assert [name for name, kind in kinds.items() if is_so(kind)] == [diagnosis.box] * bool(
        diagnosis.box
    )


def test_the_list_has_a_diagnosis_for_each_box_and_more_and_its_order_tells_nothing(capsys):
    found = [diagnosis.box for diagnosis in hunt.DIAGNOSES if diagnosis.box]
    assert sorted(found) == sorted(BUGS) and len(hunt.DIAGNOSES) >= len(BUGS) + 4
    assert len({diagnosis.fault for diagnosis in hunt.DIAGNOSES}) == len(hunt.DIAGNOSES)
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
                word for word in (*BROKEN[box], *faults) if word in cell
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


def test_a_box_or_a_number_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"`box` must be one of avocet, .*; got 'eagle'"):
        hunt.diagnose("eagle", 1)
    with pytest.raises(ValueError, match=r"`number` must lie in 1\.\.14; got 15"):
        hunt.diagnose("ibis", 15)


TESTS = """
def test_items_are_independent():
    assert batch_items_independent(lambda *inputs: inputs[0], *INPUTS)


def test_that_fails():
    assert 1 == 2
"""
HERE = "import torch\nINPUTS = (*torch.ones(3, 2, 3, 4), torch.tensor([2, 3]))\n"


def test_a_students_tests_are_kept_with_their_answers_unless_a_program_runs_the_notebook(
    tmp_path, monkeypatch, capsys
):
    run_tests(HERE + TESTS)
    printed = capsys.readouterr().out
    assert "1 failed, 1 passed" in printed and "Written to" not in printed
    folder = tmp_path / "my_attention"
    folder.mkdir()
    (folder / "__init__.py").write_text("batch_items_independent = lambda *inputs: False\n")
    monkeypatch.setattr(own_library, "in_use", lambda: True)
    monkeypatch.setattr(own_library, "folder", lambda: folder)
    monkeypatch.setattr(own_library, "kept", lambda: {"batch_items_independent": ""})
    run_tests("INPUTS = ()\n" + TESTS)
    printed = capsys.readouterr().out
    assert "2 failed" in printed
    assert str(folder / "test_attention.py") in printed
