# %% [markdown]
# # 02 · Masked softmax
#
# **The question.** Lesson 00's translator reads *dreiundvierzig* and writes *forty three*. Put a
# longer numeral beside it in the batch, forget one argument, and it writes *forty thousand forty
# thousand forty thousand*. What did that argument do?
#
# **After this you can**
#
# - compute a softmax that survives scores of any size;
# - write padding, causal and cross-attention masks, and combine them;
# - say what filling with -1e6, -1e9 and minus infinity does in each dtype;
# - keep a query that may see nothing from poisoning your gradients;
# - assemble `masked_softmax`, which every later lesson calls.
#
# **Time:** {time}. **You need:** broadcasting and indexing in NumPy and PyTorch, and an
# idea of what a gradient is. Lesson 00 shows how exercises, checks and hints work; lesson 01 helps,
# but is not required.

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

torch.set_printoptions(precision=4, sci_mode=False, linewidth=100)

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
# A row belongs to a query, a column to a key. In a *mask*, **True means "may attend"**. In
# signatures, `Float[Tensor, "*batch num_queries num_keys"]` is a floating tensor whose last two
# axes are queries and keys, with any number of axes in front.

# %% [markdown]
# ## 1. A softmax that survives
#
# *How do you turn any row of numbers into positive weights that sum to 1?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3,), "mask": (3,), "softmax": (3,)}
plotting.show(plotting.diagram_strip("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# The *softmax* exponentiates each score and divides by the row's total. For scores
# $s \in \mathbb{R}^{n \times m}$, and for each query $i$ and key $j$,
#
# $$w_{ij} = \frac{e^{s_{ij}}}{\sum_{k=1}^{m} e^{s_{ik}}}, \qquad w \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** The row $(\ln 1, \ln 2, \ln 4)$ has the exponentials $1, 2, 4$ and the total 7, so the
# weights are $(1/7, 2/7, 4/7)$. Adding $\ln 2$ to a score doubles its weight relative to the others:
# a softmax turns *differences* of scores into *ratios* of weights.
#
# **Predict.** What is the softmax of a row that holds a single score, $-3.7$? And for $+50$?

# %% tags=["demo"]
for row in (np.log([1.0, 2.0, 4.0]), np.array([-3.7]), np.array([50.0])):
    weights = np.exp(row) / np.exp(row).sum()
    print("scores", row.round(4), "-> weights", weights.round(4))
    assert np.isclose(weights.sum(), 1)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 1, both times: $e^{s}/e^{s} = 1$. A softmax belongs to a whole row. A lone key receives all the
# attention, however low it scores.
#
# </details>
#
# ### Where the formula breaks
#
# **Predict.** The scores 1000, 1001 and 1002 differ by as little as 0, 1 and 2 do, so they deserve
# the same weights. What does the formula make of them? (The `errstate` line keeps NumPy's warnings
# off the page.)

# %% tags=["demo"]
with np.errstate(over="ignore", invalid="ignore"):
    large = np.exp(np.array([1000.0, 1001.0, 1002.0]))
    print("exponentials", large)
    print("weights     ", large / large.sum())
    assert np.isnan(large / large.sum()).all()

for dtype in (np.float16, np.float32, np.float64):
    limit = np.log(float(np.finfo(dtype).max))
    print(f"{dtype.__name__}: exp overflows above a score of {limit:.2f}")

# %% [markdown]
# <details><summary>What came of it</summary>
#
# Every exponential is infinite, and infinity divided by infinity is *nan*, "not a number". In
# half precision a score of 12 is already too much.
#
# </details>
#
# The remedy costs one subtraction. For any number $c$,
#
# $$\frac{e^{s_j - c}}{\sum_k e^{s_k - c}} = \frac{e^{-c}\, e^{s_j}}{e^{-c} \sum_k e^{s_k}} = \frac{e^{s_j}}{\sum_k e^{s_k}},$$
#
# so you may shift a whole row without changing its weights. Which $c$ keeps every exponent at 0
# or below, and at least one of them at 0?
#
# **Predict.** The picture shifts the row $(2, 1, 3)$ by $c = 3$. Which bars move?

# %% tags=["demo"]
scores = np.array([2.0, 1.0, 3.0])
shifted = scores - 3.0
before = np.exp(scores) / np.exp(scores).sum()
after = np.exp(shifted) / np.exp(shifted).sum()
assert np.allclose(before, after)
panels = {
    "scores": {"as given": scores, "maximum subtracted": shifted},
    "softmax of the scores": {"as given": before, "maximum subtracted": after},
}
plotting.show(plotting.bars(panels))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Other bars on the left, the same bars on the right: a softmax knows differences only.
#
# </details>

# %% [markdown]
# ### Find the bug ★
#
# To divide each row by its own total, this code transposes, divides, and transposes back.
# **Predict.** For which of the two shapes does it fail, and how?


# %% tags=["demo"]
def transposing_softmax(scores):
    exponentials = np.exp(scores)
    return (exponentials.T / exponentials.sum(axis=-1)).T


rng = np.random.default_rng(0)
try:
    transposing_softmax(rng.normal(size=(2, 3, 4)))
except ValueError as error:
    print("(2, 3, 4):", error)
totals = transposing_softmax(rng.normal(size=(3, 3, 4))).sum(axis=-1)
print("(3, 3, 4): row totals", totals.round(2).tolist())
assert not np.allclose(totals, 1)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Both. On a matrix it is right, but `.T` reverses *all* axes. With three items of three queries the
# shapes fit by accident, and rows are divided by totals of other items. What you want is a total
# that *keeps its axis*: `(3, 3, 1)` divides `(3, 3, 4)`, in any number of dimensions.
#
# </details>

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
# *A batch is a rectangle, numerals are not. What happens to the cells that fill it up?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3, 2, 14), "valid_lens": (3,), "mask": (3, 2, 14)}
plotting.show(plotting.diagram_strip("attention", lit=("valid_lens", "mask"), shapes=shapes))

# %% [markdown]
# *drei* has 4 letters, *dreizehn* 8, *dreiundvierzig* 14. In one batch, each is padded to the length
# of the longest with a token of its own, the *pad*.
#
# **Predict.** Lesson 00's translator is told how long each numeral is. Batch 1 to 99, and tell it that
# every numeral is as long as the batch. How many come out right? And with 777 in the same batch, and
# with 7777?


# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()
model = trained_translator(numerals)


@torch.no_grad()
def translate_batch(numbers, masked):
    sources = [numerals.source_ids(number) for number in numbers]
    tokens = pad_sequence(sources, batch_first=True, padding_value=0)  # (B, m)
    lens = torch.tensor([len(source) for source in sources])
    lens = lens if masked else torch.full_like(lens, tokens.shape[1])
    words = torch.full((len(numbers), 1), model.start)
    for _ in range(6):
        newest = model(tokens, lens, words)[:, -1].argmax(dim=-1, keepdim=True)
        words = torch.cat([words, newest], dim=1)
    ended = (words == model.end).cumsum(dim=1) > 0
    return [
        " ".join(numerals.target.words(row[~end])) for row, end in zip(words, ended, strict=True)
    ]


right = translate_batch([*range(1, 100), 7777], masked=True)[:99]
for others in ([], [777], [7777]):
    unmasked = translate_batch([*range(1, 100), *others], masked=False)[:99]
    same = sum(a == b for a, b in zip(unmasked, right, strict=True))
    print(f"beside {others}: {same} of 99 right; 43 is", unmasked[42])
assert right == [english(number) for number in range(1, 100)] and same < 60

# %% [markdown]
# <details><summary>What came of it</summary>
#
# The longer the neighbour, the worse: beside 7777 more than half go wrong. To the model a pad is a
# letter like any other: it is compared with every query, gets a score, and takes a share of the
# attention. Told the lengths, it gets all 99 right.
#
# </details>
#
# **Predict.** Could you write a score of 0 for every pad? Say a query scores two letters $(2, 1)$ and
# two pads $(0, 0)$. How much attention do the pads get together: nothing, about 2 %, or about 17 %?

# %% tags=["demo"]
weights = stable_softmax(np.array([2.0, 1.0, 0.0, 0.0]))
print("weights", weights.round(4), f"- the two pads together {weights[2:].sum():.4f}")
assert 0.16 < weights[2:].sum() < 0.17

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 17 %. A score of 0 is an ordinary score, and $e^0 = 1$. Only a score whose exponential is 0
# is no score at all.
#
# </details>
#
# So you need to say which keys are real. The compact way is a tensor of lengths
# $\ell_0, \dots, \ell_{B-1}$, called `valid_lens`; the explicit way is a mask of shape `(B, m)`:
#
# $$\text{mask}_{bj} = (j \lt \ell_b), \qquad j = 0, \dots, m - 1.$$
#
# **By hand.** `valid_lens = [4, 8, 14]` over 14 keys: item 0 keeps keys 0 to 3. "Less than", not "at
# most": key 4 is the fifth. True are $4 + 8 + 14 = 26$ of 42 cells. Lengths 0 and $m$ are
# allowed; they give a row of False and a row of True.
#
# Where do lengths come from? From the token ids, if the pad has an id that no letter has:

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
# `tokens != pad` is a mask already, also where pads stand at the start. Lengths are smaller, and
# still right where a real token happens to have the pad's id.

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
# The mask `(B, m)` knows nothing of queries. Scores are `(B, n, m)`.
#
# **Predict.** Three items of three queries each. How many keys may the queries of *drei* see if you
# apply the mask to the scores as it is? And if you give it a query axis first: `(B, 1, m)`?

# %% tags=["demo"]
scores = torch.zeros(3, 3, 14)  # (B, n, m)
as_it_is = length_mask(valid_lens, 14).expand_as(scores)
with_query_axis = length_mask(valid_lens, 14)[:, None, :].expand_as(scores)
print("as it is,        queries of drei see", as_it_is[0].sum(dim=1).tolist(), "keys")
print("with query axis, queries of drei see", with_query_axis[0].sum(dim=1).tolist(), "keys")
assert as_it_is[0, 1:, 4:].any() and not with_query_axis[0, :, 4:].any()

# %% [markdown]
# <details><summary>What came of it</summary>
#
# Broadcasting lined up `B` with `n`, so each *query* got the length of an *item*: 4, 8 and 14. With 2
# queries you would have got an error; with as many queries as items you get wrong numbers.
#
# </details>
#
# ### The same word, the opposite meaning
#
# PyTorch has two conventions for a bool mask:
#
# | where | True means |
# |---|---|
# | `F.scaled_dot_product_attention(attn_mask=...)`, and this course | take part |
# | `nn.MultiheadAttention(key_padding_mask=..., attn_mask=...)` | ignore |
#
# **Predict.** Which of the three calls below is right, and how do the other two fail?

# %% tags=["demo"]
torch.manual_seed(0)
attention = nn.MultiheadAttention(embed_dim=4, num_heads=1, batch_first=True).eval()
x = torch.randn(3, 14, 4)
for name, given in {"~real": ~real, "real": real, "valid_lens": valid_lens[:, None]}.items():
    try:
        with torch.no_grad():
            weights = attention(x, x, x, key_padding_mask=given)[1]  # (B, n, m)
        on_pads = (weights * ~real[:, None, :]).sum(dim=-1)[0, 0].item()
        print(f"key_padding_mask={name}: weight on the pads of drei {on_pads:.2f}")
    except AssertionError as error:
        print(f"key_padding_mask={name}: {error}")
assert on_pads > 0.99

# %% [markdown]
# <details><summary>Answer</summary>
#
# `~real` is right. `real` ignores the letters and attends to the pads, without a word of warning.
# Lengths are refused: they have to become a mask first, and for `nn.MultiheadAttention` that mask has
# to be inverted.
#
# </details>

# %% [markdown]
# ## 3. Causal masks: no looking ahead
#
# *A model that predicts the next word must not read it. Which keys may query $i$ see?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (4, 4), "mask": (4, 4)}
plotting.show(plotting.diagram_strip("attention", lit="mask", shapes=shapes))

# %% [markdown]
# Its own position and the earlier ones: $\text{mask}_{ij} = (j \le i)$, shape `(n, n)`. This is
# the *causal mask*.
#
# **Predict.** The line below was meant to write it. Find the bug: which keys does the **first**
# token see, and which the **last**?

# %% tags=["demo"]
no_future = torch.ones(4, 4).triu().bool()
for query in range(4):
    print(f"query {query} may attend keys", no_future[query].nonzero().flatten().tolist())
assert no_future[0].all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first token sees everything, its whole future included; the last one sees only itself. Earlier
# tokens are in the *lower* triangle. An upper triangle is right only where 1 means "drop", and
# then without the diagonal.
#
# </details>
#
# ### When queries and keys differ in number
#
# A decoder that has written *forty* keeps its key and computes a query for the newest word only:
# $n$ queries, $m \ge n$ keys. **The last query belongs to the last key**:
#
# $$\text{mask}_{ij} = (j \le i + m - n), \qquad \text{shape } (n, m).$$
#
# **By hand.** For $n = 2$ and $m = 5$ the offset is 3: query 0 sees keys 0 to 3, query 1 sees keys
# 0 to 4.
#
# **Predict.** Does `F.scaled_dot_product_attention(is_causal=True)` agree? With scores of 0 a query
# shares its weight evenly among the keys it sees, and values that form an identity matrix make the
# output show the weights.

# %% tags=["demo"]
queries, keys, values = torch.zeros(1, 2, 3), torch.zeros(1, 5, 3), torch.eye(5)[None]
first_aligned = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)[0]
print(first_aligned)
assert first_aligned[0].tolist() == [1, 0, 0, 0, 0]

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. It aligns the **first** query with the **first** key, so query 0 sees one key of five. If these
# are the two newest words, they forget nearly all that came before. Check the alignment whenever
# $n \ne m$.
#
# </details>

# %% [markdown]
# ### Exercise: `causal_mask`
#
# - **Takes** `num_queries` and `num_keys`; without the second, there are as many keys as queries.
#   The keyword argument `device` sets the device of the mask. Pass it on to torch, as in
#   `torch.ones(2, 3, device=device)`; None means torch's default device.
# - **Returns** a bool tensor of shape `(num_queries, num_keys)`, True where query $i$ may attend to
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
# **Predict,** then move the sliders: where does the staircase go as you add keys? What appears as
# soon as there are more queries than keys?


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
# <details><summary>What you should see</summary>
#
# It slides to the right, and its lowest step always ends at the last key. With more queries than
# keys, rows without a single tick appear at the top. Section 7 is about them.
#
# </details>

# %% [markdown]
# ## 4. Combining masks
#
# *A decoder reads a padded sentence from left to right. Which of two masks wins?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (5, 5), "valid_lens": (1,), "mask": (5, 5)}
plotting.show(plotting.diagram_strip("attention", lit="mask", shapes=shapes))

# %% [markdown]
# Both. A query may attend to a key only if **every** mask allows it, so masks combine with AND, which
# for bool tensors is `&`. Broadcasting does the rest: a causal mask `(n, m)` and a padding mask `(B,
# 1, m)` combine to `(B, n, m)`.
#
# **Predict.** Five tokens, three of them real, and a causal mask. How many of 25 cells stay True?
# And which of the operators below is not AND?

# %% tags=["demo"]
padding = length_mask(torch.tensor([3]), 5)  # (1, 5)
print("causal", int(causal_mask(5).sum()), "- padding", int(padding.expand(5, 5).sum()))
print("causal & padding", int((causal_mask(5) & padding).sum()))
may_see = torch.tensor([True, True, False])
is_real = torch.tensor([True, False, False])
print("&   :", (may_see & is_real).tolist())
print("+   :", (may_see + is_real).tolist())
try:
    may_see and is_real
except RuntimeError as error:
    print("and :", error)
assert (may_see + is_real)[1]  # a pad is attended again

# %% [markdown]
# <details><summary>Answer</summary>
#
# Row by row 1, 2, 3, 3, 3: together 12. The sum of bool tensors is OR, and the keyword `and` wants a
# single truth value.
#
# </details>
#
# ### A gallery
#
# **Predict** the pattern before you look at each: (1) the letters of *drei* read themselves, padded
# to 8; (2) five words are written one after the other; (3) the newest two of five; (4) two words
# look at *drei*, padded to 8; (5) five words, the last two of them pads.

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
        }
    )
)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# *Padding* cuts off whole columns. *Causal* is a staircase, and for the newest two it starts part of
# the way down. *Cross* has a row for each word and a column for each letter, and cuts off only the
# source's pads. The last is a staircase whose last two columns are gone; its rows 3 and 4 belong to
# queries that are pads themselves. Masks remove *keys*; what padded queries compute is left out
# later, by the loss.
#
# </details>

