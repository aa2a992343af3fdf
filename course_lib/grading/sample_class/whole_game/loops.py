"""most_attended: a loop over the rows of one map, which a batch breaks."""


# %% most_attended
def most_attended(attention_weights):
    positions = []
    for row in attention_weights.tolist():
        positions.append(row.index(max(row)))
    return torch.tensor(positions)
