"""Answers to `effect_of_masking`, as different hands would write them."""

import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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


@right
@torch.no_grad()
def word_by_word(model, source, valid_lens, target, position):
    training = model.training
    model.eval()
    keep = torch.ones_like(source).bool()
    keep[:, position] = 0
    inputs = torch.full_like(source[:, :1], model.start)
    changes = []
    for word in target[0]:
        each = []
        for mask in (None, keep):
            logits = model(source, valid_lens, inputs, mask=mask)[0, -1]
            each.append(logits[int(word)] - logits.logsumexp(0))
        changes.append(each[1] - each[0])
        inputs = torch.cat([inputs, word.reshape(1, 1)], dim=1)
    model.train(training)
    weights = next(model.parameters())
    return torch.stack(changes) if changes else weights.new_zeros(0).detach()


@right
def modes_put_back_one_by_one(model, source, valid_lens, target, position):
    modes = [module.training for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            inputs = shifted(target, model.start)
            mask = F.one_hot(
                torch.tensor([position], device=source.device), source.shape[1]
            ).logical_not()
            both = [model(source, valid_lens, inputs, mask=m) for m in (None, mask)]
        log_p = torch.stack(both).log_softmax(dim=-1)
        difference = log_p[1] - log_p[0]
        words = F.one_hot(target.long(), difference.shape[-1]).bool()
        return difference.masked_fill(~words, 0).sum(-1)[0]
    finally:
        for module, training in zip(model.modules(), modes, strict=True):
            module.training = training


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
    mask=lambda source, position: (torch.arange(source.shape[1], device=source.device) != position)[
        None
    ],
    masked_call=lambda model, source, lens, inputs, mask, position: model(
        source, lens, inputs, mask=mask
    ),
    number=lambda logits: logits.log_softmax(-1),
    pick=lambda numbers, target: numbers[0].gather(1, target[0].long()[:, None])[:, 0],
    compare=lambda masked, whole: masked - whole,
):
    training = model.training
    enter(model)
    read = inputs(target, model)
    with torch.no_grad():
        whole = number(model(source, valid_lens, read))
        keep = mask(source, position)
        masked = number(masked_call(model, source, valid_lens, read, keep, position))
    leave(model, training)
    return compare(pick(masked, target), pick(whole, target))


def instead(change):
    """A call that changes source, lengths or inputs in place of the mask."""
    return lambda model, source, lens, inputs, mask, position: model(
        *change(source.clone(), lens.clone(), inputs.clone(), position, model)
    )


def overwritten(source, lens, inputs, position, model):
    source[:, position] = 0
    return source, lens, inputs


def overwritten_with_the_pad(source, lens, inputs, position, model):
    source[:, position] = model.pad % 6
    return source, lens, inputs


def overwritten_with_the_id_of_the_pad(source, lens, inputs, position, model):
    """Which the source's embedding may not have."""
    source[:, position] = model.pad
    return source, lens, inputs


def input_overwritten(source, lens, inputs, position, model):
    if position < inputs.shape[1]:
        inputs[:, position] = model.pad
    return source, lens, inputs


def moved_up(source, lens, inputs, position, model):
    rest = [source[:, :position], source[:, position + 1 :], source[:, :1]]
    return torch.cat(rest, dim=1), lens - (position < lens).long(), inputs


def one_shorter(source, lens, inputs, position, model):
    return source, (lens - 1).clamp(min=0), inputs


