"""Read untrusted submissions, and rebuild them on the release."""

import copy
import json
import os
from pathlib import Path

import nbformat
import pytest
from grading_course import LESSON, cell_of, solution_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_lib.grading.cell_kinds import grade_id, is_check
from course_lib.grading.intake.ordinary_files import IntakeError
from course_lib.grading.intake.parsing import read_submission
from course_lib.grading.intake.read import parse
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.submissions import choose, find_submissions
from course_lib.grading.jobs import Job
from course_lib.workspace.errors import GradingError

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMED = f"{LESSON}.ipynb"
ANSWER = "causal_mask-answer"
STUB = "def causal_mask(x):\n    raise NotImplementedError()"
OLDER = 'def causal_mask(y):\n    """Docs."""\n    raise NotImplementedError'
DEFINED = "def causal_mask(x):\n    return 2 * x"
CHECK = 'check("causal_mask")'
STRIPPED = "saved without cell data (Colab, Kaggle, Deepnote)"
FOUND = f"{ANSWER}: answer found in a cell of the student's own"


@pytest.fixture
def release():
    """Return the lesson with stubs instead of solutions."""
    notebook = solution_notebook()
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            stub = STUB.replace("causal_mask", grade_id(cell).removesuffix("-answer"))
            cell.source = stub if cell.cell_type == "code" else "ANSWER"
    return notebook


def as_submitted(notebook, *own, **changed):
    """Return the cells as they are read, some by grade_id with other text, then others."""
    cells = parse(json.dumps(notebook).encode())[0]
    for cell in cells:
        cell.source = changed.get(grade_id(cell).replace("-", "_"), cell.source)
    return [*cells, *map(new_code_cell, own)]


def sources(notebook):
    return [cell.source for cell in notebook.cells]


def place_of(cells, name):
    return next(at for at, cell in enumerate(cells) if grade_id(cell) == name)


def test_rebuilding_twice_changes_nothing_and_an_untouched_release_stays(release):
    rebuilt, notices = rebuild(release, as_submitted(release))
    assert rebuilt.cells == release.cells and notices == []
    mine = [new_code_cell("helper = 1"), *release.cells[::-1], new_markdown_cell("my notes")]
    once, _ = rebuild(release, as_submitted({**release, "cells": mine}))
    nbformat.validate(once)
    twice, notices = rebuild(release, as_submitted(once))
    assert sources(twice) == sources(once)
    assert notices == []


def test_only_sources_survive(release):
    handed_in = copy.deepcopy(release)
    cell_of(handed_in, ANSWER).source = DEFINED
    for cell in handed_in["cells"]:
        cell.metadata |= {"tags": ["skip-execution"], "evil": "metadata"}
        cell.metadata.setdefault("nbgrader", {}).update(points=1000, solution=True, grade=True)
        cell.metadata.nbgrader.update(schema_version=99, locked=False)
        if cell.cell_type == "code":
            cell.outputs = [new_output("display_data", {"text/html": "evil output"})]
    handed_in["metadata"] = {"kernelspec": {"name": "evil kernel"}}
    rebuilt, _ = rebuild(release, as_submitted(handed_in))
    assert "evil" not in json.dumps(rebuilt) and "1000" not in json.dumps(rebuilt)
    assert cell_of(rebuilt, ANSWER).source == DEFINED


def test_deleted_and_edited_cells_of_the_lesson_come_back(release):
    setup = cell_of(release, "setup").source
    cells = as_submitted(release, length_mask="4.0", setup=f"{setup}\nimport json")
    rebuilt, notices = rebuild(release, [c for c in cells if grade_id(c) != "causal_mask"])
    restored = ["setup: edited", "causal_mask: deleted check", "length_mask: edited"]
    assert notices == [f"{words} cell restored" for words in restored]
    checks = {grade_id(cell) for cell in release.cells if is_check(cell)}
    without = [cell for cell in as_submitted(release) if grade_id(cell) not in checks]
    assert rebuild(release, without)[1] == [f"{len(checks)} deleted check cells restored"]
    mine = sources(rebuilt).index(setup) + 1  # edited cells run after the lesson's
    assert rebuilt.cells.pop(mine).source.endswith("import json")
    assert sources(rebuilt) == sources(release)