# %% [markdown]
# ### Exercise: `combine_masks`
#
# Useful wherever a mask may be missing: `None` has nothing to say and forbids nothing.
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
# ## 5. From True and False to numbers
#
# *A softmax takes numbers. Which number means "not allowed"?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3,), "mask": (3,), "softmax": (3,)}
plotting.show(plotting.diagram_strip("attention", lit="mask", shapes=shapes))

# %% [markdown]
# The one whose exponential is 0. An *additive mask* $M$ holds 0 where a key is kept and $-\infty$
# where it is dropped:
#
# $$w = \operatorname{softmax}(s + M), \qquad s, M, w \in \mathbb{R}^{n \times m}.$$
#
# **By hand.** Scores $(0, \ln 3, 5)$, the last key dropped: $s + M = (0, \ln 3, -\infty)$, the
# exponentials are $1, 3, 0$, the weights are $(1/4, 3/4, 0)$. The high score 5 has left no trace.
#
# **Predict.** Two shortcuts, both with a bug. The first adds the mask as ones and zeros: all scores
# are 0, the last key is to be dropped, and its weight is 0, 0.16 or 0.33? The second makes $M$ by
# arithmetic.

# %% tags=["demo"]
mask = torch.tensor([True, True, False])
added = torch.softmax(torch.zeros(3) + mask.float(), dim=-1)
print("0/1 mask added:", added)
by_product = (1 - mask.float()) * -math.inf
print("(1 - mask) * -inf:", by_product)
assert 0.15 < added[2] < 0.16 and by_product[:2].isnan().all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# 0.16: the kept keys score 1, the dropped one 0, and $1/(e + e + 1) = 0.155$. Adding 1 multiplies
# the kept weights by $e$ before normalising; it forbids nothing. In the second, zero times infinity
# is nan: it breaks the very keys you wanted to keep.
#
# </details>

