# %% [markdown]
# # 02 · Masked softmax
#
# **The question.** Lesson 00's translator reads *dreiundvierzig* and writes *forty three*. Replace
# its masked softmax with a plain one, put 7777 into the same batch, and the translator writes
# *forty thousand forty thousand*. What does the mask do, and how do you write a masked softmax
# yourself?
#
# **After this you can**
#
# - compute a softmax over the right axis, for scores of any size;
# - write padding and causal masks, and combine masks;
# - explain why a forbidden key needs a score of minus infinity, before the softmax;
# - prevent the nan gradients that a query without any allowed key can cause;
# - write `masked_softmax`, which most later lessons call, and repair the translator with it.
#
# **Time:** {time}. **You need:** broadcasting and indexing in NumPy and PyTorch, and some idea of
# what a gradient is. Lesson 01 shows where scores and weights come from.

# %%
import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import translate_batch, use_softmax

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False, linewidth=100)

# %% tags=["demo", "hide-input"]
shapes = {"scores": "(..., n, m)", "valid_lens": "(B,)", "attention weights": "(..., n, m)"}
plotting.show(plotting.diagram("attention", shapes=shapes), key="mask in the map")

# %% [markdown]
# | name | what it is | shape |
# |---|---|---|
# | `valid_lens` | how many leading keys are not padding | `(B,)` or `(B, n)` |
# | `mask` | bool, True where a query **may attend** to a key | broadcastable to `(..., n, m)` |
#
# `B` counts the items in a batch, `n` the queries, and `m` the keys. `h` counts heads (lesson 06).

# %% [markdown]
# ## 1. The softmax
#
# *How do you turn any row of numbers into positive weights that sum to 1?*
#
# The *softmax* exponentiates each score and divides by the sum of its row. For scores
# $s \in \mathbb{R}^{n \times m}$, and for each query $i$ and key $j$,
#
# $$w_{ij} = \frac{e^{s_{ij}}}{\sum_{k=1}^{m} e^{s_{ik}}}, \qquad w \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** The row $(\ln 1, \ln 2, \ln 4)$ has the exponentials $1, 2, 4$ and the sum 7, so the
# weights are $(1/7, 2/7, 4/7)$. Adding $\ln 2$ to a score doubles its weight relative to the
# others. A softmax turns *differences* of scores into *ratios* of weights. If there is only one key,
# it receives all the attention, however low its score.
#
# ### Over which axis?
#
# Two queries have scores for three keys. The loop below runs the softmax over the last axis, then
# over the first.

# %% tags=["demo"]
scores = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 3.0]])  # (n = 2, m = 3)
for dim in (-1, 0):
    weights = torch.softmax(scores, dim=dim)
    print(f"dim={dim}: row sums", weights.sum(dim=1), "column sums", weights.sum(dim=0))
assert torch.allclose(torch.softmax(scores, dim=-1).sum(dim=1), torch.ones(2))
assert torch.allclose(torch.softmax(scores, dim=0).sum(dim=0), torch.ones(3))

# %% [markdown]
# Keys lie along the last axis, so `dim=-1` is correct. With `dim=0` each *key* distributes a weight
# of 1 among the queries. Both results have the same shape and look plausible, so check the sums.

# %% [markdown]
# ### Large scores
#
# The scores 1000, 1001 and 1002 have the same differences as 0, 1 and 2, so they should get the
# same weights.

# %% tags=["demo"]
with np.errstate(all="ignore"):  # silences NumPy's warnings
    large = np.exp(np.array([1000.0, 1001.0, 1002.0]))
    print("exponentials", large)
    print("weights     ", large / large.sum())
    assert np.isnan(large / large.sum()).all()

# %% [markdown]
# Every exponential is infinite, and infinity divided by infinity is *nan*, "not a number".
#
# A subtraction repairs the formula. For any number $c$,
#
# $$\frac{e^{s_j - c}}{\sum_k e^{s_k - c}} = \frac{e^{-c}\, e^{s_j}}{e^{-c} \sum_k e^{s_k}} = \frac{e^{s_j}}{\sum_k e^{s_k}},$$
#
# so you may shift a whole row without changing its weights. Which $c$ makes the largest exponent
# exactly 0?