def test_the_last_answer_of_several_that_is_not_the_stub_counts(release):
    about = {"nbgrader": {"grade_id": ANSWER}}
    copies = [new_code_cell(s, metadata=about) for s in ("causal_mask = 1", DEFINED, STUB)]
    rebuilt, notices = rebuild(release, [*as_submitted(release), *copies])
    assert cell_of(rebuilt, ANSWER).source == DEFINED
    assert f"{ANSWER}: 4 answer cells, the last answer graded" in notices
    assert STUB not in sources(rebuilt)


def test_cells_are_put_back_in_order_with_the_helpers_above_them(release):
    cells = as_submitted(release, causal_mask_answer=DEFINED)
    answer = cells.pop(place_of(cells, ANSWER))
    rebuilt, notices = rebuild(release, [*cells, new_code_cell("helper = 1"), answer])
    at = place_of(rebuilt.cells, ANSWER)
    assert sources(rebuilt)[at - 1 : at + 2] == ["helper = 1", DEFINED, CHECK]
    assert notices == [f"put back into the lesson's order: {ANSWER}"]


def test_own_cells_stay_where_they_stood(release):
    mixed = [new_code_cell("first = 1")]
    for number, cell in enumerate(as_submitted(release)):
        mixed += [cell, new_code_cell(f"after_{number} = 1")]
        if "check(" in cell.source:  # like a hint cell of an earlier release
            mixed.append(new_code_cell(f'hint("a", {number})', id=f"causal_mask-hint-{number}"))
    rebuilt, notices = rebuild(release, mixed)
    assert sources(rebuilt) == [c.source for c in mixed]
    assert notices == []


@pytest.mark.parametrize(
    ("answer", "check", "own"),
    [
        (None, CHECK, DEFINED),
        (STUB, CHECK, DEFINED),
        (STUB, f"{DEFINED}\n\n{CHECK}", None),
        (STUB, CHECK, "causal_mask = lambda x: 2 * x"),
        (STUB, CHECK, "%%time\n" + DEFINED),
        (STUB, CHECK, "from my_masks import causal_mask"),
        (STUB, CHECK, DEFINED.replace(":", "")),
        (OLDER, CHECK, DEFINED),
        ("# see the end", CHECK, DEFINED),
    ],
)
def test_u05_an_answer_in_another_cell_is_found(release, answer, check, own):
    handed_in = ([own] if own else []) + ([STUB] if answer == OLDER else [])
    cells = as_submitted(release, *handed_in, causal_mask_answer=answer, causal_mask=check)
    rebuilt, notices = rebuild(release, [cell for cell in cells if cell.source is not None])
    order, typed = sources(rebuilt), own or check
    assert cell_of(rebuilt, ANSWER).source == typed
    assert order.index(typed) < order.index(CHECK)
    assert order.count(typed) == 1 and order.count(answer) == (answer not in (None, STUB, OLDER))
    where = "a cell of the student's own" if own else "the cell causal_mask"
    assert f"{ANSWER}: answer found in {where}" in notices


def test_s22_all_answers_in_one_cell_are_found(release):
    # The first gets the cell with its helpers; the others, whose stubs come later, their part.
    second = "@torch.no_grad()\ndef length_mask(x):\n    return TWO * x"
    typed = f"TWO = 2\n\ndef causal_mask(x):\n    return TWO * x\n\n{second}\n\nprint(TWO)"
    rebuilt, notices = rebuild(release, as_submitted(release, typed))
    assert cell_of(rebuilt, ANSWER).source == typed
    assert cell_of(rebuilt, "length_mask-answer").source == second
    assert len(notices) == 2 and sources(rebuilt).count(typed) == 1
    cells = as_submitted(release, typed, causal_mask_answer="# below", length_mask_answer="")
    rebuilt, notices = rebuild(release, cells)  # without a second stub, one is enough
    assert cell_of(rebuilt, ANSWER).source == typed
    assert cell_of(rebuilt, "length_mask-answer").source == "" and notices == [FOUND]


def test_a_trial_and_what_is_no_attempt_replace_no_answer(release):
    for answer, own in (
        (DEFINED, "def causal_mask(x): return 'a trial'"),
        (STUB, "from course_lib import causal_mask"),
        (STUB, 'causal_mask = carry_on("causal_mask")'),
        (STUB, "del causal_mask"),
        (STUB, "print(causal_mask)"),
    ):
        rebuilt, notices = rebuild(release, as_submitted(release, own, causal_mask_answer=answer))
        assert cell_of(rebuilt, ANSWER).source == answer
        assert notices == [] and own in sources(rebuilt)


