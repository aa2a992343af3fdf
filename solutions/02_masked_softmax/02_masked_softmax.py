# %% [markdown]
# # 02 · Masked softmax
#
# **The question.** Attention gives every query a score for every key. Some of those keys are
# padding, some lie in the future. How do you turn the scores into weights so that a forbidden key
# gets a weight of exactly 0, and leaves no trace in the gradient either?
#
# **After this you can**
#
# - compute a softmax that survives scores of any size;
# - write padding, causal and cross-attention masks, and combine them;
# - say what filling with -1e6, -1e9 and minus infinity does in each dtype;
# - keep a query that may see nothing from poisoning your gradients;
# - assemble `masked_softmax`, which every later lesson calls.
#
# **Time:** about two hours. **You need:** broadcasting and indexing in NumPy and PyTorch, and an
# idea of what a gradient is. Lesson 01 helps, but is not required.

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

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting

torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## Words and shapes

# %% tags=["demo", "hide-input"]
shapes = {"scores": "(..., n, m)", "valid_lens": "(B,)", "attention weights": "(..., n, m)"}
plotting.show(plotting.diagram("attention", shapes=shapes))

# %% [markdown]
# | letter | counts | | name | shape |
# |---|---|---|---|---|
# | `B` | items in a batch | | `scores` | `(..., n, m)`: one per query and key, before the softmax |
# | `n` | queries | | `attention_weights` | `(..., n, m)`, after it: each row sums to 1 |
# | `m` | keys | | `valid_lens` | `(B,)` or `(B, n)`: how many leading keys are real |
# | `h` | heads | | `mask` | bool, broadcastable to `(..., n, m)` |
#
# A row belongs to a query, a column to a key. In a *mask*, **True means "may attend"**. Not every
# library agrees; section 2 shows one that does not.
#
# Signatures name the axes too: `Float[Tensor, "*batch num_queries num_keys"]` is a floating tensor
# whose last two axes are queries and keys; `*batch` stands for any number of axes before them.

