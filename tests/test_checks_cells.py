"""A student's notebook, cell by cell: which answer is carried on, and how its cell ended."""

import pickle
import uuid

import pytest
from grading_course import CAUSAL, LENGTH, SETUP, UPPER
from live_notebook import REPORT, live_notebook

import course_lib
from course_lib.checks import exercises
from course_lib.checks.judge.points import UNSEEN, Points
from course_lib.checks.judge.verdict import judge_observed
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


def run(source, *said):
    """Return a step of a story: a cell without a name, and what it must say."""
    return "", source, said


def answer(source, *said):
    """Return a step of a story: the cell of the answer."""
    return "answer", source, said


def check(*said):
    """Return a step of a story: the cell of the check."""
    return "check", 'check("causal_mask")', said


def goes_on(said):
    """Return a step of a story: the cell that takes an answer along."""
    return "next", CARRY_ON, (said,)


FULL = "2 of 2 points"
UNCHECKED = f"{COURSES}yours has not passed its check yet"
STUB = "raise NotImplementedError()"
HEAD = CAUSAL.splitlines()[0]
STORIES = {
    # the answer that is carried on
    "Run All keeps an answer that is right": [
        answer(CAUSAL + "  # mine"),
        *[check(FULL), goes_on(OWN), run("causal_mask.__module__", "'__main__'")] * 2,
    ],
    "a wrong or missing answer gives way, and a check of the course's says so": [
        goes_on(UNCHECKED),
        *[answer(UPPER), check("upper triangular"), goes_on(UNCHECKED)],
        check("nothing of yours to check"),
        *[answer(CAUSAL), check(FULL), goes_on(OWN)],
        *[answer(UPPER), check(), goes_on(UNCHECKED)],
    ],
    "an answer that changed after its check is checked first": [
        *[answer(CAUSAL), check(), answer(UPPER)],
        goes_on(f"{COURSES}yours was redefined after its last check"),
        *[answer(CAUSAL), check(), goes_on(OWN)],
    ],
    "the checked answer comes back after the course's version was imported": [
        *[answer(CAUSAL), check(), run("from course_lib import causal_mask")],
        *[check("nothing of yours to check"), goes_on(OWN)],
    ],
    "a hint touches no answer": [
        *[answer(CAUSAL), check(), run('hint("causal_mask", 1)', "Hint 1 of 3")],
        *[goes_on(OWN), check(FULL)],
    ],
    # the outcome of the cell
    "a syntax error is an error with Python's own line": [
        answer(COLONLESS, "SyntaxError"),
        check(
            "causal_mask: stopped with an error (0 of 2 points)",
            "SyntaxError: expected ':'",
            f"(line 1: `{HEAD[:-1]}`)",
        ),
        *[answer(CAUSAL), check(FULL)],
    ],
    "a misindented line is named": [
        answer(CAUSAL.replace("    return", "  return")),
        check("stopped with an error", "IndentationError", "(line 4: `return torch.arange(m,"),
    ],
    "an error in the signature suggests a name": [
        *[run("Optional = None"), answer(BAD_HEAD)],
        check("NameError: name 'Optoinal' is not defined. Did you mean: 'Optional'? (line 1"),
    ],
    "an earlier definition is not checked in the place of a broken one": [
        *[answer(CAUSAL), check(), answer(COLONLESS)],
        check("0 of 2 points", "expected ':'", "An earlier `causal_mask` is still there; this"),
        *[goes_on(COURSES), check("expected ':'")],
    ],
    "an error below the definition does not hide it": [answer(f"{CAUSAL}\n1 / 0"), check(FULL)],
    "a definition in the cell of the check counts": [
        *[answer(COLONLESS), run(f'{CAUSAL}\ncheck("causal_mask")', FULL)],
    ],
    "a broken trial elsewhere does not hide an answer": [
        *[answer(CAUSAL), run("print(causal_mask(3)"), check(FULL)],
        *[run("causal_mask = causal_mask"), run("causal_mask = causal_mask"), check(FULL)],
    ],
    "a broken trial does not make an attempt": [run("1 / 0"), check("not attempted")],
    "another name is recognized wherever it is": [
        *[run(CAUSAL.replace("causal_mask", "causalmask")), run("1")],
        check("You have `causalmask`; the exercise asks for `causal_mask`."),
        *[run("del causalmask"), check("There is no `causal_mask` yet")],
    ],
    "code below the stub's raise is reported as never run": [
        answer(CAUSAL.replace("\n", f"\n    {STUB}\n", 1)),
        check(f"stands below `{STUB}`, so it never runs"),
        *[answer(f"{HEAD}\n    '''A stub.'''\n    {STUB}"), check("not attempted")],
    ],
    "a cell that calls a stub says which exercise is still to be written": [
        *[run(f"{HEAD}\n    {STUB}"), run("def draw():\n    return causal_mask(3)\n")],
        run("draw()", "NotImplementedError: `causal_mask` is still to be written: do its exercise"),
        *[run("1", "1"), check("not attempted")],
        run("raise NotImplementedError('of torch')", "NotImplementedError: of torch"),
        run(f"def other():\n    {STUB}\n\nother()", "NotImplementedError:"),
    ],
    "another exercise's answer is not taken for a renamed one": [
        *[run(LENGTH), check("There is no `causal_mask` yet")],
    ],
    "Python's suggestion stays": [
        answer(MISSPELT),
        check("has no attribute 'arnage'. Did you mean: 'arange'?"),
    ],
}
# what stops a cell before it binds the name
BROKEN = {
    "from my_masks import causal_mask": "ModuleNotFoundError: No module named 'my_masks'",
    "import functools\ncausal_mask = functools.partial(made)": "NameError: name 'made'",
    "with absent as causal_mask:\n    pass": "NameError: name 'absent'",
    "causal_mask += 1": "NameError: name 'causal_mask'",
    f"@absent\n{CAUSAL}": "NameError: name 'absent'",
    f"try:\n    1 / 0\nfinally:\n    pass\n{CAUSAL}": "ZeroDivisionError",
    "%%time\nfrom my_masks import causal_mask": "(line 1: `from my_masks",
    "%%capture\ncausal_mask = absent": "NameError: name 'absent'",
    "causal_mask = lambda n: torch.ones(n": "SyntaxError",
    "def f():\n    return 1 / 0\n\ncausal_mask = f()": "(line 4: `causal_mask = f()`)",
    "import ast\nast.parse('x = (')\ncausal_mask = 1": "(line 2: `ast.parse('x = (')`)",
}
for source, error in BROKEN.items():
    said = check("causal_mask: stopped with an error", error)
    STORIES[f"stopped: {source.splitlines()[0]} {error}"] = [answer(source), said]


