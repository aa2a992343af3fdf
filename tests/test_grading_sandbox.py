"""A guest runs cells like a student's kernel, within the confinement of each level."""

import contextlib
import doctest
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from grading_course import GUEST_LIMITS as LIMITS
from waiting import wait_until

from course_lib.grading.sandbox import confinement
from course_lib.grading.sandbox.hosts import open_guests
from course_lib.workspace.errors import GradingError

pytestmark = pytest.mark.slow

linux = pytest.mark.skipif(sys.platform != "linux", reason="guests are forked on Linux")


def one_line(output) -> str:
    """Return the kind of an output and what it says."""
    if output.output_type == "stream":
        return f"{output.name} {output.text.replace(chr(13) + chr(10), chr(10))!r}"
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return " ".join([output.output_type, *sorted(output.data), output.data["text/plain"]])


def value(guest, expression: str) -> str:
    """Return the repr of an expression in the guest."""
    ran = guest.run(f"print(repr({expression}))", 20)
    assert ran.state == "ok", ran.outputs
    return ran.outputs[0]["text"].strip()


PLOT = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])"
FIGURE = "display_data image/png text/plain <Figure size 640x480 with 1 Axes>"
CLEARS = """from IPython.display import clear_output
for n in range(3):
    clear_output(wait=True)
    print(n)"""
UPDATES = 'shown = display("before", display_id=True)\nprint("between")'
REFUSED = "StdinNotImplementedError: {} is not available during grading".format
SHOWN = {  # name: (cells, all that they show)
    "a file here comes before the environment's packages": (
        ["import sys\nnext(path for path in sys.path if not path or 'site-packages' in path)"],
        "execute_result text/plain ''",
    ),
    "the folder is empty and can be written": (
        ["import os\nos.listdir(), os.access('.', os.W_OK)"],
        "execute_result text/plain ([], True)",
    ),
    "%matplotlib inline": (["%matplotlib inline", f"{PLOT}\nplt.show()", PLOT], f"{FIGURE}\n" * 2),
    "a figure of the course": (
        ["from course_lib import plotting\nplotting.show(plotting.heatmap([[0.5, 0.5]]))"],
        "display_data text/html text/plain ...",
    ),
    "!command": (["!echo out", "got = !echo in\ngot"], "stdout 'out\\n'\nexecute_result ...['in']"),
    "input()": (["input('name? ')"], REFUSED("input()")),
    "exit()": (["a = 1\nexit()", "a;", "a"], "execute_result text/plain 1"),
    "%%capture": (
        ["%%capture out\nprint('hidden')\ndisplay(1)", "out.stdout"],
        "execute_result text/plain 'hidden\\n'",
    ),
    "a display is updated in place": (
        [UPDATES, "shown.update('after')"],
        "display_data text/plain 'after'\nstdout 'between\\n'",
    ),
    "clear_output": ([CLEARS], "stdout '2\\n'"),
    "getpass": (["import getpass\ngetpass.getpass()"], REFUSED("getpass()")),
    "stdin": (["import sys\nsys.stdin.readline()"], REFUSED("reading from stdin")),
    "pdb": (["import pdb\npdb.set_trace()"], f"stdout ...\n{REFUSED('input()')}"),
}


@pytest.mark.parametrize(("cells", "expected"), SHOWN.values(), ids=SHOWN)
def test_a_guest_shows_what_a_kernel_shows(guest, cells, expected):
    outputs = [output for ran in [guest.run(cell, 20) for cell in cells] for output in ran.outputs]
    got = "\n".join(map(one_line, outputs))
    assert doctest.OutputChecker().check_output(expected.strip(), got, doctest.ELLIPSIS), got


def test_a_traceback_shows_the_line_of_the_cell(guest):
    ran = guest.run("def invert(n):\n    return 1 / n\n\ninvert(0)", 20)
    text = "\n".join(ran.outputs[0].traceback)
    assert "Cell In[1], line 4" in text and "----> 2     return 1 / n" in text


def test_guests_draw_the_same_random_numbers(strict):
    drawn = set()
    for _ in range(2):
        guest = strict.start().wait_ready()
        drawn.add(value(guest, "(__import__('torch').rand(2), __import__('random').random())"))
        guest.kill()
    assert len(drawn) == 1


def test_an_endless_loop_is_interrupted_and_the_guest_goes_on(guest):
    ran = guest.run("while True: pass", 0.5)
    assert (ran.state, ran.stopped) == ("timeout", "cpu")
    assert ran.outputs[0].ename == "KeyboardInterrupt"
    assert guest.run("1 + 1", 5).state == "ok"


def test_how_a_guest_ended_is_known(strict):
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    for code, state, reason in (
        (deaf, "killed", "killed"),
        ("import os\nos._exit(3)", "died", "exit"),
        ("import ctypes\nctypes.string_at(0)", "died", "signal"),
    ):
        guest = strict.start().wait_ready()
        assert guest.run(code, 0.5).state == state
        assert guest.kill()["reason"] == reason


