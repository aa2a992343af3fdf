# %% [markdown]
# # 03 · Batched matrix products
#
# **The question.** While lesson 00's translator writes *forty three*, each word compares its query
# with the key of every letter of *dreiundvierzig*, then averages the letters' values. Its batch holds
# other numerals too, and a larger model has many heads. How do you do all of it at once, how do you
# know that the right numbers met, and what does it cost?
#
# **After this you can**
#
# - read a shape as a promise about which numbers meet, and follow it through a computation;
# - write a batched matrix product with loops, with broadcasting and with einsum;
# - tell a transpose from a reshape, and say why a test of shapes cannot;
# - use any number of leading axes without mixing items or heads;
# - work out operations and memory of attention before you run it.
#
# **Time:** {time}. **You need:** matrix products and indexing in PyTorch.
# Section 8 uses the `masked_softmax` of lesson 02.

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import meeting

masked_softmax = carry_on("masked_softmax")

torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## Words and shapes

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, d)", "keys": "(B, m, d)", "values": "(B, m, v)"}
plotting.show(plotting.diagram("attention", shapes=shapes | {"outputs": "(B, n, v)"}))

# %% [markdown]
# | letter | counts | | name | shape |
# |---|---|---|---|---|
# | `B` | items in a batch | | `queries` | `(B, n, d)`: one row of `d` numbers per query |
# | `n` | queries | | `keys` | `(B, m, d)`: the same `d`, or they could not be compared |
# | `m` | keys, and as many values | | `values` | `(B, m, v)`: one row of `v` numbers per key |
# | `d` | numbers in a query or key | | `scores`, `weights` | `(B, n, m)`: a row per query |
# | `v` | numbers in a value (`d_v` in code) | | `outputs` | `(B, n, v)` |
#
# A *leading axis* is any axis before the last two: the batch, later also the heads. `...` and
# `*batch` stand for any number of them.

# %% [markdown]
# ## 1. One query, many queries, many items
#
# *How does a comparison of two vectors become one product of two matrices?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 2), "keys": (3, 2), "scores": (1, 3)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# The score of a query $q$ and a key $k_j$ is their dot product, one number. Put the keys into the
# rows of $K \in \mathbb{R}^{m \times d}$, and one query gets a row of $m$ scores; put the
# queries into the rows of $Q \in \mathbb{R}^{n \times d}$ as well, and you get them all:
#
# $$q K^\top \in \mathbb{R}^{1 \times m}, \qquad Q K^\top \in \mathbb{R}^{n \times m}, \qquad (Q K^\top)_{ij} = \sum_{t=1}^{d} Q_{it} K_{jt}.$$
#
# **By hand.** The query $(1, 2)$ and the keys $(3, 0)$, $(1, 1)$, $(0, 2)$ give the scores
# $1 \cdot 3 + 2 \cdot 0 = 3$, then $1 + 2 = 3$, then $4$.

# %% tags=["demo"]
query = torch.tensor([[1.0, 2.0]])  # (1, d)
keys = torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, 2.0]])  # (m, d)
scores = query @ keys.mT  # (1, d) @ (d, m) -> (1, m)
print("scores", scores.tolist())
assert scores.tolist() == [[3, 3, 4]]

# %% [markdown]
# ### Shapes as types
#
# `(n, d)` times `(d, m)` is `(n, m)`: the two inner sizes agree and vanish, the outer ones stay.
# Every product of attention is of this kind. After the softmax has turned scores into weights $W$,
# a second product collects the values: `(n, m)` times `(m, v)` is `(n, v)`.
#
# **Predict.** Which size vanishes in the first product, which in the second?

# %% tags=["demo"]
first = [("Q", "n", 3, "d", 4), "×", ("Kᵀ", "d", 4, "m", 5), "=", ("scores", "n", 3, "m", 5)]
second = [("W", "n", 3, "m", 5), "×", ("V", "m", 5, "v", 6), "=", ("outputs", "n", 3, "v", 6)]
plotting.show(plotting.shape_flow([first, second], batch=2))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# `d` vanishes in the first, `m` in the second. There are as many values as keys. How wide a value
# is, `v`, is free; nothing ties it to `d`.
#
# </details>

# %% [markdown]
# ### Three numerals at once
#
# A *batched matrix product* takes every item separately: item 0 of the left meets item 0 of the
# right, and no other:
#
# $$C_{bij} = \sum_{t=1}^{k} A_{bit}\, B_{btj}, \qquad A: (B, n, k), \quad B: (B, k, m), \quad C: (B, n, m).$$
#
# **Predict.** Lesson 00's translator reads *drei*, *dreizehn* and *dreiundvierzig* in one batch, padded to
# 14 letters, and writes two words for each. With $d = v = 64$, what are the shapes of the scores and
# of the outputs, and how many multiplications do the scores take?

