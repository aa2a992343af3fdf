# %% [markdown]
# # 01 · Kernel pooling: attention before neural networks
#
# **The question.** A sensor was read at 40 irregular moments. What did it show in between? You
# have no model and no theory, only the readings. How do you *look up* an answer that nobody wrote
# down?
#
# **After this you can**
#
# - read any weighted average as queries, keys and values;
# - turn distances into weights that sum to 1 over the keys, and say what the bandwidth does;
# - explain why a point must not vote on its own prediction, and build that first mask;
# - learn the bandwidth by gradient descent;
# - rewrite the Gaussian kernel as a dot product: the bridge to the attention of a Transformer.
#
# **Time:** about two hours. **You need:** broadcasting and indexing in PyTorch, and an idea of what
# a gradient is. This is where the course begins; nothing about attention is assumed.

# %% [markdown]
# **How a lesson works.** Each exercise has a cell for your code and, below it, a check. Run the
# check as often as you like: it says what it expected, and shows a small input on which your
# answer fails. Below the check a cell of its own holds a hint, in three levels; asking costs
# nothing. The cell after that carries on with your answer if it passed its check, and otherwise
# with the course's version, so that one unsolved exercise does not stop you; it says which.
#
# The points of an exercise have up to four parts: *values* (the numbers are right), *edges* (they
# still are in unusual cases, such as a single key or huge numbers), *gradients* (so is what flows
# back through your code) and *hygiene* (your code changes nothing it was not asked to change, and
# keeps dtype and device). How much each part counts depends on the exercise. An answer that is
# partly right earns part of the points, and its report lists them part by part.
#
# Questions marked *Predict* have the answer folded away. Commit to a guess before you open it:
# a wrong guess is what makes the answer stick.

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting

torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## Words and shapes

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(n, d)", "keys": "(m, d)", "values": "(m, v)", "outputs": "(n, v)"}
plotting.show(plotting.diagram("attention", shapes=shapes | {"attention weights": "(n, m)"}))

# %% [markdown]
# | word | what it is | here | shape |
# |---|---|---|---|
# | `queries` | what you ask | moments you want a value for | `(n, d)` |
# | `keys` | what you compare the question with | moments of the readings | `(m, d)` |
# | `values` | what you get back | the readings | `(m, v)` |
# | `attention_weights` | how much each key counts for each query | | `(n, m)` |
# | `outputs` | the answers | | `(n, v)` |
#
# There are `n` queries and `m` keys, each a row of `d` numbers; key $j$ and value $j$ belong
# together. A row of the weights belongs to a query, a column to a key, and **each row sums to 1**.
#
# Signatures name the axes too: `Float[Tensor, "num_queries d"]` is a floating tensor with one row
# for each query and `d` columns.

# %% [markdown]
# ## 1. A search that always has an answer
#
# *What does a dictionary do when the key you ask for is missing?*

# %% tags=["demo", "hide-input"]
shapes = {"attention weights": (3,), "values": (3,), "weighted sum": "one number"}
plotting.show(plotting.diagram("attention", lit="weighted sum", shapes=shapes))

# %% [markdown]
# It fails. A dictionary returns a value only for a key that *equals* the query. The next idea is
# to return the value of the *nearest* key. That always answers, and it jumps: between two readings
# the answer stays the same, and then flips.
#
# The third idea is to ask everyone, and to listen to near keys more:
#
# $$\text{output} = \sum_{j=1}^{m} w_j\, \text{value}_j, \qquad w_j \ge 0, \qquad \sum_{j=1}^{m} w_j = 1.$$
#
# **By hand.** Readings 10, 20 and 40 were taken at hours 0, 1 and 3. For hour 1.5 you trust them
# with weights 1/4, 1/2, 1/4. The output is $10/4 + 20/2 + 40/4 = 22.5$.

# %% tags=["demo"]
readings = {0.0: 10.0, 1.0: 20.0, 3.0: 40.0}
query = 1.5
try:
    print(readings[query])
except KeyError as missing:
    print("exact search  : KeyError", missing)

nearest = min(readings, key=lambda hour: abs(hour - query))
print("nearest key   :", readings[nearest])

weights = torch.tensor([0.25, 0.5, 0.25])
output = (weights * torch.tensor(list(readings.values()))).sum()
print("weighted search:", output.item())
assert readings[nearest] == 20
assert output == 22.5

# %% [markdown]
# This weighted search is *attention*: queries meet keys, the comparison gives weights, the weights
# average the values. A Transformer keeps these three steps. It compares by dot products (section 8),
# makes queries, keys and values out of its data with matrices that it learns, and runs many such
# searches side by side and in layers (lesson 06).
#
# **Predict.** You read: *attention searches the keys and returns the small segment that is most
# relevant to the query.* In the example the output is 22.5. Which reading, or which segment of
# the readings, has been returned?
#
# <details><summary>Answer</summary>
#
# None. 22.5 is not among the readings. Attention returns a *mixture* of all values, and each one
# with a positive weight takes part. The picture of a search is a good one if you add "soft": the
# result is an average, never an excerpt. Section 7 shows what that softness buys.
#
# </details>

