# %% [markdown]
# # 09 · A translator from your own parts
#
# **The question.** You have written masks, softmaxes, heads and positions, and each passed its own
# check. Can they translate when you put them together?
#
# **After this you can**
#
# - train a decoder on all words of a batch at once, with a loss that ignores padding;
# - write the blocks of a Transformer, and say what each part adds;
# - generate text from a trained model, one word at a time;
# - read a translator's map, and test whether it explains a word;
# - compare your translator with the one in lesson 00.
#
# **Time:** {time}. **You need:** multi-head attention and positions (lesson 06) and the causal
# attention of lesson 07. The lesson uses the parts in your `my_attention/`, and the course's
# version of any part that is missing there.

# %%
import inspect

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import live_translator, save_translator, trained_translator
from course_lib.models.training import train
from course_lib.models.translator import Nearby, RecurrentTranslator, Translator
from course_lib.models.whole_game import translate_batch

CausalSelfAttention, MultiHeadAttention, length_mask, positional_encoding = carry_on(
    "CausalSelfAttention", "MultiHeadAttention", "length_mask", "positional_encoding"
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running
torch.set_printoptions(precision=4, sci_mode=False)

# %% tags=["demo", "hide-input"]
shapes = {"tokens": "(B, m)", "decoder tokens": "(B, t)", "linear": "(B, t, V)"}
plotting.show(plotting.diagram("encoder_decoder", shapes=shapes), key="translator")

# %% [markdown]
# `B` counts the numerals in a batch, `m` the letters, `t` the words, and `V` the words in the
# vocabulary.

# %% [markdown]
# ## 1. From words to a loss
#
# *How does a decoder learn from all words of a batch at once, if the numerals differ in length?*
#
# The task is lesson 00's: German letters go in, and English words come out. For now, the numbers
# are 1 to 999. The model never sees a number, only the *ids* of letters and words.

# %% tags=["demo"]
numerals = Numerals("german", range(1, 1000))
for number in (7, 43, 521):
    source, target = numerals.pair(number)
    print(f"{numerals.say(number):24s} {source.tolist()}")
    print(f"{english(number):24s} {target.tolist()}")
print(len(numerals.source), "letters,", len(numerals.target), "words")
assert len(numerals.target) == 32 and target[-1] == numerals.target["<end>"]

# %% [markdown]
# Id 0 is the pad in both vocabularies, and each translation ends with the word `<end>`. In the next
# cell, `pad_batch` pads short rows and returns the lengths in a separate tensor. The cell then pads
# a batch of 64 translations.


# %% tags=["demo"]
def pad_batch(sequences, pad):
    """Return sequences of ids as the rows of one tensor, and their lengths."""
    lens = torch.tensor([len(sequence) for sequence in sequences])
    return nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=pad), lens


sources, targets = next(numerals.batches(64, torch.Generator().manual_seed(0)))
words, word_lens = pad_batch(targets, pad=0)
print(words[:2].tolist(), word_lens[:2].tolist())
num_pads = words.numel() - int(word_lens.sum())
print(f"{words.numel()} targets, {num_pads} of them pads ({num_pads / words.numel():.0%})")
assert 0.1 < num_pads / words.numel() < 0.5

# %% [markdown]
# ### All words at once

# %% tags=["demo", "hide-input"]
shapes = {"decoder tokens": "(B, t)", "linear": "(B, t, V)"}
strip = plotting.diagram_strip("encoder_decoder", lit="decoder tokens", shapes=shapes)
plotting.show(strip, key="teacher forcing")

# %% [markdown]
# A translation of three words, counting `<end>`, takes three predictions, and one pass of the
# decoder makes all of them. Each word is predicted from the source and the *correct* words before
# it, and during training these are known. So the decoder reads the correct translation, shifted
# right by one position, with a start symbol in front. This is called *teacher forcing*. The causal
# mask keeps each position from reading later ones.
#
# If you forget the shift, the decoder reads the targets themselves, and the loss falls to almost 0.
# Each position attends to itself and finds the answer there, so the model learns to copy. When it
# has to translate, there is nothing to copy.

# %% [markdown]
# ### Exercise: `shift_right`
#
# - **Takes** `targets` `(B, t)`, int64 or int32, and `start`, the id of the start symbol.
# - **Returns** a new integer tensor `(B, t)` on the same device. Each row is `start`, followed by
#   the row's targets except the last. With $t = 0$, the result has shape `(B, 0)`. Do not change
#   `targets`.
#
# **Worked example.** `shift_right(torch.tensor([[5, 8, 2]]), start=1)` gives `[[1, 5, 8]]`.

# %%
from course_lib.attention import shift_right

# %%
check("shift_right")

# %% [markdown]
# ### A loss that ignores padding
#
# A model that learns to predict `<pad>` after `<end>` would lower its loss on all of these pads
# without learning a word. So the loss averages over the real positions only.

