# %% [markdown]
# # 02 Empty cache: who owns the clock?
#
# "Token 5, please." Does the memory agree that there were five tokens before?
#
# **After this lesson you can**
#
# 1. make one error message happen, in two ways;
# 2. write a call that refuses a wrong position;
# 3. make it survive a failure in the middle: whole or not at all.
#
# You need lesson 01. It takes about 23 minutes; the cells that say **deeper** 4 more. Run the set-up cell first. After
# it, each section works on its own.

# %% tags=["setup"]
import torch

from labkit.errors import PositionError
from labkit.faults import advice
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_02 as lesson, progress
from labkit.lesson.library import in_library
from labkit.price import first_wrong, price
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% tags=["predict"]
questions["window"].ask()

# %%
sources = lesson.window_sources(kernel=4, chunk=2)
questions["window"].reveal(sources, "Measured with inputs that carry their own number.")

# %% [markdown]
# ## 1. One number that remembers
#
# A window forgets after K-1 tokens. There is a memory that never has to: the **recurrence**. Its smallest form is one
# number h for each channel:
#
# `h = a * h + u`
#
# At each token the old h is multiplied by a, a number between 0 and 1. Then the new input u is added. The output is h.
# After many tokens, h still holds a little of the first one. This h is the layer's **state**. At the start of a text
# it is 0; to set it back to that is a **reset**.

# %%
a, h = 0.5, 0.0
for u in (4.0, 2.0, 0.0):
    h = a * h + u
    print(f"input {u:g}: h = {h:g}")

# %% [markdown]
# Look at the second line: h = 4 again, now half from the first input, half from the second. In a real layer a depends
# on the token, and there are thousands of such numbers. The rule stays.
#
# ## 2. Who counts the tokens?
#
# Somebody must know how many tokens the state has seen: the **clock**. RecurrentGemma in huggingface/candle (file
# quantized_recurrent_gemma.rs) keeps its states inside the model. It has no clock. The caller says a position with each
# call. At position 0 the state is made new, at later positions it is used. Nothing compares the two.
#
# There is a public page about an error of this model; it has no number, and we call it *the report*. Here is a port of
# the model in Python: four layers, small random weights.

# %% tags=["predict"]
questions["fresh"].ask()

# %%
found = lesson.fresh_call(position=5)
questions["fresh"].reveal(found, "This is the report's error, word for word.")

# %% [markdown]
# Is a fresh model the only way to this message? No. A call that *fails in the middle* leaves some layers with a state
# and others without. To make a call fail, one layer of the port gets room for 4 tokens only; then 5 tokens come.

# %%
for line in lesson.two_ways():
    print(line)

# %% [markdown]
# The last call is refused although there *was* a call at position 0. The caller's position proves nothing.
#
# ## 3. A failure in the middle
#
# Layers run one after the other. If each layer stores its new state at once, what does a failure leave behind?

# %% tags=["predict"]
questions["retry"].ask()

# %%
found = lesson.retry(lesson.writes_as_it_goes)
questions["retry"].reveal(found, "Compared with the whole text in one call, never broken.")

# %% [markdown]
# Time runs down, the layers stand side by side. Each cell names the newest token in a layer's state. Token 3 fails in
# layer 1, then it is fed again. Look at layer 0 on the right: it is one token ahead, and it stays wrong.

# %%
still(lesson.picture())

# %% [markdown]
# On the left the call collects all new states first and stores them at the end. A call that raises has then changed
# nothing. This is called **all-or-nothing**.
#
# ## 4. Your turn: a call that fits, or nothing
#
# Write the loop over the layers. `layer(x, state)` returns its output and its new state; state is None when nothing has
# been seen. The cache is a dict: `cache["length"]` is the clock, `cache["states"]` has one state for each layer.
#
# Five to eight lines are enough. Here the tokens are dimension 1 of x. `PositionError` is there.