def test_what_a_student_defines_in_a_check_cell_runs_before_the_check(release):
    typed = f"helper = 1\n{CHECK}"
    cells = as_submitted(release, causal_mask_answer=DEFINED, causal_mask=typed)
    rebuilt, (notice,) = rebuild(release, cells)
    assert sources(rebuilt)[place_of(rebuilt.cells, "causal_mask") - 1] == typed
    assert notice.endswith("edited cell restored; what the student defines in it runs before it")


def test_a_written_answer_beside_its_place_is_found(release):
    own = new_markdown_cell("Because of the **mask**.")
    cells = as_submitted(release)
    for kept in (cells, cells[: place_of(cells, "why")]):
        rebuilt, notices = rebuild(release, [*kept, own])
        assert cell_of(rebuilt, "why").source == own.source
        assert "why: answer found in a cell of the student's own" in notices
        assert sources(rebuilt).count(own.source) == 1


def test_a_notebook_that_lost_metadata_or_ids_is_recognized(release):
    lost_and_found = [({"metadata": {}}, set()), ({"id": None}, set())]
    for lost, found in [*lost_and_found, ({"metadata": {}, "id": None}, {STRIPPED})]:
        cells = as_submitted(release, causal_mask_answer=DEFINED, why="Because.")
        for cell in cells:
            cell.update(lost)
        rebuilt, notices = rebuild(release, cells)
        assert cell_of(rebuilt, ANSWER).source == DEFINED
        assert cell_of(rebuilt, "why").source == "Because."
        assert sources(rebuilt).count(DEFINED) == sources(rebuilt).count("Because.") == 1
        assert set(notices) == found and len(notices) == len(found)


