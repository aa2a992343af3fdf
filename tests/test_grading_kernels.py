"""Kernels from the zygote, and what each sandbox level confines."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from waiting import PATIENCE, wait_until

from course_lib.grading.executors import local as executors
from course_lib.grading.kernels import launch, sandbox
from course_lib.grading.kernels.client import Client
from course_lib.grading.kernels.guest import NO_FRONT_END
from course_lib.grading.kernels.provider import provider
from course_lib.grading.kernels.running_kernel import KernelFault
from course_lib.grading.kernels.sandbox import Limits
from course_lib.workspace.errors import GradingError

pytestmark = pytest.mark.slow

LIMITS = Limits(memory=1_500_000_000, total_seconds=60.0)
needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bwrap is missing: apt-get install bubblewrap"
)


@pytest.fixture(scope="module", params=[pytest.param("strict", marks=needs_bwrap)])
def kernels(request):
    """Start a zygote at level `strict`."""
    started = provider(request.param, LIMITS)
    yield started
    started.close()


@pytest.fixture
def client(kernels):
    """A connection to a fresh kernel."""
    kernel = kernels.start(7)
    connected = Client(kernel).wait_ready(PATIENCE)
    yield connected
    kernel.kill()
    connected.close()


def value(client, expression: str):
    """What an expression is in the kernel, by way of its repr as JSON."""
    ran = client.run(f"import json; print(json.dumps({expression}))", 20)
    assert ran.state == "ok", ran.outputs
    return json.loads(ran.outputs[0]["text"])


def error_of(client, code: str, seconds: float = 10.0) -> str:
    ran = client.run(code, seconds)
    assert ran.state == "error", (ran.state, ran.outputs)
    return ran.outputs[-1]["ename"]


def test_a_kernel_runs_code_and_keeps_its_variables(client):
    assert client.run("x = 20", 5).state == "ok"
    assert client.run("x + 1", 5).outputs[0]["data"]["text/plain"] == "21"


@pytest.mark.parametrize("level", ["basic", "off"])
def test_a_kernel_runs_code_at_the_other_levels(level):
    kernels = provider(level, LIMITS)
    connected = Client(kernels.start(7)).wait_ready(PATIENCE)
    try:
        assert value(connected, "[x + 1 for x in range(3)]") == [1, 2, 3]
    finally:
        connected.close()
        kernels.close()


LARGE_PAGES = """
from pathlib import Path
from course_lib.grading.kernels.guest import lockdown

held = [bytearray(b"x" * 1000) for _ in range(40_000)]

def large():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))

before = large()
lockdown.lay_in_large_pages()
assert all(each == b"x" * 1000 for each in held)
print(before, large())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")
def test_what_is_to_be_forked_lies_in_large_pages():
    command = [sys.executable, "-c", LARGE_PAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    release = [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]]
    if release < [6, 1] or not Path("/sys/kernel/mm/transparent_hugepage").is_dir():
        pytest.skip("this system collects no pages when asked")
    assert after >= before + 20_000  # kB, of the 40,000 that are held


def test_the_library_in_it_has_no_judge(kernels, client):
    for name in (
        "attention._masked_softmax",
        "reference",
        "checks.judge",
        "exercises",
        "notebook._local",
        "grading.run",
    ):
        assert error_of(client, f"import course_lib.{name}") == "ModuleNotFoundError"
    assert value(client, "__import__('course_lib').__file__.endswith('__init__.py')")
    ran = client.run("from course_lib import check, hint\ncheck('causal_mask')", 5)
    assert ran.state == "ok" and "judged outside" in ran.outputs[0]["text"]


def test_it_carries_no_debugger_and_no_list_of_all_modules(client):
    kernel = "get_ipython().kernel"
    assert value(client, f"{kernel}._kernel_modules") == []
    assert value(client, f"[{kernel}.shell_channel_thread, {kernel}.debugpy_stream]") == [None] * 2
    loaded = "[name in __import__('sys').modules for name in ('debugpy', 'sympy', 'torch')]"
    assert value(client, loaded) == [False, False, True]


