"""S06, S14, S15: memory that is shared, processes and the disk have limits, root or not."""

import sys

import experiment
import pytest
from course_lib.grading.kernels import forked, sandbox
from course_lib.grading.kernels.client import Client
from course_lib.grading.kernels.provider import provider

from course_lib.grading.sandbox.confinement import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
LIMITS = Limits(memory=1_000_000_000, disk=20_000_000, file_size=5_000_000)
FILL = """
import mmap, os, time
block = b"x" * (1 << 20)
def fill(size):
    if {device}:
        with open("/dev/zero", "r+b") as file:
            area = mmap.mmap(file.fileno(), size, mmap.MAP_SHARED)
    else:
        area = mmap.mmap(-1, size)
    for at in range(0, size - len(block), len(block)):
        area[at : at + len(block)] = block
        area.madvise(mmap.MADV_DONTNEED)
    return area
"""
WRITE = """
import os
held, free = [], True
for number in range({files}):
    name = {folder!r} + f"/{{number}}"
    file = open(name, "wb", buffering=0)
    if {unlinked}:
        os.unlink(name)
        held.append(file)
    file.write(b"x" * {size})
import time
time.sleep(20)
"""


@pytest.fixture(scope="module")
def kernels():
    """Start a provider at level `strict`."""
    if why := experiment.obstacle():
        pytest.skip(why)
    made = provider("strict", LIMITS)
    yield made
    made.close()


@pytest.fixture
def client(kernels):
    """A kernel and the connection to it."""
    kernel = kernels.start(0)
    made = Client(kernel).wait_ready(300.0)
    yield made
    kernel.kill()
    made.close()


def ended(client: Client, code: str) -> str:
    """Why code ended its kernel; empty if it did not."""
    client.run(code, 20.0)
    if client.kernel.over.is_set():
        return client.kernel.ending["reason"]
    return ""


@pytest.mark.parametrize("device", [False, True])
def test_s06_shared_memory_that_is_let_go_counts(client, device):
    fork = "for _ in range(4):\n    if not os.fork():\n        area = fill(400_000_000)\n"
    code = FILL.format(device=device) + fork + "        time.sleep(60)\ntime.sleep(20)"
    assert ended(client, code) == "memory"


def test_s06_one_process_that_lets_go_is_counted_too(client):
    code = FILL.format(device=False) + "held = [fill(300_000_000) for _ in 'abcd']\n"
    assert ended(client, f"{code}time.sleep(20)") == "memory"


def test_s06_address_space_has_an_end(client):
    ran = client.run("import mmap\nmmap.mmap(-1, 6_000_000_000)", 20.0)
    assert ran.state == "error" and "Cannot allocate memory" in ran.outputs[-1].evalue


def test_s06_honest_sharing_is_not_in_the_way(client):
    code = "import torch\nx = torch.zeros(1_000_000).share_memory_()\n"
    ran = client.run(code + FILL.format(device=False) + "fill(200_000_000)[0]", 20.0)
    assert (ran.state, ran.outputs[-1]["data"]["text/plain"]) == ("ok", "120")


BOMB = """
import os, time
made = 0
try:
    while made < 3000:
        if not os.fork():
            time.sleep(60)
        made += 1
except OSError as error:
    print(made, error.strerror)
"""


def test_s14_a_fork_bomb_stops_at_the_limit(client, kernels):
    said = client.run(BOMB, 20.0)
    if client.kernel.over.is_set():  # root may have no such limit where nothing else holds it
        assert client.kernel.ending["reason"] == "processes"
        return
    made, why = said.outputs[0]["text"].split(None, 1)
    assert int(made) <= LIMITS.processes and "unavailable" in why


def test_s14_a_thread_bomb_stops_at_the_limit_too(client):
    sleeper = "threading.Thread(target=time.sleep, args=[60]).start()"
    code = f"import threading, time\ntry:\n    for made in range(500):\n        {sleeper}\n"
    said = client.run(f"{code}except RuntimeError:\n    pass\nprint(made)", 20.0)
    assert int(said.outputs[0]["text"]) <= LIMITS.processes


def test_s14_the_kernel_beside_a_bomb_still_works(client, kernels):
    client.run(BOMB, 20.0)
    beside = kernels.start(0)
    other = Client(beside).wait_ready(300.0)
    code = "import threading\nthreads = [threading.Thread(target=print) for _ in range(8)]\n"
    assert other.run(code + "[thread.start() for thread in threads]", 20.0).state == "ok"
    beside.kill()
    other.close()


@pytest.mark.parametrize("release", ["5.4.0-1-generic", "5.13", "5.14.0", "6.18.44-fc", "rolling"])
def test_s14_older_systems_count_everything_that_a_user_runs(monkeypatch, release):
    monkeypatch.setattr(forked.os, "uname", lambda: type("U", (), {"release": release}))
    assert forked._counts_apart() == (release in ("5.14.0", "6.18.44-fc"))
    assert forked._tasks_here() >= 1


@pytest.mark.parametrize("unlinked", [False, True])
def test_s15_the_disk_is_not_filled(client, unlinked):
    own = client.run("import os; print(os.getcwd())", 20.0).outputs[0]["text"].strip()
    code = WRITE.format(files=100, folder=own, unlinked=unlinked, size=4_000_000)
    ran = client.run(code, 20.0)
    assert "No space left" in ran.outputs[-1].evalue  # its folder is in memory


def test_s15_many_small_files_are_as_bad(client):
    own = client.run("import os; print(os.getcwd())", 20.0).outputs[0]["text"].strip()
    code = WRITE.format(files=5_000, folder=own, unlinked=False, size=1)
    ran = client.run(code, 20.0)
    assert "No space left" in ran.outputs[-1].evalue


def test_s15_nothing_can_be_added_to_the_folder_of_the_sockets(client):
    for code in ("open('/ipc/x', 'w')", "os.mkdir('/ipc/x')", "os.mkfifo('/ipc/x')"):
        ran = client.run(f"import os\n{code}", 20.0)
        assert "Read-only file system" in ran.outputs[-1].evalue
    code = "import socket\nsocket.socket(socket.AF_UNIX).bind('/ipc/x')"
    assert "Read-only file system" in client.run(code, 20.0).outputs[-1].evalue
    folder = sandbox.Path(client.kernel.connection["ip"]).parent
    assert {path.name for path in folder.iterdir()} == {f"k-{number}" for number in range(1, 6)}
