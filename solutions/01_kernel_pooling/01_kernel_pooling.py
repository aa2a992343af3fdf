# %% [markdown]
# # 01 · Kernel pooling: attention before neural networks
#
# **The question.** Someone read a thermometer at 40 irregularly spaced moments. How warm was it in
# between? You have no model and no theory, only the readings. How do you look up an answer that
# nobody wrote down?
#
# **After this you can**
#
# - describe a weighted average in terms of queries, keys and values;
# - turn distances into weights that sum to 1 over the keys, and say what the bandwidth does;
# - explain why a point must be left out of its own prediction;
# - (optional) build the mask that leaves the point out, and rewrite the Gaussian kernel as a dot
#   product.
#
# **Time:** {time}. **You need:** indexing in PyTorch, and some idea of what a gradient is.

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import translate_batch, use_attend

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## 1. A search that always has an answer
#
# *How warm was it at hour 2.0?*
#
# Here are 40 readings from six hours. We made them up. `inputs` holds the hours and `targets` the
# temperatures.

# %% tags=["demo", "hide-input"]
generator = torch.Generator().manual_seed(0)
inputs = (6 * torch.rand(40, generator=generator)).sort().values  # hours, (40,)
noise = 0.6 * torch.randn(40, generator=generator)
targets = 2 * torch.sin(1.5 * inputs) + 0.5 * inputs + noise  # degrees Celsius, (40,)

places = torch.linspace(0, 6, 241)  # the moments to predict for, (241,)

average = targets.mean().expand(241)
fits = {"average of all readings": average}
plotting.show(plotting.kernel_fits(inputs, targets, places, fits), key="plain average")
near = (inputs - 2).abs().argsort()[:3]
assert torch.allclose(inputs[near], torch.tensor([2.09, 1.84, 1.83]), atol=0.01)
assert torch.allclose(targets[near], torch.tensor([1.2, 2.7, 0.7]), atol=0.05)

# %% [markdown]
# **Guess.** Nobody read the thermometer at hour 2.0. What would it have shown? Write down your
# guess in degrees, and how you arrived at it.
#
# <details><summary>How most people arrive at a number</summary>
#
# The nearest reading, at 2.09 hours, is 1.2 °C, but the next two, both at about 1.8 hours, are 2.7
# and 0.7 °C. Most people take a rough average of the readings around hour 2 and give the close ones
# more weight. This lesson turns that habit into a formula.
#
# </details>
#
# You can look up an answer in three ways. A *dictionary* returns the value of the key that equals
# the query. A *nearest-key* search returns the value of the closest key. A *weighted* search
# returns an average of all values, in which close keys count more:
#
# $$\text{output} = \sum_{j=1}^{m} w_j\, \text{value}_j, \qquad w_j \ge 0, \qquad \sum_{j=1}^{m} w_j = 1.$$
#
# **By hand.** Suppose it was 1, 2 and 4 °C at hours 0, 1 and 3, and you give these readings the
# weights 1/4, 1/2 and 1/4 for hour 1.5. The output is $1/4 + 2/2 + 4/4 = 2.25$ °C.
#
# The dictionary has no value for hour 1.5, and the nearest-key search returns the reading at hour
# 1. The output of the weighted search, 2.25, is not among the readings. It is a *mixture* of all
# values that have a positive weight, so this search is *soft*.
#
# The weighted search is *attention*. Every attention layer in this course follows the same three
# steps: compare queries with keys, turn the comparison into weights, and average the values with
# those weights.

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(n, d)", "keys": "(m, d)", "values": "(m, v)", "outputs": "(n, v)"}
shapes |= {"attention weights": "(n, m)"}
plotting.show(plotting.diagram("attention", shapes=shapes), key="map of attention")

# %% [markdown]
# | word | what it is | here | shape |
# |---|---|---|---|
# | `queries` | what you ask | moments at which you want a value | `(n, d)` |
# | `keys` | what you compare the query with | moments of the readings | `(m, d)` |
# | `values` | what you average | the readings | `(m, v)` |
# | `attention_weights` | how much each key counts for each query | one row for each moment | `(n, m)` |
# | `outputs` | the answers | temperatures | `(n, v)` |
#
# Key $j$ and value $j$ belong together. Each row of the weights belongs to a query and each column
# to a key, and **each row sums to 1**. In signatures, `Float[Tensor, "num_queries d"]` is a
# floating-point tensor with one row for each query and `d` columns.
#
# The next cell runs the nearest-key search for 241 moments from hour 0 to hour 6.


