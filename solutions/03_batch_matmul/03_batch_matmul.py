# %% [markdown]
# # 03 · Batched matrix products
#
# **The question.** While lesson 00's translator writes *forty three*, each word compares its query
# with the key of every letter of *dreiundvierzig* and then averages the letters' values. The batch
# holds other numerals too. How do you compute all of this at once, and how do you know that the
# right numbers were multiplied?
#
# **After this you can**
#
# - explain what a dot product says about two vectors;
# - write a batched matrix product without loops;
# - tell a transpose from a reshape, and explain why a test of shapes cannot;
# - use any number of leading axes without mixing items or heads;
# - write attention in three lines, and run the translator on it.
#
# **Time:** {time}. **You need:** matrix products and indexing in PyTorch, and the softmax from
# lesson 02.

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import cross_attention_inputs, translate, use_attention

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, d)", "keys": "(B, m, d)", "values": "(B, m, v)"}
shapes |= {"scores": "(B, n, m)", "attention weights": "(B, n, m)", "outputs": "(B, n, v)"}
plotting.show(plotting.diagram("attention", shapes=shapes), key="batches")

# %% [markdown]
# A query or a key has `d` features, and a value has `v` features (`d_v` in code).
#
# A *leading axis* is any axis before the last two. The batch `B` is one, and later the heads are
# another. `...` and `*batch` stand for any number of leading axes.

# %% [markdown]
# ## 1. One query, many queries, many items
#
# *How do you compare two vectors, and how do you compare many pairs at once?*
#
# The score of a query $q$ and a key $k$ is their *dot product*, the sum of the products of their
# entries. Geometrically, $q \cdot k = \lVert q \rVert\, \lVert k \rVert \cos\theta$, where $\theta$
# is the angle between them.
#
# The next cell compares the query $(1, 2)$ with four keys.

# %% tags=["demo"]
query = torch.tensor([1.0, 2.0])
keys = torch.tensor([[3.0, 0.0], [1.0, 1.0], [-2.0, 1.0], [-1.0, -1.0]])
for key in keys:
    dot = (query * key).sum()
    cosine = dot / (query.norm() * key.norm())
    print(f"key {key.tolist()}: dot product {dot:4.0f}, cosine {cosine:.2f}")
assert [float((query * key).sum()) for key in keys] == [3, 3, 0, -3]

# %% [markdown]
# Two keys score 3. The key $(1, 1)$ is closest to the query in direction, and the key $(3, 0)$ is
# longer. A dot product depends on direction *and* length.
#
# Put the keys into the rows of $K \in \mathbb{R}^{m \times d}$ and the queries into the rows of
# $Q \in \mathbb{R}^{n \times d}$. One matrix product then computes all $n \cdot m$ scores:
#
# $$Q K^\top \in \mathbb{R}^{n \times m}, \qquad (Q K^\top)_{ij} = \sum_{t=1}^{d} Q_{it} K_{jt}.$$
#
# After the softmax has turned scores into weights $W$, a second product averages the values:
# `(n, m)` times `(m, v)` is `(n, v)`.
#
# There must be as many values as keys, because the second product sums over `m`. No sum runs over
# `v`, so a value can have any width.
#
# A *batched matrix product* treats every item separately. Item 0 of the left factor is multiplied
# by item 0 of the right one, and by no other item:
#
# $$Z_{bij} = \sum_{t=1}^{k} X_{bit}\, Y_{btj}, \qquad X: (B, n, k), \quad Y: (B, k, m), \quad Z: (B, n, m).$$
#
# Lesson 00's translator reads *drei*, *dreizehn* and *dreiundvierzig* in one batch, padded to 14
# letters. Each numeral has two queries, because the longest translation has two words. Here
# $d = v = 64$.
#
# **Predict.** The translations of 1 to 99 have 171 words. For about how many of these words does
# the longest key score highest: 5, 60 or 120?

