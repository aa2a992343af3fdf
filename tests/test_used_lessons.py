"""After a student and an instructor have used the lessons, every verb works and changes none."""

import subprocess
import zipfile

import nbformat
import pytest
from guides import copy_of_the_course
from site_build import ROOT, run_course

pytestmark = pytest.mark.slow
ANSWERED, RUN, BOTH = "03_batch_matmul", "04_additive_attention", "02_masked_softmax"
USED = {
    f"notebooks/{ANSWERED}/{ANSWERED}.ipynb": "answered",
    f"notebooks/{BOTH}/{BOTH}.ipynb": "answered",
    f"solutions/{RUN}/{RUN}.ipynb": "run",
    f"solutions/{BOTH}/{BOTH}.ipynb": "with a cell more and one less",
}


def use(path, how):
    """Save a notebook as JupyterLab does, after somebody has worked in it."""
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            cell.execution_count = number
            if how == "answered":
                cell.source = cell.source.replace("raise NotImplementedError()", "return 1")
    if how == "with a cell more and one less":
        shown = next(cell for cell in notebook.cells[5:] if cell.cell_type == "code")
        notebook.cells.remove(shown)
        notebook.cells.insert(3, nbformat.v4.new_code_cell("1 + 1"))
    notebook.metadata["language_info"]["version"] = "3.99.0"
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Return a copy of the course in which four notebooks were used."""
    root = copy_of_the_course(tmp_path_factory.mktemp("used") / "clone")
    for part in ("site", "CHANGELOG.md"):
        subprocess.run(["cp", "-r", ROOT / part, root], check=True)
    for name, how in USED.items():
        use(root / name, how)
    return root


@pytest.fixture
def course(clone):
    """Return a function that runs a verb and returns what it printed; the notebooks must stay."""

    def run(*arguments):
        before = {name: (clone / name).read_bytes() for name in USED}
        done = run_course(*arguments, cwd=clone)
        assert done.returncode == 0, done.stderr
        assert {name: (clone / name).read_bytes() for name in USED} == before
        return done.stdout + done.stderr

    return run


def named(said):
    return {name for name in USED if name in said}


def test_the_demo(course):
    assert named(course("demo", BOTH)) == {name for name in USED if BOTH in name}


def test_a_folder_for_a_class(course, tmp_path):
    assert named(course("init", tmp_path / "class")) == USED.keys()
    for slug in (ANSWERED, BOTH):
        name = f"notebooks/{slug}/{slug}.ipynb"
        assert (tmp_path / "class" / name).read_bytes() == (ROOT / name).read_bytes()


def test_bundles(course, tmp_path):
    lessons = (ANSWERED, RUN, BOTH)
    assert named(course("bundle", *lessons, "--into", tmp_path)) == USED.keys()
    (path,) = tmp_path.iterdir()
    with zipfile.ZipFile(path) as bundle:
        for slug in lessons:
            text = bundle.read(f"attention-course/notebooks/{slug}/{slug}.ipynb").decode()
            assert "return 1" not in text and "raise NotImplementedError()" in text


def test_the_site(course, tmp_path):
    assert named(course("site", "--into", tmp_path / "pages")) == USED.keys()
    page = (tmp_path / "pages/notebooks" / BOTH / f"{BOTH}.html").read_text()
    assert "<figure" in page or "course-figure" in page


def test_another_lesson_and_all_lessons_are_built(course, clone):
    course("build", "07_bug_hunt")
    said = course("build")
    assert named(said) == USED.keys()
    assert "10_language_model: " in said
    for slug in (ANSWERED, RUN, BOTH):
        done = run_course("build", slug, cwd=clone)
        assert done.returncode == 1 and "so it is not replaced" in done.stderr
