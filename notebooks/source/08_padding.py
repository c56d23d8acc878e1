# %% [markdown]
# # 08 Padding
#
# Texts of different lengths, fed together. The gaps are filled with columns that mean nothing. What may such a column
# change? Nothing at all.
#
# **After this lesson you can**
#
# 1. make a padded row equal the same row alone: padding on the left, on the right and in the middle;
# 2. do so in a first call and in a continued call, for any number of columns per call;
# 3. say why one green test with padding proves little.
#
# You need lessons 01 and 02. It takes about 25 minutes; the cells that say **deeper** 5 more.
#
# Run the set-up cell first: click it and press Shift + Enter. After it, each section works on its own.

# %% tags=["setup"]
import torch

from labkit import faults
from labkit.faults import advice
from labkit.faults.base import source_of
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_08 as lesson, progress
from labkit.price import first_wrong, of_fault, price
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% [markdown]
# First a question about an older lesson.

# %% tags=["predict"]
questions["clock"].ask()

# %%
questions["clock"].reveal(lesson.stale_position(), "Run: 5 tokens, one at position 3, a look at the cache.")

# %% [markdown]
# ## 1. Two rows of different length
#
# A batch has several **rows**, one text each. In one tensor all rows have the same number of columns. Shorter rows get
# **padding**: columns without a meaning. Such a batch is called **ragged**. The **mask** says which columns are real.
#
# | row | columns | mask |
# |---|---|---|
# | 0 | `_ _ x x x x` | 0 0 1 1 1 1 |
# | 1 | `x x x x x x` | 1 1 1 1 1 1 |
#
# Here `x` is a token and `_` is padding. Row 0 is padded on the left. Padding can also stand on the right, or in the
# middle: that happens when a short row has to wait while another one goes on.
#
# Attention uses the mask to leave padding out. A recurrent layer needs it as well. Take the memory of lesson 02,
# `h = a * h + u`. The first idea that comes to mind: multiply the inputs by the mask. Then u is 0 in a padding column.

# %% tags=["predict"]
questions["sides"].ask()

# %%
from labkit.lesson.exercise_08 import SIDES, attempt, padded
for side in SIDES:                      # row 0: a call of 6 columns with padding, then a call of two real tokens
    row, marks = padded(side).rows[0], attempt(lesson.inputs_masked, padded(side)).strip
    print(f"{side:7} {row[:6]}|{row[6:]}\n        {marks[:6]}|{marks[6:]}  (. right, X wrong)")
questions["sides"].reveal(lesson.sides_wrong(lesson.inputs_masked))

# %% [markdown]
# Adding 0 is not enough. The state is also multiplied by `a`, once in each column. On the left that does not matter,
# because the state is still 0. A test with left padding alone would have been green.
#
# ## 2. What happened in a real library
#
# In transformers up to 5.14.1 many recurrent layers looked at the mask in the first call only. With an earlier state,
# padding went into window and state (huggingface/transformers issue 47086). PR 47087 changed this in 5.15.0. No error
# was ever raised, before or after.
#
# The next cell runs a port of that fault. Nothing warns you; only the comparison with the row alone shows it.
# *Much left* is left padding that reaches into the second call.

# %%
print(source_of(faults.get("padding-continued").faulty[0]))                 # the whole fault
wrong = lesson.broken_calls("padding-continued")
print("\n".join(f"wrong: {words}" for words in wrong[:3]), f"\nand {len(wrong) - 3} more")

# %% [markdown]
# Now a port of what came after that change. The same padding comes in calls of two columns, then in calls of one
# column.

# %% tags=["predict"]
questions["columns"].ask()

# %%
wrong = lesson.broken_calls("padding-one-column")                           # a port of one decision of 5.23
right = [not any(f"{number} at a time after" in words for words in wrong)
         for number in ("two columns", "one column")]
print("\n".join(f"wrong: {words}" for words in wrong))
questions["columns"].reveal(tuple(right))

# %% [markdown]
# The path for one column is code of its own, and it was left as it was. One column at a time is how a model writes
# text. In a batch, a row that is done gets padding while the others go on.
#
# ## 3. See who wrote each slot
#
# The text is A B C D, with two columns of padding in it. Time runs down, one line for each call. The slots of the
# memory run across: three columns of window, and the state. Each cell names the column that wrote it. Left: the row
# alone; it skips the padding columns. Right: the padded row, in a layer with the fault of the last cell. A padding
# column must leave every slot as it was. `C+pad` means: written by C, and padding still shows in the value.
#
# The picture is measured. One input after another is changed, and the slots that move are noted.
#
# **Your task:** keep two tokens before the padding. Move the columns per call from 1 to 6. At which lengths does
# padding write a slot?

# %% tags=["explorer"]
lesson.explorer()

# %% tags=["predict"]
questions["lengths"].ask()

# %%
questions["lengths"].reveal(lesson.harmful_lengths(before=2), "All lengths from 1 to 6 are run here.")

# %% [markdown] tags=["deeper"]
# **Deeper.** Put 4 tokens before the padding: then the padding comes last. One more length does harm. Which one, and
# why? (Look at the last call.)

