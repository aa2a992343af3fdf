"""The student's own library: which answers it keeps, and its files."""

import os
import re
import shutil
import sys
from datetime import date
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from grading_course import CAUSAL, UPPER
from library_notebook import KEPT, forget

import course_lib
from course_lib import checks
from course_lib.authoring.paste import solution_source
from course_lib.notebook import own_library

TODAY = "2026-02-03"


@pytest.fixture(autouse=True)
def day(monkeypatch):
    """Set the day, which could otherwise end during a test."""

    class Day(date):
        @classmethod
        def today(cls):
            return cls.fromisoformat(TODAY)

    monkeypatch.setattr("course_lib.notebook.own_library.date", Day)


NOT_KEPT = "causal_mask is not kept in your library: "


@pytest.fixture
def file(own_course):
    return own_course / "my_attention" / "_causal_mask.py"


HELPERS = (
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
TOP = f"# Full marks for causal_mask on {TODAY}\n"
FUTURE = "from __future__ import annotations"


@pytest.mark.parametrize(
    ("cells", "held", "left_out"),
    [
        ([CAUSAL], [f"{TOP}import torch\n\n\n{CAUSAL}\n"], ["Tensor", "math"]),
        (HELPERS, ["\nEPS = 0\n", '\nBIG = float("inf")\n', "\nNAMES = ['a']\n"], ["unused"]),
        (HELPERS, ["compare = torch.le\n", "from torch.nn import functional as F\n"], ["Tensor"]),
        ([FUTURE, UPPER, CAUSAL], [f"{TOP}{FUTURE}\nimport torch\n", CAUSAL], [">="]),
    ],
    ids=["its day and its imports", "constants", "aliases", "the last of two definitions"],
)
def test_an_answer_is_written_readable_with_all_it_needs(notebook, file, cells, held, left_out):
    notebook.run(*cells)
    notebook.cells.append('causal_mask = carry_on("causal_mask")')
    notebook.cells.append("def causal_mask(:  # a trial that never compiled")
    assert notebook.keep("causal_mask") == KEPT
    text = file.read_text(encoding="utf-8")
    assert [words for words in held if words not in text] == [], text
    assert [words for words in left_out if words in text] == [], text


def test_it_is_a_package_that_exports_each_answer(notebook, file):
    names = ("masked_softmax", "length_mask")
    notebook.run(*map(solution_source, names[::-1]))
    assert all("kept in your own" in notebook.keep(name) for name in names)
    text = (file.parent / "__init__.py").read_text(encoding="utf-8")
    assert text.startswith('"""Your own attention library')
    assert text.endswith(
        "\nfrom my_attention._length_mask import length_mask\n"
        "from my_attention._masked_softmax import masked_softmax\n"
    )


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
    magic = SimpleNamespace(run_cell_magic=lambda name, line, body: exec(body, notebook.space))
    notebook.space["get_ipython"] = lambda: magic
    assert notebook.solve(source=source) == KEPT
    assert own_library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]


