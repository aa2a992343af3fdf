"""Find source code that could falsify the counts of calls, steps, bytes and functions.

The counting takes place in the student's own process, so nothing in that process can vouch for a
count. This module decides from the source alone whether a count is used. It looks for an unknown
import, an attribute that leads to the interpreter or below torch, a computed name, or a replaced
attribute of an object that is not the student's own. `touches` takes a cell's source and returns
plain data. It can therefore run in any process, such as one that a hostile source may kill.
"""

import ast
import functools
import re
from collections.abc import Collection, Iterator, Sequence

from course_lib.checks.observe.cells import as_python, cell_body, parse_cell

_IMPORTS = re.compile(
    r"(collections|einops|matplotlib|numpy\.(linalg|random|typing)|course_lib\.(models|plotting)"
    r"|torch\.(autograd|distributions|func|linalg|nn|optim|special|utils\.(checkpoint|data)))"
    r"(\.\w+)*|abc|bisect|cmath|contextlib|copy"
    r"|course_lib(\.notebook(\.own_tests)?)?|dataclasses|datetime|enum|fractions"
    r"|functools|heapq|IPython\.display|itertools|json|math|my_attention"
    r"|numbers|numpy|operator|os|pprint|random|re|statistics|string|sys|textwrap|time|torch|tqdm"
    r"|typing|warnings"
)
_STARRED = ("cmath", "functools", "itertools", "math", "numpy", "torch", "torch.nn", "typing")
_OF_OS_AND_SYS = re.compile(
    r"os\.(environ|getcwd|path)|sys\.(float_info|maxsize|[gs]etrecursionlimit|version(_info)?)"
)
# Attributes that lead to the interpreter, to files, to other threads or below torch's functions.
_REACH = """
    _C _dynamo _inductor _io _jit_internal _ops _os _python_dispatch _sys _thread ABCMeta
    ag_frame as_subclass asyncio atexit attrgetter bltns builtin_mod builtins checks classes
    codeop collect_env CompilationUnit compile compiler concurrent copyreg cpp_extension
    cr_frame ctypes ctypeslib current_shell DataLoader decorate_methods dis
    DisableTorchFunction distributed dump EnumMeta EnumType export extbuild f2py f_back
    f_builtins f_code f_globals f_locals Formatter ForwardRef from_file fromfile futures fx gc
    get_field get_ipython get_type_hints gi_frame grading hub importlib inspect
    install_import_hook io jaxtyped jit lib library linecache load load_library logging
    make_dataclass measure memmap methodcaller mp multiprocessing NamedTupleMeta open
    open_memmap ops os overrides package parallel pathlib pickle pkgutil posix profiler
    py_sys python_multiprocessing redirect_stderr redirect_stdout reducer reduction run_threaded
    rundocs runstring save savetxt savez savez_compressed set_data setprofile settrace shutil
    signal singledispatch singledispatchmethod socket storage StorageWeakRef stride_tricks
    subprocess sys tb_frame tb_next tempfile threading TMonitor tofile TorchDispatchMode
    TorchFunctionMode traceback types unittest untyped_storage UntypedStorage update_wrapper
    urllib weakref wraps zipfile
"""
_REACHING = frozenset(_REACH.split())
# jaxtyping's types. They evaluate the expressions in a shape.
_SHAPED = re.compile(r"(B?Float|U?Int|Complex)\d*|Bool|Num|Shaped")
_PLAIN_SHAPE = re.compile(r"[\w\s.*#=+-]*")
_BUILTINS = re.compile(
    r"breakpoint|compile|delattr|eval|exec|get_ipython|[gs]etattr|globals|locals|open|os|sys|type"
    r"|vars|wraps"
)
_DUNDER = re.compile(r"__(?!(main|file)__)\w+")
_OPERATORS = "add|sub|mul|matmul|truediv|floordiv|mod|pow|and|or|xor"
_PLAIN_DUNDER = re.compile(
    rf"__(i|r)?({_OPERATORS})__|__(abs|all|bool|call|contains|doc|enter|eq|exit|float|future"
    r"|ge|getitem|gt|hash|init|int|invert|iter|le|len|lt|name|ne|neg|next|post_init|repr|setitem"
    r"|slots|str|version)__"
)
_SHOWING = {"print", "isinstance"}
_MAGIC = re.compile(
    r"get_ipython\(\)\.(run_line_magic\('(matplotlib', '\w*|pip', 'install [^`$;|&]*)'\)"
    r"|system\('(python3? -m )?pip3? install [^`$;|&]*'\)|run_cell_magic\('(html|latex)', .*\))",
    re.DOTALL,
)
_TIMED = re.compile(r"get_ipython\(\)\.run_line_magic\('(time|timeit)', (?P<code>.*)\)")
_OPTIONS = re.compile(r"(-\w+\s*\d*\s+)*")
_STORE = (ast.Store, ast.Del)