# %% [markdown]
# ### Exercise: `stable_softmax`
#
# Write this softmax in NumPy.
#
# - **Takes** `scores`, a float array with any number of axes, and `axis`, the axis along which the
#   result must sum to 1 (the last by default).
# - **Returns** a new array of the same shape and dtype, finite for any finite scores. Do not change
#   `scores`.
#
# **Worked example.** The rows $(0, 1.098612)$ and $(1000, 1001.098612)$ both give $(0.25, 0.75)$,
# because 1.098612 is $\ln 3$.

# %%
from course_lib.attention import stable_softmax

# %%
check("stable_softmax")

# %% [markdown]
# ## 2. Padding: some keys are not real
#
# *How do numerals of different lengths fit into one rectangle?*
#
# In a batch, a special token, the *pad*, extends each numeral to the length of the longest one.
#
# The next cell gives lesson 00's translator a plain softmax over letters, not a masked one, and
# translates 1 to 99 in one batch. Then it adds 777 to the batch, and then 7777 in its place.
#
# **Predict.** With nothing added, about 80 are correct, and about 27 with 7777, which has 42
# letters. With 777, which has 29, are about 30, 45 or 60 correct?

# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()
model = trained_translator(numerals).to(device)
use_softmax(model, lambda scores, valid_lens: torch.softmax(scores, dim=-1))


def num_correct(translations):
    wanted = [english(number) for number in range(1, 100)]
    return sum(a == b for a, b in zip(translations, wanted, strict=False))


counts = []
for others in ([], [777], [7777]):
    translations = translate_batch(model, numerals, [*range(1, 100), *others])
    counts.append(num_correct(translations))
    print(f"with {others} added: {counts[-1]} of 99 correct; 43 is", translations[42])
assert 75 < counts[0] < 85 and 27 <= counts[1] <= 36 and 25 <= counts[2] <= 29
assert translations[42] == "forty thousand forty thousand"

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 30, hardly more than with 7777. To the model, a pad is a token like any other, and every
# query gives it a score and a share of the attention.
#
# </details>
#
# The next cell tries to ignore the pads. It sets their scores to 0, or their *weights* to 0 after
# the softmax. Two letters have the scores $(2, 1)$, and two pads $(0, 0)$.

# %% tags=["demo"]
weights = torch.softmax(torch.tensor([2.0, 1.0, 0.0, 0.0]), dim=-1)
print("score 0:", weights, f"- the two pads together {weights[2:].sum():.4f}")

real = torch.tensor([1.0, 1.0, 0.0, 0.0])
print("weight 0 afterwards:", weights * real, f"- the row sums to {(weights * real).sum():.4f}")

high = torch.softmax(torch.tensor([2.0, 1.0, 200.0, 0.0]), dim=-1) * real
print("a pad with score 200:", high, "- divided by the sum", high / high.sum())
assert 0.16 < weights[2:].sum() < 0.17 and (weights * real).sum() < 0.84
assert (high / high.sum()).isnan().all()

# %% [markdown]
# With a score of 0, the pads get about 17%, because 0 is an ordinary score and $e^0 = 1$. Weights
# set to 0 *after* the softmax leave a row that does not sum to 1. Dividing by the sum repairs that
# row, but not one in which a pad had a very high score: the weights of the real keys have already
# underflowed to 0, and $0/0$ is nan. So the mask must act *before* the softmax. To remove a key,
# you need a score whose exponential is 0.
#
# You have to say which keys are real. The compact way is a tensor of lengths
# $\ell_0, \dots, \ell_{B-1}$, called `valid_lens`. The explicit way is a mask of shape `(B, m)`:
#
# $$\text{mask}_{bj} = (j \lt \ell_b), \qquad j = 0, \dots, m - 1.$$
#
# **By hand.** Take `valid_lens = [4, 8, 14]` and 14 keys. Item 0 keeps keys 0 to 3. The comparison
# is "less than", because key 4 is already the fifth. Of the 42 cells, $4 + 8 + 14 = 26$ are True.
#
# You can compute the lengths from the token ids if no letter shares the pad's id.

