"""Extract the commands of a page, and list those that no test can run."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAMS = (
    "basedpyright|conda|copydetect|coverage|cp|course|dask|git|jupyter|lint-imports|nbgrader|pg_dump|pip"
    "|pyproject2conda|pytest|python|ruff|srun"
)
TYPED = re.compile(rf"^```sh\n(.*?)^```$|`((?:{PROGRAMS}) [^`\n]+|lint-imports)`", re.M | re.S)
NAMES = re.compile(r"(?:course|nbgrader) \w+|python -m course_lib")  # a command in a sentence


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


# Beginnings of commands that are not run, and why; `course` stands for `python -m course_lib`, too.
NOT_RUN = {
    "course bundle 12": "there is no such lesson",
    "git pull": "the copy of the course has no history",
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
    "dask ssh": "needs a cluster",
    "srun": "needs a cluster",
    "git clone": "ADDRESS is the reader's; the copy is what it makes",
    "pip install": "needs the network",
    "python3.": "makes an environment for the next commands",
    "/tmp/": "needs the network, or runs the tests",
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


def reason_for(command):
    """Return why a command is not run, or None for a command that is."""
    short = command.replace("python -m course_lib", "course")
    whole = ("course build", "course matrix 02")  # with more arguments, it is run
    for begins, why in NOT_RUN.items():
        if short == begins or (short.startswith(begins) and begins not in whole):
            return why
    return None


def copy_of_the_course(folder):
    """Copy the course without its history to a folder that is writable."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "_site", "browser")
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
