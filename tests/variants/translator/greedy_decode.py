"""Answers to `greedy_decode`, as different hands would write them."""

import torch

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
def column_by_column(model, source, valid_lens, start, end, max_len):
    was_training = model.training
    model.eval()
    inputs = torch.full((source.shape[0], 1), start, dtype=torch.long, device=source.device)
    done = torch.zeros(source.shape[0], dtype=torch.bool, device=source.device)
    with torch.no_grad():
        for _ in range(max_len):
            if done.all():
                break
            best = model(source, valid_lens, inputs)[:, -1, :].argmax(dim=-1)
            best = torch.where(done, model.pad, best)
            done |= best == end
            inputs = torch.cat((inputs, best[:, None]), dim=1)
    model.train(was_training)
    return inputs[:, 1:]


@right
@torch.inference_mode()
def item_by_item(model, source, valid_lens, start, end, max_len):
    training = model.training
    model.eval()
    rows = []
    for i in range(len(source)):
        words = [start]
        while len(words) <= max_len and (words[-1] != end or len(words) == 1):
            inputs = torch.tensor([words], device=source.device)
            logits = model(source[i : i + 1], valid_lens[i : i + 1], inputs)
            words.append(int(logits[0, -1].argmax()))
        rows.append(words[1:])
    model.train(mode=training)
    width = max(len(row) for row in rows)
    padded = [row + [model.pad] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.long, device=source.device).reshape(len(rows), width)


@right
@torch.no_grad()
def everything_first_pads_later(model, source, valid_lens, start, end, max_len):
    mode = model.training
    model.train(False)
    inputs = torch.full_like(source[:, :1], start)
    for _ in range(max_len):
        inputs = torch.hstack([inputs, model(source, valid_lens, inputs)[:, -1:].argmax(-1)])
    model.train(mode)
    words = inputs[:, 1:]
    behind = (words == end).cumsum(1) - (words == end).long() > 0
    width = int((~behind).sum(1).max())
    return words.masked_fill(behind, model.pad)[:, :width]


def steps(
    model,
    source,
    valid_lens,
    start,
    end,
    max_len,
    *,
    enter=lambda model: model.eval(),
    leave=lambda model, training: model.train(training),
    read=lambda inputs: inputs,
    pad=lambda words, ended, model, end: torch.where(ended, model.pad, words),
    gradients=torch.no_grad,
    over=lambda ended: bool(ended.all()),
    at_most=lambda max_len: max_len,
    first=1,
    column=lambda source, start: torch.full((len(source), 1), start, device=source.device),
):
    training = model.training
    enter(model)
    inputs = column(source, start)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with gradients():
        while inputs.shape[1] <= at_most(max_len) and not over(ended):
            words = model(source, valid_lens, read(inputs))[:, -1].argmax(-1)
            words = pad(words, ended, model, end)
            ended = ended | (words == end)
            inputs = torch.cat([inputs, words.unsqueeze(1)], dim=1)
    leave(model, training)
    return inputs[:, first:]


but = wrong_in(steps)
never_evaluated = but(enter=lambda model: None, leave=lambda model, was: None)
never_back = but("mode_changed", leave=lambda model, was: None)
column_on_the_cpu = but(
    "cpu_tensor", column=lambda source, start: torch.full((len(source), 1), start)
)
with_a_graph = but("graph_kept", gradients=torch.enable_grad)


@wrong("input_mutated")
def writes_pads_into_the_source(model, source, valid_lens, start, end, max_len):
    at = torch.arange(source.shape[1], device=source.device)
    source[at >= valid_lens[:, None]] = 0
    return steps(model, source, valid_lens, start, end, max_len)


@faulty("graph", "mode", "no max_len", "cpu", "pads end")
def slips(faults):
    def greedy_decode(model, source, valid_lens, start, end, max_len):
        was = model.training
        model.eval()
        device = "cpu" if "cpu" in faults else source.device
        inputs = torch.full((len(source), 1), start, device=device)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        with torch.set_grad_enabled("graph" in faults):
            for _ in range(max(max_len, 1) if "no max_len" in faults else max_len):
                words = model(source, valid_lens, inputs)[:, -1].argmax(-1)
                inputs = torch.cat([inputs, words.masked_fill(ended, model.pad)[:, None]], dim=1)
                ended = ended | (words == end)
                if "pads end" in faults:
                    ended = ended | (words == model.pad)
                if ended.all():
                    break
        if "mode" not in faults:
            model.train(was)
        return inputs[:, 1:]

    return greedy_decode


@wrong("wrong_shape")
def trailing_pads_dropped(model, source, valid_lens, start, end, max_len):
    words = steps(model, source, valid_lens, start, end, max_len, over=lambda ended: False)
    while words.shape[1] and bool((words[:, -1] == model.pad).all()):
        words = words[:, :-1]
    return words
