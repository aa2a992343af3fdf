"""Unusual but correct submissions to lesson 02, graded in three ways.

`python tests/unusual.py [NAME...]` grades them in an ordinary kernel, with `nbgrader autograde` and
with `course grade`, and prints the points of each and every difference.

Each submission is the course's own except for the cells written here: `# %% NAME` begins the answer
to an exercise, and `# %%` a cell of the student's own, above or below the answer next to it. A line
`<NAME>` stands for the course's solution, and `<NAME + NUMBER>` for one of two short answers that
are correct if the number is 0.
"""

import argparse
import contextlib
import re
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_code_cell

from course_lib.authoring.paste import solution_source
from course_lib.benchmarks.grading import run_stock
from course_lib.grading.course import Course
from course_lib.grading.demo_course import make_folder, submit
from course_lib.grading.graded_cells import REPORT, check_cells, read_check
from course_lib.grading.run import Settings, grade
from course_lib.workspace.errors import GradingError

LESSON = "02_masked_softmax"
ROOT = Path(__file__).parent.parent
_SHORT = {
    "length_mask": """def length_mask(valid_lens, max_len):
    return torch.arange(max_len, device=valid_lens.device) + NUMBER < valid_lens[..., None]""",
    "causal_mask": """def causal_mask(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    rows = torch.arange(num_queries, device=device)[:, None]
    return torch.arange(m, device=device) <= rows + m - num_queries + NUMBER""",
}
Verdicts = dict[str, tuple[str, float | None]]  # outcome and points by exercise

# Where an ordinary kernel or stock nbgrader cannot give full points, and why.
LOST = {
    "exit": "the kernel ends, and with it the notebook",
    "quit_after_the_answer": "the kernel ends, and with it the notebook",
}

