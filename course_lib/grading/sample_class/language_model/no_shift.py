"""next_token_loss: each position is compared with its own token."""


# %% next_token_loss
def next_token_loss(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long())


# %% [markdown] what_the_loss_knows
# 1. It learns nothing, the learning rate is 0. 2. It has memorised the text. 3. It overfits, which
# the held-out loss over the steps would show. 4. It has learned the second half and not the first.
