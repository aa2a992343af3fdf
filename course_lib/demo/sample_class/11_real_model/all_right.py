"""Everything is correct and written as in the course, and the question is answered."""

# %% [markdown] which_heads_carry_it
# Claim: the eight heads that section 6 found on random tokens are needed to repeat a telephone
# number, and not to name a capital. It would be refuted if eight others of the same layers did as
# much harm. I used 12 numbers of six random digits and the ten capitals of section 3, and counted
# an answer as right if its first six characters, or its first word, were the right ones. I report
# the counts for the whole model, without the eight and without the control group in a table above.
# The result does not show that the eight heads are enough, or that nothing else broke: I did not
# measure the loss on other text.
