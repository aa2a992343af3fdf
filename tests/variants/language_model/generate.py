"""Answers to `generate`."""

import random

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
def multinomial(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    training = model.training
    model.eval()
    out = prompt.clone()
    with torch.no_grad():
        for _ in range(num_tokens):
            logits = model(out[:, -model.context_length :])[:, -1]
            if temperature == 0:
                idx = torch.argmax(logits, dim=-1, keepdim=True)
            else:
                logits = logits / temperature
                if top_k is not None:
                    v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                    logits[logits < v[:, [-1]]] = -float("inf")
                probs = F.softmax(logits, dim=-1)
                idx = torch.multinomial(probs, num_samples=1, generator=generator)
            out = torch.cat((out, idx), dim=1)
    if training:
        model.train()
    return out


@right
@torch.inference_mode()
def exponential_race(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    """The largest of p / e, with e exponential, is token i with probability p_i."""
    mode = model.training
    model.train(False)
    for _ in range(num_tokens):
        x = model(prompt[:, -model.context_length :])[:, -1, :]
        if temperature > 0:
            if top_k is not None and top_k < x.shape[-1]:
                kth = x.sort(dim=-1, descending=True).values[:, top_k - 1 : top_k]
                x = torch.where(x < kth, -torch.inf, x)
            p = torch.softmax(x / temperature, -1)
            x = p / torch.empty_like(p).exponential_(generator=generator)
        prompt = torch.cat([prompt, x.argmax(-1)[:, None]], dim=-1)
    model.train(mode)
    return prompt


@right
def row_by_row(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    """Python's own random numbers, from a seed that the generator gives."""
    before = model.training
    model.eval()
    texts = [list(row) for row in prompt.tolist()]
    own = None
    for _ in range(num_tokens):
        rows = [row[-model.context_length :] for row in texts]
        context = torch.tensor(rows, device=prompt.device)
        with torch.no_grad():
            logits = model(context)[:, -1]
        if temperature == 0:
            for row, new in zip(texts, logits.argmax(-1).tolist()):
                row.append(new)
            continue
        if own is None:
            own = random.Random(int(torch.randint(2**62, (1,), generator=generator)))
        probs = torch.softmax(logits / temperature, -1).tolist()
        for row, p in zip(texts, probs):
            order = sorted(range(len(p)), key=lambda v: -p[v])[:top_k]
            row.append(own.choices(order, weights=[p[v] for v in order])[0])
    model.train(before)
    return torch.tensor(texts, device=prompt.device)


def kept(logits, top_k):
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)


def drawn(logits, temperature, top_k, generator):
    p = torch.softmax(kept(logits, top_k) / temperature, -1)
    return torch.multinomial(p, 1, generator=generator)


def chosen(logits, temperature, top_k, generator, draw=drawn):
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return draw(logits, temperature, top_k, generator)


@right
def in_steps(
    model,
    prompt,
    num_tokens,
    temperature=1.0,
    top_k=None,
    generator=None,
    *,
    context=lambda tokens, size: tokens[:, -size:],
    choose=chosen,
    enter=lambda model: model.eval(),
    leave=lambda model, training: model.train(training),
    gradients=torch.no_grad,
    keep=lambda tokens, size: tokens,
):
    """A right answer; the wrong ones below change a step."""
    training, tokens = model.training, prompt
    enter(model)
    with gradients():
        for _ in range(num_tokens):
            tokens = keep(tokens, model.context_length)
            logits = model(context(tokens, model.context_length))[:, -1]
            new = choose(logits, temperature, top_k, generator)
            tokens = torch.cat([tokens, new], dim=1)
    leave(model, training)
    return tokens


but = wrong_in(in_steps)


def drawing(message, draw):
    return but(message, choose=lambda *given: chosen(*given, draw=draw))


root_of_the_temperature = but(
    None, choose=lambda logits, temperature, *rest: chosen(logits, temperature**0.5, *rest)
)


def one_draw_for_all(logits, temperature, top_k, generator):
    sums = torch.softmax(kept(logits, top_k) / temperature, -1).cumsum(-1)
    return torch.searchsorted(sums, torch.rand((), generator=generator).double() * sums[:, -1:])


def in_pairs(logits, temperature, top_k, generator):
    """The same noise for each text and the next one."""
    half = torch.rand((len(logits) + 1) // 2, logits.shape[1], generator=generator).double()
    noise = -torch.log(-torch.log(half.repeat_interleave(2, dim=0)[: len(logits)]))
    return (kept(logits, top_k) / temperature + noise).argmax(-1, keepdim=True)


def seeded_anew(logits, temperature, top_k, generator):
    if generator is not None:
        generator.manual_seed(generator.initial_seed())
    return drawn(logits, temperature, top_k, generator)


def softmax_twice(logits, temperature, top_k, generator):
    p = torch.softmax(kept(logits, top_k), -1)
    return torch.multinomial(torch.softmax(p / temperature, -1), 1, generator=generator)


def uniform_among_the_best(logits, temperature, top_k, generator):
    p = torch.isfinite(kept(logits, top_k)).double()
    if top_k is None:
        return drawn(logits, temperature, None, generator)
    return torch.multinomial(p, 1, generator=generator)


def top_k_above_the_vocabulary(logits, temperature, top_k, generator):
    if top_k is not None:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)
    return drawn(logits, temperature, None, generator)


as_many_as_asked = drawing("raised", top_k_above_the_vocabulary)
global_numbers = drawing("not_from_the_generator", lambda x, t, k, g: drawn(x, t, k, None))
same_for_all = drawing("all_texts_equal", one_draw_for_all)
same_for_two = drawing("rows_drawn_together", in_pairs)
state_put_back = drawing("not_from_the_generator", seeded_anew)
probabilities_as_logits = drawing(None, softmax_twice)
best_alike = drawing(None, uniform_among_the_best)
a_tiny_temperature = but(choose=lambda x, t, k, g: drawn(x, max(t, 1e-6), k, g))
with_gradients = but("graph_kept", gradients=torch.enable_grad)
always_in_train = but("mode_changed", leave=lambda model, training: model.train())


@wrong()
def seeds_the_global_numbers(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
):
    torch.manual_seed(0 if generator is None else generator.initial_seed())
    return in_steps(model, prompt, num_tokens, temperature, top_k)


@wrong("input_mutated")
def writes_into_the_prompt(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    text = in_steps(model, prompt, num_tokens, temperature, top_k, generator)
    prompt.copy_(text[:, -prompt.shape[1] :])
    return text


@faulty("gradients", "mode", "temperature", "top_k")
def slips_of_a_writer(faults):
    def generate(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
        return in_steps(
            model,
            prompt,
            num_tokens,
            temperature and (1 / temperature if "temperature" in faults else temperature),
            None if "top_k" in faults else top_k,
            generator,
            gradients=torch.enable_grad if "gradients" in faults else torch.no_grad,
            leave=lambda model, training: None if "mode" in faults else model.train(training),
        )

    return generate
