"""Keep a student's tests in a file that pytest runs."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from course_lib.exercises import names
from course_lib.notebook import own_library

FILE = "test_attention.py"
# Ignore any pytest configuration above the folder, such as the course's own.
_ALONE = ("-q", "--color=no", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull)


def run_tests(tests: str) -> None:
    """Write `tests` into the student's library as a pytest file, run it and print the result.

    The file imports each exercise that the tests mention, from `my_attention` if it is kept there
    and from the course otherwise. Where a program runs the notebook, the file is temporary.

    Args:
        tests: source of the test functions, without the imports of exercises.
    """
    if not own_library.in_use():
        with tempfile.TemporaryDirectory() as scratch:
            print(_run(Path(scratch) / FILE, tests, own=()))
        return
    folder = own_library.folder()
    folder.mkdir(parents=True, exist_ok=True)
    print(_run(folder / FILE, tests, own=own_library.kept()))
    print(f"Written to {folder / FILE}. Run it again with: python -m pytest {folder / FILE}")


def _run(path: Path, tests: str, own) -> str:
    """Write the file, run pytest on it in a process of its own, and return what pytest prints."""
    mentioned = [name for name in names() if re.search(rf"\b{name}\b", tests)]
    sources = {name: own_library.PACKAGE if name in own else "course_lib" for name in mentioned}
    imports = "".join(f"from {source} import {name}\n" for name, source in sources.items())
    path.write_text(f'"""Tests of attention."""\n\n{imports}{tests}', encoding="utf-8")
    command = [sys.executable, "-m", "pytest", *_ALONE, str(path)]
    run = subprocess.run(command, cwd=path.parent.parent, capture_output=True, text=True)
    return (run.stdout + run.stderr).strip()
