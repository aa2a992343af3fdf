# %% [markdown]
# # 06 · Multi-head attention
#
# **The question.** In *dreiundvierzig* a reader has two things to find, *drei* and *vierzig*, and must
# not mix them up: *vierunddreißig* is 34. One attention gives each query one row of weights, so it
# asks the keys one question at a time. The translator of lesson 00 asks four at once, at no extra
# cost. How? And what can attention not find out, however many questions it asks?
#
# **After this you can**
#
# - cut a projection into heads and put them together again, without mixing up numbers;
# - write multi-head attention with lengths, masks and dropout, and say what each layer is for;
# - take a head out of a trained model, and say what it did;
# - load your weights into `nn.MultiheadAttention` and get the same outputs, masks included;
# - test whether a function notices the order of its inputs, and whether it looks ahead;
# - add positions, and show how a score can then look three places back.
#
# **Time:** {time}. **You need:** `masked_softmax` (lesson 02), transpose
# against reshape (lesson 03), scaled dot products (lesson 05).

# %%
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import translate

causal_mask, length_mask, masked_softmax = carry_on("causal_mask", "length_mask", "masked_softmax")

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
shapes = {"attention weights": (1, 14), "values": (14, 22), "outputs": (1, 22)}
plotting.show(plotting.diagram_strip("attention", lit="attention weights", shapes=shapes))

# %% [markdown]
# Say you want two letters of *dreiundvierzig*: the `d` with which the ones begin, at place 0, and the
# `v` with which the tens begin, at place 7. Each is a question, and its answer a row of weights:
#
# $$w^{\text{ones}} = (1, 0, 0, 0, 0, 0, 0, 0, 0, \dots), \qquad w^{\text{tens}} = (0, 0, 0, 0, 0, 0, 0, 1, 0, \dots).$$
#
# One attention has one row. Let it serve both questions by halves, with ½ at place 0 and ½ at place 7.
#
# **Predict.** The values are one-hot letters. How far apart are the outputs for *dreiundvierzig* and
# for *vierunddreißig*?

# %% tags=["demo"]
numerals = Numerals()
half_and_half = torch.zeros(14)
half_and_half[[0, 7]] = 0.5
blends = []
for word in ("dreiundvierzig", "vierunddreißig"):
    values = F.one_hot(numerals.source_ids(word), len(numerals.source)).float()  # (14, 22)
    blends.append(half_and_half @ values)
    found = blends[-1].nonzero().flatten()
    print(word, {letter: 0.5 for letter in numerals.source.words(found)})
apart = (blends[0] - blends[1]).abs().max()
print(f"largest difference: {apart:.1f}")
assert apart == 0 and len(found) == 2

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not at all: half a `d` and half a `v`, both times. The sum keeps no note of which weight brought what,
# so no later layer can tell 43 from 34. Unequal weights would leave a trace, but a faint one: from
# ⅔ `d` and ⅓ `v` a linear layer would have to read the *second* largest number. Section 5 trains
# one attention to do it.
#
# </details>
#
# So give each question its own weights, its own values, and its own place in the output. That is
# all that *multi-head attention* is. The rest of this lesson is about doing it in one go, and
# about not mixing up the places.

# %% [markdown]
# ## 2. Heads are blocks of features
#
# *How do `h` projections become one?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (5, 6), "W_q": (5, 6), "split heads": (3, 5, 2)}
plotting.show(plotting.diagram_strip("heads", lit=("W_q", "split heads"), shapes=shapes))

# %% [markdown]
# Head $i$ has projections of its own, with $d = D/h$ rows each:
#
# $$q_i = x\,(W^Q_i)^\top, \qquad x \in \mathbb{R}^{n \times D},\quad W^Q_i \in \mathbb{R}^{d \times D},\quad q_i \in \mathbb{R}^{n \times d}.$$
#
# The plain way is a loop over the heads. Stack the $W^Q_i$ on top of each other and you have one
# matrix $W^Q \in \mathbb{R}^{D \times D}$; its product with $x$ holds all the $q_i$ side by side,
# in *blocks* of $d$ features. **Predict.** With $D = 6$ and three heads, which columns of the
# product belong to head 1? And how many weights does $W^Q$ have with one head, with three, with
# six?

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
# <details><summary>Answer</summary>
#
# Columns 2 and 3; they hold the same products as the loop's, made in one call instead of three. And
# 36 weights each time.
#
# </details>
#
# One big product instead of three small ones, and the number of weights is $D \cdot D$ for any
# number of heads. Heads cost no parameters: they split the features between them.
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
# comes from, colour and small letters to which head it belongs. Try all three ways.


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
    return plotting.cell_origins({"x, shape (n, D)": (cells, owners)} | blocks, owner="head")


