# %% [markdown]
# # 06 Two caches, two writers
#
# A report names an error that cannot happen. Close beside it stands a fault that happens in silence.
#
# **After this lesson you can**
#
# 1. decide whether a reported error can be reached at all;
# 2. find the one order of calls that fails;
# 3. repair it by taking something away.
#
# You need lesson 03: keys, values, position. It takes about 23 minutes; the cells that say **deeper** 2 more.

# %% tags=["setup"]
import torch
import torch.nn.functional as F

from labkit import faults
from labkit.faults import advice, advice_expected_cpu
from labkit.figures import accuracy_bars
from labkit.lesson import lesson_06 as lesson, progress
from labkit.price import price
from labkit.widgets import still

questions = lesson.QUESTIONS

# %% [markdown]
# First one question about an older lesson.

# %% tags=["predict"]
questions["recall"].ask()

# %%
ids, n = torch.arange(6), 0
questions["recall"].reveal(len(ids[-n:]))

# %% [markdown]
# ## 1. Can this error happen?
#
# The library candle (written in Rust) has a fast attention layer for the CPU. It keeps keys and values as plain numbers
# in the computer's own memory, and copies them there itself. Where it cannot, it stops with the message "Expected CPU".
# The place where a tensor lives, such as the CPU or a GPU, is its **device**. (Source: huggingface/candle,
# quantized_smollm3.rs.)
#
# The report says: this happens when the model runs on a GPU. We need no GPU to test that. PyTorch has a device named
# `meta`, whose tensors have shapes and no memory. Here is a port of the layer in Python, on that device:

# %%
try:
    faults.get("expected-cpu").trigger()
except RuntimeError as error:
    print(type(error).__name__ + ":", error)

# %% [markdown]
# The message is there. But the port is not complete. In the source a question stands in front of this code, a
# **guard**: *are the tensors on the CPU, and is it one row (B = 1)?* If not, another branch runs. It appends to a cache
# of its own, and a model that is built for the CPU never builds that cache.

# %% tags=["predict"]
questions["guard"].ask()

# %%
text = advice_expected_cpu.outcome(advice_expected_cpu.Branches, device="meta")
print("with the guard:", text)
questions["guard"].reveal(text if text in ("Expected CPU", "no error") else "other")

# %% [markdown]
# The guard lets only CPU tensors through, so the message behind it can never appear. Code that can never run is **dead
# code**. What does happen off the CPU: the other branch appends to a cache that is not there, in Python to `None`. In
# Rust that ends the program.
#
# Always ask two things about a report. Which branch must run? Can anything get there?
#
# ## 2. Two stores for one conversation
#
# The layer has a second problem, which no report names. It keeps keys and values **twice**. A chunk of several tokens
# is written to both stores and reads the first. A single token is written to the second only, and reads the second.
#
# Two words for the calls: *prefill* feeds a chunk of a given text, *decode* feeds one token at a time.

# %% tags=["predict"]
questions["order"].ask()

# %%
for name, sizes in lesson.ORDERS.items():
    print(f"{name:28}{lesson.strip_of(sizes)}")                            # . right, X wrong, | a cut
questions["order"].reveal(lesson.failing(lesson.ORDERS))

# %% [markdown]
# A chat does this on every second turn: the question comes as a chunk, the answer token by token, the next question as
# a chunk.
#
# Look into both stores. Slots run across, time runs down. Each letter says which call wrote the slot, "–" that none
# did. A framed slot should hold the key of the token with that number, and does not. (Measured: each slot is compared
# with every token's key.)

# %%
still(lesson.stores())

# %% [markdown]
# The decoded tokens are in one store only. The second chunk lands where they should be.
#
# ## 3. Which tests could see it?
#
# Each row is one way to cut 12 tokens. On the left are the two stores. On the right is another fault for comparison.
#
# Each token asks with a *query*. A mask says which keys a query may see: those up to its own token. On the right, the
# mask of a chunk is laid at the *oldest* keys, where PyTorch's `is_causal=True` lays it. With 6 keys and a chunk of 2,
# the first query sees key 0 alone. (A single token gets no mask there, and needs none.) The right mask has an
# **offset**: it is shifted by the number of keys that were there before.

# %%
still(lesson.map_of_cuts())

# %% [markdown]
# No cut into equal pieces sees the two stores, whatever the chunk length. A test suite with "prefill, then decode"
# and "chunk after chunk" is green.
#
# ## 4. Your turn: delete more than you write
#
# The cell holds both faults of section 3, and here the mask is wrong for single tokens too. Delete the line
# `return NotImplemented`, then repair the rest. One store is enough. You need three things: refuse a wrong position
# before anything is written; append once; give the mask its offset.