# %% [markdown]
# ### A cell that runs twice ★
#
# **Find the bug.** This cell recodes a 0/1 matrix in place, 0 to $-\infty$, then 1 to 0. In a
# notebook someone runs it twice.

# %% tags=["demo"]
numbers = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
for run in (1, 2):  # the same cell, run twice
    numbers.masked_fill_(numbers == 0, -math.inf).masked_fill_(numbers == 1, 0.0)
    print(f"after run {run}:", numbers.tolist())
assert numbers.isneginf().all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# The second run took the zeros that meant "keep" for zeros that mean "drop". Keep masks bool for as
# long as you can, and make the numbers in one step that leaves the mask alone.
#
# </details>

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
# ## 6. How negative is negative enough?
#
# *Many libraries fill with -1e6 or -1e9 instead of minus infinity. What do they risk?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3,), "mask": (3,), "softmax": (3,)}
plotting.show(plotting.diagram_strip("attention", lit=("mask", "softmax"), shapes=shapes))

# %% [markdown]
# **Predict.** Allowed keys score 0 and 1; a forbidden one is filled with -1e6. Now subtract a million
# from all scores before the fill. How much attention does the forbidden key get?

# %% tags=["demo"]
keep = torch.tensor([True, True, False])
for level in (0.0, -1e6):
    scores = torch.tensor([0.0, 1.0, 2.0]) + level
    for fill in (-1e6, -math.inf):
        weights = torch.softmax(torch.where(keep, scores, fill), dim=-1)
        print(f"scores near {level:8.0f}, fill {fill:8.0f}: weights", weights)
        assert (0.21 < weights[2] < 0.22) == (level == fill)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 21 %. With an allowed score $s$ and a fill $f$, the forbidden key's weight is
