"""What happens where kernels, workers or machines cannot be had, tried without any."""

import importlib.util
import json
import os
import py_compile
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil  # noqa: F401  (asks once what the platform is, which a test replaces)
import pytest

from course_lib.grading.executors import dask, local, worker
from course_lib.grading.jobs import Job
from course_lib.grading.kernels import forked, launch, sandbox, spawned
from course_lib.grading.kernels.forked import ForkedKernels
from course_lib.grading.kernels.guest import lockdown
from course_lib.grading.kernels.provider import provider
from course_lib.grading.kernels.running_kernel import KernelFault
from course_lib.grading.kernels.sandbox import Limits, Reached
from course_lib.grading.kernels.staged_library import stage_library
from course_lib.workspace.errors import GradingError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux")
READY = {"event": "ready", "threads": 1}
FAKE = """
import json, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
say = lambda event: channel.sendall(json.dumps(event).encode() + b"\\n")
{body}
"""


@pytest.fixture
def zygote(monkeypatch):
    """Starts a process of a few lines of Python, in which `say` tells us something, instead."""
    processes = []

    def instead(body):
        def command(level, library, spool, descriptors):
            code = FAKE.format(body=body)
            return [sys.executable, "-S", "-c", code, str(descriptors[0])], dict(os.environ)

        monkeypatch.setattr(launch, "stage_library", lambda folder, lesson: folder)
        monkeypatch.setattr(sandbox, "command", command)
        popen = subprocess.Popen
        monkeypatch.setattr(
            "course_lib.grading.kernels.launch.subprocess.Popen",
            lambda *args, **options: processes.append(popen(*args, **options)) or processes[-1],
        )

    yield instead
    assert all(process.poll() is not None for process in processes), "a zygote was left behind"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit('no memory for it')", "its process does not start: no memory for it"),
        ("pass", "its process does not start: it says nothing"),
        ("channel.sendall(b'what?\\n')", "its process does not start: it says nothing"),
        ("say({'event': 'ready', 'threads': 3}); sys.stdin.read()", "has 3 threads, so it cannot"),
    ],
)
def test_a_zygote_that_does_not_come_up_is_said_with_the_reason(zygote, body, words):
    zygote(body)
    with pytest.raises(KernelFault, match=words):
        ForkedKernels("off", Limits(), {})
    with pytest.raises(GradingError, match=words):
        provider("off")


def test_a_first_kernel_that_does_not_come_up_is_said_with_its_last_words(zygote):
    zygote(
        f"say({READY})\n"
        "for line in channel.makefile():\n"
        "    name = json.loads(line)['name']\n"
        "    say({'event': 'ended', 'name': name, 'detail': 'Traceback\\nOSError: no users left'})"
    )
    with pytest.raises(KernelFault, match=r"^OSError: no users left$"):
        ForkedKernels("off", Limits(), {})


def test_a_zygote_that_cannot_be_joined_is_replaced_by_one_of_our_own(zygote, tmp_path):
    zygote("sys.exit('not here either')")
    with pytest.raises(KernelFault, match="not here either"):
        ForkedKernels("off", Limits(), {}, joins=tmp_path / "gone")


@pytest.fixture
def deaf(zygote, monkeypatch):
    """Kernels from a zygote that comes up and then hears nothing."""
    zygote(f"say({READY})\nimport time\ntime.sleep(9999)")
    monkeypatch.setattr(ForkedKernels, "_try_out", lambda self: None)
    monkeypatch.setattr(forked, "_END_SECONDS", 0.2)
    kernels = ForkedKernels("off", Limits(), {})
    yield kernels
    kernels.close()


def test_a_zygote_that_ends_no_kernel_is_ended_itself(deaf):
    kernel, process = deaf.start(0), deaf._process
    deaf.kill(kernel)
    assert kernel.over.is_set() and kernel.ending == {"reason": "zygote"}
    assert process.poll() is not None and deaf._process is None


def test_a_request_to_a_zygote_that_has_ended_is_a_fault_of_ours(deaf):
    deaf._stop()
    with pytest.raises(KernelFault, match="the process that forks kernels has ended"):
        deaf._send({"request": "kill", "name": "x"})


def test_where_all_users_are_taken_some_are_shared(monkeypatch):
    class Taken(socket.socket):
        def bind(self, address):
            raise OSError

    monkeypatch.setattr(sandbox.socket, "socket", Taken)
    claim, first = sandbox.claim_users(forked._UIDS)
    assert claim is None and first in range(sandbox.FIRST_UID, sandbox.LAST_UID, forked._UIDS)


def test_an_ordinary_kernel_that_does_not_start_is_a_fault_of_ours(monkeypatch):
    def refuse(self, **options):
        raise OSError("no more processes")

    monkeypatch.setattr(spawned.KernelManager, "start_kernel", refuse)
    kernels = spawned.SpawnedKernels(Reached("off"))
    with pytest.raises(KernelFault, match="does not start: no more processes"):
        kernels.start(0)
    kernels.close()


# --- machines that lack something ---------------------------------------------------------


@pytest.fixture
def obstacles():
    """What a machine lacks, asked afresh."""
    sandbox.obstacles.cache_clear()
    yield sandbox.obstacles
    sandbox.obstacles.cache_clear()


def test_what_a_machine_lacks_for_a_level_is_said_with_the_remedy(obstacles, monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: "/usr/bin/bwrap")
    monkeypatch.setattr(sandbox, "_python_folders", lambda: ["/opt/python", "/tmp/python"])
    monkeypatch.setattr(lockdown, "landlock_version", lambda: 0)
    assert obstacles() == {
        "strict": "Python lies in /tmp/python; install it outside of /tmp",
        "basic": "this kernel has no Landlock; Linux 5.13 or later has",
    }