# %% [markdown]
# Now the data of this lesson: 40 readings at irregular moments during six hours. The formula
# behind them is only there to make up the data; nothing below gets to see it.
#
# What you should see: a hump near hour 1, a dip near hour 3 and a rise after it, all with noise, and
# stretches with few readings.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
inputs = (6 * torch.rand(40, generator=generator)).sort().values  # hours, (m,)
noise = 0.6 * torch.randn(40, generator=generator)
targets = 2 * torch.sin(1.5 * inputs) + 0.5 * inputs + noise  # readings, (m,)
places = torch.linspace(0, 6, 241)  # where we will ask, (n,)


def nearest_reading(moments):
    return targets[(moments[:, None] - inputs[None, :]).abs().argmin(dim=1)]


plotting.show(
    plotting.kernel_fits(inputs, targets, places, {"nearest key": nearest_reading(places)})
)
assert nearest_reading(places).unique().numel() == 40  # flat between jumps

# %% [markdown]
# The nearest key gives a staircase that repeats all the noise. A weighted search should do
# better. It needs two things: how far every key is from every query, and a rule that turns
# distance into weight.

# %% [markdown]
# ## 2. How far is every key from every query?
#
# *There are $n$ queries and $m$ keys. How do you get all $n \cdot m$ distances in one go?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2, 2), "keys": (3, 2), "scores": (2, 3)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes))

# %% [markdown]
# For queries $q \in \mathbb{R}^{n \times d}$ and keys $k \in \mathbb{R}^{m \times d}$,
#
# $$D_{ij} = \lVert q_i - k_j \rVert^2 = \sum_{c=1}^{d} (q_{ic} - k_{jc})^2, \qquad D \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** From $(1, 2)$ to $(4, 6)$ it is $3^2 + 4^2 = 25$. Not 5: the *squared* distance is
# what the next section needs, so nobody takes a root.
#
# *Broadcasting* stretches axes of size 1. Give the queries an axis for the keys and the keys an
# axis for the queries, and every query meets every key:
#
# | tensor | shape |
# |---|---|
# | `queries[:, None, :]` | `(n, 1, d)` |
# | `keys[None, :, :]` | `(1, m, d)` |
# | their difference | `(n, m, d)` |

# %% [markdown]
# **Predict.** Someone writes `((queries - keys) ** 2).sum(-1)`, without new axes. What happens for
# 2 queries and 3 keys? What happens for 3 queries and 3 keys?
#
# <details><summary>Answer</summary>
#
# With 2 and 3, an error: the shapes do not fit. With 3 and 3 there is no error, and the result has
# shape `(3,)`: query $i$ has met key $i$ only. Equal sizes hide mistakes, so test with sizes that
# all differ.
#
# </details>

# %% tags=["demo"]
three, two = torch.zeros(3, 2), torch.ones(2, 2)
try:
    ((two - three) ** 2).sum(-1)
except RuntimeError as error:
    print("2 and 3 rows:", error)
same_size = ((three - torch.ones(3, 2)) ** 2).sum(-1)
print("3 and 3 rows: no error, shape", tuple(same_size.shape))
assert same_size.shape == (3,)

# %% [markdown]
# ### Exercise: `squared_distances`
#
# - **Takes** `queries` `(n, d)` and `keys` `(m, d)`.
# - **Returns** a tensor `(n, m)`: the squared Euclidean distance of every query to every key.
#   Gradients reach queries and keys; where a query equals a key, the gradient is 0.
# - Write it **without loops**: the check counts the steps, and right distances by a loop earn half
#   the points. Tiny negative results from rounding are no mistake.
#
# **Worked number.** For the query $(1, 2)$ and the keys $(4, 6)$ and $(1, 0)$ the result is
# `[[25, 4]]`, of shape `(1, 2)`.

# %%
from course_lib.attention import squared_distances

# %%
check("squared_distances")

