"""Everything right, written as in the course, and the question answered."""

# %% [markdown] map_as_explanation
# The colouring shows from which positions the last layer read. It does not show which words those
# positions held, because earlier layers have moved information between them: our model without a
# window translates as well, and its map points elsewhere. Nor does a large weight mean that the
# decision needs the word: what is there may be ignored, or be found at its neighbours, too. Only an
# intervention tells. So I would mask the words with the strongest colours, one by one, and compare
# the change of the decision's log-probability. As a control I would mask as many words with faint
# colours. And I would train a second model that is as good and compare the two colourings. I would
# withdraw the colouring if the refusal stays when the coloured words are hidden, if it changes when
# faint ones are, or if the second model colours other words.
