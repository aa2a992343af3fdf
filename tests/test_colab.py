"""Notebooks on their own: without the course, and the copies that Colab opens."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from guides import copy_of_the_course
from live_notebook import live_notebook, plain_text
from packaging.requirements import Requirement
from site_build import REPOSITORY

from course_lib import NEEDED
from course_lib.authoring import assemble as assembling
from course_lib.authoring.addresses import binder, colab, on_github, pages, published
from course_lib.authoring.assemble import assemble, following
from course_lib.authoring.bundle import contents
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import solution_source
from course_lib.authoring.release import release_files
from course_lib.authoring.site import launchable, reading_copy
from course_lib.exercises import lessons

ROOT = Path(__file__).resolve().parent.parent
LESSON = "02_masked_softmax"
COPY = f"gh-pages/launch/notebooks/{LESSON}/{LESSON}.ipynb"
COLAB = f"https://colab.research.google.com/github/example/attention-course/blob/{COPY}"


@pytest.fixture(scope="module")
def course():
    return LessonTree.at(ROOT)


@pytest.fixture
def public(monkeypatch):
    """Give the course a public repository."""
    monkeypatch.setattr(assembling, "published", lambda home: f"{REPOSITORY}.git")


def release(course, slug):
    """Return the release of a lesson, made from its text."""
    notebook, _ = assemble(course, slug)
    text = release_files(course, slug, nbformat.writes(notebook))[f"{slug}.ipynb"]
    return nbformat.reads(text.decode(), as_version=4)


# --- addresses and links --------------------------------------------------------------


def test_addresses_follow_from_that_of_the_repository(tmp_path):
    assert published(tmp_path) is None
    urls = f'[project.urls]\nRepository = "{REPOSITORY}.git/"\n'
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{urls}")
    assert on_github(published(tmp_path)) == REPOSITORY
    assert on_github("https://example.org/a/b") is on_github(None) is None
    assert pages(REPOSITORY) == "https://example.github.io/attention-course"
    assert colab(REPOSITORY, LESSON) == COLAB and COPY.partition("/")[2] in binder(
        REPOSITORY, LESSON
    )


def test_each_lesson_ends_with_a_link_to_the_next_and_one_past_an_optional_lesson(course):
    links = {slug: following(course, slug) for slug in course.lessons}
    assert links["11_real_model"] == ""
    named = {
        slug: [other for other in lessons() if f"../{other}/{other}.ipynb" in link]
        for slug, link in links.items()
    }
    slugs = list(lessons())
    for slug, after in pairwise(slugs):
        assert named[slug] == [after, "09_translator"][: 1 + lessons()[after].starred]
    last = assemble(course, LESSON)[0].cells[-1]
    assert (last.id, last.source) == ("next-lesson", links[LESSON])
    assert assemble(course, "11_real_model")[0].cells[-1].id != "next-lesson"


def test_a_bundle_names_a_later_lesson_and_links_only_those_in_it(course, monkeypatch):
    slugs = (LESSON, "03_batch_matmul")
    given = {slug: nbformat.writes(release(course, slug)).encode() for slug in slugs}
    where = "course_lib.authoring.bundle.released"
    monkeypatch.setattr(where, lambda _, slug: ({f"{slug}.ipynb": given[slug]}, []))
    both = contents(course, slugs, None)
    alone = contents(course, [LESSON], None)
    first, second = (f"notebooks/{slug}/{slug}.ipynb" for slug in slugs)
    assert both[first] == given[LESSON]
    title, path = "03 · Batched matrix products", f"../{slugs[1]}/{slugs[1]}.ipynb"
    link = f"[{title}]({path})".encode()
    assert link in both[first] and alone[first] == both[first].replace(link, title.encode())
    assert '**Next:** 04 · Additive attention"'.encode() in both[second]


def test_a_public_notebook_links_its_copy_which_links_other_copies(course, public):
    notebook = release(course, LESSON)
    assert notebook.cells[0].source.split("\n\n")[1] == f"[Open this lesson in Colab]({COLAB})"
    (setup,) = (cell.source for cell in notebook.cells if cell.id == "setup")
    assert setup.startswith(
        f"import course_lib  # To install it, run: %pip install git+{REPOSITORY}\n"
    )
    copy = launchable(release(course, LESSON), REPOSITORY)
    assert "Colab" not in copy.cells[1].source
    assert copy.cells[-1].source == (
        f"**Next:** [03 · Batched matrix products]({colab(REPOSITORY, '03_batch_matmul')})"
    )
    page = reading_copy(notebook, LESSON, REPOSITORY)
    assert page.cells[0].source.count(COLAB) == 1


# --- in an environment without the course ---------------------------------------------


def closure(*names):
    """Return the installed distributions that these need, by name, themselves included."""
    found, todo = {}, list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for requirement in map(Requirement, found[name].requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return found


@pytest.fixture
def wheels(tmp_path):
    """Return a folder with what the copies install, so that the test needs no network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, found in closure("jaxtyping", "matplotlib", "numpy").items():
        tag = found.read_text("WHEEL").strip().rpartition("Tag: ")[2].split()[0]
        path = folder / f"{name.replace('-', '_')}-{found.version}-{tag}.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for file in found.files:
                if ".." not in file.parts and file.suffix != ".pyc" and file.locate().is_file():
                    wheel.write(file.locate(), file)
    return folder


