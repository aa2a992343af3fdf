# %% [markdown]
# # 00 · The whole game: a translator in half a minute
#
# **The question.** What does attention do, and can you see it at work?
#
# You train a translator, type a German number, read it in English, and see which letters the
# translator looked at for each word. Then you compute one word's attention by hand. In the
# lessons that follow, you write the translator's attention, blocks, loss and decoding yourself. At the
# end, a real language model runs on the attention that you wrote.
#
# **After this you can**
#
# - read an attention map;
# - say what attention was invented for, and what queries, keys and values are;
# - compute attention weights from a query and keys;
# - solve an exercise with the help of its check and hints.
#
# **Time:** {time}. **You need:** Python, and the basics of PyTorch tensors (shapes, indexing). You
# do not need German. Click on a cell and press Shift + Enter to run it.

# %%
import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib import carry_on, check, hint, plotting
from course_lib.checks import grade
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import live_translator
from course_lib.models.whole_game import (
    cross_attention_inputs,
    new_translator,
    train_translator,
    translate,
)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # several threads are slow beside other programs

# %% [markdown]
# ## 1. Train it
#
# *Can a program translate numbers that it has never seen?*
#
# In German, a number is one word, and the ones come before the tens. The word for 43 is
# *dreiundvierzig*, three-and-forty. A translator has to find the parts in a run of letters and
# reorder them.
#
# Our translator reads letters and writes words. It starts with about 126,000 parameters, nearly all
# random. In each of 800 steps it sees 64 numerals with their translations, and the step changes the
# parameters a little, so that the correct words become more likely. We hold out 500 of the numerals
# from 1 to 9,999. The translator never sees these during training.
#
# **Predict**, then run the cell, which takes about half a minute. Wherever you read *Predict*,
# commit to a guess. Even a wrong guess helps you remember the answer.
#
# 1. Of 200 held-out numerals, how many will be translated correctly: none, about half, or nearly
#    all?
# 2. While the translator learns, arcs show which letters of *dreiundvierzig* it looks at for each
#    word. Which letters will it need for *forty*, and which for *three*?

# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()  # 1 to 9999 in German letters and in English words
model = new_translator(numerals).to(device)
train_translator(model, numerals, watch=43)

correct = 0
for number in numerals.unseen[:200]:
    translation, _ = translate(model, numerals, number)
    correct += " ".join(translation) == english(number)
print(f"{correct} of 200")
assert correct > 180

# %% [markdown]
# <details><summary>Answer</summary>
#
# 1. Nearly all of them are correct. Runs differ a little, but expect more than 9 in 10. The
#    translator cannot have memorized numbers that it never saw. It has learned the parts of
#    numerals and how to put them together.
# 2. *forty* looks at *vierzig*, and *three* looks at *drei*. The arcs cross because the two
#    languages order these parts differently. Nobody told the translator where a part ends or what
#    it means.
#
# *forty* may look at a single letter of *vierzig*. That is enough, because each letter has already
# looked at its neighbors. We let a letter see only four letters on each side, which keeps the arcs
# near their part. Which letter *forty* looks at depends on the training.
#
# </details>

# %% [markdown]
# ## 2. Read the map
#
# *How much does each word look at each letter?*
#
# The next figure shows the arcs again, and its second tab shows the numbers behind them, with a row
# for each word and a column for each letter.

# %% tags=["demo", "nbval-ignore-output"]
words, weights = translate(model, numerals, "dreiundvierzig")  # weights: (2 words, 14 letters)
plotting.show(plotting.attention(weights, queries=words, keys="dreiundvierzig"))
assert words == ["forty", "three"]
assert weights[0, 7:].sum() > 0.5 and weights[1, :4].sum() > 0.5
assert torch.allclose(weights.sum(dim=1), torch.ones(2))

# %% [markdown]
# The table in the second tab is an *attention map*. Its entries are the *attention weights*: how
# much each word looks at each letter. **Each row sums to 1**, so more for one letter means less for
# the others.
#
# In the next figure, type a German numeral, or a number such as 1999. A translator that was trained
# beforehand runs in the page. The button *Next word* writes the translation one word at a time.

# %% tags=["demo"]
plotting.show(live_translator(yours=model))

# %% [markdown]
# ## 3. What attention was invented for
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
# Three kinds of vectors determine where a word looks. While the translator decides on *forty*,
#
# - the next word has a **query**, as if asking *which letters name the tens?*
# - each letter has a **key**, which works like a label, such as *I am part of a tens word*;
# - each letter has a **value**, the information that it passes on, such as *forty*.
#
# The better a key fits the query, the larger its weight. The word receives the weighted average of
# the values. Three learned matrices make the queries, keys and values. The phrases in italics are
# ours, because the vectors are only numbers.