# %% tags=["demo"]
pad = 0
batch = ["drei", "dreizehn", "dreiundvierzig"]
tokens = pad_sequence([numerals.source_ids(word) for word in batch], batch_first=True)  # (3, 14)
real = tokens != pad  # (B, m)
valid_lens = real.sum(dim=1)  # (B,)
print("drei as ids:", tokens[0].tolist())
for word, row in zip(batch, real.int().tolist(), strict=True):
    print(word.ljust(14, "·"), "".join(map(str, row)))
print("valid_lens", valid_lens.tolist(), "- real cells", int(real.sum()), "of", real.numel())
assert valid_lens.tolist() == [4, 8, 14]

# %% [markdown]
# ### Exercise: `length_mask`
#
# - **Takes** `valid_lens`, an integer tensor of shape `(B,)` (one length for each item) or `(B, n)`
#   (one for each query), and `max_len`, the number of keys after padding.
# - **Returns** a bool tensor `(B, max_len)` or `(B, n, max_len)`, True where the key is real.
#
# In every exercise, your code must also work with tensors on a GPU. Pass `device=` when you create
# a tensor, for example `device=valid_lens.device`. Otherwise it is on the CPU.
#
# **Worked example.** `length_mask(torch.tensor([2, 0]), 3)` is
# `[[True, True, False], [False, False, False]]`. The lengths `[[1, 3]]` with `max_len=3` give a
# result of shape `(1, 2, 3)`.

# %%
from course_lib.attention import length_mask

# %%
check("length_mask")

# %% [markdown]
# ### A batch axis in the wrong place ★
#
# Unlike the scores `(B, n, m)`, the mask `(B, m)` has no axis for queries.
#
# Take three items of three queries each, and broadcast the mask as it is.

# %% tags=["demo"]
scores = torch.zeros(3, 3, 14)  # (B, n, m)
mask = length_mask(valid_lens, 14)
broadcast = {"(B, m)": mask.expand_as(scores), "(B, 1, m)": mask[:, None, :].expand_as(scores)}
for shape, full in broadcast.items():
    print(f"{shape:9}: the queries of drei may attend to", full[0].sum(dim=1).tolist(), "keys")
assert broadcast["(B, m)"][0].sum(dim=1).tolist() == [4, 8, 14]
assert broadcast["(B, 1, m)"][0].sum(dim=1).tolist() == [4, 4, 4]

# %% [markdown]
# Broadcasting aligned `B` with `n`, so query $i$ of *drei* got the length of item $i$. PyTorch
# raises no error, because the numbers of queries and items happen to be equal. With an axis for the
# queries, `(B, 1, m)`, each query of *drei* may attend to its 4 letters.

# %% [markdown]
# ### The same word, the opposite meaning
#
# PyTorch has two conventions for a bool mask:
#
# | where | True means |
# |---|---|
# | `F.scaled_dot_product_attention(attn_mask=...)`, and this course | may attend |
# | `nn.MultiheadAttention(key_padding_mask=..., attn_mask=...)` | ignore |
#
# One of the two calls below has the wrong mask.

# %% tags=["demo"]
torch.manual_seed(0)
attention = nn.MultiheadAttention(embed_dim=4, num_heads=1, batch_first=True).eval()
x = torch.randn(3, 14, 4)
for name, given in {"~real": ~real, "real": real}.items():
    with torch.no_grad():
        weights = attention(x, x, x, key_padding_mask=given)[1]  # (B, n, m)
    on_pads = (weights * ~real[:, None, :]).sum(dim=-1)[:, 0]
    print(f"key_padding_mask={name:5}: weight on the pads of {batch}", on_pads)
assert on_pads[:2].min() > 0.99 and on_pads[2].isnan()

# %% [markdown]
# `~real` is correct. With `real`, the layer ignores the letters and attends to the pads, without
# any warning. The longest numeral has no pads, so the inverted mask forbids all of its keys, and
# its weights are nan. Section 6 explains why.

# %% [markdown]
# ## 3. Causal masks: no looking ahead
#
# *A model that predicts the next word must not see that word. Which keys may query $i$ attend to?*
#
# A query may attend to its own position and to earlier ones: $\text{mask}_{ij} = (j \le i)$, of
# shape `(n, n)`. This is the *causal mask*.
#
# A colleague built it with the first line below.

