"""The build as a whole: what it writes, what it does not touch, and what `--check` reports."""

import shutil

import nbformat
import pytest
from authoring_toy import SLUG, edit, make_course, snapshot, toy_course
from grading_course import nbgrader

from course_lib.authoring.builder import build, check_build, released
from course_lib.workspace.errors import BuildError


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    folder = tmp_path_factory.mktemp("master")
    build(folder / "course", course=make_course(folder))
    return folder


@pytest.fixture
def course(master, tmp_path):
    """Return the toy course, built."""
    shutil.copytree(master, tmp_path, dirs_exist_ok=True)
    return toy_course(tmp_path)


def run(course, **options):
    (result,) = build(course.root, course=course, **options)
    return result


def drifts(course):
    return check_build(course.root, course=course)


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def test_solution_notebook_is_executed_and_shows_full_points(course):
    found = cells(course.solution(SLUG))
    assert found["double-check"].outputs[-1].data["text/plain"] == "2.0"
    assert "8 2\n" in [o.get("text") for cell in found.values() for o in cell.get("outputs", ())]
    assert "*4 points · about 10 minutes · hard ●●●*" in found["exercise-adder-1"].source
    written = found["why_toys-written"].source
    assert written.startswith("### Why toys?\n\n*3 points · about 5 minutes · graded by a person*")
    text = course.solution(SLUG).read_text()
    assert '"version": "' not in text and "iopub" not in text and str(course.root) not in text


def test_release_has_stubs_and_no_solution(course):
    text = course.release(SLUG).read_text()
    for secret in ("SECRET", "RUBRIC", "SOLUTION", "self.constant", "math.prod", "two of them"):
        assert secret not in text
    found = cells(course.release(SLUG))
    assert found["Adder-answer"].source.count("raise NotImplementedError()") == 2
    assert '"""Returns the sum."""' in found["Adder-answer"].source
    assert "def __init__(self, constant):" in found["Adder-answer"].source
    assert "YOUR ANSWER HERE" in found["why_toys-written"].source
    assert "Say it in two sentences." in found["why_toys-written"].source
    assert not any(cell.get("outputs") for cell in found.values())
    assert [p.name for p in course.release(SLUG).parent.iterdir()] == [f"{SLUG}.ipynb"]
    (folded,) = [c for c in found.values() if "double(4)" in c.source]
    assert folded.metadata["tags"] == ["demo", "hide-input"]
    assert folded.metadata["jupyter"] == {"source_hidden": True}


def test_second_build_does_nothing(course):
    before = snapshot(course)
    times = {p: p.stat().st_mtime_ns for p in course.root.rglob("*.ipynb")}
    result = run(course)
    assert (result.executed, result.generated) == (False, False)
    assert snapshot(course) == before
    assert times == {p: p.stat().st_mtime_ns for p in course.root.rglob("*.ipynb")}
    assert drifts(course) == []


def test_forced_build_is_byte_identical_and_leaves_no_gradebook(course):
    before = snapshot(course)
    lines = []
    assert run(course, force=True, progress=lambda step: lines.append(str(step))).executed
    assert snapshot(course) == before
    assert any("double-check" in line for line in lines)
    assert not list(course.root.rglob("gradebook.db"))


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("attention/_toy.py", True),
        ("attention/_checked.py", True),
        ("exercises/toy/double.py", True),
        ("checks/__init__.py", True),
        ("checks/judge/verdict.py", True),
        ("exercises/other/thing.py", False),
    ],
)
def test_only_code_that_can_influence_the_lesson_makes_it_stale(course, file, stale):
    path = course.library / file
    whole = path.read_text()
    path.write_text(f"# a comment\n{whole}\n\n# and one more\n")
    assert drifts(course) == []
    path.write_text(f"{whole}\nMORE = 1\n")
    assert [drift.path for drift in drifts(course)] == [f"solutions/{SLUG}/{SLUG}.ipynb"] * stale
    if stale:
        assert "older than the lesson text" in drifts(course)[0].reason


def test_a_changed_solution_notebook_is_drift_even_in_its_outputs_and_replaced_only_if_forced(
    course,
):
    edit(course.solution(SLUG), "8 2", "8 3")
    (drift,) = drifts(course)
    assert "edited or run" in drift.reason and drift.command == f"course build {SLUG} --force"
    before = snapshot(course)
    assert run(course).changed == (f"solutions/{SLUG}/{SLUG}.ipynb",)
    with pytest.raises(BuildError, match=f"not replaced. To replace it, run: {drift.command}"):
        run(course, lessons=[SLUG])
    assert snapshot(course) == before
    assert run(course, force=True).executed
    assert drifts(course) == []


def test_missing_release_is_built_without_executing(course):
    before = snapshot(course)
    course.release(SLUG).unlink()
    (drift,) = drifts(course)
    assert (drift.path, drift.reason) == (f"notebooks/{SLUG}/{SLUG}.ipynb", "not built yet")
    result = run(course)
    assert (result.executed, result.generated) == (False, True)
    assert snapshot(course) == before


ANSWERED = ("raise NotImplementedError()", "return 2 * number")
RUN = ('"execution_count": null', '"execution_count": 1')