# %% tags=["exercise"]
def run_layers(layers, x, position, cache):
    """Feed x (B, L, C) through the layers, from the states in the cache.

    cache: {'length': int, 'states': list}; store the new length and states there.
    Raise PositionError unless position fits. If a layer raises, the cache stays as it was.
    Return the output of the last layer, (B, L, C).
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(run_layers)

# %% tags=["hints"]
lesson.EXERCISE.help(run_layers)

# %% [markdown]
# The proof tries rows of two calls, with and without a call before them, with every position from 0 to 3, and with a
# layer that fails or not. To see your own version in the picture of section 3, run `still(lesson.picture(run_layers))`
# in a new cell.

# %% tags=["check"]
lesson.prove(run_layers)

# %% [markdown] tags=["deeper"]
# ## 5. Silent relatives
#
# **Deeper.** Four faults of this family, and two laws. *Position*: a wrong position is refused. *Atomic*: a call that
# raises has changed nothing. Each law is tested by running calls, on used models too. There the fault of the report is silent.

# %% tags=["deeper"]
for line in lesson.relatives():
    print(line)

# %% [markdown]
# ## 6. Good advice?
#
# The report gives advice; here it is in our words. Guess the verdict, then run it on the port.

# %% tags=["predict"]
questions["start_at_zero"].ask()

# %%
outcome = advice.get("empty-cache.start-at-zero").run()
questions["start_at_zero"].reveal(outcome.verdict, outcome.evidence)

# %% tags=["predict"]
questions["catch_and_replay"].ask()

# %%
outcome = advice.get("empty-cache.catch-and-replay").run()
questions["catch_and_replay"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown] tags=["deeper"]
# **Deeper.** Two more claims of the report, judged by the port.

# %% tags=["deeper"]
print(advice.judged("empty-cache.one-code-path", "empty-cache.manual-reset"))

# %% [markdown]
# ## 7. The price
#
# A related model of the same library (LFM2) takes zeros where it finds no state, and raises no error. A trained model
# with this fault answers 200 questions that it has not seen, cut in two at three places. The *fact* is the sentence
# with the answer. The dashed line is chance.

# %%
places = ["inside the fact", "behind the fact", "before the question"]
print(first_wrong("mamba2", lesson.missing_is_zeros, "behind the fact"))
still(accuracy_bars(price("mamba2", 200, places,
                          {"missing state is zeros": lesson.missing_is_zeros})))

# %% [markdown] tags=["deeper"]
# ## 8. Use it elsewhere
#
# **Deeper.** A clock counts; does it know whose tokens it counts?

# %% tags=["predict", "deeper"]
questions["transfer"].ask()

# %% tags=["deeper"]
questions["transfer"].reveal(*lesson.noticed())

# %% [markdown] tags=["deeper"]
# So the state belongs to the conversation, not to the model. And a state that went wrong must go: `nan` stands for a
# number that is none, and it outlives a reset by multiplication.

# %% tags=["deeper"]
h = torch.tensor(float("nan"))
print(f"A reset that multiplies by 0: {0 * h:g}. A reset that puts a 0: {torch.zeros_like(h):g}.")

# %% [markdown]
# ## In the real library
#
# transformers has a RecurrentGemma too. If it is installed, this cell makes the first call at position 5 there.

# %% tags=["library"]
in_library(lesson.first_call_at_5)

# %% [markdown]
# ## What you have now
#
# - The clock belongs beside the state. A position that somebody says is a request, to be compared.
# - Only one position fits: the next one. Gaps, repeats and stale positions are refused. This law is called *position*.
# - A call is whole or not at all: the law *atomic*. Collect, then store.
# - A loud error is better than a quiet default.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | recurrence | a rule that makes the new state from the old one and the input: `h = a * h + u` |
# | state | what a layer carries from call to call |
# | clock | the count of tokens that a state has seen |
# | reset | to set a state back to the start of a text |
# | all-or-nothing | a call that raises leaves everything as it was |

# %% tags=["progress"]
progress.summary("02")

# %% [markdown]
# **Next:** lesson 03 meets a memory that keeps all tokens, and an index that counts from the wrong end.
