"""Generation: greedy and sampled, from a cache that may hold any text, and faster by guessing ahead.

The prompt is always the whole text. What a cache already holds of it is found by comparing tokens, never lengths; at
least one token is always fed, since the logits of the next token come from feeding the last one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .cache import Cache
from .errors import BatchError, RewindError


@torch.no_grad()
def generate(model, ids: Tensor, cache: Cache | None = None, max_new_tokens: int = 32, temperature: float = 0.0,
             top_k: int | None = None, top_p: float | None = None, seed: int | None = None,
             stop: Sequence[int] = (), *, mask: Tensor | None = None, prefill_chunk: int | None = None,
             update_cache: bool = False) -> Tensor:
    """New tokens behind a prompt.

    Args:
        model: a HybridLM.
        ids: the whole text, (B, L) int64, what the cache holds included.
        cache: what was fed before. The part that agrees with `ids` token by token is used, the rest is fed.
        max_new_tokens: how many at most.
        temperature: 0 takes the most likely token; above, logits are divided by it and a token is drawn.
        top_k: draw among the k most likely tokens only.
        top_p: draw among the most likely tokens that together reach this probability.
        seed: of the draws; None: torch's own.
        stop: tokens that end a row; the stop token is part of the output.
        mask: (B, L) bool, False at padding, which may stand anywhere.
        prefill_chunk: feed the prompt in pieces of this many tokens; None: in one.
        update_cache: let `cache` go on to the end of the output's last but one token; otherwise it stays as it is.

    Returns:
        (B, n) int64, the new tokens; rows that stopped early repeat their stop token.

    Raises:
        BatchError: a row without a real token, or a cache of another batch.
        ValueError: an option outside its range.

    Example:
        >>> from labkit import HybridLM
        >>> model = HybridLM.preset("mamba2", vocab_size=64)
        >>> prompt, cache = torch.arange(8)[None], Cache()
        >>> _ = model(prompt, cache)            # the cache holds the whole prompt: its last token is fed again
        >>> torch.equal(generate(model, prompt, cache), generate(model, prompt))
        True
    """
    tokens = list(stream(model, ids, cache, max_new_tokens, temperature, top_k, top_p, seed, stop, mask=mask,
                         prefill_chunk=prefill_chunk, update_cache=update_cache))
    return torch.stack(tokens, dim=1) if tokens else ids.new_zeros(len(ids), 0)


@torch.no_grad()
def stream(model, ids: Tensor, cache: Cache | None = None, max_new_tokens: int = 32, temperature: float = 0.0,
           top_k: int | None = None, top_p: float | None = None, seed: int | None = None, stop: Sequence[int] = (), *,
           mask: Tensor | None = None, prefill_chunk: int | None = None, update_cache: bool = False
           ) -> Iterator[Tensor]:
    """As `generate`, one (B,) tensor of tokens at a time, each as soon as it is known."""
    _check_options(max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, stop=stop,
                   prefill_chunk=prefill_chunk)
    work, logits = prefill(model, ids, cache, mask, prefill_chunk)
    source = None if seed is None else torch.Generator(ids.device).manual_seed(seed)
    ends = torch.tensor(list(stop), dtype=torch.long, device=ids.device)
    done, token = torch.zeros(len(ids), dtype=torch.bool, device=ids.device), None
    for left in range(max_new_tokens, 0, -1):
        new = pick(logits, temperature, top_k, top_p, source)                           # (B,)
        token = new if token is None else torch.where(done, token, new)
        if update_cache and cache is not None:
            cache.__dict__.update(work.fork().__dict__)
        yield token
        done = done | torch.isin(token, ends)
        if left == 1 or bool(done.all()):
            return
        logits = model(token[:, None], work, mask=None if not bool(done.any()) else ~done[:, None])[:, -1]


def _check_options(**given) -> None:
    some = lambda v: isinstance(v, int) and v >= 1                                      # noqa: E731
    ranges = {"max_new_tokens": (lambda v: isinstance(v, int) and v >= 0, "an int of 0 or more"),
              "temperature": (lambda v: v >= 0, "0 (greedy) or more"),
              "top_k": (lambda v: v is None or some(v), "an int of 1 or more, or None"),
              "top_p": (lambda v: v is None or 0 < v <= 1, "above 0 and at most 1, or None"),
              "stop": (lambda v: not isinstance(v, (int, str)), "a sequence of token ids"),
              "prefill_chunk": (lambda v: v is None or some(v), "an int of 1 or more, or None"),
              "draft": (some, "an int of 1 or more"), "ngram": (some, "an int of 1 or more")}
    for name, value in given.items():
        fits, range_ = ranges[name]
        if not fits(value):
            raise ValueError(f"{name}={value!r} was asked for; it must be {range_}")


@torch.no_grad()
def prefill(model, ids: Tensor, cache: Cache | None = None, mask: Tensor | None = None, chunk: int | None = None
            ) -> tuple[Cache, Tensor]:
    """A cache that holds the prompt, and the logits behind each row's last real token, (B, vocab_size).

    The given cache is left as it is. Of what it holds, the longest start that agrees with the prompt is used, as far
    as its states can go back to where the two part; a recurrent state goes back to kept columns only, at worst to 0.
    """
    model.check(ids, mask)
    if not ids.shape[1]:
        raise BatchError(f"the prompt is {tuple(ids.shape)}, it must be (batch, tokens) with at least one token")
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask             # (B, L)
    if not bool(real.any(1).all()):
        raise BatchError(f"row {int((~real.any(1)).nonzero()[0])} of the prompt has no real token; "
                         "drop the row, or unmask one token of it")
    last = ids.shape[1] - 1 - real.int().flip(1).argmax(1)                              # (B,) each row's last real column
    work = go_back(cache, min(shared(cache, ids, real), int(last.min())))
    logits = None
    for start in range(work.length, ids.shape[1], chunk or ids.shape[1]):
        stop = min(start + (chunk or ids.shape[1]), ids.shape[1])
        out = model(ids[:, start:stop], work, position=start, mask=None if mask is None else mask[:, start:stop])
        if logits is None:
            logits = torch.zeros_like(out[:, 0])
        at = (last - start).clamp(0, stop - start - 1)
        here = (last >= start) & (last < stop)
        logits = torch.where(here[:, None], out[torch.arange(len(ids), device=ids.device), at], logits)
    return work, logits


def shared(cache: Cache | None, ids: Tensor, real: Tensor) -> int:
    """How many leading columns the cache and the prompt have in common, in every row."""
    if cache is None or cache.mask is None:
        return 0
    if cache.batch != len(ids):
        raise BatchError(f"the prompt has {len(ids)} rows, the cache {cache.batch}; select(rows) or repeat(n) the cache")
    n = min(cache.length, ids.shape[1])
    agree = (cache.mask[:, :n] == real[:, :n]) & (~real[:, :n] | (cache.tokens[:, :n] == ids[:, :n]))
    return int(agree.all(0).int().cumprod(0).sum())


def go_back(cache: Cache | None, column: int) -> Cache:
    """A fork of the cache at `column`, or at the nearest column before it that its states can go back to."""
    work = Cache() if cache is None else cache.fork()
    for place in [column, *(kept for kept in reversed(work.checkpoints) if kept < column), 0]:
        try:
            return work.rewind(place)
        except RewindError:
            continue
    raise AssertionError("column 0 can always be reached")


def pick(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, source) -> Tensor:
    """One token per row, (B,), from logits (B, vocab_size)."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.to(torch.float32) / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        lowest = logits.topk(top_k, -1).values[:, -1:]
        logits = torch.where(logits < lowest, float("-inf"), logits)
    if top_p is not None:
        ranked, order = logits.sort(-1, descending=True)
        before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)                     # probability ranked ahead
        ranked = torch.where(before < top_p, ranked, float("-inf"))
        logits = torch.full_like(logits, float("-inf")).scatter(-1, order, ranked)
    return torch.multinomial(logits.softmax(-1), 1, generator=source)[:, 0]


