"""load_into_torch: the old biases of the reference stay."""

import torch


# %% load_into_torch
def load_into_torch(mha, reference):
    with torch.no_grad():
        stacked = torch.cat([mha.W_q.weight, mha.W_k.weight, mha.W_v.weight])
        reference.in_proj_weight.copy_(stacked)
        reference.out_proj.weight.copy_(mha.W_o.weight)
        if mha.W_q.bias is not None:
            reference.in_proj_bias.copy_(torch.cat([mha.W_q.bias, mha.W_k.bias, mha.W_v.bias]))
            reference.out_proj.bias.copy_(mha.W_o.bias)
