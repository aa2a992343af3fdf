"""greedy_decode: the early `return` leaves the model in eval mode."""


# %% greedy_decode
def greedy_decode(model, source, valid_lens, start, end, max_len):
    training = model.training
    model.eval()
    inputs = torch.full((len(source), 1), start, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with torch.no_grad():
        for _ in range(max_len):
            words = model(source, valid_lens, inputs)[:, -1].argmax(-1)
            words = torch.where(ended, model.pad, words)
            inputs = torch.cat([inputs, words[:, None]], dim=1)
            ended = ended | (words == end)
            if ended.all():
                return inputs[:, 1:]
    model.train(training)
    return inputs[:, 1:]