# %% [markdown]
# ## 1. A softmax that survives
#
# *How do you turn any row of numbers into positive weights that sum to 1?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3,), "mask": (3,), "softmax": (3,)}
plotting.show(plotting.diagram("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# The *softmax* exponentiates each score and divides by the row's total. For scores
# $s \in \mathbb{R}^{n \times m}$, and for each query $i$ and key $j$,
#
# $$w_{ij} = \frac{e^{s_{ij}}}{\sum_{k=1}^{m} e^{s_{ik}}}, \qquad w \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** Take the row $(\ln 1, \ln 2, \ln 4)$. Its exponentials are $1, 2, 4$, their total
# is 7, so the weights are $(1/7, 2/7, 4/7)$. Adding $\ln 2 \approx 0.69$ to a score doubles its
# weight relative to the others: a softmax turns *differences* of scores into *ratios* of weights.

# %% tags=["demo"]
row = np.log([1.0, 2.0, 4.0])
weights = np.exp(row) / np.exp(row).sum()
print("scores ", row.round(4))
print("weights", weights.round(4))
assert np.allclose(weights, [1 / 7, 2 / 7, 4 / 7])
assert np.isclose(weights.sum(), 1)

# %% [markdown]
# **Predict.** A row holds one single score, $-3.7$. What is its softmax? And what would it be for
# $+50$?
#
# <details><summary>Answer</summary>
#
# 1, both times: $e^{s}/e^{s} = 1$. A softmax belongs to a whole row. You cannot take it of one
# score and get a "weight of that score"; a lone key receives all the attention, however low it
# scores.
#
# </details>

# %% tags=["demo"]
for lone_score in (-3.7, 50.0):
    weight = np.exp([lone_score]) / np.exp([lone_score]).sum()
    print(f"softmax of the row ({lone_score}) is {weight[0]:.1f}")
    assert weight[0] == 1

# %% [markdown]
# ### Where the formula breaks
#
# The scores 1000, 1001 and 1002 differ by as little as 0, 1 and 2 do, so they deserve the same
# weights. Run the formula on them as it stands. The `errstate` line only keeps NumPy's warnings
# off the page.

# %% tags=["demo"]
with np.errstate(over="ignore", invalid="ignore"):
    large = np.exp(np.array([1000.0, 1001.0, 1002.0]))
    print("exponentials", large)
    print("weights     ", large / large.sum())
    assert np.isnan(large / large.sum()).all()
    assert np.isinf(np.exp(np.float16(12)))

for dtype in (np.float16, np.float32, np.float64):
    limit = np.log(float(np.finfo(dtype).max))
    print(f"{dtype.__name__}: exp overflows above a score of {limit:.2f}")

# %% [markdown]
# Every exponential is infinite, and infinity divided by infinity is *nan*, "not a number". In
# half precision a score of 12 is already too much.
#
# The remedy costs one subtraction. For any number $c$,
#
# $$\frac{e^{s_j - c}}{\sum_k e^{s_k - c}} = \frac{e^{-c}\, e^{s_j}}{e^{-c} \sum_k e^{s_k}} = \frac{e^{s_j}}{\sum_k e^{s_k}},$$
#
# so you may shift a whole row without changing its weights. Which $c$ keeps every exponent at 0
# or below, and at least one of them at 0?
#
# The picture shifts the row $(2, 1, 3)$ by $c = 3$. What you should see: different bars on the
# left, the same bars on the right.

# %% tags=["demo"]
scores = np.array([2.0, 1.0, 3.0])
shifted = scores - 3.0
before = np.exp(scores) / np.exp(scores).sum()
after = np.exp(shifted) / np.exp(shifted).sum()
assert np.allclose(before, after)
plotting.show(plotting.softmax_shift(scores, shifted, before, after))

# %% [markdown]
# ### A shortcut that works in two dimensions only
#
# To divide each row by its own total, some code transposes, divides, and transposes back. On a
# matrix that is right. Attention scores have a batch axis, and `.T` reverses *all* axes.


# %% tags=["demo"]
def transposing_softmax(scores):
    exponentials = np.exp(scores)
    columns = exponentials.T / exponentials.sum(axis=-1)
    return columns.T


rng = np.random.default_rng(0)
try:
    transposing_softmax(rng.normal(size=(2, 3, 4)))
except ValueError as error:
    print("(2, 3, 4):", error)
totals = transposing_softmax(rng.normal(size=(3, 3, 4))).sum(axis=-1)
print("(3, 3, 4): no error, and these row totals:")
print(totals.round(2))
assert not np.allclose(totals, 1)

# %% [markdown]
# The second case is the dangerous one. With three items of three queries the shapes fit by
# accident, and item $b$'s rows are divided by totals that belong to other items. What you want is
# a total that *keeps its axis*: shape `(3, 3, 1)` divides `(3, 3, 4)` in any number of
# dimensions.

# %% [markdown]
# ### Exercise: `stable_softmax`
#
# Write the softmax that the rest of the lesson can lean on, in NumPy.
#
# - **Takes** `scores`, a float array with any number of axes, and `axis`, the axis that must sum to
#   1 (the last by default).
# - **Returns** a new array of the same shape and dtype: non-negative, summing to 1 along `axis`,
#   finite for any finite scores. `scores` stays as it was.
#
# **Worked number.** With $\ln 3 = 1.098612$, the row $(0, 1.098612)$ has exponentials 1 and 3, so
# the answer is $(0.25, 0.75)$. The row $(1000, 1001.098612)$ gives the same.

# %%
from course_lib.attention import stable_softmax

# %%
check("stable_softmax")

# %% [markdown]
# ## 2. Padding: some keys are not there
#
# *A batch is a rectangle, sentences are not. What happens to the cells that fill it up?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (2, 2, 3), "valid_lens": (2,), "mask": (2, 2, 3)}
plotting.show(plotting.diagram("attention", lit=("valid_lens", "mask"), shapes=shapes))

# %% [markdown]
# Two sentences of 2 and 4 words go into one batch, so the first is padded to 4 words. Scores are
# computed for every query and every key, padded keys included. A key that is not there should
# have no weight.
#
# **Predict.** The first sentence's scores are $(2, 1)$, and you write 0 for its two pads. How much
# attention do the pads receive together: nothing, about 2 %, or about 17 %?
#
# <details><summary>Answer</summary>
#
# About 17 %. A score of 0 is an ordinary score, and $e^0 = 1$. Only a score whose exponential is 0
# is no score at all.
#
# </details>

# %% tags=["demo"]
weights = stable_softmax(np.array([2.0, 1.0, 0.0, 0.0]))
print("weights", weights.round(4))
print(f"weight of the two pads: {weights[2:].sum():.4f}")
assert 0.16 < weights[2:].sum() < 0.17

# %% [markdown]
# So you need to say which keys are real. The compact way is a tensor of lengths
# $\ell_0, \dots, \ell_{B-1}$, called `valid_lens`; the explicit way is a mask of shape `(B, m)`:
#
# $$\text{mask}_{bj} = (j \lt \ell_b), \qquad j = 0, \dots, m - 1.$$
#
# **By hand.** With `valid_lens = [3, 1]` and four keys:
#
# | | key 0 | key 1 | key 2 | key 3 |
# |---|---|---|---|---|
# | item 0, length 3 | True | True | True | False |
# | item 1, length 1 | True | False | False | False |
#
# Length 3 means keys 0, 1 and 2: the comparison is "less than", not "at most". The number of True
# cells is the sum of the lengths, here 4. Lengths 0 and $m$ are allowed; they give a row of False
# and a row of True.

# %% [markdown]
# ### Exercise: `length_mask`
#
# - **Takes** `valid_lens`, an integer tensor of shape `(B,)` (one length for each item) or
#   `(B, n)` (one for each query), every length in `0..max_len`; and `max_len`, the number of keys
#   after padding.
# - **Returns** a bool tensor, True where the key is real: shape `(B, max_len)` or
#   `(B, n, max_len)`, on the device of `valid_lens`.
#
# **Worked number.** `length_mask(torch.tensor([2, 0]), 3)` is
# `[[True, True, False], [False, False, False]]`. With `valid_lens` of shape `(1, 2)`, say
# `[[1, 3]]`, and `max_len=3` the result has shape `(1, 2, 3)`: query 0 sees one key, query 1 all
# three.

# %%
from course_lib.attention import length_mask

# %%
check("length_mask")

# %% [markdown]
# ### A batch axis that lands in the wrong place
#
# The mask of shape `(B, m)` says nothing about queries. To lay it over scores of shape
# `(B, n, m)`, give it a query axis of size 1: `(B, 1, m)`. Forget this, and broadcasting lines up
# `B` with `n`. If the two differ you get an error. If they are equal you get wrong numbers.
#
# The cell has two items of two queries; item 0 has one real key, item 1 has three.

# %% tags=["demo"]
real = length_mask(torch.tensor([1, 3]), 3)  # (B, m) = (2, 3)
scores = torch.zeros(2, 2, 3)  # (B, n, m)
print("forgotten query axis, item 0:", real.expand_as(scores)[0].tolist())
print("with a query axis,    item 0:", real[:, None, :].expand_as(scores)[0].tolist())
assert real.expand_as(scores)[0, 1].all()  # query 1 of item 0 sees pads
assert not real[:, None, :].expand_as(scores)[0, :, 1:].any()

# %% [markdown]
# ### The same word, the opposite meaning
#
# PyTorch has two conventions for a bool mask:
#
# | where | True means |
# |---|---|
# | `F.scaled_dot_product_attention(attn_mask=...)`, and this course | take part |
# | `nn.MultiheadAttention(key_padding_mask=..., attn_mask=...)` | ignore |
#
# You may also read that `key_padding_mask` is a list of lengths. It is not: torch wants a bool or
# float tensor of shape `(B, m)`. Lengths have to become a mask first, and for
# `nn.MultiheadAttention` that mask has to be inverted.
#
# What you should see below: with `~real` the last two keys of the item get weight 0. With `real`
# the *real* keys are the ones ignored, without a word of warning.

# %% tags=["demo"]
torch.manual_seed(0)
attention = nn.MultiheadAttention(embed_dim=4, num_heads=1, batch_first=True).eval()
x = torch.randn(1, 5, 4)
valid_lens = torch.tensor([3])
real = length_mask(valid_lens, 5)  # (1, 5)
with torch.no_grad():
    right = attention(x, x, x, key_padding_mask=~real)[1][0]  # (n, m)
    wrong = attention(x, x, x, key_padding_mask=real)[1][0]
print("~real, query 0:", right[0])
print(" real, query 0:", wrong[0])
assert not right[:, 3:].any()
assert not wrong[:, :3].any()
try:
    attention(x, x, x, key_padding_mask=valid_lens[:, None])
except AssertionError as error:
    print("lengths:", error)

# %% [markdown]
# ## 3. Causal masks: no looking ahead
#
# *A model that predicts the next word must not read it. Which keys may query $i$ see?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (4, 4), "mask": (4, 4)}
plotting.show(plotting.diagram("attention", lit="mask", shapes=shapes))

# %% [markdown]
# Its own position and the earlier ones: $\text{mask}_{ij} = (j \le i)$, shape `(n, n)`. This is
# the *causal mask*.
#
# **Predict.** You read in a tutorial: *an upper triangular matrix of ones restricts each token to
# previous tokens*. Rows are queries, columns are keys, 1 means "may attend". Which keys does the
# **first** token see under that matrix? Which does the **last** one see?
#
# <details><summary>Answer</summary>
#
# The first token sees everything, all of its future included. The last one sees only itself. The
# tutorial's words describe the *lower* triangle. An upper triangle is right only if 1 means
# "drop", and then without the diagonal.
#
# </details>

# %% tags=["demo"]
upper = torch.ones(4, 4).triu().bool()
for query in range(4):
    keys = upper[query].nonzero().flatten().tolist()
    print(f"upper triangle: query {query} may attend keys {keys}")
future = sum(upper[i, j].item() for i in range(4) for j in range(4) if j > i)
past = sum(upper[i, j].item() for i in range(4) for j in range(4) if j < i)
print(f"cells that look ahead: {future} of 6; cells that look back: {past} of 6")
assert (future, past) == (6, 0)

# %% [markdown]
# ### When queries and keys differ in number
#
# A model that writes a text keeps the keys of all earlier words and computes queries only for the
# newest ones: $n$ queries, $m \ge n$ keys. The last query is the newest word, so **the last query
# belongs to the last key**:
#
# $$\text{mask}_{ij} = (j \le i + m - n), \qquad \text{shape } (n, m).$$
#
# **By hand.** For $n = 2$ and $m = 5$ the offset is 3. Query 0 sees keys 0 to 3, query 1 sees keys
# 0 to 4. For $n = m$ the offset is 0, and you have the square mask back.
#
# `F.scaled_dot_product_attention(is_causal=True)` aligns the **first** query with the **first**
# key. The cell shows its weights: all scores are 0, so a query shares its weight evenly
# among the keys it sees; the values are an identity matrix, so the output *is* the weights.

# %% tags=["demo"]
queries, keys, values = torch.zeros(1, 2, 3), torch.zeros(1, 5, 3), torch.eye(5)[None]
first_aligned = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)[0]
print("torch, is_causal=True, 2 queries over 5 keys:")
print(first_aligned)
assert first_aligned[0].tolist() == [1, 0, 0, 0, 0]

# %% [markdown]
# Query 0 sees one key out of five. If these two queries are the two newest words, torch has made
# them forget nearly everything that came before. So check the alignment whenever $n \ne m$.

# %% [markdown]
# ### Exercise: `causal_mask`
#
# - **Takes** `num_queries` and `num_keys`; without the second, there are as many keys as queries.
# - **Returns** a bool tensor of shape `(num_queries, num_keys)`, True where query $i$ may attend
#   key $j$. The last query is aligned with the last key.
#
# **Worked number.** `causal_mask(2, 3)` has the offset $3 - 2 = 1$, so query 0 sees keys 0 and 1,
# query 1 sees all three: `[[True, True, False], [True, True, True]]`. `causal_mask(3)` has
# $1 + 2 + 3 = 6$ True cells.

# %%
from course_lib.attention import causal_mask

# %%
check("causal_mask")

# %% [markdown]
# **See it move.** The next cell has two sliders. What you should see as you add
# keys: the staircase slides to the right, and its lowest step always ends at the last key. As you
# add queries beyond the number of keys, rows without a single tick appear at the top. Keep them
# in mind; section 7 is about them.


# %% tags=["demo"]
def draw_causal(num_queries, num_keys):
    ours = causal_mask(num_queries, num_keys)
    torch_first = causal_mask(max(num_queries, num_keys))[:num_queries, :num_keys]
    return plotting.mask_gallery(
        {"last aligned (this course)": ours, "first aligned (is_causal)": torch_first}
    )


assert torch.equal(first_aligned > 0, causal_mask(5)[:2, :5])
plotting.interactive(
    draw_causal,
    start={"num_queries": 2, "num_keys": 5},
    num_queries=range(1, 7),
    num_keys=range(1, 7),
)

# %% [markdown]
# ## 4. Combining masks
#
# *A decoder reads a padded sentence from left to right. Which of two masks wins?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (5, 5), "valid_lens": (1,), "mask": (5, 5)}
plotting.show(plotting.diagram("attention", lit="mask", shapes=shapes))

# %% [markdown]
# Both. A key may be attended only if **every** mask allows it, so masks combine with AND:
#
# | may see | is real | attend |
# |---|---|---|
# | True | True | **True** |
# | True | False | False |
# | False | True | False |
# | False | False | False |
#
# Broadcasting does the rest: a causal mask `(n, m)` and a padding mask `(B, 1, m)` combine to
# `(B, n, m)`. A mask that is `None` has nothing to say and forbids nothing.
#
# **Predict.** Five tokens, three of them real, and a causal mask. How many of 25 cells stay True?
#
# <details><summary>Answer</summary>
#
# Row by row: 1, 2, 3, 3, 3, together 12. Each mask alone has 15.
#
# </details>

# %% [markdown]
# Two ways of writing "and" in Python do something else. Adding bool tensors is OR in PyTorch, and
# the keyword `and` wants one single truth value. A third way, multiplying float masks, gives the
# right pattern in the wrong dtype; section 5 shows what 0 and 1 do to scores.

# %% tags=["demo"]
may_see = torch.tensor([True, True, False])
is_real = torch.tensor([True, False, False])
print("+   :", (may_see + is_real).tolist())
assert (may_see + is_real)[1]  # a pad is attended again
try:
    may_see and is_real
except RuntimeError as error:
    print("and :", error)
print("*   :", (may_see.float() * is_real.float()).tolist())

# %% [markdown]
# ### Exercise: `combine_masks`
#
# - **Takes** any number of masks as separate arguments. Each is a bool tensor, True = may attend,
#   or `None`. The tensors are broadcastable to each other.
# - **Returns** the bool tensor that allows a key only where every mask allows it, in the broadcast
#   shape; `None` if there is no tensor among the arguments.
#
# **Worked number.** `[True, True, False]` with `[True, False, False]` gives
# `[True, False, False]`. The `(3, 3)` causal mask (6 True cells) with a `(1, 3)` mask of two real
# keys has shape `(3, 3)` and $1 + 2 + 2 = 5$ True cells.

# %%
from course_lib.attention import combine_masks

# %%
check("combine_masks")

# %% [markdown]
# ### A gallery
#
# Five masks you will meet. What you should see: *padding* cuts off whole columns; *causal* is a
# staircase; with fewer queries than keys it starts part of the way down; *cross* has as many rows
# as the target has words and as many columns as the source, and cuts off only the source's pads;
# *causal and padding* is the staircase with its last two columns gone.

# %% tags=["demo"]
padding = length_mask(torch.tensor([3]), 5)  # (1, 5)
decoder = combine_masks(causal_mask(5), padding)  # (5, 5)
assert decoder.sum() == 12
assert causal_mask(5).sum() == padding.expand(5, 5).sum() == 15
source = length_mask(torch.tensor([4]), 6)  # (1, 6)
plotting.show(
    plotting.mask_gallery(
        {
            "padding, 3 of 5 real": padding.expand(5, 5),
            "causal": causal_mask(5),
            "causal, 2 new queries": causal_mask(2, 5),
            "cross, 4 of 6 real": source.expand(3, 6),
            "causal and padding": decoder,
        }
    )
)

# %% [markdown]
# Rows 3 and 4 of the last mask belong to queries that are pads themselves. They may attend the
# real keys, and compute something nobody reads. Masks remove *keys*; the outputs of padded
# queries are left out later, by the loss.

# %% [markdown]
# ## 5. From True and False to numbers
#
# *A softmax eats numbers. Which number stands for "not allowed"?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3,), "mask": (3,), "softmax": (3,)}
plotting.show(plotting.diagram("attention", lit="mask", shapes=shapes))

# %% [markdown]
# The one whose exponential is 0. An *additive mask* $M$ holds 0 where a key is kept and $-\infty$
# where it is dropped:
#
# $$w = \operatorname{softmax}(s + M), \qquad s, M, w \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** Scores $(0, \ln 3, 5)$, the last key dropped: $s + M = (0, \ln 3, -\infty)$, the
# exponentials are $1, 3, 0$, the weights are $(1/4, 3/4, 0)$. The high score 5 has left no trace.

# %% [markdown]
# **Predict.** Someone adds the mask as ones and zeros: 1 where kept, 0 where dropped. All three
# scores are 0, and the last key is to be dropped. Its weight is then 0, 0.16 or 0.33?
#
# <details><summary>Answer</summary>
#
# 0.16. The kept keys score 1, the dropped one 0, and $1/(e + e + 1) = 0.155$. Adding 1 multiplies
# the kept weights by $e$ before normalising; it forbids nothing.
#
# </details>

# %% tags=["demo"]
mask = torch.tensor([True, True, False])
added = torch.softmax(torch.zeros(3) + mask.float(), dim=-1)
print("0/1 mask added:", added)
assert 0.15 < added[2] < 0.16

by_product = (1 - mask.float()) * -math.inf
print("(1 - mask) * -inf:", by_product)
assert by_product[:2].isnan().all()  # 0 * inf is nan

# %% [markdown]
# The second line is the mask formula that looks most natural, and zero times infinity is nan: it
# breaks the very keys you wanted to keep.
#
# A third trap waits in notebooks. The cell below recodes a 0/1 matrix in place, first 0 to
# $-\infty$, then 1 to 0. Then someone runs it again.

# %% tags=["demo"]
numbers = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
for run in (1, 2):  # the same cell, run twice
    numbers.masked_fill_(numbers == 0, -math.inf).masked_fill_(numbers == 1, 0.0)
    print(f"after run {run}:", numbers.tolist())
assert numbers.isneginf().all()

# %% [markdown]
# After the second run nothing may attend anything: the zeros that meant "keep" were taken for
# zeros that mean "drop". Keep masks bool for as long as you can, and make the numbers from them in
# one step that leaves the mask alone.

# %% [markdown]
# ### Exercise: `additive_mask`
#
# - **Takes** `mask`, a bool tensor of any shape, True = may attend; and `dtype`, the floating
#   dtype of the scores it will be added to.
# - **Returns** a tensor of that dtype and of the mask's shape and device: exactly 0 where the key
#   is kept, minus infinity where it is dropped.
#
# **Worked number.** `additive_mask(torch.tensor([True, False]), torch.float16)` is `[0, -inf]` in
# float16. Added to the scores $(2, 7)$ it gives $(2, -\infty)$, and the weights $(1, 0)$.

# %%
from course_lib.attention import additive_mask

# %%
check("additive_mask")

# %% [markdown]
# PyTorch's own attention takes either form. What you should see: no difference between the bool
# mask and your additive one, on the example you did by hand.

# %% tags=["demo"]
scores = torch.tensor([[0.0, math.log(3), 5.0]])
weights = torch.softmax(scores + additive_mask(mask, scores.dtype), dim=-1)
print(weights)
assert torch.allclose(weights, torch.tensor([[0.25, 0.75, 0.0]]))
assert weights[0, 2] == 0  # exactly

as_query, as_keys = torch.ones(1, 1), scores.T  # a dot product of size 1
results = [
    F.scaled_dot_product_attention(as_query, as_keys, torch.eye(3), attn_mask=form)
    for form in (mask[None], additive_mask(mask[None], torch.float32))
]
assert torch.equal(*results)
assert torch.allclose(results[0], weights)

# %% [markdown]
# ## 6. How negative is negative enough?
#
# *Many libraries fill with -1e6 or -1e9 instead of minus infinity. What do they risk?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3,), "mask": (3,), "softmax": (3,)}
plotting.show(plotting.diagram("attention", lit=("mask", "softmax"), shapes=shapes))

# %% [markdown]
# Suppose one allowed key has the score $s$, and one forbidden key is filled with $f$. The
# forbidden key's weight is
#
# $$\frac{e^{f}}{e^{s} + e^{f}} = \frac{1}{1 + e^{s - f}}.$$
#
# Only the *gap* $s - f$ counts. So -1e6 is not "a very small number": it is small compared with
# scores near 0, and ordinary among scores near -1e6.
#
# **By hand.** If $s = f$ the gap is 0 and the forbidden key gets $1/2$.

# %% tags=["demo"]
keep = torch.tensor([True, True, False])
for level in (0.0, -1e6):
    scores = torch.tensor([0.0, 1.0, 2.0]) + level
    for fill in (-1e6, -math.inf):
        weights = torch.softmax(torch.where(keep, scores, fill), dim=-1)
        print(f"scores near {level:8.0f}, fill {fill:8.0f}: weights", weights)
        leaks = level == fill
        assert (0.21 < weights[2] < 0.22) == leaks
        assert (weights[2] == 0) == (not leaks)

# %% [markdown]
# With scores near -1e6 the forbidden key keeps 21 % of the weight. Such scores are rare, but
# nothing in the formula keeps scores near 0, and code for small dtypes uses smaller fills: -1e4 is
# a popular one.
#
# The other risk is the dtype. Before you run the cell: what is the lowest number float16 can
# hold?

# %% tags=["demo"]
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    lowest = torch.finfo(dtype).min
    becomes = torch.tensor(-1e6, dtype=torch.float64).to(dtype).item()
    print(f"{dtype!s:14} lowest {lowest:11.3e}   -1e6 becomes {becomes:.0f}")
assert torch.finfo(torch.float16).min == -65504
try:
    torch.zeros(3, dtype=torch.float16).masked_fill(~keep, -1e6)
except RuntimeError as error:
    print("float16, masked_fill with -1e6:", error)

# %% [markdown]
# Float16 bottoms out at -65504. There, -1e6 and -1e9 either raise an error or turn into minus infinity
# unasked.
#
# The figure puts both risks together: across, the fill value; up, the weight that the forbidden
# key keeps, as a power of ten, with a line of its own for an exact 0. What you should see on the
# left, with allowed scores near 0: each dtype drops to 0 at its own fill value, float16 first,
# float64 last. On the right, with allowed scores near -8192: the drop has moved, for all of them,
# to a fill of about -8192. Move the level yourself.


# %% tags=["demo"]
fills = [-(2.0**power) for power in range(21)]
dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def leaked(level, dtype):
    rows = torch.tensor([[level, fill] for fill in fills], dtype=torch.float64).to(dtype)
    return torch.softmax(rows, dim=-1)[:, 1]


def draw_leakage(level):
    panels = {
        f"scores near {at}": {str(dtype)[6:]: leaked(at, dtype) for dtype in dtypes}
        for at in (0, level)
    }
    return plotting.fill_leakage(fills, panels)


assert leaked(0, torch.float32)[10] == 0
assert leaked(-8192, torch.float32)[10] == 1
plotting.interactive(draw_leakage, start={"level": -8192}, level=[-8, -64, -1024, -8192])

# %% [markdown]
# `torch.finfo(dtype).min` moves the drop as far out as the dtype allows. Minus infinity has no
# drop at all: $e^{-\infty}$ is 0 wherever the scores are, in every dtype. It has a price of its
# own, though.

# %% [markdown]
# ## 7. A query that may see nothing
#
# *What is the softmax of a row in which every key is forbidden?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3, 4), "mask": (3, 4), "softmax": (3, 4)}
plotting.show(plotting.diagram("attention", lit=("mask", "softmax"), shapes=shapes))

# %% [markdown]
# Such an *empty row* is no accident of bad data. Sections 2 and 3 made some: an item of length 0,
# or a causal mask with more queries than keys. A padding mask at the *start* of a sentence
# together with a causal mask makes more.
#
# The formula has no answer: $0/0$. Each way of masking answers something else, and the cell shows
# four of them for the scores $(1, 2, 3)$. Guess before you run it: which one returns the
# **unmasked** weights?

# %% tags=["demo"]
scores = torch.tensor([1.0, 2.0, 3.0])
nobody = torch.tensor([False, False, False])
answers = {
    "fill with -inf": scores.masked_fill(~nobody, -math.inf),
    "fill with -1e9": scores.masked_fill(~nobody, -1e9),
    "add -1e9": scores - 1e9,
    "add -1e6": scores - 1e6,
}
for name, masked in answers.items():
    print(f"{name:15}", torch.softmax(masked, dim=-1))
assert torch.softmax(answers["fill with -inf"], dim=-1).isnan().all()
assert np.spacing(np.float32(1e9)) == 64  # why "add -1e9" forgets the scores
assert torch.allclose(torch.softmax(answers["add -1e6"], dim=-1), torch.softmax(scores, dim=-1))

# %% [markdown]
# Adding -1e6 to every score is a shift of the whole row, and a softmax ignores shifts: every
# forbidden key is attended as if there were no mask. Adding -1e9 in float32 rounds the scores
# away (neighbouring numbers there are 64 apart) and leaves a plain average over forbidden keys.
# Minus infinity gives nan.
#
# **This course's convention:** an empty row gets weights 0, output 0, and a gradient that is
# finite. `F.scaled_dot_product_attention` of current PyTorch answers 0 as well; section 9 checks.
#
# Next, the repair that suggests itself: compute, then replace nan by 0.


# %% tags=["demo"]
def replace_afterwards(scores, mask):
    weights = torch.softmax(scores + additive_mask(mask, scores.dtype), dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)


start = torch.tensor([[2.0, 0.0, 1.0, 3.0], [1.0, 3.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0]])
some = torch.tensor([[True, True, True, False]] * 3)
empty = some.clone()
empty[1] = False  # query 1 may see nothing
gradients = {}
for name, mask in {"no empty row": some, "query 1 is empty": empty}.items():
    scores = start.clone().requires_grad_()
    weights = replace_afterwards(scores, mask)
    (weights * torch.arange(4.0)).sum().backward()
    gradients[name] = scores.grad
    print(f"{name:16} row totals", weights.detach().sum(dim=-1))
plotting.show(plotting.gradient_map(gradients))

# %% [markdown]
# The forward pass is what you wanted: the totals are 1, 0, 1. What you should see in the picture:
# on the right, the whole gradient of query 1 is nan, although `where` replaced its weights.
#
# Why? Going back through a softmax multiplies by its weights,
#
# $$\frac{\partial L}{\partial s_{ij}} = w_{ij}\Bigl(g_{ij} - \sum_k g_{ik} w_{ik}\Bigr), \qquad g = \frac{\partial L}{\partial w}.$$
#
# `where` sends $g = 0$ back to the replaced cells. The softmax still holds $w = \text{nan}$, and
# $0 \times \text{nan}$ is nan. So it has to be kept from ever *making* a nan.
#
# One empty row is enough to reach every key: each key is multiplied with every query, so its
# gradient sums over all of them. Take one step of gradient descent with it.

# %% tags=["demo"]
torch.manual_seed(0)
queries = torch.randn(3, 2, requires_grad=True)
keys = torch.randn(4, 2, requires_grad=True)
weights = replace_afterwards(queries @ keys.T, empty)
assert weights.isfinite().all()
(weights * torch.arange(4.0)).sum().backward()
print("queries with a nan gradient:", int(queries.grad.isnan().any(dim=-1).sum()), "of 3")
print("keys with a nan gradient:   ", int(keys.grad.isnan().any(dim=-1).sum()), "of 4")
with torch.no_grad():
    after = torch.softmax((queries - 0.1 * queries.grad) @ (keys - 0.1 * keys.grad).T, dim=-1)
print("rows with nan weights after one step:", int(after.isnan().any(dim=-1).sum()), "of 3")
assert gradients["query 1 is empty"][1].isnan().all()
assert gradients["no empty row"].isfinite().all()
assert keys.grad.isnan().all()
assert after.isnan().all()

# %% [markdown]
# Only query 1 and the keys have become nan, but every weight is made of a key: after one step
# nothing is left of the forward pass that looked right.
#
# <details><summary>A detail for the curious: why this does not always show</summary>
#
# If the scores are masked with `masked_fill` instead of an addition, PyTorch sends the gradient 0
# to every filled cell, and the nan ends there. The code is right by the grace of one operation:
# swap it for an addition, or compute `exp(scores) * mask` and divide, and the nan is back.
#
# </details>

# %% [markdown]
# ### Written question: a colleague's empty rows
#
# A colleague fills forbidden scores with -1e9 and is content: "Rows always sum to 1, there is
# never a nan, and all my tests pass. An empty row gets uniform weights, and that does no harm."
#
# A person reads this one. In five to eight sentences: what does the output of such a row consist
# of, and why is it hard to notice? Name a situation in which empty rows arise without anyone
# intending it. What should the function return instead, and what does that ask of the code that
# uses the result?

# %% [markdown] written="empty_row_choice"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **What happens, and why it is silent.** The output is the average of the values of all $m$
#    keys, every one of them forbidden: padding, or words from the future. The numbers are finite
#    and the rows sum to 1, so nothing signals it, yet the same sentence gives other results in a
#    batch with other padding. (Half a point for "it attends pads" without saying why nobody
#    notices.)
# 2. **Where empty rows come from.** One real situation: an item of length 0; a causal mask with
#    more queries than keys; padding at the start together with a causal mask; two harmless masks
#    that exclude each other.
# 3. **What to return, and what follows.** Weights 0, hence output 0, with finite gradients; code
#    that relies on row sums of 1 has to treat these rows apart, and the loss should leave them
#    out. An error is worth the point as well if the answer says why an empty row is a mistake
#    there. Half a point for nan: it is loud, but one row spoils every gradient of the batch.
# ### END SOLUTION

# %% [markdown]
# ## 8. Putting it together
#
# *What else can go wrong between a correct mask and a correct function?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (2, 3, 5), "valid_lens": (2,), "softmax": (2, 3, 5)}
plotting.show(plotting.diagram("attention", lit=("valid_lens", "mask", "softmax"), shapes=shapes))

# %% [markdown]
# Three things, all found in published code. The first: **changing what the caller gave you.**
# A `reshape` of contiguous scores is a view, so writing into it writes into the caller's tensor.
# If that tensor is a parameter, PyTorch refuses; if it came out of a `tanh`, the backward pass
# breaks, because `tanh` needs its output again.

# %% tags=["demo"]
drop = torch.tensor([[False, False, True], [False, True, True]])


def overwrite(scores):
    scores.reshape(-1, 3)[drop] = -1e6


mine = torch.ones(2, 3)
overwrite(mine)
print("the caller's scores afterwards:", mine.tolist())
assert (mine == -1e6).sum() == 3
leaf = torch.ones(2, 3, requires_grad=True)
through_tanh = torch.tanh(leaf)
for name, attempt in {
    "leaf": lambda: overwrite(leaf),
    "tanh": lambda: (overwrite(through_tanh), through_tanh.sum().backward()),
}.items():
    try:
        attempt()
        raise AssertionError("this was expected to fail")
    except RuntimeError as error:
        print(f"{name}: {str(error).split(':')[0].split(' is being')[0]}")

# %% [markdown]
# The second: **the order of rows.** Scores `(B, n, m)` flattened to `(B * n, m)` list item 0's
# queries first, then item 1's.
#
# **Predict.** `valid_lens = [1, 3]` and two queries for each item. Which of these gives each row
# its length: `valid_lens.repeat(2)` or `valid_lens.repeat_interleave(2)`?
#
# <details><summary>Answer</summary>
#
# `repeat_interleave`: `[1, 1, 3, 3]`. With `repeat` you get `[1, 3, 1, 3]`, and item 0's second
# query sees three keys. If all lengths are equal the two agree, which is why a test with equal
# lengths proves nothing. A mask with the right axes, `(B, 1, m)`, needs neither.
#
# </details>

# %% tags=["demo"]
valid_lens = torch.tensor([1, 3])
print("repeat           ", valid_lens.repeat(2).tolist())
print("repeat_interleave", valid_lens.repeat_interleave(2).tolist())
assert valid_lens.repeat_interleave(2).tolist() == [1, 1, 3, 3]

# %% [markdown]
# The third: **forgetting that there may be nothing to mask.** `valid_lens=None` is the ordinary
# case at inference time, and a function that asks for `valid_lens.dim()` first crashes on it.

# %% [markdown]
# ### Exercise: `masked_softmax`
#
# The function the rest of the course calls.
#
# - **Takes** `scores` `(..., n, m)`; optionally `valid_lens`, `(B,)` or `(B, n)`, for scores that
#   start with a batch axis, `(B, n, m)` or `(B, h, n, m)`, the same for every head; optionally
#   `mask`, bool, broadcastable to the scores, True = may attend. With both, a key needs both.
# - **Returns** the weights, in the shape and dtype of the scores. Forbidden keys get exactly 0,
#   however large their scores are, and the allowed keys get the weights they would have without
#   them. Empty rows are all 0, and so is their gradient. No argument is changed. With neither
#   `valid_lens` nor `mask` it is a plain softmax.
#
# **Worked number.** Scores `[[[0, 1.098612, 5]]]`, shape `(1, 1, 3)`, where 1.098612 is ln 3, with
# `valid_lens=[2]` give `[[[0.25, 0.75, 0]]]`; with `valid_lens=[0]` they give `[[[0, 0, 0]]]`.
#
# You have every part already: sections 2, 4 and 7.

# %%
from course_lib.attention import masked_softmax

# %%
check("masked_softmax")

# %% [markdown]
# ### Look at it
#
# Two items of three queries over five keys. Item 0 has four real keys and item 1 has five; a causal
# mask lies over both. What you should see: hatched cells are 0, and each row sums to 1 over what is
# left. The hatching of the two items differs in one cell, query 2 at key 4: causality allows it,
# the padding of item 0 does not.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(2)
scores = 1.5 * torch.randn(2, 3, 5, generator=generator)
valid_lens = torch.tensor([4, 5])
see = causal_mask(3, 5)
weights = masked_softmax(scores, valid_lens, mask=see)
allowed = combine_masks(length_mask(valid_lens, 5)[:, None, :], see)  # (2, 3, 5)
panels = {"item 0, length 4": weights[0], "item 1, length 5": weights[1]}
masks = {"item 0, length 4": allowed[0], "item 1, length 5": allowed[1]}
plotting.show(plotting.heatmap_grid(panels, masks=masks, columns=2))
assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 3))
assert not weights[~allowed].any()
assert (allowed[0] != allowed[1]).nonzero().tolist() == [[2, 4]]

