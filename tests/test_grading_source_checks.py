"""Notes on sources for a person; the course's own solutions refuse while an answer is observed."""

import ast
from pathlib import Path

import pytest
import torch
from grading_course import CAUSAL
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.attention import causal_mask
from course_lib.authoring.paste import solution_source
from course_lib.checks import exercises
from course_lib.checks.observe import remote
from course_lib.grading.demo_course import SAMPLES
from course_lib.grading.intake.source_checks import source_checks

ROOT = Path(__file__).parents[1]


def notebook(source, name="causal_mask"):
    about = {"nbgrader": {"grade_id": f"{name}-answer", "solution": True}}
    return new_notebook(cells=[new_code_cell(source, metadata=about)])


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import sys\nsys.modules['x'] = 1", "`sys.modules`"),
        ("get_ipython().ast_transformers.append(x)", "`ast_transformers`"),
        ("from course_lib.checks.observe import remote", "`course_lib.checks.observe`"),
        ("from course_lib.attention import masked_softmax", "`course_lib.attention`"),
        ("from course_lib import attention", "`from course_lib import attention`"),
        ("import course_lib.models.whole_game as w", "`course_lib.models.whole_game`"),
        ("import inspect\ninspect.getsource(f)", "`getsource`"),
        ("f.__code__ = g.__code__", "`__code__`"),
        ("import marshal", "`marshal`"),
        ("importlib.import_module(name)", "`importlib`"),
        ("__import__('course' + '_lib')", "`__import__`"),
        ("exec(text)", "`exec`"),
        ("open(folder + '/masked_softmax.py').read()", "`.py`"),
        ("Path(folder, 'masked_softmax.cpython-312.pyc')", "`.pyc`"),
        ("with torch._C._DisableTorchDispatch():\n    pass", "`torch._C`"),
        ("x = 1  # \u202e", "reads differently"),
    ],
)
def test_what_an_answer_has_no_business_with_is_named(source, named):
    (note,) = source_checks(notebook(source))
    assert note.startswith("causal_mask: look at its source") and named in note


@pytest.mark.parametrize("raises", ["raise NotImplementedError()", "raise NotImplementedError"])
def test_code_below_the_stubs_raise_is_noted(raises):
    stub = f"%matplotlib inline\nclass A:\n    def f(self):\n        {raises}\n"
    assert source_checks(notebook(stub)) == []
    (note,) = source_checks(notebook(f"{stub}        return 1"))
    assert note == "causal_mask: the code below `raise NotImplementedError()` is never reached"


def test_what_the_lesson_itself_names_is_everyones_business():
    lesson = new_code_cell("from course_lib.models.numerals import Numerals")
    answered = notebook("from course_lib.models.numerals import english\nmodel.eval()")
    answered.cells.insert(0, lesson)
    assert source_checks(answered) == []
    answered.cells[1].source += "\nfrom course_lib.models.whole_game import meeting"
    (note,) = source_checks(answered)
    assert "names `course_lib.models.whole_game`" in note


@pytest.mark.slow
def test_no_honest_answer_is_noted():
    """The sample class, the solutions, and the right and wrong answers of tests/variants."""
    honest = [path.read_text(encoding="utf-8") for path in SAMPLES.rglob("*.py")]
    honest += [solution_source(name) for name in exercises()]
    for path in (ROOT / "tests" / "variants").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        made = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        honest += [ast.get_source_segment(text, node) for node in made]
    assert len(honest) > 500
    assert [note for text in honest for note in source_checks(notebook(text, "none"))] == []


def test_forbidden_functions_are_named_and_honest_answers_are_not():
    source = "def f(q):\n    return torch.nn.functional.scaled_dot_product_attention(q, q, q)"
    found = [
        note
        for name, exercise in exercises().items()
        if "scaled_dot_product_attention" in exercise.forbidden
        for note in source_checks(notebook(source, name))
    ]
    assert found and all("leaves out" in note for note in found)
    assert source_checks(notebook(CAUSAL)) == []
    assert source_checks(notebook("(" * 100_000)) == []


def test_what_the_meter_does_not_see_is_noted_where_something_is_measured():
    source = "def f(x):\n    return torch.from_numpy(np.tanh(x.numpy()))"
    (note,) = source_checks(notebook(source, "factored_additive_scores"))
    assert note.startswith("factored_additive_scores: look at its source: what `np.tanh`")
    assert source_checks(notebook(source, "causal_mask")) == []
    metered = [name for name in exercises() if exercises()[name].lesson.startswith("08")]
    assert [
        n for name in metered for n in source_checks(notebook(solution_source(name), name))
    ] == []


def test_every_solution_refuses_and_then_works_again():
    import course_lib

    for name in exercises():
        solution = getattr(course_lib, name)
        with remote.courses_versions_refuse([name]), pytest.raises(RuntimeError, match="not yours"):
            next(iter(remote._courses_functions(name)))()
        assert remote._courses_functions(name), solution
    assert torch.equal(causal_mask(1), torch.ones(1, 1, dtype=torch.bool))


def test_odd_sources_are_no_obstacle():
    assert source_checks(notebook("import torch\ntorch.softmax", "no_exercise")) == []
