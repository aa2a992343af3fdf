"""The answer that a notebook continues with: the session's, the library's or the course's."""

from pathlib import Path

import nbformat
import pytest
from grading_course import CAUSAL, LENGTH, LESSON, QUICK, SETUP, UPPER, hand_in, honest, make_course
from library_notebook import KEPT
from live_notebook import live_notebook

import course_lib
from course_lib import attention
from course_lib.authoring.assemble import assemble
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import solution_source
from course_lib.checks import exercises
from course_lib.exercises import lessons
from course_lib.notebook import _judged_here, own_library
from course_lib.notebook.own_library import shown_day

ROOT = Path(__file__).resolve().parent.parent
OWN = "causal_mask: going on with your own, which passed its check\n"
COURSES = "causal_mask: going on with the course's version; yours has not passed its check yet\n"


@pytest.fixture
def today(notebook):
    notebook.solve()
    return shown_day(own_library.kept()["causal_mask"])


def test_a_check_keeps_what_it_found_right_and_says_so_once(notebook, capsys):
    notebook.run("W = torch.ones(1)", f"{CAUSAL} * bool(W > 0)")
    assert _judged_here.check("causal_mask") == 2
    assert "causal_mask is not kept in your library: it uses `W`" in capsys.readouterr().out
    notebook.run(CAUSAL)
    for said in (f"\n{KEPT}\n", "", ""):
        assert _judged_here.check("causal_mask") == 2
        built = f"You have built 1 of the {len(exercises())} parts of your Transformer. "
        built += "`course_lib.progress()` shows them."
        assert capsys.readouterr().out.endswith(f"{built}\n{said}")
    notebook.run(f"{CAUSAL}  # newer")
    _judged_here.check("causal_mask")
    capsys.readouterr()
    assert _judged_here.carry_on("causal_mask") is notebook.space["causal_mask"]
    assert capsys.readouterr().out == OWN


def test_then_comes_the_library_and_then_the_course(notebook, today, capsys):
    found = _judged_here.carry_on("causal_mask")
    assert found.__module__ == "my_attention._causal_mask"
    own = f"causal_mask: going on with your own from my_attention ({today})\n"
    assert capsys.readouterr().out == own
    notebook.run(UPPER)
    _judged_here.check("causal_mask")
    capsys.readouterr()
    assert _judged_here.carry_on("causal_mask") is found and capsys.readouterr().out == own
    (own_library.folder() / "_causal_mask.py").unlink()
    assert _judged_here.carry_on("causal_mask") is course_lib.causal_mask
    assert capsys.readouterr().out == COURSES


def test_several_names_give_a_tuple_and_one_line(notebook, today, capsys):
    mine, theirs, other = _judged_here.carry_on("causal_mask", "masked_softmax", "bmm")
    assert mine.__module__ == "my_attention._causal_mask"
    assert (theirs, other) == (course_lib.masked_softmax, course_lib.bmm)
    assert capsys.readouterr().out == (
        f"Going on with your own causal_mask from my_attention ({today}); "
        "the course's masked_softmax, bmm\n"
    )
    assert _judged_here.carry_on("bmm", "bmm_loops") == (course_lib.bmm, course_lib.bmm_loops)
    assert capsys.readouterr().out == "Going on with the course's bmm, bmm_loops\n"
    with pytest.raises(ValueError, match='did you mean "bmm"'):
        _judged_here.carry_on("causal_mask", "bmmm")


def test_a_check_judges_its_exercise_alone(notebook, own_course, capsys):
    # Meanwhile, the course's version replaces answers of earlier lessons, as in grading.
    notebook.run(*map(solution_source, ("length_mask", "masked_softmax")))
    notebook.keep("masked_softmax")
    file = own_course / "my_attention" / "_masked_softmax.py"
    text = file.read_text(encoding="utf-8").replace("def masked_softmax(", "def right(")
    file.write_text(text + "\n\ndef masked_softmax(*arguments):\n    raise ZeroDivisionError\n")
    notebook.space["masked_softmax"] = broken = _judged_here.carry_on("masked_softmax")
    with pytest.raises(ZeroDivisionError):
        broken(1)
    notebook.run(solution_source("scaled_dot_product_attention"))
    assert _judged_here.check("scaled_dot_product_attention") == 8
    assert notebook.space["masked_softmax"] is broken
    assert (
        "in a file of its own `scaled_dot_product_attention` gets 0 of" in capsys.readouterr().out
    )


