"""most_attended: looks down the columns instead of along the rows."""


# %% most_attended
def most_attended(attention_weights):
    return attention_weights.argmax(dim=-2)
