"""batch_items_independent: the lone item loses its batch axis, and the call raises."""

import torch


# %% batch_items_independent
def batch_items_independent(module, queries, keys, values, valid_lens):
    together = module(queries, keys, values, valid_lens)
    for b in range(len(queries)):
        alone = module(queries[b], keys[b], values[b], valid_lens[b])
        if not torch.allclose(alone, together[b], atol=1e-5):
            return False
    return True