def test_a_bundle_without_the_course_s_version_goes_on_with_the_library_s(
    notebook, today, monkeypatch, capsys
):
    for name in lessons()["02_masked_softmax"].exercises:
        monkeypatch.delattr(attention, name)
    found = course_lib.causal_mask
    assert found.__module__ == "my_attention._causal_mask"
    assert capsys.readouterr().out == (
        f"causal_mask: going on with your own from my_attention ({today})\n"
    )
    assert _judged_here.carry_on("causal_mask") is found
    with pytest.raises(ImportError, match="this bundle leaves out the course's length_mask"):
        _judged_here.own_version("length_mask")
    notebook.run(*map(solution_source, ("length_mask", "masked_softmax")))
    said = notebook.keep("masked_softmax")
    assert "it uses `length_mask`, which is not in it yet; run its check first" in said
    assert [notebook.keep(n)[-17:] for n in ("length_mask", "masked_softmax")]
    assert len(own_library.kept()) == 3


def _cell(notebook, name):
    return next(cell.source for cell in notebook.cells if cell.get("id") == name)


@pytest.mark.slow
def test_what_is_solved_in_lesson_02_is_yours_in_lesson_05(own_course):
    # In two kernels, one after the other, someone runs the cells that students get.
    release = nbformat.read(ROOT / f"notebooks/{LESSON}/{LESSON}.ipynb", as_version=4)
    lesson = own_course / "notebooks" / "05_scaled_dot_product"
    lesson.mkdir()
    with live_notebook(own_course / "notebooks" / LESSON, someone=True) as first:
        first.run(_cell(release, "setup"))
        for name in ("length_mask", "causal_mask", "masked_softmax"):
            assert "raise NotImplementedError" in _cell(release, f"{name}-answer")
            first.run(solution_source(name), f"{name}-answer")
            said = first.said(_cell(release, f"{name}-check"), f"{name}-check")
            assert f"{name}: kept in your own library, my_attention/_{name}.py" in said
            assert "your own, which passed" in first.said(_cell(release, f"{name}-next"))
        told = first.said("import course_lib\ncourse_lib.progress()")
        assert f"3 of {len(exercises())} answers are in your own library" in told
    later, _ = assemble(LessonTree.at(ROOT), "05_scaled_dot_product")
    with live_notebook(lesson, someone=True) as second:
        said = second.said(_cell(later, "setup")).strip()
        assert said.startswith("masked_softmax: going on with your own from my_attention (")
        assert second.said("masked_softmax.__module__").strip() == "'my_attention._masked_softmax'"
        imported = "from my_attention import length_mask\nlength_mask.__module__"
        assert second.said(imported).strip() == "'my_attention._length_mask'"
    with live_notebook(lesson) as program:  # nbclient, nbval, the build
        said = program.said(_cell(later, "setup")).strip()
        assert said == COURSES.replace("causal_mask", "masked_softmax").strip()
        assert "course_lib.attention" in program.said("masked_softmax.__module__")


TAMPERED = """from pathlib import Path
Path(__file__).with_name("ran").touch()
raise SystemExit
"""
USES_IT = f"""from my_attention import kernel_pooling
from course_lib import carry_on
for one in (kernel_pooling, *carry_on("kernel_pooling", "squared_distances")):
    assert one.__module__ == "course_lib.attention._kernel_pooling"
{CAUSAL}"""


@pytest.fixture
def graded_course(tmp_path):
    """Return a course folder that holds someone's library, which notes when it runs."""
    root = make_course(tmp_path)
    for place in (root, tmp_path / "submitted" / "ada" / LESSON):
        (place / "my_attention").mkdir(parents=True)
        for name in ("__init__.py", "masked_softmax.py"):
            (place / "my_attention" / name).write_text(TAMPERED)
    hand_in(root, "ada", honest(root, causal_mask=USES_IT, length_mask=LENGTH))
    return root


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_course_grade_never_reads_a_library(graded_course):
    from course_lib.grading.driver import grade

    (record,) = grade(graded_course, LESSON, settings=QUICK).students
    assert record.points == 4
    assert list(graded_course.rglob("ran")) == []


@pytest.mark.slow
def test_stock_autograde_never_reads_a_library(graded_course):
    with live_notebook(graded_course / "notebooks" / LESSON, NBGRADER_EXECUTION="autograde") as one:
        one.run(SETUP)
        assert one.said(USES_IT).splitlines() == [
            "Going on with the course's kernel_pooling, squared_distances",
        ]
        assert "2 of 2 points" in one.said('check("causal_mask")')
    assert list(graded_course.rglob("ran")) == []
