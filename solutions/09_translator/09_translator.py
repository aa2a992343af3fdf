# %% [markdown]
# # 09 · A translator from your own parts
#
# **The question.** You have written masks, softmaxes, heads and positions, each checked by itself.
# Put together, do they translate?
#
# **After this you can**
#
# - turn sentences of different lengths into batches, and train a decoder on all words at once;
# - write the blocks of a Transformer, and say what residuals and norms are for;
# - generate text from a trained model, one word after the other;
# - read a translation's attention map, and test whether it explains the word;
# - say what attention changed against recurrent networks, and what it costs.
#
# **Time:** {time}. **You need:** multi-head attention and positions (lesson 06), the causal
# attention of lesson 07, additive attention (lesson 04). Parts that are in your `my_attention/` are
# yours; for the rest the course's version steps in.

# %%
import inspect
import time
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.training import train
from course_lib.models.translator import Nearby, RecurrentTranslator, Translator

AdditiveAttention, CausalSelfAttention, MultiHeadAttention, length_mask, positional_encoding = (
    carry_on(
        "AdditiveAttention",
        "CausalSelfAttention",
        "MultiHeadAttention",
        "length_mask",
        "positional_encoding",
    )
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_printoptions(precision=4, sci_mode=False)

# %% [markdown]
# ## 1. From words to batches
#
# *How do numerals of different lengths fit into one rectangle?*

# %% tags=["demo", "hide-input"]
shapes = {"tokens": "(B, m)"}
plotting.show(plotting.diagram("encoder_decoder", lit="tokens", shapes=shapes))

# %% [markdown]
# The task is lesson 00's: German numerals come in character by character, English words go out.
# Here the numbers are 1 to 999, and every part of the model is yours. The rules that spell a number
# out are in `course_lib.models.numerals`; the model never sees a number, only ids.

# %% tags=["demo"]
numerals = Numerals("german", range(1, 1000))
for number in (7, 43, 521):
    source, target = numerals.pair(number)
    print(f"{numerals.say(number):24s} {source.tolist()}")
    print(f"{english(number):24s} {target.tolist()}")
print(len(numerals.source), "characters,", len(numerals.target), "words")

# %% [markdown]
# Id 0 is the pad in both vocabularies, and each translation ends with a word of its own, `<end>`.
#
# ### Exercise: `pad_batch`
#
# Sentences differ in length, and a batch is a rectangle of ids. Short rows are filled up, and the
# lengths are kept beside them, so that nobody mistakes the filling for words. Write the function
# that makes every batch of this lesson.
#
# - **Takes** `sequences`, a list of at least one integer tensor, each with one axis: the ids of one
#   item; and `pad`, the id that fills up the rows.
# - **Returns** two tensors. `tokens` is of shape `(B, m)`, where $B$ is the number of items and $m$
#   the length of the longest: row $i$ holds the ids of item $i$, then `pad` up to the end.
#   `valid_lens` is an integer tensor of shape `(B,)`: how many ids each item has.
#
# A token may happen to be the same number as `pad`; it counts as any other. An empty item is a row
# of pads and has length 0; if all are empty, `tokens` has shape `(B, 0)`. Any integer dtype is
# welcome, int32 as well as int64, in items and in results. The list and its tensors stay as they
# were.
#
# **Worked number.** `pad_batch([torch.tensor([5, 8, 2]), torch.tensor([4])], pad=0)` gives `tokens`
# `[[5, 8, 2], [4, 0, 0]]` and `valid_lens` `[3, 1]`.

# %%
from course_lib.attention import pad_batch

# %%
check("pad_batch")

# %% [markdown]
# ## 2. All words at once
#
# *A translation of three words is three predictions. Must the decoder run three times to learn from
# them?*

# %% tags=["demo", "hide-input"]
shapes = {"decoder tokens": "(B, t)", "linear": "(B, t, V)"}
plotting.show(plotting.diagram_strip("encoder_decoder", lit="decoder tokens", shapes=shapes))

# %% [markdown]
# No. Each word is predicted from the source and the *right* words before it, which are known while
# training. So the decoder reads the right translation, shifted right by one place, and predicts
# every word in a single pass. The causal mask keeps each position from reading its own answer.
#
# **Predict.** You forget the shift, and let the decoder read `targets` itself. How low does the
# training loss go, and how well does the model translate afterwards?
#
# <details><summary>Answer</summary>
#
# The loss goes to almost 0 within seconds: position $i$ attends to itself, and there the answer is
# written. It has learned to copy. Asked to translate, it has nothing to copy, and repeats whatever
# it is fed. A very low loss is a reason to look for a leak.
#
# </details>

# %% [markdown]
# ### Exercise: `shift_right`
#
# While a translator learns, it predicts all words of a translation at once, and at each position it
# may read only the words before it. So it reads the right translation shifted right by one place,
# with a start symbol in front; this is called *teacher forcing*. Write the function that makes
# these inputs.
#
# - **Takes** `targets`, an integer tensor `(B, t)` of words to predict, int64 or int32; and `start`,
#   the id that is read where there is no word yet.
# - **Returns** a new integer tensor `(B, t)` on the same device: in each row `start`, then the row's
#   targets but the last. `targets` stays as it was.
#
# With one word to predict, the decoder reads the start alone, and with $t = 0$ it reads nothing: the
# result has shape `(B, 0)`.
#
# **Worked number.** `shift_right(torch.tensor([[5, 8, 2]]), start=1)` gives `[[1, 5, 8]]`: where 8 is
# to be predicted, 5 is read.

# %%
from course_lib.attention import shift_right

# %%
check("shift_right")

# %% [markdown]
# ## 3. A loss that knows what is real
#
# *In a batch of numerals from "sieben" to "neunhundertneunundneunzig", how many of the targets are
# pads?*

# %% tags=["demo", "hide-input"]
shapes = {"linear": "(B, t, V)"}
plotting.show(plotting.diagram_strip("encoder_decoder", lit="logits", shapes=shapes))

# %% tags=["demo"]
sources, targets = next(numerals.batches(64, torch.Generator().manual_seed(0)))
words, word_lens = pad_batch(targets, pad=0)
pads = words.numel() - int(word_lens.sum())
print(f"{words.numel()} target positions, {pads} of them pads ({pads / words.numel():.0%})")

# %% [markdown]
# A model that learns to say `<pad>` after `<end>` collects that share of the loss without knowing a
# word. Average over the real positions only.
#
# ### Exercise: `masked_cross_entropy`
#
# A batch has pads among its targets, and no one should learn to say them. Write the mean of
# $-\log p(\text{target})$ over the positions that are real, in all items together: each real word
# counts the same, whichever item it is in.
#
# - **Takes** `logits`, a floating tensor `(B, t, V)`: one number for each word of the vocabulary,
#   before the softmax; `targets`, an integer tensor `(B, t)` of ids in $0..V-1$, of which any, 0
#   too, may be a real word and any may be a pad; and `valid_lens` `(B,)`: how many leading
#   positions of each item are real, in $0..t$. Targets and lengths are int64 or int32; some of
#   torch's functions take int64 targets only.
# - **Returns** a tensor with a single number, of shape `()`, in the dtype and on the device of
#   `logits`.
#
# What is behind an item's length changes nothing and gets a gradient of 0, however large the logits
# there are. The loss is finite for finite logits of any size. An item of length 0 adds nothing and
# does not count. If no position is real, as when all lengths are 0 or $t = 0$, the loss is 0 and its
# gradient is 0.
#
# **Worked number.** Two words, three positions, of which `valid_lens = [2]` makes the first two
# real. `[[[0, 1.098612], [0, 1.098612], [9, 0]]]` gives the logits; each real position has the
# probabilities 1/4 and 3/4. With `targets = [[1, 0, 0]]` the loss is
# $(\ln \frac{4}{3} + \ln 4) / 2 = 0.8370$. The third position, sure and right, would lower the mean
# to 0.5580 if it counted.

# %%
from course_lib.attention import masked_cross_entropy

# %%
check("masked_cross_entropy")

# %% [markdown]
# **Predict.** An untrained model finds all 32 words equally likely. What is its loss?
#
# <details><summary>Answer</summary>
#
# $\ln 32 = 3.47$, whatever the batch: with equal probabilities every word costs the same.
#
# </details>

# %% tags=["demo"]
size = len(numerals.target)
logits = torch.zeros(*words.shape, size)
print(f"{masked_cross_entropy(logits, words, word_lens):.3f}")

# %% [markdown]
# ## 4. The encoder's block
#
# *Attention mixes what is there. What makes something new of it?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "second add": "(B, m, D)"}
lit = "first norm", "first add", "second norm", "feed-forward", "second add"
plotting.show(plotting.diagram_strip("block", lit=lit, shapes=shapes))

# %% [markdown]
# Attention averages values; every position then needs a network of its own to work on what it got.
# Around both, a sum: the block *adds* to what it was given. Think of the vector at each position as
# a shared notebook, the *residual stream*. Every part reads it, through a norm, and writes its
# contribution into it; nothing that an earlier part wrote is lost on the way.
#
# ### Exercise: `EncoderBlock`
#
# Attention only moves information between positions: each output is an average of values. To make
# something new of what it found, a position needs a network of its own. An encoder block has both,
# and the source passes through it: $x$ stays, the attention adds to it, and the network adds to that:
#
# $$h = x + \text{attention}(\text{norm}_1(x)), \qquad
# \text{outputs} = h + \text{feed\_forward}(\text{norm}_2(h)).$$
#
# The sums keep a path on which $x$ reaches the outputs untouched, however many blocks follow; the
# norms bring what each part reads to one size.
#
# - **Built as** `EncoderBlock(embed_dim, num_heads, hidden_dim)`, in this order, with four layers
#   and no others. Pass the keyword arguments `device=None` and `dtype=None` on to each layer, as in
#   lesson 04.
#
# | name | layer |
# |---|---|
# | `attention` | `MultiHeadAttention(embed_dim, num_heads)` |
# | `norm_1`, `norm_2` | `nn.LayerNorm(embed_dim)`, which adds its default of 1e-5 under the root |
# | `feed_forward` | an `nn.Sequential` of two `nn.Linear`, from `embed_dim` to `hidden_dim` and back, with an `nn.ReLU` between |
#
# - **Called as** `block(x, valid_lens=None)` with `x` `(B, n, embed_dim)` and `valid_lens` `(B,)`;
#   returns `(B, n, embed_dim)`.
# - Queries, keys and values are all $\text{norm}_1(x)$. Every position, padded or not, attends to the
#   real positions of its item, those behind it included, and gets an output. What is in padded
#   positions changes no other output, however large it is.
# - In an item of length 0 the attention adds nothing; outputs and gradients are finite.
# - Nothing is dropped, and nothing is remembered from one call to the next.
#
# **Worked number.** One position $x = (2, 4)$, weights of 1 and biases of 0 in the norms, identities
# for all matrices, no other bias. $\text{norm}_1$ takes off the mean 3 and divides by the standard
# deviation 1: $(-1, 1)$. A position alone attends to itself, so $h = (2, 4) + (-1, 1) = (1, 5)$.
# $\text{norm}_2(h) = (-2, 2) / 2 = (-1, 1)$, of which ReLU leaves $(0, 1)$: the output is $(1, 6)$, up
# to the 1e-5 under the roots.
# %%
from course_lib.attention import EncoderBlock

# %%
check("EncoderBlock")

# %% [markdown]
# ## 5. The decoder's block
#
# *The decoder has to look at two things: what it wrote, and what it was asked to translate. In which
# order?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "decoder inputs": "(B, t, D)"}
lit = "masked self-attention", "cross-attention", "decoder feed-forward"
plotting.show(plotting.diagram_strip("encoder_decoder", lit=lit, shapes=shapes))

# %% [markdown]
# Its own words first: only then does it know what to ask the source. Self-attention is causal.
# Attention across takes its queries from the decoder, its keys and values from the encoder's output,
# the *memory*.
#
# ### Exercise: `DecoderBlock`
#
# The decoder writes one token after the other. A position of it reads what was written so far, asks
# the source, and thinks about both: three parts, joined as the encoder's are. With $y$ for what was
# written and the *memory* for what the encoder made of the source,
#
# $$a = y + \text{self\_attention}(\text{norm}_1(y)),$$
#
# $$b = a + \text{cross\_attention}(\text{norm}_2(a), \text{memory}, \text{memory}),$$
#
# $$\text{outputs} = b + \text{feed\_forward}(\text{norm}_3(b)).$$
#
# - **Built as** `DecoderBlock(embed_dim, num_heads, hidden_dim)`, in this order, with six layers and
#   no others. Pass on `device` and `dtype` as in `EncoderBlock`.
#
# | name | layer |
# |---|---|
# | `self_attention` | `CausalSelfAttention(embed_dim, num_heads)` |
# | `cross_attention` | `MultiHeadAttention(embed_dim, num_heads)` |
# | `feed_forward` | as in `EncoderBlock` |
# | `norm_1`, `norm_2`, `norm_3` | `nn.LayerNorm(embed_dim)`, numbered in order of use |
#
# - **Called as** `block(y, memory, valid_lens=None)` with `y` `(B, n, embed_dim)`, `memory`
#   `(B, m, embed_dim)` and `valid_lens` `(B,)`; returns `(B, n, embed_dim)`. There may be more
#   positions in `y` than in the memory, or fewer.
# - Position $i$ of `y` sees the positions $j \le i$ of `y`, and the whole memory of its item as far as
#   it is real.
# - `valid_lens` says how many positions of the *memory* are real. What is in its padded positions
#   changes nothing, however large it is. `y` needs no lengths: its pads come last, where no real position looks.
# - The memory is attended to as it is, without a norm.
# - Where the memory has length 0 the attention across adds nothing; outputs and gradients are finite.
# - Nothing is dropped, and nothing is remembered from one call to the next.
#
# **Worked number.** One position $y = (1, 3)$, one position of memory $(2, 0)$, identities as above
# (three of them in `W_qkv`). The self-attention gives $\text{norm}_1(y) = (-1, 1)$, so $a = (0, 4)$. With
# one key, whatever is asked, the answer is its value: $b = (0, 4) + (2, 0) = (2, 4)$.
# $\text{norm}_3(b) = (-1, 1)$, and the output is $(2, 4) + (0, 1) = (2, 5)$.

# %%
from course_lib.attention import DecoderBlock

# %%
check("DecoderBlock")

# %% [markdown]
# ## 6. Put together
#
# *Three functions, two blocks, five parts from earlier lessons. How much is missing?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "decoder inputs": "(B, t, D)", "linear": "(B, t, V)"}
lit = "embedding", "decoder embedding", "linear"
plotting.show(plotting.diagram_strip("encoder_decoder", lit=lit, shapes=shapes))

# %% [markdown]
# Two embeddings, a last norm, and a linear layer that turns vectors into one number for each word.
# `Translator` joins these with the parts you hand it. Its whole forward pass:

# %% tags=["demo"]
plotting.show_source(inspect.getsource(Translator.forward))

# %% [markdown]
# Two decisions make the map readable. The attention across has a single head, so there is one map
# and not four that share the work. And `Nearby` lets each character see only those at most four
# away, so what the memory holds at a character is about the letters around it. Section 9 shows what
# happens without it.


# %%
def new_translator(numerals, near=4, additive=False):
    """An untrained translator of your own blocks, the same each time."""
    torch.manual_seed(0)
    encoder, decoder = EncoderBlock(32, 4, 64), DecoderBlock(32, 4, 64)
    if near is not None:
        encoder.attention = Nearby(encoder.attention, near)
    decoder.cross_attention = (
        AdditiveAttention(32, 32, 32) if additive else MultiHeadAttention(32, 1)
    )
    return Translator(numerals, encoder, decoder, positional_encoding(64, 32)).to(device)


def learn(model, numerals, num_steps=400, label="learning numerals", max_lr=0.01):
    """Trains with your batches, your inputs and your loss; returns the losses."""
    batches = numerals.batches(64, torch.Generator().manual_seed(0))

    def next_loss():
        sources, targets = next(batches)
        source, source_lens = (t.to(device) for t in pad_batch(sources, model.pad))
        words, word_lens = (t.to(device) for t in pad_batch(targets, model.pad))
        logits = model(source, source_lens, shift_right(words, model.start))
        return masked_cross_entropy(logits, words, word_lens)

    return train(model, next_loss, num_steps, max_lr=max_lr, label=label)


# %% tags=["demo", "nbval-ignore-output"]
translator = new_translator(numerals)
begun = time.perf_counter()
losses = learn(translator, numerals)
seconds = time.perf_counter() - begun
if device == "cuda":  # a tenth of the steps on the processor, to compare
    device, begun = "cpu", time.perf_counter()
    learn(new_translator(numerals), numerals, 40, "on the processor")
    slower = 10 * (time.perf_counter() - begun) / seconds
    print(f"the GPU is {slower:.1f} times as fast as this processor")
    device = "cuda"
print(f"loss of the first batch {losses[0]:.2f}, of the last twenty {losses[-20:].mean():.3f}")
assert losses[-20:].mean() < 0.1

# %% [markdown]
# A loss is not a translation. For that, the model has to go on from its own words.

# %% [markdown]
# ## 7. Word by word
#
# *While training, the model read the right words. Who gives it those now?*

# %% tags=["demo", "hide-input"]
shapes = {"decoder tokens": "(B, t)", "linear": "(B, t, V)"}
lit = "decoder tokens", "logits"
plotting.show(plotting.diagram_strip("encoder_decoder", lit=lit, shapes=shapes))

# %% [markdown]
# No one. It reads what it wrote itself, and an early mistake is part of everything after it.
#
# ### Exercise: `greedy_decode`
#
# A trained model says how likely each word is to come next, and a translation is made by asking it
# again and again: take the most likely word, let the model read it, ask for the next. Write the loop
# for a whole batch, in which each item ends where it ends.
#
# - **Takes** `model`, an `nn.Module` to call as `model(source, valid_lens, inputs)`: it returns
#   logits `(B, t, V)` for `inputs` `(B, t)`, the logits at a position for the word that comes after
#   those up to there. `model.pad` is the id of its pad. It never looks ahead, and has no memory
#   between two calls. `source` is an integer tensor `(B, m)`, int64 or int32, with `valid_lens`
#   `(B,)`; `start`, `end` and `max_len` are whole numbers: the id that is read first, the id that
#   ends a translation, and the most words a translation may have, `end` included.
# - **Returns** an integer tensor of at most `max_len` columns, `(B, num_words)`, on the device of
#   `source`: the words of each item without `start` and with `end`.
#
# Each word is the most likely one after `start` and all words chosen before it. An item ends with
# its first `end` and with nothing else: the id of the pad is a word like others if the model says it.
# Behind `end` its row is filled with `model.pad`, while the others go on. An item that has not ended
# after `max_len` words is cut there. The result is as wide as the longest translation. With
# `max_len=0` it has shape `(B, 0)`. A source of length 0, or of one position, is translated as any
# other.
#
# The model runs in eval mode and under `torch.no_grad()` or the like, so that no graph is built.
# Afterwards it is in the mode in which it came, train or eval.
#
# **Worked number.** Let a model be sure that the next word is the last one plus a number: it adds
# the length of the item's source. With sources `[[1, 1, 0], [1, 1, 1]]` of the lengths 2 and 3,
# `start=0`, `end=6`, `max_len=5` and the pad 9, item 0 says 2, 4, 6 and item 1 says 3, 6: the result
# is `[[2, 4, 6], [3, 6, 9]]`.

# %%
from course_lib.attention import greedy_decode

# %%
check("greedy_decode")


# %% tags=["demo", "nbval-ignore-output"]
def translate(model, numerals, texts):
    """The English words for numerals, written out or as numbers, and the map of the last step."""
    source, lens = pad_batch([numerals.source_ids(text) for text in texts], model.pad)
    source, lens = source.to(device), lens.to(device)
    said = greedy_decode(model, source, lens, model.start, model.end, max_len=12)
    return [numerals.target.words(row) for row in said]


def share_right(model, numerals, numbers):
    """How many of the numbers are translated without any mistake."""
    right = [english(number).split() for number in numbers]
    said = translate(model, numerals, numbers)
    return sum(a == b for a, b in zip(said, right, strict=True)) / len(numbers)


for words in translate(translator, numerals, ["dreiundvierzig", "neunhunderteins", 777]):
    print(" ".join(words))
share = share_right(translator, numerals, numerals.unseen)
print(f"{share:.1%} of {len(numerals.unseen)} numbers that it never saw")
assert share > 0.9

# %% [markdown]
# Type numerals of your own into the list above. The course's own run, with its weights from
# `torch.manual_seed(0)`, gets about 98 % right. No rule about numbers is built in anywhere: what
# *und* does, and that English says the tens first, it learned from examples.
#
# ### Longer than anything it saw ★
#
# **Predict.** It has seen numbers up to 999. What does it make of *zweitausenddreihundert*?
#
# <details><summary>Answer</summary>
#
# "Thousand" was never among the right answers, so its logit has only ever been pushed down. The
# model picks the words it knows, fluently, and nothing in the output says that it is out of its
# depth. Positions past the longest numeral of training are new to it as well.
#
# </details>

# %% tags=["demo", "nbval-ignore-output"]
for text in ("zweitausenddreihundert", "neunzehnhundert"):
    print(text, "->", " ".join(translate(translator, numerals, [text])[0]))

# %% [markdown]
# ## 8. Where did each word look?
#
# *German says the ones before the tens, English after them. Something has to cross. Where?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "decoder inputs": "(B, t, D)"}
plotting.show(plotting.diagram_strip("encoder_decoder", lit="cross-attention", shapes=shapes))


# %% tags=["demo", "nbval-ignore-output"]
def looked(model, numerals, text):
    """Words, characters, and the weights of each word over the characters."""
    words = translate(model, numerals, [text])[0]
    source = numerals.source_ids(text)[None].to(device)
    inputs = numerals.target.ids(["<start>", *words])[None].to(device)
    with torch.no_grad():
        model(source, torch.tensor([source.shape[1]], device=device), inputs)
    weights = model.maps.reshape(-1, inputs.shape[1], source.shape[1])[0, : len(words)]
    return words, numerals.source.words(source[0]), weights.cpu()


words, characters, weights = looked(translator, numerals, "siebenhundertdreiundvierzig")
plotting.show(plotting.attention(weights, queries=words, keys=characters))

# %% tags=["demo", "nbval-ignore-output"]
words, characters, weights = looked(translator, numerals, "dreiundvierzig")
for word, place in zip(words, weights.argmax(-1).tolist(), strict=True):
    print(f"{word:6s} looks most at character {place}, in dreiundvierzig[{place}:]")
assert weights.argmax(-1)[0] > 5 > weights.argmax(-1)[1]

# %% [markdown]
# *Forty* looks into *vierzig*, *three* into *drei*, and the two lines cross. Often a single letter
# gets nearly everything: the encoder has already gathered its neighbours there, so one place is
# enough. In 2014 this picture was a sensation: nobody had told the model which word belongs to
# which, and its weights show it.
#
# ## 9. Is the map an explanation?
#
# *The map says where the decoder looked. Does it say why the word came out?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "decoder inputs": "(B, t, D)"}
plotting.show(plotting.diagram_strip("encoder_decoder", lit="cross-attention", shapes=shapes))

# %% [markdown]
# A claim about causes needs an intervention: take away what the word looked at, and see whether the
# word changes.
#
# ### Exercise: `effect_of_masking`
#
# A map shows where a word looked; it does not show whether the word needed what it saw there. So
# take it away: forbid one position of the source, and measure how much less likely each word of a
# translation becomes.
#
# - **Takes** `model`, an `nn.Module` to call as `model(source, valid_lens, inputs, mask=mask)`: it
#   returns logits `(B, t, V)` as for `greedy_decode`. `mask` is a bool tensor `(B, m)`, True = may
#   attend; a position is attended only if the mask and the length both allow it, and without a mask
#   the length alone decides. `model.start` is the id that the decoder reads first. `source` `(1, m)`,
#   `valid_lens` `(1,)` and `target` `(1, t)` are integer tensors, int64 or int32, of one item:
#   `target` holds the words of a translation, without a start. `position`, in $0..m-1$, is the
#   position of the source that may not be attended.
# - **Returns** a floating tensor of shape `(t,)`, one number for each word of `target`: the
#   log-probability of the word when the position is masked, minus that with the whole source. Each
#   is the probability of the word given the words of `target` before it, so a negative number
#   means that the word needed the position.
#
# The position is neither deleted nor overwritten: all others stay where they are. A position beyond
# the length is hidden anyway, and so is every position of a source of length 0: the changes are 0.
# A source may have one position; masking it leaves nothing to attend, which the model can bear. With
# $t = 0$ the result has shape `(0,)`. The changes are finite however sure the model is, and the
# arguments stay as they were, on whichever device they are.
#
# The model runs in eval mode and under `torch.no_grad()` or the like, so that no graph is built.
# Afterwards it is in the mode in which it came, train or eval.
#
# **Worked number.** In a model of 3 words each word has one vote, and each source position that may
# be attended gives its own word one more; probabilities are shares of the votes. For the source
# `[[1, 2, 1]]` of length 3 the votes of the words 0, 1, 2 are 1, 3, 2, and with position 0 masked
# 1, 2, 2. So for the target `[[1, 2]]` the changes are
# $\ln \frac{2/5}{3/6} = \ln 0.8 = -0.2231$ and $\ln \frac{2/5}{2/6} = \ln 1.2 = 0.1823$.

# %%
from course_lib.attention import effect_of_masking

# %%
check("effect_of_masking")


# %% tags=["demo", "nbval-ignore-output"]
def effects(model, numerals, text):
    """For each word and character: by how much masking the character changes the word's log-p."""
    words = translate(model, numerals, [text])[0]
    source = numerals.source_ids(text)[None].to(device)
    lens = torch.tensor([source.shape[1]], device=device)
    target = numerals.target.ids(words)[None].to(device)
    columns = [effect_of_masking(model, source, lens, target, j) for j in range(source.shape[1])]
    return torch.stack(columns, dim=1).cpu()  # (t, m)


change = effects(translator, numerals, "dreiundvierzig")
maps = torch.stack([weights, (-change).clamp(0, 1)])
heads = ["weight", "lost when hidden"]
plotting.show(plotting.attention(maps, queries=words, keys=characters, heads=heads))

# %% [markdown]
# The first map shows the weights. The second shows how much log-probability each word loses when a
# character is hidden, cut off at 1. One numeral is not much evidence, so the next cell hides the letter
# that each word looked at most, for all numerals of two words up to 99.
#
# **Predict.** In how many cases does the word lose more than 1 nat? And in how many does it hardly notice,
# with a loss of less than 0.1?

# %% tags=["demo", "nbval-ignore-output"]
two_words = [number for number in range(21, 100) if number % 10]


def over_two_words(model):
    """Return what hiding the letter looked at most costs, and how many words look into their part."""
    costs, in_tens, in_ones = [], 0, 0
    for number in two_words:
        text = numerals.say(number)  # ones, "und", tens
        words, _, weights = looked(model, numerals, text)
        source, target = numerals.source_ids(text)[None], numerals.target.ids(words)[None]
        lens = torch.tensor([source.shape[1]])
        inputs = source.to(device), lens.to(device), target.to(device)
        positions = weights.argmax(dim=-1).tolist()
        for i, position in enumerate(positions):
            costs.append(-effect_of_masking(model, *inputs, position)[i].item())
        in_tens += positions[0] >= text.index("und") + 3
        in_ones += positions[-1] < text.index("und")
    return torch.tensor(costs), in_tens, in_ones


costs, in_tens, in_ones = over_two_words(translator)
print(f"of {len(costs)} words, {(costs > 1).float().mean():.0%} lose more than 1 nat", end=", ")
print(f"{(costs < 0.1).float().mean():.0%} less than 0.1")
print(f"looks into its own part: the tens in {in_tens}, the ones in {in_ones} of {len(two_words)}")
assert (costs > 1).float().mean() > 0.3 and (costs < 0.1).any()

# %% [markdown]
# In our run, more than half of the words lose more than 1 nat, and about a third hardly notice. There,
# the neighbors of the hidden letter contain nearly the same, because the encoder let them see each other.
# So a large weight does not prove that the word depended on this position.
#
# **Predict.** Now train the same model without `Nearby`, so that every character may see every other.
# Does it translate worse? Do words still look into their own part of the numeral?

# %% tags=["demo", "nbval-ignore-output"]
everywhere = new_translator(numerals, near=None)
learn(everywhere, numerals, label="no window")
print(f"{share_right(everywhere, numerals, numerals.unseen):.1%} right")
_, in_tens, in_ones = over_two_words(everywhere)
print(f"looks into its own part: the tens in {in_tens}, the ones in {in_ones} of {len(two_words)}")
words, characters, weights = looked(everywhere, numerals, "dreiundvierzig")
plotting.show(plotting.attention(weights, queries=words, keys=characters))

# %% [markdown]
# <details><summary>Answer</summary>
#
# It translates as well. In our run the tens still look into their own part, but the ones do so less
# often than before, and other seeds differ more. Without a window, the encoder is free to store "three"
# at any letter. Attention weights show from which *positions* a vector was read. What those positions
# contain is another question. When someone offers a map as an explanation, ask for an intervention.
#
# </details>

# %% [markdown] written="map_as_explanation"
# ### Written question: the map in the report
#
# A colleague's model decides which insurance claims to refuse. To explain a refusal, the report
# prints the claim with the words coloured by attention weight. In about ten sentences: what does the
# colouring show, and what does it not show? Which two experiments of this section would you run
# before the report goes out, and what result would make you withdraw the colouring?
#
# ### BEGIN SOLUTION
# RUBRIC (4 points). 1: weights say from which positions the last layer read, after earlier layers
# moved information between positions (the model without a window translates as well, with words that
# look less often into their own part). 1: a large weight does not make the decision depend on that word; only an
# intervention tells. 1: proposes masking the words with the largest weights *and*, as a control, words
# with small ones, and compares the change of the decision's log-probability; or trains a model of the
# same quality whose map differs. 1: says what would count against the colouring: masking the coloured
# words leaves the decision, masking others changes it, or equally good models colour other words.
# ### END SOLUTION

# %% [markdown]
# ## 10. Leave something out
#
# *Which parts could you drop?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "second add": "(B, m, D)"}
lit = "first norm", "first add", "second norm", "second add"
plotting.show(plotting.diagram_strip("block", lit=lit, shapes=shapes))

# %% [markdown]
# ### Residuals and norms
#
# One block forgives much. Three blocks do not. Below, the encoder and the decoder are three blocks
# deep: once whole, once without residuals, once without norms.


# %% tags=["demo"]
class EncoderWithoutSums(EncoderBlock):
    def forward(self, x, valid_lens=None):
        z = self.norm_1(x)
        return self.feed_forward(self.norm_2(self.attention(z, z, z, valid_lens)))


class DecoderWithoutSums(DecoderBlock):
    def forward(self, y, memory, valid_lens=None):
        y = self.self_attention(self.norm_1(y))
        y = self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return self.feed_forward(self.norm_3(y))


class Stack(nn.Module):
    """Blocks one after the other; the attention across that is kept is the last one's."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, *others):
        for block in self.blocks:
            x = block(x, *others)
        return x


def deep_translator(encoder=EncoderBlock, decoder=DecoderBlock, norms=True):
    torch.manual_seed(0)
    encoders = Stack(encoder(32, 4, 64) for _ in range(3))
    decoders = Stack(decoder(32, 4, 64) for _ in range(3))
    for block in [*encoders.blocks, *decoders.blocks] if not norms else []:
        for name in ("norm_1", "norm_2", "norm_3"):
            if hasattr(block, name):
                setattr(block, name, nn.Identity())
    positions = positional_encoding(64, 32)
    return Translator(numerals, encoders, decoders, positions).to(device)


# %% [markdown]
# The learning rate rises to a peak of 0.02 and falls again (a *one-cycle* schedule).
#
# **Predict.** Which of the two does more harm, and what will its loss look like?

# %% tags=["demo", "nbval-ignore-output"]
deep = {
    "whole": deep_translator(),
    "no residuals": deep_translator(EncoderWithoutSums, DecoderWithoutSums),
    "no norms": deep_translator(norms=False),
}
curves = {name: learn(model, numerals, 250, name, 0.02) for name, model in deep.items()}
smooth = {name: losses.reshape(25, 10).mean(1) for name, losses in curves.items()}
steps = torch.arange(10, 251, 10)
plotting.show(plotting.lines(steps, smooth, x_label="steps", y_label="loss"))
deep["no norms, at 0.01"] = deep_translator(norms=False)
learn(deep["no norms, at 0.01"], numerals, 250, "no norms, at 0.01", 0.01)
for name, model in deep.items():
    print(f"{name:18s} {share_right(model, numerals, numerals.unseen):6.1%} right")
assert smooth["whole"][-1] < 0.5 < smooth["no residuals"][-1]

# %% [markdown]
# <details><summary>Answer</summary>
#
# Without residuals, the loss hardly falls. The gradient has to pass through every softmax and every
# network, and after the first block little is left of what a character was. Without norms, the loss
# falls at first, and then one large step sends numbers of an unknown size into everything downstream. At
# half the peak learning rate, the model without norms trains nearly as well as the whole one. The model
# without residuals does not. Residuals make depth possible, and norms widen the range of learning rates.
#
# </details>

# %% [markdown]
# ### Positions, and the other score ★

# %% tags=["demo", "nbval-ignore-output"]
additive = new_translator(numerals, additive=True)
blind = new_translator(numerals, near=None)
blind.positions.zero_()
for name, model in {"additive": additive, "no positions": blind}.items():
    learn(model, numerals, label=name)
    print(f"{name:13s} {share_right(model, numerals, numerals.unseen):6.1%} right")

# %% [markdown]
# The additive score of lesson 04 does as well as the dot product. It costs more, a tanh for every pair and
# every hidden unit.
#
# Without positions, and without a window that would give some away, less than half comes out right:
# *dreihundertvier* and *vierhundertdrei* are the same letters, and nothing else is left.
#
# ### Another language ★
#
# French counts 91 as *quatre-vingt-onze*, four twenties and eleven. The blocks stay as they are. Only
# the window has to go: *quatre-vingt* is twelve characters long, and with four to each side no
# character ever sees all of it (then about 70 % come out right).

# %% tags=["demo", "nbval-ignore-output"]
french = Numerals("french", range(1, 1000))
traducteur = new_translator(french, near=None)
learn(traducteur, french, 600, "French")
print(f"{share_right(traducteur, french, french.unseen):.1%} right")
nineties = [n for n in french.unseen if french.say(n).find("quatre-vingt-") >= 0]
said = translate(traducteur, french, nineties)
right = [n for n, words in zip(nineties, said, strict=True) if words == english(n).split()]
words, characters, weights = looked(traducteur, french, french.say(right[0]))
plotting.show(plotting.attention(weights, queries=words, keys=characters))

# %% [markdown]
# Where does *ninety* look? No piece of the French word means it: *ninety* has to be put together from
# *quatre-vingt* and the ten in *onze*. A window would have made this impossible, and without one the
# map says little. You can have a map that is easy to read, or a model that is free to mix.
#
# ## 11. Before attention
#
# *The first neural translators, of 2014, had no attention. What could they not do?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "decoder inputs": "(B, t, D)"}
lit = "cross-attention", "second add"
plotting.show(plotting.diagram_strip("encoder_decoder", lit=lit, shapes=shapes))

# %% [markdown]
# A recurrent network reads one symbol after the other into a state of fixed size. The decoder starts
# from the last state, and that is all it ever learns about the source.
#
# | | recurrent | attention |
# |---|---|---|
# | steps that wait for each other, $n$ positions | $n$ | 1 |
# | path from the first position to the last | $n$ steps | 1 step |
# | what the decoder knows of the source | one vector | every position |
# | work in a layer, width $d$ | $n d^2$ | $n^2 d + n d^2$ |
# | memory for a word more while generating | none | its key and value |
#
# **Predict.** Give a GRU the same width, the same batches and the same number of steps. What share
# of the numerals does it get right?

# %% tags=["demo", "nbval-ignore-output"]
torch.manual_seed(0)
recurrent = RecurrentTranslator(numerals, embed_dim=32).to(device)
seconds = {}
for name, model in {"GRU": recurrent, "attention": new_translator(numerals)}.items():
    begun = time.perf_counter()
    learn(model, numerals, 100 if name == "attention" else 400, name)
    seconds[name] = time.perf_counter() - begun
    steps_taken = 100 if name == "attention" else 400
    print(f"{name:10s} {steps_taken} steps, {1000 * seconds[name] / steps_taken:.0f} ms each")
print(f"the GRU gets {share_right(recurrent, numerals, numerals.unseen):.1%} right")

# %% [markdown]
# <details><summary>Answer</summary>
#
# At the same number of steps the GRU is far behind: about a third in the course's run. With more
# steps it gets there, too: a numeral of thirty letters fits into 32 numbers. A page of text does
# not. Its steps are no slower here, since $n$ is small and a CPU does one thing at a time; on a GPU
# with long sequences the column "steps that wait for each other" decides.
#
# </details>

# %% [markdown]
# ## Summary
#
# A translator is an encoder that makes a memory of the source, and a decoder that writes word by word:
# causal attention over its own words, attention across to the memory. Batches carry lengths, so that
# pads are never attended and never count in the loss. While training, the decoder reads the shifted
# targets and predicts all words at once; afterwards it reads its own. Residuals make depth possible,
# norms let it learn fast. A map shows from where a vector was read; only an intervention shows what
# the word depended on.
#
# ## Further exercises ★
#
# 1. **Beam search.** Keep the four best beginnings at each step. Does any of the unseen numerals that
#    go wrong come out right?
# 2. **Backwards.** English to German, words in and characters out. Which direction is harder, and why?
# 3. **Four heads.** Leave the decoder's attention across with four heads and look at all of them. Can
#    you read them?
# 4. **A longer number.** Train on numbers up to 9999, but leave out those from 4000 to 4999. Does
#    *viertausend* come out right?
# 5. **Your language.** Write a rule for one more language and train on it.
#
# ## References
#
# - I. Sutskever, O. Vinyals, Q. V. Le: Sequence to sequence learning with neural networks, 2014.
#   <https://arxiv.org/abs/1409.3215>
# - D. Bahdanau, K. Cho, Y. Bengio: Neural machine translation by jointly learning to align and
#   translate, 2014. <https://arxiv.org/abs/1409.0473>
# - A. Vaswani and others: Attention is all you need, 2017. <https://arxiv.org/abs/1706.03762>
# - R. Xiong and others: On layer normalization in the Transformer architecture, 2020: why the norm
#   comes first. <https://arxiv.org/abs/2002.04745>
# - S. Jain, B. C. Wallace: Attention is not explanation, 2019. <https://arxiv.org/abs/1902.10186>
# - S. Wiegreffe, Y. Pinter: Attention is not not explanation, 2019. <https://arxiv.org/abs/1908.04626>
