# %% [markdown]
# # 05 · Scaled dot-product attention
#
# **The question.** In lesson 03 the translator's dot products for *dreiundvierzig* ran from -168 to
# 256, and each word put all its weight on one letter. The translator itself divides them by 8, the
# square root of $d = 64$. So does the Transformer of 2017, and most models after it. (Not all: T5 does
# not divide, and draws smaller weights at the start instead.) Why by that number, and what breaks
# without it?
#
# **After this you can**
#
# - derive $1/\sqrt{d}$ from the variance of a dot product, and measure it;
# - see a softmax saturate, and say what that does to learning;
# - say why queries and keys are projections;
# - write scaled dot-product attention in NumPy, as a PyTorch function and as a module;
# - tell self-attention from cross-attention, and compare your function with PyTorch's;
# - run its backward pass by hand, and give PyTorch a backward pass of your own.
#
# **Time:** {time}. **You need:** lesson 02 (`masked_softmax`) and the batched
# products of lesson 03. Sections 6 and 7 use derivatives of vectors.

# %%
import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import meeting

masked_softmax = carry_on("masked_softmax")

torch.set_printoptions(precision=4, sci_mode=False)
np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## 1. A dot product as a score
#
# *How alike are a query and a key, in one number?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4), "keys": (3, 4), "scores": (1, 3)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes))

# %% [markdown]
# Write a query and a key as vectors of $d$ features each and add up the products:
# $q \cdot k = \sum_{c=1}^{d} q_c k_c$. It is large where both have large entries of the same sign
# in the same places. For all queries and keys at once it is one matrix product:
#
# $$S = \frac{Q K^\top}{\sqrt{d}}, \qquad W = \operatorname{softmax}(S), \qquad O = W V.$$
#
# | tensor | shape | | tensor | shape |
# |---|---|---|---|---|
# | queries $Q$ | `(..., n, d)` | | scores $S$, weights $W$ | `(..., n, m)` |
# | keys $K$ | `(..., m, d)` | | outputs $O$ | `(..., n, v)` |
# | values $V$ | `(..., m, v)` | | | |
#
# Queries and keys share $d$; keys and values share $m$. The softmax runs over the keys: each row
# of $W$ sums to 1.

# %% [markdown]
# **By hand.** $d = 4$, one query $q = (2, 0, 0, 0)$, three keys
# $k_0 = (\ln 4, 0, 0, 0)$, $k_1 = (\ln 2, 7, 0, 0)$, $k_2 = (0, 0, 5, 5)$.
#
# The products are $2 \ln 4, 2 \ln 2, 0$; divided by $\sqrt{4} = 2$ they are
# $\ln 4, \ln 2, 0$, whose exponentials are $4, 2, 1$. The weights are $(4/7, 2/7, 1/7)$. The 7 and
# the 5s meet zeros in the query and leave no trace.

# %% [markdown]
# ### Drag a query
#
# With $d = 2$, queries and keys are arrows in a plane, and
# $q \cdot k = \lVert q \rVert \, \lVert k \rVert \cos\theta$. The product is large where the two arrows
# are long and point the same way. It is 0 where they are perpendicular, and negative where they point
# apart.
#
# The figure shows a query, four keys and their values. The weights are those of your `masked_softmax`,
# which computed them for every position of the query. The diamond is the output: the average of the
# values with these weights.
#
# **Predict**, then drag the tip of the query.
#
# 1. Point the query along `k1`, the shortest key. Does `k1` get the largest weight?
# 2. Make the query twice as long in the same direction. What happens to the weights?
# 3. Where is the diamond when the slider is at 0, and where is it at 8?


# %% tags=["demo"]
def dot_product_attention(queries, keys, values):
    weights = masked_softmax(queries @ keys.mT)  # (1, n, m)
    return weights @ values, weights


plane_keys = [[1.0, 0.3], [1.3, 1.5], [-1.5, 0.8], [-0.2, -1.6]]
plane_values = [[1.8, -0.9], [0.4, 1.9], [-1.8, -0.6], [-1.0, -1.8]]
scales = [0, 0.25, 0.5, 1, 2, 4, 8]
plotting.show(
    plotting.query_plane(
        plane_keys, plane_values, dot_product_attention, scales=scales, scale=1, query=(-0.75, 1.0)
    )
)
tip = torch.tensor([[[1.5, 0.45]]])  # along k1
_, along_k1 = dot_product_attention(tip, torch.tensor([plane_keys]), torch.tensor([plane_values]))
assert along_k1.argmax() == 1  # k2 wins

# %% [markdown]
# <details><summary>Answer</summary>
#
# 1. No. `k2` does not point in the same direction, but it is twice as long, and its dot product is
#    larger. A dot product measures length as well as direction.
# 2. All dot products double, and so do the differences between them. The softmax turns differences
#    into ratios, so the largest weight grows.
# 3. At 0 all scores are equal, and the diamond is at the mean of the values. At 8 one key has nearly
#    all of the weight, and the diamond is at its value. As you drag, the diamond then jumps from one
#    value to the next. Section 3 shows what these jumps do to learning.
#
# </details>

# %% [markdown]
# ### Why project
#
# In a model, queries and keys are *projections*: a word's vector times one learned matrix, a letter's
# times another. Why not compare the vectors themselves?
#
# **Predict.** Take the translator's projections away, and divide by 8 as before. Of the weight of *forty*,
# how much is on the seven letters of *vierzig*: all, half, a quarter?

# %% tags=["demo"]
numerals = Numerals()
model = trained_translator(numerals)
met = meeting(model, numerals, [3, 13, 43])  # drei, dreizehn, dreiundvierzig
pairs = {
    "the vectors themselves": (met.words, met.characters),
    "projected": (met.queries, met.keys),
}
for name, (queries, keys) in pairs.items():
    weights = masked_softmax(queries @ keys.mT / 8, met.valid_lens)[2]
    on_vierzig, on_drei = weights[0, 7:].sum(), weights[1, :4].sum()
    print(f"{name:22} forty on vierzig {on_vierzig:.2f}, three on drei {on_drei:.2f}")