assert set(as_blocks("x.reshape(h, n, d)", owners)[0].flatten().tolist()) == {0, 1}
assert set(as_blocks("split_heads(x, 2)", owners)[0].flatten().tolist()) == {0}
plotting.interactive(draw_split, way=["x.reshape(h, n, d)", "interleaved", "split_heads(x, 2)"])

# %% [markdown]
# <details><summary>What you should see</summary>
#
# On the right each head has one colour. In the middle, with a reshape, both heads are striped.
#
# </details>
#
# *Interleaved* heads (features 0 and 2, features 1 and 3) would be a possible convention: a model
# trained with them works. But weights could not be exchanged with anyone who uses blocks, as torch
# does. Section 6 depends on it.

# %% [markdown]
# ## 3. And back again
#
# *After each head has its result, who puts them side by side?*

# %% tags=["demo", "hide-input"]
shapes = {"head outputs": (2, 3, 5, 2), "merge heads": (2, 5, 6)}
plotting.show(plotting.diagram_strip("heads", lit="merge heads", shapes=shapes))

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
# ### A round trip ★
#
# There and back is a good test, with one hole in it: two mistakes can cancel each other.
#
# **Predict.** Split by reshape, merge by reshape. Does the round trip notice?
#
# <details><summary>Answer</summary>
#
# No: nothing was moved on the way out and nothing on the way back, so you get `x`. What happens
# *between* split and merge is wrong all the same. Being inverses of each other does not make either one right.
#
# </details>

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
x = torch.randn(2, 5, 6, generator=generator)  # (B, n, D)
wrong_split = x.reshape(2, 3, 5, 2)
differences = {
    "x and back by split and merge": merge_heads(split_heads(x, 3)) - x,
    "x and back by two reshapes": wrong_split.reshape(2, 5, 6) - x,
    "the two splits": wrong_split - split_heads(x, 3),
}
for name, difference in differences.items():
    print(f"{name:30} at most {difference.abs().max():.1f} apart")
assert not differences["x and back by two reshapes"].any()
assert differences["the two splits"].abs().max() > 1

# %% [markdown]
# ## 4. Mixing: what `W_o` is for
#
# *The heads stand side by side. Why is there a fourth layer?*

# %% tags=["demo", "hide-input"]
shapes = {"head outputs": (1, 3, 5, 2), "merge heads": (1, 5, 6), "W_o": (1, 5, 6)}
plotting.show(plotting.diagram_strip("heads", lit="W_o", shapes=shapes))

# %% [markdown]
# Without it, head $i$ could write to its own $d$ features of the output and to no others. The
# output layer $W^O \in \mathbb{R}^{D \times D}$ lets every head write everywhere:
#
# $$\text{output} = [\,\text{head}_0, \dots, \text{head}_{h-1}\,]\,(W^O)^\top = \sum_{i=0}^{h-1} \text{head}_i\,(W^O_i)^\top, \qquad W^O_i \in \mathbb{R}^{D \times d},$$
#
# where $W^O_i$ are columns $i d$ to $(i+1) d - 1$ of $W^O$. Concatenating and multiplying is giving each
# head its own way out, and adding up.

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
# ### Two claims
#
# True or false? (1) In self-attention `q`, `k` and `v` are three copies of the input. (2) `v` is
# projected from the keys.
#
# <details><summary>Answers</summary>
#
# Both are false. The *input* is handed over three times, and three layers make three different
# things of it. `v` is projected from `values`; where they are another sequence than the keys, that
# matters.
#
# </details>

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
# **Predict.** *drei* and *dreizehn*, two heads, and a `(B, n, m)` mask used as it is. An error?
#
# <details><summary>Answer</summary>
#
# No. Broadcasting lines axes up from the right, so `B` meets `h`; both are 2. Head 0 gets the mask
# of *drei* and head 1 that of *dreizehn*, for both items. Three heads would have raised an error, and
# you would have been lucky.
#
# </details>

