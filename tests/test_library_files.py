"""The student's own library as files: where, broken, written at once, and when nobody is there."""

import os
import re
import shutil
import sys
import threading
from datetime import date

import pytest
from grading_course import CAUSAL
from library_notebook import KEPT, forget, make_course, sit_down, solved_length

import course_lib
from course_lib.notebook import library
from course_lib.workspace.locks import only_one

TODAY = date.today().isoformat()
NOT_KEPT = "causal_mask is not kept in your library: "


@pytest.fixture
def course(tmp_path, monkeypatch):
    yield from make_course(tmp_path, monkeypatch)


@pytest.fixture
def notebook(course, monkeypatch):
    return sit_down(monkeypatch)


@pytest.fixture
def file(course):
    return course / "my_attention" / "_causal_mask.py"


# --- where it is, and what happens to it ---------------------------------------------------


def test_lessons_fetched_by_nbgrader_share_one_beside_their_folders(
    notebook, tmp_path, monkeypatch
):
    home = tmp_path / "home"
    places = []
    for lesson in ("02_masked_softmax", "05_scaled_dot_product/work"):
        (home / lesson).mkdir(parents=True)
        monkeypatch.chdir(home / lesson)
        places.append(library.folder())
    assert places == [home / "my_attention"] * 2


def test_outside_a_lesson_folder_it_is_beside_the_notebook(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert library.folder() == tmp_path / "my_attention"


def test_it_is_among_the_jupyter_data_where_nothing_can_be_written(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(library.os, "access", lambda path, mode: False)
    assert notebook.solve() == KEPT
    place = tmp_path / "data" / "attention-course" / "my_attention"
    assert (place / "_causal_mask.py").is_file()
    forget()
    assert library.own("causal_mask") and library.kept()["causal_mask"] == TODAY


def test_where_nothing_can_be_written_a_sentence_says_so(notebook, course):
    (course / "my_attention").write_text("a file where the folder would be")
    assert re.fullmatch(rf"{NOT_KEPT}.*my_attention cannot be written \(.+\)\.", notebook.solve())


def test_an_interrupted_write_leaves_the_file_before(notebook, file, monkeypatch):
    notebook.solve()
    before = file.read_bytes()
    notebook.run(f"{CAUSAL}  # better")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(library.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notebook.keep("causal_mask")
    assert file.read_bytes() == before
    assert not list(file.parent.glob("_trial*"))


def test_two_notebooks_that_write_at_once_both_get_in(notebook, file):
    """The second check waits for the first."""
    solved_length(notebook)
    said = []
    with only_one(file.parent / ".lock", waiting=lambda: None):
        second = threading.Thread(target=lambda: said.append(notebook.solve()))
        second.start()
        second.join(0.5)
        assert second.is_alive() and not file.exists()
    second.join()
    assert said == [KEPT] and list(library.kept()) == ["length_mask", "causal_mask"]


def test_what_another_notebook_wrote_is_seen_at_once(notebook, file):
    notebook.solve()
    assert library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("<=", ">="), encoding="utf-8")  # as long, in the same second
    os.utime(file, ns=(1, 1))
    assert library.own("causal_mask")(2).tolist() == [[True, True], [False, True]]


BROKEN = {
    "def causal_mask(:\n": "_causal_mask.py, line 1, stops with SyntaxError: ",
    "import torch\n1 / 0\n": "_causal_mask.py, line 2, stops with ZeroDivisionError: division by",
    "exit = 1\nraise SystemExit\n": "_causal_mask.py, line 2, stops with SystemExit",
    "from course_lib import no_such_thing\n": "_causal_mask.py, line 1, stops with ImportError: ",
    "causal_maks = 1\n": "__init__.py, line 7, stops with ImportError: cannot import name",
}


@pytest.mark.parametrize(("content", "why"), BROKEN.items(), ids=BROKEN.values())
def test_a_broken_file_is_named_and_left_alone(notebook, file, capsys, content, why):
    notebook.solve()
    file.write_text(content, encoding="utf-8")
    capsys.readouterr()
    assert library.own("causal_mask") is None
    said = capsys.readouterr()
    assert said.out.startswith(f"my_attention: {why}") and said.err == ""
    assert said.out.endswith(
        "; fix or delete that file. Until then the course's versions are used\n"
    )
    assert said.out.count("\n") == 1 and file.read_text(encoding="utf-8") == content
    assert re.match(
        rf"length_mask is not kept in your library: {re.escape(why)}", solved_length(notebook)
    )
    file.unlink()
    assert solved_length(notebook).startswith("length_mask: kept")


def test_a_check_with_full_marks_replaces_a_broken_file(notebook, file):
    notebook.solve()
    file.write_text("def causal_mask(:\n", encoding="utf-8")
    assert notebook.solve().startswith("causal_mask: kept")
    assert library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]


def test_deleting_it_harms_nothing(notebook, file):
    notebook.solve()
    assert library.own("causal_mask")
    shutil.rmtree(file.parent)
    assert library.own("causal_mask") is None and library.kept() == {}
    assert notebook.keep("causal_mask") == KEPT
    assert library.own("causal_mask")


def test_another_package_with_its_name_is_never_shadowed(notebook, file, tmp_path, capsys):
    notebook.solve()
    forget()
    (tmp_path / "my_attention.py").write_text("mine = 1")
    sys.path.insert(0, str(tmp_path))
    import my_attention

    assert my_attention.mine == 1
    assert library.own("causal_mask") is None
    hides = f"{tmp_path / 'my_attention.py'} has this name too and hides {file.parent}; rename it"
    assert hides in capsys.readouterr().out and sys.modules["my_attention"] is my_attention
    forget()
    (tmp_path / "my_attention.py").write_text("1 / 0 # broken")
    assert library.own("causal_mask") is None
    assert hides in capsys.readouterr().out


# --- nobody there --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["nobody", "grading", "no kernel"])
def test_it_neither_grows_nor_counts_where_a_program_runs(notebook, file, monkeypatch, how):
    notebook.solve()
    before = file.read_bytes()
    forget()
    if how == "nobody":
        notebook.shell.kernel.get_parent("shell")["content"]["allow_stdin"] = False
    elif how == "grading":
        monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    else:
        notebook.shell.kernel = None
    assert notebook.run(f"{CAUSAL}  # better").keep("causal_mask") == ""
    assert library.own("causal_mask") is None and file.read_bytes() == before
    if how != "no kernel":
        library.make_importable()
        from my_attention import causal_mask

        assert causal_mask is course_lib.causal_mask


def test_kept_names_are_read_without_running_anything(notebook, file):
    notebook.solve()
    file.write_text(f"1 / 0\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    assert library.kept() == {"causal_mask": TODAY}