def test_what_is_no_notebook_is_refused_with_the_reason():
    for data, reason in (
        (b"", "is empty"),
        (b"\0" * 1000, "is empty"),
        (b'{"cells": [', "is damaged"),
        (b"[1, 2]", "is not a notebook"),
        (b'{"nbformat": 4, "cells": null}', "holds no list of cells"),
        (b'{"nbformat": 4, "cells": []}', "holds no cells"),
        (b'{"nbformat": 99, "cells": []}', "has notebook format 99"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"nbformat": 4, "cells": ' + b"[" * 100_000, "nested too deeply"),
    ):
        with pytest.raises(IntakeError, match=reason):
            parse(data, "x.ipynb")


def test_encodings_that_editors_leave_behind_are_read(release):
    cell_of(release, ANSWER).source = "# déjà vu"
    text = json.dumps(release, ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        cells, notices = parse(text.encode(encoding))
        assert "# déjà vu" in [cell.source for cell in cells]
        assert notices == (["not UTF-8: read as Windows-1252"] if encoding == "cp1252" else [])


def test_odd_values_and_cells_and_notebook_format_3_do_not_stop_the_reading(release):
    odd = '"n": NaN, "i": -Infinity, "e": 1e999, "big": ' + "9" * 1_000_000
    text = json.dumps(release).replace('"metadata": {', f'"metadata": {{{odd}, ', 1)
    cells, _ = parse(text.replace("Who may see whom.", "lone \\ud800 surrogate").encode())
    assert "lone ? surrogate" in [cell.source for cell in cells]
    cell = {"cell_type": "code", "input": ["a = 1\n", "b"], "metadata": {}}
    (read,), _ = parse(json.dumps({"nbformat": 3, "worksheets": [{"cells": [cell]}]}).encode())
    assert (read.cell_type, read.source) == ("code", "a = 1\nb")
    cells = [*release.cells, 3, None, {"cell_type": "code"}, {"cell_type": {}, "source": ""}]
    kept, notices = parse(json.dumps({**release, "cells": cells}).encode())
    assert len(kept) == len(release.cells)
    assert notices == ["4 unreadable cell(s) left out"]


def test_the_notebook_of_another_lesson_is_refused_by_its_name(release):
    other = nbformat.read(NOTEBOOKS / "03_batch_matmul/03_batch_matmul.ipynb", as_version=4)
    bare = copy.deepcopy(other)
    for cell in bare.cells:
        cell.metadata = {}
    for notebook in (other, bare):
        data = json.dumps(notebook).encode()
        job = Job("ada", LESSON, "key", data, nbformat.writes(release), "seed")
        with pytest.raises(IntakeError, match=f"of 03_batch_matmul: ask for that of {LESSON}"):
            read_submission(job)


def place(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def test_submissions_are_found_by_folder(tmp_path):
    place(tmp_path / "named" / LESSON, NAMED, "old.ipynb")
    (tmp_path / "none" / LESSON).mkdir(parents=True)
    (tmp_path / "another" / "09_lesson").mkdir(parents=True)
    named, none = find_submissions(tmp_path, LESSON)
    assert (named.student, none.student) == ("named", "none")
    assert named.notices == ("other files not looked at: old.ipynb",)
    assert "no notebook was submitted" in none.problem
    assert [s.student for s in find_submissions(tmp_path, LESSON, ["none"])] == ["none"]
    with pytest.raises(GradingError, match="nothing from nobody"):
        find_submissions(tmp_path, LESSON, ["nobody"])
    with pytest.raises(GradingError, match="no such folder"):
        find_submissions(tmp_path / "missing", LESSON)


@pytest.mark.parametrize(
    ("names", "with_answers", "graded"),
    [
        ([NAMED, "old.ipynb"], {NAMED, "old.ipynb"}, NAMED),
        ([NAMED, f"{LESSON}-Copy1.ipynb"], {f"{LESSON}-Copy1.ipynb"}, f"{LESSON}-Copy1.ipynb"),
        ([NAMED, f"../LATE_{NAMED}"], {f"LATE_{NAMED}"}, f"LATE_{NAMED}"),
        ([f"{LESSON} (1).ipynb"], set(), f"{LESSON} (1).ipynb"),
        ([f"{LESSON}.ipynb.txt"], set(), f"{LESSON}.ipynb.txt"),
        ([NAMED.upper()], set(), NAMED.upper()),
        ([f"my work/{NAMED}"], {NAMED}, f"my work/{NAMED}"),
        ([NAMED, f"my work/{NAMED}"], {f"my work/{NAMED}"}, f"my work/{NAMED}"),
        (["a.ipynb", "b.ipynb"], {"b.ipynb"}, "b.ipynb"),
        (["a.ipynb", "b.ipynb"], {"a.ipynb", "b.ipynb"}, "several notebooks (a.ipynb, b.ipynb)"),
        ([NAMED, "a.ipynb", "b.ipynb"], {"a.ipynb", "b.ipynb"}, "several notebooks (a.ipynb"),
        ([f"{LESSON}.zip"], set(), f"other files not looked at: {LESSON}.zip"),
        ([f"../{LESSON} (2).ipynb"], set(), f"{LESSON} (2).ipynb is not where it is looked for"),
        ([f"../Copy of {LESSON}/x.ipynb"], set(), f"Copy of {LESSON} is not where"),
        ([f"../{LESSON.upper()}/{NAMED}"], set(), f"put it into ada/{LESSON}/"),
    ],
)
def test_u05_an_answer_is_found_in_another_notebook_or_its_place_is_named(
    tmp_path, names, with_answers, graded
):
    folder = tmp_path / "ada" / LESSON
    place(tmp_path / "ada", *(os.path.normpath(f"{LESSON}/{name}") for name in names))

    def has_answers(path):
        return path.name in with_answers or os.path.relpath(path, folder) in with_answers

    (found,) = find_submissions(tmp_path, LESSON)
    chosen = choose(found, has_answers)
    if chosen.notebook is None:
        assert graded in chosen.problem
    else:
        assert chosen.notebook == folder / graded or chosen.notebook.name == graded
        assert chosen.problem is None
        assert graded == NAMED or f"{graded}, " in chosen.notices[0]


def test_what_systems_browsers_and_jupyter_leave_is_not_mentioned(tmp_path):
    left = [".DS_Store", "._x.ipynb", "Thumbs.db", "desktop.ini", "~$notes.docx", "a.crdownload"]
    left += ["x.ipynb.part", ".~lock.a.odt#", ".nfs0000", "a.pyc", ".jupyter_ystore.db", "a.py~"]
    folders = [".ipynb_checkpoints", "__MACOSX", "__pycache__", ".virtual_documents"]
    left += [f"{folder}/{LESSON}-checkpoint.ipynb" for folder in folders]
    place(tmp_path / "ada" / LESSON, NAMED, "timestamp.txt", *left)
    (found,) = find_submissions(tmp_path, LESSON)
    assert (found.notices, found.others) == ((), ())
