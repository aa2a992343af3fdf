"""most_attended: axis 1, which belongs to the keys only where nothing is in front."""


# %% most_attended
def most_attended(attention_weights):
    return torch.argmax(attention_weights, dim=1)
