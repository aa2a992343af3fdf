"""Everything right, written as in the course, and the question answered."""

# %% [markdown] what_a_shape_test_proves
# A reshape keeps the order of the numbers and only cuts it into other rows, so a column of the
# reshaped keys holds numbers of several keys. With ones all keys are alike, so nobody sees it. The
# loss goes down because the projections can learn around a fixed mixing. I would take random
# numbers with B=2, n=3, m=5, d=4 and compare with an einsum; different sizes and two items matter.
