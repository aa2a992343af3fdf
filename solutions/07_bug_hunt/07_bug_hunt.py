# %% [markdown]
# # 07 · Bug hunt: would you notice a broken module?
#
# **The question.** You wrote an attention module. The loss falls, and the accuracy is 100%. Is the
# module correct? This lesson contains ten black boxes, each an attention module with one fault. You
# train and test them, and find out what is wrong before you see a line of their code.
#
# **After this you can**
#
# - say why a falling loss proves nothing about the code, and which kind of loss does prove a bug;
# - turn properties that must always hold into tests that tell a correct module from a broken one;
# - diagnose a module from the invariant it breaks, and fix it;
# - keep your tests in a file that pytest runs.
#
# **Time:** {time}. **You need:** lessons 02 and 06.

# %%
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.language_model import text_windows
from course_lib.models.stories import CHARACTERS, stories
from course_lib.models.training import train
from course_lib.notebook.hunt import (
    BUGS,
    INVARIANTS,
    BrokenCausalSelfAttention,
    Sound,
    diagnose,
    source,
)

causal_mask, masked_softmax = carry_on("causal_mask", "masked_softmax")
split_heads, merge_heads, MultiHeadAttention = carry_on(
    "split_heads", "merge_heads", "MultiHeadAttention"
)
positional_encoding = carry_on("positional_encoding")

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## 1. A block that learns
#
# *What does training tell you about a correct attention module?*

# %% tags=["demo", "hide-input"]
shapes = dict.fromkeys(("inputs", "multi-head attention", "second add"), (64, 8, 32))
parts = "first add", "feed-forward", "second add"
plotting.show(plotting.diagram("block", lit=parts, shapes=shapes), key="block")

# %% [markdown]
# A *block* is attention followed by a small network at each position. Both add their results to
# their inputs:
#
# $$x \leftarrow x + \text{attention}(x), \qquad x \leftarrow x + \text{MLP}(x), \qquad x \in \mathbb{R}^{B \times n \times D}.$$
#
# (The *norm* in the diagram comes in lesson 09.) Attention cannot see positions, so the block adds
# a learned vector at each position. `Block` accepts any module with the interface of
# `MultiHeadAttention`, even a broken one.


# %% tags=["demo"]
NUM_SYMBOLS = 8


class Block(nn.Module):
    def __init__(self, attention, num_positions=8, embed_dim=32):
        super().__init__()
        self.embed = nn.Linear(NUM_SYMBOLS, embed_dim)
        self.positions = nn.Parameter(0.5 * torch.randn(num_positions, embed_dim))
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 64), nn.ReLU(), nn.Linear(64, embed_dim))
        self.head = nn.Linear(embed_dim, NUM_SYMBOLS)

    def forward(self, x, mask=None):
        x = self.embed(x) + self.positions  # (batch, num_positions, embed_dim)
        x = x + self.attention(x, x, x, mask=mask)
        x = x + self.mlp(x)
        return self.head(x)  # (batch, num_positions, NUM_SYMBOLS)


# %% [markdown]
# **Reversal.** The input is a sequence of 8 symbols, and the target is the same sequence backwards.
# Training draws fresh sequences at every step and uses cross-entropy and Adam.


# %% tags=["demo"]
def reversal(batch, generator, n=8):
    symbols = torch.randint(NUM_SYMBOLS, (batch, n), generator=generator)
    return (F.one_hot(symbols, NUM_SYMBOLS).float(),), symbols.flip(1)


def draw_batch(task, size, generator):
    inputs, target = task(size, generator)
    return [x.to(device) for x in inputs], target.to(device)


def learn(model, task, num_steps, label="training"):
    generator = torch.Generator().manual_seed(1)

    def next_loss():
        inputs, target = draw_batch(task, 64, generator)
        return F.cross_entropy(model(*inputs).flatten(0, 1), target.flatten())

    return train(model.to(device), next_loss, num_steps, max_lr=0.02, label=label)


def accuracy(model, task):
    inputs, target = draw_batch(task, 500, torch.Generator().manual_seed(2))
    with torch.no_grad():
        return (model(*inputs).argmax(-1) == target).float().mean().item()


# %% [markdown]
# Guessing among 8 symbols gives a loss of $\ln 8 = 2.08$.

