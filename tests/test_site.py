"""Parts of `course site` that need no built site: both forms of a lesson, and refusals."""

import copy
import json
import re
import shutil
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from site_build import REPOSITORY, ROOT

from course_lib import NEEDED
from course_lib.authoring import builder
from course_lib.authoring.builder import file_digest
from course_lib.authoring.site import launchable, reading_copy
from course_lib.cli import main as cli

CONF = 'html_theme = "basic"\nextensions = ["myst_nb"]\nnb_execution_mode = "off"\n'
CONF += 'exclude_patterns = ["[A-Z]*.md"]\n'
PAGE = "# {}\n\n```{{toctree}}\nnotebooks/01_lesson/01_lesson\n```\n"


def output(text):
    return new_output("stream", name="stdout", text=text)


def notebook(*, solved):
    """Return a lesson with each kind of cell."""
    answer = {"nbgrader": {"solution": True, "grade": False}}
    check = {"nbgrader": {"solution": False, "grade": True}}
    setup = {"nbgrader": {"solution": False, "grade": False}}
    cells = [
        new_markdown_cell("# 01 · A lesson", id="title"),
        new_code_cell("import math", id="setup", metadata=setup),
        new_code_cell("print(1)", id="shows", outputs=[output("1")] if solved else []),
        new_code_cell("def f(): ...", id="f-answer", metadata=answer),
        new_code_cell('check("f")', id="f-check", metadata=check),
        new_code_cell('f = carry_on("f")', id="f-next"),
    ]
    if solved:
        for cell, said in zip(cells[3:], ("mine", "correct", "going on"), strict=True):
            cell.outputs = [output(said)]
        cells.insert(1, new_code_cell("1 + 1", id="elsewhere", outputs=[output("2")]))
    language = {"name": "python", "pygments_lexer": "ipython3"}
    return new_notebook(cells=cells, metadata={"language_info": language})


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return a course with one lesson and a site of one page beside it."""
    for kind, solved in (("notebooks", False), ("solutions", True)):
        folder = tmp_path / kind / "01_lesson"
        folder.mkdir(parents=True)
        nbformat.write(notebook(solved=solved), folder / "01_lesson.ipynb")
    release = (tmp_path / "notebooks/01_lesson/01_lesson.ipynb").read_bytes()
    noted = {"01_lesson": {"release": {"01_lesson.ipynb": file_digest(release)}}}
    (tmp_path / "solutions/digests.json").write_text(json.dumps(noted))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "nbgrader_config.py"):
        (tmp_path / name).touch()
    (tmp_path / "docs").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "conf.py").write_text(CONF)
    (tmp_path / "site" / "index.md").write_text(PAGE.format("Course"))
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "attention-course"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("repository", [None, REPOSITORY])
def test_a_note_is_below_the_title_and_the_output_after_a_question_is_folded(repository):
    cells = [
        new_markdown_cell("# Lesson\n\nPress Shift + Enter."),
        new_markdown_cell("**Predict.** What comes out?"),
        *(new_code_cell("1 + 1") for _ in range(2)),
        new_markdown_cell("**Predict.** And on paper? <details>Nothing.</details>"),
        new_markdown_cell("**Predict**, then drag the query."),
        new_code_cell("1 + 1"),
    ]
    page = reading_copy(new_notebook(cells=cells), "01_lesson", repository)
    assert [i for i, cell in enumerate(page.cells) if "Your guess" in cell.source] == [1]
    folded = [i for i, cell in enumerate(page.cells) if "tags" in cell.metadata]
    assert folded == [2] and page.cells[2].metadata.tags == ["hide-output"]
    title, note = page.cells[0].source.split("\n\n", 1)
    assert title == "# Lesson" and note.index("nothing runs") < note.index("Press Shift")
    assert ("colab" in note) == ("mybinder" in note) == (repository is not None)


def test_the_launchable_copy_only_adds_its_first_cell():
    release = notebook(solved=False)
    launched = launchable(copy.deepcopy(release), REPOSITORY)
    assert launched.cells[1:] == release.cells
    assert f"attention-course @ git+{REPOSITORY}" in launched.cells[0].source
    nbformat.validate(launched)


def test_the_first_cell_installs_what_a_notebook_imports_and_nothing_else():
    third_party = set()
    for folder in ("attention", "checks", "plotting", "reference"):
        for path in (ROOT / "course_lib" / folder).rglob("*.py"):
            third_party |= set(re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.M))
    there = {"course_lib", "IPython", "pygments"}  # IPython needs Pygments itself
    assert third_party - sys.stdlib_module_names - there == set(NEEDED)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--repository", "git@x.org:a/b.git", "got git@x.org:a/b.git"),
        ("--into", "mine", "mine is not a site"),
        ("--into", "README.md", "README.md is not a site"),
    ],
)
def test_an_address_or_a_folder_that_cannot_be_is_refused(course, capsys, option, value, said):
    (course / "mine").mkdir()
    (course / "mine" / "thesis.txt").touch()
    assert cli.main(["site", option, value]) == 2
    assert said in capsys.readouterr().err
    assert not (course / "_site").exists() and (course / "mine" / "thesis.txt").exists()


def test_what_is_missing_is_named(course, capsys):
    shutil.rmtree(course / "solutions")
    assert cli.main(["site"]) == 2
    said = "there is no solutions/01_lesson/01_lesson.ipynb; make it with: course"
    assert said in capsys.readouterr().err


# What Sphinx 11 will drop is still used by myst-parser.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_a_site_is_built_and_replaced_whole_and_a_fault_leaves_the_old_one(
    course, capsys, monkeypatch
):
    assert cli.main(["site"]) == 0
    assert "no launch buttons: give --repository" in capsys.readouterr().out
    index = course / "_site" / "index.html"
    old = index.read_bytes()
    assert b"Course" in old and not (course / "_site" / "launch").exists()
    (course / "_site" / "stale.html").touch()
    (course / "site" / "index.md").write_text("[gone](gone.md)\n\n" + PAGE.format("Course"))
    assert cli.main(["site", "--quiet"]) == 1
    assert "the site has faults:\nindex.md:1: WARNING" in capsys.readouterr().err
    assert index.read_bytes() == old
    (course / "site" / "index.md").write_text(PAGE.format("Another"))
    assert cli.main(["site", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert b"Another" in index.read_bytes() and not (course / "_site" / "stale.html").exists()
    release = course / "notebooks/01_lesson/01_lesson.ipynb"
    original = {release.name: release.read_bytes()}
    used = notebook(solved=False)
    used.cells.insert(2, new_code_cell("'a cell of mine'"))
    nbformat.write(used, release)
    monkeypatch.setattr(builder, "release_files", lambda *_: original)
    assert cli.main(["site", "--quiet"]) == 0
    assert "notebooks/01_lesson/01_lesson.ipynb was edited or run" in capsys.readouterr().out
    assert not [page for page in (course / "_site").rglob("*.*") if b"of mine" in page.read_bytes()]
    assert nbformat.read(release, as_version=4) == used
    assert [path.name for path in course.glob(".course-site*")] == []