@pytest.mark.slow
def test_every_answer_of_the_course_can_be_kept(notebook, own_course):
    # The answers, classes too, are as a student who writes the solutions would have them.
    notebook.run(
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
    notebook.run("there = torch.tensor(True)", *cells)
    said = notebook.keep("causal_mask")
    if why:
        assert said.startswith(NOT_KEPT + why) and said.endswith("check again.")
    else:
        assert said == KEPT
    assert "\n" not in said and file.exists() is not bool(why)


def test_a_file_beside_the_notebook_and_an_answer_with_another_name_are_not_kept(notebook, file):
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
    mine = notebook.run(CAUSAL.replace("causal_mask", "mine")).space["mine"]
    said = own_library.keep_answer("causal_mask", mine, notebook.space)
    assert said.startswith(f"{NOT_KEPT}it has another name here")


def test_an_interrupted_write_and_a_wrong_answer_leave_the_file_before(notebook, file, monkeypatch):
    notebook.solve()
    before = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(own_library.os, "replace", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            notebook.solve(source=f"{CAUSAL}  # better")
    notebook.run("there = torch.tensor(True)", f"{CAUSAL} & globals()['there']")
    assert notebook.keep("causal_mask").startswith(NOT_KEPT)
    notebook.run(UPPER)
    assert course_lib.check("causal_mask", notebook.space["causal_mask"]) < 2
    assert file.read_bytes() == before
    names = sorted(path.name for path in file.parent.iterdir() if path.suffix)
    assert names == ["__init__.py", "_causal_mask.py"]


def test_the_same_answer_again_changes_nothing_and_a_previous_version_stays(notebook, file):
    notebook.solve()
    text = file.read_text(encoding="utf-8").replace(TODAY, "2026-01-02")
    file.write_text(text, encoding="utf-8")
    assert notebook.keep("causal_mask") == ""
    assert file.read_text(encoding="utf-8") == text
    file.write_text(f"{text}# by hand\n", encoding="utf-8")
    assert notebook.solve(source=f"{CAUSAL}  # better") == KEPT
    new = file.read_text(encoding="utf-8")
    assert f"Full marks for causal_mask on {TODAY}" in new and "# better" in new
    assert "# by hand" in file.with_name("_causal_mask.before.py").read_text(encoding="utf-8")
    assert list(own_library.kept()) == ["causal_mask"]


def test_lessons_fetched_by_nbgrader_share_one_beside_their_folders(
    notebook, tmp_path, monkeypatch
):
    for lesson in ("02_masked_softmax", "05_scaled_dot_product/work"):
        (tmp_path / "home" / lesson).mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "home" / lesson)
        assert own_library.folder() == tmp_path / "home" / "my_attention"
    monkeypatch.chdir(tmp_path)  # outside a lesson's folder, it is beside the notebook
    assert own_library.folder() == tmp_path / "my_attention"


def test_it_is_among_the_jupyter_data_where_nothing_can_be_written(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(own_library.os, "access", lambda path, mode: False)
    assert notebook.solve() == KEPT
    place = tmp_path / "data" / "attention-course" / "my_attention"
    assert (place / "_causal_mask.py").is_file()
    forget()
    assert own_library.own("causal_mask") and own_library.kept()["causal_mask"] == TODAY


def test_where_nothing_can_be_written_a_sentence_says_so(notebook, own_course):
    (own_course / "my_attention").write_text("a file where the folder would be")
    assert re.fullmatch(rf"{NOT_KEPT}.*my_attention cannot be written \(.+\)\.", notebook.solve())


def test_what_another_notebook_wrote_is_seen_at_once_and_named_without_running(notebook, file):
    notebook.solve()
    assert own_library.own("causal_mask")(2).tolist() == [[True, False], [True, True]]
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("<=", ">="), encoding="utf-8")  # same size, same second
    os.utime(file, ns=(1, 1))
    assert own_library.own("causal_mask")(2).tolist() == [[True, True], [False, True]]
    file.write_text(f"1 / 0\n{text}", encoding="utf-8")
    assert own_library.kept() == {"causal_mask": TODAY}


BROKEN = {
    "def causal_mask(:\n": "_causal_mask.py, line 1, stops with SyntaxError: ",
    "exit = 1\nraise SystemExit\n": "_causal_mask.py, line 2, stops with SystemExit",
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
        rf"length_mask is not kept in your library: {re.escape(why)}", notebook.solve_length()
    )
    assert notebook.solve() == KEPT  # its own check replaces the broken file
    shutil.rmtree(file.parent)
    assert own_library.own("causal_mask") is None and own_library.kept() == {}
    assert notebook.solve_length().startswith("length_mask: kept")


def test_it_neither_grows_nor_counts_where_a_program_runs(notebook, file):
    notebook.solve()
    before = file.read_bytes()
    forget()
    notebook.shell.kernel.get_parent("shell")["content"]["allow_stdin"] = False
    assert notebook.run(f"{CAUSAL}  # better").keep("causal_mask") == ""
    assert own_library.own("causal_mask") is None and file.read_bytes() == before
    own_library.make_importable()
    from my_attention import causal_mask

    assert causal_mask is course_lib.causal_mask
