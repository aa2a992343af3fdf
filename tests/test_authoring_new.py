"""`course new` writes skeletons and refuses names that cannot be used."""

import ast
import runpy
from pathlib import Path

import pytest
from authoring_toy import SLUG, make_course
from guides import copy_of_the_course

from course_lib.authoring import skeleton
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.workspace.errors import BuildError

ROOT = Path(__file__).parent.parent


def test_a_new_exercise_has_its_six_pieces(tmp_path):
    here = LessonTree.at(ROOT)
    folder = copy_of_the_course(tmp_path / "course")
    course = LessonTree(folder, folder / "course_lib", here.exercises, here.lessons)
    written = skeleton.new_exercise(course, "window_mask", "02_masked_softmax")
    assert [path.relative_to(folder).as_posix() for path in written] == [
        "course_lib/attention/_masked_softmax.py",
        "solutions/02_masked_softmax/02_masked_softmax.py",
        "course_lib/reference/masked_softmax.py",
        "course_lib/exercises/masked_softmax/window_mask.py",
        "tests/variants/masked_softmax/window_mask.py",
        "course_lib/notebook/library_parts.py",
    ]
    parts = runpy.run_path(str(written.pop()))["PARTS"]
    (part,) = (part for part in parts if "window_mask" in part.exercises)
    assert here.lessons["02_masked_softmax"].exercises[-1] in part.exercises
    for path in written:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
        assert "window_mask" in text and "TODO" in text
    # tests/test_guides.py fills the placeholders in and grades the exercise.


@pytest.mark.parametrize(
    ("name", "lesson", "message"),
    [
        ("double", SLUG, r"the exercise `double` is there already, in lesson 01_toy"),
        ("no-name", SLUG, r"`no-name` is no name for a function"),
        ("_hidden", SLUG, r"is no name for a function"),
        ("triple", "01_tyo", r"no lesson `01_tyo`. Did you mean `01_toy`"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, name, lesson, message):
    course = make_course(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(BuildError, match=message):
        skeleton.new_exercise(course, name, lesson)
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_a_new_lesson_has_its_four_files_and_takes_no_other_number(tmp_path):
    course = make_course(tmp_path)
    written = skeleton.new_lesson(course, "11_sliding_window")
    assert [path.is_file() for path in written] == [True] * 4
    for path in written:
        ast.parse(path.read_text(encoding="utf-8"))
        assert "TODO" in path.read_text(encoding="utf-8")
    with pytest.raises(BuildError, match="there is a lesson `01_toy` already"):
        skeleton.new_lesson(course, "01_other")
    with pytest.raises(BuildError, match="Write it like 11_sliding_window"):
        skeleton.new_lesson(course, "eleven")
