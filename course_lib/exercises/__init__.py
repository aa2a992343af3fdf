"""The exercises, each in a file `LESSON/EXERCISE.py` that is found by its name.

A lesson's `__init__.py` defines LESSON, with the order of its exercises. Each exercise's file
defines EXERCISE. Files that start with an underscore are not exercises but are used by their
neighbors. Points and stars come from course.toml if a class sets its own (see `course_toml`). The
course folder is the one around the working directory unless `root` names another.
"""

import ast
import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.checks.judge.definitions import Exercise, Lesson, of_its_name
from course_lib.workspace.course_toml import ClassSettings, read_settings
from course_lib.workspace.errors import BuildError


def lessons(root: Path | None = None) -> dict[str, Lesson]:
    """Return all lessons by slug, in course order, without importing any exercise."""
    found, points = dict(_lessons()), class_settings(root).points
    for slug in found.keys() & points.keys():
        together = found[slug].integration
        if together is not None:
            together = dataclasses.replace(together, points=points[slug])
            found[slug] = dataclasses.replace(found[slug], integration=together)
    return found


@functools.cache
def names(*, removed: bool = False) -> tuple[str, ...]:
    """Return the names of all exercises in course order, without importing any.

    With `removed`, add those that only notebooks of earlier versions have.
    """
    return tuple(
        name
        for lesson in _lessons().values()
        for name in lesson.exercises + lesson.removed * removed
    )


def exercises(root: Path | None = None) -> dict[str, Exercise]:
    """Return all exercises by name, in course order."""
    return {name: find(name, root) for name in names()}


def find(name: str, root: Path | None = None) -> Exercise:
    """Return an exercise by its name, or the integration of a lesson by the lesson's slug.

    An exercise that was removed from its lesson is found, too.

    Raises:
        KeyError: there is neither.
        UsageError: course.toml is wrong.
    """
    return _find(name, class_settings(root))


def class_settings(root: Path | None = None) -> ClassSettings:
    """Return the points and stars that a class overrides."""
    together = [slug for slug, lesson in _lessons().items() if lesson.integration]
    return read_settings(root, names(), together)


def points_set_by_the_class(root: Path | None = None) -> dict[str, float]:
    """Return the points of exercises that course.toml names, 0 for starred ones."""
    settings = class_settings(root)
    found = [_find(name, settings) for name in {*settings.points, *settings.starred}]
    return {one.name: 0 if one.starred else one.points for one in found}


@functools.cache
def _find(name: str, settings: ClassSettings) -> Exercise:
    for slug, lesson in _lessons().items():
        if name in lesson.exercises + lesson.removed:
            exercise = _load(slug, name)
            return dataclasses.replace(
                exercise,
                name=name,
                points=settings.points.get(name, exercise.points),
                starred=settings.starred.get(name, exercise.starred),
                lesson=slug,
                oracle=_oracle(slug, name) if exercise.oracle is of_its_name else exercise.oracle,
                not_its_name=frozenset(names()),
            )
    integration = _lessons()[name].integration
    if integration is None:
        raise KeyError(name)
    chain, own = integration.chain, integration.judged_as
    judged = _load(name, own) if own else _find(chain[-1], settings)
    return dataclasses.replace(
        judged,
        name=name,
        points=settings.points.get(name, integration.points),
        minutes=integration.minutes,
        lesson=name,
        chain=chain,
        takes_all=bool(own),
        starred=any(_find(link, settings).starred for link in chain),
        not_its_name=frozenset(names()),
    )


def counted_points(slug: str) -> float:
    """Return the points that count in a lesson's grade: checks without a star, written answer."""
    lesson = _lessons()[slug]
    names = (*lesson.exercises, *[slug] * bool(lesson.integration))
    written = lesson.written.points if lesson.written else 0
    checks = map(points_and_star, names)
    return written + sum(points for points, starred in checks if not starred)


def points_and_star(name: str) -> tuple[float, bool]:
    """Return a check's points and whether it is optional, as `find` does, without importing torch.

    An exercise's file states both as plain numbers and words, which are read and not imported.
    """
    settings = class_settings()
    for slug, lesson in _lessons().items():
        if name in lesson.exercises + lesson.removed:
            said = _stated(slug, name)
            starred = settings.starred.get(name, said.get("starred", Exercise.starred))
            return settings.points.get(name, said["points"]), starred
    integration = _lessons()[name].integration
    if integration is None:
        raise KeyError(name)
    starred = any(points_and_star(link)[1] for link in integration.chain)
    return settings.points.get(name, integration.points), starred


@functools.cache
def _stated(slug: str, name: str) -> dict[str, Any]:
    """Return the points and the star in an exercise's file."""
    text = Path(__file__).with_name(slug[3:]).joinpath(f"{name}.py").read_text(encoding="utf-8")
    call = ast.parse(text[text.index("\nEXERCISE = ") :]).body[0]
    assert isinstance(call, ast.Assign) and isinstance(call.value, ast.Call)
    wanted = [one for one in call.value.keywords if one.arg in ("points", "starred")]
    return {str(one.arg): ast.literal_eval(one.value) for one in wanted}


def _load(slug: str, name: str) -> Exercise:
    module, file = f"{__name__}.{slug[3:]}.{name}", f"course_lib/exercises/{slug[3:]}/{name}.py"
    try:
        return importlib.import_module(module).EXERCISE
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        home = f"course_lib/exercises/{slug[3:]}/__init__.py"
        what = f"LESSON.exercises names `{name}`, and there is no {file}"
        remedy = f"Write it, with: course new exercise {name} --lesson {slug}"
        raise BuildError(home, None, what, remedy) from None


def _oracle(slug: str, name: str) -> Callable:
    return getattr(importlib.import_module(f"course_lib.reference.{slug[3:]}"), name)


@functools.cache
def _lessons() -> dict[str, Lesson]:
    packages = [
        (importlib.import_module(f"{__name__}.{module.name}").LESSON, module.name)
        for module in pkgutil.iter_modules(__path__)
        if module.ispkg and not module.name.startswith("_")
    ]
    slugs = {f"{lesson.number:02d}_{name}": lesson for lesson, name in packages}
    return {slug: dataclasses.replace(slugs[slug], slug=slug) for slug in sorted(slugs)}