# %% [markdown]
# ### Exercise: `masked_cross_entropy`
#
# - **Takes** `logits` `(B, t, V)`; `targets` `(B, t)`, ids in $0..V-1$; and `valid_lens` `(B,)`,
#   the number of leading positions of each item that are real.
# - **Returns** the mean of $-\log p(\text{target})$ over all real positions of all items, a tensor
#   of shape `()` in the dtype and on the device of `logits`.
# - **Edge cases.** Positions beyond an item's length have no effect and get zero gradient. The loss
#   is finite for finite logits of any size. If no position is real, as with $t = 0$, the loss and
#   its gradient are 0. Targets and lengths may be int32. A target of 0 can be a real word.
#
# **Worked example.** Take `logits` `[[[0, 1.098612], [0, 1.098612], [9, 0]]]`, `targets`
# `[[1, 0, 0]]` and `valid_lens` `[2]`. The two real targets have the probabilities 3/4 and 1/4, so
# the loss is $(\ln \frac{4}{3} + \ln 4) / 2 = 0.8370$.

# %%
from course_lib.attention import masked_cross_entropy

# %%
check("masked_cross_entropy")

# %% [markdown]
# To an untrained model, all 32 words are about equally likely, so its loss is about
# $\ln 32 = 3.47$.

# %% [markdown]
# ## 2. The blocks of a Transformer
#
# *Attention only mixes. What computes something new?*

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "second add": "(B, m, D)"}
lit = "first norm", "first add", "second norm", "feed-forward", "second add"
plotting.show(plotting.diagram_strip("block", lit=lit, shapes=shapes), key="stream")

# %% [markdown]
# Attention averages values, so it can only move information between positions. An encoder block
# follows it with a *feed-forward network*, which works at each position separately. Each of the two
# *adds* its result to its input:
#
# $$h = x + \text{attention}(\text{norm}_1(x)), \qquad
# \text{outputs} = h + \text{feed\_forward}(\text{norm}_2(h)).$$
#
# Each path that carries $x$ or $h$ past a part is called a *residual connection*, and the vectors to
# which both parts add are called the *residual stream*. Each part reads the stream and adds to it,
# and no part overwrites what earlier ones have added.
#
# *Layer normalization* rescales the input of each part to a standard size. It subtracts the mean of
# a vector's features and divides by their standard deviation, then applies a learned scale and
# shift. Here each norm comes *before* its part, which is called *pre-norm*. The original
# Transformer is *post-norm*: it normalizes each sum. Many recent models use *RMSNorm*, which leaves
# out the mean and the shift.

# %% [markdown]
# ### Exercise: `EncoderBlock`
#
# - **`__init__`** creates the four layers below and no others. Pass `device` and `dtype` on to each
#   layer.
# - **`forward`** returns the outputs of the two formulas above, `(B, n, embed_dim)`. Queries, keys
#   and values are all $\text{norm}_1(x)$.
# - **Edge cases.** Every position, padded or not, gets an output and attends to exactly the real
#   positions of its item, including later ones. In an item of length 0, the attention adds nothing,
#   and gradients stay finite. There is no dropout.
#
# | name | layer |
# |---|---|
# | `attention` | `MultiHeadAttention(embed_dim, num_heads)` |
# | `norm_1`, `norm_2` | `nn.LayerNorm(embed_dim)`, with its default `eps` |
# | `feed_forward` | `nn.Sequential` of an `nn.Linear` from `embed_dim` to `hidden_dim`, an `nn.ReLU`, and an `nn.Linear` back |
#
# **Worked example.** Take one position $x = (2, 4)$, identities for all matrices, and biases of 0.
# The mean is 3 and the standard deviation 1, so $\text{norm}_1$ gives $(-1, 1)$. A single position
# attends to itself, so $h = (2, 4) + (-1, 1) = (1, 5)$. Then $\text{norm}_2(h) = (-1, 1)$, ReLU
# leaves $(0, 1)$, and the output is $(1, 6)$, apart from the effect of `eps`.

# %%
from course_lib.attention import EncoderBlock

# %%
check("EncoderBlock")

# %% [markdown]
# ### The decoder block

# %% tags=["demo", "hide-input"]
shapes = {"inputs": "(B, m, D)", "decoder inputs": "(B, t, D)"}
lit = "masked self-attention", "cross-attention", "decoder feed-forward"
strip = plotting.diagram_strip("encoder_decoder", lit=lit, shapes=shapes)
plotting.show(strip, key="decoder block")

# %% [markdown]
# A decoder block first reads the words written so far, with causal self-attention, because what it
# looks for in the source depends on them. *Cross-attention* then takes its queries from the
# decoder, and its keys and values from the output of the encoder, the *memory*. A feed-forward
# network comes last:
#
# $$a = y + \text{self\_attention}(\text{norm}_1(y)),$$
#
# $$b = a + \text{cross\_attention}(\text{norm}_2(a), \text{memory}, \text{memory}),$$
#
# $$\text{outputs} = b + \text{feed\_forward}(\text{norm}_3(b)).$$