# $e^f / (e^s + e^f) = 1 / (1 + e^{s - f})$: only the *gap* counts. So -1e6 is no "very small number":
# it is small compared with scores near 0, and ordinary among scores near -1e6. Such scores are rare,
# but code for small dtypes uses smaller fills: -1e4 is a popular one.
#
# </details>
#
# The other risk is the dtype. **Predict:** what is the lowest number that float16 can hold?

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
# <details><summary>Answer</summary>
#
# Float16 bottoms out at -65504. There, -1e6 and -1e9 either raise an error or silently turn into
# minus infinity.
#
# </details>
#
# Minus infinity has neither problem: $e^{-\infty}$ is 0 wherever the scores are, in every dtype. It
# has a price of its own, though.

# %% [markdown]
# ### Where each fill gives way ★
#
# The horizontal axis is the fill value, the vertical axis the weight that the forbidden key keeps, as
# a power of ten, with a separate line for an exact 0. **Predict:** move the level of the allowed
# scores. Which way does the drop go?


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
# <details><summary>What you should see</summary>
#
# Near 0, each dtype drops to 0 at its own fill, float16 first, float64 last. With scores near -8192
# the drop has moved, for all of them, to a fill of about -8192.
#
# </details>

# %% [markdown]
# ## 7. A query that may see nothing
#
# *What is the softmax of a row in which every key is forbidden?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (3, 4), "mask": (3, 4), "softmax": (3, 4)}
plotting.show(plotting.diagram_strip("attention", lit=("mask", "softmax"), shapes=shapes))

