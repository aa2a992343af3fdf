# %% [markdown]
# # 07 · Bug hunt: does it learn, and would you notice?
#
# **The question.** You wrote an attention, the loss falls, the accuracy is 100 %. Is the module
# right? Ten modules wait below. Each one is broken, and you will see what training makes of that.
#
# **After this you can**
#
# - train a block of attention on two small tasks and read the maps it learns;
# - say why a falling loss proves nothing about the code beneath it;
# - turn "what must always hold" into tests that tell a sound module from a broken one;
# - find the fault in a module from the invariant it breaks, and fix it.
#
# **Time:** about three hours. **You need:** lessons 02 and 06; the course's versions of their
# exercises are at hand.

# %%
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import (
    MultiHeadAttention,
    carry_on,
    causal_mask,
    check,
    hint,
    is_causal,
    masked_softmax,
    merge_heads,
    plotting,
    split_heads,
)
from course_lib.checks.observe.lessons import broken_modules as specimens
from course_lib.checks.observe.lessons.broken_modules import BUGS, INVARIANTS

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # these problems are too small to share out
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## 1. One block, two tasks
#
# *How much can one attention learn, and how fast?*

# %% tags=["demo", "hide-input"]
lit = "first add & norm", "feed-forward", "second add & norm"
shapes = {"inputs": (64, 8, 32), "outputs": (64, 8, 32), "second add & norm": (64, 8, 32)}
plotting.show(plotting.diagram("block", lit=lit, shapes=shapes))

# %% [markdown]
# A *block* is attention plus a small network at each position, each added to what came in:
#
# $$x \leftarrow x + \text{attention}(x), \qquad x \leftarrow x + \text{MLP}(x), \qquad x \in \mathbb{R}^{B \times n \times D}.$$
#
# (The steps that the map calls *add & norm* only add here.) Attention alone does not know where a
# position is (lesson 06), so the block adds a learned vector to each. It takes the attention as
# an argument: any module with the interface of `MultiHeadAttention` will do, a broken one too.


# %% tags=["demo"]
class Block(nn.Module):
    def __init__(self, attention, num_features, num_positions, num_symbols, embed_dim=32):
        super().__init__()
        self.embed = nn.Linear(num_features, embed_dim)
        self.positions = nn.Parameter(0.5 * torch.randn(num_positions, embed_dim))
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 64), nn.ReLU(), nn.Linear(64, embed_dim))
        self.head = nn.Linear(embed_dim, num_symbols)

    def forward(self, x):
        x = self.embed(x) + self.positions  # (batch, num_positions, embed_dim)
        x = x + self.attention(x, x, x)
        x = x + self.mlp(x)
        return self.head(x)  # (batch, num_positions, num_symbols)


# %% [markdown]
# **Reversal.** The input is a sequence of 8 symbols, the target the same sequence backwards:
#
# | position | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | input | C | A | A | D |
# | target | D | A | A | C |
#
# Position $i$ needs the symbol at $n - 1 - i$, whatever it is. **Predict:** what must the map of
# weights look like?
#
# **Retrieval.** Position 0 holds a key and asks for its value; positions 1 to 5 hold pairs of a
# key and a value, in any order: *B? · D=3 · B=7 · A=1 · ...* The answer is 7. Here position 0 has to
# look for *content*.


# %% tags=["demo"]
NUM_SYMBOLS = 8


def reversal(batch, generator, n=8):
    symbols = torch.randint(NUM_SYMBOLS, (batch, n), generator=generator)
    return F.one_hot(symbols, NUM_SYMBOLS).float(), symbols.flip(1)


def retrieval(batch, generator, num_pairs=5):
    names = torch.rand(batch, NUM_SYMBOLS, generator=generator).argsort(1)[:, :num_pairs]
    values = torch.randint(NUM_SYMBOLS, (batch, num_pairs), generator=generator)
    wanted = torch.randint(num_pairs, (batch, 1), generator=generator)
    pairs = torch.cat([F.one_hot(x, NUM_SYMBOLS) for x in (names, values)], dim=-1)
    asked = F.one_hot(names.gather(1, wanted), NUM_SYMBOLS)  # (batch, 1, num_symbols)
    question = torch.cat([asked, torch.zeros_like(asked)], dim=-1)
    return torch.cat([question, pairs], dim=1).float(), values.gather(1, wanted)


