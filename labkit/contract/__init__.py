"""The contract: a model that carries state must give the same answer however the sequence is cut.

`check(subject)` runs every law and names the smallest counterexample.
"""

from .checker import check
from .diagnose import Diagnosis, diagnose
from .laws import LAWS
from .report import Finding, Report
from .subjects import FunctionSubject, MixerSubject, ModelSubject, Subject, subject_of

__all__ = ["LAWS", "Diagnosis", "Finding", "FunctionSubject", "MixerSubject", "ModelSubject", "Report", "Subject", "check",
           "diagnose", "subject_of"]
