"""Lesson 01: distances, kernel pooling, leave-one-out, a learned bandwidth, dot products."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    1,
    "Kernel pooling: attention before neural networks",
    Written("perfect_fit", points=3, minutes=10),
    Integration(("squared_distances", "kernel_pooling")),
    exercises=(
        "squared_distances",
        "kernel_pooling",
        "leave_one_out",
        "gaussian_as_dot_product",
    ),
    removed=("fit_bandwidth",),
)
