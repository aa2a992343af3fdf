"""Stored results of a real run, to test everything around grading without grading again."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from grading_course import LESSON, UPPER, hand_in, honest, make_course, release

from course_lib.grading import driver
from course_lib.grading.driver import Settings, grade
from course_lib.grading.executors.local import Serial


class Canned:
    """An executor that returns the stored result for the same key, and counts its jobs."""

    def __init__(self, results: dict, before=lambda job: None) -> None:
        self.results, self.before, self.asked = results, before, []

    def __call__(self, *args, **kwargs):
        return self

    def one(self, job):
        return replace(self.results[job.key], student=job.student)

    def run(self, jobs):
        for job in jobs:
            self.asked.append(job.student)
            self.before(job)
            yield self.one(job)

    def close(self) -> None:
        pass


def kept_class(folder: Path, settings: Settings, seed: str, *others: str):
    """Grade a class of five in an empty folder: (its folder before, results by key, grades).

    All other answers of these students are correct.
    """
    root = folder / "course"
    root.mkdir()
    make_course(root)
    for student, notebook in {
        "ada": honest(root),
        "bob": honest(root, causal_mask=UPPER),
        "cyd": release(root),
        "dan": '{"cells": [',
        "eve": honest(root, why="Because."),
        **{name: honest(root) for name in others},
    }.items():
        hand_in(root, student, notebook)
    shutil.copytree(root, folder / "before")
    results = {}

    class Remembering(Serial):
        def run(self, jobs):
            for result in super().run(jobs):
                results[result.key] = result
                yield result

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_CHECK_SEED", seed)
        patch.setattr(driver, "executor", lambda *a, **k: Remembering(settings))
        summary = grade(root, LESSON, settings=settings)
    return folder / "before", results, grades(summary)


def grades(summary) -> dict:
    """Return the relevant part of the grades, by student."""
    return {
        s.student: (s.problem, [(r.exercise, r.points, r.outcome) for r in s.rows], s.written)
        for s in summary.students
    }
