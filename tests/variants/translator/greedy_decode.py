"""Answers to `greedy_decode`, as different hands would write them."""

import torch

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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
def only_who_goes_on(model, source, valid_lens, start, end, max_len):
    training = model.training
    model.eval()
    words = torch.full((len(source), max_len + 1), model.pad, device=source.device)
    words[:, 0] = start
    going = torch.arange(len(source), device=source.device)
    steps = 0
    while len(going) and steps < max_len:
        logits = model(source[going], valid_lens[going], words[going, : steps + 1])
        steps += 1
        words[going, steps] = logits[:, -1].topk(1).indices[:, 0]
        going = going[words[going, steps] != end]
    model.train(training)
    return words[:, 1 : steps + 1]


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


@right
@torch.no_grad()
def whole_width_each_time(model, source, valid_lens, start, end, max_len):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    inputs = torch.full((len(source), max_len + 1), model.pad, device=source.device)
    inputs[:, 0] = start
    ended, width = set(), 0
    for t in range(max_len):
        if len(ended) == len(source):
            break
        log_p = torch.log_softmax(model(source, valid_lens, inputs), dim=-1)[:, t]
        for i in set(range(len(source))) - ended:
            inputs[i, t + 1] = log_p[i].max(dim=0).indices
            if inputs[i, t + 1] == end:
                ended.add(i)
        width = t + 1
    for module, training in modes.items():
        module.training = training
    return inputs[:, 1 : width + 1]


@right
def tried_and_put_back(model, source, valid_lens, start, end, max_len):
    before = model.training
    try:
        model.eval()
        columns, ended = [], source.new_zeros(len(source)).bool()
        start_column = torch.empty_like(source[:, :1]).fill_(start)
        with torch.no_grad():
            while len(columns) < max_len and not bool(ended.all()):
                inputs = torch.cat([start_column, *columns], dim=1)
                column = model(source, valid_lens, inputs).softmax(-1)[:, -1].max(-1)[1]
                columns.append(column.masked_fill(ended, model.pad).unsqueeze(1))
                ended = ended.logical_or(column.eq(end))
        return torch.cat(columns, dim=1) if columns else start_column[:, :0]
    finally:
        model.train(before)


@right
@torch.inference_mode()
def lists_of_those_who_go_on(model, source, valid_lens, start, end, max_len):
    was_training = model.training
    model.eval()
    said, going = [[] for _ in source], list(range(len(source)))
    while going and len(said[going[0]]) < max_len:
        inputs = torch.tensor([[start, *said[i]] for i in going], device=source.device)
        logits = model(source[going], valid_lens[going], inputs)[:, -1]
        for i, row in zip(going, logits.tolist(), strict=True):
            said[i].append(row.index(max(row)))
        going = [i for i in going if said[i][-1] != end]
    model.train(was_training)
    width = max(len(words) for words in said)
    rows = [words + [model.pad] * (width - len(words)) for words in said]
    return torch.tensor(rows, dtype=torch.int64, device=source.device).view(len(said), width)


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
    read=lambda inputs, source: inputs,
    call=lambda model, source, valid_lens, inputs: model(source, valid_lens, inputs),
    choose=lambda logits: logits[:, -1].argmax(-1),
    pad=lambda words, ended, model, end: torch.where(ended, model.pad, words),
    note=lambda ended, words, model, end: ended | (words == end),
    over=lambda ended: bool(ended.all()),
    at_most=lambda max_len: max_len,
    result=lambda inputs, end, model: inputs[:, 1:],
    column=lambda source, start: torch.full((len(source), 1), start, device=source.device),
):
    training = model.training
    enter(model)
    inputs = column(source, start)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with torch.no_grad():
        while inputs.shape[1] <= at_most(max_len) and not over(ended):
            words = choose(call(model, source, valid_lens, read(inputs, source)))
            words = pad(words, ended, model, end)
            ended = note(ended, words, model, end)
            inputs = torch.cat([inputs, words.unsqueeze(1)], dim=1)
    leave(model, training)
    return result(inputs, end, model)