# %% tags=["demo"]
no_future = torch.ones(4, 4).triu().bool()
for query in range(4):
    print(f"query {query} may attend to keys", no_future[query].nonzero().flatten().tolist())
assert no_future[0].all() and no_future[3].tolist() == [False, False, False, True]

# %% [markdown]
# The first token may attend to everything, its whole future included. The last one may attend only
# to itself. Earlier tokens are in the *lower* triangle. An upper triangle is correct only where
# True means "ignore", and then without the diagonal.

# %% [markdown]
# ### When there are more keys than queries
#
# While generating text, a model can store the keys of earlier words and compute queries only for
# new ones. It has $n$ queries and $m \ge n$ keys, and **the last query belongs to the last key**.
#
# **By hand.** For $n = 2$ and $m = 5$, query 0 may attend to keys 0 to 3, and query 1 to keys 0 to
# 4. Which comparison of $i$ and $j$ gives this mask? (Your function must also accept more queries
# than keys. Then the first $n - m$ rows are all False.)
#
# **Predict.** Which keys may query 0 attend to with
# `F.scaled_dot_product_attention(is_causal=True)`? Below, all scores are 0, so a query shares its
# weight evenly among the keys it may attend to. The values form an identity matrix, so the output
# equals the weights.

# %% tags=["demo"]
queries, keys, values = torch.zeros(1, 2, 3), torch.zeros(1, 5, 3), torch.eye(5)[None]
shown = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)[0]
print(shown)
assert shown.tolist() == [[1, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]]

# %% [markdown]
# <details><summary>Answer</summary>
#
# Query 0 may attend only to key 0, because PyTorch aligns the **first** query with the **first**
# key. If the two queries are the newest words, they lose nearly everything that came before. Check
# the alignment whenever $n \ne m$.
#
# </details>

# %% [markdown]
# ### Exercise: `causal_mask`
#
# - **Takes** `num_queries`, `num_keys` (by default as many as queries), and the keyword argument
#   `device`, the device of the mask.
# - **Returns** a bool tensor `(num_queries, num_keys)`, True where query $i$ may attend to key $j$.
#   The last query is aligned with the last key.
#
# **Worked example.** `causal_mask(2, 3)` is `[[True, True, False], [True, True, True]]`, so query 1
# sees all three keys.

# %%
from course_lib.attention import causal_mask

# %%
check("causal_mask")

# %% [markdown]
# ## 4. Combining masks
#
# *A model reads a padded sentence from left to right. What if one mask allows a key and another
# forbids it?*
#
# A query may attend to a key only if **every** mask allows it, so masks combine with AND, which for
# bool tensors is `&`. Broadcasting does the rest: a causal mask `(n, m)` and a padding mask
# `(B, 1, m)` combine to `(B, n, m)`.
#
# The next cell combines a causal mask of five tokens with a padding mask that keeps the first
# three. It then tries three operators, two of which do not compute AND.

# %% tags=["demo"]
padding = length_mask(torch.tensor([3]), 5)  # (1, 5)
print("causal :", int(causal_mask(5).sum()), "True cells")
print("padding:", int(padding.expand(5, 5).sum()), "True cells")
print("both   :", int((causal_mask(5) & padding).sum()), "True cells")
may_see = torch.tensor([True, True, False])
is_real = torch.tensor([True, False, False])
operators = {
    "&": lambda a, b: a & b,
    "+": lambda a, b: a + b,
    "and": lambda a, b: a and b,
}
for name, combine in operators.items():
    try:
        print(f"{name:3} :", combine(may_see, is_real).tolist())
    except RuntimeError as error:
        print(f"{name:3} :", error)
assert (causal_mask(5) & padding).sum(dim=1).tolist() == [1, 2, 3, 3, 3]
assert (may_see + is_real)[1]

# %% [markdown]
# Row by row there are 1, 2, 3, 3 and 3 True cells, 12 in all. The sum of bool tensors is OR, so `+`
# lets a pad back in. The keyword `and` needs a single truth value and raises an error.