# %% tags=["demo"]
def nearest_reading(moments):
    return targets[(moments[:, None] - inputs[None, :]).abs().argmin(dim=1)]


curve = {"nearest key": nearest_reading(places)}
plotting.show(plotting.kernel_fits(inputs, targets, places, curve), key="nearest reading")
assert nearest_reading(places).unique().numel() == 40  # flat between jumps

# %% [markdown]
# The curve is a staircase, flat around each reading, with jumps midway between neighbors.

# %% [markdown]
# ## 2. How far is every key from every query?
#
# *There are $n$ queries and $m$ keys. How do you compute all $n \cdot m$ distances at once?*

# %% [markdown]
# *Broadcasting* stretches axes of size 1. For points on a line, add one axis to each tensor. Write
# the query moments as a column and the hours of the readings as a row.
#
# The next cell subtracts three pairs of tensors.

# %% tags=["demo"]
moments, hours = torch.tensor([1.5, 2.0]), torch.tensor([0.0, 1.0, 3.0])
three_moments = torch.tensor([1.5, 2.0, 2.5])
pairs = {
    "a column and a row": (moments[:, None], hours[None, :]),
    "sizes 2 and 3, no new axes": (moments, hours),
    "sizes 3 and 3, no new axes": (three_moments, hours),
}
for name, (left, right) in pairs.items():
    try:
        print(f"{name}:", (left - right).tolist())
    except RuntimeError as error:
        print(f"{name}:", error)

# %% [markdown]
# The first result has shape `(2, 3)`, because every moment is compared with every hour. Sizes 2 and
# 3 do not broadcast without the new axes. Sizes 3 and 3 raise no error, but each moment is compared
# with only one hour. Equal sizes hide mistakes, so test your code with sizes that all differ.
#
# In general a point has $d$ features. For queries $q \in \mathbb{R}^{n \times d}$ and keys
# $k \in \mathbb{R}^{m \times d}$, the squared distances are
#
# $$D_{ij} = \lVert q_i - k_j \rVert^2 = \sum_{c=1}^{d} (q_{ic} - k_{jc})^2, \qquad D \in \mathbb{R}^{n \times m}.$$

# %% [markdown]
# ### Exercise: `squared_distances`
#
# - **Takes** `queries` `(n, d)` and `keys` `(m, d)`.
# - **Returns** a tensor `(n, m)` with the squared Euclidean distance from every query to every key.
#   It is differentiable in both arguments. Where a query equals a key, the gradient is 0, not nan.
# - Write it **without loops**. If you expand the square, tiny negative results are fine.
#
# **Worked example.** For the query $(1, 2)$ and the keys $(4, 6)$ and $(1, 0)$, the result is
# `[[25, 4]]`.

# %%
from course_lib.attention import squared_distances

# %%
check("squared_distances")

# %% [markdown]
# ## 3. From distances to weights
#
# *Near keys should count more. How much more?*

# %% [markdown]
# A *kernel* is a function that says how much a key counts at a given distance. The Gaussian kernel
# of *bandwidth* $h > 0$ is $e^{-D/(2h^2)}$. It is 1 at distance 0. It has fallen to 0.61 at one
# bandwidth and to 0.01 at three. Dividing each row by its sum turns these kernel values into
# weights:
#
# $$w_{ij} = \frac{e^{-D_{ij}/(2h^2)}}{\sum_{k=1}^{m} e^{-D_{ik}/(2h^2)}}, \qquad \text{outputs} = w\,\text{values},$$
#
# with $w \in \mathbb{R}^{n \times m}$ and outputs in $\mathbb{R}^{n \times v}$. The sum runs over
# the **keys**, so every query distributes a weight of 1 among them. Nadaraya and Watson proposed
# this average in 1964. We call it *kernel pooling*.
#
# "Exponentiate, then divide each row by its sum" is the *softmax* of the row. The numbers that go
# into a softmax are called *scores*. Here the score of a key is $-D/(2h^2)$.
#
# **By hand.** Let $D/(2h^2)$ be $0$, $\ln 2$ and $\ln 4$. The kernel values are $1$, $1/2$ and
# $1/4$, and their sum is $7/4$, so the weights are $4/7$, $2/7$ and $1/7$.
#
# Adding a number to all scores of a row does not change its weights. All kernel values are
# multiplied by the same factor, which cancels.
#
# The next query is far from every key, at squared distances of 18, 20 and 25, and the bandwidth is
# 0.25.