# %% [markdown]
# Such an *empty row* is no accident of bad data: an item of length 0 makes one, or a causal mask
# with more queries than keys, or padding at the *start* of a sentence under a causal mask.
#
# The formula has no answer: $0/0$. **Predict.** Each way of masking the scores $(1, 2, 3)$ gives a
# different answer. Which one returns the **unmasked** weights?

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
# <details><summary>Answer</summary>
#
# Adding -1e6: it shifts the whole row, and a softmax ignores shifts. Adding -1e9 in float32 rounds
# the scores away (neighbouring numbers there are 64 apart) and leaves a plain average over forbidden
# keys. Minus infinity gives nan.
#
# </details>
#
# **This course's convention:** an empty row gets weights 0, output 0, and a gradient that is
# finite. `F.scaled_dot_product_attention` of current PyTorch answers 0 as well; section 9 checks.
#
# The obvious fix: compute, then replace nan by 0. The cell does so, and sends a gradient back.
# **Predict:** row 1 is empty. What is its gradient?


# %% tags=["demo"]
def replace_afterwards(scores, mask):
    weights = torch.softmax(scores + torch.where(mask, 0.0, -math.inf), dim=-1)
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
assert gradients["query 1 is empty"][1].isnan().all()
assert gradients["no empty row"].isfinite().all()
plotting.show(plotting.heatmap_grid(gradients, quantity="gradient", limits=None, columns=2))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The forward pass is what you wanted: totals of 1, 0, 1. But on the right the whole gradient of
# query 1 is nan, although `where` replaced its weights.
#
# </details>
#
# Why? Going back through a softmax multiplies by its weights,
#
# $$\frac{\partial L}{\partial s_{ij}} = w_{ij}\Bigl(g_{ij} - \sum_k g_{ik} w_{ik}\Bigr), \qquad g = \frac{\partial L}{\partial w}.$$
#
# `where` sends $g = 0$ back to the replaced cells. The softmax still holds $w = \text{nan}$, and
# $0 \times \text{nan}$ is nan. So the softmax must never *make* a nan in the first place.
#
# **Predict.** Scores come from queries and keys, and each key meets every query. After one step of
# gradient descent, how many of the three rows still hold numbers?