# %% tags=["demo"]
numerals = Numerals()
model = trained_translator(numerals)
met = meeting(model, numerals, [3, 13, 43])  # what its words and letters compare
scores = torch.bmm(met.queries, met.keys.mT)  # (3, 2, 64) times (3, 64, 14)
outputs = torch.bmm(scores, met.values)  # (3, 2, 14) times (3, 14, 64); no softmax yet
print("queries", tuple(met.queries.shape), "keys and values", tuple(met.keys.shape))
print("scores ", tuple(scores.shape), "outputs", tuple(outputs.shape))
print("multiplications for the scores:", scores.numel() * 64)
for word, row in zip(("forty", "three"), scores[2], strict=True):
    best = int(row.argmax())
    print(f"{word} scores highest, {row[best]:.0f}, with letter {best}:", "dreiundvierzig"[best])
assert scores[2, 0].argmax() >= 7 and scores[2, 1].argmax() < 4

# %% [markdown]
# <details><summary>Answer</summary>
#
# `(3, 2, 14)` and `(3, 2, 64)`. There are $3 \cdot 2 \cdot 14$ scores of 64 products each, 5,376
# multiplications. And the map of lesson 00 is in sight: *forty* scores highest with a letter of
# *vierzig*, *three* with one of *drei*.
#
# </details>
#
# **Predict.** `a` is `(2, 3, 4)` and `b` is `(2, 4, 6)`, both full of ones. What is the
# product's shape, and what does it contain?
#
# <details><summary>Answer</summary>
#
# Shape `(2, 3, 6)`, and every entry is 4: a sum of $k = 4$ products of 1 and 1. Keep this example
# in mind. Section 4 shows how little it proves.
#
# </details>

# %% tags=["demo"]
product = torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 6))
print("shape", tuple(product.shape), "entries", product.unique().tolist())
assert product.shape == (2, 3, 6)
assert (product == 4).all()

# %% [markdown]
# ### Exercise: `bmm_loops`
#
# Write the formula down as it stands, with Python loops. It will be slow, and it will be right:
# something to compare faster versions with.
#
# - **Takes** `a` of shape `(B, n, k)` and `b` of shape `(B, k, m)`.
# - **Returns** a new tensor `(B, n, m)` in the dtype of `a`. It loops: over entries, or at least
#   over items; one call for the whole batch is the next exercise. Gradients reach `a` and `b`, so
#   no `.item()` or `.tolist()` on the way.
#
# **Worked number.** `a = [[[1, 2]], [[3, 4]]]` and `b = [[[10], [1]], [[1], [10]]]` give
# $1 \cdot 10 + 2 \cdot 1 = 12$ for item 0 and $3 \cdot 1 + 4 \cdot 10 = 43$ for item 1:
# `[[[12]], [[43]]]`.

# %%
from course_lib.attention import bmm_loops

# %%
check("bmm_loops")

# %% [markdown]
# ## 2. The same without a loop
#
# *How can one line make all products and all sums?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2, 3, 4), "keys": (2, 5, 4), "scores": (2, 3, 5)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# First all products, then the sums. For one item the products are
# $P_{itj} = A_{it} B_{tj}$, a block of shape `(n, k, m)`. *Broadcasting* makes it: give `a` a new
# last axis and `b` a new first one, and an axis of size 1 is repeated to meet its partner.
#
# | | shape | |
# |---|---|---|
# | `a[:, :, None]` | `(n, k, 1)` | repeated along `m` |
# | `b[None, :, :]` | `(1, k, m)` | repeated along `n` |
# | product | `(n, k, m)` | sum over the middle axis |
#
# **By hand.** The row $(1, 2)$ times the matrix with rows $(10, 20)$ and $(1, 1)$: the products are
# the rows $1 \cdot (10, 20)$ and $2 \cdot (1, 1)$; added up, $(12, 22)$.

# %% tags=["demo"]
a = torch.tensor([[1.0, 2.0]])  # (n, k) = (1, 2)
b = torch.tensor([[10.0, 20.0], [1.0, 1.0]])  # (k, m) = (2, 2)
products = a[:, :, None] * b[None, :, :]  # (n, k, m)
print("products", products.tolist())
print("sum over k", products.sum(dim=1).tolist())
assert products.sum(dim=1).tolist() == [[12, 22]]
assert torch.equal(products.sum(dim=1), a @ b)

# %% [markdown]
# ### Count axes from the end
#
# With a batch in front, `k` is no longer axis 1. It is still the last axis of `a` and the last but
# one of `b`, whatever comes before. So write places from the end: `a[..., None]`, `dim=-2`.
#
# **Predict.** `(2, 3, 4, 1)` times `(2, 1, 4, 5)`, elementwise: which shape comes out? And
# `(2, 3, 4, 1)` times `(2, 4, 5)`, where someone forgot the new axis of `b`?
#
# <details><summary>Answer</summary>
#
# `(2, 3, 4, 5)`. The second raises an error, because sizes are aligned from the right: 1 meets 5,
# 4 meets 4, 3 meets 2. Had the batch been as large as `n`, it would have worked and multiplied
# item $i$ of `b` with row $i$ of `a`.
#
# </details>

