"""The installed transformers, where there is one: small cases that a lesson runs on it."""

import torch

from .card import Card

MISSING = "transformers is not installed here, so there is nothing to run."


def installed():
    """The installed transformers, told to be quiet: it names kernels that a CPU cannot use. None: it is missing."""
    try:
        import transformers
    except ImportError:
        return None
    transformers.logging.set_verbosity_error()
    return transformers


@torch.no_grad()
def in_library(run):
    """A Card with the lines that run(real_cases) gives; one line where transformers is not installed."""
    if not (library := installed()):
        return Card("info", MISSING)
    from .. import real_cases
    return Card("info", f"transformers {library.__version__}:", run(real_cases))
