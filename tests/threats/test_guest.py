"""S05 to S07, S14, S15, U01, U04, V06 to V12: one guest against its limits and its leftovers.

What one cell does must not reach a later cell, another guest or the process that reads the pipe.
"""

import inspect
import os
import platform
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import experiment
import pytest
from grading_course import GUEST_LIMITS as LIMITS

import course_lib
from course_lib.benchmarks import peak_memory
from course_lib.exercises import find
from course_lib.grading.sandbox import cgroup
from course_lib.grading.sandbox.hosts import open_guests
from course_lib.grading.sandbox.inside import lockdown
from course_lib.grading.sandbox.inside.frames import FrameError, read_frames
from course_lib.reference import masked_softmax as reference

pytestmark = experiment.needs_strict
SECONDS = 20.0
ALONE = "import os, time\nassert os.getpid() == 1\n"


def said(ran) -> str:
    return "".join(str(o.get("text") or o.get("evalue") or o.get("data")) for o in ran.outputs)


FORGED = {
    "a frame of another kind": b'{"kind": "ready"}',
    "no JSON": b"\xff",
    "a raw surrogate": b'{"kind": "stdout", "text": "\xed\xa0\x80"}',
    "deep objects": b'{"kind": "display", "data": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
    "deepest lists": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
HEAD = "import os, struct\nos.write(4, struct.pack('<I', {})); os.write(4, {!r})"
FRAMES = {what: HEAD.format(len(data), data) for what, data in FORGED.items()}
for what, head in {"of 4 GB": b"\xff\xff\xff\xff", "cut in half": b"\x10\0\0\0abc"}.items():
    FRAMES[what] = f"import os\nos.write(4, {head!r})"


@pytest.mark.parametrize("what", FRAMES)
def test_s05_a_forged_frame_ends_the_guest_that_sent_it(guest, what):
    assert guest.run(FRAMES[what], SECONDS).state == "died"


def test_s05_a_forged_answer_is_not_taken_for_one(guest):
    for kind in (b"done", b"reply"):
        data = b'{"kind": "%s", "ok": true, "number": 7, "text": "2.0"}' % kind
        assert guest.run(HEAD.format(len(data), data) + "\n1 / 0", SECONDS).state == "error"
        assert said(guest.run("print('later')", SECONDS)) == "later\n"


def test_s05_no_frame_holds_surrogates_or_huge_numbers():
    texts = (b'{"text": "a\\ud800", "count": ' + b"9" * 100_000 + b"}", b"[]")
    data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    frames = read_frames(iter([data[:100], data[100:]]).__next__)
    assert next(frames) is None and next(frames)[0] == {"text": "a?", "count": 0}
    with pytest.raises(FrameError):
        next(frames)


LATER = {  # leftovers of a cell must neither end nor delay later cells
    "a timer that exits": "threading.Timer(0.3, os._exit, [1]).start()",
    "an alarm": "signal.signal(signal.SIGALRM, lambda *_: os._exit(1))\n"
    "signal.setitimer(signal.ITIMER_REAL, 0.3)",
    "a watchdog": "faulthandler.dump_traceback_later(0.3, exit=True, file=open('/tmp/x', 'w'))",
    "a fork that reads the pipe": "os.fork()",
    "a fork behind Python's back": "ctypes.CDLL(None).fork()",
    "a loop that is stopped": "asyncio.get_event_loop().stop()",
    "a task that exits": "async def leave(): raise SystemExit\nasyncio.ensure_future(leave())",
    "signals to all": "for number in (1, 9, 14, 15, 19): os.kill(1, number)",
    "a closed stdout": "sys.stdout.close()",
    "no descriptors 0 to 2": "os.closerange(0, 3)",
    "a pending exit": "import atexit\natexit.register(time.sleep, 1e6)\nexit()",
}
IMPORTS = "import asyncio, ctypes, faulthandler, signal, sys, threading\n"


@pytest.mark.parametrize("what", LATER)
def test_u01_a_later_cell_does_not_pay_for_what_is_left_behind(guest, what):
    assert guest.run(f"{ALONE}{IMPORTS}{LATER[what]};", SECONDS).state == "ok"
    for number in range(3):
        ran = guest.run(f"import time\ntime.sleep(0.2)\nprint({number})", SECONDS)
        assert (ran.state, said(ran)) == ("ok", f"{number}\n")


LIMITED = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))"
LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
HIGH_BITS = f"""{LIBC}long = ctypes.c_ulong
libc.syscall({{}}, long(1 << 32), (long * 2)(1, 1), None)
while True: pass""".format({"x86_64": 160, "aarch64": 164}.get(platform.machine(), -1))  # setrlimit
CODES = ["os.close(3)", "os.closerange(3, 256)", "os.dup2(0, 4)", LIMITED, HIGH_BITS]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code[:22])
def test_u01_a_cell_that_takes_its_pipes_or_its_time_away_ends_by_itself(guest, code):
    assert guest.run(f"{ALONE}{code}", SECONDS).state == "died"
    ending = guest.kill()
    # An end by SIGKILL would be a fault of this machine.
    assert (ending["reason"], ending["code"]) != ("signal", signal.SIGKILL)


