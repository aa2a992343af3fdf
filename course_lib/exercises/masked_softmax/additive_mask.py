"""`additive_mask`: convert a bool mask to numbers that are added to the scores."""

import math

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Dtype, Probe, tensor
from course_lib.exercises._builders import Case, case, mistake


def _additive_mask_probes(rng) -> list[Probe]:
    small, other = rng.random((2, 2, 4)) < 0.5
    for mask in (small, other):
        mask[0, :2] = True, False

    def probe(name, mask, dtype, **options) -> Case:
        return case(name, args={"mask": mask, "dtype": Dtype(dtype)}, **options)

    return [
        probe("small", small, "float64").says("Kept keys must get 0, dropped keys -inf."),
        probe("four_axes", tensor(rng.random((2, 2, 3, 4)) < 0.5), "float64").says(
            "A mask may have any shape."
        ),
        probe("worked_number", [True, False], "float16", part="edges").says(
            "In float16 dropped keys must get -inf too; float16 cannot represent -1e9."
        ),
        probe("half", other, "float16", part="edges").says(
            "In float16 dropped keys must get -inf too; float16 cannot represent -1e9."
        ),
    ]


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    starred=True,
    returns=(Returned("numbers", "tensor", "float", ("the shape of mask",)),),
    probes=_additive_mask_probes,
    mistakes=(
        mistake("infinity_times_zero", lambda mask, dtype: (1 - mask.to(dtype)) * -math.inf).says(
            "Your result is NaN where a key is kept: 0 * inf is NaN, not 0.",
            "Which function chooses between two values without multiplying?",
        ),
        mistake(
            "inverted",
            lambda mask, dtype: torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf),
        ).says(
            "The mask is inverted: it has -inf where a key is kept.",
            "What does True in `mask` mean, and where does your code put -inf?",
        ),
        mistake(
            "finite_fill",
            lambda mask, dtype: torch.where(mask, 0.0, -1e9).to(dtype),
            twins=(
                lambda mask, dtype: (~mask).to(dtype) * torch.finfo(dtype).min,
                lambda mask, dtype: torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -1e9),
            ),
        ).says(
            "A dropped key gets a finite number, such as -1e9, instead of -inf. A large "
            "enough score makes up for it.",
            "Which value is below every finite score, and does a later step replace it?",
        ),
    ),
    hints=(
        "Adding 0 leaves a score as it is. What can you add so that its exponential becomes "
        "exactly 0?",
        "Start from zeros of the right shape and dtype, and fill in -inf where the mask is False.",
        "`masked_fill` fills where its first argument is True, and your mask is True where a key "
        "is *kept*. Try it on `torch.zeros(2)` and `torch.tensor([True, False])`; then give the "
        "zeros the mask's shape and device, and the requested dtype.",
    ),
    shares={"values": 0.45, "edges": 0.25, "hygiene": 0.3},
)
