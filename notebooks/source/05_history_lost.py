# %% [markdown]
# # 05 History lost: which half forgot?
#
# A layer can keep a window and a recurrent state, and forget one of them. From outside both faults look the same.
# This lesson builds a **probe**: a small experiment that says which one it is.
#
# **After this lesson you can**
#
# 1. find out from behaviour alone which field of a state nobody reads;
# 2. say what a control proves, and what a probe proves without one.
#
# You need lessons 02 and 04. It takes about 24 minutes; the cells that say **deeper** 1 more.

# %% tags=["setup"]
import dataclasses

import torch

from labkit import faults
from labkit.faults import advice
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_05 as lesson, progress
from labkit.lesson.library import in_library
from labkit.price import FAULTS, first_wrong, price
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% [markdown]
# First one question about an older lesson.

# %% tags=["predict"]
questions["recall"].ask()

# %%
strip, _ = lesson.catalogue("dropped-chunk")
print(strip, "  (. right, X wrong)")
questions["recall"].reveal(strip.count("X"))

# %% [markdown]
# ## 1. The chunk without a past
#
# Lesson 04 repaired one layer. In the library transformers, five more models hold a copy of that layer: Bamba,
# Falcon-H1, GraniteMoeHybrid, Zamba2 and Nemotron-H. The first three ask the right question, "is this chunk one token
# long?", and still go wrong. Up to release 5.12.1 a longer chunk starts with an empty window **and** an empty recurrent
# state, though both are in the cache. Nothing raises. (Source: huggingface/transformers, PR 46741.)
#
# The same fault, in this lab's layer:

# %%
strip, _ = lesson.catalogue("history-lost")
print("4 tokens, then a chunk of 8:", strip)
print(faults.get("history-lost").record.says)

# %% [markdown]
# ## 2. Lose one half only
#
# A Mamba2 layer has two halves in its state: `conv`, the window of K-1 inputs, and `recurrent`, the matrix state of
# lesson 04. Take one half away and keep the other. First the window. Think of lesson 01, and of what stands *behind*
# the convolution here.

# %% tags=["predict"]
questions["conv"].ask()

# %%
strip = lesson.marks(("conv",))
print("Mamba2,    window lost:", strip)
print("ShortConv, window lost:", lesson.marks(("conv",), "ShortConv"), " (K = 3)")
questions["conv"].reveal(strip.count("X"))

# %% [markdown]
# ShortConv is a layer with only the convolution. There the wrong window does harm for K-1 outputs and is gone. In
# Mamba2 the wrong outputs of the convolution enter the recurrent state, and that state lives on.
#
# Now the other half. Can you tell the two faults apart by their strips?

# %% tags=["predict"]
questions["strip"].ask()

# %%
one, other = lesson.marks(("conv",)), lesson.marks(("recurrent",))
print("window lost:   ", one)
print("recurrent lost:", other)
first = [strip.index("X") for strip in (one, other)]
longer = other.count("X") > one.count("X")
questions["strip"].reveal("later" if first[1] > first[0] else "longer" if longer else "same")

# %% [markdown]
# ## 3. Do not look harder. Change something.
#
# The left picture shows how wrong each output of the chunk is (K = 4). The three curves start at the same token. Over
# the first K-1 tokens a lost window does more harm; behind them the curves lie close together and fade alike. How long
# that takes is the layer's **memory length**. It belongs to the layer, not to the fault. And a real report shows one
# curve, with no second one beside it.
#
# The right picture asks another question. Set *one* field of the state to zero, feed the same chunk again, and see
# whether any output moves. This is an **ablation**. A field that nobody reads can be anything, and no output moves.
#
# The first bar of each group is a right layer. It is the **control**: it shows that the experiment can see something.

# %%
still(lesson.picture())

# %% [markdown]
# ## 4. Your turn: the probe
#
# You get a layer (`mixer`), some tokens (`prefix`), and a `chunk` that follows them. Return the names of the fields
# that the chunk does not read. Six lines are enough. The state is a frozen dataclass, so
# `dataclasses.replace(state, conv=...)` makes a changed copy. `state.tensors()` gives its fields as a dict, name to
# tensor. A ShortConv layer has no field `recurrent`.

