# %% [markdown]
# # 04 · Additive attention
#
# **The question.** Lesson 03 compared a query with a key by their dot product. That asks two things
# of them: the same size, and that "similar" means "points the same way". The first attention, of
# 2014, asked for neither: a small *network* decided how well a key fits a query. How does it do
# that, what does it cost, and could it take the dot product's place in lesson 00's translator?
#
# **After this you can**
#
# - score queries against keys of another size;
# - place axes so that one addition pairs every query with every key;
# - say what tanh does there, and what the scores become without it;
# - count the memory that this costs, and trade it for time;
# - write the whole thing as a module whose weights, masks and dropout behave.
#
# **Time:** {time}. **You need:** broadcasting, `masked_softmax` from lesson 02 (the
# course's version is at hand), and an idea of what `nn.Module` is for.

# %%
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import train_translator, translate

masked_softmax = carry_on("masked_softmax")

torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## Words and shapes

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, ...)", "keys": "(B, m, ...)", "values": "(B, m, ...)"}
plotting.show(plotting.diagram("attention", shapes=shapes | {"scores": "(B, n, m)"}))

# %% [markdown]
# | letter | counts | | name | shape |
# |---|---|---|---|---|
# | `B` | items in a batch | | `queries` | `(B, n, query_size)` |
# | `n` | queries | | `keys` | `(B, m, key_size)` |
# | `m` | keys, and values | | `values` | `(B, m, value_size)` |
# | `H` | hidden features | | `scores`, `attention_weights` | `(B, n, m)` |
#
# A row of scores belongs to a query, a column to a key. All three sizes of the vectors may
# differ. So may `n` and `m`.

# %% [markdown]
# ## 1. One query, one key
#
# *How do you compare two things that have nothing in common?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2,), "keys": (1,), "scores": "one number"}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# Translate both into a third language first. The *additive score* projects the query $q$ and the
# key $k$ to $H$ *hidden features* each, adds the two, takes the tanh, and adds up the features with
# weights:
#
# $$s(q, k) = w_v^\top \tanh(W_q\, q + W_k\, k),$$
#
# $$W_q \in \mathbb{R}^{H \times \text{query\_size}}, \quad W_k \in \mathbb{R}^{H \times \text{key\_size}}, \quad w_v \in \mathbb{R}^{H}.$$
#
# That is a network with one hidden layer that reads the pair $(q, k)$ and answers with one number.
# Its weights are learned. Bahdanau, Cho and Bengio let a decoder look back at a sentence with it;
# attention in translation began here.

# %% [markdown]
# **By hand.** A handy fact: $\tanh(\ln 2) = \frac{2 - 1/2}{2 + 1/2} = 0.6$ and
# $\tanh(\ln 3) = 0.8$. Take a query with two numbers and a key with one,
#
# $$q = (\ln 2,\ 0), \quad k = (\ln 3), \quad W_q = \begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}, \quad W_k = \begin{pmatrix} 0 \\ 1 \end{pmatrix}, \quad w_v = (1,\ 2).$$
#
# The sum of the projections is $(\ln 2, \ln 3)$, the features are $(0.6,\ 0.8)$, and the score is
# $1 \cdot 0.6 + 2 \cdot 0.8 = 2.2$.

# %% tags=["demo"]
q = torch.tensor([math.log(2), 0.0])
k = torch.tensor([math.log(3)])
w_q = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
w_k = torch.tensor([[0.0], [1.0]])
w_v = torch.tensor([1.0, 2.0])
features = torch.tanh(w_q @ q + w_k @ k)
print("features", features)
print(f"score    {w_v @ features:.4f}")
assert torch.allclose(features, torch.tensor([0.6, 0.8]))
assert math.isclose(w_v @ features, 2.2, rel_tol=1e-6)

# %% [markdown]
# **Predict.** With these weights, what is the largest score that any query and key can reach?
# What happens to a dot product when you make both vectors ten times as long?
#
# <details><summary>Answer</summary>
#
# tanh stays between -1 and 1, so no score leaves $\pm(|1| + |2|) = \pm 3$, however long the
# vectors are. A dot product grows a hundredfold. An additive score is bounded by its own weights,
# $\sum_h |w_{v,h}|$: this is why it needs no division by $\sqrt{d}$, and also why it can be sharp
# only after `w_v` has grown.
#
# </details>

