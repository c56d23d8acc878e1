"""The lab's tokenizer: byte-level BPE, trained on the lab's own texts, lossless on any text."""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import tokenizer_texts
from .files import data_folder

VOCAB_SIZE = 512


def train_tokenizer(path: Path) -> Tokenizer:
    """Train on `corpus.tokenizer_texts` and write a tokenizer file; the same file at every run."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(tokenizer_texts(), trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    made.save(str(path))
    return made


@cache
def tokenizer() -> Tokenizer:
    """The tokenizer of the trained models, from data/.

    Example:
        >>> ids = tokenizer().encode("Ada keeps a red kite.").ids
        >>> tokenizer().decode(ids), len(ids)
        ('Ada keeps a red kite.', 6)
    """
    return Tokenizer.from_file(str(data_folder() / "tokenizer.json"))
