# %% [markdown]
# # 01 The window
#
# A small memory, and the first one that this lab carries from call to call.
#
# **After this lesson you can**
#
# 1. compute one output by hand, from K taps;
# 2. carry the window over any cut of a text, also over a piece of 0 tokens;
# 3. tell float noise from a fault, by its size.
#
# You need lesson 00. It takes about 21 minutes; the cells that say **deeper** 2 more. They can be skipped.
#
# Run the set-up cell first: click it and press Shift + Enter. After it, each section works on its own.

# %% tags=["setup"]
import torch
import torch.nn.functional as F

from labkit.conv import causal_conv
from labkit.figures import error_sizes
from labkit.lesson import lesson_01 as lesson, progress
from labkit.widgets import still

questions, zeros_for_the_past = lesson.QUESTIONS, lesson.zeros_for_the_past

# %% [markdown]
# ## 1. One output from K taps
#
# A layer gets one number for each token. Its output at a token is a weighted sum of the newest K inputs.
# The K weights are the **kernel**. Each weight is a **tap**.
#
# `y[t] = weight[0] * x[t-K+1] + ... + weight[K-1] * x[t]`
#
# - The last tap meets the newest input. Tap 0 looks back farthest, K-1 tokens.
# - No tap looks ahead. Such a layer is **causal**.
# - Before the start of a text there is nothing. There the taps read 0.
# - Real layers do this once for each channel, with a kernel for each channel. This is called **depthwise**.
#
# Compute one output by hand. Choose an answer, say how sure you are, and press the button.

# %% tags=["predict"]
questions["by_hand"].ask()

# %%
x = torch.tensor([[[2.0, 5.0, 1.0, 3.0]]])          # (B, C, L): one text, one channel, four tokens
weight = torch.tensor([[1.0, 10.0, 100.0]])         # (C, K)
y, window = causal_conv(x, torch.zeros(1, 1, 2), weight)
questions["by_hand"].reveal(int(y[0, 0, 3]), "1 * 5 + 10 * 1 + 100 * 3: tap 0 reads token 1, tap 2 reads token 3.")

# %% [markdown]
# ## 2. Cut the text in two
#
# Now the text comes in two pieces, also called chunks. The first tokens of the second chunk need inputs of the first.
# These last K-1 inputs are the **window**. Somebody must carry it from call to call.
#
# A faulty layer does not carry it. It starts each chunk with zeros. Which outputs does that harm? Guess first.

# %% tags=["predict"]
questions["zeros"].ask()

# %%
torch.manual_seed(0)
x, weight = torch.randn(1, 8, 12), torch.randn(8, 4)                        # (B, C, L), (C, K)
whole = lesson.feed(causal_conv, x, weight, (12,))                          # (B, C, L)
pieces = lesson.feed(zeros_for_the_past, x, weight, (6, 6))                 # (B, C, L)
wrong = (whole - pieces).abs().amax(dim=(0, 1)) > 1e-3                      # (L,)
print("".join("X" if bad else "." for bad in wrong), "  (. right, X wrong)")
questions["zeros"].reveal(tuple(wrong.nonzero().flatten().tolist()))

# %% [markdown]
# No error, no warning. Only a comparison with the uncut text shows the fault.
#
# A model that writes a text feeds one token at a time. Take the same fault there.

# %% tags=["predict"]
questions["ones"].ask()

# %%
torch.manual_seed(0)
x, weight = torch.randn(1, 8, 12), torch.randn(8, 4)                        # (B, C, L), (C, K)
whole = lesson.feed(causal_conv, x, weight, (12,))                          # (B, C, L)
ones = lesson.feed(zeros_for_the_past, x, weight, (1,) * 12)                # (B, C, L)
wrong = (whole - ones).abs().amax(dim=(0, 1)) > 1e-3                        # (L,)
print("".join("X" if bad else "." for bad in wrong), "  (. right, X wrong)")
questions["ones"].reveal(int(wrong.sum()))

# %% [markdown]
# ## 3. See where each input comes from
#
# Tokens run across, taps run down. Each cell says where that tap found its input. On the left the window is carried.
# On the right each chunk starts with zeros. A dashed line is a cut. The black frame is the token whose inputs are
# spelled out; the numbers in it are the tokens that were read.
#
# **Your task:** keep K = 4 and move the chunk length from 1 to 11 (arrow keys work). Look for a length at which the
# layer on the right has no wrong position. Then answer below.

# %% tags=["explorer"]
lesson.explorer()

# %% tags=["predict"]
questions["harmless"].ask()

# %%
lengths = lesson.harmless_lengths(zeros_for_the_past, kernel=4)
questions["harmless"].reveal(lengths, "All lengths from 1 to 11 are run here, not looked up.")

# %% [markdown]
# ## 4. Your turn: carry the window
#
# Write the layer that works for any cut. It gets a chunk and the window before it. It returns the outputs and the
# window for the next call. Three to six lines are enough.
#
# Three things to think about: a chunk may be shorter than the window; a chunk may have 0 tokens (`F.conv1d` refuses
# it); K may be 1, and then the window has no columns at all.

