# %% [markdown]
# # 07 · Bug hunt: does it learn, and would you notice?
#
# **The question.** You wrote an attention, the loss falls, the accuracy is 100 %. Is the module
# right? Ten black boxes wait below. Each is an attention with one fault, and you may train it, test
# it and look at what it returns before you see a line of its code.
#
# **After this you can**
#
# - train a block of attention on small tasks and read the maps it learns;
# - say why a falling loss proves nothing about the code beneath it, and which loss proves a bug;
# - turn "what must always hold" into tests that tell a sound module from a broken one;
# - find the fault in a module from the invariant it breaks, and fix it.
#
# **Time:** {time}. **You need:** lessons 02 and 06; the course's versions of their
# exercises are at hand.

# %%
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.checks.observe.lessons import broken_modules as specimens
from course_lib.checks.observe.lessons.broken_modules import BUGS, INVARIANTS
from course_lib.notebook.hunt import diagnose, diagnoses

causal_mask, masked_softmax = carry_on("causal_mask", "masked_softmax")
split_heads, merge_heads, MultiHeadAttention, is_causal = carry_on(
    "split_heads", "merge_heads", "MultiHeadAttention", "is_causal"
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # these problems are too small to share out
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## 1. A block that learns
#
# *What does training show of an attention that is right?*

# %% tags=["demo", "hide-input"]
lit = "first add", "feed-forward", "second add"
shapes = {"inputs": (64, 8, 32), "outputs": (64, 8, 32), "second add": (64, 8, 32)}
plotting.show(plotting.diagram("block", lit=lit, shapes=shapes))

# %% [markdown]
# A *block* is attention plus a small network at each position, each added to what came in, so that
# each only has to find what is missing:
#
# $$x \leftarrow x + \text{attention}(x), \qquad x \leftarrow x + \text{MLP}(x), \qquad x \in \mathbb{R}^{B \times n \times D}.$$
#
# (The map's *norm* comes in lesson 09.) Attention alone does not know where a
# position is (lesson 06), so the block adds a learned vector to each. It takes the attention as
# an argument: any module with the interface of `MultiHeadAttention` will do, a broken one too.


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
# **Reversal.** The input is a sequence of 8 symbols, the target the same sequence backwards:
#
# | position | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | input | C | A | A | D |
# | target | D | A | A | C |
#
# The training loop holds nothing you have not seen: fresh sequences at every step, cross-entropy,
# Adam. A bar moves while it runs and is gone afterwards.


# %% tags=["demo"]
def reversal(batch, generator, n=8):
    symbols = torch.randint(NUM_SYMBOLS, (batch, n), generator=generator)
    return (F.one_hot(symbols, NUM_SYMBOLS).float(),), symbols.flip(1)


def batch_of(task, size, generator):
    inputs, target = task(size, generator)
    return [x.to(device) for x in inputs], target.to(device)


def train(model, task, num_steps, label="training"):
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(model.to(device).parameters(), lr=0.01)
    losses = []
    for _ in plotting.progress(num_steps, label):
        inputs, target = batch_of(task, 64, generator)
        loss = F.cross_entropy(model(*inputs).flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    model.eval()
    return torch.stack(losses).cpu()


def accuracy(model, task):
    inputs, target = batch_of(task, 500, torch.Generator().manual_seed(2))
    with torch.no_grad():
        return (model(*inputs).argmax(-1) == target).float().mean().item()


# %% [markdown]
# **Predict.** The loss of guessing among 8 symbols is $\ln 8 = 2.08$. Where does it end? And which
# key must query $i$ look at?

# %% tags=["demo", "nbval-ignore-output"]
torch.manual_seed(0)
reverser = Block(MultiHeadAttention(32, 2))
losses = train(reverser, reversal, 100, "reversal")
print(f"loss of the first step {losses[0]:.2f}, of the last ten {losses[-10:].mean():.2f}")
print(f"{accuracy(reverser, reversal):.1%} of unseen symbols right")
assert losses[0] > 1.5 > 0.2 > losses[-10:].mean()


def head_maps(model, inputs):
    with torch.no_grad():
        model(*inputs)
    return model.attention.attention_weights.cpu()  # (batch, num_heads, n, m)


inputs, _ = batch_of(reversal, 1, torch.Generator().manual_seed(3))
weights = head_maps(reverser, inputs)[0]
panels = {"head 0": weights[0], "head 1": weights[1], "average": weights.mean(0)}
plotting.show(plotting.heatmap_grid(panels), key="reversal")
assert weights.mean(0).argmax(-1).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]

# %% [markdown]
# <details><summary>Answer</summary>
#
# Query $i$ looks at key $7 - i$: the antidiagonal, in one head or shared between the two, whatever
# the symbols are. The loss ends near 0.
#
# </details>

# %% [markdown]
# ## 2. Ten black boxes
#
# *What does training tell you about broken modules?*

# %% tags=["demo", "hide-input"]
lit = "split heads", "scores", "mask", "softmax", "weighted sum", "merge heads"
shapes = {"queries": (64, 8, 32), "head queries": (64, 2, 8, 16), "outputs": (64, 8, 32)}
plotting.show(plotting.diagram_strip("heads", lit=lit, shapes=shapes))

# %% [markdown]
# The boxes are `BUGS["avocet"]` to `BUGS["jacana"]`, named after birds so that their names give
# nothing away. Each is built and called like `MultiHeadAttention` and has a single fault, of a kind
# that lessons 02 to 06 warn of. Nothing stops you from peeking: `BUGS["curlew"]??` would print its source.
# Resist, because the point is to find the fault from outside. A box opens once you have named its fault.
# `Sound`, which is correct, is there to compare with.
#
# **Predict.** Put each into the block and train it on reversal, with a dropout of 0.1. How many of
# the ten get more than 95 % of the symbols right?


# %% tags=["demo", "nbval-ignore-output"]
def attention_named(name, dropout=0.0):
    kind = specimens.Sound if name == "sound" else BUGS[name]
    torch.manual_seed(0)
    return kind(32, 2, dropout=dropout)


def accuracies(model_of, task):
    found = {}
    for name in ("sound", *BUGS):
        model = model_of(attention_named(name, dropout=0.1))
        train(model, task, 100, name)
        found[name] = accuracy(model, task)
        print(f"{name:8} {found[name]:.0%}")
    return found


reverses = accuracies(Block, reversal)

# %% [markdown]
# <details><summary>Answer</summary>
#
# All ten do. Reversal has no padding and no mask, and its queries, keys and values are one tensor, so some
# faults are never executed. Others are, and the layers around them learn to compensate.
#
# </details>

# %% [markdown]
# ### Data on which faults act
#
# Now each item is a *directory* of names with entries. Queries ask for names, keys are names, and values
# are entries, and only the attention connects them. A directory holds two to six names. The remaining
# positions are padding, filled with leftovers from other directories.


# %% tags=["demo", "nbval-ignore-output"]
class Directory(nn.Module):
    def __init__(self, attention, embed_dim=32):
        super().__init__()
        self.embed = nn.ModuleList(nn.Linear(NUM_SYMBOLS, embed_dim) for _ in range(3))
        self.attention = attention
        self.head = nn.Linear(embed_dim, NUM_SYMBOLS)

    def forward(self, asked, names, entries, valid_lens):
        given = (layer(x) for layer, x in zip(self.embed, (asked, names, entries), strict=True))
        return self.head(self.attention(*given, valid_lens))


def directory(batch, generator, m=6, num_queries=4):
    lens = torch.randint(2, m + 1, (batch,), generator=generator)
    names = torch.rand(batch, NUM_SYMBOLS, generator=generator).argsort(1)[:, :m]
    pads = torch.randint(NUM_SYMBOLS, (batch, m), generator=generator)
    names = torch.where(torch.arange(m) < lens[:, None], names, pads)
    entries = torch.randint(NUM_SYMBOLS, (batch, m), generator=generator)
    wanted = torch.rand(batch, num_queries, generator=generator) * lens[:, None]
    asked, answer = (x.gather(1, wanted.long()) for x in (names, entries))
    asked, names, entries = (F.one_hot(x, NUM_SYMBOLS).float() for x in (asked, names, entries))
    return (asked, names, entries, lens), answer


assert min(reverses.values()) > 0.95  # all ten learn the reversal
finds = accuracies(Directory, directory)

# %% [markdown]
# **Think.** A blind guess is correct in one case of eight. One box does no better, although it learned
# the reversal perfectly. What might it never be looking at?
#
# Five boxes get less than 97.5 % right. Without the numbers of `Sound` beside them, none of these
# results would tell you so. A loss that stays high looks the same for a bug, a bad learning rate and a
# hard task.
#
# ### A loss that is too good
#
# There is one loss that proves a bug. Throw a die with eight faces, and let the block predict the
# *next* throw with a causal mask.
#
# **Predict.** Below which loss must the model be cheating?


# %% tags=["demo", "nbval-ignore-output"]
def throws(batch, generator, n=8):
    faces = torch.randint(NUM_SYMBOLS, (batch, n + 1), generator=generator)
    return (F.one_hot(faces[:, :-1], NUM_SYMBOLS).float(), causal_mask(n)), faces[:, 1:]


failed = [name for name, right in finds.items() if right < 0.975]
assert failed == ["avocet", "bittern", "dunlin", "fulmar", "jacana"] and finds["dunlin"] < 0.2

losses = {name: train(Block(attention_named(name)), throws, 50, name) for name in finds}
last = {name: values[-5:].mean().item() for name, values in losses.items()}
print(*(f"{name:8} {loss:.2f}" for name, loss in last.items()), sep="\n")
leaking = [name for name, loss in last.items() if loss < math.log(8) - 0.03]
shown = {name: losses[name].reshape(10, -1).mean(1) for name in ("sound", *leaking)}
steps = torch.arange(5, 51, 5)
plotting.show(plotting.lines(steps, shown, x_label="step", y_label="loss"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nothing can predict a fair die, so no model has an expected loss below its entropy, $\ln 8$. Each
# batch is new, so the model cannot have memorized it either. Four boxes are below $\ln 8$ within 50
# steps, three of them far, and `avocet` by less, but by more than chance allows in so many throws. They
# are broken. To prove it, you needed neither an accuracy nor a second model: some position sees what
# comes after it.
#
# </details>
#
# `curlew`, which fills the directory without a mistake, is caught here. Four boxes have passed all
# three: `egret`, `grebe`, `heron` and `ibis`.

# %% [markdown]
# ## 3. What must always hold
#
# *If the loss does not reveal a bug, what does?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (3, 4, 6), "keys": (3, 14, 6), "values": (3, 14, 6), "outputs": (3, 4, 6)}
plotting.show(plotting.diagram_strip("heads", lit="outputs", shapes=shapes))

# %% [markdown]
# An *invariant* is a property of every correct implementation, whatever its weights. Each one is a small
# experiment: call the module, change one thing that should not matter (or should matter in a known way),
# call it again, and compare. This takes no training, no expected numbers, and only milliseconds.

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
# attention you write later. Who tests the tests? The check hands each of them some fifty hidden
# modules, broken and right, and counts how many of the broken ones it reveals and how many of the
# right ones it accuses.

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
# Reversing keeps the middle in the middle, and a rotation keeps neighbors together (in a circle). A
# module that prefers the middle, or looks at neighbors, passes. Swapping two neighbors, for every pair
# of neighbors, lets little through. It is not a proof, though. All orders are composed of such swaps, but
# the second swap of a composition starts from keys that are already swapped. Add a few random orders.
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
# - **Returns** a Python `bool`: True if every item has the same output alone as in the batch.
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
# ### Your tests against the boxes
#
# Lesson 00's numerals are the batch: *drei*, *dreizehn* and *dreiundvierzig*, of 4, 8 and 14
# letters, in which four queries look for something. **Predict.** Which column says yes everywhere?
# Which boxes get a yes in every column?


# %% tags=["demo", "nbval-ignore-output"]
def fresh(name, embed_dim=6, num_heads=2):
    kind = specimens.Sound if name == "sound" else BUGS[name]
    torch.manual_seed(4)
    return kind(embed_dim, num_heads).double().eval()


numerals = ("drei", "dreizehn", "dreiundvierzig")
valid_lens = torch.tensor([len(word) for word in numerals])
letters = torch.tensor([[ord(c) - ord("a") for c in word.ljust(14, "x")] for word in numerals])
generator = torch.Generator().manual_seed(0)
tables = torch.randn(2, 26, 6, generator=generator, dtype=torch.float64)
keys, values = tables[0][letters], tables[1][letters]  # (3, 14, 6)
queries = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)

inputs = queries, keys, values
table = {
    name: {
        "reversal learned": reverses[name] > 0.95,
        "directory learned": name not in failed,
        "nothing leaks": name not in leaking,
        "masking = deleting": masking_equals_deleting(fresh(name), *inputs, valid_lens),
        "keys permutation": keys_permutation_invariant(fresh(name), *inputs),
        "items apart": batch_items_independent(fresh(name), *inputs, valid_lens),
    }
    for name in finds
}
assert leaking == ["avocet", "bittern", "curlew", "jacana"]
plotting.show(plotting.verdicts(table, title="What training says, and what three tests say"))

# %% [markdown]
# <details><summary>Answer</summary>
#
# `reversal learned`. The other columns say no for one to five boxes each, and four boxes pass all
# six: `egret`, `grebe`, `heron` and `ibis`. Training says at best that something is wrong; a test
# says what, in milliseconds. No single test is enough, and none has to be: a list of eleven costs
# you an evening once.
#
# </details>

# %% [markdown]
# ### Open the boxes
#
# A right diagnosis opens a box and shows how it differs from `Sound`; a wrong one names what would be
# evidence of it. Nothing here is graded. (What the boxes inherit, `split`, `merge`, `allowed` and
# `softmax`, is right.)

# %% tags=["demo"]
diagnoses()

# %% [markdown]
# Take `jacana`, which notices the order of its keys. Are its heads to blame? Here it is beside
# `Sound`, both with the same layers, with one head and with two. The first guess is wrong, and the
# answer says what would be evidence of it.

# %% tags=["demo"]
for num_heads in (1, 2):
    sound, box = fresh("sound", num_heads=num_heads), fresh("jacana", num_heads=num_heads)
    gap = (box(*inputs) - sound(*inputs)).abs().max()
    weights = (box.attention_weights - sound.attention_weights).abs().max()
    print(f"heads {num_heads}: weights up to {weights:.2f} apart, outputs up to {gap:.2f}")
diagnose("jacana", 2)

# %% tags=["demo"]
caught = [name for name, row in table.items() if not all(list(row.values())[3:])]
assert caught == ["curlew", "fulmar", "jacana"] and all(table["sound"].values())
diagnose("jacana", 3)

# %% [markdown]
# **Your turn** with `curlew` and `fulmar`, which your tests reveal as well: first the experiment,
# then the number in place of the 7, which is only a guess. The other boxes wait for the invariants
# that you have no test of yet.

# %% tags=["demo"]
diagnose("curlew", 7)

# %% [markdown]
# ### Exercise: `broken_invariants`
#
# Which invariant does each box break? Your findings are also evidence for `diagnose`.
#
# - **Takes** nothing.
# - **Returns** a dict with the ten names of `BUGS` as keys and ids of `INVARIANTS` as values. A
#   box may break several; name any one of them. The entries count in three groups of three or
#   four boxes, each as a whole: your tests tell you which entry is right, the points do not.
#
# Each invariant is an experiment: write the missing ones in the cell below this text, with
# `fresh(name)` from above. All modules have `dropout=0` unless the invariant speaks of
# dropout. `scale_free` compares `attention_weights.log().std(-1)` for two sizes, say 4 and
# 256, with one head and standard normal queries and keys.
#
# **Worked example.** `module(q, k, 2 * v)` against `2 * module(q, k, v)` is `linear_in_values`.

# %% tags=["demo"]
sound = fresh("sound")
gap = (sound(queries, keys, 2 * values) - 2 * sound(queries, keys, values)).abs().max()
print(f"linear_in_values: sound is off by {gap:.0e}")
assert gap < 1e-12

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
# A person, not a program, grades this question. In five to eight sentences, name two different reasons
# why a broken attention can train as well as a sound one, each with a box. Name a situation after
# shipping in which one of these faults would hurt. Which two tests would you ask for first, and why?

# %% [markdown] written="loss_proves_nothing"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each part; half points are possible.
#
# 1. **Why it trains.** Two different reasons, each with a box that fits: the other layers learn
#    around the fault (on reversal `avocet`, `bittern`, `jacana`; anywhere `heron`; the projections
#    make up for the scale in `egret`); or the training data never touches it (no pads: `curlew`,
#    `fulmar`, no empty item: `ibis`; keys and values the same tensor: `dunlin`); or the metric is taken where it does
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
shapes = {"queries": (3, 4, 6), "keys": (3, 14, 6), "values": (3, 14, 6)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# The boxes have one fault each. Real modules have several, and one hides the other: after each
# repair, run the tests again. First a small cross-attention. Its values are not projected, so its
# outputs are averages of what you put in.

# %% tags=["demo"]
plotting.show_source(specimens.source(specimens.BrokenLookup))

# %% [markdown]
# Run the tests before you read on.

# %% tags=["demo"]
torch.manual_seed(6)
broken = specimens.BrokenLookup(6, 6, 8).double().eval()
broken(queries, keys, values, valid_lens)
sums = broken.attention_weights.sum(-1)
print(f"rows sum to:          {sums.min():.2f} to {sums.max():.2f}")
print("masking = deleting:  ", masking_equals_deleting(broken, queries, keys, values, valid_lens))
print("keys in any order:   ", keys_permutation_invariant(broken, queries, keys, values))
print("items apart:         ", batch_items_independent(broken, queries, keys, values, valid_lens))
dropping = specimens.BrokenLookup(6, 6, 8, dropout=0.5).double().eval()
gap = (dropping(queries, keys, values) - dropping(queries, keys, values)).abs().max()
print(f"two calls, eval mode: {gap:.2f} apart")
assert gap > 0.01
assert masking_equals_deleting(broken, queries, keys, values, valid_lens)
assert not torch.allclose(sums, torch.ones_like(sums))

# %% [markdown]
# <details><summary>Answer</summary>
#
# All three of your tests pass. Two other invariants fail, `rows_sum_to_one` and `eval_repeats`. One fault
# hides another here, so after the first repair more tests will fail, not fewer.
#
# </details>

# %% [markdown]
# ### Exercise: `Lookup`
#
# `BrokenLookup` has four faults. Write the module as it should be; you may start from a copy.
#
# - **Built as** `Lookup(query_size, key_size, num_hiddens, dropout=0.0)` with layers `W_q` and
#   `W_k`, `nn.Linear` without bias, into `num_hiddens` features. Pass the keyword arguments `device=None`
#   and `dtype=None` on to each layer, as in lesson 04.
# - **Called as** `module(queries, keys, values, valid_lens=None)` with `queries` `(B, n, query_size)`,
#   `keys` `(B, m, key_size)`, `values` `(B, m, v)`; returns `(B, n, v)`.
# - `attention_weights` holds the weights `(B, n, m)`, before dropout and detached. An item of
#   length 0 gets zeros. Dropout acts on the weights, in train mode only. Padded keys and
#   values have no effect, whatever they contain.
#
# **By hand.** With one real key every query gets that key's value, whatever the weights of the
# layers. You can call `masked_softmax`.

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
empty = broken(x, torch.tensor([0, 5]))[0]
print(f"is_causal: {is_causal(broken, x)}; {empty.isnan().sum()} of {empty.numel()} outputs of an")
print("item of length 0 are nan")
assert not is_causal(broken, x)

# %% [markdown]
# ### Exercise: `CausalSelfAttention`
#
# - **Built as** `CausalSelfAttention(embed_dim, num_heads)` with `W_qkv`, `nn.Linear` from
#   `embed_dim` to `3 * embed_dim`, and `W_o`, both without bias. The first third of the outputs of
#   `W_qkv` are the queries, the second the keys, the third the values; each is cut into heads as in
#   lesson 06. Pass the keyword arguments `device=None` and `dtype=None` on to both layers, as in
#   lesson 04.
# - **Called as** `module(x, valid_lens=None)` with `x` `(B, n, embed_dim)` and `valid_lens` `(B,)`;
#   returns `(B, n, embed_dim)`. Position $i$ attends to the real positions $j \le i$.
# - `attention_weights` holds the weights `(B, h, n, n)`, detached. An item of length 0 gets zeros.
#
# **Worked number.** The first position sees only itself, so its row of weights is $(1, 0, 0, \dots)$ in
# every head. You can call `split_heads`, `merge_heads`, `causal_mask` and `masked_softmax`.

# %%
from course_lib.attention import CausalSelfAttention

# %%
check("CausalSelfAttention")

# %% [markdown]
# ### Look at it
#
# The weights of both heads, with the future hatched.

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
# <details><summary>Answer</summary>
#
# Nothing above the diagonal, in either head.
#
# </details>

# %% [markdown]
# ### All together
#
# This check combines your three tests and your `Lookup`. The tests should pass your module, and each of
# them should still reveal a box. Run the checks above first.

# %%
check("07_bug_hunt")

# %% [markdown]
# ## Summary
#
# A block of attention learns to reverse a sequence, and ten broken ones learn it as well. Some faults
# appear only on data that training does not contain, and other layers learn to compensate for the rest. A
# loss that is too *good* proves a bug, because nothing can predict a fair die. For everything else, test
# what must hold whatever the weights are. Use sizes and lengths that differ, look at every item, and keep
# the tests next to the module. They will serve the next one.
#
# ## Further exercises ★
#
# 1. **The other eight.** Turn the remaining invariants into functions as well, and let all of them
#    run over `MultiHeadAttention` and `nn.MultiheadAttention`.
# 2. **Catch it by training.** `egret`, `grebe`, `heron` and `ibis` pass all three trainings. For one
#    of them, design data on which it does visibly worse than `Sound`.
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
# - PyTorch, `torch.testing.assert_close` and tolerances.
#   <https://docs.pytorch.org/docs/stable/testing.html>