# %% tags=["demo", "nbval-ignore-output"]
torch.manual_seed(0)
reverser = Block(MultiHeadAttention(32, 2))
losses = learn(reverser, reversal, 100, "reversal")
print(f"loss of the first step {losses[0]:.2f}, of the last ten {losses[-10:].mean():.2f}")
print(f"{accuracy(reverser, reversal):.1%} of unseen symbols correct")
assert losses[0] > 1.5 > 0.05 > losses[-10:].mean()

inputs, _ = draw_batch(reversal, 1, torch.Generator().manual_seed(3))
reverser(*inputs)
weights = reverser.attention.attention_weights[0].cpu()  # (num_heads, n, m)
panels = {"head 0": weights[0], "head 1": weights[1], "average": weights.mean(0)}
plotting.show(plotting.heatmap_grid(panels), key="reversal")
assert weights.mean(0).argmax(-1).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]

# %% [markdown]
# The loss ends near 0. Query $i$ attends to key $7 - i$, whatever the symbols are. In the average
# over the heads, each row's largest weight is on the antidiagonal.

# %% [markdown]
# ## 2. Ten black boxes
#
# *What does training tell you about broken modules?*

# %% [markdown]
# The boxes are `BUGS["avocet"]` to `BUGS["jacana"]`. Each is built and called like
# `MultiHeadAttention` and has one fault, of a kind that lessons 02 to 06 warn about. Do not look at
# the source yet. `Sound` is a correct module for comparison.
#
# **Predict.** Train each box on reversal, with a dropout of 0.1. How many of the ten get more than
# 95% of the symbols correct?


# %% tags=["demo", "nbval-ignore-output"]
boxes = {"sound": Sound, **BUGS}


def train_boxes(make_model, task):
    accuracies = {}
    for name, box in boxes.items():
        torch.manual_seed(0)
        model = make_model(box(32, 2, dropout=0.1))
        learn(model, task, 100, name)
        accuracies[name] = accuracy(model, task)
        print(f"{name:8} {accuracies[name]:.0%}")
    return accuracies


on_reversal = train_boxes(Block, reversal)
assert min(on_reversal.values()) > 0.95

# %% [markdown]
# <details><summary>Answer</summary>
#
# All ten boxes learn reversal. It has no padding and no mask, and its queries, keys and values are
# the same tensor, so some faults have no effect. The remaining faults leave attention intact enough
# for the other layers to learn the task.
#
# </details>

# %% [markdown]
# ### Data that triggers the faults
#
# Now each item is a padded *directory* of two to six names, each with an entry. A query is a name
# to look up, the keys are the names in the directory, and the values are their entries. Only
# attention connects the query with an entry.
#
# **Predict.** Exactly how many of the ten boxes score below 97.5%?


# %% tags=["demo", "nbval-ignore-output"]
class Directory(nn.Module):
    def __init__(self, attention, embed_dim=32):
        super().__init__()
        self.embed_asked = nn.Linear(NUM_SYMBOLS, embed_dim)
        self.embed_names = nn.Linear(NUM_SYMBOLS, embed_dim)
        self.embed_entries = nn.Linear(NUM_SYMBOLS, embed_dim)
        self.attention = attention
        self.head = nn.Linear(embed_dim, NUM_SYMBOLS)

    def forward(self, asked, names, entries, valid_lens):
        queries, keys = self.embed_asked(asked), self.embed_names(names)
        return self.head(self.attention(queries, keys, self.embed_entries(entries), valid_lens))


def directory(batch, generator, m=6, num_queries=4):
    lens = torch.randint(2, m + 1, (batch,), generator=generator)
    names = torch.rand(batch, NUM_SYMBOLS, generator=generator).argsort(1)[:, :m]
    leftovers = torch.randint(NUM_SYMBOLS, (batch, m), generator=generator)
    names = torch.where(torch.arange(m) < lens[:, None], names, leftovers)
    entries = torch.randint(NUM_SYMBOLS, (batch, m), generator=generator)
    wanted = (torch.rand(batch, num_queries, generator=generator) * lens[:, None]).long()
    asked, answer = names.gather(1, wanted), entries.gather(1, wanted)
    asked, names, entries = (F.one_hot(x, NUM_SYMBOLS).float() for x in (asked, names, entries))
    return (asked, names, entries, lens), answer


