"""Read course.toml, in which an instructor overrides the points and stars of exercises.

    [points]
    causal_mask = 3

    [starred]
    combine_masks = false

The file is in the course folder. In a bundle for students, it is in course_lib.
"""

import difflib
import functools
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import find_root

FILE = "course.toml"
FOLDER = "COURSE_FOLDER"  # environment variable for notebooks that run outside the folder
LEAST = 0.1  # points, since partial credit is rounded to tenths


@dataclass(frozen=True, eq=False)
class ClassSettings:
    """The points and stars that a class overrides, by exercise."""

    points: Mapping[str, float] = field(default_factory=dict)
    starred: Mapping[str, bool] = field(default_factory=dict)


def other_points(counted: Mapping[str, float], wanted: Mapping[str, float]) -> str | None:
    """Return an exercise whose points in a release differ from those wanted, or None."""
    return next((n for n, points in counted.items() if wanted.get(n, points) != points), None)


_NOTHING = ClassSettings()  # one object, because it is a key of the cache of exercises


def read_settings(
    root: Path | None, exercises: Collection[str], lessons: Collection[str]
) -> ClassSettings:
    """Return the settings of a course folder, found around the working directory if None.

    Args:
        root: the course folder.
        exercises: the names of all exercises.
        lessons: the slugs of the lessons whose answers are also checked together.

    Raises:
        UsageError: the file is wrong. The message names the line or the entry, and the remedy.
    """
    folder = root or os.environ.get(FOLDER) or find_root(Path.cwd())
    places = [Path(folder, FILE)] if folder else []
    for path in (*places, Path(__file__).parents[1] / FILE):
        if path.is_file():
            return _read(path, path.stat().st_mtime_ns, tuple(exercises), tuple(lessons))
    return _NOTHING


@functools.lru_cache(maxsize=10)
def _read(
    path: Path, _: int, exercises: Collection[str], together: Collection[str]
) -> ClassSettings:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): correct it") from error
    known = {"points": (*exercises, *together), "starred": exercises}
    for table, entries in tables.items():
        if table not in known or not isinstance(entries, dict):
            raise UsageError(
                f"{path} has {table!r}, which is not one of its tables: write [points] or "
                "[starred], and below it a line for each exercise, such as causal_mask = 3"
            )
        for name, value in entries.items():
            where = f"{path}, [{table}]"
            if name not in known[table]:
                near = difflib.get_close_matches(name, known[table], n=1)
                listed = f"there are: {', '.join(known[table])}"
                remedy = f"did you mean {near[0]}?" if near else listed
                raise UsageError(f"{where}: there is no exercise {name!r}; {remedy}")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if table == "points" and not (is_number and LEAST <= value < float("inf")):
                raise UsageError(
                    f"{where}: {name} must be a number of at least {LEAST}; got {value!r}. To "
                    f"make an exercise count nothing, write {name} = true under [starred]"
                )
            if table == "starred" and not isinstance(value, bool):
                raise UsageError(f"{where}: {name} must be true or false; got {value!r}")
    return ClassSettings(**tables)
