# %% [markdown]
# # 10 · A language model you can look into
#
# **The question.** Your causal attention sees only the past. Can a model made of it learn to write?
# If so, can you find out how the model does that?
#
# **After this you can**
#
# - write a language model, train it on text, and say what its loss means;
# - generate text with it, and choose how random the text is;
# - use induction scores to find the heads that do a job, and test the result by switching them off.
#
# **Time:** {time}. **You need:** causal attention (lesson 07), positions (lesson 06) and decoders
# (lesson 09). The lesson uses the parts in your `my_attention/`, and the course's version of any
# part that is missing there.

# %%
import contextlib
import functools
import math
import re
import string
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.language_model import (
    previous_token_score,
    repeated_tokens,
    text_windows,
)
from course_lib.models.stories import CHARACTERS, in_names, stories
from course_lib.models.trained import trained_writer
from course_lib.models.training import train

CausalSelfAttention, masked_softmax, positional_encoding, shift_matrix = carry_on(
    "CausalSelfAttention", "masked_softmax", "positional_encoding", "shift_matrix"
)
causal_mask, scaled_dot_product_attention, split_heads, merge_heads = carry_on(
    "causal_mask", "scaled_dot_product_attention", "split_heads", "merge_heads"
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## 1. The text is its own answer key
#
# *For a translator, somebody has to write the translations. What does a language model learn from?*

# %% tags=["demo", "hide-input"]
lit = "inputs"
shapes = {"inputs": "(B, n, D)", "second add": "(B, n, D)"}
plotting.show(plotting.diagram("block", lit=lit, shapes=shapes), key="next character")

# %% [markdown]
# A language model needs only text. Cut the text anywhere, and the next character is the correct
# answer. Our text consists of stories that a program generates from rules. Each story invents the
# names of its two animals.

# %% tags=["demo"]
text = "".join(story.text for story in stories(2000, seed=0))
tokens = CHARACTERS.ids(text)
print(text[: text.index("\n\n")])
print(tokens[:12].tolist())
print(f"{len(text):,} characters, {len(CHARACTERS)} different tokens with the pad")

# %% [markdown]
# In this lesson, a token is a character. In large models, tokens are pieces of words. A window of
# 96 tokens contains 95 questions: what follows the first token, the first two, and so on. With the
# causal mask, one pass answers all of them, and no position sees its own answer.
#
# ### Exercise: `next_token_loss`
#
# - **Takes** `logits` `(B, n, V)` and `tokens` `(B, n)`, int64 or int32, the texts that the model
#   read. $n$ is at least 2.
# - **Returns** the mean of $-\ln p$ over all texts and all $n - 1$ predictions, a tensor of shape
#   `()` in the dtype of the logits. Here $p$ is the probability that the softmax at position $i$
#   gives to token $i + 1$. Logits may be arbitrarily large.
#
# **Worked example.** Take the text (0, 1, 1) and the logits (2, 0, 0), (0, 1, 0), (5, 5, 0).
# Position 0 gives token 1 the probability $1 / (e^2 + 2)$, and position 1 gives it $e / (e + 2)$.
# The loss is $(2.2395 + 0.5514) / 2 = 1.3955$, whatever the last position predicts.

# %%
from course_lib.attention import next_token_loss

# %%
check("next_token_loss")

# %% [markdown]
# A model for which all 61 tokens are equally likely has a loss of $\ln 61 = 4.11$. The next cell
# prints the loss of this and two other models. The second counts only how often each character
# occurs, and the third counts which character follows which.
#
# **Predict.** About how low is the loss of the second model: 3.9, 3.1 or 2.3?


# %% tags=["demo"]
def entropy(counts):
    """Return the mean loss, in nats, of a model that uses only the frequencies in `counts`."""
    p = counts / counts.sum(-1, keepdim=True).clamp(min=1)
    return float(-(counts * p.clamp(min=1e-30).log()).sum() / counts.sum())


V = len(CHARACTERS)
pairs = torch.zeros(V, V, dtype=torch.float64)
pairs.index_put_((tokens[:-1], tokens[1:]), torch.ones(1, dtype=torch.float64), accumulate=True)
one_before = entropy(pairs)
milestones = {
    "all tokens equally likely": entropy(torch.ones(V)),
    "from the frequency of characters": entropy(pairs.sum(0)),
    "from the previous character": one_before,
}
for name, loss in milestones.items():
    print(f"{name:32s} {loss:.2f}")
assert [round(loss, 2) for loss in milestones.values()] == [4.11, 3.14, 2.23]

# %% [markdown]
# <details><summary>Answer</summary>
#
# Counting single characters lowers the loss from 4.11 to 3.14. Counting pairs of neighboring
# characters lowers it to 2.23.
#
# </details>
#
# These three losses are milestones. A loss below the third line means that the model looks back
# more than one character.

# %% [markdown]
# ## 2. A model that writes
#
# *You have the attention. What else does a language model need?*

# %% tags=["demo", "hide-input"]
lit = ("first norm", "first add", "second norm", "feed-forward", "second add")
shapes = {"inputs": "(B, n, D)", "second add": "(B, n, D)"}
plotting.show(plotting.diagram_strip("block", lit=lit, shapes=shapes), key="stream")

# %% [markdown]
# ### Exercise: `LanguageModel`
#
# A language model is a decoder without a source. Each of its blocks updates $x$ twice:
#
# $$x = \text{tokens}(t) + \text{positions}, \qquad
# x \leftarrow x + \text{attention}(\text{norm}_1(x)), \qquad
# x \leftarrow x + \text{feed\_forward}(\text{norm}_2(x)), \qquad
# \text{logits} = \text{to\_logits}(\text{norm}(x)).$$
#
# - **`__init__`** creates one block for each module in `attentions`. The names are:
#
# | name | what it is |
# |---|---|
# | `tokens` | `nn.Embedding(num_tokens, D)` |
# | `positions` | the given `positions` `(context_length, D)`, registered as a buffer with `persistent=False` |
# | `blocks` | an `nn.ModuleList`. Each block has the attributes `attention`, `norm_1` and, unless `hidden_dim` is 0, `norm_2` and `feed_forward` |
# | a block's `feed_forward` | an `nn.Sequential` of `nn.Linear`, `nn.GELU` and `nn.Linear`, from $D$ to `hidden_dim` and back |
# | `norm`, `to_logits` | `nn.LayerNorm(D)`, like all norms, and `nn.Linear(D, num_tokens)` |
# | `context_length` | the number of positions, an int |
#
# - **`forward`** takes `tokens` `(B, n)`, int64 or int32, and returns logits `(B, n, num_tokens)`.
#   It raises a `ValueError` if $n$ is larger than `context_length`.
#
# Section 5 loads trained weights into your class, so use exactly these names. A block can be an
# `nn.ModuleDict` or a class of your own in the same cell.
#
# **Worked example.** One token with the vector $(1, 3)$ and the position vector $(1, 1)$ gives
# $x = (2, 4)$. With weights of 1 and biases of 0, $\text{norm}_1$ gives $(-1, 1)$. An attention
# module that returns its input makes $x = (1, 5)$. A last norm with weights of 2 gives $(-2, 2)$,
# and these are the logits if `to_logits` is the identity.

# %%
from course_lib.attention import LanguageModel

# %%
check("LanguageModel")

# %% [markdown]
# The vector $x$, which all parts read and add to, is the *residual stream*. A head can influence a
# head of a later layer only through this stream.
#
# To write text, a model has to choose one token at each step.

# %% [markdown]
# ### Exercise: `generate`
#
# - **Takes** `model`, which is called like `LanguageModel` and reads at most
#   `model.context_length` tokens; `prompt` `(B, n)`, int64 or int32, with at least one token;
#   `num_tokens` and `temperature`, both 0 or more; `top_k`, at least 1 or None; and `generator`.
# - **Returns** integers `(B, n + num_tokens)`: each prompt followed by its new tokens.
#
# At each step, the model reads the last `context_length` tokens of every text, and the logits at
# the last position determine the next token. At temperature 0, the most likely token comes next,
# whatever `top_k` is. Otherwise, the next token of each text is drawn with `generator` from
# softmax(logits / temperature). If `top_k` is given, only the `top_k` most likely tokens can be
# drawn. Where tokens tie for the last place, you may keep all of them or only some.
#
# Run the model in eval mode and without gradients, and restore its mode afterwards.
#
# **Worked example.** Suppose that a model counts. After the token $t$, its logits are 2 for $t + 1$
# and 0 for the others. `generate(model, torch.tensor([[2, 3]]), 2, temperature=0)` gives
# `[[2, 3, 4, 5]]`.

# %%
from course_lib.attention import generate

# %%
check("generate")

# %% [markdown]
# **Predict.** The next cell trains four models in the same way. The first has a single head. Each
# later model adds to the one before it. The second adds three heads, the third a feed-forward
# network, and the fourth a second block. Which addition lowers the loss most?
#
# While the last model learns, a figure shows how your `generate` continues *One morning*. Watch in
# what order words, spaces and sentences appear.


# %% tags=["demo", "nbval-ignore-output"]
width, context, num_steps = 64, 96, 400
learned, held_out = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
rows = held_out[: len(held_out) // context * context].reshape(-1, context).to(device)


def write(model, beginning, num_characters=200, **choices):
    """Return a continuation of `beginning` from a fixed seed."""
    prompt = CHARACTERS.ids(beginning)[None].to(device)
    generator = torch.Generator(device).manual_seed(0)
    ids = generate(model, prompt, num_characters, generator=generator, **choices)
    return "".join(CHARACTERS.words(ids[0]))


def learn(attentions, hidden_dim, positions, *, watched=False):
    """Return a model trained on stories, its losses, and its loss on unseen stories."""
    model = LanguageModel(len(CHARACTERS), attentions, positions, hidden_dim).to(device)
    windows = text_windows(learned, context, torch.Generator().manual_seed(0), batch=16)

    def next_loss():
        batch = next(windows).to(device)
        return next_token_loss(model(batch), batch)

    watch = None
    if watched:
        first_words = functools.partial(write, model, "One morning", 40, temperature=0.7)
        watch = plotting.watch_training(num_steps, first_words)
    losses = train(model, next_loss, num_steps, max_lr=1e-2, watch=watch)
    with torch.no_grad():
        return model, losses, next_token_loss(model(rows), rows).item()


ladder, curves, unseen = {}, {}, {}
for name, num_heads, num_blocks, hidden_dim in (
    ("one head", 1, 1, 0),
    ("four heads", 4, 1, 0),
    ("feed-forward network", 4, 1, 4 * width),
    ("second block", 4, 2, 4 * width),
):
    torch.manual_seed(0)
    attentions = [CausalSelfAttention(width, num_heads) for _ in range(num_blocks)]
    positions = positional_encoding(context, width)
    watched = name == "second block"
    ladder[name], losses, unseen[name] = learn(attentions, hidden_dim, positions, watched=watched)
    curves[name] = losses[: len(losses) // 20 * 20].reshape(-1, 20).mean(1)
    count = sum(p.numel() for p in ladder[name].parameters())
    print(f"{name:22s}{count:8,} parameters, loss on unseen stories {unseen[name]:.2f}")

curves["the previous character"] = torch.full_like(curves["one head"], one_before)
across = 20 * torch.arange(1, num_steps // 20 + 1)
figure = plotting.lines(across, curves, x_label="steps", y_label="loss")
plotting.show(figure, key="four models")
one, four, network, second = unseen.values()
assert one_before > one > four > network > second and four - network > max(
    one - four, network - second
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# In our run, the feed-forward network lowers the loss most. Attention only averages vectors, and
# the network can compute something new from the result at each position. The loss falls from 1.82
# with one head to 1.65, 0.98 and 0.78, so all four models look back more than one character. The
# number $e^{0.78} = 2.2$ is called the *perplexity* of the last model. This model is about as
# uncertain as if it always chose between two equally likely characters. (The model of lesson 07
# reached 0.71 in our run, but it read more than twice as much text.)
#
# The text begins as random characters. After some 50 steps, it has spaces and the frequent letters.
# Then come short words such as *the*, and finally pieces of sentences.
#
# </details>

# %% [markdown]
# **Predict.** The last of the four models writes at three temperatures, 0, 0.7 and 1.5. At
# temperature 0, it always takes the most likely character. What share of the lowercase words in
# that text occur in no story: almost none, about 1 in 10, or more than 1 in 4?

# %% tags=["demo", "nbval-ignore-output"]
known, strange = set(re.findall(r"\b[a-z]+\b", text)), {}
for temperature in (0.0, 0.7, 1.5):
    written = write(ladder["second block"], "One morning", temperature=temperature)
    words = re.findall(r"\b[a-z]\w*(?=\W)", written)  # the last word may be cut off
    strange[temperature] = sum(word not in known for word in words) / len(words)
    print(f"--- temperature {temperature}: {strange[temperature]:.0%} of the words are in no story")
    print(written)
assert strange[0.0] > 0.25

# %% [markdown]
# <details><summary>Answer</summary>
#
# More than 1 in 4 of these words occur in no story, even at temperature 0. The model gets
# stuck where *eee* makes another *e* likeliest. In six runs, the share of lowercase words that occur in
# no story was 32% to 41% at temperature 0, 39% to 63% at 0.7, and 48% to 81% at 1.5. The higher
# the temperature, the more often an unlikely character is drawn. At 0.7, you recognize pieces of
# sentences, but no animal keeps its name.
#
# </details>
#
# Try another beginning, another temperature, or `top_k=5`, or let `ladder["one head"]` write. Your
# attention and your model compute every character.
#
# After 400 steps, the text does not yet read well. We also trained the last model for 1,600 steps,
# which takes four times as long. The loss on unseen stories fell to 0.50, and at temperature 0 the
# model wrote: *One morning a bell that made no sound lay at Kleen's door. Pleen
# turned it over and over. Along the path came Breeendo the crow.* These are sentences, but the
# names still change.

# %% [markdown]
# ## 3. Grow a head that looks things up
#
# *Can attention learn to find what came after the current letter last time?*

# %% tags=["demo", "hide-input"]
lit = "attention weights"
shapes = {"attention weights": "(B, h, n, n)"}
plotting.show(plotting.diagram_strip("heads", lit=lit, shapes=shapes), key="look-up")

# %% [markdown]
# To study this look-up in isolation, take a text without words. The next cell makes 64 strings and
# prints the first. Each string consists of twelve random letters, all different, and a copy of
# them. The first twelve letters can only be guessed. In the copy, each letter but the first can be
# looked up, because the letter before it has occurred already, followed by this same letter.

# %% tags=["demo"]
generator = torch.Generator().manual_seed(99)
puzzle = next(repeated_tokens(26, generator, shortest=12, longest=12)).to(device)  # (64, 24)
print(" ".join(string.ascii_uppercase[letter] for letter in puzzle[0].tolist()))

# %% [markdown]
# **Predict.** Can a model with a *single* layer learn to predict all later letters of such strings?
#
# <details><summary>Answer</summary>
#
# It can, because the copy always begins after twelve letters. A single head looks eleven positions
# back, whatever the letters are.
#
# </details>
#
# If the strings differ in length, a single layer is not enough. The query has to find the position
# whose *predecessor* is the current letter. But a key is made from the vector at its own position,
# and in the first layer that vector contains only its own letter and position. So the look-up takes
# two steps. Each position copies the letter before it into its vector. The query then looks for a
# copy of its letter. This takes two heads, the second in a later layer than the first.

# %% [markdown]
# ### Exercise: `induction_score`
#
# A head that looks up what followed the same token last time is called an *induction head*. In a
# text with period $p$, the token at position $i$ is also at $i - p$, and the token that followed it
# there is at $i - p + 1$.
#
# - **Takes** `attention_weights` `[head, position, key]` of one text, shape `(h, n, n)`; and
#   `period`, at least 1, the number of tokens after which the text repeats. By default it is half
#   of $n$, rounded down.
# - **Returns** `(h,)`, in the dtype of the weights: for each head, the mean over all positions
#   $i \ge p$ of the weight of position $i$ on position $i - p + 1$. If there is no such position,
#   as with $p \ge n$ or $n = 1$, the scores are 0.
#
# **Worked example.** Take one head, the text `A B A B` with period 2, and the rows $(1, 0, 0, 0)$,
# $(0.3, 0.7, 0, 0)$, $(0.1, 0.8, 0.1, 0)$ and $(0.2, 0.1, 0.6, 0.1)$. Position 2, the second `A`,
# puts 0.8 on position 1, and position 3 puts 0.6 on position 2, so the score is 0.7.

# %%
from course_lib.attention import induction_score

# %%
check("induction_score")

# %% [markdown]
# ### The first step by hand
#
# Of the two heads, build the first yourself: the one that copies the letter before each position.
# In the next cell, the first 32 features of each vector hold the letter, and the other 32 hold the
# position. Values read only the letters. Queries and keys read only the positions: a key is the
# vector $p_j$ of its position, and a query is $M p_i$, times 80 to make the softmax sharp. So the
# matrix $M$ alone decides where the head looks.


# %% tags=["demo"]
once = [string.ascii_uppercase.index(letter) for letter in "KTQBXKTQBX"]
x = torch.cat([F.one_hot(torch.tensor(once), 32), positional_encoding(10, 32)], dim=1)[None]
nothing, same = torch.zeros(32, 32), torch.eye(32)


def copy_letters(M):
    """Return the letters that the head copies, and its previous-token score."""
    W_q, W_k = torch.block_diag(nothing, 80 * M), torch.block_diag(nothing, same)
    W_v = torch.block_diag(same, nothing)
    by_hand = CausalSelfAttention(64, 1).requires_grad_(False)
    by_hand.W_qkv.weight.copy_(torch.cat([W_q, W_k, W_v]))
    by_hand.W_o.weight.copy_(torch.eye(64))
    copied = by_hand(x)[0, :, :26].argmax(dim=-1)
    return copied.tolist(), previous_token_score(by_hand.attention_weights[0]).item()


# %% [markdown]
# `previous_token_score` averages the weight that a position puts on the position before it, over
# all positions but the first. With the identity matrix, every position looks at itself and copies
# its own letter.
#
# **Your turn.** In the next cell, replace the matrix `M` in the first line so that every position
# copies the letter before it. A function that you wrote in lesson 06 returns the matrix you need.
# The head is right when the second line of the output reads `K K T Q B X K T Q B`. (The first
# position has no predecessor and copies its own letter.)

# %% tags=["demo"]
M = torch.eye(32)
copied, score = copy_letters(M)
print("letter  K T Q B X K T Q B X")
print("copied ", " ".join(string.ascii_uppercase[letter] for letter in copied))
print(f"previous-token score {score:.2f}")
assert copied == once and score < 0.01
assert copy_letters(shift_matrix(-1, 32))[0] == [once[0], *once[:-1]]
assert copy_letters(shift_matrix(-1, 32))[1] > 0.99

# %% [markdown]
# <details><summary>Answer</summary>
#
# The matrix is $R_{-1}$, your `shift_matrix(-1, 32)`. It turns the encoding of position $i$ into
# the encoding of position $i - 1$, so each query agrees best with the key of the position before
# it. The previous-token score rises from 0.00 to 1.00. With $R_1$, each query would match the
# key of the position after its own, which the causal mask excludes.
#
# </details>
#
# A head of the next layer could now make its queries from the current letter and its keys from the
# copied letter. Its scores would then be high at the positions that follow an earlier occurrence of
# the current letter.

# %% [markdown]
# ### Watch it grow
#
# The weights of the next model are learned. It has two layers of four heads and no feed-forward
# networks, and it trains on strings of 4 to 16 letters, each repeated once. The loss covers only
# the letters that can be looked up. While the model learns, the figure shows the loss, the best
# previous-token score in layer 0, and the best induction score in layer 1.
#
# **Predict.** Which of the two scores reaches 0.2 first?


# %% tags=["demo", "nbval-ignore-output"]
def second_half(logits, tokens):
    """Return the loss on the letters that can be looked up."""
    period = tokens.shape[1] // 2
    return next_token_loss(logits[:, period:], tokens[:, period:])


def best_scores(model):
    """Return the best score of a head in the first and in the last layer, on the puzzle."""
    model(puzzle)
    first, *_, last = [block.attention.attention_weights.mean(dim=0) for block in model.blocks]
    return {
        "previous-token score, layer 0": previous_token_score(first).max().item(),
        "induction score, layer 1": induction_score(last).max().item(),
    }


def grow(seed, num_layers=2, *, watched=False):
    """Return a model trained on repeated letters, and its losses."""
    torch.manual_seed(seed)
    attentions = [CausalSelfAttention(64, 4) for _ in range(num_layers)]
    model = LanguageModel(26, attentions, positional_encoding(32, 64)).to(device)
    drawn = repeated_tokens(26, torch.Generator().manual_seed(seed), batch=32, shortest=4)

    def next_loss():
        tokens = next(drawn).to(device)
        return second_half(model(tokens), tokens)

    watch = None
    if watched:
        watch = plotting.watch_training(600, functools.partial(best_scores, model))
    return model, train(model, next_loss, 600, max_lr=3e-3, constant=True, watch=watch)


grown, losses = grow(0, watched=True)
grown_scores = best_scores(grown)
assert losses[:20].mean() > 2.7 and losses[-100:].mean() < 0.15
assert grown_scores["induction score, layer 1"] > 0.8
assert grown_scores["previous-token score, layer 0"] > 0.24

# %% [markdown]
# <details><summary>Answer</summary>
#
# The induction score reaches 0.2 first, after 110 to 140 steps in five runs with different seeds.
# The previous-token score does so after 150 to 190 steps. All three curves change suddenly, and
# nearly together. In our run, the loss falls slowly for the first 100 steps, and no score reaches
# 0.2. Within the next 150 steps, the best induction score rises above 0.8, the best previous-token
# score rises from 0.11 to 0.3, and the loss falls from more than 2 to less than 0.3, except in a
# few batches. The previous-token score stays far lower than that of the head you made by hand. Such
# a sudden change is called a *phase change* (Olsson and others 2022).
#
# </details>
#
# The next cell runs *your* model on a text. At first, the figure shows layer 1's head with the
# best induction score. Which letter does the last `Q` look at in this head? Then replace the text
# with up to 32 capital letters, and repeat some of them.

# %% tags=["demo", "nbval-ignore-output"]
written = "KTQBXKTQ"
ids = [string.ascii_uppercase.index(letter) for letter in written]
grown(puzzle)
best = induction_score(grown.blocks[1].attention.attention_weights.mean(dim=0)).argmax().item()
with torch.no_grad():
    probabilities = torch.softmax(grown(torch.tensor([ids]).to(device))[0], dim=-1)  # (n, 26)
for end, row in enumerate(probabilities, start=1):
    expected = string.ascii_uppercase[row.argmax().item()]
    print(f"after {written[:end]} the model expects {expected} ({row.max().item():.2f})")
maps = torch.cat([block.attention.attention_weights[0] for block in grown.blocks])  # (8, n, n)
options = {
    "mask": causal_mask(len(written)),
    "heads": [f"head {layer}.{head}" for layer in range(2) for head in range(4)],
    "head": 4 + best,
}
plotting.show(plotting.attention(maps, written, written, **options), key="grown heads")
assert expected == "B" and maps[4 + best, -1].argmax() == 3

# %% [markdown]
# **Predict.** A model with one layer gets the same training. It cannot do the look-up. Is its loss
# on the strings of twelve letters above or below $\ln 12 = 2.48$, the loss of guessing among the
# letters of a string?

# %% tags=["demo", "nbval-ignore-output"]
one_layer, _ = grow(0, num_layers=1)
with torch.no_grad():
    for name, model in {"one layer": one_layer, "two layers": grown}.items():
        print(f"{name:10s}  loss {second_half(model(puzzle), puzzle).item():.2f}", end="")
        maps = model.blocks[-1].attention.attention_weights.mean(dim=0)
        print(f", best induction score {induction_score(maps).max().item():.2f}")
    single = second_half(one_layer(puzzle), puzzle).item()
    double = second_half(grown(puzzle), puzzle).item()
assert 1.5 < single < math.log(12) and double < 0.2
one_layer(puzzle)
assert induction_score(one_layer.blocks[0].attention.attention_weights.mean(dim=0)).max() < 0.2

# %% [markdown]
# <details><summary>Answer</summary>
#
# With one layer, the loss is below $\ln 12$ (1.99 in our run, 1.76 to 2.31 in four others). But it
# is far above that of two layers, and no head has a high induction score. A model that cannot look
# anything up can still exclude letters. The loss covers the last eleven letters of each string. A
# model that chose only among the letters not yet repeated would guess among 11 letters, then among
# 10, and so on, and its loss would be $\ln(11!) / 11 = 1.59$.
#
# </details>

# %% [markdown]
# ## 4. Prove it
#
# *A score shows where a head looks. Does the model need the head?*

# %% tags=["demo", "hide-input"]
lit = ("head outputs", "merge heads", "W_o")
shapes = {"head outputs": "(B, h, n, D / h)"}
plotting.show(plotting.diagram_strip("heads", lit=lit, shapes=shapes), key="one head off")

# %% [markdown]
# ### Exercise: `ablate_head`
#
# Write a *context manager* that switches a head off. The code before its `yield` runs when a `with`
# block begins, and the code after it runs when the block ends.
#
# If you set columns of `W_o` to 0, as in lesson 06, and restore them at the end, a backward pass
# after the `with` fails or uses the wrong weights. Change what `W_o` *reads* instead.
# `W_o.register_forward_pre_hook` registers a function that PyTorch calls before every forward pass,
# as `function(module, inputs)`. `W_o` then reads what the function returns. The registration
# returns a handle with a `remove()` method.
#
# - **Takes** `model`, `layer` and `head`, counted from 0. One submodule of `model.blocks[layer]`,
#   at any depth (`modules()` finds it), has `num_heads` and `W_o`, an `nn.Linear`. `W_o` reads
#   `in_features` features in equal blocks, one for each head. Its `out_features` may differ, and it
#   may have a bias.
# - **Inside the `with`**, `W_o` reads zeros in the head's block and everything else as before. The
#   gradients are those of this computation, even if the backward pass runs later.
# - **Afterwards**, even after an error, the model has the same parameters, gradients, mode and
#   hooks as before. Do not suppress the error. `with` blocks may be nested or follow one another,
#   and each undoes only its own change.
#
# **Worked example.** In a block with two heads of one feature, head 0 returns the token's feature,
# head 1 returns 10 times that, and `W_o` adds the two. A token with the feature 1 becomes
# $1 + (1 + 10) = 12$, and inside `with ablate_head(model, 0, 1):` it becomes $1 + (1 + 0) = 2$.

# %%
from course_lib.attention import ablate_head

# %%
check("ablate_head")

# %% [markdown]
# In your two layers, no feed-forward network lies between the heads of layer 0 and layer 1. Layer 1
# reads the residual stream three times, for its queries, its keys and its values. The next cell
# computes *one* of these three from a stream to which the heads of layer 0 added nothing.
# Everything else stays the same. The cell does this for three models, trained with different seeds.
#
# **Predict.** If the *keys* are computed without the heads of layer 0, is the loss below, equal to,
# or above that of guessing among 26 letters, $\ln 26 = 3.26$?


# %% tags=["demo", "nbval-ignore-output"]
@torch.no_grad()
def loss_without_layer_0(model, *readings):
    """Return the loss if layer 1 makes its queries, keys or values without the heads of layer 0."""
    first, second = model.blocks
    start = model.tokens(puzzle) + model.positions[: puzzle.shape[1]]
    stream = start + first.attention(first.norm_1(start))
    read = {part: stream for part in ("queries", "keys", "values")}
    read |= dict.fromkeys(readings, start)
    matrices = second.attention.W_qkv.weight.chunk(3)
    queries, keys, values = [
        split_heads(second.norm_1(vectors) @ W.T, 4)
        for vectors, W in zip(read.values(), matrices, strict=True)
    ]
    mask = causal_mask(puzzle.shape[1]).to(device)
    outputs, _ = scaled_dot_product_attention(queries, keys, values, mask=mask)
    stream = stream + second.attention.W_o(merge_heads(outputs))
    return second_half(model.to_logits(model.norm(stream)), puzzle).item()


models = {"seed 0": grown, "seed 1": grow(1)[0], "seed 2": grow(2)[0]}
removed = {
    name: {
        "nothing": loss_without_layer_0(model),
        "queries": loss_without_layer_0(model, "queries"),
        "keys": loss_without_layer_0(model, "keys"),
        "values": loss_without_layer_0(model, "values"),
    }
    for name, model in models.items()
}
panels = {"": {name: list(losses.values()) for name, losses in removed.items()}}
ticks = ["nothing", "queries", "keys", "values"]
label = "heads of layer 0 removed from"
figure = plotting.bars(panels, x_label=label, y_label="loss in nats", ticks=ticks)
plotting.show(figure, key="keys of layer 1")
for name, losses in removed.items():
    print(f"{name}: loss {losses['keys']:.2f} with keys made without layer 0")
    assert losses["nothing"] < 0.2 and losses["keys"] > math.log(26)
    assert max(losses["queries"], losses["values"]) < 1

# %% [markdown]
# <details><summary>Answer</summary>
#
# The loss is above that of guessing, for all three seeds. Without the copies that layer 0 made, a
# key no longer contains the letter before its own. The queries and the values hardly need layer 0.
# Both can use the current letter, which was in the stream from the start.
#
# </details>
#
# You have found a *circuit*. Heads of layer 0 write into the residual stream, and heads of layer 1
# make their keys from what was written. The same circuit was found in small attention-only models
# (Elhage and others 2021), and induction heads were found in large language models (Olsson and
# others 2022).

# %% [markdown]
# ## 5. A model that tells stories
#
# *Your two layers know only random letters. Are there induction heads in a model that writes text?*

# %% tags=["demo", "hide-input"]
lit = ("first norm", "first add", "second norm", "feed-forward", "second add")
shapes = {"inputs": "(B, n, D)", "second add": "(B, n, D)"}
plotting.show(plotting.diagram_strip("block", lit=lit, shapes=shapes), key="stream")

# %% [markdown]
# The course trained a larger model once, on 6,000 stories, and stored its roughly 600,000 weights.
# The model has three blocks of four heads, with feed-forward networks. At first, a quarter of its
# training rows were repeated random letters, to teach it early to look things up. Later, nearly all
# rows were stories, and capital letters counted five times in the loss. The next cell loads the
# weights into *your* `LanguageModel` and *your* attention, and your `generate` writes. Watch the
# names of the animals.

# %% tags=["demo", "nbval-ignore-output"]
attentions = [CausalSelfAttention(128, 4) for _ in range(3)]
positions = positional_encoding(192, 128)
storyteller = LanguageModel(len(CHARACTERS), attentions, positions, hidden_dim=512)
storyteller = trained_writer(storyteller).to(device)
told = write(storyteller, "There was once a ", 600, temperature=0.7)
print(told)
hero = told.split("called ")[1].split(".")[0]
assert told.count(hero) >= 5

# %% [markdown]
# The first time, the model invents a name. Later it repeats the same name letter by letter. Now and
# then it makes up a third name. In our run, *Brambi* is one.
#
# To measure how well the model looks names up, take the first 192 characters of 64 stories that it
# has never read. Of the 128 names in these stories, 117 are also new to the model.
#
# The next cell prints the share of letters that the model predicts correctly at the first mention
# of a name, at later mentions, and in all other text. (The first letter of a mention counts as
# other text, because it often depends on which of the two animals comes next.)

# %% tags=["demo", "nbval-ignore-output"]
new_stories = stories(64, seed=1)
texts = torch.stack([CHARACTERS.ids(story.text[:192]) for story in new_stories]).to(device)
marks = [in_names(story) for story in new_stories]  # the letters of first and of repeated mentions
first = torch.stack([first[1:192] for first, _ in marks]).to(device)
repeated = torch.stack([repeated[1:192] for _, repeated in marks]).to(device)
groups = {"first mention": first, "repeated mention": repeated, "other text": ~first & ~repeated}


def shares_correct(*heads):
    """Return the share of correct letters with some heads (layer.head) off."""
    with contextlib.ExitStack() as stack, torch.no_grad():  # one `with` for each head
        for name in heads:
            layer, head = map(int, name.split("."))
            stack.enter_context(ablate_head(storyteller, layer, head))
        correct = storyteller(texts)[:, :-1].argmax(dim=-1) == texts[:, 1:]
    return {group: correct[marked].float().mean().item() for group, marked in groups.items()}


whole = shares_correct()
for group, share in whole.items():
    print(f"{group:16s} {share:4.0%}")
assert whole["repeated mention"] > 0.99
assert 0.25 < whole["first mention"] < 0.4 < 0.9 < whole["other text"] < whole["repeated mention"]

# %% [markdown]
# The share of correct letters is largest in repeated names, where it is close to 100%. At the first
# mention, the model predicts only about a third of the letters correctly.
#
# The next cell computes the previous-token score and the induction score of all twelve heads, as
# means over the 64 strings of section 3. Heads are named layer.head.

# %% tags=["demo", "nbval-ignore-output"]
names = [f"{layer}.{head}" for layer in range(3) for head in range(4)]
letters = CHARACTERS.ids(string.ascii_lowercase).to(device)
with torch.no_grad():
    storyteller(letters[puzzle])
maps = [block.attention.attention_weights.mean(dim=0) for block in storyteller.blocks]
previous = torch.cat([previous_token_score(weights) for weights in maps]).cpu()
induction = torch.cat([induction_score(weights) for weights in maps]).cpu()
panels = {"previous-token score": {"": previous}, "induction score": {"": induction}}
figure = plotting.bars(panels, x_label="head", y_label="mean weight", ticks=names)
plotting.show(figure, key="twelve scores")
assert induction[:4].max() < 0.15 and max(induction[5], induction[9]) < 0.15
assert induction[[4, 6, 7]].min() > 0.5
assert (
    0.2 < induction[[8, 10, 11]].min() < induction[[8, 10, 11]].max() < induction[[4, 6, 7]].min()
)
assert previous[:3].min() > 0.2 > previous[3:].max()

# %% [markdown]
# The look-up takes two layers, so no head of layer 0 has a high induction score. Three heads of
# layer 1 have the highest scores, and three of layer 2 come next. Three heads of layer 0 have the
# highest previous-token scores.
#
# **Predict.** The next cell switches off the three high-scoring heads of layer 1, then those of
# layer 2, and then a *control group*, the heads 0.1, 1.1 and 2.1, whose induction scores are low.
# Which group does the model need most to repeat a name?

# %% tags=["demo", "nbval-ignore-output"]
switched_off = {
    "none": (),
    "layer 1": ("1.0", "1.2", "1.3"),
    "layer 2": ("2.0", "2.2", "2.3"),
    "control": ("0.1", "1.1", "2.1"),
}
off = {label: shares_correct(*heads) for label, heads in switched_off.items()}
one_off = {name: shares_correct(name)["repeated mention"] for name in names}
shares = {
    group: [100 * each[group] for each in off.values()]
    for group in ("repeated mention", "other text")
}
labels = {"x_label": "heads switched off", "y_label": "% of letters correct"}
plotting.show(plotting.bars({"": shares}, ticks=list(off), **labels), key="groups of heads")
worst = min(one_off, key=one_off.get)
print(f"with one head off, at least {one_off[worst]:.0%} of a repeated name (head {worst})")
assert 0.2 < off["layer 2"]["repeated mention"] < 0.32 and off["layer 2"]["other text"] > 0.85
assert off["layer 1"]["repeated mention"] > 0.93
assert off["control"]["repeated mention"] > 0.97
assert off["layer 2"]["other text"] > off["layer 1"]["other text"] + 0.1
assert 0.8 < one_off[worst] < 0.92 and worst == "2.0"

# %% [markdown]
# <details><summary>Answer</summary>
#
# The model needs the group in layer 2 most. Without this group, only about a quarter of the letters
# of repeated names are correct, although most of the other text is still correct. Without the group
# in layer 1, which has the higher scores, or without the control group, nearly all letters of
# repeated names are correct. Removing the group in layer 1 makes the rest of the text worse
# instead. With only one head off, whichever it is, most letters of repeated names are still
# correct.
#
# A high score does not prove that a head is needed, and an ablation without effect does not prove
# that a head does nothing. Switch off whole groups, and compare with a control group of the same
# size. In GPT-2, some heads even take over when others are removed (Wang and others 2022).
#
# </details>
#
# During training, a head's output is hardly ever zero, so an output of zero is a crude substitute.
# Research papers often use the head's mean output instead. This is called *mean ablation*.

# %% [markdown]
# ### Written question: what the loss tells you
#
# A colleague trains four language models and shows you only their losses, in nats per token. Each
# has a vocabulary of 64 tokens, and $\ln 64 = 4.16$. For each model, say in two or three sentences
# what is going on, and name one check of the model or the data that would settle it.
#
# 1. On ordinary text the loss is 4.16 at the first step and 4.16 at the last.
# 2. On ordinary text the loss falls to 0.01 in 300 steps, and so does the loss on held-out text.
#    The model writes nonsense.
# 3. On ordinary text the loss is 0.3 on the training text and 3.0 on held-out text.
# 4. On long strings of random tokens, each followed by a copy of itself, the loss has stayed at 2.1
#    for hours. "It is stuck," says the colleague.

# %% [markdown] written="what_the_loss_knows"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Four points, one for each case; half a point for the right diagnosis without a way to settle it.
#
# 1. **It learns nothing.** $\ln V$ is the loss of equal probabilities, and the frequencies of the
#    tokens alone would bring the loss below it. Settle it: does any parameter change or get a
#    gradient (learning rate 0, optimizer without the parameters, output cut off)? Do inputs and
#    targets belong together, as after shuffling one of them?
# 2. **It sees the answer.** No model can predict ordinary text this well; since held-out text is as
#    easy, it has not memorized the training text either. There is no causal mask, or the loss
#    compares position $i$ with token $i$. Settle it: change a later token and see whether earlier
#    logits change; look at the shift.
# 3. **It has memorized the training text.** On other text it only improved from 4.16 to 3.0.
#    Settle it: the held-out loss over the steps, which falls and then rises again; or a training
#    passage as a prompt, continued word for word. Remedies: more text, a smaller model, or stopping
#    earlier.
# 4. **It is done.** The first half is random and costs any model $\ln 64 = 4.16$ per token. The
#    second half can be looked up for nearly 0 (by matching several tokens, because single tokens
#    recur), so the mean is 2.08. Settle it: the loss of each half, or of each position. The
#    induction score also earns the full point as the check that settles it.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# A text is its own answer key, because position $i$ predicts token $i + 1$. To write, a model
# chooses a token, appends it, and reads again. The temperature and top-k set how random the choice
# is. An induction head looks up the token that followed the current one last time. Its keys depend
# on what heads of an earlier layer add to the residual stream. In your model, induction heads
# appear suddenly, and they need two layers. A score finds such heads, an ablation shows what the
# model needs them for, and heads that share a job have to be switched off together.
#
# ## Further exercises ★
#
# 1. **Look into your model.** Give `ladder["second block"]` 20 random letters twice. Does one of
#    its heads have an induction score above 0.3? If so, switch it off. Does the loss on stories
#    change?
# 2. **A longer run.** Train the last model of section 2 for 1,600 steps instead of 400, which takes
#    a minute or two. What is still wrong with the text that it writes at temperature 0.7?
# 3. **Another seed.** Let `grow` start from five more seeds. At which step does the loss drop?
# 4. **Your text.** Train on something you wrote.
#
# ## References
#
# - A. Vaswani and others: Attention is all you need, 2017. <https://arxiv.org/abs/1706.03762>
# - A. Radford and others: Language models are unsupervised multitask learners, 2019.
#   <https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf>
# - N. Elhage and others: A mathematical framework for transformer circuits, 2021.
#   <https://transformer-circuits.pub/2021/framework/index.html>
# - C. Olsson and others: In-context learning and induction heads, 2022.
#   <https://arxiv.org/abs/2209.11895>
# - K. Wang and others: Interpretability in the wild, 2022: heads that take over when others are
#   removed. <https://arxiv.org/abs/2211.00593>
#
# ## Next
#
# Lesson 11 runs a published language model on the attention that you wrote, and finds its induction
# heads.