# %% tags=["demo"]
left = torch.ones(2, 3, 4, 1)
print("with the new axis   ", tuple((left * torch.ones(2, 1, 4, 5)).shape))
try:
    left * torch.ones(2, 4, 5)
except RuntimeError as error:
    print("without, batch of 2:", str(error).split(" at")[0])
silent = left * torch.ones(3, 4, 5)
print("without, batch of 3:", tuple(silent.shape), "and no error")
assert silent.shape == (2, 3, 4, 5)

# %% [markdown]
# ### The formula in letters
#
# `torch.einsum` takes the formula itself, one letter for each axis. A letter that is missing on the
# right of the arrow is summed over; one on both sides stays an axis.
#
# | formula | einsum |
# |---|---|
# | $\sum_t A_{it} B_{tj}$ | `"it,tj->ij"` |
# | the same for each item $b$ | `"bit,btj->bij"` |
# | the same for any leading axes | `"...it,...tj->...ij"` |
# | items added up | `"bit,btj->ij"` |
# | products not yet summed | `"bit,btj->bitj"` |
#
# **Predict.** Someone wants the second line, forgets a letter, and writes the fourth. What warns them?

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
a = torch.randn(2, 3, 4, generator=generator)
b = torch.randn(2, 4, 5, generator=generator)
slow = bmm_loops(a, b)
for letters in ("bit,btj->bij", "...it,...tj->...ij", "bit,btj->ij", "bit,btj->bitj"):
    print(f"{letters:20}", tuple(torch.einsum(letters, a, b).shape))
assert torch.allclose(torch.einsum("...it,...tj->...ij", a, b), slow, atol=1e-6)
assert torch.allclose(torch.einsum("bit,btj->ij", a, b), slow.sum(dim=0), atol=1e-6)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only the shape: an axis is gone. It is a formula too, and raises no error.
#
# </details>

# %% [markdown]
# ### Exercise: `bmm`
#
# - **Takes** `a` `(..., n, k)` and `b` `(..., k, m)` with the same leading axes, of any number: none,
#   a batch, a batch and heads.
# - **Returns** `(..., n, m)`. Gradients reach both arguments.
# - **Without** a loop of any kind, and without a ready-made matrix product: no `torch.bmm`,
#   `torch.matmul` or `@`, nor one under another name (`mm`, `baddbmm`, `F.linear`). `torch.einsum`
#   is allowed. The check watches what your code calls, and whether it does more steps for a larger
#   problem.
#
# **Worked number.** `a = [[[1, 2]], [[3, 4]]]` and `b = [[[10], [1]], [[1], [10]]]` again give
# `[[[12]], [[43]]]`; shapes `(2, 3, 4, 5)` and `(2, 3, 5, 6)` give `(2, 3, 4, 6)`.

# %%
from course_lib.attention import bmm

# %%
check("bmm")

# %% [markdown]
# ## 3. What the loops cost ★
#
# *All these ways give the same numbers. Does it matter which one runs?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (8, 16, 16), "keys": (8, 16, 16), "scores": (8, 16, 16)}
plotting.show(plotting.diagram_strip("attention", lit=("scores", "weighted sum"), shapes=shapes))

# %% [markdown]
# The four ways below multiply eight pairs of square matrices. The times were measured once, in
# float32 on one core of an Intel Xeon server; your machine's differ. Set `LIVE = True` to measure
# them, on your GPU if there is one.
#
# **Predict.** Which way is fastest at size 8, and which at size 128?

# %% tags=["demo"]
import time

WAYS = {
    "four loops": bmm_loops,
    "loop over items": lambda a, b: torch.stack([x @ y for x, y in zip(a, b, strict=True)]),
    "multiply and sum": lambda a, b: (a[..., None] * b[..., None, :, :]).sum(dim=-2),
    "einsum": lambda a, b: torch.einsum("...nk,...km->...nm", a, b),
}
device = "cuda" if torch.cuda.is_available() else "cpu"


def measure(way, size, batch=8, repeats=5):
    """Shortest of several runs, in microseconds."""
    a, b = torch.randn(2, batch, size, size, device=device)
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        way(a, b).sum().item()  # waits until a GPU is done
        runs.append(1e6 * (time.perf_counter() - start))
    return min(runs)


# %% tags=["demo"]
LIVE = False
sizes = [2, 4, 8, 16, 32, 64, 128]
microseconds = {
    "four loops": [1449, 22774, 164831, 1513641, math.nan, math.nan, math.nan],
    "loop over items": [35, 37, 36, 37, 39, 93, 495],
    "multiply and sum": [9, 10, 14, 20, 70, 4170, 111336],
    "einsum": [12, 13, 16, 18, 23, 57, 275],
}
if LIVE:
    microseconds = {
        name: [
            measure(way, size) if size <= 8 or name != "four loops" else math.nan for size in sizes
        ]
        for name, way in WAYS.items()
    }
