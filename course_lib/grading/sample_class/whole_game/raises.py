"""most_attended: calls a method of NumPy on a tensor, which raises."""


# %% most_attended
def most_attended(attention_weights):
    return attention_weights.argsort(axis=-1, descending=True).astype(int)[..., 0]
