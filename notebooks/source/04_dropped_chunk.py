# %% [markdown]
# # 04 Dropped chunk
#
# A model reads a chunk of eight tokens. Seven of them vanish, and nothing is said.
#
# **After this lesson you can**
#
# 1. point at the branch condition that is wrong;
# 2. repair the chunk, for any length;
# 3. name the fault from a line of dots and crosses.
#
# You need lesson 01; in a hurry, its sections 1 and 2 will do. If you skipped 02, the next section is enough. It takes about 25 minutes; the cells that say
# **deeper** 2 more. Run the set-up cell first. After it, each section works on its own.

# %% tags=["setup"]
import torch

from labkit import faults as catalogue
from labkit.conv import causal_conv as conv_chunk           # a right conv_chunk, from lesson 01
from labkit.faults import advice
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_04 as lesson, progress
from labkit.lesson.library import in_library
from labkit.price import first_wrong, of_fault, price
from labkit.widgets import still

questions, faults, right = lesson.QUESTIONS, lesson.FAULTS, lesson.RIGHT

# %% [markdown]
# ## 1. Three minutes of recap: one number that remembers
#
# A window forgets a token after K-1 steps. A **recurrent state** does not. Its smallest form is one number h:
#
# `h = a * h + u`
#
# At each token the old h is multiplied by a, a number between 0 and 1. Then the new input u is added. So h holds a
# little of *every* earlier token. The output is made from h. From call to call, somebody must carry h.

# %% tags=["predict"]
questions["recap"].ask()

# %%
h = 0.0
for u in (8, 0, 4):
    h = 0.5 * h + u
questions["recap"].reveal(h, "8, then 0.5 * 8 + 0 = 4, then 0.5 * 4 + 4 = 6.")

# %% [markdown]
# ## 2. The layer, and the fault
#
# Mamba2 is such a layer, with more numbers:
#
# - First a convolution, as in lesson 01. It needs its window.
# - Then the recurrence. Each token brings its own step size **dt**. It sets how much of h is forgotten and how much of
#   the token is taken in.
# - The channels are grouped in **heads**. Each head has its own a, and its h is a small table of numbers, the **state
#   matrix**.
#
# So two memories are carried: window and h. The code in the library had two branches. To choose one is called
# **dispatch**:
#
# ```
# if a state is there:      one step                  # written for 1 token
# else:                     all tokens, from zeros    # written for the start of a text
# ```
#
# What happens to 8 tokens when a state is there? The report is issue 46032 of huggingface/transformers, the repair is
# pull request 46084. No error is raised.

# %% tags=["predict"]
questions["chunk"].ask()

# %%
strip = lesson.strip_of(faults["dropped-chunk"], sizes=(4, 8))
print(strip, "  (. right, X wrong; 4 tokens, then 8)")
versions = catalogue.get("dropped-chunk").record.versions
questions["chunk"].reveal(strip, ["The faulty layer and the right one share all weights.",
                                  f"transformers had this code in {versions}."])

# %% [markdown]
# Now you know the condition that is wrong: *a state is there* is not the same as *one token comes*. Is it enough to
# mend it? The next cell runs this form, "history lost":
#
# ```
# if a state is there and there is 1 token:      one step
# else:                                          all tokens, from zeros
# ```

# %%
print(lesson.strip_of(faults["history-lost"], sizes=(4, 8)), "  (. right, X wrong; 4 tokens, then 8)")

# %% [markdown]
# No: the chunk starts from zeros, and now its first token is wrong too. There are not two cases, but three: the start
# of a text, one more token, and a *chunk on a used cache*. Both branches forget the third.
#
# ## 3. See which input reaches which output
#
# Rows are outputs, columns are inputs. A light cell says: this output moves when this input moves. Black says that it
# does not. The dashed line is the cut, behind 4 tokens.
#
# - A column that turns black under the cut is a token that nothing remembers.
# - Light above the diagonal is an output that depends on a *later* input.
# - The shade is strength. Crossed cells differ from the uncut map: blue crosses are missing, dark ones are too much.
# - The diagonal stays light: each output also sees its own token by a direct path, without the memories.
#
# "Dropped" is the code that you have met. "Looks ahead" is what the library had later, right before the repair: the
# window takes in the whole chunk, then one step is made.
#
# **Your task:** move the chunk length from 8 down to 1. Where do both faulty maps become the uncut one, shades too?

# %% tags=["explorer"]
lesson.explorer()

# %% tags=["predict"]
questions["harmless"].ask()

# %%
lengths = lesson.harmless_lengths(["dropped-chunk", "looks-ahead"])
questions["harmless"].reveal(lengths, "All lengths from 1 to 8 are run here, not looked up.")

# %% [markdown]
# A test that writes a text token by token cannot see either fault.
#
# ## 4. Does it heal?
#
# After the bad chunk the text goes on, one token at a time.

# %% tags=["predict"]
questions["heal"].ask()

# %%
after = lesson.errors_after(faults["dropped-chunk"], tokens=60)
for first in (0, 10, 20, 50):
    error = float(after[first:first + 10].max())
    print(f"new tokens {first:2} to {first + 9}: largest error {error:.1g}")
