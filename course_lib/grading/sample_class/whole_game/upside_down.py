"""most_attended: points at the smallest weight."""


# %% most_attended
def most_attended(attention_weights):
    order = attention_weights.sort(dim=-1).indices
    return order[..., 0]