# %% tags=["demo"]
for scale in (1, 10, 100):
    score = w_v @ torch.tanh(w_q @ (scale * q) + w_k @ (scale * k))
    print(f"vectors {scale:3} times as long: score {score:.4f}")
    assert score <= w_v.abs().sum()

# %% [markdown]
# ## 2. Every query meets every key
#
# *The formula speaks of one pair. How do you get all $n \times m$ of them without a loop?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 2), "keys": (1, 5, 1), "scores": (1, 4, 5)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# Project first: that is cheap, and done once for each query and each key. Then give both tensors
# an axis for the other one and let broadcasting copy:
#
# | tensor | shape |
# |---|---|
# | projected queries | `(B, n, H)` → `(B, n, 1, H)` |
# | projected keys | `(B, m, H)` → `(B, 1, m, H)` |
# | their sum, and its tanh | `(B, n, m, H)` |
# | scores | `(B, n, m)` |
#
# Entry $(b, i, j, h)$ of the sum is feature $h$ of query $i$ plus feature $h$ of key $j$. This
# block of numbers is the *feature cube*; it has an entry for every pair *and* feature.

# %% [markdown]
# **Predict.** *drei*, *dreizehn* and *dreiundvierzig* again: two words each over 14 letters, and
# $H = 32$. How many numbers has the cube? And `q.unsqueeze(1) + k.unsqueeze(2)`, the other way
# round, runs as well: what is its shape? Who would notice if there were as many words as letters?

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
q = torch.randn(3, 2, 32, generator=generator)  # (B, n, H): words
k = torch.randn(3, 14, 32, generator=generator)  # (B, m, H): letters
right = q.unsqueeze(2) + k.unsqueeze(1)
swapped = q.unsqueeze(1) + k.unsqueeze(2)
print("right  ", tuple(right.shape), "-", right.numel(), "numbers")
print("swapped", tuple(swapped.shape))
assert torch.equal(right, swapped.transpose(1, 2))
assert torch.equal(right[1, 1, 4], q[1, 1] + k[1, 4])

square = k[:, :2]  # as many letters as words
one, other = q.unsqueeze(2) + square.unsqueeze(1), q.unsqueeze(1) + square.unsqueeze(2)
apart = (one - other).abs().max()
print("n = m: ", tuple(one.shape), "and", tuple(other.shape), f"- at most {apart:.2f} apart")
assert one.shape == other.shape and apart > 1

# %% [markdown]
# <details><summary>Answer</summary>
#
# $3 \cdot 2 \cdot 14 \cdot 32 = 2688$. Swapped, `(B, m, n, H)`: rows are keys now. With $n = m$ the
# shape is the same and the numbers are not, and nobody notices until the softmax runs over the wrong
# axis: each *key* then spreads a weight of 1 over the queries.
#
# </details>

# %% [markdown]
# ### The cube, slice by slice
#
# Four queries sit at the positions -1.9, -0.8, 0.2 and 1.1 of a line, five keys at -2, -1, 0, 1
# and 2. A key is its position, a query is its position and a constant 1, so the sizes are 1 and
# 2. With $H = 2$ features and these weights, the cube has two slices. The labels of a slice are
# the projected query (row) and the projected key (column); a cell is the tanh of their sum.
#
# **Predict.** What does one tanh look like across a row? And the difference of two?

# %% tags=["demo"]
positions = torch.tensor([-1.9, -0.8, 0.2, 1.1])
queries = torch.stack([positions, torch.ones(4)], dim=-1)[None]  # (1, 4, 2)
keys = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])[None, :, None]  # (1, 5, 1)
w_q = torch.tensor([[2.0, 1.0], [2.0, -1.0]])  # 2 * position + 1, 2 * position - 1
w_k = torch.tensor([[-2.0], [-2.0]])  # minus 2 * position
w_v = torch.tensor([4.0, -4.0])
q, k = queries @ w_q.mT, keys @ w_k.mT  # (1, 4, 2), (1, 5, 2)
plotting.show(plotting.feature_cube(q[0], k[0], w_v))
cube = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))
scores = cube @ w_v
print("feature cube", tuple(cube.shape), " scores", tuple(scores.shape))
print("best key of each query:", scores[0].argmax(dim=-1).tolist())
nearest = (positions[:, None] - keys[0, :, 0]).abs().argmin(dim=-1)
assert scores[0].argmax(dim=-1).tolist() == nearest.tolist() == [0, 1, 2, 3]

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Each slice is a step, from 1 on the left to -1 on the right. The second step lies one key further
# left. Their difference is high in a narrow band, **where query and key are close**.
#
# </details>
#
# Two features, and the score has become a detector of nearness.
#
# **Predict.** Why the constant 1 in the query? What are the scores without it?


