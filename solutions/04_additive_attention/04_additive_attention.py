# %% [markdown]
# # 04 · Additive attention
#
# **The question.** A dot product needs a query and a key of the same size. In the first translator
# with attention (2014), a small *network* decided how well a key fits a query. How does the network
# do that, and could it replace the dot product in lesson 00's translator?
#
# **After this you can**
#
# - score queries against keys of a different size;
# - arrange axes so that one addition combines every query with every key;
# - say what the tanh is for, and what goes wrong without it;
# - write attention as a module that keeps its weights, passes on masks, and applies dropout only in
#   training;
# - (optional) count the memory that additive scores take, and reduce it at the cost of time.
#
# **Time:** {time}. **You need:** broadcasting, `masked_softmax` from lesson 02 (yours or ours), and
# some idea of what `nn.Module` is for.

# %%
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import (
    train_translator,
    translate,
    translate_batch,
    use_module,
)

masked_softmax = carry_on("masked_softmax")  # yours if it passed its check, otherwise ours

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, ...)", "keys": "(B, m, ...)", "values": "(B, m, ...)"}
shapes |= {"scores": "(B, n, m)"}
plotting.show(plotting.diagram("attention", shapes=shapes), key="other scores")

# %% [markdown]
# Queries, keys and values may differ in size. Their last axes are `query_size`, `key_size` and
# `value_size`.

# %% [markdown]
# ## 1. One query, one key
#
# *How do you compare two vectors of different sizes?*
#
# Project both to a common size first. The *additive score* projects the query $q$ and the key $k$
# to $H$ *hidden features* each, adds the two, applies tanh, and takes a weighted sum of the
# features:
#
# $$s(q, k) = w_v^\top \tanh(W_q\, q + W_k\, k),$$
#
# $$W_q \in \mathbb{R}^{H \times \text{query\_size}}, \quad W_k \in \mathbb{R}^{H \times \text{key\_size}}, \quad w_v \in \mathbb{R}^{H}.$$
#
# This is a network with one hidden layer, whose weights are learned (Bahdanau, Cho and Bengio).
#
# **By hand.** Two useful values are $\tanh(\ln 2) = \frac{2 - 1/2}{2 + 1/2} = 0.6$ and
# $\tanh(\ln 3) = 0.8$. Take a query with two numbers and a key with one,
#
# $$q = (\ln 2,\ 0), \quad k = (\ln 3), \quad W_q = \begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}, \quad W_k = \begin{pmatrix} 0 \\ 1 \end{pmatrix}, \quad w_v = (1,\ 2).$$
#
# The sum of the projections is $(\ln 2, \ln 3)$, the features are $(0.6,\ 0.8)$, and the score is
# $1 \cdot 0.6 + 2 \cdot 0.8 = 2.2$.

# %% [markdown]
# ## 2. Every query with every key
#
# *The formula describes one pair. How do you compute all $n \times m$ of them without a loop?*

# %% [markdown]
# Project first. This is cheap, and you do it only once for each query and each key. Then insert an
# axis of size 1 into each of the two tensors, and let broadcasting pair them:
#
# | tensor | shape |
# |---|---|
# | projected queries | `(B, n, H)`, with a new axis `(B, n, 1, H)` |
# | projected keys | `(B, m, H)`, with a new axis `(B, 1, m, H)` |
# | their sum, and its tanh | `(B, n, m, H)` |
# | scores | `(B, n, m)` |
#
# Entry $(b, i, j, h)$ of the sum is feature $h$ of query $i$ plus feature $h$ of key $j$. This
# block of numbers is the *feature cube*. It has one entry for every pair *and* every feature.

# %% [markdown]
# ### Exercise: `additive_scores`
#
# - **Takes** `queries` `(B, n, query_size)`, `keys` `(B, m, key_size)` and the weights `w_q`
#   `(H, query_size)`, `w_k` `(H, key_size)`, `w_v` `(H,)`.
# - **Returns** the scores $w_v^\top \tanh(W_q q_i + W_k k_j)$, shape `(B, n, m)`, differentiable in
#   all five arguments. The result has three axes, even if B, n or m is 1.
#
# **Worked example.** One query $(1, 0)$ and one key $(2)$ with the weights of section 1 have the
# features $(\tanh 1, \tanh 2) = (0.7616, 0.9640)$. The score is $0.7616 + 2 \cdot 0.9640 = 2.6896$.

