# %% [markdown]
# # 10 Mystery
#
# A layer gives wrong outputs, or perhaps it does not. You see outputs alone. You have six experiments. Name the fault,
# and say which result ruled out the next best suspect. Then the same work begins on a real library.
#
# **After this lesson you can**
#
# 1. name an unknown fault from at most six experiments, and prove it;
# 2. say when a strange output is no fault;
# 3. write a report that others can run, with the real library alone.
#
# You need lessons 00 to 05 for the first case, and all lessons for the rest. It takes about 25 minutes; the cells that
# say **deeper** 8 more. They can be skipped.
#
# Run the set-up cell first: click it and press Shift + Enter. Each SEED gives other cases; a class that shares one
# number gets the same.

# %% tags=["setup"]
from labkit import faults
from labkit.contract import check
from labkit.lesson import lesson_10 as lesson, progress

questions, investigate = lesson.QUESTIONS, lesson.Investigation
SEED = 0

# %% [markdown]
# An older lesson first.

# %% tags=["predict"]
questions["halves"].ask()

# %%
questions["halves"].reveal(lesson.halves(), "Run: both faults, the same cut, the two strips side by side.")

# %% [markdown]
# ## 1. How to investigate
#
# | experiment | you write | it asks |
# |---|---|---|
# | cut list | `("cut", 4, 8)` | is this cut like the uncut text? (two single tokens follow) |
# | swap rows | `("swap",)` | does a row depend on its neighbours? |
# | pad a first call | `("pad", "left")`, `"right"`, `"middle"` | does padding change a real output? |
# | pad a later call | `("pad", "later")`, `("pad", "one column")` | the same behind 4 tokens; one column a call |
# | fork | `("fork",)` | does a copy disturb its source? |
# | reset | `("reset",)` | is a reset layer like a new one? |
# | zero a field | `("zero", "conv")`, `("zero", "recurrent")` | does a chunk read this part of the state? |
# | influence map | `("influence",)` | which input moves which output, cut 4 + 4? |
#
# A cut is compared with the same layer's own uncut run. (Lesson 04 compared with a right layer.) After its first piece,
# a cut is *right*, *wrong* from its first token on, or *first right* and then wrong.
#
# Each experiment is also run on every **suspect**, so the table below a case says what each would show. Who would show
# something else is struck out. **Evidence** is the experiment that ruled out the runner-up: the suspect that fits the
# results best, after the one that you name. You score one point for the name and one for the evidence.
#
# ## 2. The first case
#
# One of these is in the layer. The experiments of lessons 04 and 05 are enough here: cut list, zero a field and
# influence map.

# %%
print(lesson.cases(SEED)[0].lineup())

# %% [markdown]
# `time_step_limit` bounds dt, the step size of lesson 04.
#
# Before you run an experiment, say what it will show if your suspect is guilty. Try it with the first suspect.

# %% tags=["predict"]
lesson.cases(SEED)[0].foretell("dropped-chunk", "cut", 4, 8).ask()

# %%
case = lesson.cases(SEED)[0]
result = case.shows("dropped-chunk", "cut", 4, 8).outcome                   # the suspect itself, run
case.foretell("dropped-chunk", "cut", 4, 8).reveal(result)

# %% [markdown]
# Now the layer. Add experiments to the list and run the cell again, six at most. Only what stands in the list counts.
# When one suspect is left, write its name and your evidence, an experiment of the list:
# `investigate(case, experiments, "dropped-chunk", evidence=("cut", 4, 8))`.
#
# In the table, blue cells fit what was seen; hatched cells do not.

# %%
case = lesson.cases(SEED)[0]
experiments = [("cut", 4, 8)]
investigate(case, experiments)

# %% [markdown]
# ## 3. Your tool: the smallest failure
#
# To cut 4 + 8 was a guess. A report needs the *smallest* cut that fails: it is the easiest one to read. Write the
# search. `agrees([a, b])` runs a cut and says whether it gives the uncut answer. Four to seven lines are enough.