x, target = reversal(1, torch.Generator().manual_seed(0))
print("symbols", x[0].argmax(-1).tolist())
print("target ", target[0].tolist())
assert target[0].tolist() == x[0].argmax(-1).tolist()[::-1]

# %% [markdown]
# The training loop holds nothing you have not seen: fresh sequences at every step, cross-entropy,
# Adam. The bar moves while it runs and is gone afterwards.


# %% tags=["demo"]
def train(attention, task, num_steps, label="training"):
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    x, _ = task(1, generator)
    block = Block(attention, x.shape[2], x.shape[1], NUM_SYMBOLS).to(device)
    optimiser = torch.optim.Adam(block.parameters(), lr=0.01)
    losses = []
    for _ in plotting.progress(num_steps, label):
        x, target = (t.to(device) for t in task(64, generator))
        answers = block(x)[:, : target.shape[1]]
        loss = F.cross_entropy(answers.flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return block.eval(), torch.stack(losses).cpu()


def accuracy(block, task):
    x, target = (t.to(device) for t in task(500, torch.Generator().manual_seed(2)))
    with torch.no_grad():
        answers = block(x)[:, : target.shape[1]].argmax(-1)
    return (answers == target).float().mean().item()


# %% tags=["demo", "nbval-ignore-output"]
torch.manual_seed(0)
reverser, reversal_losses = train(MultiHeadAttention(32, 2), reversal, 100, "reversal")
finder, retrieval_losses = train(MultiHeadAttention(32, 2), retrieval, 200, "retrieval")
for name, block, task in (("reversal", reverser, reversal), ("retrieval", finder, retrieval)):
    right = accuracy(block, task)
    print(f"{name}: {right:.1%} of unseen problems right")
    assert right > 0.95
assert reversal_losses[0] > 1.5 > 0.2 > reversal_losses[-10:].mean()

# %% [markdown]
# Guessing one of 8 symbols costs $\ln 8 = 2.08$. What you should see in the next picture: both
# losses start there and end near 0. The exact numbers depend on your machine, the course of the
# curves does not.

# %% tags=["demo", "nbval-ignore-output"]
percent = torch.arange(5, 101, 5)
curves = {
    "reversal (100 steps)": reversal_losses.reshape(20, -1).mean(1),
    "retrieval (200 steps)": retrieval_losses.reshape(20, -1).mean(1),
}
plotting.show(plotting.lines(percent, curves, x_label="% of the training", y_label="loss"))

# %% [markdown]
# ### The maps it learns
#
# What you should see for reversal: the antidiagonal, in one head or shared between the two, for
# every sequence alike. Query $i$ looks at key $7 - i$.


# %% tags=["demo", "nbval-ignore-output"]
def head_maps(block, x):
    with torch.no_grad():
        block(x.to(device))
    return block.attention.attention_weights.cpu()  # (batch, num_heads, n, n)


x, _ = reversal(1, torch.Generator().manual_seed(3))
weights = head_maps(reverser, x)[0]
panels = {"head 0": weights[0], "head 1": weights[1], "average": weights.mean(0)}
plotting.show(plotting.learned_maps(panels))

# %% tags=["demo"]
looks_at = weights.mean(0).argmax(-1)
print("query i looks most at key", looks_at.tolist())
assert looks_at.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]

# %% [markdown]
# For retrieval only query 0 matters, and where it looks depends on the content. The cell shows its
# row for three problems. What you should see: most of the weight on the position that holds the
# wanted pair, which is another one each time.

# %% tags=["demo", "nbval-ignore-output"]
x, _ = retrieval(3, torch.Generator().manual_seed(5))
asked, names = x[:, 0, :NUM_SYMBOLS], x[:, 1:, :NUM_SYMBOLS]
wanted = 1 + (names * asked[:, None]).sum(-1).argmax(-1)  # the position of the wanted pair
rows = head_maps(finder, x).mean(1)[:, 0]  # (3, 6), both heads averaged
plotting.show(
    plotting.heatmap(
        rows,
        query_labels=[f"wanted: {i}" for i in wanted.tolist()],
        title="query 0, three problems",
    )
)

