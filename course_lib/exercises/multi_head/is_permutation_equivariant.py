"""A test that permuting positions permutes the outputs of a function."""

from collections.abc import Callable

from torch import Tensor

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._builders import mistake
from course_lib.exercises._student_tests import same
from course_lib.exercises.multi_head._order import BY_HAND, asked, asking_about
from course_lib.reference import multi_head as oracle


def _equivariance_probes(rng) -> list[Probe]:
    ask = asking_about(rng)
    return [
        ask("by_hand", "doubled", "running_sum", x=BY_HAND),
        ask("own_positions", "each_on_its_own", "scaled_by_position"),
        ask("attention", "self_attention", "causal_attention"),
        ask("circle", "circular_neighbours", "self_attention"),
        ask("mirror", "average_over_positions", "near_ones_count_more"),
        ask("reversal", "reversed", "average_over_positions"),
        ask("a_later_one", "doubled", "third_looks_ahead"),
        ask("always_nan", "each_on_its_own", "always_nan", part="edges"),
        *student_tests.function_edges(rng, "order", "running_sum", last_row=-1),
    ]


def _flip(x) -> Tensor:
    return x.flip(1)


def _roll(x) -> Tensor:
    return x.roll(1, dims=1)


def _roll_back(x) -> Tensor:
    return x.roll(-1, dims=1)


def _mixed(x) -> Tensor:
    return x[:, [*range(1, x.shape[1], 2), *range(0, x.shape[1], 2)]]


def _equivariance(change, output=None, agree=same) -> Callable:
    """Return a test that permutes with `change(x)`, and the outputs with `output`."""

    def is_permutation_equivariant(fn, x) -> bool:
        return bool(agree(fn(change(x)), (output or change)(fn(x))))

    return is_permutation_equivariant


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=2,
    starred=True,
    returns=student_tests.ANSWERS,
    probes=_equivariance_probes,
    oracle=asked(oracle.is_permutation_equivariant),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    confirms=_equivariance(_mixed),
    tally=student_tests.of_functions,
    mistakes=(
        mistake(
            "output_not_permuted",
            _equivariance(_roll, output=lambda y: y),
            twins=(
                _equivariance(_mixed, output=lambda y: y),
                _equivariance(_roll, output=_roll_back),
            ),
        ).says(
            "You compare fn of the permuted input with the outputs in the old order (which tests "
            "invariance), or in some order other than the new one.",
            "Where should the output of position 0 be after position 0 has moved?",
        ),
        mistake("only_reversed", _equivariance(_flip)).says(
            "You only reverse the positions. A function that depends on the distance between "
            "positions can pass your test, although it is not equivariant.",
            "Which permutation changes distances?",
        ),
        mistake("identity_permutation", lambda fn, x: same(fn(x), fn(x))).says(
            "Your test accepts nearly every function. Perhaps your permutation moves no "
            "position, or moves the items of the batch instead, or you compare results that are "
            "always equal.",
            "Which axis of (batch, num_positions, d) holds the positions, and do they move?",
        ),
        *student_tests.mistakes_of_comparisons(lambda agree: _equivariance(_mixed, agree=agree)),
    ),
    hints=(
        "Equivariant means: to permute and then apply fn is the same as to apply fn and then "
        "permute.",
        "Choose one or more permutations that leave no position in place and keep no neighbors "
        "together. Index axis 1 of input and output with them; compare with a tolerance.",
        "order = torch.tensor([...])\nreturn torch.allclose(fn(x[:, order]), fn(x)[:, order], ...)",
    ),
)