# %% tags=["demo"]
torch.manual_seed(0)
queries = torch.randn(3, 2, requires_grad=True)
keys = torch.randn(4, 2, requires_grad=True)
weights = replace_afterwards(queries @ keys.T, empty)
(weights * torch.arange(4.0)).sum().backward()
print("queries with a nan gradient:", int(queries.grad.isnan().any(dim=-1).sum()), "of 3")
print("keys with a nan gradient:   ", int(keys.grad.isnan().any(dim=-1).sum()), "of 4")
with torch.no_grad():
    after = torch.softmax((queries - 0.1 * queries.grad) @ (keys - 0.1 * keys.grad).T, dim=-1)
print("rows with nan weights after one step:", int(after.isnan().any(dim=-1).sum()), "of 3")
assert weights.isfinite().all() and after.isnan().all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# None. Only query 1 and the keys have become nan, but every weight depends on a key. (With
# `masked_fill` instead of the addition, PyTorch sends the gradient 0 to filled cells and the nan ends
# there: right by the grace of one operation.)
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
shapes = {"scores": (3, 2, 14), "valid_lens": (3,), "softmax": (3, 2, 14)}
plotting.show(
    plotting.diagram_strip("attention", lit=("valid_lens", "mask", "softmax"), shapes=shapes)
)

