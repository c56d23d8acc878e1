"""Does this machine fit the lab? Plain words, and what to do when it does not.

    python -m labkit doctor            the full answer; exit code 1 when something must be repaired
    python labkit/doctor.py            the same, also where labkit itself cannot be imported
    labkit.doctor.check()              in a notebook cell: one line, without versions

`facts()` looks, `judge(facts)` decides, so the decisions are tested with invented facts. Standard library only.
"""
import json
import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata

# name: (least version, first version that is too new), the same bounds as in pyproject.toml
BOUNDS = {
    "python": ((3, 11), None),
    "torch": ((2, 13), (3,)),
    "ipywidgets": ((8, 1, 5), (9,)),
    "jupyterlab": ((4, 6), (5,)),
    "matplotlib": ((3, 11), (4,)),
}
VERSIONS = ("labkit", "torch", "transformers", "jupyterlab", "ipywidgets", "matplotlib", "safetensors", "tokenizers")
INSTALL = "run `make lab` in the folder of the lab, or `python -m pip install -r requirements.lock`"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: its name, whether it fits, what was found, what to do when it does not fit."""
    name: str
    fits: bool
    found: str
    advice: str = ""


def numbers(version):
    """Return the leading numbers of a version: '2.13.0+cpu' gives (2, 13, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version).group().split("."))


def in_words(bounds):
    low, high = (".".join(map(str, bound)) if bound else "" for bound in bounds)
    return f"{low} or newer" + (f", older than {high}" if high else "")


def facts():
    """Look at this machine: versions (None when missing), the widget extension, the kernel.

    Returns:
        A dict: a version or None for each name in BOUNDS; "extension": version or None; "kernel": the program that the
        kernel `python3` starts, or None; "this": the running Python.
    """
    seen = {"python": ".".join(map(str, sys.version_info[:3])), "this": sys.executable}
    for name in BOUNDS:
        if name != "python":
            seen[name] = _version(name)
    return {**seen, "extension": _extension(), "kernel": _kernel()}


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _extension():
    """Return the version of the widget extension that JupyterLab's page loads, or None."""
    try:
        from jupyter_core.paths import jupyter_path
    except ImportError:
        return None
    for folder in jupyter_path("labextensions"):
        try:
            with open(os.path.join(folder, "@jupyter-widgets", "jupyterlab-manager", "package.json"), "rb") as file:
                return json.load(file)["version"]
        except (OSError, ValueError, KeyError):
            continue
    return None


def _kernel():
    """Return the program that the kernel `python3` starts, or None."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
        import ipykernel  # noqa: F401  (the kernel cannot start without it)
    except ImportError:
        return None
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return None
    # jupyter_client itself reads a bare "python" as the running one
    return sys.executable if program in ("python", "python3") else program


def _folder(program):
    """The folder of a program. Links stay: an environment's Python is often a link to one outside it."""
    return os.path.normcase(os.path.dirname(os.path.abspath(program)))


def judge(seen):
    """Return a Finding for each point, from the dict that `facts` returns."""
    findings = [_judge_version(name, seen[name], bounds) for name, bounds in BOUNDS.items()]
    extension = seen["extension"]
    findings.append(Finding(
        "browser extension", extension is not None and numbers(extension)[0] == 5,
        f"jupyterlab-manager {extension}" if extension else "no widget extension: sliders stay plain text",
        "`python -m pip install --force-reinstall jupyterlab_widgets`, then start JupyterLab again"))
    kernel, this = seen["kernel"], seen["this"]
    same = kernel is not None and _folder(kernel) == _folder(this)
    findings.append(Finding(
        "kernel", same,
        "python3 starts this Python" if same else f"python3 starts {kernel}, not this Python" if kernel else "none",
        "`python -m ipykernel install --sys-prefix`; if another one still wins, `jupyter kernelspec remove python3`"))
    return findings


def _judge_version(name, version, bounds):
    if version is None:
        return Finding(name, False, "not installed", INSTALL)
    low, high = bounds
    fits = numbers(version) >= low and (high is None or numbers(version) < high)
    advice = INSTALL if name != "python" else "install Python 3.11 and make the environment again with it"
    return Finding(name, fits, version if fits else f"{version}; the lab needs {in_words(bounds)}", advice)


def report(findings):
    """Return the findings as lines of text."""
    lines = []
    for finding in findings:
        lines.append(f"{'fits  ' if finding.fits else 'REPAIR'}  {finding.name}: {finding.found}")
        if not finding.fits:
            lines.append(f"        what to do: {finding.advice}")
    wrong = sum(not finding.fits for finding in findings)
    return lines + ["Everything fits." if not wrong else f"{wrong} of {len(findings)} must be repaired."]


def check():
    """Print one line that is the same on every machine that fits; else each point to repair, with what to do."""
    findings = judge(facts())
    if all(finding.fits for finding in findings):
        print(f"This machine fits: {', '.join(finding.name for finding in findings)}.")
    else:
        print("\n".join(report([finding for finding in findings if not finding.fits])))


def versions():
    """Print the versions that belong in a report of a fault."""
    print(f"system {platform.platform()}\npython {platform.python_version()}")
    for package in VERSIONS:
        print(f"{package} {_version(package) or 'not installed'}")


def main(argv=()):
    """The command: the findings, or with --versions the versions; exit code 1 when something must be repaired."""
    if "--versions" in argv:
        versions()
        return 0
    findings = judge(facts())
    print("\n".join(report(findings)))
    return int(not all(finding.fits for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
