"""No expression that a lesson prints above an exercise is worth more than half of its points."""

import ast
import builtins
import copy
import itertools
import operator
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

import course_lib.attention
from course_lib.authoring.assemble import assemble
from course_lib.authoring.inputs import Course
from course_lib.authoring.paste import find_solution, solution_path
from course_lib.authoring.student_version import release_files
from course_lib.checks import exercises
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.grade import grade
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import judge
from course_lib.checks.observe.call import observe

ROOT = Path(__file__).resolve().parents[1]
SEED = "above"
SECONDS = 0.5  # of processor time, for one call
FIRST = 3  # an answer that fails all of the first problems, which are plain, earns little
LIBRARIES = "import math\nimport numpy as np\nimport torch\nfrom torch import nn\n" + (
    "from torch.nn import functional as F\nfrom torch.nn.utils.rnn import pad_sequence\n"
)
METHODS = ("forward", "attend")  # what a class computes
TRIVIAL = (ast.Constant, ast.Name, ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue)


@pytest.fixture(scope="module")
def course():
    return Course.at(ROOT)


@pytest.fixture(scope="module", autouse=True)
def limit():
    """Interrupt a call that takes too long."""

    def out_of_time(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, out_of_time)
    yield
    signal.signal(signal.SIGVTALRM, before)


def released(course: Course, slug: str) -> list[NotebookNode]:
    """Return the cells that students get."""
    notebook, _ = assemble(course, slug)
    files = release_files(course, slug, nbformat.writes(notebook))
    return nbformat.reads(files[f"{slug}.ipynb"].decode(), as_version=4).cells


def above(cells: list[NotebookNode], name: str) -> list[str]:
    """Return the code above an exercise: cells, and in texts fenced blocks and code spans."""
    printed = []
    for cell in cells:
        if cell.id == f"{name}-answer":
            return printed
        if cell.cell_type == "code":
            printed.append(cell.source)
        else:
            printed += re.findall(r"```\w*\n(.*?)```", cell.source, flags=re.S)
            printed += re.findall(r"`([^`\n]+)`", cell.source)
    raise AssertionError(f"there is no cell {name}-answer")


