"""CONTRIBUTING.md, followed as typed: a new exercise in a copy of the course."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from authoring_toy import SLUG, make_course
from guides import copy_of_the_course, typed

from course_lib.authoring import Course, skeleton
from course_lib.workspace.errors import BuildError

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAME, LESSON = "window_mask", "02_masked_softmax"
MOST_LINES = 60


def blocks(language):
    section = PAGE.partition("## Add an exercise\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)


def followed():
    """What is run here as typed: `new exercise`, `matrix` and `build`, in the page's order."""
    about = ("course new exercise", "course matrix 02 --", "course build 02")
    return [command for command in typed("CONTRIBUTING.md") if command.startswith(about)]


def run(folder, *arguments):
    """A command in the copy, whose course_lib is the one that is found."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder), "CI": ""},
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of this course without its history, in which someone can write."""
    return copy_of_the_course(tmp_path_factory.mktemp("clone") / "course")


def replace_definition(path, name, text):
    """Writes the page's function in place of the skeleton's."""
    source = path.read_text(encoding="utf-8")
    lines = source.split("\n")
    node = next(n for n in ast.parse(source).body if getattr(n, "name", None) == name)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    lines[first - 1 : node.end_lineno] = text.rstrip("\n").split("\n")
    path.write_text("\n".join(lines), encoding="utf-8")


def test_a_small_exercise_takes_sixty_lines():
    assert sum(block.count("\n") for block in blocks("python")) <= MOST_LINES


@pytest.mark.slow
def test_an_exercise_is_added_as_the_page_says(clone):
    solution, statement, oracle, exercise, answers = blocks("python")
    begin, matrix, build = (["course_lib.cli", *line.split()[1:]] for line in followed())
    begun = run(clone, *begin)
    assert begun.returncode == 0, begun.stderr
    course = Course(clone, clone / "course_lib", {}, {})
    places = skeleton.places_of(course, NAME, LESSON)
    named = [line.partition(": ")[2] for line in begun.stdout.splitlines()]
    assert named[:5] == [path.relative_to(clone).as_posix() for path in places]

    unfinished = run(clone, *build)
    assert unfinished.returncode == 1
    assert re.search(r"02_masked_softmax\.py:\d+: a placeholder is left", unfinished.stderr)

    replace_definition(places[0], NAME, solution)
    replace_definition(places[2], NAME, oracle)
    text = places[1].read_text(encoding="utf-8")
    begins = text.index(f"# %% [markdown]\n# ### Exercise: `{NAME}`")
    ends = text.index(f'check("{NAME}")') + len(f'check("{NAME}")\n')
    places[1].write_text(text[:begins] + statement + text[ends:], encoding="utf-8")
    places[3].write_text(exercise, encoding="utf-8")
    places[4].write_text(answers, encoding="utf-8")

    built = run(clone, *build)
    assert built.returncode == 0, built.stderr
    notebook = (clone / f"notebooks/{LESSON}/{LESSON}.ipynb").read_text(encoding="utf-8")
    assert f'check(\\"{NAME}\\")' in notebook and "return (torch.arange(num_pos" not in notebook
    judged = run(clone, *matrix)
    assert judged.returncode == 0 and f"\n{NAME}\n" in judged.stdout, judged.stdout[-800:]
    tests = [f"tests/test_{t}.py" for t in ("matrix", "promises", "known_mistakes", "repairs")]
    tested = run(clone, "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", NAME)
    assert tested.returncode == 0, tested.stdout[-2000:]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("double", r"the exercise `double` is there already, in lesson 01_toy"),
        ("no-name", r"`no-name` is no name for a function"),
        ("_hidden", r"is no name for a function"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, name, message):
    course = make_course(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(BuildError, match=message):
        skeleton.new_exercise(course, name, SLUG)
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_a_lesson_that_is_not_there_is_named_with_the_nearest(tmp_path):
    with pytest.raises(BuildError, match=r"no lesson `01_tyo`. Did you mean `01_toy`"):
        skeleton.new_exercise(make_course(tmp_path), "triple", "01_tyo")


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


def test_a_missing_piece_is_named_with_file_and_remedy(clone):
    order = clone / "course_lib/exercises/kernel_pooling/__init__.py"
    whole = order.read_text(encoding="utf-8")
    order.write_text(whole.replace('"squared_distances",\n', '"squared_distances",\n"lost",\n'))
    done = run(clone, "course_lib.cli", "build", "01")
    order.write_text(whole, encoding="utf-8")
    assert done.returncode == 1
    assert (
        "names `lost`, and there is no course_lib/exercises/kernel_pooling/lost.py" in done.stderr
    )
    assert "course new exercise lost --lesson 01_kernel_pooling" in done.stderr