plotting.show(
    plotting.lines(
        sizes,
        microseconds,
        x_label="size n = k = m",
        y_label="microseconds",
        title="Eight products of square matrices",
        log_x=True,
        log_y=True,
    )
)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# - **Four loops** take more than 80,000 times as long as einsum at size 16. Each step in Python costs
#   microseconds, whatever it does.
# - **A loop over items** has a floor: eight calls cost eight times the overhead of one, until the
#   work in each outweighs it. A batched product has one call, and a GPU works on all items at once.
# - **Multiply and sum** is fastest while the block of products is small. At size 128 that block has
#   16.8 million numbers, 67 MB, for a result of half a megabyte. It takes 400 times as long as
#   einsum, which never stores it.
#
# </details>

# %% tags=["demo"]
at = {size: index for index, size in enumerate(sizes)}
block = 8 * 128**3
print(f"block of products at size 128: {block:,} numbers, {4 * block / 1e6:.0f} MB")
print(f"result: {8 * 128**2:,} numbers, {4 * 8 * 128**2 / 1e6:.1f} MB")
assert block > 16.7e6
if not LIVE:
    assert microseconds["four loops"][at[16]] > 80_000 * microseconds["einsum"][at[16]]
    assert microseconds["multiply and sum"][at[8]] < microseconds["einsum"][at[8]]
    assert microseconds["multiply and sum"][at[128]] > 400 * microseconds["einsum"][at[128]]
small = torch.randn(2, 8, 4, 4, generator=generator)
answers = [way(*small) for way in WAYS.values()]
assert all(torch.allclose(answer, answers[0], atol=1e-5) for answer in answers)

# %% [markdown]
# ## 4. Transpose is not reshape
#
# *Keys come as `(m, d)`, the product wants `(d, m)`. Two operations give that shape. Why is only one
# of them right?*

# %% tags=["demo", "hide-input"]
shapes = {"keys": (3, 2), "scores": "(n, 3)"}
plotting.show(plotting.diagram_strip("attention", lit=("keys", "scores"), shapes=shapes))

# %% [markdown]
# A *transpose* turns rows into columns: the number at $(j, t)$ goes to $(t, j)$. A *reshape* keeps
# the numbers in reading order and cuts them into new rows.
#
# **Predict.** Three keys of two numbers: `[[0, 1], [2, 3], [4, 5]]`. Write down both results as two
# rows of three. In which of them is each column one key?
#
# <details><summary>Answer</summary>
#
# Transposed: `[[0, 2, 4], [1, 3, 5]]`, every column is a key. Reshaped: `[[0, 1, 2], [3, 4, 5]]`, and
# the first column, $(0, 3)$, is made of the first number of key 0 and the last one of key 1.
#
# </details>

# %% tags=["demo"]
keys = torch.arange(6.0).reshape(3, 2)  # (m, d)
print("transposed", keys.mT.tolist())
print("reshaped  ", keys.reshape(2, 3).tolist())
assert keys.mT.shape == keys.reshape(2, 3).shape
assert keys.mT[:, 0].tolist() == keys[0].tolist()
assert keys.reshape(2, 3)[:, 0].tolist() == [0, 3]

# %% [markdown]
# **Step through it.** Take the numbers in the order in which they lie in memory, and put them down one
# by one. Where does the fourth go?


# %% tags=["demo"]
def draw_step(step):
    return plotting.cell_by_cell(keys, step)


plotting.interactive(draw_step, step=range(keys.numel() + 1))

# %% [markdown]
# Now all numbers at once: colour and small letters say which key a number belongs to.
#
# **Predict.** How many colours does a column have in the target, and how many after a reshape? Two of
# the four ways below are wrong in the same way. Which?

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
            "keys, shape (m, d)": (keys, owners),
            f"yours: {way}": (turn(keys), turn(owners)),
            "target: keys.mT": (keys.mT, owners.mT),
        }
    )


assert (owners.reshape(2, 3)[0] != owners.reshape(2, 3)[1]).all()  # every column mixes
plotting.interactive(draw_turned, way=list(WAYS_TO_TURN))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# In the target each column has one colour: it is a key. A reshape mixes two keys in every column, and
# a dot product with such a column is no key's score. `flatten().view(2, 3)` is a reshape in
# two steps; `permute(1, 0)` is a transpose; `flip(0).mT` keeps the keys whole, in the wrong order.
#
# </details>

# %% [markdown]
# ### Find the bug
#
# A [public notebook](https://colab.research.google.com/github/Redcoder815/Deep_Learning_PyTorch/blob/main/32AttentionScoringFunctions.ipynb)
# tests a batched product like this; `check_shape` compares the shape, and prints that the check passed:
#
# ```python
# Q = torch.ones((2, 3, 4))
# K = torch.ones((2, 4, 6))
# check_shape(torch.bmm(Q, K), (2, 3, 6))
# ```
#
# The product is right. What is wrong with the test?
#
# **Predict.** Of the five functions below, one computes scores. How many pass a test of shapes? And how
# many give the right *numbers* on ones, on *drei* alone, on the three numerals?