class _Insert(ast.NodeTransformer):
    """Replace names by what was assigned to them."""

    def __init__(self, values: dict[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = isinstance(node.ctx, ast.Load) and self.values.get(node.id)
        return found or node


def expressions(printed: list[str]) -> Iterator[ast.expr]:
    """Give each expression once as printed, and with what its block assigned to its names."""
    seen = set()
    for text in printed:
        try:
            tree = ast.parse(text.strip())
        except (SyntaxError, ValueError):
            continue
        for found in (*ast.walk(tree), *_inserted(tree)):
            is_value = isinstance(getattr(found, "ctx", ast.Load()), ast.Load)
            slices = any(isinstance(part, ast.Slice) for part in getattr(found, "elts", ()))
            if not isinstance(found, ast.expr) or isinstance(found, TRIVIAL) or not is_value:
                continue
            as_text = ast.unparse(found)
            if not slices and as_text not in seen and len(as_text) < 1000:
                seen.add(as_text)
                yield found


def _inserted(tree: ast.Module) -> Iterator[ast.expr]:
    for block in ast.walk(tree):
        values: dict[str, ast.expr] = {}
        body = getattr(block, "body", None)
        for statement in body if isinstance(body, list) else []:
            value = getattr(statement, "value", None)
            if not isinstance(value, ast.expr):
                continue
            value = _Insert(values).visit(copy.deepcopy(value))
            yield value
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                values[statement.targets[0].id] = value


def names_in(expression: ast.expr, known: dict[str, Any]) -> list[str]:
    """Return the names, `self.x` among them, that stand for something else in an answer."""
    bound = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and not _reads(n)}
    found = {}
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id not in {*bound, *known, "self", *dir(builtins)}:
            found[node.id] = None
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            found[ast.unparse(node)] = None
    return list(found)


def _reads(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


class _Generalize(ast.NodeTransformer):
    """Replace sizes by names."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        is_size = type(node.value) is int and node.value > 2
        return ast.Name(f"size_{node.value}", ast.Load()) if is_size else node


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._renamed(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return self._renamed(node)

    def _renamed(self, node: ast.expr) -> ast.AST:
        new = self.names.get(ast.unparse(node))
        return ast.parse(new, mode="eval").body if new else node


class Bodies:
    """Make answers to one exercise of expressions."""

    def __init__(self, course: Course, slug: str, name: str, printed: list[str]):
        self.name = name
        self.made: set[str] = set()
        self.known: dict[str, Any] = {}
        exec(LIBRARIES, self.known)
        earlier = itertools.takewhile(lambda other: other != name, exercises())
        self.known |= {other: getattr(course_lib.attention, other) for other in earlier}
        for text in printed:
            self._define(text)
        text = find_solution(name, solution_path(course.library, slug)).plain
        self.tree = ast.parse(text).body[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.arg | ast.FunctionDef):
                setattr(node, "annotation" if isinstance(node, ast.arg) else "returns", None)
        self.function = next(
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef) and node.name in (name, *METHODS)
        )
        arguments = self.function.args
        taken = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self.takes = [name for name in taken if name not in ("self", "ctx")]
        if arguments.vararg:
            self.takes += [f"{arguments.vararg.arg}[{i}]" for i in range(2)]
        attributes = {ast.unparse(n) for n in ast.walk(self.tree) if isinstance(n, ast.Attribute)}
        self.layers = sorted(name for name in attributes if re.fullmatch(r"self\.\w+", name))

    def _define(self, text: str) -> None:
        """Define the functions and classes of a cell, which later ones call."""
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            return
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in self.known:
                for argument in ast.walk(node):
                    if isinstance(argument, ast.arg):
                        argument.annotation = None
                    if isinstance(argument, ast.FunctionDef):
                        argument.returns = None
                try:
                    exec(compile(ast.Module([node], []), "above", "exec"), self.known)
                except NameError:  # what its first line needs is not here
                    continue

    def of(self, expression: ast.expr) -> Iterator[Any]:
        """Give the answers that return this expression, with its names unified in each way."""
        for form in (expression, _Generalize().visit(copy.deepcopy(expression))):
            if form is not expression and ast.unparse(form) == ast.unparse(expression):
                continue
            yield from self._with_names(form)

    def _with_names(self, expression: ast.expr) -> Iterator[Any]:
        names = [name for name in names_in(expression, self.known) if name not in self.layers]
        if not names and not self.layers:  # a constant
            return
        called = {ast.unparse(n.func) for n in ast.walk(expression) if isinstance(n, ast.Call)}
        names.sort(key=lambda name: name in called)
        num_called = sum(name in called for name in names) if self.layers else 0
        ways = itertools.product(
            itertools.permutations(self.takes, len(names) - num_called),
            itertools.permutations(self.layers, num_called),
        )
        for chosen in itertools.starmap(operator.add, ways):
            renamed = _Rename(dict(zip(names, chosen, strict=True))).visit(
                copy.deepcopy(expression)
            )
            if ast.unparse(renamed) in self.made:
                continue
            self.made.add(ast.unparse(renamed))
            self.function.body = [ast.Return(renamed)]
            made = dict(self.known)
            tree = ast.fix_missing_locations(ast.Module([self.tree], []))
            exec(compile(tree, "answer", "exec"), made)
            yield made[self.name]


def worth(exercise: Exercise, answer: Any) -> float:
    """Return the share of the points that an answer earns; 0 if it fails the first problems."""
    for probe, expected in prepare(exercise, SEED)[:FIRST]:
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            seen = observe(answer, probe, watched=False)
        except TimeoutError:
            return 0
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if time.process_time() - begun > 0.8 * SECONDS:  # or the answer caught the interruption
            return 0
        if not judge(exercise, probe, expected, seen):
            return grade(exercise, answer, seed=SEED, naming_seconds=0).score
    return 0


def too_good(course: Course, slug: str, name: str, printed: list[str]) -> dict[str, float]:
    """Return the expressions that earn more than half of the points, each with its share."""
    exercise, bodies = exercises()[name], Bodies(course, slug, name, printed)
    found = {}
    for expression in expressions(printed):
        for answer in bodies.of(expression):
            share = worth(exercise, answer)
            if share > 0.5:
                found[ast.unparse(expression)] = share
    return found


LESSON_OF = {
    name: slug for slug, lesson in Course.at(ROOT).lessons.items() for name in lesson.exercises
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSON_OF)
def test_nothing_printed_above_an_exercise_is_half_an_answer(course, name):
    slug = LESSON_OF[name]
    printed = above(released(course, slug), name)
    assert too_good(course, slug, name, printed) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("length_mask", "real = torch.arange(14) < lens[..., None]"),
        ("batched_scores", "query @ key.mT"),
        ("merge_heads", "rows = heads.transpose(1, 2)\njoined = rows.flatten(2)"),
        ("shift_right", "F.pad(words[:, :-1], (1, 0), value=first)"),
        (
            "EncoderBlock",
            "normed = self.norm_1(a)\nb = a + self.attention(normed, normed, normed, lens)\n"
            "c = b + self.feed_forward(self.norm_2(b))",
        ),
    ],
)
def test_a_solution_with_other_names_is_found(course, name, text):
    assert too_good(course, LESSON_OF[name], name, [text])
