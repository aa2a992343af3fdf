# %% [markdown]
# # 06 · Multi-head attention
#
# **The question.** One attention gives each query one row of weights, so it can ask the keys one
# question at a time. How do you ask several at once, at no extra cost, and what can attention not
# find out however many questions it asks?
#
# **After this you can**
#
# - cut a projection into heads and put them together again, without mixing up numbers;
# - write multi-head attention with lengths, masks and dropout, and say what each layer is for;
# - load your weights into `nn.MultiheadAttention` and get the same outputs, masks included;
# - test whether a function notices the order of its inputs, and whether it looks ahead;
# - add positions to a model that has none.
#
# **Time:** about two and a half hours. **You need:** `masked_softmax` (lesson 02), transpose
# against reshape (lesson 03), scaled dot products (lesson 05).

# %%
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib import carry_on, causal_mask, check, hint, length_mask, masked_softmax, plotting

torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## Words and shapes

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, D)", "keys": "(B, m, D)", "outputs": "(B, n, D)"}
plotting.show(plotting.diagram("heads", shapes=shapes | {"attention weights": "(B, h, n, m)"}))

# %% [markdown]
# | letter | counts | | name | shape |
# |---|---|---|---|---|
# | `B` | items in a batch | | `queries` | `(B, n, D)` |
# | `n`, `m` | queries, keys | | `keys`, `values` | `(B, m, D)` |
# | `D` | features (`embed_dim`) | | `q`, `k`, `v` after projecting and splitting | `(B, h, n or m, d)` |
# | `h` | heads (`num_heads`) | | `attention_weights` | `(B, h, n, m)`: rows sum to 1 |
# | `d` | features of a head, `D / h` | | outputs | `(B, n, D)` |
#
# A *head* is one attention of its own, working on `d` of the `D` features.

# %% [markdown]
# ## 1. Two questions, one answer
#
# *Why is one attention not enough?*

# %% tags=["demo", "hide-input"]
shapes = {"attention weights": (1, 4), "values": (4, 3), "outputs": (1, 3)}
plotting.show(plotting.diagram("attention", lit="attention weights", shapes=shapes))

# %% [markdown]
# Take the word `abac`. The letter at position 2, an `a`, may want to know two things: *where is my
# letter?* (positions 0 and 2) and *which letter came before me?* (the one at position 1). Each
# question is a row of weights:
#
# $$w^{\text{where}} = (\tfrac12, 0, \tfrac12, 0), \qquad w^{\text{before}} = (0, 1, 0, 0).$$
#
# One attention has one row. If it serves both questions by halves, it is
# $(\tfrac14, \tfrac12, \tfrac14, 0)$, and the output is an average of the values at positions 0, 1
# and 2.
#
# **Predict.** From that average alone, can a later layer tell which of the three came before?
#
# <details><summary>Answer</summary>
#
# No. The weights are used up in the sum; from then on there is only a blend. A position with other
# neighbours can give the same blend, as the cell shows.
#
# </details>

# %% tags=["demo"]
letters = torch.eye(3)  # a, b, c as one-hot values
values = letters[[0, 1, 0, 2]]  # the word abac
blend = torch.tensor([0.25, 0.5, 0.25, 0.0]) @ values
other = torch.tensor([0.5, 0.5, 0.0, 0.0]) @ values  # "before" is position 0 or 1: who knows
print("half and half:   ", blend.tolist())
print("another question:", other.tolist())
assert torch.equal(blend, other)

# %% [markdown]
# So give each question its own weights, its own values, and its own place in the output. That is
# all that *multi-head attention* is. The rest of this lesson is about doing it in one go, and
# about not mixing up the places.

# %% [markdown]
# ## 2. Heads are blocks of features
#
# *How do `h` projections become one?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (5, 6), "W_q": (5, 6), "split heads": (3, 5, 2)}
plotting.show(plotting.diagram("heads", lit=("W_q", "split heads"), shapes=shapes))

# %% [markdown]
# Head $i$ has projections of its own, with $d = D/h$ rows each:
#
# $$q_i = x\,(W^Q_i)^\top, \qquad x \in \mathbb{R}^{n \times D},\quad W^Q_i \in \mathbb{R}^{d \times D},\quad q_i \in \mathbb{R}^{n \times d}.$$
#
# The plain way is a loop over the heads. Stack the $W^Q_i$ on top of each other and you have one
# matrix $W^Q \in \mathbb{R}^{D \times D}$; its product with $x$ holds all the $q_i$ side by side,
# in *blocks* of $d$ features. What you should see: no difference.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
x = torch.randn(5, 6, generator=generator)  # (n, D)
per_head = [torch.randn(2, 6, generator=generator) for _ in range(3)]  # three heads, d = 2

in_a_loop = [x @ weight.T for weight in per_head]  # three times (n, d)
at_once = x @ torch.cat(per_head).T  # (n, D)
for i, q in enumerate(in_a_loop):
    block = at_once[:, 2 * i : 2 * i + 2]
    print(f"head {i}: largest difference {(q - block).abs().max():.1f}")
    assert torch.allclose(q, block, atol=1e-6)

# %% [markdown]
# One big product instead of three small ones, and the number of weights is $D \cdot D$ for any
# number of heads. Heads cost no parameters: they share the features out.
#
# For batched products the heads need an axis of their own, and it has to come before the
# positions, because `@` multiplies the last two axes: from `(B, n, D)` to `(B, h, n, d)`.
#
# **Predict.** `x.reshape(B, h, n, d)` has that shape. Does head 0 get the first block of every
# position?
#
# <details><summary>Answer</summary>
#
# Only by luck. A reshape keeps the numbers in the order in which they lie in memory: position 0
# from its first to its last feature, then position 1, and so on. The first $n \cdot d$ numbers,
# which become head 0, are the *whole* first positions. No error, the right shape, the wrong heads.
#
# </details>