@pytest.fixture
def elsewhere(tmp_path):
    """Return the Python of an environment with torch and IPython, as in Colab."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    own = next((tmp_path / "venv").glob("lib/*/site-packages"))
    for found in closure("torch", "ipykernel", "pip", "hatchling").values():
        for top in {file.parts[0] for file in found.files if ".." not in file.parts}:
            if top != "__pycache__" and not (own / top).exists():
                (own / top).symlink_to(found.locate_file(top))
    return tmp_path / "venv" / "bin" / "python"


@pytest.fixture
def at_github(tmp_path, wheels):
    """Return settings under which the course stands at its address, and pip needs no network."""
    clone = copy_of_the_course(tmp_path / "published")
    shutil.copy(ROOT / "hatch_build.py", clone)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "course"]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{clone.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": REPOSITORY,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_BUILD_ISOLATION": "0",  # no isolation: pip takes the hatchling here
        "PYTHONPATH": "",
    }


def shown(outputs):
    """Return the text of a traceback."""
    return "".join(line for output in outputs for line in output.get("traceback", ()))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="an environment is made with symbolic links")
def test_a_notebook_says_how_to_install_the_course_and_a_copy_for_colab_does(
    course, elsewhere, at_github, tmp_path
):
    (setup,) = (cell.source for cell in release(course, LESSON).cells if cell.id == "setup")
    copy = launchable(release(course, LESSON), REPOSITORY)
    (tmp_path / "empty").mkdir()
    with live_notebook(tmp_path / "empty", python=str(elsewhere), **at_github) as notebook:
        said = shown(notebook.run(setup))
        assert 'To install it, run "python -m course_lib lab" in the course\'s folder.' in said
        assert "No module named 'course_lib'" in said
        notebook.run(f"import sys\nsys.path.append({str(tmp_path / 'published')!r})")
        said = notebook.said(setup)
        missing = " ".join(name for name in NEEDED if name != "torch")
        assert f"course needs {missing}, which this" in said and f"%pip install {missing}" in said
        notebook.run("sys.path.pop()")
        ran = {cell.id: notebook.run(cell.source, cell.id) for cell in copy.cells[:1]}
        for cell in copy.cells[1:]:
            source = cell.source
            if cell.id == "causal_mask-answer":
                source = solution_source("causal_mask")
            if cell.cell_type == "code":
                ran[cell.id] = notebook.run(source, cell.id)
    failed = {i: out for i, out in ran.items() if any(o["output_type"] == "error" for o in out)}
    assert failed == {}
    (report,) = ran["causal_mask-check"]
    assert "causal_mask: correct (2 of 2 points)" in plain_text(report["data"])
    site = next(tmp_path.glob("venv/lib/*/site-packages"))
    assert (site / "course_lib" / "__init__.py").is_file()