# %% [markdown]
# ### Five masks ★
#
# Here are five situations, each with its own mask. (1) The letters of *drei*, padded to 8, attend
# to each other. (2) Five words are written one after the other. (3) Only the newest two of these
# five words have queries. (4) Two words attend to *drei*, padded to 8. (5) The last two of the five
# words are pads.

# %% tags=["demo"]
drei = length_mask(torch.tensor([4]), 8)  # (1, 8)
plotting.show(
    plotting.mask_gallery(
        {
            "1 padding": drei.expand(8, 8),
            "2 causal": causal_mask(5),
            "3 causal, newest 2": causal_mask(2, 5),
            "4 cross": drei.expand(2, 8),
            "5 causal and padding": causal_mask(5) & padding,
        },
        first={"3 causal, newest 2": 3},
    ),
    key="five masks",
)

# %% [markdown]
# *Padding* removes whole columns. *Causal* is a staircase. Only its last two rows remain for the
# newest two words. A mask for *cross*-attention has a row for each word and a column for each
# letter, and removes the pads of the source. The last mask is a staircase without its last two
# columns.

# %% [markdown]
# ### Exercise: `combine_masks`
#
# - **Takes** any number of masks as separate arguments. Each is a bool tensor, broadcastable to the
#   others, or `None`, which forbids nothing.
# - **Returns** the bool tensor that allows a key only where every mask allows it, in the broadcast
#   shape, or `None` if none of the arguments is a tensor.
#
# **Worked example.** `[True, True, False]` with `[True, False, False]` gives
# `[True, False, False]`.

# %%
from course_lib.attention import combine_masks

# %%
check("combine_masks")

# %% [markdown]
# ## 5. From True and False to numbers
#
# *A softmax takes numbers. Which number means "not allowed"?*
#
# The exponential of a masked score must be 0, so the score must be minus infinity. An *additive
# mask* $M$ holds 0 where a key is kept and $-\infty$ where it is dropped:
#
# $$w = \operatorname{softmax}(s + M), \qquad s, M, w \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** Take the scores $(0, \ln 3, 5)$ and drop the last key. Then
# $s + M = (0, \ln 3, -\infty)$, the exponentials are $1, 3, 0$, and the weights are
# $(1/4, 3/4, 0)$. The high score 5 leaves no trace.
#
# Here are two shortcuts. The first adds the mask to the scores as ones and zeros. The second
# computes $M$ as `(1 - mask) * -inf`.

# %% tags=["demo"]
mask = torch.tensor([True, True, False])
added = torch.softmax(torch.zeros(3) + mask.float(), dim=-1)
print("0/1 mask added:", added)
product = (1 - mask.float()) * -math.inf
print("(1 - mask) * -inf:", product)
assert 0.15 < added[2] < 0.16 and product[:2].isnan().all()

# %% [markdown]
# With the first shortcut, the kept keys score 1 and the dropped key scores 0, so the dropped key's
# weight is $1/(e + e + 1) = 0.155$. With the second shortcut, zero times infinity is nan, so $M$ is
# nan exactly where you wanted to keep a key.

# %% [markdown]
# ### Exercise: `additive_mask`
#
# - **Takes** `mask`, a bool tensor of any shape, True = may attend, and `dtype`, the floating-point
#   dtype of the scores.
# - **Returns** a tensor of that dtype, with the shape and device of the mask. It is 0 where the key
#   is kept, and minus infinity where it is dropped.
#
# **Worked example.** `additive_mask(torch.tensor([True, False]), torch.float16)` is `[0, -inf]` in
# float16.

# %%
from course_lib.attention import additive_mask

# %%
check("additive_mask")

# %% [markdown]
# ## 6. A query that may attend to nothing
#
# *What is the softmax of a row in which every key is forbidden?*
#
# Such an *empty row* also occurs in good data: with a causal mask over a sentence that has padding
# at its *start*, or with more queries than keys. An item of length 0 has only empty rows. The
# formula gives $0/0$.
#
# The next cell masks the scores $(1, 2, 3)$ of an empty row in four ways. It fills the row with
# minus infinity or -1e9, or adds -1e9 or -1e6.
#
# **Predict.** How many of the four ways return the **unmasked** weights?