# %% [markdown]
# ## 3. From distances to weights
#
# *Near keys should count more. How much more?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (1, 3), "mask": (1, 3), "softmax": (1, 3)}
plotting.show(plotting.diagram("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# A *kernel* says it. The Gaussian kernel of *bandwidth* $h > 0$ is $e^{-D/(2h^2)}$: 1 at distance
# 0, and falling fast beyond a few bandwidths. Dividing by the row's total makes weights of it:
#
# $$w_{ij} = \frac{e^{-D_{ij}/(2h^2)}}{\sum_{k=1}^{m} e^{-D_{ik}/(2h^2)}}, \qquad \text{outputs} = w\,\text{values},$$
#
# with $w \in \mathbb{R}^{n \times m}$ and outputs in $\mathbb{R}^{n \times v}$. The sum runs over
# the **keys**: a query shares its attention among them. Nadaraya and Watson proposed this average
# in 1964, and it is called *kernel pooling* here.
#
# **By hand.** Let $D/(2h^2)$ be $0$, $\ln 2$ and $\ln 4$. The kernels are $1, 1/2, 1/4$, their
# total is $7/4$, so the weights are $4/7, 2/7, 1/7$.

# %% tags=["demo"]
exponents = torch.tensor([[0.0, math.log(2), math.log(4)]])
kernel = torch.exp(-exponents)
by_division = kernel / kernel.sum(dim=1, keepdim=True)
by_softmax = torch.softmax(-exponents, dim=1)
print("kernel ", kernel)
print("weights", by_division)
assert torch.allclose(by_division, torch.tensor([[4.0, 2.0, 1.0]]) / 7)
assert torch.allclose(by_division, by_softmax)

# %% [markdown]
# "Exponentiate, then divide by the row's total" has a name: it is the *softmax* of the row. The
# numbers that go into a softmax are called *scores*, so the score of a key is $-D/(2h^2)$: never
# positive, and highest for the nearest key.
#
# **Predict.** The density of the normal distribution has a constant $1/(h\sqrt{2\pi})$ in front of
# that exponential. Where is it?
#
# <details><summary>Answer</summary>
#
# It stands in the numerator and in every term of the total, so it cancels. Whatever multiplies all
# kernels of a row, and whatever is added to all scores of a row, leaves the weights as they are.
# Section 8 makes use of that.
#
# </details>

# %% [markdown]
# ### A query far from everyone
#
# You ask for a moment four hours after the last reading, with $h = 0.25$. The nearest reading is
# far away, but it is still the nearest. Run the formula as it stands.

# %% tags=["demo"]
distances = squared_distances(inputs[-1:, None] + 4, inputs[:, None])  # (1, 40)
kernel = torch.exp(-distances / (2 * 0.25**2))
print("largest kernel:", kernel.max().item())
print("kernel / total:", (kernel / kernel.sum())[0, -1].item())
weights = torch.softmax(-distances / (2 * 0.25**2), dim=1)
print("softmax: weight of the last reading", round(weights[0, -1].item(), 4))
assert (kernel / kernel.sum()).isnan().all()
assert torch.isclose(weights.sum(), torch.tensor(1.0))
assert weights.argmax() == 39

# %% [markdown]
# Every exponential underflows to 0, and 0 divided by 0 is *nan*, "not a number".
# `torch.softmax` first subtracts the largest score of the row, which changes no weight and keeps
# one exponential at 1. Lesson 02 looks into that; until then, use it.

# %% [markdown]
# ### Exercise: `kernel_pooling`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)`, `values` `(m, v)` and `bandwidth`, a number $> 0$
#   or a tensor that holds one.
# - **Returns** two tensors, in this order: `outputs` `(n, v)` and `attention_weights` `(n, m)`.
#   Weights come from the Gaussian kernel and sum to 1 over the keys, for far queries too.
#   Gradients reach queries, keys and values, also where a query equals a key.
# - `values` without a second axis, shape `(m,)`, raise a `ValueError`: otherwise a matrix product
#   would return a result with a missing axis, and say nothing.
#
# **Worked number.** One query at 0, keys at 0, 1.1774 and 1.6651 (the roots of $2\ln 2$ and
# $2\ln 4$), values 7, 14 and 28, bandwidth 1: up to rounding, the weights are 4/7, 2/7 and 1/7, and
# the output is $4 + 4 + 4 = 12$.

# %%
from course_lib.attention import kernel_pooling

# %%
check("kernel_pooling")

# %% [markdown]
# ### Look at one query
#
# Drag the query, or move the slider. What you should see: above, each reading as a disc whose
# area grows with its weight, and the output as a diamond that lies among the large discs; below,
# the weights, in the shape of a bell around the query. Where readings are sparse, few keys share
# the weight.


# %% tags=["demo"]
def predict(moments, bandwidth):
    return kernel_pooling(moments[:, None], inputs[:, None], targets[:, None], bandwidth)


def draw_query(query):
    outputs, weights = predict(torch.tensor([query]), 0.25)
    return plotting.query_weights(inputs, targets, query, weights[0], outputs.item())


outputs, weights = predict(torch.tensor([2.0]), 0.25)
assert torch.isclose(weights.sum(), torch.tensor(1.0))
assert (weights > 0).sum() > 20  # a mixture, no excerpt
plotting.interactive(draw_query, start={"query": 2.0}, query=[0.25 * i for i in range(25)])

# %% [markdown]
# ### Look at all weights
#
# Eight of the readings are the keys, six moments the queries. Arcs as wide as the weights, and
# beside them a *heat map*, a picture you will meet in every lesson. Point at a query. What you should
# see: each row sums to 1, and its largest weight is at the key whose moment is nearest, so the
# strong cells run along a diagonal. The
# columns do not sum to 1: each query gives away a weight of 1 in all, and nothing fixes how much a
# key receives.

# %% tags=["demo"]
some_keys = inputs[::5, None]  # (8, 1)
moments = torch.arange(0.5, 6.0, 1.0)[:, None]  # (6, 1)
_, weights = kernel_pooling(moments, some_keys, targets[::5, None], 0.5)
assert torch.allclose(weights.sum(dim=1), torch.ones(6))
assert torch.equal(weights.argmax(dim=1), squared_distances(moments, some_keys).argmin(dim=1))
assert not torch.allclose(weights.sum(dim=0), torch.ones(8), atol=0.1)
plotting.show(
    plotting.attention(
        weights,
        queries=[f"{moment:.1f} h" for moment in moments[:, 0].tolist()],
        keys=[f"{key:.1f} h" for key in some_keys[:, 0].tolist()],
    )
)

# %% [markdown]
# ## 4. What the bandwidth does
#
# *One number decides how far a query listens. What are its two extremes?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (241, 1), "keys": (40, 1), "scores": (241, 40)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes))

# %% [markdown]
# **Predict.** What does the output become for $h \to 0$? And for $h \to \infty$?
#
# <details><summary>Answer</summary>
#
# A tiny bandwidth makes every distance enormous in comparison: the nearest key takes all the
# weight, and you are back at the staircase. A huge one makes all scores nearly 0: every key gets
# $1/m$, and the output is the plain average, whatever you ask.
#
# </details>

# %% tags=["demo"]
narrow, _ = predict(places, 0.001)
wide, _ = predict(places, 1000.0)
assert torch.allclose(narrow[:, 0], nearest_reading(places), atol=0.1)
assert torch.allclose(wide[:, 0], targets.mean().expand(241), atol=1e-3)
print("narrow: like the nearest key; wide: the average", round(targets.mean().item(), 3))

fits = {f"bandwidth {h:g}": predict(places, h)[0][:, 0] for h in (0.02, 0.25, 1.5)}
assert all(fit.min() >= targets.min() and fit.max() <= targets.max() for fit in fits.values())
plotting.show(plotting.kernel_fits(inputs, targets, places, fits))

# %% [markdown]
# What you should see: on the left, steps that chase the noise; in the middle, the hump, the dip and
# the rise; on the right, hardly more than a tired slope. No prediction leaves the range of the readings, because an
# average cannot.
#
# Move it yourself. Which bandwidth would you choose, and what does "best" mean? Write your number
# down; section 7 will compare.


# %% tags=["demo"]
def draw_fit(bandwidth):
    title = f"bandwidth {bandwidth:g} h"
    return plotting.kernel_fits(
        inputs, targets, places, {title: predict(places, bandwidth)[0][:, 0]}
    )


plotting.interactive(
    draw_fit, start={"bandwidth": 0.5}, bandwidth=[0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0]
)

# %% [markdown]
# ## 5. Other kernels
#
# *Must it be a Gaussian?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (241, 1), "keys": (40, 1), "softmax": (241, 40)}
plotting.show(plotting.diagram("attention", lit=("scores", "softmax"), shapes=shapes))

# %% [markdown]
# No: any function that falls with the distance can compare queries with keys. With
# $u = \text{distance}/h$, four common ones:
#
# | kernel | formula | reaches |
# |---|---|---|
# | Gaussian | $e^{-u^2/2}$ | everyone |
# | boxcar | $1$ if $u < 1$, else $0$ | $u < 1$ |
# | triangular | $\max(0, 1 - u)$ | $u < 1$ |
# | Epanechnikov | $\max(0, 1 - u^2)$ | $u < 1$ |
#
# The last two are confused now and then, in code and in captions: the one with the straight sides
# is the triangle, and Epanechnikov's is a parabola.

# %% tags=["demo"]
KERNELS = {
    "Gaussian": lambda u: torch.exp(-(u**2) / 2),
    "boxcar": lambda u: (u < 1).float(),
    "triangular": lambda u: (1 - u).clamp(min=0),
    "Epanechnikov": lambda u: (1 - u**2).clamp(min=0),
}
u = torch.linspace(-2.5, 2.5, 201)
shapes = {name: kernel(u.abs()) for name, kernel in KERNELS.items()}
half = {name: kernel(torch.tensor(0.5)).item() for name, kernel in KERNELS.items()}
assert half["triangular"] == 0.5
assert half["Epanechnikov"] == 0.75
plotting.show(plotting.kernel_shapes(u, shapes))

# %% [markdown]
# Three of the four are exactly 0 beyond one bandwidth. **Predict.** What do they answer at a moment
# with no reading within reach?
#
# <details><summary>Answer</summary>
#
# Nothing. Every kernel is 0, so is their total, and $0/0$ is nan.
#
# </details>
#
# The figure uses all four with $h = 0.15$. What you should see: hatched stretches without an answer,
# for every kernel but the Gaussian. The boxcar jumps most often, because a reading enters with its
# full weight; the triangle and the parabola let it in little by little. Where a single reading is
# within reach, all three repeat it.

# %% tags=["demo"]
distances = squared_distances(places[:, None], inputs[:, None]).sqrt()  # (241, 40)
fits, unanswered = {}, {}
for name, kernel in KERNELS.items():
    values = kernel(distances / 0.15)
    weights = values / values.sum(dim=1, keepdim=True)  # 0 / 0 where nobody is in reach
    fits[name] = weights @ targets
    unanswered[name] = int(fits[name].isnan().sum())
print("places without an answer, of 241:", unanswered)
assert unanswered["Gaussian"] == 0
assert unanswered["boxcar"] == unanswered["triangular"] == unanswered["Epanechnikov"] > 0
plotting.show(plotting.kernel_fits(inputs, targets, places, fits, columns=2))

# %% [markdown]
# A query that may listen to nobody is an *empty row* of the weights. Lesson 02 decides what it
# should return.
#
# The Gaussian never has that problem, thanks to its long tails and the softmax. It keeps the rest
# of this lesson.

# %% [markdown]
# ## 6. Which bandwidth? The first mask
#
# *You want the bandwidth that predicts best. Best at what?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (3, 1), "keys": (3, 1), "scores": (3, 3), "mask": (3, 3)}
plotting.show(plotting.diagram("attention", lit="mask", shapes=shapes))

# %% [markdown]
# The obvious try: predict each reading, compare with the truth, take the mean of the squared
# errors, choose the smallest. Queries and keys are now the same 40 moments.
#
# **Predict.** Which bandwidth wins?
#
# <details><summary>Answer</summary>
#
# The smallest one you offer. Each reading is its own nearest key, at distance 0. With a tiny
# bandwidth it takes all the weight, and "predicts" itself without an error. You have measured
# memory, not prediction.
#
# </details>


# %% tags=["demo"]
def training_error(bandwidth):
    outputs, _ = predict(inputs, bandwidth)
    return (outputs[:, 0] - targets).square().mean().item()


for bandwidth in (1.0, 0.25, 0.05, 0.0001):
    print(f"bandwidth {bandwidth:<7}: training error {training_error(bandwidth):.4f}")
assert training_error(1.0) > training_error(0.25) > training_error(0.05)
assert training_error(0.0001) < 1e-6

# %% [markdown]
# The remedy is to forbid it: predict reading $i$ from all the *others*. This is *leave-one-out*, and
# as a formula it is kernel pooling with one entry of each row taken away:
#
# $$\hat y_i = \sum_{j \ne i} w_{ij}\, y_j, \qquad w_{ij} = \frac{e^{-D_{ij}/(2h^2)}}{\sum_{k \ne i} e^{-D_{ik}/(2h^2)}}, \qquad \hat y \in \mathbb{R}^{N}.$$
#
# **By hand.** Inputs $-1, 0, 1$ and targets $10, 99, 40$. The middle point is predicted by two
# others at the same distance, so $\hat y_1 = 25$, for every bandwidth. Its own target 99 has no
# say.
#
# Rules of the form "query $i$ may not see key $j$" are called *masks*. This one forbids the
# diagonal. Later lessons forbid padding and the future.

# %% [markdown]
# **Predict.** Someone implements the rule by setting the diagonal of the scores to 0. What changes?
#
# <details><summary>Answer</summary>
#
# Nothing at all. The score of a point with itself is $-0/(2h^2) = 0$ already, and $e^0 = 1$ is the
# largest kernel there is. A score of 0 is no absence. The score that means "not at all" is the one
# whose exponential is 0: minus infinity.
#
# </details>

# %% tags=["demo"]
points = torch.tensor([[-1.0], [0.0], [1.0]])
heights = torch.tensor([10.0, 99.0, 40.0])
scores = -squared_distances(points, points) / 2  # bandwidth 1
itself = torch.eye(3, dtype=torch.bool)
for name, fill in {"nothing": None, "0": 0.0, "minus infinity": -math.inf}.items():
    filled = scores if fill is None else scores.masked_fill(itself, fill)
    middle = (torch.softmax(filled, dim=1) @ heights)[1].item()
    print(f"diagonal filled with {name:14}: prediction in the middle {middle:.2f}")
assert torch.equal(scores.masked_fill(itself, 0.0), scores)
assert math.isclose(middle, 25, rel_tol=1e-6)

# %% [markdown]
# A second slip: setting the diagonal of the *weights* to 0 after the softmax. The other weights
# then no longer sum to 1, and every prediction shrinks towards 0. You may do it that way if you
# divide by the new total, as long as there is one. With a tiny bandwidth the point takes all of its
# row, nothing is left of the others, and $0/0$ is nan: below, for 30 of our 40 readings. A fill
# before the softmax has no such limit.

# %% tags=["demo"]
weights = torch.softmax(scores, dim=1).masked_fill(itself, 0.0)
total = weights[1].sum().item()
print(f"what is left of the middle row: {total:.3f}")
print(f"not renormalised: {(weights @ heights)[1]:.2f}")
print(f"renormalised    : {(weights @ heights)[1] / total:.2f}")
assert total < 0.56
assert math.isclose((weights @ heights)[1].item() / total, 25, rel_tol=1e-6)

scores = -squared_distances(inputs[:, None], inputs[:, None]) / (2 * 0.0025**2)
itself = torch.eye(40, dtype=torch.bool)
afterwards = torch.softmax(scores, dim=1).masked_fill(itself, 0.0)
afterwards = afterwards / afterwards.sum(dim=1, keepdim=True)
before = torch.softmax(scores.masked_fill(itself, -math.inf), dim=1)
without_answer = [int(weights.isnan().any(dim=1).sum()) for weights in (afterwards, before)]
print("readings without an answer: zero and renormalise {}, fill first {}".format(*without_answer))
assert without_answer == [30, 0]

# %% [markdown]
# ### Exercise: `leave_one_out`
#
# - **Takes** `inputs` `(N,)`, `targets` `(N,)` and `bandwidth`, a positive number **or a tensor that
#   holds one**.
# - **Returns** the predictions `(N,)`: entry $i$ is the Gaussian kernel average of all targets but
#   $y_i$. Gradients reach `inputs`, `targets` and a bandwidth that is a tensor; section 7 needs
#   that one.
# - If two points share an input, only the point itself is left out, not its twin. A point that has
#   no other is predicted as 0, not nan. No point of the check lies farther than six bandwidths from
#   the nearest other one.
#
# **Worked number.** Inputs $(-1, 0, 1)$ and targets $(10, 99, 40)$ give 25 in the middle for every
# bandwidth. With two points, each is predicted by the other's target: inputs $(0, 5)$ and targets
# $(3, 8)$ give $(8, 3)$.

# %%
from course_lib.attention import leave_one_out

# %%
check("leave_one_out")

# %% [markdown]
# ### Two errors, one picture
#
# What you should see: the training error falls as the bandwidth shrinks, towards the 0 you met
# above, so it has no opinion about the right one. The leave-one-out error has a valley: too narrow chases the
# noise of single neighbours, too wide blurs hump and dip away.


# %% tags=["demo"]
def leave_one_out_error(bandwidth):
    return (leave_one_out(inputs, targets, bandwidth) - targets).square().mean()


bandwidths = torch.logspace(-1.3, 1, 29)  # where every reading has others within reach
errors = {
    "training": [training_error(h) for h in bandwidths.tolist()],
    "leave-one-out": [leave_one_out_error(h).item() for h in bandwidths.tolist()],
}
best = bandwidths[min(range(29), key=errors["leave-one-out"].__getitem__)].item()
print(f"smallest leave-one-out error on this grid: bandwidth {best:.2f}")
assert 0.2 < best < 0.3
assert errors["training"][0] == min(errors["training"])
assert all(t < o for t, o in zip(errors["training"], errors["leave-one-out"], strict=True))
plotting.show(
    plotting.lines(
        bandwidths, errors, x_label="bandwidth (hours)", y_label="mean squared error", log_x=True
    )
)

# %% [markdown]
# ## 7. Learning the bandwidth
#
# *A grid found the valley. With a million parameters there is no grid. What does gradient descent
# need?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (40, 1), "keys": (40, 1), "scores": (40, 40), "outputs": (40,)}
plotting.show(plotting.diagram("attention", lit=("scores", "outputs"), shapes=shapes))

# %% [markdown]
# It needs an output that changes smoothly with the parameter. Here the *softness* of the search
# pays off: each weight is a smooth function of the bandwidth, of the query and of the keys. The
# nearest-key search picks a position with `argmin`, and a position has no slope.

# %% tags=["demo"]
query = torch.tensor([[2.0]], requires_grad=True)
distances = squared_distances(query, inputs[:, None])
hard = targets[distances.argmin(dim=1)]
soft, _ = kernel_pooling(query, inputs[:, None], targets[:, None], 0.25)
soft.sum().backward()
print("hard search: can be differentiated", hard.requires_grad)
print("soft search: can be differentiated", soft.requires_grad)
print(f"d output / d query = {query.grad.item():.3f}")
assert not hard.requires_grad
assert query.grad.isfinite().all() and query.grad.abs() > 0.1

# %% [markdown]
# To learn $h$, repeat: compute the leave-one-out error $E(h)$, take its gradient, step downhill.
# One obstacle: a step may carry $h$ below 0. The formula contains only $h^2$ and would go on with the
# numbers of $|h|$; the course's functions stop with an error. Either way, what comes out is no
# bandwidth.
#
# The usual trick is to step in another variable. With $h = e^{s}$, any real number $s$ gives a
# positive bandwidth:
#
# $$s \leftarrow s - \eta\, \frac{\partial}{\partial s} E\bigl(e^{s}\bigr), \qquad s \in \mathbb{R}.$$
#
# **By hand.** $s = 0$ means $h = 1$. A step of $-0.1$ in $s$ multiplies $h$ by
# $e^{-0.1} \approx 0.905$: equal steps in $s$ are equal *factors* in $h$.

# %% tags=["demo"]
h = torch.tensor(2.0, requires_grad=True)
leave_one_out_error(h).backward()
s = torch.tensor(math.log(2.0), requires_grad=True)
leave_one_out_error(s.exp()).backward()
print(f"slope at h = 2: {h.grad.item():.3f} in h, {s.grad.item():.3f} in s")

large = 5.0  # the size of one large step
in_h = 2.0 - large * h.grad.item()
in_s = math.exp(math.log(2.0) - large * s.grad.item())
print(f"one large step in h ends at h = {in_h:.3f}")
print(f"one large step in s ends at h = {in_s:.3f}")
assert in_h < 0 < in_s
assert torch.isclose(s.grad, 2 * h.grad)  # dE/ds = h dE/dh

# %% [markdown]
# ### Exercise: `fit_bandwidth`
#
# - **Takes** `inputs` `(N,)`, `targets` `(N,)`, the bandwidth to start from, `initial=1.0`, and
#   `num_steps=200`, `lr=0.1` for gradient descent.
# - **Returns** the bandwidth, as a positive Python `float`, that minimises the mean squared
#   leave-one-out error.
#
# What is judged is the result: its error must lie within 2 % of the smallest one, wherever you
# start and however large the steps. Adam or plain gradient descent on $s = \log h$ get there; so does
# a grid that is refined. Call your `leave_one_out`, and mind where you turn a tensor into a number:
# `.item()` before `backward` cuts the gradient.
#
# **Worked number.** Inputs $(0, 5)$ with targets $(3, 8)$ predict each other, whatever the bandwidth:
# every positive bandwidth is the best one, the slope is 0, and gradient descent returns `initial`.

# %%
from course_lib.attention import fit_bandwidth

# %%
check("fit_bandwidth")

# %% [markdown]
# Let it loose on the sensor. What you should see: from a start on either side, the same valley.
# Compare with the number you wrote down in section 4.

# %% tags=["demo"]
learned = {start: fit_bandwidth(inputs, targets, initial=start) for start in (0.05, 1.0, 4.0)}
for start, bandwidth in learned.items():
    error = leave_one_out_error(bandwidth).item()
    print(f"start {start:<4}: learned {bandwidth:.2f} h, leave-one-out error {error:.2f}")
assert max(learned.values()) - min(learned.values()) < 0.01
bandwidth = learned[1.0]
assert 0.23 < bandwidth < 0.25
fit = {f"learned bandwidth {bandwidth:.2f} h": predict(places, bandwidth)[0][:, 0]}
plotting.show(plotting.kernel_fits(inputs, targets, places, fit))

# %% [markdown]
# You have trained an attention layer. It has one parameter; those of lesson 06 have thousands, in
# matrices that make queries, keys and values out of the data. The recipe stays: a soft search, a
# loss that does not let the answer be copied, and a gradient.

# %% [markdown]
# ### Written question: the perfect fit
#
# A colleague reports: "I chose the bandwidth by the error on my 40 readings. It is now 0.000, so my
# model is perfect, and I need no held-out data."
#
# A person reads this one. In five to eight sentences: which bandwidth has been found, and where
# does the error of 0 come from? What will the predictions between the readings look like? How does
# leave-one-out repair the measurement, and in which sense is it a mask? A language model is trained
# to predict each word of a text from the text: what would be the same mistake there?

# %% [markdown] written="perfect_fit"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **Where the 0 comes from.** The bandwidth has gone (almost) to 0. Every reading is its own
#    nearest key, at distance 0, and takes all the weight, so it "predicts" itself; the number
#    measures memory. Between the readings the prediction is that of the nearest key: a staircase
#    that repeats the noise. (Half a point for "overfitting" without the weight on itself.)
# 2. **The repair.** Leave-one-out predicts each reading from the others only: the diagonal of the
#    scores is set to minus infinity before the softmax (or its weights to 0, and the rest
#    normalised again). It is a mask: a rule saying which key a query may not see. Half a point for
#    "leave it out" without how, or for a score of 0.
# 3. **The language model.** If the query that predicts a word may attend to that word (or to later
#    ones), it copies it: the training loss goes to 0 and the model is useless when it writes, where
#    the word is not there yet. The mask that forbids it is the causal one. Half a point for
#    "the test data is in the training data".
# ### END SOLUTION

# %% [markdown]
# ## 8. From distances to dot products
#
# *Transformers do not compute distances. They multiply queries with keys. Is that another idea?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (4, 3), "keys": (6, 3), "scores": (4, 6)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes))

# %% [markdown]
# It is nearly the same one. Expand the square:
#
# $$-\frac{\lVert q_i - k_j \rVert^2}{2h^2} = \frac{q_i \cdot k_j}{h^2} - \frac{\lVert k_j \rVert^2}{2h^2} - \frac{\lVert q_i \rVert^2}{2h^2}.$$
#
# **Predict.** The softmax runs over $j$. Which of the three terms does it not see?
#
# <details><summary>Answer</summary>
#
# The last one: it is the same for all keys of query $i$, and adding the same number to a whole row
# changes no weight. What remains is a dot product and a penalty for long keys. If all keys have
# the same length, the penalty is the same for all keys too, and only the dot product is left.
#
# </details>
#
# **By hand.** Query $(1, 0)$, keys $(1, 0)$ and $(3, 0)$, $h = 1$. The dot products are 1 and 3;
# minus half the squared lengths, $1/2$ and $9/2$, the scores are $0.5$ and $-1.5$. The distance
# scores are 0 and $-2$. Both pairs differ by 2, so the weights agree.

# %% [markdown]
# ### Exercise: `gaussian_as_dot_product`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)` and `bandwidth`, a number or a tensor that holds one.
# - **Returns** scores `(n, m)`, before the softmax. Their softmax over the keys must equal the
#   weights of `kernel_pooling`, for keys of any length and for far queries. Scores that differ from
#   the course's by a number for each query are as good. Gradients reach queries and keys.
#
# Try it with a matrix product; the full squared form is accepted too.
#
# **Worked number.** As above, query $(1, 0)$ and keys $(1, 0)$ and $(3, 0)$ with bandwidth 1 give
# `[[0.5, -1.5]]`, or `[[0, -2]]`, or any other pair that differs by 2.

# %%
from course_lib.attention import gaussian_as_dot_product

# %%
check("gaussian_as_dot_product")

# %% [markdown]
# PyTorch's attention, `F.scaled_dot_product_attention`, uses dot products and no penalty. Its
# argument `scale` multiplies them, so `scale=1/h**2` plays the part of the bandwidth.
#
# What you should see: for keys of length 1 it *is* kernel pooling, to the last digits. For keys of
# different lengths it is not: the long key wins although it is farther away.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
queries, keys, values = (torch.randn(size, 3, generator=generator) for size in (4, 6, 6))
unit_keys = F.normalize(keys, dim=-1)
h = 0.8
for name, ks in {"unit keys": unit_keys, "any keys": keys}.items():
    pooled, _ = kernel_pooling(queries, ks, values, h)
    theirs = F.scaled_dot_product_attention(queries, ks, values, scale=1 / h**2)
    print(f"{name:9}: largest difference {(pooled - theirs).abs().max():.4f}")
    assert torch.allclose(pooled, theirs, atol=1e-5) == (name == "unit keys")

query, pair = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]])
print("Gaussian    :", torch.softmax(gaussian_as_dot_product(query, pair, 1.0), dim=1))
print("dot products:", torch.softmax(query @ pair.T, dim=1))
assert (query @ pair.T).argmax() == 1  # the far key
assert squared_distances(query, pair).argmin() == 0

