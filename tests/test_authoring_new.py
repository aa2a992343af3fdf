"""`course new` writes skeletons and refuses names that cannot be used."""

import ast

import pytest
from authoring_toy import SLUG, make_course

from course_lib.authoring import skeleton
from course_lib.cli import main as cli
from course_lib.workspace.errors import BuildError

# tests/test_guides.py fills the placeholders in and grades the exercise.


@pytest.mark.parametrize(
    ("name", "lesson", "message"),
    [
        ("double", SLUG, r"the exercise `double` already exists, in lesson 01_toy"),
        ("no-name", SLUG, r"`no-name` is not a valid function name"),
        ("_hidden", SLUG, r"is not a valid function name"),
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
    with pytest.raises(BuildError, match="the lesson `01_toy` already exists"):
        skeleton.new_lesson(course, "01_other")
    with pytest.raises(BuildError, match="Write it like 11_sliding_window"):
        skeleton.new_lesson(course, "eleven")


def test_no_other_clone_than_that_of_the_command_is_changed(tmp_path, monkeypatch, capsys):
    (tmp_path / "nbgrader_config.py").touch()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new", "lesson", "11_windows"]) == 2
    assert f"not of {tmp_path}; run it in" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["nbgrader_config.py"]
