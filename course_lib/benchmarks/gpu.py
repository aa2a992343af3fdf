"""`course gpu`: compare a GPU with the CPU of the same machine, in one table.

On both devices, every solution computes the problems of its check, every training run of the course
takes some steps, and the course's language models write. On the GPU, lesson 08's attention in
blocks and `course_lib.fused` are compared with PyTorch's own function.

Every function takes the device as an argument. The tests therefore run them on the CPU, and on a
fake device that refuses tensors of the CPU.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.benchmark import Timer

from course_lib import attention, fused
from course_lib.authoring.train_models import train_induction, train_writer
from course_lib.benchmarks import machine
from course_lib.checks import exercises
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.of_the_result import correct_observation
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import find_violations
from course_lib.checks.observe.call import materialise
from course_lib.checks.observe.probe import Array, Built, Probe
from course_lib.checks.observe.record import record
from course_lib.checks.observe.scenarios import SCENARIOS
from course_lib.models.numerals import Numerals
from course_lib.models.stories import CHARACTERS
from course_lib.models.trained import LETTERS, trained_induction, trained_writer
from course_lib.models.translator import RecurrentTranslator
from course_lib.models.whole_game import new_translator, train_translator
from course_lib.workspace.errors import UsageError
from course_lib.workspace.folder import find_lesson, lesson_names
from course_lib.workspace.sources import bound_names, undefined_names

Device = torch.device | str

LENGTHS = 1024, 4096, 16384, 32768
DTYPES = torch.float32, torch.bfloat16
NUM_HEADS, HEAD_DIM = 8, 64  # of the attention that is measured
TEXTS = 1, 64  # how many texts a language model continues at once
_WARM_UP = 10  # steps of training that are not timed

# Scenarios that compare the CPU with a fake device themselves.
_OF_TWO_DEVICES = (
    "after_another_device",
    "made_with_device_and_dtype",
    "with_a_device",
    "with_a_model_elsewhere",
)
# Scenarios that create tensors of their own, on the default device.
_WITH_OWN_TENSORS = (
    "after_a_call_with_lengths",
    "among_other_models",
    "head_switched_off",
    "load_weights",
    "stored_weights",
)


def gpu() -> torch.device:
    """Return the first GPU.

    Raises:
        UsageError: torch finds none.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    why = "finds none" if torch.version.cuda else "is a build for CPUs"
    raise UsageError(f"course gpu needs a machine with an NVIDIA GPU, and torch here {why}")


