"""The problems of `course bench attention` around additive attention: lessons 01, 02 and 04."""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from course_lib.benchmarks import attention_textbook as textbook
from course_lib.benchmarks.attention_measure import Work
from course_lib.benchmarks.attention_problems import (
    Call,
    Maker,
    Problem,
    compiled,
    same_weights,
    tensors,
)


# ---------------------------------------------------------------- masked softmax
class _Result(torch.autograd.Function):
    """Scores as a model has them: the result of something, free to be overwritten.

    Copying them would cost as much as masking. The textbook form finds its own fill the next
    time, and overwrites the same places again.
    """

    @staticmethod
    def forward(ctx, scores, buffer) -> Tensor:
        """Returns the memory of the tensor in `buffer`, which holds the numbers of `scores`."""
        return torch.empty(0, device=buffer[0].device).set_(buffer[0])

    @staticmethod
    def backward(ctx, *grads) -> tuple[Tensor, None]:
        """The gradient of `scores`."""
        (grad,) = grads
        return grad, None


def masked_softmax(batch: int, n: int, *, per_query: bool, size: str, quick=False) -> Problem:
    """Lengths 1 to n, one an item or one a query."""

    def inputs(generator) -> dict:
        made = tensors(generator, ["scores"], scores=(batch, n, n))
        shape = (batch, n) if per_query else (batch,)
        made["lens"] = torch.randint(1, n + 1, shape, generator=generator, device=generator.device)
        return made

    def maker(function, compile=lambda f: f) -> Maker:
        def make(x: dict) -> Call:
            chosen, buffer = compile(function()), x["scores"].detach().clone()
            return lambda: chosen(_Result.apply(x["scores"], [buffer]), x["lens"])

        return make

    numbers = float(batch * n * n)
    return Problem(
        f"masked softmax {batch}x{n}x{n}, {2 if per_query else 1}-D lengths",
        size,
        inputs,
        {
            "textbook": maker(lambda: textbook.masked_softmax),
            "taught": maker(_taught_softmax),
            "fast": maker(_fast_softmax),
            "formula": maker(_taught_softmax, torch.compile),
        },
        {
            "forward": Work(exps=numbers, numbers=2 * numbers),
            "both": Work(exps=numbers, numbers=5 * numbers),
        },
        quick=quick,
    )


def _taught_softmax() -> Callable[..., Tensor]:
    from course_lib.attention import masked_softmax

    return masked_softmax


def _fast_softmax() -> Callable[..., Tensor]:
    from course_lib.fused.masked_softmax import masked_softmax

    return masked_softmax


# ---------------------------------------------------------------- kernel regression
def kernel_regression(n: int, kernel: str, bandwidth: float, *, size: str, quick=False) -> Problem:
    """n places to predict at and n data between 0 and 5; the course teaches the Gaussian."""

    def inputs(generator) -> dict:
        device = generator.device
        made = {
            name: 5 * torch.rand(n, generator=generator, device=device)
            for name in ("queries", "keys")
        }
        made["values"] = torch.randn(n, generator=generator, device=device)
        return {**made, "leaves": ["values"]}

    def columns(x: dict) -> tuple[Tensor, Tensor, Tensor]:
        return x["queries"][:, None], x["keys"][:, None], x["values"][:, None]

    def published(x: dict) -> Call:
        arguments = x["queries"], x["keys"], x["values"], bandwidth, kernel
        return lambda: textbook.kernel_regression(*arguments)[:, None]

    def taught(x: dict) -> Call:
        from course_lib.attention import kernel_pooling

        return lambda: kernel_pooling(*columns(x), bandwidth)[0]

    def fast(x: dict) -> Call:
        from course_lib.fused.kernel_pooling import kernel_pooling

        options = {} if kernel == "gaussian" else {"kernel": kernel}
        return lambda: kernel_pooling(*columns(x), bandwidth, need_weights=False, **options)[0]

    pairs = float(n * n)
    work = {"forward": Work(flops=6 * pairs, exps=pairs)} if kernel == "gaussian" else {}
    candidates = {"textbook": published, "fast": fast}
    if kernel == "gaussian":
        candidates["taught"] = taught
    return Problem(
        f"Nadaraya-Watson {n}, {kernel}", size, inputs, candidates, work, ("forward",), quick
    )


# ---------------------------------------------------------------- additive
def additive(
    batch: int, n: int, hidden: int, *, size: str, features=256, quick=False, with_compiled=False
) -> Problem:
    """Queries, keys and values of `features` numbers each."""

    def inputs(generator) -> dict:
        shape = (batch, n, features)
        made = tensors(
            generator, ["queries", "keys", "values"], queries=shape, keys=shape, values=shape
        )
        made["state"] = textbook.AdditiveAttention(features, features, hidden).state_dict()
        return made

    def maker(package, **options) -> Maker:
        def make(x: dict) -> Call:
            module = same_weights(x, package().AdditiveAttention(features, features, hidden))
            return lambda: module(x["queries"], x["keys"], x["values"], **options)

        return make

    candidates = {"textbook": maker(lambda: textbook), "taught": maker(_taught_additive)}
    candidates["fast"] = fast = maker(_fused, need_weights=False)
    if with_compiled:
        candidates |= {"compiled": compiled(fast), "formula": compiled(maker(_taught_additive))}
    pairs, projections = float(batch * n * n), 2.0 * 2 * batch * n * features * hidden
    once = 2 * pairs * (hidden + features) + projections
    return Problem(
        f"additive {batch}x{n}x{n}, H={hidden}",
        size,
        inputs,
        candidates,
        {
            "forward": Work(once, pairs + 2.0 * batch * n * hidden, pairs * hidden),
            "both": Work(3 * once, pairs + 2.0 * batch * n * hidden, 2 * pairs * hidden),
        },
        quick=quick,
    )


def additive_decoding(
    batch: int, n: int, hidden: int, steps: int, *, size: str, features=256
) -> Problem:
    """One query after the other over the same keys; the keys need projecting once."""

    def inputs(generator) -> dict:
        shape = (batch, n, features)
        made = tensors(generator, [], queries=(batch, steps, features), keys=shape, values=shape)
        made["state"] = textbook.AdditiveAttention(features, features, hidden).state_dict()
        return made

    def one_by_one(attend, x: dict) -> Tensor:
        return torch.cat([attend(query) for query in x["queries"].split(1, dim=1)], dim=1)

    def maker(package) -> Maker:
        def make(x: dict) -> Call:
            module = same_weights(x, package().AdditiveAttention(features, features, hidden))
            return lambda: one_by_one(lambda q: module(q, x["keys"], x["values"]), x)

        return make

    def fast(x: dict) -> Call:
        module = same_weights(x, _fused().AdditiveAttention(features, features, hidden))

        def decode() -> Tensor:
            keys = module.project_keys(x["keys"])
            return one_by_one(lambda q: module.attend(q, keys, x["values"], need_weights=False), x)

        return decode

    candidates = {
        "textbook": maker(lambda: textbook),
        "taught": maker(_taught_additive),
        "fast": fast,
    }
    pairs = float(batch * steps * n)
    flops = 2 * pairs * (hidden + features) + 2.0 * batch * (n + steps) * features * hidden
    work = Work(flops, pairs + batch * (n + steps) * hidden, pairs * hidden)
    name = f"additive decoding, {steps} steps, {batch}x{n}, H={hidden}"
    return Problem(name, size, inputs, candidates, {"forward": work}, ("forward",))


def _fused() -> ModuleType:
    from course_lib import fused

    return fused


def _taught_additive() -> ModuleType:
    from course_lib import attention

    return attention
