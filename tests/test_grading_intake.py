"""Reading submissions without trusting them, and rebuilding them on the release."""

import json
import os
from dataclasses import replace

import nbformat
import pytest
from grading_course import LESSON, cell_of, solution_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.source_checks import missing_files
from course_lib.grading.intake.submissions import (
    IntakeError,
    SubmittedCell,
    choose,
    find_submissions,
    parse,
    read_bytes,
)
from course_lib.workspace.errors import GradingError


@pytest.fixture
def release():
    """The lesson with stubs instead of solutions."""
    notebook = solution_notebook()
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            name = cell.metadata.nbgrader.grade_id.removesuffix("-answer")
            code = cell.cell_type == "code"
            cell.source = f"def {name}(x):\n    raise NotImplementedError()" if code else "ANSWER"
    return notebook


def as_submitted(notebook):
    return parse(json.dumps(notebook).encode())[0]


def sources(notebook):
    return [cell.source for cell in notebook.cells]


def text_of(release, **cells):
    return parse(json.dumps({**release, **cells}).encode())


def test_an_untouched_release_is_rebuilt_unchanged(release):
    rebuilt, notices = rebuild(release, as_submitted(release))
    assert sources(rebuilt) == sources(release)
    assert [c.id for c in rebuilt.cells] == [c.id for c in release.cells]
    assert notices == []


def test_rebuilding_twice_changes_nothing(release):
    mine = [new_code_cell("helper = 1"), *release.cells[::-1], new_markdown_cell("my notes")]
    once, _ = rebuild(release, as_submitted({**release, "cells": mine}))
    twice, notices = rebuild(release, as_submitted(once))
    assert sources(twice) == sources(once)
    assert notices == []