# %% tags=["demo"]
CANDIDATES = {
    "Q @ Kᵀ": lambda q, k: q @ k.mT,
    "K reshaped": lambda q, k: q @ k.reshape(k.shape[0], k.shape[2], k.shape[1]),
    "keys of item 0": lambda q, k: q @ k[0].mT,
    "(K @ Qᵀ) reshaped": lambda q, k: (k @ q.mT).reshape(len(q), q.shape[1], k.shape[1]),
    "items swapped": lambda q, k: q @ k.flip(0).mT,
}


def largest_difference(candidate, queries, keys):
    target = torch.einsum("bnd,bmd->bnm", queries, keys)
    got = candidate(queries, keys)
    assert got.shape == target.shape
    return (got - target).abs().max().item()


tests = {
    "ones": (torch.ones(2, 3, 4), torch.ones(2, 6, 4)),
    "drei": (met.queries[:1], met.keys[:1]),
    "all three": (met.queries, met.keys),
}
print(f"{'largest difference on':22}" + "".join(f"{test:>10}" for test in tests))
found = {
    name: [largest_difference(candidate, *inputs) for inputs in tests.values()]
    for name, candidate in CANDIDATES.items()
}
for name, row in found.items():
    print(f"{name:22}" + "".join(f"{difference:10.2f}" for difference in row))
caught = [[difference > 0.01 for difference in row] for row in found.values()]
assert [sum(row) for row in caught] == [0, 2, 1, 2, 1] and not any(row[0] for row in caught)

# %% [markdown]
# <details><summary>Answer</summary>
#
# All five have the right shape, and on ones all five have the right numbers: where all keys are alike,
# it does not matter which one you met. One item cannot show that items got mixed. What catches the
# four wrong ones is numbers that differ, several items, and sizes that all differ. That is why the
# checks of this course never use ones.
#
# </details>

# %% [markdown]
# ### With more than three axes
#
# Three ways to swap the last two axes of keys, and what they do once heads come in:
#
# | | `(B, m, d)` | `(B, h, m, d)` |
# |---|---|---|
# | `keys.mT`, `keys.transpose(-2, -1)` | `(B, d, m)` | `(B, h, d, m)` |
# | `keys.transpose(1, 2)` | `(B, d, m)` | `(B, m, h, d)`: heads and keys swapped |
# | `keys.T` | `(d, m, B)`: all axes reversed | `(d, m, h, B)` |
#
# The second line is common, and right as long as nobody adds heads.
#
# **Predict.** Here there are as many heads as keys and features. What warns you?

# %% tags=["demo"]
equal = torch.randn(2, 3, 3, 3, generator=generator)  # B = 2, h = m = d = 3
right, wrong = equal @ equal.mT, equal @ equal.transpose(1, 2)
print("shapes", tuple(right.shape), "and", tuple(wrong.shape))
print("entries that agree:", int(torch.isclose(right, wrong).sum()), "of", right.numel())
assert right.shape == wrong.shape
assert not torch.allclose(right, wrong)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nothing: no error, the right shape, and not one right entry.
#
# </details>

# %% [markdown]
# ### Exercise: `batched_scores`
#
# - **Takes** `queries` `(..., n, d)` and `keys` `(..., m, d)` with the same leading axes, of any
#   number, none included.
# - **Returns** the scores `(..., n, m)`: entry $(i, j)$ is the dot product of query $i$ and key $j$ of
#   the same item. Neither scaled nor normalised. Neither argument is changed. Gradients reach both.
#   Any product is allowed, `@` and your own `bmm` included.
#
# **Worked number.** The query $(1, 2, 0)$ with the keys $(1, 0, 5)$ and $(0, 10, 5)$ gives
# `[[1, 20]]`. With heads, `(2, 3, 4, 5)` and `(2, 3, 6, 5)` give `(2, 3, 4, 6)`.

# %%
from course_lib.attention import batched_scores

# %%
check("batched_scores")

# %% [markdown]
# ## 5. From weights to outputs
#
# *Each query has a weight for each key. What does it receive?*

# %% tags=["demo", "hide-input"]
shapes = {"attention weights": (1, 2), "values": (2, 2), "weighted sum": (1, 2)}
plotting.show(plotting.diagram_strip("attention", lit="weighted sum", shapes=shapes))

# %% [markdown]
# The sum of all values, each times its weight. For query $i$,
#
# $$o_i = \sum_{j=1}^{m} w_{ij} v_j, \qquad O = W V \in \mathbb{R}^{n \times v}, \qquad W: (n, m), \quad V: (m, v).$$
#
# No transpose this time: keys are the columns of $W$ and the rows of $V$ already, and the sum runs
# over them.
#
# **By hand.** The weights $(0.25, 0.75)$ and the values $(4, 0)$ and $(0, 4)$ give
# $0.25 \cdot (4, 0) + 0.75 \cdot (0, 4) = (1, 3)$.

