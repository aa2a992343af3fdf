"""A student's notebook, cell by cell: which answer goes on, and what became of its cell."""

import copy
import json
import pickle
import uuid

import pytest
from grading_course import CAUSAL, LENGTH, SETUP, UPPER
from live_notebook import REPORT, live_notebook

import course_lib
from course_lib.checks import exercises
from course_lib.checks.judge.grade import judge_observed
from course_lib.checks.judge.points import UNSEEN, Points
from course_lib.checks.observe import cells
from course_lib.checks.observe.observation import Subject
from course_lib.exercises import find

OWN = "causal_mask: going on with your own, which passed its check"
COURSES = "causal_mask: going on with the course's version; "
CARRY_ON = 'causal_mask = carry_on("causal_mask")'
COLONLESS = CAUSAL.replace("device=None):", "device=None)")
BAD_HEAD = CAUSAL.replace("num_keys=None", "num_keys: Optoinal[int] = None")
MISSPELT = CAUSAL.replace("torch.arange(m,", "torch.arnage(m,")


@pytest.fixture(scope="module")
def kernel():
    with live_notebook() as notebook:
        notebook.run(SETUP.replace("check, hint", "carry_on, check, hint"))
        yield notebook


@pytest.fixture(params=["with ids", "without ids"])
def student(kernel, request):
    """Return a function that runs cells of a fresh notebook, with or without cell ids."""
    kernel.run("for name in ('causal_mask', 'length_mask'): globals().pop(name, None)")
    kernel.run("from course_lib.notebook import _judged_here\n_judged_here.session.right.clear()")
    names = request.param == "with ids"

    def cell(source, name=""):
        return kernel.said(source, name if names else "").strip()

    cell.check = lambda: cell('check("causal_mask")', "causal_mask-check")
    cell.answer = lambda source: cell(source, "causal_mask-answer")
    cell.carry_on = lambda: cell(CARRY_ON, "causal_mask-next")
    return cell


# --- which answer goes on ------------------------------------------------------------------


def test_run_all_keeps_an_answer_that_is_right(student):
    student.answer(CAUSAL + "  # mine")
    for _ in range(2):
        assert "2 of 2 points" in student.check()
        assert student.carry_on() == OWN
        assert student("causal_mask.__module__") == "'__main__'"


def test_a_wrong_or_missing_answer_gives_way_and_a_check_of_the_courses_says_so(student):
    assert student.carry_on() == f"{COURSES}yours has not passed its check yet"
    student.answer(UPPER)
    assert "upper triangular" in student.check()
    assert student.carry_on() == f"{COURSES}yours has not passed its check yet"
    assert "nothing of yours to check" in student.check()
    student.answer(CAUSAL)
    assert "2 of 2 points" in student.check()
    assert student.carry_on() == OWN


def test_an_answer_that_was_broken_again_gives_way(student):
    student.answer(CAUSAL)
    student.check()
    student.answer(UPPER)
    student.check()
    assert student.carry_on() == f"{COURSES}yours has not passed its check yet"


def test_an_answer_that_changed_after_its_check_is_checked_first(student):
    student.answer(CAUSAL)
    student.check()
    student.answer(UPPER)
    assert student.carry_on() == f"{COURSES}yours was redefined after its last check"
    student.answer(CAUSAL)
    student.check()
    assert student.carry_on() == OWN


def test_the_checked_answer_comes_back_after_the_courses_version_was_imported(student):
    student.answer(CAUSAL)
    student.check()
    student("from course_lib import causal_mask")
    assert "nothing of yours to check" in student.check()
    assert student.carry_on() == OWN


def test_a_hint_touches_no_answer(student):
    student.answer(CAUSAL)
    student.check()
    assert "Hint 1 of 3" in student('hint("causal_mask", 1)', "causal_mask-hint")
    assert student.carry_on() == OWN
    assert "2 of 2 points" in student.check()


def test_an_unknown_exercise_is_named_with_the_nearest(student):
    assert 'did you mean "causal_mask"?' in student('carry_on("causal_maks")')


@pytest.mark.slow
def test_stock_grading_goes_on_with_the_courses_version():
    with live_notebook(NBGRADER_EXECUTION="autograde") as notebook:
        notebook.run(SETUP.replace("check, hint", "carry_on, check, hint"))
        notebook.run(CAUSAL)
        assert "2 of 2 points" in notebook.said('check("causal_mask")')
        assert notebook.said(CARRY_ON).strip() == f"{COURSES}each exercise is graded by itself"
        assert "course_lib.attention" in notebook.said("causal_mask.__module__")


# --- what became of the cell ---------------------------------------------------------------


def test_a_syntax_error_is_an_error_with_pythons_own_line(student):
    assert "SyntaxError" in student.answer(COLONLESS)
    report = student.check()
    assert "causal_mask: stopped with an error (0 of 2 points)" in report
    assert "SyntaxError: expected ':'" in report
    assert "(line 1: `def causal_mask(num_queries, num_keys=None, *, device=None)`)" in report
    student.answer(CAUSAL)
    assert "2 of 2 points" in student.check()