def test_nothing_but_sources_survives(release):
    cell = cell_of(release, "causal_mask-answer")
    cell.source = "def causal_mask(x):\n    return 2 * x"
    handed_in = json.loads(json.dumps(release))
    for raw in handed_in["cells"]:
        raw["metadata"] = {**raw["metadata"], "tags": ["skip-execution"], "evil": "metadata"}
        raw["metadata"].setdefault("nbgrader", {})["points"] = 1000
        if raw["cell_type"] == "code":
            data = {"text/html": "evil output", "image/svg+xml": "<svg>evil</svg>"}
            raw["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
    handed_in["metadata"] = {"kernelspec": {"name": "evil kernel"}}
    rebuilt, _ = rebuild(release, as_submitted(handed_in))
    assert "evil" not in json.dumps(rebuilt)
    assert "1000" not in json.dumps(rebuilt)
    assert cell_of(rebuilt, "causal_mask-answer").source == cell.source


def test_deleted_and_edited_check_cells_come_back(release):
    handed_in = as_submitted(release)
    kept = [c for c in handed_in if c.grade_id != "causal_mask"]
    edited = [
        SubmittedCell(c.kind, "4.0", c.grade_id) if c.grade_id == "length_mask" else c for c in kept
    ]
    rebuilt, notices = rebuild(release, edited)
    assert sources(rebuilt) == sources(release)
    assert notices == [
        "causal_mask: deleted check cell restored",
        "length_mask: edited cell restored",
    ]


def test_the_last_answer_of_several_counts(release):
    answers = ["def causal_mask(x): return 1", "def causal_mask(x): return 2"]
    copies = [SubmittedCell("code", source, "causal_mask-answer") for source in answers]
    rebuilt, notices = rebuild(release, [*as_submitted(release), *copies])
    assert cell_of(rebuilt, "causal_mask-answer").source == answers[1]
    assert "causal_mask-answer: 3 answer cells, the last answer graded" in notices


def test_a_copy_of_the_stub_does_not_replace_an_answer(release):
    handed_in = as_submitted(release)
    stub = next(c for c in handed_in if c.grade_id == "causal_mask-answer")
    answer = SubmittedCell("code", "def causal_mask(x): return 2 * x", "causal_mask-answer")
    handed_in[handed_in.index(stub)] = answer
    rebuilt, _ = rebuild(release, [*handed_in, stub])
    assert cell_of(rebuilt, "causal_mask-answer").source == answer.source
    assert stub.source not in sources(rebuilt)[: sources(rebuilt).index(answer.source)]


def test_cells_are_put_back_in_order_with_the_helpers_above_them(release):
    helper = SubmittedCell("code", "def helper(x):\n    return 2 * x")
    handed_in = as_submitted(release)
    at = next(i for i, c in enumerate(handed_in) if c.grade_id == "causal_mask-answer")
    moved = [*handed_in[:at], *handed_in[at + 1 :], helper, handed_in[at]]
    rebuilt, notices = rebuild(release, moved)
    order = sources(rebuilt)
    answer = order.index(handed_in[at].source)
    assert order[answer - 1 : answer + 2] == [
        helper.source,
        handed_in[at].source,
        'check("causal_mask")',
    ]
    assert notices == ["put back into the lesson's order: causal_mask-answer"]


def test_own_cells_stay_where_they_stood(release):
    handed_in = as_submitted(release)
    mixed = []
    for number, cell in enumerate(handed_in):
        mixed += [SubmittedCell("code", f"before_{number} = 1"), cell]
    rebuilt, notices = rebuild(release, [*mixed, SubmittedCell("code", "last = 1")])
    assert sources(rebuilt) == [c.source for c in mixed] + ["last = 1"]
    assert notices == []


def test_an_edited_setup_cell_runs_after_the_releases_own(release):
    handed_in = as_submitted(release)
    edited = [
        SubmittedCell("code", c.source + "\nimport json", c.grade_id, c.cell_id)
        if c.grade_id == "setup"
        else c
        for c in handed_in
    ]
    rebuilt, notices = rebuild(release, edited)
    assert notices == ["setup: edited cell restored"]
    position = sources(rebuilt).index(cell_of(release, "setup").source)
    assert sources(rebuilt)[position + 1].endswith("import json")


def test_an_answer_retyped_in_a_new_cell_is_found(release):
    kept = [c for c in as_submitted(release) if c.grade_id != "causal_mask-answer"]
    retyped = SubmittedCell("code", "two = 2\n\ndef causal_mask(x):\n    return two * x")
    rebuilt, notices = rebuild(release, [*kept, retyped])
    assert cell_of(rebuilt, "causal_mask-answer").source == retyped.source
    assert "causal_mask-answer: answer found in a cell of the student's own" in notices
    assert sources(rebuilt).count(retyped.source) == 1


def test_an_answer_beside_an_untouched_stub_is_found(release):
    typed = SubmittedCell("code", "def causal_mask(x):\n    return 2 * x")
    rebuilt, notices = rebuild(release, [*as_submitted(release), typed])
    assert cell_of(rebuilt, "causal_mask-answer").source == typed.source
    assert notices == ["causal_mask-answer: answer found in a cell of the student's own"]
    assert sources(rebuilt).count(typed.source) == 1


def test_all_answers_in_one_cell_are_found(release):
    """The first gets the cell, with its helpers; the others, whose stubs come later, their part."""
    second = "@torch.no_grad()\ndef length_mask(x):\n    return TWO * x"
    typed = f"TWO = 2\n\ndef causal_mask(x):\n    return TWO * x\n\n{second}\n\nprint(TWO)"
    rebuilt, notices = rebuild(release, [*as_submitted(release), SubmittedCell("code", typed)])
    assert cell_of(rebuilt, "causal_mask-answer").source == typed
    assert cell_of(rebuilt, "length_mask-answer").source == second
    assert len(notices) == 2
    assert sources(rebuilt).count(typed) == 1


def test_an_answer_where_it_belongs_is_not_replaced_by_a_trial(release):
    handed_in = as_submitted(release)
    at = next(i for i, c in enumerate(handed_in) if c.grade_id == "causal_mask-answer")
    handed_in[at] = SubmittedCell("code", "def causal_mask(x): return 1", "causal_mask-answer")
    trial = SubmittedCell("code", "def causal_mask(x): return 2")
    rebuilt, notices = rebuild(release, [*handed_in, trial])
    assert cell_of(rebuilt, "causal_mask-answer").source == handed_in[at].source
    assert notices == [] and trial.source in sources(rebuilt)


@pytest.mark.parametrize("kept", ["untouched", "deleted"])
def test_a_written_answer_beside_its_place_is_found(release, kept):
    handed_in = as_submitted(release)
    at = next(i for i, c in enumerate(handed_in) if c.grade_id == "why")
    if kept != "untouched":
        handed_in[at:] = []
    own = SubmittedCell("markdown", "Because of the **mask**.")
    rebuilt, notices = rebuild(release, [*handed_in, own])
    assert cell_of(rebuilt, "why").source == own.source
    assert "why: answer found in a cell of the student's own" in notices
    assert sources(rebuilt).count(own.source) == 1


def test_a_notebook_that_lost_its_metadata_is_read_by_ids(release):
    answer = "def causal_mask(x):\n    return 2 * x"
    bare = [
        SubmittedCell(
            c.kind,
            {"causal_mask-answer": answer, "why": "Because."}.get(c.grade_id, c.source),
            None,
            c.cell_id,
        )
        for c in as_submitted(release)
    ]
    rebuilt, notices = rebuild(release, bare)
    assert cell_of(rebuilt, "causal_mask-answer").source == answer
    assert cell_of(rebuilt, "why").source == "Because."
    assert notices == []


def test_a_notebook_that_lost_metadata_and_ids_is_read_by_its_text(release):
    answer = "def causal_mask(x):\n    return 2 * x"
    bare = [
        SubmittedCell(
            c.kind, {"causal_mask-answer": answer, "why": "Because."}.get(c.grade_id, c.source)
        )
        for c in as_submitted(release)
    ]
    rebuilt, notices = rebuild(release, bare)
    assert cell_of(rebuilt, "causal_mask-answer").source == answer
    assert cell_of(rebuilt, "why").source == "Because."
    assert sources(rebuilt).count(answer) == sources(rebuilt).count("Because.") == 1
    assert {notice.partition(":")[0] for notice in notices} == {"causal_mask-answer", "why"}


def test_a_release_cell_without_ids_is_recognised_by_its_text(release):
    bare = [SubmittedCell(c.kind, c.source, c.grade_id) for c in as_submitted(release)]
    rebuilt, _ = rebuild(release, bare)
    assert sources(rebuilt) == sources(release)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"\0" * 1000, "is empty"),
        (b'{"cells": [', "is damaged"),
        (b"[1, 2]", "is not a notebook"),
        (b'{"nbformat": 4, "cells": null}', "holds no list of cells"),
        (b'{"nbformat": 4, "cells": []}', "holds no cells"),
        (b'{"nbformat": 99, "cells": []}', "has notebook format 99"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_notebook_is_refused_with_the_reason(data, reason):
    with pytest.raises(IntakeError, match=reason):
        parse(data, "x.ipynb")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_that_editors_leave_behind_are_read(release, encoding):
    cell_of(release, "causal_mask-answer").source = "# déjà vu"
    data = json.dumps(release, ensure_ascii=False).encode(encoding)
    cells, notices = parse(data)
    assert "# déjà vu" in [cell.source for cell in cells]
    assert bool(notices) == (encoding == "cp1252")


def test_odd_values_do_not_stop_the_reading(release):
    text = json.dumps(release)
    odd = text.replace('"metadata": {', '"metadata": {"n": NaN, "big": ' + "9" * 6000 + ", ", 1)
    cells, _ = parse(odd.replace("Who may see whom.", "lone \\ud800 surrogate").encode())
    assert "lone ? surrogate" in [cell.source for cell in cells]


def test_notebook_format_3_is_read():
    cell = {"cell_type": "code", "input": ["a = 1\n", "b"], "metadata": {}}
    cells, _ = parse(json.dumps({"nbformat": 3, "worksheets": [{"cells": [cell]}]}).encode())
    assert cells == [SubmittedCell("code", "a = 1\nb")]


def test_cells_that_are_no_cells_are_left_out_and_counted(release):
    cells = [*release.cells, 3, None, {"cell_type": "code"}, {"cell_type": {}, "source": ""}]
    kept, notices = text_of(release, cells=cells)
    assert len(kept) == len(release.cells)
    assert notices == ["4 unreadable cell(s) left out"]


def test_links_and_folders_are_no_notebooks(tmp_path):
    target = tmp_path / "secret.ipynb"
    target.write_text("{}")
    link = tmp_path / "link.ipynb"
    link.symlink_to(target)
    for path in (link, tmp_path):
        with pytest.raises(IntakeError, match="not an ordinary file"):
            read_bytes(path)


def place(folder, *names, text="{}"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_submissions_are_found_by_folder(tmp_path):
    place(tmp_path / "named" / LESSON, f"{LESSON}.ipynb", "old.ipynb")
    (tmp_path / "none" / LESSON).mkdir(parents=True)
    (tmp_path / "another" / "09_lesson").mkdir(parents=True)
    found = {s.student: s for s in find_submissions(tmp_path, LESSON)}
    assert sorted(found) == ["named", "none"]
    assert found["named"].notices == ("other files not looked at: old.ipynb",)
    assert "no notebook was submitted" in found["none"].problem
    assert [s.student for s in find_submissions(tmp_path, LESSON, ["none"])] == ["none"]
    with pytest.raises(GradingError, match="nothing from nobody"):
        find_submissions(tmp_path, LESSON, ["nobody"])
    with pytest.raises(GradingError, match="no such folder"):
        find_submissions(tmp_path / "missing", LESSON)


NAMED = f"{LESSON}.ipynb"


@pytest.mark.parametrize(
    ("names", "with_answers", "graded"),
    [
        ([NAMED, "old.ipynb"], {NAMED, "old.ipynb"}, NAMED),
        ([NAMED, f"{LESSON}-Copy1.ipynb"], {f"{LESSON}-Copy1.ipynb"}, f"{LESSON}-Copy1.ipynb"),
        ([NAMED, f"Copy of {NAMED}"], {f"Copy of {NAMED}"}, f"Copy of {NAMED}"),
        ([NAMED, f"../LATE_{NAMED}"], {f"LATE_{NAMED}"}, f"LATE_{NAMED}"),
        ([NAMED, "a.ipynb"], set(), NAMED),
        ([f"{LESSON} (1).ipynb"], set(), f"{LESSON} (1).ipynb"),
        ([f"{LESSON}.ipynb.txt"], set(), f"{LESSON}.ipynb.txt"),
        ([NAMED.upper()], set(), NAMED.upper()),
        ([f"my work/{NAMED}"], {NAMED}, f"my work/{NAMED}"),
        ([NAMED, f"my work/{NAMED}"], {f"my work/{NAMED}"}, f"my work/{NAMED}"),
        (["a.ipynb", "b.ipynb"], {"b.ipynb"}, "b.ipynb"),
        (["a.ipynb", "b.ipynb"], {"a.ipynb", "b.ipynb"}, "several notebooks (a.ipynb, b.ipynb)"),
        (["a.ipynb", "b.ipynb"], set(), "several notebooks (a.ipynb, b.ipynb)"),
        ([NAMED, "a.ipynb", "b.ipynb"], {"a.ipynb", "b.ipynb"}, "several notebooks (a.ipynb"),
        ([f"{LESSON}.zip"], set(), f"other files not looked at: {LESSON}.zip"),
        ([f"../{LESSON} (2).ipynb"], set(), f"{LESSON} (2).ipynb is not where it is looked for"),
        ([f"../{LESSON}.zip"], set(), f"{LESSON}.zip is not where it is looked for"),
        ([f"../Copy of {LESSON}/x.ipynb"], set(), f"Copy of {LESSON} is not where"),
    ],
)
def test_u05_an_answer_is_found_in_another_notebook_or_its_place_is_named(
    tmp_path, names, with_answers, graded
):
    folder = tmp_path / "ada" / LESSON
    for name in names:
        place(tmp_path / "ada", os.path.normpath(f"{LESSON}/{name}"))

    def has_answers(path):
        return path.name in with_answers or os.path.relpath(path, folder) in with_answers

    (found,) = find_submissions(tmp_path, LESSON)
    chosen = choose(found, has_answers)
    if chosen.notebook is None:
        assert graded in chosen.problem
    else:
        assert chosen.notebook == place(folder) / graded or chosen.notebook.name == graded
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


@pytest.mark.parametrize(
    "source", ["import my_masks", "from my_masks import *", "%run my_masks.py"]
)
def test_a_python_file_that_is_used_is_named(release, source):
    rebuilt, _ = rebuild(release, [SubmittedCell("code", source, "causal_mask-answer")])
    (notice,) = missing_files(rebuilt, {"my_masks", "another"})
    assert notice.startswith("causal_mask: uses my_masks.py, and Python files handed in beside")
    own = [SubmittedCell("code", "%%writefile my_masks.py\na = 1"), SubmittedCell("code", source)]
    assert missing_files(rebuild(release, own)[0], {"my_masks"}) == []


STUB = "def causal_mask(x):\n    raise NotImplementedError()"
OLDER = 'def causal_mask(y):\n    """Docs."""\n    raise NotImplementedError'
DEFINED = "def causal_mask(x):\n    return 2 * x"


def with_cells(release, answer, check, *own):
    """What was handed in: the cells of causal_mask, and the student's own at the end."""
    changed = {"causal_mask-answer": answer, "causal_mask": check}
    cells = as_submitted(release)
    return [replace(c, source=changed.get(c.grade_id, c.source)) for c in cells] + [
        SubmittedCell("code", source) for source in own
    ]


CHECK = 'check("causal_mask")'


@pytest.mark.parametrize(
    ("answer", "check", "own", "where"),
    [
        (STUB, f"{DEFINED}\n\n{CHECK}", [], "the cell causal_mask"),
        (STUB, CHECK, ["causal_mask = lambda x: 2 * x"], "a cell of the student's own"),
        (STUB, CHECK, ["%matplotlib inline\n" + DEFINED], "a cell of the student's own"),
        (STUB, CHECK, ["%%time\n" + DEFINED], "a cell of the student's own"),
        (STUB, CHECK, ["from my_masks import causal_mask"], "a cell of the student's own"),
        (STUB, CHECK, [DEFINED.replace(":", "")], "a cell of the student's own"),
        (OLDER, CHECK, [DEFINED, STUB], "a cell of the student's own"),
        ("# see the end", CHECK, [DEFINED], "a cell of the student's own"),
        ("!pip install x", CHECK, [DEFINED], "a cell of the student's own"),
    ],
)
def test_u05_an_answer_in_another_cell_is_found(release, answer, check, own, where):
    rebuilt, notices = rebuild(release, with_cells(release, answer, check, *own))
    order = sources(rebuilt)
    typed = own[0] if own else check
    assert cell_of(rebuilt, "causal_mask-answer").source == typed
    assert order.index(typed) < order.index(CHECK)
    assert order.count(typed) == 1 and order.count(answer) == (answer not in (STUB, OLDER))
    assert f"causal_mask-answer: answer found in {where}" in notices


def test_one_cell_below_all_checks_answers_two_exercises(release):
    cells = with_cells(release, "# see below", CHECK, f"{DEFINED}\n\ndef length_mask(x): pass")
    cells = [replace(c, source="") if c.grade_id == "length_mask-answer" else c for c in cells]
    rebuilt, notices = rebuild(release, cells)
    assert cell_of(rebuilt, "causal_mask-answer").source == cells[-1].source
    assert cell_of(rebuilt, "length_mask-answer").source == ""
    assert len(notices) == 1


@pytest.mark.parametrize(
    "own",
    [
        "from course_lib import causal_mask",
        'causal_mask = carry_on("causal_mask")',
        "del causal_mask",
        "print(causal_mask)",
    ],
)
def test_what_is_no_attempt_does_not_replace_a_stub(release, own):
    rebuilt, notices = rebuild(release, with_cells(release, STUB, CHECK, own))
    assert cell_of(rebuilt, "causal_mask-answer").source == STUB
    assert notices == []


def test_what_a_student_defines_in_a_check_cell_runs_before_the_check(release):
    handed_in = with_cells(release, DEFINED, f"helper = 1\n{CHECK}")
    rebuilt, notices = rebuild(release, handed_in)
    order = sources(rebuilt)
    assert order[order.index(CHECK) - 1] == f"helper = 1\n{CHECK}"
    assert notices == [
        "causal_mask: edited cell restored; what the student defines in it runs before it"
    ]


def test_a_name_bound_before_the_check_needs_no_answer_cell(release):
    cells = with_cells(release, "%%writefile masks.py\na = 1", CHECK)
    at = next(i for i, cell in enumerate(cells) if cell.grade_id == "causal_mask")
    cells.insert(at, SubmittedCell("code", "from masks import causal_mask"))
    rebuilt, notices = rebuild(release, cells)
    assert sources(rebuilt) == [cell.source for cell in cells] and notices == []


def test_rebuilt_notebooks_are_valid(release):
    rebuilt, _ = rebuild(release, [SubmittedCell("raw", "x"), SubmittedCell("markdown", "y")])
    nbformat.validate(rebuilt)
