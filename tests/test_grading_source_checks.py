"""Notes on sources for a person; the course's own solutions refuse while an answer is observed."""

import inspect

import pytest
import torch
from grading_course import CAUSAL, LESSON
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.attention import masked_softmax
from course_lib.checks import exercises
from course_lib.checks.observe import remote
from course_lib.grading.source_checks import same_as_course, source_checks


def notebook(source, name="causal_mask"):
    about = {"nbgrader": {"grade_id": f"{name}-answer", "solution": True}}
    return new_notebook(cells=[new_code_cell(source, metadata=about)])


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import sys\nsys.modules['x'] = 1", "`sys.modules`"),
        ("get_ipython().ast_transformers.append(x)", "`ast_transformers`"),
        ("from course_lib.checks.observe import remote", "`course_lib.checks`"),
        ("x = 1  # \u202e", "reads differently"),
    ],
)
def test_what_an_answer_has_no_business_with_is_named(source, named):
    (note,) = source_checks(notebook(source))
    assert note.startswith("causal_mask: look at its source") and named in note


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


def test_an_answer_equal_to_the_solution_is_noticed_whatever_its_docstring():
    ours = inspect.getsource(inspect.unwrap(masked_softmax.causal_mask))
    assert same_as_course(notebook(ours.replace('"""Lets', '"""Mine: lets')), LESSON) == [
        "causal_mask"
    ]
    assert same_as_course(notebook(CAUSAL), LESSON) == []


def test_every_solution_refuses_and_then_works_again():
    import course_lib

    for name in exercises():
        solution = getattr(course_lib, name)
        with remote.courses_versions_refuse([name]), pytest.raises(RuntimeError, match="not yours"):
            next(iter(remote._courses_functions(name)))()
        assert remote._courses_functions(name), solution
    assert torch.equal(masked_softmax.causal_mask(1), torch.ones(1, 1, dtype=torch.bool))
