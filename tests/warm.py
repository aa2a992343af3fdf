"""Run Python programs in forks of one process that has imported torch and nbgrader.

A new process would spend seconds of CPU time on these imports. Apart from them, a fork is like a
new process: it imports the course anew, and has its own arguments, folder, environment and output.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from waiting import PATIENCE

IMPORTED = ("torch._dynamo", "torch.distributed.tensor", "nbgrader.apps", "nbgrader.converters")
IMPORTED += ("jupytext", "matplotlib.pyplot", "nbclient", "IPython", "rich.progress", "typer")


def run(*arguments: object, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS`, and return its exit code and what it wrote.

    The arguments start with `-m MODULE` or with the path of a file.
    """
    command = [str(argument) for argument in arguments]
    if not hasattr(os, "fork"):
        command.insert(0, sys.executable)
        return subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE
        )
    server = _server()
    limit = threading.Timer(PATIENCE, server.kill)
    limit.start()
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        task = {"command": command, "cwd": str(cwd), "env": env, "outputs": [*map(str, outputs)]}
        server.stdin.write(json.dumps(task) + "\n")
        server.stdin.flush()
        code = server.stdout.readline()
        limit.cancel()
        said = [path.read_text("utf-8") for path in outputs if path.exists()]
    assert code, f"{command} took more than {PATIENCE} s, or ended the process that forks: {said}"
    return subprocess.CompletedProcess(command, int(code), *said)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks. It ends when this one closes the pipe or ends."""
    command = [sys.executable, __file__]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    atexit.register(server.communicate)
    return server


def _next_task() -> dict:
    """Return a task in a fork of its own; meanwhile this process waits and prints exit codes."""
    for line in sys.stdin:
        if not (fork := os.fork()):
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), flush=True)
    sys.exit()


def _prepare(command: list[str], cwd: str, env: dict[str, str], outputs: list[str]) -> None:
    for number, path in enumerate([os.devnull, *outputs]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    is_module = command[0] == "-m"
    sys.argv = command[is_module:]
    first = cwd if is_module else str(Path(command[0]).parent)
    sys.path[:1] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    importlib.invalidate_caches()


def _run(command: list[str]) -> int:
    """Run a program as the main one, and return its exit code."""
    try:
        if command[0] == "-m":
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, int | None):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    assert "course_lib" not in sys.modules, "each fork imports the course from its own folder"
    gc.freeze()
    task = _next_task()
    _prepare(**task)
    code = _run(task["command"])
    # A normal end takes half a second to free what is imported. The rest of it is done here.
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)
