"""The file of a cache: safetensors, no pickle, a digest over tensors and metadata, replaced as a whole."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from .errors import CacheFileError
from .files import replacing
from .keyvalues import AttentionState
from .state import STATES, State

FORMAT = "labkit cache 1"


def write(path: str | Path, columns: dict[int, tuple[State | None, ...]], tokens: Tensor | None, mask: Tensor | None,
          fingerprint: str | None) -> None:
    """Write states by column, each layer's fields under "column/layer/field", and rename into place."""
    tensors, kinds = {} if mask is None else {"tokens": tokens, "mask": mask}, {}
    for column, states in columns.items():
        for layer, state in enumerate(states):
            kinds[f"{column}/{layer}"] = None if state is None else [type(state).__name__, getattr(state, "window", None)]
            for name, value in ({} if state is None else state.tensors()).items():
                tensors[f"{column}/{layer}/{name}"] = value
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in sorted(tensors.items())}
    about = {"format": FORMAT, "kinds": json.dumps(kinds), "fingerprint": fingerprint or ""}
    about["digest"] = digest(json.dumps(about, sort_keys=True), tensors)
    with replacing(path) as file:
        file.write(save(tensors, about))


def read(path: str | Path
         ) -> tuple[dict[int, tuple[State | None, ...]], Tensor | None, Tensor | None, str | None]:
    """States by column, tokens, mask and fingerprint, or CacheFileError."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise CacheFileError(f"cannot read a cache from {path}: {error.strerror}") from None
    try:
        header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
        about, tensors = header["__metadata__"], load(raw)
        stated = about.pop("digest")
    except Exception:
        raise CacheFileError(f"{path} is not a whole cache file: it is cut short, changed, or of another kind; "
                             "save the cache again") from None
    if about.get("format") != FORMAT or stated != digest(
            json.dumps(about, sort_keys=True), dict(sorted(tensors.items()))):
        raise CacheFileError(f"{path} was changed after it was written, or is of another version than "
                             f"{FORMAT!r}; save the cache again")
    columns: dict[int, list] = {}
    for place, kind in json.loads(about["kinds"]).items():
        column, layer = place.split("/")
        fields = {name.rsplit("/", 1)[1]: value for name, value in tensors.items() if name.startswith(place + "/")}
        columns.setdefault(int(column), []).append(None if kind is None else rebuild(*kind, fields))
    states = {column: tuple(states) for column, states in columns.items()}
    return states, tensors.get("tokens"), tensors.get("mask"), about["fingerprint"] or None


def rebuild(kind: str, window: int | None, fields: dict[str, Tensor]) -> State:
    """The state of a class named `kind` with these fields."""
    return AttentionState.build(**fields, window=window) if kind == "AttentionState" else STATES[kind](**fields)


def digest(about: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over a text, and over names, dtypes, shapes and bytes of tensors; of meta tensors there are no bytes."""
    total = hashlib.sha256(about.encode())
    for name, value in tensors.items():
        total.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        if not value.is_meta:
            total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return total.hexdigest()
