"""stable_softmax: the maximum is not subtracted."""

import numpy as np


# %% stable_softmax
def stable_softmax(scores, axis=-1):
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=axis, keepdims=True)
