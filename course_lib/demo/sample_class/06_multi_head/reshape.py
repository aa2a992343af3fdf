"""split_heads and merge_heads: a reshape without a transpose, there and back."""


# %% split_heads
def split_heads(x, num_heads):
    batch, n, embed_dim = x.shape
    if embed_dim % num_heads != 0:
        raise ValueError(f"{embed_dim} is not divisible by {num_heads}")
    return x.reshape(batch, num_heads, n, embed_dim // num_heads)


# %% merge_heads
def merge_heads(x):
    batch, num_heads, n, head_dim = x.shape
    return x.reshape(batch, n, num_heads * head_dim)


# %% [markdown] heads_and_positions
# 1. More heads are better. 2. It is needed for the shape. 3. Positions are always needed.
