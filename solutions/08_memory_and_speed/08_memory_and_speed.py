# %% [markdown]
# # 08 · Memory and speed
#
# **The question.** Attention weighs every position against every other: a text of 100 000 words has
# ten billion weights for each head. Models read such texts. Where do they put the
# weights?
#
# **After this you can**
#
# - measure what an attention costs, in bytes and in seconds, before you change anything;
# - compute a softmax over numbers that are never all in memory at once;
# - write attention, forward and backward, whose memory grows with $n + m$ instead of $n m$;
# - rewrite a formula for speed, and find out where the new one stops being right;
# - say when torch's own fast attention runs, when it does not, and what limits a piece of code.
#
# **Time:** about three hours. **You need:** a stable softmax and masks (lesson 02), the cost of
# products (lesson 03), additive scores (lesson 04), the backward pass of attention (lesson 05).

# %%
import math
import time
import warnings
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from course_lib import (
    additive_scores,
    carry_on,
    causal_mask,
    check,
    hint,
    length_mask,
    plotting,
    scaled_dot_product_attention,
)
from course_lib.checks.observe.cost_meter import Spending

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
# | `H` | hidden features (lesson 04) | | `logsumexp` $L$ | `(..., n)` |
#
# To *materialise* a tensor is to have all of it in memory at one moment.

# %% [markdown]
# ## 1. Measure first
#
# *What does the attention of lesson 05 cost?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (512, 64), "keys": (512, 64), "attention weights": (512, 512)}
plotting.show(plotting.diagram("attention", lit=("scores", "attention weights"), shapes=shapes))

# %% [markdown]
# The meter below counts bytes: how many are in use at once beside the inputs (the *peak*), and how
# many stay in use after the forward pass because the backward pass will want them (*kept*). The
# checks of this lesson use the same meter.
#
# **Predict.** $n = m = 512$, $d = 64$, float32: an input has 128 KiB, the weights have 1 MiB. How
# much is kept, and what is the peak of forward and backward pass together?


# %% tags=["demo"]
def mebibytes(fn, *inputs, train=False):
    """(kept, peak) of one call, and of its backward pass if `train`."""
    inputs = [x.detach().requires_grad_(train) for x in inputs]
    with Spending(inputs) as spent:
        outputs = fn(*inputs)
        kept = spent.alive()
        if train:
            torch.autograd.grad(outputs.sum(), inputs)
    return kept / 2**20, spent.peak / 2**20


def plain(queries, keys, values):
    return scaled_dot_product_attention(queries, keys, values)[0]


