"""merge_heads: `.view` after a transpose raises; split_heads asserts."""


# %% split_heads
def split_heads(x, num_heads):
    assert x.shape[-1] % num_heads == 0
    return x.reshape(*x.shape[:2], num_heads, -1).transpose(1, 2)


# %% merge_heads
def merge_heads(x):
    batch, num_heads, n, head_dim = x.shape
    return x.transpose(1, 2).view(batch, n, num_heads * head_dim)