on_directory = train_boxes(Directory, directory)
assert sum(share < 0.975 for share in on_directory.values()) == 5 and on_directory["sound"] > 0.975
assert sorted(on_directory.values())[0] < 0.2 and sorted(on_directory.values())[4] > 0.9

# %% [markdown]
# <details><summary>Answer</summary>
#
# Five boxes score below 97.5%. One of them is no better than guessing, and another gets more than
# 90%. Without `Sound` for comparison, that accuracy would tell you nothing. A bug, a poor learning
# rate and a hard task look the same.
#
# </details>

# %% [markdown]
# ### A loss that is too good
#
# One kind of loss does prove a bug. Throw a die with eight faces, and let the block, with a causal
# mask, predict the *next* throw. Nothing can predict a fair die, and each batch is new, so the
# model cannot memorize it. With an expected loss below $\ln 8 = 2.08$, the model sees the answer.
#
# **Predict.** Exactly how many of the ten boxes end more than 0.03 below this loss?


# %% tags=["demo", "nbval-ignore-output"]
def throws(batch, generator, n=8):
    faces = torch.randint(NUM_SYMBOLS, (batch, n + 1), generator=generator)
    return (F.one_hot(faces[:, :-1], NUM_SYMBOLS).float(), causal_mask(n)), faces[:, 1:]


on_throws, curves = {}, {}
for name, box in boxes.items():
    torch.manual_seed(0)
    losses = learn(Block(box(32, 2)), throws, 50, name)
    on_throws[name] = losses[-5:].mean().item()
    curves[name] = losses.reshape(10, -1).mean(1)
    print(f"{name:8} {on_throws[name]:.2f}")
assert sorted(on_throws.values())[2] < 1.5

# %% [markdown]
# <details><summary>Answer</summary>
#
# Four boxes end below 2.05, three of them far below. In these four, some position sees later
# throws, and you can prove it without a correct module for comparison. Four other boxes have passed
# all three training runs.
#
# </details>

# %% tags=["demo", "nbval-ignore-output"]
# a margin of 0.03 allows for chance
too_good = [name for name, loss in on_throws.items() if loss < math.log(8) - 0.03]
shown = {name: curves[name] for name in ("sound", *too_good)}
shown["guessing"] = torch.full((10,), math.log(8))
figure = plotting.lines(torch.arange(5, 51, 5), shown, x_label="step", y_label="loss")
plotting.show(figure, key="too good")
assert len(too_good) == 4 and "sound" not in too_good
assert len([b for b in boxes if on_directory[b] > 0.975 and b not in too_good]) == 5

# %% [markdown]
# ## 3. What must always hold
#
# *If the loss does not reveal a bug, what does?*

# %% [markdown]
# An *invariant* is a property of every correct implementation, whatever its weights. To test one,
# call the module, change one thing whose effect you know, call it again, and compare. This takes no
# training and no expected numbers.

# %% tags=["demo"]
for invariant, statement in INVARIANTS.items():
    print(f"{invariant:24} {statement}")

# %% [markdown]
# Now write tests for three invariants. The check runs each test on dozens of hidden modules. It
# counts the broken ones that your test catches and the correct ones that your test rejects. In all
# three tests,
#
# - you may assume that no output exceeds 100;
# - outputs that agree within 1e-5 count as equal;
# - outputs that differ by a hundredth or more in any entry, in either direction, are not equal;
# - nan is not equal to anything;
# - the test changes neither the mode of the module nor the state of torch's global generator;
# - the result is a Python `bool`.

# %% [markdown]
# ### Exercise: `masking_equals_deleting`
#
# - **Takes** `module` and its four arguments. Call it as `module(queries, keys, values)` or
#   `module(queries, keys, values, valid_lens)`. Every length is at least 1.
# - **Returns** True if each item has the same outputs (a) in the whole batch, with `valid_lens`,
#   and (b) alone, with its padded keys deleted and without `valid_lens`.
#
# **Worked example.** A module returns the average of all values, whatever the lengths. For values
# $(1, 2, 9)$ and length 2 it returns 4 with the mask and 1.5 after deleting, so the result is
# False.

# %%
from course_lib.attention import masking_equals_deleting

# %%
check("masking_equals_deleting")