def test_a_cell_that_asks_the_interpreter_to_end_keeps_what_it_bound(guest):
    ways = "exit()", "quit()", "import sys; sys.exit(1)", "raise SystemExit"
    for number, leave in enumerate([*ways, "raise KeyboardInterrupt"]):
        ran = guest.run(f"kept = {number}\n{leave}", 20)
        assert ran.left and ran.state != "died"
        assert value(guest, "kept") == str(number)


@linux
def test_without_walls_too_what_a_guest_started_ends_with_it(tmp_path):
    mark = f"sleeper {tmp_path}"
    program = [sys.executable, "-c", "import time; time.sleep(9999)", mark]
    guests = open_guests("off", LIMITS)
    guest = guests.start().wait_ready()
    code = f"import subprocess\nsubprocess.Popen({program!r}, start_new_session=True)"
    assert guest.run(code, 10).state == "ok"
    wait_until(lambda: _processes(mark))
    guest.kill()
    wait_until(lambda: not _processes(mark))
    guests.close()


def _processes(mark: str) -> int:
    """Count the processes that have the mark as an argument."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += mark.encode() in path.read_bytes().split(b"\0")
    return found


UNSEEN = ("course_lib.checks.judge", "course_lib.reference", "course_lib.exercises")


def test_the_host_has_not_imported_what_judges(guest):
    # A guest has its host's memory, so it has the solutions of earlier lessons and no later one.
    known = value(guest, "[n for n in __import__('sys').modules if n.startswith('course_lib')]")
    assert not any(name in known for name in UNSEEN)
    assert "course_lib.attention._kernel_pooling" in known
    for name in (*UNSEEN, "course_lib.attention._masked_softmax", "course_lib.grading.driver"):
        ran = guest.run(f"import {name}", 20)
        assert (ran.state, ran.outputs[-1]["ename"]) == ("error", "ModuleNotFoundError")
    ran = guest.run("from course_lib import check\ncheck('causal_mask')", 5)
    assert ran.state == "ok" and "judged outside" in ran.outputs[0]["text"]


@linux
def test_a_host_that_does_not_start_is_a_fault_with_its_last_words(monkeypatch):
    command = [sys.executable, "-c", "raise SystemExit('no memory for it')"]
    monkeypatch.setattr(confinement, "command", lambda *_: (command, dict(os.environ)))
    with pytest.raises(GradingError, match="its host does not start: no memory for it"):
        open_guests("off", LIMITS)


@linux
def test_nothing_is_left_on_the_disk(tmp_path, monkeypatch):
    code = (
        "import time; from course_lib.grading.sandbox.hosts import open_guests\n"
        "guests = open_guests('off'); guests.start().wait_ready()\n"
        "print('ready', flush=True); time.sleep(9999)"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE
    ) as killed:
        assert killed.stdout.readline() == b"ready\n"
        killed.kill()
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    guests = open_guests("off", LIMITS)
    assert list(tmp_path.iterdir()) == [guests._host.folder] != [left]
    guests.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("bwrap", "bwrap is missing; apt-get install bubblewrap"),
        ("pyseccomp", "libseccomp is missing .*; apt-get install libseccomp2"),
        ("linux", "needs Linux"),
    ],
)
def test_a_level_that_cannot_be_had_is_refused_with_the_cure(monkeypatch, missing, why):
    confinement.obstacles.cache_clear()
    if missing == "bwrap":
        monkeypatch.setattr(confinement.shutil, "which", lambda name: None)
    elif missing == "linux":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(GradingError, match=f"sandbox strict is not .*{why}.*--sandbox off"):
        open_guests("strict")
    monkeypatch.undo()
    confinement.obstacles.cache_clear()


def test_bwrap_is_started_where_it_was_found(monkeypatch, tmp_path):
    monkeypatch.setattr(confinement.shutil, "which", lambda name: f"/opt/conda/bin/{name}")
    assert confinement.command("strict", tmp_path, 3)[0][0] == "/opt/conda/bin/bwrap"


@linux
def test_a_worker_whose_shared_host_does_not_start_takes_a_weaker_one_of_its_own(monkeypatch):
    # This is the case in a container where bwrap is installed and may not make namespaces.
    command = confinement.command

    def refused(level, *more):
        return (
            (["false"], {"PATH": "/usr/bin:/bin"}) if level == "strict" else command(level, *more)
        )

    monkeypatch.setattr(confinement, "obstacles", dict)
    monkeypatch.setattr(confinement, "command", refused)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    guests = open_guests(None, LIMITS, channel=ours)
    assert str(guests.reached).startswith("sandbox off (no strict: its host does not start")
    guests.close()
