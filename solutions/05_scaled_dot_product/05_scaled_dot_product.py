# %% [markdown]
# # 05 · Scaled dot-product attention
#
# **The question.** In lesson 03, you ran the translator on your own attention, and its map became
# sharper. The translator's own attention divides every score by 8, the square root of $d = 64$. The
# Transformer of 2017 and most models after it also divide by $\sqrt{d}$. Why that number, and what
# breaks without it?
#
# **After this you can**
#
# - derive $1/\sqrt{d}$ from the variance of a dot product;
# - recognize a saturated softmax, and say what it does to learning;
# - say why queries and keys are projections;
# - write scaled dot-product attention for any number of leading axes, compare it with PyTorch's,
#   and run the translator on it;
# - tell self-attention from cross-attention.
#
# **Time:** {time}. **You need:** lesson 02 (`masked_softmax`), the batched products of lesson 03,
# and the module of lesson 04.

# %%
import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import (
    cross_attention_inputs,
    translate_batch,
    use_attention,
    use_module,
)

masked_softmax = carry_on("masked_softmax")

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)
np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# ## 1. A dot product as a score
#
# *How similar are a query and a key, in one number?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4), "keys": (3, 4), "scores": (1, 3)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes), key="dot product")

# %% [markdown]
# The score of a query and a key is their dot product, $q \cdot k = \sum_{c=1}^{d} q_c k_c$, divided
# by $\sqrt{d}$. For all queries and keys at once, the scores are one matrix product, divided by
# $\sqrt{d}$:
#
# $$S = \frac{Q K^\top}{\sqrt{d}}, \qquad W = \operatorname{softmax}(S), \qquad O = W V.$$
#
# The queries $Q$ have the shape `(..., n, d)`, the keys $K$ `(..., m, d)` and the values $V$
# `(..., m, v)`. The softmax runs over the keys, so each row of $W$ sums to 1.

# %% [markdown]
# **By hand.** Take $d = 4$, one query $q = (2, 0, 0, 0)$, and three keys
# $k_1 = (\ln 4, 0, 0, 0)$, $k_2 = (\ln 2, 7, 0, 0)$, $k_3 = (0, 0, 5, 5)$.
#
# The products are $2 \ln 4, 2 \ln 2, 0$. Divided by $\sqrt{4} = 2$ they are
# $\ln 4, \ln 2, 0$, whose exponentials are $4, 2, 1$. The weights are $(4/7, 2/7, 1/7)$. The 7 and
# the 5s are multiplied by zeros of the query and have no effect.

# %% [markdown]
# ### Drag a query
#
# With $d = 2$, queries and keys are arrows in a plane, and
# $q \cdot k = \lVert q \rVert \, \lVert k \rVert \cos\theta$.
#
# The figure shows a query, four keys and their values. Your `masked_softmax` computes the weights
# for every position of the query. The diamond is the output, the average of the values with these
# weights.
#
# In each small plane, the scores are multiplied by the number shown. Choose 0, then 8.


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
    ),
    key="sharper regions",
)
assert torch.allclose(torch.tensor(plane_values).mean(dim=0), torch.tensor([-0.15, -0.35]))
assert (torch.tensor(plane_keys) @ torch.tensor([1.5, 0.45])).argmax() == 1  # along k1, k2 wins
assert round(math.dist((0, 0), plane_keys[1]) / math.dist((0, 0), plane_keys[0]), 1) == 1.9

# %% [markdown]
# With a factor of 0, all scores are equal, so the output is the mean of the four values,
# $(-0.15, -0.35)$, near the center, wherever the query is. With a factor of 8, one key has nearly
# all of the weight, and the diamond is at its value. As you drag, the diamond then jumps from one
# value to the next.
#
# Now drag the tip of the query along `k1`, the shortest key. `k2` gets a larger weight although it
# points in a different direction, because it is 1.9 times as long.