# %% tags=["demo"]
weights = torch.tensor([[0.25, 0.75]])  # (n, m)
values = torch.tensor([[4.0, 0.0], [0.0, 4.0]])  # (m, v)
print("output", (weights @ values).tolist())
assert (weights @ values).tolist() == [[1, 3]]

# %% [markdown]
# Four things must hold, whatever the numbers. Each is a test of one line, and each catches a
# different mistake:
#
# 1. a weight of 1 on one key returns exactly that key's value;
# 2. values that form an identity matrix return the weights;
# 3. non-negative weights that sum to 1 keep each output between the smallest and the largest value;
# 4. a row of zeros returns zeros.
#
# **Predict.** Someone writes $W^\top V$. With $n = m$ the shape is right. Which of the four notices?
#
# <details><summary>Answer</summary>
#
# The second: it returns $W^\top$. The first, unless the key has the query's own number. Often the
# third, because the *columns* of $W$ need not sum to 1. And the fourth: the zeros are a column now.
#
# </details>
#
# The cell measures the second and the third: how far is the output from $W$ where $V$ is the identity,
# and how far outside the values does it get?

# %% tags=["demo"]
generator = torch.Generator().manual_seed(2)
weights = torch.softmax(2 * torch.randn(1, 4, 4, generator=generator), dim=-1)
values = torch.randn(1, 4, 3, generator=generator)
low, high = values.amin(dim=-2, keepdim=True), values.amax(dim=-2, keepdim=True)
for name, W in {"W V": weights, "Wᵀ V": weights.mT}.items():
    outputs = W @ values
    outside = torch.maximum(low - outputs, outputs - high).clamp(min=0).max()
    from_weights = (W @ torch.eye(4) - weights).abs().max()
    print(f"{name:5} at most {from_weights:.2f} from W, {outside:.2f} outside the values")
    assert (from_weights < 0.01) == (outside < 0.01) == (name == "W V")

# %% [markdown]
# ### Exercise: `weighted_sum`
#
# - **Takes** `weights` `(..., n, m)` and `values` `(..., m, d_v)` with the same leading axes, of any
#   number.
# - **Returns** the outputs `(..., n, d_v)`. The weights are taken as they are: not normalised, not
#   sent through a softmax again. Each call counts on its own. Gradients reach weights and values.
#
# **Worked number.** Weights `[[0.25, 0.75]]` and values `[[4, 0, 8], [0, 4, 8]]` give `[[1, 3, 8]]`.

# %%
from course_lib.attention import weighted_sum

# %%
check("weighted_sum")

# %% [markdown]
# ## 6. Leading axes that do not match ★
#
# *Four heads share one set of keys. Do you have to copy the keys four times?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2, 2, 3, 4), "keys": (2, 5, 4), "scores": (2, 2, 3, 5)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# `@` broadcasts leading axes, aligned from the right; an axis of size 1 is repeated. That is useful
# and dangerous. Queries with heads are `(B, h, n, d)`, shared keys are `(B, m, d)`. Multiply them as
# they are, and the keys' batch axis lines up with the *heads*.
#
# **Predict.** $B = h = 2$. Do you get an error, the right numbers, or wrong ones?
#
# <details><summary>Answer</summary>
#
# Wrong ones, silently: head $b$ of every item meets the keys of item $b$. With $B = 3$ and $h = 2$
# you would have got an error.
#
# </details>

# %% tags=["demo"]
queries = torch.randn(2, 2, 3, 4, generator=generator)  # (B, h, n, d)
keys = torch.randn(2, 5, 4, generator=generator)  # (B, m, d), shared by the heads
silent = queries @ keys.mT
shared = queries @ keys[:, None].mT  # (B, 1, d, m): an axis for the heads
print("shapes", tuple(silent.shape), "and", tuple(shared.shape))
for item in (0, 1):
    apart = (silent[0, 1] - queries[0, 1] @ keys[item].mT).abs().max()
    print(f"item 0, head 1: {apart:.2f} from meeting the keys of item {item}")
assert torch.allclose(shared[0, 1], queries[0, 1] @ keys[0].mT, atol=1e-6)
assert not torch.allclose(silent, shared)

# %% [markdown]
# The course's versions refuse leading axes that differ, so with them this cannot happen unnoticed. To
# share on purpose, say so with `expand`: it repeats an axis of size 1 without copying a number, by
# walking 0 steps along it.

# %% tags=["demo"]
from course_lib import batched_scores as courses_version

try:
    courses_version(queries, keys)
except ValueError as error:
    print(error)
for_each_head = keys[:, None].expand(2, 2, 5, 4)  # (B, h, m, d)
print("steps in memory along each axis:", for_each_head.stride())
assert torch.allclose(batched_scores(queries, for_each_head), shared, atol=1e-6)
assert for_each_head.stride()[1] == 0
assert for_each_head.data_ptr() == keys.data_ptr()

# %% [markdown]
# ## 7. What attention costs ★
#
# *Which grows faster when a text gets longer: the arithmetic, the inputs, or the scores?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 2, 4), "keys": (1, 3, 4), "scores": (1, 2, 3), "values": (1, 3, 5)}
plotting.show(plotting.diagram_strip("attention", lit=("scores", "weighted sum"), shapes=shapes))

