"""Which problems `course bench attention` runs, and what the course is held to on a CPU."""

from dataclasses import dataclass

from course_lib.benchmarks.attention_problems import Problem
from course_lib.benchmarks.attention_problems_additive import (
    additive,
    additive_decoding,
    kernel_regression,
    masked_softmax,
)
from course_lib.benchmarks.attention_problems_dot import (
    MASKS,
    dot_product,
    multi_head,
    multi_head_decoding,
)


def problems(*, quick: bool = False) -> list[Problem]:
    """All problems from small to large; for `quick` a choice that takes seconds."""
    every = [
        masked_softmax(2, 10, per_query=False, size="teaching", quick=True),
        kernel_regression(50, "gaussian", 1.0, size="teaching", quick=True),
        additive(2, 10, 8, features=8, size="teaching", quick=True),
        dot_product(2, 10, 8, "none", size="teaching", quick=True),
        multi_head(2, 10, 16, 2, "none", size="teaching", quick=True),
        masked_softmax(32, 128, per_query=False, size="training", quick=True),
        masked_softmax(32, 128, per_query=True, size="training", quick=True),
        additive(32, 128, 256, size="training", with_compiled=True),
        additive_decoding(32, 128, 256, 20, size="training"),
        dot_product(32, 128, 64, "none", size="training", quick=True, with_compiled=True),
        dot_product(32, 128, 64, "half padded", size="training", quick=True),
        multi_head(32, 128, 256, 8, "none", size="training", quick=True, with_compiled=True),
        *(multi_head(32, 128, 256, 8, kind, size="training") for kind in MASKS[1:]),
        multi_head_decoding(8, 128, 256, 8, size="training"),
        *(kernel_regression(8192, k, 1.0, size="long") for k in KERNELS),
        additive(1, 1024, 256, size="long"),
        *(dot_product(8, 2048, 64, k, size="long", with_compiled=k != MASKS[2]) for k in MASKS),
        *(multi_head(1, 2048, 512, 8, kind, size="long") for kind in MASKS),
    ]
    if not quick:
        return every
    small = additive(2, 128, 256, size="training", quick=True)
    return [*(problem for problem in every if problem.quick), small]


KERNELS = ("gaussian", "boxcar", "epanechnikov")


@dataclass(frozen=True)
class Target:
    """A promise: a candidate takes at most `limit` times what another takes.

    Attributes:
        problem: the name of a problem, or how all those begin for which it holds.
        passes: forward or both.
        limit: of time, or of peak memory if `memory`.
        candidate, base: who is compared with whom.
    """

    problem: str
    passes: str
    limit: float
    candidate: str = "fast"
    base: str = "textbook"
    memory: bool = False


_ADDITIVE, _DOT, _HEADS = "additive 32x128x128, H=256", "dot product", "multi-head"

TARGETS = [
    Target("masked softmax 32x128x128, 1-D lengths", "both", 0.30),
    Target("masked softmax 32x128x128, 2-D lengths", "both", 0.60),
    Target(_ADDITIVE, "forward", 0.15),
    Target(_ADDITIVE, "forward", 0.07, "compiled"),
    Target(_ADDITIVE, "both", 0.20),
    Target(_ADDITIVE, "both", 0.08, "compiled"),
    Target(_ADDITIVE, "both", 1 / 30, memory=True),
    Target("additive 1x1024x1024, H=256", "both", 1 / 100, memory=True),
    Target("additive 2x10x10, H=8", "both", 1.0),
    Target("additive decoding, 20 steps, 32x128, H=256", "forward", 0.30),
    Target(f"{_DOT} 8x2048, d=64, none", "both", 0.55),
    Target(f"{_DOT} 8x2048, d=64, causal", "both", 0.25),
    Target(f"{_DOT} 8x2048, d=64, half padded", "both", 0.22),
    Target(f"{_DOT} 32x128, d=64, none", "both", 1.05),
    Target(f"{_DOT} 32x128, d=64, half padded", "both", 0.80),
    Target(f"{_DOT} 8x2048, d=64, none", "both", 1 / 15, memory=True),
    Target(f"{_HEADS} 1x2048, 512, 8 heads, none", "both", 0.65),
    Target(f"{_HEADS} 1x2048, 512, 8 heads, causal", "both", 0.32),
    Target(f"{_HEADS} 2x10", "both", 1.03, base="torch"),
    Target(f"{_HEADS} 32x128", "both", 1.03, base="torch"),
    Target(f"{_HEADS} 1x2048", "both", 1.03, base="torch"),
    Target("Nadaraya-Watson 8192, gaussian", "forward", 0.18),
    Target("Nadaraya-Watson 8192, boxcar", "forward", 0.01),
    Target("Nadaraya-Watson 8192, epanechnikov", "forward", 0.01),
]
