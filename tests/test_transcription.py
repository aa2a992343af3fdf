"""A hard exercise is not a dictation: its text does not hold its own solution."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib import checks
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import BEGIN, solution_source
from course_lib.authoring.read import assign_roles, read_cells

ROOT = Path(__file__).resolve().parents[1]
RUN = 6  # tokens in a row that are no coincidence
_TOKEN = re.compile(r"\w+|[^\w\s`]")
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_ENDS = re.compile(r"#{1,3} ")


def statements(course: LessonTree, slug: str) -> dict[str, str]:
    """Return the text of each exercise of a lesson, from heading to check, without its stub."""
    path = course.text(slug)
    cells = read_cells(path.read_text(encoding="utf-8"), course.relative(path))
    found: dict[str, str] = {}
    text = ""
    for part in assign_roles(cells, course, slug):
        if part.role == "check":
            found[part.name], text = text, ""
        elif part.cell.kind == "markdown":
            source = part.cell.source.partition(BEGIN)[0]
            text = source if _ENDS.match(source) else f"{text}\n{source}"
    return found


def told(name: str, text: str) -> float:
    """Return the share of a solution's tokens that stand in a text, its docstring or its hints."""
    definition = ast.parse(solution_source(name)).body[0]
    parts = [text, *checks.exercises()[name].hints, *_docstrings(definition)]
    runs = {run for part in parts for run in _runs(_TOKEN.findall(part))}
    body = [_TOKEN.findall(line) for line in _lines(definition)]
    count = sum(map(len, body))
    return sum(len(_covered(line, runs)) for line in body) / count


def _docstrings(definition: ast.AST) -> Iterator[str]:
    for node in ast.walk(definition):
        if isinstance(node, _DEFINITIONS):
            yield ast.get_docstring(node) or ""


def _lines(definition: ast.AST) -> Iterator[str]:
    """Yield the statements of a body, one a line, without signatures and docstrings."""
    for node in ast.walk(definition):
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not said and not isinstance(node, _DEFINITIONS):
            text = ast.unparse(node)
            yield text.partition("\n")[0] if hasattr(node, "body") else text


def _runs(tokens: list[str]) -> Iterator[tuple[str, ...]]:
    yield from (tuple(tokens[at : at + RUN]) for at in range(len(tokens) - RUN + 1))


def _covered(line: list[str], runs: set[tuple[str, ...]]) -> set[int]:
    return {at + step for at, run in enumerate(_runs(line)) if run in runs for step in range(RUN)}


MOST = 0.3  # of the tokens: calls that a statement must name stand in solutions, too
HARD = [
    name for name, one in checks.exercises().items() if one.difficulty == 3 or one.minutes >= 20
]


@pytest.fixture(scope="module")
def texts():
    course = LessonTree.at(ROOT)
    return {k: v for slug in checks.lessons() for k, v in statements(course, slug).items()}


def test_every_exercise_has_its_text(texts):
    assert texts.keys() == checks.exercises().keys()
    assert all(f"`{name}`" in text for name, text in texts.items())


@pytest.mark.parametrize("name", HARD)
def test_text_docstring_and_hints_of_a_hard_exercise_do_not_hold_its_solution(texts, name):
    assert told(name, texts[name]) <= MOST


def test_what_is_printed_is_found():
    line = "weights = masked_softmax(scores, valid_lens, mask)"
    name = "AdditiveAttention"
    assert told(name, f"Write `{line}`.") > told(name, "Mask the scores.") + 0.05
