"""ipykernel: what a student's kernel does otherwise than the library wants it.

Written against the version below; read this again when ipykernel is updated.
"""

import functools
import importlib
import inspect
import os
import sys
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import stack_data
import zmq
from ipykernel import ipkernel
from ipykernel.compiler import XCachingCompiler
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.utils import PyColorize
from pygments.formatters import terminal256
from pygments.lexer import RegexLexerMeta
from pygments.lexers import get_lexer_by_name
from traitlets.config import Config
from zmq.eventloop.zmqstream import ZMQStream

from course_lib.grading.kernels.guest import NO_FRONT_END

WRITTEN_AGAINST = "7.4.0"


def import_without_debugger() -> None:
    """Kernels have none, and it takes a tenth of a second to import."""
    sys.modules["debugpy"] = cast(Any, None)
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]


def kernel_app(connection_file: str) -> IPKernelApp:
    """A kernel's application, initialised and not yet started."""
    config = Config(HistoryManager={"enabled": False}, Kernel={"_execute_sleep": 0.0})
    app = _App.instance(connection_file=connection_file, capture_fd_output=False, config=config)
    app.initialize([])
    assert app.shell is not None  # made by `initialize`
    # ipykernel asks for a cell's Python, and then IPython does.
    app.shell.transform_cell = functools.lru_cache(maxsize=1)(app.shell.transform_cell)
    return app


class _Compiler(XCachingCompiler):
    """Says of each cell which module it is of: a traceback would look at all of them for that."""

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:
        name = super().get_code_name(raw_code, code, number)
        inspect.modulesbyfile[os.path.normcase(os.path.abspath(name))] = "__main__"
        return name


class _Kernel(IPythonKernel):
    """Without a debugger, and without the list of all modules for one.

    To list a forked process's modules is to copy 14 MB of its parent's memory. A request with
    `NO_FRONT_END` in its metadata is not told what is of use to one alone: that the cell begins,
    and its source once more.
    """

    compiler_class = _Compiler

    def __init__(self, debugpy_stream: ZMQStream, **kwargs: Any) -> None:
        debugpy_stream.close()
        no_modules = SimpleNamespace(modules={}, platform=sys.platform)
        with mock.patch.object(ipkernel, "sys", no_modules):
            super().__init__(**kwargs)

    def _publish_execute_input(self, code: str, parent: dict, execution_count: int) -> None:
        if NO_FRONT_END not in parent["metadata"]:
            super()._publish_execute_input(code, parent, execution_count)

    def _publish_status(self, status: str, channel: str, parent: dict | None = None) -> None:
        request: dict[str, Any] = parent or self.get_parent(channel) or {}
        if status == "idle" or NO_FRONT_END not in request.get("metadata", {}):
            super()._publish_status(status, channel, parent)


class _App(IPKernelApp):
    """Reads no settings and writes no log: in a kernel's folders there are none, nobody reads it.

    One thread reads the shell channel and runs cells. A second one, which ipykernel has for
    subshells, would hand every message over.
    """

    kernel_class = _Kernel

    def init_code(self) -> None: ...

    def parse_command_line(self, argv: object = None) -> None: ...

    def init_crash_handler(self) -> None: ...

    def init_config_files(self) -> None: ...

    def load_config_file(self, suppress_errors: object = None) -> None: ...

    def log_connection_info(self) -> None: ...

    def _configure_logging(self) -> None: ...

    def init_control(self, context: zmq.Context) -> None:
        super().init_control(context)
        self.shell_channel_thread = None


def show_errors_quickly() -> None:
    """What IPython makes for each traceback anew, and what is the same every time: half of it."""
    get_lexer_by_name("python3").get_tokens("")
    make = RegexLexerMeta.__call__

    def made(cls: Any, *args: Any, **options: Any) -> Any:
        if "tokens" not in vars(cls) and "_tokens" in vars(cls.__mro__[1]):
            cls._tokens = cls.__mro__[1]._tokens
        return make(cls, *args, **options)

    RegexLexerMeta.__call__ = made
    for owner, name in (
        (PyColorize.Theme, "as_pygments_style"),
        (stack_data, "style_with_executing_node"),
        (terminal256, "Terminal256Formatter"),
    ):
        setattr(owner, name, functools.cache(getattr(owner, name)))


def name_cells_quickly() -> None:
    """Cells' files are named by a hash that Python computes: 15 ms for a request of 50 kB."""
    import ipykernel.compiler

    ipykernel.compiler.murmur2_x86 = lambda text, seed: zlib.crc32(text.encode(), seed)


def flush_what_there_is() -> None:
    """Both streams are flushed after each cell: two waits for a thread, mostly for nothing."""
    from ipykernel.iostream import OutStream

    flush = OutStream.flush

    def flush_if_any(self: OutStream) -> None:
        if self._buffers:
            flush(self)

    OutStream.flush = flush_if_any


def streams_restorer() -> Callable[..., None]:
    """A function that puts stdout and stderr back: a kernel without them answers nobody."""
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}

    def restore(*_) -> None:
        for name, stream in streams.items():
            if getattr(sys, name, None) is None:
                setattr(sys, name, stream)

    return restore


def limit_output(most: int) -> None:
    """An honest cell that puts out too much is cut short here; the driver stops all others."""
    from ipykernel.displayhook import ZMQShellDisplayHook
    from ipykernel.iostream import OutStream

    show = ZMQShellDisplayHook.write_format_data

    def shortened(
        self: ZMQShellDisplayHook, format_dict: dict, md_dict: dict | None = None
    ) -> None:
        texts = {kind: data for kind, data in format_dict.items() if isinstance(data, str)}
        long = {kind: f"{data[:2000]} ..." for kind, data in texts.items() if len(data) > most}
        return show(self, format_dict | long, md_dict)

    ZMQShellDisplayHook.write_format_data = shortened

    write, written = OutStream.write, [0]

    def counted(self: OutStream, string: str) -> int | None:
        written[0] += len(string)
        if written[0] > most:
            written[0] = 0
            raise OSError(f"more than {most:,} characters were printed")
        return write(self, string)

    OutStream.write = counted
