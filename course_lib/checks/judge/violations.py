"""Find the violations in an observation, from the probe and the oracle alone.

These are pure functions on plain data. A violation belongs to an aspect (raised, type, shape,
values, gradients, mutated, dtype, ...). The aspects in `HYGIENE` count toward the hygiene share.
The others count toward the probe's own part.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import (
    WRONG_VALUES,
    Cause,
    Problem,
    arrays_agree,
    close,
    tolerance_for,
)
from course_lib.checks.judge.contract import (
    converted,
    describe,
    wrong_device,
    wrong_dtype,
    wrong_shape,
    wrong_type,
)
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.formatting import text_of_options
from course_lib.checks.observe.cost_meter import LOST, OUT_OF_TORCH, SINGLE_NUMBERS
from course_lib.checks.observe.fake_device import MIXED_UP
from course_lib.checks.observe.observation import Observation, OnTheCpu, Raised
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import Recorded
from course_lib.reference import Expected

HYGIENE = ("mutated", "dtype", "device", "rng", "training", "settings", "attached")


@dataclass(frozen=True, eq=False)
class Violation:
    """One problem that one probe found, with the expected and the observed result."""

    probe: Probe
    aspect: str
    problem: Problem
    part: str
    expected: Expected
    seen: Observation


Prepared = Sequence[tuple[Probe, Expected]]  # the probes, each with the oracle's result
Outcomes = Mapping[str, tuple[Observation, list[Violation]]]  # by the probe's name
Found = tuple[str, Problem | None]  # an aspect and its problem


@dataclass(frozen=True)
class NotComparable(Problem):
    """A result on which a comparison raised `error`, such as a dict in place of a tensor."""

    id: str = "not_comparable"
    message: str = (
        "What your code returned, stored or raised cannot be compared with the definition."
    )
    hint: str = "Does everything have the type and the shape that the statement asks for?"
    error: Exception | None = None


def _checked(comparison: Callable[..., Problem | None], *args: Any) -> Problem | None:
    """Return the problem that a comparison finds.

    If a comparison raises, or cannot describe a difference, this also counts as a problem of the
    same aspect. The points therefore do not depend on the wording. `verdict` checks that no
    comparison raises for a correct answer.
    """
    try:
        return comparison(*args)
    except Exception as error:
        return NotComparable(error=error)


def find_violations(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> list[Violation]:
    """Return all violations of one observation, the most basic first."""
    found: list[Found] = [("mutated", _checked(_changed_argument, probe, seen))]
    if probe.raises and not (seen.raised and seen.raised.phase == "inject"):
        found.append(("raised", _checked(_expected_error, probe, seen)))
    elif seen.raised is not None:
        found.append(("raised", _checked(_raised_problem, probe, seen, seen.raised)))
    else:
        found += _of_a_call_that_returned(exercise, probe, expected, seen)
    return [
        Violation(probe, aspect, problem, part, expected, seen)
        for aspect, problem in found
        for part in ["hygiene" if aspect in HYGIENE else probe.part]
        if problem is not None
    ]


def described(exercise: Exercise, found: Sequence[Violation]) -> Sequence[Violation]:
    """Return violations in which wrong values are described by the first property they violate.

    This step is skipped if an exercise has several results and one has the wrong type or shape. The
    problem `precision_lost` is kept only if no other problem is `WRONG_VALUES`.
    """
    if any(v.problem is WRONG_VALUES for v in found):
        small = "precision_lost"
        found = [replace(v, problem=WRONG_VALUES) if v.problem.id == small else v for v in found]
    if len(exercise.returns) > 1 and any(v.aspect in ("type", "shape") for v in found):
        # The results may be in the wrong order. If two results have equal shapes, only their values
        # look wrong.
        return found
    wrong = [v for v in found if v.aspect == "values" and not isinstance(v.problem, Cause)]
    for violated in exercise.properties:
        if any(problems := [violated(v.probe, v.seen) for v in wrong]):
            says = dict(zip(map(id, wrong), problems, strict=True))
            return [replace(v, problem=says.get(id(v)) or v.problem) for v in found]
    return found


def _of_a_call_that_returned(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> Iterator[Found]:
    yield "parameters", _checked(_extra_parameters, probe, seen)
    yield from _of_the_outputs(exercise, probe, expected, seen)
    for name, value in expected.attributes.items():
        got = seen.attributes.get(name)
        problem = _checked(_wrong_attribute, probe, name, value, got)
        yield "attributes", problem
        if problem is None and got is not None and got.requires_grad:
            message = (
                f"`self.{name}` still carries its graph, which keeps intermediate results of the "
                "call in memory."
            )
            question = "Must the stored weights stay in the graph, like those used for the outputs?"
            yield "attached", Cause("attribute_attached", message, question)
    yield "gradients", _checked(_wrong_gradients, exercise, probe, expected, seen)
    for quantity, limit in probe.at_most.items():
        leaves = sorted(OUT_OF_TORCH & {name.partition(" of ")[0] for name in seen.calls})
        spent = None if leaves else seen.spent.get(quantity)
        aspect = f"spent_{quantity}" + "_unmeasured" * (spent is None)
        yield aspect, _checked(_overspent, probe, quantity, limit, spent, leaves)
    if seen.elsewhere is not None:
        yield "device", _checked(_on_the_cpu, seen.elsewhere)
    if seen.rng_touched and not probe.training:
        yield "rng", _RNG_USED
    if seen.training_changed:
        yield "training", _MODE_CHANGED
    if seen.settings:
        message = (
            f"Your code changes {' and '.join(seen.settings[:3])} without restoring it, which can "
            "affect code that runs afterwards."
        )
        hint = "Which line sets it, and does a `with` block do the same for a few lines only?"
        yield "settings", Cause("settings_changed", message, hint)


def _changed_argument(probe: Probe, seen: Observation) -> Problem | None:
    names = mutated(probe, seen)
    if not names:
        return None
    return Cause(
        "input_mutated",
        f"Your code changed its argument `{names[0]}`: after the call, the caller's object is "
        "different.",
        "Which line writes into an existing tensor or array (`x[...] = `, `x -= `, a name ending "
        "in `_`)?",
    )


def _extra_parameters(probe: Probe, seen: Observation) -> Problem | None:
    extra = sorted(set(seen.parameters or ()) - set(probe.state))
    if probe.construct is None or not extra:
        return None
    message = (
        f"The module has parameters beyond the ones asked for, such as {', '.join(extra)} if "
        f"built with {text_of_options(probe.construct)}."
    )
    hint = "Which lines make them, and in which cases does the statement ask for them?"
    return Cause("extra_parameters", message, hint)


_RNG_USED = Cause(
    "global_rng_used",
    "Your code draws from a global random generator, or seeds it, which changes the caller's next "
    "draws.",
    "Which line sets a seed, or draws without a generator of its own?",
)
_MODE_CHANGED = Cause(
    "training_flag_changed",
    "Your module switches between train and eval mode by itself: the call changed `self.training`.",
    "Which line calls `.eval()` or `.train()`?",
)


def _of_the_outputs(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> Iterator[Found]:
    """Compare types, then shapes, then values and dtypes. A wrong type ends the comparison."""
    returns, outputs = exercise.returns, seen.outputs
    if outputs is None:  # a reply without a result or an error
        outputs = Recorded("none", "None")

    def wrong_numbers(outputs: Recorded) -> Found:
        if problem := _checked(wrong_shape, returns, expected.outputs, outputs):
            return "shape", problem
        compare = {"close": close, **exercise.marking.comparisons}[probe.compare]
        return "values", _checked(compare, probe, expected.outputs, outputs)

    def wrong_in_any_kind() -> Problem | None:
        others = converted(returns, outputs)
        return broken if others is None else wrong_numbers(others)[1]

    broken = _checked(wrong_type, returns, expected.outputs, outputs)
    if broken is not None:
        soft = broken.id in ("wrong_type", "wrong_dtype_kind", NotComparable.id)
        right = soft and _checked(wrong_in_any_kind) is None
        if right and not isinstance(broken, NotComparable):
            broken = Cause(broken.id, broken.message, broken.hint)
        yield "kind" if right else "type", broken
        return
    wrong = wrong_numbers(outputs)
    yield wrong
    if wrong[1] is None or wrong[0] != "shape":
        yield "dtype", _checked(wrong_dtype, returns, probe, seen, outputs)
        yield "device", _checked(wrong_device, returns, seen, outputs)


def mutated(probe: Probe, seen: Observation) -> list[str]:
    """Return the names of the arguments whose numbers, shape or flag have changed."""
    changed = []
    for name, after in seen.arguments.items():
        before = probe.inputs()[name]
        now = after.data
        if (
            now is None
            or after.requires_grad != before.requires_grad
            or not arrays_agree(before.data, now, tolerance_for(probe, after))
        ):
            changed.append(name)
    return [*changed, "grad_outputs"] if seen.grad_changed else changed


def _expected_error(probe: Probe, seen: Observation) -> Problem | None:
    if seen.raised is None:
        return Cause("no_error", f"{probe.says} Your code raised no exception.")
    if probe.raises in (seen.raised.type_name, *seen.raised.kinds):
        return None
    got = seen.raised.type_name
    text = f": {seen.raised.message}" if seen.raised.message else "."
    return Cause("other_error", f"{probe.says} Your code raised {got}{text}")


def _wrong_attribute(
    probe: Probe, name: str, value: np.ndarray, got: Recorded | None
) -> Problem | None:
    if got is None or got.kind != "tensor" or got.data is None or got.data.dtype.kind != "f":
        what = "nothing" if got is None or got.kind == "none" else describe(got)
        fact = f"`self.{name}` must hold a tensor of floating point numbers after the call"
        return Cause("attribute_missing", f"{fact}; got {what}.")
    if tuple(got.shape) != np.shape(value):
        return Problem(
            "attribute_shape",
            f"`self.{name}` must have shape {np.shape(value)}; yours has {tuple(got.shape)}.",
            "Does each call store its own weights, with their axes in the required order?",
        )
    if not arrays_agree(np.asarray(value), got.data, tolerance_for(probe, got)):
        which = "after the softmax" + " and before dropout" * probe.training
        if probe.scenario.startswith(("after_another_call", "after_a_call")):
            which = "of this module's last call"
        says = f"`self.{name}` must hold the weights {which}, but holds other numbers."
        return Problem("attribute_values", says)
    return None


def _on_the_cpu(seen: OnTheCpu) -> Problem:
    """Describe a tensor that stays on the CPU, with the line to change and the change."""
    effect = "your result is on the CPU" if seen.returned else "your code stops with an error"
    cause, fix = _STAYS[seen.kind]
    fact = f"On a GPU, {effect}, because {cause.format(line=seen.line)}."
    place = f"{seen.like}.device" if seen.like else "..."
    return Cause("cpu_tensor", fact, fix.format(place=place))


_MAKE_IT_THERE = (
    "Make that tensor on the device of the arguments, with `device={place}` or `.to({place})`."
)
_STAYS = {
    "made": ("`{line}` makes a tensor on the CPU", _MAKE_IT_THERE),
    "moved": ("`{line}` moves a tensor to the CPU", "Compute with that tensor where it is."),
    "numpy": (
        "`{line}` passes a tensor to NumPy, which computes on the CPU",
        "Use a function of torch, or write `.cpu()` before NumPy and `.to({place})` after.",
    ),
    "kept": (
        "`{line}` stays on the CPU when your module is moved",
        "Register that tensor with `self.register_buffer(name, tensor)`.",
    ),
    "used": ("`{line}` uses a tensor on the CPU", "Move that tensor with `.to({place})`."),
    "returned": (
        "you return a tensor that was made on the CPU, by a line before the call or by a function "
        "such as `torch.LongTensor` or `torch.from_numpy`",
        _MAKE_IT_THERE,
    ),
}


_LEAVES_THE_GRAPH = (
    "Is an input unused, or does a step leave the graph (`no_grad`, `float()`, `.item()`, "
    "`.detach()`, `argmax`, NumPy, a new `Parameter`)?"
)


def _wrong_gradients(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> Problem | None:
    """Return the problem of the first gradient that is wrong, or of one that is cut off."""
    problems = [
        _wrong_gradient(probe, name, value, seen.gradients.get(name))
        for name, value in expected.gradients.items()
    ]
    found = sorted(filter(None, problems), key=lambda one: not isinstance(one, Cause))
    return next(iter(found), None) or _cut_off(exercise, probe, seen)


def _wrong_gradient(probe, name, value, got: Recorded | None) -> Problem | None:
    if got is None or got.data is None:
        if np.any(value):
            fact = (
                f"No gradient reaches `{name}`: your result does not use it, or a step detaches it."
            )
            return Cause("gradient_cut", fact, _LEAVES_THE_GRAPH)
        if got is not None:
            return None
        return Cause(
            "gradient_cut",
            f"The gradient of `{name}` should be 0, but your result has no graph, so `backward()` "
            "raises an error.",
            "Which step makes a new tensor instead of computing with the given ones?",
        )
    writes_backward = probe.scenario.startswith("apply_function")  # instead of autograd
    if not np.isfinite(got.data).all():
        hint = (
            "Which step of `backward` gives a number that is not finite, such as inf - inf or the "
            "exponential of a large score?"
            if writes_backward
            else "Which step has no finite derivative, such as a square root of 0 or a softmax of "
            "nothing but -inf?"
        )
        message = f"The result may look right, but the gradient of `{name}` contains NaN or inf."
        return Problem("gradient_not_finite", message, hint)
    if arrays_agree(value, got.data, tolerance_for(probe, got)):
        return None
    hint = ""
    if writes_backward:
        hint = "Which line of `backward` computes it, and from what that `forward` kept?"
    message = f"The gradient of `{name}` does not match the formula."
    return Problem("wrong_gradient", message, hint)


def _cut_off(exercise: Exercise, probe: Probe, seen: Observation) -> Problem | None:
    """Return the problem of a later output that should have a gradient but has no graph."""
    if probe.grad_outputs is None or seen.outputs is None:
        return None
    for contract, got in zip(exercise.returns, seen.outputs.items.values(), strict=False):
        if contract.differentiable and not got.requires_grad:
            return Cause(
                "gradient_cut",
                f"Your `{contract.name}` have no graph, so no gradient can pass through them to "
                "the arguments.",
                _LEAVES_THE_GRAPH,
            )
    return None


_SPENDING = {
    "peak": (
        "At its peak your code has {spent} bytes in use besides its arguments",
        "Which of your tensors, including those in lists, exist at the same time? How large are "
        "they?",
    ),
    "kept": (
        "After the call {spent} bytes stay in use, including the result and what autograd keeps",
        "Which tensors does autograd keep, and which could you compute again?",
    ),
    "functions": (
        "Your code evaluates exp, tanh or similar functions on {spent} numbers",
        "Can you apply the function before queries and keys are combined, and when does your code?",
    ),
}


def _overspent(
    probe: Probe, quantity: str, limit: int, spent: int | None, leaves: Sequence[str]
) -> Problem | None:
    """Return the problem of an exceeded limit. `spent` is None if unknown.

    `leaves` lists the functions with which the answer takes numbers out of torch. Outside of torch,
    nothing is measured.
    """
    if spent is None:
        why = f", because `{leaves[0]}` takes the numbers out of torch" if leaves else ""
        return Problem(
            "unmeasured",
            f"The cost of your code could not be measured{why}, so it counts as too high.",
            "Which operation of torch does the same?" if leaves else "",
        )
    if spent <= limit:
        return None
    fact, question = _SPENDING[quantity]
    numbers = f"{fact.format(spent=f'{spent:,}')}; {limit:,} are plenty."
    return Cause(f"spent_{quantity}", f"{probe.says} {numbers}", question)


def forbidden_in(
    exercise: Exercise, prepared: Prepared, seen: Mapping[str, Observation], touched: str = ""
) -> list[Violation]:
    """Return the violation for a forbidden call or loop, or for code that could hide one.

    `touched` names such code (`checks.judge.counting`), or code with which a test could look inside
    the objects it gets.
    """
    if touched:
        first = prepared[0][0]
        cause = _uncounted(touched) if first.counted else _looked_inside(touched)
        found: tuple[Probe, Problem] | None = first, cause
    else:
        loops = _loops_problem(exercise, prepared, seen)
        found = (
            None
            if exercise.rules.needs_loops and loops
            else _forbidden_call(exercise, prepared, seen)
        )
        found = found or (loops and (prepared[0][0], loops))
    if not found:
        return []
    probe, problem = found
    expected = next(expected for one, expected in prepared if one is probe)
    return [Violation(probe, "forbidden", problem, "values", expected, seen[probe.name])]


def _forbidden_call(
    exercise: Exercise, prepared: Prepared, seen: Mapping[str, Observation]
) -> tuple[Probe, Problem] | None:
    """Return the most serious forbidden call with its probe. Names may be patterns."""
    found: dict[str, tuple[Probe, Problem]] = {}
    for probe, _ in prepared:
        for call in seen[probe.name].calls if probe.name in seen else ():
            function, _, axes = call.partition(" of ")
            for name, reason in exercise.rules.forbidden.items():
                if fnmatchcase(function, name) or fnmatchcase(call, name):
                    on = "" if fnmatchcase(function, name) else f" on tensors with {axes}"
                    message = (
                        f"Your code calls `{function}`{on}, directly or through another function. "
                        f"This exercise rules that out. {reason}"
                    )
                    only_leaves = function in OUT_OF_TORCH | SINGLE_NUMBERS
                    kind = "out_of_torch" if only_leaves else "forbidden_call"
                    found.setdefault(kind, (probe, Cause(kind, message)))
    return found.get("forbidden_call") or found.get("out_of_torch")


def _uncounted(touched: str) -> Cause:
    return Cause(
        "uncounted",
        f"{touched} could change how calls, loops, bytes or evaluations of functions are counted, "
        "so your answer gets none of the points that depend on such counts.",
        "What does the same without reaching into Python, torch or the course?",
    )


def _looked_inside(touched: str) -> Cause:
    return Cause(
        "looked_inside",
        f"{touched} could look inside the functions or modules that your test gets, so your test "
        "earns no points.",
        "Which calls of them show the same?",
    )


def _loops_problem(
    exercise: Exercise, prepared: Prepared, seen: Mapping[str, Observation]
) -> Problem | None:
    """Check that Python steps grow with the size exactly when they should."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for probe, _ in prepared:
        observation = seen.get(probe.name)
        if probe.loops and observation is not None and observation.raised is None:
            work = sum(observation.calls.values()), observation.steps
            groups.setdefault(probe.loops, []).append(work)
    compared = [group for group in groups.values() if len(group) > 1]
    growing = [group for group in compared if len(set(group)) > 1]
    if exercise.rules.no_loops and any(steps == LOST for group in compared for _, steps in group):
        return Cause(
            "loops",
            "Python stopped counting the steps of your code, as it does if code recurses too "
            "deeply. The steps therefore count as growing with the size of the problem.",
            "Which function calls itself?",
        )
    if exercise.rules.no_loops and growing:
        (calls, steps), (more_calls, more_steps) = min(growing[0]), max(growing[0])
        return Cause(
            "loops",
            f"The work your code does in Python grows with the size of the problem ({calls} torch "
            f"calls and {steps} Python steps for a small one, {more_calls} and {more_steps} for a "
            "larger one), as in a loop. This exercise rules loops out.",
            "Which axes could you add with `[:, None, :]` so that one call does everything?",
        )
    if exercise.rules.needs_loops and compared and not growing:
        return Cause(
            "no_loop",
            "Your code makes the same number of calls whatever the sizes. This exercise asks for "
            "the loops that such a call hides.",
            "Along which axes of the result could a `for` loop run, one number or one item at a "
            "time?",
        )
    return None


