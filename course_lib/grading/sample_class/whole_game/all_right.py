"""Everything right, written as in the course, and the question answered."""

# %% [markdown] two_maps
# In 97 ninety looks at neunzig and seven at sieben, and the arcs cross: German says the ones first,
# English the tens. In 709 seven looks at sieben, hundred at hundert and nine at neun. Nothing
# crosses, because both languages begin with the hundreds and there are no tens to change places.
