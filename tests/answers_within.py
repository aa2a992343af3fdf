"""Find the functions and classes of a library that are answers to exercises.

`passing({folder: names})` tries everything in the modules and classes of `folder/course_lib`, in a
process of its own that can neither write files nor start processes. Only full marks count, because
known mistakes may earn partial credit.
"""

import contextlib
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from waiting import at_most

SEED = "within"
CPU_SECONDS = 0.5  # for one call
REFUSED = ("subprocess.", "os.", "shutil.", "socket.", "signal.", "webbrowser.", "ctypes.dlopen")
REFUSED_BUT = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")


def passing(wanted: dict[Path, Iterable[str]]) -> list[dict[str, list[str]]]:
    """Return, for each folder, the exercises to which its `course_lib` has answers, and where."""
    tasks = []
    for folder, names in wanted.items():
        modules = [
            ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            for path in sorted(folder.glob("course_lib/**/*.py"))
            if path.stem != "__main__"
        ]
        tasks.append([str(folder), modules, list(names)])
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(tasks)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- in the process that executes what it finds -----------------------------------------


def _held_by(names: list[str]) -> dict[str, Any]:
    """Return everything that the modules and their classes define."""
    found = {}
    for name in names:
        with contextlib.suppress(ImportError):  # modules that a bundle lacks
            module = importlib.import_module(name)
            for key, value in list(vars(module).items()):
                if callable(value) and getattr(value, "__module__", None) == name:
                    found[f"{name}: {key}"] = value
                    for part in vars(value) if isinstance(value, type) else ():
                        found[f"{name}: {key}.{part}"] = getattr(value, part, None)
    return {path: thing for path, thing in found.items() if callable(thing)}


def _fits(probe: Any, thing: Any) -> bool:
    """Return whether an object accepts the arguments of the call, as far as the scenario tells."""
    args, kwargs = (), probe.construct
    if kwargs is None:
        skipped = {"call": 0, "ask_about_each": 1}.get(probe.scenario)
        if skipped is None:
            return True
        args, kwargs = [*probe.args.values()][skipped:], probe.kwargs
    try:
        inspect.signature(thing).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


def _refuse(event: str, arguments: tuple) -> None:
    """Refuse events that reach beyond this process."""
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or (event.startswith(REFUSED) and event not in REFUSED_BUT):
        raise PermissionError(event)


def is_answer(exercise: Any, thing: Any) -> bool:
    """Return whether an object gets full marks. Usually the first failing probe decides."""
    from course_lib.checks.judge.prepare import prepare
    from course_lib.checks.judge.verdict import judge_observed
    from course_lib.checks.judge.violations import find_violations
    from course_lib.checks.observe.call import observe, observe_all

    if isinstance(thing, type) != exercise.is_class and not exercise.may_be_class:
        return False
    runs = prepare(exercise, SEED)
    for probe, expected in runs:
        if not _fits(probe, thing):
            return False
        try:
            with at_most(CPU_SECONDS):
                seen = observe(thing, probe, watched=False)
        except TimeoutError:
            return False
        if find_violations(exercise, probe, expected, seen):
            return False
    seen = observe_all(thing, [probe for probe, _ in runs])
    report = judge_observed(exercise, SEED, None, seen)
    return report.score == 1.0 or report.findings[0].id == "course_version"


def main(modules: list[str], names: list[str]) -> dict[str, list[str]]:
    """Return all answers in the modules, by exercise."""
    held = _held_by(modules)
    from course_lib.checks.observe import error_messages
    from course_lib.exercises import find

    # Most calls fail. To look for the name that was meant takes long, and it decides nothing.
    error_messages._closest = lambda name, names: ""
    exercises = [find(name) for name in names]
    sys.addaudithook(_refuse)
    answers = {
        exercise.name: [path for path, thing in held.items() if is_answer(exercise, thing)]
        for exercise in exercises
    }
    return {name: paths for name, paths in answers.items() if paths}


if __name__ == "__main__":
    # The processes of all folders share these imports. Optimizers import `torch._dynamo`, which
    # starts processes.
    for module in ("torch._dynamo", "matplotlib.pyplot", "IPython"):
        importlib.import_module(module)
    for folder, *task in json.loads(sys.argv[1]):
        if os.fork() == 0:
            os.chdir(folder)
            sys.path.insert(0, folder)
            with contextlib.redirect_stdout(sys.stderr):
                found = main(*task)
            print(json.dumps(found), flush=True)
            os._exit(0)
        if os.wait()[1]:
            sys.exit(1)
