"""Read Python sources without running them: their imports, their names and a digest.

Digests decide what is executed and graded again. They ignore comments, docstrings and layout, and
cover everything else, including every string and the docstrings of known mistakes, which students
read. Because nothing is imported, the library need not be
the installed one, and the sources can be the cells of a notebook.
"""

import ast
import builtins
import functools
import hashlib
import itertools
import re
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

_BESIDE = re.compile(r"[\"'](\w+\.(?:npz|js))[\"']")
_LINE_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def reached(
    files: Iterable[Path],
    library: Path,
    *,
    sources: Iterable[str] = (),
    skip: Callable[[Path], bool] = lambda path: False,
) -> list[Path]:
    """Return `files` and everything in a library that they and `sources` import, sorted.

    Imports anywhere in a file are followed. A module brings with it the packages around it and the
    data files beside it that it names. A solution imported from `course_lib` or
    `course_lib.attention` leads to the module that defines it, not to the modules of all lessons.

    Args:
        files: the files to begin with.
        library: the folder course_lib.
        sources: further sources to begin with, such as the cells of a notebook.
        skip: returns True for a file to leave out, together with everything that only it imports.
    """
    init = library / "attention" / "__init__.py"
    modules = exported(init.read_text(encoding="utf-8")) if init.is_file() else {}
    solutions = {name: init.with_name(f"{module}.py") for name, module in modules.items()}
    todo = set(files)
    for source in sources:
        todo |= _files_of(source, library, solutions)
    done: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in done or not path.is_file() or skip(path):
            continue
        done.add(path)
        # `course_lib/__init__.py` imports names only when they are first used.
        if path.suffix == ".py" and path != library / "__init__.py":
            source = path.read_text(encoding="utf-8")
            todo |= _files_of(source, library, solutions)
            todo |= {path.with_name(name) for name in _BESIDE.findall(source)}
    return sorted(done)


def digest_of(files: Iterable[Path], library: Path) -> str:
    """Return a digest of files of a library, without comments, docstrings and layout."""
    digest = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(library).as_posix()
        if path.suffix == ".npz":
            code = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            code = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            code = _read(code)[0]
        elif path.suffix == ".js":  # a script of the figures
            code = _LINE_COMMENT.sub("", code)
        digest.update(f"{name}\0{code}\0".encode())
    return digest.hexdigest()


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _code(tree: ast.Module) -> str:
    """Return the syntax tree as text, without docstrings, the same for every version of Python."""
    written: list[str] = []
    _write(tree, written.append)
    return "".join(written)


def _write(node: object, write: Callable[[str], None]) -> None:
    if isinstance(node, list):
        write("[")
        for item in node:
            _write(item, write)
        write("]")
    elif isinstance(node, ast.AST):
        write(f"({type(node).__name__}")
        for name in node._fields:
            value = None if name in ("ctx", "kind", "type_comment") else getattr(node, name, None)
            if name == "body":
                match value:  # no docstrings
                    case [ast.Expr(ast.Constant(str())), *rest] if _is_documented(node):
                        value = rest
            elif isinstance(node, ast.JoinedStr):
                value = list(_joined(node.values))
            if value is not None and value != []:
                write(f" {name}=")
                _write(value, write)
        write(")")
    else:
        write(repr(node))


def _is_documented(node: ast.AST) -> bool:
    """Return whether a string at the beginning of a body is a docstring that nobody is shown."""
    by = [ast.unparse(one) for one in getattr(node, "decorator_list", ())]
    return isinstance(node, _DOCUMENTED) and "mistake" not in by


def _joined(parts: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Yield the parts of an f-string, with each text between two fields as one constant.

    Versions of Python differ in whether they divide such a text and keep an empty one.
    """
    for is_text, run in itertools.groupby(parts, lambda part: isinstance(part, ast.Constant)):
        if not is_text:
            yield from run
        elif text := "".join(str(part.value) for part in run if isinstance(part, ast.Constant)):
            yield ast.Constant(text)


def _files_of(source: str, library: Path, solutions: Mapping[str, Path]) -> set[Path]:
    """Return the files of a library that a source imports."""
    found: set[Path] = set()
    for dotted in _read(source)[1]:
        package, name = dotted[1:-1], dotted[-1]
        if package in ((), ("attention",)) and name in solutions:
            found.add(solutions[name])
            continue
        for length in range(2, len(dotted) + 1):
            stem = library.joinpath(*dotted[1:length])
            if stem.is_dir():
                found.add(stem / "__init__.py")
                if stem == library / "plotting":  # figures share one style, so all its files count
                    found |= {*stem.glob("*.py"), *stem.glob("*.js")}
            else:
                found.add(stem.with_suffix(".py"))
    return found


@functools.lru_cache(maxsize=1024)  # lessons and bundles share most files
def _read(source: str) -> tuple[str, frozenset[tuple[str, ...]]]:
    """Parse a source once, and return what `_code` and `_imported` find."""
    tree = ast.parse(source)
    return _code(tree), _imported(source, tree)


def _imported(source: str, tree: ast.Module) -> frozenset[tuple[str, ...]]:
    """Return the names that a source imports from course_lib or takes with `carry_on`."""
    found: set[tuple[str, ...]] = set()
    # A walk over all expressions would take most of the time in which sources are read.
    for node in ast.walk(tree) if "carry_on" in source else _statements(tree):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {(*node.module.split("."), alias.name) for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "carry_on":
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            found |= {("course_lib", str(name)) for name in names}
    return frozenset(dotted for dotted in found if dotted[0] == "course_lib")


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, however deeply nested, and what groups them, such as handlers."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # grows during the loop
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            nodes += getattr(node, name, ())


def bound_names(source: str) -> set[str]:
    """Return the names that running `source` binds at module level."""
    table = symtable.symtable(source, "<cell>", "exec")
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}


def global_names(source: str) -> set[str]:
    """Return the global names that `source` uses and does not bind, including built-in names."""
    top = symtable.symtable(source, "<cell>", "exec")
    used = {
        symbol.get_name()
        for table in _tables(top)
        for symbol in table.get_symbols()
        if symbol.is_referenced() and symbol.is_global()
    }
    return used - bound_names(source)


def undefined_names(source: str, known: Iterable[str]) -> list[str]:
    """Return the global names in `source` that are neither defined there, known nor built in."""
    return sorted(global_names(source) - set(known) - set(dir(builtins)))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def exported(init: str) -> dict[str, str]:
    """Map each name that the source of `attention/__init__.py` exports to its module."""
    nodes = [node for node in ast.parse(init).body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: (node.module or "").rpartition(".")[2] for node in nodes for alias in node.names
    }


def attention_init(library: Path, lessons: Iterable[str]) -> str:
    """Return an `attention/__init__.py` that exports only the solutions of these lessons."""
    init = (library / "attention" / "__init__.py").read_text(encoding="utf-8")
    for module in set(exported(init).values()) - {f"_{slug[3:]}" for slug in lessons}:
        names = r"(\([^)]*\)|.*)"
        init = re.sub(rf"from course_lib\.attention\.{module} import {names}\n", "", init)
    return init