# %%
from course_lib.attention import additive_scores

# %%
check("additive_scores")

# %% [markdown]
# The query and the key of section 1 have the score 2.2. Make both ten times as long.

# %% tags=["demo"]
q, k = torch.tensor([[[math.log(2), 0.0]]]), torch.tensor([[[math.log(3)]]])  # (1, 1, 2), (1, 1, 1)
w_q, w_k, w_v = torch.eye(2), torch.tensor([[0.0], [1.0]]), torch.tensor([1.0, 2.0])
for factor in (1, 10, 100):
    score = additive_scores(factor * q, factor * k, w_q, w_k, w_v).item()
    print(f"{factor:3} times as long: score {score:.2f}")
    assert math.isclose(score, 2.2 if factor == 1 else 3, abs_tol=1e-4)

# %% [markdown]
# The score becomes 3.00. tanh stays between -1 and 1, so with these weights every score lies
# between $-3$ and $3 = |1| + |2|$, however long the vectors are. A dot product grows a hundredfold.
# The bound of an additive score is the sum $\sum_h |w_{v,h}|$ of the sizes of its own weights,
# which grows with $H$.

# %% [markdown]
# ## 3. Why tanh matters
#
# *What is left if you remove the tanh?*
#
# The next cell compares three versions on random features of 2 words and 14 letters: the formula,
# the formula without tanh, and the formula with tanh applied *before* query and key are added.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
q = torch.randn(2, 1, 32, generator=generator)  # (n, 1, H), two words
k = torch.randn(1, 14, 32, generator=generator)  # (1, m, H), 14 letters
w_v = torch.randn(32, generator=generator) / 2
versions = {
    "tanh of the sum": torch.tanh(q + k) @ w_v,
    "no tanh": (q + k) @ w_v,
    "sum of two tanh": (torch.tanh(q) + torch.tanh(k)) @ w_v,
}
maps = {name: torch.softmax(scores, dim=-1) for name, scores in versions.items()}
plotting.show(plotting.heatmap_grid(maps, columns=1, limits=None), key="tanh")
for name, weights in maps.items():
    difference = (weights - weights[0]).abs().max()
    print(f"{name:16} queries differ by at most {difference:.2f}")
    assert (difference > 0.05) == (name == "tanh of the sum") and not 1e-5 < difference < 0.05
assert versions["tanh of the sum"].abs().max() < w_v.abs().sum()
assert w_v.abs().sum() > 1.5 * w_v[:16].abs().sum()  # of 32 features and of 16

# %% [markdown]
# Only the first version's weights depend on the query. Without tanh, the score is
#
# $$s(q_i, k_j) = w_v^\top (W_q q_i + W_k k_j) = \underbrace{w_v^\top W_q\, q_i}_{a_i} + \underbrace{w_v^\top W_k\, k_j}_{b_j}.$$
#
# $a_i$ is the same number in the whole row $i$, so the softmax ignores it (lesson 02), and all
# queries have the same weights. The third version is also the sum of a part from the query and a
# part from the key. To make the two interact, the nonlinearity must come *after* the sum. Other
# nonlinearities, such as relu, would also work.

# %% [markdown]
# ## 4. A module
#
# *What must an attention module do besides the formula?*

# %% [markdown]
# **Keep the weights in `self.attention_weights`, detached from the graph.** A tensor with its graph
# keeps every intermediate result of the call in memory, the feature cube included. Store
# `weights.detach()`.
#
# **Pass masks on.** A module that accepts `mask` and ignores it passes every test without a mask.
# Pass both the lengths and the mask on to `masked_softmax`, even when they are None.
#
# **Apply dropout to the attention weights, in train mode only.** Dropout sets each weight to 0
# with probability $p$ and divides the others by $1 - p$, so that on average the output equals the
# output in eval mode. The model then learns not to depend on a single key.
#
# The next cell drops weights of 1/4 with probability 1/2, in rows of four.

