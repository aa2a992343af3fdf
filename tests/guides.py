"""The commands of a page as a reader types them, and those that no test can run."""

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROGRAMS = (
    "basedpyright|conda|coverage|cp|course|dask|git|jupyter|lint-imports|nbgrader|pg_dump|pip"
    "|pyproject2conda|pytest|python|ruff|srun"
)
TYPED = re.compile(rf"^```sh\n(.*?)^```$|`((?:{PROGRAMS}) [^`\n]+|lint-imports)`", re.M | re.S)
NAMES = re.compile(r"(?:course|nbgrader) \w+|python -m course_lib")  # of a verb, in a sentence


class Reason(NamedTuple):
    """Why a command is not run, and how its arguments are read instead."""

    why: str
    read: object


def typed(page):
    """Return the commands of a page in order, from its shell blocks and its sentences."""
    return commands_in((ROOT / page).read_text(encoding="utf-8"))


def commands_in(text):
    """Return the commands of a page or of a section."""
    found = []
    for block, inline in TYPED.findall(text):
        if inline:
            found += [] if NAMES.fullmatch(inline) else [inline]
            continue
        lines = block.replace("\\\n", " ").splitlines()
        found += [re.sub(r"\s+# .*| &$", "", line) for line in lines if line[0] != "#"]
    return found


def read_verb(arguments):
    """Parse `course VERB ...` with typer; LESSON and the like stand for something."""
    from typer.main import get_command

    from course_lib.cli.main import app

    name, *rest = arguments
    some = STANDS_FOR | {"WHAT": "translator" if name == "train" else "checks"}
    get_command(app).commands[name].make_context(name, [some.get(word, word) for word in rest])


STANDS_FOR = {"LESSON": "02", "[LESSON]": "02", "ARGUMENTS": "-q"}


def read_dask(arguments):
    """Parse `dask VERB ...` with dask's own command line."""
    from importlib import import_module

    command = import_module(f"distributed.cli.dask_{arguments[0]}").main
    there = str(ROOT / "constraints.txt")  # some file
    command.make_context(arguments[0], [w.replace("machines.txt", there) for w in arguments[1:]])


def read_srun(arguments):
    """Check `srun --ntasks N COMMAND ...` and the command that SLURM starts."""
    assert arguments[0] == "--ntasks" and arguments[1].isdigit() and arguments[2] == "dask"
    read_dask(arguments[3:])


def read_pip(arguments):
    """Check that each extra of the course exists and that each other package has a name."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = Requirement(arguments[1])
    assert arguments[0] == "install"
    if wanted.name == project["name"]:
        assert wanted.extras <= set(project["optional-dependencies"])


def read_script(arguments):
    """Check that the script exists."""
    assert (ROOT / arguments[0]).is_file()


def read_conda(arguments):
    """Check `conda env create -f FILE`."""
    assert arguments[:3] == ["env", "create", "-f"] and (ROOT / arguments[3]).is_file()


def read_nothing(arguments):
    """Accept the arguments of another program."""
    assert arguments


# Beginnings of commands; `course` stands for `python -m course_lib`, too.
NOT_RUN = {
    "course demo": Reason("tests/test_demo.py grades the sample class", read_verb),
    ". .venv/bin/activate": Reason("the tests run in their environment", read_nothing),
    "course test": Reason("it runs the tests, this one among them", read_verb),
    "course lab": Reason("it opens JupyterLab; tests/browser does", read_verb),
    "course site --open": Reason("it opens a browser; tests/browser builds the site", read_verb),
    "course bench grading": Reason("stock nbgrader needs minutes for 100", read_verb),
    "course bench scale": Reason("it measures a class of 2,000 for minutes", read_verb),
    "course report 00": Reason("a row of those measurements; all lessons are run", read_verb),
    "course bench WHAT": Reason("a row of a table: one of several", read_verb),
    "course train WHAT": Reason("a row of a table: one of several", read_verb),
    "course matrix 02": Reason("twenty seeds take a minute; `--seeds 3` is run", read_verb),
    "course grade 02 --executor": Reason("needs a cluster", read_verb),
    "nbgrader generate_assignment homework": Reason("tests/test_grading_plain.py", read_nothing),
    "course grade homework": Reason("tests/test_grading_plain.py does", read_verb),
    "nbgrader autograde homework": Reason("tests/test_grading_plain.py does", read_nothing),
    "dask ssh": Reason("needs a cluster", read_dask),
    "srun": Reason("needs a cluster", read_srun),
    "git clone": Reason("ADDRESS is the reader's; the copy is what it makes", read_nothing),
    "pip install": Reason("needs the network", read_pip),
    "conda env create": Reason("needs the network", read_conda),
    "pg_dump": Reason("needs PostgreSQL; tests/test_grading_postgres.py has one", read_nothing),
    "nbgrader db upgrade": Reason("named for what it prints", read_nothing),
    "course build": Reason("executes all that is stale; `course build 02` is run", read_verb),
    "course times [LESSON]": Reason("a row of a table: what the argument may be", read_verb),
    "course new exercise window_mask": Reason("it leaves placeholders to fill in", read_verb),
    "python docs/tables.py": Reason("twenty seeds of every answer take a minute", read_script),
    "pytest": Reason("it runs the tests, this one among them", read_nothing),
    "ruff": Reason("a part of `course test`", read_nothing),
    "lint-imports": Reason("a part of `course test`", lambda arguments: None),
    "python docs/pictures.py": Reason("needs Chromium", read_script),
}


def reason_for(command):
    """Return why a command is not run, or None for a command that is."""
    short = command.replace("python -m course_lib", "course")
    whole = ("course build", "course matrix 02")  # with more behind it, it is run
    for begins, reason in NOT_RUN.items():
        if short == begins or (short.startswith(begins) and begins not in whole):
            return reason
    return None


def read(command):
    """Read the arguments of a command that is not run."""
    reason = reason_for(command)
    words = shlex.split(command.replace("python -m course_lib", "course"))
    words = words[: words.index("&&")] if "&&" in words else words
    reason.read(words[1:])


def copy_of_the_course(folder):
    """Copy the course without its history to a folder that is writable."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "demo", "_site", "browser")
    for part in ("course_lib", "tests", "solutions", "notebooks", "docs"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for name in (
        "pyproject.toml",
        "nbgrader_config.py",
        "README.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "constraints.txt",
        "environment.yml",
    ):
        shutil.copy(ROOT / name, folder)
    return folder
