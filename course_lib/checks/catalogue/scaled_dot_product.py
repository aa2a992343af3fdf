"""Lesson 05: scaled dot-product attention, as a function, as a module, and backwards."""

from course_lib.checks.catalogue._scaled_dot_product_backward import ATTENTION_BACKWARD
from course_lib.checks.catalogue._scaled_dot_product_forward import SCALED_DOT_PRODUCT_ATTENTION
from course_lib.checks.catalogue._scaled_dot_product_jacobian import JACOBIAN_WRT_QUERY
from course_lib.checks.catalogue._scaled_dot_product_module import DOT_PRODUCT_ATTENTION
from course_lib.checks.catalogue._scaled_dot_product_numpy import NUMPY_ATTENTION
from course_lib.checks.catalogue._scaled_dot_product_variance import SCORE_VARIANCE
from course_lib.checks.exercise import Integration, Lesson, Written

LESSON = Lesson(
    5,
    "Scaled dot-product attention",
    Written("scale_and_learning", points=3, minutes=10),
    Integration(("scaled_dot_product_attention", "DotProductAttention")),
)
EXERCISES = (
    SCORE_VARIANCE,
    NUMPY_ATTENTION,
    SCALED_DOT_PRODUCT_ATTENTION,
    DOT_PRODUCT_ATTENTION,
    JACOBIAN_WRT_QUERY,
    ATTENTION_BACKWARD,
)