# %% tags=["demo"]
def scores_of(queries, keys):
    return torch.tanh((queries @ w_q.mT).unsqueeze(2) + (keys @ w_k.mT).unsqueeze(1)) @ w_v


mirrored = queries * torch.tensor([-1.0, 1.0])  # the constant stays
assert torch.allclose(scores_of(mirrored, -keys), scores_of(queries, keys), atol=1e-6)
without = queries * torch.tensor([1.0, 0.0])  # the constant is gone
print("largest score with the constant:   ", f"{scores_of(queries, keys).max():.2f}")
print("largest score without the constant:", f"{scores_of(without, keys).max():.2f}")
assert not scores_of(without, keys).any()

# %% [markdown]
# <details><summary>Answer</summary>
#
# All 0. Without it the two features are one and the same, and their difference is 0. The layers have
# no bias and tanh is odd, so mirroring both positions would flip the sign of every score; but a pair
# that is near stays near in the mirror. The constant serves as a bias: it moves one step to the left
# of 0 and the other to the right.
#
# </details>

# %% [markdown]
# ### The last axis, and only the last
#
# A layer with one output, `nn.Linear(H, 1)`, leaves a last axis of size 1, which has to go.
# `squeeze(-1)` removes it. A bare `squeeze()` removes *every* axis of size 1, and so depends on
# the data: it works until someone sends a single item, a single query, or a single key.

# %% tags=["demo"]
for shape in ((2, 3, 5, 1), (2, 1, 5, 1), (1, 1, 1, 1)):
    x = torch.zeros(shape)
    print(
        f"{shape}: squeeze(-1) {tuple(x.squeeze(-1).shape)}, squeeze() {tuple(x.squeeze().shape)}"
    )
assert torch.zeros(2, 1, 5, 1).squeeze().shape == (2, 5)

# %% [markdown]
# ### Exercise: `additive_scores`
#
# - **Takes** `queries` `(B, n, query_size)`, `keys` `(B, m, key_size)` and the weights `w_q`
#   `(H, query_size)`, `w_k` `(H, key_size)`, `w_v` `(H,)`. A row of `w_q` belongs to a hidden
#   feature, as in `nn.Linear`.
# - **Returns** the scores $w_v^\top \tanh(W_q q_i + W_k k_j)$, shape `(B, n, m)`, before any
#   softmax. All three axes are there for every B, n and m; gradients reach all five arguments.
#
# **Worked number.** One query $(1, 0)$ and one key $(2)$ with the weights of section 1,
# $w_v = (1, 2)$, have the features $(\tanh 1, \tanh 2) = (0.7616, 0.9640)$. The score is
# $0.7616 + 2 \cdot 0.9640 = 2.6897$.

# %%
from course_lib.attention import additive_scores

# %%
check("additive_scores")

# %% [markdown]
# ## 3. Why tanh matters
#
# *Take the tanh away. What is left?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 2), "keys": (1, 5, 1), "scores": (1, 4, 5)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# $$s(q_i, k_j) = w_v^\top (W_q q_i + W_k k_j) = \underbrace{w_v^\top W_q\, q_i}_{a_i} + \underbrace{w_v^\top W_k\, k_j}_{b_j}$$
#
# **Predict.** A softmax over the keys turns row $i$, $(a_i + b_1, \dots, a_i + b_m)$, into weights.
# How do the weights of query 0 differ from those of query 1?
#
# <details><summary>Answer</summary>
#
# Not at all. $a_i$ is the same number in the whole row, and lesson 02 showed that a softmax does
# not see a shift of its row. Every query attends to the same keys: the query has no say.
#
# </details>
#
# **Predict.** The cell compares three versions on the points of section 2, with $w_v = (4, -3)$: the
# formula, the formula without tanh, and tanh taken of query and key *before* they are added. In which
# of them do the queries differ?