letters = met.characters[2]
with_itself = (letters @ letters.mT).argmax(dim=-1) == torch.arange(14)
print(f"letters whose best match is themselves: {int(with_itself.sum())} of 14")
assert on_vierzig > 0.9 and on_drei > 0.9

# %% [markdown]
# <details><summary>Answer</summary>
#
# A quarter: half of what seven of 14 letters would get by chance. A word's vector says what has been
# written, a letter's what stands there; nothing made them alike. $W_q$ makes a question of the one,
# $W_k$ a label of the other. In self-attention it would be worse: compared with each other, most of
# these letters fit themselves best. $W_v$ frees the values: what a letter is found by need not be
# what it gives.
#
# </details>

# %% [markdown]
# ## 2. How large is a dot product?
#
# *Why divide at all?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2000, 4), "keys": (2000, 4), "scores": (2000,)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# Take $q$ and $k$ with independent entries of mean 0 and variance 1. Each product $q_c k_c$ has
# mean 0 and variance $E[q_c^2]\,E[k_c^2] = 1$. Variances of independent terms add up:
#
# $$\operatorname{Var}(q \cdot k) = \sum_{c=1}^{d} \operatorname{Var}(q_c k_c) = d.$$
#
# So typical scores have the size $\sqrt{d}$: about 2 for $d = 4$, about 16 for $d = 256$. Dividing
# a number by $c$ divides its variance by $c^2$, and
#
# $$\operatorname{Var}\Bigl(\frac{q \cdot k}{\sqrt{d}}\Bigr) = \frac{d}{d} = 1.$$
#
# **Predict.** Someone divides by $d$ instead. What is the variance for $d = 64$?
#
# <details><summary>Answer</summary>
#
# $64 / 64^2 = 1/64$. The scores are all but equal, and the weights nearly uniform: attention can
# hardly tell keys apart.
#
# </details>

# %% [markdown]
# ### Exercise: `score_variance`
#
# Do not believe it: measure it.
#
# - **Takes** `d`; `num_samples`, the number of pairs; `scaled`, a bool; and `generator`, a
#   `torch.Generator` that all your random numbers come from.
# - **Returns** the variance of $q \cdot k$ (of $q \cdot k / \sqrt{d}$ if `scaled`) over
#   `num_samples` independent pairs of standard normal vectors, as a Python `float`.
#
# Each query meets one key of its own. The same seed gives the same number. Whether you divide the sum
# of squares by $N$ or by $N - 1$ makes no difference here.
#
# **Worked number.** With `d=4` and `num_samples=2000`: near 4, and near 1 if scaled.

# %%
from course_lib.attention import score_variance

# %%
check("score_variance")

# %% [markdown]
# **Predict.** The variance for $d$ from 1 to 256, on two logarithmic axes: what are the two curves?

# %% tags=["demo"]
sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
measured = {
    name: [score_variance(d, 4000, scaled, torch.Generator().manual_seed(d)) for d in sizes]
    for name, scaled in (("q . k", False), ("q . k / sqrt(d)", True))
}
figure = plotting.lines(
    sizes, measured, x_label="features d", y_label="variance of a score", log_x=True, log_y=True
)
plotting.show(figure)
assert np.allclose(measured["q . k"], sizes, rtol=0.25)
assert np.allclose(measured["q . k / sqrt(d)"], 1, atol=0.25)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Without the root a straight line that rises with $d$; with it a flat one at 1.
#
# </details>

# %% [markdown]
# ### In a fresh model ★
#
# The argument assumes features of variance 1. A fresh `nn.Linear` draws its weights uniformly from
# $\pm 1/\sqrt{d}$, with variance $1/(3d)$: for standard normal inputs, the features of queries and
# keys have variance $1/3$, and the scores a standard deviation of $\sqrt{d}/3$. Another factor, the
# same growth.

# %% tags=["demo"]
torch.manual_seed(0)
for d in (8, 512):
    x = torch.randn(300, d)
    layers = [(nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)) for _ in range(20)]
    with torch.no_grad():
        spread = torch.stack([W_q(x) @ W_k(x).mT for W_q, W_k in layers]).std().item()
    print(f"d = {d:3}: standard deviation {spread:.1f}, sqrt(d) / 3 is {math.sqrt(d) / 3:.1f}")
    assert abs(spread / (math.sqrt(d) / 3) - 1) < 0.1

# %% [markdown]
# ### Is that evidence? ★
#
# A NumPy notebook, one of the five documents from which this course grew, draws `Q` and `K` of shape
# `(4, 8)` once and prints:
#
# ```python
# print("Variance of QK_T:", np.matmul(Q, K.T).var())  # 10.773626616673676
# ```
#
# It concludes that scores need a root. The theory says 8. Is that a contradiction?
#
# **Predict.** If you draw such a pair of matrices a thousand times, how far apart are the smallest
# and the largest variance you meet: a factor of 2, 5, or more than 10?

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
Q, K = (torch.randn(1000, 4, 8, generator=generator) for _ in range(2))
variances = (Q @ K.mT).flatten(1).var(dim=1)  # one small matrix each
low, high = variances.min().item(), variances.max().item()
print(f"1000 matrices: smallest {low:.1f}, largest {high:.1f}, mean {variances.mean():.1f}")
share = (variances > 10.77).float().mean().item()
print(f"above 10.77: {share:.0%}")
assert high / low > 10
assert 0.05 < share < 0.4

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. More than a factor of 10 lies between the smallest and the largest: a 4 x 4 matrix has 16
# entries, but they come from 4 queries and 4 keys, and are not 16 independent pairs. The conclusion
# holds; one small matrix cannot show it.
#
# </details>