def test_a_misindented_line_is_named(student):
    student.answer(CAUSAL.replace("    return", "  return"))
    report = student.check()
    assert "stopped with an error" in report and "IndentationError" in report
    assert "(line 4: `return torch.arange(m," in report


def test_an_error_in_the_signature_is_an_error_and_suggests_a_name(student):
    student("Optional = None")
    student.answer(BAD_HEAD)
    report = student.check()
    assert "stopped with an error" in report
    assert "NameError: name 'Optoinal' is not defined. Did you mean: 'Optional'? (line 1" in report


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("from my_masks import causal_mask", "ModuleNotFoundError: No module named 'my_masks'"),
        ("import functools\ncausal_mask = functools.partial(made)", "NameError: name 'made'"),
        ("for causal_mask in 3:\n    pass", "TypeError"),
        ("with absent as causal_mask:\n    pass", "NameError: name 'absent'"),
        ("print(causal_mask := 1 / 0)", "ZeroDivisionError"),
        ("causal_mask += 1", "NameError: name 'causal_mask'"),
        ("del causal_mask", "NameError: name 'causal_mask'"),
        (f"@absent\n{CAUSAL}", "NameError: name 'absent'"),
        (f"try:\n    1 / 0\nfinally:\n    pass\n{CAUSAL}", "ZeroDivisionError"),
        ("%matplotlib inline\nfrom my_masks import causal_mask", "ModuleNotFoundError"),
        ("%%time\nfrom my_masks import causal_mask", "(line 1: `from my_masks"),
        ("%%capture\ncausal_mask = absent", "NameError: name 'absent'"),
        ("causal_mask = lambda n: torch.ones(n", "SyntaxError"),
        ("def f():\n    return 1 / 0\n\ncausal_mask = f()", "(line 4: `causal_mask = f()`)"),
        ("import ast\nast.parse('x = (')\ncausal_mask = 1", "(line 2: `ast.parse('x = (')`)"),
    ],
)
def test_a_cell_that_stops_before_it_binds_the_name_is_an_error(student, source, error):
    student.answer(source)
    report = student.check()
    assert "causal_mask: stopped with an error" in report
    assert error in report


def test_an_earlier_definition_is_not_checked_in_the_place_of_a_broken_one(student):
    student.answer(CAUSAL)
    student.check()
    student.answer(COLONLESS)
    report = student.check()
    assert "0 of 2 points" in report and "expected ':'" in report
    assert "An earlier `causal_mask` is still there; this check did not use it." in report
    assert student.carry_on().startswith(COURSES)
    assert "expected ':'" in student.check(), "the course's version does not hide the error"


def test_an_error_below_the_definition_does_not_hide_it(student):
    student.answer(f"{CAUSAL}\n1 / 0")
    assert "2 of 2 points" in student.check()


def test_a_definition_in_the_cell_of_the_check_counts(student):
    student.answer(COLONLESS)
    assert "2 of 2 points" in student(f'{CAUSAL}\ncheck("causal_mask")')


def test_a_broken_trial_elsewhere_does_not_hide_an_answer(student):
    student.answer(CAUSAL)
    student("print(causal_mask(3)")
    assert "2 of 2 points" in student.check()
    student("causal_mask = causal_mask")
    student("causal_mask = causal_mask")
    assert "2 of 2 points" in student.check()


def test_a_broken_trial_does_not_make_an_attempt(student):
    student("1 / 0")
    assert "not attempted" in student.check()


def test_another_name_is_recognised_wherever_it_is(student):
    student(CAUSAL.replace("causal_mask", "causalmask"))
    student("1")
    assert "You have `causalmask`; the exercise asks for `causal_mask`." in student.check()
    student("del causalmask")
    assert "There is no `causal_mask` yet" in student.check()


def test_the_only_function_of_the_answers_cell_is_recognised(student):
    student.answer(CAUSAL.replace("causal_mask", "lower_triangle"))
    assert "You have `lower_triangle`; the exercise asks for `causal_mask`." in student.check()
    student("del lower_triangle")


def test_code_below_the_stubs_raise_is_reported_as_never_run(student):
    first, *rest = CAUSAL.splitlines()
    student.answer("\n".join([first, "    raise NotImplementedError()", *rest]))
    shown = student.check()
    assert "stands below `raise NotImplementedError()`, so it never runs" in shown
    assert "not attempted" not in shown
    student.answer(f"{first}\n    '''A stub.'''\n    raise NotImplementedError()")
    assert "not attempted" in student.check()


def test_another_name_beside_the_stub_is_recognised(student):
    student.answer("def causal_mask(num_queries, num_keys=None):\n    raise NotImplementedError()")
    student(CAUSAL.replace("causal_mask", "Causal_Mask"))
    assert "You have `Causal_Mask`; the exercise asks for `causal_mask`." in student.check()
    student("del Causal_Mask")


def test_another_exercises_answer_is_not_taken_for_a_renamed_one(student):
    student(LENGTH)
    assert "There is no `causal_mask` yet" in student.check()


