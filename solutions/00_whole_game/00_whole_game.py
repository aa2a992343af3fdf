# %% [markdown]
# # 00 · The whole game: a translator in half a minute
#
# **The question.** What does attention do, and can you see it at work?
#
# You train a translator, type a German number, read it in English, and see which letters it looked
# at for each word. In lessons 01 to 09 you write every part of it yourself.
#
# **After this you can**
#
# - read a map of attention;
# - say what attention was invented for, and what queries, keys and values are;
# - work on an exercise, with its check and its hints.
#
# **Time:** {time}. **You need:** a little Python, and no German. Click on a cell, press
# Shift + Enter, and it runs.

# %%
import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib import carry_on, check, hint, plotting
from course_lib.checks import grade
from course_lib.models.numerals import Numerals, english
from course_lib.models.trained import live_translator
from course_lib.models.whole_game import new_translator, train_translator, translate

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## 1. Train it
#
# *Can a machine translate numbers that nobody ever showed it?*
#
# German writes a number as one word and says the ones before the tens: 43 is *dreiundvierzig*,
# three-and-forty. A translator has to find the parts in a run of letters and reorder them.
#
# This one reads letters and writes words. It starts as 126,496 random numbers. In each of 800
# steps it sees 64 numerals with their translations, and its numbers move a little, so that the
# right words become more likely. Of the 9,999 numerals, 500 are held out.
#
# **Predict**, then run the cell; it takes about half a minute. Of 200 held-out numerals, how many
# will be right: none, about half, nearly all? (Wherever you read *Predict*, commit to a guess. A
# wrong guess is what makes the answer stick.)

# %% tags=["demo", "nbval-ignore-output"]
numerals = Numerals()  # 1 to 9999 in German letters and in English words
model = new_translator(numerals).to(device)
losses = train_translator(model, numerals, watch=43)

asked = numerals.unseen[:200]
answers = {number: " ".join(translate(model, numerals, number)[0]) for number in asked}
wrong = [number for number in asked if answers[number] != english(number)]
print(f"{len(asked) - len(wrong)} of {len(asked)} numbers it never saw are right")
assert len(wrong) < 20

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nearly all: more than 9 in 10 on any machine, and often every one. It cannot have memorised
# numbers that it never saw. It has found the parts, and how to put them together.
#
# </details>

# %% [markdown]
# ## 2. Watch it look
#
# *German says three-and-forty. Where does the machine look while it writes "forty"?*
#
# **Predict** before you run the cell: which letters of *dreiundvierzig* does it need for *forty*,
# and which for *three*?

# %% tags=["demo"]
words, weights = translate(model, numerals, "dreiundvierzig")  # (2 words, 14 letters)
assert words == ["forty", "three"]
assert weights[0, 7:].sum() > 0.5 and weights[1, :4].sum() > 0.5
alt = "forty looks mostly at vierzig, three mostly at drei: the arcs cross."
plotting.show(plotting.attention(weights, queries=words, keys="dreiundvierzig"), alt)

# %% [markdown]
# <details><summary>What you see</summary>
#
# *forty* looks at *vierzig*, *three* looks at *drei*, and the arcs cross, because the two
# languages order these parts differently. Nobody told the machine where a part ends or what it
# means. One letter can speak for all of *vierzig*, because each letter has first looked at its
# neighbours; which letter it is depends on the training.
#
# </details>
#
# This is a map of *attention*. Each row belongs to a word being written, each column to a letter.
# The *attention weights* in a row say how much the word looks at each letter. **Each row sums
# to 1.**
#
# Your turn: in the next figure, type a German numeral, or a number such as 1999. A translator
# trained beforehand runs in the page. *Next word* writes the translation one word at a time.

# %% tags=["demo"]
plotting.show(live_translator(yours=model))

# %% [markdown]
# ## 3. What attention was invented for
#
# *How did machines translate before they could look back?*

# %% tags=["demo", "hide-input"]
plotting.show(plotting.bottleneck())

# %% [markdown]
# From memory. A *recurrent* network read the sentence from end to end and squeezed it into one
# *vector*, a list of numbers; a second network wrote the translation from that vector alone (Cho
# et al. 2014; Sutskever et al. 2014). It has as much room for fifty words as for five, so long
# sentences suffered.
#
# Bahdanau, Cho and Bengio removed the bottleneck in 2014: keep a vector for *every* word of the
# source, and let each new word look back at all of them. In 2017 the Transformer dropped the
# recurrent network and kept the looking.
#
# How does a word know where to look? It asks. Before *forty* is written,
#
# - the word to come has a question, its **query**: *who names the tens?*
# - each letter wears a label, its **key**: *I belong to a part that names tens*;
# - each letter has something to give, its **value**: *forty*.
#
# The better a key fits the query, the larger its weight, and the word receives the average of the
# values with these weights. All three are vectors that the machine learns to make; the English is
# ours.
#
# **Predict.** What does attention return when no key fits the query?
#
# <details><summary>Answer</summary>
#
# An average all the same, since the weights of a row always sum to 1. Lesson 01 begins here.
#
# </details>

