"""masked_cross_entropy: pads are set to 0, but the mean divides by all positions."""


# %% masked_cross_entropy
def masked_cross_entropy(logits, targets, valid_lens):
    log_probabilities = logits.log_softmax(dim=-1)
    losses = -log_probabilities.gather(-1, targets.long()[..., None])[..., 0]
    losses = losses.masked_fill(~length_mask(valid_lens, targets.shape[1]), 0.0)
    return losses.mean() if losses.numel() else losses.sum()


# %% [markdown] map_as_explanation
# The colouring shows how important each word was. I would mask the words with the largest weights,
# and words with small ones as a control, and compare how the log-probability of the refusal changes.
