import ast
import functools
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from datetime import timedelta
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from grading_course import hand_in, make_course, release
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from waiting import PATIENCE

from course_lib.authoring.bundle import FOLDER, bundle_name, contents, packed
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.new_class import init
from course_lib.cli import main as cli
from course_lib.exercises import find, lessons
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.due_dates import open_lessons

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
LESSON = "02_masked_softmax"


@pytest.fixture(scope="module")
def course():
    return LessonTree.at(ROOT)


def unzipped(course, folder, slugs, up_to=None):
    """Unzip a bundle into `folder` and return the student's folder."""
    data = packed(contents(course, slugs, up_to))
    zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
    return folder / FOLDER


def python(*arguments, **options):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)


def test_release_writes_the_same_zip_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    made = []
    for name in ("first", "second"):
        into = tmp_path / name
        assert cli.main(["bundle", "02", "--up-to", "2", "--into", str(into), "--json", "-q"]) == 0
        made.append(json.loads(capsys.readouterr().out))
        os.utime(ROOT / "LICENSE")  # dates must not matter
    first, second = (
        (tmp_path / name / f"{LESSON}.zip").read_bytes() for name in ("first", "second")
    )
    assert first == second
    assert made[0]["sha256"] == made[1]["sha256"]
    assert made[0]["solutions"] == ["00_whole_game", "01_kernel_pooling"]
    assert [path.name for path in (tmp_path / "first").iterdir()] == [f"{LESSON}.zip"]


def test_a_bundle_holds_the_original_of_a_notebook_that_was_used(tmp_path, monkeypatch, capsys):
    init(tmp_path)
    name = f"notebooks/{LESSON}/{LESSON}.ipynb"
    used = (tmp_path / name).read_text().replace("raise NotImplementedError()", "return 1")
    (tmp_path / name).write_text(used)
    (tmp_path / "notebooks" / LESSON / "my_notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bundle", "02", "--up-to", "02"]) == 0
    assert f"{name} was edited or run, so the zip holds" in capsys.readouterr().err
    zipped = zipfile.ZipFile(tmp_path / "bundles" / f"{LESSON}.zip")
    original = (ROOT / name).read_text("utf-8")
    without_link = re.sub(r"\[(03 · [^]]*)\]\([^)]*\)", r"\1", original)  # it is not in the zip
    assert zipped.read(f"{FOLDER}/{name}").decode() == without_link != original
    assert not [one for one in zipped.namelist() if "my_notes" in one]
    assert (tmp_path / name).read_text() == used


@pytest.mark.parametrize(
    ("lessons", "advice"),
    [("07", ""), (f"02 07 --up-to {LESSON}", f"course bundle {LESSON} --up-to {LESSON}")],
)
def test_a_lesson_after_the_one_left_out_is_refused(monkeypatch, capsys, lessons, advice):
    monkeypatch.chdir(ROOT)
    assert cli.main(["bundle", *lessons.split(), *([] if advice else ["--up-to", "06"])]) == 1
    error = capsys.readouterr().err
    assert advice in error and error.count("\n") == 1
    assert "--up-to 07" not in error  # whose zip would hold the solution of an open lesson