# %% tags=["demo"]
numerals = Numerals()
model = trained_translator(numerals).to(device)
taken = cross_attention_inputs(model, numerals, [3, 13, 43])
queries, keys, values = taken.queries, taken.keys, taken.values
print("queries", tuple(queries.shape), "keys", tuple(keys.shape), "values", tuple(values.shape))
print("attention weights", tuple(model.maps.shape))
assert model.maps.shape == (3, 2, 14) and model.maps.numel() * 64 == 5376

num_words = longest = same_direction = 0
for number in range(1, 100):
    one = cross_attention_inputs(model, numerals, [number])
    lengths = one.keys[0].norm(dim=-1)  # (m,)
    for query in one.queries[0]:
        scores = (query * one.keys[0]).sum(dim=-1)  # (m,)
        num_words += 1
        longest += int(scores.argmax() == lengths.argmax())
        same_direction += int(scores.argmax() == (scores / lengths).argmax())
print(f"{num_words} words, highest score at the longest key: {longest}", end=", ")
print(f"at the largest cosine: {same_direction}")
assert num_words == 171 and longest <= 4 and 150 <= same_direction <= 164

# %% [markdown]
# <details><summary>Answer</summary>
#
# For fewer than 5. For more than 150, the key with the largest cosine wins.
#
# </details>
#
# The batch has $3 \cdot 2 \cdot 14$ scores of 64 products each, which makes 5,376 multiplications.

# %% [markdown]
# ## 2. The product without loops
#
# *How can one line compute all products and all sums?*
#
# A loop over the items makes one call per item, while one batched call lets a GPU work on all items
# at once. To write the product of two matrices without loops, compute all products of entries
# first, and then the sums. For one item the products are $P_{itj} = X_{it} Y_{tj}$, a block of
# shape `(n, k, m)`. *Broadcasting* computes this block if you give `a` (the matrix $X$) a new last
# axis and `b` (the matrix $Y$) a new first one:
#
# | | shape | what happens |
# |---|---|---|
# | `a[:, :, None]` | `(n, k, 1)` | repeated along `m` |
# | `b[None, :, :]` | `(1, k, m)` | repeated along `n` |
# | product | `(n, k, m)` | sum over the middle axis |
#
# **By hand.** Multiply the row $(1, 2)$ by the matrix with rows $(10, 20)$ and $(1, 1)$. The
# products are the rows $1 \cdot (10, 20)$ and $2 \cdot (1, 1)$. Their sum is $(12, 22)$.
#
# ### Count axes from the end
#
# With a batch in front, axis numbers shift by 1. But `k` is still the last axis of `a` and the
# second-to-last of `b`, whatever comes before. So count axes from the end: `a[..., None]`,
# `dim=-2`.
#
# For a batch of `B` items, `(B, 3, 4, 1)` times `(B, 1, 4, 5)`, elementwise, has the shape
# `(B, 3, 4, 5)`.
#
# Someone forgets the new axis of `b`. Here are batches of 2, 3 and 4 items.

# %% tags=["demo"]
for batch_size in (2, 3, 4):
    left, right = torch.ones(batch_size, 3, 4, 1), torch.ones(batch_size, 4, 5)
    print(f"batch of {batch_size}, with the new axis:", tuple((left * right[:, None]).shape))
    try:
        print("            without it:", tuple((left * right).shape))
        assert batch_size == 3
    except RuntimeError as error:
        print("            without it:", str(error).split(" at")[0])
        assert batch_size != 3

# %% [markdown]
# Only a batch of 3 raises no error. Without the new axis, sizes are aligned from the right: 1 with
# 5, 4 with 4, and `n`, which is 3, with the batch of `b`. If the batch size equals `n`, row $i$ of
# every item of `a` is multiplied by item $i$ of `b`.