# %% tags=["demo"]
q, k = (queries @ w_q.mT).unsqueeze(2), (keys @ w_k.mT).unsqueeze(1)
uneven = torch.tensor([4.0, -3.0])
versions = {
    "tanh of the sum": torch.tanh(q + k) @ uneven,
    "no tanh": (q + k) @ uneven,
    "sum of two tanh": (torch.tanh(q) + torch.tanh(k)) @ uneven,
}
maps = {name: torch.softmax(scores, dim=-1)[0] for name, scores in versions.items()}
plotting.show(plotting.heatmap_grid(maps))
for name, weights in maps.items():
    apart = (weights - weights[0]).abs().max()
    print(f"{name:16} queries differ by at most {apart:.2f}")
    assert (apart > 0.1) == (name == "tanh of the sum") and (apart > 0.1 or apart < 1e-5)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Only in the first. In the other two, one key wins for every query: the score is again a part from
# the query plus a part from the key. What makes the two meet is a nonlinearity *after* the sum. Any
# would do, relu for one; with tanh the scores stay bounded.
#
# </details>

# %% [markdown]
# ### Can it be learned?
#
# Section 2 used weights chosen by hand. Now let gradient descent find them: 64 problems, each with
# the five keys in a random order and a random value at each. The target is the value of the
# nearest key. One network has the tanh, the other has not; everything else is equal.
#
# **Predict.** The targets have a variance of about 1, so answering 0 costs about 1. How far does
# each loss fall?


# %% tags=["demo"]
def lookup_problems(num_problems, generator):
    order = [torch.randperm(5, generator=generator) - 2.0 for _ in range(num_problems)]
    keys = torch.stack(order).unsqueeze(-1)  # (64, 5, 1)
    values = torch.randn(num_problems, 5, 3, generator=generator)
    noise = 0.2 * torch.randn(num_problems, 4, generator=generator)
    positions = keys[:, :4, 0] + noise.clamp(-0.4, 0.4)  # near keys 0, 1, 2 and 3
    queries = torch.stack([positions, torch.ones_like(positions)], dim=-1)  # (64, 4, 2)
    return queries, keys, values, values[:, :4]


