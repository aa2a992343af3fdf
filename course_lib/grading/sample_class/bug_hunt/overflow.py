"""masking_equals_deleting: garbage in the pads instead of no pads."""

import torch


# %% masking_equals_deleting
def masking_equals_deleting(module, queries, keys, values, valid_lens):
    pads = torch.arange(keys.shape[1]) >= valid_lens[:, None]
    other_keys = keys.masked_fill(pads[..., None], 50.0)
    other_values = values.masked_fill(pads[..., None], -50.0)
    outputs = module(queries, keys, values, valid_lens)
    others = module(queries, other_keys, other_values, valid_lens)
    return torch.allclose(outputs, others, atol=1e-5)