def test_a_warning_names_open_lessons_whose_solutions_are_handed_out(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    opened = re.compile(r"holds the solution of (\w+), which is still open")
    for up_to, warned in (("03", [LESSON]), ("02", [])):
        bundle = ["bundle", "02", "--up-to", up_to, "--into", str(tmp_path), "-q"]
        assert cli.main(bundle) == 0
        told = capsys.readouterr().err
        assert opened.findall(told) == warned and ("--up-to 02" in told) is bool(warned)
    assert cli.main(["bundle", "02", "03", "--up-to", "03", "--into", str(tmp_path), "-q"]) == 0
    told = capsys.readouterr().err
    assert opened.findall(told) == [LESSON] and "this zip until then" in told


def test_a_lesson_is_open_until_it_is_due_for_everyone_or_collected(tmp_path):
    root = make_course(tmp_path)

    def is_open(given=()):
        return LESSON in open_lessons(root, given, ["01_kernel_pooling", LESSON])

    assert not is_open() and is_open([LESSON])
    (root / "bundles").mkdir()
    (root / "bundles/lessons_02_05.zip").touch()
    assert is_open()
    hand_in(root, "ada", release(root))
    assert not is_open() and is_open([LESSON])
    for due, expected in (("2999-01-01 00:00", True), ("2020-01-01 00:00", False)):
        with ClassFolder(root).gradebook() as gradebook:
            gradebook.update_or_create_assignment(LESSON, duedate=f"{due} UTC")
        assert is_open([LESSON]) is expected
    with quiet_nbgrader(), ClassFolder(root).gradebook() as gradebook:
        gradebook.add_student("ada")
        late = timedelta(days=400_000)
        gradebook.update_or_create_submission(LESSON, "ada", extension=late)
    assert is_open()


def test_several_lessons_share_a_bundle(course):
    slugs = ["01_kernel_pooling", "03_batch_matmul"]
    assert bundle_name(slugs) == "lessons_01_03"
    files = contents(course, slugs, None)
    found = [name for name in files if name.startswith("notebooks/")]
    assert found == [f"notebooks/{slug}/{slug}.ipynb" for slug in slugs]
    assert all(slug in files["README.md"].decode() for slug in slugs)


def test_a_bundle_is_for_students(course):
    whole, reduced = (contents(course, [LESSON], up_to) for up_to in (None, LESSON))
    for files in (whole, reduced):
        parts = {name.split("/")[1] for name in files if name.startswith("course_lib/")}
        assert not parts & {"grading", "authoring", "benchmarks", "bundle", "site"}
        assert not [name for name in files if name.startswith(("solutions", "tests"))]
        assert "course_lib/cli/main.py" in files and "course_lib/cli/grading.py" not in files
        assert len(files["README.md"].decode().splitlines()) <= 40
        assert "course_lib/lab_config/labconfig/default_setting_overrides.json" in files
    fused = "course_lib/fused/__init__.py"
    assert fused in whole and fused not in reduced
    assert fused in contents(course, [LESSON], "08_memory_and_speed")
    assert {f"course_lib/attention/_{slug[3:]}.py" for slug in lessons()} <= set(whole)
    later = [slug[3:] for slug in lessons() if slug > LESSON]
    places = ("attention/_{}.", "exercises/{}/", "reference/{}.")
    kept = tuple(f"course_lib/{place.format(name)}" for place in places for name in later)
    assert not [name for name in reduced if name.startswith(kept)]
    assert all(any(name.startswith(one) for name in whole) for one in kept)


def test_the_project_of_a_bundle_is_the_student_core(course):
    files = contents(course, [LESSON], None)
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    made = tomllib.loads(files["pyproject.toml"].decode())
    assert made["project"]["dependencies"] == whole["project"]["dependencies"]
    assert "optional-dependencies" not in made["project"]
    assert made["build-system"] == whole["build-system"]
    assert made["tool"]["hatch"]["version"] == whole["tool"]["hatch"]["version"]
    named = {made["project"]["readme"], *made["project"]["license-files"]}
    assert named <= set(files)


def test_the_environment_is_what_pyproject_generates_without_extras(course, tmp_path):
    command = ["-m", "pyproject2conda", "yaml", "--pyproject", ROOT / "pyproject.toml"]
    command += ["--python-include", "infer", "--req", "-e .", "--name", "attention-course"]
    done = python(*command, "--channel", "conda-forge", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    generated = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
    assert contents(course, [LESSON], None)["environment.yml"].decode().splitlines() == generated


def test_a_bundle_imports_only_what_it_installs(course):
    files = contents(course, list(lessons()), None)
    project = tomllib.loads(files["pyproject.toml"].decode())["project"]
    imported = set()
    for name, data in files.items():
        for node in ast.walk(ast.parse(data)) if name.endswith(".py") else ():
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {module.partition(".")[0] for module in modules}
    known = metadata.packages_distributions()
    others = imported - sys.stdlib_module_names - {"course_lib"}
    needed = {canonicalize_name(known[module][0]) for module in others}
    installed = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    assert needed <= installed


def squeezed(text):
    """Keep letters, digits, underscores and operators, so that no layout or escape hides a text."""
    return re.sub(r"(?:\\n|[\s\"'\\(),])+", "", text)


@functools.cache
def text_of(name, data):
    """Return the text of a file without layout."""
    text = data.decode("utf-8", "replace")
    if name.endswith(".py"):
        text = f"{ast.unparse(ast.parse(text))}\n{text}"
    return squeezed(text)


def bodies(path):
    """Yield the functions of a module by name, if they are long enough to be distinctive."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            statements = node.body[1:] if ast.get_docstring(node) else node.body
            body = "\n".join(map(ast.unparse, statements))
            if len(body) > 50:
                yield node.name, squeezed(body)


@functools.cache
def told_of(slug):
    """Return what helps with a lesson: its oracle, its hints and its known mistakes."""
    told = [*bodies(ROOT / f"course_lib/reference/{slug[3:]}.py")]
    for name in lessons()[slug].exercises:
        exercise = find(name)
        said = [*exercise.hints, *(part for m in exercise.mistakes for part in (m.message, m.hint))]
        told += [(name, squeezed(text)) for text in said]
    return told


@pytest.mark.parametrize("up_to", list(lessons()))
def test_no_file_of_a_bundle_gives_help_away(course, up_to):
    # tests/test_bundle_answers.py looks for answers.
    files = contents(course, [up_to], up_to)
    # A check needs the oracle, the hints and the mistakes of its own lesson.
    checks = ("course_lib/exercises/", "course_lib/reference/")
    elsewhere = {n: text_of(n, data) for n, data in files.items() if not n.startswith(checks)}
    due = [told for slug in lessons() if slug >= up_to for told in told_of(slug)]
    found = [(name, at) for name, told in due for at, text in elsewhere.items() if told in text]
    assert found == []


WITHOUT_ANSWERS = """
import contextlib, io, json, os, sys
import matplotlib, numpy, torch, jaxtyping

def outcomes(folder, slug):
    sys.path.insert(0, folder)
    import course_lib
    assert course_lib.__file__.startswith(folder)
    from course_lib.checks import grade
    from course_lib.exercises import lessons
    notebook = json.load(open(f"{folder}/notebooks/{slug}/{slug}.ipynb"))
    names = lessons()[slug].exercises
    run, said = vars(sys.modules["__main__"]), io.StringIO()
    with contextlib.redirect_stdout(said):
        for cell in notebook["cells"]:
            if cell["id"] == "setup" or cell["id"].endswith(("-answer", "-check", "-next")):
                if cell["cell_type"] == "code":
                    # With the name <string>, Python 3.13 takes this program's lines for the cell's.
                    exec(compile("".join(cell["source"]), cell["id"], "exec"), run)
    said = said.getvalue()
    told = "going on with your own", "not written yet, and this bundle leaves out the course's"
    return {n: [grade(n, run[n]).outcome, *(f"{n}: {t}" in said for t in told)] for n in names}

for folder, slug in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            with open(write, "w") as file:
                json.dump(outcomes(folder, slug), file)
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        print(json.dumps([slug, json.loads(file.read() or "{}")]))
    os.wait()
"""


def test_every_lesson_starts_in_its_bundle_and_goes_on_with_the_students_own(course, tmp_path):
    bundles = [
        (str(unzipped(course, tmp_path / slug, [slug], slug)), slug) for slug in course.lessons
    ]
    done = python("-c", WITHOUT_ANSWERS, json.dumps(bundles), cwd=tmp_path)
    seen = dict(map(json.loads, done.stdout.splitlines()))
    own, unwritten = ["not_attempted", True, False], ["not_attempted", False, True]
    assert seen.keys() == lessons().keys(), done.stderr
    for slug, lesson in lessons().items():
        said = seen[slug]
        is_hunt = slug == "07_bug_hunt"  # its broken modules are in the bundle
        assert said.keys() == set(lesson.exercises)
        assert all(each == unwritten or (is_hunt and each == own) for each in said.values()), said


@pytest.fixture(scope="module")
def student(course, tmp_path_factory):
    """Return a student's folder and the environment in which its course is found."""
    folder = unzipped(course, tmp_path_factory.mktemp("home"), [LESSON], LESSON)
    return folder, {**os.environ, "PYTHONPATH": str(folder)}


def test_a_bundle_lists_the_verbs_that_it_has(student):
    folder, environ = student
    listed = python("-m", "course_lib.cli", "--help", cwd=folder, env=environ).stdout
    verbs = set(re.findall(r"^  ([a-z]+) {2,}[A-Z]", listed, re.M))
    assert verbs - {"progress"} == {"lab", "doctor", "models"}
    refused = python("-m", "course_lib.cli", "grade", "02", cwd=folder, env=environ)
    assert refused.returncode == 2
    assert "No such command 'grade'" in refused.stderr


def test_a_lesson_works_in_its_bundle(student):
    folder, environ = student
    home = folder / "notebooks" / LESSON
    solution = nbformat.read(ROOT / f"solutions/{LESSON}/{LESSON}.ipynb", as_version=4)
    right = {cell.id: cell.source for cell in solution.cells}["stable_softmax-answer"]
    wrong = textwrap.dedent("""
        def causal_mask(num_queries, num_keys=None, *, device=None):
            num_keys = num_queries if num_keys is None else num_keys
            return torch.ones(num_queries, num_keys).triu().bool()
    """)
    answers = {"stable_softmax-answer": right, "causal_mask-answer": wrong}
    answers["length_mask-next"] = 'hint("length_mask", 1)'
    notebook = nbformat.read(home / f"{LESSON}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    nbformat.write(notebook, home / "mine.ipynb")
    run = ["-m", "nbconvert", "--to=notebook", "--execute", "--allow-errors", "--stdout"]
    done = python(*run, "mine.ipynb", cwd=home, env=environ)
    notebook = nbformat.reads(done.stdout, as_version=4)
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}

    def said(cell):
        data = [{"text/plain": o.get("text", ""), **o.get("data", {})} for o in outputs[cell]]
        return "".join(one.get("text/html", one["text/plain"]) for one in data)

    assert "2 of 2 points" in said("stable_softmax-check")
    assert "going on with your own, which passed its check" in said("stable_softmax-next")
    assert "going on with your own version; the course's comes" in said("causal_mask-next")
    assert "it allows later keys" in said("causal_mask-check")
    assert "not attempted" in said("length_mask-check")
    assert "Hint 1 of 3 for length_mask" in said("length_mask-next")
    every = [output for cell in outputs.values() for output in cell]
    assert [o for o in outputs["setup"] if o["output_type"] != "stream"] == []
    missing = {"FileNotFoundError", "ImportError", "ModuleNotFoundError"}
    assert not missing & {o["ename"] for o in every if o["output_type"] == "error"}
    said_of_stubs = {o["evalue"] for o in every if o.get("ename") == "NotImplementedError"}
    assert "`length_mask` is still to be written: do its exercise, then" in str(said_of_stubs)
    assert all("is still to be written" in one for one in said_of_stubs)
    drawn = re.compile(r"plotting\.(show|interactive)\(")
    shows = {cell.id for cell in notebook.cells if drawn.search(cell.source)}
    failed = {i for i, out in outputs.items() if any(o["output_type"] == "error" for o in out)}
    assert shows - failed and all("course-figure" in said(cell) for cell in shows - failed)