# %% tags=["exercise"]
def attend(q, k, v, store, position):
    """Attention of one chunk behind everything in the store; returns (B, H, L, D).

    q, k, v (B, H, L, D), L may be 0. store.length is the number of tokens held.
    store.append(k, v) adds L tokens and returns all keys and all values, (B, H, T, D) each.
    Raise ValueError when position is not store.length, and add nothing.
    """
    return NotImplemented
    keys, values = store.append(k, v)
    if q.shape[2] > 1:
        keys, values = store.chunks.append(k, v)        # the second store
    length, held = q.shape[2], keys.shape[2]
    sees = torch.ones(length, held, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=sees)

# %% tags=["check"]
lesson.EXERCISE.check(attend)

# %% tags=["hints"]
lesson.EXERCISE.help(attend)

# %% [markdown]
# ### Proof by every cut

# %% tags=["check"]
lesson.prove(attend)

# %% [markdown]
# ## 5. Good advice?
#
# Section 1 has judged what the report says of the GPU. Here is a repair that it proposes. Guess the verdict, then run
# it on the port.

# %% tags=["predict"]
questions["tensors"].ask()

# %%
outcome = advice.get("expected-cpu.tensor-operations").run()
questions["tensors"].reveal(outcome.verdict, outcome.evidence)

# %% [markdown] tags=["deeper"]
# **Deeper.** All that the report says, run:

# %% tags=["deeper"]
for case in advice.of("expected-cpu"):
    print(f"{case.run().verdict:11} {case.says}")

# %% [markdown]
# ## 6. The price
#
# A small trained model, with attention layers alone, answers 200 questions about a text. The text comes as a
# chunk up to the cut, then 8 tokens one by one, then the rest as a chunk. With two stores the attention layers of
# this last chunk do not see the 8 tokens.

# %%
still(accuracy_bars(price("attention", 200, ("inside the fact", "before the question"),
                          {"two stores": lesson.decode_between})))

# %% [markdown]
# The last chunk reads the poorer store. The answer comes as single tokens, and they read the store that holds
# everything. That keeps the price low. A fault with a low price is still a fault: the next model may pay more.

# %% [markdown] tags=["deeper"]
# **Deeper.** A crash that was a guard. A store still holds 10 tokens of an older text. A new text comes, and nobody
# emptied the store. With a mask made for a text of 4 tokens this crashes: luck, an **accidental guard**. Then somebody
# makes it faster and drops the mask. And what if the new text is one token long?

# %% tags=["deeper"]
torch.manual_seed(0)
for length, causal in ((4, False), (4, True), (1, False)):
    old, new = torch.randn(1, 2, 10, 4), torch.randn(1, 2, length, 4)       # (B, H, T, D), (B, H, L, D)
    own = torch.ones(length, length, dtype=torch.bool).tril()               # (L, L), for the new text
    keys = torch.cat([old, new], 2)                                         # (B, H, T, D)
    alone = F.scaled_dot_product_attention(new, new, new, own)              # (B, H, L, D)
    try:
        y = F.scaled_dot_product_attention(new, keys, keys, None if causal else own, is_causal=causal)
        found = f"no error, {'right' if torch.allclose(y, alone) else 'wrong'}"
    except RuntimeError as error:
        found = type(error).__name__
    print(f"new text of {length}, {'is_causal' if causal else 'own mask'}: {found}")

# %% [markdown] tags=["deeper"]
# The speed-up turned a loud fault into a silent one. One token was never guarded: its mask of one cell is stretched
# over all keys, the old ones too. Your `attend` refuses all three calls: their position is 0, the store's length is 10.

# %% [markdown]
# ## 7. Use it elsewhere

# %% tags=["predict"]
questions["tests"].ask()

# %%
for sizes in ((4, 4), (1,) * 8, (3, 3, 2), (4, 1, 1, 1, 1), (3, 1, 1, 3)):
    print(lesson.strip_of(sizes))
wrong = lesson.failing([(3, 3, 2), (4, 1, 1, 1, 1), (3, 1, 1, 3)])
questions["tests"].reveal(wrong[0] if wrong else ())

# %% [markdown]
# Try a cut of your own:

# %%
my_cut = (2, 1, 2)
print(lesson.strip_of(my_cut))

# %% [markdown]
# ## What you have now
#
# - An error message names a line, not a cause. Ask which branch runs.
# - Two writers need one store. Its length, checked before each write, refuses a skipped, a repeated or a stale call.
# - A test list needs the order chunk, single tokens, chunk.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | device | the place where a tensor lives: CPU, GPU, or `meta` (shapes only) |
# | guard | a question in front of code that decides whether it runs |
# | dead code | code that no call can reach |
# | mask offset | the number of keys before a chunk, by which its mask is shifted |

# %% tags=["progress"]
progress.summary("06")

# %% [markdown]
# **Next:** lesson 07 copies a memory, and finds two conversations in one.