# %% tags=["demo", "nbval-ignore-output"]
share = rows.gather(1, wanted[:, None]).squeeze(1)
print("weight on the wanted pair:", [f"{s:.2f}" for s in share.tolist()], "(an even share: 0.17)")
assert (share > 1 / 6).all()

# %% [markdown]
# ## 2. Ten birds
#
# *And now with modules that are broken?*

# %% tags=["demo", "hide-input"]
lit = "split heads", "scores", "mask", "softmax", "weighted sum", "merge heads"
shapes = {"queries": (64, 8, 32), "head queries": (64, 2, 8, 16), "outputs": (64, 8, 32)}
plotting.show(plotting.diagram("heads", lit=lit, shapes=shapes))

# %% [markdown]
# Below are ten modules with the interface of `MultiHeadAttention`, each with one fault. They are
# named after birds so that their names give nothing away. All of them share `Attention`, which is
# sound; the fault is in `forward`, and each bird is shown as what it changes in `Sound`.

# %% tags=["demo"]
plotting.show_source(specimens.source(specimens.Attention))
right = specimens.source(specimens.Sound)
plotting.show_source(right)


# %% tags=["demo"]
def show_bird(bird):
    sound = right.replace("Sound", BUGS[bird].__name__)
    plotting.show_source(specimens.source(BUGS[bird]), against=sound, title=bird)


for bird in ("avocet", "bittern", "curlew", "dunlin", "egret"):
    show_bird(bird)

# %% tags=["demo"]
for bird in ("fulmar", "grebe", "heron", "ibis", "jacana"):
    show_bird(bird)

# %% [markdown]
# The course wrote all ten and invented none: each is a mistake that lessons 02 to 06 warn of, and
# lesson 06's check names every one of them.
#
# **Predict.** Put each into the block and train it on reversal, with dropout 0.1 where dropout is
# the fault. How many of the ten will get more than 95 % of unseen sequences right?
#
# <details><summary>Answer</summary>
#
# All ten. Run the cell if you do not believe it.
#
# </details>

# %% tags=["demo"]
learned, reversers, losses = {}, {}, {}
for name, kind in {"sound": specimens.Sound, **BUGS}.items():
    torch.manual_seed(0)
    attention = kind(32, 2, dropout=0.1 if name == "grebe" else 0.0)
    reversers[name], losses[name] = train(attention, reversal, 100, name)
    learned[name] = accuracy(reversers[name], reversal) > 0.95
    assert losses[name][-10:].mean() < 0.2
print("reversal learned by:", *(name for name, yes in learned.items() if yes))
same = [name for name in BUGS if torch.allclose(losses[name], losses["sound"], atol=0.02)]
print("with the losses of the sound module:", *same)
assert all(learned.values())
assert same == ["curlew", "dunlin", "fulmar", "ibis"]

# %% [markdown]
# **All of them train to a low loss,** for two reasons. Four birds never meet their fault: `dunlin`
# reads keys for values, which in self-attention *are* the same tensor, and `curlew`, `fulmar` and
# `ibis` are wrong about masks, and nothing is padded here. Step by step their losses are those of
# the sound module. For the other six the rest of the block learns around the fault: projections
# make up for a missing scale, and the antidiagonal that reversal wants has rows *and* columns that
# sum to 1, so that a softmax over the wrong axis finds it too.
#
# Look at what three of them learned. What you should see: maps that no longer mean what you read
# into them. A column of `avocet` sums to 1, a row does not have to; a head of `jacana` does not
# hold the eight positions of the sequence at all; and in `bittern` two neighbouring queries look at
# the same key. Here a map does tell, to someone who knows what it should be.

# %% tags=["demo", "nbval-ignore-output"]
x, _ = reversal(1, torch.Generator().manual_seed(3))
panels = {name: head_maps(reversers[name], x)[0, 0] for name in ("avocet", "bittern", "jacana")}
plotting.show(plotting.learned_maps(panels))

