# %% [markdown]
# # 09 Rollback
#
# Can a model unread a token? Programs that guess ahead need it: they feed tokens that may be wrong, and take them back.
#
# **After this lesson you can**
#
# 1. give exactly the greedy output with fewer model calls;
# 2. say why a recurrent state needs a saved value to go back, and keys and values do not;
# 3. list what must move when rows change places.
#
# You need lessons 02 and 03. It takes about 24 minutes; the cells that say **deeper** 2 more.
#
# Run the set-up cell first: click it and press Shift + Enter. After it, each section works on its own.

# %% tags=["setup"]
import torch

from labkit import Cache, load
from labkit.errors import RewindError
from labkit.faults import advice
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_09 as lesson, progress
from labkit.price import first_wrong, price
from labkit.price_drivers import DRIVERS
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% [markdown]
# First a question about an older lesson.

# %% tags=["predict"]
questions["kept"].ask()

# %%
used = lesson.kept(cached=[1, 2, 3, 4], prompt=[1, 2, 7, 4, 5])
questions["kept"].reveal(used, "Run: the cache is filled, then the prompt is compared with it.")

# %% [markdown]
# ## 1. Guess ahead
#
# A model writes one token in each call. A call with five tokens costs little more than a call with one. So guess:
#
# 1. A cheap helper proposes a few tokens, the **draft**.
# 2. The model reads the newest token and the draft as one chunk. Its logits say which token it would have chosen at
#    each place: the one with the largest logit, the **greedy** choice. This is to **verify**.
# 3. The draft is compared from the left. Tokens up to the first mismatch are **accepted**; the rest is **rejected**.
# 4. The logits behind the last accepted token give one more token for free.
#
# The text is exactly that of the plain loop. There is one difficulty: the rejected tokens are in the cache by now.
# They must go.
#
# ## 2. What goes back?
#
# For keys and values this is easy. Each token has its own slot, and the last slots are cut off: the cache is *cropped*.
# A recurrent state has no slots. A **hybrid** is a model with both. Can the arithmetic be undone? `h = a * h + u` gives
# `h = (h - u) / a`.

# %% tags=["predict"]
questions["undo"].ask()

# %%
errors = {a: lesson.undo(a) for a in (0.95, 0.5, 0.1)}                      # 8 steps and back, float32
for a, error in errors.items():
    print(f"a = {a}: relative error {'below' if error < 1e-3 else 'above'} 0.001")
questions["undo"].reveal(tuple(error < 1e-3 for error in errors.values()))

# %% [markdown]
# Real layers have an `a` of their own for each token, and it may be close to 0. Then the old value is gone: no digit of
# it is left. So a layer that cannot go back should say so. This lab's cache does:

# %%
model, cache = load("hybrid"), Cache()
with torch.no_grad():
    model(torch.arange(12)[None], cache)
try:
    cache.rewind(9)
except RewindError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The way out is in the message. A **checkpoint** keeps the values of that moment; going back puts them in place
# again. States here are values that nobody changes, so a checkpoint copies nothing when it is made. It keeps the
# old values alive while new ones are made.
#
# A program that crops keys and values alone gets no message. In llama.cpp (ggml-org/llama.cpp PR 20080) and in vllm
# (vllm-project/vllm issue 53912) hybrids met this difficulty. What is left of a rejected token?

# %% tags=["predict"]
questions["traces"].ask()

# %%
questions["traces"].reveal(lesson.left_of_draft(), "Measured: a rejected token is changed; what moves?")

# %% [markdown]
# ## 3. See who wrote what
#
# The tape runs across: four tokens of text, a draft of three, then the next token E. Time runs down. A letter in a
# *state* row says that this token has left a trace in the state. A letter in a *keys* row says which token wrote that
# slot.
#
# On top, the program goes back to a checkpoint and feeds the accepted tokens again. In the middle and at the bottom, it
# crops the keys. The slider sets how many draft tokens are accepted. **Your task:** find a number at which the wrong
# program does no harm.

# %% tags=["explorer"]
lesson.explorer()

# %% [markdown]
# With all three accepted nothing is rejected, and both programs are right. A test with good drafts alone is green.
#
# ## 4. Your turn: one round
#
# `cache.checkpoint()` keeps the present values. `cache.rewind(n)` goes back to when the cache held `n` tokens.
# `cache.length` says how many it holds. `model(ids, cache)` returns logits `(1, L, vocab)`. Six to ten lines are
# enough. The check writes a draft as `rrx`: two right tokens, then a wrong one.

