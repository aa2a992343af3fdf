"""Wrong models of lesson 09: decoders, and ways to leave a source position out."""

from collections.abc import Callable

import torch

from course_lib.exercises._rows import in_steps


# ---------------------------------------------------------------- greedy_decode
@in_steps(
    before=lambda model: model.eval(),
    after=lambda model, was_training: model.train(was_training),
    graph=False,
    read=lambda inputs, source: inputs,
    choose=lambda logits: logits[:, -1].argmax(-1),
    fill=lambda words, ended, pad: words.masked_fill(ended, pad),
    is_over=lambda ended: ended.all(),
    most=lambda max_len: max_len,
    finish=lambda words, end, pad: words[:, 1:],
)
def decoder(before, after, graph, read, choose, fill, is_over, most, finish) -> Callable:
    """A wrong decoder: a right one with another step."""

    def greedy_decode(model, source, valid_lens, start, end, max_len) -> torch.Tensor:
        was_training = model.training
        before(model)
        words = torch.full((len(source), 1), start, device=source.device)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        with torch.set_grad_enabled(graph):
            while words.shape[1] <= most(max_len) and not is_over(ended):
                following = choose(model(source, valid_lens, read(words, source)))
                following = fill(following, ended, model.pad)
                ended = ended | (following == end)
                words = torch.cat([words, following[:, None]], dim=1)
        after(model, was_training)
        return finish(words, end, model.pad)

    return greedy_decode


def one_pass(model, source, valid_lens, start, end, max_len) -> torch.Tensor:
    was_training = model.training
    with torch.no_grad():
        words = model.eval()(source, valid_lens, source).argmax(-1)[:, :max_len]
    model.train(was_training)
    ended = (words == end).long().cumsum(1) - (words == end).long() > 0
    return words.masked_fill(ended, model.pad)


# ---------------------------------------------------------------- effect_of_masking
def positions(source) -> torch.Tensor:
    return torch.arange(source.shape[1], device=source.device)


@in_steps(
    read=lambda target, model: torch.cat([target.new_full((1, 1), model.start), target], dim=1)[
        :, : target.shape[1]
    ],
    inputs_masked=lambda inputs, position, model: inputs,
    source_masked=lambda source, position, model: source,
    lens_masked=lambda valid_lens, position: valid_lens,
    mask=lambda source, position: (positions(source) != position)[None],
    number=lambda logits: torch.log_softmax(logits, -1),
    words=lambda target, whole: target,
    change=lambda masked, whole: masked - whole,
    before=lambda model: model.eval(),
    after=lambda model, was_training: model.train(was_training),
    graph=False,
)
def effect(
    read,
    inputs_masked,
    source_masked,
    lens_masked,
    mask,
    number,
    words,
    change,
    before,
    after,
    graph,
) -> Callable:
    """A wrong measure of what masking does: a right one with another step."""

    def effect_of_masking(model, source, valid_lens, target, position) -> torch.Tensor:
        was_training, inputs = model.training, read(target, model)
        before(model)
        with torch.set_grad_enabled(graph):
            whole = number(model(source, valid_lens, inputs))
            masked = model(
                source_masked(source, position, model),
                lens_masked(valid_lens, position),
                inputs_masked(inputs, position, model),
                mask(source, position),
            )
            chosen = words(target, whole).long()[..., None]
            parts = (n.gather(-1, chosen)[0, :, 0] for n in (number(masked), whole))
            changes = change(*parts)
        after(model, was_training)
        return changes

    return effect_of_masking


def without_mask(source, position) -> None:
    """For a model that is to leave the position out in another way."""


def in_its_place(source, position, id) -> torch.Tensor:
    """The source with another id at the position."""
    return torch.where(positions(source) == position, id, source)


def deleted(source, position, model) -> torch.Tensor:
    """The source without the position: those behind it move up, and a last one fills up."""
    return torch.cat([source[:, :position], source[:, position + 1 :], source[:, :1]], dim=1)