# %% [markdown]
# ### Exercise: `DecoderBlock`
#
# - **`__init__`** creates the six layers below and no others. Pass on `device` and `dtype`.
# - **`forward`** returns the outputs of the three formulas for `y` `(B, n, embed_dim)` and `memory`
#   `(B, m, embed_dim)`. $n$ may be larger or smaller than $m$.
# - **Edge cases.** `valid_lens` holds the lengths of the *memory* alone. Padded positions of the
#   memory have no effect. With a length of 0, the cross-attention adds nothing, and gradients stay
#   finite. There is no dropout.
#
# | name | layer |
# |---|---|
# | `self_attention` | `CausalSelfAttention(embed_dim, num_heads)` |
# | `cross_attention` | `MultiHeadAttention(embed_dim, num_heads)` |
# | `feed_forward` | as in `EncoderBlock` |
# | `norm_1`, `norm_2`, `norm_3` | `nn.LayerNorm(embed_dim)`, numbered in order of use |
#
# **Worked example.** Take one position $y = (1, 3)$, one position of memory $(2, 0)$, and
# identities as above (three of them in `W_qkv`). Then $a = (1, 3) + (-1, 1) = (0, 4)$. The only key
# gets all the weight, so $b = (0, 4) + (2, 0) = (2, 4)$. The output is $(2, 4) + (0, 1) = (2, 5)$.

# %%
from course_lib.attention import DecoderBlock

# %%
check("DecoderBlock")

# %% [markdown]
# ## 3. Add one part at a time
#
# *What does each part contribute?*
#
# `Translator` joins your blocks with two embeddings, a last norm, and a linear layer that returns
# one number for each word. Its `embed` looks up the vectors of tokens and adds those of their
# positions.

# %% tags=["demo"]
plotting.show_source(inspect.getsource(Translator.forward))

# %% [markdown]
# `Translator` also has an argument `mask`, which section 5 uses. If a mask is given, `forward`
# moves the allowed positions of the memory to the front and shortens `valid_lens`, so the other
# positions are masked as padding.
#
# Two decisions make the map readable. The cross-attention has a single head, so there is one map.
# And `Nearby` lets each letter attend only to a *window*, the letters at most four positions away,
# so the memory at a letter describes only its neighborhood.


# %% tags=["demo"]
def new_translator(numerals, embed_dim=32, hidden_dim=64, window=4):
    """Return an untrained translator of your own blocks, the same each time."""
    torch.manual_seed(0)
    encoder = EncoderBlock(embed_dim, 4, hidden_dim)
    decoder = DecoderBlock(embed_dim, 4, hidden_dim)
    decoder.cross_attention = MultiHeadAttention(embed_dim, 1)
    if window is not None:
        encoder.attention = Nearby(encoder.attention, window)
    positions = positional_encoding(64, embed_dim)
    return Translator(numerals, encoder, decoder, positions).to(device)


def moved(tensors):
    """Return the tensors on the device of the models."""
    return [tensor.to(device) for tensor in tensors]


def learn(model, numerals, num_steps=400, max_lr=0.01, label="learning numerals", watch=None):
    """Train with your batches, your inputs and your loss; return the losses."""
    batches = numerals.batches(64, torch.Generator().manual_seed(0))

    def next_loss():
        sources, targets = next(batches)
        source, source_lens = moved(pad_batch(sources, model.pad))
        words, word_lens = moved(pad_batch(targets, model.pad))
        logits = model(source, source_lens, shift_right(words, model.start))
        return masked_cross_entropy(logits, words, word_lens)

    return train(model, next_loss, num_steps, max_lr=max_lr, label=label, watch=watch)


# %% [markdown]
# `train` uses Adam with a *one-cycle* schedule, in which the learning rate rises to a peak,
# `max_lr`, and falls again.
#
# A part that adds zeros to the residual stream has no effect. The next cell first trains a model in
# which *no* part does anything, and then adds the parts one at a time: self-attention in the
# decoder, cross-attention, attention in the encoder, and the feed-forward networks of both blocks.
# Each training run takes a few seconds.
#
# **Predict.** Without any part, the model never sees the source. About how low does its loss get:
# 3.3, 2.6 or 1.8?


# %% tags=["demo", "nbval-ignore-output"]
class AddsNothing(nn.Module):
    def forward(self, x, *others):
        return torch.zeros_like(x)


def with_parts(num_parts):
    """Return an untrained translator with the first parts of the list below."""
    model = new_translator(numerals)
    if num_parts < 4:
        model.encoder.feed_forward = AddsNothing()
        model.decoder.feed_forward = AddsNothing()
    if num_parts < 3:
        model.encoder.attention = AddsNothing()
    if num_parts < 2:
        model.decoder.cross_attention = AddsNothing()
    if num_parts < 1:
        model.decoder.self_attention = AddsNothing()
    return model


