"""`course init`: a folder in which every command works, and its updates."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

from course_lib.authoring import builder, new_class
from course_lib.authoring.builder import file_digest
from course_lib.authoring.new_class import DIGESTS, init
from course_lib.cli.main import main
from course_lib.workspace import folder as workspace

ROOT = Path(__file__).resolve().parent.parent
LESSON, OTHER = "02_masked_softmax", "03_batch_matmul"


def publish(home: Path, words: str) -> None:
    """Write a course of two lessons, whose files all hold these words."""
    digests = {}
    for slug in (LESSON, OTHER):
        for name in (f"solutions/{slug}/{slug}.py", f"solutions/{slug}/{slug}.ipynb"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(words)
        release = home / "notebooks" / slug / f"{slug}.ipynb"
        release.parent.mkdir(parents=True, exist_ok=True)
        release.write_text(words)
        digest = file_digest(words.encode())
        digests[slug] = {"inputs": words, "solution": digest, "release": {release.name: digest}}
    (home / DIGESTS).write_text(json.dumps(digests))
    (home / "nbgrader_config.py").write_text(f"# {words}")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return the course that is installed, in its first version."""
    home = tmp_path / "home"
    publish(home, "first")
    monkeypatch.setattr(new_class, "files_home", lambda library: home)
    return home


@pytest.fixture
def folder(home, tmp_path):
    """Return a folder made from the first version."""
    init(tmp_path / "class")
    return tmp_path / "class"


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_an_update_replaces_what_nobody_edited_and_lists_what_it_left_alone(home, folder, capsys):
    assert (init(folder).written, init(folder).left) == ((), ()), "nothing is new yet"
    edited = ["nbgrader_config.py", "course.toml"]
    for name in edited:
        (folder / name).write_text("# mine")
    publish(home, "second")
    assert main(["init", str(folder)]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("left alone")] == [
        f"left alone, because it or its lesson was changed: {name}" for name in edited
    ]
    assert {(folder / name).read_text() for name in edited} == {"# mine"}
    assert json.loads((folder / DIGESTS).read_text()) == json.loads((home / DIGESTS).read_text())
    for slug in (LESSON, OTHER):
        assert {path.read_text() for path in folder.rglob(f"{slug}.*")} == {"second"}


def test_notebooks_that_were_used_in_the_clone_reach_a_class_in_their_original(
    home, tmp_path, monkeypatch, capsys
):
    release = home / "notebooks" / LESSON / f"{LESSON}.ipynb"
    release.write_text("answered")
    monkeypatch.setattr(builder, "release_files", lambda *_: {release.name: b"first"})
    monkeypatch.setattr(builder, "_as_built", lambda *_: "")
    assert main(["init", str(tmp_path / "class")]) == 0
    assert f"version, without changes: notebooks/{LESSON}/{LESSON}.ipynb" in capsys.readouterr().out
    assert (tmp_path / "class/notebooks" / LESSON / release.name).read_text() == "first"
    assert release.read_text() == "answered"


def test_the_notebooks_and_digests_of_a_lesson_stay_together(home, folder):
    source, release = (f"{part}/{LESSON}/{LESSON}.ipynb" for part in ("solutions", "notebooks"))
    (folder / source).write_text("built here")
    digests = json.loads((folder / DIGESTS).read_text())
    digests[LESSON]["solution"] = file_digest(b"built here")
    (folder / DIGESTS).write_text(json.dumps(digests))
    publish(home, "second")
    made = init(folder)
    assert set(made.left) == {source, release}
    assert (folder / release).read_text() == "first"
    assert (folder / f"solutions/{LESSON}/{LESSON}.py").read_text() == "second"
    now = json.loads((folder / DIGESTS).read_text())
    assert now == {**json.loads((home / DIGESTS).read_text()), LESSON: digests[LESSON]}
    assert f"was changed: {source}" in made.text()


@pytest.mark.parametrize("name", ["class", "class/thesis.tex"])
def test_foreign_content_is_refused_in_one_sentence(home, tmp_path, capsys, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("years of work")
    before = contents(tmp_path)
    assert main(["init", str(tmp_path / "class")]) == 2
    error = capsys.readouterr().err
    assert "name a new or empty folder" in error and error.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize("line", ["matrix 02", "site", "test", "bench checks", "new lesson 11_x"])
def test_a_wheel_says_which_commands_need_a_clone(folder, tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    assert workspace.with_sources("tests/variants") == ROOT  # in a clone, it finds its own
    monkeypatch.setattr(workspace, "CLONE", tmp_path)
    before = contents(folder)
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert "run this in a clone" in error and error.count("\n") == 1
    assert contents(folder) == before


@pytest.mark.slow
def test_an_installed_wheel_makes_the_same_folder_and_bundle(tmp_path):
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, ROOT], check=True, timeout=PATIENCE)
    made = {}
    for name, path in {"clone": ROOT, "wheel": site}.items():
        code = "from course_lib.cli.main import main; assert not main(['init', '.'])\n"
        code += "assert not main(['bundle', '02', '--up-to', '02', '-q'])"
        (folder := tmp_path / name).mkdir()
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        made[name] = contents(folder)
    assert made["wheel"] == made["clone"]