# %% [markdown]
# ### Exercise: `keys_permutation_invariant`
#
# - **Takes** `module`, called as `module(queries, keys, values)`, and its three arguments.
# - **Returns** True if the outputs do not depend on the order of the keys. When a key moves, its
#   value moves with it.
#
# A module that prefers the middle key passes if you only reverse the keys. One that looks at
# neighboring keys (arranged in a circle) passes if you only rotate them.
#
# Swaps of keys $i$ and $i + 1$, one pair at a time, can also miss a fault. A module that computes
# $\operatorname{relu}(\text{last} - \text{first})$ of the scores $(4, 3, 2, 1)$ gives 0 after every
# such swap, and 3 after a reversal.

# %%
from course_lib.attention import keys_permutation_invariant

# %%
check("keys_permutation_invariant")

# %% [markdown]
# ### Exercise: `batch_items_independent`
#
# - **Takes** `module`, called as `module(queries, keys, values, valid_lens)`, and its four
#   arguments.
# - **Returns** True if every item has the same output alone as in the batch.
#
# **Worked example.** A module subtracts the average over the batch from the values. An item alone
# gets only zeros, so the result is False.

# %%
from course_lib.attention import batch_items_independent

# %%
check("batch_items_independent")

# %% [markdown]
# ## 4. The hunt
#
# *Which invariant does a box break, and which line breaks it?*

# %% [markdown]
# The batch below holds three numerals, of 4, 8 and 14 letters, with four queries each, and
# `fresh(name)` builds a box in eval mode.


# %% tags=["demo"]
def fresh(name, embed_dim=6, num_heads=2, dropout=0.0):
    torch.manual_seed(4)
    return boxes[name](embed_dim, num_heads, dropout=dropout).double().eval()


numerals = ("drei", "dreizehn", "dreiundvierzig")
valid_lens = torch.tensor([len(word) for word in numerals])
letters = torch.tensor([[ord(c) - ord("a") for c in word.ljust(14, "x")] for word in numerals])
generator = torch.Generator().manual_seed(0)
key_of_letter, value_of_letter = torch.randn(2, 26, 6, generator=generator, dtype=torch.float64)
keys, values = key_of_letter[letters], value_of_letter[letters]  # (3, 14, 6)
queries = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)

module = fresh("sound")
gap = (module(queries, keys, 2 * values) - 2 * module(queries, keys, values)).abs().max()
print(f"linear_in_values: off by {gap:.0e}")
assert gap < 1e-12

# %% [markdown]
# ### Exercise: `diagnosed_boxes`
#
# Diagnose `curlew`, `fulmar` and `ibis`. Your tests cover three of the eleven invariants. To test
# the others, write your own experiments.
#
# Return a dict from the name of each box to the id of an invariant that the box breaks. If it
# breaks several, give any one of them. The entries are graded together, all or nothing.
#
# **Worked example.** If the difference printed above were large for a box, its entry would be
# `"linear_in_values"`.

# %%
from course_lib.attention import diagnosed_boxes

# %%
check("diagnosed_boxes")

# %% [markdown]
# ### Open the boxes
#
# `diagnose("curlew")` lists possible faults. Pass the number of the fault that fits your evidence
# as a second argument. A correct diagnosis opens the box and shows how it differs from `Sound`. A
# wrong one prints the evidence that would support it. (All boxes inherit `split`, `merge`,
# `allowed` and `softmax`, which are correct.)

# %% tags=["demo"]
diagnose("curlew")

# %% [markdown]
# ### All ten boxes
#
# **Predict.** How many of the ten boxes fail at least one of your three tests: 3, 5 or 8?

# %% tags=["demo", "nbval-ignore-output"]
inputs = queries, keys, values
table = {
    name: {
        "reversal learned": on_reversal[name] > 0.95,
        "directory learned": on_directory[name] > 0.975,
        "no loss too good": name not in too_good,
        "masking = deleting": masking_equals_deleting(fresh(name), *inputs, valid_lens),
        "keys in any order": keys_permutation_invariant(fresh(name), *inputs),
        "items independent": batch_items_independent(fresh(name), *inputs, valid_lens),
    }
    for name in boxes
}
plotting.show(plotting.verdicts(table), key="verdicts")
failures = {
    question: sum(not row[question] for row in table.values()) for question in table["sound"]
}
assert list(failures.values()) == [0, 5, 4, 3, 1, 1] and all(table["sound"].values())
assert sum(not all(list(row.values())[3:]) for row in table.values()) == 3
assert sum(all(row.values()) for row in table.values()) == 1 + 4