names = ["no part", "+ self-attention", "+ cross-attention", "+ encoder", "+ feed-forward"]
curves, final = {}, []
for num_parts, name in enumerate(names):
    losses = learn(with_parts(num_parts), numerals, num_steps=200, label=name)
    curves[name] = losses.reshape(20, 10).mean(dim=1)  # the mean of every ten steps
    final.append(losses[-20:].mean().item())
    print(f"{name:18s} loss {final[-1]:.2f}")
figure = plotting.lines(range(10, 201, 10), curves, x_label="steps", y_label="loss")
plotting.show(figure, key="five models")
assert 1.7 < final[0] < 1.9 and abs(final[0] - final[1]) < 0.2 < 1.5 < final[1]
assert final[2] < final[1] / 3 and final[3] < final[2] / 3 and final[4] < 0.7 * final[3]

# %% [markdown]
# <details><summary>Answer</summary>
#
# **Without any part**, the loss falls to about 1.8. Each word is predicted from the previous word
# and its position, so the model learns, for example, which words follow *hundred*.
# **Self-attention** hardly helps (1.73 in our run), because the words before the previous one say
# little about the next. **Cross-attention** lowers the loss most. With it, the model sees the
# source for the first time, but only as isolated letters. The **encoder** tells each letter what
# its neighbors are, so that the `z` of *zehn* and the `z` of *zwei* differ. The **feed-forward
# networks** lower the loss once more in our run, but not with every seed.
#
# </details>
#
# Now train the whole model for longer.

# %% tags=["demo", "nbval-ignore-output"]
translator = new_translator(numerals)
losses = learn(translator, numerals)
print(f"loss of the first batch {losses[0]:.2f}, mean of the last twenty {losses[-20:].mean():.3f}")
assert 3 < losses[0] < 4.5 and losses[-20:].mean() < 0.1

# %% [markdown]
# ## 4. Word by word
#
# *During training, the model read the correct words. Where do the words come from now?*
#
# After training, the model reads its own words. In *greedy decoding*, it takes the most likely
# word, reads it, and predicts the next one. An early mistake affects everything after it.

# %% [markdown]
# ### Exercise: `greedy_decode`
#
# - **Takes** `model`, called as `model(source, valid_lens, inputs)`; `source` `(B, m)` and
#   `valid_lens` `(B,)`, int64 or int32; the ids `start` and `end`; and `max_len`, the largest
#   number of words, `end` included. The model returns logits `(B, t, V)` for `inputs` `(B, t)`. The
#   logits at a position predict the word *after* it.
# - **Returns** a tensor as wide as the longest translation, on the device of `source`: each item's
#   words, with `end` but without `start`. After its `end`, an item is padded with the id
#   `model.pad`.
# - Run the model in eval mode and without building a graph, and restore its mode afterwards.
# - **Edge cases.** With `max_len=0`, the result has shape `(B, 0)`. Only `end` ends a translation.
#   If the model predicts `pad`, treat it as a word.
#
# **Worked example.** Suppose a model always predicts the last id plus the length of the source.
# With `source` `[[1, 1, 0], [1, 1, 1]]`, lengths 2 and 3, `start=0`, `end=6`, `max_len=5` and pad
# 8, the result is `[[2, 4, 6], [3, 6, 8]]`.

# %%
from course_lib.attention import greedy_decode

# %%
check("greedy_decode")

# %% [markdown]
# The 199 held-out numerals are new to your translator.


# %% tags=["demo", "nbval-ignore-output"]
def translate(model, numerals, texts):
    """Return the English words for numerals, each in letters or as a number."""
    source, lens = moved(pad_batch([numerals.source_ids(text) for text in texts], model.pad))
    rows = greedy_decode(model, source, lens, model.start, model.end, max_len=12)
    return [numerals.target.words(row) for row in rows]


def share_correct(model, numerals):
    """Return the share of held-out numerals that are translated without a mistake."""
    num_correct = 0
    for number, words in zip(
        numerals.unseen, translate(model, numerals, numerals.unseen), strict=True
    ):
        num_correct += words == english(number).split()
    return num_correct / len(numerals.unseen)


for words in translate(translator, numerals, ["dreiundvierzig", "neunhunderteins", 777]):
    print(" ".join(words))
share = share_correct(translator, numerals)
print(f"{share:.1%} of {len(numerals.unseen)} held-out numerals are correct")
assert share > 0.9 and len(numerals.unseen) == 199

# %% [markdown]
# Expect more than 9 in 10 to be correct. No rule about numbers is built in. The model learned from
# examples what *und* does, and that English says the tens first.
#
# Type numerals of your own into the list above.

# %% [markdown]
# ## 5. Is the map an explanation?
#
# *The map shows where a word looked. Does it show why the model chose the word?*
#
# Your model translates *siebenhundertdreiundvierzig*. In the figure below, look for two arcs that
# cross.


