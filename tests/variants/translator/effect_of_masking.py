"""Answers to `effect_of_masking`, as different hands would write them."""

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


def shifted(target, start):
    return F.pad(target, (1, 0), value=start)[:, : target.shape[1]]


@right
def two_calls(model, source, valid_lens, target, position):
    was_training = model.training
    model.eval()
    keep = torch.ones(source.shape, dtype=torch.bool, device=source.device)
    keep[0, position] = False
    inputs = shifted(target, model.start)
    with torch.no_grad():
        before = F.log_softmax(model(source, valid_lens, inputs), dim=-1)[0]
        after = F.log_softmax(model(source, valid_lens, inputs, keep), dim=-1)[0]
    model.train(was_training)
    t = torch.arange(target.shape[1], device=source.device)
    return after[t, target[0].long()] - before[t, target[0].long()]


@right
@torch.inference_mode()
def one_call_of_two_items(model, source, valid_lens, target, position):
    training = model.training
    model.eval()
    keep = torch.ones(2, source.shape[1], dtype=torch.bool, device=source.device)
    keep[1, position] = False
    inputs = shifted(target, model.start).expand(2, -1)
    logits = model(source.expand(2, -1), valid_lens.expand(2), inputs, mask=keep)
    model.train(training)
    log_p = logits.log_softmax(-1).gather(-1, target.long().expand(2, -1)[..., None])[..., 0]
    return log_p[1] - log_p[0]


@right
@torch.no_grad()
def cross_entropies(model, source, valid_lens, target, position):
    mode = model.training
    model.train(False)
    inputs = torch.cat([torch.full_like(target[:, :1], model.start), target[:, :-1]], dim=1)
    keep = (torch.arange(source.shape[1], device=source.device) != position).unsqueeze(0)
    losses = [
        F.cross_entropy(
            model(source, valid_lens, inputs, mask=m)[0], target[0].long(), reduction="none"
        )
        for m in (keep, torch.ones_like(keep))
    ]
    model.train(mode)
    return losses[1] - losses[0]


def at(source, position):
    return (torch.arange(source.shape[1], device=source.device) == position)[None]


def steps(
    model,
    source,
    valid_lens,
    target,
    position,
    *,
    enter=lambda model: model.eval(),
    leave=lambda model, training: model.train(training),
    inputs=lambda target, model: shifted(target, model.start),
    masked=lambda model, source, position: (source, ~at(source, position)),
    number=lambda logits: logits.log_softmax(-1),
    compare=lambda masked, whole: masked - whole,
    gradients=torch.no_grad,
):
    training = model.training
    enter(model)
    read = inputs(target, model)
    with gradients():
        whole = number(model(source, valid_lens, read))
        other, mask = masked(model, source, position)
        after = number(model(other, valid_lens, read, mask=mask))
    leave(model, training)
    words = target[0].long()[:, None]
    return compare(after[0].gather(1, words)[:, 0], whole[0].gather(1, words)[:, 0])


but = wrong_in(steps)
summed = but("averaged_over_an_axis", compare=lambda masked, whole: (masked - whole).sum())
never_evaluated = but(enter=lambda model: None, leave=lambda model, was: None)
never_back = but("mode_changed", leave=lambda model, was: None)
detached_at_the_end = but(
    "graph_kept",
    gradients=torch.enable_grad,
    compare=lambda masked, whole: (masked - whole).detach(),
)


@wrong("input_mutated")
def writes_into_the_target(model, source, valid_lens, target, position):
    changes = two_calls(model, source, valid_lens, target, position)
    target[:, :1] = model.start
    return changes


@faulty("graph", "mode", "log", "cpu")
def slips(faults):
    def effect_of_masking(model, source, valid_lens, target, position):
        was = model.training
        model.eval()
        keep = torch.ones(source.shape, dtype=torch.bool)
        keep = keep if "cpu" in faults else keep.to(source.device)
        keep[:, position] = False
        inputs = shifted(target, model.start)
        with torch.set_grad_enabled("graph" in faults):
            logits = torch.cat([model(source, valid_lens, inputs, mask=m) for m in (keep, None)])
            log_p = logits.softmax(-1).log() if "log" in faults else logits.log_softmax(-1)
            changes = (log_p[0] - log_p[1]).gather(1, target[0].long()[:, None])[:, 0]
        if "mode" not in faults:
            model.train(was)
        return changes.detach()

    return effect_of_masking


@wrong("settings_changed")
def gradients_stay_off(model, source, valid_lens, target, position):
    torch.set_grad_enabled(False)
    return two_calls(model, source, valid_lens, target, position)
