# %% [markdown]
# # 00 Start here
#
# A language model reads a text from left to right. It keeps notes, so that it need not read everything again for each
# new word. These notes are the **cache**.
#
# A text can reach the model in one piece, in two, or token by token. **The answer must be the same.** In real
# libraries it was not always so. Sometimes there was an error; often there was none, and the answer was wrong.
# This lab shows how that happens, how to see it, and how to repair it.
#
# **After this lesson you can**
#
# 1. feed a text in pieces through one cache;
# 2. show that the answer agrees, however the text is cut.
#
# It takes about 19 minutes. You need to know what a tensor is.

# %% [markdown]
# ## 1. Does this machine fit?
#
# Click the next cell and press Shift + Enter. This runs the cell and moves on.

# %% tags=["setup"]
import labkit.doctor
labkit.doctor.check()

import torch

from labkit import Cache, HybridLM
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_00 as lesson, progress
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% [markdown]
# If the line above says that something must be repaired, it also says how. Repair it first.
#
# ## 2. One text, two answers
#
# Here is a small model that has learned to answer questions about short texts. We have put a fault into it. It reads
#
# > Ada keeps a red kite. Ben sells a blue drum. What does Ada keep?
#
# once in one piece, and once in two: the first sentence, then the rest.
#
# Guess before you run. Choose an answer, say how sure you are, and press the button.

# %% tags=["predict"]
questions["hidden"].ask()

# %%
one_piece, two_pieces = lesson.two_answers()
print(f"one piece:  {one_piece}\ntwo pieces: {two_pieces}")
questions["hidden"].reveal(lesson.kind_of(two_pieces))

# %% [markdown]
# Not an error, not a wrong letter: a wrong answer that reads well. Is it bad luck with one text? Here are 200 texts,
# each in one piece (*whole*) and cut behind the sentence that matters (*the fact*). *Right* is the model before the fault
# was put in, *repaired* the same model after it was taken out.

# %%
still(accuracy_bars(lesson.costs()))

# %% [markdown]
# We do not tell you the name of the fault. In lesson 10 you will find it yourself.
#
# ## 3. The same text, cut in different ways
#
# Now a model without a fault. Its weights are random, so it says nothing clever. For our question that does not matter:
# it must give the *same* answer, however we cut. `HybridLM` is the model of this lab. Names such as griffin and mamba2
# say what its layers are made of; you need not know them yet.
#
# Each character of the text is one **token** here. A piece of the text is also called a **chunk**. For each token the
# model returns **logits**: one number for each token that could come next.

# %% tags=["predict"]
questions["pieces"].ask()

# %%
model = HybridLM.preset("griffin", vocab_size=128, seed=0)
ids = torch.tensor([list(b"Ada keeps a red kite.")])                        # (1, 21): B = 1, L = 21
cuts = [[21], [10, 11], [3] * 7, [1] * 21]                                  # sizes of the pieces
with torch.no_grad():
    whole = model(ids)                                                      # (1, 21, 128)
errors = lesson.distances(model, ids, cuts)
for sizes, error in zip(cuts, errors):
    size = "0" if error == 0 else "not 0, but below 0.00001" if error < 1e-5 else "above 0.00001"
    print(f"pieces: {len(sizes):2}  largest difference: {size}")
questions["pieces"].reveal(lesson.size_of(errors, scale=float(whole.abs().max())))

# %% [markdown]
# Why does a cut cost nothing? After each piece the cache holds all that the model needs of the past. The next
# piece continues from there.
#
# Now leave the cache out. Each piece is then a text of its own.

# %% tags=["predict"]
questions["no_cache"].ask()

# %%
model = HybridLM.preset("griffin", vocab_size=128, seed=0)
ids = torch.tensor([list(b"Ada keeps a red kite.")])                        # (1, L)
with torch.no_grad():
    whole = model(ids)                                                      # (1, L, vocab)
    alone = torch.cat([model(piece) for piece in ids.split([10, 11], dim=1)], dim=1)
