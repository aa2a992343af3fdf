"""The student's own library: what goes into it and what does not, and its files."""

import os
import re
import shutil
import subprocess
import sys
import threading
from datetime import date

import pytest
from grading_course import CAUSAL, UPPER
from library_notebook import IMPORTS, KEPT, forget, make_course, sit_down, solved_length

import course_lib
from course_lib import checks
from course_lib.authoring.paste import solution_source
from course_lib.notebook import own_library
from course_lib.notebook.own_library import source_with_needs
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


# --- what is written -----------------------------------------------------------------------


def test_an_answer_is_written_readable_with_its_day_and_its_imports(notebook, file):
    notebook.run(IMPORTS)
    assert notebook.solve() == KEPT
    assert file.read_text(encoding="utf-8") == (
        f"# Full marks for causal_mask on {TODAY}\nimport torch\n\n\n{CAUSAL}\n"
    )


def test_plain_python_imports_it_from_the_folder_above(notebook, file):
    notebook.run(IMPORTS, *_course_sources("length_mask", "masked_softmax"))
    for name in ("masked_softmax", "length_mask"):
        notebook.keep(name)
    code = "import sys, my_attention\nfrom my_attention import length_mask, masked_softmax\n"
    code += "print(masked_softmax.__module__, length_mask.__module__, callable(length_mask))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=file.parent.parent, capture_output=True, text=True
    )
    assert done.stdout == "my_attention._masked_softmax my_attention._length_mask True\n", (
        done.stderr
    )
    from my_attention import length_mask, masked_softmax

    assert callable(masked_softmax) and callable(length_mask)
    text = (file.parent / "__init__.py").read_text(encoding="utf-8")
    assert text.startswith('"""Your own attention library')
    assert text.endswith(
        "\nfrom my_attention._length_mask import length_mask\n"
        "from my_attention._masked_softmax import masked_softmax\n"
    )


def test_helpers_constants_and_aliases_come_along(notebook, file):
    notebook.run(
        IMPORTS,
        "EPS, BIG = 0, float('inf')\nNAMES = ['a']\nunused = 1",
        "def above(n, m, device):\n"
        "    rows = torch.arange(n, device=device)[:, None]\n"
        "    return torch.arange(m, device=device) - rows + EPS",
        "compare = torch.le",
        "def causal_mask(num_queries, num_keys=None, *, device=None):\n"
        "    assert NAMES and BIG > 1\n"
        "    m = num_queries if num_keys is None else num_keys\n"
        "    distance = F.relu(above(num_queries, m, device) - (m - num_queries))\n"
        "    return compare(distance, 0)",
    )
    assert notebook.keep("causal_mask") == KEPT
    text = file.read_text(encoding="utf-8")
    for line in (
        "EPS = 0",
        'BIG = float("inf")',
        "NAMES = ['a']",
        "compare = torch.le",
    ):
        assert f"\n{line}\n" in text
    assert "from torch.nn import functional as F\n" in text
    assert "unused" not in text and "Tensor" not in text


@pytest.mark.parametrize(
    "source",
    [
        CAUSAL.replace("def ", "@torch.no_grad()\ndef ", 1),
        "causal_mask = lambda n, num_keys=None, device=None: "
        "torch.ones(n, n if num_keys is None else num_keys, device=device)"
        ".tril(0 if num_keys is None else num_keys - n).bool()",
        f"import functools\n@functools.cache\n{CAUSAL}",
        CAUSAL.replace("causal_mask", "mine") + "\ncausal_mask = mine",
        f"get_ipython().run_cell_magic('time', '', {CAUSAL!r})",
        f"x = 1; y = 2\n{CAUSAL}  # mine",
    ],
    ids=["decorated", "lambda", "cached", "renamed", "magic", "crowded"],
)
def test_an_answer_may_be_written_in_many_ways(notebook, file, source):
    notebook.space["get_ipython"] = lambda: _Magic(notebook)
    assert notebook.solve(source=source) == KEPT
    assert own_library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]


class _Magic:
    def __init__(self, of):
        self.of = of

    def run_cell_magic(self, name, line, body):
        exec(body, self.of.space)


def test_a_class_may_have_another_name_first(notebook):
    source = solution_source("DotProductAttention").replace("DotProductAttention", "Mine")
    notebook.run(IMPORTS, "from course_lib import masked_softmax", source)
    said = notebook.run("DotProductAttention = Mine").keep("DotProductAttention")
    assert said.endswith("my_attention/_DotProductAttention.py")


def test_a_function_defined_in_two_cells_is_kept_as_it_was_last(notebook, file):
    notebook.run("import torch", UPPER, CAUSAL)
    notebook.cells.append('causal_mask = carry_on("causal_mask")')
    notebook.cells.append("def causal_mask(:  # a trial that never compiled")
    assert notebook.keep("causal_mask") == KEPT
    assert CAUSAL in file.read_text(encoding="utf-8") and ">=" not in file.read_text()


