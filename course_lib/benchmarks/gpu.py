"""`course gpu`: compare a GPU with the CPU of the same machine, in one table.

On both devices, every solution computes the problems of its check, every training run of the course
takes some steps, and the course's language models write. On the GPU, lesson 08's attention in
blocks and `course_lib.fused` are compared with PyTorch's own function.

Every function takes the device as an argument. The tests therefore run them on the CPU, and on a
fake device that refuses tensors of the CPU.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from course_lib import attention, fused
from course_lib.authoring.train_models import Device
from course_lib.benchmarks import machine
from course_lib.benchmarks.gpu_solutions import in_short, solution_row, uses_tensors
from course_lib.benchmarks.gpu_training import synchronize, training_row, trainings
from course_lib.checks import exercises
from course_lib.models.stories import CHARACTERS
from course_lib.models.trained import trained_writer
from course_lib.workspace.errors import UsageError

LENGTHS = 1024, 4096, 16384, 32768
DTYPES = torch.float32, torch.bfloat16
NUM_HEADS, HEAD_DIM = 8, 64  # of the attention that is measured
TEXTS = 1, 64  # how many texts a language model continues at once


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
            rows[part][name] = {"failed": in_short(error)}
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


def name_of(device: Device) -> str:
    """Return the name of a device for a reader."""
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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


# ---------------------------------------------------------------- writing
def _writer(device: Device) -> nn.Module:
    blocks = [attention.CausalSelfAttention(128, 4, device=device) for _ in range(3)]
    positions = attention.positional_encoding(192, 128)
    model = attention.LanguageModel(len(CHARACTERS), blocks, positions, 512, device=device)
    return trained_writer(model)


# Each returns a model on a device that `attention.generate` can call. Pretrained models of
# `course_lib.models` belong here too.
LANGUAGE_MODELS: dict[str, Callable[[Device], nn.Module]] = {
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
