"""Lesson 03: products of two batches of matrices, with loops and without."""

from course_lib.checks.judge.exercise import Mistake
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import Given, mistake


def pair(rng, a_shape, b_shape, **options) -> Given:
    return {
        "a": tensor(rng.normal(0, 1.3, a_shape), **options),
        "b": tensor(rng.normal(0, 1.3, b_shape), **options),
    }


def in_float32(name, says, args) -> Probe:
    """A probe whose numbers are float32, and whose result must be, too."""
    return Probe(name, says, part="edges", args=args, dtype="float32", tolerance=1e-4)


def with_gradients(rng, name, says, args, output_shape) -> Probe:
    return Probe(
        name, says, part="gradients", args=args, grad_outputs=rng.normal(size=output_shape)
    )


BY_HAND = {
    "a": tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
    "b": tensor([[[10.0], [1.0]], [[1.0], [10.0]]]),
}


def one_matrix(name, which, model) -> Mistake:
    return mistake(name, model).says(
        f"Every item is multiplied with one and the same matrix of `{which}`.",
        f"Which index of `{which}` should move along with the loop over items?",
    )