@dataclass(frozen=True)
class Speculation:
    """What guessing ahead brought.

    Attributes:
        tokens: (n,) int64, the greedy tokens.
        calls: model calls behind the prompt; the plain loop needs one per token but the first.
        proposed, accepted: guessed tokens, and how many of them were right.
    """

    tokens: Tensor
    calls: int
    proposed: int
    accepted: int


@torch.no_grad()
def speculate(model, ids: Tensor, cache: Cache | None = None, max_new_tokens: int = 32, stop: Sequence[int] = (), *,
              draft: int = 6, ngram: int = 2) -> Speculation:
    """The greedy output of `generate` for one row, in fewer model calls: guess, verify a chunk, go back.

    The guess is what followed the last occurrence of the newest `ngram` tokens in the text so far. States that cannot
    go back to the last right token return to the last kept column; the tokens in between come along in the next chunk.

    Args:
        model, ids, cache, max_new_tokens, stop: as for `generate`; ids is (1, L).
        draft: how many tokens to guess at a time.
        ngram: how many tokens must have come up before.

    Raises:
        BatchError: more than one row.
        ValueError: an option outside its range.
    """
    _check_options(max_new_tokens=max_new_tokens, stop=stop, draft=draft, ngram=ngram)
    model.check(ids)
    if len(ids) != 1:
        raise BatchError(f"{len(ids)} rows were given; rows accept guesses at different places, speculate on one")
    work, logits = prefill(model, ids, cache)
    if not max_new_tokens:
        return Speculation(ids.new_zeros(0), 0, 0, 0)
    text, start = ids[0].tolist(), ids.shape[1]
    text.append(int(logits[0].argmax()))
    calls = proposed = accepted = 0
    while len(text) - start < max_new_tokens and text[-1] not in stop:
        pending = text[work.length:]                                # known, but not in the cache yet
        guess = look_up(text, ngram, draft) if len(pending) <= draft else []
        guess = guess[:max_new_tokens - (len(text) - start) - 1]
        column = work.checkpoint(only=True).length
        chunk = torch.tensor([pending + guess], device=ids.device)
        best = model(chunk, work, position=column)[0, len(pending) - 1:].argmax(-1).tolist()
        right = next((i for i, token in enumerate(guess) if token != best[i]), len(guess))
        calls, proposed, accepted = calls + 1, proposed + len(guess), accepted + right
        if right < len(guess):
            work = go_back(work, column + len(pending) + right)
        for token in best[:right + 1]:
            text.append(token)
            if token in stop:
                break
    return Speculation(torch.tensor(text[start:], device=ids.device), calls, proposed, accepted)


def look_up(text: list[int], ngram: int, draft: int) -> list[int]:
    """What followed the last earlier occurrence of the newest `ngram` tokens; empty if they are new."""
    for at in range(len(text) - ngram - 1, -1, -1):
        if text[at:at + ngram] == text[-ngram:]:
            return text[at + ngram:at + ngram + draft]
    return []