def measure(
    root: Path,
    device: Device,
    *,
    names: Sequence[str] | None = None,
    lengths: Sequence[int] = LENGTHS,
    seconds: float = 0.5,
    steps: int = 40,
    num_tokens: int = 64,
    limit: float = 420,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything, and return a row for each measurement by its part and name.

    A measurement that fails gets a row that says why, and the others go on.

    Args:
        root: the course folder, which holds `solutions`.
        device: the device to compare with the CPU.
        names: the exercises whose solutions run; all if not given.
        lengths: numbers of queries and keys for the attention.
        seconds: the least time that each function is measured.
        steps: the number of steps of training that are timed.
        num_tokens: the number of tokens that a language model writes.
        limit: seconds after which no measurement is started.
        tell: called with a line for each measurement.
    """
    started = time.perf_counter()
    rows: dict[str, dict[str, dict[str, Any]]] = {part: {} for part in _CELLS}
    planned = _planned(root, device, names, lengths, seconds, steps, num_tokens)
    for part, name, measurement in planned:
        if time.perf_counter() - started > limit:
            rows[part][name] = {"failed": "not measured, because the time was over"}
            continue
        tell(f"{part}: {name}")
        try:
            rows[part][name] = measurement()
        except torch.OutOfMemoryError:
            rows[part][name] = {"failed": "out of memory"}
        except Exception as error:
            rows[part][name] = {"failed": _in_short(error)}
    return {
        "machine": machine(),
        "device": name_of(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": round(time.perf_counter() - started, 1),
        **rows,
    }


Measurement = tuple[str, str, Callable[[], dict[str, Any]]]


def _planned(
    root: Path,
    device: Device,
    names: Sequence[str] | None,
    lengths: Sequence[int],
    seconds: float,
    steps: int,
    num_tokens: int,
) -> Iterator[Measurement]:
    """Yield the part and the name of each measurement, and a function that returns its row."""
    for name, exercise in exercises().items():
        if uses_tensors(exercise) and (names is None or name in names):
            yield "solutions", name, partial(solution_row, exercise, device)
    for name, training in trainings(root).items():
        yield "training", name, partial(training_row, training, device, steps)
    for name, model in LANGUAGE_MODELS.items():
        for texts in TEXTS:
            row = partial(writing_row, model, device, texts, num_tokens, seconds)
            yield "writing", f"{name}, {texts} text{'s' * (texts > 1)}", row
    for n, dtype, backward in itertools.product(lengths, DTYPES, (False, True)):
        passes = "forward and backward" if backward else "forward"
        name = f"{n:,} keys, {str(dtype).removeprefix('torch.')}, {passes}"
        yield "attention", name, partial(attention_row, n, dtype, device, backward, seconds)


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


def name_of(device: Device) -> str:
    """Return the name of a device for a reader."""
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def synchronize(device: Device) -> None:
    """Wait until a GPU has finished. Other devices do not run ahead of Python."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def median_seconds(function: Callable[[], object], seconds: float) -> float:
    """Return the median time of a call, without the first ones. `Timer` waits for the GPU."""
    threads = torch.get_num_threads()
    timer = Timer("function()", globals={"function": function}, num_threads=threads)
    return timer.blocked_autorange(min_run_time=seconds).median


def peak_memory(function: Callable[[], object], device: Device) -> int | None:
    """Return how many bytes a call allocates at most, or None if the device does not tell."""
    if torch.device(device).type != "cuda":
        return None
    synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    function()
    synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


# ---------------------------------------------------------------- solutions
def uses_tensors(exercise: Exercise) -> bool:
    """Return whether a solution computes with tensors. The others use NumPy or plain numbers."""
    given = [
        value
        for probe in exercise.probes(np.random.default_rng(0))
        for value in probe.inputs().values()
    ]
    given = [one for value in given for one in (value if isinstance(value, list) else [value])]
    return any(returned.kind == "tensor" for returned in exercise.returns) or any(
        isinstance(one, Built) or (isinstance(one, Array) and one.kind == "tensor") for one in given
    )


def solution_row(exercise: Exercise, device: Device) -> dict[str, Any]:
    """Compute the problems of a check with the course's solution, on a device and on the CPU.

    Returns:
        "problems", the number of problems; "left_out", the number of those that are not computed,
        which are random, expect an error or compare devices themselves; "incorrect", the problems
        that fail on the device or whose result there the check does not accept; and "difference",
        the largest difference between the results of both devices, relative to numbers above 1.
    """
    solution = getattr(attention, exercise.name)
    problems, incorrect, largest, left_out = 0, [], 0.0, 0
    for probe, expected in prepare(exercise, "gpu"):
        if _is_left_out(probe):
            left_out += 1
            continue
        here, other = (compute(solution, probe, "cpu", seed) for seed in (0, 1))
        if _difference(here, other) > 0:
            left_out += 1  # its result is random
            continue
        problems += 1
        try:
            there = compute(solution, probe, device)
        except Exception as error:
            incorrect.append(f"{probe.name}: {_in_short(error)}")
            continue
        largest = max(largest, _difference(here, there))
        right = correct_observation(exercise, probe, expected)
        seen = replace(
            right,
            outputs=record(there.outputs),
            attributes={name: record(value) for name, value in there.attributes.items()},
            gradients={name: record(value) for name, value in there.gradients.items()},
        )
        if find_violations(exercise, probe, expected, seen):
            incorrect.append(probe.name)
    return {
        "problems": problems,
        "left_out": left_out,
        "incorrect": incorrect,
        "difference": float(f"{largest:.1e}"),
    }


def _is_left_out(probe: Probe) -> bool:
    built = [value for value in probe.inputs().values() if isinstance(value, Built)]
    # These functions and modules compute with tensors on the CPU.
    nudged = any("nudged" in (b.name.partition("_")[0], b.options.get("name")) for b in built)
    return bool(probe.raises) or probe.scenario in _OF_TWO_DEVICES or nudged


class Computed(NamedTuple):
    """The results of one problem, on the CPU."""

    outputs: Any
    attributes: dict[str, Any]
    gradients: dict[str, Any]


def compute(solution: Any, probe: Probe, device: Device, seed: int = 0) -> Computed:
    """Compute one problem on a device, with everything that is given on that device.

    Raises:
        ValueError: a tensor of the result is on another device.
    """
    torch.manual_seed(seed)
    args, kwargs = (_made(values, probe, device, seed) for values in (probe.args, probe.kwargs))
    leaves = {n: v for n, v in {**args, **kwargs}.items() if getattr(v, "requires_grad", False)}
    if probe.construct is not None:
        module = solution(**_made(probe.construct, probe, "cpu", seed))
        probe = replace(probe, construct=_made(probe.construct, probe, device, seed))
        state = {name: torch.from_numpy(np.array(value)) for name, value in probe.state.items()}
        module.load_state_dict(state, strict=False)
        dtype = getattr(torch, probe.dtype or "float64")
        solution = module.to(device=device, dtype=dtype).train(probe.training)
        leaves |= {name: p for name, p in module.named_parameters() if name in state}
    elif inspect.isfunction(solution) and "device" in inspect.signature(solution).parameters:
        kwargs["device"] = device
    own = torch.device(device) if probe.scenario in _WITH_OWN_TENSORS else contextlib.nullcontext()
    with own:
        result = SCENARIOS[probe.scenario](solution, probe, args, kwargs)
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, Tensor) and part.device.type != torch.device(device).type:
            raise ValueError(f"{probe.name}: the result is on {part.device}")
    attributes = {name: getattr(solution, name) for name in probe.attributes}
    gradients: dict[str, Any] = {}
    if probe.grad_outputs is not None:
        first = result[0] if isinstance(result, tuple) else result
        grad = torch.from_numpy(np.array(probe.grad_outputs)).to(first.dtype).to(device)
        found = torch.autograd.grad(first, list(leaves.values()), grad, allow_unused=True)
        gradients = dict(zip(leaves, found, strict=True))
    return Computed(_moved(result, "cpu"), _moved(attributes, "cpu"), _moved(gradients, "cpu"))


