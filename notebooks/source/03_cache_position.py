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
# You need lessons 00 and 02. The core takes about 20 minutes. Run the set-up cell first. After it, each section works
# on its own.

# %% tags=["setup"]
import torch

from labkit import load
from labkit.faults import advice
from labkit.figures import accuracy_bars
from labkit.figures.bars import say_price
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
# Now a program feeds a prompt of 6 tokens, keeps the cache, and later wants to go on from there.

# %% tags=["predict"]
questions["fewest"].ask()

# %%
count = lesson.fewest_fed(n=6)
questions["fewest"].reveal(count, "Tried with 0, 1, 2, ... tokens, beside a run without a cache.")

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
questions["slices"].reveal(columns, "The line above is the report's error: the last of no "
                                     "positions is asked for.")

# %% [markdown]
# This is issue 36151 of huggingface/transformers (and 38727). The report says that the positions were never set up.
# They were: an empty range is the right count for *no token of work*. What is missing is the one token.
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
# purple is in the cache and behind the end of the prompt. Both slices are run
# on a prompt whose tokens carry their own number, so the picture is measured.
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
# The report ends with three fixes. Each one was run in every release of the table.

# %% tags=["predict"]
questions["three"].ask()

# %%
questions["three"].reveal(*lesson.right_fixes(["manual", "saved", "new-tokens"]))

# %% tags=["predict"]
questions["add_space"].ask()

# %%
outcome = advice.get("cache-position.add-space").run()
questions["add_space"].reveal(outcome.verdict, outcome.evidence)

# %% tags=["predict"]
questions["crop"].ask()

# %%
both = [advice.get(f"cache-position.{name}").run() for name in ("crop-n-minus-1", "crop-minus-1")]
questions["crop"].reveal(tuple(each.verdict for each in both), [each.evidence for each in both])

# %% [markdown]
# `crop` takes tokens off the end of a cache of keys and values. So the cure is the same everywhere: leave one token to
# feed.
#
# ## 6. The price
#
# A trained model, 200 questions that it has not seen, and two faults. The *fact* is the sentence with the answer.
# "Foreign prefix": the cache holds the start of *another* text, and only lengths are compared. "Prompt fed twice":
# the silent fault of section 2.

# %%
print(first_wrong("hybrid", lesson.foreign_prefix, "inside the fact"))
print(say_price(price("hybrid", 200, ["behind the fact"], {"prompt fed twice": lesson.fed_twice})))
still(accuracy_bars(price("hybrid", 200, ["inside the fact", "behind the fact"],
                          {"foreign prefix": lesson.foreign_prefix})))

# %% [markdown]
# "Prompt fed twice" costs next to nothing: this model reads a text twice without harm. The tokens of section 2 were
# wrong all the same. A good score is no proof.
#
# ## 7. Use it elsewhere
#
# Ids go to text and back to ids: this is **re-tokenisation**. The ids need not be the same again.

# %% tags=["predict"]
questions["again"].ask()

# %%
count = lesson.shared_tokens("I have a dream", "I have a dreamer")
questions["again"].reveal(count, "Counted with this lab's tokenizer. So keep ids, not text.")

# %% tags=["predict"]
questions["transfer"].ask()

# %%
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