# %% [markdown]
# <details><summary>Answer</summary>
#
# Three boxes fail. `masking_equals_deleting` catches all three, and your other tests catch one
# each. Training tells you at best *that* something is wrong. A test tells you *what* is wrong,
# without training. Four boxes pass in all six columns, and only the other invariants catch them.
#
# </details>

# %% [markdown]
# ### Exercise: `broken_invariants`
#
# Return a dict like that of `diagnosed_boxes`, for all names in `BUGS`. The entries are graded in
# three groups, each all or nothing. For `scale_free`, compare `attention_weights.log().std(-1)` for
# two values of `embed_dim`, say 4 and 256, with one head and standard normal queries and keys.

# %%
from course_lib.attention import broken_invariants

# %%
check("broken_invariants")

# %% [markdown]
# ## 5. In the wild
#
# *Do such bugs occur outside a lesson?*

# %% [markdown]
# These four bugs were reported in public. None of them raised an error.
#
# | thread | what happened |
# |---|---|
# | [rasbt/LLMs-from-scratch #1062](https://github.com/rasbt/LLMs-from-scratch/pull/1062) (2026) | A book's notebook passed an upper triangle to `F.scaled_dot_product_attention`, where True means "may attend". Each token saw only the tokens after it. |
# | [keras-team/keras #23038](https://github.com/keras-team/keras/issues/23038) (2026) | `MultiHeadAttention` left the causal mask to a fast kernel. With dropout, for example, it took a slow path that did not apply the mask. |
# | [d2l-ai/d2l-en #2423](https://github.com/d2l-ai/d2l-en/pull/2423) (2023) | Masked scores become −10⁶. In an item of length 0, all scores are then equal, so the item gets the average of its padding. |
# | [pytorch/pytorch #41508](https://github.com/pytorch/pytorch/issues/41508) (2020) | In `nn.MultiheadAttention`, a query without an allowed key gets nan. Even if you discard this output, the gradients become nan. |
#
# The next cell rebuilds the first three and calls PyTorch's own module for the fourth. In it,
# `ignores_the_last` changes the last position and returns whether all other outputs stay the same.
#
# **Predict.** How many of your three tests does d2l's module fail if the batch has an empty item?
# (Its check uses lengths of at least 1. With 0, deleting leaves no keys, so the expected output is
# 0.)


# %% tags=["demo"]
def inverted_mask(x):
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=future)


def dropped_mask(x, dropout):
    if dropout == 0.0:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)
    weights = torch.softmax(x @ x.mT / math.sqrt(x.shape[-1]), -1)  # the slow path
    return F.dropout(weights, dropout, training=False) @ x


def million_below(queries, keys, values, valid_lens=None):
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if valid_lens is not None:
        padded = torch.arange(keys.shape[1]) >= valid_lens[:, None]
        scores = scores.masked_fill(padded[:, None], -1e6)
    return torch.softmax(scores, -1) @ values


torch.manual_seed(5)
in_torch = nn.MultiheadAttention(6, 2, batch_first=True).double()


def torchs_module(queries, keys, values, valid_lens=None):
    if valid_lens is None:
        return in_torch(queries, keys, values)[0]
    padded = torch.arange(keys.shape[1]) >= valid_lens[:, None]  # True means "drop" here
    return in_torch(queries, keys, values, key_padding_mask=padded)[0]


def ignores_the_last(fn, x):
    """Return whether no other output changes if the last position does."""
    changed = torch.cat([x[:, :-1], x[:, -1:] + 1], dim=1)
    return torch.allclose(fn(changed)[:, :-1], fn(x)[:, :-1], atol=1e-6)


looks_back = {
    "book": inverted_mask,
    "Keras, dropout 0": lambda x: dropped_mask(x, 0.0),
    "Keras, dropout 0.1": lambda x: dropped_mask(x, 0.1),
}
for name, function in looks_back.items():
    print(f"{name:20} ignores_the_last {ignores_the_last(function, queries)}")