def _raised_problem(probe: Probe, seen: Observation, raised: Raised) -> Problem:
    """Describe an error by its cause if the text tells it, or else by its message."""
    if raised.phase == "inject":
        return _missing_parameter(probe, seen)
    if raised.type_name == "NotAsRequested":  # raised by the scenario, not by the answer
        fact, _, question = raised.message.partition("\n")
        return Cause("not_as_requested", f"{probe.says} {fact}", question)
    for said, problem in _CAUSES.items():
        if said in raised.message:
            return problem
    where = f" in `{raised.lines[-1][2]}`" if raised.lines and raised.lines[-1][2] else ""
    during = {"construct": " when built", "backward": " in the backward pass"}.get(raised.phase, "")
    words = textwrap.shorten(raised.message, 300, placeholder=" ...")
    message = f"Your code raised {raised.type_name}{where}{during}: {words}"
    hint = "Follow the call: which line fails, and what goes into it?"
    if raised.phase == "construct" and not raised.lines:
        hint = f"Does your `__init__` take `({text_of_options(probe.construct or {})})`?"
    elif raised.phase == "backward" and probe.scenario.startswith("apply_function"):
        hint = "What must your `backward` return for each argument of `forward`?"
    elif raised.phase == "backward":
        hint = "Which step leaves the graph, or writes into a tensor that it needs?"
    if raised.type_name == "TypeError" and "argument" in raised.message and not raised.lines:
        return Cause("raised", message, hint, "other_parameters")
    line = raised.lines[-1][2] if raised.lines else ""
    if line.startswith("raise ") and raised.type_name != "NotImplementedError":
        fact = "Your own code raises an error for arguments that are allowed."
        question = "For which arguments does the statement ask for an error?"
        return Cause("raised", f"{fact} {message}", question, "allowed_input_rejected")
    for pattern, name, fact in _ERRORS:
        if re.search(pattern, raised.message):
            return Cause("raised", f"{fact} {message}", hint, name)
    return Problem("raised", message, hint)