def _course_sources(*names):
    return [solution_source(name) for name in names]


def test_an_answer_takes_others_from_the_library_or_the_course(notebook, course):
    notebook.run(IMPORTS)
    notebook.run(*_course_sources("length_mask", "masked_softmax"))
    notebook.run(*_course_sources("scaled_dot_product_attention"))
    assert "kept in your own" in notebook.keep("masked_softmax")
    first = (course / "my_attention" / "_masked_softmax.py").read_text(encoding="utf-8")
    assert "from course_lib import length_mask\n" in first and "def length_mask" not in first
    assert "kept in your own" in notebook.keep("scaled_dot_product_attention")
    place = course / "my_attention" / "_scaled_dot_product_attention.py"
    other = place.read_text(encoding="utf-8")
    assert "from my_attention._masked_softmax import masked_softmax\n" in other
    assert "course_lib" not in other


@pytest.mark.slow
def test_every_answer_of_the_course_can_be_kept(notebook, course):
    # The answers, classes too, are as a student who writes the solutions would have them.
    notebook.run(
        IMPORTS,
        "import contextlib\nfrom typing import Any\nimport numpy as np",
        "from collections.abc import Callable, Iterable, Iterator, Sequence",
    )
    for name in checks.exercises():
        notebook.run(solution_source(name))
    said = [notebook.keep(name) for name in checks.exercises()]
    assert [line for line in said if "kept in your own library" not in line] == []
    assert list(own_library.kept()) == list(checks.exercises())
    import my_attention

    assert all(hasattr(my_attention, name) for name in checks.exercises())


# --- what is not kept ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["W = torch.ones(3)", f"{CAUSAL} * (W.sum() > 0)"], "it uses `W`, which is neither a"),
        (
            ["layer = nn.ReLU()", f"{CAUSAL} & (layer(1.0 * torch.ones(())) > 0)"],
            "it uses `layer`, which is",
        ),
        ([f"{CAUSAL} & globals()['there']"], "in a file of its own `causal_mask` gets 0 of 2"),
        (["count = 3", f"assert count == 3\n{CAUSAL}\nif count:\n    pass"], ""),
        (
            [f"exec({CAUSAL!r})"],
            "`causal_mask` has no source in a cell of this notebook;",
        ),
    ],
    ids=["tensor", "module", "alone", "fine", "exec"],
)
def test_what_cannot_be_written_down_is_said_in_a_sentence(notebook, file, cells, why):
    notebook.run(IMPORTS, "there = torch.tensor(True)", *cells)
    said = notebook.keep("causal_mask")
    if why:
        assert said.startswith(NOT_KEPT + why) and said.endswith("check again.")
    else:
        assert said == KEPT
    assert "\n" not in said and file.exists() is not bool(why)


def test_a_file_beside_the_notebook_does_not_come_along(notebook, file):
    (file.parent.parent / "notebooks" / "02_masked_softmax" / "my_tools.py").write_text(
        f"import torch\n{CAUSAL}"
    )
    sys.path.insert(0, "")
    try:
        said = notebook.run("from my_tools import causal_mask").keep("causal_mask")
    finally:
        sys.path.remove("")
        sys.modules.pop("my_tools", None)
    assert said.startswith(f"{NOT_KEPT}`causal_mask` has no source in a cell of this notebook")


def test_an_answer_checked_under_another_name_is_not_kept(notebook, file):
    mine = notebook.run("import torch", CAUSAL.replace("causal_mask", "mine")).space["mine"]
    said = own_library.keep("causal_mask", mine, notebook.space)
    assert said == f"{NOT_KEPT}it has another name here; give it its own and check again."


def test_a_version_that_fails_alone_leaves_the_file_before(notebook, file):
    notebook.solve()
    before = file.read_bytes()
    notebook.run("there = torch.tensor(True)", f"{CAUSAL} & globals()['there']")
    assert notebook.keep("causal_mask").startswith(NOT_KEPT)
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir() if path.suffix) == [
        "__init__.py",
        "_causal_mask.py",
    ]


def test_a_wrong_answer_later_leaves_the_kept_one(notebook, file, capsys):
    notebook.solve()
    before = file.read_bytes()
    notebook.run(UPPER)
    assert course_lib.check("causal_mask", notebook.space["causal_mask"]) < 2
    assert file.read_bytes() == before


def test_the_same_answer_again_changes_nothing(notebook, file):
    notebook.solve()
    text = file.read_text(encoding="utf-8").replace(TODAY, "2026-01-02")
    file.write_text(text, encoding="utf-8")
    assert notebook.keep("causal_mask") == ""
    assert file.read_text(encoding="utf-8") == text
    notebook.run(f"{CAUSAL}  # better")
    assert notebook.keep("causal_mask") == KEPT
    assert f"Full marks for causal_mask on {TODAY}" in file.read_text(encoding="utf-8")


