"""The catalogue: one module a lesson, found by its presence in this folder.

A module holds `LESSON` and `EXERCISES`; the lesson's slug is its number and the module's name.
"""

import dataclasses
import functools
import importlib
import pkgutil

from course_lib.checks.exercise import Exercise, Lesson


@functools.cache
def _catalogue() -> tuple[dict[str, Lesson], dict[str, Exercise]]:
    modules = [
        (name, importlib.import_module(f"{__name__}.{name}"))
        for _, name, _ in pkgutil.iter_modules(__path__)
        if not name.startswith("_")
    ]
    lessons: dict[str, Lesson] = {}
    exercises: dict[str, Exercise] = {}
    for name, module in sorted(modules, key=lambda item: item[1].LESSON.number):
        slug = f"{module.LESSON.number:02d}_{name}"
        names = tuple(exercise.name for exercise in module.EXERCISES)
        lessons[slug] = dataclasses.replace(module.LESSON, slug=slug, exercises=names)
        for exercise in module.EXERCISES:
            assert exercise.name not in exercises, f"two exercises are called {exercise.name}"
            exercises[exercise.name] = dataclasses.replace(exercise, lesson=slug)
    return lessons, exercises


@functools.cache
def find(name: str) -> Exercise:
    """An exercise by its name, or the integration of a lesson by the lesson's slug.

    Raises:
        KeyError: there is neither.
    """
    if name in exercises():
        return exercises()[name]
    integration = lessons()[name].integration
    if integration is None:
        raise KeyError(name)
    judged = integration.judged_as or exercises()[integration.chain[-1]]
    return dataclasses.replace(
        judged,
        name=name,
        points=integration.points,
        minutes=integration.minutes,
        lesson=name,
        chain=integration.chain,
        takes_all=integration.judged_as is not None,
    )


def lessons() -> dict[str, Lesson]:
    """All lessons by slug, in course order."""
    return dict(_catalogue()[0])


def exercises() -> dict[str, Exercise]:
    """All exercises by name, in course order."""
    return dict(_catalogue()[1])