# %% [markdown]
# ### Why queries and keys are projections
#
# In a model, queries and keys are *projections*: $q = W_q x$ and $k = W_k x'$, with two learned
# matrices. Why not compare the vectors $x$ and $x'$ themselves?
#
# The next cell computes two tables of scores between the letters of *dreiundvierzig*, from the
# translator's vectors. The first uses no projection. The second projects the vectors to queries and
# keys with two random matrices. The *asymmetry* is 0 if letter $i$ scores letter $j$ exactly as $j$
# scores $i$.
#
# **Predict.** Without projections, a letter's score with itself is $x \cdot x$, a sum of squares.
# Is this score the highest for about 8, 11 or all 14 letters?

# %% tags=["demo"]
numerals = Numerals()
model = trained_translator(numerals).to(device)
inputs_of = cross_attention_inputs(model, numerals, [3, 13, 43])  # drei, dreizehn, dreiundvierzig
letters = inputs_of.characters[2]  # (14, 64)
plain = letters @ letters.mT
torch.manual_seed(0)
W_q, W_k = torch.randn(2, 64, 64).to(device) / 8
projected = (letters @ W_q.mT) @ (letters @ W_k.mT).mT
for name, scores in {"without projections": plain, "projected": projected}.items():
    with_itself = int((scores.cpu().argmax(dim=-1) == torch.arange(14)).sum())
    difference = (scores - scores.mT).abs().max() / scores.abs().max()
    print(f"{name:20} best match is itself: {with_itself:2} of 14, asymmetry {difference:.2f}")
    assert (difference < 1e-5) == (name == "without projections")
assert (plain.cpu().argmax(dim=-1) == torch.arange(14)).sum() == 8

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is the highest for 8 of the 14. A longer vector can score higher. The first table is symmetric,
# because $x \cdot x' = x' \cdot x$. With projections, the score is
#
# $$q \cdot k = x^\top W_q^\top W_k\, x'.$$
#
# Two different projections break the symmetry, even if they are random. Training then chooses the
# features by which queries and keys are compared ($W_q$, $W_k$), and those that a letter passes on
# ($W_v$).
#
# </details>

# %% [markdown]
# ## 2. How large is a dot product?
#
# *Why divide at all?*

# %% [markdown]
# Take $q$ and $k$ with independent entries of mean 0 and variance 1. Each product $q_c k_c$ has
# mean 0 and variance $E[q_c^2]\,E[k_c^2] = 1$. Variances of independent terms add up:
#
# $$\operatorname{Var}(q \cdot k) = \sum_{c=1}^{d} \operatorname{Var}(q_c k_c) = d.$$
#
# So the magnitude of a typical score is $\sqrt{d}$, about 2 for $d = 4$ and about 16 for $d = 256$.
# Dividing a random variable by $c$ divides its variance by $c^2$, so
#
# $$\operatorname{Var}\Bigl(\frac{q \cdot k}{\sqrt{d}}\Bigr) = \frac{d}{d} = 1.$$
#
# If you divide by $d = 64$ instead, the variance is $64 / 64^2 = 1/64$. The scores are nearly
# equal, and the weights nearly uniform.

# %% [markdown]
# ### Exercise: `score_variance`
#
# - **Takes** `d`, `num_samples`, `scaled` and `generator`, a `torch.Generator`. Draw all random
#   numbers from it.
# - **Returns** the variance of $q \cdot k$ (of $q \cdot k / \sqrt{d}$ if `scaled`) over
#   `num_samples` independent pairs of standard normal vectors, as a Python `float`.
#
# You may divide the sum of squared deviations by `num_samples` or by `num_samples - 1`.
#
# **Worked example.** With `d=4` and `num_samples=2000`, the result is near 4, and near 1 if scaled.

# %%
from course_lib.attention import score_variance

# %%
check("score_variance")

# %% [markdown]
# The next cell plots both variances for $d$ from 1 to 256, on logarithmic axes.

# %% tags=["demo"]
sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
measured = {
    name: [score_variance(d, 4000, scaled, torch.Generator().manual_seed(d)) for d in sizes]
    for name, scaled in (("q·k", False), ("q·k/√d", True))
}
figure = plotting.lines(
    sizes, measured, x_label="features d", y_label="variance of a score", log_x=True, log_y=True
)
plotting.show(figure, key="variance")
assert np.allclose(measured["q·k"], sizes, rtol=0.25)
assert np.allclose(measured["q·k/√d"], 1, atol=0.25)

# %% [markdown]
# Without scaling, the variance rises with $d$ along a straight line. With scaling, it stays flat at
# 1.