# %% tags=["demo"]
far = torch.tensor([18.0, 20.0, 25.0])
kernel = torch.exp(-far / (2 * 0.25**2))
print("kernels:", kernel)
print("weights:", kernel / kernel.sum())
assert (kernel == 0).all() and (kernel / kernel.sum()).isnan().all()

# %% [markdown]
# Every weight is *nan*, "not a number". The first key should get almost all of the weight, since
# its kernel value is $e^{16}$ times the next one. In float32, however, all three exponentials
# underflow to 0, and 0 divided by 0 is nan. `torch.softmax` avoids this by subtracting the largest
# score of each row first, so that the largest exponential is 1.

# %% [markdown]
# ### Exercise: `kernel_pooling`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)`, `values` `(m, v)` and `bandwidth`, a positive
#   number, or a tensor with one positive number in it.
# - **Returns** `outputs` `(n, v)` and `attention_weights` `(n, m)`. The weights come from the
#   Gaussian kernel and sum to 1 over the keys, even for a query far from every key. Both results
#   are differentiable in queries, keys and values, even where a query equals a key.
# - **Raises** a `ValueError` if `values` has shape `(m,)`. Without the error, the product of
#   weights and values would silently have shape `(n,)`.
#
# **Worked example.** For a query at 0, keys at 0, $\sqrt{2\ln 2}$ and $\sqrt{2\ln 4}$, values 7, 14
# and 28, and bandwidth 1, the weights are 4/7, 2/7 and 1/7, and the output is $4 + 4 + 4 = 12$.

# %%
from course_lib.attention import kernel_pooling

# %%
check("kernel_pooling")

# %% [markdown]
# ### Look at one query
#
# Move the slider. On the course's site you can also drag the dashed line.


# %% tags=["demo"]
def predict(moments, bandwidth):
    return kernel_pooling(moments[:, None], inputs[:, None], targets[:, None], bandwidth)


def draw_query(query):
    outputs, weights = predict(torch.tensor([query]), 0.25)
    return plotting.query_weights(inputs, targets, query, weights[0], outputs.item())


outputs, weights = predict(torch.tensor([2.0]), 0.25)
assert torch.isclose(weights.sum(), torch.tensor(1.0))
within = weights[0, (inputs - 2).abs() < 3 * 0.25].sum()
assert within > 0.99
quarters = [0.25 * i for i in range(25)]
plotting.interactive(draw_query, start={"query": 2.0}, query=quarters, key="one query")

# %% [markdown]
# The weights form a bell around the query. Readings more than three bandwidths away (here 45
# minutes) hardly count. Where readings are sparse, the bell is no wider, so fewer keys share the
# weight.

# %% [markdown]
# ### Kernel pooling for letters
#
# In lesson 00, each letter of *dreiundvierzig* could look at its neighbors before a word was
# written. Kernel pooling can do that too. Let the positions 0 to 13 be both queries and keys, with
# $h = 1$.
#
# **Predict.** Each row of weights sums to 1. Which letter receives the most weight in total: the
# first, the second, or the seventh, in the middle?