for name, module in {"d2l": million_below, "PyTorch": torchs_module}.items():
    for lens in (torch.tensor([4, 8, 14]), torch.tensor([0, 8, 14])):
        deleting = masking_equals_deleting(module, *inputs, lens)
        order = keys_permutation_invariant(module, *inputs)
        items = batch_items_independent(module, *inputs, lens)
        print(f"{name:8} {lens.tolist()!s:11} deleting {deleting}, order {order}, items {items}")
        assert order and deleting == bool(lens[0]) and items == (deleting or name == "d2l")

outputs = torchs_module(*inputs, torch.tensor([0, 8, 14]))
outputs[1:].sum().backward()  # without the empty item
print(f"nan in the gradient of PyTorch's weights: {in_torch.in_proj_weight.grad.isnan().any()}")
found = {name: ignores_the_last(function, queries) for name, function in looks_back.items()}
assert found == {"book": False, "Keras, dropout 0": True, "Keras, dropout 0.1": False}
assert in_torch.in_proj_weight.grad.isnan().any()

# %% [markdown]
# <details><summary>Answer</summary>
#
# d2l's module fails only `masking_equals_deleting`. Alone, the empty item gets the same average, so
# `batch_items_independent` passes. PyTorch's module also fails `batch_items_independent`, because
# nan is not equal to anything. These two modules break `empty_rows_zero`, but are correct for all
# items that are not empty. `ignores_the_last` catches both mask bugs, but it catches our copy of the
# Keras bug only if you test with dropout. A test is only as good as its inputs.
#
# </details>

# %% [markdown]
# ## 6. Fix it
#
# *You know what fails. Where is the fault?*

# %% [markdown]
# Real modules may have several faults, so run the tests again after each repair. The self-attention
# module below is meant for generating text and has four faults. Its queries, keys and values come
# from one matrix `W_qkv`.

# %% tags=["demo"]
plotting.show_source(source(BrokenCausalSelfAttention))
torch.manual_seed(7)
broken = BrokenCausalSelfAttention(6, 2).double().eval()
x = torch.randn(2, 5, 6, dtype=torch.float64)
empty_item = broken(x, torch.tensor([0, 5]))[0]
print(f"ignores_the_last: {ignores_the_last(broken, x)}")
print(f"nan in the outputs of an item of length 0: {empty_item.isnan().sum()} of 30")
assert not ignores_the_last(broken, x) and empty_item.isnan().all()

# %% [markdown]
# ### Exercise: `CausalSelfAttention`
#
# Write a correct version of the module.
#
# - **`__init__`** creates two `nn.Linear` layers without bias: `W_qkv`, from `embed_dim` to
#   `3 * embed_dim`, and `W_o`. The outputs of `W_qkv` are the queries, then the keys, then the
#   values, each split into heads as in lesson 06. Pass `device` and `dtype` on to both layers.
# - **`forward`** returns `(B, n, embed_dim)`. Position $i$ attends to the real positions $j \le i$.
#   Padded positions have no effect on the others. An item of length 0 gets zeros.
# - **`self.attention_weights`** holds the weights `(B, h, n, n)`, detached.
#
# **Worked example.** The first position sees only itself, so its row of weights is
# $(1, 0, 0, \dots)$ in every head.

# %%
from course_lib.attention import CausalSelfAttention

# %%
check("CausalSelfAttention")

# %% [markdown]
# ### Your module writes
#
# A module that cannot see the future can learn to predict each character from those before it. To
# write, the model draws a character, appends it, and repeats. The text consists of 2,000 short
# stories that a program generates from rules. Each story invents the names of its two animals.
#
# For comparison, a *counting model* counts which character follows which.

# %% tags=["demo", "nbval-ignore-output"]
CONTEXT, WIDTH = 96, 64
text = CHARACTERS.ids("".join(story.text for story in stories(2000, seed=0)))
learned, unseen = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
rows = unseen[: len(unseen) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1).to(device)

pairs = torch.ones(len(CHARACTERS), len(CHARACTERS))  # so that no share is 0
pairs.index_put_((learned[:-1], learned[1:]), torch.ones(1), accumulate=True)
log_shares = (pairs / pairs.sum(dim=1, keepdim=True)).log().to(device)


