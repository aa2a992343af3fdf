# %% [markdown]
# # 05 · Scaled dot-product attention
#
# **The question.** The cheapest way to compare a query with a key is their dot product. The
# Transformer of 2017, and most models after it, divide it by $\sqrt{d}$ before the softmax. (Not
# all: T5 does not divide, and draws smaller weights at the start instead.) Why by that number, and
# what breaks without it?
#
# **After this you can**
#
# - derive $1/\sqrt{d}$ from the variance of a dot product, and measure it;
# - see a softmax saturate, and say what that does to learning;
# - write scaled dot-product attention in NumPy, as a PyTorch function and as a module;
# - tell self-attention from cross-attention, and compare your function with PyTorch's;
# - run its backward pass by hand.
#
# **Time:** about two and a half hours. **You need:** lesson 02 (`masked_softmax`) and the batched
# products of lesson 03. Sections 6 and 7 use derivatives of vectors.

# %%
import math
import warnings

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_lib import carry_on, check, hint, masked_softmax, plotting

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

# %% tags=["demo"]
q = np.array([2.0, 0.0, 0.0, 0.0])
K = np.array([[np.log(4), 0, 0, 0], [np.log(2), 7.0, 0, 0], [0, 0, 5.0, 5.0]])
scores = K @ q / np.sqrt(4)
weights = np.exp(scores) / np.exp(scores).sum()
print("exponentials", np.exp(scores))
print("weights     ", weights)
assert np.allclose(weights, [4 / 7, 2 / 7, 1 / 7])

# %% [markdown]
# ## 2. How large is a dot product?
#
# *Why divide at all?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2000, 4), "keys": (2000, 4), "scores": (2000,)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes))

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
# $64 / 64^2 = 1/64$. The scores are all but equal, and the weights nearly uniform: attention can no
# longer tell keys apart.
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
# Each query meets one key of its own. The same seed gives the same number. Whether you divide the sum of squares by $N$ or by $N - 1$
# makes no difference here.
#
# **Worked number.** With `d=4` and `num_samples=2000`: near 4, and near 1 if scaled.

# %%
from course_lib.attention import score_variance

# %%
check("score_variance")

# %% [markdown]
# **See it.** The variance for $d$ from 1 to 256, on two logarithmic axes. What you should see: a
# straight line that rises with $d$, and a flat one at 1.

# %% tags=["demo"]
sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
measured = {
    name: [score_variance(d, 4000, scaled, torch.Generator().manual_seed(d)) for d in sizes]
    for name, scaled in (("q . k", False), ("q . k / sqrt(d)", True))
}
figure = plotting.lines(
    sizes, measured, x_label="d", y_label="variance of a score", log_x=True, log_y=True
)
plotting.show(figure)
assert np.allclose(measured["q . k"], sizes, rtol=0.25)
assert np.allclose(measured["q . k / sqrt(d)"], 1, atol=0.25)

# %% [markdown]
# ### In a fresh model
#
# The argument assumes features of variance 1. A fresh `nn.Linear` draws its weights uniformly from
# $\pm 1/\sqrt{d}$, with variance $1/(3d)$: for standard normal inputs the features of queries and
# keys have variance $1/3$, and the scores a standard deviation of $\sqrt{d}/3$. The factor is
# another one, the growth with $\sqrt{d}$ is the same.

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
# ### A tutorial's evidence
#
# A tutorial draws $Q$ and $K$ of shape `(4, 8)` once, finds that `(Q @ K.T).var()` is 10.77, and
# concludes that scores are too large. The theory says 8. Is that a contradiction?
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
# The number was luck. A 4 x 4 matrix has 16 entries, but they come from 4 queries and 4 keys: they
# are not 16 independent pairs. The argument holds, the evidence does not.

# %% [markdown]
# ### A name that promises more than it does
#
# The same tutorial then writes `scaled = np.matmul(Q, K.T)`, with $d = 8$, and goes on with it.
# Here is one of its rows: query 1 may attend keys 0 and 1. Its text shows two different results for
# this row, in two places, and does not comment on it: `[0.988, 0.012]` and `[0.827, 0.173]`.
#
# Which of the two is scaled dot-product attention?