# %% [markdown]
# Would another task notice? Retrieval stops one of these two, and says nothing about why: a loss
# that stays high looks the same for a bug, a bad learning rate and a hard task.

# %% tags=["demo"]
found = {}
for name in ("bittern", "jacana"):
    torch.manual_seed(0)
    block, _ = train(BUGS[name](32, 2), retrieval, 200, name)
    found[name] = accuracy(block, retrieval) > 0.95
    print(f"{name}: retrieval learned: {found[name]}")
assert found == {"bittern": True, "jacana": False}

# %% [markdown]
# And some faults wait for a batch that training did not have. One item of length 0, and a single
# step of the optimiser:

# %% tags=["demo"]
for name, kind in {"sound": specimens.Sound, "ibis": BUGS["ibis"]}.items():
    torch.manual_seed(0)
    module = kind(8, 2)
    x = torch.randn(3, 4, 8)
    module(x, x, x, torch.tensor([4, 0, 2])).square().mean().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    lost = sum(p.isnan().any().item() for p in module.parameters())
    print(f"{name}: {lost} of 4 weight matrices hold nan after one step")
    assert lost == (0 if name == "sound" else 2)

# %% [markdown]
# `W_v` and `W_o` are lost (`masked_fill` kept the nan from `W_q` and `W_k`, see lesson 02), and with
# them every output from now on.

# %% [markdown]
# ## 3. What must always hold
#
# *If the loss does not tell, what does?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (3, 4, 6), "keys": (3, 5, 6), "values": (3, 5, 6), "outputs": (3, 4, 6)}
plotting.show(plotting.diagram("heads", lit="outputs", shapes=shapes))

# %% [markdown]
# An *invariant*: something that holds for every right implementation, whatever its weights. Each
# one is a small experiment: call, change one thing that should not matter (or should matter in a
# known way), call again, compare. No training, no expected numbers, milliseconds.

# %% tags=["demo"]
for invariant, says in INVARIANTS.items():
    print(f"{invariant:24} {says}")

# %% [markdown]
# **By hand.** One query, keys with scores $(0, \ln 3, 5)$, `valid_lens=[2]`. Deleting the third
# key leaves $(0, \ln 3)$ and the weights $(1/4, 3/4)$. Masking it must give $(1/4, 3/4, 0)$. A
# module that replaces the masked score by 0 gives $(1, 3, 1)/5$ instead: it fails
# `masking_equals_deleting` and yet its row sums to 1.
#
# You write three of these tests now. They take the module as an argument, so they will serve any
# attention you write later.

# %% [markdown]
# ### Exercise: `masking_equals_deleting`
#
# - **Takes** `module`, called as `module(queries, keys, values)` or
#   `module(queries, keys, values, valid_lens)`; `queries` `(B, n, d)`, `keys` and `values`
#   `(B, m, ...)`; `valid_lens` `(B,)`, each at least 1.
# - **Returns** a Python `bool`: True if, for every item, masking its padded keys gives the outputs
#   that deleting them gives.
#
# Outputs that differ by rounding only, in float32 about a millionth of their size, count as equal. A
# difference of a hundredth counts, wherever it is and whichever its sign, and nan equals nothing.
# The module is judged in the mode in which it is handed over, train or eval.
#
# **Worked example.** A module that returns the plain average of the values, whatever the lengths,
# on values $(1, 2, 9)$ with length 2: masked 4, deleted 1.5, so False.

# %%
from course_lib.attention import masking_equals_deleting

# %%
check("masking_equals_deleting")

# %% [markdown]
# ### Exercise: `keys_permutation_invariant`
#
# A set of pairs (key, value) has no order.
#
# - **Takes** `module`, called as `module(queries, keys, values)`, and the three inputs.
# - **Returns** a Python `bool`: True if the outputs do not depend on the order of the keys, each
#   of which takes its value with it.
#
# Outputs that differ by rounding only, in float32 about a millionth of their size, count as equal. A
# difference of a hundredth counts, wherever it is and whichever its sign, and nan equals nothing.
# The module is judged in the mode in which it is handed over, train or eval.
#
# **Predict** before you choose your order: which broken module passes if you only reverse the
# keys? Which one if you only move them all on by one?
#
# <details><summary>Answer</summary>
#
# Reversing keeps the middle in the middle; moving on keeps neighbours together (in a circle). A
# module that prefers the middle, or looks at neighbours, passes. Swapping two neighbours, for
# every pair of neighbours, lets nothing through: all orders are composed of such swaps.
#
# </details>