# %% [markdown]
# ### The formula in letters ★
#
# `torch.einsum` takes the formula itself, with one letter for each axis. A letter that does not
# appear to the right of the arrow is summed over. For example, `"btj->bj"` sums the rows of each
# item, and `"bt,bt->b"` computes one dot product for each item. `...` stands for any leading axes.
#
# Both strings below were meant to multiply the matrices of each item, but neither does.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
a = torch.randn(2, 3, 4, generator=generator)
b = torch.randn(2, 4, 5, generator=generator)
for letters in ("bit,btj->ij", "bit,btj->bitj"):
    print(f"{letters:14}", tuple(torch.einsum(letters, a, b).shape))
slow = torch.bmm(a, b)
assert torch.allclose(torch.einsum("bit,btj->ij", a, b), slow.sum(dim=0), atol=1e-6)
assert torch.allclose(torch.einsum("bit,btj->bitj", a, b).sum(dim=2), slow, atol=1e-6)

# %% [markdown]
# The first result has shape `(3, 5)`. With no letter `b` (for the batch axis) to the right of the
# arrow, the results of all items are added up. The second has shape `(2, 3, 4, 5)`, because its
# products are not summed yet. Only the shapes can warn you.

# %% [markdown]
# ### Exercise: `bmm`
#
# - **Takes** `a` `(..., n, k)` and `b` `(..., k, m)` with the same leading axes, if any. Neither
#   needs to be contiguous.
# - **Returns** `(..., n, m)`, differentiable in both arguments.
# - **Without** loops, and without a ready-made matrix product: no `torch.bmm`, `torch.matmul` or
#   `@`, and no other function that multiplies matrices for you (`mm`, `F.linear`). `torch.einsum`
#   is allowed. Stay in torch: no NumPy, `.item()` or `.tolist()`.
#
# **Worked example.** `a = [[[1, 2]], [[3, 4]]]` and `b = [[[10], [1]], [[1], [10]]]` give
# `[[[12]], [[43]]]`, because $1 \cdot 10 + 2 \cdot 1 = 12$ and $3 \cdot 1 + 4 \cdot 10 = 43$. Shapes
# `(2, 3, 4, 5)` and `(2, 3, 5, 6)` give `(2, 3, 4, 6)`.

# %%
from course_lib.attention import bmm

# %%
check("bmm")

# %% [markdown]
# ## 3. Transpose is not reshape
#
# *Keys come as `(m, d)`, and the product needs `(d, m)`. A transpose and a reshape both give that
# shape. Why is only one of them correct?*

# %% [markdown]
# A *transpose* turns rows into columns: the number at $(j, t)$ goes to $(t, j)$. A *reshape* keeps
# the numbers in reading order and cuts them into new rows.
#
# Here are both for three keys of two numbers.

# %% tags=["demo"]
three_keys = torch.arange(6.0).reshape(3, 2)  # (m, d)
print("transposed", three_keys.mT.tolist())
print("reshaped  ", three_keys.reshape(2, 3).tolist())
assert three_keys.mT[:, 0].tolist() == three_keys[0].tolist()
assert three_keys.reshape(2, 3)[:, 0].tolist() == [0, 3]

# %% [markdown]
# The first reshaped column is $(0, 3)$, the first number of key 0 and the last number of key 1.
# After the transpose, every column is a key.
#
# In the next figure, the color and the small label show which key a number belongs to. Two of the
# four expressions below make the same mistake.

# %% tags=["demo"]
WAYS_TO_TURN = {
    "keys.reshape(2, 3)": lambda keys: keys.reshape(2, 3),
    "keys.flip(0).mT": lambda keys: keys.flip(0).mT,
    "keys.flatten().view(2, 3)": lambda keys: keys.flatten().view(2, 3),
    "keys.permute(1, 0)": lambda keys: keys.permute(1, 0),
}
owners = torch.arange(3)[:, None].expand(3, 2)  # which key a number belongs to


