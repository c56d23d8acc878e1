# %% [markdown]
# # 07 Copied state
#
# A conversation can branch: two answers are tried from one point. Then somebody copies the memory. A copy that is not
# a copy looks right for a while.
#
# **After this lesson you can**
#
# 1. copy a session so that it goes on exactly, shares nothing, or is refused;
# 2. say which test sees a shared memory, and which does not;
# 3. find a field that a reset forgets.
#
# You need lessons 02 and 03. It takes about 25 minutes; the cells that say **deeper** 1 more.

# %% tags=["setup"]
import torch

from labkit import faults
from labkit.faults import advice, samples
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_07 as lesson, progress
from labkit.lesson.exercise import source
from labkit.price import first_wrong, price
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% [markdown]
# First one question about an older lesson.

# %% tags=["predict"]
questions["recall"].ask()

# %%
try:
    faults.get("empty-cache").trigger()
    result = "zeros"
except RuntimeError as error:
    result = "raises"
    print(type(error).__name__ + ":", error)
questions["recall"].reveal(result)

# %% [markdown]
# ## 1. A copy is refused
#
# Mimi is a model for sound. It gets frames (short pieces of sound), without end, and keeps keys and values of the last
# few. They stand in a **ring buffer**: a fixed number of slots, used in turn. With 4 slots, token 4 goes to slot 0 and
# replaces token 0.
#
# In the library candle such a stream can be copied to another one. If the two models have different numbers of layers,
# the copy is refused. (Source: huggingface/candle, mimi/transformer.rs. This lab runs a port in Python.)

# %%
try:
    faults.get("depth-only").trigger()
except ValueError as error:
    print(type(error).__name__ + ":", error)

# %% [markdown]
# This is a good error: it comes before anything is changed. But the number of layers is *all* that is compared. What
# else does a copy need?
#
# ## 2. Two names, one memory
#
# Here is candle's copy as a port, with one thing repaired already: it takes the clock too. `dict(layer)` makes a new
# dictionary. The tensors in it are the same ones, under a second name: an **alias**. A step writes into the ring in
# place, so both sessions write to one memory.

# %%
print(source(lesson.share))

# %% tags=["predict"]
questions["copy"].ask()

# %%
result = tuple(lesson.disturbed(before, lesson.share) for before in (2, 6))
for before, wrong in zip((2, 6), result):
    print(f"copy after {before} frames: the source is {'DISTURBED' if wrong else 'right'}")
questions["copy"].reveal(result)

# %% [markdown]
# A test right after the copy, with a few frames, is green. It proves nothing about later.
#
# Look at both rings. Time runs down, slots run across, the letter says whose frame is in the slot. (Measured: each
# slot is compared with runs that share nothing.)
#
# **Your task:** move the number of frames before the copy. From which number on is a slot of the *source* wrong?

# %% tags=["explorer"]
lesson.explorer()

# %% tags=["predict"]
questions["from"].ask()

# %%
first = next(before for before in range(9) if lesson.disturbed(before))
questions["from"].reveal(first, "Run for 0 to 8 frames: the copy steps twice, then the source once.")

# %% [markdown]
# ## 3. The report's way out
#
# The report says what to do after the error: build the target again, with as many layers, then copy. In candle a copy
# takes the keys and values of each layer.

# %% tags=["predict"]
questions["recover"].ask()

# %%
result = lesson.copied(samples.streaming())
print("new target, same weights:", result)
print("target at the same position:", lesson.copied(samples.streaming(), used=6))
questions["recover"].reveal(result if result in ("right", "wrong") else "raises")

# %% [markdown]
# Each layer also has a clock for its positions, and the copy does not take it. A loud error became a silent one. There
# are two clocks now, one in the keys and one in the target, and nobody compares them. The positions cannot be read from
# the keys: a key looks like any other numbers.
#
# ## 4. Your turn: a copy that is one
#
# A session has `.layers` (a list of dicts of tensors), `.clock` (an int, the frames seen), and `.fingerprint()`. A
# **fingerprint** is a short text computed from all sizes and weights. Two models with the same fingerprint are the
# same model. Three to six lines are enough.

# %% tags=["exercise"]
def copy_session(dst, src):
    """Make dst go on exactly as src would, and share nothing that is written to.

    dst may have seen other frames before. If the two belong to different models, raise ValueError
    and change nothing.
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(copy_session)

# %% tags=["hints"]
lesson.EXERCISE.help(copy_session)

# %% [markdown]
# ### Proof by many orders

# %% tags=["check"]
lesson.prove(copy_session)

# %% [markdown]
# ## 5. Good advice?
#
# The port has three methods: one takes a step, one resets, one copies.

# %% tags=["predict"]
questions["config"].ask()

# %%
outcome = advice.get("different-depths.same-config").run()
questions["config"].reveal(outcome.verdict, outcome.evidence.rstrip(".").split("; "))

# %% tags=["predict"]
questions["len"].ask()

# %%
outcome = advice.get("different-depths.layers-len").run()
questions["len"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown] tags=["deeper"]
# **Deeper.** A third claim, judged in the same way.

# %% tags=["deeper"]
print(advice.judged("different-depths.rerun-input"))

# %% [markdown]
# ## 6. The price
#
# A trained Mamba2 model reads a text, up to the cut. A copy of its session hears another story about the same people,
# with other things. Then the first session gets its question: 200 questions, each asked with a real copy and with an
# alias.

# %%
still(accuracy_bars(price("mamba2", 200, ("behind the fact", "before the question"),
                          {"alias": lesson.shared_copy})))

# %%
print(first_wrong("mamba2", lesson.shared_copy, "before the question"))

# %% [markdown]
# One user gets answers from the other one's story. There is no error, and the answers look like answers.
#
# ## 7. Relatives: the reset
#
# A reset is a copy of "nothing seen". It can forget a field too. Two faults of the same model, two tests: a short one,
# and a **soak**, a run that is much longer than any ring or table.

# %%
print(lesson.audit())

# %% [markdown]
# In candle a table holds the positions: 8192 of them, about five and a half minutes of sound. (Here it holds 32.)
# No short test comes to its end. And a soak does not test a reset. You need both.

# %% [markdown] tags=["deeper"]
# **Deeper.** What the forgotten field is, as a difference between right and faulty code. (`down` holds the frames that
# the layer in front still needs, as a window does.)

# %% tags=["deeper"]
print(faults.get("reset-forgets-a-field").diff())

# %% [markdown]
# ## 8. Use it elsewhere

# %% tags=["predict"]
questions["next"].ask()

# %%
habits = lesson.loud()
questions["next"].reveal(*habits, "A field is added, and each habit is tried once.")

# %% [markdown]
# ## What you have now
#
# - A copy needs everything that is carried: all tensors, the clock, and the same weights.
# - Two names are not two memories. The difference shows only when a used slot is written again.
# - A state that is one value cannot be copied by half.
#
# Two laws are yours now: *fork* (two sessions that go on from one point do not disturb each other) and *reset* (a
# session after a reset equals a new one).
#
# ### Words
#
# | word | meaning |
# |---|---|
# | ring buffer | a fixed number of slots that are used in turn |
# | alias | a second name for the same memory |
# | fingerprint | a short text computed from all sizes and weights of a model |
# | soak | a test that runs much longer than any memory of the model |

# %% tags=["progress"]
progress.summary("07")

# %% [markdown]
# **Next:** lesson 08 feeds two texts of different lengths at once, and fills up the shorter one.
