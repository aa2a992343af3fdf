"""Lesson 00: train and inspect a whole translator, and learn how a lesson works."""

from course_lib.checks.judge.definitions import Lesson, Written

LESSON = Lesson(
    0,
    "The whole game: a translator in half a minute",
    Written("two_maps", points=2, minutes=3),
    exercises=("attend",),
    removed=("most_attended",),
)
