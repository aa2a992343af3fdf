"""The student's own library as files: where, broken, written at once, and when nobody is there."""

import os
import re
import shutil
import sys
import threading
from datetime import date

import pytest
from grading_course import CAUSAL, LENGTH
from library_notebook import KEPT, Notebook, forget, make_course, sit_down, solved_length

from course_lib.notebook import library, library_import
from course_lib.notebook.library_source import needs_of
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
    return course / "my_attention" / "masked_softmax.py"


# --- where it is, and what happens to it ---------------------------------------------------


def test_it_is_beside_the_notebook_where_there_is_no_course(notebook, course):
    (course / "nbgrader_config.py").unlink()
    assert library_import.folder() == course / "notebooks" / "02_masked_softmax" / "my_attention"


def test_it_is_among_the_jupyter_data_where_nothing_can_be_written(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(library_import.os, "access", lambda path, mode: False)
    assert notebook.solve() == KEPT
    place = tmp_path / "data" / "attention-course" / "my_attention"
    assert (place / "masked_softmax.py").is_file()
    forget()
    assert library.own("causal_mask").day == TODAY


def test_where_nothing_can_be_written_a_sentence_says_so(notebook, course):
    (course / "my_attention").write_text("a file where the folder would be")
    assert re.fullmatch(
        rf"{NOT_KEPT}.*masked_softmax\.py cannot be written \(.+\)\.", notebook.solve()
    )


def test_an_interrupted_write_leaves_the_file_before(notebook, file, monkeypatch):
    notebook.solve()
    before = sorted((path.name, path.read_bytes()) for path in file.parent.iterdir())
    notebook.run(f"{CAUSAL}  # better")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(library_import.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notebook.keep("causal_mask")
    assert before == sorted((path.name, path.read_bytes()) for path in file.parent.iterdir())


def test_two_notebooks_that_write_at_once_both_get_in(notebook, file):
    """The second waits, and begins with what the first wrote."""
    library_import.begin(file.parent)
    said = []
    with only_one(file.parent / ".lock", waiting=lambda: None):
        second = threading.Thread(target=lambda: said.append(notebook.solve()))
        second.start()
        second.join(0.5)
        assert second.is_alive() and not file.exists()
        library_import.write(
            file, f"import torch\n\n# length_mask: full marks on {TODAY}\n{LENGTH}\n"
        )
    second.join()
    assert said == [KEPT] and list(library.kept()) == ["length_mask", "causal_mask"]


def test_what_another_notebook_wrote_is_seen_at_once(notebook, file):
    notebook.solve()
    assert library.own("causal_mask").value(2).tolist() == [[True, False], [True, True]]
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("<=", ">="), encoding="utf-8")  # as long, in the same second
    os.utime(file, ns=(1, 1))
    assert library.own("causal_mask").value(2).tolist() == [[True, True], [False, True]]
    assert not (file.parent / "__pycache__").exists()


BROKEN = {
    b"def causal_mask(:\n": "stops with SyntaxError: ",
    b"import torch\n1 / 0\n": "stops with ZeroDivisionError: division by zero",
    b"exit = 1\nraise SystemExit\n": "stops with SystemExit",
    "# \xfc\n".encode("latin-1"): "is not UTF-8 text",
    b"a = '\0'\n": "stops with ",
    b"from course_lib import no_such_thing\n": "stops with ImportError: ",
}


@pytest.mark.parametrize(("content", "why"), BROKEN.items(), ids=BROKEN.values())
def test_a_broken_file_is_set_aside_with_one_sentence(notebook, file, capsys, content, why):
    notebook.solve()
    content += b"def causal_mask(n):\n    pass\n"
    for number in ("", "2", "3"):
        file.write_bytes(content)
        forget()
        capsys.readouterr()
        assert library.own("causal_mask") is None
        said = capsys.readouterr()
        aside = file.with_name(f"masked_softmax.broken{number}.py")
        assert aside.read_bytes() == content and not file.exists()
        assert said.out.startswith(f"my_attention/masked_softmax.py {why}")
        assert said.out.count("\n") == 1 and said.err == ""
        assert said.out.endswith(f"it is now {aside.name}, and the course's versions are used\n")
    assert notebook.solve() == KEPT


def test_a_file_broken_before_a_check_is_set_aside_by_it(notebook, file, capsys):
    notebook.solve()
    file.write_text("def causal_mask(:", encoding="utf-8")
    assert solved_length(notebook).startswith("length_mask: kept")
    assert "it is now masked_softmax.broken.py" in capsys.readouterr().out
    assert list(library.kept()) == ["length_mask"]


def test_an_answer_survives_that_another_it_uses_breaks(notebook, course, capsys):
    folder = course / "my_attention"
    library_import.begin(folder)
    (folder / "masked_softmax.py").write_text("masked_softmax = 1 / 0")
    (folder / "scaled_dot_product.py").write_text(
        "from my_attention import masked_softmax\nscaled_dot_product_attention = masked_softmax\n"
    )
    value = library.own("scaled_dot_product_attention").value
    assert value.__module__ == "course_lib.attention._masked_softmax"
    assert (folder / "scaled_dot_product.py").exists()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and said[1] == (
        "masked_softmax: not in my_attention, so this is the course's version"
    )


def test_a_broken_start_of_the_package_is_written_anew(notebook, file, capsys):
    notebook.solve()
    file.with_name("__init__.py").write_text("1 / 0")
    forget()
    from my_attention import causal_mask  # noqa: F401

    assert file.with_name("__init__.broken.py").read_text() == "1 / 0"
    assert capsys.readouterr().out.count("\n") == 1


def test_deleting_it_harms_nothing(notebook, file):
    notebook.solve()
    assert library.own("causal_mask")
    shutil.rmtree(file.parent)
    assert library.own("causal_mask") is None and library.kept() == {}
    assert notebook.keep("causal_mask") == KEPT
    assert library.own("causal_mask")


def test_another_package_of_its_name_is_never_shadowed(notebook, tmp_path, monkeypatch, capsys):
    notebook.solve()
    forget()
    (tmp_path / "my_attention.py").write_text("mine = 1")
    monkeypatch.syspath_prepend(tmp_path)
    import my_attention

    assert my_attention.mine == 1
    assert library.own("causal_mask") is None
    assert "something else with this name hides" in capsys.readouterr().out


def test_it_is_found_although_its_folder_is_the_current_one(notebook, course, monkeypatch):
    """There Python itself finds it, and would load it without what sets a broken file aside."""
    notebook.solve()
    forget()
    monkeypatch.chdir(course)
    monkeypatch.syspath_prepend("")
    import my_attention.masked_softmax as module  # noqa: F401

    found = sys.modules["my_attention.masked_softmax"]
    assert type(found.__loader__).__name__ == "_Loader"


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
        from my_attention import causal_mask

        assert causal_mask.__module__ == "course_lib.attention._masked_softmax"


def test_kept_names_are_read_without_running_anything(notebook, file):
    notebook.solve()
    file.write_text(f"1 / 0\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    assert library.kept() == {"causal_mask": TODAY}


def test_what_an_answer_needs_is_asked_only_once():
    """Two functions that call each other."""
    one, two = "def one():\n    return two()", "def two():\n    return one()"
    space = Notebook().run(one, two).space
    found = needs_of("one", space, [one, two], lambda name, value: None)
    assert found.pieces == [("two", two), ("one", one)]