but = wrong_in(steps)
whole_minus_masked = but("sign", compare=lambda masked, whole: whole - masked)
ratio = but(compare=lambda masked, whole: masked / whole)
absolute = but(compare=lambda masked, whole: (masked - whole).abs())
summed = but("wrong_shape", compare=lambda masked, whole: (masked - whole).sum())
masked_alone = but(compare=lambda masked, whole: masked)
difference_of_probabilities = but("probabilities", number=lambda logits: logits.softmax(-1))
difference_of_logits = but("logits", number=lambda logits: logits)
log_of_softmax = but(number=lambda logits: logits.softmax(-1).log())
log_of_softmax_and_a_bit = but(number=lambda logits: (logits.softmax(-1) + 1e-9).log())
base_two = but(number=lambda logits: logits.softmax(-1).log2())
over_positions = but(number=lambda logits: logits.log_softmax(1))
rounded = but("precision_lost", compare=lambda masked, whole: (masked - whole).round(decimals=4))
true_means_hidden = but(
    "only_this_position",
    mask=lambda source, position: (torch.arange(source.shape[1], device=source.device) == position)[
        None
    ],
)
up_to_there = but(
    mask=lambda source, position: (torch.arange(source.shape[1], device=source.device) < position)[
        None
    ],
)
from_one = but(
    mask=lambda source, position: (
        torch.arange(1, source.shape[1] + 1, device=source.device) != position
    )[None],
)
float_mask = but("raised", mask=lambda source, position: torch.ones(source.shape))
flat_mask = but("raised", mask=lambda source, position: torch.ones(source.shape[1]) > 0)
mask_on_the_cpu = but(
    mask=lambda source, position: (torch.arange(source.shape[1]) != position)[None]
)
mask_forgotten = but("nothing_masked", masked_call=instead(lambda *given: given[:3]))
zero_written = but("zero_in_its_place", masked_call=instead(overwritten))
pad_written = but(masked_call=instead(overwritten_with_the_pad))
pad_written_as_it_is = but(
    "pad_in_its_place", masked_call=instead(overwritten_with_the_id_of_the_pad)
)
word_hidden = but("query_masked", masked_call=instead(input_overwritten))
position_deleted = but("deleted", masked_call=instead(moved_up))
last_one_hidden = but(masked_call=instead(one_shorter))
ends_there = but(
    "cut_off_there",
    masked_call=instead(
        lambda source, lens, inputs, at, model: (source, lens.clamp(max=at), inputs)
    ),
)
lengths_forgotten = but(
    masked_call=lambda model, source, lens, inputs, mask, position: model(
        source, torch.full_like(lens, source.shape[1]), inputs, mask=mask
    )
)
not_shifted = but("target_read", inputs=lambda target, model: target)
shifted_left = but(inputs=lambda target, model: F.pad(target, (0, 1), value=model.end)[:, 1:])
pads_read = but(inputs=lambda target, model: torch.full_like(target, model.start))
zero_for_start = but(inputs=lambda target, model: shifted(target, 0))
best_word = but(
    pick=lambda numbers, target: numbers[0].max(-1).values,
)
next_word = but(
    pick=lambda numbers, target: numbers[0].gather(1, target[0].long().roll(-1)[:, None])[:, 0],
)
all_words = but("wrong_shape", pick=lambda numbers, target: numbers[0])
batch_kept = but(
    "wrong_shape", pick=lambda numbers, target: numbers.gather(2, target.long()[..., None])[..., 0]
)
as_a_list = but("wrong_type", compare=lambda masked, whole: (masked - whole).tolist())
never_evaluated = but("train_mode_kept", enter=lambda model: None, leave=lambda model, was: None)
never_back = but("left_in_eval_mode", leave=lambda model, was: None)
always_trains_after = but("another_mode_afterwards", leave=lambda model, was: model.train())


@wrong("most_likely_word")
@torch.no_grad()
def follows_the_models_best(model, source, valid_lens, target, position):
    was = model.training
    model.eval()
    inputs = shifted(target, model.start)
    keep = torch.ones_like(source, dtype=torch.bool)
    keep[:, position] = False
    whole = model(source, valid_lens, inputs).log_softmax(-1)[0]
    masked = model(source, valid_lens, inputs, mask=keep).log_softmax(-1)[0]
    model.train(was)
    best = whole.argmax(-1, keepdim=True)
    return (masked.gather(1, best) - whole.gather(1, best)).squeeze(1)


@wrong("graph_kept")
def detached_at_the_end(model, source, valid_lens, target, position):
    was = model.training
    model.eval()
    inputs = shifted(target, model.start)
    keep = torch.ones_like(source, dtype=torch.bool)
    keep[:, position] = False
    whole, masked = (
        model(source, valid_lens, inputs, mask=m).detach().log_softmax(-1) for m in (None, keep)
    )
    model.train(was)
    return (masked - whole)[0].gather(1, target[0, :, None].long())[:, 0]


@wrong("input_mutated")
def writes_into_the_target(model, source, valid_lens, target, position):
    words = target.clone()
    changes = steps(model, source, valid_lens, words, position)
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
