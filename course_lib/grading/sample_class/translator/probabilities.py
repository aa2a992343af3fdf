"""effect_of_masking: the change of the probability, not of its logarithm."""


# %% effect_of_masking
def effect_of_masking(model, source, valid_lens, target, position):
    inputs = shift_right(target, model.start)
    mask = torch.ones_like(source, dtype=torch.bool)
    mask[0, position] = False
    was_training = model.training
    model.eval()
    with torch.no_grad():
        whole = model(source, valid_lens, inputs).softmax(dim=-1)
        masked = model(source, valid_lens, inputs, mask=mask).softmax(dim=-1)
    model.train(was_training)
    words = target.long().unsqueeze(-1)
    return (masked - whole).gather(-1, words)[0, :, 0]


# %% [markdown] map_as_explanation
# It shows attention, and attention is not explanation. I would mask the coloured words.