# %% [markdown]
# ## 4. One word by hand
#
# *How do vectors become weights?*
#
# A query is compared with a key by their *dot product*: multiply the two vectors entry by entry and
# add up the products. In the plane, vectors are arrows. The next figure has one query and three
# keys. Here the keys also serve as values, and the diamond is their weighted average.
#
# **Predict**, then drag the tip of the query.
#
# 1. Which query gives *vierzig* more than 0.9 of the weight?
# 2. Drag the query to the center, where it fits no key at all. What are the weights there?

# %% tags=["demo"]
arrows = torch.tensor([[1.6, 0.3], [-1.2, 1.2], [0.2, -1.5]])
plotting.show(plotting.query_plane(arrows, names=["drei", "und", "vierzig"], query=(1.0, 1.0)))
assert torch.softmax(arrows @ torch.tensor([0.25, -2.0]), dim=0)[2] > 0.9
assert 0.75 < torch.softmax(arrows @ torch.tensor([0.125, -1.0]), dim=0)[2] < 0.85

# %% [markdown]
# <details><summary>Answer</summary>
#
# 1. Point the query the same way as *vierzig*, and make it long. A dot product is large when both
#    arrows are long and point the same way, 0 when they are perpendicular, and negative when they
#    point away from each other. Halving the arrow halves all dot products, and the weight of
#    *vierzig* falls.
# 2. All three weights are 1/3. Attention always returns an average, even when no key fits, because
#    the weights always sum to 1. Lesson 01 begins with this average.
#
# </details>

# %% [markdown]
# Your translator does the same with vectors of 64 numbers. The function `cross_attention_inputs`
# returns the vectors that the translator compares while it writes *forty three*. The *scores* are
# the dot products divided by 8, the square root of 64. Lesson 05 explains why.

# %% tags=["demo", "nbval-ignore-output"]
compared = cross_attention_inputs(model, numerals, [43])
query = compared.queries[0, 0].cpu()  # (64,), before "forty" is written
keys = compared.keys[0].cpu()  # (14, 64), one for each letter
values = compared.values[0].cpu()  # (14, 64)

scores = keys @ query / 8  # (14,)
for letter, score in zip("dreiundvierzig", scores, strict=True):
    print(f"{letter} {score:6.1f}")
assert scores.argmax() == weights[0].argmax() >= 7

# %% [markdown]
# The highest score belongs to a letter of *vierzig*. In section 2, the thickest arc of *forty* ends
# at this letter.
#
# Scores are not weights yet: some are negative, and they do not sum to 1. The *softmax* takes the
# exponential of each score, so that all are positive, and divides by their sum.

# %% tags=["demo", "nbval-ignore-output"]
powers = scores.exp()
by_hand = powers / powers.sum()  # (14,), the softmax of the scores
output = by_hand @ values  # (64,), the weighted average of the values

print("letter  by hand  on the map")
for letter, mine, on_map in zip("dreiundvierzig", by_hand, weights[0], strict=True):
    print(f"{letter:6} {mine:8.3f} {on_map:11.3f}")
print("the average of the values begins with", output[:4])
assert torch.allclose(by_hand, weights[0], atol=1e-3)
assert output.shape == (64,) and 22_000 < torch.tensor(10.0).exp() < 22_050

# %% [markdown]
# The weights are those of the map, up to rounding. This is all that attention computes: a score for
# each key, a softmax, and an average of the values. `output` is what the word *forty* receives.
#
# A score that is higher by 10 gets a weight that is 22,000 times as large, so one letter can get
# nearly all of the weight. For *three*, change `queries[0, 0]` to `queries[0, 1]` and `weights[0]`
# to `weights[1]`, and run both cells again.

# %% [markdown]
# ## 5. The parts list
#
# *What other parts does a translator have?*

# %% tags=["demo", "hide-input"]
shapes = {"tokens": "letters", "decoder tokens": "words"}
plotting.show(plotting.diagram("encoder_decoder", lit="cross-attention", shapes=shapes))

# %% [markdown]
# This is the architecture of a Transformer. The left side reads letters and the right side writes
# words. You computed the highlighted box, in which the words look back at the letters.
#
# In this lesson, PyTorch supplied the parts. You will write them:
#
# | lessons | you write |
# |---|---|
# | 01 | averages weighted by how well keys fit a query |
# | 02, 03 | weights that skip padding and the future, for whole batches |
# | 04, 05 | the two ways to score: Bahdanau's and the Transformer's |
# | 06, 07 | attention with several heads, positions, and tests that find bugs |
# | 08 | attention that needs less memory |
# | 09, 10 | the translator, and then a language model |

# %% [markdown]
# ## 6. Your turn
#
# *Which letter gets the most attention from each word?* You can see the answer in a map. Now
# compute it.
#
# The next cell contains a first attempt. The positions that it prints for a small map are correct.
#
# **Predict.** Is the function correct for every map? `grade` tries it on many maps and prints a
# report, as every check does.


