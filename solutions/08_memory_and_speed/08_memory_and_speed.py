# %% [markdown]
# # 08 · Memory and speed
#
# **The question.** Attention weighs every position against every other: a text of 100,000 words has
# ten billion weights in each head. Models read such texts. Where do they put the weights?
#
# **After this you can**
#
# - measure what an attention costs, in bytes and in seconds, before you change anything;
# - compute a softmax over numbers that are never all in memory at once;
# - write attention, forward and backward, whose memory grows with $n + m$ instead of $n m$;
# - ask torch which kernel it takes, and find out what a piece of code waits for.
#
# **Time:** {time}. **You need:** a stable softmax and masks (lesson 02), additive scores (lesson 04),
# the backward pass of attention (lesson 05).

# %%
import math
import time
import warnings
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_lib import carry_on, check, hint, plotting
from course_lib.checks.observe.cost_meter import Spending
from course_lib.models.numerals import Numerals

causal_mask, length_mask, additive_scores, scaled_dot_product_attention = carry_on(
    "causal_mask", "length_mask", "additive_scores", "scaled_dot_product_attention"
)

torch.set_num_threads(1)  # one thread everywhere, so that times can be compared
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## Words and shapes

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(..., n, d)", "keys": "(..., m, d)", "values": "(..., m, v)"}
plotting.show(plotting.diagram("attention", shapes=shapes | {"scores": "(..., n, m)"}))

# %% [markdown]
# | letter | counts | | name | shape |
# |---|---|---|---|---|
# | `n`, `m` | queries, keys | | `queries`, `keys`, `values` | `(..., n, d)`, `(..., m, d)`, `(..., m, v)` |
# | `d`, `v` | features of a key, of a value | | scores $S$, weights $W$ | `(..., n, m)` |
# | `b` | keys in a *block* | | scores of a block | `(..., n, b)` |
# | `H` | hidden features | | `logsumexp` $L$ | `(..., n)` |

# %% [markdown]
# ## 1. Measure first
#
# *What does the attention of lesson 05 cost?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1024, 64), "keys": (1024, 64), "attention weights": (1024, 1024)}
plotting.show(
    plotting.diagram_strip("attention", lit=("scores", "attention weights"), shapes=shapes)
)

# %% [markdown]
# The meter below counts bytes, as the checks of this lesson do: how many are in use at once besides
# the inputs (the *peak*), and how many stay in use after the forward pass because the backward pass
# will need them (*kept*).
#
# **Predict.** For the 14 letters of *dreiundvierzig*: which is larger, the three inputs with 64 features
# each, or the weights? And for a page of 1,024 letters, how many matrices as large as the weights are
# in memory at the peak?


# %% tags=["demo"]
def kibibytes(fn, *inputs, train=False):
    """(kept, peak) of one call, and of its backward pass if `train`."""
    inputs = [x.detach().requires_grad_(train) for x in inputs]
    with Spending(inputs) as spent:
        outputs = fn(*inputs)
        kept = spent.alive()
        if train:
            torch.autograd.grad(outputs.sum(), inputs)
    return kept / 1024, spent.peak / 1024


def plain(queries, keys, values):
    return scaled_dot_product_attention(queries, keys, values)[0]


def draw(n, *batch, d=64, v=64):
    generator = torch.Generator().manual_seed(0)
    sizes = (n, d), (n, d), (n, v)
    return [torch.randn(*batch, *size, generator=generator) for size in sizes]


print("      n     inputs    weights       kept       peak   KiB, one head")
for n in (14, 1024):
    kept, peak = kibibytes(plain, *draw(n), train=True)
    print(f"{n:7,}{3 * n * 64 / 256:11,.1f}{n * n / 256:11,.1f}{kept:11,.1f}{peak:11,.1f}")
assert 3 < peak / (n * n / 256) < 4

# %% [markdown]
# <details><summary>Answer</summary>
#
# For a word the weights are a fourteenth of the inputs: not worth your time. For a page they are five
# times as large, and at the peak there are three such matrices: the weights, their gradient, and the
# gradient of the scores. One is kept for the backward pass.
#
# </details>
#
# **Predict.** A chapter has 16,384 letters. How much memory do the weights of one head take?
#
# <details><summary>Answer</summary>
#
# $16384^2 \cdot 4$ bytes are 1 GiB, and the peak is three times that. You can wait for time; memory
# runs out.
#
# </details>
#
# That is what *training* costs. A model that writes pays for the keys and values of its past: see the
# cache and the grouped queries of lesson 10.
#
# Could one do it in pieces? The softmax is in the way: a weight needs the sum over its whole row. Or
# does it?

