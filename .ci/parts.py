"""The parts of `course test --all`, as CI runs them side by side: python .ci/parts.py PART.

Every test file is in exactly one part; the notebooks and the second pass are parts of their own.
`student` is what a student's machine needs, on any system: it repeats some of the others.
"""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from course_lib import selftest  # noqa: E402

GRADING = ("grading_*", "demo", "cli*", "bench_grading", "doctor", "bundle", "guides")
ANSWERS = ("matrix", "known_mistakes", "repairs", "promises", "docs")  # all that is written down
# The student's part: no Linux, no sandbox, no browser, no C compiler (which torch.compile wants).
STUDENT = (
    "attention_*",
    "checks",
    "checks_cells",
    "checks_codec",
    "checks_cost_meter",
    "checks_fake_device",
    "checks_html",
    "checks_modules",
    "checks_progress",
    "checks_reports",
    "plotting*",
)


def files(*stems: str) -> list[str]:
    """The test files of these names, which may hold a star."""
    found = {path for stem in stems for path in ROOT.glob(f"tests/test_{stem}.py")}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def _rest() -> list[str]:
    return sorted(set(files("*")) - set(files(*GRADING, *ANSWERS)))


def _tests(*names: str) -> selftest.Count:
    return selftest.unit_tests(ROOT, ["-q", *selftest.WORKERS, *names])


def _student() -> selftest.Count:
    tests = selftest.unit_tests(ROOT, ["-q", "-k", "not compile", *files(*STUDENT)])
    return _sum(tests, selftest.notebooks(ROOT))


def _sum(*counts: selftest.Count) -> selftest.Count:
    return selftest.Count(*(sum(column) for column in zip(*counts, strict=True)))


PARTS: dict[str, Callable[[], selftest.Count]] = {
    "style": lambda: _sum(selftest.style(ROOT), selftest.drift(ROOT)),
    "library": lambda: _tests(*_rest()),
    "answers": lambda: _tests(*files(*ANSWERS)),
    "grading": lambda: _tests(*files(*GRADING)),
    "threats": lambda: _tests("tests/threats"),
    "browser": lambda: _tests("tests/browser"),
    "notebooks": lambda: selftest.notebooks(ROOT),
    "processor": lambda: selftest.other_processor(ROOT),
    "student": _student,
}


def main(part: str) -> int:
    """Runs one part; 0 if something was checked and all of it is right."""
    count = PARTS[part]()
    print(f"{part}: {count}", flush=True)
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
