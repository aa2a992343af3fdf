"""Lesson 01: distances, kernel pooling, leave-one-out, a learned bandwidth, dot products."""

from course_lib.checks.catalogue._kernel_pooling_average import KERNEL_POOLING
from course_lib.checks.catalogue._kernel_pooling_distances import SQUARED_DISTANCES
from course_lib.checks.catalogue._kernel_pooling_dot_product import GAUSSIAN_AS_DOT_PRODUCT
from course_lib.checks.catalogue._kernel_pooling_fit import FIT_BANDWIDTH
from course_lib.checks.catalogue._kernel_pooling_leave_one_out import LEAVE_ONE_OUT
from course_lib.checks.exercise import Integration, Lesson, Written

LESSON = Lesson(
    1,
    "Kernel pooling: attention before neural networks",
    Written("perfect_fit", points=3, minutes=10),
    Integration(("squared_distances", "kernel_pooling", "leave_one_out")),
)

EXERCISES = (
    SQUARED_DISTANCES,
    KERNEL_POOLING,
    LEAVE_ONE_OUT,
    FIT_BANDWIDTH,
    GAUSSIAN_AS_DOT_PRODUCT,
)
