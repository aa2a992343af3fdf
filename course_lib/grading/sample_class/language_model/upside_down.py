"""generate: the temperature multiplies, so that a high one makes the writer careful."""


# %% generate
@torch.no_grad()
def generate(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    was_training = model.training
    model.eval()
    tokens = prompt
    for _ in range(num_tokens):
        logits = model(tokens[:, -model.context_length :])[:, -1]
        if temperature == 0:
            new = logits.argmax(dim=-1, keepdim=True)
        else:
            logits = logits * temperature
            if top_k is not None and top_k < logits.shape[-1]:
                least = logits.topk(top_k).values[:, -1:]
                logits = logits.masked_fill(logits < least, float("-inf"))
            new = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)
        tokens = torch.cat([tokens, new], dim=1)
    model.train(was_training)
    return tokens