# %% tags=["deeper"]
print("2 tokens before the padding:", lesson.harmful_lengths(before=2))
print("4 tokens before the padding:", lesson.harmful_lengths(before=4))

# %% [markdown]
# ## 4. Your turn: a state that padding cannot touch
#
# Write the recurrence with a mask. Each row decides for itself. You need not care what `y` holds at padding.
# Four to eight lines are enough.

# %% tags=["exercise"]
def scan(u, a, mask, h):
    """h[t] = a[t] * h[t-1] + u[t]; a padding column changes nothing.

    u, a (B, L, D), L may be 0; mask (B, L) bool, True at real tokens; h (B, D).
    Return two tensors: y (B, L, D), the h after each column, and the last h (B, D).
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(scan)

# %% tags=["hints"]
lesson.EXERCISE.help(scan)

# %% [markdown]
# ### Proof by the contract
#
# The **contract** is the list of laws that this lab collects. *split* is the one that lesson 01 began with: any cut gives
# the same answer. Two laws are new. *rows*: a batch equals its rows alone. *padding*: no padding changes a real output,
# on any side, in any call. The report also names *fork*: a copy does not disturb its source (lesson 07).

# %% tags=["check"]
lesson.prove(scan)

# %% [markdown] tags=["deeper"]
# **Deeper.** The window has the same problem. It must hold the last K-1 *real* columns of each row, and that is another
# place in each row. The lab's convolution takes a count for each row:

# %% tags=["deeper"]
from labkit.conv import causal_conv
x = torch.tensor([[[1.0, 2.0, 3.0, 0.0, 0.0]], [[1.0, 2.0, 3.0, 4.0, 5.0]]])    # (B, C, L); row 0: 3 are real
_, window = causal_conv(x, torch.zeros(2, 1, 2), torch.ones(1, 3), counts=torch.tensor([3, 5]))
print("with counts:   ", window[:, 0].tolist())
print("end of the row:", x[:, 0, -2:].tolist())

# %% [markdown]
# ## 5. Good advice?
#
# Guess the verdict of each claim, then run it. The cases run on ports in Python.

# %% tags=["predict"]
questions["fixed"].ask()

# %%
outcome = advice.get("padding-continued.fixed").run()
questions["fixed"].reveal(outcome.verdict, outcome.evidence)

# %% tags=["predict", "deeper"]
questions["left"].ask()

# %% tags=["deeper"]
outcome = advice.get("padding-continued.left").run()
questions["left"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown]
# ## 6. The price
#
# A trained model answers 200 questions about facts in a text. Each piece of the text comes with 4 columns of padding.
# Below: how many answers are right, without the fault, with it, and after the repair.

# %%
rows = price("mamba2", 200, ("inside the fact", "behind the fact"), {"mask in the first call only":
                                                                     of_fault("padding-continued")})
still(accuracy_bars(rows))

# %%
print(first_wrong("mamba2", of_fault("padding-continued"), "inside the fact"))

# %% [markdown]
# The fault of the later release, under the same questions:

# %%
rows = price("mamba2", 200, ("inside the fact",), {"one column at a time": of_fault("padding-one-column")})
print(accuracy_bars(rows)[1])

# %% [markdown]
# No price, and still a fault. Each piece here has more than one column, so these questions never take the path that
# is wrong. A measure sees only what it feeds.
#
# ## 7. Use it elsewhere

# %% tags=["predict"]
questions["eighth"].ask()

# %%
questions["eighth"].reveal(lesson.left_of_h(a=0.5, columns=3), "Measured: h starts at 1.")

# %% [markdown] tags=["deeper"]
# **Deeper.** Silent relatives: four faults of the same family. For each one: what it does, how many of the contract's
# experiments with padding are wrong, and the smallest one. The last one fails even on the left: a real layer has
# biases, and an input of 0 does not give a 0 behind them.

# %% tags=["deeper"]
print(lesson.relatives())

# %% [markdown] tags=["deeper"]
# **Deeper.** In the real library: the installed transformers, a tiny model without a bias at that place, drawn at
# random. Compare the first kind of call with what you predicted in section 1.

# %% tags=["library", "deeper"]
print(lesson.in_library())

# %% [markdown] tags=["deeper"]
# In 5.23 the first kind of call gives the answer of section 1: harm on the right and in the middle. So the real layer
# still multiplies its inputs by the mask. Behind 4 tokens even left padding is wrong: the state is no longer zero
# there. And it has the fault of section 2 as well: with one column at a time, left padding is wrong from the start.

# %% [markdown]
# ## What you have now
#
# - A padding column changes nothing: not the state, not the window, not another row.
# - "Adds 0" is not "changes nothing". The state needs `a = 1` there, or the old value.
# - Test every side, a first and a continued call, and one column at a time. Each of these found a fault that the
#   others did not see.
#
# Two laws are yours now: *rows* and *padding*.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | row | one text of a batch |
# | padding | columns that fill a row up to the common length |
# | mask | says which columns are real |
# | ragged batch | rows of different length, padded |
# | contract | the list of laws that a model with memory must keep |

# %% tags=["progress"]
progress.summary("08")

# %% [markdown]
# **Next:** lesson 09 feeds tokens that may be wrong, and takes them back.
