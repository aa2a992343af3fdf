"""induction_score: looks at the same token last time, not at the one that followed it."""


# %% induction_score
def induction_score(attention_weights, period=None):
    n = attention_weights.shape[-1]
    period = n // 2 if period is None else period
    if period >= n:
        return attention_weights.new_zeros(len(attention_weights))
    places = torch.arange(period, n, device=attention_weights.device)
    return attention_weights[:, places, places - period].mean(dim=-1)