UNUSUAL = {
    "import_from_a_written_file": """
# %%
%%writefile my_masks.py
import torch
from jaxtyping import Bool
from torch import Tensor

<causal_mask>
# %% causal_mask
from my_masks import causal_mask
""",
    "file_named_like_a_standard_module": """
# %%
%%writefile statistics.py
mean = None
# %% length_mask
from statistics import mean

zero = mean([0, 0])
<length_mask + zero>
""",
    "run_a_written_file": """
# %%
%%writefile my_causal.py
import torch
<causal_mask + 0>
# %% causal_mask
%run my_causal.py
""",
    "autoreload": """
# %%
%load_ext autoreload
%autoreload 2
# %%
%%writefile reloaded.py
def shift(n, m):
    return 0
# %%
import reloaded
# %%
import os
with open("reloaded.py", "w") as file:
    file.write("def shift(n, m):\\n    return m - n  # the last query sees all\\n")
os.utime("reloaded.py", (2e9, 2e9))
# %% causal_mask
def causal_mask(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    everything = torch.ones(num_queries, m, dtype=torch.bool, device=device)
    return everything.tril(reloaded.shift(num_queries, m))
""",
    "future_annotations": """
# %% causal_mask
from __future__ import annotations

<causal_mask>
""",
    "lambda": """
# %% length_mask
length_mask = lambda lens, m: torch.arange(m, device=lens.device) < lens.unsqueeze(-1)
""",
    "partial": """
# %% additive_mask
from functools import partial

def filled(value, mask, dtype):
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, value)

additive_mask = partial(filled, -math.inf)
""",
    "decorated": """
# %%
import functools

def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        calls.append(function.__name__)
        return function(*args, **kwargs)
    return wrapper

calls = []
# %% stable_softmax
@logged
<stable_softmax>
""",
    "in_try": """
# %% length_mask
try:
    import einops_that_is_not_installed
    def length_mask(valid_lens, max_len):
        return einops_that_is_not_installed.mask(valid_lens, max_len)
except ImportError:
    def length_mask(valid_lens, max_len):
        return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]
""",
    "in_if_with_and_for": """
# %% length_mask
if __name__ == "__main__":
    def length_mask(valid_lens, max_len):
        return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]
# %% causal_mask
from contextlib import nullcontext

with nullcontext() as nothing:
    for shift in [0]:
        def causal_mask(num_queries, num_keys=None, *, device=None):
            m = num_queries if num_keys is None else num_keys
            rows = torch.arange(num_queries, device=device)[:, None]
            return torch.arange(m, device=device) <= rows + m - num_queries + shift
""",
    "exec": """
# %% length_mask
exec(
    "def length_mask(valid_lens, max_len):\\n"
    "    return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]"
)
""",
    "walrus_and_globals": """
# %% length_mask
print(length_mask := lambda lens, m: torch.arange(m, device=lens.device) < lens[..., None])
# %% stable_softmax
def make():
    def softmax(scores, axis=-1):
        exponentials = np.exp(scores - scores.max(axis, keepdims=True))
        return exponentials / exponentials.sum(axis, keepdims=True)
    return softmax

globals()["stable_softmax"] = make()
""",
    "last_value": """
# %%
lambda lens, m: torch.arange(m, device=lens.device) < lens[..., None]
# %%
In[-1], len(Out) > 0;
# %% length_mask
length_mask = [value for value in Out.values() if callable(value)][-1]
""",
    "from_its_own_source": """
# %%
def causal_mask_draft(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    rows = torch.arange(num_queries, device=device)[:, None]
    return torch.arange(m, device=device) >= rows + m - num_queries
# %% causal_mask
import inspect

exec(inspect.getsource(causal_mask_draft).replace("_draft", "").replace(">=", "<="))
""",
    "run_cell": """
# %% length_mask
get_ipython().run_cell('''
<length_mask + 0>
''')
""",
    "helper_below_the_answer": """
# %% length_mask
def length_mask(valid_lens, max_len):
    return compared(positions(max_len, valid_lens.device), valid_lens)
# %%
def positions(count, device):
    return torch.arange(count, device=device)

compared = lambda keys, lens: keys < lens[..., None]
""",
    "timed_cell": """
# %% causal_mask
%%time
<causal_mask>
# %%
%timeit -n 1 -r 1 causal_mask(3)
# %%
%%timeit -n 1 -r 1
causal_mask(3)
""",
    "magics": """
# %%
%matplotlib inline
%config InlineBackend.figure_format = "svg"
%precision 3
%xmode Plain
%env MY_SETTING=1
%who
%lsmagic
%history -l 1
%alias_magic t timeit
%prun -q len([1])
# %%
%%html
<b>bold</b>
# %%
%%latex
$x$
# %% length_mask
import os

%time offset = int(os.environ["MY_SETTING"]) - 1
<length_mask + offset>
# %%
length_mask?
# %%
help(length_mask)
""",
    "shell": """
# %%
!pip --version
!ls
files = !ls -a
print(len(files), files[:1])
!python -c "import torch; print('python runs')"
# %%
%%bash
echo from bash
echo to stderr >&2
# %%
%%writefile shifted.py
print(0)
# %%
import getpass
import os
import subprocess
import sys

print(getpass.getuser())
where = !which python
os.system("echo from a shell")
shift = int(subprocess.run([sys.executable, "shifted.py"], capture_output=True, text=True).stdout)
here = !python shifted.py
shift += int(here[0]) + len(where) - 1
# %% causal_mask
<causal_mask + shift>
""",
    "reset": """
# %%
%reset -f
# %% length_mask
import math

import numpy as np
import torch
from torch import Tensor, nn
from jaxtyping import Bool, Float, Int
from course_lib import carry_on, check, hint

<length_mask>
""",
    "await": """
# %%
import asyncio

async def later(value):
    await asyncio.sleep(0.01)
    return value

task = asyncio.create_task(later(0))
# %%
loop = asyncio.get_running_loop()

async def numbers():
    for n in range(3):
        yield await later(n)

zero = await task + await loop.run_in_executor(None, lambda: 0)
zero += [n async for n in numbers()][0]
# %% length_mask
shift = await later(zero)
<length_mask + shift>
""",
    "threads": """
# %%
import threading
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(2) as pool:
    squares = list(pool.map(lambda n: n * n, range(5)))
stopped = threading.Event()
beating = threading.Thread(target=stopped.wait, daemon=True)
beating.start()
speaking = threading.Thread(target=print, args=("from a thread",))
speaking.start()
speaking.join()
# %% length_mask
shift = squares[0]
<length_mask + shift>
""",
    "processes": """
# %%
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def square(n):
    print("in a child", n)
    return n * n

with multiprocessing.Pool(2) as pool:
    squares = pool.map(square, range(3))
with ProcessPoolExecutor(2) as executor:
    more = list(executor.map(square, range(3)))
# %% length_mask
shift = squares[0] + more[0]
<length_mask + shift>
""",
    "fork": """
# %%
import os

print("before", end="")
child = os.fork()
if child == 0:
    print("in the child", flush=True)
    os._exit(7)
_, status = os.waitpid(child, 0)
# %% length_mask
shift = os.waitstatus_to_exitcode(status) - 7
<length_mask + shift>
""",
    "gradients_off": """
# %%
torch.set_grad_enabled(False)
torch.manual_seed(1)
torch.set_num_threads(1)
# %% causal_mask
<causal_mask>
""",
    "logging": """
# %%
import logging
import sys

logging.basicConfig(level=logging.INFO)
logging.getLogger("mine").warning("to stderr")
print("to stderr", file=sys.stderr)
print(sys.stdout.encoding, sys.stdout.isatty(), sys.stderr.fileno() >= 0)
sys.stdout.flush()
# %% causal_mask
logger = logging.getLogger(__name__)
<causal_mask>
logger.info("defined")
""",
    "progress_bars": """
# %%
import sys

try:
    from tqdm.auto import tqdm
except ImportError:
    def tqdm(items):
        for number, item in enumerate(items):
            print(f"\\r{number} done", end="", file=sys.stderr, flush=True)
            yield item

for step in tqdm(range(200)):
    pass
# %% length_mask
lines = [torch.arange(n) for n in tqdm([3, 4])]
<length_mask>
""",
    "figures": """
# %%
import matplotlib
import matplotlib.pyplot as plt

plt.plot([1, 2])
plt.show()
figure, axes = plt.subplots()
axes.imshow(np.eye(3))
figure.savefig("mine.png")
plt.close("all")
plt.figure()
# %% causal_mask
<causal_mask>
plt.imshow(causal_mask(4))
plt.savefig("mask.svg")
# %%
from pathlib import Path
from IPython.display import Image

Image(data=Path("mine.png").read_bytes())
""",
    "displays": """
# %%
from IPython.display import HTML, Markdown, clear_output, display, update_display

handle = display(HTML("<b>0</b>"), display_id=True)
for n in range(3):
    handle.update(HTML(f"<b>{n}</b>"))
display("named", display_id="mine")
update_display("renamed", display_id="mine")
for n in range(3):
    clear_output(wait=True)
    print(n)
display(Markdown("*done*"))
display({"text/plain": "raw"}, raw=True)
# %% causal_mask
<causal_mask>
clear_output()
causal_mask(3)
""",
    "streams_replaced": """
# %%
import contextlib
import io
import sys

kept, sys.stdout = sys.stdout, io.StringIO()
print("hidden")
sys.stdout = kept
# %% causal_mask
with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(text):
    print("hidden")
    <causal_mask>
# %%
print(len(text.getvalue()))
""",
    "exit": """
# %%
print("that is all for today")
exit()
# %% causal_mask
<causal_mask>
""",
    "quit_after_the_answer": """
# %% causal_mask
<causal_mask>
quit()
""",
    "sys_exit": """
# %% causal_mask
import sys

<causal_mask>
sys.exit()
""",
    "interrupted": """
# %% causal_mask
<causal_mask>
raise KeyboardInterrupt
""",
    "failed_trials": """
# %%
1 / 0
# %%
this is not Python
# %%
%no_such_magic
# %% causal_mask
<causal_mask>
# %%
assert causal_mask(2).all(), "a test of mine that is wrong"
""",
    "asks": """
# %%
import getpass

try:
    name = input("Your name? ")
    word = getpass.getpass()
except Exception as error:
    name = type(error).__name__
# %% causal_mask
<causal_mask>
""",
    "jit": """
# %% length_mask
@torch.jit.script
def length_mask(valid_lens: Tensor, max_len: int) -> Tensor:
    return torch.arange(max_len, device=valid_lens.device) < valid_lens.unsqueeze(-1)
""",
    "stored_in_files": """
# %%
import json
import os
import pickle
import tempfile

torch.save(torch.zeros(1), "zero.pt")
with open("zero.json", "w") as file:
    json.dump({"zero": 0}, file)
with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "a"), "wb") as file:
    pickle.dump(Tensor, file)
# %% length_mask
zero = int(torch.load("zero.pt")[0]) + json.load(open("zero.json"))["zero"]
<length_mask + zero>
""",
    "names_and_characters": """
# %%
from math import *
from types import *
größe = "ü→∞ 🙂"
print(größe)
check_my_own = check
# %% length_mask
def length_mask(valid_lens, max_len, /):
    match valid_lens.dim():
        case 1 | 2:
            schlüssel = torch.arange(max_len, device=valid_lens.device)
            return schlüssel < valid_lens[..., None]
        case _:
            raise ValueError("valid_lens must have one or two axes")
""",
    "signals": """
# %%
import atexit
import faulthandler
import gc
import signal

atexit.register(print, "bye")
signal.signal(signal.SIGALRM, lambda number, frame: None)
signal.setitimer(signal.ITIMER_REAL, 0.01)
gc.disable()
faulthandler.enable()
# %% causal_mask
<causal_mask>
""",
}


