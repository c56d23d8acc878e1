"""The installed transformers, where there is one: small cases that a lesson runs on it."""

import torch

from .card import Card


@torch.no_grad()
def in_library(run):
    """A Card with the lines that run(real_cases) gives; one line where transformers is not installed."""
    try:
        from .. import real_cases
    except ModuleNotFoundError:
        return Card("info", "transformers is not installed here, so there is nothing to run.")
    real_cases.transformers.logging.set_verbosity_error()           # it names kernels that a CPU cannot use
    return Card("info", f"transformers {real_cases.transformers.__version__}:", run(real_cases))