# %% [markdown]
# ### Exercise: `MultiHeadAttention`
#
# Put it together: project, split, attend in all heads at once, merge, project.
#
# - **Built with** `embed_dim`, `num_heads`, `dropout=0.0`, `bias=False`, in this order. Submodules
#   `W_q`, `W_k`, `W_v`, `W_o`: `nn.Linear(embed_dim, embed_dim)`, with a bias only if asked for.
#   Pass the keyword arguments `device=None` and `dtype=None` on to each layer, as in lesson 04.
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
# The batch of the last lessons: *drei*, *dreizehn* and *dreiundvierzig*, 4, 8 and 14 letters, each a
# vector of the translator. Your module reads it, and so does a loop over four heads, written from
# the formula.
#
# **Predict.** How far apart are the two? How much weight do the ten pads of *drei* get? And how
# many parameters does your module have with one head, with 4, with 64?

# %% tags=["demo"]
model = trained_translator(numerals)
batch = ["drei", "dreizehn", "dreiundvierzig"]
tokens = pad_sequence([numerals.source_ids(word) for word in batch], batch_first=True)  # (3, 14)
valid_lens = (tokens != 0).sum(dim=1)  # 4, 8, 14
torch.manual_seed(5)
mha = MultiHeadAttention(embed_dim=64, num_heads=4).eval().requires_grad_(False)
x = model.characters(tokens).detach()  # (3, 14, 64)
outputs = mha(x, x, x, valid_lens)

q, k, v = mha.W_q(x), mha.W_k(x), mha.W_v(x)
results = []
for i in range(4):
    block = slice(16 * i, 16 * i + 16)
    scores = q[..., block] @ k[..., block].mT / math.sqrt(16)
    results.append(masked_softmax(scores, valid_lens) @ v[..., block])
looped = mha.W_o(torch.cat(results, dim=-1))
print(f"largest difference:       {(outputs - looped).abs().max():.4f}")
print(f"weight on pads of drei:   {mha.attention_weights[0, :, :, 4:].sum():.4f}")
sizes = [sum(p.numel() for p in MultiHeadAttention(64, h).parameters()) for h in (1, 4, 64)]
print("parameters, 1, 4, 64 heads:", sizes)
assert torch.allclose(outputs, looped, atol=1e-5)
assert not mha.attention_weights[0, :, :, 4:].any() and set(sizes) == {4 * 64 * 64}

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not at all, none, and the same each time. The loop costs `h` products of each kind; the module does
# one, with an axis more.
#
# </details>

# %% [markdown]
# ## 5. What a head does
#
# *Do two heads find what one cannot?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (32, 1, 32), "attention weights": (32, 2, 1, 14), "outputs": (32, 1, 32)}
plotting.show(plotting.diagram_strip("heads", lit="attention weights", shapes=shapes))

# %% [markdown]
# Back to the two letters of section 1. Now they have to be learned: one query looks at 14 letters and
# names the first and the eighth. Query, letters and places are fixed random vectors; your module and a
# layer that names letters are trained, on random strings. Then they read 48 real numerals of 14
# letters, *dreiundvierzig* and *vierunddreißig* among them.

# %% tags=["demo"]
fourteen = [10 * tens + ones for tens in range(2, 10) for ones in (2, 3, 4, 5, 8, 9)]
spelled = torch.stack([numerals.source_ids(number) for number in fourteen])  # (48, 14)
at_43, at_34 = fourteen.index(43), fourteen.index(34)


