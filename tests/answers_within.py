"""Which functions and classes of a library are answers to exercises, as they lie there.

`passing(folder, names)` executes all that it finds in `folder/course_lib`, in a process of its own
that can neither write nor start anything. What counts is full marks: a known mistake earns what its
one mistake leaves, and may. An answer that somebody has to write, if only a line, is not found.
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

OURS = Path(__file__).resolve().parent.parent / "course_lib"
JUDGE = ("__init__.py", "workspace", "checks", "exercises", "reference")
SEED = "within"
SECONDS = 0.5  # of processor time, for one call
REFUSED = ("subprocess.", "os.", "shutil.", "socket.", "signal.", "webbrowser.", "ctypes.dlopen")
REFUSED_BUT = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")


def passing(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """Finds the answers that lie in a library.

    Args:
        folder: holds `course_lib`: a bundle unzipped, or what a student's kernel sees.
        names: the exercises to which there should be no answer.

    Returns:
        For each exercise that has any, where its answers lie: "module: path to the object".
    """
    library = folder / "course_lib"
    modules = [_module(path.relative_to(folder)) for path in sorted(library.rglob("*.py"))]
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(library, Path(work, "course_lib"))
        for part in JUDGE:  # the one who judges is ours, whatever lies there
            source, target = OURS / part, Path(work, "course_lib", part)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)
        done = subprocess.run(
            [sys.executable, __file__, json.dumps([modules, list(names)])],
            cwd=work,
            env={**os.environ, "PYTHONPATH": work, "HOME": work, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


# --- in the process that executes what it finds -----------------------------------------


def _loaded(names: Iterable[str]) -> Iterator[ModuleType]:
    for name in names:
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of what is not there
                yield importlib.import_module(name)


def _is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("course_lib")


class Finder:
    """Everything that can be reached from some modules, each thing with the path to it."""

    def __init__(self, modules: Iterable[ModuleType]):
        self.found: list[tuple[str, Any]] = []
        self._seen: dict[int, Any] = {}  # keeps them alive, so that no id comes twice
        self._modules = {module.__name__: module for module in modules}
        for name, module in self._modules.items():
            for key, value in list(vars(module).items()):
                self._reach(f"{name}: {key}", value)
        for path, thing in list(self.found):
            for made in _made_by(thing):
                self._reach(f"{path}()", made)

    def _reach(self, path: str, thing: Any) -> None:
        todo = [(path, thing)]
        while todo:
            path, thing = todo.pop()
            if path.endswith("__") or id(thing) in self._seen or self._is_elsewhere(thing):
                continue
            self._seen[id(thing)] = thing
            if callable(thing):
                self.found.append((path, thing))
            todo += [(f"{path}.{key}", part) for key, part in _parts(thing)]

    def _is_elsewhere(self, thing: Any) -> bool:
        """What is not of this library: the things of torch and NumPy, and those of the judge."""
        if callable(thing) and not isinstance(thing, functools.partial):
            thing = getattr(thing, "__func__", thing)
            kind = thing if isinstance(thing, type | FunctionType) else type(thing)
            return kind.__module__ not in self._modules
        return isinstance(thing, ModuleType)


def _parts(thing: Any) -> Iterator[tuple[Any, Any]]:
    """What a thing is made of."""
    if isinstance(thing, Mapping):
        yield from thing.items()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from enumerate(thing)
    elif isinstance(thing, FunctionType):
        yield from enumerate(thing.__defaults__ or ())
        yield from (thing.__kwdefaults__ or {}).items()
        names = thing.__code__.co_freevars
        for name, cell in zip(names, thing.__closure__ or (), strict=True):
            yield from ((name, part) for part in _content(cell))
    elif isinstance(thing, functools.partial):
        yield from [("func", thing.func), *enumerate(thing.args), *thing.keywords.items()]
    elif isinstance(thing, MethodType):
        yield from [("self", thing.__self__), ("func", thing.__func__)]
    elif isinstance(thing, type):
        for name, value in vars(thing).items():
            is_bound = isinstance(value, classmethod | staticmethod)
            yield name, getattr(thing, name, None) if is_bound else value
    elif _is_ours(type(thing)) or hasattr(thing, "__wrapped__"):
        yield from getattr(thing, "__dict__", {}).items()
        for name in dir(type(thing)):
            if isinstance(getattr(type(thing), name, None), FunctionType):
                yield name, getattr(thing, name)


def _content(cell: CellType) -> list:
    try:
        return [cell.cell_contents]
    except ValueError:  # still empty
        return []


def _made_by(thing: Callable) -> Iterator[Any]:
    """What a factory gives for nothing: no argument, or one empty one."""
    for given in ((), ({},), ((),)):
        if _takes(thing, given, {}):
            try:
                yield in_time(lambda given=given: thing(*given))
            except BaseException:  # whatever it needs
                continue


def _takes(thing: Callable, args: Iterable, kwargs: Mapping) -> bool:
    try:
        inspect.signature(thing).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # it does not say
        pass
    return True


def _fits(probe: Any, thing: Callable) -> bool:
    """Whether a thing takes what it is called with, as far as the scenario says."""
    if probe.construct is not None:
        return _takes(thing, (), probe.construct)
    skipped = {"call": 0, "ask_about_each": 1}.get(probe.scenario)
    return skipped is None or _takes(thing, [*probe.args.values()][skipped:], probe.kwargs)


def in_time(call: Callable[[], Any]) -> Any:
    """What a call gives, or TimeoutError after SECONDS of processor time."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _out_of_time(*_) -> None:
    raise TimeoutError


def _refuse(event: str, arguments: tuple) -> None:
    """Nothing that is executed reaches beyond this process."""
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or (event.startswith(REFUSED) and event not in REFUSED_BUT):
        raise PermissionError(event)


def is_answer(exercise: Any, thing: Any) -> bool:
    """Whether a thing gets full marks; told by the first probe that it fails, in most cases."""
    from course_lib.checks.judge.grade import judge_observed
    from course_lib.checks.judge.prepare import prepare
    from course_lib.checks.judge.violations import judge
    from course_lib.checks.observe.call import observe, observe_all

    if isinstance(thing, type) != exercise.is_class and not exercise.may_be_class:
        return False
    runs = prepare(exercise, SEED)
    for probe, expected in runs:
        if not _fits(probe, thing):
            return False
        try:
            seen = in_time(lambda probe=probe: observe(thing, probe, watched=False))
        except TimeoutError:
            return False
        if judge(exercise, probe, expected, seen):
            return False
    seen = observe_all(thing, [probe for probe, _ in runs])
    report = judge_observed(exercise, SEED, None, seen, name_mistakes=False)
    return report.score == 1.0 or report.findings[0].id == "course_version"


def main(modules: list[str], names: list[str]) -> dict[str, list[str]]:
    """All answers among what the modules hold, by exercise."""
    signal.signal(signal.SIGVTALRM, _out_of_time)
    loaded = list(_loaded(modules))
    from course_lib.exercises import find

    exercises = [find(name) for name in names]
    sys.addaudithook(_refuse)
    found = Finder(loaded).found
    answers = {
        exercise.name: [path for path, thing in found if is_answer(exercise, thing)]
        for exercise in exercises
    }
    return {name: paths for name, paths in answers.items() if paths}


if __name__ == "__main__":
    print(json.dumps(main(*json.loads(sys.argv[1]))))