def _made(values: Mapping[str, Any], probe: Probe, device: Device, seed: int) -> dict[str, Any]:
    made = {name: materialise(value, probe.dtype) for name, value in values.items()}
    for value in made.values():
        if isinstance(value, torch.Generator) and seed:
            value.manual_seed(value.initial_seed() + seed)
    return _moved(made, device)


def _moved(value: Any, device: Device) -> Any:
    """Return a value with all tensors, modules and generators in it on a device."""
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, nn.Module):
        for part in value.modules():  # a module that the check built may keep plain tensors
            for name, kept in list(vars(part).items()):
                if isinstance(kept, list) and kept and all(isinstance(x, Tensor) for x in kept):
                    setattr(part, name, _moved(kept, device))
        return value.to(device)
    if isinstance(value, torch.Generator) and torch.device(device).type == "cuda":
        return torch.Generator(device).manual_seed(value.initial_seed())
    if isinstance(value, dict):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference between two results, relative to numbers above 1."""
    if isinstance(one, dict):
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        return max((_difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, Tensor):
        one, other = (x.detach().double().numpy() for x in (one, other))
    if not isinstance(one, np.ndarray | float | int):
        return 0.0 if one == other else float("inf")
    if np.shape(one) != np.shape(other):
        return float("inf")
    one, other = np.asarray(one, float), np.asarray(other, float)
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other) / np.maximum(1.0, np.abs(one))
    same = (one == other) | (np.isnan(one) & np.isnan(other))  # infinity minus infinity is NaN
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return float(apart.max(initial=0.0))


# ---------------------------------------------------------------- training
class Training(NamedTuple):
    """A training run: its number of steps, and `run(device, num_steps)`, which takes some."""

    num_steps: int
    run: Callable[[Device, int], object]


def trainings(root: Path) -> dict[str, Training]:
    """Return every training run of the lessons and of `course train`, by its name."""

    def numerals(device: Device, num_steps: int) -> None:
        given = Numerals()
        train_translator(new_translator(given, device=device), given, num_steps)

    def reversal(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "07", ["Block", "reversal", "train"], device)
        model = lesson["Block"](attention.MultiHeadAttention(32, 2))
        lesson["train"](model, lesson["reversal"], num_steps)

    def translator(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "09", ["new_translator", "learn", "numerals"], device)
        model = lesson["new_translator"](lesson["numerals"]).to(device)
        lesson["learn"](model, lesson["numerals"], num_steps)

    def recurrent(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "09", ["learn", "numerals"], device)
        model = RecurrentTranslator(lesson["numerals"], 32, device=device)
        lesson["learn"](model, lesson["numerals"], num_steps)

    def stories(device: Device, num_steps: int) -> None:
        lesson = from_lesson(root, "10", ["learn", "width", "context"], device)
        lesson["num_steps"] = num_steps
        width, context = lesson["width"], lesson["context"]
        blocks = [attention.CausalSelfAttention(width, 4) for _ in range(2)]
        lesson["learn"](blocks, 4 * width, attention.positional_encoding(context, width))

    learn = from_lesson(root, "09", ["learn"], "cpu")["learn"]
    lesson_steps = from_lesson(root, "10", ["num_steps"], "cpu")["num_steps"]
    return {
        "translator of lesson 00": Training(_steps_of(train_translator), numerals),
        "block of lesson 07": Training(100, reversal),
        "translator of lesson 09": Training(_steps_of(learn), translator),
        "GRU of lesson 09": Training(_steps_of(learn), recurrent),
        "language model of lesson 10": Training(lesson_steps, stories),
        "letters, course train": Training(
            _steps_of(train_induction), lambda device, steps: train_induction(steps, device)
        ),
        "writer, course train": Training(
            _steps_of(train_writer), lambda device, steps: train_writer(steps, device)
        ),
    }


def _steps_of(function: Callable) -> int:
    return inspect.signature(function).parameters["num_steps"].default


def from_lesson(root: Path, number: str, names: Sequence[str], device: Device) -> dict[str, Any]:
    """Run the statements of a lesson's text that define some names, and return its variables.

    The course's solutions take the place of the reader's answers, and `device` is the given device.
    """
    slug = find_lesson(lesson_names(root), number)
    source = (root / "solutions" / slug / f"{slug}.py").read_text(encoding="utf-8")
    variables = {**vars(attention), "device": str(device)}
    first: dict[str, ast.stmt] = {}
    for statement in ast.parse(source).body:
        for name in bound_names(ast.unparse(statement)):
            first.setdefault(name, statement)
    wanted, todo = [], list(names)
    while todo:
        statement = first[todo.pop()]
        if statement not in wanted:
            wanted.append(statement)
            todo += undefined_names(ast.unparse(statement), variables)
    for statement in sorted(wanted, key=lambda one: one.lineno):
        exec(ast.unparse(statement), variables)  # the course's own text
    return variables


def training_row(training: Training, device: Device, steps: int) -> dict[str, Any]:
    """Time steps of a training run on a device and on the CPU, and extrapolate to the whole run.

    Returns:
        "steps" of the whole run, and its seconds on both devices.
    """
    there, here = (seconds_per_step(training, one, steps) for one in (device, "cpu"))
    total = training.num_steps
    return {"steps": total, "gpu": round(total * there, 2), "cpu": round(total * here, 2)}


def seconds_per_step(training: Training, device: Device, steps: int) -> float:
    """Return the mean time of a step of training, from the end of the warm-up on.

    Raises:
        ValueError: the model is on another device.
    """
    number, marks = itertools.count(1), []

    def after_a_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        trained = optimizer.param_groups[0]["params"][0].device
        if trained.type != torch.device(device).type:
            raise ValueError(f"the model that is trained is on {trained}")
        if next(number) in (_WARM_UP, _WARM_UP + steps):
            synchronize(device)
            marks.append(time.perf_counter())

    hook = register_optimizer_step_post_hook(after_a_step)
    try:
        # Without a terminal, there is no progress bar, which would take time.
        with contextlib.redirect_stderr(io.StringIO()):
            training.run(device, _WARM_UP + steps)
    finally:
        hook.remove()
    return (marks[1] - marks[0]) / steps


# ---------------------------------------------------------------- writing
def _letters(device: Device) -> nn.Module:
    blocks = [attention.CausalSelfAttention(64, 4, device=device) for _ in range(2)]
    positions = attention.positional_encoding(32, 64)
    model = attention.LanguageModel(len(LETTERS), blocks, positions, device=device)
    return trained_induction(model)


def _writer(device: Device) -> nn.Module:
    blocks = [attention.CausalSelfAttention(128, 4, device=device) for _ in range(3)]
    positions = attention.positional_encoding(192, 128)
    model = attention.LanguageModel(len(CHARACTERS), blocks, positions, 512, device=device)
    return trained_writer(model)


# Each returns a model on a device that `attention.generate` can call. Pretrained models of
# `course_lib.models` belong here too.
LANGUAGE_MODELS: dict[str, Callable[[Device], nn.Module]] = {
    "letters": _letters,
    "writer": _writer,
}


def writing_row(
    model: Callable[[Device], nn.Module],
    device: Device,
    texts: int,
    num_tokens: int,
    seconds: float,
) -> dict[str, Any]:
    """Return how many tokens a language model writes in a second, on a device and on the CPU."""
    there, here = (
        tokens_per_second(model(one), one, texts, num_tokens, seconds) for one in (device, "cpu")
    )
    return {"gpu": float(f"{there:.3g}"), "cpu": float(f"{here:.3g}")}


def tokens_per_second(
    model: nn.Module, device: Device, texts: int, num_tokens: int, seconds: float
) -> float:
    """Return how many tokens `generate` adds in a second when it continues some texts."""
    prompt = torch.ones(texts, 4, dtype=torch.int64, device=device)
    generator = torch.Generator(device).manual_seed(0)
    run = lambda: attention.generate(model, prompt, num_tokens, generator=generator)  # noqa: E731
    return texts * num_tokens / median_seconds(run, seconds)


# ---------------------------------------------------------------- attention
WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "blocked": lambda *x: attention.RecomputedAttention.apply(*x),  # pyright: ignore[reportReturnType]
    "fused": lambda *x: fused.scaled_dot_product_attention(*x, need_weights=False)[0],
    "torch": F.scaled_dot_product_attention,
}


def attention_row(
    n: int, dtype: torch.dtype, device: Device, backward: bool, seconds: float
) -> dict[str, Any]:
    """Measure each way to compute attention of n queries and keys on a device.

    Returns:
        For each way, the milliseconds and the most bytes of a call.
    """
    generator = torch.Generator().manual_seed(0)
    shape = 1, NUM_HEADS, n, HEAD_DIM
    inputs = [torch.randn(shape, generator=generator).to(device, dtype) for _ in range(3)]
    grad = torch.ones_like(inputs[0])
    row = {}
    for name, way in WAYS.items():
        leaves = [x.requires_grad_(backward) for x in inputs]

        def run(way=way, leaves=leaves) -> None:
            outputs = way(*leaves)
            if backward:
                torch.autograd.grad(outputs, leaves, grad)

        run()  # the first call loads kernels and gets memory
        memory = peak_memory(run, device)
        row[name] = {"ms": round(1e3 * median_seconds(run, seconds), 3), "bytes": memory}
    return row


# ---------------------------------------------------------------- the table
def faults(measured: Mapping[str, Any]) -> list[str]:
    """Return what could not be measured, and the solutions that are wrong on the device."""
    rows = [(name, row) for part in _CELLS for name, row in measured[part].items()]
    wrong = {name: row.get("failed") or ", ".join(row.get("incorrect", ())) for name, row in rows}
    return [f"{name}: {what}" for name, what in wrong.items() if what]


def table(measured: Mapping[str, Any]) -> str:
    """Return the measurements as one Markdown table, below a line about the machine."""
    lines = [
        f"{measured['device']}, {measured['machine']}, torch {measured['torch']}, "
        f"{measured['threads']} threads; measured in {measured['seconds']:.0f} s.",
        "",
    ]
    header = "measured", "GPU", "compared with", "ratio or difference"
    rows = [header, *_rows(measured)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    ruled = [tuple("-" * width for width in widths)]
    for row in [rows[0], *ruled, *rows[1:]]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(measured: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    rows = []
    for part, cells in _CELLS.items():
        for name, row in measured[part].items():
            failed = [(name, row["failed"].replace("|", "/"), "", "")] if "failed" in row else None
            rows += failed or cells(name, row)
    return rows


def _solution_cells(name: str, row: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    wrong = len(row["incorrect"])
    said = f"{row['problems'] - wrong} of {row['problems']} problems correct"
    said += f" (not {', '.join(row['incorrect'])})" if wrong else ""
    return [(f"`{name}`", said, "CPU", f"difference {row['difference']:.1e}")]


def _training_cells(name: str, row: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    gpu, cpu = row["gpu"], row["cpu"]
    return [(f"{name}, {row['steps']:,} steps", f"{gpu} s", f"CPU {cpu} s", _ratio(gpu, cpu))]


def _writing_cells(name: str, row: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    gpu, cpu = row["gpu"], row["cpu"]
    return [(name, f"{gpu:,g} tokens/s", f"CPU {cpu:,g} tokens/s", _ratio(gpu, cpu))]


def _attention_cells(name: str, row: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    rows, torchs = [], row["torch"]
    for way in ("blocked", "fused"):
        ours = row[way]
        ratios = [_ratio(ours["ms"], torchs["ms"])]
        cells = [f"{one['ms']} ms" for one in (ours, torchs)]
        if torchs["bytes"] is not None:
            cells = [
                f"{cell}, {one['bytes'] / 2**20:,.0f} MiB"
                for cell, one in zip(cells, (ours, torchs), strict=True)
            ]
            ratios.append(_ratio(ours["bytes"], torchs["bytes"]))
        rows.append((f"{way}, {name}", cells[0], f"torch {cells[1]}", ", ".join(ratios)))
    return rows


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.3g}" if other else "-"


_CELLS = {
    "solutions": _solution_cells,
    "training": _training_cells,
    "writing": _writing_cells,
    "attention": _attention_cells,
}
