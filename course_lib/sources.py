"""The course's own source files: what they import, and a digest of what they do.

Digests decide what is executed and graded again. They are blind to comments, docstrings and
layout, and in the checks and exercises to what is only said (`is_said`): a better sentence must not
cost a class its grades. Read from the files, not imported: a library that is not the installed one
can be looked at, and so can the cells of a notebook.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

_BESIDE = re.compile(r"[\"'](\w+\.(?:txt|npz))[\"']")
_LINE_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)
SPEAKING = ("checks", "exercises")  # the parts whose sentences decide nothing


def reached(
    files: Iterable[Path],
    library: Path,
    *,
    sources: Iterable[str] = (),
    found_lazily: Mapping[str, Path] | None = None,
    skip: Callable[[Path], bool] = lambda path: False,
) -> list[Path]:
    """Returns `files` and all of a library that they and some further sources import, sorted.

    Followed are imports wherever they are in a file, and with a module the packages around it and
    the texts and arrays beside it that it names.

    Args:
        files: where to begin.
        library: the folder course_lib.
        sources: of cells in a notebook.
        found_lazily: the files of names that `course_lib` finds when they are first used.
        skip: a file for which this is true is left out, and so is what only it imports.
    """
    lazily = found_lazily or {}
    todo = set(files)
    for source in sources:
        todo |= _files_of(source, library, lazily)
    done: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in done or not path.is_file() or skip(path):
            continue
        done.add(path)
        # `course_lib` itself is lazy: it imports nothing before it is asked.
        if path.suffix == ".py" and path != library / "__init__.py":
            source = path.read_text(encoding="utf-8")
            todo |= _files_of(source, library, lazily)
            todo |= {path.with_name(name) for name in _BESIDE.findall(source)}
    return sorted(done)


def digest_of(files: Iterable[Path], library: Path) -> str:
    """A digest of what files of a library do, whatever they say about it."""
    digest = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(library).as_posix()
        if path.suffix == ".npz":
            code = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            code = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            code = _code(code, name.partition("/")[0] in SPEAKING)
        elif path.suffix == ".js":  # a script of the figures
            code = _LINE_COMMENT.sub("", code)
        digest.update(f"{name}\0{code}\0".encode())
    return digest.hexdigest()


def is_said(text: str, in_pieces: bool = False) -> bool:
    """Whether a string is a sentence for a reader: four words, or two with a full stop.

    Args:
        text: a string of a program.
        in_pieces: it is a piece of an f-string, and one space is enough.
    """
    words = text.split()
    if "->" in text:  # an einsum
        return False
    return (
        len(words) > 3
        or (len(words) > 1 and text.rstrip()[-1:] in ".?!")
        or (in_pieces and " " in text)
    )


@functools.lru_cache(maxsize=1024)
def _code(source: str, is_speaking: bool) -> str:
    """A source as text without comments and docstrings, the same for every version of Python."""
    return "".join(_written(ast.parse(source), is_speaking))


def _written(node: object, is_speaking: bool, in_pieces: bool = False) -> Iterator[str]:
    if isinstance(node, list):
        yield "["
        for item in node:
            yield from _written(item, is_speaking, in_pieces)
        yield "]"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "said" if is_speaking and is_said(node.value, in_pieces) else repr(node.value)
    elif isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(node, _HAVE_DOCSTRINGS) and _starts_with_text(value):
                value = value[1:]
            if value not in (None, []) and name not in ("ctx", "kind", "type_comment"):
                yield f" {name}="
                yield from _written(value, is_speaking, isinstance(node, ast.JoinedStr))
        yield ")"
    else:
        yield repr(node)


_HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _starts_with_text(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)


def _files_of(source: str, library: Path, lazily: Mapping[str, Path]) -> set[Path]:
    """The files of a library that a source imports."""
    found: set[Path] = set()
    for dotted in _imported(source):
        if dotted[1:] and dotted[1] in lazily:
            found.add(lazily[dotted[1]])
            continue
        for length in range(2, len(dotted) + 1):
            stem = library.joinpath(*dotted[1:length])
            if stem.is_dir():
                found.add(stem / "__init__.py")
                if stem == library / "plotting":  # a package of figures, all in one look
                    found |= {*stem.glob("*.py"), *stem.glob("*.js")}
            else:
                found.add(stem.with_suffix(".py"))
    return found


@functools.lru_cache(maxsize=1024)  # eight lessons and their bundles ask for the same files
def _imported(source: str) -> frozenset[tuple[str, ...]]:
    """What a source imports of course_lib, or takes by `carry_on`, each name in its parts."""
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {(*node.module.split("."), alias.name) for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "carry_on":
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            found |= {("course_lib", str(name)) for name in names}
    return frozenset(dotted for dotted in found if dotted[0] == "course_lib")