def draw(n, *batch, d=64, v=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = (n, d), (n, d), (n, v)
    return [torch.randn(*batch, *size, generator=generator) for size in sizes]


kept, peak = mebibytes(plain, *draw(512), train=True)
print(f"kept {kept:.2f} MiB, peak {peak:.2f} MiB")
assert 1 < kept < 1.5 and 3 < peak < 4

# %% [markdown]
# One matrix of weights is kept, for the backward pass; at the peak there are three matrices of that
# size: the weights, their gradient, and the gradient of the scores. Now let the text grow.
#
# **Predict.** From $n = 512$ to $n = 2048$ inputs get four times as large. And the peak?

# %% tags=["demo"]
sizes = [128, 256, 512, 1024, 2048]
memory = {
    "plain, peak": [mebibytes(plain, *draw(n), train=True)[1] for n in sizes],
    "plain, kept": [mebibytes(plain, *draw(n), train=True)[0] for n in sizes],
    "the three inputs": [3 * n * 64 * 4 / 2**20 for n in sizes],
}
plotting.show(
    plotting.growth(
        sizes,
        memory,
        x_label="n = m",
        y_label="MiB",
        title="One head, forward and backward",
    )
)
growth = memory["plain, peak"][-1] / memory["plain, peak"][2]
print(f"inputs 4 times as large, peak {growth:.1f} times")
assert 14 < growth < 16

# %% [markdown]
# What you should see: on logarithmic axes a line whose slope approaches 2, as the matrices outgrow
# the inputs: each doubling then takes nearly four times the memory. At $n = 100\,000$ one head's weights have 37 GiB.
#
# Time grows the same way, but time can be waited for; memory runs out. The curves below were
# measured once, on one core of an Intel Xeon server; if you run the cell in JupyterLab it measures
# your machine, on its GPU if it has one.


# %% tags=["demo"]
def milliseconds(fn, *inputs, train=True, repeats=5):
    """Shortest of several runs, of forward and backward pass if `train`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = [x.detach().to(device).requires_grad_(train) for x in inputs]
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = fn(*inputs).sum()
        if train:
            result = torch.autograd.grad(result, inputs)[0].sum()
        result.item()  # waits until a GPU is done
        runs.append(1e3 * (time.perf_counter() - start))
    return min(runs)


sizes = [256, 512, 1024, 2048, 4096]
plain_times = plotting.live(
    lambda: [milliseconds(plain, *draw(n)) for n in sizes], [0.7, 2.1, 13.2, 53.5, 281]
)
plotting.show(
    plotting.growth(
        sizes,
        {"plain": plain_times},
        x_label="n = m",
        y_label="milliseconds",
        title="One head, forward and backward",
    )
)

# %% [markdown]
# One thing stands in the way of doing it in pieces: the softmax. A weight needs the sum over its
# whole row before it is known. Or does it?

# %% [markdown]
# ## 2. A softmax that does not wait
#
# *The scores of a row come by one block at a time, and none can be asked for again. What do you have
# to remember?*

# %% tags=["demo", "hide-input"]
shapes = {"scores": (1, 8), "mask": (1, 8), "softmax": (1, 8)}
plotting.show(plotting.diagram("attention", lit="softmax", shapes=shapes))

# %% [markdown]
# A weight is $e^{s_j - c} / \sum_k e^{s_k - c}$, for any $c$; lesson 02 took the largest score for $c$,
# so that nothing overflows. Two numbers are wanted: the largest score $c$ and the sum $t$. Neither
# is final before the last block. But suppose you have both for everything so far, and the next
# block raises the maximum from $c$ to $c'$:
#
# $$\sum_k e^{s_k - c'} = e^{c - c'} \sum_k e^{s_k - c} = e^{c - c'}\, t.$$
#
# All terms were shifted by the same wrong number, so *one* factor fixes them all. This is the
# *online softmax*.

# %% [markdown]
# **By hand.** Scores $1, 0$ and then $2$.
#
# | | maximum $c$ | sum $t$ |
# |---|---|---|
# | block 0: $1, 0$ | 1 | $e^{0} + e^{-1} = 1.3679$ |
# | block 1: $2$ | 2 | $e^{1 - 2} \cdot 1.3679 + e^{0} = 0.5032 + 1 = 1.5032$ |
#
# At once: $e^{-1} + e^{-2} + e^{0} = 0.3679 + 0.1353 + 1 = 1.5032$. The picture has a longer row.
# What you should see: wherever the dashed line takes a step up, the sum that is never rescaled goes
# wrong, and it stays wrong.

# %% tags=["demo"]
row = torch.tensor([1.0, 0.5, 2.0, 0.0, 3.0, 1.5, 2.5, 0.5])
plotting.show(plotting.running_softmax(row, block_size=3))
assert math.isclose(torch.exp(row - row.max()).sum(), 2.5468, abs_tol=1e-4)

# %% [markdown]
# **Predict.** A block holds nothing but $-\infty$ for a row (all its keys are masked), and so did
# the blocks before it. What is $e^{s - c}$?
#
# <details><summary>Answer</summary>
#
# $c = -\infty$, and $-\infty - (-\infty)$ is nan. One nan in the sum stays there, even if the next
# block brings ordinary scores. Where the maximum is still $-\infty$, subtract 0 instead: then
# $e^{-\infty} = 0$, as it should be.
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
# Nothing says that the blocks must come from left to right, or that one machine must see them all.
# Two machines may each do half a row and then merge two pairs of numbers. What you should see: the
# same result.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(1)
scores = 2 * torch.randn(3, 10, generator=generator)
left, right = softmax_statistics([scores[:, :4]]), softmax_statistics([scores[:, 4:]])
larger = torch.maximum(left[0], right[0])
merged = sum(totals * torch.exp(maxima - larger) for maxima, totals in (left, right))
at_once = softmax_statistics([scores])
print("merged: ", merged)
print("at once:", at_once[1])
assert torch.allclose(merged, at_once[1]) and torch.equal(larger, at_once[0])

# %% [markdown]
# ## 3. Attention in blocks
#
# *The sum can be kept up to date. Can the outputs?*

# %% tags=["demo", "hide-input"]
lit = "scores", "softmax", "weighted sum"
shapes = {"queries": (1, 1), "keys": (3, 1), "values": (3, 1), "weighted sum": (1, 1)}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# An output is a weighted sum of values, divided by $t$. Leave the division to the end, and what
# remains is one more sum that is shifted by $c$, and fixed by the same factor. For each block of
# keys $K_b$ and values $V_b$, with $S_b = Q K_b^\top / \sqrt d$:
#
# $$c' = \max(c, \operatorname{rowmax} S_b), \qquad t' = e^{c - c'} t + \operatorname{rowsum} e^{S_b - c'}, \qquad O' = e^{c - c'} O + e^{S_b - c'} V_b .$$
#
# At the end the outputs are $O / t$. Shapes: $S_b$ is $(n, b)$, $c$ and $t$ are $(n, 1)$, $O$ is
# $(n, v)$. Nothing has both an $n$ and an $m$.

# %% [markdown]
# **By hand.** The scores $1, 0 \mid 2$ again, with the values $1, 3 \mid 5$:
#
# | | $c$ | $t$ | $O$ |
# |---|---|---|---|
# | block 0 | 1 | 1.3679 | $1 \cdot 1 + 0.3679 \cdot 3 = 2.1036$ |
# | block 1 | 2 | 1.5032 | $0.3679 \cdot 2.1036 + 1 \cdot 5 = 5.7739$ |
#
# The output is $5.7739 / 1.5032 = 3.8411$. Below, the longer row with the values 1 to 8, a block at a
# time. Before you move the slider: at which step is what came before multiplied by less than 1?


# %% tags=["demo"]
def draw_blocks(blocks):
    return plotting.online_softmax(row, torch.arange(1.0, 9.0), 3, blocks)


plotting.interactive(draw_blocks, blocks=range(4))
exact = torch.softmax(row, dim=0) @ torch.arange(1.0, 9.0)
assert math.isclose(exact, 5.0429, abs_tol=1e-4)

# %% [markdown]
# At the second, where the maximum rises from 2 to 3: the factor is $e^{-1} = 0.37$. As a by-product you know
# $L = c + \ln t = 2 + \ln 1.5032 = 2.4076$, the logarithm of the sum of the exponentials, *log sum
# exp*. Section 4 will want it.
#
# With many queries there are two loops, one over blocks of queries and one over blocks of keys. Step
# through them: what is in fast memory, and what is nowhere?


# %% tags=["demo"]
def draw_tiles(step):
    return plotting.tiles(3, 4, step)


plotting.interactive(draw_tiles, step=range(13))

# %% [markdown]
# **Predict.** Ten keys, blocks of four. Where does the last block begin, and how long is it? What
# does `keys[8:12]` give for ten keys?
#
# <details><summary>Answer</summary>
#
# It begins at 8 and has two keys; a slice that reaches beyond the end stops there. What must not
# happen is a loop over `num_keys // block_size` blocks.
#
# </details>

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
# **Worked number.** For $d = 1$, one query 1, keys 1, 0, 2 and values 1, 3, 5 the table above: 3.8411
# and 2.4076, for any block size, 1 or 2 or 128.

# %%
from course_lib.attention import blocked_attention

# %%
check("blocked_attention")

# %% [markdown]
# The numbers of lesson 05, in a fraction of the memory. What you should see: the plain line comes
# close to twice the slope of the blocked one, which keeps to the slope of the inputs.


# %% tags=["demo"]
def blocked(queries, keys, values):
    return blocked_attention(queries, keys, values, None, 128)[0]


queries, keys, values = draw(300, seed=2)
ours, L = blocked_attention(queries, keys, values, causal_mask(300), block_size=128)
theirs, _ = scaled_dot_product_attention(queries, keys, values, mask=causal_mask(300))
print(f"largest difference: {(ours - theirs).abs().max():.4f}")
assert torch.allclose(ours, theirs, atol=1e-5)

sizes = [256, 512, 1024, 2048, 4096]
memory = {
    "plain": [mebibytes(plain, *draw(n))[1] for n in sizes],
    "blocks of 128": [mebibytes(blocked, *draw(n))[1] for n in sizes],
    "the three inputs": [3 * n * 64 * 4 / 2**20 for n in sizes],
}
plotting.show(
    plotting.growth(
        sizes,
        memory,
        x_label="n = m",
        y_label="MiB at the peak",
        title="One head, forward pass alone",
    )
)
assert memory["blocks of 128"][-1] / memory["blocks of 128"][-2] < 2.1
assert memory["plain"][-1] / memory["blocks of 128"][-1] > 10

# %% [markdown]
# How large should a block be? Small blocks save memory and waste time: each costs a dozen calls
# from Python, however little there is to do. What you should see in the recorded times: a steep
# fall up to about 64 keys, a shallow valley around 128, and a gentle rise as the blocks outgrow the
# processor's cache. On a GPU the valley lies elsewhere.

# %% tags=["demo"]
block_sizes = [4, 16, 64, 128, 256, 512, 1024, 2048]


def time_blocks():
    threads, inputs = torch.get_num_threads(), draw(2048)
    torch.set_num_threads(1)  # to wake a second one takes longer than a small block
    times = [
        milliseconds(lambda *x, b=b: blocked_attention(*x, None, b)[0], *inputs, train=False)
        for b in block_sizes
    ]
    torch.set_num_threads(threads)
    return times


times = plotting.live(time_blocks, [120, 39.5, 17.2, 15.2, 17.6, 17.7, 21.4, 21.7])
plotting.show(
    plotting.growth(
        block_sizes,
        {"blocked_attention, n = m = 2048": times},
        x_label="keys in a block",
        y_label="milliseconds, forward",
    )
)

# %% [markdown]
# ### What about training?
#
# **Predict.** The same call, now with inputs that require a gradient. How much is kept for the
# backward pass: about what the plain way keeps, much less, or more?

# %% tags=["demo"]
for name, way in {"plain": plain, "blocked": blocked}.items():
    kept, peak = mebibytes(way, *draw(512), train=True)
    print(f"{name:8} kept {kept:.2f} MiB, peak {peak:.2f} MiB")
assert mebibytes(blocked, *draw(512), train=True)[0] > mebibytes(plain, *draw(512), train=True)[0]

# %% [markdown]
# More. You let go of each block, but autograd does not: for every step it keeps what the derivative
# of that step will need, among it the weights of each block. In pieces, they are the whole matrix
# once more, and a few other things besides. To get rid of them you have to write the backward pass
# yourself.

# %% [markdown]
# ## 4. Forget, and compute again
#
# *Which numbers must really be kept?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (5, 4), "keys": (5, 4), "values": (5, 3), "attention weights": (5, 5)}
plotting.show(plotting.diagram("attention", lit="attention weights", shapes=shapes))

# %% [markdown]
# The inputs are there anyway. From them every score can be computed again, and with the log sum exp
# every weight, in any block, without another pass over the row:
#
# $$W = e^{S - L}, \qquad L = c + \ln t.$$
#
# So $n$ numbers stand for $n m$. This trade of arithmetic for memory is called *recomputation*.
# FlashAttention kept $c$ and $t$, FlashAttention-2 keeps $L$ alone.
#
# **By hand.** Scores $1, 0, 2$ and $L = 2.4076$: $W = (e^{-1.4076}, e^{-2.4076}, e^{-0.4076}) =
# (0.2447, 0.0900, 0.6652)$. The sum is 1 (with more digits exactly), and nobody had to add up.
#
# **Predict.** What if you keep $c$, or $t$, instead?
#
# <details><summary>Answer</summary>
#
# $e^{S - c}$ is not divided by $t$: these numbers sum to $t$, not to 1. With $t$ alone you would
# divide by the right sum of the wrong exponentials. Either is one half of what you need; $L$ is both.
#
# </details>

# %% [markdown]
# The backward pass of lesson 05, for $G$, the gradient of the outputs:
#
# $$dV = W^\top G, \qquad dW = G V^\top, \qquad dS = W \circ (dW - D), \qquad D_i = \sum_j W_{ij}\, dW_{ij},$$
#
# then $dQ = dS\, K / \sqrt d$ and $dK = dS^\top Q / \sqrt d$. All products go block by block. One thing
# does not: $D$ runs over *all* keys of a query, and the first block needs it already. But
#
# $$D_i = \sum_j W_{ij}\, (G_i \cdot V_j) = G_i \cdot \sum_j W_{ij} V_j = G_i \cdot O_i ,$$
#
# and $O$ has been known since the forward pass. In the cell, $D$ comes out both ways.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(3)
queries, keys, values = draw(5, d=4, v=3, seed=3)
G = torch.randn(5, 3, generator=generator)
outputs, W = scaled_dot_product_attention(queries, keys, values)
long_way, short_way = (W * (G @ values.T)).sum(-1), (G * outputs).sum(-1)
print("sum over the keys:      ", long_way)
print("sum over the features:  ", short_way)
assert torch.allclose(long_way, short_way, atol=1e-6)

# %% [markdown]
# ### How to tell autograd
#
# A `torch.autograd.Function` has two static methods. What happens in `forward` is not recorded; what
# it wants to remember it gives to `ctx`. `backward` gets the gradient of the output and returns one
# for each argument, None where there is none. Here is a polynomial with its derivative by hand. You
# call it by `apply`, without keywords.


# %% tags=["demo"]
class Polynomial(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)  # tensors
        ctx.scale = scale  # anything else
        return scale * (x**2 + x**3)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.scale * (2 * x + 3 * x**2), None  # x, scale


x = torch.tensor([1.0, 2.0], requires_grad=True)
Polynomial.apply(x, 10.0).sum().backward()
print(x.grad)
assert x.grad.tolist() == [50.0, 160.0]

# %% [markdown]
# ### Exercise: `RecomputedAttention`
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
# 2 or any other: the gradient of the values is $W = (0.2447, 0.0900, 0.6652)$, and $D = 3.8411$. For the first key $dS = 0.2447 \cdot
# (1 - 3.8411) = -0.6953$.

# %%
from course_lib.attention import RecomputedAttention

# %%
check("RecomputedAttention")

# %% [markdown]
# Training, measured as in section 1. What you should see: what is kept has shrunk to the outputs and
# $L$, and the peak now grows with the slope of the inputs.


# %% tags=["demo"]
def recomputed(queries, keys, values):
    return RecomputedAttention.apply(queries, keys, values, None, 128)


sizes = [256, 512, 1024, 2048]
ways = {"plain": plain, "blocked, autograd": blocked, "recomputed": recomputed}
memory = {
    name: [mebibytes(way, *draw(n), train=True)[1] for n in sizes] for name, way in ways.items()
}
plotting.show(
    plotting.growth(
        sizes,
        memory,
        x_label="n = m",
        y_label="MiB at the peak",
        title="One head, forward and backward",
    )
)
kept = mebibytes(recomputed, *draw(2048), train=True)[0]
print(f"kept at n = 2048: {kept:.2f} MiB; the weights would be {2048**2 * 4 / 2**20:.0f} MiB")
assert memory["recomputed"][-1] < 0.2 * memory["plain"][-1]
assert abs(kept - (2048 * 64 + 2048) * 4 / 2**20) < 0.01

# %% [markdown]
# **Predict.** What does it cost in time? Plain attention does two products of size $n m d$ forward and
# four backward. How many does yours do?
#
# <details><summary>Answer</summary>
#
# Two forward, and five backward: $Q K^\top$ once more. Seven products for six, so about a sixth more
# arithmetic. The recorded times are *shorter* all the same, as soon as the matrices outgrow the
# cache: the weights are not written to memory and read back. Section 7 counts operations and bytes.
#
# </details>

# %% tags=["demo"]
sizes = [256, 512, 1024, 2048, 4096]
recorded = {
    "plain": [0.7, 2.1, 13.2, 53.5, 281],
    "blocked, autograd": [1.3, 4.4, 19.2, 76.7, 328],
    "recomputed": [1.2, 3.6, 12.9, 46.1, 201],
}
times = plotting.live(
    lambda: {name: [milliseconds(way, *draw(n)) for n in sizes] for name, way in ways.items()},
    recorded,
)
plotting.show(
    plotting.growth(
        sizes,
        times,
        x_label="n = m",
        y_label="milliseconds",
        title="One head, forward and backward",
    )
)

# %% [markdown]
# ## 5. What torch does, and when it does not
#
# *Has nobody written this for you?*

# %% tags=["demo", "hide-input"]
lit = "scores", "mask", "softmax", "weighted sum"
shapes = {"queries": "(B, h, n, d)", "keys": "(B, h, m, d)", "weighted sum": "(B, h, n, v)"}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# They have. `F.scaled_dot_product_attention` chooses between several ways. One is called *math*: it
# is the plain way. The others are *fused kernels*: one piece of machine code for the whole of
# attention, in blocks of queries and of keys, with an online softmax and a recomputing backward pass:
# what you wrote, without the calls from Python. Which way is taken depends on the call. Torch does
# not say so by itself, but you can ask: inside `sdpa_kernel(SDPBackend.FLASH_ATTENTION)` a call that
# the fused kernel cannot do raises an error. (`torch.profiler` lists the kernel as well.)
#
# **Predict.** For each row below: is it fused, and is an $n \times n$ matrix kept?

# %% tags=["demo"]
sdpa = F.scaled_dot_product_attention
seen, bias = causal_mask(512), torch.zeros(512, 512)
learned = torch.zeros(512, 512, requires_grad=True)
calls = {
    "(B, h, n, d)": (sdpa, draw(512, 1, 1)),
    "(B, n, d)": (sdpa, draw(512, 1)),
    "is_causal": (lambda *x: sdpa(*x, is_causal=True), draw(512, 1, 1)),
    "bool mask": (lambda *x: sdpa(*x, attn_mask=seen), draw(512, 1, 1)),
    "lengths": (
        lambda *x: sdpa(*x, attn_mask=length_mask(torch.tensor([300]), 512)[:, None, None]),
        draw(512, 1, 1),
    ),
    "learned bias": (lambda *x: sdpa(*x, attn_mask=learned), draw(512, 1, 1)),
    "dropout": (lambda *x: sdpa(*x, dropout_p=0.1), draw(512, 1, 1)),
    "v = 32": (sdpa, draw(512, 1, 1, v=32)),
}


def is_fused(fn, *inputs):
    """Whether the fused kernel can do the call; torch warns of each thing that keeps it from it."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("ignore")
        try:
            fn(*inputs)
        except RuntimeError:
            return False
    return True


kept = {name: mebibytes(fn, *inputs, train=True)[0] for name, (fn, inputs) in calls.items()}
fused = {name: is_fused(fn, *inputs) for name, (fn, inputs) in calls.items()}
for name, amount in kept.items():
    print(f"{name:14} {'fused' if fused[name] else 'math':6} keeps {amount:.2f} MiB")
assert fused["(B, h, n, d)"] and not fused["(B, n, d)"]
assert kept["(B, h, n, d)"] < 0.2 < 1 < kept["(B, n, d)"]

# %% [markdown]
# On a CPU with torch 2.13, what you should see:
#
# - Four axes reach the fused kernel; the *same numbers with three axes* do not. `unsqueeze(1)` before
#   and `squeeze(1)` after are worth more than any cleverness.
# - `is_causal` costs nothing. The same triangle as a bool mask is fused too, but is turned into
#   $n \times n$ floating numbers first, so it keeps as much as the math does: bytes alone do not
#   tell the two apart. Lengths stay a single row.
# - A bias that learns, dropout, and values of another size than the keys all fall back to the math.
#
# A GPU has other kernels with other conditions. The habit is what carries over: *measure which way
# is taken.* `nn.MultiheadAttention`, too, can use a fused kernel only with `need_weights=False`: ask
# for the weights and you pay for the matrix.

# %% [markdown]
# ## 6. The same numbers from other functions
#
# *Additive scores take a tanh for each of $n m H$ features. Do they have to?*

# %% tags=["demo", "hide-input"]
shapes = {"queries": (1, 256, 32), "keys": (1, 256, 32), "scores": (1, 256, 256)}
plotting.show(plotting.diagram("attention", lit="scores", shapes=shapes))

# %% [markdown]
# Two identities. A tanh is a stretched sigmoid,
#
# $$\tanh x = \frac{e^{x} - e^{-x}}{e^{x} + e^{-x}} = \frac{2}{1 + e^{-2x}} - 1 = 2\,\sigma(2x) - 1,$$
#
# and the exponential of a sum is a product. With $x = q + k$:
#
# $$\sigma(2(q + k)) = \frac{1}{1 + e^{-2q} \cdot e^{-2k}} .$$
#
# The exponentials now belong to the queries and to the keys: $(n + m) H$ of them. For each pair a
# product, a sum and a division are left. And since $\sum_h w_h (2 \sigma_h - 1) = 2\, \sigma \cdot w -
# \sum_h w_h$, not even the $-1$ is needed for each feature.

# %% [markdown]
# **By hand.** $q = 0.5$, $k = 0$: $e^{-1} = 0.3679$, $e^{0} = 1$, $1 / 1.3679 = 0.7311$, and
# $2 \cdot 0.7311 - 1 = 0.4621 = \tanh 0.5$.
#
# It looks too good, so look for the catch. The identity is exact; numbers in a computer are not.
#
# **Predict.** $q = -60$, $k = 60$ in float32, whose largest number is about $e^{88}$. What is
# $e^{-2q} \cdot e^{-2k}$, and what ought it to be?
#
# <details><summary>Answer</summary>
#
# $e^{120}$ is inf, $e^{-120}$ is 0, and inf times 0 is nan. It ought to be $e^0 = 1$. The sum
# $q + k = 0$ is harmless; its parts are not.
#
# </details>
#
# The picture takes $q = -x$, $k = x$, where $\tanh 0 = 0$ is right, and draws the error of the product
# form. What you should see: nothing at all, and then a cliff, for each dtype at another place. A nan
# counts as an error of 1.

# %% tags=["demo"]
xs = torch.cat([torch.arange(1, 12), torch.arange(12, 60, 4), torch.arange(60, 420, 20)]).double()
errors = {}
for dtype in (torch.float16, torch.float32, torch.float64):
    x = xs.to(dtype)
    found = 2 / (1 + torch.exp(2 * x) * torch.exp(-2 * x)) - 1
    errors[str(dtype).removeprefix("torch.")] = (
        found.double().abs().nan_to_num(nan=1.0).clamp(max=1)
    )
    limit = -0.5 * math.log(torch.finfo(dtype).tiny)
    assert (errors[str(dtype).removeprefix("torch.")][xs <= limit] < 0.01).all()
ends = {name: f"{xs[error < 0.01].max():.0f}" for name, error in errors.items()}
plotting.show(
    plotting.lines(xs, errors, x_label="x = k = -q", y_label="error of tanh", log_x=True),
    "The error of the product form, a line for each dtype: 0, and then a cliff up to 1. "
    + ", ".join(f"{name} is right up to x = {end}" for name, end in ends.items())
    + " of the points drawn.",
)
for dtype in (torch.float16, torch.float32, torch.float64):
    info = torch.finfo(dtype)
    print(f"{dtype}: ln(largest) / 2 = {math.log(info.max) / 2:.1f}, ", end="")
    print(f"-ln(smallest normal) / 2 = {-math.log(info.tiny) / 2:.1f}")

# %% [markdown]
# So the fast form needs a *guard*: a test whether all $|q|$ and $|k|$ are small enough that both
# exponentials are ordinary numbers of the dtype; if not, the slow form. A guard costs a pass over
# $(n + m) H$ numbers. Without one, a model would work for months, until a projection grows.
#
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
# Against lesson 04: the same scores, and the meter counts how many exponentials and tanhs were
# evaluated.
# What you should see: 128 times fewer.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(4)
q, k = torch.randn(2, 1, 256, 32, generator=generator)
w = torch.randn(32, generator=generator)
eye = torch.eye(32)  # as W_q and W_k: the vectors are projected already
with Spending([q, k, w, eye]) as before:
    slow = additive_scores(q, k, eye, eye, w)
with Spending([q, k, w]) as after:
    fast = factored_additive_scores(q, k, w)
print(f"{before.functions:,} tanh, {after.functions:,} exp")
print(f"largest difference: {(slow - fast).abs().max():.4f}")
assert torch.allclose(slow, fast, atol=1e-4)
assert before.functions == 128 * after.functions

# %% [markdown]
# ### Fewer functions. Faster?
#
# **Predict.** 128 times fewer functions. Twice as fast, ten times, a hundred times?
#
# Look at what each step costs first. The recorded numbers are nanoseconds for each number of a
# vector that fits into the cache, float32, one core of an Intel Xeon server. On the left torch may
# use all instructions the processor has; on the right it and its math library are held to those of
# a processor of 2008.

# %% tags=["demo"]
names = ["tanh", "sigmoid", "exp", "reciprocal", "mul", "add"]


def nanoseconds(name, size=2**17):
    x, out = torch.rand(size), torch.empty(size)
    inputs = (x, x) if name in ("mul", "add") else (x,)
    runs = []
    for _ in range(50):
        start = time.perf_counter()
        getattr(torch, name)(*inputs, out=out)
        runs.append(1e9 * (time.perf_counter() - start) / size)
    return min(runs)


recorded = {
    "all instructions": [0.27, 0.37, 0.16, 0.19, 0.09, 0.09],
    "those of 2008": [2.54, 2.27, 0.84, 0.24, 0.32, 0.39],
}
costs = plotting.live(lambda: {"your machine": [nanoseconds(name) for name in names]}, recorded)
panels = {name: dict(zip(names, values, strict=True)) for name, values in costs.items()}
plotting.show(plotting.step_costs(panels, unit="ns for each number"))
for name, (tanh, sigmoid, _, inverse, multiply, add) in costs.items():
    print(f"{name}: add + tanh {add + tanh:.2f}, add + sigmoid {add + sigmoid:.2f}, ", end="")
    print(f"multiply + add + 1/x {multiply + add + inverse:.2f}")

# %% [markdown]
# On the left, nothing is gained: the math library's tanh is so good that two cheap steps and a
# division cost as much. On the right the product form takes a third of the time. Both columns are
# the same chip. *What is expensive is a fact about a machine and its libraries, not about a
# formula.* Keep the rewriting that your measurement pays for, and measure again when the machine
# changes.
#
# What no machine changes: the cube of $n m H$ features is still there, in either form. Against it
# the blocks of section 3 help, and a backward pass like that of section 4. Further exercise 3 puts
# the three together.

# %% [markdown]
# ## 7. What is the limit?
#
# *Recomputing was faster than remembering. Can operations and bytes explain that?*

# %% tags=["demo", "hide-input"]
lit = "scores", "softmax", "weighted sum"
shapes = {"queries": (2048, 64), "keys": (2048, 64), "scores": (2048, 2048)}
plotting.show(plotting.diagram("attention", lit=lit, shapes=shapes))

# %% [markdown]
# A processor has two speeds: operations a second, $P$, and bytes a second between it and its memory,
# $\beta$. A piece of code that does $I$ operations for each byte it moves cannot do more operations a
# second than
#
# $$\min(P,\; I \beta).$$
#
# This picture is called a *roofline*: a slope where memory is the limit, a flat roof where arithmetic
# is. The two meet at $P / \beta$ operations a byte.
#
# **By hand.** Adding two float32 vectors: one operation, 12 bytes (two read, one written), $I = 0.08$.
# A product of two $N \times N$ matrices: $2 N^3$ operations, at least $12 N^2$ bytes, $I = N / 6$. For
# attention with $n = m = 2048$, $d = 64$: $4 n m d$ operations for the two products. Fused, only inputs
# and outputs move, $16\, n d$ bytes: $I = 512$. Plain, the scores and the weights are written and read
# again as well, about five times $4 n m$ bytes: $I$ is about 12.

# %% tags=["demo"]
n, d = 2048, 64


def best_seconds(fn, repeats=10):
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        fn()
        runs.append(time.perf_counter() - start)
    return min(runs)


def measure_roof():
    """Ceilings, and what four pieces of code reach, in 10^9 a second; one thread of the CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a, x, square = torch.randn(1024, 1024), torch.randn(2**24), torch.randn(n, n)
    out, y, inputs = torch.empty_like(x), x.clone(), draw(n, 1, 1)
    roof = 2 * 1024**3 / best_seconds(lambda: a @ a) / 1e9
    slope = 8 * 2**24 / best_seconds(lambda: out.mul_(1.0)) / 1e9  # read and write in place
    flops = {"add": 2**24, "softmax": 5 * n * n, "plain": 4 * n * n * d, "fused": 4 * n * n * d}
    runs = {
        "add": lambda: torch.add(x, y, out=out),
        "softmax": lambda: torch.softmax(square, -1),
        "plain": lambda: plain(*inputs),
        "fused": lambda: F.scaled_dot_product_attention(*inputs),
    }
    reached = {name: flops[name] / best_seconds(runs[name]) / 1e9 for name in runs}
    torch.set_num_threads(threads)
    return roof, slope, reached


roof, slope, reached = plotting.live(
    measure_roof, (160, 19.5, {"add": 1.1, "softmax": 4.9, "plain": 49, "fused": 118})
)
intensity = {
    "add": 1 / 12,
    "softmax": 5 / 8,
    "plain": 4 * n * n * d / (16 * n * d + 20 * n * n),
    "fused": 4 * n * n * d / (16 * n * d),
}
points = {name: (intensity[name], reached[name]) for name in reached}
plotting.show(plotting.roofline(roof, slope, points))
print(f"edge at {roof / slope:.1f} operations a byte")
for name, (per_byte, rate) in points.items():
    bound = min(roof, slope * per_byte)
    print(f"{name:8} {per_byte:6.2f} operations a byte, {rate / bound:4.0%} of its bound")

# %% [markdown]
# What you should see in the recorded picture:
#
# - `add` lies near the slope. No cleverness in adding will help; only not moving the numbers will.
#   (The slope is measured in place. A vector that is written elsewhere has to be fetched first, so
#   `add` moves 1.1 · 12 = 13 · 10⁹ bytes a second by our count, two thirds of the slope. The tables in
#   `docs/attention_speed.md` copy from one vector to another, and give 12.6.) `softmax` (about five
#   operations a score) gets 40 % of its bound.
# - Fused attention is far to the right, and reaches three quarters of the roof.
# - Plain attention, with the *same* arithmetic, reaches less than a third of the roof. By our count it
#   lies just to the *right* of the edge, where bytes should no longer be the limit. So the count
#   does not explain how slow it is. It is too kind: a softmax goes over its numbers several times,
#   each new matrix is cleared by the operating system first, and all of them push each other out
#   of the cache.
#
# A roof is a bound, not a promise, and this picture answers half of the question. Blocks do not save
# operations. They save bytes: the point moves from 12 operations a byte to 512, far from the edge.
# That bytes alone held the plain way back, it does not show. On faster machines it would be plain
# to see: an NVIDIA H200 is sold with 989 · 10¹² operations (bfloat16) and 4.8 · 10¹² bytes a second,
# an edge at 206 operations a byte, and plain attention is far to the left of it.

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
# Three colleagues tell you what they found. Say of each whether the conclusion holds, and give a
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
# 1. **Wrong reason.** It does the same products forward and one more backward (seven for six). What it
#    does less of is moving bytes: at $n = 2048$ it does 512 operations a byte, the plain way about
#    12. (That bytes were the plain way's limit does not follow from the roofline: 12 is right of the
#    edge at 8. Saying so is worth the point as well.) Half a point for "it saves memory traffic"
#    without a number or a picture.
# 2. **Does not follow.** Autograd keeps the weights of every block: section 3 measured that more is
#    kept for the backward pass than the plain way keeps. Training needs a backward pass that
#    recomputes. Half a point for "memory of training is larger" without saying what is kept. Full
#    points also for noting that with a recomputing backward pass the conclusion *would* hold, as the
#    memory is then linear in the number of positions.
# 3. **Wrong twice.** Fewer functions need not be faster: on the recorded machine the steps left cost as
#    much as one tanh. And a test set does not show what happens outside $|q|, |k| \le 43$ in float32,
#    or 4.8 in float16: the error jumps from nothing to nan. Half a point for one of the two.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# A softmax needs two numbers of a row, a maximum and a sum, and both can be kept up to date while the
# scores come by in blocks; one factor corrects everything that was shifted by an old maximum. Attention
# in blocks never has all scores in memory, but autograd would keep them: a backward pass of your own
# computes the weights again from log sum exp, and takes its row sum from the outputs. Memory then
# grows with $n + m$. It was faster as well on the recorded machine, although it computes more: it
# moves far fewer bytes. Rewritten formulas have a domain, and need a guard at its border. Whether they pay is for a
# measurement to say.

# %% [markdown]
# ## Further exercises
#
# 1. **Blocks of queries.** Let `blocked_attention` walk along the queries too. What is the peak now?
#    With a causal mask, which blocks need not be computed at all?
# 2. **Merge.** Write a function that merges the `(outputs, logsumexp)` of two sets of keys. Use it
#    to attend to the first half of the keys on one process and to the second half on another.
# 3. **Additive attention without the cube.** Put sections 3, 4 and 6 together: blocks of queries and
#    keys, the product form behind its guard, and a backward pass that recomputes.
#    `course_lib.fused` holds one way to do it.
# 4. **Dropout.** A backward pass that recomputes has to drop the same weights again. Keep no mask:
#    what else could you keep?
# 5. **Half precision.** Run `blocked_attention` in float16 with 4096 keys of equal scores. Which of its
#    running numbers should be float32, and why do real kernels make them so?

# %% [markdown]
# ## References
#
# - M. Milakov and N. Gimelshein, *Online normalizer calculation for softmax*, 2018.
#   <https://arxiv.org/abs/1805.02867>
# - M. Rabe and C. Staats, *Self-attention Does Not Need O(n²) Memory*, 2021.
#   <https://arxiv.org/abs/2112.05682>
# - T. Dao and others, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*,
#   2022. <https://arxiv.org/abs/2205.14135>
# - T. Dao, *FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning*, 2023:
#   log sum exp as the one number that is kept. <https://arxiv.org/abs/2307.08691>
# - T. Chen and others, *Training Deep Nets with Sublinear Memory Cost*, 2016.
#   <https://arxiv.org/abs/1604.06174>
# - S. Williams, A. Waterman and D. Patterson, *Roofline: An Insightful Visual Performance Model*, 2009.
#   <https://doi.org/10.1145/1498765.1498785>
# - PyTorch, `scaled_dot_product_attention`: which kernels there are, and how to choose one.
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html>
# - PyTorch, *Extending PyTorch*: `torch.autograd.Function`.
#   <https://docs.pytorch.org/docs/stable/notes/extending.html>