_SIZES = (
    "must match|not be broadcast|not broadcast|shape mismatch|invalid for input|multiplied"
    "|first two dimensions|to be equal size|core dim"
)
_AXES = (
    "to unpack|Dimension out of range|too many indices|desired ordering|axes don't match"
    "|must be a (\\dD tensor|matrix)|number of (subscripts|dimensions)"
)
_A_NUMBER = (
    "'(int|float|bool)' object (has no|is not (sub|it))|must be Tensor, not (int|float|bool)"
)
_ERRORS = (  # patterns of messages that tell what the code does
    ("NoneType", "none_used", "Your code uses None as if it were a value."),
    ("view size", "view_impossible", "`view` cannot join axes after a transpose."),
    (_AXES, "another_number_of_axes", "A tensor has the wrong number of axes for this operation."),
    (_A_NUMBER, "number_as_tensor", "Your code uses a Python number as if it were a tensor."),
    ("scalar type|same dtype", "dtypes_differ", "Your code combines tensors of different dtypes."),
    (
        "has no attribute",
        "no_such_attribute",
        "Your code uses an attribute that the object does not have.",
    ),
    ("is ambiguous", "truth_of_many", "`if`, `and` and `not` need one bool, not a tensor of many."),
    (_SIZES, "sizes_do_not_fit", "Your code combines sizes that do not fit each other."),
    ("generator' object", "generator_as_list", "Your code uses a generator as if it were a list."),
    (
        "number of gradients",
        "gradients_missing",
        "`backward` must return a value for each argument of `forward`.",
    ),
    (
        "invalid gradient at",
        "gradient_misplaced",
        "`backward` returns a gradient of the wrong shape.",
    ),
    ("out of (range|bounds)", "index_out_of_range", "Your code asks for a missing entry."),
)

