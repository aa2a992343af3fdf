"""Lesson 10: attention modules, and models that generate text."""

import copy
import dataclasses

import torch

from course_lib.checks.observe.fake_device import NAME
from course_lib.checks.observe.scenarios import NotAsRequested, builder, scenario, statistic
from course_lib.exercises.language_model import fixtures_heads  # noqa: F401 (registers)


class MeanAttention(torch.nn.Module):
    """A module that returns the mean of all positions up to each one, times a parameter."""

    def __init__(self, dtype):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1, dtype=dtype))

    def forward(self, x):
        if x.dim() != 3:
            raise ValueError(f"`x` must have shape (B, n, D); got {tuple(x.shape)}.")
        so_far = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return self.scale * x.cumsum(1) / so_far[:, None]


@builder
def mean_attention(*, dtype):
    """Return a causal attention module for any number of features."""
    return MeanAttention(dtype)


def _another(target, probe, *, by_position=False):
    """Return a second model of the same sizes with its own attention modules."""
    given = copy.deepcopy(probe.construct)
    with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
        second = type(target)(*given.values()) if by_position else type(target)(**given)
    return second.to(given["positions"].dtype).train(target.training)


@scenario
def stored_weights(target, probe, args, kwargs):
    """Load the parameters of the first model into a second one, and call that."""
    second = _another(target, probe)
    second.load_state_dict(dict(target.named_parameters()))
    return second(*args.values(), **kwargs)


@scenario
def with_its_buffer(target, probe, args, kwargs):
    """Call a model that has its positions in a buffer."""
    if "positions" not in dict(target.named_buffers()):
        raise NotAsRequested(
            "`positions` is not a buffer of your model.",
            "Which method of `nn.Module` registers a tensor that is not a parameter?",
        )
    return target(*args.values(), **kwargs)


@scenario
def layers_with_device_and_dtype(target, probe, args, kwargs):
    """Create a model with `device=` and `dtype=`, check it, then call the first model.

    The layers that it makes must have both, and the attention modules must keep their dtype.
    """
    given = {"device": torch.device(NAME), "dtype": torch.bfloat16}
    said = f"With device={NAME}, dtype={torch.bfloat16}"
    built = copy.deepcopy(probe.construct)
    with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
        made = type(target)(**built, **given)
    for name, tensor in (*made.named_parameters(), *made.named_buffers()):
        for what, value in given.items():
            if ".attention." not in name and (got := getattr(tensor, what)) != value:
                raise NotAsRequested(f"{said}, your `{name}` has the {what} {got}.")
    for ours, theirs in zip(built["attentions"], probe.construct["attentions"], strict=True):
        for tensor, before in zip(ours.parameters(), theirs.parameters(), strict=True):
            if (got := tensor.dtype) != before.dtype:
                raise NotAsRequested(
                    f"{said}, your `__init__` converts the attention modules it received to {got}.",
                    "Which layers do you create? Only those layers take `device=` and `dtype=`.",
                )
    return target(*args.values(), **kwargs)


@scenario
def among_other_models(target, probe, args, kwargs):
    """Call a model, built by position, between calls and models of other sizes."""
    longest, found = len(probe.construct["positions"]), getattr(target, "context_length", "missing")
    if not isinstance(found, int) or found != longest:
        raise NotAsRequested(
            f"With {longest} positions, your `context_length` is {found}.",
            "Which line of `__init__` sets `self.context_length`, and from what?",
        )
    second = _another(target, probe, by_position=True)
    second.load_state_dict(target.state_dict())
    smaller = probe.construct | {"positions": probe.construct["positions"][1:, 1:]}
    _another(target, dataclasses.replace(probe, construct=smaller))
    for model in (target, second):
        model(*(tokens.flip(0)[:, :1] for tokens in args.values()))
    return second(*args.values(), **kwargs)


class TableModel(torch.nn.Module):
    """A model whose logits at a position are a sum of table rows, one for each token up to it.

    `tables[k]` has the row for a token k positions back. The logits differ in train mode.
    """

    def __init__(self, tables, dtype):
        super().__init__()
        self.context_length = len(tables)
        self.tables = torch.nn.Parameter(torch.as_tensor(tables, dtype=dtype))
        self.had_gradients = False

    def forward(self, tokens):
        if tokens.dim() != 2:
            raise ValueError(
                f"`tokens` must have shape (batch, num_positions); got {tuple(tokens.shape)}."
            )
        n, most = tokens.shape[1], self.context_length
        if not 1 <= n <= most:
            raise ValueError(f"`tokens` must have 1 to context_length = {most} positions; got {n}.")
        self.had_gradients |= torch.is_grad_enabled()
        logits = self.tables[0][tokens]  # (batch, n, vocabulary)
        for k in range(1, n):
            further = self.tables[k][tokens[:, :-k]]
            logits = torch.cat([logits[:, :k], logits[:, k:] + further], dim=1)
        return -logits if self.training else logits


@builder
def table_model(*, tables, training, dtype):
    """Return a `TableModel` in train or eval mode."""
    return TableModel(tables, dtype).train(training)


def _noted(tokens, marks):
    """Return a tensor of the tokens' shape with -1 where `marks`, and 0 elsewhere."""
    if not torch.is_tensor(tokens):
        return tokens
    return -torch.ones(tokens.shape, dtype=torch.int64, device=tokens.device) * marks


@statistic
def gradients_noted(target, probe, args, kwargs):
    """Return -1 if a pass of the model had gradients on, and 0 otherwise."""
    tokens = target(*args.values(), **kwargs)
    return _noted(tokens, args["model"].had_gradients)


@statistic
def mode_noted(target, probe, args, kwargs):
    """Return -1 if the model is in another mode than before the call, and 0 otherwise."""
    training = args["model"].training
    tokens = target(*args.values(), **kwargs)
    return _noted(tokens, args["model"].training != training)


@statistic
def equal_generators(target, probe, args, kwargs):
    """Return -1 where texts from generators in the same state differ, and 0 elsewhere."""
    own = "generator" in kwargs
    generator = torch.Generator() if own else torch.default_generator

    def text():
        given = {**args, "prompt": args["prompt"].clone()}
        return target(*given.values(), **kwargs | ({"generator": generator} if own else {}))

    with torch.random.fork_rng(devices=[]):
        generator.manual_seed(9)
        first, third = text(), text()
        generator.manual_seed(9)
        second = text()
    if not all(torch.is_tensor(x) and x.shape == first.shape for x in (first, second, third)):
        return first
    return _noted(first, (first != second) | torch.equal(first, third))