wrong = (whole - alone)[0].abs().amax(-1) > 1e-3                            # (L,)
print("Ada keeps a red kite.")
print("".join("X" if bad else "." for bad in wrong), "  (. right, X wrong)")
questions["no_cache"].reveal("silent" if wrong.any() else "same")

# %% [markdown]
# Look at the line of dots and crosses. The first piece is right, since nothing came before it. Then the model has lost
# the past, and it does not say so. You will meet such lines, called strips, in every lesson.
#
# ## 4. How to work with this lab
#
# - **Predict.** A wrong guess is worth more than no guess: it shows you what to look at. The result appears beside it.
# - **Exercise.** You replace one line, `return NotImplemented`, with your own code.
# - **Check.** It says *not tried yet*, *crashed*, *wrong* or *right*. If it can, it names the mistake. Check often.
#   What your code prints is hidden there; call your function in a cell of your own to see it.
# - **Hints.** One at a time, and only when you ask. After the last one you can see a solution.
# - **Deeper.** Cells with this word can be skipped.
# - **Progress.** Your guesses and tries are kept in one file, `labkit_progress.json`, in this folder. It holds no name,
#   and it is sent nowhere. Delete it to start again.
# - **Later.** When a lesson is opened again or Python was restarted, run the set-up cell first. Buttons and sliders come
#   back when you run their cell; until then they show an error or do nothing.
#
# Keys: Shift + Enter runs a cell. Enter starts to edit it, Esc stops. Tab moves to a slider or a button, arrow keys
# move the slider, Space presses the button.
#
# ## 5. Your turn
#
# Feed a text in pieces through one cache. A cache is made with `Cache()`. `model(piece, cache)` reads a piece, writes
# its notes to the cache, and returns the logits of that piece. A piece can be cut out with a slice such as
# `ids[:, 2:5]`, and `torch.cat` joins tensors. A piece may have 0 tokens.

# %% tags=["exercise"]
def feed_in_pieces(model, ids, sizes):
    """Feed the pieces through ONE cache.

    ids (1, L); sizes: a list that sums to L. Return the logits (1, L, vocab).
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(feed_in_pieces)

# %% tags=["hints"]
lesson.EXERCISE.help(feed_in_pieces)

# %% [markdown]
# ## 6. Use it
#
# One more question about a fault that you have now seen.

# %% tags=["predict"]
questions["sees"].ask()

# %%
model = HybridLM.preset("griffin", vocab_size=128, seed=0)
ids = torch.tensor([list(b"Ada keeps a ")])                                 # (1, 12)
seen = lesson.seen_without_cache(model, ids, sizes=[5, 1, 6], token=9)
questions["sees"].reveal(seen, "Measured: one token is changed at a time. Those that move the "
                               "logits at 9 are counted.")

# %% [markdown]
# ## 7. The map
#
# A cache can hold three kinds of memory. Their names are enough for now: a **window** of the last few inputs, a
# **recurrent state** that is updated with each token, and **keys and values** of all tokens.
#
# | lesson | minutes |
# |---|---|
# | 00 Start here | 19 |
# | 01 The window | 21 + 2 |
# | 02 Empty cache | 23 + 4 |
# | 03 Cache position | 22 + 4 |
# | 04 Dropped chunk | 25 + 2 |
# | 05 History lost | 24 + 1 |
# | 06 Two caches | 23 + 2 |
# | 07 Copied state | 25 + 1 |
# | 08 Padding | 25 + 5 |
# | 09 Rollback | 24 + 2 |
# | 10 Mystery | 25 + 8 |
#
# **45 minutes:** 00 and 01. **Half a day:** 00, 01, 02, 04, 05 and the first case of 10. **Two days:** all of them, and
# a project of your own. Where two numbers stand, the second one is for the cells that say *deeper*.

# %% tags=["progress"]
progress.summary("00")

# %% [markdown]
# **Next:** lesson 01 opens the smallest of the three memories, the window.
