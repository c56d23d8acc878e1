"""Run the laws: compare, find the smallest counterexample, write the report."""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .laws import LAWS, REFUSALS, Case, Lab, NotSupported, WrongShape
from .report import Finding, Report
from .subjects import subject_of

BOUNDS = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.2}    # of the largest wanted value


@torch.no_grad()
def check(subject, laws: Iterable[str] = tuple(LAWS), seed: int = 0, dtype: torch.dtype = torch.float64,
          **options) -> Report:
    """Ask a subject about the laws.

    Args:
        subject: a labkit mixer or model, a function with sample=…, or an object with start, sample and feed.
        laws: names of LAWS.
        seed: of the inputs; the report is the same for the same seed.
        dtype: mixers and models of floats are checked as a copy in this dtype. In float64 anything above 1e-8 of the
            scale is a real difference; in lower precision noise may hide a small one.
        options: for the subject, such as sample= for a function.

    Returns:
        A Report, which prints as text, shows as HTML in a notebook, and gives JSON.

    Example:
        >>> from labkit.mixers import Mamba2Mixer
        >>> report = check(Mamba2Mixer(hidden_size=8, head_dim=4, state_size=4), laws=["split", "position"])
        >>> print(report.sentence)
        Mamba2Mixer: 1 laws hold, 1 are not supported.
    """
    if isinstance(subject, torch.nn.Module) and next(subject.parameters()).dtype != dtype:
        subject = copy.deepcopy(subject).to(dtype)
    subject = subject_of(subject, **options)
    unknown = [law for law in laws if law not in LAWS]
    if unknown:
        raise ValueError(f"no law is named {', '.join(unknown)}; there are {', '.join(LAWS)}")
    lab = Lab(subject, seed)
    findings = tuple(ask(lab, law, getattr(subject, "bound", BOUNDS[dtype])) for law in laws)
    return Report(getattr(subject, "name", type(subject).__name__), findings, sensitive(lab), seed)


def sensitive(lab: Lab) -> bool:
    """True where an early token moves a later output: otherwise every law would hold for a subject without memory.

    A subject that raises on a plain text is not excused: its laws say so.
    """
    x = lab.draw(2, 8)
    for changed in (6, 3, 0):
        y = torch.cat([x[:, :changed], lab.draw(2, 8, 1)[:, changed:changed + 1], x[:, changed + 1:]], 1)
        try:
            a, b = (lab.subject.feed(text, lab.subject.start())[0][:, changed + 1:] for text in (x, y))
        except Exception:
            return True
        if ((a - b).abs().max() > 1e-6 * a.abs().max()).item():
            return True
    return False


def ask(lab: Lab, name: str, bound: float, only: Callable = str.strip) -> Finding:
    """One law: every case whose words pass `only`, then the smallest that fails."""
    law, says = LAWS[name], LAWS[name].__doc__
    failed: list[tuple[tuple, Case, dict]] = []
    count = 0
    try:
        for case in filter(lambda case: only(case.words), law(lab)):
            getattr(lab.subject, "fresh", int)()            # no case sees what an earlier one left on a model's modules
            evidence = run(case, bound)
            count += 1
            if evidence is not None:
                failed.append((case.size, case, evidence))
    except NotSupported as reason:
        return Finding(name, says, "not supported", message=str(reason))
    if not failed:
        return Finding(name, says, "holds", count)
    silent = [entry for entry in failed if entry[2]["verdict"] == "silently wrong"] or failed
    _, case, evidence = min(silent, key=lambda entry: entry[0])
    return Finding(name, says, cases=count, counterexample=case.words, failures=tuple(c.words for _, c, _ in failed),
                   **evidence)


def run(case: Case, bound: float) -> dict | None:
    """Run one case; None where it is right, else the verdict and its evidence."""
    try:
        result = case.run()
    except NotSupported:
        raise
    except WrongShape as error:
        return {"verdict": "silently wrong", "message": str(error), "error": float("inf")}
    except Exception as error:                                                  # the subject's own, whatever it is
        if case.must_refuse or case.refusal and isinstance(error, REFUSALS):
            return None
        text = " ".join(str(error).split())
        return {"verdict": "raises", "message": f"{type(error).__name__}: {text[:300]}"}
    if case.must_refuse:
        return {"verdict": "silently wrong"}
    found, wanted = result
    if found.shape != wanted.shape:
        return {"verdict": "silently wrong", "message": f"outputs {tuple(found.shape)} for {tuple(wanted.shape)}",
                "error": float("inf")}
    return compare(found, wanted, bound)


def compare(found: Tensor, wanted: Tensor, bound: float) -> dict | None:
    """None where all positions agree within bound times the scale; NaN agrees with nothing."""
    scale = wanted.abs().max().item()
    each = (found.double() - wanted.double()).abs().flatten(2).amax(-1)         # (B, L)
    wrong = ~(each <= bound * scale)
    if not bool(wrong.any()):
        return None
    row, position = (int(n) for n in min(wrong.nonzero().tolist(), key=lambda at: at[1]))
    strip = "".join(".X"[int(bad)] for bad in wrong[row])
    error = float("inf") if bool(each.isnan().any()) else each.max().item()
    return {"verdict": "silently wrong", "error": error, "scale": scale, "position": position, "row": row,
            "strip": strip}