# %% tags=["exercise"]
def smallest_failure(agrees, n):
    """agrees([a, b]) is True when that cut gives the uncut answer; a and b are 1 or more.

    Return the failing [a, b] with the fewest tokens, at most n together, or None.
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(smallest_failure)

# %% tags=["hints"]
lesson.EXERCISE.help(smallest_failure)

# %% tags=["check"]
lesson.prove(smallest_failure)                                              # on real faults of the catalogue

# %% [markdown]
# Feeding one token at a time behind the prompt, as most tests of real libraries do, finds none of the chunk faults.
#
# ## 4. Two more cases
#
# Not every case has a fault. Read the line about sizes in each result: the difference, and the rounding of an uncut
# run, both as a share of the largest output. An X means "apart by more than a fixed limit", no more (lesson 01,
# section 5). The table calls a piece wrong only when rounding does not explain it.
#
# Here are the suspects. Some of them no cut finds: which experiment would?

# %%
for case in lesson.cases(SEED)[1:]:
    print(case.title, case.lineup(), sep="\n", end="\n\n")

# %% tags=["predict", "deeper"]
lesson.cases(SEED)[1].foretell("conv-half-lost", "zero", "conv").ask()

# %% tags=["deeper"]
case = lesson.cases(SEED)[1]
result = case.shows("conv-half-lost", "zero", "conv").outcome
case.foretell("conv-half-lost", "zero", "conv").reveal(result)

# %%
case = lesson.cases(SEED)[1]
experiments = [("cut", 4, 8)]
investigate(case, experiments)

# %%
case = lesson.cases(SEED)[2]
experiments = [("cut", 4, 8)]
investigate(case, experiments)

# %% [markdown] tags=["deeper"]
# **Deeper.** A model behind a server: nobody can reach the state or pad, so there is no *zero a field* and no *pad*.
# Sometimes what you may do is not enough. Two suspects that show the same are a **tie**. Then the honest answer has two
# names, of which one may be *no fault*: `investigate(case, experiments, ("one", "other"), evidence=...)`.

# %% tags=["deeper"]
case = lesson.tie(SEED)
experiments = [("cut", 4, 8)]
investigate(case, experiments)

# %% [markdown] tags=["deeper"]
# **Deeper.** Endless cases: choose any number. Your neighbour gets the same case with the same number.

# %% tags=["deeper"]
case = lesson.endless(7)
experiments = [("cut", 4, 8)]
investigate(case, experiments)

# %% [markdown]
# ## 5. The fault of lesson 00
#
# The trained model of lesson 00 answered in good English, and wrongly. The case below is its first layer, with the
# fault in it. You could not have found it then. Now you can.

# %%
print(lesson.first_guess())
case = lesson.hidden()
experiments = [("cut", 4, 8)]
investigate(case, experiments)

# %% [markdown] tags=["deeper"]
# **Deeper.** The whole contract, on a right hybrid (a model with attention and recurrent layers). Each law has the
# lesson that earned it; those marked 10 are new.

# %% tags=["deeper"]
print(lesson.laws_lit())

# %% [markdown]
# ## 6. The real library
#
# The checker now runs on transformers, as it is installed here: a tiny model of the Mamba family with random weights,
# nothing is downloaded.
#
# The law *split* (any cut gives the same answer) is *silently wrong*. At which cut? *Prefill* is the first call, on an
# empty cache.

# %% tags=["predict"]
questions["cut"].ask()

# %% tags=["library"]
report, where, scripts = lesson.real()
print(where)
report

# %% tags=["library"]
questions["cut"].reveal(lesson.counterexample("split"))

# %% [markdown]
# Other rows of the table fail too: padding as in lesson 08, a reset that raises an error.
#
# ### A case file
#
# The next cell saves two files beside this notebook: a page with version, counterexample, picture and sentence, and a
# program that shows the failure with transformers alone.

# %% tags=["library"]
lesson.case_file("split")

# %% [markdown]
# Run the program in a terminal, in that folder: `python case_mamba_split.py`. Its last line counts: the largest error,
# and the largest output. Without the fault the error would be rounding.

# %% [markdown] tags=["deeper"]
# **Deeper.** Before you send it, search the issues first; do not file what is known. This fault is, in another project: a kernel
# of state-spaces/mamba takes no starting state, and transformers starts from zeros as that kernel does. (PR 488 there
# would give it one.) If it is new, give the version, the smallest counterexample and the program, and say what you
# expected. The newest release is not always the safe one: this model raised an error up to 5.14 and has been silently
# wrong since 5.15.

# %% [markdown]
# ## 7. Use it elsewhere
#
# Point the checker at a layer of your own: `check(your_layer)`, or `python -m labkit check my_module:factory`.

# %% [markdown] tags=["deeper"]
# **Deeper.** A layer whose fault is in no lesson. Its inputs are stored in 8 bits, with one scale for all rows of a
# call.

# %% tags=["predict", "deeper"]
questions["stranger"].ask()

# %% tags=["deeper"]
report = check(faults.get("scale-per-batch").subject(0))
print("\n".join(str(finding) for finding in report.failed))
questions["stranger"].reveal(lesson.stranger())

# %% [markdown]
# ## What you have now
#
# - A fault has a name when one suspect is left and the runner-up is ruled out by a result.
# - A difference is a fault when it is larger than the rounding of the number format, not larger than a fixed limit.
# - Two suspects that show the same in all that you may do are a tie. Say so.
# - A report is a version, the smallest counterexample, and a program that others can run.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | suspect | a fault that could explain what was seen |
# | evidence | the experiment that rules out the runner-up |
# | tie | suspects that no allowed experiment tells apart |
# | counterexample | one experiment in which a law fails |
# | case file | all that somebody else needs to see the failure |

# %% tags=["progress"]
progress.summary("10")

# %% [markdown]
# **Next:** a model of your own. The rule of this lab is yours now: the same answer, however the sequence is cut.
