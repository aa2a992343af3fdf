"""attention_cost: multiply-adds are counted as one operation."""


# %% attention_cost
def attention_cost(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
    scores = batch * num_queries * num_keys
    return {"flops": scores * (d + d_v), "score_bytes": scores * bytes_per_element}
