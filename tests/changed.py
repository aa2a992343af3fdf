"""Which exercises differ from main: a quick run looks at them more closely."""

import functools
import os
import subprocess
from pathlib import Path, PurePosixPath

from course_lib.checks import exercises, lessons

ROOT = Path(__file__).parent.parent
WHOLE_RUN = bool(os.environ.get("CI") or os.environ.get("COURSE_TEST_ALL"))


def looked_at_closely() -> list[str]:
    """All exercises in a whole run; else those that changed, or one lesson's where none did."""
    if WHOLE_RUN:
        return list(exercises())
    chosen = changed_exercises() or lessons()["02_masked_softmax"].exercises
    return [name for name in exercises() if name in chosen]


@functools.cache
def changed_exercises() -> frozenset[str]:
    """By what git says of the files; none where there is no git or no main."""
    base = _git("merge-base", "HEAD", "origin/main") or _git("merge-base", "HEAD", "main")
    files = _git("diff", "--name-only", *base) + _git("ls-files", "--others", "--exclude-standard")
    return exercises_of(files) if base else frozenset()


def exercises_of(files: list[str]) -> frozenset[str]:
    """The exercises that files are about, by the names of files and folders."""
    found: set[str] = set()
    for path in map(PurePosixPath, files):
        if path.parts[:1] != ("course_lib",) and path.parts[:2] != ("tests", "variants"):
            continue
        if path.stem in exercises():
            found.add(path.stem)
        else:  # what exercises of a lesson share
            folders = {path.stem, *path.parts}
            of_lesson = (e.exercises for slug, e in lessons().items() if slug[3:] in folders)
            found |= {name for names in of_lesson for name in names}
        if "_attention" in path.parts:
            found |= exercises().keys()
    return frozenset(found)


def _git(*arguments: str) -> list[str]:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.split()
