"""`course bench attention`: compare the speed of `course_lib.fused`, the taught form and PyTorch.

All candidates of a problem get the same inputs and must agree before they are timed. They take
turns on one thread, so a slow moment of the machine slows all of them. The reported ratio is the
median over the rounds. Times are processor times of this process.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import attention, fused
from course_lib.benchmarks import machine

Call = Callable[[], Tensor]
Problem = tuple[dict[str, Call], list[Tensor]]  # candidates by name, tensors that need gradients


@dataclass(frozen=True)
class Row:
    """One row of the table: a problem, forward only or with the backward pass, and its times."""

    problem: str
    passes: str
    milliseconds: dict[str, float]
    ratio_to_taught: float
    ratio_to_torch: float | None


@dataclass(frozen=True)
class Table:
    """All rows, and a description of the machine."""

    rows: list[Row]
    machine: str

    def as_dict(self) -> dict:
        """Return the rows and the machine as plain data."""
        return asdict(self)

    def text(self) -> str:
        """Return the rows as a Markdown table, with the machine above it."""
        lines = [
            f"{self.machine}.",
            "",
            "| problem | pass | taught, ms | fused, ms | torch, ms | fused / taught "
            "| fused / torch |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for row in self.rows:
            times = [
                f"{row.milliseconds[key]:.3g}" if key in row.milliseconds else ""
                for key in ("taught", "fused", "torch")
            ]
            to_torch = "" if row.ratio_to_torch is None else f"{row.ratio_to_torch:.2f}"
            cells = row.problem, row.passes, *times, f"{row.ratio_to_taught:.2f}", to_torch
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _softmax(batch: int, n: int) -> Problem:
    scores = _normal(batch, n, n).requires_grad_()
    lengths = torch.linspace(1, n, batch).long()
    return {
        "taught": lambda: attention.masked_softmax(scores, lengths),
        "fused": lambda: fused.masked_softmax(scores, lengths),
    }, [scores]


def _pooling(n: int) -> Problem:
    places, values = _normal(n, 1).requires_grad_(), _normal(n, 2).requires_grad_()
    return {
        "taught": lambda: attention.kernel_pooling(places, places, values, 0.2)[0],
        "fused": lambda: fused.kernel_pooling(places, places, values, 0.2, need_weights=False)[0],
    }, [places, values]


def _additive(batch: int, n: int, num_hiddens: int) -> Problem:
    x = _normal(batch, n, num_hiddens).requires_grad_()
    taught = attention.AdditiveAttention(num_hiddens, num_hiddens, num_hiddens)
    fast = fused.AdditiveAttention(num_hiddens, num_hiddens, num_hiddens)
    fast.load_state_dict(taught.state_dict())
    return {"taught": lambda: taught(x, x, x), "fused": lambda: fast(x, x, x)}, [x]


def _dot_product(batch: int, n: int, d: int, masking: str) -> Problem:
    x = _normal(batch, n, d).requires_grad_()
    lengths, mask, for_torch = _masks(masking, batch, n)
    taught, fast = attention.DotProductAttention(), fused.DotProductAttention()
    heads = x.unsqueeze(1)
    return {
        "taught": lambda: taught(x, x, x, lengths, mask),
        "fused": lambda: fast(x, x, x, lengths, mask),
        "torch": lambda: F.scaled_dot_product_attention(
            heads, heads, heads, attn_mask=for_torch
        ).squeeze(1),
    }, [x]


def _multi_head(batch: int, n: int, embed_dim: int, num_heads: int, masking: str) -> Problem:
    x = _normal(batch, n, embed_dim).requires_grad_()
    lengths, mask, for_torch = _masks(masking, batch, n)
    taught = attention.MultiHeadAttention(embed_dim, num_heads)
    fast = fused.MultiHeadAttention(embed_dim, num_heads)
    fast.load_state_dict(taught.state_dict())
    module = nn.MultiheadAttention(embed_dim, num_heads, bias=False, batch_first=True)
    attention.load_into_torch(taught, module)
    options: dict = {"need_weights": False}
    if lengths is not None and for_torch is not None:
        options["key_padding_mask"] = ~for_torch[:, 0, 0]
    elif mask is not None:
        options["attn_mask"] = ~mask
    return {
        "taught": lambda: taught(x, x, x, lengths, mask),
        "fused": lambda: fast(x, x, x, lengths, mask),
        "torch": lambda: module(x, x, x, **options)[0],
    }, [x]


def _masks(masking: str, batch: int, n: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return lengths and mask for the course's functions, and the equivalent mask for torch."""
    if masking == "causal":
        mask = attention.causal_mask(n)
        return None, mask, mask
    if masking == "padded":
        lengths = torch.linspace(1, n, batch).long()
        return lengths, None, attention.length_mask(lengths, n)[:, None, None]
    return None, None, None