# %% tags=["demo"]
scores = torch.tensor([1.0, 2.0, 3.0])
nobody = torch.tensor([False, False, False])
masked = {
    "fill with -inf": scores.masked_fill(~nobody, -math.inf),
    "fill with -1e9": scores.masked_fill(~nobody, -1e9),
    "add -1e9": scores - 1e9,
    "add -1e6": scores - 1e6,
}
for name, row in masked.items():
    print(f"{name:15}", torch.softmax(row, dim=-1))
assert torch.softmax(masked["fill with -inf"], dim=-1).isnan().all()
assert np.spacing(np.float32(1e9)) == 64  # so "add -1e9" rounds the scores away
assert torch.allclose(torch.softmax(masked["add -1e6"], dim=-1), torch.softmax(scores, dim=-1))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only one does. Adding -1e6 shifts the row, and a softmax ignores shifts. Filling with -1e9 gives a
# plain average over forbidden keys. So does adding -1e9, because float32 numbers of that size are
# 64 apart, and the scores are rounded away. Minus infinity gives nan.
#
# </details>
#
# **This course's convention:** an empty row gets weights 0, output 0, and finite gradients.
# PyTorch's `F.scaled_dot_product_attention` returns 0 as well. `nn.MultiheadAttention` returns nan
# if it also returns weights, and finite outputs with `need_weights=False`.
#
# The obvious fix is to compute the softmax and then replace nan with 0. The next cell does so after
# two ways of masking, the sum of section 5 and `masked_fill`. Query 1 may attend to nothing.
#
# **Predict.** Both ways return the same weights. Is the gradient of row 1 nan with both, only with
# the sum, or only with `masked_fill`?


# %% tags=["demo"]
def replace_afterwards(masked_scores):
    weights = torch.softmax(masked_scores, dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)


start = torch.tensor([[2.0, 0.0, 1.0, 3.0], [1.0, 3.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0]])
mask = torch.tensor([[True, True, True, False], [False] * 4, [True, True, True, False]])
ways = {
    "adding -inf": lambda scores: scores + torch.where(mask, 0.0, -math.inf),
    "masked_fill": lambda scores: scores.masked_fill(~mask, -math.inf),
}
gradients = {}
for name, way in ways.items():
    scores = start.clone().requires_grad_()
    weights = replace_afterwards(way(scores))
    (weights * torch.arange(4.0)).sum().backward()
    gradients[name] = scores.grad
    print(f"{name} row sums", weights.detach().sum(dim=-1))
    assert torch.allclose(weights.sum(dim=-1), torch.tensor([1.0, 0, 1]))
assert gradients["adding -inf"][1].isnan().all() and not gradients["masked_fill"][1].any()
assert torch.equal(gradients["adding -inf"][::2], gradients["masked_fill"][::2])
maps = plotting.heatmap_grid(gradients, quantity="gradient", limits=None, columns=2)
plotting.show(maps, key="two gradients")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is nan only with the sum. With `masked_fill`, it is 0.
#
# </details>
#
# Why? If one score of a row rises, its weight rises and the others fall. For a row of two keys,
#
# $$\frac{\partial w_1}{\partial s_1} = w_1 (1 - w_1), \qquad \frac{\partial w_2}{\partial s_1} = -\,w_1 w_2,$$
#
# and in a longer row every derivative is made of products of weights. During the backward pass,
# `where` sends 0 back to the cells it replaced, and the softmax multiplies that 0 by its own
# weights, which are still nan. $0 \times \text{nan}$ is nan, and an addition passes this nan on.
# The backward pass of `masked_fill` happens to stop it, by writing 0 into every cell that was
# filled. A softmax that never *produces* a nan does not depend on such luck.
#
# Scores come from queries and keys. Take one step of gradient descent with scores masked by adding
# minus infinity.

# %% tags=["demo"]
torch.manual_seed(0)
queries = torch.randn(3, 2, requires_grad=True)
keys = torch.randn(4, 2, requires_grad=True)
weights = replace_afterwards(ways["adding -inf"](queries @ keys.T))
(weights * torch.arange(4.0)).sum().backward()
print("queries with a nan gradient:", int(queries.grad.isnan().any(dim=-1).sum()), "of 3")
print("keys with a nan gradient:   ", int(keys.grad.isnan().any(dim=-1).sum()), "of 4")
with torch.no_grad():
    after = torch.softmax((queries - 0.1 * queries.grad) @ (keys - 0.1 * keys.grad).T, dim=-1)