@pytest.mark.parametrize(("work", "text"), [(ANSWERED, "Words."), (RUN, "Other words.")])
def test_an_edited_release_is_never_replaced(course, work, text):
    edit(course.release(SLUG), *work)
    edit(course.text(SLUG), "Words.", text)
    before = snapshot(course)
    path = f"notebooks/{SLUG}/{SLUG}.ipynb"
    remedy = f"Move it elsewhere, then run: course build {SLUG}"
    with pytest.raises(BuildError, match=f"{path}: .* not replaced. {remedy}"):
        run(course, lessons=[SLUG], force=True)
    assert run(course, force=True).changed == (path,)  # which would build other lessons
    assert snapshot(course) == before
    (drift,) = drifts(course)
    assert drift.command == f"course build {SLUG}"
    if text == "Words.":  # otherwise the solution is built first
        assert drift.path == path
        assert drift.reason == "edited or run after the course wrote it; move it elsewhere"
    course.release(SLUG).rename(course.root / "mine.ipynb")
    run(course)
    assert drifts(course) == []


@pytest.mark.parametrize("work", [ANSWERED, RUN, None])
def test_the_original_of_a_changed_release_is_made_again_beside_it(course, work):
    release = course.release(SLUG)
    original = {release.name: release.read_bytes()}
    assert released(course, SLUG) == (original, [])
    if work:
        edit(release, *work)
    else:
        release.unlink()
    run_in_lab(course.solution(SLUG))  # the instructor looked at the outputs
    before = snapshot(course)
    assert released(course, SLUG) == (original, [f"notebooks/{SLUG}/{SLUG}.ipynb"])
    assert snapshot(course) == before
    edit(course.solution(SLUG), "Words.", "Other words.")
    assert released(course, SLUG)[0] == original, "made from the text"
    edit(course.text(SLUG), "Words.", "Other words.")
    with pytest.raises(BuildError, match=f"{SLUG}.ipynb: .* Move both notebooks elsewhere, then"):
        released(course, SLUG)


def run_in_lab(path):
    """Write a notebook as JupyterLab saves it after all cells have run."""
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = number + 7, []
    notebook.metadata["language_info"]["version"] = "3.99.0"
    nbformat.write(notebook, path)


def test_a_release_that_is_outdated_or_has_other_line_endings_is_replaced(course):
    release = course.release(SLUG)
    fresh = release.read_bytes()
    release.write_bytes(fresh.replace(b"\n", b"\r\n"))
    assert run(course).generated
    assert release.read_bytes() == fresh
    edit(course.text(SLUG), "Words.", "Other words.")
    assert run(course).generated
    assert "Other words." in release.read_text()


def test_ids_stay_when_a_cell_is_inserted_elsewhere(course):
    before = cells(course.solution(SLUG))
    doubling = "# %% [markdown]\n# ## Doubling"
    edit(course.text(SLUG), doubling, f"# %%\nextra = 1\n\n{doubling}")
    with course.text(SLUG).open("a") as text:
        text.write("\n# %% [markdown]\n# ## Doubling\n")
    run(course)
    after = cells(course.solution(SLUG))
    assert set(after) - set(before) == {"toys-2", "doubling_2-1"}
    assert set(before) <= set(after)


def test_data_beside_a_lesson_reach_release_and_kernel_and_python_and_saved_pages_do_not(course):
    folder = course.text(SLUG).parent
    (folder / "table.csv").write_text("1,2\n")
    (folder / "helper.py").write_text("x = 1\n")
    (folder / "my_translator.html").write_text("saved by a cell")
    edit(course.text(SLUG), "import math", "import math\nfrom pathlib import Path")
    edit(course.text(SLUG), "print(double(4)", 'print(Path("table.csv").read_text(), double(4)')
    run(course)
    released = {p.name for p in course.release(SLUG).parent.iterdir()}
    assert released == {f"{SLUG}.ipynb", "table.csv"}
    (folder / "my_translator.html").write_text("saved again")
    assert drifts(course) == []
    (folder / "table.csv").write_text("3,4\n")
    assert [d.path for d in drifts(course)] == [f"solutions/{SLUG}/{SLUG}.ipynb"]
    theirs = course.release(SLUG).with_name("table.csv")
    theirs.write_text("mine\n")
    assert run(course).changed == (f"notebooks/{SLUG}/table.csv",)
    assert theirs.read_text() == "mine\n"


def test_the_authors_seed_and_threads_do_not_reach_the_kernel(course, monkeypatch):
    monkeypatch.setenv("COURSE_CHECK_SEED", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    edit(course.text(SLUG), "import math", "import math\nfrom os import environ")
    shown = 'print(environ.get("COURSE_CHECK_SEED"), environ["OMP_NUM_THREADS"], double(4)'
    edit(course.text(SLUG), "print(double(4)", shown)
    run(course)
    assert '"None 1 8 2\\n"' in course.solution(SLUG).read_text()


def test_stock_generate_assignment_writes_the_same_release(course):
    edit(course.text(SLUG), "print(double(4)", "assert double(4) == 8\nprint(double(4)")
    run(course)
    assert b"assert" not in course.release(SLUG).read_bytes()
    before = snapshot(course)
    nbgrader(course.root, "generate_assignment", SLUG, "--force")
    assert snapshot(course) == before
    assert [p.name for p in course.release(SLUG).parent.iterdir()] == [f"{SLUG}.ipynb"]