TEACHING: dict[str, Callable[[], Problem]] = {
    "masked softmax 2x10x10": lambda: _softmax(2, 10),
    "kernel pooling 50": lambda: _pooling(50),
    "additive 2x10x10, H=8": lambda: _additive(2, 10, 8),
    "dot product 2x10, d=8": lambda: _dot_product(2, 10, 8, "none"),
    "multi-head 2x10, 32, 4 heads": lambda: _multi_head(2, 10, 32, 4, "none"),
}
LARGE: dict[str, Callable[[], Problem]] = {
    "masked softmax 32x512x512": lambda: _softmax(32, 512),
    "kernel pooling 4096": lambda: _pooling(4096),
    "additive 16x128x128, H=256": lambda: _additive(16, 128, 256),
    "dot product 8x1024, d=64": lambda: _dot_product(8, 1024, 64, "none"),
    "dot product 8x1024, d=64, padded": lambda: _dot_product(8, 1024, 64, "padded"),
    "dot product 8x1024, d=64, causal": lambda: _dot_product(8, 1024, 64, "causal"),
    "multi-head 8x512, 256, 8 heads": lambda: _multi_head(8, 512, 256, 8, "none"),
    "multi-head 8x512, 256, 8 heads, padded": lambda: _multi_head(8, 512, 256, 8, "padded"),
}


def measure(*, quick: bool = False, tell: Callable[[str], None] = lambda line: None) -> Table:
    """Time every problem, forward only and with the backward pass.

    Args:
        quick: time only the small problems.
        tell: called with the name of each problem.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = []
        for name, make in (TEACHING if quick else TEACHING | LARGE).items():
            tell(name)
            torch.manual_seed(0)
            candidates, leaves = make()
            with torch.no_grad():
                expected = candidates["taught"]()
                for call in candidates.values():
                    torch.testing.assert_close(call(), expected, rtol=1e-4, atol=1e-4)
                rows.append(_row(name, "forward", candidates))
            both = {key: _with_backward(call, leaves) for key, call in candidates.items()}
            rows.append(_row(name, "both", both))
        return Table(rows, f"{machine()}, torch {torch.__version__}, one thread")
    finally:
        torch.set_num_threads(threads)


def _with_backward(call: Call, leaves: list[Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(call().square().sum(), leaves)


def _row(name: str, passes: str, calls: Mapping[str, Callable[[], object]]) -> Row:
    times = race(calls)
    milliseconds = {key: 1000 * statistics.median(found) for key, found in times.items()}
    to_torch = _ratio(times, "torch") if "torch" in times else None
    return Row(name, passes, milliseconds, _ratio(times, "taught"), to_torch)


def race(calls: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, list[float]]:
    """Return the processor seconds of each call in each round. Short calls are repeated."""
    repeats = {}
    for name, call in calls.items():
        call()
        started = time.process_time()
        call()
        repeats[name] = max(1, round(0.01 / max(time.process_time() - started, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.process_time()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.process_time() - started) / repeats[name])
    return times


def _ratio(times: dict[str, list[float]], base: str) -> float:
    return statistics.median(
        ours / other for ours, other in zip(times["fused"], times[base], strict=True)
    )