# %%
from course_lib.attention import keys_permutation_invariant

# %%
check("keys_permutation_invariant")

# %% [markdown]
# ### Exercise: `batch_items_independent`
#
# - **Takes** `module`, called as `module(queries, keys, values, valid_lens)`, and the four inputs.
# - **Returns** a Python `bool`: True if every item gets alone what it gets among the others.
#
# Outputs that differ by rounding only, in float32 about a millionth of their size, count as equal. A
# difference of a hundredth counts, wherever it is and whichever its sign, and nan equals nothing.
# The module is judged in the mode in which it is handed over, train or eval.
#
# **Worked example.** A module that subtracts the batch's average from the values gives a lone item
# nothing but zeros, so False. Shuffling the batch would not notice: the average stays the same.

# %%
from course_lib.attention import batch_items_independent

# %%
check("batch_items_independent")

# %% [markdown]
# ### Your tests against the birds
#
# Below the three tests meet the ten birds, freshly made, and `Sound`. What you should see in the
# table: `reversal learned` says yes everywhere; each test says no for a few.


# %% tags=["demo"]
def fresh(name, embed_dim=6, num_heads=2):
    kind = specimens.Sound if name == "sound" else BUGS[name]
    torch.manual_seed(4)
    return kind(embed_dim, num_heads).double().eval()


generator = torch.Generator().manual_seed(0)
queries, keys, values = (
    torch.randn(3, size, 6, generator=generator, dtype=torch.float64) for size in (4, 5, 5)
)
valid_lens = torch.tensor([3, 1, 4])
table = {}
for name in ("sound", *BUGS):
    module = fresh(name)
    table[name] = {
        "reversal learned": learned[name],
        "masking equals deleting": masking_equals_deleting(
            module, queries, keys, values, valid_lens
        ),
        "keys permutation": keys_permutation_invariant(module, queries, keys, values),
        "items apart": batch_items_independent(module, queries, keys, values, valid_lens),
    }
plotting.show(plotting.verdicts(table, title="What training says, and what three tests say"))
caught = [name for name, answers in table.items() if not all(answers.values())]
print("caught by one of the three:", *caught)
assert all(table["sound"].values())
assert caught == ["curlew", "fulmar", "jacana"]

# %% [markdown]
# Three birds of ten. Shuffling keys, the test that comes to mind first, catches one. No single
# test is enough, and none has to be: a list of eleven costs you an evening once.

# %% [markdown]
# ### Exercise: `broken_invariants`
#
# For each bird, which invariant does it break?
#
# - **Takes** nothing.
# - **Returns** a dict with the ten names of `BUGS` as keys and ids of `INVARIANTS` as values. A
#   bird may break several; name any one of them. Every right entry counts, so submit what you
#   have.
#
# You may read, and you should test: write the missing invariants as experiments in the cell below
# this text, with `fresh(name)` from above. All modules have `dropout=0` unless the invariant speaks of
# dropout. `scale_free` compares `attention_weights.log().std(-1)` for two sizes, say 4 and
# 256, with one head and standard normal queries and keys.
#
# **Worked example.** `module(q, k, 2 * v)` against `2 * module(q, k, v)` is `linear_in_values`.

# %% tags=["demo"]
sound = fresh("sound")
doubled = sound(queries, keys, 2 * values)
print("linear_in_values, sound:", torch.allclose(doubled, 2 * sound(queries, keys, values)))
assert torch.allclose(doubled, 2 * sound(queries, keys, values))

# %%
from course_lib.attention import broken_invariants

# %%
check("broken_invariants")

