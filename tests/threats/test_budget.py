"""S05, S07, S08: bytes are counted before they are kept; no process of ours grows with them."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import experiment
import pytest
import zmq
from course_lib.grading.disposable import Child
from course_lib.grading.kernels.channels import MAX_MESSAGE, Channel
from grading_course import LESSON, hand_in, honest, make_course
from nbformat.v4 import new_code_cell

from course_lib.grading.course import Course
from course_lib.grading.sanitize import KEPT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
MOST = 600_000_000  # bytes of the driver, and of each worker
FLOODS = {
    "frames": ""
    "socket = get_ipython().kernel.iopub_socket\n"
    "socket.send_multipart([b'x' * 19_000_000] * 20)",
    "small frames": "get_ipython().kernel.iopub_socket.send_multipart([b''] * 1_000_000)",
    "nested": "from IPython.display import display\nx = 'x' * 9_000_000\n"
    "for _ in range(9):\n    x = [x]\n"
    "display({'text/plain': '', 'application/json': x}, raw=True)",
    "lists": "from IPython.display import display\n"
    "display({'text/plain': '', 'application/json': [[]] * 2_500_000}, raw=True)",
}
RUN = """
import json, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from course_lib.benchmarks.memory import status
from course_lib.grading.run import Settings, grade
from course_lib.grading.sandbox.confinement import Limits
settings = Settings("serial", "strict", limits=Limits(cell_seconds=20.0))
summary = grade(Path(sys.argv[1]), sys.argv[3], settings=settings)
points = {s.student: [s.problem, *(r.points for r in s.rows)] for s in summary.students}
peak = status("VmHWM")
print(json.dumps({"peak": peak, "points": points}))
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class graded by one process, driver and worker at once: (root, its peak, points)."""
    if why := experiment.obstacle():
        pytest.skip(why)
    root = make_course(tmp_path_factory.mktemp("budget"))
    for name, code in FLOODS.items():
        notebook = honest(root)
        notebook.cells += [new_code_cell(code, id=f"own{n}") for n in range(2)]
        hand_in(root, name, notebook)
    notebook = honest(root)
    notebook.cells += [new_code_cell("print('x' * 900_000)", id=f"own{n}") for n in range(16)]
    hand_in(root, "many cells", notebook)
    empty = '{"nbformat": 4, "metadata": {"x": [%s]}, "cells": []}'
    hand_in(root, "file", empty % ("[],{}," * 8_000_000 + "1"))
    hand_in(root, "z-honest", honest(root))
    command = [sys.executable, "-c", RUN, str(root), str(Path(__file__).parents[1]), LESSON]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return root, said["peak"], said["points"]


def test_s05_nobody_loses_a_point_to_a_flood_of_bytes(graded):
    _, _, points = graded
    problem, *none = points.pop("file")
    assert "could not be read (it took more than 600 MB" in problem and none == [None, None]
    assert points == {name: [None, 2.0, 2.0] for name in points}
    assert len(points) == len(FLOODS) + 2


def test_s07_the_grader_stays_small_whatever_is_sent(graded):
    assert graded[1] < MOST


def test_s08_a_notebook_and_its_page_keep_what_fits(graded):
    root, _, _ = graded
    notebook = Course(root).autograded_notebook("many cells", LESSON)
    text = notebook.read_text(encoding="utf-8")
    assert KEPT / 2 < len(text) < 2 * KEPT
    assert "all cells together put out more than" in text
    for page in (root / "feedback").rglob("*.html"):
        assert page.stat().st_size < 4 * KEPT


@pytest.fixture
def peer(tmp_path):
    """A publisher and what connects to it."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.bind(f"ipc://{tmp_path}/k-1")
        yield publisher, {"transport": "ipc", "ip": f"{tmp_path}/k", "iopub_port": 1}


def test_s05_a_message_is_counted_as_a_whole_and_not_kept(peer):
    """In 60 MB beyond what is there: 200 MB in frames that are each small enough are not kept."""
    publisher, connection = peer

    def listen(_) -> str:
        channel = Channel(connection, "iopub")
        found = [channel.receive(60), channel.receive(60)]
        whole = [[len(frame) for frame in frames or []] for frames in found]
        return json.dumps([whole, channel.received])

    child = Child(listen, memory=60_000_000)
    child.begin(None)
    assert publisher.poll(60_000) and publisher.recv() == b"\x01"
    sent = [[b"first"], [b"x" * (MAX_MESSAGE // 4)] * 200, [b""] * 500_000, [b"y" * 10**7, b"last"]]
    send = threading.Thread(target=lambda: [publisher.send_multipart(m) for m in [*sent, [b"end"]]])
    send.start()
    sizes, received = json.loads(child.text())
    child.end()
    send.join()
    assert sizes == [[5], [3]]
    assert received > 200 * (MAX_MESSAGE // 4)


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\n" * 10, b"\xff" * 200, b""])
def test_s05_a_peer_that_speaks_otherwise_brings_no_message(tmp_path, said):
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/k-1")
        server.listen()
        connection = {"transport": "ipc", "ip": f"{tmp_path}/k", "iopub_port": 1}
        channel = Channel(connection, "iopub")
        channel.flush()
        theirs, _ = server.accept()
        theirs.sendall(said)
        theirs.close()
        assert channel.receive(0.3) is None
        channel.send([b"x"])
        assert channel.receive(0.05) is None
        channel.close()
