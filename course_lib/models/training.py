"""Train a small model with Adam and a learning rate that rises and falls."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from course_lib import plotting


def train(
    model: nn.Module,
    next_loss: Callable[[], Tensor],
    num_steps: int,
    *,
    max_lr: float = 4e-3,
    label: str = "training",
    watch: Callable[[int, float], None] | None = None,
) -> Tensor:
    """Train `model` in place behind a progress bar, and leave it in eval mode.

    Interrupting (Kernel, Interrupt) ends the training early and keeps the weights so far. If
    weights and batches come from seeded generators, the result is reproducible on the same machine.

    Args:
        model: the module to train.
        next_loss: returns the loss of one more batch, a scalar.
        num_steps: the number of batches.
        max_lr: the largest learning rate, in the middle of the cycle.
        label: the text before the bar.
        watch: called after every step with the number of steps so far and the loss, in eval mode
            and without gradients, instead of showing the bar. `plotting.watch_training` returns
            such a function.

    Returns:
        The losses of all steps, on the CPU.

    Source: Smith and Topin 2018, one-cycle learning rate, https://arxiv.org/abs/1708.07120
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=max_lr)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps=max(num_steps, 2))
    losses = []
    model.train()
    try:
        for step in range(num_steps) if watch else plotting.progress(num_steps, label):
            loss = next_loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
            losses.append(loss.detach())
            if watch:
                model.eval()
                with torch.no_grad():
                    watch(step + 1, losses[-1].item())
                model.train()
    except KeyboardInterrupt:
        print(f"Stopped after {len(losses)} of {num_steps} steps; the model keeps what it learned.")
    model.eval()
    return torch.stack(losses).cpu() if losses else torch.zeros(0)