print("rows with nan weights after one step:", int(after.isnan().any(dim=-1).sum()), "of 3")
assert weights.isfinite().all() and after.isnan().all()
assert queries.grad.isnan().any(dim=-1).sum() == 1 and keys.grad.isnan().any(dim=-1).all()

# %% [markdown]
# All three rows have nan weights. Only one query has a nan gradient, but all keys do, and every row
# depends on the keys.

# %% [markdown]
# ### Written question: a colleague's empty rows
#
# A colleague fills forbidden scores with -1e9 and is satisfied: "Rows always sum to 1, there is
# never a nan, and all my tests pass. An empty row gets uniform weights, and that does no harm."
#
# In five to eight sentences, explain what the output of such a row consists of and why the problem
# is hard to notice. Name a situation in which empty rows arise without anyone intending it. What
# should the function return instead? What must the code that uses the result then do?

# %% [markdown] written="empty_row_choice"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part. Half points are possible.
#
# 1. **What happens, and why it is silent.** The output is the average of the values of all $m$
#    keys, every one of them forbidden: padding, or words from the future. The numbers are finite
#    and the rows sum to 1, so nothing signals the error, yet the same sentence gives different
#    results in a batch with different padding. (Half a point for "it attends to pads" without
#    saying why nobody notices.)
# 2. **Where empty rows come from.** Any one real situation will do: an item of length 0; a causal
#    mask with more queries than keys; padding at the start together with a causal mask; two
#    harmless masks that exclude each other.
# 3. **What to return, and what follows.** The weights and hence the output should be 0, with finite
#    gradients. Code that relies on row sums of 1 has to treat these rows separately, and the loss
#    should leave them out. Raising an error earns the point as well if the answer says why an empty
#    row is a mistake there. Half a point for nan: it is easy to notice, but one row can spoil every
#    gradient of the batch.
# ### END SOLUTION

# %% [markdown]
# ## 7. Putting it together
#
# *Your masks are correct. What can still go wrong in the function that applies them?*
#
# Three mistakes are easy to make. A `reshape` of contiguous scores is a view, so
# `scores.reshape(-1, 3)[drop] = -1e6` changes the caller's scores. And `valid_lens.dim()` raises an
# error in the ordinary case in which there is nothing to mask and `valid_lens` is None.
#
# The third mistake is to flatten scores `(B, n, m)` to `(B * n, m)` and to take the lengths of the
# rows from `valid_lens.repeat(n)`. With two queries per item and the lengths 4, 8 and 14, the rows
# get 4, 8, 14, 4, 8, 14, so the second query of *drei* gets the length of *dreizehn*.
# `repeat_interleave` repeats them correctly. A mask of shape `(B, 1, m)` needs no repetition.

# %% [markdown]
# ### Exercise: `masked_softmax`
#
# - **Takes** `scores` `(..., n, m)` and two optional arguments. `valid_lens`, `(B,)` or `(B, n)`,
#   is for scores of shape `(B, n, m)` or `(B, h, n, m)` and applies to every head. `mask` is bool
#   and broadcastable to the scores. If both are given, a key must be allowed by both.
# - **Returns** a softmax over the allowed keys, in the dtype of the scores (float16 is allowed).
#   Forbidden keys get exactly 0, for any finite scores. Do not change any argument.
# - Empty rows are all 0, and so is their gradient.
#
# **Worked example.** With `valid_lens=[2]`, the scores $(0, \ln 3, 5)$ give the weights
# $(0.25, 0.75, 0)$. With `valid_lens=[0]` they give $(0, 0, 0)$.

# %%
from course_lib.attention import masked_softmax

# %%
check("masked_softmax")

# %% [markdown]
# ## 8. Repair the translator
#
# *Does your function keep 7777 from spoiling the rest of the batch?*
#
# The next cell translates the batch from section 2 three times: with scores of 0 for the pads, with
# weights of 0 after the softmax, and with your `masked_softmax`.
#
# **Predict.** Are more of the 99 correct with scores of 0, more with weights of 0, or about equally
# many?