ORPHANS = """import subprocess
for _ in range(30):
    subprocess.run("sleep 0.01 & exit", shell=True)
time.sleep(0.1)"""


def test_u01_orphans_that_have_ended_do_not_count_as_processes_for_ever(guest):
    # A later cell still learns how a child of its own has ended.
    assert guest.run(f"{ALONE}child = os.spawnlp(os.P_NOWAIT, 'false', 'false')", 20).state == "ok"
    assert "256" in said(guest.run("print(os.waitpid(child, 0)[1])", SECONDS))
    for _ in range(4):
        ran = guest.run(ALONE + ORPHANS, SECONDS)
        assert ran.state == "ok", said(ran)


FILL = """
for _ in range(3):
    if not os.fork():
        break
held = bytearray(b"x") * 500_000_000
time.sleep(60)"""


def test_s06_memory_of_several_processes_is_added_up(guest):
    guest.run(ALONE + FILL, SECONDS)
    assert guest.kill()["reason"] == "memory"


def test_s06_no_memory_escapes_the_count_and_tensors_can_be_shared(guest):
    for where in ("mmap.mmap(-1, 4096)", "mmap.mmap(open('/dev/zero').fileno(), 9)"):
        assert guest.run(f"import mmap\n{where}", SECONDS).state == "error"
    big = "import mmap\nmmap.mmap(-1, 6_000_000_000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
    assert "Cannot allocate memory" in said(guest.run(big, SECONDS))
    assert guest.run("import torch\ntorch.zeros(1_000_000).share_memory_()", SECONDS).state == "ok"


BOMB = """
made = 0
try:
    while made < 3000:
        if not os.fork():
            time.sleep(60)
        made += 1
except OSError as error:
    print(made, error.strerror)
"""
THREADS = """
import threading
try:
    for made in range(500):
        threading.Thread(target=time.sleep, args=[60]).start()
except RuntimeError:
    print(made)
"""


def test_s14_bombs_stop_at_the_limit_and_the_guest_beside_them_works(guest, strict):
    ran = guest.run(ALONE + BOMB, SECONDS)
    assert ran.state == "died" or int(said(ran).split()[0]) <= LIMITS.processes
    beside = strict.start().wait_ready()
    assert int(said(beside.run(ALONE + THREADS, SECONDS))) <= LIMITS.processes
    other = strict.start().wait_ready()
    code = "import threading\nt = threading.Thread(target=print, args=[1])\nt.start(); t.join()"
    assert said(other.run(code, SECONDS)).strip() == "1"


WRITE = """
held = []
for number in range({files}):
    held.append(open(f"{folder}/{{number}}", "wb", buffering=0))
    {then}
    held[-1].write(b"x" * 4_000_000)
"""