# %% [markdown]
# ## 2. A softmax that does not wait
#
# *The scores of a row arrive one block at a time, and none comes again. What do you have to
# remember?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (1, 8), "mask": (1, 8), "softmax": (1, 8)}
plotting.show(plotting.diagram_strip("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# A weight is $e^{s_j - c} / \sum_k e^{s_k - c}$, for any $c$; lesson 02 took the largest score for $c$,
# so that nothing overflows. You want two numbers: the largest score $c$ and the sum $t$.
#
# **By hand.** Scores $1, 0$, and then $2$. After the first two $c = 1$ and $t = e^0 + e^{-1} = 1.3679$. In
# the end $c = 2$ and $t = e^{-1} + e^{-2} + e^0 = 1.5032$.
#
# **Predict.** The scores 1 and 0 are gone; you have $c = 1$, $t = 1.3679$ and the new score 2. How do you
# get 1.5032? In the longer row below, a sum that only adds goes wrong: in which block?

# %% tags=["demo"]
row = torch.tensor([1.0, 0.5, 2.0, 0.0, 3.0, 1.5, 2.5, 0.5])
sums, seen, added = {"correct": [], "never rescaled": []}, 0, 0.0
for block in row.split(3):
    seen += len(block)
    largest = row[:seen].max()
    added += (block - largest).exp().sum().item()
    sums["correct"].append((row[:seen] - largest).exp().sum().item())
    sums["never rescaled"].append(added)
    print(f"block {block.tolist()}: the maximum so far is {largest:.0f}")
plotting.show(plotting.bars({"sum t after each block": sums}, x_label="block"))
assert sums["never rescaled"][1] - sums["correct"][1] > 0.9

# %% [markdown]
# <details><summary>Answer</summary>
#
# In block 1, where the maximum rises from 2 to 3, the sum that is never rescaled goes wrong. It stays
# wrong. Its old terms were all shifted by the same wrong number, so *one* factor corrects them:
# $1.3679 \cdot e^{1 - 2} = 0.5032$, and the new score adds 1.
#
# </details>
#
# This is the *online softmax* (Milakov and Gimelshein, 2018).
#
# **Predict.** A block holds nothing but $-\infty$ for a row (all its keys are masked), and so did
# the blocks before it. What is $e^{s - c}$?
#
# <details><summary>Answer</summary>
#
# $c = -\infty$, and $-\infty - (-\infty)$ is nan. One nan in the sum stays there, even if the next
# block brings ordinary scores.
#
# </details>

# %% [markdown]
# ### Exercise: `softmax_statistics`
#
# - **Takes** `blocks`, which gives tensors `(..., b)` one after the other, each once (a generator, for
#   example). At least one; their sizes `b` may differ; scores may be $-\infty$.
# - **Returns** `(maxima, totals)`, each `(...)`: for every row the largest score $c$, and
#   $\sum_k e^{s_k - c}$. A row of nothing but $-\infty$ has $-\infty$ and 0.
# - **Keeps** no block: the check counts bytes.
#
# **Worked number.** Blocks `[[1, 0]]` and `[[2]]` give `[2]` and `[1.5032]`.

# %%
from course_lib.attention import softmax_statistics

# %%
check("softmax_statistics")

# %% [markdown]
# ## 3. Attention in blocks
#
# *You can keep the sum up to date. Can you keep the outputs?*

# %% tags=["demo", "hide-input"]
lit = "scores", "softmax", "weighted sum"
shapes = {"queries": (1, 1), "keys": (3, 1), "values": (3, 1), "weighted sum": (1, 1)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# An output is a sum of values, each times $e^{s_j - c}$, divided by $t$. Leave the division to the end.
# What remains, $O = \sum_j e^{s_j - c}\, v_j$, is one more sum in which every term is shifted by $c$.
#
# **By hand.** The scores $1, 0 \mid 2$ again, with the values $1, 3 \mid 5$:
#
# | | $c$ | $t$ | $O$ |
# |---|---|---|---|
# | block 0 | 1 | 1.3679 | $1 \cdot 1 + 0.3679 \cdot 3 = 2.1036$ |
# | block 1 | 2 | 1.5032 | $0.3679 \cdot 2.1036 + 1 \cdot 5 = 5.7739$ |
#
# The output is $5.7739 / 1.5032 = 3.8411$. As a by-product you know $L = c + \ln t = 2.4076$, the
# logarithm of the sum of the exponentials: *log sum exp*. Section 4 will want it.
#
# **Predict.** The longer row with the values 1 to 8, a block at a time. Before you move the slider: at
# which step is what came before multiplied by less than 1?


# %% tags=["demo"]
def draw_blocks(blocks):
    return plotting.online_softmax(row, torch.arange(1.0, 9.0), 3, blocks)


plotting.interactive(draw_blocks, blocks=range(4))

# %% [markdown]
# <details><summary>Answer</summary>
#
# At the second, where the maximum rises from 2 to 3: the factor is $e^{-1} = 0.37$. The third block
# raises nothing.
#
# </details>
#
# With many queries there are two loops, one over blocks of queries and one over blocks of keys. On a
# GPU the slow memory below is its HBM, the fast memory the SRAM of each processor on the chip. Step
# through: what is in fast memory, and what is nowhere?


# %% tags=["demo"]
def draw_tiles(step):
    return plotting.tiles(3, 4, step)


plotting.interactive(draw_tiles, step=range(13))

# %% [markdown]
# The scores are nowhere, except for one tile at a time.

# %% [markdown]
# ### Exercise: `blocked_attention`
#
# - **Takes** `queries` `(..., n, d)`, `keys` `(..., m, d)`, `values` `(..., m, v)`; `mask`, True = may
#   attend, broadcastable to `(..., n, m)`, or None; `block_size`, at least 1. A mask may have a single
#   column, which then stands for all keys.
# - **Returns** `(outputs, logsumexp)`, `(..., n, v)` and `(..., n)`. A query that may attend to no key
#   gets zeros and $-\infty$, and its gradient is 0.
# - **Never** has the scores of all queries and all keys in memory, in one piece or in several.
#   Gradients reach queries, keys and values. `F.scaled_dot_product_attention` is left out here.
#
# One loop, over blocks of keys, is enough. The last block may be a short one.
#
# **Worked number.** For $d = 1$, one query 1, keys 1, 0, 2 and values 1, 3, 5 the table above: 3.8411
# and 2.4076, for any block size, 1 or 2 or 128.

# %%
from course_lib.attention import blocked_attention

# %%
check("blocked_attention")

# %% [markdown]
# A batch of numerals, padded to 14 letters, in blocks of four: for *drei* all blocks but the first are
# padding, and *dreizehn* fills exactly two. Then the page of section 1.
#
# **Predict.** In blocks of 128, how much lower is the peak of a page? And for training, is more kept than
# the plain way keeps, or less?


# %% tags=["demo"]
def blocked(queries, keys, values):
    return blocked_attention(queries, keys, values, None, 128)[0]


numerals = ("drei", "dreizehn", "dreiundvierzig")
valid_lens = torch.tensor([len(text) for text in numerals])
letters = [Numerals().source_ids(text) for text in numerals]
padded = nn.utils.rnn.pad_sequence(letters, batch_first=True)  # (3, 14)
x = 0.3 * torch.randn(100, 64, generator=torch.Generator().manual_seed(0))[padded]  # (3, 14, 64)
ours, _ = blocked_attention(x, x, x, length_mask(valid_lens, 14)[:, None], block_size=4)
theirs, _ = scaled_dot_product_attention(x, x, x, valid_lens)
for text, in_blocks, at_once in zip(numerals, ours[:, 0, 0], theirs[:, 0, 0], strict=True):
    print(f"{text:15}in blocks {in_blocks:6.3f}, at once {at_once:6.3f}")
assert torch.allclose(ours, theirs, atol=1e-5)

page = {}
for name, way in {"plain": plain, "blocked": blocked}.items():
    _, forward = kibibytes(way, *draw(1024))
    kept, peak = page[name] = kibibytes(way, *draw(1024), train=True)
    print(f"{name:8} forward {forward:7,.0f} KiB;  training: kept {kept:6,.0f}, peak {peak:6,.0f}")
assert page["blocked"][0] > page["plain"][0]

# %% [markdown]
# <details><summary>Answer</summary>
#
# The forward pass needs less than a third. But training keeps more. You let go of each block;
# autograd does not: it keeps what each step's derivative will need, including the weights of the
# block. All blocks together, that is the whole matrix again.
#
# </details>
#
# To get rid of it, you have to write the backward pass yourself.

# %% [markdown]
# ## 4. Forget, and compute again
#
# *Which numbers do you really have to keep?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (5, 4), "keys": (5, 4), "values": (5, 3), "attention weights": (5, 5)}
plotting.show(plotting.diagram_strip("attention", lit="attention weights", shapes=shapes))

# %% [markdown]
# Every score can be computed again from the inputs, block by block. This trade of arithmetic for memory
# is called *recomputation*. To turn scores into weights you have to remember something of each row:
# FlashAttention (Dao and others, 2022) kept $c$ and $t$; FlashAttention-2 (Dao, 2023) keeps $L$ alone.
#
# **Predict.** Scores $1, 0, 2$, with $c = 2$, $t = 1.5032$ and $L = 2.4076$. Make the weights
# $(0.2447, 0.0900, 0.6652)$ from the scores and *one* of these three. Why do the other two fail?
#
# <details><summary>Answer</summary>
#
# $e^{0 - 2.4076} = 0.0900$. With $c$ alone the numbers sum to $t$, not to 1. With $t$ alone you divide
# the wrong exponentials by the right sum. $L$ is both in one.
#
# </details>
#
# Lesson 05's gradient of the scores needs one more number of each row: with $G$ the gradient of the
# outputs and $dW_{ij} = G_i \cdot v_j$, the average $D_i = \sum_j W_{ij}\, dW_{ij}$. It runs over
# *all* keys, and the first block already needs it.
#
# **Predict.** In the example, with $G = 1$: $D = 0.2447 \cdot 1$ $+\, 0.0900 \cdot 3$ $+\, 0.6652 \cdot 5$ $= 3.8411$.
# Where have you seen this number? What is it for another $G$?
#
# <details><summary>A nudge</summary>
#
# In section 3. For any $G$: put the definition of $dW_{ij}$ into that of $D_i$, and pull out of the sum
# what does not depend on $j$.
#
# </details>

# %% [markdown]
# ### Exercise: `RecomputedAttention`
#
# Plan an hour and a quarter, and begin on paper. Lesson 05, section 7, has a `torch.autograd.Function` in
# eight lines: tensors go to `ctx.save_for_backward`, anything else onto `ctx`, and `backward` returns a
# gradient for each argument, None where there is none.
#
# A `torch.autograd.Function`, called as `RecomputedAttention.apply(queries, keys, values, mask,
# block_size)`, with the arguments of `blocked_attention`.
#
# - **`forward`** returns the outputs alone. `blocked_attention` is at your service.
# - **`backward`** returns gradients for `queries`, `keys` and `values`, and None for the other two. A
#   query that may attend to no key sends back zeros, and disturbs no other.
# - **Keeps** nothing with an $n$ and an $m$, and makes no such thing in either pass. That is what this
#   exercise is for; otherwise you earn at most a third of the points.
#   `F.scaled_dot_product_attention` is left out here too.
#
# **Worked number.** One query 1, keys 1, 0, 2, values 1, 3, 5, $d = 1$, $G = 1$, with a block size of
# 2 or any other: the gradient of the values is $(0.2447, 0.0900, 0.6652)$, that of the keys
# $(-0.6953, -0.0757, 0.7710)$, and that of the query 0.8467.

# %%
from course_lib.attention import RecomputedAttention

# %%
check("RecomputedAttention")

# %% [markdown]
# **Predict.** Training once more, on growing texts. When the text doubles, what happens to the peak
# of each of the three ways?


# %% tags=["demo"]
def recomputed(queries, keys, values):
    return RecomputedAttention.apply(queries, keys, values, None, 128)


sizes = [256, 512, 1024, 2048]
ways = {"plain": plain, "blocked, autograd": blocked, "recomputed": recomputed}
memory = {
    name: [kibibytes(way, *draw(n), train=True)[1] / 1024 for n in sizes]
    for name, way in ways.items()
}
labels = {"x_label": "tokens, n = m", "y_label": "MiB at the peak"}
title = "One head, forward and backward"
plotting.show(plotting.lines(sizes, memory, **labels, title=title, log_x=True, log_y=True))
for name, peaks in memory.items():
    print(f"{name:18} {peaks[-1]:5.1f} MiB, {peaks[-1] / peaks[-2]:.1f} times that of n = 1024")
kept = kibibytes(recomputed, *draw(2048), train=True)[0]
print(f"recomputed keeps   {kept / 1024:5.2f} MiB, outputs and L; the weights would be 16 MiB")
assert abs(kept - (2048 * 64 + 2048) * 4 / 1024) < 1
assert memory["recomputed"][-1] / memory["recomputed"][-2] < 2.1
assert memory["plain"][-1] / memory["plain"][-2] > 3.5

# %% [markdown]
# <details><summary>Answer</summary>
#
# The slope of plain and blocked approaches 2, as the matrices outgrow the inputs: a doubling takes nearly
# four times the memory. Recomputed keeps to slope 1, like its inputs.
#
# </details>

# %% [markdown]
# ### And in time?
#
# Plain attention does two products of size $n m d$ forward and four backward. Yours does $Q K^\top$ once
# more: seven for six, about a sixth more arithmetic.
#
# **Predict.** Is yours slower by a sixth, slower by more, or faster? Does it depend on $n$?
#
# The recorded times are those of one thread of an AMD EPYC server, torch 2.13, 23 November 2026. In
# JupyterLab yours appear below them, measured on your GPU if you have one. A *new page* is 4 KiB of
# memory that the operating system clears and hands out.


# %% tags=["demo"]
def pages():
    """How many pages of memory this process was handed so far; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def fastest(fn, *inputs, repeats=5):
    """(milliseconds, new pages) of the fastest call."""
    runs = []
    for _ in range(repeats):
        started, before = time.perf_counter(), pages()
        fn(*inputs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        runs.append((1e3 * (time.perf_counter() - started), pages() - before))
    return min(runs)


def train_step(way, n):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = [x.to(device).requires_grad_() for x in draw(n)]
    return fastest(lambda *x: torch.autograd.grad(way(*x).sum(), x), *inputs)


sizes = [1024, 2048, 4096]
ways = {"plain": plain, "recomputed": recomputed}
recorded = {
    "plain": [(16.3, 0), (70.3, 0), (429.3, 65540)],
    "recomputed": [(18.6, 0), (88.5, 0), (365.2, 0)],
}
tables = {"recorded": recorded} | plotting.live(
    lambda: {"yours": {name: [train_step(way, n) for n in sizes] for name, way in ways.items()}}, {}
)
print("               n    plain, new pages     recomputed, new pages")
for whose, table in tables.items():
    for n, *runs in zip(sizes, *table.values(), strict=True):
        print(f"{whose:9}{n:7,}" + "".join(f"{ms:9.1f} ms {new:7,}" for ms, new in runs))

# %% [markdown]
# <details><summary>Answer (in the recorded lines)</summary>
#
# At 1,024 and 2,048 recomputing is slower, by a seventh and by a quarter. At 4,096 it is faster, by a
# seventh. The arithmetic is the same; the pages are not. A matrix now takes 64 MiB, more than the C
# library keeps for reuse, so the plain way asks the system for four new ones each time. Section 7
# says what that costs.
#
# </details>

# %% [markdown]
# ## 5. What torch does, and when it does not
#
# *Has nobody written this for you?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": "(B, h, n, d)", "keys": "(B, h, m, d)", "weighted sum": "(B, h, n, v)"}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# They have. `F.scaled_dot_product_attention` chooses between *math*, the plain way, and *fused kernels*:
# what you wrote, in one piece of machine code. Which one a call gets depends on its arguments. You can
# ask: inside `sdpa_kernel(SDPBackend.FLASH_ATTENTION)` a call that the fused kernel cannot take raises
# an error, and `torch.profiler` names the kernel that ran.
#
# **Predict.** For each row below: is it fused, and is an $n \times n$ matrix (1,024 KiB) kept? A *window*
# lets a position see the 64 before it, as Mistral's layers do with 4,096.

# %% tags=["demo"]
sdpa = F.scaled_dot_product_attention
window = causal_mask(512).triu(-64)
learned = torch.zeros(512, 512, requires_grad=True)
lengths = length_mask(torch.tensor([300]), 512)[:, None, None]
calls = {
    "(B, h, n, d)": (sdpa, draw(512, 1, 1)),
    "(B, n, d)": (sdpa, draw(512, 1)),
    "is_causal": (lambda *x: sdpa(*x, is_causal=True), draw(512, 1, 1)),
    "window, a mask": (lambda *x: sdpa(*x, attn_mask=window), draw(512, 1, 1)),
    "lengths": (lambda *x: sdpa(*x, attn_mask=lengths), draw(512, 1, 1)),
    "learned bias": (lambda *x: sdpa(*x, attn_mask=learned), draw(512, 1, 1)),
    "dropout": (lambda *x: sdpa(*x, dropout_p=0.1), draw(512, 1, 1)),
    "v = 32": (sdpa, draw(512, 1, 1, v=32)),
}


def is_fused(fn, *inputs):
    """Whether the fused kernel takes the call; torch warns of each reason why it does not."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("ignore")
        try:
            fn(*inputs)
        except RuntimeError:
            return False
    return True


kept = {name: kibibytes(fn, *inputs, train=True)[0] for name, (fn, inputs) in calls.items()}
fused = {name: is_fused(fn, *inputs) for name, (fn, inputs) in calls.items()}
for name, amount in kept.items():
    print(f"{name:15} {'fused' if fused[name] else 'math':6} keeps {amount:5,.0f} KiB")
assert fused["(B, h, n, d)"] and not fused["(B, n, d)"]
assert kept["(B, h, n, d)"] < 200 < 1000 < kept["(B, n, d)"]

# %% [markdown]
# <details><summary>Answer (on a CPU with torch 2.13)</summary>
#
# - Four axes reach the fused kernel; the *same numbers with three axes* do not. `unsqueeze(1)` before
#   and `squeeze(1)` after are worth more than any cleverness.
# - `is_causal` costs nothing. A window as a mask is fused, but first becomes $n \times n$
#   floating-point numbers: bytes alone do not tell it from the math. It saves something only where
#   the code knows that it is a window and skips the blocks outside. Lengths stay a single row.
# - A bias that learns, dropout, and values of a different size from the keys fall back to the math.
#
# </details>
#
# A GPU has other kernels with other conditions: *ask which one is used.* `nn.MultiheadAttention` can
# use a fused kernel only with `need_weights=False`: ask for the weights and you pay for the matrix.

# %% [markdown]
# ## 6. The same numbers from other functions ★
#
# *Additive scores take a tanh for each of $n m H$ features. Do they have to?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 256, 32), "keys": (1, 256, 32), "scores": (1, 256, 256)}
plotting.show(plotting.diagram_strip("attention", lit="scores", shapes=shapes))

# %% [markdown]
# A tanh is a stretched sigmoid, $\tanh x = 2\,\sigma(2x) - 1$ with $\sigma(y) = 1 / (1 + e^{-y})$, and the
# exponential of a sum is a product. With $x = q + k$ the exponentials belong to the queries and to the
# keys: $(n + m) H$ of them instead of $n m H$.
#
# The identity is exact; numbers in a computer are not.
#
# **Predict.** $q = -60$, $k = 60$ in float32, whose largest number is about $e^{88}$. What becomes of
# $e^{-2q} \cdot e^{-2k}$, which is 1? The picture takes $q = -x$, $k = x$ and draws the error of the
# product, a nan as 1. What does the curve look like?

# %% tags=["demo"]
xs = torch.cat([torch.arange(1, 12), torch.arange(12, 60, 4), torch.arange(60, 420, 20)]).double()
errors, ends = {}, {}
for name in ("float16", "float32", "float64"):
    x = xs.to(getattr(torch, name))
    product = (torch.exp(2 * x) * torch.exp(-2 * x)).double()
    errors[name] = (product - 1).abs().nan_to_num(nan=1.0).clamp(max=1)
    ends[name] = f"{name} is right up to x = {xs[errors[name] < 0.1].max():.0f}"
plotting.show(
    plotting.lines(
        xs,
        errors,
        x_label="input x, with k = x and q = -x",
        y_label="error of the product",
        log_x=True,
    ),
    "The error of the product, a line for each dtype: 0, and then a cliff up to 1. "
    + ", ".join(ends.values())
    + " of the points drawn.",
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nothing at all, and then a cliff, at a different place for each dtype. $e^{120}$ is inf, $e^{-120}$
# is 0, and inf times 0 is nan. The sum $q + k = 0$ is harmless; its parts are not.
#
# </details>
#
# So the fast form needs a *guard*: are all $|q|$ and $|k|$ small enough? Without one, a model would work
# for months, until a projection grows.

# %% [markdown]
# ### Exercise: `factored_additive_scores`
#
# - **Takes** `projected_queries` `(B, n, H)`, `projected_keys` `(B, m, H)`, `w_v` `(H,)`.
# - **Returns** `(B, n, m)`: $w_v \cdot \tanh(q + k)$ for each pair. Gradients reach all three.
# - **Evaluates** exp, tanh and their like for at most $(n + m) H$ numbers of each item, as long as all
#   $|q|, |k| \le 40$ in float32 and float64.
# - **Is right** everywhere else as well, float16 included, in any way you like.
#
# **Worked number.** $H = 2$, $w_v = (1, 2)$, $q = (0.5, 0)$, $k = (0, 0)$: $0.4621$.

# %%
from course_lib.attention import factored_additive_scores

# %%
check("factored_additive_scores")

# %% [markdown]
# Fewer functions do not yet mean less time: what an exponential costs is a fact about a machine and
# its libraries. The cube of $n m H$ features is still there.

# %% [markdown]
# ## 7. Where does the time go?
#
# *Recomputing does more arithmetic. How can it take less time?*

# %% tags=["demo", "hide-input"]
lit = "scores", "softmax", "weighted sum"
shapes = {"queries": (4096, 64), "keys": (4096, 64), "scores": (4096, 4096)}
plotting.show(plotting.diagram_strip("attention", lit=lit, shapes=shapes))

# %% [markdown]
# A processor does $P$ operations a second, and moves $\beta$ bytes a second from and to its memory. A step
# that does $I$ operations for each byte it moves cannot do more operations a second than
#
# $$\min(P,\; I \beta).$$
#
# Drawn, this is a *roofline*: a slope where memory is the limit, a flat roof where arithmetic is. They
# meet at the *edge*, $P / \beta$ operations a byte. A point belongs to *one step*; plain attention has three.
#
# **By hand.** $n = m = 4096$, $d = 64$. The scores: $2 n m d$ operations, $4 n m$ bytes written, $I$ about
# $d / 2 = 32$; the weighted sum likewise. The softmax: about five operations a score, 8 bytes, $I = 0.6$.
# Fused, all in one: $4 n m d$ operations, $16\, n d$ bytes of inputs and outputs, $I = 1024$.
#
# **Predict.** Which of the steps does memory limit? And do the three steps add up to the plain call?

# %% tags=["demo"]
n, d = 4096, 64


def measure_steps():
    """(milliseconds, new pages) of each step, on one thread of the processor."""
    q, k, v = draw(n, 1, 1)
    S, W, outputs = torch.randn(1, 1, n, n), torch.rand(1, 1, n, n), torch.empty(1, 1, n, d)
    square, a, b = torch.randn(1024, 1024), torch.randn(2**24), torch.randn(2**24)
    steps = {
        "product": lambda: square @ square,  # the roof
        "copy": lambda: b.copy_(a),  # the slope
        "scores": lambda: torch.matmul(q, k.mT, out=S),
        "softmax": lambda: torch.softmax(S, -1, out=W),
        "weighted sum": lambda: torch.matmul(W, v, out=outputs),
        "softmax, new memory": lambda: torch.softmax(S, -1),
        "plain": lambda: plain(q, k, v),
        "fused": lambda: sdpa(q, k, v),
    }
    return {name: fastest(step) for name, step in steps.items()}


recorded = {
    "product": (27.1, 0),
    "copy": (9.2, 0),
    "scores": (36.6, 0),
    "softmax": (21.4, 0),
    "weighted sum": (35.6, 0),
    "softmax, new memory": (69.8, 16385),
    "plain": (186.3, 33282),
    "fused": (74.8, 0),
}
tables = {"recorded": recorded} | plotting.live(lambda: {"yours": measure_steps()}, {})
for whose, table in tables.items():
    for name, (ms, new) in table.items():
        print(f"{whose:9}{name:20}{ms:7.1f} ms {new:7,} new pages")

# %% tags=["demo", "hide-input"]
flops = {"scores": 2 * n * n * d, "softmax": 5 * n * n, "weighted sum": 2 * n * n * d}
moved = {"scores": 4 * n * (n + 2 * d), "softmax": 8 * n * n, "weighted sum": 4 * n * (n + 2 * d)}
flops["fused"], moved["fused"] = 4 * n * n * d, 16 * n * d
for whose, table in tables.items():
    roof, slope = 2 * 1024**3 / table["product"][0] / 1e6, 8 * 2**24 / table["copy"][0] / 1e6
    rates = {x: (flops[x] / moved[x], flops[x] / table[x][0] / 1e6) for x in flops}
    plotting.show(plotting.roofline(roof, slope, rates))
    three = sum(table[name][0] for name in ("scores", "softmax", "weighted sum"))
    print(f"{whose}: edge at {roof / slope:.1f} operations a byte; ", end="")
    print(f"the three steps {three:.0f} ms, the plain call {table['plain'][0]:.0f} ms")

# %% [markdown]
# <details><summary>Answer (in the recorded picture)</summary>
#
# - Both products and the fused kernel lie right of the edge and reach three quarters of the roof:
#   arithmetic limits them.
# - Only the softmax lies left of it, and it reaches less than half of its bound: an exponential counts as
#   one operation and costs many.
# - The three steps take 94 ms, the plain call 186. A roofline has no place for the other 92; the line
#   *softmax, new memory* does. The same softmax takes 48 ms longer when its result goes into new
#   pages, 3 microseconds each, and the plain call makes two such matrices.
#
# </details>
#
# So on this machine the fused kernel takes hardly longer than the two products alone, and what it saves
# is mostly memory that the system need not hand out. On a GPU torch keeps memory for reuse, but bytes
# cost more: NVIDIA specifies the H200 at 989 · 10¹² operations (bfloat16) and 4.8 · 10¹² bytes a
# second, which puts the edge at 206. With $d = 64$ and two bytes a number the products lie at 64: all
# three steps would wait for memory.

# %% [markdown]
# ### All together
#
# `RecomputedAttention` once more, this time on *your* `blocked_attention`. It needs the checks above
# to have seen your cells in this session.

# %%
check("08_memory_and_speed")

# %% [markdown]
# ### Written question: which limit?
#
# Three colleagues tell you what they found. For each, say whether the conclusion holds, and give a
# reason with a number or a measurement from this lesson, in two or three sentences.
#
# 1. "Fused attention is faster because it does less arithmetic."
# 2. "I rewrote our attention in blocks of 128 keys. The peak of a forward pass is ten times lower, so
#    we can now train on ten times as many positions."
# 3. "I replaced tanh by the product of exponentials, as it needs a hundred times fewer functions. The
#    scores agree to five digits on our test set, so I removed the guard, which costs time."

# %% [markdown] written="which_limit"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each colleague; half points are possible.
#
# 1. **Wrong reason.** It does the same two products forward, and one more backward (seven for six). What
#    it spares is memory: no matrix of scores is moved, or handed out anew by the system. In the recorded
#    run the steps of the plain way take 94 ms and the call 186; the rest goes with 33,000 new pages, of
#    which the fused call has none. An argument from operations a byte (1024 against 32 for a product and
#    0.6 for the softmax) counts, too, if it does not claim that bytes were the limit of the two
#    products on this machine. Half a point for "it saves memory traffic" without a number or a picture.
# 2. **Does not follow.** Autograd keeps the weights of every block: section 3 measured that more is
#    kept for the backward pass than the plain way keeps. Training needs a backward pass that
#    recomputes. Half a point for "memory of training is larger" without saying what is kept. Full
#    points also for noting that with a recomputing backward pass the conclusion *would* hold, as the
#    memory is then linear in the number of positions.
# 3. **Wrong twice.** Fewer functions need not be less time; that is for a measurement to say. And a test
#    set does not show what happens outside $|q|, |k| \le 43$ in float32, or 4.8 in float16: the error
#    jumps from nothing to nan. Half a point for one of the two.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# A softmax needs two numbers for each row, a maximum and a sum, and you can keep both up to date
# while the scores arrive in blocks. Autograd would keep all blocks; a backward pass of your own
# computes the weights again from log sum exp, and memory grows with $n + m$. Whether that is also
# faster depends on what memory costs on the machine: measure, and ask torch which kernel it takes.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Blocks of queries.** Let `blocked_attention` walk along the queries too. What is the peak now?
#    With a causal mask, or a window of 64, which blocks need not be computed at all?
# 2. **Merge.** Write a function that merges the `(outputs, logsumexp)` of two sets of keys. Use it
#    to attend to the first half of the keys on one process and to the second half on another.
# 3. **How large a block?** Time `blocked_attention` for $n = 2048$ with blocks of 4 to 2048 keys.
# %% [markdown]
# ## References
#
# - M. Milakov and N. Gimelshein, *Online normalizer calculation for softmax*, 2018.
#   <https://arxiv.org/abs/1805.02867>
# - T. Dao and others, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*,
#   2022. <https://arxiv.org/abs/2205.14135>
# - T. Dao, *FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning*, 2023.
#   <https://arxiv.org/abs/2307.08691>
# - S. Williams, A. Waterman and D. Patterson, *Roofline: An Insightful Visual Performance Model*, 2009.
#   <https://doi.org/10.1145/1498765.1498785>
# - PyTorch, [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
#   and [*Extending PyTorch*](https://docs.pytorch.org/docs/stable/notes/extending.html).