# %% [markdown]
# ### Find the bug ★
#
# The same notebook goes on, again with $d = 8$:
#
# ```python
# scaled = np.matmul(Q, K.T)
# attention = softmax(scaled + mask)
# ```
#
# In row 1 it shows the weights `[0.988, 0.012]`; in another place, for the same row, `[0.827, 0.173]`.
#
# **Predict.** Which of the two is scaled dot-product attention? What would have caught the other?

# %% tags=["demo"]
scaled = np.array([1.10584688, -3.32636072])  # the notebook's `scaled`, row 1


def softmax(row):
    return np.exp(row) / np.exp(row).sum()


print("softmax(scaled)          ", softmax(scaled))
print("softmax(scaled / sqrt(8))", softmax(scaled / np.sqrt(8)))
assert np.allclose(softmax(scaled), [0.988, 0.012], atol=5e-4)
assert np.allclose(softmax(scaled / np.sqrt(8)), [0.827, 0.173], atol=5e-4)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The second. The variable is called `scaled` and nothing scaled it. Its weights look healthy: positive,
# summing to 1, zero in the future. Only a comparison of numbers tells, with a loop or with PyTorch.
#
# </details>

# %% [markdown]
# ## 3. Saturation
#
# *What is wrong with large scores?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (400, 10), "mask": (400, 10), "softmax": (400, 10)}
plotting.show(plotting.diagram_strip("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# A softmax turns differences of scores into ratios of weights: a lead of 1 is a factor of
# $e \approx 2.7$, a lead of 16 a factor of nine million. When scores spread by $\sqrt{d}$, the best
# key wins everything, and the weights no longer depend on how much better it is. The softmax is
# *saturated*.
#
# **See it.** For each $d$: 400 random queries, 10 random keys each, and the mean of the largest
# weight. An even split would be 0.1. **Predict.** Where does each line end?

# %% tags=["demo"]
sizes = [1, 4, 16, 64, 256, 1024]
largest = {"softmax(q . k)": [], "softmax(q . k / sqrt(d))": []}
for d in sizes:
    generator = torch.Generator().manual_seed(d)
    queries = torch.randn(400, 1, d, generator=generator)
    keys = torch.randn(400, 10, d, generator=generator)
    products = (queries @ keys.mT).squeeze(-2)  # (400, 10)
    for name, divisor in zip(largest, (1.0, math.sqrt(d)), strict=True):
        weights = torch.softmax(products / divisor, dim=-1)
        largest[name].append(weights.max(dim=-1).values.mean().item())
figure = plotting.lines(
    sizes, largest, x_label="features d", y_label="largest weight of 10", log_x=True
)
plotting.show(figure)
assert largest["softmax(q . k)"][-1] > 0.9
assert 8.8e6 < math.exp(16) < 9e6
assert max(largest["softmax(q . k / sqrt(d))"]) < 0.4

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Without scaling the line climbs towards 1: one key takes all. With scaling it stays level.
#
# </details>
#
# **Move it.** One row of four scores, multiplied by a factor. On the left its weights, on the right
# the derivative of every weight with respect to every score.
#
# **Predict.** At factor 0 all weights are equal. What do both sides show at 16?


# %% tags=["demo"]
def draw_saturation(scores_times):
    return plotting.saturation([1.0, 0.5, 0.0, -1.0], scores_times)


factors = [0, 0.25, 0.5, 1, 2, 4, 8, 16]
plotting.interactive(draw_saturation, start={"scores_times": 1}, scores_times=factors)
sharp = torch.softmax(16 * torch.tensor([1.0, 0.5, 0.0, -1.0]), dim=0)
assert sharp.max() > 0.999
assert (torch.diag(sharp) - torch.outer(sharp, sharp)).abs().max() < 0.001

# %% [markdown]
# <details><summary>What you should see</summary>
#
# One bar has swallowed the others, and the right side is blank: all derivatives are 0. Whatever the loss
# says about the weights, none of it reaches the scores.
#
# </details>
#
# The inverse of the factor is the *temperature*. Dividing by $\sqrt{d}$ is choosing the temperature at
# which the weights of a fresh model are neither one-hot nor uniform.

# %% [markdown]
# ### With the root and without
#
# A derivative of 0 is one thing in a picture. Does it stop training?
#
# The task: read eight letters backwards, *dreizehn* as *nhezierd*. The query at place $i$ has to find
# the key at place $7 - i$. Letters and places are fixed random vectors of width $d$; $W_q$, $W_k$ and
# a layer that names the letter are learned, from random words.


# %% tags=["demo"]
def read_backwards(d, divisor, learning_rate, seed, num_steps=60):
    """The losses of one training, and what it then makes of *dreizehn*."""
    torch.manual_seed(seed)
    letters, places = torch.randn(22, d), torch.randn(8, d)
    W_q, W_k = (nn.Linear(d, d, bias=False) for _ in range(2))
    name = nn.Linear(d, 22)

    def logits(ids):  # (batch, 8) -> (batch, 8, 22)
        x = (letters[ids] + places) / math.sqrt(2)  # variance 1
        return name(torch.softmax(W_q(x) @ W_k(x).mT / divisor, dim=-1) @ x)

    learned = [*W_q.parameters(), *W_k.parameters(), *name.parameters()]
    optimiser = torch.optim.Adam(learned, lr=learning_rate)
    losses = []
    for _ in range(num_steps):
        ids = torch.randint(22, (32, 8))
        loss = F.cross_entropy(logits(ids).flatten(0, 1), ids.flip(1).flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    read = logits(numerals.source_ids("dreizehn")[None])[0].argmax(dim=-1)
    return losses, "".join(numerals.source.words(read))


# %% [markdown]
# **Predict.** Width 32 and width 512, each with the root and without: which of the four learn? (Wider
# models take smaller steps: the learning rates are 0.01 and 0.001. Every curve is the mean of three
# trainings.)

# %% tags=["demo", "nbval-ignore-output"]
curves, final = {}, {}
for d, learning_rate in ((32, 0.01), (512, 0.001)):
    for label, divisor in (("with the root", math.sqrt(d)), ("without", 1.0)):
        runs = [read_backwards(d, divisor, learning_rate, seed) for seed in range(3)]
        name = f"d = {d}, {label}"
        curves[name] = np.mean([losses for losses, _ in runs], axis=0)
        final[name] = [np.mean(losses[-5:]) for losses, _ in runs]
        told = [f"{loss:.2f} {run[1]}" for loss, run in zip(final[name], runs, strict=True)]
        print(f"{name:24}", *told, sep="  ")
figure = plotting.lines(range(60), curves, x_label="step", y_label="loss")
plotting.show(figure, key="with and without the root")
assert max(final["d = 512, with the root"]) < 0.1
assert np.mean(final["d = 512, without"]) > 0.3
assert max(final["d = 32, with the root"] + final["d = 32, without"]) < 0.5

# %% [markdown]
# <details><summary>What you should see</summary>
#
# At width 32 the root hardly matters. At width 512 training with it is done after 30 steps. Without
# it, each run is stuck at a different loss. What they read shows why: some places have fixed on a
# wrong letter, and each of them costs about 0.5. Their softmax is saturated, its derivative is 0, and
# nothing tells them to let go.
#
# It is not impossible without the root: steps a third as long get there as well. With it, you need not
# search for them.
#
# </details>

# %% [markdown]
# ## 4. From scratch, in NumPy ★
#
# *Three lines of mathematics: how many lines of code, once masks and large scores are in?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": (1, 4), "keys": (3, 4), "values": (3, 1), "weighted sum": (1, 1)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# You have met each part. Two traps from lesson 02 come back. The first is the mask's type: a common line
# is `scores = scores + mask`.
#
# **Predict.** What must `mask` hold? And what may query 0 see if it holds 1 for yes and 0 for no?

# %% tags=["demo"]
rng = np.random.default_rng(1)
scores = rng.normal(size=(4, 4))
ones_and_zeros = np.tril(np.ones((4, 4)))  # 1 = may attend, 0 = may not
added = np.array([softmax(row) for row in scores + ones_and_zeros])
print("0/1 mask added, query 0:", added[0])
assert added[0, 1:].sum() > 0.2  # the future is still there

# %% [markdown]
# <details><summary>Answer</summary>
#
# 0 and $-\infty$. Given 1 and 0 it raises nothing, runs, and lets query 0 see its whole future. A bool
# mask leaves no room for that mistake.
#
# </details>
#
# **Predict.** The second trap: scores of 1000. What are `np.exp(1000)`, and the weights made of it?
#
# <details><summary>Answer</summary>
#
# `inf`, and `inf / inf` is nan. Subtract each row's maximum first. And if a row has no allowed key,
# its maximum is $-\infty$, and $-\infty - (-\infty)$ is nan again: give such a row a maximum of 0,
# and do not divide by its sum, which is 0.
#
# </details>

# %% [markdown]
# ### Exercise: `numpy_attention`
#
# - **Takes** NumPy arrays `queries` `(n, d)`, `keys` `(m, d)`, `values` `(m, v)`, and optionally
#   `mask`, bool, broadcastable to `(n, m)`, True = may attend.
# - **Returns** `(outputs, attention_weights)`, of shapes `(n, v)` and `(n, m)`. A query that may
#   attend to no key gets zeros in both. A query of zeros gets the mean of the values it may attend
#   to.
#
# Large scores do not overflow. What a query may not attend to changes nothing, however large it is.
#
# **Worked number.** The query `[2, 0, 0, 0]` and the keys from section 1, `[1.386294, 0, 0, 0]`,
# `[0.693147, 7, 0, 0]` and `[0, 0, 5, 5]` (the decimals are $\ln 4$ and $\ln 2$), with the values
# 7, 14 and 0: the output is $4/7 \cdot 7 + 2/7 \cdot 14 = 8$. With `mask = [[False, True, True]]`
# the weights are $(0, 2/3, 1/3)$ and the output is $28/3$.

# %%
from course_lib.attention import numpy_attention

# %%
check("numpy_attention")

# %% [markdown]
# ## 5. For batches, heads and gradients, in PyTorch
#
# *What changes when there are batches, heads, lengths, and gradients?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": (2, 4, 3), "keys": (2, 5, 3), "values": (2, 5, 3), "weighted sum": (2, 4, 3)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# The formula does not. Batches and heads are leading axes, and `queries @ keys.mT` takes any number of
# them (lesson 03, section 4, has what goes wrong with `.T`, `transpose(1, 2)` and `reshape`). Lengths,
# masks and empty rows are your `masked_softmax`.

# %% [markdown]
# ### Exercise: `scaled_dot_product_attention`
#
# - **Takes** `queries` `(..., n, d)`, `keys` `(..., m, d)`, `values` `(..., m, v)`, with any number
#   of leading axes, also none; optionally `valid_lens`, `(B,)` or `(B, n)`, and `mask`, bool,
#   broadcastable to `(..., n, m)`. Lengths belong to the first axis, `B`, and hold for all axes
#   between it and `n`. With both, a key needs both.
# - **Returns** `(outputs, attention_weights)`, `(..., n, v)` and `(..., n, m)`. A query that may
#   attend to no key gets zeros in both. A query of zeros returns the mean of the values it may
#   attend to. A query with one allowed key returns its value.
#
# The gradients are those of the formula, and 0 for a query without keys. What a query may not
# attend to changes nothing, however large it is, and large scores do not overflow.
#
# Use `masked_softmax` from lesson 02. Do not call `F.scaled_dot_product_attention`: the next
# section compares with it.
#
# **Worked number.** With `queries = [[[2, 0, 0, 0]]]`, `keys = [[[1, 0, 0, 0], [0, 0, 0, 0]]]` and
# `values = [[[10], [0]]]` the scores are 1 and 0, the weights 0.731 and 0.269, and the output is
# 7.31. With `valid_lens = [1]` it is 10.

# %%
from course_lib.attention import scaled_dot_product_attention

# %%
check("scaled_dot_product_attention")

# %% [markdown]
# ### Self-attention and cross-attention
#
# In *self-attention* queries, keys and values are three projections of **one** sequence, so
# $n = m$. In *cross-attention* the queries come from one sequence, and keys and values from
# another. The function does not know the difference.
#
# **Predict.** What shape does each of the three maps have?

# %% tags=["demo"]
generator = torch.Generator().manual_seed(3)
text, source = (torch.randn(1, size, 8, generator=generator) for size in (4, 5))
W_q, W_k, W_v = (torch.randn(8, 8, generator=generator) / math.sqrt(8) for _ in range(3))
causal = torch.ones(4, 4, dtype=torch.bool).tril()
_, itself = scaled_dot_product_attention(text @ W_q, text @ W_k, text @ W_v)
_, past = scaled_dot_product_attention(text @ W_q, text @ W_k, text @ W_v, mask=causal)
_, across = scaled_dot_product_attention(text[:, :3] @ W_q, source @ W_k, source @ W_v)
panels = {"self": itself[0], "self, causal": past[0], "cross": across[0]}
plotting.show(plotting.heatmap_grid(panels, masks={"self, causal": causal}))
assert across.shape == (1, 3, 5)
assert not past[0].triu(1).any()

# %% [markdown]
# <details><summary>What you should see</summary>
#
# A square map, the same map with its future cut off, and a map with 3 rows and 5 columns.
#
# </details>

# %% [markdown]
# ### The translator's own map
#
# Give your function the translator's queries, keys, values and lengths.
#
# **Predict.** How far is your map from the translator's own? The cell also makes the queries 8 times as
# large and an eighth as large, which undoes the root, and divides by $d$. What does that do to *three*?

# %% tags=["demo"]
maps = {}
for name, factor in (("sqrt(d)", 1), ("nothing", 8), ("d", 1 / 8)):
    inputs = factor * met.queries, met.keys, met.values, met.valid_lens
    maps[name] = scaled_dot_product_attention(*inputs)[1]
    apart = (maps[name] - model.maps).abs().max()
    print(f"divided by {name:8} at most {apart:.2f} from the translator's map")
plotting.show(plotting.attention(maps["d"][2], ["forty", "three"], "dreiundvierzig"))
assert (maps["sqrt(d)"] - model.maps).abs().max() < 1e-4

# %% [markdown]
# <details><summary>What you should see</summary>
#
# 0.00: your function *is* the translator's attention. Without the root, the winner takes all, as in
# lesson 03. Divided by $d$, the same scores say less: *three* spreads over the whole numeral.
#
# </details>

# %% [markdown]
# ### What must hold
#
# Nearly every wrong version returns the right shape, but breaks one of these:
#
# 1. a query of zeros returns the mean of the allowed values;
# 2. with $V = I$, the logarithm of the ratio of two weights is the difference of their
#    $q \cdot k / \sqrt{d}$;
# 3. writing every feature down twice multiplies the scores by $\sqrt{2}$;
# 4. masking a key equals deleting it.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(5)
queries, keys, values = (torch.randn(2, size, 3, generator=generator) for size in (4, 5, 5))
outputs, weights = scaled_dot_product_attention(queries, keys, values)
mean, _ = scaled_dot_product_attention(0 * queries, keys, values, torch.tensor([2, 5]))
products = queries @ keys.mT
ratio = (weights[..., 0] / weights[..., 1]).log()
_, twice = scaled_dot_product_attention(queries.repeat(1, 1, 2), keys.repeat(1, 1, 2), values)
masked, _ = scaled_dot_product_attention(queries, keys, values, torch.tensor([3, 3]))
deleted, _ = scaled_dot_product_attention(queries, keys[:, :3], values[:, :3])
apart = {
    "zero query - mean of values": mean[0, 0] - values[0, :2].mean(dim=0),
    "log ratio - difference of scores": ratio - (products[..., 0] - products[..., 1]) / 3**0.5,
    "features twice - sqrt(2) times": (twice[..., 0] / twice[..., 1]).log() - 2**0.5 * ratio,
    "masked - deleted": masked - deleted,
}
for name, difference in apart.items():
    print(f"{name:33} at most {difference.abs().max():.4f}")
    assert difference.abs().max() < 1e-4

# %% [markdown]
# ### Beside PyTorch's own
#
# `F.scaled_dot_product_attention` returns the outputs only: with four axes, `(batch, heads, n, d)`, it
# has versions that never store the weights (lesson 08). PyTorch's masks have other names, and some
# have the opposite meaning:
#
# | this course | `F.scaled_dot_product_attention` | `nn.MultiheadAttention` |
# |---|---|---|
# | `mask`, True = may attend | `attn_mask`, True = may attend | `attn_mask`, True = ignore |
# | `valid_lens` | part of `attn_mask` | `key_padding_mask`, `(B, m)`, True = ignore |
# | `mask=causal_mask(n, m)`, last query and last key aligned | `is_causal=True`, first query and first key aligned | `attn_mask`; `is_causal` is only a hint |
#
# **Predict.** For which $n$ and $m$ do the two causal masks agree? And what does query 0 return under
# `is_causal`?

# %% tags=["demo"]
mask = torch.rand(2, 4, 5, generator=generator) < 0.6
mask[0, 0] = False  # an empty row, to compare that too
ours, _ = scaled_dot_product_attention(queries, keys, values, mask=mask)
theirs = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
assert torch.allclose(ours, theirs, atol=1e-6)
print(f"with a mask: at most {(ours - theirs).abs().max():.4f} apart")

last_aligned = torch.ones(4, 5, dtype=torch.bool).tril(5 - 4)
ours, _ = scaled_dot_product_attention(queries, keys, values, mask=last_aligned)
theirs = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
print(f"causal, 4 queries and 5 keys: at most {(ours - theirs).abs().max():.2f} apart")
print("first aligned, query 0:", theirs[0, 0])
print("the value of key 0:    ", values[0, 0])
assert not torch.allclose(ours, theirs)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only if $n = m$. Aligned with key 0, query 0 sees that key alone and returns its value.
#
# </details>

# %% [markdown]
# ### Half precision: when to divide ★
#
# In exact arithmetic $(q \cdot k)/\sqrt{d}$ and $(q/\sqrt{d}) \cdot k$ are equal. But float16 tops
# out at 65504.
#
# **Predict.** $d = 128$, every entry of a query and a key is 30. Which of the two orders survives in
# float16?
#
# <details><summary>Answer</summary>
#
# The second. $128 \cdot 30 \cdot 30 = 115200$ is infinite in float16 before you get to divide it.
# Divided first, the product is about 10182. A bfloat16 holds both: it has the range of a float32,
# with two to three digits.
#
# </details>

# %% tags=["demo"]
query = torch.full((1, 128), 30.0, dtype=torch.float16)
key = torch.full((1, 128), 30.0, dtype=torch.float16)
late = query @ key.mT / math.sqrt(128)
early = (query / math.sqrt(128)) @ key.mT
print(f"divide late {late.item()}, divide early {early.item():.0f}")
assert late.isinf().all()
assert early.isfinite().all()
assert torch.isinf(torch.softmax(torch.cat([late, early], dim=-1), dim=-1)).sum() == 0
assert torch.softmax(torch.cat([late, late], dim=-1), dim=-1).isnan().all()

# %% [markdown]
# ### A module with dropout ★
#
# In a layer, *dropout* acts on the attention weights: in train mode each weight is set to 0 with
# probability $p$, and the others are divided by $1 - p$. What the module remembers for pictures is the
# weights **before** dropout, **detached**. Lesson 04, section 6, shows why.

# %% [markdown]
# ### Exercise: `DotProductAttention`
#
# - **Built with** `dropout=0.0`, the probability of dropping a weight. No parameters.
# - **`forward(queries, keys, values, valid_lens=None, mask=None)`** takes what
#   `scaled_dot_product_attention` takes, and means the same by it. It returns the outputs only, and
#   leaves the weights of this call in `self.attention_weights`: after the softmax, before dropout,
#   detached.
# - Dropout acts on the weights, in train mode only.
#
# **Worked number.** With `dropout=0.5`, in eval mode, `queries = [[[2, 0, 0, 0]]]`,
# `keys = [[[1, 0, 0, 0], [0, 0, 0, 0]]]` and `values = [[[10], [0]]]` give the output 7.31, as
# before, and leave the weights 0.731 and 0.269.

# %%
from course_lib.attention import DotProductAttention

# %%
check("DotProductAttention")

# %% tags=["demo"]
attention = DotProductAttention(dropout=0.5).eval()
outputs, weights = scaled_dot_product_attention(queries, keys, values)
assert torch.equal(attention(queries, keys, values), outputs)
torch.manual_seed(1)
noisy = attention.train()(queries, keys, values)
apart = (noisy - outputs).abs().max()
kept = (attention.attention_weights - weights).abs().max()
print(f"train mode: outputs {apart:.2f} from those in eval mode, stored weights {kept:.2f}")
assert apart > 0.1 and kept == 0

# %% [markdown]
# ## 6. What a gradient finds ★
#
# *Move a query a little: how far does the output move?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4), "keys": (2, 4), "values": (2, 4), "outputs": (1, 4)}
plotting.show(plotting.diagram_strip("attention", lit=("queries", "outputs"), shapes=shapes))

# %% [markdown]
# Take one query, and values equal to the keys: $o(q) = \sum_j w_j k_j$. A small step $dq$ changes
# the scores by $ds_j = k_j \cdot dq / \sqrt{d}$, and a softmax answers with
# $dw_j = w_j \bigl(ds_j - \sum_i w_i\, ds_i\bigr)$. Put together,
#
# $$\frac{\partial o}{\partial q} = \frac{1}{\sqrt{d}} \sum_j w_j (k_j - o)(k_j - o)^\top = \frac{\operatorname{Cov}_w(k)}{\sqrt{d}}, \qquad \text{shape } (d, d).$$
#
# It is the covariance of the keys under the weights. Where one key has all the weight there is
# nothing left to vary, and the gradient is 0: that was the blank picture.
#
# **By hand.** $d = 1$, $q = 0$, keys $1$ and $3$. The weights are $1/2$ each, the mean is 2, the
# variance 1: the derivative is 1. For $q = 50$ the weight of key 3 is 1, and the derivative is 0.

# %% [markdown]
# ### Exercise: `jacobian_wrt_query`
#
# - **Takes** `query` `(d,)` and `keys` `(m, d)`.
# - **Returns** the Jacobian `(d, d)` of attention with values = keys: entry $(a, b)$ is
#   $\partial o_a / \partial q_b$. The keys stay as they are.
#
# The formula or autograd, as you like: `torch.autograd.functional.jacobian` counts as well, and
# differentiates what you give it. It does not change where all keys move by the same vector. Where
# one key has all the weight it is 0, and nothing overflows.
#
# **Worked number.** `query = [0., 0., 0., 0.]` and the keys `[1, 0, 0, 0]`, `[3, 0, 0, 0]`: the
# variance of the first feature is 1, divided by $\sqrt{4}$, so entry (0, 0) is 0.5 and all others
# are 0.

# %%
from course_lib.attention import jacobian_wrt_query

# %%
check("jacobian_wrt_query")

# %% [markdown]
# **See it vanish.** For each $d$: 61 random queries with 10 random keys each, and the norm of the
# Jacobian, divided by the norm that the same keys give under equal weights. The line is the
# *median* over the queries. Calling the function with $\sqrt{d}\,q$ gives the weights of unscaled
# attention; the root in front of the covariance cancels in the ratio. **Predict.** Which line falls?

# %% tags=["demo"]
sizes = [1, 4, 16, 64, 128]
names = "softmax(q . k / sqrt(d))", "softmax(q . k)"
ratios = {name: [] for name in names}
for d in sizes:
    generator = torch.Generator().manual_seed(100 + d)
    found = torch.zeros(61, 2)
    for row in found:
        query, keys = torch.randn(d, generator=generator), torch.randn(10, d, generator=generator)
        even = jacobian_wrt_query(0 * query, keys).norm()
        for column, factor in enumerate((1.0, math.sqrt(d))):
            row[column] = jacobian_wrt_query(factor * query, keys).norm() / even
    for name, median in zip(names, found.median(dim=0).values.tolist(), strict=True):
        ratios[name].append(median)
label = "gradient norm / that of equal weights"
plotting.show(plotting.lines(sizes, ratios, x_label="features d", y_label=label, log_x=True))
print(f"d = 128, unscaled: below 0.1 for {(found[:, 1] < 0.1).float().mean():.0%} of the queries")
assert ratios["softmax(q . k)"][-1] < 0.1
assert min(ratios["softmax(q . k / sqrt(d))"]) > 0.6
assert (found[:, 1] < 0.1).float().mean() > 0.5

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Scaled, the typical ratio hardly depends on $d$. Unscaled, it falls towards 0.
#
# </details>
#
# A median, because a mean would hide it: more than half of the queries get next to no gradient, and
# a few, for which two keys happen to tie, get a large one. An unscaled model with large $d$ starts saturated, and the
# gradient that could free it is the one that saturation removes. That, and not the look of the
# weights, is why you divide.

# %% [markdown]
# ## 7. The backward pass by hand ★
#
# *What does `loss.backward()` do with an attention?*

# %% tags=["demo", "hide-input"]
lit = "queries", "keys", "values", "outputs"
shapes = {"queries": (1, 4), "keys": (2, 4), "values": (2, 1), "outputs": (1, 1)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# ### First the softmax alone
#
# One row: scores $s$, weights $w$, and $g_j = \partial L / \partial w_j$, what the loss says about each
# weight. Raising $s_k$ raises $w_k$ and lowers all others, $\partial w_j / \partial s_k = w_j
# (\delta_{jk} - w_k)$. The chain rule sums over $j$:
#
# $$\frac{\partial L}{\partial s_k} = \sum_j g_j \frac{\partial w_j}{\partial s_k} = w_k \Bigl(g_k - \sum_j g_j w_j\Bigr).$$
#
# This is a *vector-Jacobian product*: a row vector times an `(m, m)` matrix, without making the matrix.
#
# **By hand.** $w = (1/2, 1/4, 1/4)$ and $g = (0, 4, 8)$. The mean of $g$ under $w$ is $0 + 1 + 2 = 3$, so
# $\partial L/\partial s = (-3/2, 1/4, 5/4)$.
#
# **Predict.** Add 10 to all of $g$. What becomes of the result?

# %% tags=["demo"]
scores = torch.tensor([2.0, 1.0, 1.0]).log().requires_grad_()
weights = torch.softmax(scores, dim=0)  # 1/2, 1/4, 1/4
w = weights.detach()
jacobian = torch.diag(w) - torch.outer(w, w)  # (3, 3)
for g in (torch.tensor([0.0, 4.0, 8.0]), torch.tensor([10.0, 14.0, 18.0])):
    (by_autograd,) = torch.autograd.grad(weights, scores, g, retain_graph=True)
    print("autograd          ", by_autograd)
    print("g times the matrix", g @ jacobian)
    assert torch.allclose(by_autograd, torch.tensor([-1.5, 0.25, 1.25]), atol=1e-5)
    assert torch.allclose(g @ jacobian, by_autograd, atol=1e-5)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nothing: the mean grows by 10 as well. The weights sum to 1 whatever the scores are, so what all of
# them get alike cannot matter, and the result sums to 0.
#
# </details>

# %% [markdown]
# ### A backward pass of your own
#
# Where you know a derivative better than autograd does, you can hand it over, as a
# `torch.autograd.Function`: two static methods. Nothing in `forward` is recorded; what it wants to
# remember it gives to `ctx`. `backward` gets the gradient of the output and returns one for each
# argument, None where there is none. You call it by `apply`, without keywords.
#
# **Predict.** What is the gradient at $x = 2$ with `scale` 10?


# %% tags=["demo"]
class ScaledCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)  # tensors
        ctx.scale = scale  # anything else
        return scale * x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.scale * 3 * x**2, None  # for x, for scale


x = torch.tensor(2.0, requires_grad=True)
ScaledCube.apply(x, 10.0).backward()
nearby = (ScaledCube.apply(x + 0.01, 10.0) - ScaledCube.apply(x - 0.01, 10.0)) / 0.02
print(f"backward says {x.grad:.1f}, two values nearby say {nearby:.1f}")
assert x.grad == 120 and abs(nearby - 120) < 0.1

# %% [markdown]
# 120, and PyTorch believes whatever you return: compare it with something. In lesson 08 you write all of
# attention this way.
#
# ### Now all of it
#
# Let $G = \partial L / \partial O$, of shape `(n, v)`. A product $AB$ sends $GB^\top$ to $A$ and
# $A^\top G$ to $B$. Attention is two products with a softmax in between, $O = WV$ and
# $S = QK^\top/\sqrt{d}$; go back through them one after the other. Every row of $W$ is a softmax.
#
# **By hand.** One query, two keys with $w = (1/2, 1/2)$, values $1$ and $3$, $G = 1$. Then
# $dW = (1, 3)$ with mean 2, and $dS = (1/2 \cdot (1 - 2),\; 1/2 \cdot (3 - 2)) = (-1/2, 1/2)$: the
# key with the larger value should score higher, the other one lower by the same amount.

# %% [markdown]
# ### Exercise: `attention_backward`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)`, `values` `(m, v)` and `grad_outputs` `(n, v)`; no
#   masks.
# - **Returns** `(grad_queries, grad_keys, grad_values)`, each of the shape of its input.
# - Without autograd: no `backward`, no `torch.autograd.grad`, no `torch.func`.
#
# Equal values make the outputs independent of queries and keys: those gradients are then 0, and as
# always, large scores do not overflow.
#
# **Worked number.** With the query `[0, 0, 0, 2]`, the keys `[1, 0, 0, 0]` and `[3, 0, 0, 0]`, the
# values 1 and 3 and $G = 1$, the scores are 0 and $dS = (-1/2, 1/2)$ as above. So
# $dQ = (-1/2 \cdot 1 + 1/2 \cdot 3)/2$ in the first feature: `[[0.5, 0, 0, 0]]`. In the last
# feature, $dK$ is $\mp 1/2 \cdot 2 / 2$: $-0.5$ and $0.5$.

# %%
from course_lib.attention import attention_backward

# %%
check("attention_backward")

# %% tags=["demo"]
query = torch.tensor([[0.0, 0.0, 0.0, 2.0]])
keys = torch.tensor([[1.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
values = torch.tensor([[1.0], [3.0]])
grads = attention_backward(query, keys, values, torch.ones(1, 1))
assert grads[0].tolist() == [[0.5, 0, 0, 0]]
assert grads[1][:, 3].tolist() == [-0.5, 0.5]

generator = torch.Generator().manual_seed(6)
shapes = (3, 4), (5, 4), (5, 6), (3, 6)
inputs = [torch.randn(*s, generator=generator, requires_grad=True) for s in shapes[:3]]
grad_outputs = torch.randn(*shapes[3], generator=generator)
outputs, _ = scaled_dot_product_attention(*inputs)
expected = torch.autograd.grad(outputs, inputs, grad_outputs)
by_hand = attention_backward(*(x.detach() for x in inputs), grad_outputs)
for name, mine, theirs in zip(("queries", "keys", "values"), by_hand, expected, strict=True):
    print(f"{name:8} at most {(mine - theirs).abs().max():.4f} from autograd")
    assert torch.allclose(mine, theirs, atol=1e-6)

# %% [markdown]
# Going back takes all of $W$ once more. Must it have been stored? Lesson 08 says no.

# %% [markdown]
# ### All together
#
# Each check so far was about one exercise, and grading gives it the course's versions of all others.
# This one puts *your* `scaled_dot_product_attention` and *your* `DotProductAttention` together,
# right or wrong, and checks the module again. It needs the checks above to have seen your cells in
# this session.

# %%
check("05_scaled_dot_product")

# %% [markdown]
# ### Written question: the same model, wider
#
# A team trains attention with $d = 8$ and no scaling. It works. They widen to $d = 512$, and the
# loss hardly moves. One of them proposes to divide the scores by $d$, another to raise the learning
# rate a hundredfold.
#
# A person reads this one. In five to eight sentences: why did it work before and fails now? What
# would each proposal do at the start of training? What would you do, and how could you check,
# before training for hours, that it helped?

# %% [markdown] written="scale_and_learning"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **Why.** With features of variance 1 the scores have a standard deviation of $\sqrt{d}$: about
#    2.8 before, about 23 now (with fresh `nn.Linear` layers $\sqrt{d}/3$: about 0.9 and 7.5; either
#    pair is right, what counts is the factor of 8). The softmax is saturated, each query takes one
#    key, and the gradient through the softmax, a covariance under the weights, is near 0. (Half a
#    point for "scores get larger" without the gradient.)
# 2. **The proposals.** Dividing by $d$ makes the scores have a standard deviation of
#    $1/\sqrt{512} \approx 0.04$ at most: the weights are nearly uniform, every query sees the mean of
#    the values; it can learn from there, as the gradient is not gone, but starts unable to tell
#    keys apart (section 3's task learns with it, after a slower start). A higher learning rate multiplies
#    a gradient near 0 for queries and keys, and blows up the steps of all the other layers; a *lower*
#    one would help.
# 3. **Remedy and check.** Divide by $\sqrt{d}$. Before training, at initialisation: measure the
#    variance of the scores (near 1), the largest weight or the entropy of the rows (neither uniform
#    nor one-hot), or the norm of the gradient of the queries beside that of the values. One of
#    these, with what one expects to see, is enough.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# Projections make questions and labels of vectors that were not made to be compared. A dot product of
# $d$ standard normal pairs has variance $d$; divided by $\sqrt{d}$, variance 1. Without that, the
# softmax saturates: one key takes all the weight, its gradient goes to 0, and at width 512 a training
# that the root finishes in 30 steps gets stuck. Attention itself is three lines, and nearly all
# mistakes in them keep the shapes right, so test properties: zero queries, identity values, doubled
# features, deleted keys. Going backwards, each row of score gradients sums to 0, because weights
# compete.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Other distributions.** Entries of mean $\mu \neq 0$: what is the variance of $q \cdot k$, and
#    does $1/\sqrt{d}$ still help?
# 2. **Unit vectors.** With $q$ and $k$ of length 1 the scores lie in $-1..1$. Which largest weight
#    can 10 keys then have, and which factor would you put in front?
# 3. **Other divisors.** Run `read_backwards(512, 512, 0.001, seed=0)`, and without the root a third
#    of the learning rate. What is lost, what is gained?
# 4. **Entropy.** Plot the entropy of the weights over the temperature. Where is it halfway between
#    its ends?
# 5. **One pass.** Compute the outputs over blocks of keys, keeping a running maximum and sum for
#    each query, without ever holding $W$.
# 6. **Masks backwards.** Extend `attention_backward` to a mask with empty rows.

# %% [markdown]
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017, section 3.2.1 and its footnote 4: the
#   variance argument. <https://arxiv.org/abs/1706.03762>
# - T. Dao and others, *FlashAttention*, 2022, appendix B: the backward pass without stored weights.
#   <https://arxiv.org/abs/2205.14135>
# - N. Srivastava and others, *Dropout*, JMLR 15, 2014.
#   <https://jmlr.org/papers/v15/srivastava14a.html>
# - PyTorch, `F.scaled_dot_product_attention`: masks, `is_causal`, `dropout_p`.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html>