# %% [markdown]
# So the attention of a Transformer is kernel pooling in which long keys speak louder. Its usual
# scale is $1/\sqrt{d}$: a squared bandwidth of $\sqrt{d}$. Lesson 05 derives why.

# %% [markdown]
# ### All together
#
# Each check so far was about one exercise, and grading gives it the course's versions of all others.
# This one puts *your* `squared_distances`, `kernel_pooling` and `leave_one_out` together, right or
# wrong, and checks the last of them again. It needs the checks above to have seen your cells in
# this session.

# %%
check("01_kernel_pooling")

# %% [markdown]
# ## 9. Who asks, who is asked, who answers
#
# *Which of queries, keys and values are the same thing?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (40, 1), "keys": (40, 1), "values": (40, 1), "outputs": (40, 1)}
plotting.show(plotting.diagram("attention", lit=("queries", "keys", "values"), shapes=shapes))

# %% [markdown]
# | situation | queries | keys | values |
# |---|---|---|---|
# | the sensor | moments you ask for | moments of readings | readings |
# | leave-one-out | moments of readings | **the same moments** | readings |
# | translation | words being written | words of the source | words of the source |
# | a text reading itself | its words | its words | its words |
#
# **Predict.** You read: *when queries equal values, it is called self-attention.* Leave-one-out is
# a set of points attending to itself. Are its queries equal to its values?
#
# <details><summary>Answer</summary>
#
# No. Its queries equal its **keys** (moments); its values are readings, and are not even measured
# in the same unit. What makes it self-attention is that all three belong to one set of points. In
# a Transformer (lesson 06) all three are made from one sequence, by three different matrices, so
# no two of them need be equal.
#
# </details>