# %% tags=["demo"]
scaled = np.array([1.10584688, -3.32636072])  # the tutorial's `scaled`, row 1


def softmax(row):
    return np.exp(row) / np.exp(row).sum()


print("softmax(scaled)          ", softmax(scaled))
print("softmax(scaled / sqrt(8))", softmax(scaled / np.sqrt(8)))
assert np.allclose(softmax(scaled), [0.988, 0.012], atol=5e-4)
assert np.allclose(softmax(scaled / np.sqrt(8)), [0.827, 0.173], atol=5e-4)

# %% [markdown]
# The second. A variable called `scaled` that nobody scaled gives weights that look perfectly
# healthy: positive, summing to 1, zero in the future. Only a comparison tells.

# %% [markdown]
# ## 3. Saturation
#
# *What is so bad about large scores?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (400, 10), "mask": (400, 10), "softmax": (400, 10)}
plotting.show(plotting.diagram("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# A softmax turns differences of scores into ratios of weights: a lead of 1 is a factor of
# $e \approx 2.7$, a lead of 16 a factor of nine million. When scores spread by $\sqrt{d}$, the best
# key wins everything, and the weights no longer depend on how much better it is. The softmax is
# *saturated*.
#
# **See it.** For each $d$: 400 random queries, 10 random keys each, and the mean of the largest
# weight. An even split would be 0.1. What you should see: without scaling the line climbs towards
# 1, with scaling it stays level.

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
figure = plotting.lines(sizes, largest, x_label="d", y_label="largest weight of 10", log_x=True)
plotting.show(figure)
assert largest["softmax(q . k)"][-1] > 0.9
assert 8.8e6 < math.exp(16) < 9e6
assert max(largest["softmax(q . k / sqrt(d))"]) < 0.4

# %% [markdown]
# **Move it.** One row of four scores, multiplied by a factor. On the left its weights, on the right
# the derivative of every weight with respect to every score. The factor is a slider:
# at 0 all weights are equal; as it grows one bar swallows the others, and the picture on the right
# goes blank. Remember that blank picture, section 6 is about it.


# %% tags=["demo"]
def draw_saturation(factor):
    return plotting.saturation([1.0, 0.5, 0.0, -1.0], factor)


plotting.interactive(draw_saturation, start={"factor": 1}, factor=[0, 0.25, 0.5, 1, 2, 4, 8, 16])
sharp = torch.softmax(16 * torch.tensor([1.0, 0.5, 0.0, -1.0]), dim=0)
assert sharp.max() > 0.999
assert (torch.diag(sharp) - torch.outer(sharp, sharp)).abs().max() < 0.001

# %% [markdown]
# The factor has a name: its inverse is the *temperature*. Dividing by $\sqrt{d}$ is choosing the
# temperature at which a fresh model, whose features are about standard normal, neither freezes nor
# forgets.

# %% [markdown]
# ## 4. From scratch, in NumPy
#
# *Three lines of mathematics: how many lines of code, once masks and large scores are in?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": (1, 4), "keys": (3, 4), "values": (3, 1), "weighted sum": (1, 1)}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# You have met each part. Two traps from lesson 02 come back, because published code falls into
# both. The first is what is handed over as a mask.

# %% tags=["demo"]
rng = np.random.default_rng(1)
scores = rng.normal(size=(4, 4))
ones_and_zeros = np.tril(np.ones((4, 4)))  # 1 = may attend, 0 = may not
added = np.array([softmax(row) for row in scores + ones_and_zeros])
print("0/1 mask added, query 0:", added[0])
assert added[0, 1:].sum() > 0.2  # the future is still there

# %% [markdown]
# A function that computes `scores + mask` needs 0 and $-\infty$. Given 1 and 0 it raises nothing,
# runs, and lets the first query see its whole future. A bool mask leaves no room for that mistake.
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

# %% tags=["demo"]
q = np.array([[2.0, 0.0, 0.0, 0.0]])
K = np.array([[np.log(4), 0, 0, 0], [np.log(2), 7.0, 0, 0], [0, 0, 5.0, 5.0]])
V = np.array([[7.0], [14.0], [0.0]])
outputs, weights = numpy_attention(q, K, V)
print("outputs", outputs, "weights", weights)
assert np.allclose(outputs, 8)
outputs, weights = numpy_attention(q, K, V, np.array([[False, True, True]]))
assert np.allclose(weights, [[0, 2 / 3, 1 / 3]])
assert np.allclose(outputs, 28 / 3)

# %% [markdown]
# ## 5. For batches, heads and gradients, in PyTorch
#
# *What changes when there are batches, heads, lengths, and gradients?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": (2, 4, 3), "keys": (2, 5, 3), "values": (2, 5, 3), "weighted sum": (2, 4, 3)}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# The formula does not. With any number of leading axes, the product is `queries @ keys.mT`: `mT`
# swaps the last two axes only. `.T` reverses all of them, and `transpose(1, 2)` means the right axes
# only if there is exactly one axis before them. A `reshape` of the keys to `(d, m)` has the right
# shape and the wrong numbers.

# %% tags=["demo"]
keys = torch.arange(6.0).reshape(1, 3, 2)  # three keys of two features
print("keys.mT           ", keys.mT.tolist())
print("keys.reshape(1, 2, 3)", keys.reshape(1, 2, 3).tolist())
assert keys.mT[0, :, 0].tolist() == [0, 1]  # key 0
assert keys.reshape(1, 2, 3)[0, :, 0].tolist() == [0, 3]  # a bit of key 0, a bit of key 1

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
# What you should see: a square map, the same map with its future cut off, and a map with 3 rows and
# 5 columns.

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
# ### With and without the root
#
# The same queries and keys with $d = 64$, divided by $\sqrt{d}$, not divided, and divided by $d$.
# What you should see: shades on the left; in the middle map four of the five rows have all but
# chosen one key; the right map is nearly the same everywhere.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(4)
queries, keys = (torch.randn(1, size, 64, generator=generator) for size in (5, 6))
values = torch.eye(6)[None]  # then the outputs are the weights
weights = scaled_dot_product_attention(queries, keys, values)[1][0]
unscaled = scaled_dot_product_attention(queries * 8, keys, values)[1][0]
flat = scaled_dot_product_attention(queries / 8, keys, values)[1][0]
panels = {"q . k / sqrt(d)": weights, "q . k": unscaled, "q . k / d": flat}
plotting.show(plotting.heatmap_grid(panels))
for name, panel in panels.items():
    print(f"{name:16} mean of the largest weights {panel.max(dim=-1).values.mean():.2f}")
assert (unscaled.max(dim=-1).values > 0.8).sum() == 4
assert flat.max(dim=-1).values.mean() < 0.25

# %% [markdown]
# ### What must hold
#
# A shape check passes nearly every wrong version. These properties do not:
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
assert torch.allclose(mean[0, 0], values[0, :2].mean(dim=0))

products = queries @ keys.mT
ratio = (weights[..., 0] / weights[..., 1]).log()
assert torch.allclose(ratio, (products[..., 0] - products[..., 1]) / math.sqrt(3), atol=1e-5)

_, doubled = scaled_dot_product_attention(queries.repeat(1, 1, 2), keys.repeat(1, 1, 2), values)
ratio_doubled = (doubled[..., 0] / doubled[..., 1]).log()
assert torch.allclose(ratio_doubled, math.sqrt(2) * ratio, atol=1e-5)

masked, _ = scaled_dot_product_attention(queries, keys, values, torch.tensor([3, 3]))
deleted, _ = scaled_dot_product_attention(queries, keys[:, :3], values[:, :3])
assert torch.allclose(masked, deleted, atol=1e-6)
print("all four hold")

# %% [markdown]
# ### Beside PyTorch's own
#
# `F.scaled_dot_product_attention` returns the outputs only. For inputs with four axes,
# `(batch, heads, n, d)`, it has fused versions that never store the weights and are much faster on
# large problems; three axes take the plain way, as the first lines below show. Its bool `attn_mask`
# means what ours means. Its `is_causal` aligns the first query with the first key; lesson 02
# aligned the last ones. The two agree only if $n = m$.


# %% tags=["demo"]
def is_fused(*inputs):
    """Whether the fused version, when nothing else may be used, takes these inputs."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            F.scaled_dot_product_attention(*inputs)
        except RuntimeError:
            return False
    return True


four_axes = [x[:, None] for x in (queries, keys, values)]
print("fused with three axes:", is_fused(queries, keys, values))
print("fused with four axes: ", is_fused(*four_axes))
assert not is_fused(queries, keys, values)

# %% tags=["demo"]
mask = torch.rand(2, 4, 5, generator=generator) < 0.6
mask[0, 0] = False  # an empty row, to compare that too
ours, _ = scaled_dot_product_attention(queries, keys, values, mask=mask)
theirs = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
assert torch.allclose(ours, theirs, atol=1e-6)
print("ours, query 1:  ", ours[0, 1])
print("theirs, query 1:", theirs[0, 1])

last_aligned = torch.ones(4, 5, dtype=torch.bool).tril(5 - 4)
ours, _ = scaled_dot_product_attention(queries, keys, values, mask=last_aligned)
theirs = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
print("last aligned, query 0: ", ours[0, 0])
print("first aligned, query 0:", theirs[0, 0], "(the value of key 0:", values[0, 0], ")")
assert not torch.allclose(ours, theirs)

# %% [markdown]
# ### Half precision: when to divide
#
# In exact arithmetic $(q \cdot k)/\sqrt{d}$ and $(q/\sqrt{d}) \cdot k$ are equal. A float16 ends at
# 65504.
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
# ### A module with dropout
#
# *Where does dropout belong, and when does it act?*
#
# In a layer, *dropout* acts on the attention weights: in train mode each weight is set to 0 with
# probability $p$, and the others are divided by $1 - p$. In eval mode nothing happens. Rows of
# dropped weights no longer sum to 1; they do so on average.
#
# What a module remembers for pictures should be the weights **before** dropout, and **detached**:
# a stored tensor that carries its graph keeps every intermediate result of the pass in memory.

# %% tags=["demo"]
torch.manual_seed(0)
row = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
dropout = nn.Dropout(0.5)
print("train:", dropout.train()(row))
print("eval: ", dropout.eval()(row))
average = torch.stack([dropout.train()(row) for _ in range(4000)]).mean(dim=0)
assert torch.allclose(average, row, atol=0.03)
assert torch.equal(dropout.eval()(row), row)

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
assert not torch.allclose(noisy, outputs)
assert torch.equal(attention.attention_weights, weights)
print("eval mode: the function's outputs; train mode: others, and the same stored weights")

# %% [markdown]
# ## 6. What a gradient finds
#
# *Moving a query a little: how far does the output move?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4), "keys": (2, 4), "values": (2, 4), "outputs": (1, 4)}
plotting.show(plotting.diagram("attention", lit=("queries", "outputs"), shapes=shapes))

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
# attention; the root in front of the covariance cancels in the ratio.
#
# What you should see: scaled, the typical ratio hardly depends on $d$; unscaled, it falls
# towards 0.

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
plotting.show(plotting.lines(sizes, ratios, x_label="d", y_label=label, log_x=True))
print(f"d = 128, unscaled: below 0.1 for {(found[:, 1] < 0.1).float().mean():.0%} of the queries")
assert ratios["softmax(q . k)"][-1] < 0.1
assert min(ratios["softmax(q . k / sqrt(d))"]) > 0.6
assert (found[:, 1] < 0.1).float().mean() > 0.5

# %% [markdown]
# A median, because a mean would hide it: more than half of the queries get next to no gradient, and
# a few, for which two keys happen to tie, get a large one. An unscaled model with large $d$ starts saturated, and the
# gradient that could free it is the one that saturation removes. That, and not the look of the
# weights, is why you divide.

# %% [markdown]
# ## 7. The backward pass by hand
#
# *What does `loss.backward()` do with an attention?*

# %% tags=["demo", "hide-input"]
lit = "queries", "keys", "values", "outputs"
shapes = {"queries": (1, 4), "keys": (2, 4), "values": (2, 1), "outputs": (1, 1)}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# Let $G = \partial L / \partial O$, of shape `(n, v)`. A product $AB$ sends $GB^\top$ to $A$ and
# $A^\top G$ to $B$. Going back through $O = WV$, the softmax, and $S = QK^\top/\sqrt{d}$:
#
# $$dV = W^\top G, \qquad dW = G V^\top, \qquad dS = W \odot \bigl(dW - \operatorname{rowsum}(W \odot dW)\bigr),$$
#
# $$dQ = \frac{dS\, K}{\sqrt{d}}, \qquad dK = \frac{dS^\top Q}{\sqrt{d}}.$$
#
# The row sum is what makes a softmax a competition: raising one weight lowers the others of its
# row. So the rows of $dS$ sum to 0.
#
# **By hand.** One query, two keys with $w = (1/2, 1/2)$, values $1$ and $3$, $G = 1$. Then
# $dW = (1, 3)$, $W \odot dW = (1/2, 3/2)$ with row sum 2, and
# $dS = (1/2 \cdot (1 - 2),\; 1/2 \cdot (3 - 2)) = (-1/2, 1/2)$: the key with the larger value
# should score higher, the other one lower by the same amount.

# %% tags=["demo"]
scores = torch.zeros(1, 2, requires_grad=True)
outputs = torch.softmax(scores, dim=-1) @ torch.tensor([[1.0], [3.0]])
outputs.backward(torch.ones(1, 1))
print("dS", scores.grad)
assert scores.grad.tolist() == [[-0.5, 0.5]]

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
print("agrees with autograd:", all(map(torch.allclose, by_hand, expected)))
assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(by_hand, expected, strict=True))

# %% [markdown]
# There is more in these lines than practice. $\operatorname{rowsum}(W \odot dW)$ equals the row sum
# of $O \odot G$, which needs only the outputs. So the backward pass can recompute $W$ block by block
# and never store it: that is how memory-saving attention trains.

# %% tags=["demo"]
weights = torch.softmax(inputs[0] @ inputs[1].mT / 2, dim=-1)
long_way = (weights * (grad_outputs @ inputs[2].mT)).sum(dim=-1)
short_way = (outputs * grad_outputs).sum(dim=-1)
assert torch.allclose(long_way, short_way, atol=1e-5)
print("row sums agree")

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
#    keys apart. A higher learning rate multiplies a gradient near 0 for queries and keys, and blows up
#    the steps of all the other layers.
# 3. **Remedy and check.** Divide by $\sqrt{d}$. Before training, at initialisation: measure the
#    variance of the scores (near 1), the largest weight or the entropy of the rows (neither uniform
#    nor one-hot), or the norm of the gradient of the queries beside that of the values. One of
#    these, with what one expects to see, is enough.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# A dot product of $d$ standard normal pairs has variance $d$; divided by $\sqrt{d}$ it has variance
# 1, whatever $d$ is. Without that, the softmax saturates: one key takes all the weight, and the
# covariance of the keys under the weights, which is the gradient, goes to 0. Attention itself is
# three lines, and nearly all mistakes in them keep the shapes right, so test properties: zero
# queries, identity values, doubled features, deleted keys. Dropout acts on weights, in train mode
# only. Going backwards, each row of score gradients sums to 0, because weights compete.

# %% [markdown]
# ## Further exercises
#
# 1. **Other distributions.** Entries of mean $\mu \neq 0$: what is the variance of $q \cdot k$, and
#    does $1/\sqrt{d}$ still help?
# 2. **Unit vectors.** With $q$ and $k$ of length 1 the scores lie in $-1..1$. Which largest weight
#    can 10 keys then have, and which factor would you put in front?
# 3. **Entropy.** Plot the entropy of the weights over the temperature. Where is it halfway between
#    its ends?
# 4. **One pass.** Compute the outputs over blocks of keys, keeping a running maximum and sum for
#    each query, without ever holding $W$.
# 5. **Masks backwards.** Extend `attention_backward` to a mask with empty rows.

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