# %% [markdown]
# **By hand.** One item, two positions, four features, two heads:
#
# | | feature 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | position 0 | 1 | 2 | 3 | 4 |
# | position 1 | 5 | 6 | 7 | 8 |
#
# Head 0 is the left half, `[[1, 2], [5, 6]]`, head 1 the right half, `[[3, 4], [7, 8]]`. The
# reshape gives `[[1, 2], [3, 4]]` and `[[5, 6], [7, 8]]`: head 0 has all of position 0 and nothing
# of position 1.

# %% [markdown]
# ### Exercise: `split_heads`
#
# - **Takes** `x`, shape `(B, n, D)`, and `num_heads`.
# - **Returns** shape `(B, h, n, D / h)`: head $i$ holds features $i d$ to $(i + 1) d - 1$ of every
#   position. Raises `ValueError` if the features cannot be shared out evenly. Gradients reach `x`.
#
# **Worked number.** For `x = [[[1, 2, 3, 4], [5, 6, 7, 8]]]`, the table above,
# `split_heads(x, 2)[0, 1]` is `[[3, 4], [7, 8]]`. `split_heads(x, 3)` is a `ValueError`.

# %%
from course_lib.attention import split_heads

# %%
check("split_heads")

# %% [markdown]
# The picture follows each number of an `x` with three positions: the tens say which position it
# comes from, colour and small letters to which head it belongs. What you should see: on the
# right, each head has one colour. In the middle both heads are striped. Try the other ways.


# %% tags=["demo"]
def as_blocks(way, cells):
    cells = cells[None].float()  # (1, n, D)
    return {
        "x.reshape(h, n, d)": cells.reshape(1, 2, 3, 2),
        "interleaved": cells.reshape(1, 3, 2, 2).permute(0, 3, 1, 2),
        "split_heads(x, 2)": split_heads(cells, 2),
    }[way][0]