_CAUSES = {  # texts of a probe's device and of torch
    MIXED_UP: Cause(
        "cpu_tensor",
        "Your code makes a tensor on the CPU, but the arguments are on another device.",
        "Which step makes a tensor without `device=`, or moves one to the CPU?",
    ),
    "a leaf Variable that requires grad is being used in an in-place operation": Cause(
        "leaf_changed_in_place",
        "Your code writes into a tensor that requires a gradient while torch records operations, "
        "which torch does not allow.",
        "Is it an argument, which must not change, or a parameter to update without recording "
        "(`torch.no_grad`, an optimizer)?",
        "input_mutated",
    ),
}


def _missing_parameter(probe: Probe, seen: Observation) -> Problem:
    """Describe missing parameters, and where the module keeps them if known."""
    if seen.without_parameters:
        return _WITHOUT_PARAMETERS[seen.without_parameters]
    wanted = {name: tuple(np.shape(data)) for name, data in probe.state.items()}
    found = seen.parameters or {}

    def listed(names: list[str]) -> str:
        first = ", ".join(f"`{name}`" for name in names[:4])
        return first + f" and {len(names) - 4} more" * (len(names) > 4)

    if missing_names := [name for name in wanted if name not in found]:
        missing = listed(missing_names)
        yours = [name for name in found if name not in wanted]
        instead = f"; it lists {listed(yours)} instead" if yours else ""
        same_shapes = sorted(found.values()) == sorted(wanted.values())
        return Cause(
            "parameters_renamed" if same_shapes else "missing_parameter",
            f"`named_parameters()` does not list {missing}{instead}.",
            f"Does `__init__` assign a layer for `{missing_names[0]}` to `self`, with the correct "
            "class and arguments, and without sharing its weight?",
        )
    wrong = next(name for name in wanted if found[name] != wanted[name])
    return Problem(
        "parameter_shape",
        f"The parameter `{wrong}` must have shape {wanted[wrong]}; yours has {found[wrong]}.",
        "Which size does this layer read, and which does it write?",
    )


_WITHOUT_PARAMETERS = {
    "in_forward": Cause(
        "parameters_in_forward",
        "You make your layers in `forward`: before a call they do not exist, so an optimizer "
        "misses them, and each call may draw new weights.",
        "What belongs in `__init__`, and what in `forward`?",
    ),
    "plain_tensors": Cause(
        "plain_tensors",
        "At least one of your weights is a plain tensor, an array or a buffer: `parameters()` does "
        "not list it, so an optimizer does not train it.",
        "What does `nn.Linear`, or `nn.Parameter`, do that assigning a tensor does not?",
    ),
    "in_a_list": Cause(
        "layers_in_a_list",
        "Some of your layers or weights are in a Python list or dict: `parameters()` does not list "
        "them, so an optimizer does not train them.",
        "What does `nn.ModuleList` do that a list does not?",
    ),
}
