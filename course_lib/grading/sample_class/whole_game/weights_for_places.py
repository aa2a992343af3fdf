"""most_attended: returns the weights themselves, and the question half answered."""


# %% most_attended
def most_attended(attention_weights):
    largest, where = attention_weights.max(dim=-1)
    return largest


# %% [markdown] two_maps
# 97: ninety looks at neunzig, seven at sieben. 709: seven, hundred and nine look at sieben, hundert
# and neun. The first one crosses.