# %% tags=["demo"]
letters = "dreiundvierzig"
positions = torch.arange(14.0)[:, None]  # (14, 1): the queries and the keys
_, weights = kernel_pooling(positions, positions, positions, 1.0)
print("columns sum to", [round(total, 2) for total in weights.sum(dim=0).tolist()])
assert torch.allclose(weights.sum(dim=1), torch.ones(14))
columns = weights.sum(dim=0)
assert columns[1] > columns.max() - 1e-4 and columns[0] < 0.9
assert abs(columns[1] - 1.07) < 0.005 and abs(columns[6] - 1) < 0.005
plotting.show(plotting.attention(weights, queries=letters, keys=letters), key="pooled letters")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The second letter does, with 1.07. The first has neighbors on one side only, so more of its weight
# goes to the second. A query always gives away a weight of 1, but nothing fixes how much a key
# receives.
#
# </details>
#
# The map (second tab) shows a band along the diagonal.
#
# This map depends on *positions* alone. With learned vectors, a query can find *vierzig* anywhere.
# In lesson 00, the translator compared such vectors by dot products, divided by $\sqrt{64} = 8$.
# The next cell compares them by distance, with your `kernel_pooling` and $h^2 = 8$. Nothing is
# retrained.
#
# **Predict.** With dot products, the numbers 1 to 99 are all translated correctly. With
# distances, are about 35, 65 or 95 correct?


# %% tags=["demo", "nbval-ignore-output"]
def by_distance(query, keys, values):
    outputs, weights = kernel_pooling(query[None], keys, values, math.sqrt(8))
    lengths.append(keys.norm(dim=1))  # (m,), one length for each letter
    return outputs[0], weights[0]


def num_correct():
    translations = translate_batch(model, numerals, range(1, 100))
    return sum(translations[number - 1] == english(number) for number in range(1, 100))


numerals, lengths = Numerals(), []
model = trained_translator(numerals).to(device)
before = num_correct()
use_attend(model, by_distance)
after = num_correct()
print(f"by dot products: {before} of 99 correct, by distance: {after} of 99")
print(f"lengths of keys: {torch.cat(lengths).min():.0f} to {torch.cat(lengths).max():.0f}")
assert before == 99 and 25 < after < 48
assert torch.cat(lengths).max() > 5 * torch.cat(lengths).min()

# %% [markdown]
# <details><summary>Answer</summary>
#
# About a third are correct. The longest key is more than five times as long as the shortest, and a
# key much longer than the query is far from it, even if both point in the same direction.
#
# </details>

# %% [markdown]
# ## 4. What the bandwidth does
#
# *One number decides how far a query looks. What happens at its two extremes?*
#
# The figure compares bandwidths of 0.001 and 1,000 hours with one that you choose.
#
# **Predict.** With 0.25 hours, the curve spans 4.7 °C from its lowest to its highest point. Does it
# span about 0.5, 2 or 4 °C with 1.5 hours? Guess, and then move the slider to 1.5.


# %% tags=["demo"]
def draw_fit(bandwidth):
    fits = {f"{h:g} hours": predict(places, h)[0][:, 0] for h in (0.001, bandwidth, 1000.0)}
    return plotting.kernel_fits(inputs, targets, places, fits)


plotting.interactive(
    draw_fit,
    start={"bandwidth": 0.25},
    bandwidth=[0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5],
    key="bandwidths",
)
narrow = predict(places, 0.001)[0][:, 0]
wide = predict(places, 1000.0)[0][:, 0]
assert torch.allclose(narrow, nearest_reading(places), atol=0.1)
assert torch.allclose(wide, targets.mean().expand(241), atol=1e-3)
spans = [predict(places, h)[0].max() - predict(places, h)[0].min() for h in (0.25, 1.5)]
assert abs(spans[0] - 4.7) < 0.05 and abs(spans[1] - 2) < 0.1

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 2 °C, from 1.4 to 3.3. As $h \to \infty$, every key gets the weight $1/m$, and the output
# becomes the plain average of all readings. With a tiny bandwidth, the nearest key takes all the
# weight, and you are back at the staircase. No prediction leaves the range of the readings, because
# an average cannot.
#
# </details>
#
# Which bandwidth would you choose? Move the slider, and write your number down for section 5.
#
# The kernel does not have to be a Gaussian. Any positive function that falls with the distance will
# do.

# %% [markdown]
# ## 5. Which bandwidth? The first mask
#
# *You want the bandwidth that predicts best. How do you measure that?*

# %% [markdown]
# The obvious attempt is to predict each reading and choose the bandwidth with the smallest mean
# squared error. Queries and keys are now the same 40 moments.
#
# **Predict.** The noise in the readings has variance 0.36, and nobody can predict noise. For how
# many of the bandwidths 1, 0.25, 0.05 and 0.0001 is the error below 0.36?


