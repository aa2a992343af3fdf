"""generate: the model is given the whole text, however long it gets."""


# %% generate
@torch.no_grad()
def generate(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None):
    was_training = model.training
    model.eval()
    tokens = prompt
    for _ in range(num_tokens):
        logits = model(tokens)[:, -1]
        if temperature == 0:
            new = logits.argmax(dim=-1, keepdim=True)
        else:
            likeliest, ids = logits.topk(min(top_k or logits.shape[-1], logits.shape[-1]))
            weights = (likeliest / temperature).softmax(dim=-1)
            new = ids.gather(1, torch.multinomial(weights, 1, generator=generator))
        tokens = torch.cat([tokens, new], dim=1)
    model.train(was_training)
    return tokens