class Writer(nn.Module):
    """Give each position logits for the next character, with one block of your attention."""

    def __init__(self, attention):
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), WIDTH)
        self.register_buffer("positions", positional_encoding(CONTEXT, WIDTH))
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))
        self.head = nn.Linear(WIDTH, len(CHARACTERS))

    def forward(self, ids):
        x = self.characters(ids) + self.positions[: ids.shape[1]]
        x = x + self.attention(x)
        x = x + self.mlp(x)
        return self.head(x)


def next_character_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def write(model, beginning, num_characters=200):
    ids = CHARACTERS.ids(beginning)[None]
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_characters):
        logits = model(ids[:, -CONTEXT:].to(device))[0, -1].cpu()
        shares = torch.softmax(logits / 0.5, dim=-1)  # temperature 0.5 favors likely characters
        ids = torch.cat([ids, torch.multinomial(shares, 1, generator=generator)[None]], dim=1)
    return "".join(CHARACTERS.words(ids[0]))


torch.manual_seed(0)
writer = Writer(CausalSelfAttention(WIDTH, 4)).to(device)
windows = text_windows(learned, CONTEXT + 1, torch.Generator().manual_seed(0))
train(writer, lambda: next_character_loss(writer, next(windows).to(device)), 600, max_lr=0.01)
models = {"counting": lambda ids: log_shares[ids], "your attention": writer}
with torch.no_grad():
    unseen_loss = {name: next_character_loss(model, rows).item() for name, model in models.items()}
for name, model in models.items():
    print(f"--- {name}: loss {unseen_loss[name]:.2f} on unseen stories")
    print(write(model, "One morning"))
assert 2.1 < unseen_loss["counting"] < 2.4 and unseen_loss["your attention"] < 1.5

# %% [markdown]
# The counting model writes common pairs of letters, but few long words. With attention, most words
# are spelled correctly. In lesson 10, you write a complete language model, and find heads that look
# up names.

# %% [markdown]
# ## 7. Equivariance and causality ★
#
# *How do you test what a function does with the order of a sequence?*

# %% [markdown]
# Without positions, self-attention is permutation equivariant (lesson 06). If you permute its
# inputs, its outputs are permuted in the same way. Reordering only the *keys* and their values does
# not change the outputs. How would you test any function $f$ for equivariance? Ten positions have
# 3,628,800 permutations. Which few of them make a good test?
#
# **By hand.** Let $f$ subtract from each number the number after it, and from the last number the
# first. Is $f$ equivariant? Rotate $(1, 2, 4)$ to $(4, 1, 2)$. The outputs $(-1, -2, 3)$ become
# $(3, -1, -2)$, rotated as well. Now swap the first two numbers of $(1, 2, 4)$ to get $(2, 1, 4)$.
# The outputs are $(1, -3, 2)$, not $(-2, -1, 3)$. So a rotation alone proves nothing. A swap of two
# neighbors and a rotation catch the usual mistakes. A function that passes at one `x` may still
# fail at another.

# %% [markdown]
# ### Exercise: `is_permutation_equivariant`
#
# - **Takes** `fn`, a function from `(B, n, D)` to `(B, n, ...)` without randomness, and `x`,
#   `(B, n, D)`.
# - **Returns** a Python `bool`: True if every item's outputs move along with its positions.
#
# You may assume that no output exceeds 100. Outputs that agree within 1e-5 count as equal. If any
# entry differs by 0.01 or more, in either direction, they are not equal. nan is not equal to
# anything. If you need random numbers, draw them from a `torch.Generator` of your own.
#
# **Worked example.** At $((1, 0), (2, -1), (0, 2))$ the result is True for `fn = lambda x: 2 * x`,
# and False for `lambda x: x.cumsum(1)` and for `lambda x: x.sort(1).values`.

# %%
from course_lib.attention import is_permutation_equivariant

# %%
check("is_permutation_equivariant")

# %% [markdown]
# ### A test for looking ahead
#
# The output of a causal function at position $i$ depends only on positions $0, \dots, i$.
# `ignores_the_last` of section 5 misses a function in which position 1 looks ahead to position 2 of
# four. If the future does not matter, you can overwrite it without changing any earlier output.
# Overwrite it with ordinary numbers, not nan. A forbidden key has weight 0, but
# $0 \times \text{nan}$ is nan.

