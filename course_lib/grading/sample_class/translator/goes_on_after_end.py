"""greedy_decode: whoever has ended goes on talking until the last one ends."""


# %% greedy_decode
@torch.no_grad()
def greedy_decode(model, source, valid_lens, start, end, max_len):
    was_training = model.training
    model.eval()
    words = torch.full((len(source), 1), start, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    for _ in range(max_len):
        best = model(source, valid_lens, words)[:, -1].argmax(dim=-1)
        words = torch.cat([words, best[:, None]], dim=1)
        ended |= best == end
        if ended.all():
            break
    model.train(was_training)
    return words[:, 1:]
