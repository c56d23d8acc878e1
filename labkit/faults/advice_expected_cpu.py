"""Advice about "Expected CPU": a guard that already asks for the CPU, and two stores that the advice never mentions.

`Branches` is a port of the source's choice. Another device is torch's meta device: it has shapes and no memory.
"""

import torch

from ..mixers import Attention
from . import samples
from .advice import advise
from .base import reclass
from .expected_cpu import GuardRemoved, TwoWriters

MESSAGE = "Expected CPU"
OTHER = "Expected CPU storage"          # of other functions in the same source


class Branches(Attention):
    """The source's choice: one row on the CPU is written through host memory, all else goes to a cache never built."""

    kv_cache = None

    def mix(self, x, state, counts):
        if x.device.type == "cpu" and x.shape[0] == 1:
            return super().mix(x, state, counts)
        return self.kv_cache.append(x), state


def outcome(cls, device="cpu", batch=1, state_device=None):
    """What a first call of three tokens ends in: the error's text, or 'no error'."""
    mixer = reclass(samples.nope().to(device), cls)
    state = None if state_device is None else samples.nope().to(state_device).start(batch)
    try:
        mixer(torch.zeros(batch, 3, mixer.hidden_size, device=device, dtype=torch.float64), state)
    except (RuntimeError, AttributeError, ValueError) as error:
        return str(error)
    return "no error"


def order_is_right(sizes=(4, 1, 1, 1, 1, 4), cls=TwoWriters, convert=lambda t: t):
    """Does the layer with two stores give the uncut answer in this order? All tensors are on the CPU."""
    mixer, right, state, outputs = reclass(samples.nope(), cls), samples.nope(), None, []
    x = torch.randn(1, sum(sizes), mixer.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for piece in x.split(sizes, 1):
        y, state = mixer(convert(piece), state)
        outputs.append(y)
    return torch.allclose(torch.cat(outputs, 1), right(x)[0])


def unchanged(what):
    """The verdict on a fix that would have to change something: is the message still absent, the answer still wrong?"""
    right, text = order_is_right(), outcome(Branches)
    return ("right" if right else "wrong",
            f"{what}: {text} in the first call, before and after. "
            f"Prefill, decode, prefill: {'right' if right else 'still wrong'}.")


@advise("expected-cpu.needs-cpu-storage", "The write reads plain floats of K, so it needs storage on the CPU.", "right",
        "Host memory can be read in no other way.")
def needs_cpu_storage():
    cpu, meta = outcome(GuardRemoved), outcome(GuardRemoved, "meta")
    return ("right" if cpu != MESSAGE and meta == MESSAGE else "wrong",
            f"Without the guard: {cpu} on the CPU, “{meta}” on another device.")


@advise("expected-cpu.gpu", "The error comes when the model runs on a GPU, or on a backend of another kind.",
        "impossible", "The branch that can raise it is entered only on the CPU. Elsewhere "
        "another branch fails, in another way.")
def gpu():
    seen = {f"{device}, {batch} row{'s' * (batch > 1)}": outcome(Branches, device, batch)
            for device in ("cpu", "meta") for batch in (1, 2)}
    return ("impossible" if MESSAGE not in seen.values() else "right",
            "; ".join(f"{where}: {text}" for where, text in seen.items()) + ".")


@advise("expected-cpu.cache-elsewhere",
        "The error comes when the cache was made on another device than the activations.", "impossible",
        "The host store has no device. A store of tensors elsewhere is refused before anything is written.")
def cache_elsewhere():
    text = outcome(GuardRemoved, "cpu", state_device="meta")
    return ("impossible" if text not in (MESSAGE, "no error") else "right",
            f"Store elsewhere, activations on the CPU: {text}")


@advise("expected-cpu.keep-on-cpu", "Keep the model and its cache on the CPU.", "wrong",
        "That is what the guard asks for. The message was not there before, and the answer stays wrong.")
def keep_on_cpu():
    return unchanged("Everything on the CPU")


@advise("expected-cpu.share-device", "Keep the raw store and the tensors on one device, the CPU.", "wrong",
        "They share it already wherever this branch runs.")
def share_device():
    return unchanged("Store and tensors on the CPU")


@advise("expected-cpu.other-model", "For a GPU, take the model without quantization.", "partly",
        "It runs there. So does the quantized one, as soon as the CPU branch is not asked for.")
def other_model():
    flash, plain = outcome(Branches, "meta"), outcome(Attention, "meta")
    return ("right" if plain == "no error" == flash else "partly" if plain == "no error" else "wrong",
            f"Another device, CPU branch asked for: {flash}. Not asked for: {plain}.")


@advise("expected-cpu.to-device", "Move K to the CPU with to_device before its floats are read.", "wrong",
        "Where the line runs, K is on the CPU; elsewhere the line never runs.")
def to_device():
    before, after = order_is_right(), order_is_right(convert=lambda piece: piece.to("cpu"))
    elsewhere = outcome(Branches, "meta")
    return ("wrong" if not after and before == after and elsewhere != "no error" else "right",
            f"On the CPU: prefill, decode, prefill is {'right' if after else 'wrong, as before'}. "
            f"Elsewhere: {elsewhere}.")


@advise("expected-cpu.tensor-operations", "Write the store with tensor operations, for any device.", "partly",
        "Then every device works. There are still two stores, and the decoded tokens are in only one of them.")
def tensor_operations():
    elsewhere, two, one = outcome(TwoWriters, "meta"), order_is_right(), order_is_right(cls=Attention)
    return ("right" if two and elsewhere == "no error" else "partly" if elsewhere == "no error" else "wrong",
            f"Another device: {elsewhere}. Prefill, decode, prefill: {'right' if two else 'wrong'} with two stores, "
            f"{'right' if one else 'wrong'} with one.")


@advise("expected-cpu.check-device", "Before the write, return an error unless K is on the CPU.", "wrong",
        "A check behind the guard never fires.")
def check_device():
    found = []          # where K is, each time that the branch is entered

    class Checked(Branches):
        def mix(self, x, state, counts):
            if x.device.type == "cpu" and x.shape[0] == 1:
                found.append(self.k_proj(x).device.type)
            return super().mix(x, state, counts)
    for device, batch in (("cpu", 1), ("cpu", 2), ("meta", 1), ("meta", 2)):
        outcome(Checked, device, batch)
    fired = sum(device != "cpu" for device in found)
    return ("right" if fired else "wrong",
            f"Four situations: the branch is entered in {len(found)} of them, the check fires in {fired}.")


@advise("expected-cpu.catch", "Catch the error by its text and say that this path is for the CPU only.", "wrong",
        "The text never comes, and it is part of another message with another cause.")
def catch():
    seen = [outcome(Branches, device, batch) for device in ("cpu", "meta") for batch in (1, 2)]
    caught, mistaken = sum(MESSAGE in text for text in seen), MESSAGE in OTHER
    return ("wrong" if not caught and mistaken else "partly",
            f"Caught in {caught} of {len(seen)} situations. It matches “{OTHER}”: {'yes' if mistaken else 'no'}.")