def draw_turned(way):
    turn = WAYS_TO_TURN[way]
    return plotting.cell_origins(
        {
            "keys, shape (m, d)": (three_keys, owners),
            f"yours: {way}": (turn(three_keys), turn(owners)),
            "target: keys.mT": (three_keys.mT, owners.mT),
        }
    )


assert (owners.reshape(2, 3)[0] != owners.reshape(2, 3)[1]).all()  # every column mixes
plotting.interactive(draw_turned, way=list(WAYS_TO_TURN), key="turned keys")

# %% [markdown]
# In the target, each column has one color, because it is a key. A reshape mixes two keys in every
# column, and a dot product with such a column is not the score of any key. `flatten().view(2, 3)`
# is the same reshape in two steps. `permute(1, 0)` is a transpose. `flip(0).mT` keeps the keys
# whole, but in the wrong order.

# %% [markdown]
# ### Three axes or more
#
# Here are three attempts to swap the last two axes of keys, and what they do once heads are added:
#
# | | `(B, m, d)` | `(B, h, m, d)` |
# |---|---|---|
# | `keys.mT`, `keys.transpose(-2, -1)` | `(B, d, m)` | `(B, h, d, m)` |
# | `keys.transpose(1, 2)` | `(B, d, m)` | `(B, m, h, d)`: heads and keys swapped |
# | `keys.T` | `(d, m, B)`: all axes reversed | `(d, m, h, B)` |
#
# The second row is common, and correct until somebody adds heads. If heads, keys and features are
# equal in number, PyTorch raises no error, and only wrong results show the mistake.

# %% [markdown]
# ### Exercise: `batched_scores`
#
# - **Takes** `queries` `(..., n, d)` and `keys` `(..., m, d)` with the same leading axes, if any.
# - **Returns** the scores `(..., n, m)`, differentiable in both arguments. Entry $(i, j)$ is the
#   dot product of query $i$ and key $j$ of the same item. Do not scale or normalize. Any product is
#   allowed, including `@`.
#
# **Worked example.** The query $(1, 2, 0)$ with the keys $(1, 0, 5)$ and $(0, 10, 5)$ gives
# `[[1, 20]]`.

# %%
from course_lib.attention import batched_scores

# %%
check("batched_scores")

# %% [markdown]
# ### Find the bug
#
# The book *Dive into Deep Learning* shows the shapes of a batched product like this (section 11.3):
#
# ```python
# Q = torch.ones((2, 3, 4))
# K = torch.ones((2, 4, 6))
# d2l.check_shape(torch.bmm(Q, K), (2, 3, 6))
# ```
#
# The product is correct, and the book uses these lines to illustrate shapes. Would they do as a
# test?
#
# **Predict.** Of the five functions below, only yours is correct. The others reshape the keys, use
# the keys of item 0 for all, reshape $K Q^\top$, or swap the items' keys. How many of the five give
# the right *numbers* on *drei* alone?

# %% tags=["demo"]
CANDIDATES = {
    "yours": batched_scores,
    "K reshaped": lambda q, k: q @ k.reshape(k.shape[0], k.shape[2], k.shape[1]),
    "keys of item 0": lambda q, k: q @ k[0].mT,
    "(K @ Qᵀ) reshaped": lambda q, k: (k @ q.mT).reshape(len(q), q.shape[1], k.shape[1]),
    "items swapped": lambda q, k: q @ k.flip(0).mT,
}
tests = {
    "ones": (torch.ones(2, 3, 4), torch.ones(2, 6, 4)),
    "drei": (queries[:1], keys[:1]),
    "all three": (queries, keys),
}
print(f"{'largest difference on':22}" + "".join(f"{test:>10}" for test in tests))
differences = {}
for name, candidate in CANDIDATES.items():
    differences[name] = []
    for some_queries, some_keys in tests.values():
        target = torch.einsum("bid,bjd->bij", some_queries, some_keys)
        result = candidate(some_queries, some_keys)
        differences[name].append((result - target).abs().max().item())
        assert result.shape == target.shape
    print(f"{name:22}" + "".join(f"{difference:10.2f}" for difference in differences[name]))