# %% tags=["demo", "nbval-ignore-output"]
def look(model, numerals, text):
    """Return the words of a translation, and how much each attends to each letter."""
    words = translate(model, numerals, [text])[0]
    source, lens = moved(pad_batch([numerals.source_ids(text)], model.pad))
    inputs = numerals.target.ids(["<start>", *words])[None].to(device)
    with torch.no_grad():
        model(source, lens, inputs)
    return words, model.maps[0, 0, : len(words)].cpu()  # item 0, head 0


words, weights = look(translator, numerals, "siebenhundertdreiundvierzig")
figure = plotting.attention(weights, words, "siebenhundertdreiundvierzig")
plotting.show(figure, key="crossing arcs")
assert weights[2].argmax() > weights[3].argmax()

# %% [markdown]
# The arcs of *forty* and *three* cross, as in lesson 00. A word's weight often lies mostly on one
# or two letters, where the encoder has already gathered information from their neighbors. In 2014
# such maps were a sensation: nobody had told the model which words belong together.
#
# But look at *hundred*. The letter that this word attends to differs from run to run. Does the word
# depend on that letter? The map alone does not say.
#
# A claim about causes needs an intervention. Mask one letter, and measure how much less likely each
# word becomes.

# %% [markdown]
# ### Exercise: `effect_of_masking`
#
# - **Takes** `model`, called as `model(source, valid_lens, inputs, mask=mask)`, with logits as in
#   `greedy_decode`; one item, `source` `(1, m)`, `valid_lens` `(1,)` and `target` `(1, t)`, int64
#   or int32; and `position`, in $0..m-1$. `target` holds the words of a translation without the
#   start symbol, whose id is `model.start`. `mask` is a bool tensor `(1, m)`, True = may attend.
#   The model applies both mask and length.
# - **Returns** a tensor `(t,)`: for each word of `target`, given the words before it, the
#   log-probability with `position` masked minus the log-probability without a mask.
# - Run the model as in `greedy_decode`, and do not change the arguments.
# - **Edge cases.** With $t = 0$, the result has shape `(0,)`. The changes are finite, however
#   confident the model is. All tensors may be on a GPU.
#
# **Worked example.** Suppose each of three words has one vote, each source token adds one vote for
# the word with its id, and probabilities are shares of the votes. For `source` `[[1, 2, 1]]` the
# votes are 1, 3, 2, and with position 0 masked they are 1, 2, 2. For `target` `[[1, 2]]` the
# changes are $\ln \frac{2/5}{3/6} = -0.2231$ and $\ln \frac{2/5}{2/6} = 0.1823$.

# %%
from course_lib.attention import effect_of_masking

# %%
check("effect_of_masking")

# %% [markdown]
# The next cell masks each letter of *siebenhundertdreiundvierzig* in turn, and draws how much
# log-probability each word loses, beside its weights. Losses are in *nats*: a loss of 1 nat divides
# a probability by $e$. The figure clips them to the range from 0 to 1.

# %% tags=["demo", "nbval-ignore-output"]
numeral = "siebenhundertdreiundvierzig"
words, weights = look(translator, numerals, numeral)
source, lens = moved(pad_batch([numerals.source_ids(numeral)], translator.pad))
target = numerals.target.ids(words)[None].to(device)
changes = [effect_of_masking(translator, source, lens, target, j) for j in range(len(numeral))]
lost = -torch.stack(changes, dim=1).cpu()  # (4 words, 27 letters)

for word, weight, loss in zip(words, weights, lost, strict=True):
    most = weight.argmax()
    print(f"{word}: weight {weight[most]:.2f} on letter {most}, lost {loss[most]:.2f} nats")
maps = torch.stack([weights, lost.clamp(0, 1)])
heads = ["weights", "nats lost if masked"]
plotting.show(plotting.attention(maps, words, numeral, heads=heads), key="effect of a letter")
assert words == ["seven", "hundred", "forty", "three"]
assert lost[range(4), weights.argmax(dim=1)].min() < 0.2

# %% [markdown]
# A word may give most of its weight to one letter and be almost as likely without it. Which words
# these are varies by run. With its most-attended letter masked, *hundred* lost more than 6 nats
# in two of eight runs with different seeds, and less than 0.5 in the other six.
#
# One numeral is little evidence. For each word, the next cell masks the letter with the largest
# weight, in all 72 numerals from 21 to 99 in which German says the ones first.
#
# **Predict.** What share of the words lose more than 1 nat: almost none, about 1 in 10, or more
# than 1 in 4?


# %% tags=["demo", "nbval-ignore-output"]
two_words = [number for number in range(21, 100) if number % 10 != 0]


