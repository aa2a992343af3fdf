# %% [markdown]
# # 06 · Multi-head attention
#
# **The question.** In *dreiundvierzig* (43) there are two things to find, *drei* and *vierzig*, and
# they must not be mixed up, because *vierunddreißig* is 34. So far, attention gives each query one
# row of weights. The encoder of lesson 00's translator uses four rows at once, with no extra
# parameters. How does that work? And what does attention miss, however many rows it has?
#
# **After this you can**
#
# - split a projection into heads and merge them again, without mixing up numbers;
# - write multi-head attention with lengths, masks and dropout, and say what each layer is for;
# - remove a head from a trained model, and say what it did;
# - say what attention cannot see, and add positions;
# - run a published model on your module.
#
# **Time:** {time}. **You need:** `masked_softmax` (lesson 02), transpose versus reshape (lesson
# 03), and scaled dot products (lesson 05).

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
from course_lib.models.pretrained import minilm
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import translate

causal_mask, length_mask, masked_softmax = carry_on("causal_mask", "length_mask", "masked_softmax")

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(B, n, D)", "keys": "(B, m, D)", "outputs": "(B, n, D)"}
shapes |= {"attention weights": "(B, h, n, m)"}
plotting.show(plotting.diagram("heads", shapes=shapes), key="heads")

# %% [markdown]
# ## 1. Two letters, one row of weights
#
# *Why is one row of weights not enough?*

# %% [markdown]
# Say you want two letters of *dreiundvierzig*: the `d` that begins the ones (*drei*), at position
# 0, and the `v` that begins the tens (*vierzig*), at position 7. Each needs a row of weights of its
# own:
#
# $$w^{\text{ones}} = (1, 0, 0, 0, 0, 0, 0, 0, 0, \dots), \qquad w^{\text{tens}} = (0, 0, 0, 0, 0, 0, 0, 1, 0, \dots).$$
#
# So far, each query has only one row. Let that row serve both, with ½ at position 0 and ½ at
# position 7. The values are one-hot letters.

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
# The outputs for 43 and 34 do not differ. Both are half a `d` and half a `v`. The sum does not
# record which position contributed which letter, so no later layer can tell 43 from 34. Unequal
# weights such as ⅔ and ⅓ would tell the two apart, but even then no linear layer can name both
# letters, however long you train it.
#
# <details><summary>Why no linear layer can name both letters</summary>
#
# Let the first letter have the weight $a$ and the second the smaller weight $b$. Say both letters
# are $x$ or $y$, and $x$ gets the total weight $s$. Then the score of $x$ minus the score of $y$ is
# an affine function $g(s)$. To name the second letter of $yy$ and $xx$, the layer needs
# $g(0) < 0 < g(1)$, so $g$ increases. To name the second letter of $xy$ and $yx$, it needs
# $g(a) < 0 < g(b)$, so $g$ decreases. No affine $g$ can do both.
#
# </details>
#
# *Multi-head attention* gives each of the two letters its own weights, its own values, and its own
# part of the output. It consists of $h$ *heads* (`num_heads`). A head is a separate attention
# computation on $d = D/h$ of the $D$ projected features (`embed_dim`).

# %% [markdown]
# ## 2. Heads are blocks of features
#
# *How do `h` projections become one?*

# %% [markdown]
# Head $i$ has projections of its own, with $d = D/h$ rows each:
#
# $$q_i = x\,(W^Q_i)^\top, \qquad x \in \mathbb{R}^{n \times D},\quad W^Q_i \in \mathbb{R}^{d \times D},\quad q_i \in \mathbb{R}^{n \times d}.$$
#
# If you stack the $W^Q_i$ on top of each other, you get one matrix
# $W^Q \in \mathbb{R}^{D \times D}$. Its product with $x$ contains all the $q_i$ side by side, in
# *blocks* of $d$ features.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
x = torch.randn(5, 6, generator=generator)  # (n, D)
per_head = [torch.randn(2, 6, generator=generator) for _ in range(3)]  # three heads, d = 2

in_a_loop = [x @ weight.T for weight in per_head]  # three times (n, d)
at_once = x @ torch.cat(per_head).T  # (n, D)
for i, (q, block) in enumerate(zip(in_a_loop, at_once.chunk(3, dim=1), strict=True)):
    print(f"head {i}: largest difference {(q - block).abs().max():.1f}")
    assert torch.allclose(q, block, atol=1e-6)

# %% [markdown]
# Heads cost no parameters, because they divide the features among themselves. Only the attention
# weights grow, to one `(n, m)` map per head.
#
# For batched products, the heads need an axis of their own before the positions, because `@`
# multiplies the last two axes. You go from `(B, n, D)` to `(B, h, n, d)`.

# %% [markdown]
# **By hand.** Take one item with two positions and four features, and two heads:
#
# | | feature 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | position 0 | 1 | 2 | 3 | 4 |
# | position 1 | 5 | 6 | 7 | 8 |
#
# Head 0 is the left half, `[[1, 2], [5, 6]]`, and head 1 the right half, `[[3, 4], [7, 8]]`.
#
# `x.reshape(B, h, n, d)` has the correct shape, but it keeps the numbers in the order in which they
# lie in memory. So it gives head 0 `[[1, 2], [3, 4]]`, *all* features of position 0, without an
# error.

