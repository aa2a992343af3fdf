"""Train a small model with Adam and a learning rate that rises and falls, or stays the same."""

import time
from collections.abc import Callable, Generator
from statistics import median

import torch
from torch import Tensor, nn

from course_lib import plotting

NUM_THREADS = torch.get_num_threads()  # the lessons set 1 afterwards
TRIED = 3  # steps, for each number of threads
KEPT = 10  # times as long as a comparison, until the next one


class Stopped(KeyboardInterrupt):
    """The end of a training run that was interrupted. IPython shows only its message."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def train(
    model: nn.Module,
    next_loss: Callable[[], Tensor],
    num_steps: int,
    *,
    max_lr: float = 4e-3,
    constant: bool = False,
    label: str = "training",
    watch: Callable[[int, float], None] | None = None,
) -> Tensor:
    """Train `model` in place behind a progress bar, and leave it in eval mode.

    The steps run with one thread or with `NUM_THREADS`, whichever is faster at the moment. Sums are
    rounded differently with each. Two runs agree to the last digit only if `OMP_NUM_THREADS=1` is
    set, and weights and batches come from seeded generators.

    Args:
        model: the module to train.
        next_loss: returns the loss of one more batch, a scalar.
        num_steps: the number of batches.
        max_lr: the largest learning rate, in the middle of the cycle.
        constant: whether every step has the learning rate `max_lr`, without a cycle.
        label: the text before the bar.
        watch: called after every step with the number of steps so far and the loss, in eval mode
            and without gradients, instead of showing the bar. `plotting.watch_training` returns
            such a function.

    Returns:
        The losses of all steps, on the CPU.

    Raises:
        Stopped: the training was interrupted (Kernel, Interrupt). Until it is trained again, the
            model refuses to be called.

    Source: Smith and Topin 2018, one-cycle learning rate, https://arxiv.org/abs/1708.07120
    """
    if "_refusal" in model.__dict__:
        model.__dict__.pop("_refusal").remove()
    optimizer = torch.optim.Adam(model.parameters(), lr=max_lr)
    schedulers = torch.optim.lr_scheduler
    if constant:
        rate = schedulers.ConstantLR(optimizer, factor=1.0)
    else:
        rate = schedulers.OneCycleLR(optimizer, max_lr, total_steps=max(num_steps, 2))
    losses = []
    before = torch.get_num_threads()
    threads = faster_threads(NUM_THREADS)
    torch.set_num_threads(next(threads))
    model.train()
    try:
        for step in range(num_steps) if watch else plotting.progress(num_steps, label):
            begun = time.perf_counter()
            loss = next_loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            losses.append(loss.detach())
            torch.set_num_threads(threads.send(time.perf_counter() - begun))
            if watch:
                model.eval()
                with torch.no_grad():
                    watch(step + 1, losses[-1].item())
                model.train()
    except KeyboardInterrupt:
        done = f"stopped after {len(losses)} of {num_steps} steps"
        refuse_calls(model, f"The training of this model was {done}. Run its cell again.")
        raise Stopped(f"Training {done}. Run this cell again to train the model.") from None
    finally:
        model.eval()
        torch.set_num_threads(before)
    return torch.stack(losses).cpu() if losses else torch.zeros(0)


def faster_threads(most: int) -> Generator[int, float, None]:
    """Yield the number of threads of each next step, 1 or `most`, and receive the step's seconds.

    Threads wait for each other several hundred times in a step. On an idle machine two threads
    train these small models faster than one. Beside other busy processes they are many times
    slower, because a thread that waits for another takes the time that the other needs. So a few
    steps with each are compared, the faster number is kept for ten times as long, and so on. A
    comparison ends early at a step with several threads that takes longer than all those with one.
    """
    while True:
        single: list[float] = []
        several: list[float] = []
        while len(single) < TRIED:
            single.append((yield 1))
        while len(several) < TRIED:
            several.append((yield most))
            if several[-1] > sum(single):
                break
        faster = 1 if median(single) < median(several) else most
        left = KEPT * sum(single + several)
        while left > 0:
            left -= yield faster


def refuse_calls(model: nn.Module, reason: str) -> None:
    """Make every call of the model raise a `RuntimeError`, until the model is trained again."""

    def refuse(*_: object) -> None:
        raise RuntimeError(reason)

    model.__dict__["_refusal"] = model.register_forward_pre_hook(refuse)