# %% tags=["demo"]
torch.manual_seed(0)
drop = nn.Dropout(0.5)
weights = torch.full((10_000, 4), 0.25)
dropped = drop(weights)
print("the first row after dropout:", dropped[0].tolist())
print("sums of the 10,000 rows:", dropped.sum(dim=-1).unique().tolist())
print(f"average of all entries: {dropped.mean():.2f}")
assert dropped.unique().tolist() == [0.0, 0.5]
assert dropped.sum(dim=-1).unique().tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
assert abs(dropped.mean() - 0.25) < 0.005
assert torch.equal(drop.eval()(weights), weights)

# %% [markdown]
# A row can sum to 0, 0.5, 1, 1.5 or 2. The entries that are not dropped become
# $0.25 / (1 - 0.5) = 0.5$. On average, an entry is 0.25 again. Dropout on the scores instead would
# set a score to 0, and $e^0 = 1$, so the key would keep some weight.

# %% [markdown]
# ### Exercise: `AdditiveAttention`
#
# - **`__init__`** creates the layers `W_q`, `W_k` and `w_v`, each an `nn.Linear` without bias.
#   `w_v` has one output. Pass `device` and `dtype` on to each layer.
# - **`forward`** averages the values with weights from a masked softmax of the additive scores. It
#   returns `(B, n, value_size)`. Dropout acts on the weights, in train mode only.
# - **`self.attention_weights`** holds the weights of the last call, taken before dropout, detached,
#   shape `(B, n, m)`.
# - As long as they are finite, masked keys and values must not change the result. A query with no
#   allowed key gets zeros, and all gradients stay finite.
#
# `self.W_q.weight` has shape `(H, query_size)`, and `self.w_v.weight` has shape `(1, H)`.
#
# **Worked example.** One query $(1, 0)$ gives two *equal* keys $(1)$ the same score, whatever the
# weights of the layers. The attention weights are $(0.5, 0.5)$, and the values 10 and 20 give 15.

# %%
from course_lib.attention import AdditiveAttention

# %%
check("AdditiveAttention")

# %% [markdown]
# ## 5. Your module in the translator
#
# *Does it matter how a query and a key are compared?*
#
# Lesson 00's translator compares words with letters by dot products. The next cell replaces this
# comparison with *your* module. The module reads the queries, keys and values that the translator's
# own layers compute. Only `W_q`, `W_k` and `w_v` are trained, for 150 steps, with 2 hidden features
# (258 numbers) and then with 32 (4,128).
#
# **Predict.** With 2 features, are about 10, 50 or 95 of the numerals from 1 to 99 translated
# correctly?
#
# **Predict.** In the translator's own map, *three* puts nearly all of its weight on *drei*. After
# training with 32 features, does *three* put nearly all, about two thirds, or less than half of its
# weight there?

# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()


def num_correct(model):
    translations = translate_batch(model, numerals, range(1, 100))
    wanted = [english(number) for number in range(1, 100)]
    return sum(a == b for a, b in zip(translations, wanted, strict=True))


for num_hiddens in (2, 32):
    model = trained_translator(numerals).to(device).requires_grad_(False)
    torch.manual_seed(0)
    attention = AdditiveAttention(query_size=64, key_size=64, num_hiddens=num_hiddens).to(device)
    use_module(model, attention)
    before = num_correct(model)
    train_translator(model, numerals, 150, max_lr=0.01)
    after = num_correct(model)
    print(f"{num_hiddens} features: {before} of 99 correct before, {after} after")
    least, most = {2: (30, 72), 32: (81, 99)}[num_hiddens]
    assert before < 40 and least <= after <= most
words, weights = translate(model, numerals, "dreiundvierzig")
print(f"three puts {weights[1, :4].sum():.2f} of its weight on drei")
assert words == ["forty", "three"]
assert weights[0, 7:].sum() > 0.6 and weights[1, :4].sum() < 0.6
plotting.show(plotting.attention(weights, words, "dreiundvierzig"), key="blurred map")

# %% [markdown]
# <details><summary>Answer</summary>
#
# With 2 features, 40 to 61 of the 99 are correct in six runs, and with 32 nearly all. Before
# training, only a few are, and words attend to the wrong letters.
#
# *three* puts less than half of its weight on *drei*, 0.31 to 0.47 of it in six runs, and *forty*
# attends mostly to *vierzig*. The module learned only *where to look*. The translation is correct,
# but the map is hard to read.
#
# </details>