def test_the_previous_version_stays_beside_it(notebook, file):
    notebook.solve()
    file.write_text(file.read_text(encoding="utf-8") + "# by hand\n", encoding="utf-8")
    notebook.run(f"{CAUSAL}  # better")
    assert notebook.keep("causal_mask") == KEPT
    assert "# better" in file.read_text(encoding="utf-8")
    assert "# by hand" in file.with_name("_causal_mask.before.py").read_text(encoding="utf-8")
    assert list(own_library.kept()) == ["causal_mask"]


def test_a_future_import_comes_first(notebook, file):
    notebook.run("from __future__ import annotations", "import torch", CAUSAL)
    assert notebook.keep("causal_mask") == KEPT
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[1:3] == ["from __future__ import annotations", "import torch"]


def test_what_an_answer_needs_is_asked_only_once():
    # The answers are two functions that call each other.
    one, two = "def one():\n    return two()", "def two():\n    return one()"
    space = {"one": lambda: 0, "two": lambda: 0}
    found = source_with_needs("one", space, [one, two])
    assert found == f"{two}\n\n\n{one}\n"


# --- where it is, and what happens to it ---------------------------------------------------


def test_lessons_fetched_by_nbgrader_share_one_beside_their_folders(
    notebook, tmp_path, monkeypatch
):
    home = tmp_path / "home"
    places = []
    for lesson in ("02_masked_softmax", "05_scaled_dot_product/work"):
        (home / lesson).mkdir(parents=True)
        monkeypatch.chdir(home / lesson)
        places.append(own_library.folder())
    assert places == [home / "my_attention"] * 2


def test_outside_a_lesson_folder_it_is_beside_the_notebook(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert own_library.folder() == tmp_path / "my_attention"


def test_it_is_among_the_jupyter_data_where_nothing_can_be_written(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(own_library.os, "access", lambda path, mode: False)
    assert notebook.solve() == KEPT
    place = tmp_path / "data" / "attention-course" / "my_attention"
    assert (place / "_causal_mask.py").is_file()
    forget()
    assert own_library.own("causal_mask") and own_library.kept()["causal_mask"] == TODAY


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
        patch.setattr(own_library.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notebook.keep("causal_mask")
    assert file.read_bytes() == before
    assert not list(file.parent.glob("_trial*"))


def test_two_notebooks_that_write_at_once_both_get_in(notebook, file):
    # The second check waits for the first.
    solved_length(notebook)
    said = []
    with only_one(file.parent / ".lock", waiting=lambda: None):
        second = threading.Thread(target=lambda: said.append(notebook.solve()))
        second.start()
        second.join(0.5)
        assert second.is_alive() and not file.exists()
    second.join()
    assert said == [KEPT] and list(own_library.kept()) == ["length_mask", "causal_mask"]


def test_what_another_notebook_wrote_is_seen_at_once(notebook, file):
    notebook.solve()
    assert own_library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("<=", ">="), encoding="utf-8")  # as long, in the same second
    os.utime(file, ns=(1, 1))
    assert own_library.own("causal_mask")(2).tolist() == [[True, True], [False, True]]


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
    assert own_library.own("causal_mask") is None
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
    assert own_library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]


def test_deleting_it_harms_nothing(notebook, file):
    notebook.solve()
    assert own_library.own("causal_mask")
    shutil.rmtree(file.parent)
    assert own_library.own("causal_mask") is None and own_library.kept() == {}
    assert notebook.keep("causal_mask") == KEPT
    assert own_library.own("causal_mask")


def test_another_package_with_its_name_is_never_shadowed(notebook, file, tmp_path, capsys):
    notebook.solve()
    forget()
    (tmp_path / "my_attention.py").write_text("mine = 1")
    sys.path.insert(0, str(tmp_path))
    import my_attention

    assert my_attention.mine == 1
    assert own_library.own("causal_mask") is None
    hides = f"{tmp_path / 'my_attention.py'} has this name too and hides {file.parent}; rename it"
    assert hides in capsys.readouterr().out and sys.modules["my_attention"] is my_attention
    forget()
    (tmp_path / "my_attention.py").write_text("1 / 0 # broken")
    assert own_library.own("causal_mask") is None
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
    assert own_library.own("causal_mask") is None and file.read_bytes() == before
    if how != "no kernel":
        own_library.make_importable()
        from my_attention import causal_mask

        assert causal_mask is course_lib.causal_mask


def test_kept_names_are_read_without_running_anything(notebook, file):
    notebook.solve()
    file.write_text(f"1 / 0\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    assert own_library.kept() == {"causal_mask": TODAY}