def train(nonlinearity, problems, num_steps=300):
    queries, keys, values, targets = problems
    torch.manual_seed(0)
    sizes = ((8, 2), (8, 1), (8,))
    weights = [torch.randn(size).mul_(0.5).requires_grad_() for size in sizes]
    optimizer = torch.optim.Adam(weights, lr=0.05)
    losses = []
    for _ in range(num_steps):
        q, k = queries @ weights[0].mT, keys @ weights[1].mT
        scores = nonlinearity(q.unsqueeze(2) + k.unsqueeze(1)) @ weights[2]
        loss = F.mse_loss(torch.softmax(scores, dim=-1) @ values, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# %% tags=["demo"]
problems = lookup_problems(64, torch.Generator().manual_seed(0))
with_tanh = train(torch.tanh, problems)
without_tanh = train(lambda features: features, problems)
for name, losses in {"with tanh   ": with_tanh, "without tanh": without_tanh}.items():
    print(f"{name}: from {losses[0]:.2f} down to {losses[-1]:.2f}")
    assert losses[-1] < losses[0]
assert with_tanh[-1] < 0.05
assert without_tanh[-1] > 0.5

# %% [markdown]
# <details><summary>What came of it</summary>
#
# Both losses fall, and neither program raises an error. But only one can solve the problem: without
# the nonlinearity all four queries of a problem get the same answer, and the best single answer is
# close to the mean of the values.
#
# </details>

# %% [markdown]
# ## 4. What it costs
#
# *The cube has $B\,n\,m\,H$ entries, the scores have $B\,n\,m$. Does the factor $H$ hurt?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(8, 1000, q)", "keys": "(8, 1000, k)", "scores": (8, 1000, 1000)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# With float32 an entry takes 4 bytes. Take $B = 8$ items, $n = m = 1000$ and $H = 128$:
#
# $$8 \cdot 1000 \cdot 1000 \cdot 128 \cdot 4 \text{ bytes} \approx 4.1 \text{ GB}, \qquad 8 \cdot 1000 \cdot 1000 \cdot 4 \text{ bytes} = 32 \text{ MB}.$$
#
# And training keeps the tanh's result for the backward pass. A dot product needs only the 32 MB:
# it never stores a number for each pair *and* feature.
#
# **Predict.** How do the two curves lie, on logarithmic axes?

# %% tags=["demo"]
lengths = torch.tensor([10, 30, 100, 300, 1000, 3000])
batch, num_hiddens, bytes_each = 8, 128, 4
score_bytes = batch * lengths**2 * bytes_each
cube_bytes = score_bytes * num_hiddens
assert cube_bytes[4] == 4_096_000_000
assert score_bytes[4] == 32_000_000
series = {"feature cube (B, n, m, H)": cube_bytes / 1e6, "scores (B, n, m)": score_bytes / 1e6}
plot = plotting.lines(
    lengths,
    series,
    x_label="queries and keys, n = m",
    y_label="megabytes in float32",
    title="memory for B = 8, H = 128",
    log_x=True,
    log_y=True,
)
plotting.show(plot)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Two parallel lines on logarithmic axes, a factor of $H$ apart. Both grow with the square of the
# length; the additive one starts higher.
#
# </details>
#
# Time grows in the same way: each of the $B\,n\,m\,H$ entries takes an addition, a tanh and a
# multiply-add. A dot product takes $B\,n\,m\,d$ multiply-adds, and those are a matrix product,
# which hardware does best.
#
# You can trade time for memory: score a few queries at a time, and only their part of the cube
# exists. The cell does one query at a time. The numbers are the same; at its largest the cube is
# smaller by the factor $n$.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
many_queries = torch.randn(2, 40, 6, generator=generator)
many_keys = torch.randn(2, 50, 3, generator=generator)
weights = [torch.randn(size, generator=generator) for size in ((16, 6), (16, 3), (16,))]
at_once = additive_scores(many_queries, many_keys, *weights)
rows = [additive_scores(row, many_keys, *weights) for row in many_queries.split(1, dim=1)]
assert torch.allclose(torch.cat(rows, dim=1), at_once, atol=1e-5)
print("entries of the cube at once:       ", 2 * 40 * 50 * 16)
print("entries of the cube, row by row:   ", 2 * 1 * 50 * 16)
print(f"scores at most {(torch.cat(rows, dim=1) - at_once).abs().max():.4f} apart")

# %% [markdown]
# ## 5. Additive and dot product on one problem
#
# *Additive costs more. What does it buy?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 2), "keys": (1, 5, 1), "scores": (1, 4, 5)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# The same four queries and five keys. The dot product multiplies the positions; that is all it
# can do with them. Move the slider to make the additive detector sharper: it
# scales `w_q` and `w_k`, that is, how steep the two steps are.
#
# **Predict.** Which key does the dot product choose for the query at 0.2?

# %% tags=["demo"]
dot_weights = torch.softmax(positions[:, None] * keys[0, :, 0], dim=-1)  # (4, 5)


def compare(sharpness):
    scores = additive_scores(queries, keys, sharpness / 2 * w_q, sharpness / 2 * w_k, w_v)
    panels = {"additive": torch.softmax(scores, dim=-1)[0], "dot product": dot_weights}
    return plotting.heatmap_grid(panels, columns=2)


plotting.interactive(compare, sharpness=[0.5, 1.0, 2.0, 4.0], start={"sharpness": 2.0})
additive_weights = torch.softmax(additive_scores(queries, keys, w_q, w_k, w_v), dim=-1)[0]
assert additive_weights.argmax(dim=-1).tolist() == [0, 1, 2, 3]
assert set(dot_weights.argmax(dim=-1).tolist()) == {0, 4}

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The additive weights follow the diagonal, each query on its nearest key. The dot product sends
# every query to one of the two *ends*, that at 0.2 to key 2: it prefers the longest key that points
# the same way, not the nearest.
#
# </details>
#
# Before you conclude that the dot product is worse: give it better features. Lesson 01 turned the
# Gaussian kernel into a dot product, $q\,k - k^2/2$, which is the dot product of $(q, 1)$ and
# $(k, -k^2/2)$. With the squared position as a second entry of the key it finds the nearest key
# too.

# %% tags=["demo"]
richer_keys = torch.cat([keys, -(keys**2) / 2], dim=-1)  # (1, 5, 2)
sharp = torch.softmax(8 * queries @ richer_keys.mT, dim=-1)[0]
print("best key of each query:", sharp.argmax(dim=-1).tolist())
assert sharp.argmax(dim=-1).tolist() == [0, 1, 2, 3]

# %% [markdown]
# So this is the trade. The additive score has a nonlinearity of its own and takes any sizes, and
# pays with the cube. The dot product leaves the nonlinear work to the layers before it, and is
# fast. Models that have such layers, transformers among them, use the dot product: the next
# lesson is about it.
#
# | | additive | dot product |
# |---|---|---|
# | sizes of query and key | any | equal |
# | own parameters | $W_q$, $W_k$, $w_v$ | none |
# | size of a score | at most $\sum_h \lvert w_{v,h} \rvert$ | grows with the vectors |
# | numbers stored for the pairs | $B\,n\,m\,H$ | $B\,n\,m$ |

# %% [markdown]
# ## 6. Into a module
#
# *What does a module owe its users?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 2), "keys": (1, 5, 1), "attention weights": (1, 4, 5)}
plotting.show(
    plotting.diagram_strip("attention", lit=("scores", "attention weights"), shapes=shapes)
)

# %% [markdown]
# **Its weights must be found.** `parameters()` is how optimisers, `.to(device)` and checkpoints
# learn what there is. It lists what was assigned to `self` in `__init__` as a layer or an
# `nn.Parameter`. Each of the three classes below holds
# one matrix of 7 x 4 numbers.
#
# **Predict.** How many of its 28 numbers does each of them report?


# %% tags=["demo"]
class PlainTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_q = torch.randn(7, 4)


class PythonList(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 7, bias=False)]


