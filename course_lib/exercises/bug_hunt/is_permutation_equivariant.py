"""`is_permutation_equivariant`: a test that permuting positions permutes the outputs."""

from collections.abc import Callable

from course_lib.checks.judge.definitions import Exercise
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._order import BY_HAND, asked, asking_about
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.reference import bug_hunt as oracle


def problems(rng) -> Problems:
    ask = asking_about(rng)
    yield ask("by_hand", "doubled", "running_sum", x=BY_HAND)
    yield ask("own_positions", "each_on_its_own", "scaled_by_position")
    yield ask("attention", "self_attention", "causal_attention")
    yield ask("circle", "circular_neighbours", "self_attention")
    yield ask("mirror", "average_over_positions", "near_ones_count_more")
    yield ask("reversal", "reversed", "average_over_positions")
    yield ask("a_later_one", "doubled", "third_looks_ahead")
    yield ask("always_nan", "each_on_its_own", "always_nan", part="edges")
    yield from student_tests.function_edges(rng, "order", "running_sum", last_row=-1)


def mixed(x) -> list[int]:
    """Return an order of the positions in which none stays in place or keeps its neighbors."""
    return [*range(1, x.shape[1], 2), *range(0, x.shape[1], 2)]


def with_comparison(agree) -> Callable:
    def is_permutation_equivariant(fn, x) -> bool:
        return bool(agree(fn(x[:, mixed(x)]), fn(x)[:, mixed(x)]))

    return is_permutation_equivariant


@mistake
def output_not_permuted(fn, x) -> bool:
    """You compare fn of the permuted input with the outputs in the old order (which tests
    invariance), or in some order other than the new one.

    Where should the output of position 0 be after position 0 has moved?
    """
    return same(fn(x.roll(1, dims=1)), fn(x))


@like(output_not_permuted)
def mixed_output_not_permuted(fn, x) -> bool:
    return same(fn(x[:, mixed(x)]), fn(x))


@like(output_not_permuted)
def output_rolled_back(fn, x) -> bool:
    return same(fn(x.roll(1, dims=1)), fn(x).roll(-1, dims=1))


@mistake
def only_reversed(fn, x) -> bool:
    """You only reverse or only rotate the positions. Both keep neighbors together in a circle, so a
    function that combines such neighbors can pass your test, although it is not equivariant.

    Which permutation separates neighbors?
    """
    return same(fn(x.flip(1)), fn(x).flip(1))


@like(only_reversed)
def only_rotated(fn, x) -> bool:
    return same(fn(x.roll(1, dims=1)), fn(x).roll(1, dims=1))


@mistake
def identity_permutation(fn, x) -> bool:
    """Your test accepts nearly every function. Perhaps your permutation moves no position, or moves
    the items of the batch instead, or you compare results that are always equal.

    Which axis of (batch, num_positions, d) holds the positions, and do they move?
    """
    return same(fn(x), fn(x))


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=2,
    starred=True,
    returns=student_tests.ANSWERS,
    probes=problems,
    oracle=asked(oracle.is_permutation_equivariant),
    mistakes=student_tests.mistakes_of_comparisons(with_comparison),
    hints=(
        "Equivariant means: to permute and then apply fn is the same as to apply fn and then "
        "permute.",
        "Choose one or more permutations that leave no position in place and keep no neighbors "
        "together. Index axis 1 of input and output with them; compare with a tolerance.",
        "order = torch.tensor([...])\nreturn torch.allclose(fn(x[:, order]), fn(x)[:, order], ...)",
    ),
    marking=student_tests.marking(student_tests.of_functions, with_comparison(same)),
)