# %% tags=["exercise"]
def one_round(model, cache, last, draft):
    """Verify a draft. The cache holds all text before `last`.

    last: a token id; draft: a list of ids, maybe empty. Feed last + draft as one chunk.
    Return a list of at least one new token, the greedy ones.
    Leave the cache holding all text before the newest token.
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(one_round)

# %% tags=["hints"]
lesson.EXERCISE.help(one_round)

# %% [markdown]
# ### How many calls does it save?
#
# Thirty tokens, drafts of four. Every seventh token of the drafts is wrong. The text must be the same.

# %% tags=["check"]
lesson.saved(one_round)

# %% [markdown] tags=["deeper"]
# **Deeper.** The lab's own program guesses from the text so far. Here it is beside the plain loop:

# %% tags=["deeper"]
from labkit.generate import generate, speculate
model, words = load("hybrid"), load.tokenizer()
ids = torch.tensor([words.encode("Ada keeps a red kite. Ben sells a blue drum. What does Ada keep?").ids])
quick = speculate(model, ids, max_new_tokens=24)
print("the same text:", torch.equal(quick.tokens, generate(model, ids, max_new_tokens=24)[0]))
print(f"calls behind the prompt: {quick.calls} instead of 23")

# %% [markdown]
# ## 5. Good advice?
#
# Guess the verdict of each claim, then run it. The cases run on ports in Python.

# %% tags=["predict"]
questions["crop"].ask()

# %%
outcome = advice.get("rollback.crop").run()
questions["crop"].reveal(outcome.verdict, outcome.evidence)

# %% tags=["predict"]
questions["deepcopy"].ask()

# %%
outcome = advice.get("rollback.deepcopy").run()
questions["deepcopy"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown] tags=["deeper"]
# **Deeper.** In the real library: a cache of transformers, one attention layer and one recurrent layer, cropped by two
# tokens. Look at the error, then at what the attention layer holds behind it. Which law of lesson 02 is broken?

# %% tags=["library", "deeper"]
print(lesson.in_library())

# %% [markdown]
# ## 6. The price
#
# A trained hybrid answers 200 questions. Before the last piece of each text a draft of four tokens is fed and rejected.

# %%
fault = {"keys cropped, state left": DRIVERS["rewinds-keys-only"]}
rows = price("hybrid", 200, ("inside the fact", "before the question"), fault)
still(accuracy_bars(rows))

# %%
print(first_wrong("hybrid", DRIVERS["rewinds-keys-only"], "inside the fact"))

# %% [markdown]
# Where the draft comes matters. Inside a fact, the rejected words mix with the fact, and the answer is gone. Before the
# question the fact is safely read, and a wrong state costs little. It is still wrong.
#
# ## 7. Use it elsewhere
#
# Beam search writes several texts at once, a row each. After each token it keeps the best rows; a good row may come
# twice, a bad one goes. To **select** is to do this to the cache.

# %% tags=["predict"]
questions["select"].ask()

# %%
questions["select"].reveal(lesson.moves_needed(), "Measured: rows change places, one memory at a time stays.")

# %% [markdown] tags=["deeper"]
# **Deeper.** Three more faults of moving and copying. None raises an error. Two laws find them: *fork* (a copy does not
# disturb its source) and *select* (rows change places).

# %% tags=["deeper"]
print(lesson.relatives())

# %% [markdown]
# ## What you have now
#
# - Keys and values go back by cropping. A recurrent state goes back to a saved value, or not at all.
# - Accept up to the first mismatch. The text is that of the plain loop; only the number of calls changes.
# - What belongs to a row moves with the row: keys, values, state and window.
#
# Two laws are yours now: *rewind* (going back and feeding again equals never having gone) and *select*.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | draft | tokens that a helper proposes |
# | verify | feed the draft as one chunk and compare it with the model's own choice |
# | accept, reject | keep the draft up to the first mismatch; take back the rest |
# | checkpoint | values kept from one moment, to go back to |
# | select | reorder, drop or repeat the rows of a cache |

# %% tags=["progress"]
progress.summary("09")

# %% [markdown]
# **Next:** lesson 10 shows you outputs and hides the fault. You find it.