def test_a_front_end_is_told_that_a_cell_begins_and_the_grader_is_not(kernels):
    kernel = kernels.start(7)
    connected = Client(kernel).wait_ready(PATIENCE)
    kinds: dict[str, list[str]] = {}
    for attached in ({NO_FRONT_END: True}, {}):
        asked = {"code": "print(end='')\n1", "silent": False, "allow_stdin": False}
        request = connected._send("shell", "execute_request", asked, attached)
        seen = kinds[str(attached)] = []
        while seen[-1:] != ["idle"]:
            message = connected._next("iopub", PATIENCE)
            if message["parent_header"].get("msg_id") == request:
                seen.append(message["content"].get("execution_state") or message["msg_type"])
    kernel.kill()
    connected.close()
    quiet, told = kinds.values()
    assert quiet == ["execute_result", "idle"]
    assert told == ["busy", "execute_input", "execute_result", "idle"]


def test_children_are_seeded_and_start_alike(kernels):
    drawn = []
    for seed in (1, 1, 2):
        kernel = kernels.start(seed)
        connected = Client(kernel).wait_ready(PATIENCE)
        drawn.append(value(connected, "__import__('torch').rand(2).tolist()"))
        kernel.kill()
        connected.close()
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_environment_holds_no_secret(client, monkeypatch):
    names = value(client, "sorted(__import__('os').environ)")
    assert ("COURSE_CHECK_SEED" not in names and "PWD" in names) or "HOME" in names
    assert not {"SECRET", "DATABASE_URL", "SSH_AUTH_SOCK"} & set(names)


def test_an_endless_loop_is_interrupted_and_the_kernel_goes_on(client):
    assert client.run("while True: pass", 0.5).state == "timeout"
    assert client.run("1 + 1", 5).state == "ok"


def test_a_loop_that_ignores_the_interrupt_is_killed(client):
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert client.run(code, 0.5).state == "killed"
    assert client.kernel.ending["reason"] == "killed"


@pytest.mark.parametrize(
    ("code", "reason"),
    [("import os\nos._exit(3)", "exit"), ("import ctypes\nctypes.string_at(0)", "signal")],
)
def test_a_death_is_told_from_an_answer(client, code, reason):
    assert client.run(code, 10).state == "died"
    assert client.kernel.ending["reason"] == reason


def test_what_it_started_ends_with_it(kernels, client, tmp_path):
    mark = f"sleeper {tmp_path}"
    code = (
        "import os, subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9999)', {mark!r}],"
        " start_new_session=True)\nprint(p.pid)"
    )
    assert client.run(code, 10).state == "ok"
    wait_until(lambda: _processes(mark))
    client.kernel.kill()
    wait_until(lambda: not _processes(mark))