# %% [markdown]
# Count. An entry of $Q K^\top$ is a sum of $d$ products: $d$ multiplications and $d$ additions, which
# is counted as $2d$ operations. There are $B n m$ entries. The second product has $B n v$ entries of
# $2m$ operations each:
#
# $$\text{operations} = 2 B n m\, d + 2 B n m\, v = 2 B n m\, (d + v), \qquad \text{memory of the scores} = B n m \cdot \text{bytes per element}.$$
#
# **By hand.** One item, two queries, three keys, $d = 4$, $v = 5$: $2 \cdot 6 \cdot 9 = 108$ operations;
# six scores take 24 bytes in float32.
#
# As in most papers, the softmax is not counted.

# %% [markdown]
# ### Exercise: `attention_cost`
#
# - **Takes** `batch`, `num_queries`, `num_keys`, `d`, `d_v` and `bytes_per_element` (4 unless given),
#   all ints. Heads count as items: a batch of 2 with 8 heads is 16.
# - **Returns** a dict with two ints: `"flops"`, the operations of both products, and `"score_bytes"`,
#   the memory of the scores. Both are exact to the last unit, for large and for empty problems.
#
# **Worked number.** `attention_cost(1, 2, 3, 4, 5)` is `{"flops": 108, "score_bytes": 24}`.

# %%
from course_lib.attention import attention_cost

# %%
check("attention_cost")

# %% [markdown]
# **Predict.** 16 heads, $d = v = 64$, half precision. Queries, keys and values of a text of 8192
# words take 50 MB together. How much do the scores take?
#
# <details><summary>Answer</summary>
#
# 2147 MB, 43 times as much: $16 \cdot 8192^2$ scores of two bytes. They overtake the three inputs at
# $n = 3d = 192$ words, and from then on each doubling of the text doubles the ratio.
#
# </details>

# %% tags=["demo"]
cost = attention_cost(16, 8192, 8192, 64, 64, bytes_per_element=2)
inputs = 16 * 8192 * 3 * 64 * 2
print(f"inputs {inputs / 1e6:.0f} MB, scores {cost['score_bytes'] / 1e6:.0f} MB")
print(f"operations {cost['flops'] / 1e9:.0f} billion")
assert round(inputs / 1e6) == 50
assert round(cost["score_bytes"] / 1e6) == 2147
assert round(cost["score_bytes"] / inputs) == 43
assert attention_cost(16, 192, 192, 64, 64, 2)["score_bytes"] == 16 * 192 * 3 * 64 * 2

# %% [markdown]
# **Predict.** Both axes below are logarithmic. Where do the two lines cross, and what do more heads
# change about that?

# %% tags=["demo"]
lengths = [2**power for power in range(5, 16)]


def draw_memory(heads):
    scores = [attention_cost(heads, n, n, 64, 64, 2)["score_bytes"] / 1e6 for n in lengths]
    inputs = [heads * n * 3 * 64 * 2 / 1e6 for n in lengths]
    return plotting.lines(
        lengths,
        {"scores": scores, "queries, keys and values": inputs},
        x_label="words n = m",
        y_label="megabytes",
        title=f"Memory with {heads} heads, d = 64, two bytes a number",
        log_x=True,
        log_y=True,
    )


doubled = [attention_cost(1, n, n, 64, 64)["flops"] for n in (1024, 2048)]
assert doubled[1] == 4 * doubled[0]
plotting.interactive(draw_memory, start={"heads": 16}, heads=[1, 4, 16, 64])

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The scores' line is twice as steep. It crosses the inputs' at $n = 3d$. More heads lift both lines
# and leave the crossing where it is.
#
# </details>
#
# Twice the words: twice the inputs, four times the operations, four times the scores. But the scores
# are needed only between the two products. *FlashAttention* (Dao and others, below) computes them
# block by block and stores no `(n, m)` matrix; lesson 08 builds it.

# %% [markdown]
# ## 8. Putting it together

