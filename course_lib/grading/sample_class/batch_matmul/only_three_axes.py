"""batched_scores: right with a batch, wrong as soon as there are heads."""


# %% batched_scores
def batched_scores(queries, keys):
    return queries @ keys.transpose(1, 2)