# %% tags=["demo", "nbval-ignore-output"]
def scores_of_0(scores, valid_lens):
    real = length_mask(valid_lens, scores.shape[-1])[:, None, :]  # (B, 1, m)
    return torch.softmax(scores * real, dim=-1)


def weights_of_0(scores, valid_lens):
    real = length_mask(valid_lens, scores.shape[-1])[:, None, :]
    return torch.softmax(scores, dim=-1) * real


counts = []
for softmax in (scores_of_0, weights_of_0, masked_softmax):
    use_softmax(model, softmax)
    translations = translate_batch(model, numerals, [*range(1, 100), 7777])
    counts.append(num_correct(translations))
    print(f"{softmax.__name__}: {counts[-1]} of 99 correct; 43 is", translations[42])
assert 76 <= counts[0] <= 86 and 43 <= counts[1] <= 51 and counts[2] == 99
weights = model.maps[42, :2, :14]  # two words, 14 letters
assert weights[0, 7:].sum() > 0.8 and weights[1, :4].sum() > 0.8
attended = plotting.attention(weights, ["forty", "three"], "dreiundvierzig")
plotting.show(attended, key="parts of a numeral")

# %% [markdown]
# <details><summary>Answer</summary>
#
# With scores of 0, about 80 are correct, and with weights of 0 fewer than half: the share that the
# pads had taken is missing from the row. With your function, all 99 are correct, and the map of
# lesson 00 is back.
#
# </details>
#
# Now mask some keys. The scores of query 0 are 0, 0, 0 and 2. Choose a mask, or add your own to
# `masks`. Masked cells are hatched.

# %% tags=["demo"]
four = torch.tensor([[0.0, 0, 0, 2], [1, 2, 3, 4], [0, 0, 0, 0], [4, 0, -4, 0]])
positions = torch.arange(4)
one_cell = torch.ones(4, 4, dtype=torch.bool)
one_cell[0, 3] = False
masks = {
    "none": positions >= 0,
    "key 3 of query 0": one_cell,
    "keys 2 and 3 as padding": positions < 2,
    "causal": causal_mask(4),
    "every key of query 1": (positions != 1)[:, None],
}


def draw_masked(masked):
    weights = masked_softmax(four, mask=masks[masked])
    return plotting.heatmap(weights, mask=masks[masked])


plotting.interactive(draw_masked, masked=list(masks), key="masked by hand")
shared = masked_softmax(four, mask=one_cell)
assert torch.allclose(shared[0], torch.tensor([1, 1, 1, 0]) / 3)
assert shared[1:].equal(masked_softmax(four)[1:])

# %% [markdown]
# Mask key 3 of query 0. Each of the other three keys had a weight of $1 / (3 + e^2) = 0.10$, and now
# has $1 / 3$. They share the masked key's weight in proportion to their own, so their ratios stay the
# same. Other rows do not change, because each query has its own softmax. If you mask a whole row,
# its weights become 0, not nan.

# %% [markdown]
# ### All together
#
# This check combines *your* `length_mask` and `masked_softmax`, and tests `masked_softmax` again.

# %%
check("02_masked_softmax")

# %% [markdown]
# ## Summary
#
# A softmax runs over the keys and turns differences of scores into ratios of weights, so you may
# subtract the maximum of a row, and with large scores you must. A mask is bool, True means "may
# attend", and masks combine with AND once their axes line up. A forbidden key needs a score of
# minus infinity *before* the softmax. A row without an allowed key has no softmax. Decide what to
# return for it, and give it finite numbers before the softmax, so that no nan can reach a gradient.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Packed documents.** Several short texts share one row of length $m$. From an integer tensor
#    of document numbers `(B, m)`, make the mask `(B, m, m)` that keeps each text to itself.

# %% [markdown]
# ## References
#
# - P. Blanchard, D. J. Higham and N. J. Higham, *Accurately computing the log-sum-exp and softmax
#   functions*, IMA Journal of Numerical Analysis 41(4), 2021: why the shift is safe.
#   <https://doi.org/10.1093/imanum/draa038>