def write_class(folder: Path, names: Collection[str] = tuple(UNUSUAL)) -> None:
    """Make a course folder in which each of these has been submitted."""
    make_folder(ROOT, folder)
    submit(folder, LESSON, ())
    release = folder / "notebooks" / LESSON / f"{LESSON}.ipynb"
    for name in names:
        place = folder / "submitted" / name / LESSON
        place.mkdir(parents=True)
        notebook = nbformat.read(release, as_version=4)
        _write_answers(notebook, UNUSUAL[name])
        nbformat.write(notebook, place / f"{LESSON}.ipynb")


def _write_answers(notebook: nbformat.NotebookNode, text: str) -> None:
    above, below, answers = {}, {}, {}
    pending: list[str] = []
    for exercise, source in re.findall(r"^# %%(?: (\w+))?\n(.*?)(?=^# %%|\Z)", text, re.M | re.S):
        source = re.sub(r"^( *)<(\w+)(?: \+ (\w+))?>$", _solution, source.strip(), flags=re.M)
        if exercise:
            above[exercise], pending, answers[exercise] = pending, [], source
        else:
            pending.append(source)
    below[list(answers)[-1]] = pending
    cells = []
    for cell in notebook.cells:
        about = cell.metadata.get("nbgrader", {})
        name = about.get("grade_id", "").removesuffix("-answer")
        if cell.cell_type == "code" and about.get("solution"):
            cell.source = answers.get(name) or solution_source(name)
            cells += [new_code_cell(source) for source in above.get(name, ())]
            cells += [cell, *(new_code_cell(source) for source in below.get(name, ()))]
        else:
            cells.append(cell)
    notebook.cells = cells