caught = [[difference > 0.01 for difference in row] for row in differences.values()]
assert [sum(row) for row in caught] == [0, 2, 1, 2, 1] and not any(row[0] for row in caught)

# %% [markdown]
# <details><summary>Answer</summary>
#
# On *drei*, three of the five functions give the right numbers, because a single item cannot show
# that items got mixed. On tensors of ones, all five do, because equal numbers hide every mix-up. To
# catch all four wrong functions, use random numbers, several items, and sizes that all differ.
#
# </details>

# %% [markdown]
# ## 4. From scores to outputs
#
# *Each query has a score for each key. What does the query receive?*

# %% [markdown]
# The query receives an average of all values, weighted by the softmax of its scores:
#
# $$W = \operatorname{softmax}(Q K^\top), \qquad O = W V \in \mathbb{R}^{n \times v}, \qquad o_i = \sum_{j=1}^{m} w_{ij} v_j.$$
#
# The second product needs no transpose. Each key already has a column of $W$ and a row of $V$, and
# the sum runs over the keys. This is *dot-product attention* (Luong and others, 2015).
#
# **By hand.** The scores $0$ and $\ln 3$ give the weights $(0.25, 0.75)$. With the values $(4, 0)$
# and $(0, 4)$ the output is $0.25 \cdot (4, 0) + 0.75 \cdot (0, 4) = (1, 3)$.
#
# Four properties must hold, whatever the numbers. Each is a one-line test for a different mistake:
#
# 1. if one key has weight 1, the output is that key's value;
# 2. with the identity matrix as values, the output equals the weights;
# 3. non-negative weights that sum to 1 keep each output between the smallest and the largest value;
# 4. a row of zero weights, such as an empty row in lesson 02, returns zeros.

# %% [markdown]
# ### Exercise: `attention_pooling`
#
# - **Takes** `queries` `(..., n, d)`, `keys` `(..., m, d)` and `values` `(..., m, d_v)` with the
#   same leading axes, if any.
# - **Returns** `outputs` `(..., n, d_v)` and `attention_weights` `(..., n, m)`, differentiable in
#   all arguments. The scores are plain dot products, and each row of the weights sums to 1, even
#   for large scores. Do not call `F.scaled_dot_product_attention`.
#
# **Worked example.** The query $(1, 0)$, the keys $(0, 5)$ and $(\ln 3, 2)$, and the values
# `[[4, 0, 8], [0, 4, 8]]` give the weights `[[0.25, 0.75]]` and the outputs `[[1, 3, 8]]`.

# %%
from course_lib.attention import attention_pooling

# %%
check("attention_pooling")

# %% [markdown]
# ## 5. The translator runs on your attention
#
# *Can the translator work with your three lines?*
#
# The next cell runs lesson 00's translator on your `attention_pooling`, and on three variants:
# reshaped keys, each letter with the value of the letter before it, and only 16 of the 64 features
# of queries and keys. It translates one numeral at a time, so there is no padding. The translator
# was trained with scores divided by $\sqrt{64} = 8$. These functions do not divide.
#
# **Predict.** With the preceding letters' values, are about 10, 50 or 90 of the 99 translations
# correct?
#
# **Predict.** With 16 of the 64 features, are about 10, 60 or 99 correct?


# %% tags=["demo", "nbval-ignore-output"]
def reshaped_keys(queries, keys, values, valid_lens):
    weights = torch.softmax(CANDIDATES["K reshaped"](queries, keys), dim=-1)
    return weights @ values, weights


def values_before(queries, keys, values, valid_lens):
    return attention_pooling(queries, keys, values.roll(1, dims=1))


