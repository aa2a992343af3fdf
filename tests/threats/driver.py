"""Grade a course in a process of its own that is hit at a chosen point; the tests start it.

python driver.py ROOT RESULTS POINT: RESULTS holds a real run's results, POINT reads FUNCTION:WHEN:
NUMBER:SIGNAL, for example `Ledger.put:before:2:9`.
"""

import os
import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from canned import Canned

from course_lib.grading import ledger, run
from course_lib.grading.publishing import publish
from course_lib.grading.run import Settings, grade
from course_lib.grading.sandbox.confinement import Limits

SETTINGS = Settings("serial", "strict", limits=Limits(cell_seconds=2.0, memory=1_000_000_000))
POINTS = {
    "Ledger.put": (ledger.Ledger, "put"),
    "Publisher._grade": (publish.Publisher, "_grade"),
    "Publisher.publish": (publish.Publisher, "publish"),
    "Publisher._write_page": (publish.Publisher, "_write_page"),
    "write_atomically": (publish, "write_atomically"),
    "Ledger.published": (ledger.Ledger, "published"),
    "replace": (os, "replace"),
}


def hit(point: str) -> None:
    """Arrange for a signal at a point."""
    name, when, number, signal = point.split(":")
    owner, attribute = POINTS[name]
    function, calls = getattr(owner, attribute), [0]

    def wrapped(*args, **kwargs):
        calls[0] += 1
        struck = calls[0] == int(number)
        if struck and when == "before":
            os.kill(os.getpid(), int(signal))
        result = function(*args, **kwargs)
        if struck and when == "after":
            os.kill(os.getpid(), int(signal))
        return result

    setattr(owner, attribute, wrapped)


def main(root: str, results: str, point: str) -> int:
    """Grade; the exit code of the summary."""
    run.executor = Canned(pickle.loads(Path(results).read_bytes()))
    if point:
        hit(point)
    return grade(Path(root), "02_masked_softmax", settings=SETTINGS).exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