def _solution(found: re.Match) -> str:
    indent, name, number = found.groups()
    source = _SHORT[name].replace("NUMBER", number) if number else solution_source(name)
    return "\n".join(f"{indent}{line}" for line in source.splitlines())


def in_a_kernel(folder: Path, names: Collection[str]) -> dict[str, Verdicts]:
    """Run each submission in a kernel, and read what the notebook's own `check` says."""
    verdicts = {}
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            path = folder / "submitted" / name / LESSON / f"{LESSON}.ipynb"
            notebook = nbformat.read(path, as_version=4)
            client = NotebookClient(
                notebook,
                timeout=120,
                allow_errors=True,
                skip_cells_with_tag="demo",
                kernel_name="python3",
                extra_arguments=["--IPKernelApp.log_level=ERROR"],
                resources={"metadata": {"path": place}},
            )
            with contextlib.suppress(DeadKernelError):
                client.execute()
            verdicts[name] = read_verdicts(notebook)
    return verdicts


def with_stock_nbgrader(folder: Path, names: Collection[str]) -> dict[str, Verdicts]:
    """Grade the class with `nbgrader autograde`."""
    with contextlib.suppress(GradingError):  # it could not grade some, which the points show
        run_stock(folder, LESSON, len(names))
    return _autograded(folder, names)


def with_course_grade(
    folder: Path, names: Collection[str], settings: Settings | None = None
) -> dict[str, Verdicts]:
    """Grade the class with `course grade`."""
    grade(folder, LESSON, settings=settings or Settings())
    return _autograded(folder, names)


def _autograded(folder: Path, names: Collection[str]) -> dict[str, Verdicts]:
    course = Course(folder)
    graded = {name: course.read_graded(name, LESSON) for name in names}
    return {name: read_verdicts(graded[name]) for name in names}


def read_verdicts(notebook: nbformat.NotebookNode | None) -> Verdicts:
    """Return the verdict of each check, or an empty dict if there is no notebook."""
    verdicts = {}
    for cell in check_cells(notebook) if notebook else ():
        read = read_check(cell)
        reports = [o.data[REPORT] for o in cell.outputs if REPORT in o.get("data", {})]
        verdicts[read.exercise] = reports[-1]["outcome"] if reports else read.outcome, read.points
    return verdicts


def is_full(verdicts: Verdicts) -> bool:
    """Return whether every exercise is correct."""
    return bool(verdicts) and all(outcome == "correct" for outcome, _ in verdicts.values())


def main() -> int:
    """Print a table of the points; return how many submissions lose points unexpectedly."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="of submissions; all if none is named")
    names = parser.parse_args().names or list(UNUSUAL)
    with tempfile.TemporaryDirectory(prefix="course-unusual-") as place:
        folder = Path(place) / "class"
        write_class(folder, names)
        found = {
            "kernel": in_a_kernel(folder, names),
            "course": with_course_grade(folder, names),
            "nbgrader": with_stock_nbgrader(folder, names),
        }
    differences = 0
    print(f"{'submission':<36}{''.join(f'{way:>9}' for way in found)}")
    for name in names:
        verdicts = {way: each[name] for way, each in found.items()}
        totals = [sum(points or 0 for _, points in each.values()) for each in verdicts.values()]
        said = "" if all(map(is_full, verdicts.values())) else "DIFFERENT"
        if said and name in LOST and is_full(verdicts["course"]):
            said = LOST[name]
        print(f"{name:<36}{''.join(f'{total:>9g}' for total in totals)}  {said}".rstrip())
        if said == "DIFFERENT":
            differences += 1
            for exercise in verdicts["course"]:
                each = {way: one.get(exercise) for way, one in verdicts.items()}
                print(f"    {exercise}: {each}")
    return differences


if __name__ == "__main__":
    sys.exit(main())