# %% [markdown]
# ### Exercise: `split_heads`
#
# - **Takes** `x`, shape `(B, n, D)`, and `num_heads`.
# - **Returns** shape `(B, h, n, D / h)`, differentiable in `x`. Head $i$ contains the $i$-th block
#   of features of every position.
# - **Raises** a `ValueError` if `num_heads` does not divide the number of features.
#
# **Worked example.** For `x = [[[1, 2, 3, 4], [5, 6, 7, 8]]]`, the table above,
# `split_heads(x, 2)[0, 1]` is `[[3, 4], [7, 8]]`.

# %%
from course_lib.attention import split_heads

# %%
check("split_heads")

# %% [markdown]
# The next figure follows each number of an `x` with three positions. The tens digit shows the
# position that the number comes from, and the color and the label h0 or h1 show its head. Try all
# three ways.


# %% tags=["demo"]
def as_blocks(way, cells):
    cells = cells[None].float()  # (1, n, D)
    if way == "x.reshape(h, n, d)":
        blocks = cells.reshape(1, 2, 3, 2)
    elif way == "interleaved":
        blocks = cells.reshape(1, 3, 2, 2).permute(0, 3, 1, 2)
    else:
        blocks = split_heads(cells, 2)
    return blocks[0]  # (h, n, d)