def mask_the_most_attended(model):
    """Return each word's loss, and how often arcs cross, tens look at tens, and ones at ones."""
    lost, num_crossing, tens_in_tens, ones_in_ones = [], 0, 0, 0
    for number in two_words:
        text = numerals.say(number)
        words, weights = look(model, numerals, text)
        source, lens = moved(pad_batch([numerals.source_ids(text)], model.pad))
        target = numerals.target.ids(words)[None].to(device)
        positions = weights.argmax(dim=1).tolist()
        for i, position in enumerate(positions):
            lost.append(-effect_of_masking(model, source, lens, target, position)[i])
        num_crossing += positions[0] > positions[-1]
        tens_in_tens += positions[0] >= text.index("und") + 3  # after "und"
        ones_in_ones += positions[-1] < text.index("und")
    return torch.stack(lost), (num_crossing, tens_in_tens, ones_in_ones)


lost, counts = mask_the_most_attended(translator)
much, little = (lost > 1).float().mean(), (lost < 0.1).float().mean()
print(f"more than 1 nat: {much:.0%} of the words; less than 0.1: {little:.0%}")
print(f"lost on average: {lost.mean():.1f} nats")
print("of 72: arcs cross in {}, tens look at their part in {}, ones in {}".format(*counts))
assert much > 0.25 and little > 0.05 and lost.mean() > 0.5

# %% [markdown]
# <details><summary>Answer</summary>
#
# More than 1 in 4 words lose more than 1 nat. The share differs from run to run. In thirteen runs
# with different seeds, 27% to 78% of the words lost more than 1 nat. But 13% to 61% lost less than
# 0.1 nat, although the masked letter had the largest weight. Probably the neighboring letters
# contain nearly the same information, because in the encoder they saw one another. So a large
# weight does not prove that the word depended on this position.
#
# </details>
#
# Now train the same model without `Nearby`, so that each letter may attend to all others.

# %% tags=["demo", "nbval-ignore-output"]
everywhere = new_translator(numerals, window=None)
learn(everywhere, numerals, label="no window")
print(f"{share_correct(everywhere, numerals):.1%} of the held-out numerals are correct")
_, counts = mask_the_most_attended(everywhere)
print("of 72: arcs cross in {}, tens look at their part in {}, ones in {}".format(*counts))
assert share_correct(everywhere, numerals) > 0.9

# %% [markdown]
# The new model translates more than 90% correctly, as the old one does, but its words may look
# elsewhere. In thirteen runs with different seeds, the arcs crossed in 68 to 72 of the 72 numerals
# with the window, and in 17 to 72 without it. Without a window, the encoder is free to store
# *three* at any letter.
#
# Attention weights show which *positions* a word read from. What these positions contain is another
# question. If someone offers you a map as an explanation, ask for an intervention.

# %% [markdown]
# ### Written question: the map in the report
#
# A colleague's model decides which insurance claims to refuse. To explain a refusal, the report
# prints the claim with each word colored by its attention weight. In about ten sentences, explain
# what the coloring shows and what it does not show. Which two experiments from this section would
# you run before the report goes out, and what result would make you withdraw the coloring?

# %% [markdown] written="map_as_explanation"
# **Your answer** (replace the line below):
#
# ### BEGIN SOLUTION
# Four points, one for each part. Half points are possible.
#
# 1. **What the weights show.** They say from which positions the last layer read, after earlier
#    layers moved information between positions. (The model without a window translates as well, but
#    its words look at their own part less often.)
# 2. **What they do not show.** A large weight does not make the decision depend on that word. Only
#    an intervention can tell.
# 3. **Two experiments.** Mask the words with the largest weights *and*, as a control, words with
#    small ones, and compare the change of the decision's log-probability. Or train a model of the
#    same quality whose map differs.
# 4. **What would count against the coloring.** Masking the colored words does not change the
#    decision, masking others does, or equally good models color other words.
# ### END SOLUTION

# %% [markdown]
# ## 6. Residuals and norms
#
# *Which parts could you drop from a deep model?*
#
# Below, the encoder and the decoder are three blocks deep. One version is complete (*whole*), one
# has no residual connections, and one has no norms.


# %% tags=["demo"]
class EncoderWithoutSums(EncoderBlock):
    def forward(self, x, valid_lens=None):
        x = self.norm_1(x)
        x = self.attention(x, x, x, valid_lens)
        return self.feed_forward(self.norm_2(x))


class DecoderWithoutSums(DecoderBlock):
    def forward(self, y, memory, valid_lens=None):
        y = self.self_attention(self.norm_1(y))
        y = self.cross_attention(self.norm_2(y), memory, memory, valid_lens)
        return self.feed_forward(self.norm_3(y))


