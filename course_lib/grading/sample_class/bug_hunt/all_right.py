"""Everything right, written as in the course, and the question answered."""

# %% [markdown] loss_proves_nothing
# The other layers can learn around a fault: the avocet normalises the wrong axis and the MLP copes.
# Or the data never touches it: the curlew masks wrongly, but nothing was padded. After shipping,
# batches have other lengths, and the curlew attends pads. I would ask for masking equals deleting,
# because our data is padded, and for items apart, because mixing customers' items is a leak.