cells = 10 * torch.arange(3)[:, None] + torch.arange(4)  # (n, D)
owners = (torch.arange(4) // 2).expand(3, 4)  # which head a feature belongs to


def draw_split(way):
    shown = {f"yours: {way}": way, "target: split_heads": "split_heads(x, 2)"}
    blocks = {name: (as_blocks(w, cells), as_blocks(w, owners)) for name, w in shown.items()}
    return plotting.cell_origins({"x, shape (n, D)": (cells, owners)} | blocks, owner="head")


assert set(as_blocks("x.reshape(h, n, d)", owners)[0].flatten().tolist()) == {0, 1}
assert set(as_blocks("split_heads(x, 2)", owners)[0].flatten().tolist()) == {0}
ways = ["x.reshape(h, n, d)", "interleaved", "split_heads(x, 2)"]
plotting.interactive(draw_split, way=ways, key="split heads")

# %% [markdown]
# After a reshape (in the middle), both heads have two colors. In the target, each head has one.
#
# *Interleaved* heads (features 0 and 2, features 1 and 3) also work, but you could not exchange
# weights with a library that uses blocks, as torch does.

# %% [markdown]
# ## 3. And back again
#
# *How do the results of the heads become one vector per position again?*

# %% [markdown]
# The heads return `(B, h, n, d)`. The result for a position is its row from head 0, followed by its
# row from head 1, and so on. A plain reshape is wrong here too, because it puts numbers of
# *different positions* into one row. (If you split and merge with two plain reshapes, you get `x`
# back. Two functions can undo each other and both be wrong.)

# %% [markdown]
# ### Exercise: `merge_heads`
#
# - **Takes** `x`, shape `(B, h, n, d)`.
# - **Returns** shape `(B, n, h * d)`, differentiable in `x`: for each position, the features of all
#   heads in order.
#
# **Worked example.** `x = [[[[1, 2], [5, 6]], [[3, 4], [7, 8]]]]` gives
# `[[[1, 2, 3, 4], [5, 6, 7, 8]]]`. Merging undoes `split_heads`.

# %%
from course_lib.attention import merge_heads

# %%
check("merge_heads")

# %% [markdown]
# ## 4. Mixing: what `W_o` is for
#
# *The heads are concatenated. Why is there a fourth layer?*

# %% tags=["demo", "hide-input"]
shapes = {"head outputs": (1, 3, 5, 2), "merge heads": (1, 5, 6), "W_o": (1, 5, 6)}
plotting.show(plotting.diagram_strip("heads", lit="W_o", shapes=shapes), key="mixing")

# %% [markdown]
# Without a fourth layer, head $i$ could write only to its own $d$ features of the output. The
# output layer $W^O \in \mathbb{R}^{D \times D}$ lets every head write to all of them:
#
# $$\text{output} = [\,\text{head}_0, \dots, \text{head}_{h-1}\,]\,(W^O)^\top = \sum_{i=0}^{h-1} \text{head}_i\,(W^O_i)^\top, \qquad W^O_i \in \mathbb{R}^{D \times d},$$
#
# where $W^O_i$ contains columns $i d$ to $(i+1) d - 1$ of $W^O$. So a head *reads* through $W^Q_i$
# and $W^K_i$, and *writes* through $W^V_i$ and $W^O_i$.

# %% [markdown]
# ### One head's scores
#
# Within a head, everything works as in lesson 05, with $d$ features instead of $D$:
#
# $$\text{head}_i = \operatorname{softmax}\!\left(\frac{q_i k_i^\top}{\sqrt{d}}\right) v_i, \qquad q_i \in \mathbb{R}^{n \times d},\; k_i, v_i \in \mathbb{R}^{m \times d}.$$
#
# A score sums $d$ products, so its variance is $d$ times that of a product, and the divisor is
# $\sqrt{d}$. A model that divides by $\sqrt{D}$ still trains, which makes the mistake hard to
# notice.

# %% [markdown]
# ### Masks for heads
#
# Scores have the shape `(B, h, n, m)`. `masked_softmax` already applies `valid_lens` to every head.
# A mask has to be aligned with four axes:
#
# | given | means | aligned as |
# |---|---|---|
# | `(n, m)` | the same for all | `(1, 1, n, m)`, automatically |
# | `(B, n, m)` | one for each item | `(B, 1, n, m)`: you add the axis |
# | `(B, h, n, m)` | one for each head | unchanged |
#
# Broadcasting aligns axes from the right. With two items and two heads, a mask without the new axis
# raises no error. Head 0 gets the mask of the first item and head 1 that of the second, for both
# items.

# %% [markdown]
# ### Exercise: `MultiHeadAttention`
#
# - **`__init__`** creates `W_q`, `W_k`, `W_v` and `W_o`, each an `nn.Linear(embed_dim, embed_dim)`,
#   with a bias only if `bias` is True. Pass `device` and `dtype` on to each layer.
# - **`forward`** takes `queries` `(B, n, D)`, `keys` and `values` `(B, m, D)`, `valid_lens` `(B,)`
#   or `(B, n)`, and `mask` in one of the three shapes above. It returns `(B, n, D)`. If lengths and
#   a mask are both given, a key must be allowed by both. Dropout acts on the weights, in train mode
#   only.
# - **`self.attention_weights`** holds the weights of the module's last call, in train and in eval
#   mode, before dropout and detached, shape `(B, h, n, m)`.
# - Masked keys and values must not change the result, as long as they are finite. A query with no
#   allowed key has weights of 0, and all gradients stay finite.
#
# **Worked example.** Take two heads, `embed_dim=4`, and identities for `W_v` and `W_o`. Two queries
# of zeros give the keys $(1, 2, 3, 4)$ and $(5, 6, 7, 8)$ a weight of ½ each. If these are also the
# values, both outputs are $(3, 4, 5, 6)$.

# %%
from course_lib.attention import MultiHeadAttention

# %%
check("MultiHeadAttention")

# %% [markdown]
# Your module now reads the batch from earlier lessons, *drei*, *dreizehn* and *dreiundvierzig*,
# with the translator's vector for each letter. The cell also computes the outputs in a loop over
# four heads, written from the formula.

# %% tags=["demo"]
model = trained_translator(numerals).to(device)
batch = ["drei", "dreizehn", "dreiundvierzig"]
tokens = pad_sequence([numerals.source_ids(word) for word in batch], batch_first=True)
tokens = tokens.to(device)  # (3, 14)
valid_lens = (tokens != 0).sum(dim=1)  # 4, 8, 14
torch.manual_seed(5)
mha = MultiHeadAttention(embed_dim=64, num_heads=4).to(device).eval().requires_grad_(False)
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
# The number of heads does not change the number of parameters.

# %% [markdown]
# ## 5. What a head does
#
# *Can two heads find what one cannot?*

# %% [markdown]
# Now a model has to learn to find the two letters of section 1. One query attends to 14 letters,
# and a linear layer names the first and the eighth. The query, the letters and the positions are
# fixed random vectors. Your module and the layer are trained on random strings. Then they read 48
# real numerals of 14 letters.

# %% tags=["demo"]
fourteen = [10 * tens + ones for tens in range(2, 10) for ones in (2, 3, 4, 5, 8, 9)]
spelled = torch.stack([numerals.source_ids(number) for number in fourteen]).to(device)  # (48, 14)
at_43, at_34 = fourteen.index(43), fourteen.index(34)


def learn_two_letters(num_heads, seed, d=32):
    """Return the letters named, (48, 2), and the weights, (48, num_heads, 1, 14)."""
    torch.manual_seed(seed)
    size = len(numerals.source)
    letters, places = torch.randn(size, d).to(device), torch.randn(14, d).to(device)
    query = torch.randn(1, 1, d).to(device)
    attention = MultiHeadAttention(d, num_heads).to(device)
    name = nn.Linear(d, 2 * size).to(device)

    def logits(ids):  # (B, 14) -> (B, 2, size)
        keys = letters[ids] + places
        outputs = attention(query.expand(len(ids), 1, d), keys, keys)  # (B, 1, d)
        return name(outputs).reshape(-1, 2, size)

    optimizer = torch.optim.Adam([*attention.parameters(), *name.parameters()], lr=0.02)
    for _ in range(150):
        ids = torch.randint(1, size, (32, 14)).to(device)
        loss = F.cross_entropy(logits(ids).flatten(0, 1), ids[:, [0, 7]].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return logits(spelled).argmax(dim=-1), attention.attention_weights


# %% [markdown]
# A model with one head and a model with two have the same number of parameters. The next cell
# trains each three times.

# %% tags=["demo", "nbval-ignore-output"]
right, maps = {1: [], 2: []}, {}
for num_heads in (1, 2):
    for seed in (3, 4, 5):
        named, weights = learn_two_letters(num_heads, seed)
        maps.setdefault(num_heads, weights[at_43])  # keep the first run's map
        count = (named == spelled[:, [0, 7]]).all(dim=1).sum().item()
        right[num_heads].append(count)
        said = ["".join(numerals.source.words(named[i])) for i in (at_43, at_34)]
        print(f"heads: {num_heads}, correct: {count:2} of 48; for 43 and 34:", *said)
names = ["the only head", "head 0 of two", "head 1 of two"]
weights = torch.cat([maps[1], maps[2]])  # (3, 1, 14)
query, keys = ["both letters"], "dreiundvierzig"
plotting.show(plotting.attention(weights, query, keys, heads=names), key="two letters")
assert max(right[1]) < 30 and np.mean(right[2]) > 45

# %% [markdown]
# With one head, fewer than 30 of the 48 pairs are correct. Over eleven repetitions, the best of
# three runs got 2 to 25. A single head may put all its weight on one position and guess the other
# letter. Or it divides its weight, and then the two letters blend, as in section 1. Two heads share
# the work. One attends to position 0 and the other to position 7, and in most runs nearly all pairs
# are correct. (In the figure above, select a head by its name.)

# %% [markdown]
# ### Removing a head
#
# What do the heads of a real model do? The encoder of lesson 00's translator reads the letters with
# an `nn.MultiheadAttention` of four heads. Your module can replace it and use its weights. In
# torch's mask, True means *ignore*, so the cell inverts it.


# %% tags=["demo"]
class InTheEncoder(nn.Module):
    """Your module as a replacement for the encoder's `nn.MultiheadAttention`."""

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


model.encoder.attention = InTheEncoder(model.encoder.attention).to(device).eval()
encoder_mha = model.encoder.attention.mha
for word in batch:
    print(f"{word:15}", *translate(model, numerals, word)[0])
assert translate(model, numerals, "dreiundvierzig")[0] == ["forty", "three"]

# %% [markdown]
# The translator now runs on your module. Here are its maps for *dreizehn*.
#
# Choose head 0 and point at `r`.

# %% tags=["demo"]
translate(model, numerals, "dreizehn")
weights = encoder_mha.attention_weights
plotting.show(plotting.attention(weights, "dreizehn", "dreizehn"), key="four heads")
assert encoder_mha.attention_weights[0, 0, 1].argmax() == 4  # from r to z

# %% [markdown]
# The `r` attends to the `z` with nearly all its weight. After *drei*, a `z` means *zehn*, so this
# head may tell *thirteen* from *three*.
#
# A map shows where a head looks, but not how the model uses what the head finds. So remove the
# head, by setting its columns of `W_o` to 0, and see what breaks. This is called *ablation*.
#
# **Predict.** Which of the four heads does the model need most for the numbers from 1 to 99?


# %% tags=["demo", "nbval-ignore-output"]
@torch.no_grad()
def all_words_right(numbers):
    """Return whether all words of each number are correct, given the correct words before them."""
    pairs = [numerals.pair(number) for number in numbers]
    padded = [pad_sequence(part, batch_first=True) for part in zip(*pairs, strict=True)]
    source, wanted = padded[0].to(device), padded[1].to(device)
    lens = (source != 0).sum(dim=1)
    written = model(source, lens, F.pad(wanted, (1, -1), value=model.start)).argmax(dim=-1)
    return ((written == wanted) | (wanted == model.pad)).all(dim=1)


whole, shares = encoder_mha.W_o.weight.detach().clone(), {}
for head in (None, 0, 1, 2, 3):
    with torch.no_grad():
        encoder_mha.W_o.weight.copy_(whole)
        if head is not None:
            encoder_mha.W_o.weight[:, 16 * head : 16 * head + 16] = 0.0
    small = all_words_right(range(1, 100))
    shares[head] = [small[12:19].sum().item(), small.sum().item()]
    shares[head].append(all_words_right(numerals.unseen).sum().item())
    said = [" ".join(translate(model, numerals, word)[0]) for word in (*batch, "vierunddreißig")]
    print("all four heads" if head is None else f"without head {head}", *said, sep="; ")
    print("    correct: {} of 13 to 19, {} of 1 to 99, {} of 500 others".format(*shares[head]))
encoder_mha.W_o.load_state_dict({"weight": whole, "bias": encoder_mha.W_o.bias})
assert shares[0][0] <= 3 and shares[3][0] >= 5 and shares[None] == [7, 99, 500]
assert min(shares[1][1], shares[2][1]) > 90 and max(shares[1][2], shares[3][2]) < 250
assert 66 < shares[3][1] < 74 < shares[0][1] < 81 and said[-1] == "thirty three"

# %% [markdown]
# <details><summary>Answer</summary>
#
# The model needs head 3 most. Without this head, *vierunddreißig* becomes *thirty three*, and only
# about 70 of the 99 numbers are correct. Without head 0, about 77 are correct, and *dreizehn*
# becomes *three*. The map was a good guide, because most numbers from 13 to 19 depend on head 0.
# Heads 1 and 2 hardly matter up to 99. Of 500 other numerals, most of them in the thousands, fewer
# than half are correct without head 1, and fewer than half without head 3. An ablation tells you
# only about the inputs you tried. In large models, removing a head often costs little (Michel and
# others 2019).
#
# </details>

# %% [markdown]
# ## 6. The same weights in torch ★
#
# *Does your module compute what `nn.MultiheadAttention` computes?*

# %% [markdown]
# Give both modules the same weights and compare. Torch stores them differently.

# %% tags=["demo"]
torch.manual_seed(6)
reference = nn.MultiheadAttention(embed_dim=64, num_heads=4, batch_first=True).to(device).eval()
for name, parameter in reference.named_parameters():
    print(f"{name:16} {tuple(parameter.shape)}")
assert reference.in_proj_weight.shape == (3 * 64, 64)

# %% [markdown]
# `in_proj_weight` is $W^Q$ above $W^K$ above $W^V$, and `in_proj_bias` contains their biases in the
# same order. Both modules compute $x W^\top$, so nothing is transposed. Torch's biases start at 0
# but change in training, so if our module has no biases, set torch's biases to 0.
#
# Autograd does not let you overwrite a parameter in place, so do it under `torch.no_grad()`.

# %% [markdown]
# ### Exercise: `load_into_torch`
#
# - **Takes** `mha`, a module with `nn.Linear` layers `W_q`, `W_k`, `W_v`, `W_o`, and `reference`,
#   an `nn.MultiheadAttention` of the same size. Biases may be in both modules, in neither, or only
#   in `reference`.
# - **Returns** nothing. Afterwards, `reference` computes what `mha` does. The weights are *copied*,
#   so the two share no memory, and `mha` is unchanged. `reference` can still be trained, and both
#   keep their mode, train or eval.
#
# **Worked example.** Take `embed_dim=2`, one head, zeros for `W_q` and `W_k`, 2 times the identity
# for `W_v`, and 3 times the identity for `W_o`. In `reference`, a query of zeros weights both
# values by ½, so the values $(1, 0)$ and $(0, 1)$ give $(3, 3)$.

# %%
from course_lib.attention import load_into_torch

# %%
check("load_into_torch")

# %% [markdown]
# Now run the batch through both modules, with its lengths and a causal mask. The cell inverts both
# masks for torch, and then calls torch again without inverting the causal one.
#
# **Predict.** In the second call, in how many of the $3 \cdot 14$ positions is the output nan: 0, 3
# or 19?

# %% tags=["demo"]
load_into_torch(mha, reference)
real, see = length_mask(valid_lens, 14), causal_mask(14).to(device)
ours = mha(x, x, x, valid_lens, see)
apart = {}
for name, attn_mask in {"inverted": ~see, "unchanged": see}.items():
    masks = {"key_padding_mask": ~real, "attn_mask": attn_mask}
    theirs, weights = reference(x, x, x, **masks, average_attn_weights=False)
    apart[name] = (ours - theirs)[:, :3].abs().max()  # the first three letters are never pads
    num_nan = int(theirs.isnan().any(dim=-1).sum())
    print(f"{name}: nan in {num_nan} of 42 positions", end=", ")
    print(f"the first three letters differ by at most {apart[name]:.4f}")
    assert num_nan == (0 if name == "inverted" else 19)
    if name == "inverted":
        assert torch.allclose(mha.attention_weights, weights, atol=1e-5)
assert apart["inverted"] < 1e-4 and apart["unchanged"] > 0.1
assert theirs[:, -1].isnan().all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# The output is nan in 19 positions. Torch reads the mask the other way round, so the last letter of
# each word, and all pads after it, have no key. PyTorch raises no error and shows no warning, but
# you notice the nan as soon as you train. The outputs of the first letters change, too.
#
# </details>

# %% [markdown]
# ## 7. What attention cannot see
#
# *What changes in self-attention if it reads a word backwards?*

# %% [markdown]
# Your module reads *drei* forwards, and backwards as *ierd*.

# %% tags=["demo"]
forwards = model.characters(numerals.source_ids("drei").to(device))[None].detach()  # (1, 4, 64)
backwards = forwards.flip(1)
change = (mha(forwards, forwards, forwards) - mha(backwards, backwards, backwards).flip(1))[0]
for letter, row in zip("drei", change, strict=True):
    print(f"{letter}: output differs by at most {row.abs().max():.4f}")
assert change.abs().max() < 1e-4

# %% [markdown]
# No letter gets a different output, because each attends to the same letters in a different order.
# In *dog bites man* and *man bites dog*, *dog* has the same output.
#
# Scores compare contents, and a sum does not depend on the order of its terms. So if $P$ permutes
# the positions,
#
# $$f(Px) = P f(x), \qquad x \in \mathbb{R}^{n \times D}.$$
#
# Such an $f$ is *permutation equivariant*.

# %% [markdown]
# Now self-attention with a causal mask, but without positions, reads *drei* in both directions.

# %% tags=["demo"]
functions = {
    "self-attention": lambda x: mha(x, x, x),
    "with a causal mask": lambda x: mha(x, x, x, mask=causal_mask(x.shape[1]).to(device)),
}
for name, fn in functions.items():
    change = (fn(backwards).flip(1) - fn(forwards))[0].abs().amax(dim=-1)  # (4,)
    changed = int((change > 0.01).sum())
    print(f"{name:20} letters that change: {changed}")
    assert changed == (4 if name == "with a causal mask" else 0)

# %% [markdown]
# All four outputs change, so with this mask, self-attention is *not* equivariant. Forwards, the `d`
# sees one letter, and backwards, it sees four. Some language models learn order from the mask alone
# (Haviv and others 2022).

# %% [markdown]
# ## 8. Adding positions
#
# *Attention sees only content. How can it learn where things are?*

# %% [markdown]
# Make position part of the content: to each input, add a vector that depends on its position $p$.
# The *sinusoidal encoding* uses pairs of columns. Each pair is like a clock hand with its own
# speed:
#
# $$PE_{p,\,2i} = \sin\frac{p}{10000^{2i/D}}, \qquad PE_{p,\,2i+1} = \cos\frac{p}{10000^{2i/D}}, \qquad PE \in \mathbb{R}^{n \times D}.$$
#
# **By hand.** For $D = 4$ the two speeds are $1$ and $1/100$. Position 0 is $(0, 1, 0, 1)$, and
# position 1 is $(\sin 1, \cos 1, \sin 0.01, \cos 0.01) \approx (0.8415, 0.5403, 0.0100, 1.0000)$.
#
# If $D$ is odd, the last sine has no cosine, and the exponent $2i/D$ is unchanged.

# %% [markdown]
# ### Exercise: `positional_encoding`
#
# - **Takes** `num_positions` and `embed_dim`.
# - **Returns** a floating-point tensor `(num_positions, embed_dim)`, float32 or float64. Positions
#   start at 0.
#
# **Worked example.** `positional_encoding(2, 3)[1]` has the speeds $1$ and $10000^{-2/3} = 0.0022$
# and is $(0.8415, 0.5403, 0.0022)$.

# %%
from course_lib.attention import positional_encoding

# %%
check("positional_encoding")

# %% [markdown]
# ### Three positions back ★
#
# Suppose the inputs of a head are the encodings alone, and $W_q = W_k = I$. Up to the divisor, a
# score is then the dot product of two encodings. Because
# $\sin a \sin b + \cos a \cos b = \cos(a - b)$, the score is
#
# $$PE_p \cdot PE_{p+s} = \sum_i \cos\frac{s}{10000^{2i/D}}.$$
#
# Query 20 should find the key three positions before it, key 17.

# %% tags=["demo"]
encodings = positional_encoding(50, 32).double()
products = encodings @ encodings.T  # (50, 50)
curves = {f"query {p}": products[p] for p in (20, 35)}
marks = dict.fromkeys(curves, max)
figure = plotting.lines(range(50), curves, x_label="key", y_label="score", mark=marks)
plotting.show(figure, key="positions")
for key in (17, 20, 23):
    print(f"query 20, key {key}: {products[20, key]:.3f}")
assert math.isclose(products[20, 17], products[20, 23], abs_tol=1e-4)
assert products.argmax(dim=1).tolist() == list(range(50))

# %% [markdown]
# Keys 17 and 23 both score 12.272. The cosine is even and largest at 0, so keys three positions
# back and three ahead score the same, and the peak is always at the query's own position.
#
# How can a head look *back* with these encodings? A step of $s$ positions turns every hand by an
# angle $b = s/10000^{2i/D}$, whatever its angle $a$ is. By the addition formulas,
#
# $$\sin(a + b) = \sin a \cos b + \cos a \sin b, \qquad \cos(a + b) = \cos a \cos b - \sin a \sin b,$$
#
# so the new hand is a matrix times the old one. The matrix does not contain $a$, so one matrix
# works for all positions:
#
# $$PE_{p+s} = R_s\, PE_p \quad\text{for every } p, \qquad R_s \in \mathbb{R}^{D \times D}.$$

# %% [markdown]
# ### Exercise: `shift_matrix`
#
# - **Takes** `offset`, an integer $s$ (negative to go back), and an even `embed_dim`.
# - **Returns** $R_s$, a floating-point tensor `(embed_dim, embed_dim)`. Multiplied by the encoding
#   of position $p$, a column vector, it gives that of $p + s$.
#
# **Worked example.** `shift_matrix(1, 2)` times the encoding of position 0 gives that of position
# 1, so $(0, 1)$ becomes $(0.8415, 0.5403)$. `shift_matrix(0, 4)` is the identity.

# %%
from course_lib.attention import shift_matrix

# %%
check("shift_matrix")

# %% [markdown]
# A head can learn such a matrix. Here are two heads whose inputs are only the encodings of 14
# positions. Both have $W_k = I$. Head 0 has $W_q = R_{-3}$, and head 1 has $W_q = I$. (The factor
# 40 makes the softmax sharp.)
#
# **Predict.** The second and the third letter, `r` and `e`, have no letter three positions back.
# Where do they look in head 0: at themselves, at the `d`, or at the last letter?

# %% tags=["demo"]
places = positional_encoding(14, 32)
two_heads = MultiHeadAttention(embed_dim=64, num_heads=2).eval().requires_grad_(False)
two_heads.W_q.weight.copy_(40 * torch.block_diag(shift_matrix(-3, 32), torch.eye(32)))
two_heads.W_k.weight.copy_(torch.eye(64))
twice = torch.cat([places, places], dim=1)[None]  # (1, 14, 64), a copy for each head
two_heads(twice, twice, twice)
names, word = ["W_q = R(-3)", "W_q = I"], "dreiundvierzig"
weights = two_heads.attention_weights
plotting.show(plotting.attention(weights, word, word, heads=names), key="three back")
looks = two_heads.attention_weights[0].argmax(dim=-1)
print("head 0 looks at", looks[0].tolist())
print("head 1 looks at", looks[1].tolist())
assert looks[0, 3:].tolist() == list(range(11)) and looks[1].tolist() == list(range(14))
assert looks[0, :3].tolist() == [0, 0, 0]

# %% [markdown]
# <details><summary>Answer</summary>
#
# Both look at the `d`, the letter nearest to the position that they seek, which is before the word.
#
# </details>
#
# In head 0, from the fourth letter on, every letter attends to the letter exactly three positions
# back. Each query is the encoding of the position three back, and the score peaks where query and
# key are equal. In head 1, every letter attends to itself.

# %% [markdown]
# ### All together
#
# This check combines *your* `split_heads`, `merge_heads` and `MultiHeadAttention`, and tests the
# module again.

# %%
check("06_multi_head")

# %% [markdown]
# ## 9. A published model on your attention
#
# *Does a model that others have trained run on your module?*
#
# The model `all-MiniLM-L6-v2` turns a sentence into a vector of length 1. The dot product of two
# such vectors says how similar the meanings of the sentences are. The model has 22.6 million
# parameters and 6 blocks of 12 heads, and its attention is your
# `MultiHeadAttention(384, 12, bias=True)`. For the three sentences below, its
# [authors](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2) report the similarities
# 0.6660, 0.1046 and 0.1411.
#
# The next cell downloads the model (84 MB, once), puts your class into it, and loads the published
# weights.

# %% tags=["demo"]
encoder = minilm(MultiHeadAttention).to(device)
sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
pairs = [(0, 1), (0, 2), (1, 2)]


def similarities(vectors: Tensor) -> list[float]:
    return [round((vectors[i] @ vectors[j]).item(), 4) for i, j in pairs]


print("with your attention:", similarities(encoder.embed(sentences)))
assert similarities(encoder.embed(sentences)) == [0.6660, 0.1046, 0.1411]

# %% [markdown]
# Now break your module in three ways, one at a time: merge the heads without the transpose, divide
# the scores by $\sqrt{384}$ instead of $\sqrt{32}$, and leave out the lengths. In the output, the
# last column compares the first sentence alone with the same sentence in a batch beside a longer
# one.
#
# **Predict.** Which of the three mistakes makes even unrelated sentences similar?


# %% tags=["demo"]
def broken(merge: Callable = merge_heads, divisor: float = math.sqrt(32)) -> type[nn.Module]:
    class Broken(MultiHeadAttention):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            q = split_heads(self.W_q(queries), 12)
            k, v = split_heads(self.W_k(keys), 12), split_heads(self.W_v(values), 12)
            weights = masked_softmax(q @ k.mT / divisor, valid_lens)
            return self.W_o(merge(weights @ v))

    return Broken


def reshaped(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


longer = (
    "The forecast says that heavy rain is to be expected in the north for the rest of the week."
)
variants = {
    "your attention": (encoder, True),
    "merged without transpose": (minilm(broken(merge=reshaped)).to(device), True),
    "root of 384": (minilm(broken(divisor=math.sqrt(384))).to(device), True),
    "no lengths": (encoder, False),
}
found = {}
for name, (one, with_lengths) in variants.items():
    alone = one.embed(sentences[:1])[0]
    beside = one.embed([sentences[0], longer], with_lengths=with_lengths)[0]
    found[name] = [
        *similarities(one.embed(sentences, with_lengths=with_lengths)),
        (alone @ beside).item(),
    ]
    print(f"{name:26}" + "".join(f"{value:9.4f}" for value in found[name]))
assert min(found["merged without transpose"][:3]) > 0.4 > found["no lengths"][1]
assert all(max(row[1:3]) < 0.3 < row[0] for name, row in found.items() if "transpose" not in name)
assert all(
    abs(padded - right) < abs(wrong_root - right)
    for right, wrong_root, padded in zip(
        *(found[name][:3] for name in ("your attention", "root of 384", "no lengths")), strict=True
    )
)
assert max(found[name][3] for name in ("no lengths", "merged without transpose")) < 0.9
assert min(found[name][3] for name in ("your attention", "root of 384")) > 0.999

# %% [markdown]
# <details><summary>Answer</summary>
#
# The missing transpose makes unrelated sentences similar. Sunshine and the stadium now have a
# similarity of 0.44. The wrong root changes the three numbers. Without lengths, they change less,
# because there is little padding. But beside a longer sentence, the first one gets a different
# vector. None of the three mistakes raises an error.
#
# </details>
#
# Now use the model to search. Add a note or a question of your own.

# %% tags=["demo"]
notes = [
    "A wide kernel averages over many measurements, and a narrow one copies the nearest.",
    "Padding has weight 0, because its scores are set to minus infinity.",
    "If every key of a query is forbidden, the weights are 0 instead of nan.",
    "A batched matrix product replaces three nested loops.",
    "Additive attention can compare vectors of different sizes.",
    "Without the square root of d, the softmax saturates and its gradient vanishes.",
    "The position of a word is added to its vector as sines and cosines.",
    "Computing attention in blocks needs little memory, even for long texts.",
]
stored = encoder.embed(notes)
questions = ["How does it know the word order?", "Why is everything nan?", "out of memory"]
for question in questions:
    similarity, best = (encoder.embed([question]) @ stored.T)[0].max(dim=0)
    print(f"{question}  {similarity:.2f}  {notes[best]}")
assert [int(best) for best in (encoder.embed(questions) @ stored.T).argmax(dim=1)] == [6, 2, 7]

# %% [markdown]
# "Three positions back" ★ in section 8 builds such a head. One of the twelve heads in this model's
# first block has learned something similar. The figure opens with it.

# %% tags=["demo"]
sentence = "The dog that bit the man was old."
pieces = encoder.pieces(sentence)
encoder.embed([sentence])
weights = encoder.blocks[0].attention.attention_weights.cpu()
one_back = weights[0].diagonal(-1, dim1=1, dim2=2)  # (12, 10), the weights of the piece before
best = one_back.mean(dim=1).argmax().item()
plotting.show(plotting.attention(weights, pieces, pieces, head=best), key="twelve heads")
assert (
    best == 2 and one_back[2].min() > 0.9 > 0.5 > one_back[[0, 1, *range(3, 12)]].mean(dim=1).max()
)

# %% [markdown]
# Head 2 looks one position back, with nearly all of its weight.

# %% [markdown]
# ### Written question: three decisions
#
# A colleague plans a language model that reads from left to right, with $D = 64$. Comment on each
# decision in two or three sentences, with a reason that can be checked.
#
# 1. "I use 64 heads instead of 8. More heads can find more, and they cost no parameters."
# 2. "I leave out `W_o`. The heads are concatenated anyway, so all information is there."
# 3. "I don't add positions. The causal mask already tells the model the order."

# %% [markdown] written="heads_and_positions"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each decision. Half points are possible.
#
# 1. **Not free.** It is true that the parameters stay at $4 D^2$. But with $d = 1$, each score is
#    the product of two numbers and can compare only one feature, and the weights take 64
#    $n \times m$ matrices instead of 8. Half a point for only one of the two (what a head can
#    express, or the memory of the weights). Also accept that queries and keys of size $d$ give
#    scores of rank at most $d$.
# 2. **The problem is mixing, not information.** Without `W_o`, head $i$ can write only to its block
#    of $d$ features, so the head that found a result determines where it goes, and no output
#    feature can depend on two heads. Also accept that a later layer can do the mixing (the
#    feed-forward layer of a block), but that the residual connection around attention adds block by
#    block before that.
# 3. **Half right.** A causal mask breaks equivariance (measured in section 7), so some order can be
#    learned from it. But it does not distinguish the order of the keys that a query sees: in one
#    layer, swapping two earlier positions does not change the output of the last position. Half a
#    point for only "the mask is enough" with the test as a reason, or only "positions are always
#    needed".
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# Multi-head attention divides the features among heads, each with its own weights over the keys,
# without any extra parameters. Splitting and merging need a transpose. `W_o` mixes what the heads
# found, and removing a head shows what the model used it for. If every query sees every key,
# attention is blind to order. A causal mask breaks this symmetry, and with a positional encoding a
# head can look three positions back. A published model runs on your module and reproduces the
# published numbers.

# %% [markdown]
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017, sections 3.2.2 and 3.5.
#   <https://arxiv.org/abs/1706.03762>
# - PyTorch, `nn.MultiheadAttention`: parameters, and masks with True = ignore.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html>
# - N. Reimers and I. Gurevych, *Sentence-BERT*, 2019. <https://arxiv.org/abs/1908.10084>
# - P. Michel, O. Levy and G. Neubig, *Are Sixteen Heads Really Better than One?*, 2019.
#   <https://arxiv.org/abs/1905.10650>
# - A. Haviv and others, *Transformer Language Models without Positional Encodings Still Learn
#   Positional Information*, 2022. <https://arxiv.org/abs/2203.16634>
