"""Advice about the empty cache: a port of the whole model, and what the report proposes, run on it.

    port = Port()
    y = port(x, position)           # x (B, L, 8); the states live in the layers, and the position chooses the branch
"""

import torch

from ..mixers import GriffinBlock
from . import samples
from .advice import advise
from .empty_cache import PositionChooses

SOURCE = "huggingface/candle candle-transformers/src/models/quantized_recurrent_gemma.rs"
PROMPT = 10


class Recurrent(PositionChooses):
    """A recurrent layer as ported: behind the start of a text it takes one token at a time."""

    def forward(self, x, position=0):
        if position and self.held is not None and x.shape[1] > 1:
            raise RuntimeError("shape mismatch in broadcast_mul: a longer window than the kernel")
        return super().forward(x, position=position)[0]


class Attention:
    """An attention layer as ported: its store has no reset, and is written before anything is checked."""

    def __init__(self, mixer, limit):
        self.mixer, self.limit, self.held = mixer, limit, None

    def __call__(self, x, position=0):
        if position + x.shape[1] > self.limit:
            raise RuntimeError("narrow invalid args start + len > dim_len")
        stored = 0 if self.held is None else int(self.held.seen[0])
        y, self.held = self.mixer(x, self.held)
        if x.shape[1] > 1 and stored != position:
            raise RuntimeError("shape mismatch in broadcast_add: more is stored than the mask is wide")
        return y


class Port:
    """Layers with their states inside, and nothing that compares the position with them.

    Args:
        kinds: a letter for each layer, r recurrent or a attention.
        limit: how many positions the attention layers have a table for.
    """

    def __init__(self, kinds="rrar", limit=32):
        self.layers = []
        for seed, kind in enumerate(kinds):
            if kind == "r":
                layer = samples.redraw(GriffinBlock(hidden_size=8, num_attention_heads=2), seed)
                layer.__class__ = Recurrent
                self.layers.append(layer)
            else:
                self.layers.append(Attention(samples.nope(seed), limit))

    @torch.no_grad()
    def __call__(self, x, position):
        for layer in self.layers:
            x = x + layer(x, position=position)
        return x


