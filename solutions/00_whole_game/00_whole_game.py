# %% [markdown]
# # 00 · The whole game: a translator in half a minute
#
# **The question.** What does attention do, and can you see it at work?
#
# You train a translator, see which letters it looks at for each word, and write its attention in
# four lines. The translator then runs on it, and you take the wheel: you choose the letter a word
# looks at, and see what comes out. In the lessons that follow, you write the translator's blocks,
# loss and decoding yourself. At the end, a real language model runs on the attention that you
# wrote.
#
# **After this you can**
#
# - read an attention map;
# - say what queries, keys and values are, and where they come from;
# - write attention for one query, with the help of a check and hints;
# - say what attention was invented for.
#
# **Time:** {time}. **You need:** Python, and the basics of PyTorch tensors (shapes, indexing). You
# do not need German. Click on a cell and press Shift + Enter to run it.

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib import carry_on, check, hint, plotting
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import live_translator, save_translator, trained_translator
from course_lib.models.translator import RecurrentTranslator
from course_lib.models.whole_game import (
    new_translator,
    train_translator,
    translate,
    translate_batch,
    use_attend,
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # faster while other programs are running

# %% [markdown]
# ## 1. Train it
#
# *Can a program translate numbers that it has never seen?*
#
# German writes a number as one word, with the ones before the tens. The word for 43 is
# *dreiundvierzig*, three-and-forty. A translator has to find the parts in a run of letters and
# reorder them.
#
# Our translator reads letters and writes words. It starts with about 126,000 parameters, nearly all
# random. In each of 800 steps it sees 64 numerals with their translations, and the step changes the
# parameters a little, so that the correct words become more likely. We hold out 500 of the numerals
# from 1 to 9,999. The translator never sees these during training. While it learns, arcs show which
# letters of *dreiundvierzig* it looks at for each word.
#
# Run the cell, which takes about half a minute and then translates 200 held-out numerals.

# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()  # 1 to 9999 in German letters and in English words
model = new_translator(numerals).to(device)
training = train_translator(model, numerals, watch=43)

correct = 0
for number in numerals.unseen[:200]:
    translation, _ = translate(model, numerals, number)
    correct += " ".join(translation) == english(number)
print(f"{correct} of 200")
assert correct > 180

# %% [markdown]
# Runs differ a little, but expect more than 9 in 10 to be correct. The translator cannot have
# memorized numbers that it never saw. It has learned the parts of numerals and how to put them
# together.

# %% [markdown]
# ## 2. Read the map
#
# *How much does each word look at each letter?*
#
# The next figure shows the arcs again, and its second tab shows the numbers behind them, with a row
# for each word and a column for each letter. This table is an *attention map*. Its entries are the
# *attention weights*: how much each word looks at each letter. **Each row sums to 1**, so more for
# one letter means less for the others.

# %% tags=["demo", "nbval-ignore-output"]
words, weights = translate(model, numerals, "dreiundvierzig")  # weights: (2 words, 14 letters)
attended = plotting.attention(weights, queries=words, keys="dreiundvierzig")
plotting.show(attended, key="parts of a numeral")
by_torch = weights
assert words == ["forty", "three"]
assert weights[0, 7:].sum() > 0.5 and weights[1, :4].sum() > 0.5
assert torch.allclose(weights.sum(dim=1), torch.ones(2))

# %% [markdown]
# *forty* looks at *vierzig*, and *three* looks at *drei*. The arcs cross because the two languages
# order these parts differently. Nobody told the translator where a part ends or what it means.
#
# *forty* may need only one letter of *vierzig*, because each letter has already looked at its
# neighbors. We let a letter see only four letters on each side, which keeps each arc near the part
# that it belongs to. Which letter *forty* looks at depends on the training.

# %% [markdown]
# ## 3. Queries, keys and values
#
# *What decides where a word looks?*
#
# Queries and keys do. While the translator decides on *forty*,
#
# - the next word has a **query**, as if asking *which letters name the tens?*
# - each letter has a **key**, which works like a label, such as *I am part of a tens word*;
# - each letter has a **value**, the information that it passes on, such as *forty*.
#
# Three learned matrices make these vectors: one turns the vector of what has been written so far
# into the query, and the other two turn the vector of each letter into its key and its value. The
# phrases in italics are ours, because the vectors are only numbers.
#
# A query is compared with a key by their *dot product*: multiply the two vectors entry by entry and
# add up the products. In the plane, vectors are arrows. The next figure has one query and three
# keys. Here the keys also serve as values, and the diamond is their weighted average.
#
# **Predict.** The query (1, 1) gives *drei* a weight of 0.84. If you halve the query, does *drei*
# get about 0.42, 0.53 or 0.63? Guess, and then drag the tip of the query halfway to the center.
# Wherever you read *Predict*, commit to a guess. Even a wrong guess helps you remember the answer.

# %% tags=["demo"]
arrows = torch.tensor([[1.6, 0.3], [-1.2, 1.2], [0.2, -1.5]])
plane = plotting.query_plane(arrows, names=["drei", "und", "vierzig"], query=(1.0, 1.0))
plotting.show(plane, key="key that fits")
assert abs(torch.softmax(arrows @ torch.ones(2), dim=0)[0] - 0.84) < 0.005
assert abs(torch.softmax(arrows @ torch.ones(2) / 2, dim=0)[0] - 0.63) < 0.005
assert torch.softmax(arrows @ torch.tensor([0.25, -2.0]), dim=0)[2] > 0.9
assert 0.75 < torch.softmax(arrows @ torch.tensor([0.125, -1.0]), dim=0)[2] < 0.85

# %% [markdown]
# <details><summary>Answer</summary>
#
# It gets about 0.63. Halving the query halves all dot products. At the center, all dot products are
# 0 and all three weights are 1/3. Attention always returns an average, even when no key fits,
# because the weights always sum to 1.
#
# </details>
#
# Now drag the tip of the query until *vierzig* has more than 0.9 of the weight.
#
# <details><summary>How to do it</summary>
#
# To favor *vierzig*, point the query the same way as its arrow and make it long. A dot product is
# large when both arrows are long and point the same way, 0 when they are perpendicular, and
# negative when they point away from each other. Halving the length of the query halves all dot
# products, and the weight of *vierzig* falls.
#
# </details>

# %% [markdown]
# ## 4. Write attention
#
# *How do a query, keys and values become an output?*
#
# 1. The *score* of a key is its dot product with the query, divided by the square root of the
#    number of entries in each vector. Lesson 05 explains the division.
# 2. Scores are not weights yet: some are negative, and they do not sum to 1. The *softmax* replaces
#    each score by its exponential, which is positive, and divides that by the sum of all
#    exponentials.
# 3. The output is the weighted average of the values.
#
# Write these steps where it says `YOUR CODE HERE`. Run the cell and then the check below it, as often
# as you like. The check tries your function on many inputs and prints a report with three folded
# hints. Hints cost nothing.

# %% [markdown]
# ### Exercise: `attend`
#
# - **Takes** `query` of shape `(d,)`, `keys` of shape `(m, d)` with one row for each key, and `values`
#   of shape `(m, v)`, also with one row for each key.
# - **Returns** a pair: the output of shape `(v,)`, and the attention weights of shape `(m,)`.
# - Scores may be so large that their exponentials overflow. `torch.softmax` can handle them.
# - Do not call `F.scaled_dot_product_attention`, which is torch's ready-made attention.
#
# **Worked example.** For the query `[2, 0, 0, 0]`, the keys `[0, 5, 1, 0]` and `[log 3, 2, 0, 7]` get
# the scores 0 and log 3, and the exponentials of these scores are 1 and 3. The weights are therefore
# 1/4 and 3/4. With the values `[4, 0, 8]` and `[0, 4, 8]`, the output is `[1, 3, 8]`.

# %%
from course_lib.attention import attend

# %%
check("attend")

# %% [markdown]
# The notebook continues with your answer if it passed and with ours if it did not, so one unsolved
# exercise never stops you. The cell above tells you which. Full marks also put your answer into your
# library, the folder `my_attention/`, which later lessons use.
#
# <details><summary>How to read the report</summary>
#
# The report begins with the verdict and the points. If something is wrong, the report names it, asks
# a question, and shows a small input that fails, with your result beside the expected one. Points
# are given for *values* (the numbers are correct), *edges* (unusual cases, such as large scores, are
# correct too), *hygiene* (inputs, dtype and device are unchanged) and, in many exercises,
# *gradients*. Partial solutions earn partial credit.
#
# </details>

# %% [markdown]
# ## 5. Run your attention
#
# *Does the translator work with your function?*
#
# So far, PyTorch has computed the attention from words to letters. Now `use_attend` makes your
# trained translator call your function instead, once for each word that it writes.

# %% tags=["demo", "nbval-ignore-output"]
use_attend(model, attend)
words, weights = translate(model, numerals, "dreiundvierzig")
print(" ".join(words))
attended = plotting.attention(weights, queries=words, keys="dreiundvierzig")
plotting.show(attended, key="parts of a numeral")
assert words == ["forty", "three"]
assert torch.allclose(weights, by_torch, atol=1e-3)

# %% [markdown]
# The arcs are those of section 2, and this time your function computed them, from vectors of 64
# numbers. A score that is higher by 10 gets a weight that is about 22,000 times as large, so one
# letter can get nearly all of the weight.
#
# The next cell breaks the translator and repairs it. First, every letter gets the same weight. Then
# your function comes back.
#
# **Predict.** Of the numerals from 1 to 99, 72 have a translation of two words. With equal weights,
# about how many translations have two words or more: almost none, 36 or 72?


# %% tags=["demo", "nbval-ignore-output"]
def equal_weights(query, keys, values):
    weights = torch.ones_like(keys[:, 0]) / len(keys)  # (m,)
    return weights @ values, weights


counts = []
for name, function in {"equal weights": equal_weights, "your attend": attend}.items():
    use_attend(model, function)
    translations = translate_batch(model, numerals, range(1, 100))
    correct = 0
    for number, translation in zip(range(1, 100), translations, strict=True):
        correct += translation == english(number)
    longer = sum(" " in translation for translation in translations)
    print(f"{name}: {correct} of 99 correct, {longer} of two words or more", end=", ")
    print("and 43 is", translations[42] or "empty")
    counts.append((correct, longer))
assert counts[0][0] < 50 and counts[1][0] > 90
assert counts[0][1] < 20 and 65 < counts[1][1] < 80

# %% [markdown]
# <details><summary>Answer</summary>
#
# Almost none do, and 8 to 25 of the 99 were correct in our runs. Each word receives the same
# average of all letters, and nothing else in the translator changed. With your function, nearly all
# 99 are correct again.
#
# </details>

# %% [markdown]
# ## 6. Take the wheel
#
# *Does a word depend on where it looks?*
#
# In the next figure, type a German numeral, or a number such as 1999. A translator that was trained
# beforehand runs in the page. *Next word* writes the translation one word at a time. **Click a
# letter** to force the selected word (by default the first) to look at it. The letter gets a weight
# of 1, and the translator continues from the word that results. *Undo choices* takes everything
# back.
#
# Force the first word of the translation of *dreiundvierzig* onto the *r* of *drei*, and then onto
# the *z* of *vierzig*. Try other letters, too. With many of them, the translator ends at once and
# shows *(end)*.

# %% tags=["demo"]
plotting.show(live_translator(yours=model), key="live translator")

# %% [markdown]
# Is *dreiundvierzig* an exception? Between 21 and 99 there are 72 numerals that name the ones first
# in German. For each, the next cell finds the letter to which the word for the ones, such as
# *three*, gives its largest weight. It then forces the first word onto this letter.
#
# **Predict.** In 71 of the 72, the translator now writes the ones word first. In the other one,
# does it write the tens word first, end at once, or write a word that is not part of the number?


# %% tags=["demo"]
def all_weight_on(letter):
    def forced(query, keys, values):
        weights = torch.zeros_like(keys[:, 0])  # (m,)
        weights[letter] = 1
        return weights @ values, weights

    return forced


beforehand = trained_translator(numerals, device=device)  # the translator of the figure
ones_first = 0
for number in range(21, 100):
    if number % 10 == 0:
        continue
    use_attend(beforehand, attend)
    words, weights = translate(beforehand, numerals, number)
    use_attend(beforehand, all_weight_on(int(weights[-1].argmax())))
    forced_words, _ = translate(beforehand, numerals, number)
    if forced_words[0] == words[-1]:
        ones_first += 1
    else:
        print(f"{numerals.say(number)}: the first word is {forced_words[0]}, not {words[-1]}")
        assert (number, forced_words[0]) == (21, "ninety")
print(f"{ones_first} of 72")
assert ones_first == 71

# %% [markdown]
# <details><summary>Answer</summary>
#
# For *einundzwanzig* (21), it writes *ninety*, which is not part of the number. The word *one*
# looks at the *n* of *ein*, and the cell forces the first word onto this *n*. *one* and *ninety*
# receive the same value from this letter. The difference is what has been written before: *twenty*
# before *one*, and nothing before *ninety*.
#
# For the others, the translator writes a word such as *three* first because you make it look at
# *drei* first.
#
# </details>
#
# The next cell saves *your* translator and the recording of its training as a page beside this
# notebook. The page works in any browser without Python, so you can send it to someone.

# %% tags=["demo", "nbval-ignore-output"]
save_translator(model, training, "my_translator.html")

# %% [markdown] written="two_maps"
# ### Two maps
#
# A person, not a program, grades this question. If you are learning on your own, compare your
# answer with ours in the folder `solutions/` of the course.
#
# *dreiundneunzig* is 93 (*drei* 3, *neunzig* 90), and *siebenhundertneun* is 709 (*sieben* 7,
# *hundert* 100, *neun* 9). Where should each English word look? Where do arcs cross, and why?
# Write your answer, then try both numerals in the live translator above.
#
# ### BEGIN SOLUTION
# 93: *ninety* looks at *neunzig* and *three* at *drei*; the arcs cross. 709: *seven* looks at
# *sieben*, *hundred* at *hundert*, *nine* at *neun*; no arcs cross. Both languages put the
# hundreds first. Only ones and tens trade places, and 709 has no tens.
#
# RUBRIC (2 points): 1 for where the words look, in both numerals; 1 for the reason: arcs cross
# where the two languages order the parts differently, and nowhere else.
# ### END SOLUTION

# %% [markdown]
# ## 7. What attention was invented for
#
# *How did machines translate before they could look back?*

# %% tags=["demo", "hide-input"]
plotting.show(plotting.bottleneck())

# %% [markdown]
# The best-known early neural translators worked from memory. A *recurrent* network read the
# sentence once and squeezed it into a single *vector*, a list of numbers. A second network wrote
# the translation from that vector alone (Cho et al. 2014; Sutskever et al. 2014). The vector is the
# same size for fifty words as for five, and the translations of Cho et al. got worse as sentences
# got longer.
#
# Bahdanau, Cho and Bengio removed this bottleneck in 2014. They kept a vector for *every* word of
# the source and let each new word look back at all of them. In 2017 the Transformer dropped the
# recurrent network and kept the attention.
#
# The next cell trains two translators on the same numerals for 300 steps, which takes about 20
# seconds. Both use vectors of 64 numbers. One has attention, and the other one is recurrent.
#
# **Predict.** Without attention, only 6 to 22 of 200 held-out numerals were translated correctly in
# our runs. How many of the 200 translations begin with the correct word: about 20, 90 or 160?

# %% tags=["demo", "nbval-ignore-output"]
torch.manual_seed(0)
translators = {
    "with attention": new_translator(numerals).to(device),
    "without attention": RecurrentTranslator(numerals).to(device),
}
counts = []
for name, translator in translators.items():
    train_translator(translator, numerals, 300)
    translations = translate_batch(translator, numerals, [43, *numerals.unseen[:200]])
    correct = begun = 0
    for number, translation in zip(numerals.unseen[:200], translations[1:], strict=True):
        correct += translation == english(number)
        begun += translation.split()[:1] == english(number).split()[:1]
    print(f"{name}: {correct} of 200 correct, {begun} begin with the correct word", end=", ")
    print("and 43 is", translations[0])
    counts.append((correct, begun))
assert counts[0][0] > 160 and counts[1][0] < 40 and 130 < counts[1][1] < 200

# %% [markdown]
# <details><summary>Answer</summary>
#
# Most do, 149 to 190 of the 200 in five runs. The mistakes come later. With attention, 179 to 199
# were correct.
#
# After 800 steps, the recurrent translator got 171 to 180 right. A vector of 64 numbers can hold a
# numeral of thirty letters, but not a page of text.
#
# </details>

# %% [markdown]
# ## 8. What comes next
#
# You wrote attention for one query. We supplied the rest of the translator. You will write that,
# too:
#
# | lessons | you write |
# |---|---|
# | 01 | averages weighted by how well keys fit a query |
# | 02, 03 | weights that skip padding and the future, for whole batches |
# | 04, 05 | the two ways to score: Bahdanau's and the Transformer's |
# | 06, 07 | attention with several heads, positions, and tests that find bugs |
# | 08 | attention that needs less memory |
# | 09, 10 | the translator, and then a language model |
# | 11 | the attention of a published language model |

# %% [markdown]
# ## Summary
#
# Attention lets each new word look back at the whole source. The scores between a query and all
# keys become weights that sum to 1, and the output is the weighted average of the values. Learned
# matrices make queries, keys and values. Force the weights onto another letter, and the word can
# change. Exercises with a star are optional, and `progress()` from `course_lib` shows how far along
# you are.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Without the root.** Leave out the division in `attend`. How many of the 99 numerals does the
#    translator still get right?
# 2. **Another language.** `Numerals("french")` says 91 as *quatre-vingt-onze*, four-twenty-eleven.
#    Train a translator for it. What does *ninety* look at?
# 3. **Misspelled.** Leave out letters of *dreiundvierzig*, one at a time. Which letters does the
#    translator need?

# %% [markdown]
# ## References
#
# - D. Bahdanau, K. Cho and Y. Bengio, *Neural Machine Translation by Jointly Learning to Align and
#   Translate*, 2014. <https://arxiv.org/abs/1409.0473>
# - K. Cho and others, *On the Properties of Neural Machine Translation: Encoder–Decoder
#   Approaches*, 2014. <https://arxiv.org/abs/1409.1259>
# - I. Sutskever, O. Vinyals and Q. V. Le, *Sequence to Sequence Learning with Neural
#   Networks*, 2014. <https://arxiv.org/abs/1409.3215>
# - A. Vaswani and others, *Attention Is All You Need*, 2017. <https://arxiv.org/abs/1706.03762>