class Stack(nn.Module):
    """Blocks one after the other."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, *others):
        for block in self.blocks:
            x = block(x, *others)
        return x


def deep_translator(version):
    torch.manual_seed(0)
    encoder, decoder = EncoderBlock, DecoderBlock
    if version == "no residuals":
        encoder, decoder = EncoderWithoutSums, DecoderWithoutSums
    encoders = [encoder(32, 4, 64) for _ in range(3)]
    decoders = [decoder(32, 4, 64) for _ in range(3)]
    if version == "no norms":
        for block in encoders + decoders:
            block.norm_1 = block.norm_2 = block.norm_3 = nn.Identity()
    positions = positional_encoding(64, 32)
    return Translator(numerals, Stack(encoders), Stack(decoders), positions).to(device)


# %% [markdown]
# The next cell trains each version at two learning rates. The six runs take about half a minute.
#
# **Predict.** At the lower rate, about what share of the held-out numerals does the version without
# residual connections get right: 0%, 40% or 80%?

# %% tags=["demo", "nbval-ignore-output"]
shares = {}
for version in ("whole", "no residuals", "no norms"):
    for max_lr in (0.01, 0.02):
        model = deep_translator(version)
        learn(model, numerals, num_steps=100, max_lr=max_lr, label=f"{version}, {max_lr}")
        shares[version, max_lr] = share_correct(model, numerals)
for version in ("whole", "no residuals", "no norms"):
    low, high = shares[version, 0.01], shares[version, 0.02]
    print(f"{version:13s} {low:6.1%} correct at a peak of 0.01, {high:6.1%} at 0.02")
assert max(shares["no residuals", 0.01], shares["no residuals", 0.02]) < 0.05
assert min(shares["whole", 0.01], shares["whole", 0.02]) > 0.3
assert shares["no norms", 0.02] < shares["no norms", 0.01] - 0.1
assert shares["no norms", 0.02] < shares["whole", 0.02] - 0.2

# %% [markdown]
# <details><summary>Answer</summary>
#
# The share is about 0%. Without residual connections, the model learns nothing useful at either
# rate. Every layer averages, and nothing preserves the vector that a position started with. In the
# untrained model, all positions of a numeral have nearly the same vector after three encoder blocks
# (Dong and others 2021). Without norms, the model learns at the lower rate and fails at the higher
# one. So norms widen the range of learning rates that work. Each number comes from a single run. In
# eight runs with different seeds, the model without norms got at most 7% at the higher rate, and
# the whole model at least 45%.
#
# </details>

# %% [markdown]
# ### Before attention ★
#
# Early neural translators (Sutskever and others 2014) had no attention. A recurrent network read
# one symbol at a time into a state of fixed size, and the decoder started from the last state.
#
# | | recurrent | attention |
# |---|---|---|
# | sequential steps for $n$ positions | $n$ | 1 |
# | path from the first position to the last | $n$ steps | 1 step |
# | what the decoder gets from the source | one vector | every position |
# | work in a layer of width $d$ | $n d^2$ | $n^2 d + n d^2$ |
# | memory for each word while generating | none | its key and value |
#
# A *GRU*, a recurrent network, gets the same width and batches as your translator.
#
# **Predict.** After the same 400 steps, is the GRU's share of correct numerals about as high as your
# translator's, about two thirds of it, or less than half?

# %% tags=["demo", "nbval-skip"]
shares = {"attention, 400 steps": share}
for num_steps in (400, 1600):
    name = f"GRU, {num_steps} steps"
    torch.manual_seed(0)
    recurrent = RecurrentTranslator(numerals, embed_dim=32).to(device)
    learn(recurrent, numerals, num_steps, label=name)
    shares[name] = share_correct(recurrent, numerals)
for name, correct in shares.items():
    print(f"{name:21s} {correct:.1%} correct")
assert shares["GRU, 400 steps"] < 0.5 * share and min(share, shares["GRU, 1600 steps"]) > 0.9

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is less than half. In our run, the GRU gets 35% right, and with four other seeds, it gets 13% to
# 31%. (We did not tune its learning rate.) With four times as many steps, it catches up in our run.
# (With two other seeds, it got 70% and 94%.)
#
# </details>
#
# So 32 numbers can hold a numeral of thirty letters. They cannot hold a page of text. For long
# sequences on a GPU, the number of sequential steps, the first row of the table, decides how long a
# training step takes.

# %% [markdown]
# ## 7. Your translator beside the original
#
# *How does a translator made of your parts compare with lesson 00's?*
#
# Give your blocks the whole task (the numbers 1 to 9999) and the sizes of the original (64 features
# and 256 hidden units). The 500 held-out numerals are those of lesson 00. The original is decoded
# by `translate_batch`, yours by your `greedy_decode`.
#
# The next cell trains your translator for 600 steps, shows where it looks in *dreiundvierzig*, and
# prints what it still gets wrong. Training then continues, as it did for the original, with 300
# steps of practice, in which three kinds of numbers occur more often: numbers below 100, numbers
# that contain a 0 or end in 1, and multiples of 100. No held-out numeral is among them. The training
# takes about a minute.

# %% tags=["demo", "nbval-ignore-output"]
all_numerals = Numerals()  # 1 to 9999
wanted = [english(number) for number in all_numerals.unseen]


def mistakes(translations):
    """Return the wrong translations of held-out numerals, by number."""
    rows = zip(all_numerals.unseen, translations, wanted, strict=True)
    return {number: written for number, written, correct in rows if written != correct}


def mistakes_of_yours():
    return mistakes(map(" ".join, translate(yours, all_numerals, all_numerals.unseen)))


def guess():
    return plotting.Guess(*look(yours, all_numerals, "dreiundvierzig"))


yours = new_translator(all_numerals, embed_dim=64, hidden_dim=256)
training = plotting.watch_training(600, guess, "dreiundvierzig", wanted="forty three")
learn(yours, all_numerals, num_steps=600, max_lr=0.004, watch=training)
before = mistakes_of_yours()
print(f"after 600 steps, {len(before)} of 500 wrong:", before)

seen = all_numerals.seen
rare = [n for n in seen if n < 100 or n % 10 == 1 or "0" in str(n)]
round_numbers = [n for n in seen if n % 100 == 0]
practice = Numerals(numbers=seen + 3 * rare + 20 * round_numbers)
learn(yours, practice, num_steps=300, max_lr=0.001, label="practice")
after = mistakes_of_yours()
print(f"after the practice, {len(after)} of 500 wrong:", after)

original = trained_translator(all_numerals).to(device)
theirs = mistakes(translate_batch(original, all_numerals, all_numerals.unseen))
print(f"the original: {len(theirs)} of 500 wrong")
assert not set(practice.seen) & set(all_numerals.unseen)
assert len(before) < 100 and len(after) < 40 and len(theirs) < 10

# %% [markdown]
# In seven runs with different seeds, 3 to 38 of the 500 were wrong after 600 steps, and 0 to 20
# after the practice. Your translator is nearly as good as the original.
#
# The masks, the attention, the heads, the positions, the blocks, the loss and the decoding are
# yours. PyTorch supplied the embeddings, the norms, the linear layers and the gradients.
#
# Below is the figure of lesson 00 again, and this time *your* model runs in it. Choose "yours" or
# the original, type a numeral, and compare the maps. (The page receives your weights and computes
# the translation itself. Without a running kernel, it contains only the original.)

# %% tags=["demo"]
plotting.show(live_translator(yours=yours), key="live translator")

# %% [markdown]
# The next cell saves your translator and the recording of its first 600 steps as a page that you can
# send to someone. The page does the arithmetic of your blocks in JavaScript, with your weights.

# %% tags=["demo", "nbval-ignore-output"]
save_translator(yours, training, "my_translator.html")

# %% [markdown]
# ## Summary
#
# In a translator, an encoder turns the source into a memory, and a decoder writes word by word,
# with causal self-attention over its own words and cross-attention to the memory. Batches carry
# lengths, so pads are neither attended to nor counted in the loss. During training, the decoder
# reads the shifted targets and predicts all words at once, and afterwards it reads its own words.
# Residual connections make depth possible, and norms widen the range of learning rates. A map shows
# where a word looked, and only an intervention shows what it depended on.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Beam search.** Keep the four best beginnings at each step. Does this correct any of the
#    mistakes?
# 2. **Backwards.** Translate from English to German, with words going in and letters coming out.
#    Which direction is harder, and why?
# 3. **Four heads.** Give the cross-attention four heads and look at all four maps. Can you read
#    them?
# 4. **A gap.** Train on the numbers up to 9999 without 4000 to 4999. Is *viertausend* translated
#    correctly?
# 5. **Your language.** Write a rule for another language and train on it.

# %% [markdown]
# ## References
#
# - I. Sutskever, O. Vinyals and Q. V. Le, *Sequence to Sequence Learning with Neural
#   Networks*, 2014. <https://arxiv.org/abs/1409.3215>
# - D. Bahdanau, K. Cho and Y. Bengio, *Neural Machine Translation by Jointly Learning to Align and
#   Translate*, 2014. <https://arxiv.org/abs/1409.0473>
# - A. Vaswani and others, *Attention Is All You Need*, 2017. <https://arxiv.org/abs/1706.03762>
# - Y. Dong, J.-B. Cordonnier and A. Loukas, *Attention is Not All You Need: Pure Attention Loses
#   Rank Doubly Exponentially with Depth*, 2021. <https://arxiv.org/abs/2103.03404>
# - R. Xiong and others, *On Layer Normalization in the Transformer Architecture*, 2020: pre-norm.
#   <https://arxiv.org/abs/2002.04745>
# - B. Zhang and R. Sennrich, *Root Mean Square Layer Normalization*, 2019.
#   <https://arxiv.org/abs/1910.07467>
# - S. Jain and B. C. Wallace, *Attention is not Explanation*, 2019.
#   <https://arxiv.org/abs/1902.10186>
# - S. Wiegreffe and Y. Pinter, *Attention is not not Explanation*, 2019.
#   <https://arxiv.org/abs/1908.04626>