cells = 10 * torch.arange(3)[:, None] + torch.arange(4)  # (n, D)
owners = (torch.arange(4) // 2).expand(3, 4)  # which head a feature belongs to


def draw_split(way):
    shown = {f"yours: {way}": way, "target: split_heads": "split_heads(x, 2)"}
    blocks = {name: (as_blocks(w, cells), as_blocks(w, owners)) for name, w in shown.items()}
    return plotting.head_blocks({"x, shape (n, D)": (cells, owners)} | blocks)


assert set(as_blocks("x.reshape(h, n, d)", owners)[0].flatten().tolist()) == {0, 1}
assert set(as_blocks("split_heads(x, 2)", owners)[0].flatten().tolist()) == {0}
plotting.interactive(draw_split, way=["x.reshape(h, n, d)", "interleaved", "split_heads(x, 2)"])

# %% [markdown]
# *Interleaved* heads (features 0 and 2, features 1 and 3) would be a possible convention: a model
# trained with them works. But weights could not be exchanged with anyone who uses blocks, and
# torch does. Section 6 depends on it.

# %% [markdown]
# ## 3. And back again
#
# *After each head has its result, who puts them side by side?*

# %% tags=["demo", "hide-input"]
shapes = {"head outputs": (2, 3, 5, 2), "merge heads": (2, 5, 6)}
plotting.show(plotting.diagram("heads", lit="merge heads", shapes=shapes))

# %% [markdown]
# Each head returns `(n, d)`; together `(B, h, n, d)`. A position's result is its row of head 0,
# followed by its row of head 1, and so on: `(B, n, D)`. The same trap waits on the way back, and it
# is worse, because now numbers of *different positions* end up in one row.
#
# **By hand.** Head 0 holds `[[1, 2], [5, 6]]`, head 1 `[[3, 4], [7, 8]]`. The merge is
# `[[1, 2, 3, 4], [5, 6, 7, 8]]`. A reshape straight away gives `[[1, 2, 5, 6], [3, 4, 7, 8]]`:
# position 0 has lost what head 1 found for it, and has a piece of position 1 instead.

# %% [markdown]
# ### Exercise: `merge_heads`
#
# - **Takes** `x`, shape `(B, h, n, d)`.
# - **Returns** shape `(B, n, h * d)`: for each position the features of head 0, then of head 1, ...
#   Gradients reach `x`.
#
# **Worked number.** For `x = [[[[1, 2], [5, 6]], [[3, 4], [7, 8]]]]`, the example above, it is
# `[[[1, 2, 3, 4], [5, 6, 7, 8]]]`. Whatever `x` was, `merge_heads(split_heads(x, num_heads))` is
# `x`.

# %%
from course_lib.attention import merge_heads

# %%
check("merge_heads")

# %% [markdown]
# A round trip is a good test, with one hole in it: two mistakes can cancel each other.
#
# **Predict.** Split by reshape, merge by reshape. Does the round trip notice?
#
# <details><summary>Answer</summary>
#
# No: nothing was moved on the way out and nothing on the way back, so you get `x`. What happens
# *between* split and merge is wrong all the same. Two right inverses are not yet the right two.
#
# </details>

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
x = torch.randn(2, 5, 6, generator=generator)  # (B, n, D)
wrong_split = x.reshape(2, 3, 5, 2)
assert torch.equal(merge_heads(split_heads(x, 3)), x)
assert torch.equal(wrong_split.reshape(2, 5, 6), x)
assert not torch.equal(wrong_split, split_heads(x, 3))
print("both round trips return x; only one of the two splits is right")

# %% [markdown]
# ## 4. Mixing: what `W_o` is for
#
# *The heads stand side by side. Why is there a fourth layer?*

# %% tags=["demo", "hide-input"]
shapes = {"head outputs": (1, 3, 5, 2), "merge heads": (1, 5, 6), "W_o": (1, 5, 6)}
plotting.show(plotting.diagram("heads", lit="W_o", shapes=shapes))

# %% [markdown]
# Without it, head $i$ could write to its own $d$ features of the output and to no others. The
# output layer $W^O \in \mathbb{R}^{D \times D}$ lets every head write everywhere:
#
# $$\text{output} = [\,\text{head}_0, \dots, \text{head}_{h-1}\,]\,(W^O)^\top = \sum_{i=0}^{h-1} \text{head}_i\,(W^O_i)^\top, \qquad W^O_i \in \mathbb{R}^{D \times d},$$
#
# where $W^O_i$ are columns $i d$ to $(i+1) d - 1$ of $W^O$. Concatenating and multiplying is the
# same as giving each head its own way out, and adding up. Accounts of attention that end with the
# heads' results leave out both the concatenation and this layer.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(2)
heads = torch.randn(1, 3, 5, 2, generator=generator)  # (B, h, n, d)
W_o = torch.randn(6, 6, generator=generator)

concatenated = merge_heads(heads) @ W_o.T
added_up = sum(heads[:, i] @ W_o[:, 2 * i : 2 * i + 2].T for i in range(3))
print(f"largest difference: {(concatenated - added_up).abs().max():.1f}")
assert torch.allclose(concatenated, added_up, atol=1e-5)

# %% [markdown]
# ### One head's scores
#
# Within a head everything is as in lesson 05, with $d$ features instead of $D$:
#
# $$\text{head}_i = \operatorname{softmax}\!\left(\frac{q_i k_i^\top}{\sqrt{d}}\right) v_i, \qquad q_i \in \mathbb{R}^{n \times d},\; k_i, v_i \in \mathbb{R}^{m \times d}.$$
#
# **Predict.** $D = 64$, eight heads. A score is divided by 8, or by about 2.83?
#
# <details><summary>Answer</summary>
#
# By $\sqrt{8} \approx 2.83$. A score of one head sums $d = 64/8 = 8$ products, so that is what its
# variance grows with. Dividing by $\sqrt{64}$ makes all weights more even than they should be; it
# still trains, which makes it hard to notice.
#
# </details>

# %% tags=["demo"]
generator = torch.Generator().manual_seed(3)
q, k = torch.randn(2, 2000, 64, generator=generator)
scores = (split_heads(q[None], 8) * split_heads(k[None], 8)).sum(dim=-1)  # one score a pair
for name, divisor in {"sqrt(d)": math.sqrt(8), "sqrt(D)": math.sqrt(64)}.items():
    print(f"divided by {name}: standard deviation {(scores / divisor).std():.1f}")
assert 0.95 < (scores / math.sqrt(8)).std() < 1.05
assert (scores / math.sqrt(64)).std() < 0.4

# %% [markdown]
# ### Three claims to test
#
# You will read these in tutorials. Decide for each before you open the answers: true or false?
#
# 1. Self-attention means $Q = V$.
# 2. The values are projected from the keys, $\tilde V = K W^V$.
# 3. If padding is all zeros it cannot influence the softmax.
#
# <details><summary>Answers</summary>
#
# All three are false. (1) Self-attention means that one *sequence* is handed over three times; three
# different layers make three different things of it. (2) They are projected from the values. In
# self-attention nobody notices, since keys and values are the same sequence; between a query text
# and a lookup table, everyone does. (3) A zero key has the score 0, and $e^0 = 1$.
#
# </details>

# %% [markdown]
# The first claim is about a definition, and no numbers can decide it. The other two can be worked
# out: with random numbers it is enough that one case contradicts a claim of *always*.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(4)
x = torch.randn(1, 4, 6, generator=generator)
W_q, W_k, W_v = torch.randn(3, 6, 6, generator=generator)
table = {"keys": x, "values": torch.randn(1, 4, 6, generator=generator)}
gap = (table["values"] @ W_v.T - table["keys"] @ W_v.T).abs().max()
print(f"2. V from values, V from keys: up to {gap:.1f} apart")
assert gap > 1

x[:, 2:] = 0.0  # positions 2 and 3 are padding
scores = (x @ W_q.T) @ (x @ W_k.T).mT / math.sqrt(6)
on_pads = torch.softmax(scores, dim=-1)[0, :2, 2:].sum(dim=-1)
print("3. weight on zero padding:    ", on_pads)
assert (on_pads > 0.01).all()
assert not masked_softmax(scores, torch.tensor([2]))[..., 2:].any()

# %% [markdown]
# ### Masks for heads
#
# Scores have the shape `(B, h, n, m)`. `masked_softmax` already hands `valid_lens` to every head.
# A mask has to line up with four axes:
#
# | given | means | lines up as |
# |---|---|---|
# | `(n, m)` | the same for all | `(1, 1, n, m)`, by itself |
# | `(B, n, m)` | one for each item | `(B, 1, n, m)`: you add the axis |
# | `(B, h, n, m)` | one for each head | as it is |
#
# **Predict.** Two items, two heads, and a `(B, n, m)` mask used as it is. An error?
#
# <details><summary>Answer</summary>
#
# No. Broadcasting lines axes up from the right, so `B` meets `h`; both are 2. Head 0 gets the mask
# of item 0 and head 1 that of item 1, for both items. With three heads it would have been an error,
# and you would have been lucky.
#
# </details>

# %% [markdown]
# ### Exercise: `MultiHeadAttention`
#
# Put it together: project, split, attend in all heads at once, merge, project.
#
# - **Built with** `embed_dim`, `num_heads`, `dropout=0.0`, `bias=False`, in this order. Submodules
#   `W_q`, `W_k`, `W_v`, `W_o`: `nn.Linear(embed_dim, embed_dim)`, with a bias only if asked for.
# - **Called with** `queries` `(B, n, D)`, `keys` and `values` `(B, m, D)`, optionally `valid_lens`,
#   `(B,)` or `(B, n)`, and `mask` in one of the three shapes above, True = may attend. With both
#   given, a key must be allowed by both. What is in the others changes nothing, however large.
#   Where no key is allowed the weights are 0, and all gradients stay finite.
# - **Returns** `(B, n, D)`, however large the scores are; every size may be 1.
# - **Keeps** `attention_weights`, `(B, h, n, m)`, of its own last call, in train and in eval mode,
#   as the softmax left them, detached. Dropout acts on the weights, in train mode only.
#
# **Worked number.** Two heads, `embed_dim=4`, `W_v` and `W_o` identities. Two queries of zeros
# score 0 with every key, so they weigh the keys $(1, 2, 3, 4)$ and $(5, 6, 7, 8)$ by ½ each. If
# those are the values, too, both outputs are $(3, 4, 5, 6)$. With one single key, every query's
# output is that key's value, whatever the other weights are.

# %%
from course_lib.attention import MultiHeadAttention

# %%
check("MultiHeadAttention")

# %% [markdown]
# Your module against a loop over the heads, as one would write it from the formula. What you
# should see: no difference. The loop costs `h` products of each kind; the module does one, with an
# axis more.

# %% tags=["demo"]
torch.manual_seed(5)
mha = MultiHeadAttention(embed_dim=6, num_heads=3).eval()
queries, keys, values = torch.randn(2, 4, 6), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
q, k, v = mha.W_q(queries), mha.W_k(keys), mha.W_v(values)

results = []
for i in range(3):
    block = slice(2 * i, 2 * i + 2)
    scores = q[..., block] @ k[..., block].mT / math.sqrt(2)
    results.append(masked_softmax(scores, torch.tensor([3, 5])) @ v[..., block])
looped = mha.W_o(torch.cat(results, dim=-1))

outputs = mha(queries, keys, values, valid_lens=torch.tensor([3, 5]))
print(f"largest difference: {(outputs - looped).abs().max():.1f}")
assert torch.allclose(outputs, looped, atol=1e-5)
for num_heads in (1, 2, 3, 6):
    parameters = MultiHeadAttention(6, num_heads).parameters()
    assert sum(p.numel() for p in parameters) == 4 * 6 * 6  # the same for any number of heads

# %% [markdown]
# ## 5. What a head does
#
# *Can two heads answer the two questions of section 1?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 8), "attention weights": (1, 2, 4, 4), "outputs": (1, 4, 8)}
plotting.show(plotting.diagram("heads", lit="attention weights", shapes=shapes))

# %% [markdown]
# Set the weights by hand, so that there is no doubt about what each head does. A position of `abac`
# is described by eight features: its letter (four, one-hot) and its place (four, one-hot).
#
# | | query | key | value |
# |---|---|---|---|
# | head 0, *where is my letter?* | my letter | your letter | your place |
# | head 1, *who came before?* | the place before mine | your place | your letter |
#
# The queries are multiplied by 20, so that the softmax is sharp. Position 0 has nobody before it;
# its head 1 is told to look at position 0 itself.

# %% tags=["demo"]
word = "abac"
letters = torch.eye(4)[["abcd".index(letter) for letter in word]]
places = torch.eye(4)
x = torch.cat([letters, places], dim=-1)[None]  # (1, 4, 8): letter, then place

before = torch.zeros(4, 4)
before[[0, 0, 1, 2], [0, 1, 2, 3]] = 1.0  # row: place looked for, column: place of the query
zero, eye = torch.zeros(4, 4), torch.eye(4)
two_heads = MultiHeadAttention(embed_dim=8, num_heads=2).eval()
with torch.no_grad():
    two_heads.W_q.weight.copy_(20 * torch.block_diag(eye, before))
    two_heads.W_k.weight.copy_(torch.eye(8))
    two_heads.W_v.weight.copy_(torch.cat([torch.cat([zero, eye], 1), torch.cat([eye, zero], 1)]))
    two_heads.W_o.weight.copy_(torch.eye(8))
    outputs = two_heads(x, x, x)[0]  # (4, 8): places of my letter, letter before
print("position 2, where is my letter?", outputs[2, :4])
print("position 2, who came before?   ", outputs[2, 4:])
assert torch.allclose(outputs[2], torch.tensor([0.5, 0, 0.5, 0, 0, 1, 0, 0]), atol=1e-3)

# %% [markdown]
# Both answers, each in its own place. Choose a head by its small map, and point at a letter. What
# you should see: head 0 connects the two `a`s and leaves `b` and `c` to themselves; in head 1 every
# letter looks at the one before it.

# %% tags=["demo"]
asked = ["where is my letter", "who came before"]
plotting.show(plotting.attention(two_heads, word, word, heads=asked, title=f"the word {word}"))

# %% [markdown]
# The same eight features and the same four matrices, used as *one* head, next to the two. What you
# should see: the single head adds both scores up before the softmax, and its rows blend the two
# patterns. At position 2 it gives a third of its weight to each of positions 0, 1 and 2: neither
# question has an answer any more.

# %% tags=["demo"]
one_head = MultiHeadAttention(embed_dim=8, num_heads=1).eval()
one_head.load_state_dict(two_heads.state_dict())  # the very same weights
with torch.no_grad():
    one_head(x, x, x)
panels = {f"head {i} of 2": two_heads.attention_weights[0, i] for i in range(2)}
panels["the only head of 1"] = one_head.attention_weights[0, 0]
plotting.show(plotting.heatmap_grid(panels))
blend = one_head.attention_weights[0, 0, 2]
print("position 2, one head:", blend)
assert ((blend > 0.3) & (blend < 0.4)).sum() == 3

# %% [markdown]
# ### Taking a head away
#
# To find out what a head is for, remove it and see what breaks: set its columns of `W_o` to 0. This
# is called *ablation*. The bars give the share of positions at which each question is answered
# rightly: task 0 is *where is my letter?*, task 1 is *who came before?*
#
# **Predict.** Head 1 is removed. Which of the two tasks suffers, and how much?
#
# <details><summary>Answer</summary>
#
# Task 1 (who came before) falls to 0; task 0 does not change at all. These two heads share nothing.
# Heads of trained models overlap, and removing one often costs little (Michel and others 2019).
#
# </details>


# %% tags=["demo"]
def share_right(removed):
    model = MultiHeadAttention(embed_dim=8, num_heads=2).eval()
    model.load_state_dict(two_heads.state_dict())
    with torch.no_grad():
        if removed is not None:
            model.W_o.weight[:, 4 * removed : 4 * removed + 4] = 0.0
        found = model(x, x, x)[0]
    where, who = letters @ letters.T, letters[[0, 0, 1, 2]]
    where = where / where.sum(dim=-1, keepdim=True)
    errors = torch.stack([(found[:, :4] - where).abs(), (found[:, 4:] - who).abs()])
    return (errors.amax(dim=-1) < 0.01).float().mean(dim=-1)


shares = {name: share_right(i) for name, i in {"none": None, "head 0": 0, "head 1": 1}.items()}
bars = {f"{name} removed": {"share right": share} for name, share in shares.items()}
plotting.show(plotting.bars(bars, x_label="task"))
assert shares["none"].tolist() == [1, 1]
assert shares["head 1"].tolist() == [1, 0]

# %% [markdown]
# ## 6. The same weights in torch
#
# *Is this what `nn.MultiheadAttention` computes?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2, 4, 6), "keys": (2, 5, 6), "values": (2, 5, 6), "W_o": (2, 4, 6)}
plotting.show(plotting.diagram("heads", lit=("W_q", "W_k", "W_v", "W_o"), shapes=shapes))

# %% [markdown]
# The best test there is: give both the same weights and compare. torch keeps them in another form.

# %% tags=["demo"]
torch.manual_seed(6)
reference = nn.MultiheadAttention(embed_dim=6, num_heads=3, batch_first=True).eval()
for name, parameter in reference.named_parameters():
    print(f"{name:16} {tuple(parameter.shape)}")
assert reference.in_proj_weight.shape == (3 * 6, 6)

# %% [markdown]
# `in_proj_weight` is $W^Q$ above $W^K$ above $W^V$, and `in_proj_bias` their biases in the same
# order. Both libraries compute $x W^\top$, so nothing is transposed. Biases start at 0 in torch, but
# a module that has been trained has others: if ours has none, torch's have to become 0.
#
# A parameter may not be overwritten while autograd watches: do it under `torch.no_grad()`.

# %% [markdown]
# ### Exercise: `load_into_torch`
#
# - **Takes** `mha`, a module with `nn.Linear` layers `W_q`, `W_k`, `W_v`, `W_o` (all with biases or
#   all without), and `reference`, an `nn.MultiheadAttention` of the same size, with or without
#   biases; it has some whenever `mha` has.
# - **Returns** nothing. Afterwards `reference` computes what `mha` does. The weights are *copied*:
#   the two share no memory, and `mha` stays as it was. `reference` can still be trained, and both
#   stay in the mode, train or eval, in which they were.
#
# **Worked number.** With `embed_dim=2`, one head, `W_q` and `W_k` zeros, `W_v` 2 times and `W_o` 3
# times the identity, `reference` gives a query of zeros half of each value: $(1, 0)$ and $(0, 1)$
# become $(3, 3)$. Row 2 of `reference.in_proj_weight` is row 0 of `mha.W_k.weight`.

# %%
from course_lib.attention import load_into_torch

# %%
check("load_into_torch")

# %% [markdown]
# Now the comparison, with lengths and a causal mask. torch's masks say True for *ignore*, so the
# caller has to invert both; torch also wants the weights of each head asked for.

# %% tags=["demo"]
load_into_torch(mha, reference)
lens = torch.tensor([3, 5])
real, see = length_mask(lens, 5), causal_mask(4, 5)
ours = mha(queries, keys, values, valid_lens=lens, mask=see)
theirs, weights = reference(
    queries,
    keys,
    values,
    key_padding_mask=~real,
    attn_mask=~see,
    average_attn_weights=False,
)
print(f"outputs differ by at most {(ours - theirs).abs().max():.1f}")
assert torch.allclose(ours, theirs, atol=1e-5)
assert torch.allclose(mha.attention_weights, weights, atol=1e-5)

upside_down = reference(queries, keys, values, attn_mask=see)[0]  # not inverted: no error
print("not inverted: the same?", torch.allclose(mha(queries, keys, values, mask=see), upside_down))

# %% [markdown]
# One difference is left. An item of length 0 has nothing to attend to. What you should see: ours
# returns zeros, as agreed in lesson 02; torch's module returns nan.

# %% tags=["demo"]
nobody = torch.tensor([0, 5])
ours = mha(queries, keys, values, valid_lens=nobody)
theirs = reference(queries, keys, values, key_padding_mask=~length_mask(nobody, 5))[0]
print("item of length 0, ours :", ours[0, 0].detach())
print("item of length 0, torch:", theirs[0, 0].detach())
assert not ours[0].any()
assert theirs[0].isnan().all()

# %% [markdown]
# ## 7. What attention cannot see
#
# *Shuffle the words of a sentence. What does self-attention notice?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 3, 6), "head queries": (1, 3, 3, 2), "head keys": (1, 3, 3, 2)}
plotting.show(plotting.diagram("heads", lit=("scores", "weighted sum"), shapes=shapes))

# %% [markdown]
# Scores compare contents; sums do not care about their order. If $P$ permutes the positions,
#
# $$f(Px) = P f(x), \qquad x \in \mathbb{R}^{n \times D}.$$
#
# Such an $f$ is *permutation equivariant*: the outputs move along with the inputs, and nothing else
# changes. (*Invariant* would be $f(Px) = f(x)$: nothing moves.) For a model of language it is bad
# news: in *dog bites man* and *man bites dog*, the word `dog` gets exactly the same output.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(7)
dog, bites, man = torch.randn(3, 1, 1, 6, generator=generator)
one = torch.cat([dog, bites, man], dim=1)  # (1, 3, 6)
two = torch.cat([man, bites, dog], dim=1)
with torch.no_grad():
    dog_first, dog_last = mha(one, one, one)[0, 0], mha(two, two, two)[0, 2]
print(f"the outputs for dog differ by at most {(dog_first - dog_last).abs().max():.1f}")
assert torch.allclose(dog_first, dog_last, atol=1e-6)

# %% [markdown]
# ### A test for it
#
# For all permutations there is no time: ten positions have 3 628 800. Which ones are enough?
#
# **By hand.** Is $f$ = "each position minus the next one, in a circle" equivariant? Rotate
# $(1, 2, 4)$ to $(4, 1, 2)$: outputs $(-1, -2, 3)$ become $(3, -1, -2)$, rotated as well. Swap the
# first two instead, $(2, 1, 4)$: the outputs $(1, -3, 2)$ are not $(-2, -1, 3)$. So a rotation
# proves nothing; neither does a reversal, for functions of distances. Two permutations from which
# all others can be composed are a good choice: a swap of two neighbours and a rotation.

# %% tags=["demo"]
circle = torch.tensor([1.0, 2.0, 4.0])


def minus_next(x):
    return x - x.roll(-1)


for name, order in {"rotated": [2, 0, 1], "swapped": [1, 0, 2]}.items():
    of_it, then_it = minus_next(circle[order]), minus_next(circle)[order]
    print(f"{name}: f of the {name} {of_it.tolist()}, f and then {name} {then_it.tolist()}")
    assert torch.equal(of_it, then_it) == (name == "rotated")

# %% [markdown]
# ### Exercise: `is_permutation_equivariant`
#
# - **Takes** `fn`, a function from `(B, n, D)` to `(B, n, ...)` without randomness, and `x`,
#   `(B, n, D)`.
# - **Returns** a Python `bool`: does every item's output move along with its positions?
#
# Outputs that differ by rounding only, in float32 about a millionth of their size, count as equal. A
# difference of a hundredth counts, wherever it is and whichever its sign, and nan equals nothing.
#
# **Worked number.** At $((1, 0), (2, -1), (0, 2))$, three positions of one item: for
# `fn = lambda x: 2 * x` True, for `fn = lambda x: x.cumsum(1)` False, for
# `fn = lambda x: x.sort(1).values` False: that one is invariant.

# %%
from course_lib.attention import is_permutation_equivariant

# %%
check("is_permutation_equivariant")

# %% [markdown]
# ### And a test for looking ahead
#
# A causal function is one whose output at position $i$ depends on positions $0, \dots, i$ only. If the
# future does not matter, you may overwrite it, and nobody before it may notice.
#
# **Predict.** You overwrite the future with nan, and look whether a nan appears earlier. Would
# causal attention pass?
#
# <details><summary>Answer</summary>
#
# No. A forbidden key has weight 0, but the weighted sum still multiplies it with its value, and
# $0 \times \text{nan}$ is nan. Use ordinary numbers.
#
# </details>

# %% [markdown]
# ### Exercise: `is_causal`
#
# - **Takes** `fn` and `x` as before.
# - **Returns** a Python `bool`: is no output, of any item, changed by any later position? An output
#   may depend on its own position.
#
# Outputs that differ by rounding only, in float32 about a millionth of their size, count as equal. A
# difference of a hundredth counts, wherever it is and whichever its sign, and nan equals nothing.
#
# **Worked number.** At $((1, 0), (2, -1), (0, 2))$ again: for `fn = lambda x: x.cumsum(1)` True; for
# `fn = lambda x: x.flip(1)` False; for `fn = lambda x: x.roll(-1, 1)`, the next position, False.

# %%
from course_lib.attention import is_causal

# %%
check("is_causal")

# %% [markdown]
# Now use both. You may read that attention cannot know any order without positions being added.
#
# **Predict.** What do the two tests say of self-attention with a causal mask, and nothing added?
#
# <details><summary>Answer</summary>
#
# It is causal, and it is *not* equivariant: position 0 sees one key, position 3 sees four. The mask
# already breaks the symmetry. Some language models have no other source of order than that (Haviv
# and others 2022). What is blind to order is attention in which everyone sees everyone.
#
# </details>

# %% tags=["demo"]
generator = torch.Generator().manual_seed(8)
x = torch.randn(2, 5, 6, generator=generator)
functions = {
    "self-attention": lambda x: mha(x, x, x),
    "with a causal mask": lambda x: mha(x, x, x, mask=causal_mask(x.shape[1])),
}
for name, fn in functions.items():
    with torch.no_grad():
        found = is_permutation_equivariant(fn, x), is_causal(fn, x)
    print(f"{name:20} equivariant: {found[0]!s:6} causal: {found[1]}")
    assert found == ((True, False) if name == "self-attention" else (False, True))

# %% [markdown]
# ## 8. Adding positions
#
# *How does a model that sees contents only learn where they stand?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (2, 5, 6), "keys": (2, 5, 6), "values": (2, 5, 6)}
plotting.show(plotting.diagram("heads", lit=("queries", "keys", "values"), shapes=shapes))

# %% [markdown]
# Put the place into the content: add to each input a vector that depends on its position $p$. The
# *sinusoidal encoding* uses pairs of columns, each pair a clock hand with a speed of its own:
#
# $$PE_{p,\,2i} = \sin\frac{p}{10000^{2i/D}}, \qquad PE_{p,\,2i+1} = \cos\frac{p}{10000^{2i/D}}, \qquad PE \in \mathbb{R}^{n \times D}.$$
#
# **By hand.** For $D = 4$ the two speeds are $1$ and $1/100$. Position 0 is $(0, 1, 0, 1)$, position
# 1 is $(\sin 1, \cos 1, \sin 0.01, \cos 0.01) \approx (0.8415, 0.5403, 0.0100, 1.0000)$.
#
# An odd $D$ ends with a sine that has no cosine beside it; $2i/D$ stays as it is.

# %% [markdown]
# ### Exercise: `positional_encoding`
#
# - **Takes** `num_positions` and `embed_dim`.
# - **Returns** a floating tensor `(num_positions, embed_dim)`, float32 or float64: positions from 0,
#   even columns sines, odd columns cosines.
#
# **Worked number.** `positional_encoding(2, 3)[1]` has the speeds $1$ and $10000^{-2/3} = 0.0022$:
# $(0.8415, 0.5403, 0.0022)$.

# %%
from course_lib.attention import positional_encoding

# %%
check("positional_encoding")

# %% [markdown]
# What you should see: on the left, stripes that get slower from column to column, until the last
# ones hardly move. On the right, three of the columns as curves.

# %% tags=["demo"]
table = positional_encoding(50, 32)
plotting.show(plotting.encoding_map(table))
assert torch.allclose(table[0], torch.tensor([0.0, 1.0] * 16))
assert (table[:, 30:].amax(dim=0) - table[:, 30:].amin(dim=0) < 0.01).all()  # slow

# %% [markdown]
# Why hands of a clock? The dot product of two positions' encodings depends on their *distance* alone,
#
# $$PE_p \cdot PE_{p+s} = \sum_i \cos\frac{s}{10000^{2i/D}},$$
#
# because $\sin a \sin b + \cos a \cos b = \cos(a - b)$. What you should see: the same curve for
# both positions, moved to where they are, highest at distance 0.

# %% tags=["demo"]
products = table.double() @ table.double().T  # (50, 50)
curves = {f"position {p}": products[p] for p in (15, 30)}
plotting.show(
    plotting.lines(range(50), curves, x_label="other position", y_label="dot product of encodings")
)
for distance in (1, 5, 12):
    same_distance = products.diagonal(distance)
    print(f"distance {distance:2}: {same_distance.min():.4f} to {same_distance.max():.4f}")
    assert same_distance.max() - same_distance.min() < 1e-4
assert products.argmax(dim=1).tolist() == list(range(50))

# %% [markdown]
# That alone cannot say "three places *before* me": the curve is even, so three back and three ahead
# score the same. But a step of $s$ turns every hand by an angle that does not depend on where it
# stands,
#
# $$PE_{p+s} = R_s\, PE_p, \qquad R_s = \text{one rotation for each pair of columns},$$
#
# and a rotation is a matrix, so `W_q` can hold it. With $W_q = R_{-3}$ and $W_k = I$ the score of
# query $p$ and key $j$ is $PE_{p-3} \cdot PE_j$, which is highest at $j = p - 3$, wherever $p$ is.
#
# **Predict.** Without the rotation, is key 17 or key 23 ahead for query 20? And with it?
#
# <details><summary>Answer</summary>
#
# Without: neither, both are 3 away. With it key 17 is at distance 0 from where the query now
# points, and key 23 at distance 6.
#
# </details>


# %% tags=["demo"]
def rotation(step, embed_dim):
    """The matrix with which R @ PE[p] is PE[p + step], for an even embed_dim."""
    angles = step / 10000 ** (torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)
    turns = [[[a.cos(), a.sin()], [-a.sin(), a.cos()]] for a in angles]
    return torch.block_diag(*(torch.tensor(turn, dtype=torch.float64) for turn in turns))


encodings = table.double()
three_back = rotation(-3, 32)  # used as W_q
assert torch.allclose(encodings[3:] @ three_back.T, encodings[:-3], atol=1e-5)
scores = (encodings @ three_back.T) @ encodings.T  # (50, 50), W_k is the identity
for name, row in {"no rotation": products[20], "three back ": scores[20]}.items():
    print(f"{name}: query 20 scores {row[17]:.2f} with key 17, {row[23]:.2f} with key 23")
assert math.isclose(products[20, 17], products[20, 23], abs_tol=1e-4)
assert scores.argmax(dim=1)[3:].tolist() == list(range(47))

# %% [markdown]
# And the dog? With positions added, the two sentences differ for it, and the test of section 7 says
# so.


# %% tags=["demo"]
def with_positions(x):
    x = x + positional_encoding(x.shape[1], x.shape[2])
    return mha(x, x, x)


with torch.no_grad():
    print("equivariant with positions:", is_permutation_equivariant(with_positions, x))
    change = (with_positions(one)[0, 0] - with_positions(two)[0, 2]).abs().max()
    assert not is_permutation_equivariant(with_positions, x)
print("the outputs for dog differ now:", bool(change > 0.01))
assert change > 0.01

# %% [markdown]
# ### All together
#
# Each check so far was about one exercise, and grading gives it the course's versions of all others.
# This one puts *your* `split_heads`, `merge_heads` and `MultiHeadAttention` together, right or
# wrong, and checks the module again. It needs the checks above to have seen your cells in this
# session.

# %%
check("06_multi_head")

# %% [markdown]
# ### Written question: three decisions
#
# A colleague plans a language model that reads from left to right, $D = 64$. Answer each decision in
# two or three sentences, with a reason that can be checked.
#
# 1. "I take 64 heads instead of 8. More heads ask more questions, and they cost no parameters."
# 2. "I leave out `W_o`. The heads are concatenated anyway, so all information is there."
# 3. "I add no positions. The causal mask already tells the model the order."

# %% [markdown] written="heads_and_positions"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each decision; half points are possible.
#
# 1. **Not free.** The parameters stay at $4 D^2$, true; but $d = 1$, so each score is the product of
#    two numbers and can compare a single feature, and the weights take 64 $n \times m$ matrices
#    instead of 8. Half a point for only one of the two (what a head can express; memory of the
#    weights). A head's query and key of size $d$ give scores of rank at most $d$: also good.
# 2. **Information is not the matter, mixing is.** Without `W_o` head $i$ can write only to its block
#    of $d$ features, so where a result goes is fixed by who found it, and no output feature can
#    depend on two heads. Full point also for: a following layer can do the mixing (the feed-forward
#    layer of a block), but the residual connection around attention adds block by block before that.
# 3. **Half right.** A causal mask breaks equivariance (the test of section 7), so some order can be
#    learned from it. But within the keys a query sees, it is still blind: swapping two earlier
#    positions leaves the last position's output in one layer as it is. Half a point for only "the
#    mask is enough" with the test as a reason, or only "positions are always needed".
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# Multi-head attention shares the features out among heads, each with its own weights over the keys,
# so that a position can ask several questions at once for the price of one. One projection makes
# all heads; splitting and merging need a transpose, and a reshape alone gives the right shape with
# the wrong numbers. `W_o` mixes what the heads found. Given the same weights torch's module agrees
# to the last digits, once its masks are inverted. Where everyone sees everyone, attention is
# blind to order: a causal mask breaks the symmetry, an encoding of positions says where things are.

# %% [markdown]
# ## Further exercises
#
# 1. **Different sizes.** Let queries, keys and values have sizes of their own, as `kdim` and `vdim`
#    do in torch. Which layers change?
# 2. **Shared keys.** Use one head of keys and values for all heads of queries (*multi-query
#    attention*, Shazeer 2019). How many parameters are left, and what has to be kept in memory for
#    each word while a text is being generated?
# 3. **Rotations.** Instead of adding $PE$, turn each pair of query and key features by the angle of
#    its position (Su and others 2021). Show that scores then depend on distances only.
# 4. **Swap the past.** Show with your own module that swapping positions 0 and 1 under a causal mask
#    leaves the output of position 4 unchanged. Does it still, after a second layer?
# 5. **Prune.** Write a function that removes a head for good: smaller matrices, the same outputs as
#    with its columns of `W_o` at 0.

# %% [markdown]
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017, sections 3.2.2 and 3.5.
#   <https://arxiv.org/abs/1706.03762>
# - PyTorch, `nn.MultiheadAttention`: parameters, and masks with True = ignore.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html>
# - P. Michel, O. Levy and G. Neubig, *Are Sixteen Heads Really Better than One?*, 2019.
#   <https://arxiv.org/abs/1905.10650>
# - A. Haviv and others, *Transformer Language Models without Positional Encodings Still Learn
#   Positional Information*, 2022. <https://arxiv.org/abs/2203.16634>
# - J. Su and others, *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021.
#   <https://arxiv.org/abs/2104.09864>
# - N. Shazeer, *Fast Transformer Decoding: One Write-Head is All You Need*, 2019.
#   <https://arxiv.org/abs/1911.02150>