@pytest.mark.parametrize(
    ("files", "then"),
    [(100, "pass"), (100, "os.unlink(held[-1].name)"), (5_000, "held.pop().close(); continue")],
    ids=["large", "unlinked", "many"],
)
def test_s15_the_disk_is_not_filled(guest, files, then):
    for folder in ("/scratch", "/tmp", "/dev/shm"):
        code = ALONE + WRITE.format(folder=folder, files=files, then=then)
        assert "No space left" in said(guest.run(code, SECONDS)), folder


FLOOD = """
import os, struct
data = b'{"kind": "display", "data": {"a": [' + b"[]," * 2_500_000 + b"[]]}}"
while True:
    os.write(4, struct.pack("<I", len(data)) + data)
"""


def test_s05_s07_floods_end_the_guest_and_stay_out_of_memory(guest, strict):
    before = peak_memory()
    ran = guest.run(FLOOD, SECONDS)
    assert (ran.state, ran.outputs) == ("killed", [])
    assert peak_memory() - before < 400_000_000
    same = strict.start().wait_ready()
    shown = "from IPython.display import display, update_display\nx = 'x' * 100_000\n"
    shown += "for _ in range(2_000): display(1, display_id='a')\nupdate_display(x, display_id='a')"
    assert same.run(shown, SECONDS).flooded  # it counts everything that it changes
    same.kill()


NAMED = "{'kind': 'stdout', 'text': '', 'display_id': '%09d' + 'x' * 6_000_000}"
HEAVY = {
    "names of displays": NAMED,
    "names of displays that change": NAMED.replace("stdout", "update").replace("'text'", "'data'"),
    "other requests": "{'kind': 'done', 'number': 9, 'more': '%09d' + 'x' * 6_000_000}",
    "clear": "{'kind': 'clear', 'more': '%09d' + 'x' * 6_000_000}",
    "tiny outputs": "{'kind': ('stdout', 'stderr')[n % 2], 'text': 'a%09d'}",
}
SEND = """
import json, os, struct
for n in range(10**9):
    data = json.dumps({}).replace("%09d", "%09d" % n).replace('"data": ""', '"data": {{}}').encode()
    data = memoryview(struct.pack("<I", len(data)) + data)
    while data:
        data = data[os.write(4, data):]
"""


@pytest.mark.parametrize("what", HEAVY)
def test_v07_every_byte_of_every_frame_counts_in_the_middle_of_a_cell(guest, what):
    before = peak_memory()
    ran = guest.run(SEND.format(HEAVY[what]), SECONDS)
    assert ran.state in ("killed", "timeout") and ran.flooded
    assert guest.received < 60 * LIMITS.output and len(ran.outputs) <= 10_000
    assert sum(map(len, guest._displays)) < 1_000
    assert peak_memory() - before < 200_000_000


def test_v07_many_short_lines_are_no_flood(guest):
    ran = guest.run("for n in range(30_000): print(n)", SECONDS)
    assert (ran.state, ran.flooded, len(ran.outputs)) == ("ok", False, 1)
    assert guest.received > LIMITS.output


@pytest.fixture(params=["as this machine counts", "without cgroups"])
def little(request, monkeypatch):
    """Yield a guest that may use 500 MB of memory, of which torch for CUDA takes 340."""
    if request.param == "without cgroups":
        monkeypatch.setattr(cgroup, "place", lambda: ())
    guests = open_guests("strict", replace(LIMITS, memory=500_000_000))
    yield guests.start().wait_ready()
    guests.close()


# They end by themselves after eight times the limit. Children of a process that ignores SIGCHLD
# leave no trace in the CPU time of others.
AMPLIFY = f"""{ALONE}import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.monotonic() + 16
def work(until):
    while time.monotonic() < min(until, end): pass
for cpu in sorted(os.sched_getaffinity(0)):
    if os.fork() == 0:
        os.sched_setaffinity(0, {{cpu}})
        while time.monotonic() < end:
            work(time.monotonic() + 0.1)
            if os.fork():
                os._exit(0)
        os._exit(0)
"""
WAITING = {
    "helpers": "for _ in range(2):\n    if os.fork() == 0: os.nice(19); work(end); os._exit(0)\n"
    "time.sleep(16)",
    "itself": "os.nice(19); work(end)",
}


