# %% [markdown]
# # 01 · Kernel pooling: attention before neural networks
#
# **The question.** A thermometer was read at 40 irregular moments. How warm was it in between? You
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
# **Time:** {time}. **You need:** broadcasting and indexing in PyTorch, and an idea of what
# a gradient is. Lesson 00 shows what attention is good for, and how exercises, checks and hints work.

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
# Key $j$ and value $j$ belong together. A row of the weights belongs to a query, a column to a key,
# and **each row sums to 1**. In signatures, `Float[Tensor, "num_queries d"]` is a floating tensor
# with one row for each query and `d` columns.

# %% [markdown]
# ## 1. A search that always has an answer
#
# *What does a dictionary do when the key you ask for is missing?*

# %% tags=["demo", "hide-input"]
shapes = {"attention weights": (3,), "values": (3,), "weighted sum": "one number"}
plotting.show(plotting.diagram_strip("attention", lit="weighted sum", shapes=shapes))

# %% [markdown]
# It fails: it returns a value only for a key that *equals* the query. The value of the *nearest* key
# always answers, and it jumps. The third idea is to ask everyone, and to listen to near keys more:
#
# $$\text{output} = \sum_{j=1}^{m} w_j\, \text{value}_j, \qquad w_j \ge 0, \qquad \sum_{j=1}^{m} w_j = 1.$$
#
# **By hand.** It was 1, 2 and 4 °C at hours 0, 1 and 3. For hour 1.5 you trust these readings with
# weights 1/4, 1/2, 1/4. The output is $1/4 + 2/2 + 4/4 = 2.25$ °C.
#
# **Predict.** *Attention searches the keys and returns the part that is most relevant to the query.*
# Which reading, then, does each of the three searches return?

# %% tags=["demo"]
readings = {0.0: 1.0, 1.0: 2.0, 3.0: 4.0}
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
assert readings[nearest] == 2
assert output == 2.25

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first none, the second that of hour 1. The third none either: 2.25 is not among the readings.
# Attention returns a *mixture*, in which every value with a positive weight takes part. It is a
# search only if you add "soft": the result is an average, never an excerpt.
#
# </details>
#
# This weighted search is *attention*. A Transformer keeps its three steps: queries meet keys, the
# comparison gives weights, the weights average the values. It compares by dot products (section 8),
# makes queries, keys and values with matrices that it learns, and runs many such searches side by
# side and in layers (lesson 06).
#
# Now the data of this lesson, made up: 40 readings during six hours. **Predict** what the nearest key
# makes of them, between two readings and at each of them.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
inputs = (6 * torch.rand(40, generator=generator)).sort().values  # hours, (m,)
noise = 0.6 * torch.randn(40, generator=generator)
targets = 2 * torch.sin(1.5 * inputs) + 0.5 * inputs + noise  # degrees Celsius, (m,)
places = torch.linspace(0, 6, 241)  # where we will ask, (n,)


def nearest_reading(moments):
    return targets[(moments[:, None] - inputs[None, :]).abs().argmin(dim=1)]


alt = (
    "40 readings: a hump near hour 1, a dip near hour 3, a rise after it. The nearest key: stairs."
)
staircase = {"nearest key": nearest_reading(places)}
plotting.show(plotting.kernel_fits(inputs, targets, places, staircase), alt)
assert nearest_reading(places).unique().numel() == 40  # flat between jumps

# %% [markdown]
# <details><summary>What you should see</summary>
#
# A hump near hour 1, a dip near hour 3 and a rise after it, all with noise, and stretches with few
# readings. The nearest key gives a staircase that repeats all the noise.
#
# </details>
#
# A weighted search should do better. It needs two things: how far every key is from every query,
# and a rule that turns distance into weight.

# %% [markdown]
# ## 2. How far is every key from every query?
#
# *There are $n$ queries and $m$ keys. How do you get all $n \cdot m$ distances in one go?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2, 2), "keys": (3, 2), "scores": (2, 3)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# *Broadcasting* stretches axes of size 1. On a line it takes one new axis on each side: moments as a
# column, hours as a row.
#
# **Predict** the shape of each result below, or the error.

# %% tags=["demo"]
moments, hours = torch.tensor([1.5, 2.0]), torch.tensor([0.0, 1.0, 3.0])
print("a column and a row:", (moments[:, None] - hours[None, :]).tolist())
try:
    print(moments - hours)
except RuntimeError as error:
    print("2 and 3, as they are:", error)
