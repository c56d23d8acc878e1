"""The trained models and their tokenizer, from data/."""

from .errors import ConfigError
from .files import data_folder
from .model import HybridLM
from .tokenizer import tokenizer


def load(name: str) -> HybridLM:
    """A trained model: "mamba", "mamba2", "griffin", "gated-delta", "attention" or "hybrid".

    For inference: in eval mode and without gradients. `load.tokenizer()` is the tokenizer of all of them.

    Raises:
        ConfigError: there is no trained model of that name.

    Example:
        >>> import torch
        >>> from labkit.generate import generate
        >>> model, words = load("hybrid"), load.tokenizer()
        >>> ids = words.encode("Ada keeps a red kite. Ben sells a blue drum. What does Ada keep?").ids
        >>> words.decode(generate(model, torch.tensor([ids]), max_new_tokens=4)[0].tolist())
        ' A red kite.'
    """
    path = data_folder() / f"{name}.safetensors"
    if not path.exists():
        there = sorted(found.stem for found in data_folder().glob("*.safetensors"))
        raise ConfigError(f"there is no trained model {name!r}; there are {', '.join(there) or 'none yet'}")
    return HybridLM.load(path)


load.tokenizer = tokenizer