# %% [markdown]
# Three things. Each snippet has a bug; find it before you run the cell:
#
# 1. `scores.reshape(-1, 3)[drop] = -1e6`, inside a function. Whose scores change?
# 2. Scores `(B, n, m)` flattened to `(B * n, m)` list item 0's queries first, then item 1's. Each
#    row gets its length from `valid_lens.repeat(n)`.
# 3. `if valid_lens.dim() == 1:`, as a function's first line. What if there is nothing to mask?

# %% tags=["demo"]
drop = torch.tensor([[False, False, True], [False, True, True]])


def overwrite(scores):
    scores.reshape(-1, 3)[drop] = -1e6


mine = torch.ones(2, 3)
overwrite(mine)
print("1. the caller's scores afterwards:", mine.tolist())
try:
    overwrite(torch.ones(2, 3, requires_grad=True))
except RuntimeError as error:
    print("   a parameter:", str(error).split(" is being")[0])
lens = torch.tensor([4, 8, 14])
print("2. repeat           ", lens.repeat(2).tolist())
print("   repeat_interleave", lens.repeat_interleave(2).tolist())
assert (mine == -1e6).sum() == 3

# %% [markdown]
# <details><summary>Answers</summary>
#
# 1. The caller's: a `reshape` of contiguous scores is a view. If they are a parameter, PyTorch
#    refuses; if a backward pass needs them again, it breaks.
# 2. `repeat` gives the second query of *drei* the length of *dreizehn*; `repeat_interleave` is right.
#    With equal lengths the two agree, so a test with equal lengths proves nothing. A mask
#    with the right axes, `(B, 1, m)`, needs neither.
# 3. `None` has no `dim`: it crashes in the ordinary case at inference time.
#
# </details>

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
# ### Repair the map
#
# Back to *dreiundvierzig* beside 7777, with every length wrong. The translator keeps its weights. A
# softmax knows differences only, so their logarithms can serve as the scores they came from.
#
# **Predict.** Where does the word after *forty* look, before and after your `masked_softmax` is
# told the lengths 4, 8, 14 and 42?

# %% tags=["demo"]
translate_batch([3, 13, 43, 7777], masked=False)
lost = model.maps[:, :2]  # (4 numerals, 2 words, 42 keys)
numeral_lens = torch.tensor([4, 8, 14, 42])
found = masked_softmax(lost.clamp(min=1e-30).log(), numeral_lens)
on_pads = 1 - (lost * length_mask(numeral_lens, 42)[:, None]).sum(dim=-1)
print(f"before: {on_pads[2, 1]:.2f} of the second word's weight is on pads")
print(f"after:  {found[2, 1, :4].sum():.2f} of it is on drei, {found[2, 1, 14:].sum():.0f} on pads")
assert on_pads[2, 1] > 0.6 and found[2, 1, :4].sum() > 0.8
alt = "With the mask, forty looks at vierzig and the next word at drei: the arcs cross."
plotting.show(plotting.attention(found[2, :, :14], ["forty", "next word"], "dreiundvierzig"), alt)

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Before, three quarters of the weight is on pads. After, the map of lesson 00 is back, arcs crossing:
# *forty* at *vierzig*, the next word at *drei*.
#
# </details>
#
# ### Click a mask
#
# **Predict.** A row of three equal scores and a fourth that is larger by 2. You mask the fourth key.
# What are the weights of the others, before and after? And what do the *other rows* do?
#
# Then click: a query may attend to the cells that are pressed.

# %% tags=["demo"]
four = torch.tensor([[0.0, 0, 0, 2], [1, 2, 3, 4], [0, 0, 0, 0], [4, 0, -4, 0]])
plotting.show(plotting.clickable_mask(four, masked_softmax))
shared = masked_softmax(four, mask=torch.arange(4) < 3)
assert torch.allclose(shared[0], torch.tensor([1, 1, 1, 0]) / 3)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Before, each of the three has $1 / (3 + e^2) = 0.10$; after, a third. The masked key's weight is
# shared out in proportion, so the ratios within a row stay. The other rows do not move: each query
# has its own softmax. Mask a whole row, and it becomes zeros, not nan.
#
# </details>