# %% [markdown]
# ### Exercise: `is_causal`
#
# - **Takes** `fn` and `x`, as in `is_permutation_equivariant`. Compare outputs and draw numbers in
#   the same way.
# - **Returns** a Python `bool`: True if, in every item, no output depends on a later position.
#
# **Worked example.** At $((1, 0), (2, -1), (0, 2))$ again, the result is True for
# `fn = lambda x: x.cumsum(1)`, and False for `lambda x: x.flip(1)` and for
# `lambda x: x.roll(-1, 1)`, which returns the next position.

# %%
from course_lib.attention import is_causal

# %%
check("is_causal")

# %% [markdown]
# ## 8. Keep your tests
#
# *Who runs the tests when you change the module next month?*

# %% [markdown]
# [pytest](https://docs.pytest.org) looks in a file for functions whose names start with `test_` and
# runs them. `run_tests` writes the tests below to a file in your library `my_attention`, adds
# imports of your answers (or the course's, if you have not solved an exercise), and starts pytest.

# %% tags=["demo", "nbval-ignore-output"]
from course_lib.notebook.own_tests import run_tests

tests = """
import torch

torch.manual_seed(0)
queries, keys, values = torch.randn(3, 4, 6), torch.randn(3, 5, 6), torch.randn(3, 5, 6)
valid_lens = torch.tensor([2, 5, 1])  # different lengths


def attention():
    return MultiHeadAttention(6, 2, dropout=0.5).eval()


def test_masking_equals_deleting():
    assert masking_equals_deleting(attention(), queries, keys, values, valid_lens)


def test_order_of_keys_does_not_matter():
    assert keys_permutation_invariant(attention(), queries, keys, values)


def test_items_are_independent():
    assert batch_items_independent(attention(), queries, keys, values, valid_lens)


def test_no_other_position_sees_the_last():
    module, changed = CausalSelfAttention(6, 2).eval(), queries.clone()
    changed[:, -1] += 1
    assert torch.allclose(module(changed)[:, :-1], module(queries)[:, :-1], atol=1e-6)
"""
run_tests(tests)

# %% [markdown]
# All four tests pass. Without the first `.eval()`, three of them fail, because each call drops
# different weights. Without the second, none fails, because `CausalSelfAttention` has no dropout.

# %% [markdown]
# ### All together
#
# Section 3's three tests must accept your `CausalSelfAttention` and reject a box each. Pass their
# checks first.

# %%
check("07_bug_hunt")

# %% [markdown]
# ### Written question: the colleague's loss curve
#
# A colleague sends you a new attention module and a plot: "On our data, the loss falls as it did
# with the old module, and the validation accuracy is the same. Can we ship it?"
#
# In five to eight sentences, name two different reasons why a broken module can train as well as a
# correct one, with a box as an example of each. Describe a situation after shipping in which one of
# these faults would hurt. Which two tests would you ask for first, and why?

# %% [markdown] written="loss_proves_nothing"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **Why it trains.** Two different reasons, each with a box that fits. The other layers
#    compensate for the fault (on reversal `avocet`, `bittern`, `jacana`; anywhere `heron` and, for
#    the scale, `egret`). The training data never reaches the fault (no padding: `curlew`, `fulmar`;
#    no empty item: `ibis`; keys and values the same tensor: `dunlin`). The metric hardly shows it
#    (`grebe`, with a small dropout). Half a point for one reason.
# 2. **When it hurts.** A concrete situation, such as batches with other padding, an empty document,
#    cross-attention, reproducing a prediction, loading weights that another implementation trained,
#    or reading attention maps as explanations.
# 3. **Which tests.** Two tests with a reason that has to do with what they reveal, such as
#    `masking_equals_deleting` because the data has padding, and `items_apart` because mixing leaks
#    information. "The permutation test" alone earns half a point at most, because it reveals only
#    one of the ten boxes.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# An attention block learns to reverse a sequence, and so do ten broken ones. Some faults have an
# effect only on data that does not occur in training, and other layers compensate for the rest. A
# loss that is too *good* proves a bug. For everything else, test the invariants, with different
# sizes and lengths, and with an empty item.
#
# ## References
#
# - M. T. Ribeiro and others, *Beyond Accuracy: Behavioral Testing of NLP Models with
#   CheckList*, 2020. <https://arxiv.org/abs/2005.04118>
