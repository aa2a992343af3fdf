"""No expression printed above an exercise earns more than half, and no text dictates a solution."""

import ast
import builtins
import importlib
import inspect
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from waiting import at_most

from course_lib import attention
from course_lib.authoring.paste import solution_source
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_answer
from course_lib.checks.judge.violations import find_violations
from course_lib.checks.observe.call import materialise, observe
from course_lib.exercises import exercises

ROOT = Path(__file__).parent.parent
MODULES = {"math": math, "np": np, "torch": torch, "nn": nn, "F": F}
BUILTINS = ("abs", "all", "any", "enumerate", "float", "int", "len", "list", "max", "min", "range",
            "sorted", "sum", "tuple", "zip")  # fmt: skip
CODE_IN_TEXT = re.compile(r"```\w*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
NOT_A_VALUE = (ast.Name, ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue)
MOST_NAMES = 4  # in an expression whose names are replaced by parameters
CPU_SECONDS = 0.5  # for one expression
FUNCTIONS = [name for name, exercise in exercises().items() if not exercise.is_class]
HARD = [name for name, one in exercises().items() if one.difficulty == 3 or one.minutes >= 20]
RUN = 6  # consecutive tokens; two texts rarely share so many by chance
MOST = 0.1  # share of a solution's runs, since a statement names the functions to call


@pytest.fixture(scope="module", autouse=True)
def imported_before():
    """Import what optimizers import, because the limit must not interrupt that."""
    importlib.import_module("torch._dynamo")


def cells_above(name: str) -> list[nbformat.NotebookNode]:
    """Return the cells above the answer to an exercise in the student's notebook."""
    lesson = exercises()[name].lesson
    notebook = nbformat.read(ROOT / "notebooks" / lesson / f"{lesson}.ipynb", as_version=4)
    place = [cell.id for cell in notebook.cells].index(f"{name}-answer")
    return notebook.cells[:place]


def code_above(name: str) -> Iterator[str]:
    """Yield the code that the student's notebook shows above an exercise, also in its text."""
    for cell in cells_above(name):
        if cell.cell_type == "code":
            yield cell.source
        else:
            yield from (fenced or span for fenced, span in CODE_IN_TEXT.findall(cell.source))


def best_of(name: str, printed: Iterator[str] | list[str]) -> tuple[float, str]:
    """Return the highest score of an expression taken as the body of an answer, and the body.

    Every name that is no module, builtin or other exercise's function may stand for any
    parameter. Only bodies that solve the first plain problem are graded on all of them.
    """
    exercise, signature = exercises()[name], inspect.signature(getattr(attention, name))
    namespace = MODULES | {each: getattr(builtins, each) for each in BUILTINS}
    namespace |= {other: getattr(attention, other) for other in FUNCTIONS if other != name}
    plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    header = inspect.Signature(plain)
    probe, expected = next(
        (run for run in prepare(exercise, "printed") if run[0].part == "values"),
        prepare(exercise, "printed")[0],
    )
    args = [materialise(value) for value in probe.args.values()]
    kwargs = {key: materialise(value) for key, value in probe.kwargs.items()}
    best = (0.0, "")
    for body in bodies(printed, list(signature.parameters), set(namespace)):
        scope = dict(namespace)
        exec(f"def {name}{header}: return {body}", scope)
        try:
            with at_most(CPU_SECONDS):
                if probe.scenario == "call":  # most bodies fail here at once
                    scope[name](*args, **kwargs)
                solved = not find_violations(exercise, probe, expected, observe(scope[name], probe))
        except Exception:
            continue
        if solved:
            best = max(best, (judge_answer(exercise, scope[name]).score, body))
    return best


def bodies(printed, parameters: list[str], known: set[str]) -> set[str]:
    """Return all expressions in `printed`, with parameters in the place of unknown names."""
    found = set()
    for text in printed:
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a word of the text, a formula, or a magic command
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.expr) or isinstance(node, NOT_A_VALUE):
                continue
            if isinstance(node, ast.Tuple) and any(isinstance(x, ast.Slice) for x in node.elts):
                continue  # the indices of `x[:, 0]`
            names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
            stored = {each.id for each in names if isinstance(each.ctx, ast.Store)}
            free = sorted({each.id for each in names} - stored - known)
            if not 0 < len(free) <= min(MOST_NAMES, len(parameters)):
                continue
            printed_names = [each.id for each in names]
            for chosen in itertools.permutations(parameters, len(free)):
                meaning = dict(zip(free, chosen, strict=True))
                for each, printed_name in zip(names, printed_names, strict=True):
                    each.id = meaning.get(printed_name, printed_name)
                found.add(ast.unparse(node))
            for each, printed_name in zip(names, printed_names, strict=True):
                each.id = printed_name
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_printed_expression_is_the_answer(name):
    score, body = best_of(name, code_above(name))
    assert score <= 0.5, f"the lesson prints `{body}` above {name}"


def test_a_printed_solution_is_found():
    score, body = best_of(
        "batched_scores", ["see above", "q @ k", "weights = (q @ k.mT).softmax(-1)"]
    )
    assert (score, body) == (1, "queries @ keys.mT")


def runs(text: str) -> list[tuple[str, ...]]:
    tokens = re.findall(r"\w+|[^\w\s`]", text)
    return [tuple(tokens[at : at + RUN]) for at in range(len(tokens) - RUN + 1)]


def told(name: str, text: str) -> float:
    """Return the share of a solution's runs of tokens that its statement or hints contain."""
    (definition,) = ast.parse(solution_source(name)).body
    parts = [text, *exercises()[name].hints]
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            parts.append(ast.unparse(node.body.pop(0)))
    known = {run for part in parts for run in runs(part)}
    found = [run in known for line in definition.body for run in runs(ast.unparse(line))]
    return sum(found) / len(found)


@pytest.mark.parametrize("name", HARD)
def test_text_docstrings_and_hints_of_a_hard_exercise_do_not_hold_its_solution(name):
    texts = "\n".join(cell.source for cell in cells_above(name) if cell.cell_type == "markdown")
    _, heading, text = texts.rpartition(f"### Exercise: `{name}`")
    assert heading and told(name, text) <= MOST


def test_a_dictated_line_is_found():
    line = "weights = masked_softmax(scores, valid_lens, mask)"
    assert told("AdditiveAttention", line) > told("AdditiveAttention", "Mask the scores.") + 0.015