but = wrong_in(steps)
as_the_model_says = but("goes_on_after_end", pad=lambda words, ended, model, end: words)
any_end = but("stops_at_first_end", over=lambda ended: bool(ended.any()))
to_the_last_column = but("always_max_len", over=lambda ended: False)
with_the_start = but("start_returned", result=lambda inputs, end, model: inputs)
end_overwritten = but(
    "end_left_out",
    result=lambda inputs, end, model: torch.where(inputs == end, model.pad, inputs)[:, 1:],
)
start_counted = but("one_word_short", at_most=lambda max_len: max_len - 1)
one_word_too_many = but(at_most=lambda max_len: max_len + 1)
last_word = but("last_word_only", read=lambda inputs, source: inputs[:, -1:])
without_the_start = but(
    read=lambda inputs, source: inputs[:, 1:] if inputs.shape[1] > 1 else inputs
)
words_in_order_of_ids = but(
    read=lambda inputs, source: torch.cat([inputs[:, :1], inputs[:, 1:].sort(1).values], dim=1)
)
backwards = but(read=lambda inputs, source: inputs.flip(1))
source_in_front = but(read=lambda inputs, source: torch.cat([source, inputs], dim=1))
at_the_first = but("first_position_read", choose=lambda logits: logits[:, 0].argmax(-1))
over_time = but("over_positions", choose=lambda logits: logits.argmax(dim=1)[:, -1])
least_likely = but(choose=lambda logits: logits[:, -1].argmin(-1))
second_best = but(choose=lambda logits: logits[:, -1].topk(2).indices[:, 1])
over_the_batch = but(choose=lambda logits: logits[:, -1].argmax(0)[: len(logits)])
sums_up = but(choose=lambda logits: logits.sum(1).argmax(-1))
zeros_behind = but("zero_for_pad", pad=lambda words, ended, model, end: words * ~ended)
ends_behind = but(pad=lambda words, ended, model, end: torch.where(ended, end, words))
minus_one_behind = but(pad=lambda words, ended, model, end: words.masked_fill(ended, -1))
first_item_decides = but(over=lambda ended: bool(ended[0]))
forgets_ends = but(note=lambda ended, words, model, end: words == end)
pad_ends_too = but(
    "wrong_shape",
    note=lambda ended, words, model, end: ended | (words == end) | (words == model.pad),
)
end_of_the_first_item = but(
    note=lambda ended, words, model, end: ended | (words[:1] == end).expand_as(ended)
)
never_evaluated = but("train_mode_kept", enter=lambda model: None, leave=lambda model, was: None)
never_back = but("left_in_eval_mode", leave=lambda model, was: None)
always_trains_after = but("another_mode_afterwards", leave=lambda model, was: model.train())
flag_alone = but(enter=lambda model: setattr(model, "training", False))
column_on_the_cpu = but("raised", column=lambda source, start: torch.full((len(source), 1), start))
all_lengths_full = but(
    call=lambda model, source, lens, inputs: model(
        source, torch.full_like(lens, source.shape[1]), inputs
    )
)
sampled = but(choose=lambda logits: torch.multinomial(logits[:, -1].softmax(-1), 1)[:, 0])
as_a_list = but("wrong_type", result=lambda inputs, end, model: inputs[:, 1:].tolist())
squeezed = but("wrong_shape", result=lambda inputs, end, model: inputs[:, 1:].squeeze())
turned = but("wrong_shape", result=lambda inputs, end, model: inputs[:, 1:].mT)


@wrong("graph_kept")
def detached_afterwards(model, source, valid_lens, start, end, max_len):
    was = model.training
    model.eval()
    inputs = torch.full((len(source), 1), start, device=source.device)
    ended = torch.zeros_like(inputs[:, 0], dtype=torch.bool)
    for _ in range(max_len):
        logits = model(source, valid_lens, inputs).detach()
        words = logits[:, -1].argmax(-1).masked_fill(ended, model.pad)
        inputs = torch.cat([inputs, words[:, None]], dim=1)
        ended = ended | (words == end)
        if ended.all():
            break
    model.train(was)
    return inputs[:, 1:]


@wrong("one_pass")
@torch.no_grad()
def source_for_inputs(model, source, valid_lens, start, end, max_len):
    was = model.training
    model.eval()
    words = model(source, valid_lens, source).argmax(-1)[:, :max_len]
    for row in words:
        places = (row == end).nonzero().flatten().tolist()
        if places:
            row[places[0] + 1 :] = model.pad
    model.train(was)
    return words


@wrong()
@torch.no_grad()
def starts_in_one_pass(model, source, valid_lens, start, end, max_len):
    inputs = torch.full((len(source), max_len), start, device=source.device)
    return model(source, valid_lens, inputs).argmax(-1)


@wrong()
def asks_for_the_length_first(model, source, valid_lens, start, end, max_len):
    words = steps(model, source, valid_lens, start, end, max_len, over=lambda ended: False)
    return words[:, : int((words != model.pad).sum(1).max())]


@wrong("wrong_shape")
@torch.no_grad()
def pads_of_the_first_row(model, source, valid_lens, start, end, max_len):
    words = steps(model, source, valid_lens, start, end, max_len)
    return words[:, words[0] != model.pad] if len(words) else words


@wrong("input_mutated")
def writes_pads_into_the_source(model, source, valid_lens, start, end, max_len):
    at = torch.arange(source.shape[1], device=source.device)
    source[at >= valid_lens[:, None]] = 0
    return steps(model, source, valid_lens, start, end, max_len)


@wrong()
def trims_columns_of_pads(model, source, valid_lens, start, end, max_len):
    words = steps(model, source, valid_lens, start, end, max_len)
    return words[:, (words != model.pad).any(dim=0)]


@wrong("left_in_eval_mode")
@torch.no_grad()
def returns_before_it_restores(model, source, valid_lens, start, end, max_len):
    was_training = model.training
    model.eval()
    inputs = torch.full((len(source), 1), start, device=source.device)
    ended = inputs[:, 0] != inputs[:, 0]
    for _ in range(max_len):
        words = model(source, valid_lens, inputs)[:, -1].argmax(-1).masked_fill(ended, model.pad)
        inputs = torch.cat([inputs, words[:, None]], dim=1)
        ended = ended | (words == end)
        if ended.all():
            return inputs[:, 1:]
    model.train(was_training)
    return inputs[:, 1:]


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


@wrong("settings_changed")
def gradients_stay_off(model, source, valid_lens, start, end, max_len):
    torch.set_grad_enabled(False)
    return column_by_column(model, source, valid_lens, start, end, max_len)