# %% tags=["demo"]
def first_attempt(attention_weights):
    positions = []
    for row in attention_weights:
        positions.append(int(row.argmax()))
    return torch.tensor(positions)


print(first_attempt(torch.tensor([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])))
grade("most_attended", first_attempt, seed="public")

# %% [markdown]
# <details><summary>How to read the report</summary>
#
# The report begins with the verdict and the points. Then it says what is wrong, asks a question,
# and shows a small input that fails, with your result beside the expected one. Points are given for
# *values* (the numbers are correct), *edges* (unusual cases, such as ties, are correct too),
# *hygiene* (inputs, dtype and device are unchanged) and, in many exercises, *gradients*. Partial
# solutions earn partial credit.
#
# </details>

# %% [markdown]
# Now write a better version where it says `YOUR CODE HERE`. Run the cell and then the check below
# it, as often as you like. The report ends with three folded hints: the idea, where to look, and
# most of the answer. Hints cost nothing.

# %% [markdown]
# ### Exercise: `most_attended`
#
# - **Takes** `attention_weights` of shape `(..., n, m)`: one map `(n, m)`, or many, such as
#   `(batch, heads, n, m)`.
# - **Returns** a tensor of integers `(..., n)`: for each query, the position of the key with the
#   largest weight. If several weights tie for the largest, return the first.
# - The weights of a trained model require gradients. Accept them.
#
# **Worked example.** For `[[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]` the result is `[2, 0]`.

# %%
from course_lib.attention import most_attended

# %%
check("most_attended")

# %% [markdown]
# The notebook continues with your answer if it passed and with ours if it did not, so one unsolved
# exercise never stops you. The cell above tells you which. Full marks also put your answer into
# your library, the folder `my_attention/`. Later lessons use this library, and lesson 09 translates
# with it.

# %% [markdown] written="two_maps"
# ### Two maps
#
# A person, not a program, grades this question. If you are learning on your own, compare your
# answer with ours in the folder `solutions/` of the course.
#
# *dreiundneunzig* is 93 (*drei* 3, *neunzig* 90), and *siebenhundertneun* is 709 (*sieben* 7,
# *hundert* 100, *neun* 9). Where should each English word look? Where do arcs cross, and why?
# Write your answer, then try both numerals in the live translator in section 2.
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
# ## 7. Count the crossings
#
# Between 21 and 99 there are 72 numerals that name the ones first in German. The arcs cross if the
# first English word looks further right than the last one. You can use your function to count the
# numerals whose arcs cross.
#
# **Predict.** For how many of the 72 do the arcs cross?

# %% tags=["demo", "nbval-ignore-output"]
crossing = 0
for number in range(21, 100):
    if number % 10 == 0:
        continue
    translation, its_map = translate(model, numerals, number)
    positions = most_attended(its_map)
    if positions[0] > positions[-1]:
        crossing += 1
    else:
        print(f"no crossing: {numerals.say(number)}, translated as {' '.join(translation)}")
print(f"{crossing} of 72")
assert crossing > 60

# %% [markdown]
# <details><summary>Answer</summary>
#
# The arcs cross for nearly all of them. If the cell lists an exception, its translation tells you
# whether the translator looked in an unexpected place or wrote a different number.
#
# </details>

# %% [markdown]
# ## Summary
#
# Attention lets each new word look back at the whole source. The scores between a query and all
# keys become weights that sum to 1, and the result is the weighted average of the values. A
# translator therefore does not have to squeeze a sentence into one vector. Exercises with a star
# are optional, and `progress()` from `course_lib` shows how far along you are.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Another seed.** Train `new_translator(numerals, seed=1)`. Which letter of *vierzig* does
#    *forty* look at now?
# 2. **Another language.** `Numerals("french")` says 91 as *quatre-vingt-onze*, four-twenty-eleven.
#    What does *ninety* look at?
# 3. **Misspelled.** Leave out letters of *dreiundvierzig*, one at a time. Which letters does the
#    translator need?

# %% [markdown]
# ## References
#
# - D. Bahdanau, K. Cho and Y. Bengio, *Neural Machine Translation by Jointly Learning to Align and
#   Translate*, 2014. <https://arxiv.org/abs/1409.0473>
# - K. Cho and others, *On the Properties of Neural Machine Translation: Encoder–Decoder
#   Approaches*, 2014. <https://arxiv.org/abs/1409.1259>
# - I. Sutskever, O. Vinyals and Q. V. Le, *Sequence to Sequence Learning with Neural Networks*,
#   2014. <https://arxiv.org/abs/1409.3215>
# - A. Vaswani and others, *Attention Is All You Need*, 2017. <https://arxiv.org/abs/1706.03762>
