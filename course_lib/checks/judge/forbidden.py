"""What an exercise rules out: calls, and loops where it asks for none, or for some."""

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.violations import Violation


def forbidden_in(exercise: Exercise, runs, seen) -> list[Violation]:
    """Calls that the exercise rules out, and loops where it asks for none."""
    found = []
    for probe, _ in runs:
        calls = seen[probe.name].calls if probe.name in seen else {}
        for name, reason in exercise.forbidden.items():
            if name in calls:
                message = f"Your code calls `{name}`, which this exercise rules out. {reason}"
                found.append(
                    Violation(probe, "forbidden", Problem("forbidden_call", message), "values")
                )
    if exercise.no_loops or exercise.needs_loops:
        problem = _loops_problem(exercise, runs, seen)
        if problem is not None:
            found.append(Violation(runs[0][0], "forbidden", problem, "values"))
    return found[:1]


def _loops_problem(exercise: Exercise, runs, seen) -> Problem | None:
    """Whether the work done from Python grows with the sizes, and whether it should."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for probe, _ in runs:
        if probe.loops and probe.name in seen:
            observation = seen[probe.name]
            if observation.raised is None:
                work = sum(observation.calls.values()), observation.steps
                groups.setdefault(probe.loops, []).append(work)
    compared = [group for group in groups.values() if len(group) > 1]
    growing = [group for group in compared if len(set(group)) > 1]
    if exercise.no_loops and growing:
        (calls, steps), (more_calls, more_steps) = min(growing[0]), max(growing[0])
        return Problem(
            "loops",
            f"The work your code does in Python grows with the size of the problem ({calls} torch "
            f"calls and {steps} Python steps for a small one, {more_calls} and {more_steps} for a "
            "larger one): that is a loop, which this exercise rules out.",
            "Which axes could you add with `[:, None, :]` so that one call does everything?",
        )
    if exercise.needs_loops and compared and not growing:
        return Problem(
            "no_loop",
            "Your code makes the same calls whatever the sizes; this exercise asks for the loops "
            "that such a call hides.",
            "Along which axes of the result could a `for` loop run, one number or one item at a "
            "time?",
        )
    return None
