# %% [markdown]
# # 03 Cache position
#
# The cache holds the whole prompt. What is left to do? One token of work, and this lesson is about it.
#
# **After this lesson you can**
#
# 1. say how many tokens are left to feed;
# 2. explain with one slice why an error became a silent fault;
# 3. reuse a cached start by comparing tokens, not lengths.
#
# You need lessons 00 and 02. It takes about 22 minutes; the cells that say **deeper** 4 more. Run the set-up cell first.
# After it, each section works on its own.

# %% tags=["setup"]
import torch

from labkit import load
from labkit.faults import advice
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_03 as lesson, progress
from labkit.lesson.library import in_library
from labkit.price import first_wrong, price
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% tags=["predict"]
questions["clock"].ask()

# %%
questions["clock"].reveal(*lesson.clock(tokens=10, position=8))

# %% [markdown]
# ## 1. What the cache holds
#
# A third kind of memory: **attention** stores two rows of numbers for each token, its **key** and its **value**. A
# later token compares itself with all keys and takes a mix of the values. Nothing is mixed away: the cache grows by
# one key and one value with each token. The place of a token in the text is its **position**, counted from 0.
#
# A model gives logits for the token *after* each token that it is fed. So the logits behind the last prompt token tell
# the next token.
#
# Now a program feeds a prompt of 6 tokens, keeps the cache, and later wants to go on from there. Those logits are gone.
# How many tokens must be fed again? The next cell tries 0, 1, 2, ..., beside a run without a cache.

# %%
print(f"{lesson.fewest_fed(n=6)} of 6 tokens must be fed again")

# %% [markdown]
# ## 2. The error, and how it became silent
#
# `generate` of the library transformers gets the whole prompt and a cache. It takes off what the cache holds. With n
# prompt tokens and m cached ones, older releases do it with the first line, newer ones with the second:
#
# ```
# positions = arange(n)[m:]
# tokens    = ids[:, -(n - m):]
# ```

# %% tags=["predict"]
questions["slices"].ask()

# %%
ids = torch.zeros(1, 6)
columns = len(torch.arange(6)[6:]), ids[:, -0:].shape[1]
print(lesson.error_text())
questions["slices"].reveal(columns)

# %% [markdown]
# The line above is the error of the report, issue 36151 of huggingface/transformers (and 38727): the last of no
# positions is asked for. The report says that the positions were never set up. They were: an empty range is the right
# count for *no token of work*. What is missing is the one token.
#
# Then the code was changed, and the error is gone.

# %% tags=["predict"]
questions["newer"].ask()

# %%
found = lesson.releases("full_prompt")
for line in lesson.spans(found):
    print(line)
newest = lesson.verdict_of(list(found.values())[-1])
questions["newer"].reveal(newest, "Recorded: each release was installed and run.")

# %% [markdown]
# The whole prompt is fed a second time, on top of its own keys. An error in one release, wrong tokens without an error
# in the next. The tidier code is the worse one.
#
# ## 3. The position line
#
# Each square is a token, with its position. Striped yellow is kept from the cache, blue is fed, crossed red is both;
# purple is in the cache and behind the end of the prompt.
#
# **Your task:** move the number of cached tokens from 0 to 8. At which numbers is a line wrong? A line is right when
# each token is read once, and at least one is fed.

# %% tags=["explorer"]
lesson.explorer()

# %% tags=["predict"]
questions["lengths"].ask()

# %%
questions["lengths"].reveal(lesson.wrong_lengths(), "All numbers from 0 to 8 are run here.")

# %% [markdown]
# ## 4. Your turn: reuse a prefix
#
# A **prefix** is a start that two texts share. Write the function that decides what to keep. It gets two lists of ids:
# the new prompt, and what the cache has read. The cache may hold *another* text: compare tokens, not lengths.
#
# Three to six lines are enough.

# %% tags=["exercise"]
def reuse(prompt, cached):
    """Decide what to keep of a cache.

    prompt, cached: lists of ids; prompt is not empty.
    Return (keep, feed): keep the first `keep` cached tokens, then feed the list `feed`. Feed is never empty.
    """
    return NotImplemented

# %% tags=["check"]
lesson.EXERCISE.check(reuse)

# %% tags=["hints"]
lesson.EXERCISE.help(reuse)

# %% [markdown]
# The proof runs all prompts of 5 tokens with all cached texts of 0 to 6 tokens, over two different ids.

# %% tags=["check"]
lesson.prove(reuse)

# %% [markdown] tags=["deeper"]
# **Deeper.** Your own function as a third line in the picture.

# %% tags=["deeper"]
lesson.picture(reuse)

# %% [markdown]
# ## 5. Good advice?
#
# The report ends with three fixes. Each one was run in every release from 4.46 on.

# %% tags=["predict"]
questions["three"].ask()

# %%
questions["three"].reveal(*lesson.right_fixes(["manual", "saved", "new-tokens"]))

# %% [markdown]
# What does help? `crop` takes tokens off the end of a cache of keys and values, and `crop(-1)` takes off the last one.
# The cure is to leave one token to feed.

# %%
print(advice.judged("cache-position.crop-minus-1"))

# %% [markdown] tags=["deeper"]
# **Deeper.** Two neighbours of the cure, judged in the same way.

# %% tags=["deeper"]
print(advice.judged("cache-position.crop-n-minus-1", "cache-position.add-space"))

# %% [markdown]
# ## 6. The price
#
# A trained model named `hybrid` (some of its layers are attention), 200 questions that it has not seen, and one fault:
# the cache holds the start of *another* text, and only lengths are compared. The *fact* is the sentence with the
# answer.

# %%
print(first_wrong("hybrid", lesson.foreign_prefix, "inside the fact"))
still(accuracy_bars(price("hybrid", 200, ["inside the fact", "behind the fact"],
                          {"foreign prefix": lesson.foreign_prefix})))

# %% [markdown] tags=["deeper"]
# ## 7. Use it elsewhere
#
# **Deeper.** Ids go to text and back to ids: this is **re-tokenisation**. The ids need not be the same again.

# %% tags=["predict", "deeper"]
questions["again"].ask()

# %% tags=["deeper"]
count = lesson.shared_tokens("I have a dream", "I have a dreamer")
questions["again"].reveal(count, "Counted with this lab's tokenizer. So keep ids, not text.")

# %% tags=["predict", "deeper"]
questions["transfer"].ask()

# %% tags=["deeper"]
kept = lesson.kept_by(load("mamba2"), held=6, most=3)               # 3 of 4: one token is fed
questions["transfer"].reveal(kept, "Lesson 09 saves states on the way, to do better.")

# %% [markdown]
# ## In the real library
#
# If transformers is installed, this cell makes the failing call, and the same call after `cache.crop(-1)`.

# %% tags=["library"]
in_library(lesson.covered_prompt)

# %% [markdown]
# ## What you have now
#
# - The cache holds keys and values, no answers. At least one token is always fed.
# - `-0` is `0`. A slice that counts from the end turns into everything when nothing is left.
# - The same length is not the same text. Compare ids, up to the first difference.
# - A new release without the error can be worse than the old one with it.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | key, value | the two rows of numbers that attention stores for each token |
# | position | the place of a token in the text, from 0 |
# | prefix | the start that two texts share |
# | re-tokenisation | from ids to text and back to ids |

# %% tags=["progress"]
progress.summary("03")

# %% [markdown]
# **Next:** lesson 04 feeds a chunk to a model that carries a window and a recurrent state.