# %% tags=["demo"]
def training_error(bandwidth):
    outputs, _ = predict(inputs, bandwidth)
    return (outputs[:, 0] - targets).square().mean().item()


for bandwidth in (1.0, 0.25, 0.05, 0.0001):
    print(f"bandwidth {bandwidth:<7}: training error {training_error(bandwidth):.4f}")
assert training_error(1.0) > training_error(0.25) > training_error(0.05)
assert training_error(0.0001) < 1e-6 and training_error(1.0) > 0.36 > training_error(0.25)

# %% [markdown]
# <details><summary>Answer</summary>
#
# For three. At 0.0001, it is 0. Each reading is its own nearest key, at distance 0. With a tiny
# bandwidth it takes all the weight and "predicts" itself. The error measures memory, not
# prediction.
#
# </details>
#
# The remedy is to predict reading $i$ from all the *others*. This is called *leave-one-out*. A rule
# of the form "query $i$ may not see key $j$" is called a *mask*. The leave-one-out mask removes the
# diagonal.

# %% [markdown]
# ### Leave one out ★
#
# Leave-one-out is kernel pooling with one key removed from each row:
#
# $$\hat y_i = \sum_{j \ne i} w_{ij}\, y_j, \qquad w_{ij} = \frac{e^{-D_{ij}/(2h^2)}}{\sum_{k \ne i} e^{-D_{ik}/(2h^2)}}, \qquad \hat y \in \mathbb{R}^{N}.$$
#
# **By hand.** Take inputs $-1, 0, 1$ and targets $10, 99, 40$. The middle point is predicted from
# the other two, which are equally far away, so $\hat y_1 = 25$ for every bandwidth. Its own 99 does
# not count.
#
# Here are three ways to remove the middle point from its own row, with $h = 1$: a score of 0, a
# score of minus infinity, and a *weight* of 0 after the softmax.

# %% tags=["demo"]
heights = torch.tensor([10.0, 99.0, 40.0])


def middle(score):
    weights = torch.softmax(torch.tensor([-0.5, score, -0.5]), dim=0)
    return (weights * heights).sum().item()


print(f"score 0 for the middle point : {middle(0.0):.2f}")
print(f"score minus infinity         : {middle(-math.inf):.2f}")

weights = torch.softmax(torch.tensor([-0.5, 0.0, -0.5]), dim=0)
weights[1] = 0
print(f"weight 0 after the softmax   : {(weights * heights).sum():.2f}", end="")
print(f" (the weights sum to {weights.sum():.2f})")
assert math.isclose(middle(-math.inf), 25, rel_tol=1e-6)
assert middle(0.0) > 50 and (weights * heights).sum() < 14

# %% [markdown]
# Only a score of minus infinity predicts 25. A score of 0 changes nothing. The distance from a
# point to itself is 0, so its score was 0 already, and $e^0 = 1$ is the largest possible kernel
# value. A weight of 0 after the softmax leaves the other weights too small, and the prediction
# shrinks.

# %% [markdown]
# ### Exercise: `leave_one_out`
#
# - **Takes** `inputs` `(N,)`, `targets` `(N,)` and `bandwidth`, as in `kernel_pooling`.
# - **Returns** the predictions `(N,)`. Entry $i$ is the Gaussian kernel average of all targets
#   except $y_i$. Differentiable in `inputs`, `targets` and `bandwidth` (if it is a tensor).
# - Leave out only the point itself, not another point with the same input. If there is only one
#   point, predict 0, not nan. Otherwise you may assume that the exponentials of a row do not all
#   underflow: every point has another within six bandwidths.
#
# **Worked example.** For every bandwidth, the inputs $(-1, 0, 1)$ and the targets $(10, 99, 40)$
# give the middle point a prediction of 25.

# %%
from course_lib.attention import leave_one_out

# %%
check("leave_one_out")

# %% [markdown]
# #### Two errors, one picture
#
# Now your function can choose the bandwidth.
#
# **Predict.** Is the leave-one-out error at 0.01 hours smaller than at 1 hour, about the same, or
# larger?


# %% tags=["demo"]
def leave_one_out_error(bandwidth):
    return (leave_one_out(inputs, targets, bandwidth) - targets).square().mean()