print("3 and 3, as they are:", (torch.tensor([1.5, 2.0, 2.5]) - hours).tolist())

# %% [markdown]
# <details><summary>Answer</summary>
#
# `(2, 3)`: every moment met every hour. Without the new axes, 2 and 3 do not fit. With 3 and 3 there
# is no error, but each moment has met only one hour: equal sizes hide mistakes, so test with sizes
# that all differ.
#
# </details>
#
# In general a point has $d$ features, and for queries $q \in \mathbb{R}^{n \times d}$ and keys
# $k \in \mathbb{R}^{m \times d}$
#
# $$D_{ij} = \lVert q_i - k_j \rVert^2 = \sum_{c=1}^{d} (q_{ic} - k_{jc})^2, \qquad D \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** From $(1, 2)$ to $(4, 6)$ it is $3^2 + 4^2 = 25$. Do not take the root.

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
plotting.show(plotting.diagram_strip("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# A *kernel* says how much. The Gaussian kernel of *bandwidth* $h > 0$ is $e^{-D/(2h^2)}$: 1 at
# distance 0, and falling fast beyond a few bandwidths. Dividing by the row's total turns it into
# weights:
#
# $$w_{ij} = \frac{e^{-D_{ij}/(2h^2)}}{\sum_{k=1}^{m} e^{-D_{ik}/(2h^2)}}, \qquad \text{outputs} = w\,\text{values},$$
#
# with $w \in \mathbb{R}^{n \times m}$ and outputs in $\mathbb{R}^{n \times v}$. The sum runs over
# the **keys**: a query shares its attention among them. Nadaraya and Watson proposed this average
# in 1964; here it is called *kernel pooling*.
#
# "Exponentiate, then divide by the row's total" is the *softmax* of the row. The numbers that go into
# a softmax are *scores*; the score of a key is $-D/(2h^2)$.
#
# **By hand.** Let $D/(2h^2)$ be $0$, $\ln 2$ and $\ln 4$. The kernels are $1, 1/2, 1/4$, their
# total is $7/4$, so the weights are $4/7, 2/7, 1/7$.
#
# **Predict.** The density of the normal distribution has a constant $1/(h\sqrt{2\pi})$ in front of
# its exponential. How do the weights change if you put it there?

# %% tags=["demo"]
exponents = torch.tensor([[0.0, math.log(2), math.log(4)]])
kernel = torch.exp(-exponents)
density = kernel / math.sqrt(2 * math.pi)
print("kernel / total ", kernel / kernel.sum())
print("density / total", density / density.sum())
print("softmax        ", torch.softmax(-exponents, dim=1))
assert torch.allclose(torch.softmax(-exponents, dim=1), torch.tensor([[4.0, 2.0, 1.0]]) / 7)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not at all: it appears in the numerator and in every term of the total, and cancels. A factor on all
# kernels of a row, or a number added to all its scores, leaves the weights as they are.
#
# </details>
#
# ### A query far from everyone
#
# You ask for a moment four hours after the last reading, with $h = 0.25$. **Predict.** Which reading
# gets most of the weight?

# %% tags=["demo"]
distances = squared_distances(inputs[-1:, None] + 4, inputs[:, None])  # (1, 40)
kernel = torch.exp(-distances / (2 * 0.25**2))
print("largest kernel:", kernel.max().item())
print("kernel / total:", (kernel / kernel.sum())[0, -1].item())
weights = torch.softmax(-distances / (2 * 0.25**2), dim=1)
print("softmax: weight of the last reading", round(weights[0, -1].item(), 4))
assert (kernel / kernel.sum()).isnan().all()
assert weights.argmax() == 39

# %% [markdown]
# <details><summary>Answer</summary>
#
# The nearest, if you ask `torch.softmax`. The formula itself breaks: every exponential underflows to
# 0, and 0 divided by 0 is *nan*, "not a number". `torch.softmax` first subtracts the row's largest
# score, which changes no weight and keeps one exponential at 1 (lesson 02).
#
# </details>

# %% [markdown]
# ### Exercise: `kernel_pooling`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)`, `values` `(m, v)` and `bandwidth`, a number $> 0$
#   or a tensor that holds one.
# - **Returns** two tensors, in this order: `outputs` `(n, v)` and `attention_weights` `(n, m)`.
#   Weights come from the Gaussian kernel and sum to 1 over the keys, for far queries too.
#   Gradients reach queries, keys and values, also where a query equals a key.
# - `values` without a second axis, shape `(m,)`, raise a `ValueError`: otherwise a matrix product
#   would silently return a result with a missing axis.
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
# **Predict,** then drag the query or move the slider: how far on each side do readings have a say? Does
# that change where they are sparse?


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
# <details><summary>What you should see</summary>
#
# The weights lie under a bell around the query, and the output, a diamond, lies among the large
# discs. Where readings are sparse, few keys share the weight.
#
# </details>
#
# ### The same, with letters
#
# In lesson 00 each letter of *dreiundvierzig* looked at its neighbours before a word was written.
# Kernel pooling can do that: let the places 0 to 13 be queries and keys, with $h = 1$.
#
# **Predict.** What does the map look like? Its rows sum to 1; do its columns?

# %% tags=["demo"]
letters = "dreiundvierzig"
spots = torch.arange(14.0)[:, None]  # (14, 1): the queries and the keys
_, weights = kernel_pooling(spots, spots, spots, 1.0)
print("columns sum to", [round(total, 2) for total in weights.sum(dim=0).tolist()])
assert torch.allclose(weights.sum(dim=1), torch.ones(14))
alt = "A band along the diagonal: {:.2f} on the letter itself, {:.2f} on each beside it."
alt = alt.format(*weights[7, 7:9].tolist())
plotting.show(plotting.attention(weights, queries=letters, keys=letters), alt)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# A band along the diagonal: each letter looks at itself and at those beside it. The columns do not all
# sum to 1: a query gives away a weight of 1, and nothing fixes how much a key receives.
#
# </details>
#
# This map knows *places* only. To write *forty*, a translator has to find *vierzig* wherever it is in
# the word. Lessons 04 to 06 learn what to compare instead.

# %% [markdown]
# ## 4. What the bandwidth does
#
# *One number decides how far a query listens. What are its two extremes?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (241, 1), "keys": (40, 1), "scores": (241, 40)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# **Predict.** What does the output become for $h \to 0$? And for $h \to \infty$?

# %% tags=["demo"]
narrow, wide = (predict(places, h)[0][:, 0] for h in (0.001, 1000.0))
print(f"h = 0.001: at most {(narrow - nearest_reading(places)).abs().max():.2f} from the nearest")
print(f"h = 1000: between {wide.min():.3f} and {wide.max():.3f}; the mean is {targets.mean():.3f}")
assert torch.allclose(narrow, nearest_reading(places), atol=0.1)
assert torch.allclose(wide, targets.mean().expand(241), atol=1e-3)


def draw_fit(bandwidth):
    fits = {f"{h:g} h": predict(places, h)[0][:, 0] for h in (0.02, bandwidth, 1.5)}
    low, high = targets.min() - 1e-4, targets.max() + 1e-4
    assert all(low < fit.min() and fit.max() < high for fit in fits.values())
    return plotting.kernel_fits(inputs, targets, places, fits)


plotting.interactive(
    draw_fit,
    start={"bandwidth": 0.25},
    bandwidth=[0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0],
)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# A tiny bandwidth makes every distance enormous in comparison: the nearest key takes all the weight,
# and you are back at the staircase. A huge one makes all scores nearly 0: every key gets $1/m$, and
# the output is the plain average; at 1.5 h little more than a gentle slope is left. In between are
# the hump, the dip and the rise. No prediction leaves the range of the readings, because an average
# cannot.
#
# </details>
#
# Which bandwidth would you choose? Move the slider and write your number down; section 7 will compare.

# %% [markdown]
# ## 5. Other kernels ★
#
# *Must it be a Gaussian?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (241, 1), "keys": (40, 1), "softmax": (241, 40)}
plotting.show(plotting.diagram_strip("attention", lit=("scores", "softmax"), shapes=shapes))

# %% [markdown]
# No: any function that falls with the distance can compare queries with
# keys. The triangle has straight sides; Epanechnikov's kernel is a parabola. Three of the four below
# are exactly 0 beyond one bandwidth.
#
# **Predict.** What do they answer at a moment with no reading within $h = 0.15$?

# %% tags=["demo"]
KERNELS = {
    "Gaussian": lambda u: torch.exp(-(u**2) / 2),
    "boxcar": lambda u: (u < 1).float(),
    "triangular": lambda u: (1 - u).clamp(min=0),
    "Epanechnikov": lambda u: (1 - u**2).clamp(min=0),
}
u = squared_distances(places[:, None], inputs[:, None]).sqrt() / 0.15  # (241, 40)
fits = {}
for name, kernel in KERNELS.items():
    fits[name] = kernel(u) @ targets / kernel(u).sum(dim=1)  # 0 / 0 where nobody is in reach
    print(f"{name:13}: no answer at {int(fits[name].isnan().sum())} of 241 places")
assert not fits["Gaussian"].isnan().any() and fits["boxcar"].isnan().any()
plotting.show(plotting.kernel_fits(inputs, targets, places, fits, columns=2))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Hatched stretches without an answer, for every kernel but the Gaussian: all kernels are 0, so is their
# total, and $0/0$ is nan. A query that may listen to nobody is an *empty row*; lesson 02 decides
# what it should return.
#
# </details>

# %% [markdown]
# ## 6. Which bandwidth? The first mask
#
# *You want the bandwidth that predicts best. Best at what?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (3, 1), "keys": (3, 1), "scores": (3, 3), "mask": (3, 3)}
plotting.show(plotting.diagram_strip("attention", lit="mask", shapes=shapes))

# %% [markdown]
# The obvious attempt: predict each reading, and choose the bandwidth with the smallest mean squared
# error. Queries and keys are now the same 40 moments. **Predict.** Which bandwidth wins?


# %% tags=["demo"]
def training_error(bandwidth):
    outputs, _ = predict(inputs, bandwidth)
    return (outputs[:, 0] - targets).square().mean().item()


for bandwidth in (1.0, 0.25, 0.05, 0.0001):
    print(f"bandwidth {bandwidth:<7}: training error {training_error(bandwidth):.4f}")
assert training_error(1.0) > training_error(0.25) > training_error(0.05)
assert training_error(0.0001) < 1e-6

# %% [markdown]
# <details><summary>Answer</summary>
#
# The smallest you offer. Each reading is its own nearest key, at distance 0. With a tiny bandwidth it
# takes all the weight and "predicts" itself. You have measured memory, not prediction.
#
# </details>
#
# So forbid it: predict reading $i$ from all the *others*. This is *leave-one-out*, kernel
# pooling with one entry of each row taken away:
#
# $$\hat y_i = \sum_{j \ne i} w_{ij}\, y_j, \qquad w_{ij} = \frac{e^{-D_{ij}/(2h^2)}}{\sum_{k \ne i} e^{-D_{ik}/(2h^2)}}, \qquad \hat y \in \mathbb{R}^{N}.$$
#
# **By hand.** Inputs $-1, 0, 1$ and targets $10, 99, 40$. The middle point is predicted by two
# others at the same distance, so $\hat y_1 = 25$, for every bandwidth; its own 99 has no say.
#
# Rules of the form "query $i$ may not see key $j$" are called *masks*. This one forbids the
# diagonal. Later lessons forbid padding and the future.
#
# **Predict.** Three ways to take the middle point out of its own row, with $h = 1$: a score of 0, a
# score of minus infinity, or a *weight* of 0 after the softmax. Which of them give 25?

# %% tags=["demo"]
heights = torch.tensor([10.0, 99.0, 40.0])
for fill in (None, 0.0, -math.inf):
    row = torch.tensor([-0.5, 0.0, -0.5])  # scores of the middle point: distances 1, 0, 1
    row[1] = row[1] if fill is None else fill
    output = (torch.softmax(row, dim=0) * heights).sum().item()
    print(f"score {'as it was' if fill is None else fill}: {output:.2f}")
weights = torch.softmax(torch.tensor([-0.5, 0.0, -0.5]), dim=0) * torch.tensor([1.0, 0.0, 1.0])
afterwards = (weights * heights).sum().item()
print(f"weight 0 afterwards: {afterwards:.2f}, the weights sum to {weights.sum():.3f}")
assert math.isclose(output, 25, rel_tol=1e-6) and afterwards < 14

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only minus infinity. A score of 0 changes nothing: the score of a point with itself is $-0/(2h^2) = 0$
# already, and $e^0 = 1$ is the largest kernel there is. A weight of 0 leaves the others too small, and
# the prediction shrinks.
#
# </details>
#
# Dividing by what is left fixes the last one, as long as something is left: with a tiny bandwidth
# every other weight underflows to 0, and $0/0$ is nan. A fill before the softmax has no such limit.

# %% [markdown]
# ### Exercise: `leave_one_out`
#
# - **Takes** `inputs` `(N,)`, `targets` `(N,)` and `bandwidth`, a positive number **or a tensor that
#   holds one**.
# - **Returns** the predictions `(N,)`: entry $i$ is the Gaussian kernel average of all targets but
#   $y_i$. Gradients reach `inputs`, `targets` and a bandwidth that is a tensor; section 7 needs
#   that one.
# - If two points share an input, only the point itself is left out, not its twin. A point that has
#   no other is predicted as 0, not nan. Every other point has a neighbour within six bandwidths.
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
# **Predict** the two curves over the bandwidth: the training error and the leave-one-out error. Which
# has a lowest point between the ends?


# %% tags=["demo"]
def leave_one_out_error(bandwidth):
    return (leave_one_out(inputs, targets, bandwidth) - targets).square().mean()


bandwidths = torch.logspace(-1.3, 1, 29)  # where every reading has others within reach
errors = {
    "training": [training_error(h) for h in bandwidths.tolist()],
    "leave-one-out": [leave_one_out_error(h).item() for h in bandwidths.tolist()],
}
best = bandwidths[min(range(29), key=errors["leave-one-out"].__getitem__)].item()
print(f"smallest leave-one-out error on this grid: bandwidth {best:.2f} h")
assert 0.2 < best < 0.3
assert errors["training"][0] == min(errors["training"])
assert all(t < o for t, o in zip(errors["training"], errors["leave-one-out"], strict=True))
plotting.show(
    plotting.lines(
        bandwidths,
        errors,
        x_label="bandwidth (hours)",
        y_label="mean squared error (°C²)",
        log_x=True,
    )
)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The training error falls as the bandwidth shrinks, so it has no opinion about the right one. The
# leave-one-out error has a valley: too narrow chases the noise of single neighbours, too wide blurs
# the hump and the dip away.
#
# </details>

# %% [markdown]
# ## 7. Learning the bandwidth
#
# *A grid found the valley. With a million parameters there is no grid. What does gradient descent
# need?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (40, 1), "keys": (40, 1), "scores": (40, 40), "outputs": (40,)}
plotting.show(plotting.diagram_strip("attention", lit=("scores", "outputs"), shapes=shapes))

# %% [markdown]
# An output that changes smoothly. Move the query from hour 2 by a hundredth. **Predict:** by how much
# does the answer of each search move?

# %% tags=["demo"]
step = 0.01
query = torch.tensor([2.0], requires_grad=True)
soft = predict(query, 0.25)[0].squeeze()
soft.backward()
moved = torch.tensor([2.0 + step])
hard_slope = (nearest_reading(moved) - nearest_reading(query)).item() / step
soft_slope = (predict(moved, 0.25)[0] - soft).item() / step
print(f"nearest key   : slope {hard_slope:.2f}")
print(f"kernel pooling: slope {soft_slope:.2f}, by autograd {query.grad.item():.2f}")
assert hard_slope == 0 and abs(soft_slope - query.grad.item()) < 0.1

# %% [markdown]
# <details><summary>Answer</summary>
#
# The nearest key's answer stays, until it jumps: a slope of 0 everywhere teaches nothing. Each weight
# of the soft search is a smooth function of the query, of the keys and of the bandwidth. This is what
# *softness* buys.
#
# </details>
#
# To learn $h$, repeat: compute the leave-one-out error $E(h)$, take its gradient, step downhill.
# One obstacle: a large step may carry $h$ below 0. The usual trick is to step in another variable; with
# $h = e^{s}$, any real number $s$ gives a positive bandwidth:
#
# $$s \leftarrow s - \eta\, \frac{\partial}{\partial s} E\bigl(e^{s}\bigr), \qquad s \in \mathbb{R}.$$
#
# **By hand.** $s = 0$ means $h = 1$. A step of $-0.1$ in $s$ multiplies $h$ by
# $e^{-0.1} \approx 0.905$: equal steps in $s$ are equal *factors* in $h$.

# %% [markdown]
# ### Exercise: `fit_bandwidth`
#
# - **Takes** `inputs` `(N,)`, `targets` `(N,)`, the bandwidth to start from, `initial=1.0`, and
#   `num_steps=200`, `lr=0.1` for gradient descent.
# - **Returns** the bandwidth, as a positive Python `float`, that minimises the mean squared
#   leave-one-out error.
#
# What is judged is the result: its error must lie within 2 % of the smallest one, wherever you
# start and however large the steps. Any way there is welcome; you may call `leave_one_out`.
#
# **Worked number.** Inputs $(0, 5)$ with targets $(3, 8)$ predict each other, whatever the bandwidth:
# every positive bandwidth is the best one, the slope is 0, and gradient descent returns `initial`.

# %%
from course_lib.attention import fit_bandwidth

# %%
check("fit_bandwidth")

# %% [markdown]
# Let it loose on the readings, from three starts. **Predict:** where does each end, and how near is
# the number you wrote down in section 4?

# %% tags=["demo"]
learned = {start: fit_bandwidth(inputs, targets, initial=start) for start in (0.05, 1.0, 4.0)}
for start, bandwidth in learned.items():
    error = leave_one_out_error(bandwidth).item()
    print(f"start {start:<4}: learned {bandwidth:.2f} h, leave-one-out error {error:.2f} °C²")
assert max(learned.values()) - min(learned.values()) < 0.01
bandwidth = learned[1.0]
assert 0.23 < bandwidth < 0.25
fit = {f"learned bandwidth {bandwidth:.2f} h": predict(places, bandwidth)[0][:, 0]}
plotting.show(plotting.kernel_fits(inputs, targets, places, fit))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The same valley from either side, and a curve with hump, dip and rise.
#
# </details>
#
# You have trained an attention layer. It has one parameter; those of lesson 06 have thousands. The
# recipe stays: a soft search, a loss that does not let the answer be copied, and a gradient.

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
# ## 8. From distances to dot products ★
#
# *Transformers do not compute distances. They multiply queries with keys. Is that another idea?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (4, 3), "keys": (6, 3), "scores": (4, 6)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# It is nearly the same one. Expand $\lVert q_i - k_j \rVert^2$ on paper, as you would $(a - b)^2$: one
# term depends on the query alone, one on the key alone, and one is a dot product of both.
#
# **Predict.** The softmax runs over $j$. Which of the three does it not see?
#
# <details><summary>Answer</summary>
#
# The query's: it is the same for all keys of query $i$, and adding the same number to a whole row
# changes no weight. What remains is a dot product and a penalty for long keys. If all keys have
# the same length, the penalty is the same for all of them too, and only the dot product is left.
#
# </details>
#
# **By hand.** Query $(1, 0)$, keys $(1, 0)$ and $(3, 0)$, $h = 1$. The dot products are 1 and 3, the
# squared lengths of the keys 1 and 9. Scores without the query's term are $0.5$ and $-1.5$; those of
# the distances are 0 and $-2$. Both pairs differ by 2, so the weights agree.

# %% [markdown]
# ### Exercise: `gaussian_as_dot_product`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)` and `bandwidth`, a number or a tensor that holds one.
# - **Returns** scores `(n, m)`, before the softmax. Their softmax over the keys must equal the
#   weights of `kernel_pooling`, for keys of any length and for far queries. Scores that differ from
#   the course's by a constant for each query are just as good. Gradients reach queries and keys.
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
# **Predict.** For which keys is it kernel pooling? And which of the two keys above wins there?

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
# <details><summary>Answer</summary>
#
# For keys of length 1 it *is* kernel pooling, to the last digits. Otherwise the long key wins,
# although it is farther away.
#
# </details>
#
# So in a Transformer's attention, long keys speak louder. Its usual scale is $1/\sqrt{d}$: a squared
# bandwidth of $\sqrt{d}$. Lesson 05 derives why.

# %% [markdown]
# ### All together
#
# So far each check gave your answer the course's versions of the others, and so does grading. This
# one puts *your* `squared_distances`, `kernel_pooling` and `leave_one_out` together, right or wrong,
# and checks the last of them again. It needs the checks above to have seen your cells in this session.

# %%
check("01_kernel_pooling")

# %% [markdown]
# ## Summary
#
# Attention is a soft search: queries are compared with keys, the comparison becomes weights that
# sum to 1 over the keys, and the weights average the values. Here the comparison is a Gaussian
# kernel of the distance, a softmax of $-D/(2h^2)$, and the bandwidth says how far a query listens. A
# point that votes on its own prediction makes the error meaningless, so a score of minus infinity,
# not 0, removes it: the first mask. Because the search is soft, its parameters can be learned by
# gradient descent.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Does the kernel matter?** Write leave-one-out for the boxcar and the Epanechnikov kernel and
#    give each its best bandwidth. Compare the three errors with what a wrong bandwidth costs.
# 2. **A bandwidth for each direction.** Give the inputs a second feature that is pure noise. Learn
#    one bandwidth per feature: which one grows, and why?
# 3. **A formula for the gradient.** Show that the slope of the output at a query $q$ is the
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