@pytest.mark.parametrize("who", WAITING)
def test_v06_processes_that_wait_for_each_other_gain_no_time(little, who):
    ran = little.run(AMPLIFY + WAITING[who], 2.0)
    assert (ran.state in ("timeout", "killed"), ran.stopped) == (True, "cpu"), ran


SOCKETS = (
    ALONE
    + """import socket
for _ in range(12):
    if os.fork() == 0:
        held = [end for _ in range(110) for end in socket.socketpair()]
        for end in held:
            end.setblocking(False)
            try:
                while True: end.send(b"x" * 65536)
            except BlockingIOError: pass
        time.sleep(60)
time.sleep(60)"""
)
TABLES = (
    ALONE
    + """import mmap
for _ in range(60):
    if os.fork() == 0:
        size, flags = 4_000_000_000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        held = mmap.mmap(-1, size, flags, mmap.PROT_READ)
        for place in range(0, size, 1 << 21): held[place]
        time.sleep(60)
time.sleep(60)"""
)
MAPPINGS = f"""{ALONE}{LIBC}
page = 4096
libc.mmap.restype = ctypes.c_void_p
for _ in range(5):
    if os.fork() == 0:
        at = libc.mmap(None, ctypes.c_size_t(64_000 * page), 0, 0x4022, -1, 0)
        for other in range(0, 64_000, 2):
            libc.mprotect(ctypes.c_void_p(at + other * page), page, 1)
        time.sleep(60)
time.sleep(60)"""


@pytest.mark.parametrize("code", [SOCKETS, TABLES], ids=["sockets", "page tables"])
def test_v10_memory_of_the_kernel_counts(little, code):
    little.run(code, SECONDS)
    assert little.kill()["reason"] == "memory"


SHARED = f"""{LIBC}import fcntl, os, pty, socket
got = []
def refused(what, call):
    try: result = call()
    except OSError: result = -1
    if result != -1: got.append(what)
refused("io_setup", lambda: libc.syscall({{}}, 10, ctypes.byref(ctypes.c_ulong(0))))
refused("inotify", lambda: libc.inotify_init1(0))
refused("syncfs", lambda: libc.syncfs(os.open("/usr", 0)))
refused("ioctl", lambda: libc.ioctl(1, ctypes.c_ulong((1 << 32) + 0x5412), b"x"))
ends, pair = os.pipe(), socket.socketpair()
refused("pipe", lambda: fcntl.fcntl(ends[0], 1031, 1 << 20))
refused("lease", lambda: fcntl.fcntl(ends[0], 1024, 0))
refused("buffer", lambda: pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22))
held = []
refused("terminals", lambda: [held.extend(pty.openpty()) for _ in range(17)])
print(got, len(held))""".format({"x86_64": 206, "aarch64": 0}.get(platform.machine(), -1))


def test_v12_nothing_that_the_whole_machine_shares_can_be_taken(guest):
    assert said(guest.run(SHARED, SECONDS)) == "[] 32\n"


# A cgroup counts mappings as memory.
@pytest.mark.parametrize("little", ["without cgroups"], indirect=True)
def test_v10_the_kernels_lists_of_mappings_are_bounded(little):
    little.run(MAPPINGS, SECONDS)
    assert little.kill()["reason"] == "memory"


LOCKS = f"""{ALONE}import fcntl
file = open("/scratch/file", "w")
for start in range(0, 2000, 2): fcntl.lockf(file, fcntl.LOCK_EX, 1, start)
if os.fork() == 0:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.wait()[1]))"""


def test_v10_locks_take_no_memory_of_the_kernel(guest):
    assert said(guest.run(LOCKS, SECONDS)) == "5\n"


