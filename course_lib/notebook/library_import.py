"""How `my_attention`, a student's own library, is found and loaded.

A finder answers for this one name, and only where no other finder knows one: the folder need not
be on `sys.path`, where all that is beside it could be imported, too, and nothing is shadowed. A
file that does not load is set aside with a sentence, and the course's versions are used.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Never

from course_lib.checks.observe.front_end import current_shell, someone_answers
from course_lib.workspace.folder import find_root

PACKAGE = "my_attention"
UTF8 = "utf-8-sig"  # with or without the mark that Windows puts in front
_UNDER_GRADING = "NBGRADER_EXECUTION"
START = '''\
"""Your own attention library: the answers that got full marks, one module for each lesson.

`from my_attention import masked_softmax` works in every notebook of the course, below its first
cell. `check` writes here and replaces an answer only by one that gets full marks, too. What you
change is used as it is; delete a file, or all of this folder, and the course's versions are used.
Grading does not read it.
"""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType


_DEFINES = r"^(?:(?:async +)?def +|class +|(?=\\w+ *(?::[^=\\n]*)?=[^=]))(\\w+)"


class _Library(ModuleType):
    """Finds an answer when it is first used, so that `import my_attention` loads no torch."""

    def _homes(self):
        """Each name that a module defines, and the module's name; none of them is loaded."""
        homes = {}
        for path in sorted(Path(__file__).parent.glob("*.py")):
            if "." not in path.stem and path.stem != "__init__":
                text = path.read_text(encoding="utf-8", errors="replace")
                homes.update(dict.fromkeys(re.findall(_DEFINES, text, re.MULTILINE), path.stem))
        return homes

    def __dir__(self):
        return [*super().__dir__(), *self._homes()]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        home = self._homes().get(name)
        if home is not None:
            found = vars(importlib.import_module(f"{__name__}.{home}"))
            if name in found:
                return found[name]
        try:
            courses = getattr(importlib.import_module("course_lib"), name)
        except ImportError as error:
            raise AttributeError(f"there is no {name} in {Path(__file__).parent}") from error
        if name not in _said:
            print(f"{name}: not in my_attention, so this is the course's version")
            _said.add(name)
        return courses

    def __setattr__(self, name, value):
        """A module hides no answer of its name: `my_attention.masked_softmax` is the function."""
        if not isinstance(value, ModuleType):
            super().__setattr__(name, value)


_said = set()
sys.modules[__name__].__class__ = _Library
'''


def folder() -> Path:
    """Where the library is: in the course's folder where that is the student's own, else beside
    the notebook, else among their Jupyter data."""
    here = Path.cwd()
    for place in (find_root(here), here):
        if place is not None and os.access(place, os.W_OK):
            return place / PACKAGE
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "attention-course" / PACKAGE


def in_use() -> bool:
    """Whether someone is working here, so that their library counts and grows."""
    return _UNDER_GRADING not in os.environ and someone_answers(current_shell())


def a_program_runs() -> bool:
    """Whether a program runs this notebook: grading, the build, nbval."""
    shell = current_shell()
    has_kernel = getattr(shell, "kernel", None) is not None
    return _UNDER_GRADING in os.environ or (has_kernel and not someone_answers(shell))


def loaded(path: Path) -> ModuleType:
    """A module of the library as its file is now; empty where the file had to be set aside.

    Raises:
        ImportError: something else is called `my_attention`.
    """
    package, name = sys.modules.get(PACKAGE), f"{PACKAGE}.{path.stem}"
    if package is not None and Path(str(package.__file__)).parent != path.parent:
        for other in [PACKAGE, *(one for one in sys.modules if one.startswith(f"{PACKAGE}."))]:
            sys.modules.pop(other, None)
    module = sys.modules.get(name)
    if module is not None and vars(module).get("__stamp__") != stamp(path):
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module(name)


def stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file does."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def begin(place: Path) -> None:
    """Makes the folder a package."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "__init__.py"
    if not file.exists():
        write(file, START)


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(text, encoding="utf-8", newline="\n")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def set_aside(path: Path, error: BaseException) -> None:
    """Renames a file that cannot be used, beside those of before, and says so."""
    print(f"{PACKAGE}/{path.name} {_trouble(error)}{_renamed(path)}")


def _renamed(path: Path) -> str:
    number = 1
    while (
        aside := path.with_name(f"{path.stem}.broken{number if number > 1 else ''}.py")
    ).exists():
        number += 1
    try:
        path.rename(aside)
    except OSError:
        return "; the course's versions are used until it is fixed"
    return f"; it is now {aside.name}, and the course's versions are used"


def _trouble(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    kind, line = type(error).__name__, getattr(error, "lineno", None)
    said = " ".join(str(getattr(error, "msg", error)).split())[:200]
    where = f" (line {line})" if line else ""
    return f"stops with {kind}: {said}{where}".removesuffix(": ")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the library wherever it is now."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package != PACKAGE:
            return None
        if a_program_runs():
            return None if module else ModuleSpec(PACKAGE, _CoursesVersions())
        place = folder()
        if place.is_dir() and not module:
            with contextlib.suppress(OSError):
                begin(place)
        file = place / (f"{module}.py" if module else "__init__.py")
        other = self._by_others(fullname, path, target)
        if other is not None and (
            not other.origin or Path(other.origin).resolve() != file.resolve()
        ):
            return other if other.origin else None
        if not file.is_file():
            return None
        search = None if module else [str(place)]
        loader = _Loader(fullname, str(file))
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=search
        )

    def _by_others(self, fullname: str, path, target) -> ModuleSpec | None:
        for finder in sys.meta_path:
            ask = getattr(finder, "find_spec", None)
            found = ask(fullname, path, target) if ask and finder is not self else None
            if found is not None:
                return found
        return None


class _Loader(SourceFileLoader):
    """Loads the file as it is now, never what was compiled before; sets a broken one aside."""

    def get_data(self, path: str) -> bytes:
        return super().get_data(path).decode(UTF8).encode()

    def path_stats(self, path) -> Never:
        raise OSError("nothing of it is kept compiled")

    def exec_module(self, module: ModuleType) -> None:
        path = Path(self.path)
        before = stamp(path)
        try:
            super().exec_module(module)
        except (Exception, SystemExit) as error:
            set_aside(path, error)
            for name in [one for one in vars(module) if not one.startswith("__")]:
                delattr(module, name)
            if path.name == "__init__.py":
                begin(path.parent)
                super().exec_module(module)
        else:
            vars(module)["__stamp__"] = before


class _CoursesVersions(importlib.abc.Loader):
    """Where a program runs the notebook, `my_attention` gives the course's versions."""

    def create_module(self, spec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        def of_the_course(name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)
            value = getattr(importlib.import_module("course_lib"), name)
            print(f"{name}: going on with the course's version")
            return value

        vars(module)["__getattr__"] = of_the_course


def install() -> None:
    """Lets `import my_attention` find the library; a second call changes nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