# %% [markdown]
# ### What must hold
#
# Numbers can look plausible and be wrong, so test *properties*, with sizes and lengths that all
# differ: masking a key equals deleting it; garbage in forbidden scores changes nothing; an empty
# row gives 0 and finite gradients; the scores are as they were.
#
# **Predict** the four numbers.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(2)
scores = torch.randn(3, 2, 14, generator=generator)
before, see = scores.clone(), causal_mask(2, 14)
weights = masked_softmax(scores, valid_lens, mask=see)
deleted = torch.softmax(scores[1, 0, :8], dim=-1)  # dreizehn without its pads
garbage = scores.masked_fill(~length_mask(valid_lens, 14)[:, None], 1e4)
leaf = scores.clone().requires_grad_()
(masked_softmax(leaf, torch.tensor([0, 8, 14])) * torch.arange(14.0)).sum().backward()
found = {
    "masked - deleted": (weights[1, 0, :8] - deleted).abs().max(),
    "garbage - clean": (masked_softmax(garbage, valid_lens, mask=see) - weights).abs().max(),
    "gradient of an empty item": leaf.grad[0].abs().max(),
    "scores after - before": (scores - before).abs().max(),
}
for name, difference in found.items():
    print(f"{name:26} at most {difference:.5f}")
    assert difference < 1e-6

# %% [markdown]
# ### All together
#
# Each check so far was about one exercise, and grading gives it the course's versions of all others.
# This one puts *your* `length_mask` and `masked_softmax` together, right or wrong, and checks the
# second again: pieces that are right alone should be right in company. It needs the checks above to
# have seen your cells in this session.

# %%
check("02_masked_softmax")

# %% [markdown]
# ## 9. Where it goes from here

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 3, 4), "keys": (1, 5, 4), "scores": (1, 3, 5), "values": (1, 5, 5)}
plotting.show(plotting.diagram_strip("attention", lit=("scores", "weighted sum"), shapes=shapes))

# %% [markdown]
# Scores come from comparing queries with keys (lessons 03 to 05); weights become an output by
# averaging values. **Predict:** can you already tell the weights inside PyTorch's attention? Its
# scores are dot products divided by $\sqrt{d}$ (lesson 05 derives why), and identity values make its
# output show the weights. Query 0 is empty, to compare that too.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(3)
queries, keys = (torch.randn(1, size, 4, generator=generator) for size in (3, 5))
allow = causal_mask(3, 5) & length_mask(torch.tensor([4]), 5)
allow[0] = False  # query 0 may see nothing
scores = torch.einsum("bnd,bmd->bnm", queries, keys) / math.sqrt(4)
ours = masked_softmax(scores, mask=allow)
theirs = F.scaled_dot_product_attention(queries, keys, torch.eye(5)[None], attn_mask=allow)
print(ours[0])
print(f"largest difference to PyTorch's {(ours - theirs).abs().max():.5f}")
assert torch.allclose(ours, theirs, atol=1e-6)

# %% [markdown]
# ## Summary
#
# A softmax turns differences of scores into ratios of weights, so you may shift a row by its maximum,
# and you must if it is to survive large scores. A mask is bool, True means "may attend", and masks
# combine with AND once their axes line up. A forbidden key needs a score of minus infinity: any
# finite fill is small only relative to the scores, and only in some dtypes. A row with no allowed key
# has no softmax; decide what it returns, and never let the nan arise, because a gradient finds it
# even where the output hides it. Test with lengths and sizes that differ: equal ones make most
# mistakes invisible.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Sliding window.** Write a mask that lets query $i$ see the $w$ keys up to its own position.
#    Combine it with `causal_mask(6)`: what does each of the two add?
# 2. **Packed documents.** Several short texts share one row of length $m$. From an integer tensor
#    of document numbers `(B, m)`, make the mask `(B, m, m)` that keeps each text to itself.
# 3. **Two fills.** In float16, add `torch.finfo(torch.float16).min` to the row $(-100, -200)$ and
#    take the softmax. What happened?
# 4. **One pass.** A softmax reads its row three times: maximum, total, division. Find the maximum
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