def test_pythons_suggestion_stays(student):
    student.answer(MISSPELT)
    assert "has no attribute 'arnage'. Did you mean: 'arange'?" in student.check()


HOSTILE = "<script>alert(1)</script>\n\x1b[31m" + "x" * 10_000


def test_what_a_graded_kernel_says_of_its_cells_is_bounded_and_escaped():
    stopped = judge_observed(find("causal_mask"), "seed", Subject(error=HOSTILE), {})
    assert stopped.outcome == "raised" and stopped.points == 0
    assert "<script>" not in stopped.html() and len(stopped.text()) < 1000
    others = (HOSTILE, "causalmask " * 50, "`causal_mask`", "length_mask", "")
    renamed = judge_observed(
        find("causal_mask"), "seed", Subject(defined=others[:1], others=others), {}
    )
    assert renamed.outcome == "not_attempted"
    assert renamed.findings[0].message == "There is no `causal_mask` yet."


def test_what_a_notebook_defines_is_listed_without_its_instances():
    space = {"__name__": "there"}
    exec("class A: pass\ndef f(): pass\na = A()\ndef _private(): pass\ng = len", space)
    assert cells.defined_in(space) == ("A", "f")


# --- the number below the report -----------------------------------------------------------


def test_points_are_a_float_that_shows_no_number():
    points = course_lib.check("causal_mask", lambda n, num_keys=None: None)
    assert isinstance(points, float) and type(points) is Points and points == 0.0
    assert type(points + 1) is float and json.dumps(Points(3.3)) == "3.3"
    assert [type(f(Points(3.3))) for f in (copy.copy, copy.deepcopy)] == [float] * 2
    assert type(pickle.loads(pickle.dumps(Points(3.3)))) is float
    assert f"{Points(3.3)} {Points(2)!r}" == "3.3 2.0"
    assert Points(3.3)._repr_mimebundle_() == {"text/plain": "3.3", "text/html": UNSEEN}


def test_one_output_has_the_number_for_nbgrader_and_the_report_for_a_reader(kernel):
    from nbconvert import HTMLExporter
    from nbformat.v4 import new_code_cell, new_notebook
    from nbgrader.utils import determine_grade

    kernel.run(CAUSAL)
    outputs = kernel.run('check("causal_mask")')
    assert [output.output_type for output in outputs] == ["execute_result"]
    assert outputs[-1].data["text/plain"] == "2.0"
    about = {"nbgrader": {"grade": True, "grade_id": "x", "solution": False, "points": 4.0}}
    cell = new_code_cell("", outputs=outputs, metadata=about)
    assert determine_grade(cell) == (2.0, 4.0)
    outputs[-1].data["text/plain"] = mark = uuid.uuid4().hex
    for template in ("classic", "lab", "basic"):
        page, _ = HTMLExporter(template_name=template).from_notebook_node(
            new_notebook(cells=[cell])
        )
        assert "2 of 2 points" in page and mark not in page


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ('check("causal_mask");', ["causal_mask"]),
        ('points = check("causal_mask")\nprint(points)', ["2.0\n", "causal_mask"]),
        ('check("causal_mask")\ncheck("length_mask")', ["causal_mask", "length_mask"]),
        ('[check(name) for name in ("causal_mask", "length_mask")]\n1', None),
        ('check("causal_mask")\n1 / 0', None),
    ],
)
def test_every_check_of_a_cell_shows_its_report(kernel, cell, shown):
    kernel.run(CAUSAL)
    outputs = kernel.run(cell)
    reports = [o.data[REPORT]["exercise"] for o in outputs if REPORT in o.get("data", {})]
    assert reports == [name for name in ("causal_mask", "length_mask") if name in cell]
    if shown:
        assert [o.get("text") or o.data[REPORT]["exercise"] for o in outputs] == shown


def test_a_console_gets_the_report_as_text(tmp_path):
    with live_notebook(tmp_path, someone=True) as console:
        console.run(SETUP)
        console.run(CAUSAL)
        report, points = console.run('check("causal_mask")')
    assert report.data["text/plain"].startswith("✓ causal_mask: correct  (2 of 2 points)")
    assert points.data["text/plain"] == "2.0"


def test_a_check_corrects_the_line_of_the_cell_below(tmp_path):
    with live_notebook(tmp_path, someone=True) as notebook:
        notebook.run(SETUP.replace("check, hint", "carry_on, check, hint"))
        (line,) = notebook.run(CARRY_ON, "causal_mask-next")
        assert line.data["text/plain"] == f"{COURSES}yours has not passed its check yet"
        notebook.run(CAUSAL, "causal_mask-answer")
        (report,) = notebook.run('check("causal_mask")', "causal_mask-check")
        assert notebook.updates == [OWN]
    page = report.data["text/html"]
    assert f"You have built 1 of the {len(exercises())} parts of your Transformer." in page
    assert "helps to exclude the keys" in page and "kept in your own library" in page
    assert page.endswith("</script>") and report.data["text/plain"] == "2.0"