# %% [markdown]
# ## 3. Saturation
#
# *What is wrong with large scores?*

# %% [markdown]
# A softmax turns differences of scores into ratios of weights. A lead of 1 in score means a factor
# of $e \approx 2.7$ in weight, and a lead of 16 means nine million. If one key gets nearly all the
# weight, the softmax is *saturated*.
#
# For each $d$, the next cell draws 400 random queries with 10 random keys each, and plots the mean
# of the largest weight. An even split would be 0.1.
#
# **Predict.** With scaling, is this mean about 0.1, 0.2 or 0.3 at $d = 1024$?

# %% tags=["demo"]
sizes = [1, 4, 16, 64, 256, 1024]
largest = {"softmax(q·k)": [], "softmax(q·k/√d)": []}
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
plotting.show(figure, key="largest weight")
for name, means in largest.items():
    print(f"d = 1024, {name:24} mean largest weight {means[-1]:.2f}")
assert largest["softmax(q·k)"][-1] > 0.9
assert 8.8e6 < math.exp(16) < 9e6
assert min(largest["softmax(q·k/√d)"]) > 0.25
assert max(largest["softmax(q·k/√d)"]) < 0.4

# %% [markdown]
# <details><summary>Answer</summary>
#
# With scaling, the mean is 0.32, and about the same for every $d$. Without scaling, it is 0.96 at
# $d = 1024$, because one key takes nearly all the weight.
#
# </details>
#
# The next figure multiplies a row of four scores by a factor. It shows the weights on the left, and
# the derivative of each weight with respect to each score on the right. Move the slider to 16.


# %% tags=["demo"]
def draw_saturation(scores_times):
    return plotting.saturation([1.0, 0.5, 0.0, -1.0], scores_times)


factors = [0, 0.25, 0.5, 1, 2, 4, 8, 16]
start = {"scores_times": 1}
plotting.interactive(draw_saturation, start=start, scores_times=factors, key="saturation")
sharp = torch.softmax(16 * torch.tensor([1.0, 0.5, 0.0, -1.0]), dim=0)
assert sharp.max() > 0.999
assert (torch.diag(sharp) - torch.outer(sharp, sharp)).abs().max() < 0.001

# %% [markdown]
# One bar has nearly all the weight, and the right side is blank. The derivatives $w_j (1 - w_j)$
# and $-w_j w_k$ (lesson 02) are all nearly 0. If that bar belongs to the wrong key, the gradient is
# too small to correct the mistake quickly.
#
# Dividing the scores by $T$ is the same as multiplying them by $1/T$, and $T$ is called the
# *temperature*. A saturated softmax is not bad in itself. A model that has solved its task is often
# saturated too, on the *correct* keys. The problem is a fresh model that starts saturated on
# arbitrary keys.

# %% [markdown]
# ### Training with and without the divisor
#
# The task is to read eight letters backwards, *dreizehn* as *nhezierd*. The query at position $i$
# has to find the key at position $7 - i$. Letters and positions are fixed random vectors of width
# $d$. Random words train only $W_q$, $W_k$ and a final linear layer that predicts the letter.


# %% tags=["demo"]
class Backwards(nn.Module):
    """A single attention layer that learns to read eight letters backwards."""

    def __init__(self, d, divisor):
        super().__init__()
        self.register_buffer("letters", torch.randn(22, d))  # moves with the model
        self.register_buffer("positions", torch.randn(8, d))
        self.W_q, self.W_k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.name, self.divisor = nn.Linear(d, 22), divisor

    def forward(self, ids):  # (batch, 8) -> (batch, 8, 22)
        x = (self.letters[ids] + self.positions) / math.sqrt(2)  # variance 1
        self.queries, self.values = self.W_q(x), x.clone().requires_grad_()
        self.scores = self.queries @ self.W_k(x).mT / self.divisor
        return self.name(torch.softmax(self.scores, dim=-1) @ self.values)


def loss_of(model, ids, reduction="mean"):
    ids = ids.to(device)
    return F.cross_entropy(model(ids).flatten(0, 1), ids.flip(1).flatten(), reduction=reduction)