@functools.cache
def replaceable() -> frozenset[str]:
    """Return the attributes whose replacement could change how torch or the meter works."""
    import numpy as np
    import torch

    from course_lib.checks.observe.cost_meter import Calls, Steps

    modules = torch, torch.nn.functional, torch.linalg, np
    classes = torch.Tensor, torch.nn.Module, np.ndarray, Calls, Steps
    names = {name for of in (*modules, *classes) for name in dir(of)}
    harmless = {"bias", "data", "grad", "requires_grad", "training", "weight"}
    return frozenset(names | {"alive", "functions", "peak"}) - harmless


def touches(source: str, replaced: Collection[str] | None = None) -> tuple[int, str] | None:
    """Return the number and text of a cell's first line that could change a count, or None.

    A process that should not import torch passes the names of `replaceable` as `replaced`.
    """
    replaced = replaceable() if replaced is None else replaced
    body = cell_body(source)
    above = source[: len(source) - len(body)]
    hides_code = not re.fullmatch(r"(\s*%%[\w \t-]*\n)*", above)
    try:
        tree = parse_cell(source) or ast.parse(as_python(body))
    except SyntaxError:  # the cell does not run
        return None
    except Exception:  # too deeply nested here, though perhaps not in the guest
        tree, hides_code = ast.Module([], []), True
    suspects = _suspects(tree, replaced)
    found = [line + above.count("\n") for line in suspects] + [1] * hides_code
    if not found:
        return None
    lines, number = source.splitlines(), min(found)
    return number, lines[min(number, len(lines)) - 1].strip()


def _suspects(tree: ast.Module, replaced: Collection[str]) -> Iterator[int]:
    """Yield the numbers of the lines whose code could reach the counters."""
    nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    defined = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, _STORE)}
    given = {n.arg for n in nodes if isinstance(n, ast.arg)}
    renamed = {n.asname or n.name for n in nodes if isinstance(n, ast.alias)}
    renamed |= {n.name for n in nodes if isinstance(n, ast.ExceptHandler | ast.MatchAs) and n.name}
    own = defined - stored - given - renamed
    if _SHOWING & (defined | stored | given | renamed):
        yield 1
    private = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, _STORE)}
    private = (private | defined | stored) - _REACHING
    themselves = {id(name) for name in _first_parameters(nodes)}
    harmless = {id(part) for node in nodes for part in _harmless(node, themselves, replaced)}
    for node in nodes:
        match node:
            case _ if id(node) in harmless:
                is_suspect = False
            case ast.Import(names=names):
                is_suspect = not all(_IMPORTS.fullmatch(one.name) for one in names)
                is_suspect |= any(one.asname and _BUILTINS.fullmatch(one.name) for one in names)
            case ast.ImportFrom(module="jaxtyping", names=names):
                is_suspect = not all(_SHAPED.fullmatch(one.name) for one in names)
                is_suspect |= any(one.asname for one in names)
            case ast.ImportFrom(module=module, names=names):
                is_suspect = not _IMPORTS.fullmatch(module or ".") or module in ("os", "sys")
                is_suspect |= any(_leads_away(one.name) for one in names if not _is_wraps(one))
                is_suspect |= names[0].name == "*" and module not in _STARRED
            case ast.Attribute(value=owner, attr=word, ctx=context):
                is_own = id(owner) in themselves or (
                    isinstance(owner, ast.Name) and owner.id in own
                )
                is_suspect = _leads_away(word) and not (is_own and word in private)
                is_suspect |= isinstance(context, _STORE) and word in replaced and not is_own
            case ast.Name(id=word):
                is_suspect = bool(_BUILTINS.fullmatch(word)) or _is_odd(word)
                is_suspect |= bool(_SHAPED.fullmatch(word)) and word not in own
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
                is_suspect = _is_odd(word)
            case ast.ClassDef(keywords=keywords):
                is_suspect = bool(keywords)
            case ast.keyword(arg="num_workers") | ast.MatchClass():
                is_suspect = True
            case ast.Constant(value=str(text)):
                is_suspect = "/proc" in text or "/dev/" in text
                is_suspect |= bool(_DUNDER.fullmatch(text)) and _is_odd(text)
            case _:
                is_suspect = False
        if is_suspect:
            yield getattr(node, "lineno", 1)