questions["heal"].reveal(lesson.heals(after),
                         "Outputs are about 1 in size. This runs in float64: float noise is below 1e-14.")

# %% [markdown]
# The state is wrong, not the chunk alone. A model with a long memory keeps the error long.
#
# ## 5. Your turn: one path for any chunk
#
# Write the layer. It gets a chunk, the window and h, and returns the outputs and both memories. `conv_chunk` of lesson
# 01 is there: `u, window = conv_chunk(x, window, weight)`, where u is (B, C, L) like x. `step(u, dt, h)` makes one
# step for one token: u, dt and h are (B, C), and it returns y (B, C) and the next h. Mind the order: y and dt are (B,
# L, C).
#
# Four to six lines are enough. Make no branch for one token: a loop over 1 token is a loop. Over 0 tokens it makes no
# step, and `torch.stack` refuses an empty list; so make y first and fill it.

# %% tags=["exercise"]
def chunk(x, dt, window, h, weight, step):
    """A window, then one step for each token.

    x (B, C, L), L may be 0; dt (B, L, C); window (B, C, K-1); h (B, C); weight (C, K).
    step(u, dt, h) -> (y, h) takes one token: all are (B, C).
    Return y (B, L, C), the next window (B, C, K-1) and the next h (B, C).
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(chunk)

# %% tags=["hints"]
lesson.EXERCISE.help(chunk)

# %% [markdown]
# ### Proof by every cut
#
# 8 tokens can be cut in 128 ways. Try them all for K = 1 to 4, and three cuts with a piece of 0 tokens.

# %% tags=["check"]
lesson.prove(chunk)

# %% [markdown]
# ## 6. Name the fault
#
# Five faults of this family, each with three cuts. "One-step-size" uses the first dt for all tokens of a call. "Clamp-lost"
# forgets a limit on dt, in the one-token branch only: the one fault here that single tokens do find.
#
# Look for two faults with the same line in every column. Then answer.

# %% tags=["predict"]
cuts = {"12 uncut": (12,), "4 + 8": (4, 8), "12 times 1": (1,) * 12}
print(f"{'':15}" + "".join(f"{name:15}" for name in cuts))
for name, layer in {**faults, "right": right}.items():
    strips = [lesson.strip_of(layer, sizes) for sizes in cuts.values()]
    print(f"{name:15}" + "   ".join(strips))
questions["separate"].ask()

# %%
found = lesson.separating("looks-ahead", "history-lost")
for name, tells in found.items():
    print(f"{name:18}{'tells them apart' if tells else 'shows the same for both'}")
questions["separate"].reveal(*[name for name, tells in found.items() if tells])

# %% [markdown]
# ## 7. Good advice?
#
# A claim of the repair's own text, in our words. Guess the verdict, then run it. What old versions do was recorded by
# running them.

# %% tags=["predict"]
questions["all_after_first"].ask()

# %%
outcome = advice.get("dropped-chunk.all-after-first").run()
questions["all_after_first"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown] tags=["deeper"]
# **Deeper.** Two more claims of the same text, judged.

# %% tags=["deeper"]
print(advice.judged("dropped-chunk.fixes-seq-len", "dropped-chunk.last-k-minus-1"))

# %% [markdown]
# ## 8. The price
#
# A trained model gets 200 questions that it has not seen, cut in two at three places. The *fact* is the sentence with
# the answer. The line is chance: a guess among the things of the text. The cell takes some seconds.

# %%
fault = of_fault("dropped-chunk")
print(first_wrong("mamba2", fault, "before the question"))
still(accuracy_bars(price("mamba2", 200, ["inside the fact", "behind the fact", "before the question"],
                          {"dropped chunk": fault})))

# %% [markdown]
# No error was raised in any of these runs.

# %% [markdown] tags=["deeper"]
# ## 9. Use it elsewhere
#
# **Deeper.** Which lengths belong into a test?

# %% tags=["predict", "deeper"]
questions["transfer"].ask()

# %% tags=["deeper"]
found = {lengths: lesson.caught(lengths) for lengths in lesson.LENGTHS}
for lengths, count in found.items():
    print(f"finds {count} of 4 faulty layers: {lesson.LENGTHS[lengths]}")
questions["transfer"].reveal(*[lengths for lengths, count in found.items() if count == 4])

# %% [markdown]
# ## In the real library
#
# If transformers is installed, this cell runs its Mamba2: 9 tokens, a chunk of 5, then 3 single tokens.

# %% tags=["library"]
in_library(lesson.chunk_in_library)

# %% [markdown]
# ## What you have now
#
# - Three cases, not two. Write one path. If a faster one is needed, it must give the same numbers.
# - A bad chunk leaves a bad state: later tokens are wrong too, for as long as the model remembers.
# - Single tokens alone miss a fault, and so does one cut alone.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | recurrent state | what is carried in h; it holds a little of every earlier token |
# | dt | the step size that each token brings: how much to forget, how much to take in |
# | head | a group of channels with its own memory |
# | state matrix | the memory h of one head, a table of numbers |
# | dispatch | to choose a branch of the code by the form of the input |
# | influence map | which input moves which output |

# %% tags=["progress"]
progress.summary("04")

# %% [markdown]
# **Next:** lesson 05 asks which half of the memory forgot.
