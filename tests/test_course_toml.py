"""course.toml: points and stars that a class overrides, the same in every command."""

import json
import zipfile

import pytest
from grading_course import LESSON, QUICK, hand_in, honest, make_course

import course_lib
from course_lib import exercises
from course_lib.authoring.assemble import assemble
from course_lib.authoring.builder import check_build
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.new_class import init
from course_lib.cli.main import main
from course_lib.grading.driver import grade
from course_lib.workspace.course_toml import FILE, FOLDER
from course_lib.workspace.errors import UsageError

SETTINGS = """
[points]
causal_mask = 3
02_masked_softmax = 2.5

[starred]
combine_masks = false
length_mask = true
"""
WRONG = {
    "[points]\ncasual_mask = 3": "no exercise 'casual_mask'; did you mean causal_mask?",
    "[points]\ncausal_mask = 0": "write causal_mask = true under [starred]",
    "[points]\ncausal_mask = nan": "must be a number of at least 0.1; got nan",
    "[points]\ncausal_mask = true": "must be a number of at least 0.1; got True",
    "[starred]\ncausal_mask = 1": "must be true or false; got 1",
    "[point]\ncausal_mask = 3": "'point', which is not one of its tables",
    "causal_mask = 3": "write [points] or [starred]",
    "[points]\ncausal_mask: 3": "line 2",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a course folder, which is the current one."""
    init(tmp_path / "class")
    monkeypatch.chdir(tmp_path / "class")
    return tmp_path / "class"


def points(notebook) -> dict[str, float]:
    about = [cell["metadata"].get("nbgrader", {}) for cell in notebook["cells"]]
    return {one["grade_id"]: one["points"] for one in about if one.get("grade")}


def test_the_file_as_course_init_writes_it_sets_nothing_and_what_it_proposes_can_be_set(folder):
    text = (folder / FILE).read_text(encoding="utf-8")
    before = {name: (one.points, one.starred) for name, one in exercises.exercises().items()}
    (folder / FILE).unlink()
    after = {name: (one.points, one.starred) for name, one in exercises.exercises().items()}
    assert before == after
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    (folder / FILE).write_text("\n".join(lines), encoding="utf-8")
    assert exercises.find("causal_mask").points == 3
    assert exercises.find(LESSON).points == 2
    assert not exercises.find("combine_masks").starred


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_entry_is_named_with_its_remedy(folder, capsys, text):
    (folder / FILE).write_text(text, encoding="utf-8")
    for line in (["build", "02", "--check"], ["progress"]):
        assert main(line) == 2
        error = capsys.readouterr().err
        assert FILE in error and WRONG[text] in error and error.count("\n") == 1


def test_the_build_gives_cells_and_text_these_points_and_stars(folder):
    unchanged = points(assemble(LessonTree.at(folder), LESSON)[0])
    (folder / FILE).write_text(SETTINGS, encoding="utf-8")
    notebook = assemble(LessonTree.at(folder), LESSON)[0]
    changed = {"causal_mask": 3, "combine_masks": 2, "length_mask": 0, LESSON: 0}
    assert points(notebook) == {**unchanged, **changed}
    text = "\n".join(cell.source for cell in notebook.cells)
    assert "### Exercise: `causal_mask`\n\n*3 points" in text
    assert "### Exercise: `length_mask` ★" in text and "### Exercise: `combine_masks`\n" in text
    assert [drift.path for drift in check_build(folder, [LESSON])] == [
        f"solutions/{LESSON}/{LESSON}.ipynb"
    ]


def test_points_are_those_of_the_named_folder_or_else_of_the_current_one(folder, tmp_path):
    (folder / FILE).write_text(SETTINGS, encoding="utf-8-sig")  # some editors add a BOM
    assert exercises.find("causal_mask").points == 3
    assert exercises.find("causal_mask", tmp_path).points == 2
    assert exercises.lessons(folder)[LESSON].integration.points == 2.5
    assert exercises.lessons(tmp_path)[LESSON].integration.points == 1


def test_checks_and_progress_say_these_points(folder, capsys, monkeypatch):
    core = [slug for slug, lesson in exercises.lessons().items() if not lesson.starred]
    of_the_course = sum(exercises.counted_points(slug) for slug in core)
    (folder / FILE).write_text("[points]\ncausal_mask = 5", encoding="utf-8")
    assert course_lib.check("causal_mask", exercises.find("causal_mask").mistakes[0].answers[0]) < 5
    assert "of 5 points" in capsys.readouterr().out
    assert main(["progress", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["max_points"] == of_the_course + 3
    assert main(["times"]) == 0
    monkeypatch.chdir(folder.parent)  # like a notebook in `course build`
    assert exercises.find("causal_mask").points == 2
    monkeypatch.setenv(FOLDER, str(folder))
    assert exercises.find("causal_mask").points == 5


def test_a_release_that_is_older_than_the_file_is_not_handed_out(folder, capsys):
    (folder / FILE).write_text(SETTINGS, encoding="utf-8")
    assert main(["bundle", "02", "-q"]) == 1
    error = capsys.readouterr().err
    assert "other points" in error and f"course build {LESSON}" in error


def test_students_get_the_file_with_their_bundle(folder, capsys):
    (folder / FILE).write_text("[points]\nscore_variance = 4", encoding="utf-8")
    assert main(["bundle", "02", "--up-to", "02", "-q"]) == 0
    with zipfile.ZipFile(folder / "bundles" / f"{LESSON}.zip") as bundle:
        held = bundle.read(f"attention-course/course_lib/{FILE}")
    assert held == (folder / FILE).read_bytes()


# tests/test_guides.py grades with other points, and with another star.
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[points]\ncausal_mask = 4", f"run `course build {LESSON}`"),
        ("[starred]\ncausal_mask = true", "another star"),
    ],
)
def test_grading_asks_for_the_build(tmp_path, text, problem):
    # The tests' working directory has no course.toml, like that of a worker elsewhere.
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root))
    (root / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=problem):
        grade(root, LESSON, settings=QUICK)