# %% [markdown]
# ### Click a mask
#
# **Predict.** A row of three equal scores and a fourth that is larger by 2. You mask the fourth key.
# What are the weights of the others, before and after? And what do the *other rows* do?
#
# Then click: a cell that is pressed may be attended.

# %% tags=["demo"]
four = torch.tensor([[0.0, 0, 0, 2], [1, 2, 3, 4], [0, 0, 0, 0], [4, 0, -4, 0]])
plotting.show(plotting.clickable_mask(four, masked_softmax))
shared = masked_softmax(four, mask=torch.arange(4) < 3)
assert torch.allclose(shared[0], torch.tensor([1, 1, 1, 0]) / 3)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Before, each of the three has $1 / (3 + e^2) = 0.10$; after, a third. What the masked key had is
# shared in proportion, so the ratios within a row stay. The other rows do not move: each
# query has a softmax of its own. Mask a whole row, and it becomes zeros, not nan.
#
# </details>

# %% [markdown]
# ### What must hold
#
# Numbers can look plausible and be wrong, so test *properties*, with sizes and lengths that all
# differ:
#
# 1. masking a key equals deleting it;
# 2. garbage in forbidden scores changes nothing;
# 3. an empty row gives 0 and finite gradients;
# 4. the scores are as they were.

# %% tags=["demo"]
before = scores.clone()
deleted = torch.softmax(scores[0, 2, :4], dim=-1)  # query 2 of item 0 without its pad
assert torch.allclose(weights[0, 2, :4], deleted)

