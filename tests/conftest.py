"""Settings of all tests: checked shapes, hypothesis profiles, fixtures, order, no skips in CI."""

import gc
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# A shell's background jobs ignore Ctrl-C, and so do the processes that tests start from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every shape and dtype written in a signature of the library is checked at each call.
LIBRARY = Path(__file__).parent.parent / "course_lib"
LESSONS = [f"course_lib.attention._{p.name}" for p in LIBRARY.glob("exercises/[a-z]*/")]
LESSONS += [f"course_lib.fused.{p.stem}" for p in LIBRARY.glob("fused/*.py") if "__" not in p.stem]
install_import_hook(LESSONS, "beartype.beartype")

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=30, **COMMON)
settings.register_profile("ci", max_examples=40, derandomize=True, **COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture
def own_course(tmp_path, monkeypatch):
    """Yield a course folder with the kernel working in a lesson; forget its library afterwards."""
    from library_notebook import forget

    monkeypatch.setattr(sys, "path", [*sys.path])
    root = tmp_path / "Mein Kürs 注意"
    lesson = root / "notebooks" / "02_masked_softmax"
    lesson.mkdir(parents=True)
    (root / "nbgrader_config.py").touch()
    monkeypatch.chdir(lesson)
    yield root
    forget()


@pytest.fixture
def notebook(own_course, monkeypatch):
    from library_notebook import sit_down

    return sit_down(monkeypatch)


@pytest.fixture
def shown(monkeypatch):
    """Collect what plotting displays, as if a notebook were there."""
    bundles = []
    monkeypatch.setattr("course_lib.plotting.display.current_shell", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda data, **kwargs: bundles.append(data))
    return bundles


@pytest.fixture(scope="session")
def host():
    """Yield the host of the tiny course's guests, or None if the system cannot fork."""
    from grading_course import LESSON

    from course_lib.grading.executors.local import start_host
    from course_lib.grading.sandbox.confinement import Limits

    started = start_host(None, Limits(), LESSON)
    yield started
    if started is not None:
        started.close()


@pytest.fixture(scope="module")
def strict():
    from grading_course import GUEST_LIMITS, LESSON

    from course_lib.grading.sandbox.hosts import open_guests

    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is missing: apt-get install bubblewrap")
    guests = open_guests("strict", GUEST_LIMITS, LESSON)
    yield guests
    guests.close()


@pytest.fixture
def guest(strict):
    started = strict.start().wait_ready()
    yield started
    started.kill()


@pytest.fixture(scope="module")
def warm(host):
    """Share one host among the runs in this process, which saves seconds for each run."""
    from course_lib.grading.worker import runner

    own = runner.Runner

    def shared(sandbox, limits, channel):
        can_fork = host is not None and sandbox != "off" and sys.platform == "linux"
        channel = host.channel.dup() if can_fork else None
        return own(sandbox, limits, channel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "Runner", shared)
        yield


def pytest_collection_finish():
    """Freeze the garbage collector so that it does not scan the collected tests each time."""
    gc.collect()
    gc.freeze()


# The slowest files, in this order, each in one worker.
LONGEST = ("test_guides", "test_lab", "test_site", "test_stability", "test_grading_executors")
LONGEST += ("test_matrix", "test_printed_expressions", "test_bundle_answers", "test_restart")
LONGEST += ("test_grading_unusual", "test_faults", "test_bundle", "test_hub", "test_guest")


def pytest_collection_modifyitems(items):
    """Mark the slow folders, and run long files first, so that no worker finishes alone."""
    for item in items:
        if item.path.parent.name in ("browser", "threats"):
            item.add_marker(pytest.mark.slow)

    def place(item):
        if item.path.stem in LONGEST:
            return LONGEST.index(item.path.stem)
        return len(LONGEST) + (item.get_closest_marker("slow") is None)

    items.sort(key=place)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def fail_if_skipped(report, name):
    """Fail skipped tests in CI, so that a missing Debian package does not hide a test."""
    if report.skipped and os.environ.get("CI"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{name} was skipped, which CI counts as a failure: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if item.get_closest_marker("gpu") or hasattr(report, "wasxfail"):
        return report
    return fail_if_skipped(report, item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return fail_if_skipped((yield), collector.nodeid)
