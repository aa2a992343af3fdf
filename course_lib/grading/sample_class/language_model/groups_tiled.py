"""grouped_query_attention: `repeat` for `repeat_interleave`, so that neighbours share nothing."""


# %% grouped_query_attention
def grouped_query_attention(queries, keys, values, valid_lens=None, mask=None):
    num_heads, num_groups = queries.shape[1], keys.shape[1]
    if num_heads % num_groups:
        raise ValueError(f"{num_groups} groups cannot share {num_heads} heads evenly")
    times = (1, num_heads // num_groups, 1, 1)
    scores = queries @ keys.repeat(times).mT / math.sqrt(queries.shape[-1])
    return masked_softmax(scores, valid_lens, mask) @ values.repeat(times)
