"""The gradebook of a large class: its indexes, the number of queries, and the benchmark."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, inspect, text

from course_lib.benchmarks.scale import make_lesson
from course_lib.cli.main import main
from course_lib.demo.demo_course import make_folder
from course_lib.grading.adapters.nbgrader import INDEXES
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.read_grades import read_lesson

ROOT = Path(__file__).resolve().parents[1]
LARGE, SMALL = "02_masked_softmax", "03_batch_matmul"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Generate a class with 12 submissions of one lesson and 2 of another."""
    folder = tmp_path_factory.mktemp("large") / "class"
    make_folder(ROOT, folder)
    make_lesson(folder, LARGE, 12)
    make_lesson(folder, SMALL, 2)
    return ClassFolder(folder)


def indexes(gradebook):
    tables = {index.table.name for index in INDEXES if index.table is not None}
    look = inspect(gradebook.engine)
    found = {one["name"] for table in tables for one in look.get_indexes(table)}
    return found & {index.name for index in INDEXES}


def drop_indexes(gradebook):
    for index in INDEXES:
        gradebook.db.execute(text(f"DROP INDEX {index.name}"))


def test_missing_indexes_are_made_when_a_gradebook_is_opened_unless_it_refuses_them(course):
    with quiet_nbgrader(), course.gradebook() as gradebook:
        assert len(indexes(gradebook)) == len(INDEXES) == 4
        drop_indexes(gradebook)
        gradebook.db.commit()
        assert not indexes(gradebook)
    first = INDEXES[0].name
    with course.gradebook() as gradebook:
        assert len(indexes(gradebook)) == 4
        drop_indexes(gradebook)
        gradebook.db.execute(text(f"CREATE TABLE {first} (name TEXT)"))  # has the index's name
        gradebook.db.commit()
    with quiet_nbgrader(), course.gradebook() as gradebook:
        assert not indexes(gradebook)
        assert len(read_lesson(course, LARGE).students) == 12
        gradebook.db.execute(text(f"DROP TABLE {first}"))
        gradebook.db.commit()


@pytest.mark.parametrize("brief", [True, False])
def test_the_number_of_queries_does_not_depend_on_the_size_of_the_class(course, brief):
    asked = []

    def note(connection, cursor, statement, *rest):
        if re.search(r"FROM (submitted_\w+|student|grade|comment)\b", statement):
            asked.append(lesson)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with quiet_nbgrader():
            for lesson in (LARGE, SMALL):
                assert read_lesson(course, lesson, brief=brief).students
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert asked.count(LARGE) == asked.count(SMALL) == 3


def test_the_benchmark_times_what_reads_a_whole_class(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["bench", "scale", "--students", "3", "--lesson", "02", "--json", "--quiet"]) == 0
    measured = json.loads(capsys.readouterr().out)
    commands = ["course export --partial", "course report 02", "course report"]
    commands += ["course answers 02", "course feedback 02 --pending"]
    assert list(measured["seconds"]) == commands and min(measured["seconds"].values()) > 0
    assert (measured["students"], measured["lessons"]) == (3, 1)
    assert min(measured["memory"].values()) > 50
    assert measured["pages"] > measured["report"] > 1000
    assert measured["linear"] == 3 and list(measured["growth"]) == commands
    assert all(0 < one["memory"] < 3 for one in measured["growth"].values())


COMMANDS = [["report", "02"], ["report"], ["export", "--partial", "--force"]]
COMMANDS += [["answers", "02"], ["feedback", "02", "--pending"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_is_worse_than_linear(classes, monkeypatch, command):
    """Count the calls in classes of n, 2n and 4n. The second step is about twice the first one."""
    counts = []
    for folder in (classes[0], *classes):  # the first run also loads modules and templates
        calls = itertools.count()
        monkeypatch.chdir(folder)
        sys.setprofile(lambda *_, calls=calls: next(calls))
        try:
            main([*command, "--quiet"] if command[0] in ("report", "export") else command)
        finally:
            sys.setprofile(None)
        counts.append(next(calls))
    _, few, more, most = counts
    assert 0 < most - more < 3 * (more - few)


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Return the folders of classes with 10, 20 and 40 submissions."""
    folders = [tmp_path_factory.mktemp(f"class-{n}") / "class" for n in (10, 20, 40)]
    for folder, students in zip(folders, (10, 20, 40), strict=True):
        make_folder(ROOT, folder)
        make_lesson(folder, LARGE, students)
    return folders


def test_a_report_does_not_load_torch():
    """Loading torch takes as long as reading the grades of a large class in several lessons."""
    code = "import sys, course_lib.grading.class_report.pages; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