def read_backwards(d, divisor, learning_rate, seed, num_steps=60):
    """Train a model. Return its losses and its reading of *dreizehn*."""
    torch.manual_seed(seed)
    model = Backwards(d, divisor).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    losses = []
    for _ in range(num_steps):
        loss = loss_of(model, torch.randint(22, (32, 8)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    read = model(numerals.source_ids("dreizehn")[None].to(device))[0].argmax(dim=-1)
    return losses, "".join(numerals.source.words(read))


# %% [markdown]
# The next cell trains three models of width 512 for each divisor, for 60 steps, and plots their
# mean loss. It also trains models of width 32.
#
# **Predict.** At width 512, does the mean loss fall below 0.1 only with $\sqrt{d}$, with $\sqrt{d}$
# and $d$, or with all three divisors?

# %% tags=["demo", "nbval-ignore-output"]
final = {}
for d, learning_rate in ((32, 0.01), (512, 0.001)):
    curves = {}
    for label, divisor in (("√d", math.sqrt(d)), ("1", 1.0), ("d", d)):
        runs = [read_backwards(d, divisor, learning_rate, seed) for seed in range(3)]
        curves[f"divided by {label}"] = np.mean([losses for losses, _ in runs], axis=0)
        final[d, label] = [np.mean(losses[-5:]) for losses, _ in runs]
        read = [f"{loss:.2f} {run[1]}" for loss, run in zip(final[d, label], runs, strict=True)]
        print(f"d = {d:3}, divided by {label:8}", *read, sep="  ")
figure = plotting.lines(range(60), curves, x_label=f"step (d = {d})", y_label="loss")
plotting.show(figure, key="divisors")
assert max(final[512, "√d"] + final[512, "d"]) < 0.1
assert min(curves["divided by 1"]) > 0.3 and max(final[512, "d"]) < min(final[512, "√d"])
assert max(final[32, "√d"] + final[32, "1"] + final[32, "d"]) < 0.25

# %% [markdown]
# <details><summary>Answer</summary>
#
# It falls below 0.1 with $\sqrt{d}$ and $d$. With $d$, the loss falls later but ends lower than
# with $\sqrt{d}$, at about 0.004 instead of 0.01. Without a divisor, the mean loss stays far above
# 0.1, and the models read some letters wrong. At width 32, it ends at about 0.1 with each divisor.
#
# </details>
#
# So $\sqrt{d}$ is not the only divisor that works. But it makes the *start* of training independent
# of $d$. At the start, the scores do not have variance 1, though. `nn.Linear` starts with weights
# of variance $1/(3d)$, so the entries of queries and keys have variance 1/3, and the scores about
# 1/9, whatever the width. Scores divided by $d$ vanish as $d$ grows, and undivided scores grow with
# $d$.

# %% [markdown]
# ### What the gradients look like ★
#
# **Predict.** Which divisor gives the *queries* the largest gradient, relative to that of the
# values, in a fresh model of width 512?

# %% tags=["demo", "nbval-ignore-output"]
limits = torch.tensor([0.01, 0.1, 1.0])
panels = {"gradient of a query's scores": {}, "gradient of a query, relative to the values": {}}
for label, divisor in (("√d", math.sqrt(512)), ("1", 1.0), ("d", 512)):
    torch.manual_seed(0)
    model_at_start = Backwards(512, divisor).to(device)
    loss = loss_of(model_at_start, torch.randint(22, (32, 8)), reduction="sum")
    wanted = model_at_start.scores, model_at_start.queries, model_at_start.values
    of_scores, of_queries, of_values = torch.autograd.grad(loss, wanted)
    largest_weight = torch.softmax(model_at_start.scores, dim=-1).amax(dim=-1).mean().item()
    variance = model_at_start.scores.var().item()
    print(f"divided by {label:8} variance of the scores {variance:.3f}", end=", ")
    print(f"mean largest weight {largest_weight:.2f}")
    sizes = of_scores.norm(dim=-1), of_queries.norm(dim=-1) / of_values.norm(dim=-1).mean()
    for panel, size in zip(panels.values(), sizes, strict=True):  # size: (32, 8)
        counts = torch.bucketize(size.flatten().cpu(), limits).bincount(minlength=4)
        panel[f"divisor {label}"] = 100 * counts / counts.sum()
    assert label != "√d" or abs(variance - 1 / 9) < 0.03
    best, second = model_at_start.scores.topk(2).values.unbind(dim=-1)
    lead = best - second
    assert label != "1" or lead[sizes[1] > 1].median() < 0.5 * lead.median()
ticks = ["at most 0.01", "up to 0.1", "up to 1", "above 1"]
axes = {"x_label": "norm of the gradient", "y_label": "% of the queries"}
plotting.show(plotting.bars(panels, **axes, ticks=ticks), key="gradients")
small, large = panels.values()
one, root, whole = "divisor 1", "divisor √d", "divisor d"
assert small[one][0] > 30 > 2 > small[root][0] and large[one][0] > 15 > 5 > large[root][0]
assert small[whole][0] < 2 and large[whole][:2].sum() > 95
assert large[one][3] > 30 > 10 > large[root][3]

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is the divisor 1. Its softmax is saturated, so for nearly half of the queries, the gradient of
# the scores is below 0.01. But the gradient of the queries themselves lacks the factor $1/\sqrt{d}$
# of the chain rule. Queries that are still undecided between keys get the *largest* gradients. A
# query that has settled on the wrong key gets next to none. Dividing by $d$ does the opposite.
# Every query gets a gradient, but a small one. Adam, which divides each gradient by its recent
# magnitude, can make up for that.
#
# </details>
#
# Training without a divisor also works, with a smaller learning rate and more steps. Try
# `read_backwards(512, 1, 0.0003, seed=0, num_steps=200)`.

# %% [markdown]
# ## 4. Batches, heads and masks
#
# *What changes when there are batches, heads and lengths?*

# %% [markdown]
# The formula stays the same. Batches and heads are extra leading axes, as in lesson 03, and your
# `masked_softmax` handles lengths, masks and empty rows.

# %% [markdown]
# ### Exercise: `scaled_dot_product_attention`
#
# - **Takes** `queries` `(..., n, d)`, `keys` `(..., m, d)` and `values` `(..., m, v)` with the same
#   leading axes, if any.
# - **Optional:** `valid_lens` of shape `(B,)` or `(B, n)`, where `B` is the first axis (all heads
#   of an item share its lengths), and `mask`, bool, broadcastable to `(..., n, m)`.
# - **Returns** `outputs` `(..., n, v)` and `attention_weights` `(..., n, m)`.
# - A query with no allowed key gets zeros in both, and zero gradients. As long as they are finite,
#   masked keys and values must not change the result. Large scores must not overflow.
#
# Use `masked_softmax` from lesson 02. Do not call `F.scaled_dot_product_attention`.
#
# **Worked example.** `queries = [[[2, 0, 0, 0]]]`, `keys = [[[1, 0, 0, 0], [0, 0, 0, 0]]]` and
# `values = [[[10], [0]]]` give the scores 1 and 0, the weights 0.731 and 0.269, and the output
# 7.31. With `valid_lens = [1]` the output is 10.

# %%
from course_lib.attention import scaled_dot_product_attention

# %%
check("scaled_dot_product_attention")

# %% [markdown]
# ### Self-attention and cross-attention
#
# In *self-attention*, the queries, keys and values are three projections of **one** sequence, so
# $n = m$. In *cross-attention*, the queries come from one sequence, and the keys and values come
# from another. The function is the same.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(3)
text, source = (torch.randn(1, size, 8, generator=generator) for size in (4, 5))
W_q, W_k, W_v = (torch.randn(8, 8, generator=generator) / math.sqrt(8) for _ in range(3))
causal = torch.ones(4, 4, dtype=torch.bool).tril()
_, itself = scaled_dot_product_attention(text @ W_q, text @ W_k, text @ W_v)
_, past = scaled_dot_product_attention(text @ W_q, text @ W_k, text @ W_v, mask=causal)
_, across = scaled_dot_product_attention(text[:, :3] @ W_q, source @ W_k, source @ W_v)
panels = {"self": itself[0], "self, causal": past[0], "cross": across[0]}
figure = plotting.heatmap_grid(panels, masks={"self, causal": causal})
plotting.show(figure, key="self and cross")
assert across.shape == (1, 3, 5)
assert not past[0].triu(1).any()

# %% [markdown]
# ### The translator's own map ★
#
# The next cell gives your function the translator's queries, keys, values and lengths. It also
# multiplies the queries by 8, which undoes the divisor, and by 1/8, which amounts to dividing by
# $d$. It translates 1 to 99 in all three cases.
#
# **Predict.** Lesson 03 left out the divisor. If scores are divided by $d$ instead, are about 60,
# 80 or 99 of the 99 translations correct?


# %% tags=["demo", "nbval-ignore-output"]
def divided(factor):
    def attend(queries, keys, values, valid_lens):
        return scaled_dot_product_attention(factor * queries, keys, values, valid_lens)

    return attend


taken = cross_attention_inputs(model, numerals, [3, 47])
trained_map = model.maps
maps, correct = {}, {}
for name, factor in (("√d", 1), ("1", 8), ("d", 1 / 8)):
    inputs = taken.queries, taken.keys, taken.values, taken.valid_lens
    maps[name] = divided(factor)(*inputs)[1]
    use_attention(model, divided(factor))
    translations = translate_batch(model, numerals, range(1, 100))
    correct[name] = sum(translations[number - 1] == english(number) for number in range(1, 100))
    print(f"divided by {name:8}{correct[name]} of 99 correct,", end=" ")
    print(f"largest weight of seven {maps[name][1, 1].max():.2f}")
apart = (maps["√d"] - trained_map).abs().max()
print(f"divided by √d: at most {apart:.2f} from the translator's map")
for name in ("1", "d"):
    most = maps[name][1, 1].max()
    title = f"Divided by {name}, seven gives one letter at most {most:.2f} of its weight"
    plotting.show(
        plotting.attention(maps[name][1], ["forty", "seven"], "siebenundvierzig", title=title)
    )
assert apart < 1e-4 and correct["√d"] == 99
assert correct["1"] == 99 and 52 < correct["d"] < 68
largest_of_seven = {name: weights[1, 1].max() for name, weights in maps.items()}
assert largest_of_seven["1"] > 0.85 and largest_of_seven["d"] < 0.2
assert 0.35 < largest_of_seven["√d"] < 0.5 and maps["1"][1, 1, :6].sum() > 0.9

# %% [markdown]
# <details><summary>Answer</summary>
#
# In our run, 60 are correct. Dividing by $d$ spreads the weights over the numeral. Without a
# divisor, one letter of *sieben* gets most of the weight of *seven*, but all 99 translations are
# correct. Saturation shrinks gradients, which does no harm here, because this cell trains nothing.
# With $\sqrt{d}$, your function computes the translator's own map, up to rounding.
#
# </details>

# %% [markdown]
# ### Comparison with PyTorch ★
#
# `F.scaled_dot_product_attention` returns only the outputs, because some of its backends never
# store the weights (lesson 08). PyTorch's masks have other names, and some have the opposite
# meaning:
#
# | this course | `F.scaled_dot_product_attention` | `nn.MultiheadAttention` |
# |---|---|---|
# | `mask`, True = may attend | `attn_mask`, True = may attend | `attn_mask`, True = ignore |
# | `valid_lens` | part of `attn_mask` | `key_padding_mask`, `(B, m)`, True = ignore |
# | `mask=causal_mask(n, m)`, last query and last key aligned | `is_causal=True`, first query and first key aligned | `attn_mask`; `is_causal` is only a hint |

# %% tags=["demo"]
generator = torch.Generator().manual_seed(5)
queries, keys, values = (torch.randn(2, size, 3, generator=generator) for size in (4, 5, 5))
mask = torch.rand(2, 4, 5, generator=generator) < 0.6
mask[0, 0] = False  # an empty row, to compare that too
ours, _ = scaled_dot_product_attention(queries, keys, values, mask=mask)
theirs = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
assert torch.allclose(ours, theirs, atol=1e-6)
print(f"with a mask: at most {(ours - theirs).abs().max():.4f} apart")

# %% [markdown]
# ### Exercise: `DotProductAttention`
#
# - **`forward`** takes the arguments of `scaled_dot_product_attention` and returns only the
#   outputs. It stores the weights of the call, before dropout, in `self.attention_weights`,
#   detached.
# - Dropout acts on the weights, in train mode only.
# - The module has no parameters.
#
# **Worked example.** With `dropout=0.5`, in eval mode, the inputs of the worked example of
# `scaled_dot_product_attention` again give 7.31.

# %%
from course_lib.attention import DotProductAttention

# %%
check("DotProductAttention")

# %% [markdown]
# ### Your module in the translator
#
# The next cell makes the translator compute its cross-attention with your module. The batch
# contains 1 to 99 and 7777, a much longer numeral, so your module masks the padding of the shorter
# ones.
#
# **Predict.** If half of the weights are dropped, in train mode, are about 40, 60 or 80 of the
# numbers from 1 to 99 translated correctly?

# %% tags=["demo", "nbval-ignore-output"]
attention = DotProductAttention(dropout=0.5)
use_module(model, attention)
torch.manual_seed(0)
correct = {}
for mode in ("eval", "train"):
    attention.train(mode == "train")
    translations = translate_batch(model, numerals, [*range(1, 100), 7777])
    correct[mode] = sum(translations[number - 1] == english(number) for number in range(1, 100))
    print(f"{mode} mode: {correct[mode]} of 99 correct")
assert correct["eval"] == 99 and 26 < correct["train"] < 49

# %% [markdown]
# <details><summary>Answer</summary>
#
# In train mode, only 38 of 99 are correct in our run (28 to 43 with other seeds), because dropout
# also removes weights that a word needs. All 99 are correct in eval mode. So call `model.eval()`
# before you use a model.
#
# </details>

# %% [markdown]
# ### All together
#
# This check combines *your* `scaled_dot_product_attention` and `DotProductAttention`, and tests
# the module again.

# %%
check("05_scaled_dot_product")

# %% [markdown]
# ### Written question: the same model, wider
#
# A team trains attention with $d = 8$ and no scaling. It works. They increase $d$ to 512, and the
# loss hardly falls. One of them proposes to divide the scores by $d$, another to raise the learning
# rate a hundredfold.
#
# In five to eight sentences, explain why training worked before and fails now. What would each
# proposal do at the start of training? What would you do, and how could you check, before training
# for hours, that it helps?

# %% [markdown] written="scale_and_learning"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part. Half points are possible.
#
# 1. **Why.** With features of variance 1 the scores have a standard deviation of $\sqrt{d}$: about
#    2.8 before, about 23 now. (Fresh `nn.Linear` layers give $\sqrt{d}/3$, about 0.9 and 7.5. What
#    counts is the factor of 8.) The softmax is saturated, each query takes one
#    arbitrary key, and a query that has settled on a wrong key gets next to no gradient through the
#    softmax. (Half a point for "scores get larger" without the consequence for learning.)
# 2. **The proposals.** Dividing by $d$ gives the scores a standard deviation of
#    $1/\sqrt{512} \approx 0.04$ at most. The weights are nearly uniform, and every query sees the
#    mean of the values. The model can learn from there (it does in section 3, after a slower
#    start). A higher learning rate does not help a query whose gradient is 0, and makes all other
#    updates far too large. A *lower* rate would help, with more steps.
# 3. **Remedy and check.** Divide by $\sqrt{d}$. Before training, measure the variance of the scores
#    (near 1 for features of variance 1, near 1/9 after fresh `nn.Linear` layers, and the same for
#    every width), the largest weight or the entropy of the rows (neither uniform nor one-hot), or
#    the gradient of the *scores*, as a median over the rows. One of these, with the expected
#    outcome, is enough. The norm of the gradient of the queries is not a check: without the divisor
#    it is larger, because a few undecided queries dominate it.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# Projections let a model choose the features by which queries and keys are compared. The dot
# product of two standard normal vectors has variance $d$. Divided by $\sqrt{d}$, it has variance 1.
# In this lesson's fresh models, the variance is about 1/9 at every width, so no width starts
# saturated. Without the divisor, a wide model starts saturated on arbitrary keys, and a query that
# has settled on a wrong key gets hardly any gradient.

# %% [markdown]
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017, section 3.2.1 and its footnote 4: the
#   variance argument. <https://arxiv.org/abs/1706.03762>
