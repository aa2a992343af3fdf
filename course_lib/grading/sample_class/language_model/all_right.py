"""Everything right, written as in the course, and the question answered."""

# %% [markdown] what_the_loss_knows
# 1. It learns nothing: 4.16 is ln 64, the loss of equal probabilities, and frequencies alone would
#    bring it below that. I would look whether any parameter has a gradient and changes in a step.
# 2. It sees the answer: no one can know text that well, and since held-out text is as easy, it is
#    not learned by heart. The causal mask or the shift is missing. I would change a later token and
#    see whether earlier logits change, and look at which token each position is compared with.
# 3. It knows the training text by heart. I would plot the held-out loss over the steps: it should
#    fall and then rise. More text, a smaller model, or stopping earlier would help.
# 4. It is done. The first half is random and costs 4.16 a token whoever reads it, the second can be
#    looked up and costs nearly nothing: the mean is 2.08. I would look at the loss of each half.