def _leads_away(word: str) -> bool:
    return word in _REACHING or (word[:1] == "_" and not _PLAIN_DUNDER.fullmatch(word))


def _is_wraps(one: ast.alias) -> bool:
    """Return whether an import binds `wraps` to its name, whose uses are then looked at."""
    return one.name == "wraps" and one.asname is None


def _is_odd(word: str) -> bool:
    return word[:2] == "__" and not _PLAIN_DUNDER.fullmatch(word)


def _first_parameters(nodes: Sequence[ast.AST]) -> Iterator[ast.Name]:
    """Yield the uses of methods' first parameters, such as `self` and `ctx`, unless rebound."""
    for kind in (node for node in nodes if isinstance(node, ast.ClassDef)):
        for method in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
            for first in (method.args.posonlyargs + method.args.args)[:1]:
                used = [n for n in ast.walk(method) if isinstance(n, ast.Name)]
                used = [name for name in used if name.id == first.arg]
                if not any(isinstance(name.ctx, _STORE) for name in used):
                    yield from used


def _harmless(node: ast.AST, themselves: set[int], replaced: Collection[str]) -> Iterator[ast.AST]:
    """Yield parts that are harmless within this expression but would be suspicious alone."""
    for part in _only_shown(node):
        match part:
            case ast.Call(func=ast.Name("type") as kind, args=[_], keywords=[]):
                yield kind
            case ast.Attribute(attr="__class__"):
                yield part
    match node:
        case ast.Attribute(value=ast.Name("os" | "sys"), ctx=ast.Load()):
            if _OF_OS_AND_SYS.fullmatch(ast.unparse(node)):
                yield node.value
        case ast.Call(func=ast.Attribute(value=ast.Name("re"), attr="compile")):
            yield node.func
        case ast.Call(func=ast.Name("wraps") as function, args=[_], keywords=[]):
            yield function
        case ast.Call(func=ast.Attribute(attr="wraps") as function, args=[_], keywords=[]):
            yield function
        case ast.Subscript(value=ast.Name("type")):
            yield node.value
        case ast.Subscript(
            value=ast.Name() as kind, slice=ast.Tuple([_, ast.Constant(str(shape))])
        ):
            if _SHAPED.fullmatch(kind.id) and _PLAIN_SHAPE.fullmatch(shape):
                yield kind
        case ast.Call(func=ast.Name("getattr"), args=[_, name, *_]):
            if _is_plain(name):
                yield node.func
        case ast.Call(func=ast.Name("setattr" | "delattr"), args=[owner, name, *_]):
            if id(owner) in themselves and _is_plain(name):
                yield node.func
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("get_ipython") as start))):
            if not all(isinstance(one, ast.Constant) for one in node.args):
                return
            text = ast.unparse(node)
            timed = _TIMED.fullmatch(text)
            code = ast.literal_eval(timed["code"]) if timed else ""
            code = _OPTIONS.sub("", code, count=1)
            if _MAGIC.fullmatch(text) or (timed and not touches(code, replaced)):
                yield start


def _only_shown(node: ast.AST) -> Sequence[ast.expr | None]:
    """Return expressions that are only compared or printed. The type of a class can make others."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Attribute(value=of, attr="__name__"):
            return [of]
        case ast.FormattedValue(value=of) | ast.Assert(msg=of):
            return [of]
        case ast.Call(func=ast.Name(id=name), args=given) if name in _SHOWING:
            return given
    return []


def _is_plain(name: ast.expr) -> bool:
    """Return whether a name is a harmless literal, or a string that begins with one."""
    match name:
        case ast.Constant(value=str(word)):
            return not _leads_away(word)
        case ast.JoinedStr(values=[ast.Constant(value=str(word)), *_]):
            is_start = any(one.startswith(word) for one in _REACHING)
            return bool(word) and not is_start and not _leads_away(word)
    return False