# %% tags=["exercise"]
def unread(mixer, prefix, chunk):
    """Names of the state fields ('conv', 'recurrent') that this chunk does not read.

    mixer(x, state=None) returns (y, state). prefix and chunk are (B, L, hidden_size), L at least 1.
    Return a list of names; empty when the chunk reads all of its state.
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(unread)

# %% tags=["hints"]
lesson.EXERCISE.help(unread)

# %% [markdown]
# ### Proof by another way
#
# The reference of this lab does it another way. A field that is read has a gradient: a small change of it moves an
# output a little. Gradients need no zeroing, so they are a second opinion on your probe.

# %% tags=["check"]
lesson.prove(unread)

# %% [markdown]
# ## 5. Two real layers
#
# Two real layers lose *one* half each when a chunk has several tokens: RecurrentGemma (called Griffin here) and
# Mamba-1. The catalogue holds ports of both in Python, in this order. What does the probe say?

# %%
print(lesson.relatives(["conv-half-lost", "recurrent-half-lost"]))

# %% [markdown]
# Token by token both layers are right. A test that decodes one token at a time cannot see any fault of this lesson.
# Older releases of transformers raised an error at such a chunk of Mamba-1. Newer ones answer, wrongly.
#
# The real Mamba-1 layer, if transformers is installed. The recurrent state in its cache is emptied by hand before the
# chunk:

# %% tags=["library"]
in_library(lesson.emptied_in_library)

# %% [markdown]
# ## 6. Good advice?

# %% tags=["predict"]
questions["used"].ask()

# %%
outcome = advice.get("history-lost.cached-so-used").run()
questions["used"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown] tags=["deeper"]
# **Deeper.** What the repair says in its title.

# %% tags=["deeper"]
print(advice.judged("history-lost.five-models"))

# %% [markdown]
# ## 7. The price
#
# A small trained Mamba2 model reads a text and answers a question about it: 200 questions that it never saw. The text
# comes in two pieces. The cut is inside the sentence that holds the answer, or behind it.
#
# First only the window is lost, then only the recurrent half. Look at *where* each one costs.

# %%
still(accuracy_bars(price("mamba2", 200, ("inside the fact", "behind the fact"),
                          {"conv half lost": FAULTS["conv half lost"]})))

# %%
still(accuracy_bars(price("mamba2", 200, ("inside the fact", "behind the fact"),
                          {"recurrent half lost": FAULTS["recurrent half lost"]})))

# %% [markdown]
# The window knows the last three tokens. It matters when the cut goes through the words that hold the answer. The
# recurrent half knows everything older. When the cut is inside the fact, the words of the answer come after it, so
# nothing that is needed gets lost. With one cut place alone, one of the two faults would look harmless.
#
# The first question that turns wrong:

# %%
print(first_wrong("mamba2", FAULTS["recurrent half lost"], "behind the fact"))

# %% [markdown] tags=["deeper"]
# ## 8. Relatives: a probe answers one question
#
# **Deeper.** Four layers with a fault. Each chunk is wrong somewhere. The probe asks only "is this field read?".

# %% tags=["deeper"]
print(lesson.relatives(["history-lost", "dropped-chunk", "looks-ahead", "one-step-size"]))

# %% [markdown] tags=["deeper"]
# Three layers read all of their state and are wrong all the same. A probe that finds nothing is no proof of health;
# only comparing every cut is.

# %% [markdown]
# ## 9. Use it elsewhere

# %% tags=["predict"]
questions["proof"].ask()

# %%
found, influence, wrong = lesson.useless()
evidence = [f"The probe names {' and '.join(found)}.", f"Wrong outputs when cut: {wrong}.",
            f"Outputs of the uncut text that the tokens before move: {influence}."]
nothing = bool(found) and not influence and not wrong
questions["proof"].reveal("nothing" if nothing else "both", evidence)

# %% [markdown]
# ## What you have now
#
# - The first wrong position does not tell which half is lost. One change at a time does.
# - Written is not read.
# - A probe needs a control: a right layer in which the same change moves the outputs.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | probe | a small experiment that answers one question about a layer |
# | ablation | set one part to zero and see what moves |
# | control | the same experiment where the answer is known |
# | memory length | for how many tokens a lost state is felt |

# %% tags=["progress"]
progress.summary("05")

# %% [markdown]
# **Next:** lesson 06 has nothing missing. It has one thing too many: a second store.