def features_16(queries, keys, values, valid_lens):
    return attention_pooling(queries[..., :16], keys[..., :16], values)


def your_attention(queries, keys, values, valid_lens):
    return attention_pooling(queries, keys, values)


own_words, own_map = translate(model, numerals, 87)
correct = {}
for attention in (reshaped_keys, values_before, features_16, your_attention):
    name = attention.__name__
    use_attention(model, attention)
    translations = [" ".join(translate(model, numerals, number)[0]) for number in range(1, 100)]
    correct[name] = sum(translations[number - 1] == english(number) for number in range(1, 100))
    print(f"{name}: {correct[name]} of 99 correct, and 87 is", translations[86] or "empty")
your_words, your_map = translate(model, numerals, 87)
print(f"largest weight of seven: {own_map[1].max():.2f} before, {your_map[1].max():.2f} with yours")
assert correct["reshaped_keys"] < 25 and correct["your_attention"] == 99
assert correct["values_before"] < 15 and correct["features_16"] > 96
assert own_words == your_words == ["eighty", "seven"]
assert 0.5 < own_map[1].max() < 0.6 and 0.8 < your_map[1].max() < 0.86
assert min(own_map[1, :6].sum(), your_map[1, :6].sum()) > 0.95 and (own_map[1, :6] > 0.1).sum() == 2

# %% [markdown]
# <details><summary>Answer</summary>
#
# With the preceding letters' values, about 10 are correct, and with reshaped keys fewer than a
# quarter, although all shapes are right and every row of weights sums to 1. With 16 features,
# nearly all are correct, and with your function all 99.
#
# Your map is sharper than the translator's, because your scores are eight times as large. Lesson 05
# asks why scores are divided, and by how much.
#
# </details>

# %% tags=["demo"]
maps = {
    "Scores divided by 8: seven divides its weight between two letters": own_map,
    "Scores not divided: seven gives most of its weight to one letter": your_map,
}
for title, each in maps.items():
    plotting.show(plotting.attention(each, own_words, "siebenundachtzig", title=title))

# %% [markdown]
# ### Written question: a test that passed
#
# A colleague computes scores as `queries @ keys.reshape(B, d, m)`. The test fills queries and keys
# with ones, checks the shape, and passes. The model trains, and its loss goes down.
#
# In five to eight sentences, explain what a column of the reshaped keys contains, and in which
# cases the scores are correct anyway. Why does the loss go down? Write down a test that tells a
# reshape from a transpose, and say which of its choices (sizes, numbers, items) matter.

# %% [markdown] written="what_a_shape_test_proves"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part. Half points are possible.
#
# 1. **What the reshape does.** It keeps the reading order and cuts the numbers into rows of length
#    $m$, so a column collects numbers of different keys (with $m = 3$, $d = 2$ the first column is
#    number 0 of key 0 and number 1 of key 1). The scores agree with $Q K^\top$ if all *numbers* of
#    an item's keys are equal (ones, or any constant), if $m = 1$, or if $d = 1$. Equal keys are not
#    enough: three keys $(1, 2)$ give rows $(1, 1, 1)$ and $(2, 2, 2)$ transposed, but $(1, 2, 1)$
#    and $(2, 1, 2)$ reshaped. (Half a point for "the rows get mixed" without saying when it does
#    not matter.)
# 2. **Why the loss falls.** The scores are still differentiable functions of the inputs, mixed in a
#    fixed way, and the layers before and after can adapt to the mixing. A falling loss shows that
#    something can be learned, not that query $i$ was compared with key $j$.
# 3. **A test.** Compare with a loop or an einsum, entry by entry, on random numbers (not ones), at
#    least two items, and sizes that all differ ($n$, $m$, $d$). Or test a property: if key $j$
#    changes, only column $j$ of the scores may change. The point needs one such test and a reason
#    for its choices.
# ### END SOLUTION

