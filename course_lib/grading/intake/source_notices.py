"""Collect remarks on a submission's sources for the instructor. No points depend on them."""

import ast
import functools
import re
from collections.abc import Iterator, Sequence

import numpy as np
from nbformat import NotebookNode

from course_lib.checks.observe.cells import parse_cell
from course_lib.exercises import find
from course_lib.grading.cell_kinds import ANSWER, grade_id, is_theirs

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
# Functions that compute without torch operations, which the cost meter cannot see.
_UNMETERED = re.compile(r"\bnp\.\w+|\bnumpy\b|\.tolist\b|\bmath\.(?:exp|tanh)\b")
_TURNED = re.compile("[\u202a-\u202e\u2066-\u2069]")
_MOST_NAMED = 6
_STUB = "NotImplementedError"


def source_notices(notebook: NotebookNode) -> list[str]:
    """Return notes on a rebuilt notebook: names that an answer should not use, by cell."""
    found = []
    ours = (cell.source for cell in notebook.cells if not is_theirs(cell))
    lessons = {word for source in ours for word in _named(source)}
    for cell in [cell for cell in notebook.cells if is_theirs(cell)]:
        name, source = grade_id(cell).removesuffix(ANSWER), cell.source
        where = name or "a cell of the student's own"
        if strange := [word for word in _named(source) if word not in lessons]:
            found.append(f"{where}: look at its source, which names {_listed(strange)}")
        if _TURNED.search(source):
            found.append(f"{where}: look at its source, which reads differently than it runs")
        if cell.cell_type == "code":
            nodes = list(ast.walk(parse_cell(source) or ast.Module([], [])))
            if any(map(_has_unreached, nodes)):
                found.append(f"{where}: the code below `raise {_STUB}()` is never reached")
            found += _left_out(name, source, nodes)
    return list(dict.fromkeys(found))


@functools.lru_cache(maxsize=1000)  # most cells are the same for everyone
def _named(source: str) -> tuple[str, ...]:
    """Return the names in a cell's source that an answer should not use, each once."""
    return tuple(dict.fromkeys(found[0] for found in _BUSINESS_OF_OTHERS.finditer(source)))


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words[:_MOST_NAMED])


def _has_unreached(node: ast.AST) -> bool:
    """Return whether a stub's `raise` was left above the answer in a function."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(line, ast.Raise) and _STUB in ast.dump(line) for line in node.body[:-1]
    )


def _left_out(name: str, source: str, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Return notes on forbidden functions, and on calls that escape the cost meter."""
    try:
        exercise = find(name)
    except KeyError:  # extra cell, or an exercise outside the course
        return
    names = {getattr(node, "id", None) or getattr(node, "attr", None) for node in nodes}
    for word in sorted(exercise.forbidden.keys() & names):
        yield f"{name}: names `{word}`, which this exercise leaves out"
    unmetered = list(dict.fromkeys(found[0] for found in _UNMETERED.finditer(source)))
    if unmetered and _is_metered(name):
        yield f"{name}: look at its source: what {_listed(unmetered)} spends is not measured"


@functools.cache
def _is_metered(exercise: str) -> bool:
    return any(probe.at_most for probe in find(exercise).probes(np.random.default_rng(0)))