@pytest.mark.parametrize("names", [True, False], ids=["with ids", "without ids"])
@pytest.mark.parametrize("story", STORIES)
def test_what_a_check_makes_of_cells(kernel, story, names):
    # Some front ends send no ids of cells.
    kernel.run("for name in ('causal_mask', 'length_mask'): globals().pop(name, None)")
    kernel.run("from course_lib.notebook import _judged_here\n_judged_here.checked.right.clear()")
    for cell, source, expected in STORIES[story]:
        shown = kernel.said(source, f"causal_mask-{cell}" if names and cell else "").strip()
        assert [words for words in expected if words not in shown] == [], (source, shown)


def test_an_error_of_the_course_is_a_sentence_without_a_traceback(kernel):
    raises = "from course_lib.workspace.errors import CourseError\nraise CourseError('run this')"
    (output,) = kernel.run(raises)
    assert (output.ename, output.traceback) == ("CourseError", ["run this"])


def test_an_answer_that_was_renamed_is_recognized_and_no_earlier_one_is_judged(kernel):
    kernel.run(CAUSAL, "causal_mask-answer")
    kernel.run(CAUSAL.replace("causal_mask", "lower_triangle"), "causal_mask-answer")
    said = kernel.said('check("causal_mask")', "causal_mask-check")
    assert "You have `lower_triangle`; the exercise asks for `causal_mask`." in said
    kernel.run("del causal_mask, lower_triangle")


HOSTILE = "<script>alert(1)</script>\n\x1b[31m" + "x" * 10_000


def test_what_a_graded_kernel_says_of_its_cells_is_bounded_and_escaped():
    stopped = judge_observed(find("causal_mask"), "seed", Subject(error=HOSTILE), {})
    assert stopped.outcome == "raised" and stopped.points == 0
    assert "<script>" not in stopped.html() and len(stopped.text()) < 1000
    others = (HOSTILE, "causalmask " * 50, "`causal_mask`", "length_mask", "")
    renamed = judge_observed(find("causal_mask"), "seed", Subject(others=others), {})
    assert renamed.outcome == "not_attempted"
    assert renamed.findings[0].message == "There is no `causal_mask` yet."


# --- the number below the report -----------------------------------------------------------


def test_points_are_a_float_that_shows_no_number():
    points = course_lib.check("causal_mask", lambda n, num_keys=None: None)
    assert isinstance(points, float) and type(points) is Points and points == 0.0
    assert type(points + 1) is float and type(pickle.loads(pickle.dumps(points))) is float
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


def test_a_check_corrects_the_line_of_the_cell_below_and_a_console_gets_text(tmp_path):
    with live_notebook(tmp_path, someone=True) as notebook:
        notebook.run(SETUP.replace("check, hint", "carry_on, check, hint"))
        (line,) = notebook.run(CARRY_ON, "causal_mask-next")
        assert line.data["text/plain"] == f"{COURSES}yours has not passed its check yet"
        notebook.run(CAUSAL, "causal_mask-answer")
        (report,) = notebook.run('check("causal_mask")', "causal_mask-check")
        assert notebook.updates == [OWN]
        # A console sends no ids of cells, but someone can answer there.
        text, points = notebook.run('check("causal_mask")')
    assert text.data["text/plain"].startswith("✓ causal_mask: correct  (2 of 2 points)")
    assert points.data["text/plain"] == "2.0"
    page = report.data["text/html"]
    assert f"You have built 1 of the {len(exercises())} parts of your Transformer." in page
    assert "helps to exclude the keys" in page and "kept in your own library" in page
    assert page.endswith("</script>") and report.data["text/plain"] == "2.0"
