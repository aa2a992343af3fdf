"""Reading submissions without trusting them, and rebuilding them on the release."""

import json

import nbformat
import pytest
from grading_course import LESSON, cell_of, solution_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.submissions import (
    IntakeError,
    SubmittedCell,
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


def test_submissions_are_found_by_folder(tmp_path):
    for student, files in {
        "named": [f"{LESSON}.ipynb", "old.ipynb"],
        "renamed": [f"{LESSON} (1).ipynb"],
        "two": ["a.ipynb", "b.ipynb"],
        "none": [],
    }.items():
        folder = tmp_path / student / LESSON
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).write_text("{}")
    (tmp_path / "another" / "09_lesson").mkdir(parents=True)
    found = {s.student: s for s in find_submissions(tmp_path, LESSON)}
    assert sorted(found) == ["named", "none", "renamed", "two"]
    assert found["named"].notices == ("other files not looked at: old.ipynb",)
    assert "should be called" in found["renamed"].notices[0]
    assert "several notebooks (a.ipynb, b.ipynb)" in found["two"].problem
    assert "no notebook was submitted" in found["none"].problem
    assert [s.student for s in find_submissions(tmp_path, LESSON, ["two"])] == ["two"]
    with pytest.raises(GradingError, match="nothing from nobody"):
        find_submissions(tmp_path, LESSON, ["nobody"])
    with pytest.raises(GradingError, match="no such folder"):
        find_submissions(tmp_path / "missing", LESSON)


def test_rebuilt_notebooks_are_valid(release):
    rebuilt, _ = rebuild(release, [SubmittedCell("raw", "x"), SubmittedCell("markdown", "y")])
    nbformat.validate(rebuilt)
