"""previous_token_score: the diagonal above the main one, where a token looks ahead."""


# %% previous_token_score
def previous_token_score(attention_weights):
    n = attention_weights.shape[-1]
    return attention_weights.diagonal(1, dim1=-2, dim2=-1).sum(dim=-1) / max(n - 1, 1)
