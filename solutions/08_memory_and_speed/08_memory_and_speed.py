# %% [markdown]
# # 08 · Memory and speed
#
# **The question.** Attention compares every position with every other. For a text of 100,000 words,
# each head has ten billion weights, and yet models read such texts. Where do they put the weights?
#
# **After this you can**
#
# - measure what attention costs, in bytes and in seconds, before you change anything;
# - compute a softmax over numbers that are never all in memory at once;
# - compute the backward pass of attention by hand;
# - write attention, forward and backward, whose memory grows with $n + m$ instead of $n m$;
# - find out which kernel torch uses.
#
# **Time:** {time}. The points count only if your class includes this lesson. **You need:** a stable
# softmax and masks (lesson 02), scaled dot-product attention (lesson 05), and vector derivatives
# for section 4. Sections 1 and 2 alone take half an hour.

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
from course_lib.models.numerals import Numerals
from course_lib.notebook import Spending

causal_mask, length_mask, scaled_dot_product_attention = carry_on(
    "causal_mask", "length_mask", "scaled_dot_product_attention"
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # so that times can be compared
torch.set_printoptions(precision=4, sci_mode=False)

# %% tags=["demo", "hide-input"]
shapes = {"queries": "(..., n, d)", "keys": "(..., m, d)", "values": "(..., m, v)"}
shapes |= {"scores": "(..., n, m)"}
plotting.show(plotting.diagram("attention", shapes=shapes), key="pairs")

# %% [markdown]
# ## 1. Measure first
#
# *What does the attention of lesson 05 cost?*

# %% [markdown]
# The meter below counts bytes. The *peak* is the largest number of bytes in use at once, not
# counting the inputs. The bytes that are *kept* stay in use after the forward pass because the
# backward pass needs them.
#
# **Predict.** For a page of 1,024 letters, how many matrices of the size of the attention weights
# are in memory at the peak of a forward and backward pass: about 2, 3 or 4?


# %% tags=["demo"]
def kibibytes(fn, *inputs, train=False):
    """Return (kept, peak) in KiB for one call, with its backward pass if `train`."""
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
assert 3 < peak / (n * n / 256) < 3.4 and 1 < kept / (n * n / 256) < 1.2

# %% [markdown]
# <details><summary>Answer</summary>
#
# At the peak there are three such matrices: the weights, their gradient, and the gradient of the
# scores. Of these three, only the weights are kept for the backward pass. For a word of 14 letters,
# the weights are a fourteenth as large as the inputs. For a page, they are five times as large.
#
# </details>
#
# For a chapter of 16,384 letters, the weights of one head take $16384^2 \cdot 4$ bytes, which is 1
# GiB, and the peak is three times that. Could you work in pieces? The softmax is in the way,
# because a weight needs the sum over its whole row.

# %% [markdown]
# ## 2. A softmax in blocks
#
# *The scores of a row arrive one block at a time, each only once. What do you have to remember?*

# %% [markdown]
# A weight is $e^{s_j - c} / \sum_k e^{s_k - c}$, for any $c$. In lesson 02, $c$ was the largest
# score, so nothing overflowed. You need two numbers, the largest score $c$ and the sum $t$ in the
# denominator.
#
# **By hand.** For the scores $1, 0$, you have $c = 1$ and $t = e^0 + e^{-1} = 1.3679$. With a third
# score $2$, $c = 2$ and $t = e^{-1} + e^{-2} + e^0 = 1.5032$.
#
# For the row $1,0.5,2\mid 0,3,1.5\mid 2.5,0.5$ (blocks 0, 1 and 2), the next cell computes $t$
# twice, correctly and without rescaling the earlier terms when the maximum rises.

# %% tags=["demo"]
row = torch.tensor([1.0, 0.5, 2.0, 0.0, 3.0, 1.5, 2.5, 0.5])
sums, seen, added, ticks = {"correct": [], "never rescaled": []}, 0, 0.0, []
for block in row.split(3):
    seen += len(block)
    largest = row[:seen].max()
    added += (block - largest).exp().sum().item()
    sums["correct"].append((row[:seen] - largest).exp().sum().item())
    sums["never rescaled"].append(added)
    ticks.append(f"block {len(ticks)}, maximum {largest:.0f}")
    print(f"block {block.tolist()}: the maximum so far is {largest:.0f}")
labels = {"x_label": "after each block", "y_label": "t, sum of exponentials"}
figure = plotting.bars({"": sums}, ticks=ticks, **labels)
plotting.show(figure, key="rescaled")
assert sums["never rescaled"][1] - sums["correct"][1] > 0.9

# %% [markdown]
# The sum goes wrong in block 1, where the maximum rises from 2 to 3. All old terms have the same
# wrong $c$, so *one* factor corrects them. For $1, 0 \mid 2$, as above,
# $1.3679 \cdot e^{1 - 2} = 0.5032$, and the new score adds 1.
#
# This is the *online softmax* (Milakov and Gimelshein, 2018).
#
# Suppose a row has only masked keys in the first blocks, so the scores there are $-\infty$. Then
# $c = -\infty$, and $-\infty - (-\infty)$ is nan. The sum becomes nan and stays nan.

# %% [markdown]
# ### Exercise: `softmax_statistics`
#
# - **Takes** `blocks`, an iterable of one or more tensors `(..., b)`, such as a generator. Sizes
#   `b` may differ, and scores may be $-\infty$.
# - **Returns** `(maxima, totals)`, each `(...)`, with the largest score $c$ and
#   $\sum_k e^{s_k - c}$ of every row. If all scores of a row are $-\infty$, the results are
#   $-\infty$ and 0.
# - **Keeps** only the current block.
#
# **Worked example.** Blocks `[[1, 0]]` and `[[2]]` give `[2]` and `[1.5032]`.

# %%
from course_lib.attention import softmax_statistics

# %%
check("softmax_statistics")

# %% [markdown]
# ### Your attention beside the library's
#
# `course_lib.fused` has lesson 05's interface and calls torch's *fused kernel*, one compiled
# function that works block by block.

# %% tags=["demo"]
from course_lib import fused as library


def fused_attention(queries, keys, values):
    return library.scaled_dot_product_attention(queries, keys, values, need_weights=False)[0]


one_page = draw(1024)
difference = (fused_attention(*one_page) - plain(*one_page)).abs().max()
print(f"the outputs differ by at most {difference:.4f}")
peaks = {}
for name, version in {"yours": plain, "course_lib.fused": fused_attention}.items():
    kept, peaks[name] = kibibytes(version, *one_page, train=True)
    print(f"{name:18} keeps {kept:6,.0f} KiB, peak {peaks[name]:7,.0f} KiB")
assert difference < 1e-5 and 6.5 < peaks["yours"] / peaks["course_lib.fused"] < 7.5

# %% [markdown]
# The outputs differ at most by rounding, and the peak of the fused kernel is a seventh of yours.

# %% [markdown]
# ## 3. Attention in blocks
#
# *You can update the sum block by block. Can you update the outputs as well?*

# %% [markdown]
# If you divide by $t$ at the end, the output needs only a second sum of the same kind,
# $O = \sum_j e^{s_j - c}\, v_j$.
#
# **By hand.** Take the scores $1, 0 \mid 2$ again, with the values $1, 3 \mid 5$:
#
# | | $c$ | $t$ | $O$ |
# |---|---|---|---|
# | block 0 | 1 | 1.3679 | $1 \cdot 1 + 0.3679 \cdot 3 = 2.1036$ |
# | block 1 | 2 | 1.5032 | $0.3679 \cdot 2.1036 + 1 \cdot 5 = 5.7739$ |
#
# The output is $5.7739 / 1.5032 \approx 3.8410$. As a by-product, you get $L = c + \ln t = 2.4076$,
# the *log-sum-exp* of the row.
#
# The slider steps through the longer row of section 2, with the values 1 to 8.


# %% tags=["demo"]
def draw_blocks(blocks):
    return plotting.online_softmax(row, torch.arange(1.0, 9.0), 3, blocks)


plotting.interactive(draw_blocks, start={"blocks": 2}, blocks=range(4), key="running numbers")

# %% [markdown]
# In block 1, the maximum rises from 2 to 3, and the factor is $e^{-1} = 0.37$. In block 2, the
# maximum stays the same, so nothing is rescaled.
#
# With many queries there are two loops, one over blocks of queries and one over blocks of keys.


# %% tags=["demo"]
def draw_tiles(step):
    return plotting.tiles(3, 4, step)


plotting.interactive(draw_tiles, plays=True, step=range(13), key="tiles")

# %% [markdown]
# The matrix of scores never exists as a whole. In the figure, only one of its 12 tiles is stored at
# a time. Each key block is loaded once per query block, here three times, so larger blocks of
# queries mean less traffic.

# %% [markdown]
# ### Exercise: `blocked_attention`
#
# - **Takes** `queries` `(..., n, d)`, `keys` `(..., m, d)`, `values` `(..., m, v)`; `mask`, None or
#   broadcastable to `(..., n, m)`, True = may attend; and `block_size`, the number of keys in a
#   block.
# - **Returns** `(outputs, logsumexp)`, `(..., n, v)` and `(..., n)`, differentiable with respect to
#   queries, keys and values.
# - **Without gradients**, never holds the scores of all blocks in memory, in one piece or in
#   several. Do not use `F.scaled_dot_product_attention`.
# - **Edge cases.** The last block may be shorter. The mask may have one column for all keys. A
#   query with no allowed key gets zeros and $-\infty$, with a gradient of 0.
#
# **Worked example.** Take $d = 1$, the query $1$, the keys $(1, 0, 2)$ and the values $(1, 3, 5)$.
# The results are 3.8410 and 2.4076, for any block size.

# %%
from course_lib.attention import blocked_attention

# %%
check("blocked_attention")

# %% [markdown]
# The next cell first compares your blocks with plain attention on three padded numerals. Then it
# measures memory. A forward pass in blocks of 128 needs less than a third of what plain attention
# needs.
#
# **Predict.** For the backward pass, do the blocks keep about 0.3, 1 or 2.5 times as much as plain
# attention?


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

kept = {}
for name, way in {"plain": plain, "blocked": blocked}.items():
    _, forward = kibibytes(way, *draw(1024))
    kept[name], peak = kibibytes(way, *draw(1024), train=True)
    print(f"{name:8} forward {forward:7,.0f} KiB", end=";  ")
    print(f"training: kept {kept[name]:6,.0f}, peak {peak:6,.0f}")
assert 2.3 < kept["blocked"] / kept["plain"] < 2.5

# %% [markdown]
# <details><summary>Answer</summary>
#
# The course's version keeps 2.4 times as much. The code drops each block, but autograd keeps what
# the derivatives need. Together, the kept blocks are larger than the whole matrix.
#
# </details>

# %% [markdown]
# ## 4. The backward pass by hand
#
# *What does `loss.backward()` compute in attention?*

# %% [markdown]
# Autograd keeps too much, so you write the backward pass yourself, first with all weights in
# memory, and in section 5 without them. In this section, $\mathcal{L}$ is the loss, and $O$ is the
# output after the division by $t$.

# %% [markdown]
# ### The softmax alone
#
# Take one row with scores $s$, weights $w$, and the gradient
# $g_j = \partial \mathcal{L} / \partial w_j$ of each weight. If $s_k$ rises, $w_k$ rises and all
# others fall: $\partial w_j / \partial s_k = w_j (\delta_{jk} - w_k)$, where $\delta_{jk}$ is 1 if
# $j = k$ and 0 otherwise. The chain rule sums over $j$:
#
# $$\frac{\partial \mathcal{L}}{\partial s_k} = \sum_j g_j \frac{\partial w_j}{\partial s_k} = w_k \Bigl(g_k - \sum_j g_j w_j\Bigr).$$
#
# This is a *vector-Jacobian product*, a row vector times an `(m, m)` matrix that you never have to
# build.
#
# **By hand.** Take $w = (1/2, 1/4, 1/4)$ and $g = (0, 4, 8)$. The mean of $g$ under $w$ is
# $0 + 1 + 2 = 3$, so $\partial \mathcal{L}/\partial s = (-3/2, 1/4, 5/4)$.
#
# The next cell compares autograd with $g$ times the matrix, twice. The second time, it adds 10 to
# every entry of $g$.

# %% tags=["demo"]
scores = torch.tensor([2.0, 1.0, 1.0]).log().requires_grad_()
weights = torch.softmax(scores, dim=0)  # 1/2, 1/4, 1/4
w = weights.detach()
jacobian = torch.diag(w) - torch.outer(w, w)  # (3, 3)
for g in (torch.tensor([0.0, 4.0, 8.0]), torch.tensor([10.0, 14.0, 18.0])):
    (by_autograd,) = torch.autograd.grad(weights, scores, g, retain_graph=True)
    print("autograd          ", by_autograd)
    print("g times the matrix", g @ jacobian)
    assert torch.allclose(by_autograd, torch.tensor([-1.5, 0.25, 1.25]), atol=1e-5)
    assert torch.allclose(g @ jacobian, by_autograd, atol=1e-5)

# %% [markdown]
# The result does not change, because the mean grows by 10 as well. The weights always sum to 1, so
# a gradient that is equal for all of them has no effect.

# %% [markdown]
# ### All of attention
#
# Let $G = \partial \mathcal{L} / \partial O$, of shape `(n, v)`. If $G$ is the gradient of a
# product $AB$, then $A$ gets the gradient $GB^\top$ and $B$ gets $A^\top G$. Attention is two
# products, $O = WV$ and $S = QK^\top/\sqrt{d}$, with a softmax of each row in between. Go back
# through the three steps.
#
# **By hand.** Take one query, two keys with $w = (1/2, 1/2)$, the values $1$ and $3$, and $G = 1$.
# Then $\partial \mathcal{L} / \partial W = (1, 3)$ with mean 2, and
# $\partial \mathcal{L} / \partial S = (1/2 \cdot (1 - 2),\; 1/2 \cdot (3 - 2)) = (-1/2, 1/2)$.

# %% [markdown]
# ### Exercise: `attention_backward`
#
# - **Takes** `queries` `(n, d)`, `keys` `(m, d)`, `values` `(m, v)` and `grad_outputs` `(n, v)`.
# - **Returns** `(grad_queries, grad_keys, grad_values)`, each with the shape of its input.
# - Do not use autograd (`backward`, `torch.autograd.grad`, `torch.func`). Large scores must not
#   overflow.
#
# **Worked example.** With the query `[0, 0, 0, 2]`, the keys `[1, 0, 0, 0]` and `[3, 0, 0, 0]`, the
# values 1 and 3 and $G = 1$, the scores are 0 and
# $\partial \mathcal{L} / \partial S = (-1/2, 1/2)$ as above.
# In the first feature, the query's gradient is $(-1/2 \cdot 1 + 1/2 \cdot 3)/2 = 0.5$. In the last,
# the keys' gradients are $-0.5$ and $0.5$.

# %%
from course_lib.attention import attention_backward

# %%
check("attention_backward")

# %% tags=["demo"]
query = torch.tensor([[0.0, 0.0, 0.0, 2.0]])
keys = torch.tensor([[1.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
values = torch.tensor([[1.0], [3.0]])
grads = attention_backward(query, keys, values, torch.ones(1, 1))
print("worked example: query", grads[0].tolist(), "keys", grads[1].tolist())
assert grads[0].tolist() == [[0.5, 0, 0, 0]]
assert grads[1][:, 3].tolist() == [-0.5, 0.5]

generator = torch.Generator().manual_seed(6)
shapes = (3, 4), (5, 4), (5, 6), (3, 6)
inputs = [torch.randn(*s, generator=generator, requires_grad=True) for s in shapes[:3]]
grad_outputs = torch.randn(*shapes[3], generator=generator)
outputs, _ = scaled_dot_product_attention(*inputs)
expected = torch.autograd.grad(outputs, inputs, grad_outputs)
by_hand = attention_backward(*(x.detach() for x in inputs), grad_outputs)
for name, mine, theirs in zip(("queries", "keys", "values"), by_hand, expected, strict=True):
    print(f"{name:8} at most {(mine - theirs).abs().max():.4f} from autograd")
    assert torch.allclose(mine, theirs, atol=1e-6)

# %% [markdown]
# ### The gradient with respect to a query ★
#
# *If a query moves a little, how far does the output move?*

# %% [markdown]
# This section returns to the saturation of lesson 05, and nothing below uses it. Take one query,
# and values that are equal to the keys, so that $o(q) = \sum_j w_j k_j$. A small step $dq$ changes
# the scores by $ds_j = k_j \cdot dq / \sqrt{d}$ and the weights by
# $dw_j = w_j \bigl(ds_j - \sum_i w_i\, ds_i\bigr)$. Together,
#
# $$\frac{\partial o}{\partial q} = \frac{1}{\sqrt{d}} \sum_j w_j (k_j - o)(k_j - o)^\top = \frac{\operatorname{Cov}_w(k)}{\sqrt{d}}, \qquad \text{shape } (d, d).$$
#
# $\operatorname{Cov}_w(k)$ is the covariance of the keys under the weights. If one key has all the
# weight, the covariance is 0, and so is the gradient. The $dw_j$ formula explains the blank side of
# the figure in section 3 of lesson 05.
#
# **By hand.** Take $d = 1$, $q = 0$, and the keys $1$ and $3$. The weights are $1/2$ each, the mean
# is 2 and the variance is 1, so the derivative is 1. For $q = 50$, the key $3$ has the weight 1,
# and the derivative is 0.

# %% [markdown]
# ### Exercise: `jacobian_wrt_query`
#
# - **Takes** `query` `(d,)` and `keys` `(m, d)`.
# - **Returns** the Jacobian `(d, d)` of attention whose values are the keys. Entry $(a, b)$ is
#   $\partial o_a / \partial q_b$, with fixed keys.
#
# You may use the formula or `torch.autograd.functional.jacobian`. Finite differences are not
# precise enough in float32. Large scores must not overflow.
#
# **Worked example.** For `query = [0., 0., 0., 0.]` and the keys `[1, 0, 0, 0]` and `[3, 0, 0, 0]`,
# the variance of the first feature is 1. Entry (0, 0) is $1/\sqrt{4} = 0.5$, and all others are 0.

# %%
from course_lib.attention import jacobian_wrt_query

# %%
check("jacobian_wrt_query")

# %% [markdown]
# The next cell draws 61 random queries with 10 random keys each, for each $d$. It divides each
# Jacobian's norm by the norm for the same keys with equal weights, and plots the *median* over the
# queries.

# %% tags=["demo"]
sizes = [1, 4, 16, 64, 128]
names = "softmax(q·k/√d)", "softmax(q·k)"
ratios = {name: [] for name in names}
for d in sizes:
    generator = torch.Generator().manual_seed(100 + d)
    found = torch.zeros(61, 2)
    for pair in found:
        query, keys = torch.randn(d, generator=generator), torch.randn(10, d, generator=generator)
        even = jacobian_wrt_query(0 * query, keys).norm()
        for column, factor in enumerate((1.0, math.sqrt(d))):
            # sqrt(d) * q gives the weights of unscaled attention; 1/sqrt(d) cancels in the ratio
            pair[column] = jacobian_wrt_query(factor * query, keys).norm() / even
    for name, median in zip(names, found.median(dim=0).values.tolist(), strict=True):
        ratios[name].append(median)
label = "gradient norm, as a ratio"
figure = plotting.lines(sizes, ratios, x_label="features d", y_label=label, log_x=True)
plotting.show(figure, key="gradient")
assert ratios["softmax(q·k)"][-1] < 0.1
assert min(ratios["softmax(q·k/√d)"]) > 0.6

# %% [markdown]
# With scaling, the typical ratio hardly depends on $d$. Without it, the ratio falls towards 0.

# %% [markdown]
# ## 5. Discard and recompute
#
# *Which numbers must be kept for the backward pass?*

# %% [markdown]
# Every score can be computed again from the inputs. This is called *recomputation*. To turn the
# scores of a row into weights, FlashAttention (Dao and others, 2022) kept $c$ and $t$.
# FlashAttention-2 (Dao, 2023) keeps only $L = c + \ln t$, because $e^{s_j - L}$ is the weight. For
# the scores $1, 0, 2$, you have $L = 2.4076$, and the weights are $(0.2447, 0.0900, 0.6652)$.
#
# The backward pass also goes block by block, but the gradient of the scores subtracts a mean over
# the whole row. In the notation of section 4, with $dW_{ij} = G_i \cdot v_j$ for the gradient of a
# weight, this mean is $D_i = \sum_j W_{ij}\, dW_{ij}$, over *all* keys. No single block contains
# all keys.
#
# With the values $1, 3, 5$ and $G = 1$, the mean is $D = 0.2447 \cdot 1$ $+\, 0.0900 \cdot 3$
# $+\, 0.6652 \cdot 5$ $\approx 3.8410$. Where have you seen this number?
#
# <details><summary>A nudge</summary>
#
# You saw it in section 3. For any $G$, insert the definition of $dW_{ij}$ into that of $D_i$.
#
# </details>

# %% [markdown]
# ### A backward pass of your own
#
# If you know a better way than autograd to compute a derivative, write a `torch.autograd.Function`
# with two static methods. Autograd does not record `forward`, so `forward` must save in `ctx` what
# `backward` needs. `backward` gets the gradient of the output and returns a gradient for each
# argument, or None. Call the function through `apply`, without keyword arguments.


# %% tags=["demo"]
class ScaledCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)  # tensors
        ctx.scale = scale  # anything else
        return scale * x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.scale * 3 * x**2, None  # for x, for scale


x = torch.tensor(2.0, requires_grad=True)
ScaledCube.apply(x, 10.0).backward()
nearby = (ScaledCube.apply(x + 0.01, 10.0) - ScaledCube.apply(x - 0.01, 10.0)) / 0.02
print(f"backward returns {x.grad:.1f}, the slope between nearby values is {nearby:.1f}")
assert x.grad == 120 and abs(nearby - 120) < 0.1

# %% [markdown]
# PyTorch does not check that a gradient is correct, so compare yours with autograd or finite
# differences.

# %% [markdown]
# ### Exercise: `RecomputedAttention`
#
# Begin on paper. Write a `torch.autograd.Function` with the arguments of `blocked_attention`.
#
# - **`forward`** returns only the outputs. You can call `blocked_attention`.
# - **`backward`** returns gradients for `queries`, `keys` and `values`, and None for the other two.
#   A query with no allowed key contributes zeros.
# - **Neither pass** creates a tensor that has both an $n$ and an $m$ axis. If one does, you earn at
#   most a third of the points. Do not use `F.scaled_dot_product_attention`.
#
# **Worked example.** With the inputs of the worked example of `blocked_attention` and $G = 1$, the
# gradient of the values is $(0.2447, 0.0900, 0.6652)$, that of the keys
# $(-0.6953, -0.0757, 0.7710)$, and that of the query 0.8467.

# %%
from course_lib.attention import RecomputedAttention

# %%
check("RecomputedAttention")

# %% [markdown]
# The next cell compares the peaks of a training step.


# %% tags=["demo"]
def recomputed(queries, keys, values):
    return RecomputedAttention.apply(queries, keys, values, None, 128)


sizes = [256, 512, 1024, 2048]
ways = {"plain": plain, "blocked, autograd": blocked, "recomputed": recomputed}
memory = {
    name: [kibibytes(way, *draw(n), train=True)[1] / 1024 for n in sizes]
    for name, way in ways.items()
}
labels = {"x_label": "tokens, n = m", "y_label": "MiB at the peak, one head"}
plotting.show(plotting.lines(sizes, memory, **labels, log_x=True, log_y=True), key="recomputed")
for name, peaks in memory.items():
    print(f"{name:18} {peaks[-1]:5.1f} MiB, {peaks[-1] / peaks[-2]:.1f} times that of n = 1024")
kept = kibibytes(recomputed, *draw(2048), train=True)[0]
print(f"recomputed keeps   {kept / 1024:5.2f} MiB, outputs and L; the weights would be 16 MiB")
assert abs(kept - (2048 * 64 + 2048) * 4 / 1024) < 1
assert memory["recomputed"][-1] / memory["recomputed"][-2] < 2.1
assert memory["plain"][-1] / memory["plain"][-2] > 3.5
assert 6.5 < memory["plain"][-1] / memory["recomputed"][-1] < 7.5

# %% [markdown]
# At 2,048 tokens, the peak of plain attention is 7 times as high as yours. When the text becomes
# twice as long, plain and blocked attention take nearly four times the memory, because they store
# matrices of size $n m$. Recomputed attention takes twice the memory.

# %% [markdown]
# ### How long does it take?
#
# Plain attention does two products of size $n m d$ forward and four backward. Your version computes
# $Q K^\top$ once more, which adds about a sixth to the arithmetic.
#
# **Predict.** At 4,096 tokens, is your version slower by a sixth, slower by more, or faster?
#
# The recorded times are from one thread of an AMD EPYC server (torch 2.13). In JupyterLab, your own
# times appear below them, measured on your GPU if you have one.


# %% tags=["demo"]
def fastest(fn, *inputs, repeats=5):
    """Return the time of the fastest call in milliseconds."""
    runs = []
    for _ in range(repeats):
        started = time.perf_counter()
        fn(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()  # wait until the GPU has finished
        runs.append(1e3 * (time.perf_counter() - started))
    return min(runs)


def train_step(way, n):
    inputs = [x.to(device).requires_grad_() for x in draw(n)]
    return fastest(lambda *x: torch.autograd.grad(way(*x).sum(), x), *inputs)


sizes = [1024, 2048, 4096]
ways = {"plain": plain, "recomputed": recomputed}
recorded = {"plain": [16.3, 70.3, 429.3], "recomputed": [18.6, 88.5, 365.2]}  # milliseconds
tables = {"recorded": recorded}
if plotting.has_front_end():
    tables["yours"] = {name: [train_step(way, n) for n in sizes] for name, way in ways.items()}
print("               n        plain   recomputed")
for whose, table in tables.items():
    for n, ms, recomputed_ms in zip(sizes, table["plain"], table["recomputed"], strict=True):
        print(f"{whose:9}{n:7,}{ms:10.1f} ms{recomputed_ms:10.1f} ms")

# %% [markdown]
# <details><summary>Answer (for the recorded times)</summary>
#
# At 4,096, recomputing is faster by a seventh, although it does more arithmetic. It is slower by a
# seventh at 1,024 and by a quarter at 2,048. Plain attention also has to allocate and move the
# matrices of size $n m$, 64 MiB each at 4,096.
#
# </details>

# %% [markdown]
# ## 6. What torch does for you
#
# *Which calls does PyTorch run without the matrix of scores?*

# %% [markdown]
# `F.scaled_dot_product_attention` chooses between *math*, which is plain attention, and *fused
# kernels*, which do the work of your blocked version in one piece of machine code. Inside
# `sdpa_kernel(SDPBackend.FLASH_ATTENTION)`, a call that the fused kernel cannot run raises an
# error.
#
# A *window* lets a position attend only to itself and the 64 positions before it.
#
# **Predict.** Of the calls below, the first and *window, a mask* run fused. Does the window keep
# about as much as the first call, about twice as much, or more than ten times as much?

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
    """Return whether the fused kernel runs the call. If not, torch warns and says why."""
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
assert kept["(B, h, n, d)"] < 200 < 1000 < kept["(B, n, d)"] and fused["window, a mask"]
assert 10 < kept["window, a mask"] / kept["(B, h, n, d)"] < 12

# %% [markdown]
# <details><summary>Answer (on a CPU with torch 2.13)</summary>
#
# The window keeps more than ten times as much as the first call. The mask takes 256 KiB, and torch
# also converts it to an $n \times n$ matrix of floats, 1,024 KiB. Inputs with four axes can reach
# the fused kernel, and those *with three axes* cannot. Add an axis with `unsqueeze(1)` before the
# call, and remove it afterwards. Calls with a learned bias, with dropout, or with values whose size
# differs from that of the keys fall back to math.
#
# </details>

# %% [markdown]
# ## 7. 32,768 positions
#
# *Where do models put the weights of a long text?*
#
# The next cell runs your blocks and the fused kernel on 32,768 positions. It also computes the last
# row with plain attention, from the weights of one query.
#
# **Predict.** The full matrix of attention weights of a single head would take 4 GiB. Your blocks
# of 128 keys take 81 MiB at the peak. Does the fused kernel take about 1, 8 or 40 MiB?

# %% tags=["demo", "nbval-ignore-output"]
inputs = draw(32768, 1, 1)
last_row = plain(inputs[0][..., -1:, :], *inputs[1:])
for name, way in {"your blocks": recomputed, "fused": sdpa}.items():
    with Spending(inputs) as spent:
        outputs = way(*inputs)
    difference = (outputs[..., -1:, :] - last_row).abs().max()
    print(f"{name:12} {spent.peak / 2**20:5.1f} MiB at the peak,", end=" ")
    print(f"last row at most {difference:.4f} from plain attention")
    assert spent.peak / 2**20 < (100 if way is recomputed else 10) and difference < 1e-5

# %% [markdown]
# <details><summary>Answer</summary>
#
# In our run, the fused kernel takes 8 MiB, which is the size of its outputs.
#
# </details>
#
# With such kernels, a model that reads 100,000 words never stores all its attention weights. The
# kernel computes them block by block, uses each block, and discards it.

# %% [markdown]
# ### All together
#
# This check runs `RecomputedAttention` on *your* `blocked_attention`. Run the checks above first.

# %%
check("08_memory_and_speed")

# %% [markdown]
# ### Written question: which limit?
#
# Three colleagues tell you what they found. For each, say in two or three sentences whether the
# conclusion holds, and give a reason with a number or a measurement from this lesson.
#
# 1. "Recomputing attention is faster because it does less arithmetic."
# 2. "I rewrote our attention in blocks of 128 keys. The peak of a forward pass is ten times lower,
#    so we can now train on ten times as many positions."
# 3. "Each position of our model attends only to the 64 before it. We pass this window as a mask,
#    and the call still runs fused, so its memory grows with $n$."

# %% [markdown] written="which_limit"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Three points, one for each colleague; half points are possible.
#
# 1. **Wrong reason.** Recomputing does a sixth more arithmetic than plain attention. In the recorded
#    run, it was faster by a seventh at 4,096 positions, but slower at 1,024 and 2,048. It saves
#    memory, because no matrix of scores is moved or newly allocated. Half a point without a number.
# 2. **Does not follow.** Autograd keeps the weights of every block. Section 3 measured that blocks
#    keep more than plain attention does. The conclusion would hold with a backward pass that
#    recomputes. Half a point for "training needs more memory" without saying what is kept.
# 3. **Does not follow.** The mask has $n^2$ entries, and torch converts it to a matrix of floats. In
#    section 6, the call with the window keeps about 1,400 KiB for 512 positions, as much as a call
#    that is not fused. Half a point for the size of the mask without the measurement.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# A softmax needs a maximum and a sum for each row, and you can update both while the scores arrive
# in blocks. A backward pass of your own computes the weights again from the log-sum-exp, so memory
# grows with $n + m$. Whether recomputing is also faster depends on the length and the machine, so
# measure, and find out which kernel torch uses.

# %% [markdown]
# ## References
#
# - M. Milakov and N. Gimelshein, *Online normalizer calculation for softmax*, 2018.
#   <https://arxiv.org/abs/1805.02867>
# - T. Dao and others, *FlashAttention: Fast and Memory-Efficient Exact Attention with
#   IO-Awareness*, 2022.
#   <https://arxiv.org/abs/2205.14135>
# - T. Dao, *FlashAttention-2: Faster Attention with Better Parallelism and Work
#   Partitioning*, 2023. <https://arxiv.org/abs/2307.08691>
# - PyTorch,
#   [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
#   and [*Extending PyTorch*](https://docs.pytorch.org/docs/stable/notes/extending.html).