# %% [markdown]
# ### Written question: the colleague's loss curve
#
# A colleague sends you a new attention and a plot: "Trained on our data, the loss falls as with
# the old one, and the validation accuracy is the same. Ship it?"
#
# A person reads this one. In five to eight sentences: name two different reasons why a broken
# attention can train as well as a sound one, each with a bird. Name a situation after shipping in
# which one of these faults would hurt. Which two tests would you ask for first, and why those?

# %% [markdown] written="loss_proves_nothing"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **Why it trains.** Two different reasons, each with a bird that fits: the other layers learn
#    around the fault (`avocet`, `bittern`, `jacana`, `heron`; the projections make up for the scale
#    in `egret`); or the training data never touches it (no pads: `curlew`, `fulmar`, no empty
#    item: `ibis`; keys and values the same tensor: `dunlin`); or the metric is taken where it does
#    little harm (`grebe` with a small dropout). Half a point for one reason.
# 2. **When it hurts.** A concrete situation: batches with other padding than in training, an empty
#    document, cross-attention with values of their own, reproducing a prediction, loading weights
#    that another implementation trained, reading attention maps as explanations.
# 3. **Which tests.** Two tests with a reason that has to do with what they catch: for example
#    `masking_equals_deleting` because data has padding, and `items_apart` or `queries_apart`
#    because mixing leaks information. "The permutation test" alone earns half a point at most: it
#    catches one of ten.
# ### END SOLUTION

# %% [markdown]
# ## 4. Fix it
#
# *You know what fails. Where is the fault?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": (3, 4, 6), "keys": (3, 5, 6), "values": (3, 5, 6), "weighted sum": (3, 4, 6)}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# The birds had one fault each. Real modules have several, and one hides the other: after each
# repair, run the tests again. First a small cross-attention. Its values are not projected, so its
# outputs are averages of what you put in.

# %% tags=["demo"]
plotting.show_source(specimens.source(specimens.BrokenLookup))

# %% [markdown]
# Run the tests before you read on. What you should see: all three of yours pass, and two others
# fail. One fault hides another here; after the first repair more tests will fail, not fewer.

# %% tags=["demo"]
torch.manual_seed(6)
broken = specimens.BrokenLookup(6, 6, 8).double().eval()
broken(queries, keys, values, valid_lens)
sums = broken.attention_weights.sum(-1)
print("rows sum to 1:       ", torch.allclose(sums, torch.ones_like(sums)))
print("masking = deleting:  ", masking_equals_deleting(broken, queries, keys, values, valid_lens))
print("keys in any order:   ", keys_permutation_invariant(broken, queries, keys, values))
print("items apart:         ", batch_items_independent(broken, queries, keys, values, valid_lens))
dropping = specimens.BrokenLookup(6, 6, 8, dropout=0.5).double().eval()
repeats = torch.equal(dropping(queries, keys, values), dropping(queries, keys, values))
print("eval mode repeats:   ", repeats)
assert not repeats
assert masking_equals_deleting(broken, queries, keys, values, valid_lens)
assert not torch.allclose(sums, torch.ones_like(sums))

# %% [markdown]
# ### Exercise: `Lookup`
#
# `BrokenLookup` has four faults. Write the module as it should be; you may start from a copy.
#
# - **Built as** `Lookup(query_size, key_size, num_hiddens, dropout=0.0)` with layers `W_q` and
#   `W_k`, `nn.Linear` without bias, into `num_hiddens` features.
# - **Called as** `module(queries, keys, values, valid_lens=None)` with `queries` `(B, n, query_size)`,
#   `keys` `(B, m, key_size)`, `values` `(B, m, v)`; returns `(B, n, v)`.
# - `attention_weights` holds the weights `(B, n, m)`, before dropout and detached. An item of
#   length 0 gets zeros. Dropout acts on the weights, in train mode only. What is in padded keys
#   and values changes nothing, however large it is.
#
# **By hand.** With one real key every query gets that key's value, whatever the weights of the
# layers. `masked_softmax` is at hand.

# %%
from course_lib.attention import Lookup

# %%
check("Lookup")

# %% [markdown]
# ### One more: looking ahead
#
# A self-attention for generating text, with queries, keys and values from one matrix `W_qkv`. Four
# faults again. Lesson 06's `is_causal` finds that something looks ahead, but be careful: more than
# one of the faults does.