# %% [markdown]
# ### Written question: three requests
#
# Three colleagues choose between additive scores and dot products (after learned projections if
# sizes differ). In float32, a number takes 4 bytes. Answer each in two or three sentences, with a
# number where a number settles the question.
#
# 1. A translator has sentences of 30 words, keys of size 1024, queries of size 512, $B = 32$ and
#    $H = 256$.
# 2. A model for long documents has $n = m = 20\,000$, $B = 8$, $H = 512$, and one GPU with 80 GB.
# 3. A colleague wants to save time: "Without the tanh, I don't need a cube, because
#    $w_v^\top W_q q_i$ and $w_v^\top W_k k_j$ can be computed separately."

# %% [markdown] written="three_requests"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each request. Half points are possible.
#
# 1. **Either is fine, and the reasons count.** The cube has $32 \cdot 30 \cdot 30 \cdot 256$
#    entries, 29.5 MB in float32, which is not an obstacle. Different sizes suit the additive score
#    directly, while the dot product needs a projection of one side. (Half a point for a choice
#    without the number.)
# 2. **Dot product.** The cube would take $8 \cdot 20000^2 \cdot 512 \cdot 4$ bytes, about 6.6 TB.
#    The scores alone take $8 \cdot 20000^2 \cdot 4$ bytes = 12.8 GB, so it is wise to work in
#    blocks of queries. An additive score in blocks is correct but slow, and training would have to
#    recompute the features. Half a point if only the size of the scores is counted.
# 3. **The saving is real, and the result is useless as attention.** The query's part is a constant
#    of the row, and the softmax cancels it, so all queries get the same weights. Half a point for
#    "it becomes linear" without the consequence for the weights.
# ### END SOLUTION

# %% [markdown]
# ### All together
#
# This check combines *your* `additive_scores` and `AdditiveAttention`, and tests the module
# again.

# %%
check("04_additive_attention")

# %% [markdown]
# ## 6. What it costs ★
#
# *The cube has $B\,n\,m\,H$ entries, and the scores have $B\,n\,m$. Does the factor $H$ hurt?*
#
# In float32 an entry takes 4 bytes. Take $B = 8$ items, $n = m = 1000$ and $H = 128$:
#
# $$8 \cdot 1000 \cdot 1000 \cdot 128 \cdot 4 \text{ bytes} \approx 4.1 \text{ GB}, \qquad 8 \cdot 1000 \cdot 1000 \cdot 4 \text{ bytes} = 32 \text{ MB}.$$
#
# Training also keeps the result of the tanh for the backward pass. A dot product needs only the 32
# MB, and its multiply-adds form a matrix product, which hardware is built for.
#
# You can trade time for memory. The next cell scores one query at a time.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
many_queries = torch.randn(2, 40, 6, generator=generator)
many_keys = torch.randn(2, 50, 3, generator=generator)
weights = [torch.randn(size, generator=generator) for size in ((16, 6), (16, 3), (16,))]
at_once = additive_scores(many_queries, many_keys, *weights)
rows = [additive_scores(row, many_keys, *weights) for row in many_queries.split(1, dim=1)]
row_by_row = torch.cat(rows, dim=1)
print("entries of the cube at once:    ", 2 * 40 * 50 * 16)
print("entries of the cube, row by row:", 2 * 1 * 50 * 16)
print(f"the scores differ by at most {(row_by_row - at_once).abs().max():.4f}")
assert torch.allclose(row_by_row, at_once, atol=1e-5)

# %% [markdown]
# ## 7. What two features can do ★
#
# *Which keys can a query find with two features?*

# %% [markdown]
# ### The cube, slice by slice
#
# Four queries lie at the positions -1.9, -0.8, 0.2 and 1.1 on a line, and five keys at -2, -1, 0, 1
# and 2. Each query has a constant 1 as its second number, which serves as a bias. A key consists of
# its position alone. With $H = 2$ features and the weights below, the cube has two slices. The
# labels of a slice show the projected query (row) and the projected key (column), and each cell is
# the tanh of their sum.
#
# **Predict.** Is the difference of the two slices, first minus second, largest where query and key
# are far apart, where they are close, or where both are large?