garbage = torch.where(allowed, scores, 1e4)
assert torch.equal(masked_softmax(garbage, valid_lens, mask=see), weights)

leaf = scores.clone().requires_grad_()
with_empty = masked_softmax(leaf, torch.tensor([0, 5]))
(with_empty * torch.arange(5.0)).sum().backward()
assert not with_empty[0].any()
assert leaf.grad.isfinite().all()
assert not leaf.grad[0].any()

assert torch.equal(scores, before)
print("all four hold")

# %% [markdown]
# ### All together
#
# Each check so far was about one exercise, and grading gives it the course's versions of all others.
# This one puts *your* `length_mask`, `combine_masks` and `masked_softmax` together, right or wrong,
# and checks the last of them again: pieces that are right alone should be right in company. It
# needs the checks above to have seen your cells in this session.

# %%
check("02_masked_softmax")

# %% [markdown]
# ## 9. Where it goes from here

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 3, 4), "keys": (1, 5, 4), "scores": (1, 3, 5), "values": (1, 5, 5)}
plotting.show(plotting.diagram("attention", lit=("scores", "weighted sum"), shapes=shapes))

# %% [markdown]
# Scores come from comparing queries with keys; weights become an output by averaging values:
#
# | step | shape | lesson |
# |---|---|---|
# | scores from queries and keys | `(B, n, m)` | 03, 04, 05 |
# | **weights from scores and masks** | `(B, n, m)` | **this one** |
# | outputs from weights and values | `(B, n, v)` | 03, 05 |
# | many heads at once | `(B, h, n, m)` | 06 |
#
# You can already predict the weights inside PyTorch's attention. The scores are dot products
# divided by $\sqrt{d}$ (lesson 05 derives why), and values that form an identity matrix make the
# output show the weights. One query is empty, to compare that too.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(3)
queries, keys = (torch.randn(1, size, 4, generator=generator) for size in (3, 5))
allow = combine_masks(causal_mask(3, 5), length_mask(torch.tensor([4]), 5))
allow[0] = False  # query 0 may see nothing
scores = torch.einsum("bnd,bmd->bnm", queries, keys) / math.sqrt(4)
ours = masked_softmax(scores, mask=allow)
theirs = F.scaled_dot_product_attention(queries, keys, torch.eye(5)[None], attn_mask=allow)
print(ours[0])
assert torch.allclose(ours, theirs, atol=1e-6)

