"""The IPython shell of a guest: a kernel's shell whose outputs are frames instead of messages.

Libraries look at the name of the shell's class to learn where they run, so it has the name of the
class that it extends.
"""

from __future__ import annotations

import builtins
import getpass
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

from ipykernel import zmqshell
from ipykernel.jsonutil import encode_images, json_clean
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from traitlets import Type
from traitlets.config import Config

from course_lib.grading.sandbox.inside.frames import Outlet

outlet = Outlet()
most_output = 1_000_000  # characters of one output, and of what one cell may print
_SHOWN, _LINES = 2_000, 100  # characters that remain of what is longer; lines of a traceback
_AT_ONCE = 100  # writes of a cell that are sent each by itself, so that a crash loses none


class Publisher(DisplayPublisher):
    """Sends what `display` shows."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: object = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **kwargs: Any,
    ) -> None:
        kind = "update" if update else "display"
        name = (transient or {}).get("display_id")
        _send_bundle(kind, data, metadata, display_id=name)

    def clear_output(self, wait: bool = False) -> None:
        outlet.send({"kind": "clear", "wait": bool(wait)})


class Hook(DisplayHook):
    """Sends the value of a cell's last line."""

    def write_output_prompt(self) -> None: ...

    def write_format_data(
        self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None
    ) -> None:
        _send_bundle("result", format_dict, md_dict, count=self.prompt_count)

    def finish_displayhook(self) -> None: ...


class Compiler(CachingCompiler):
    """Registers each cell's file, so that a traceback need not search all modules for it.

    That search would copy 14 MB of the memory that a guest shares with its host.
    """

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        name = super().get_code_name(raw_code, transformed_code, number)
        inspect.modulesbyfile[os.path.normcase(os.path.abspath(name))] = "__main__"
        return name


class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """A kernel's shell without a kernel."""

    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    compiler_class = Type(Compiler)

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        try:
            value = str(evalue)
        except Exception as error:
            value = f"<its message cannot be read: {type(error).__name__}>"
        lines = [line[:_SHOWN] for line in stb[-_LINES:]]
        error = {"ename": etype.__name__, "evalue": value[:_SHOWN], "traceback": lines}
        outlet.send({"kind": "error", **error})

    def enable_gui(self, gui: object = None) -> None: ...

    def set_next_input(self, text: str, replace: bool = False) -> None: ...


def make_shell() -> ZMQInteractiveShell:
    """Return the shell that all guests inherit, with inline figures."""
    config = Config(HistoryManager={"enabled": False})
    no_kernel = SimpleNamespace(eventloop=None, do_shutdown=lambda restart: None)
    shell = ZMQInteractiveShell.instance(config=config, kernel=no_kernel, colors="nocolor")
    shell.run_line_magic("matplotlib", "inline")
    shell.run_line_magic("load_ext", "storemagic")
    builtins.input = _refuse("input()")
    getpass.getpass = _refuse("getpass()")
    sys.breakpointhook = _refuse("breakpoint()")
    os._exit = _by_main_thread_alone(os._exit)
    return shell


def _refuse(what: str) -> Any:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise StdinNotImplementedError(f"{what} is not available during grading")

    return refuse


def _by_main_thread_alone(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """Let other threads end themselves only: a timer must not end whatever cell it hits."""

    def _exit(status: int) -> NoReturn:
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit(status)
        outlet.send({})  # what is held
        leave(status)

    return _exit


class Stream(io.TextIOBase):
    """Sends what is printed; in a process that student code forked it writes to the descriptor."""

    encoding = "UTF-8"
    errors = "replace"

    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor = name, descriptor
        self.written = self.writes = 0

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.written += len(text)
        if self.written > most_output:
            raise OSError(f"more than {most_output:,} characters were printed")
        if outlet.is_open:
            self.writes += 1
            outlet.print(self.name, text, hold=self.writes > _AT_ONCE)
        else:
            os.write(self._descriptor, text.encode("utf-8", "replace"))
        return len(text)

    def close(self) -> None:
        """Stay open: later cells print, too."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor


class NoInput(io.TextIOBase):
    """A standard input that nobody types into."""

    name, encoding = "stdin", "UTF-8"

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        raise StdinNotImplementedError("reading from stdin is not available during grading")

    def read(self, size: int | None = -1, /) -> str:
        return self.readline()

    def fileno(self) -> int:
        return 0


def _send_bundle(
    kind: str, data: dict[str, Any], metadata: dict[str, Any] | None, **more: Any
) -> None:
    clean: Any
    about: Any
    try:
        clean, about = json_clean(encode_images(data)), json_clean(metadata or {})
    except Exception:  # json_clean refuses what JSON cannot hold
        clean, about = {mime: str(content) for mime, content in data.items()}, {}
    for mime, content in clean.items():
        if isinstance(content, str) and len(content) > most_output:
            clean[mime] = f"{content[:_SHOWN]} ... [{len(content):,} characters in all]"
    outlet.send({"kind": kind, "data": clean, "metadata": about, **more})
