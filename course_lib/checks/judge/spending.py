"""What a call spends: bytes and function evaluations, against the limits of its probe."""

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.observe.probe import Probe

_SPENDING = {
    "peak": (
        "At its peak your code has {spent} bytes in use besides its arguments",
        "Which of your tensors is as large as all the scores together?",
    ),
    "kept": (
        "After the call {spent} bytes stay in use, for the result and for the backward pass",
        "Which tensors does autograd keep, and which could you compute again?",
    ),
    "functions": (
        "Your code evaluates exp, tanh or similar functions on {spent} numbers",
        "What could you apply the function to before queries and keys are combined?",
    ),
}


def overspent(
    probe: Probe, quantity: str, limit: int, spent: int | None
) -> tuple[str, Problem | None]:
    """An aspect and what is wrong in it; `spent` is None where the meter was not ours."""
    aspect = f"spent_{quantity}"
    if spent is None:
        return f"{aspect}_unmeasured", Problem(
            "unmeasured",
            "What your code spends could not be measured, because the course's own meter was "
            "changed.",
            "Which cell writes into `course_lib`?",
        )
    if spent <= limit:
        return aspect, None
    fact, question = _SPENDING[quantity]
    numbers = f"{fact.format(spent=f'{spent:,}')}; {limit:,} are plenty."
    return aspect, Problem(aspect, f"{probe.says} {numbers}", question)