# %% [markdown]
# ### All together
#
# This check combines *your* `batched_scores` and `attention_pooling`, and tests `attention_pooling`
# again.

# %%
check("03_batch_matmul")

# %% [markdown]
# ## 6. What attention costs ★
#
# *How fast do the arithmetic, the inputs and the scores grow with the length of a text?*
#
# An entry of $Q K^\top$ is a sum of $d$ products, and there are $n m$ entries for each of $B$
# items. An entry of $W V$ is a sum of $m$ products, and there are $n v$ entries. By convention, a
# multiplication and the addition that follows count as 2 operations. As in most papers, the softmax
# is not counted.

# %% [markdown]
# ### Exercise: `attention_cost`
#
# - **Takes** the ints `batch`, `num_queries`, `num_keys`, `d`, `d_v` and `bytes_per_element` (4 by
#   default). Heads count as items.
# - **Returns** a dict with two ints: `"flops"`, the operations of both products, and
#   `"score_bytes"`, the memory of the scores. Both are exact, even for very large problems.
#
# **Worked example.** `attention_cost(1, 2, 3, 4, 5)` is `{"flops": 108, "score_bytes": 24}`.

# %%
from course_lib.attention import attention_cost

# %%
check("attention_cost")

# %% [markdown]
# Take 16 heads, $d = v = 64$, and half precision. Queries, keys and values of a text of 8192 words
# take 50 MB together.

# %% tags=["demo"]
cost = attention_cost(16, 8192, 8192, 64, 64, bytes_per_element=2)
inputs = 16 * 8192 * 3 * 64 * 2
print(f"inputs {inputs / 1e6:.0f} MB, scores {cost['score_bytes'] / 1e6:.0f} MB")
lengths = [2**power for power in range(5, 16)]


def draw_memory(heads):
    scores = [attention_cost(heads, n, n, 64, 64, 2)["score_bytes"] / 1e6 for n in lengths]
    inputs = [heads * n * 3 * 64 * 2 / 1e6 for n in lengths]
    return plotting.lines(
        lengths,
        {"scores": scores, "queries, keys and values": inputs},
        x_label="words n = m (d = 64, two bytes per number)",
        y_label="megabytes",
        log_x=True,
        log_y=True,
        y_limits=(1e-3, 1e6),
    )


assert round(inputs / 1e6) == 50 and round(cost["score_bytes"] / 1e6) == 2147
assert round(cost["score_bytes"] / inputs) == 43
assert attention_cost(16, 192, 192, 64, 64, 2)["score_bytes"] == 16 * 192 * 3 * 64 * 2
plotting.interactive(draw_memory, start={"heads": 16}, heads=[1, 4, 16, 64], key="quadratic")

# %% [markdown]
# The scores take 2147 MB, 43 times as much: $16 \cdot 8192^2$ scores of two bytes. Their line is
# twice as steep, and it crosses the other line at $n = 3d = 192$ words.
#
# Now move the slider. More heads lift both lines but leave the crossing where it is. If you double
# the number of words, the inputs double, and the operations and the scores grow fourfold.

# %% [markdown]
# ## Summary
#
# Attention is two matrix products with a softmax between them, for every item and head separately.
# A transpose moves numbers to other positions, and a reshape cuts the same sequence of numbers into
# new rows. Both give the same shape, so a shape test does not show which key was compared with
# which query. Count axes from the end, keep leading axes equal or expand them on purpose, and test
# with random numbers and sizes that differ.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Associativity.** Without a softmax, $(Q K^\top) V = Q (K^\top V)$. Count the operations of
#    both sides with $n = m$. When is the right-hand side cheaper, and why can attention not use it?

# %% [markdown]
# ## References
#
# - M.-T. Luong, H. Pham and C. D. Manning, *Effective Approaches to Attention-based Neural Machine
#   Translation*, 2015, section 3.1: the dot product as a score. <https://arxiv.org/abs/1508.04025>