# %% tags=["exercise"]
def conv_chunk(x, window, weight):
    """Causal convolution of one chunk that continues from a window.

    x (B, C, L), L may be 0; window (B, C, K-1); weight (C, K).
    Return y (B, C, L) and the next window (B, C, K-1).
    """
    return NotImplemented

# %% [markdown]
# Check as often as you like. The check runs your function on many sizes, and on new random ones each time.

# %% tags=["check"]
lesson.EXERCISE.check(conv_chunk)

# %% [markdown]
# Stuck? Press the button for a hint. There are three, from "where to look" to half a line. After them it shows a
# solution beside your version.

# %% tags=["hints"]
lesson.EXERCISE.help(conv_chunk)

# %% [markdown]
# ### Proof by every cut
#
# A text of 8 tokens can be cut at 7 places, so there are 2 to the power of 7 ways to cut it. A computer can try them
# all, for K = 1 to 4, and three more with a piece of 0 tokens. For this lab, *right* means: every cut gives the same
# answer. This law is called **split**.

# %% tags=["check"]
lesson.prove(conv_chunk)

# %% [markdown] tags=["deeper"]
# **Deeper.** Your own function in the key picture, beside the right one.

# %% tags=["deeper"]
lesson.picture(conv_chunk)

# %% [markdown]
# ## 5. Noise or fault?
#
# Two right programs can differ in the last digits. A computer rounds after each step, so the order of a sum matters.
# That is **float noise**. It is no fault.
#
# How large may a difference be, then? Section 2 took 0.001 as the limit. The chart shows five runs against one exact
# answer. bf16 is a number format with few digits, which many models use.

# %%
still(error_sizes(zeros_for_the_past))

# %% [markdown]
# In float32, noise and fault lie far apart. In bf16 even a right, uncut run is far from exact. So compare like with
# like: how far is the *cut* run from exact, and how far is the *uncut* run of the same format?
# If both are about the same, you see noise.

# %% [markdown] tags=["deeper"]
# **Deeper.** The same rule as code: is the cut run more than four times as far off as bf16 itself?

# %% tags=["deeper"]
torch.manual_seed(0)
x, weight = torch.randn(1, 64, 12), torch.randn(64, 4)                      # (B, C, L), (C, K)
exact = lesson.feed(causal_conv, x.double(), weight.double(), (12,))        # (B, C, L)
for name, conv in {"window carried": causal_conv, "zeros": zeros_for_the_past}.items():
    own = (lesson.feed(causal_conv, x.bfloat16(), weight.bfloat16(), (12,)) - exact).abs().max()
    cut = (lesson.feed(conv, x.bfloat16(), weight.bfloat16(), (6, 1, 5)) - exact).abs().max()
    print(f"{name}: {'fault' if cut > 4 * own else 'noise'}")

# %% [markdown]
# ## 6. Good advice?
#
# A rule that people pass on. Guess the verdict, then run the rule.

# %% tags=["predict"]
questions["left_pad"].ask()

# %%
start = lesson.wrong_positions(zeros_for_the_past, kernel=4, sizes=(12,))
later = lesson.wrong_positions(zeros_for_the_past, kernel=4, sizes=(6, 6))
verdict = "wrong" if start else "partly" if later else "right"
questions["left_pad"].reveal(verdict, f"Wrong positions in one piece: {len(start)}. In two pieces: {len(later)}.")

# %% [markdown] tags=["deeper"]
# ## 7. Use it elsewhere
#
# **Deeper.** Some layers leave gaps between their taps. With dilation 3 a tap reads every third input. The rule behind
# the window still holds: count how far the oldest tap looks back.

# %% tags=["predict", "deeper"]
questions["dilation"].ask()

# %% tags=["deeper"]
columns = lesson.columns_needed(kernel=4, dilation=3)
questions["dilation"].reveal(columns, "Measured by a gradient: the oldest input that moves the output.")

# %% [markdown]
# ## What you have now
#
# - A window is K-1 inputs. It is the end of *window and chunk together*, not the end of the chunk.
# - Zeros are right once: at the start of a text.
# - A cut that you did not try can hide a fault. With chunks of 6 and 6, a window that is
#   taken from the chunk alone looks right. Chunks of 1 show the fault.
#
# ### Words
#
# | word | meaning |
# |---|---|
# | causal | no output depends on a later input |
# | kernel | the K weights of the sum |
# | tap | one of these weights, and the input that it reads |
# | window | the K-1 inputs before a chunk |
# | depthwise | each channel has its own kernel and reads only itself |
# | float noise | small differences that come from rounding |
#
# Your guesses and tries, from the file beside this notebook:

# %% tags=["progress"]
progress.summary("01")

# %% [markdown]
# **Next:** lesson 02 carries one number instead of a window, and asks who counts the tokens.