def test_without_libseccomp_nothing_is_shut_in(obstacles, monkeypatch):
    def missing():
        raise OSError("libseccomp.so.2: cannot open")

    monkeypatch.setattr(sandbox, "_seccomp", missing)
    assert set(obstacles()) == {"strict", "basic"}
    assert all("apt-get install libseccomp2" in why for why in obstacles().values())


def test_an_environment_in_tmp_is_shown_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", "/tmp/venv")
    assert sandbox._inside("/tmp/venv/bin/python") == "/python/bin/python"
    assert sandbox._inside("/tmp/other") == "/tmp/other"
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert sandbox._python_paths() == sandbox._python_folders()


def test_the_sandbox_of_who_is_not_root_has_users_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(sandbox, "_installed_copy", lambda: "/usr/lib/python3/course_lib")
    monkeypatch.setattr(Path, "is_symlink", lambda self: False)  # /bin beside /usr/bin
    command = " ".join(sandbox._bubblewrap(tmp_path, tmp_path))
    assert "--unshare-user --uid 0 --gid 0" in command and "--ro-bind /bin /bin" in command
    hidden = "/usr/lib/python3/course_lib"
    assert f"--tmpfs {hidden} --remount-ro {hidden}" in command


def test_compiled_modules_come_along_with_the_library(tmp_path):
    source = sandbox._PACKAGE / "__init__.py"
    py_compile.compile(str(source))
    copy = stage_library(tmp_path, "") / "course_lib" / "__init__.py"
    compiled = Path(importlib.util.cache_from_source(str(copy)))
    assert compiled.read_bytes() == Path(importlib.util.cache_from_source(str(source))).read_bytes()


# --- workers ------------------------------------------------------------------------------


def test_a_zygote_is_shared_by_root_at_strict_alone(monkeypatch):
    assert local.shared_zygote("basic") is None
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert local.shared_zygote("strict") is None


def test_where_nothing_can_be_forked_workers_start_anew(monkeypatch):
    monkeypatch.setattr(worker.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert worker.processes().get_start_method() == "spawn"


def test_ctrl_c_is_heard_after_a_worker_has_begun():
    done = []

    def begin():
        with worker.defer_sigint():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("begun")

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert done == ["begun"]

    def elsewhere():
        with worker.defer_sigint():
            done.append(threading.current_thread() is threading.main_thread())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == ["begun", False]


def test_a_worker_keeps_no_secret_and_is_deaf_to_ctrl_c():
    code = (
        "import json, os, signal\n"
        "from course_lib.grading.executors import worker\n"
        "worker._begin('off', 'limits', None)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print(json.dumps([worker._arguments, 'DATABASE_URL' in os.environ, 'HOME' in os.environ]))"
    )
    environ = {**os.environ, "DATABASE_URL": "postgresql://me:sesame@host/db", "HOME": "/root"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [["off", "limits", None], False, True]


def test_the_level_that_is_reached_is_tried_out_and_left(monkeypatch):
    closed = []

    class Trial:
        reached = Reached("off")

        def close(self):
            closed.append(self)

    monkeypatch.setattr("course_lib.grading.kernels.provider.provider", lambda level: Trial())
    assert local.reached("off").level == "off" and len(closed) == 1


# --- Dask, without a cluster --------------------------------------------------------------


class Scheduler:
    def ncores(self):
        return {}


class DaskClient:
    """As much of a Dask client as is asked between two jobs."""

    def __init__(self, answer=None, status="running"):
        self.answer, self.status, self.scheduler = answer, status, Scheduler()

    def sync(self, ask, callback_timeout):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def on_dask(client):
    made = object.__new__(dask.OnDask)
    made.address, made.client, made.arguments = "host:1", client, ()
    return made


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (DaskClient(status="closed"), "the connection broke"),
        (DaskClient(OSError()), "the connection broke"),
        (DaskClient(TimeoutError()), "no answer within"),
    ],
)
def test_a_scheduler_that_is_lost_is_named_with_the_remedy(client, why):
    with pytest.raises(GradingError, match=rf"at host:1 was lost \({why}.*\): start it again"):
        on_dask(client)._workers()
    assert on_dask(DaskClient({"a": 1, "b": 1}))._workers() == 2


def test_a_result_that_takes_long_is_waited_for_while_the_scheduler_answers():
    class Slow:
        asked = 0

        def result(self, timeout):
            self.asked += 1
            if self.asked == 1:
                raise TimeoutError
            return "the result"

    assert on_dask(DaskClient({"a": 1}))._result(Slow()) == "the result"
    with pytest.raises(GradingError, match="was lost"):
        on_dask(DaskClient(status="closed"))._result(Slow())


def test_a_worker_that_does_not_know_the_course_is_told(monkeypatch):
    pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")

    class Future:
        key = "job"

        def add_done_callback(self, done):
            done(self)

        def result(self, timeout):
            raise ImportError("No module named 'course_lib'")

    client = DaskClient({"a": 1})
    client.submit = lambda *args, **options: Future()
    with pytest.raises(GradingError, match=r"does not know this course \(No module named 'cours"):
        list(on_dask(client).run([Job("ada", "02", "key", None, "seed")]))


def test_a_worker_that_cannot_grade_says_which_machine_it_is(monkeypatch):
    def refuse(sandbox, limits):
        raise KernelFault("no users left")

    monkeypatch.setattr(dask, "Runner", refuse)
    with pytest.raises(GradingError, match=r"the Dask worker on .* cannot grade: no users left"):
        dask.run_on_worker(None, dask.versions(), "none", Limits())


def test_without_dask_the_remedy_is_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(GradingError, match=r'pip install "attention-course\[scale\]"'):
        dask.OnDask("host:1", None, Limits())