bandwidths = torch.logspace(-2, 0, 29)  # from 0.01 to 1 hour
errors = {
    "training": [training_error(h) for h in bandwidths.tolist()],
    "leave-one-out": [leave_one_out_error(h).item() for h in bandwidths.tolist()],
}
for name, values in errors.items():
    lowest = bandwidths[torch.tensor(values).argmin()].item()
    print(f"{name:13}: smallest error at bandwidth {lowest:.2f} h")
assert errors["training"][0] == min(errors["training"])
held_out = errors["leave-one-out"]  # a valley: both ends are a third above the lowest point
assert min(held_out[0], held_out[-1]) > 1.33 * min(held_out) and 0.40 < min(held_out) < 0.43
assert 1.7 < held_out[-1] / held_out[0] < 2.1
assert all(t < o for t, o in zip(errors["training"], errors["leave-one-out"], strict=True))
plotting.show(
    plotting.lines(
        bandwidths,
        errors,
        x_label="bandwidth (hours)",
        y_label="mean squared error (°C²)",
        log_x=True,
        mark={"leave-one-out": min},
    ),
    key="two errors",
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is about half as large. The leave-one-out error has a valley, with its lowest point near 0.23
# h. With a much smaller bandwidth, each prediction is a single noisy neighbor, and with a larger
# one the peaks of the curve are flattened.
#
# </details>
#
# Here are the readings once more, with the bandwidth that has the smallest leave-one-out error.
# Compare it with the number you wrote down in section 4, and the value at hour 2.0 with your first
# guess.

# %% tags=["demo"]
best = bandwidths[torch.tensor(errors["leave-one-out"]).argmin()].item()
assert 0.2 < best < 0.3
fits = {f"bandwidth {best:.2f} hours": predict(places, best)[0][:, 0]}
print(f"at hour 2.0: {predict(torch.tensor([2.0]), best)[0].item():.1f} °C")
plotting.show(plotting.kernel_fits(inputs, targets, places, fits), key="best bandwidth")

# %% [markdown]
# ### Written question: the perfect fit
#
# A colleague reports: "I chose the bandwidth by the error on my 40 readings. The error is now
# 0.000, so my model is perfect, and I need no held-out data."
#
# In five to eight sentences, explain which bandwidth the colleague has found and where the error of
# 0 comes from. What will the predictions between the readings look like? How does leave-one-out
# repair the measurement, and in what sense is it a mask? A language model is trained to predict
# each word of a text. What would the same mistake look like there?

# %% [markdown] written="perfect_fit"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part. Half points are possible.
#
# 1. **Where the 0 comes from.** The bandwidth is (almost) 0. Every reading is its own nearest key,
#    at distance 0, takes all the weight, and so "predicts" itself. The error measures memory.
#    Between the readings, the prediction is that of the nearest key, a staircase that repeats the
#    noise. (Half a point for "overfitting" without mentioning that each reading predicts itself.)
# 2. **The repair.** Leave-one-out predicts each reading from the others only. The diagonal of the
#    scores is set to minus infinity before the softmax (or its weights to 0, and the rest
#    normalized again). It is a mask, that is, a rule saying which key a query may not see. Half a
#    point for "leave it out" without saying how, or for a score of 0.
# 3. **The language model.** If the query that predicts a word may attend to that word (or to later
#    ones), it copies the word. The training loss goes to 0, and the model is useless for writing,
#    where the next word does not exist yet. The causal mask prevents this. Half a point for "the
#    test data is in the training data".
# ### END SOLUTION

# %% [markdown]
# ### All together
#
# This check tests `kernel_pooling` again, now together with *your* `squared_distances`.

# %%
check("01_kernel_pooling")

# %% [markdown]
# ## 6. From distances to dot products ★
#
# *Transformers do not compute distances. They multiply queries by keys. Is that a different idea?*
#
# Expand $\lVert q_i - k_j \rVert^2$ on paper, as you would expand $(a - b)^2$. One term depends on
# the query alone, one on the key alone, and one is a dot product of both.
#
# The query's own term is the same for all keys of query $i$, so it has no effect on the weights.
# What remains is a dot product and a penalty for long keys.
#
# **By hand.** Take the query $(1, 0)$, the keys $(1, 0)$ and $(3, 0)$, and $h = 1$. The dot
# products are 1 and 3, and the squared lengths of the keys are 1 and 9. The scores without the
# query's term are $0.5$ and $-1.5$. The scores from the distances are 0 and $-2$. The difference is
# 2 in both pairs, so the weights agree.

# %% [markdown]
# ### Exercise: `gaussian_as_dot_product`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)` and `bandwidth`, as in `kernel_pooling`.
# - **Returns** scores `(n, m)` whose softmax over the keys equals the weights of `kernel_pooling`,
#   for keys of any length and for queries far away. You may add a constant to each row. The scores
#   are differentiable in queries and keys.
#
# Try to use a matrix product. The full squared distance is accepted too.
#
# **Worked example.** The example above may give `[[0.5, -1.5]]` or `[[0, -2]]`.

# %%
from course_lib.attention import gaussian_as_dot_product

# %%
check("gaussian_as_dot_product")

# %% [markdown]
# PyTorch's attention, `F.scaled_dot_product_attention`, uses dot products without a penalty for
# long keys. Its argument `scale` multiplies the dot products, so `scale=1/h**2` plays the role of
# the bandwidth.
#
# The next cell compares PyTorch's attention with kernel pooling for four kinds of keys: random
# keys, the same without negative entries, the same scaled to length 1, and keys that are one-hot or
# zero. Then it gives the query $(1, 0)$ three keys: $(1, 0)$, the long $(3, 0)$ in the same
# direction, and the long $(-3, 0)$ in the opposite one.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
queries, keys, values = (torch.randn(size, 3, generator=generator) for size in (4, 6, 6))
h = 0.8
kinds_of_keys = {
    "any keys": keys,
    "no negative entries": keys.abs(),
    "length 1": F.normalize(keys, dim=-1),
    "one-hot or zero": F.one_hot(torch.arange(6) % 4, 4)[:, :3].float(),
}
for name, some_keys in kinds_of_keys.items():
    pooled, _ = kernel_pooling(queries, some_keys, values, h)
    theirs = F.scaled_dot_product_attention(queries, some_keys, values, scale=1 / h**2)
    print(f"{name:19}: largest difference {(pooled - theirs).abs().max():.4f}")
    assert torch.allclose(pooled, theirs, atol=1e-5) == (name == "length 1")

query = torch.tensor([[1.0, 0.0]])
three_keys = torch.tensor([[1.0, 0.0], [3.0, 0.0], [-3.0, 0.0]])
gaussian = torch.softmax(gaussian_as_dot_product(query, three_keys, 1.0), dim=1)
dot = torch.softmax(query @ three_keys.T, dim=1)
print("Gaussian    :", gaussian)
print("dot products:", dot)
assert gaussian.argmax() == 0 and dot.argmax() == 1
assert (gaussian > 0).all() and (gaussian[0, 2] < 0.01) and (dot[0, 2] < 0.01)
assert dot[0, 0] < gaussian[0, 0]

# %% [markdown]
# Up to rounding, the two agree only for keys of length 1. The penalty is then the same for all keys
# and cancels like the query's own term. For one-hot and zero keys, the penalties differ.
#
# Without the penalty, the long key in the query's direction gains weight and wins. The short one
# loses, although it is closer. The long key in the opposite direction gets almost no weight in
# either case.

# %% [markdown]
# ## Summary
#
# Attention is a soft search. It compares queries with keys, turns the comparison into weights that
# sum to 1 over the keys, and averages the values with these weights. In kernel pooling, the weights
# are a softmax of $-D/(2h^2)$, and the bandwidth $h$ decides how far a query looks. If a point
# takes part in its own prediction, the error is meaningless, so a mask removes each point from its
# own row.

# %% [markdown]
# ## References
#
# - E. A. Nadaraya, *On estimating regression*, Theory of Probability and its Applications
#   9(1), 1964. <https://doi.org/10.1137/1109020>
# - G. S. Watson, *Smooth regression analysis*, Sankhyā A 26(4), 1964.
#   <https://www.jstor.org/stable/25049340>
# - Y.-H. H. Tsai and others, *Transformer Dissection: A Unified Understanding of Transformer's
#   Attention via the Lens of Kernel*, 2019. <https://arxiv.org/abs/1908.11775>