# %% tags=["demo"]
plotting.show_source(specimens.source(specimens.BrokenCausalSelfAttention))
torch.manual_seed(7)
broken = specimens.BrokenCausalSelfAttention(6, 2).double().eval()
x = torch.randn(2, 5, 6, dtype=torch.float64)
print()
print("is_causal:", is_causal(broken, x))
print("nan for an item of length 0:", broken(x, torch.tensor([0, 5]))[0].isnan().any().item())
assert not is_causal(broken, x)

# %% [markdown]
# ### Exercise: `CausalSelfAttention`
#
# - **Built as** `CausalSelfAttention(embed_dim, num_heads)` with `W_qkv`, `nn.Linear` from
#   `embed_dim` to `3 * embed_dim`, and `W_o`, both without bias. The first third of the outputs of
#   `W_qkv` are the queries, the second the keys, the third the values; each is cut into heads as in
#   lesson 06.
# - **Called as** `module(x, valid_lens=None)` with `x` `(B, n, embed_dim)` and `valid_lens` `(B,)`;
#   returns `(B, n, embed_dim)`. Position $i$ attends to the real positions $j \le i$.
# - `attention_weights` holds the weights `(B, h, n, n)`, detached. An item of length 0 gets zeros.
#
# **Worked number.** The first position sees itself only: its row of weights is $(1, 0, 0, \dots)$ in
# every head. `split_heads`, `merge_heads`, `causal_mask` and `masked_softmax` are at hand.

# %%
from course_lib.attention import CausalSelfAttention

# %%
check("CausalSelfAttention")

# %% [markdown]
# ### Look at it
#
# What you should see: nothing above the diagonal, in either head.

# %% tags=["demo"]
torch.manual_seed(8)
fixed = CausalSelfAttention(6, 2).double().eval()
fixed(x)
maps = fixed.attention_weights[0]
past = causal_mask(5)
plotting.show(
    plotting.heatmap_grid(
        {"head 0": maps[0], "head 1": maps[1]}, masks={"head 0": past, "head 1": past}, columns=2
    )
)
assert is_causal(fixed, x)
assert not maps[:, ~past].any()
assert not fixed(x, torch.tensor([0, 5]))[0].any()

# %% [markdown]
# ### All together
#
# Your three tests and your `Lookup`, side by side: the tests should pass your module, and each one
# should still catch the bird it caught above. It needs the checks above to have seen your cells in
# this session.

# %%
check("07_bug_hunt")

# %% [markdown]
# ## Summary
#
# One block of attention learns to reverse a sequence and to look something up within a few hundred
# steps, and its maps show how. Ten broken modules learn the reversal as well as it does: a network learns
# around its faults, and many faults wait for data that training does not have. So test what must
# hold whatever the weights: call, change one thing, call again, compare. Use sizes and lengths that
# differ, look at every item, and keep the tests next to the module; they will serve the next one.
#
# ## Further exercises
#
# 1. **The other eight.** Turn the remaining invariants into functions as well, and let all of them
#    run over `MultiHeadAttention` and `nn.MultiheadAttention`.
# 2. **Catch it by training.** Design a task on which `dunlin` cannot learn. What does it need that
#    reversal and retrieval do not have?
# 3. **Your own bird.** Write an eleventh module that breaks none of the listed invariants and is
#    still wrong. Which invariant would you add?
# 4. **Half precision.** Which tests need another tolerance in bfloat16, and how large is it for a
#    sound module?
#
# ## References
#
# - A. Vaswani and others, *Attention Is All You Need*, 2017. <https://arxiv.org/abs/1706.03762>
# - M. T. Ribeiro and others, *Beyond Accuracy: Behavioral Testing of NLP Models with CheckList*,
#   2020: invariance tests where accuracy says too little. <https://arxiv.org/abs/2005.04118>
# - S. Jain and B. C. Wallace, *Attention is not Explanation*, 2019.
#   <https://arxiv.org/abs/1902.10186>
# - PyTorch, `torch.testing.assert_close` and tolerances.
#   <https://docs.pytorch.org/docs/stable/testing.html>