# %% [markdown]
# ## 4. The parts list
#
# *What is inside?*

# %% tags=["demo", "hide-input"]
shapes = {"tokens": "letters", "decoder tokens": "words"}
plotting.show(plotting.diagram("encoder_decoder", lit="cross-attention", shapes=shapes))

# %% [markdown]
# This is the plan of a Transformer. The left side reads letters, the right side writes words, and
# in the marked box the words look back: its weights are the map you saw.
#
# Today PyTorch supplied the parts. You will write them:
#
# | part | you write | lesson |
# |---|---|---|
# | averages weighted by how well keys fit | `kernel_pooling` | 01 |
# | weights that skip padding and the future | `masked_softmax`, `causal_mask` | 02 |
# | whole batches at once | `batched_scores`, `weighted_sum` | 03 |
# | comparing queries and keys: Bahdanau's way | `AdditiveAttention` | 04 |
# | the Transformer's way | `scaled_dot_product_attention` | 05 |
# | several searches at once; positions | `MultiHeadAttention`, `positional_encoding` | 06 |
# | a writer that cannot see ahead | `CausalSelfAttention` | 07 |
# | reader and writer, word after word | `EncoderBlock`, `DecoderBlock`, `greedy_decode` | 09 |

# %% [markdown]
# ## 5. Your turn
#
# *Which letter does each word look at most?* You can see it; now compute it.
#
# **Predict.** Here is someone's answer. It is right for the small map in the cell. Is it right for
# every map? `grade` tries it on many, and reports as a check does.


# %% tags=["demo"]
def row_by_row(attention_weights):
    positions = []
    for row in attention_weights.tolist():
        positions.append(row.index(max(row)))
    return torch.tensor(positions)


print(row_by_row(torch.tensor([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])))
grade("most_attended", row_by_row, seed="public")

# %% [markdown]
# <details><summary>How to read the report</summary>
#
# From the top: the verdict and the points; what is wrong, and a question to lead you on; the
# smallest input that fails, with the result beside the right one. The points have parts: *values*
# (the numbers are right), *edges* (in unusual cases, such as a tie, too), *hygiene* (nothing else
# is changed) and, in most exercises, *gradients* (what flows back through your code is right).
# Part of the work earns part of the points.
#
# </details>
#
# Now write a better one where it says `YOUR CODE HERE`. Run the cell, then the check below it, as
# often as you like. Its report ends with three folded hints: the concept, where to look, and a last
# push. One click opens a hint, and hints cost nothing.

# %% [markdown]
# ### Exercise: `most_attended`
#
# - **Takes** `attention_weights`: one map `(n, m)`, or many with any number of axes in front, such
#   as `(batch, n, m)` or `(batch, heads, n, m)`. Rows belong to queries, columns to keys.
# - **Returns** a tensor of whole numbers, `(..., n)`: for each query the position of the key it
#   looks at most, counted from 0. Of equal largest weights the first counts.
# - Weights of a model in training keep track of gradients, and must work too.
#
# **Worked number.** For `[[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]` the result is `[2, 0]`.

# %%
from course_lib.attention import most_attended

# %%
check("most_attended")

# %% [markdown]
# The last cell carries on with your answer if it passed, else with the course's, and says which:
# one unsolved exercise never stops you. Full marks also put your answer into your own library, the
# folder `my_attention/`. Later lessons use it, and in lesson 09 it translates.

# %% [markdown] written="two_maps"
# ### Two maps
#
# A person reads your answer to this one. *siebenundneunzig* is 97 (*sieben* 7, *neunzig* 90),
# *siebenhundertneun* is 709 (*hundert* 100, *neun* 9). Where should each English word look? In
# which map do arcs cross, and why only there? Answer first, then type both above.
#
# ### BEGIN SOLUTION
# 97: *ninety* looks at *neunzig* and *seven* at *sieben*; the arcs cross. 709: *seven* looks at
# *sieben*, *hundred* at *hundert*, *nine* at *neun*; no arcs cross. Both languages put the
# hundreds first. Only ones and tens trade places, and 709 has no tens.
#
# RUBRIC (2 points): 1 for where the words look, in both numerals; 1 for the reason: arcs cross
# where the two languages order the parts differently, and nowhere else.
# ### END SOLUTION

# %% [markdown]
# ## Summary
#
# Attention lets each new word look back at everything there is, with weights that sum to 1. A query
# asks, keys say what is there, values are what you get. A translator no longer has to squeeze a
# sentence into one vector. `progress()` from `course_lib` shows how far you are; exercises with a
# star are optional.

# %% [markdown]
# ## Further exercises ★
#
# 1. **Another seed.** Train `new_translator(numerals, seed=1)`. Which letter speaks for *vierzig*
#    now?
# 2. **Another language.** `Numerals("french")` says 91 as *quatre-vingt-onze*, four-twenty-eleven.
#    What does *ninety* look at?
# 3. **Misspelled.** Leave out letters of *dreiundvierzig*, one at a time. Which does it need?

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