# %% [markdown]
# ## Summary
#
# A softmax turns differences of scores into ratios of weights, so you may shift a row by its
# maximum, and you need to if it is to survive large scores. A mask is bool, True means "may
# attend", and masks combine with AND once their axes line up. A forbidden key needs a score of
# minus infinity: any finite fill is small only relative to the scores, and only in some dtypes. A
# row with no allowed key has no softmax; decide what it returns, and keep the nan from being made
# at all, because a gradient finds it even where the output hides it. Test with lengths and sizes
# that differ: equal ones make most mistakes invisible.

# %% [markdown]
# ## Further exercises
#
# 1. **Sliding window.** Write a mask that lets query $i$ see the $w$ keys up to its own position.
#    Combine it with `causal_mask(6)`: what does each of the two add?
# 2. **Packed documents.** Several short texts share one row of length $m$. From an integer tensor
#    of document numbers `(B, m)`, make the mask `(B, m, m)` that keeps each text to itself.
# 3. **A soft mask.** Add $-|i - j|$ to the scores instead of a hard mask. What is the ratio of the
#    weights of two keys with equal scores at distances 1 and 4?
# 4. **Two fills.** In float16, add `torch.finfo(torch.float16).min` to the row $(-100, -200)$ and
#    take the softmax. What happened?
# 5. **One pass.** A softmax reads its row three times: maximum, total, division. Find the maximum
#    and the total in one pass (Milakov and Gimelshein, below).

# %% [markdown]
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017, section 3.2.3: masks inside scaled
#   dot-product attention. <https://arxiv.org/abs/1706.03762>
# - P. Blanchard, D. J. Higham and N. J. Higham, *Accurately computing the log-sum-exp and softmax
#   functions*, IMA Journal of Numerical Analysis 41(4), 2021: why the shift is safe.
#   <https://doi.org/10.1093/imanum/draa038>
# - M. Milakov and N. Gimelshein, *Online normalizer calculation for softmax*, 2018.
#   <https://arxiv.org/abs/1805.02867>
# - PyTorch, `F.scaled_dot_product_attention`: True = take part, `is_causal`.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html>
# - PyTorch, `nn.MultiheadAttention`: `key_padding_mask`, True = ignore.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html>
