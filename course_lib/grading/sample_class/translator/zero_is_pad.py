"""masked_cross_entropy: word 0 is left out instead of what is behind the lengths."""


# %% masked_cross_entropy
def masked_cross_entropy(logits, targets, valid_lens):
    words = targets.long().flatten()
    total = F.cross_entropy(logits.flatten(0, 1), words, ignore_index=0, reduction="sum")
    return total / (words != 0).sum().clamp(min=1)
