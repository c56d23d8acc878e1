"""labkit: caches and mixers that give the same answer however the sequence is cut, and the faults that do not.

Shapes use the same letters everywhere:

    B batch (rows)      L tokens of this call       T keys held         K conv width        C channels
    H heads             P head_dim                  N state size        G groups            D head_dim of attention

One thread: the lab's tensors are small, and a second thread costs more than it brings (set OMP_NUM_THREADS to choose).
"""

import os
from importlib.util import find_spec

if find_spec("torch") is None:                      # `python -m labkit doctor` must be able to say so
    def __getattr__(name: str):
        raise ModuleNotFoundError(f"labkit.{name} needs torch, which is not installed; run: python -m labkit doctor")
else:
    import torch

    from . import faults
    from .cache import Cache
    from .contract import check
    from .generate import generate
    from .model import HybridLM
    from .trained import load

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)

__all__ = ["Cache", "HybridLM", "check", "faults", "generate", "load"]
