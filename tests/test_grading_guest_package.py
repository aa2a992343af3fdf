"""The sandbox contains no solution of the graded lesson or of later ones."""

import ast
import functools

import pytest

from course_lib.authoring.paste import solution_source
from course_lib.exercises import lessons
from course_lib.grading.guest_package import handed_out, stage_package
from course_lib.workspace.sources import exported


def due(lesson):
    """Return the exercises that nobody may find an answer to while a lesson is graded."""
    return [name for slug in lessons() if slug >= lesson for name in lessons()[slug].exercises]


@functools.cache
def work_of(name):
    """Return the lines of a solution that do its work: no signature, no docstring."""
    (node,) = ast.parse(solution_source(name)).body
    methods = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]
    body = [line for n in methods for part in n.body for line in ast.unparse(part).splitlines()]
    return {line.strip() for line in body if len(line.strip()) > 25 and '"""' not in line}


@pytest.mark.parametrize("lesson", ["", *lessons()])
def test_no_file_holds_a_solution_that_is_due(tmp_path, lesson):
    library = stage_package(tmp_path, lesson) / "course_lib"
    modules = {f"_{slug[3:]}": slug for slug in lessons()}
    here = {path.stem for path in (library / "attention").glob("*.py")} & set(modules)
    before = [slug for slug in lessons() if slug < lesson]
    assert here == {name for name, slug in modules.items() if slug in before}
    names = exported((library / "attention" / "__init__.py").read_text())
    handed_out = [lessons()[slug] for slug in before]
    assert set(names) == {name for one in handed_out for name in one.exercises + one.removed}
    if lesson and lesson < "07":
        assert not list((library / "checks" / "observe" / "lessons").rglob("broken_modules*"))
    for path in library.rglob("*.py"):
        held = {line.strip() for line in ast.unparse(ast.parse(path.read_text())).splitlines()}
        for name in due(lesson):
            work = work_of(name)
            assert len(work & held) <= len(work) / 2, (name, path)
    for path in library.rglob("*.pyc"):
        assert (path.parent.parent / f"{path.name.partition('.')[0]}.py").is_file(), path


def test_which_lessons_come_before_is_told_by_the_name():
    slugs = list(lessons())
    assert handed_out(slugs[3]) == slugs[:3]
    assert handed_out("05b_homework") == slugs[:6]
    assert handed_out("homework") == handed_out("2026-exam") == handed_out("") == []
