"""What a person may want to know about a submission's sources; no points depend on any of it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from nbformat import NotebookNode

from course_lib.exercises import find
from course_lib.grading.graded_cells import ANSWER, grade_id, is_theirs, parsed

_SOLUTIONS = Path(__file__).resolve().parents[2] / "attention"
_BUSINESS_OF_OTHERS = re.compile(
    r"sys\.modules|meta_path|settrace|setprofile|_getframe|addaudithook|get_referrers|get_objects"
    r"|ast_transformers|input_transformers\w*|do_execute|user_ns|_ih\b|run_cell\w*"
    r"|course_lib\.(?:attention|authoring|checks|exercises|fused|grading|models|reference)[\w.]*"
    r"|from course_lib import (?:attention|checks|models)\b|COURSE_\w+|NBGRADER_\w+|gradebook"
    r"|\bbuiltins\b|__builtins__|__subclasses__|\bctypes\b|\bsubprocess\b|\bsocket\b"
    r"|__(?:code|globals|closure|loader|spec|file|import)__|\bCodeType\b|\bco_code\b"
    r"|\b(?:getsource\w*|findsource|linecache|marshal|importlib|pkgutil|runpy|zipimport)\b"
    r"|(?<![.\w])(?:exec|eval|compile)(?=\s*\()|\.pyc?(?=[\"'])|glob\([^)\n]*\.py"
    r"|\btorch\._C\b|_python_dispatch|_disable_current_modes"
    r"|os\.(?:_exit|abort|fork|kill|system|environ|dup2)|/proc/|\.ssh|/etc/(?:passwd|shadow)"
    r"|(?i:ignore (?:all |any )?(?:the )?(?:previous|prior|above) instructions"
    r"|award (?:me )?(?:full|all|maximum) (?:points|marks|credit))"
)
# What computes where no torch operation passes by the meter of bytes and function evaluations.
_UNMETERED = re.compile(r"\bnp\.\w+|\bnumpy\b|\.tolist\b|\bmath\.(?:exp|tanh)\b")
_TURNED = re.compile("[\u202a-\u202e\u2066-\u2069]")
_MOST_NAMED = 6
_STUB = "NotImplementedError"


def source_checks(notebook: NotebookNode) -> list[str]:
    """Notes on a rebuilt notebook: names that an answer has no business with, by cell.

    What the lesson's own cells name is everyone's business.
    """
    found = []
    lessons = {
        word for cell in notebook.cells if not is_theirs(cell) for word in _named(cell.source)
    }
    for cell in [cell for cell in notebook.cells if is_theirs(cell)]:
        own = cell.metadata.get("course", {}).get("own")
        name, where = grade_id(cell).removesuffix(ANSWER), _where(cell)
        if strange := [f"`{word}`" for word in _named(cell.source) if word not in lessons]:
            listed = ", ".join(strange[:_MOST_NAMED])
            found.append(f"{where}: look at its source, which names {listed}")
        if _TURNED.search(cell.source):
            found.append(f"{where}: look at its source, which reads differently than it runs")
        if cell.cell_type == "code" and _has_unreached(cell.source):
            found.append(f"{where}: the code below `raise NotImplementedError()` is never reached")
        if cell.cell_type == "code" and not own:
            found += [
                f"{name}: names `{word}`, which this exercise leaves out"
                for word in _forbidden(name, cell.source)
            ]
            if listed := ", ".join(f"`{word}`" for word in _unmetered(name, cell.source)):
                found.append(f"{name}: look at its source: what {listed} spends is not measured")
    return list(dict.fromkeys(found))


def same_as_course(notebook: NotebookNode, lesson: str) -> list[str]:
    """Exercises whose answer is, but for docstrings and annotations, the course's own solution."""
    ours = _solutions(lesson.partition("_")[2])
    same = []
    for cell in notebook.cells:
        name = grade_id(cell).removesuffix(ANSWER)
        if cell.cell_type == "code" and is_theirs(cell) and name in ours:
            theirs = dict(_definitions(cell.source))
            if theirs.get(name) == ours[name]:
                same.append(name)
    return same


def _where(cell: NotebookNode) -> str:
    return grade_id(cell).removesuffix(ANSWER) or "a cell of the student's own"


def _has_unreached(source: str) -> bool:
    """Whether a stub's `raise` was left above the answer in a function."""
    tree = parsed(source) if _STUB in source else None
    functions = ast.walk(tree) if tree else ()
    return any(
        isinstance(line, ast.Raise) and _STUB in ast.dump(line)
        for function in functions
        if isinstance(function, ast.FunctionDef)
        for line in function.body[:-1]
    )


@functools.lru_cache(maxsize=1000)  # a release's cells are the same for everyone
def _named(source: str) -> tuple[str, ...]:
    """What of the business of others a cell's source names, each once."""
    return tuple(dict.fromkeys(found[0] for found in _BUSINESS_OF_OTHERS.finditer(source)))


def _forbidden(exercise: str, source: str) -> list[str]:
    try:
        forbidden = find(exercise).forbidden
    except KeyError:
        return []
    tree = parsed(source) if forbidden else None
    if tree is None:
        return []
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }
    return sorted(names & forbidden.keys())


def _unmetered(exercise: str, source: str) -> list[str]:
    """What escapes the meter, in an answer that may spend only so much."""
    words = list(dict.fromkeys(found[0] for found in _UNMETERED.finditer(source)))
    return words[:_MOST_NAMED] if words and _is_metered(exercise) else []


@functools.cache
def _is_metered(exercise: str) -> bool:
    try:
        return any(probe.at_most for probe in find(exercise).probes(np.random.default_rng(0)))
    except KeyError:
        return False


@functools.cache
def _solutions(slug: str) -> dict[str, str]:
    path = _SOLUTIONS / f"_{slug}.py"
    return dict(_definitions(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _definitions(source: str) -> Iterator[tuple[str, str]]:
    """Functions and classes at the top level, with what they say but for docstrings and types."""
    tree = parsed(source)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            try:
                yield node.name, ast.dump(_Bare().visit(node))
            except RecursionError:
                continue


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings, decorators and annotations."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._bare(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._bare(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def _bare(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        node.decorator_list = []
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)