PROBE = """
found = []
for path in ("/dev/x", "/x", "/usr/x", "/library/x", "/dev/pts/x", "/etc/x"):
    try:
        open(path, "w").write("COVERT")
        found.append(path)
    except OSError:
        pass
print("written", found, "pids", [n for n in os.listdir("/proc") if n.isdigit()],
      "descriptors", os.listdir("/proc/self/fd"))
print("rights", *(line.split()[1] for line in open("/proc/self/status")
                  if line.startswith(("Cap", "NoNewPrivs", "Seccomp:"))))
"""
# five empty sets of capabilities, no new privileges, a filter of system calls
RIGHTS = f"rights {' '.join(['0' * 16] * 5)} 1 2"


def test_a_guest_sees_no_other_process_and_can_leave_nothing_for_the_next(guest, strict):
    leave = "import os\nfor folder in ('/tmp', '/dev/shm', '/scratch'): open(f'{folder}/x', 'w')\n"
    assert guest.run(leave, SECONDS).state == "ok"
    beside = strict.start().wait_ready()
    look = "import glob\nprint(sum(map(glob.glob, ('/tmp/x', '/dev/shm/*', '/scratch/*')), []))"
    assert said(beside.run(look, SECONDS)) == "[]\n"
    text = said(beside.run(ALONE + PROBE, SECONDS))
    assert "written [] pids ['1']" in text and RIGHTS in text
    descriptors = text.partition("descriptors")[2].partition("]")[0]
    assert descriptors.count("'") // 2 <= 11  # 0 to 4, two files, an event loop


SEARCH = r"""
import ctypes, re
found = set()
for line in open("/proc/self/maps"):
    first, last, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
    first, size = int(first, 16), int(last, 16) - int(first, 16)
    if rights.startswith("rw") and size < 2**30:
        memory = ctypes.string_at(first, size)
        for n, (half, rest) in enumerate(PHRASES):  # put together, it would find itself
            ends = (match.end() for match in re.finditer(re.escape(half), memory))
            found |= {n for end in ends if memory.startswith(rest, end)}
print("found", sorted(found))
"""


def test_s01_t12_no_solution_hint_or_oracle_lies_in_a_guests_memory(guest):
    # The search itself works: it finds a phrase of what a guest does import.
    root = Path(course_lib.__file__).parent
    known = inspect.getdoc(lockdown)
    exercise = find("causal_mask")
    phrases = [known, inspect.getdoc(reference), exercise.hints[2], exercise.mistakes[0].message]
    phrases += [(root / "attention" / "_masked_softmax.py").read_text(encoding="utf-8")[-200:]]
    halves = [(text[:20].encode(), text[20:40].encode()) for text in phrases]
    ran = guest.run(f"PHRASES = {halves!r}\n{SEARCH}", SECONDS)
    assert said(ran) == "found [0]\n"


ORDINARY = """
import test_guest as t
guests = t.open_guests("strict", t.LIMITS)
guest = guests.start().wait_ready()
print(t.os.getuid(), t.said(guest.run(t.ALONE + t.PROBE, t.SECONDS)))
print("bomb", guest.run(t.ALONE + t.BOMB, t.SECONDS).state, guest.kill()["reason"])
guest = guests.start().wait_ready()
guest.run(t.SOCKETS.replace("range(12)", "range(30)"), t.SECONDS)
print("sockets", guest.kill()["reason"])
guests.close()
"""


def test_s14_s15_the_same_holds_for_an_ordinary_user():
    # Such a user is in a user namespace; what is theirs here belongs to root outside.
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-c"]
    place = Path(__file__).parent
    environ = os.environ | {"PYTHONPATH": f"{place}:{place.parent}"}
    done = subprocess.run([*command, ORDINARY], capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("1000 written [] pids ['1']") and RIGHTS in done.stdout
    assert "bomb died processes" in done.stdout or "bomb ok" in done.stdout  # without, with cgroups
    assert "sockets memory" in done.stdout