class Registered(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_q = nn.Linear(4, 7, bias=False)


for kind in (PlainTensor, PythonList, Registered):
    print(f"{kind.__name__:12} {sum(p.numel() for p in kind().parameters()):2} parameters")
assert not list(PlainTensor().parameters()) + list(PythonList().parameters())
assert list(Registered().state_dict()) == ["W_q.weight"]

# %% [markdown]
# The first two would run and report a loss, but no optimiser would ever touch their numbers.
# Layers made inside `forward` are worse still, with new random weights at every call.
#
# **What it keeps must not cost memory.** You will want to look at the weights afterwards, so the
# module stores them as `self.attention_weights`. A tensor that carries its graph keeps every
# intermediate of the call alive, the feature cube included. Store `weights.detach()`.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(2)
scores = torch.randn(1, 2, 3, generator=generator, requires_grad=True)
weights = torch.softmax(scores, dim=-1)
print("weights:         ", weights.grad_fn.name())
print("weights.detach():", weights.detach().grad_fn)
assert weights.detach().grad_fn is None
assert torch.equal(weights.detach(), weights)

# %% [markdown]
# **Dropout acts on the weights, in train mode only.** It sets each weight to 0 with probability
# $p$ and divides the kept ones by $1 - p$, so that the expected output is the one of eval mode. A
# query then learns not to depend on a single key.
#
# **Predict.** Dropout on the *scores* instead, before the softmax: what becomes of a dropped key?
#
# <details><summary>Answer</summary>
#
# Its score becomes 0, and $e^0 = 1$: the key keeps a weight. With low scores around it, it may
# even win. As with masks in lesson 02, a score of 0 is not "nothing".
#
# </details>
#
# The cell drops weights of 1/4 with probability 1/2. **Predict.** What are the entries that stay?

# %% tags=["demo"]
torch.manual_seed(0)
drop = nn.Dropout(0.5)
weights = torch.full((3, 4), 0.25)
dropped = drop(weights)
assert set(dropped.unique().tolist()) == {0.0, 0.5}
average = torch.stack([drop(weights) for _ in range(4000)]).mean(dim=0)
print("values after dropout:", sorted(set(dropped.flatten().tolist())))
print(f"average of 4000 calls: {average.mean():.2f}")
assert torch.allclose(average, weights, atol=0.05)
assert torch.equal(drop.eval()(weights), weights)

# %% [markdown]
# <details><summary>Answer</summary>
#
# $0.25 / (1 - 0.5) = 0.5$. Rows no longer sum to 1; the average over many calls is 0.25 again.
#
# </details>
#
# Since rows after dropout no longer sum to 1, the weights worth looking at are those *before* it.
# `self.attention_weights` holds them: after the softmax, before dropout, detached.
#
# **Masks must arrive.** Accepting `mask` and not passing it on is a mistake no test on unpadded
# data can see. The lengths and the mask go to `masked_softmax`, both, also when they are None.

# %% [markdown]
# ### Exercise: `AdditiveAttention`
#
# - **`__init__(query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None)`** makes
#   the layers `W_q`, `W_k` and `w_v`, each an `nn.Linear` without bias; `w_v` has one output. As in
#   `torch.nn`, `device` and `dtype` set the device and the dtype of the weights. Pass both on to
#   each layer. The modules of later lessons do the same.
# - **`forward(queries, keys, values, valid_lens=None, mask=None)`** returns the averaged values,
#   shape `(B, n, value_size)`: additive scores, masked softmax, dropout on the weights in train
#   mode, average. With lengths and a mask, a key must be allowed by both; what is in the other
#   keys and values changes nothing, however large. A query that may see no key gets zeros, and
#   leaves all gradients finite. Every size may be 1.
# - **`self.attention_weights`** holds the weights of the module's own last call, in train and in
#   eval mode: before dropout, detached, `(B, n, m)`.
#
# The two functions `additive_scores` and `masked_softmax` are at hand. The weight of a layer is
# `self.W_q.weight`, shape `(H, query_size)`; `self.w_v.weight` has shape `(1, H)`.
#
# **Worked number.** One query $(1, 0)$ over two *equal* keys $(1)$ scores the same twice, whatever
# the layers hold. The weights are $(0.5, 0.5)$, and values 10 and 20 give 15.

# %%
from course_lib.attention import AdditiveAttention

# %%
check("AdditiveAttention")

# %% [markdown]
# ## 7. Into the translator
#
# *Does it matter how a query and a key are compared?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 2, 64), "keys": (1, 14, 64), "scores": (1, 2, 14)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# Lesson 00's translator compares words with letters by dot products. Take that out and put *your* module
# in: the words' vectors are its queries, the letters' vectors its keys. All else stays as it was
# trained, and is frozen. What learns are `W_q`, `W_k` and `w_v`, 4,128 numbers.
#
# **Predict.** How many of the numerals from 1 to 99 does it translate before it has learned anything?
# And after 150 steps?


# %% tags=["demo"]
class Exchanged(nn.Module):
    """The translator's attention, with another way to compare."""

    def __init__(self, old, attention):
        super().__init__()
        self.attention, self.W_o = attention, old.out_proj
        self.w_v = old.in_proj_weight.chunk(3)[2]
        self.b_v = old.in_proj_bias.chunk(3)[2]

    def forward(self, words, letters, valid_lens):
        values = F.linear(letters, self.w_v, self.b_v)  # as before
        outputs = self.attention(words, letters, values, valid_lens)
        self.attention_weights = self.attention.attention_weights
        return self.W_o(outputs)


# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()
model = trained_translator(numerals).requires_grad_(False)
torch.manual_seed(0)
attention = AdditiveAttention(query_size=64, key_size=64, num_hiddens=32)
model.decoder.cross_attention = Exchanged(model.decoder.cross_attention, attention)


def num_right():
    said = {n: " ".join(translate(model, numerals, n)[0]) for n in range(1, 100)}
    return sum(said[n] == english(n) for n in said)


before = num_right()
losses = train_translator(model, numerals, 150, max_lr=0.01)
after = num_right()
print(f"right before: {before} of 99, after: {after} of 99")
words, weights = translate(model, numerals, "dreiundvierzig")
largest = attention.w_v.weight.abs().sum().item()
print(" ".join(words), f"- no score is larger than {largest:.1f}")
assert before < 40 and after > 80
plotting.show(plotting.attention(weights, words, "dreiundvierzig"))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# About ten before: words look anywhere, and a random letter seldom helps. More than 90 after, though
# not one letter, word or value has changed. All that was learned is *where to look*: *forty* mostly in
# *vierzig*, *three* mostly before it. The map is softer than the dot product's, because the scores
# are bounded. Lesson 09 trains both ways of comparing from the start.
#
# </details>

# %% [markdown]
# ### All together
#
# The last check puts *your* `additive_scores` and *your* `AdditiveAttention` side by side and
# checks the module again. It needs the checks above to have seen your cells in this session.

# %%
check("04_additive_attention")

# %% [markdown]
# ### Written question: three requests
#
# Three colleagues ask which score to use, additive or dot product (projected to a common size by
# learned layers if need be). Answer each in two or three sentences, with a number where one
# decides.
#
# 1. A translator: sentences of 30 words, states of size 1024 in the encoder and 512 in the
#    decoder, $B = 32$, $H = 256$.
# 2. A reader of long documents: $n = m = 20\,000$, $B = 8$, $H = 512$, one GPU with 80 GB.
# 3. A student who wants to save time: "I drop the tanh, then I need no cube, because
#    $w_v^\top W_q q_i$ and $w_v^\top W_k k_j$ can be computed apart."

# %% [markdown] written="three_requests"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each request; half points are possible.
#
# 1. **Either is fine; the reasons count.** The cube has $32 \cdot 30 \cdot 30 \cdot 256$ entries,
#    29.5 MB in float32, which is no obstacle; different sizes suit the additive score directly,
#    while the dot product needs a projection of one side. (Half a point for a choice without the
#    number.)
# 2. **Dot product.** The cube would take $8 \cdot 20000^2 \cdot 512 \cdot 4$ bytes, about 6.6 TB.
#    Even the scores take $8 \cdot 20000^2 \cdot 4$ bytes = 12.8 GB, so it is wise to work in
#    blocks of queries. An additive score in blocks is right but slow, and training would have to
#    recompute the features; half a point if only the scores' size is counted.
# 3. **The saving is real, and the result is useless as attention.** The query's part is a
#    constant of the row; the softmax cancels it; all queries get the same weights. Half a point
#    for "it becomes linear" without the consequence for the weights.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# An additive score is a small network that reads a query and a key: project both to $H$ features,
# add, tanh, weighted sum. It takes any sizes, and it is bounded by its own weights. One
# broadcast addition does all pairs and makes a cube of $B\,n\,m\,H$ numbers, $H$ times what the
# scores need. The tanh has to come after the addition: without it a softmax cancels the query.
# As a module it registers its layers, passes lengths and mask on, drops weights in train mode
# only, and keeps them detached, as they were before dropout.

# %% [markdown]
# ## Further exercises ★
#
# 1. **In blocks.** Write `additive_scores` so that at most a given number of bytes exists at
#    once. What does `torch.utils.checkpoint` add for training?
# 2. **Another nonlinearity.** Replace tanh by relu in section 3's training. Does it learn? What bounds the
#    scores now?
# 3. **One feature.** With $H = 1$, which keys can a query prefer? Show that all queries order the
#    keys in the same way.
# 4. **A bias.** Show that a constant entry in the query replaces the biases of both `W_q` and
#    `W_k`. Why would a bias in `w_v` change nothing?
# 5. **Concatenation.** Show that $W_q q + W_k k$ is one matrix times the vector $(q, k)$. Why is
#    it cheaper to project first and add afterwards?

# %% [markdown]
# ## References
#
# - D. Bahdanau, K. Cho and Y. Bengio, *Neural Machine Translation by Jointly Learning to Align and
#   Translate*, ICLR 2015, section 3 and appendix A.1.2: the additive score.
#   <https://arxiv.org/abs/1409.0473>
# - T. Luong, H. Pham and C. Manning, *Effective Approaches to Attention-based Neural Machine
#   Translation*, EMNLP 2015, section 3.1: dot, general and concat compared.
#   <https://arxiv.org/abs/1508.04025>
# - A. Vaswani and others, *Attention Is All You Need*, 2017, section 3.2.1: why the dot product is
#   faster. <https://arxiv.org/abs/1706.03762>
# - N. Srivastava and others, *Dropout: A Simple Way to Prevent Neural Networks from Overfitting*,
#   JMLR 15, 2014. <https://jmlr.org/papers/v15/srivastava14a.html>
# - PyTorch, `nn.Module`: what registers a parameter.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html>
