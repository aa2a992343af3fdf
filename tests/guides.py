"""The commands of a page as a reader types them, and those that no test can run."""

import re
import shlex
import shutil
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROGRAMS = (
    "basedpyright|conda|coverage|cp|course|dask|git|jupyter|lint-imports|nbgrader|pg_dump|pip"
    "|pyproject2conda|pytest|python|ruff|srun"
)
TYPED = re.compile(rf"^```sh\n(.*?)^```$|`((?:{PROGRAMS}) [^`\n]+|lint-imports)`", re.M | re.S)
NAMES = re.compile(r"(?:course|nbgrader) \w+|python -m course_lib")  # of a verb, in a sentence


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


# Beginnings of commands that are not run, and why; `course` stands for `python -m course_lib`, too.
NOT_RUN = {
    "course demo": "tests/test_demo.py grades the sample class",
    ". .venv/bin/activate": "the tests run in their environment",
    "course test": "it runs the tests, this one among them",
    "course lab": "it opens JupyterLab; tests/browser does",
    "course site --open": "it opens a browser; tests/browser builds the site",
    "course bench grading": "stock nbgrader needs minutes for 100",
    "course bench scale": "it measures a class of 2,000 for minutes",
    "course report 00": "a row of those measurements; all lessons are run",
    "course bench WHAT": "a row of a table: one of several",
    "course train WHAT": "a row of a table: one of several",
    "course matrix 02": "twenty seeds take a minute; `--seeds 3` is run",
    "course grade 02 --executor": "needs a cluster",
    "nbgrader generate_assignment homework": "tests/test_grading_plain.py",
    "course grade homework": "tests/test_grading_plain.py does",
    "nbgrader autograde homework": "tests/test_grading_plain.py does",
    "dask ssh": "needs a cluster",
    "srun": "needs a cluster",
    "git clone": "ADDRESS is the reader's; the copy is what it makes",
    "pip install": "needs the network",
    "conda env create": "needs the network",
    "pg_dump": "needs PostgreSQL; tests/test_grading_postgres.py has one",
    "nbgrader db upgrade": "named for what it prints",
    "course build": "executes all that is stale; `course build 02` is run",
    "course times [LESSON]": "a row of a table: what the argument may be",
    "course new exercise window_mask": "it leaves placeholders to fill in",
    "python docs/tables.py": "twenty seeds of every answer take a minute",
    "pytest": "it runs the tests, this one among them",
    "ruff": "a part of `course test`",
    "lint-imports": "a part of `course test`",
    "python docs/pictures.py": "needs Chromium",
}
READ = {"dask": read_dask, "srun": read_srun, "pip": read_pip}  # tests/test_docs.py reads `course`


def reason_for(command):
    """Return why a command is not run, or None for a command that is."""
    short = command.replace("python -m course_lib", "course")
    whole = ("course build", "course matrix 02")  # with more behind it, it is run
    for begins, why in NOT_RUN.items():
        if short == begins or (short.startswith(begins) and begins not in whole):
            return why
    return None


def read(command):
    """Read the arguments of a command that is not run, where another program can parse them."""
    program, *arguments = shlex.split(command.partition("&&")[0])
    if program in READ:
        READ[program](arguments)


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