# %% tags=["demo", "hide-input"]
lit = "scores", "softmax", "weighted sum"
shapes = {"queries": (3, 2, 64), "keys": (3, 14, 64), "weighted sum": (3, 2, 64)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# With the weights of lesson 02, attention is three lines. `F.scaled_dot_product_attention` must agree
# if it is told not to scale (`scale=1.0`).
#
# **Predict.** The translator's own queries, keys and values go through these three lines. Where will
# *forty* and *three* look in *dreiundvierzig*? And is that the translator's own map?


# %% tags=["demo"]
def dot_product_attention(queries, keys, values, valid_lens=None):
    scores = batched_scores(queries, keys)  # (..., n, m)
    weights = masked_softmax(scores, valid_lens)  # (..., n, m)
    return weighted_sum(weights, values), weights  # (..., n, v)


outputs, weights = dot_product_attention(*met[2:])
mask = torch.arange(14) < met.valid_lens[:, None, None]  # (B, 1, m)
theirs = F.scaled_dot_product_attention(*met[2:5], attn_mask=mask, scale=1.0)
apart = (weights - model.maps).abs().max()
print(f"outputs: at most {(outputs - theirs).abs().max():.4f} from PyTorch's")
print(f"weights: at most {apart:.2f} from the translator's own map")
assert torch.allclose(outputs, theirs, atol=1e-4)
assert weights[2].max(dim=-1).values.min() > 0.99 and apart > 0.1
alt = "Unscaled, forty puts all its weight on one letter of vierzig, three on one of drei."
plotting.show(plotting.attention(weights[2], ["forty", "three"], "dreiundvierzig"), alt)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Where they should: *forty* in *vierzig*, *three* in *drei*. But each puts all its weight on a single
# letter, and the translator itself does not: its weights differ by up to 0.33. It divides the
# scores before the softmax. By how much, and why, is lesson 05.
#
# </details>

# %% [markdown]
# ### All together
#
# The last check puts *your* `batched_scores` and *your* `weighted_sum` around a softmax, without a
# mask, and checks the outputs. It needs the checks above to have seen your cells in this session.

# %%
check("03_batch_matmul")

# %% [markdown]
# ### Written question: a test that passed
#
# A colleague computes scores as `queries @ keys.reshape(B, d, m)`. The test fills both with ones,
# compares the shape, and passes. The model trains, and its loss goes down.
#
# A person reads this one. In five to eight sentences: what does a column of the reshaped keys consist
# of, and in which cases are the scores right all the same? Why does the loss go down? Write down a test
# that tells the two apart, and say which of its choices (sizes, numbers, items) matter.

# %% [markdown] written="what_a_shape_test_proves"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **What the reshape does.** It keeps the reading order and cuts it into rows of length $m$, so a
#    column collects numbers of different keys (with $m = 3$, $d = 2$ the first column is number 0 of
#    key 0 and number 1 of key 1). The scores agree with $Q K^\top$ where transpose and reshape
#    agree: all keys alike (ones, or any constant), $m = 1$ or $d = 1$. (Half a point for "the rows get
#    mixed" without saying when it does not matter.)
# 2. **Why the loss falls.** The scores are still differentiable functions of the inputs, mixed in
#    a fixed way, and the projections before and the layers after can adapt to it; a falling loss says
#    that something can be learned, not that query $i$ was compared with key $j$.
# 3. **A test.** Random numbers (not ones), at least two items, sizes that all differ ($n$, $m$, $d$),
#    compared entry by entry with a loop or an einsum; or a property: change key $j$ and only column $j$
#    of the scores may change. The point needs one such test and a reason for its choices.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# Attention is two matrix products with a softmax between them: `(n, d)` times `(d, m)` gives the
# scores, `(n, m)` times `(m, v)` the outputs, for every item and head separately. Broadcasting or
# einsum write them without a loop. Steps in Python cost time, blocks of products cost memory. A
# transpose moves numbers to other places, a reshape cuts the same line of numbers into new rows, and
# both give the same shape, so a test of shapes does not tell which key met which query.
# Count axes from the end, keep leading axes equal or expand them on purpose, and test with random
# numbers and sizes that differ. Operations and scores grow with the square of the length, the inputs
# only with the length.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Only its own column.** Write a test that changes one key and looks at which scores change. Run
#    it on the candidates of section 4.
# 2. **Associativity.** Without a softmax, $(Q K^\top) V = Q (K^\top V)$. Count the operations of both
#    sides with $n = m$. When is the right-hand side cheaper, and why can attention not use it?
# 3. **In blocks.** Compute `weighted_sum(softmax(scores), values)` for one block of queries at a time.
#    How large is the largest tensor you hold?
# 4. **One key for all heads.** How many bytes do keys and values take for 16 heads that share one set,
#    and how many if each has its own? (Shazeer, below.)
# 5. **Einsum backwards.** Write an einsum for the gradient of a product with respect to `a`, given that
#    of the result. Compare with `torch.autograd.grad`.

# %% [markdown]
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017, section 3.2.1: the two products.
#   <https://arxiv.org/abs/1706.03762>
# - M.-T. Luong, H. Pham and C. D. Manning, *Effective Approaches to Attention-based Neural Machine
#   Translation*, 2015, section 3.1: the dot product as a score. <https://arxiv.org/abs/1508.04025>
# - T. Dao and others, *FlashAttention*, 2022: attention without storing the scores.
#   <https://arxiv.org/abs/2205.14135>
# - N. Shazeer, *Fast Transformer Decoding: One Write-Head is All You Need*, 2019: keys shared by heads.
#   <https://arxiv.org/abs/1911.02150>
# - PyTorch, broadcasting semantics. <https://docs.pytorch.org/docs/stable/notes/broadcasting.html>
# - PyTorch, `torch.einsum`. <https://docs.pytorch.org/docs/stable/generated/torch.einsum.html>