# %% tags=["demo"]
positions = torch.tensor([-1.9, -0.8, 0.2, 1.1])
queries = torch.stack([positions, torch.ones(4)], dim=-1)[None]  # (1, 4, 2)
keys = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])[None, :, None]  # (1, 5, 1)
w_q = torch.tensor([[2.0, 1.0], [2.0, -1.0]])  # 2 * position + 1, 2 * position - 1
w_k = torch.tensor([[-2.0], [-2.0]])  # minus 2 * position
w_v = torch.tensor([4.0, -4.0])
slices = plotting.feature_cube((queries @ w_q.mT)[0], (keys @ w_k.mT)[0], w_v)
plotting.show(slices, key="cube")
scores = additive_scores(queries, keys, w_q, w_k, w_v)
print("best key of each query:", scores[0].argmax(dim=-1).tolist())
assert scores[0].argmax(dim=-1).tolist() == [0, 1, 2, 3]
assert (positions[:, None] - keys[0, :, 0]).abs().argmin(dim=-1).tolist() == [0, 1, 2, 3]

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is largest in a narrow band **where query and key are close**. Each row of a slice is a step,
# from 1 on the left to -1 on the right. The step of the second slice lies one key further left.
#
# </details>

# %% [markdown]
# ### Additive and dot product on one problem
#
# Here are the four queries and five keys again. In one dimension, a dot product is the product of
# two numbers. The slider scales `w_q` and `w_k`, which changes how steep the two steps of the
# additive score are.
#
# **Predict.** For the query at 0.2, the dot product chooses the key at 2. Does this key get about
# 0.3, 0.6 or 0.9 of the weight?

# %% tags=["demo"]
dot_weights = torch.softmax(positions[:, None] * keys[0, :, 0], dim=-1)  # (4, 5)


def compare(sharpness):
    scores = additive_scores(queries, keys, sharpness / 2 * w_q, sharpness / 2 * w_k, w_v)
    panels = {"additive": torch.softmax(scores, dim=-1)[0], "dot product": dot_weights}
    return plotting.heatmap_grid(panels, columns=2)


steps = [0.5, 1.0, 2.0, 4.0]
plotting.interactive(compare, sharpness=steps, start={"sharpness": 2.0}, key="nearest or longest")
additive_weights = torch.softmax(additive_scores(queries, keys, w_q, w_k, w_v), dim=-1)[0]
assert additive_weights.argmax(dim=-1).tolist() == [0, 1, 2, 3]
assert dot_weights.argmax(dim=-1).tolist() == [0, 0, 4, 4]
assert abs(dot_weights[2, 4] - 0.29) < 0.005

# %% [markdown]
# <details><summary>Answer</summary>
#
# The key at 2 gets only 0.29 of the weight, but it wins. The dot product sends every query to one
# of the two *ends*. The additive weights follow the diagonal, so each query chooses its nearest
# key. A dot product prefers the longest key that points the same way, not the nearest key.
#
# </details>
#
# With better features, however, the dot product does just as well. Lesson 01 turned the Gaussian
# kernel into the score $q\,k - k^2/2$, which is the dot product of $(q, 1)$ and $(k, -k^2/2)$. With
# $-k^2/2$ as a second entry of the key, the dot product finds the nearest key too.

# %% tags=["demo"]
richer_keys = torch.cat([keys, -(keys**2) / 2], dim=-1)  # (1, 5, 2)
sharp = torch.softmax(8 * queries @ richer_keys.mT, dim=-1)[0]
print("best key of each query:", sharp.argmax(dim=-1).tolist())
assert sharp.argmax(dim=-1).tolist() == [0, 1, 2, 3]

# %% [markdown]
# The dot product leaves the nonlinear work to the layers before it, which have to make such
# features.

# %% [markdown]
# ## Summary
#
# An additive score is a small network that projects a query and a key to $H$ features, adds them,
# applies tanh, and takes a weighted sum. It takes vectors of any size and is bounded by its own
# weights. One broadcast addition combines all pairs, in a cube of $B\,n\,m\,H$ numbers. The tanh
# has to come after the addition, because otherwise the softmax cancels the query.

# %% [markdown]
# ## References
#
# - D. Bahdanau, K. Cho and Y. Bengio, *Neural Machine Translation by Jointly Learning to Align and
#   Translate*, ICLR 2015, section 3 and appendix A.1.2: the additive score.
#   <https://arxiv.org/abs/1409.0473>
