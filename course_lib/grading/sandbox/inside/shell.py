"""The IPython shell that all guests inherit. It sends a kernel's outputs as frames."""

import builtins
import gc
import getpass
import importlib
import inspect
import io
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any, NoReturn

from ipykernel import zmqshell
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from traitlets import Type
from traitlets.config import Config

from course_lib.grading.sandbox.inside.frames import Outlet

outlet = Outlet()
MOST_OUTPUT = 1_000_000  # characters of one output, and of a cell's printed text
_SHOWN, _LINES = 2_000, 100  # characters kept of a longer output; lines of a traceback
# Modules that lessons, or the first cell, figure or traceback, would import.
_MODULES = """
IPython.core.completerlib IPython.core.debugger IPython.core.logger IPython.core.oinspect
IPython.core.pylabtools IPython.lib.display jaxtyping cProfile
stack_data.formatting pure_eval.utils pygments.lexers.python pygments.formatters.terminal256
matplotlib.pyplot matplotlib.backends.backend_agg matplotlib_inline.backend_inline
course_lib.attention course_lib.checks.observe.remote course_lib.notebook._without_judge
course_lib.models.language_model course_lib.models.pretrained course_lib.models.stories
course_lib.models.trained course_lib.plotting
"""


class Publisher(DisplayPublisher):
    def publish(self, data: Any, metadata: Any = None, source: Any = None, **options: Any) -> None:
        kind = "update" if options.get("update") else "display"
        name = (options.get("transient") or {}).get("display_id")
        _send_bundle(kind, data, metadata, display_id=name)

    def clear_output(self, wait: bool = False) -> None:
        outlet.send("clear", wait=bool(wait))


class Hook(DisplayHook):
    write_output_prompt = finish_displayhook = lambda self: None

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        _send_bundle("result", format_dict, md_dict)


def _send_bundle(kind: str, data: Any, metadata: Any, **more: Any) -> None:
    data = dict(data)
    for mime, content in data.items():
        if isinstance(content, str) and len(content) > MOST_OUTPUT:
            data[mime] = f"{content[:_SHOWN]} ... [{len(content):,} characters in all]"
    outlet.send(kind, data=data, metadata=metadata or {}, **more)


class Compiler(CachingCompiler):
    """A compiler that registers each cell's file, so that tracebacks do not search all modules."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        name = super().get_code_name(raw_code, transformed_code, number)
        inspect.modulesbyfile[os.path.normcase(os.path.abspath(name))] = "__main__"
        return name


class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """A kernel's shell without a kernel. Libraries look at the name of its class."""

    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    compiler_class = Type(Compiler)

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        try:
            value = str(evalue)
        except Exception as error:
            value = f"<its message cannot be read: {type(error).__name__}>"
        lines = "\n".join(line[:_SHOWN] for line in stb[-_LINES:])
        outlet.send("error", ename=etype.__name__, evalue=value[:_SHOWN], traceback=lines)

    def enable_gui(self, gui: object = None) -> None: ...


def import_everything() -> None:
    """Import what guests need, make the shell, and run a cell, an error and a probe request."""
    import torch

    from course_lib.checks.observe.codec import encode
    from course_lib.checks.observe.probe import Probe, array, tensor
    from course_lib.checks.observe.remote import Request, reply_to

    torch.set_num_threads(1)
    for name in _MODULES.split():
        importlib.import_module(name)
    config = Config(HistoryManager={"enabled": False})
    no_kernel = SimpleNamespace(eventloop=None, do_shutdown=lambda restart: None)
    shell = ZMQInteractiveShell.instance(config=config, kernel=no_kernel, colors="nocolor")
    shell.run_line_magic("matplotlib", "inline")
    shell.run_line_magic("load_ext", "storemagic")
    builtins.input = _refuse("input()")
    getpass.getpass = _refuse("getpass()")
    sys.breakpointhook = _refuse("breakpoint()")
    leave = os._exit

    def exit_in_main_thread(status: int) -> NoReturn:
        # A timer must not end another cell.
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit(status)
        leave(status)

    os._exit = exit_in_main_thread
    shell.run_cell("import torch\n1 + 1", store_history=False)
    shell.run_cell("1 + None", store_history=False)
    gc.freeze()  # guests keep sharing memory pages, and `reset` finds nothing to collect
    shell.reset(new_session=True)
    del sys.last_type, sys.last_value, sys.last_traceback
    ones = torch.ones(2, 3).numpy()
    probes = [
        Probe("tensor", "", args={"scores": tensor(ones, requires_grad=True)}, grad_outputs=ones),
        Probe("strided", "", args={"scores": tensor(ones, strided=True)}, loops="loops"),
        Probe("array", "", args={"scores": array(ones)}),
    ]
    answer = {"softmax": lambda scores: getattr(scores, "softmax", lambda axis: scores)(-1)}
    reply_to(encode(Request("softmax", probes)), answer)


def _refuse(what: str) -> Any:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise StdinNotImplementedError(f"{what} is not available during grading")

    return refuse


class Stream(io.TextIOBase):
    """A stream that sends printed text. In a student's fork, it writes to the descriptor."""

    encoding, errors = "UTF-8", "replace"

    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor, self.written = name, descriptor, 0  # characters of this cell

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.written += len(text)
        if self.written > MOST_OUTPUT:
            raise OSError(f"more than {MOST_OUTPUT:,} characters were printed")
        if not outlet.send(self.name, text=text):
            os.write(self._descriptor, text.encode("utf-8", "replace"))
        return len(text)

    def close(self) -> None: ...  # later cells still print

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor


class NoInput(io.TextIOBase):
    read = readline = _refuse("reading from stdin")