def _processes(mark: str) -> int:
    """How many processes have the mark as an argument."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += mark.encode() in path.read_bytes().split(b"\0")
    return found


def test_memory_is_bounded(client):
    ran = client.run("import torch\nx = [torch.ones(10**7) for _ in range(10**4)]", 20)
    assert ran.state in ("error", "died")
    assert ran.state == "error" or client.kernel.ending["reason"] == "memory"


def test_output_is_bounded(client):
    ran = client.run("while True: print('x' * 1000)", 20)
    assert (ran.state == "error" or ran.flooded) and len(str(ran.outputs)) < 3_000_000


def test_a_large_file_is_refused(client):
    assert error_of(client, "open('big', 'wb').write(bytes(100_000_000))") == "OSError"


def test_there_is_no_network(client):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)"
        assert error_of(client, code) in ("OSError", "PermissionError", "ConnectionRefusedError")
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_nothing_of_the_host_can_be_read_or_written(client, tmp_path):
    secret = tmp_path / "gradebook.db"
    secret.write_text("everyone's grades")
    for code in (f"open({str(secret)!r}).read()", f"open({str(secret)!r}, 'w').write('x')"):
        assert error_of(client, code) in ("FileNotFoundError", "PermissionError", "OSError")
    assert secret.read_text() == "everyone's grades"
    place = "/usr/lib" if os.getuid() else "/usr"
    assert error_of(client, f"open('{place}/new', 'w')") in ("OSError", "PermissionError")


@needs_bwrap
def test_strict_shows_one_process_and_an_empty_folder():
    started = provider("strict", LIMITS)
    kernel = started.start(0)
    connected = Client(kernel).wait_ready(PATIENCE)
    try:
        pids = value(connected, "[p for p in __import__('os').listdir('/proc') if p.isdigit()]")
        assert pids == ["1"]
        assert value(connected, "__import__('os').listdir('.')") == []
        assert value(connected, "__import__('os').listdir('/home') if 0 else 1") == 1
        status = value(connected, "open('/proc/self/status').read()")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
        if os.getuid() == 0:
            assert int(fields["Uid"].split()[0]) >= sandbox.FIRST_UID
        folder = started.folder
    finally:
        connected.close()
        started.close()
    assert not folder.exists()


def test_a_zygote_that_was_killed_is_replaced(kernels):
    lost = kernels.start(0)
    connected = Client(lost).wait_ready(PATIENCE)
    kernels._process.kill()
    assert lost.over.wait(PATIENCE) and lost.ending["reason"] == "zygote"
    connected.close()
    again = kernels.start(0)
    connected = Client(again).wait_ready(PATIENCE)
    assert connected.run("1", 5).state == "ok"
    again.kill()
    connected.close()


@needs_bwrap
def test_a_shared_zygote_serves_several_and_each_ends_only_its_own():
    zygote = executors.shared_zygote("strict")
    if os.getuid() != 0:  # a kernel could reach its socket
        assert zygote is None
        return
    joined = [provider("strict", LIMITS, zygote.folder) for _ in range(2)]
    try:
        assert [each._process for each in joined] == [None, None]
        kernels = [each.start(0) for each in joined]
        clients = [Client(kernel).wait_ready(PATIENCE) for kernel in kernels]
        assert kernels[0].connection["ip"].startswith(str(zygote.folder))
        clients[0].close()
        joined[0].close()
        assert kernels[0].over.is_set() and not kernels[1].over.is_set()
        assert clients[1].run("1", 5).state == "ok"
        zygote.process.kill()
        assert kernels[1].over.wait(PATIENCE) and kernels[1].ending["reason"] == "zygote"
        clients[1].close()
        again = Client(joined[1].start(0)).wait_ready(PATIENCE)
        assert joined[1]._process is not None and again.run("1", 5).state == "ok"
        again.close()
    finally:
        for each in (*joined, zygote):
            each.close()
    assert not zygote.folder.exists()


@pytest.fixture
def place():
    """A temporary folder with the longest name in which sockets still fit."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder) / ("x" * (launch.LONGEST_PLACE - len(folder) - 1))
        place.mkdir()
        yield place


def test_the_folder_of_a_killed_grader_is_removed_by_the_next_one(place, monkeypatch):
    code = (
        "import time; from course_lib.grading.kernels.provider import provider;"
        "print(provider('off').folder, flush=True); time.sleep(9999)"
    )
    environ = {**os.environ, "TMPDIR": str(place)}
    killed = subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True
    )
    left = Path(killed.stdout.readline().strip())
    killed.kill()
    killed.wait()
    killed.stdout.close()
    assert left.is_dir() and left.parent == place
    notes = Path(tempfile.mkdtemp(prefix="course-kernels-notes-", dir=place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    provider("off").close()
    assert not left.exists() and notes.is_dir()


def test_where_sockets_would_not_fit_they_lie_elsewhere(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert launch.place_for_sockets() == str(place)
    monkeypatch.setattr(tempfile, "tempdir", f"{place}x")
    assert launch.place_for_sockets() == "/tmp"


def test_a_level_that_cannot_be_had_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setattr(sandbox, "obstacles", lambda: {"strict": "bwrap is missing; install it"})
    with pytest.raises(GradingError, match=r"sandbox strict cannot .*bwrap is missing.*--sandbox"):
        provider("strict")
    best = provider(None)
    assert best.reached.level == "basic"
    assert str(best.reached) == "sandbox basic (no strict: bwrap is missing; install it)"
    best.close()


def test_a_kernel_that_never_answers_is_a_fault_of_ours(kernels):
    kernel = kernels.start(0)
    kernel.kill()
    with pytest.raises(KernelFault, match="did not start"):
        Client(kernel).wait_ready(1)
