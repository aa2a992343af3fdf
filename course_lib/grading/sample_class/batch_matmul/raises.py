"""weighted_sum: a cell that raises when it is run."""


# %% weighted_sum
def weighted_sum(weights, values):
    return weights @ values


print(weighted_sum([[0.5, 0.5]], [[1.0], [2.0]]))
