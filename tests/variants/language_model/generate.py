"""Answers to `generate`."""

import random

import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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
def gumbel(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    was = model.training
    model.eval()
    B, n = prompt.shape
    text = torch.zeros(B, n + num_tokens, dtype=torch.long)
    text[:, :n] = prompt
    for i in range(n, n + num_tokens):
        with torch.no_grad():
            logits = model(text[:, max(0, i - model.context_length) : i])[:, -1]
        if temperature != 0:
            u = torch.rand(logits.shape, generator=generator, dtype=torch.float64)
            noisy = logits / temperature - torch.log(-torch.log(u))
            if top_k:
                kept = torch.zeros_like(logits).bool()
                kept.scatter_(1, logits.topk(min(top_k, logits.shape[1])).indices, True)
                noisy = noisy.masked_fill(~kept, -torch.inf)
            logits = noisy
        text[:, i] = logits.argmax(1)
    model.train(was)
    return text


@right
def inverse_distribution(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    training, tokens = model.training, prompt
    model.eval()
    try:
        with torch.no_grad():
            for _ in range(num_tokens):
                last = model(tokens[:, -model.context_length :])[:, -1]
                size = last.shape[-1]
                if temperature == 0:
                    top_k, t = 1, 1.0
                else:
                    t = temperature
                values, order = last.sort(descending=True)
                k = size if top_k is None else min(top_k, size)
                sums = torch.softmax(values[:, :k] / t, -1).cumsum(-1)
                if k == 1:
                    place = torch.zeros(len(last), 1, dtype=torch.long)
                else:
                    u = torch.rand(len(last), 1, generator=generator, dtype=sums.dtype)
                    place = (sums < u * sums[:, -1:]).sum(-1, keepdim=True)
                tokens = torch.cat([tokens, order.gather(1, place)], 1)
    finally:
        model.train(training)
    return tokens


@right
def row_by_row(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    """Python's own random numbers, from a seed that the generator gives."""
    before = model.training
    model.eval()
    texts = [list(row) for row in prompt.tolist()]
    own = None
    for _ in range(num_tokens):
        context = torch.tensor([row[-model.context_length :] for row in texts])
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
    return torch.tensor(texts)


@right
def k_largest_then_softmax(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    """The probabilities of all first, cut and normalised again afterwards."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for _ in range(num_tokens):
            logits = model(prompt[:, -model.context_length :])[:, -1].double()
            if temperature < 1e-6:
                new = logits.max(-1).indices
            else:
                p = torch.softmax((logits - logits.amax(-1, True)) / temperature, dim=-1)
                if top_k is not None:
                    _, indices = p.topk(min(top_k, p.shape[-1]))
                    p = torch.zeros_like(p).scatter(1, indices, p.gather(1, indices))
                    p = p / p.sum(-1, keepdim=True)
                new = torch.multinomial(p, 1, generator=generator)[:, 0]
            prompt = torch.cat([prompt, new.unsqueeze(1)], dim=1)
    model.train(was_training)
    return prompt


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
    last=lambda logits: logits[:, -1],
    choose=chosen,
    join=lambda tokens, new, prompt: torch.cat([tokens, new], dim=1),
    enter=lambda model: model.eval(),
    leave=lambda model, training: model.train(training),
    gradients=torch.no_grad,
    steps=lambda num_tokens, prompt: num_tokens,
    keep=lambda tokens, size: tokens,
    result=lambda tokens, prompt: tokens,
):
    """A right answer; the wrong ones below change a step."""
    training, tokens = model.training, prompt
    enter(model)
    with gradients():
        for _ in range(steps(num_tokens, prompt)):
            tokens = keep(tokens, model.context_length)
            logits = last(model(context(tokens, model.context_length)))
            new = choose(logits, temperature, top_k, generator)
            tokens = join(tokens, new, prompt)
    leave(model, training)
    return result(tokens, prompt)


but = wrong_in(in_steps)


def drawing(message, draw):
    return but(message, choose=lambda *given: chosen(*given, draw=draw))


def cumulative(logits, temperature, top_k, generator):
    """Takes the first token where the sum exceeds the draw; token 0 where none does."""
    p = torch.softmax(logits / temperature, -1)
    p = p * torch.isfinite(kept(logits, top_k))
    u = torch.rand(len(p), 1, generator=generator, dtype=p.dtype)
    return (p.cumsum(-1) > u).int().argmax(-1, keepdim=True)


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


def below_the_threshold(logits, temperature, top_k, generator):
    """Keeps one token too many."""
    return drawn(logits, temperature, None if top_k is None else top_k + 1, generator)


def categorical(logits, temperature, top_k, generator):
    return torch.distributions.Categorical(logits=kept(logits, top_k) / temperature).sample()[
        :, None
    ]


def probabilities_divided(logits, temperature, top_k, generator):
    p = torch.softmax(kept(logits, top_k), -1) / temperature
    return torch.multinomial(p, 1, generator=generator)


def softmax_twice(logits, temperature, top_k, generator):
    p = torch.softmax(kept(logits, top_k), -1)
    return torch.multinomial(torch.softmax(p / temperature, -1), 1, generator=generator)


def zeros_for_infinity(logits, temperature, top_k, generator):
    filled = kept(logits, top_k)
    filled = torch.where(torch.isfinite(filled), filled, 0.0)
    return torch.multinomial(torch.softmax(filled / temperature, -1), 1, generator=generator)


def naive_exp(logits, temperature, top_k, generator):
    e = torch.exp(kept(logits, top_k) / temperature)
    return torch.multinomial(e / e.sum(-1, keepdim=True), 1, generator=generator)


def topk_of_its_own(logits, temperature, top_k, generator):
    """Fails where the vocabulary is smaller."""
    if top_k is not None:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)
    return drawn(logits, temperature, None, generator)


def temperature_twice(logits, temperature, top_k, generator):
    return drawn(kept(logits / temperature, top_k), temperature, None, generator)


def never_below_one(logits, temperature, top_k, generator):
    return drawn(logits, max(temperature, 1.0), top_k, generator)


def first_k(logits, temperature, top_k, generator):
    return drawn(logits[:, :top_k], temperature, None, generator)


def rank_for_token(logits, temperature, top_k, generator):
    """Draws a place in the order of the likeliest, and takes it for a token."""
    return drawn(logits.sort(descending=True).values[:, :top_k], temperature, None, generator)


def rank_among_the_best(logits, temperature, top_k, generator):
    if top_k is not None:
        logits = torch.topk(logits, min(top_k, logits.shape[-1])).values
    return drawn(logits, temperature, None, generator)


def zero_outside(logits, temperature, top_k, generator):
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
        logits = logits * (logits >= least)
    return drawn(logits, temperature, None, generator)


def never_quite_zero(logits, temperature, top_k, generator):
    return drawn(logits, max(temperature, 1e-6), top_k, generator)


def odds(logits, temperature, top_k, generator):
    p = torch.sigmoid(kept(logits, top_k) / temperature)
    return torch.multinomial(p, 1, generator=generator)


def uniform_among_the_best(logits, temperature, top_k, generator):
    p = torch.isfinite(kept(logits, top_k)).double()
    if top_k is None:
        return drawn(logits, temperature, None, generator)
    return torch.multinomial(p, 1, generator=generator)


whole_text = but("whole_text_read", context=lambda tokens, size: tokens)
the_beginning = but("first_tokens_read", context=lambda tokens, size: tokens[:, :size])
newest_alone = but("last_token_read", context=lambda tokens, size: tokens[:, -1:])
one_less = but(
    "one_token_less_read", context=lambda tokens, size: tokens[:, -(size - 1) if size > 1 else -1 :]
)
of_the_first_position = but(last=lambda logits: logits[:, 0])
of_all_positions = but(last=lambda logits: logits.mean(1))
padded_in_front = but(
    context=lambda tokens, size: F.pad(tokens, (max(0, size - tokens.shape[1]), 0))[:, -size:]
)
divides_by_zero = but("zero_not_treated", choose=drawn)
never_draws = but("always_the_likeliest", choose=lambda x, *options: x.argmax(-1, keepdim=True))
times_temperature = drawing("temperature_multiplied", lambda x, t, k, g: drawn(x, 1 / t, k, g))
times_temperature_by_gumbel = drawing(
    "temperature_multiplied",
    lambda x, t, k, g: (
        kept(x, k) * t - torch.empty_like(x).exponential_(generator=g).log()
    ).argmax(-1, keepdim=True),
)
without_temperature = drawing("temperature_ignored", lambda x, t, k, g: drawn(x, 1.0, k, g))
after_the_softmax = drawing("temperature_ignored", probabilities_divided)
without_top_k = drawing("top_k_ignored", lambda x, t, k, g: drawn(x, t, None, g))
rest_to_token_0 = drawing("top_k_not_renormalised", cumulative)
global_numbers = drawing("global_rng", lambda x, t, k, g: drawn(x, t, k, None))
torchs_categorical = drawing("global_rng", categorical)
same_for_all = drawing("all_texts_equal", one_draw_for_all)
same_for_two = drawing("rows_drawn_together", in_pairs)
state_put_back = drawing("not_from_the_generator", seeded_anew)
one_too_many = drawing(None, below_the_threshold)
probabilities_as_logits = drawing(None, softmax_twice)
zero_is_no_minus_infinity = drawing(None, zeros_for_infinity)
overflows = drawing("raised", naive_exp)
fails_above_the_vocabulary = drawing("raised", topk_of_its_own)
best_alike = drawing(None, uniform_among_the_best)
colder_than_asked = drawing(None, temperature_twice)
hot_only = drawing(None, never_below_one)
first_ones = drawing("outside_top_k", first_k)
zero_is_no_refusal = drawing("top_k_ignored", zero_outside)
ranks_of_the_best = drawing("place_for_token", rank_among_the_best)
a_tiny_temperature = but("drawn_at_0", choose=never_quite_zero)
text_as_long_as_the_context = but("prompt_cut", keep=lambda tokens, size: tokens[:, -size:])
without_the_prompt = but("prompt_cut", result=lambda tokens, prompt: tokens[:, prompt.shape[1] :])
ranks = drawing("wrong_frequencies", rank_for_token)
sigmoid_for_softmax = drawing("wrong_frequencies", odds)
with_gradients = but("keeps_gradients", gradients=torch.enable_grad)
whatever_mode = but("mode_left_alone", enter=lambda model: None, leave=lambda model, training: None)
still_in_eval = but("another_mode_afterwards", leave=lambda model, training: None)
always_in_train = but("another_mode_afterwards", leave=lambda model, training: model.train())
new_tokens_only = but(
    "wrong_shape",
    join=lambda tokens, new, prompt: torch.cat([tokens, new], 1)[:, min(1, prompt.shape[1]) :],
)
length_in_all = but(
    "wrong_shape", steps=lambda num_tokens, prompt: max(0, num_tokens - prompt.shape[1])
)
one_more = but("wrong_shape", steps=lambda num_tokens, prompt: num_tokens + 1)
put_in_front = but(join=lambda tokens, new, prompt: torch.cat([new, tokens], dim=1))
first_text_decides = but(choose=lambda x, *options: chosen(x[:1].expand_as(x), *options))


@wrong("keeps_gradients")
def gradients_left_off(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    torch.set_grad_enabled(False)
    return in_steps(model, prompt, num_tokens, temperature, top_k, generator)


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


@wrong()
def a_generator_is_needed(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    generator = generator or torch.Generator()
    return in_steps(model, prompt, num_tokens, temperature, top_k, generator)


@wrong("wrong_type")
def plain_lists(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    return in_steps(model, prompt, num_tokens, temperature, top_k, generator).tolist()


@wrong("wrong_shape")
def stops_at_token_0(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    text = in_steps(model, prompt, num_tokens, temperature, top_k, generator)
    ends = (text[:, prompt.shape[1] :] == 0).any(0).nonzero().flatten().tolist()
    return text[:, : prompt.shape[1] + ends[0] + 1] if ends else text


@wrong("raised")
def without_the_batch_axis(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    texts = [row for row in prompt]
    for _ in range(num_tokens):
        for b, row in enumerate(texts):
            logits = model(row[-model.context_length :])
            texts[b] = torch.cat([row, chosen(logits[None, -1], temperature, top_k, generator)[0]])
    return torch.stack(texts)


@wrong()
def one_pass_for_all(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(prompt[:, -model.context_length :])[:, -1]
    model.train(training)
    new = [chosen(logits, temperature, top_k, generator) for _ in range(num_tokens)]
    return torch.cat([prompt, *new], dim=1)


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