def text(length: int) -> torch.Tensor:
    """The same tokens each time, (1, length, 8)."""
    return torch.randn(1, 64, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[:, :length]


def judge(calls, port=None, wanted=PROMPT + 1):
    """What a row of calls [(x, position), …] ends in: 'right', 'silently wrong' or the error's text.

    'right' means: the last output is that of a fresh model which reads `wanted` tokens at once.
    """
    port = port or Port()
    try:
        for x, position in calls:
            y = port(x, position)
    except RuntimeError as error:
        return str(error)
    same = torch.allclose(y[:, -1], Port()(text(wanted), 0)[:, -1])
    return "right" if same else "silently wrong"


@advise("empty-cache.start-at-zero", "Let the first call start at position 0.", "partly",
        "Right on a fresh model. On a used one, position 0 resets some layers and not all.", source=SOURCE)
def start_at_zero():
    x, used = text(PROMPT + 1), Port()
    used(text(20).flip(1), 0)
    fresh = judge([(x[:, :PROMPT], 0), (x[:, PROMPT:], PROMPT)])
    again = judge([(x[:, :1], 0)], used, 1)
    verdict = "right" if fresh == again == "right" else "partly" if "right" in (fresh, again) else "wrong"
    return verdict, f"Fresh model: {fresh}. A used one, where a new text starts with one token: {again}."


@advise("empty-cache.one-code-path", "Use one kind of call only: do not alternate position 0 and later ones.", "wrong",
        "To alternate is the protocol: one call at 0, then calls behind it. Position 0 each time forgets the past.",
        source=SOURCE)
def one_code_path():
    x = text(PROMPT + 1)
    both = judge([(x[:, :PROMPT], 0), (x[:, PROMPT:], PROMPT)])
    only_zero = judge([(x[:, t:t + 1], 0) for t in range(PROMPT + 1)])
    only_later = judge([(x[:, t:t + 1], t + 1) for t in range(PROMPT + 1)])
    verdict = "wrong" if both == "right" and "right" not in (only_zero, only_later) else "right"
    return verdict, f"Both kinds: {both}. Only position 0: {only_zero}. Only later positions: {only_later}."


@advise("empty-cache.manual-reset", "It happens after the cache was reset by hand, or used up.", "impossible",
        "The model has no call that resets or takes a state. No row of calls brings a state back to empty.",
        source=SOURCE)
def manual_reset():
    port, x = Port(), text(3)
    names = [name for layer in (*port.layers, port) for name in dir(layer) if "reset" in name or "clear" in name]
    port(x, 0)
    port(x[:, :1], 3)
    port.layers[0](x[:, :1], position=0)
    empty = [layer for layer in port.layers if layer.held is None]
    return ("impossible" if not names and not empty else "right",
            f"Calls of the model that reset it: {len(names)}. After calls at 0, at 3 and at 0 again, "
            f"{len(port.layers) - len(empty)} of {len(port.layers)} layers hold a state.")


@advise("empty-cache.other-branch", "An earlier call took a branch that does not fill the cache.", "impossible",
        "Both branches fill it. What is missing in the report: an earlier call that failed before it reached the "
        "layer.",
        source=SOURCE)
def other_branch():
    filled = []
    for position in (0, 1):
        port = Port()
        port(text(1), 0)
        port(text(1), position)
        filled.append(all(layer.held is not None for layer in port.layers))
    port = Port(limit=4)
    failed = judge([(text(5), 0)], port)
    then = judge([(text(1), 1)], port)
    return ("impossible" if all(filled) else "right",
            f"Filled after a call at 0 and after a later one: {', '.join(map(str, filled))}. "
            f"A text that is too long: “{failed}”, and then: “{then}”.")


@advise("empty-cache.fresh-model", "Make a new model when the state is in doubt.", "right",
        "It is right, and the weights are loaded again.", source=SOURCE)
def fresh_model():
    x, port = text(PROMPT + 1), Port(limit=4)
    broken = judge([(x[:, :PROMPT], 0)], port)
    fresh = judge([(x[:, :PROMPT], 0), (x[:, PROMPT:], PROMPT)])
    return ("right" if fresh == "right" else "wrong"), f"After “{broken}”, a new model: {fresh}."


@advise("empty-cache.ask-the-state", "Ask the model whether its cache is empty before the call.", "impossible",
        "There is no such call, and the field is private.", source=SOURCE)
def ask_the_state():
    names = [name for name in dir(Port()) if "none" in name or "empty" in name or "cache" in name]
    return ("impossible" if not names else "right"), f"Calls of the model that tell: {len(names)}."


def replay(port, tokens, prompt, position):
    """The report's recovery: on this error, feed the prompt at 0 and try again. What it ends in."""
    first = judge([(tokens, position)], port)
    if first != "empty cache despite pos > 0":
        raise RuntimeError(f"there is nothing to recover from: {first}")
    return judge([(prompt, 0), (tokens, position)], port, position + tokens.shape[1])


def replays() -> dict[str, str]:
    """Six situations in which the error is caught, the prompt fed again, and the call repeated."""
    x = text(PROMPT + 5)
    prompt, token = x[:, :PROMPT], x[:, PROMPT:PROMPT + 1]
    broken = Port(limit=12)
    judge([(text(20), 0)], broken)                              # a text that is too long fails in the third layer
    return {
        "fresh model, prompt, then one token": replay(Port(), token, prompt, PROMPT),
        "the prompt holds the token already": replay(Port(), token, x[:, :PROMPT + 1], PROMPT),
        "five tokens instead of one": replay(Port(), x[:, PROMPT:], prompt, PROMPT),
        "another order of layers": replay(Port("arra"), token, prompt, PROMPT),
        "the same, and a prompt of one token": replay(Port("arra"), x[:, 1:2], x[:, :1], 1),
        "after a text that was too long": replay(broken, token, prompt, PROMPT),
    }


@advise("empty-cache.catch-and-replay", "Catch the error, feed the prompt at position 0, repeat the call.", "partly",
        "Right in one of six situations. Elsewhere it raises again, or the answer is wrong and nothing is said.",
        source=SOURCE)
def catch_and_replay():
    found = {name: end if end in ("right", "silently wrong") else "an error again" for name, end in replays().items()}
    right = list(found.values()).count("right")
    verdict = "right" if right == len(found) else "partly" if right else "wrong"
    return verdict, ". ".join(f"{name[0].upper()}{name[1:]}: {end}" for name, end in found.items()) + "."
