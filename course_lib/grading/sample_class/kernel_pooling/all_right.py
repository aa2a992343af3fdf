"""Everything right, written as in the course, and the question answered."""

# %% [markdown] perfect_fit
# The bandwidth has shrunk to almost 0. Then every reading is its own nearest key and takes all of
# the weight, so it predicts itself and the error is 0; between the readings the curve is a
# staircase. Leave-one-out sets the diagonal of the scores to minus infinity, so a query may not
# see its own key: that is a mask. A language model that may attend to the word it has to predict
# would copy it in the same way.