# %% tags=["demo"]
pairs = inputs[:, None]  # (40, 1): the queries and the keys
outputs, _ = kernel_pooling(pairs, pairs, targets[:, None], bandwidth)
rescaled, _ = kernel_pooling(pairs, pairs, 10 * targets[:, None] + 5, bandwidth)
assert not torch.allclose(pairs[:, 0], targets)
assert torch.allclose(rescaled, 10 * outputs + 5, atol=1e-4)
print("values in another unit: the outputs follow, the weights stay")

# %% [markdown]
# ## Summary
#
# Attention is a soft search: queries are compared with keys, the comparison becomes weights that
# sum to 1 over the keys, and the weights average the values. Here the comparison is a Gaussian
# kernel of the distance, which is a softmax of $-D/(2h^2)$; the bandwidth says how far a query
# listens, from the nearest key alone to a plain average of all. A point that votes on its own
# prediction makes the error meaningless, so leave-one-out takes it away with a score of minus
# infinity, not 0: the first mask. Because the search is soft, its parameters can be learned by
# gradient descent. Expanding the square turns distances into dot products, and kernel pooling into
# the attention that the rest of this course takes apart.

# %% [markdown]
# ## Further exercises
#
# 1. **Does the kernel matter?** Write leave-one-out for the boxcar and the Epanechnikov kernel and
#    give each its best bandwidth. Compare the three errors with what a wrong bandwidth costs.
# 2. **A bandwidth for each direction.** Give the inputs a second feature that is pure noise. Learn
#    one bandwidth per feature: which one grows, and why?
# 3. **The boundary.** Ask at 0 and at 6 hours, where all neighbours lie on one side. Draw
#    the weights. Why are the outputs pulled towards the middle?
# 4. **Doubled data.** Enter every reading twice. How do `kernel_pooling`, `leave_one_out` and
#    `fit_bandwidth` change, and which of the three should worry you?
# 5. **A formula for the gradient.** Show that the slope of the output at a query $q$ is the
#    weighted covariance of keys and values, divided by $h^2$. Check it against autograd.

# %% [markdown]
# ## References
#
# - E. A. Nadaraya, *On estimating regression*, Theory of Probability and its Applications 9(1),
#   1964. <https://doi.org/10.1137/1109020>
# - G. S. Watson, *Smooth regression analysis*, Sankhyā A 26(4), 1964.
#   <https://www.jstor.org/stable/25049340>
# - T. Hastie, R. Tibshirani and J. Friedman, *The Elements of Statistical Learning*, 2009, chapter
#   6 (kernel smoothing) and section 7.10 (cross-validation).
#   <https://hastie.su.domains/ElemStatLearn/>
# - Y.-H. H. Tsai and others, *Transformer Dissection: A Unified Understanding of Transformer's
#   Attention via the Lens of Kernel*, 2019. <https://arxiv.org/abs/1908.11775>
# - A. Zhang, Z. C. Lipton, M. Li and A. J. Smola, *Dive into Deep Learning*, chapter on attention:
#   the same starting point. <https://d2l.ai>
