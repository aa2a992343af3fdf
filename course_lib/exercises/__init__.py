"""The exercises: one file each, `LESSON/EXERCISE.py`, found by its name.

A lesson's `__init__.py` defines LESSON, with the order of its exercises; each exercise's file
defines EXERCISE. Files that start with an underscore are not exercises; their neighbours use them.
"""

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable

from course_lib.checks.judge.exercise import Exercise, Lesson, of_its_name
from course_lib.workspace.errors import BuildError


def lessons() -> dict[str, Lesson]:
    """Return all lessons by slug, in course order, without importing any exercise."""
    return dict(_lessons())


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all exercises in course order, without importing any."""
    return tuple(name for lesson in _lessons().values() for name in lesson.exercises)


def exercises() -> dict[str, Exercise]:
    """Return all exercises by name, in course order."""
    return {name: find(name) for name in names()}


@functools.cache
def find(name: str) -> Exercise:
    """Return an exercise by its name, or the integration of a lesson by the lesson's slug.

    Raises:
        KeyError: there is neither.
    """
    for slug, lesson in _lessons().items():
        if name in lesson.exercises:
            exercise = _load(slug, name)
            return dataclasses.replace(
                exercise,
                name=name,
                lesson=slug,
                oracle=_oracle(slug, name) if exercise.oracle is of_its_name else exercise.oracle,
                not_its_name=frozenset(names()),
            )
    integration = _lessons()[name].integration
    if integration is None:
        raise KeyError(name)
    chain = integration.chain
    judged = _load(name, integration.judged_as) if integration.judged_as else find(chain[-1])
    return dataclasses.replace(
        judged,
        name=name,
        points=integration.points,
        minutes=integration.minutes,
        lesson=name,
        chain=chain,
        takes_all=bool(integration.judged_as),
        starred=any(find(link).starred for link in chain),
        not_its_name=frozenset(names()),
    )


def counted_points(slug: str) -> float:
    """Return the points that count in a lesson's grade: checks without a star, written answer."""
    lesson = _lessons()[slug]
    checks = [find(name) for name in (*lesson.exercises, *[slug] * bool(lesson.integration))]
    written = lesson.written.points if lesson.written else 0
    return written + sum(check.points for check in checks if not check.starred)


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
    except AttributeError as error:
        if error.name != "EXERCISE":
            raise
        raise BuildError(
            file, None, "it has no `EXERCISE`", "Write EXERCISE = Exercise(...)"
        ) from None


def _oracle(slug: str, name: str) -> Callable:
    module = importlib.import_module(f"course_lib.reference.{slug[3:]}")
    if not hasattr(module, name):
        remedy = "Write the slow, obviously right version there."
        file = f"course_lib/reference/{slug[3:]}.py"
        raise BuildError(file, None, f"there is no oracle `{name}`", remedy)
    return getattr(module, name)


@functools.cache
def _lessons() -> dict[str, Lesson]:
    packages = [
        (importlib.import_module(f"{__name__}.{module.name}").LESSON, module.name)
        for module in pkgutil.iter_modules(__path__)
        if module.ispkg and not module.name.startswith("_")
    ]
    slugs = {f"{lesson.number:02d}_{name}": lesson for lesson, name in packages}
    return {slug: dataclasses.replace(slugs[slug], slug=slug) for slug in sorted(slugs)}