def learn_two_letters(num_heads, seed, d=32):
    """The letters named, (48, 2), and the weights, (48, num_heads, 1, 14)."""
    torch.manual_seed(seed)
    size = len(numerals.source)
    letters, places = torch.randn(size, d), torch.randn(14, d)
    query = torch.randn(1, 1, d)
    attention, name = MultiHeadAttention(d, num_heads), nn.Linear(d, 2 * size)

    def logits(ids):  # (B, 14) -> (B, 2, size)
        keys = letters[ids] + places
        outputs = attention(query.expand(len(ids), 1, d), keys, keys)  # (B, 1, d)
        return name(outputs).reshape(-1, 2, size)

    optimiser = torch.optim.Adam([*attention.parameters(), *name.parameters()], lr=0.02)
    for _ in range(150):
        ids = torch.randint(1, size, (32, 14))
        loss = F.cross_entropy(logits(ids).flatten(0, 1), ids[:, [0, 7]].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return logits(spelled).argmax(dim=-1), attention.attention_weights


# %% [markdown]
# **Predict.** One head and two heads, with equally many parameters, three trainings each: of the 48
# pairs of letters, how many are right?

# %% tags=["demo", "nbval-ignore-output"]
right, maps = {1: [], 2: []}, {}
for num_heads in (1, 2):
    for seed in (3, 4, 5):
        named, weights = learn_two_letters(num_heads, seed)
        maps.setdefault(num_heads, weights[at_43])  # of the first training
        count = (named == spelled[:, [0, 7]]).all(dim=1).sum().item()
        right[num_heads].append(count)
        said = ["".join(numerals.source.words(named[i])) for i in (at_43, at_34)]
        print(f"heads: {num_heads}, right: {count:2} of 48; of 43 and 34:", *said)
names = ["the only head", "head 0 of two", "head 1 of two"]
weights = torch.cat([maps[1], maps[2]])  # (3, 1, 14)
query, keys = ["both letters"], "dreiundvierzig"
plotting.show(plotting.attention(weights, query, keys, heads=names))
assert max(right[1]) < 40 and np.mean(right[2]) > 45

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Two heads share the work: one looks at place 0, the other at place 7, and all pairs are right. (Choose
# a head by its small map.) A single head has two bad choices. It may put all its weight on one place and guess the other letter. Or it
# divides its weight, and then the two letters blend, as in section 1: some pairs are right, in others one
# letter is named twice.
#
# </details>

# %% [markdown]
# ### Taking a head away ★
#
# There the task was made for two heads. What do the heads of a real model do? The part of lesson 00's
# translator that reads the letters is a self-attention with four heads. It is torch's; yours can take
# its place, with its weights. Torch's mask says True for *ignore*, so it is inverted on the way.


# %% tags=["demo"]
class InTheReader(nn.Module):
    """Your module in the place of the reader's `nn.MultiheadAttention`."""

    def __init__(self, theirs):
        super().__init__()
        self.mha = MultiHeadAttention(64, 4, bias=True)
        layers = self.mha.W_q, self.mha.W_k, self.mha.W_v
        weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            layer.load_state_dict({"weight": weight, "bias": bias})
        self.mha.W_o.load_state_dict(theirs.out_proj.state_dict())

    def forward(self, queries, keys, values, attn_mask, need_weights):
        allowed = ~attn_mask.unflatten(0, (-1, 4))  # (B, h, n, m)
        return self.mha(queries, keys, values, mask=allowed), None


model.encoder.look_around = InTheReader(model.encoder.look_around).eval()
reader = model.encoder.look_around.mha
for word in batch:
    print(f"{word:15}", *translate(model, numerals, word)[0])
assert translate(model, numerals, "dreiundvierzig")[0] == ["forty", "three"]

# %% [markdown]
# It translates with your attention inside. This is what it sees in *dreizehn*.
#
# **Predict.** Choose head 0 and point at `r`. Which letter does it look at, and what for?

# %% tags=["demo"]
translate(model, numerals, "dreizehn")
plotting.show(plotting.attention(reader, "dreizehn", "dreizehn", title="how dreizehn is read"))
assert reader.attention_weights[0, 0, 1].argmax() == 4  # from r to z

# %% [markdown]
# <details><summary>What you should see</summary>
#
# At the `z`, with nearly all its weight: after *drei*, a `z` means *zehn*. That looks like the
# difference between *three* and *thirteen*.
#
# </details>
#
# A map shows where a head looks, not what becomes of it. So take the head away, and see what breaks: set
# its columns of `W_o` to 0. This is called *ablation*.
#
# **Predict.** Without head 0, what does the translator make of *drei*, *dreizehn* and
# *dreiundvierzig*?


# %% tags=["demo", "nbval-ignore-output"]
@torch.no_grad()
def all_words_right(numbers):
    """For each number, whether every word is the most likely one after the right words."""
    pairs = [numerals.pair(number) for number in numbers]
    source, wanted = (pad_sequence(part, batch_first=True) for part in zip(*pairs, strict=True))
    lens = (source != 0).sum(dim=1)
    written = model(source, lens, F.pad(wanted, (1, -1), value=model.start)).argmax(dim=-1)
    return ((written == wanted) | (wanted == model.pad)).all(dim=1)


whole, shares = reader.W_o.weight.detach().clone(), {}
for head in (None, 0, 1, 2, 3):
    with torch.no_grad():
        reader.W_o.weight.copy_(whole)
        if head is not None:
            reader.W_o.weight[:, 16 * head : 16 * head + 16] = 0.0
    small = all_words_right(range(1, 100))
    shares[head] = [small[12:19].sum().item(), small.sum().item()]
    shares[head].append(all_words_right(numerals.unseen).sum().item())
    said = [" ".join(translate(model, numerals, word)[0]) for word in (*batch, "vierunddreißig")]
    print("all four heads" if head is None else f"without head {head}", *said, sep="; ")
    print("    right: {} of 13 to 19, {} of 1 to 99, {} of 500 others".format(*shares[head]))
reader.W_o.load_state_dict({"weight": whole, "bias": reader.W_o.bias})
assert shares[0][0] <= 3 and shares[3][0] >= 5 and shares[None] == [7, 99, 500]
assert min(shares[1][1], shares[2][1]) > 90 and shares[1][2] < 250

# %% [markdown]
# <details><summary>What came of it</summary>
#
# *dreizehn* becomes *three*; *drei* and *dreiundvierzig* stay right. The map had it right: head 0
# looks ahead for *zehn*, and 13 to 18 depend on it. Other numbers suffer as well: a head rarely has
# one job only. Without head 3, 34 becomes *thirty three*: this head helps to tell digits apart. Heads
# 1 and 2 hardly matter up to 99. Are they idle? Of 500 other numerals, most of them up in the
# thousands, fewer than half are right without head 1. An ablation speaks for the inputs you tried. In
# large models heads also stand in for one another, and removing one often costs little (Michel and
# others 2019).
#
# </details>

# %% [markdown]
# ## 6. The same weights in torch ★
#
# *Is this what `nn.MultiheadAttention` computes?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, D)", "keys": "(B, m, D)", "values": "(B, m, D)", "W_o": "(B, n, D)"}
plotting.show(plotting.diagram_strip("heads", lit=("W_q", "W_k", "W_v", "W_o"), shapes=shapes))

# %% [markdown]
# The best test there is: give both the same weights and compare. Torch stores them differently.

# %% tags=["demo"]
torch.manual_seed(6)
reference = nn.MultiheadAttention(embed_dim=64, num_heads=4, batch_first=True).eval()
for name, parameter in reference.named_parameters():
    print(f"{name:16} {tuple(parameter.shape)}")
assert reference.in_proj_weight.shape == (3 * 64, 64)

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
# Now the batch again, through both, with its lengths and a causal mask. Torch's masks say True for
# *ignore*, so both are inverted; torch also wants the weights of each head asked for.
#
# **Predict.** How far apart are the outputs? And if you forget to invert the causal mask: an error?

# %% tags=["demo"]
load_into_torch(mha, reference)
real, see = length_mask(valid_lens, 14), causal_mask(14)
ours = mha(x, x, x, valid_lens, see)
apart = {}
for name, attn_mask in {"inverted": ~see, "as it is": see}.items():
    masks = {"key_padding_mask": ~real, "attn_mask": attn_mask}
    theirs, weights = reference(x, x, x, **masks, average_attn_weights=False)
    apart[name] = (ours - theirs)[:, :3].abs().max()  # the first three letters are real in all
    print(f"{name}: outputs differ by at most {apart[name]:.4f}")
    if name == "inverted":
        assert torch.allclose(mha.attention_weights, weights, atol=1e-5)
assert apart["inverted"] < 1e-4 and apart["as it is"] > 0.1

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not at all. Forgotten, there is no error and no warning, only other numbers.
#
# </details>
#
# One difference is left: an item of length 0 has nothing to attend to. **Predict.** What do the two
# modules return for it?

# %% tags=["demo"]
nobody = torch.tensor([0, 8, 14])
ours = mha(x, x, x, valid_lens=nobody)
theirs = reference(x, x, x, key_padding_mask=~length_mask(nobody, 14))[0]
print("item of length 0, ours :", ours[0, 0, :4])
print("item of length 0, torch:", theirs[0, 0, :4].detach())
assert not ours[0].any()
assert theirs[0].isnan().all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# Ours returns zeros, as agreed in lesson 02; torch's module returns nan.
#
# </details>

# %% [markdown]
# ## 7. What attention cannot see
#
# *Read a word backwards. What does self-attention notice?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 64), "head queries": (1, 4, 4, 16), "head keys": (1, 4, 4, 16)}
plotting.show(plotting.diagram_strip("heads", lit=("scores", "weighted sum"), shapes=shapes))

# %% [markdown]
# Scores compare contents, and a sum does not depend on the order of its terms. If $P$ permutes the
# positions,
#
# $$f(Px) = P f(x), \qquad x \in \mathbb{R}^{n \times D}.$$
#
# Such an $f$ is *permutation equivariant*: the outputs move along with the inputs, and nothing else
# changes. (*Invariant* would be $f(Px) = f(x)$: nothing moves.)
#
# **Predict.** Your module reads *drei* forwards and backwards, as *ierd*. Which letters notice?

# %% tags=["demo"]
forwards = model.characters(numerals.source_ids("drei"))[None].detach()  # (1, 4, 64)
backwards = forwards.flip(1)
change = (mha(forwards, forwards, forwards) - mha(backwards, backwards, backwards).flip(1))[0]
for letter, row in zip("drei", change, strict=True):
    print(f"{letter}: output differs by at most {row.abs().max():.4f}")
assert change.abs().max() < 1e-4

# %% [markdown]
# <details><summary>Answer</summary>
#
# None: each finds the same letters around it, in any order. For a model of language that is bad news: in
# *dog bites man* and *man bites dog*, the word *dog* has the same output.
#
# </details>

# %% [markdown]
# ### A test for it
#
# There are too many permutations to try: ten positions have 3 628 800. Which ones are enough?
#
# **By hand.** Is $f$ = "each position minus the next one, in a circle" equivariant? Rotate
# $(1, 2, 4)$ to $(4, 1, 2)$: outputs $(-1, -2, 3)$ become $(3, -1, -2)$, rotated as well. Swap the
# first two instead, $(2, 1, 4)$: the outputs $(1, -3, 2)$ are not $(-2, -1, 3)$. So a rotation
# proves nothing. Nor does a reversal: a function of distances passes it. Two permutations from
# which all others can be composed are a good choice: a swap of two neighbours and a rotation.

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
functions = {
    "self-attention": lambda x: mha(x, x, x),
    "with a causal mask": lambda x: mha(x, x, x, mask=causal_mask(x.shape[1])),
}
for name, fn in functions.items():
    found = is_permutation_equivariant(fn, forwards), is_causal(fn, forwards)
    print(f"{name:20} equivariant: {found[0]!s:6} causal: {found[1]}")
    assert found == ((True, False) if name == "self-attention" else (False, True))

# %% [markdown]
# ## 8. Adding positions
#
# *How does a model that sees contents only learn where they stand?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 4, 64), "keys": (1, 4, 64), "values": (1, 4, 64)}
plotting.show(plotting.diagram_strip("heads", lit=("queries", "keys", "values"), shapes=shapes))

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
# ### The clock hands ★
#
# **Predict.** The table as a map, and three of its columns as curves: which columns change fastest?

# %% tags=["demo"]
table = positional_encoding(50, 32)
plotting.show(plotting.encoding_map(table))
assert torch.allclose(table[0], torch.tensor([0.0, 1.0] * 16))
assert (table[:, 30:].amax(dim=0) - table[:, 30:].amin(dim=0) < 0.01).all()  # slow

# %% [markdown]
# <details><summary>What you should see</summary>
#
# The first ones. To the right, the stripes get slower, until the last columns hardly move.
#
# </details>

# %% [markdown]
# ### Three places back
#
# Let a head see positions only, with $W_q = W_k = I$. Up to the divisor, a score is then the dot
# product of two encodings. It depends on their *distance* alone, because
# $\sin a \sin b + \cos a \cos b = \cos(a - b)$:
#
# $$PE_p \cdot PE_{p+s} = \sum_i \cos\frac{s}{10000^{2i/D}}.$$
#
# **Predict.** Query 20 looks for the key three places before it. How does it score key 17, and how key 23?

# %% tags=["demo"]
encodings = positional_encoding(50, 32).double()
products = encodings @ encodings.T  # (50, 50)
curves = {f"query {p}": products[p] for p in (20, 35)}
plotting.show(plotting.lines(range(50), curves, x_label="key", y_label="score"))
for key in (17, 20, 23):
    print(f"query 20, key {key}: {products[20, key]:.3f}")
assert math.isclose(products[20, 17], products[20, 23], abs_tol=1e-4)
assert products.argmax(dim=1).tolist() == list(range(50))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# Both get 12.272. A cosine is even: three back and three ahead score the same, and the peak is always
# the query itself. Every query has the same curve, moved along.
#
# </details>
#
# So what makes these encodings good for looking *back*? A step of $s$ turns every hand by an angle
# $b = s/10000^{2i/D}$, wherever the hand stands. By the addition theorems,
#
# $$\sin(a + b) = \sin a \cos b + \cos a \sin b, \qquad \cos(a + b) = \cos a \cos b - \sin a \sin b,$$
#
# the new hand is a matrix times the old one, and $a$ is not in that matrix. So one matrix serves all
# positions:
#
# $$PE_{p+s} = R_s\, PE_p \quad\text{for every } p, \qquad R_s \in \mathbb{R}^{D \times D}.$$

# %% [markdown]
# ### Exercise: `shift_matrix`
#
# - **Takes** `offset`, a whole number $s$, below 0 to go back; and `embed_dim`, even.
# - **Returns** $R_s$, a floating tensor `(embed_dim, embed_dim)`: the same matrix for every position.
#   It multiplies from the left: the encoding of a position is a column vector of length `embed_dim`.
#
# **Worked number.** Times the encoding of position 0, `shift_matrix(1, 2)` gives that of position 1:
# $(0, 1)$ becomes $(0.8415, 0.5403)$. `shift_matrix(0, 4)` is the identity.

# %%
from course_lib.attention import shift_matrix

# %%
check("shift_matrix")

# %% [markdown]
# A matrix is something a head can hold. Here are two heads that see nothing but positions, for 14 letters:
# both have $W_k = I$, head 0 has $W_q = R_{-3}$, head 1 has $W_q = I$. (The factor 40 makes the
# softmax sharp.)
#
# **Predict.** In head 0, at which letter does the `g` of *dreiundvierzig* look? And the first `e`?

# %% tags=["demo"]
places = positional_encoding(14, 32)
two_heads = MultiHeadAttention(embed_dim=64, num_heads=2).eval().requires_grad_(False)
two_heads.W_q.weight.copy_(40 * torch.block_diag(shift_matrix(-3, 32), torch.eye(32)))
two_heads.W_k.weight.copy_(torch.eye(64))
twice = torch.cat([places, places], dim=1)[None]  # (1, 14, 64), a copy for each head
two_heads(twice, twice, twice)
names, word = ["W_q = R(-3)", "W_q = I"], "dreiundvierzig"
plotting.show(plotting.attention(two_heads, word, word, heads=names))
looks = two_heads.attention_weights[0].argmax(dim=-1)
print("head 0 looks at", looks[0].tolist())
print("head 1 looks at", looks[1].tolist())
assert looks[0, 3:].tolist() == list(range(11)) and looks[1].tolist() == list(range(14))

# %% [markdown]
# <details><summary>What you should see</summary>
#
# In head 0 every letter looks exactly three back, wherever it stands, the `g` at the `r`: its query is
# the encoding of the place three before, and the score peaks where query and key are the same. The
# first three have nothing there and look at the `d`, the nearest there is. In head 1 every letter
# looks at itself. So *three places before me* is something a head can ask.
#
# </details>
#
# And *drei*? **Predict.** With positions added, which letters notice that they are read backwards?


# %% tags=["demo"]
def with_positions(x):
    x = x + positional_encoding(x.shape[1], x.shape[2])
    return mha(x, x, x)


change = (with_positions(forwards) - with_positions(backwards).flip(1))[0]
for letter, row in zip("drei", change, strict=True):
    print(f"{letter}: output differs by up to {row.abs().max():.2f}")
assert (change.abs().amax(dim=1) > 0.01).all()
assert not is_permutation_equivariant(with_positions, forwards)

# %% [markdown]
# <details><summary>Answer</summary>
#
# All four. Backwards, every letter stands at another position, so its query, its key and its value
# all change.
#
# </details>

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
# Multi-head attention splits the features among heads, each with its own weights over the keys,
# so that a position can ask several questions at once for the price of one. One projection makes
# all heads; splitting and merging need a transpose, and a reshape alone gives the right shape with
# the wrong numbers. `W_o` mixes what the heads found. What a trained head does shows when it is
# taken away. Given the same weights, torch's module agrees up to rounding, once its masks are
# inverted. Where everyone sees everyone, attention is blind to order: a causal mask breaks the
# symmetry, an encoding of positions says where things are, and since a step turns it by the same
# matrix everywhere, a head can look three places back.

# %% [markdown]
# ## Further exercises ★
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
