"""Lesson 10, mystery: its questions, its cases, and what the checker finds in the installed transformers."""

import html
import json
import textwrap
from functools import cache
from pathlib import Path

from .. import faults
from ..contract import Finding, Report, check
from ..contract.laws import Lab, split_case
from ..contract.checker import run
from ..faults import samples
from ..figures import Panel, who_wrote
from ..files import data_folder
from . import lesson_00, progress
from .card import Card
from .exercise_10 import EXERCISE
from .judge import call
from .library import installed
from .mystery import GROUPS, NOTHING, OFFERS, Case, Investigation, cases, endless, tie
from .question import Option, Question

__all__ = ["EXERCISE", "QUESTIONS", "Investigation", "case_file", "cases", "endless", "first_guess", "halves", "hidden",
           "laws_lit", "prove", "real", "smallest_cut", "stranger", "tie"]

ASKED = ("split", "causal", "rows", "padding", "fork", "sessions", "reset")         # of the real library: a few seconds
LESSON = {"split": "01", "causal": "01", "empty": "01", "position": "02", "atomic": "02", "prefix": "03", "fork": "07",
          "reset": "07", "move": "10", "rows": "08", "padding": "08", "rewind": "09", "select": "09", "sessions": "10",
          "foreign": "10", "long": "10", "repeat": "10"}
CUTS = ("prefill 1, then a chunk of 2", "prefill 1, then 1 token", "prefill 4, then a chunk of 5")
QUESTIONS = {
    "halves": Question("10.halves", "A look back at lesson 05. A text is cut 4 + 8, and every token of the second "
                                    "piece is wrong. Which half of the memory was lost?", (
        Option("window", "the window", "The other half gives the same strip. Only setting one half to zero tells them "
                                       "apart."),
        Option("state", "the recurrent state", "A lost window gives the same strip: behind a recurrence its error "
                                               "lives on."),
        Option("both fit", "the strip cannot tell", ""))),
    "cut": Question("10.cut", "The checker says that a model of the real library is silently wrong at a cut. "
                              "Which cut is its smallest counterexample?", (
        *(Option(words, words, reply) for words, reply in zip(CUTS, (
            "", "Token by token it is right: that is what everybody runs.", "That one fails too, but there is a "
            "smaller one."))), Option("none", "none of these", "The table names the cut."))),
    "stranger": Question("10.stranger", "A layer stores its inputs in 8 bits. One scale serves all rows of a call. "
                                        "Which laws does that break?", (
        Option(("split",), "split alone", "The scale depends on the call, so a cut changes it. But a neighbour changes "
                                          "it as well."),
        Option(("rows",), "rows alone", "A neighbour with large inputs changes the scale of all. Does a cut leave it?"),
        Option(("causal", "split"), "split and causal", "A neighbour changes the scale as well."),
        Option((), "none, it is rounding", "Rounding that depends on the neighbours is no noise: it is too large, and "
                                           "another batch gives another answer."),
        Option(("rows", "more"), "rows and more", ""))),
}


def halves(sizes=(4, 8)):
    """Do a lost window and a lost state show the same strip? 'both fit', or the half that the strip would name."""
    case = Case("look back", ("conv-half-lost", "recurrent-half-lost"), ("cut",))
    window, state = (case.shows(name, "cut", *sizes) for name in case.suspects)
    return "both fit" if window.outcome == state.outcome else "window"


def smallest_cut(function, name, n=9):
    """The learner's search on a fault of the catalogue: what it returns."""
    lab = Lab(faults.get(name).subject(0), 0)
    return call(function, lambda cut: run(split_case(lab, list(cut), 1), 1e-8) is None, n)


def prove(function, names=("dropped-chunk", "history-lost", "clamp-lost", "padding-continued")):
    """The search on real faults: a Card with the smallest cut of each."""
    if not EXERCISE.tried(function):
        return Card("not tried", "smallest_failure is not tried yet, so there is nothing to search with.")
    try:
        return Card("info", "The smallest cut that each fault gets wrong", [
            f"{name}: {smallest_cut(function, name) or 'no cut fails'}" for name in names])
    except Exception as error:
        return Card("crashed", f"It raises {type(error).__name__}: run the check above.")


# The model of lesson 00 --------------------------------------------------------------------------------------------

def hidden():
    """The model of lesson 00 as a case: the first layer of the trained model, with its fault."""
    return Case("of_lesson_00", (*GROUPS["chunk"], NOTHING), OFFERS["chunk"], preset="mamba2",
                _culprit=lesson_00.HIDDEN)


def first_guess():
    """What was guessed in lesson 00, in words."""
    letter = progress.get("questions", "00.hidden").get("guess")
    option = lesson_00.QUESTIONS["hidden"].letters.get(letter)
    return f"Your first guess in lesson 00: {option.text}." if option else "In lesson 00 you made no guess."


def laws_lit(make=samples.hybrid):
    """All laws, the lesson that earned each, and what a right hybrid model says to it. Text."""
    report = check(make(0))
    return "\n".join(textwrap.fill(f"{finding.verdict}, lesson {LESSON[law]}, {law + ':':10} {finding.says}", 92,
                                   subsequent_indent=" " * 29) for law, finding in report.by_law.items())


# The real library --------------------------------------------------------------------------------------------------

RECORD = "check_mamba.json"


@cache
def real(name="mamba"):
    """The checker on a tiny model of the installed transformers: (report, version in words, law -> script)."""
    if not (library := installed()):
        return recorded()
    from ..contract import zoo
    from ..contract.script import script
    from ..contract.transformers import subject
    recipe = zoo.recipes(name)[0]
    asked = subject(zoo.build(recipe), recipe.title)
    report = check(asked, laws=ASKED)
    return report, f"transformers {library.__version__}, run here", {
        finding.law: script(asked, recipe, finding) for finding in report.failed}


def recorded():
    """The same, as it was recorded once, for machines without transformers."""
    kept = json.loads((data_folder() / "real_library" / RECORD).read_text(encoding="utf-8"))
    findings = tuple(Finding(**{**each, "failures": tuple(each["failures"])}) for each in kept["report"]["findings"])
    report = Report(kept["report"]["subject"], findings, kept["report"]["sensitive"], kept["report"]["seed"])
    return report, f"transformers {kept['version']}, recorded", kept["scripts"]


def record():
    """Write the recorded results anew."""
    report, _, scripts = real()
    kept = {"version": installed().__version__, "report": json.loads(report.to_json()), "scripts": scripts}
    (data_folder() / "real_library" / RECORD).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def counterexample(law="split"):
    """The smallest cut that the real library gets wrong, as an option of the question."""
    found = real()[0][law].counterexample
    return found if found in CUTS else "none"


def case_file(law="split", folder=None):
    """Save what belongs in a report: a page with version, counterexample, picture and sentence, and a script.

    Args:
        law: one that is silently wrong; folder: where to; None: beside the progress file.
    """
    from ..widgets.explorer import picture
    report, where, scripts = real()
    if law not in report.by_law:
        return Card("info", f"The report has no law “{law}”; it has {', '.join(report.by_law)}.")
    finding = report[law]
    if not finding.counterexample:
        return Card("info", f"{law} {finding.verdict}: there is nothing to report.")
    strip = finding.strip or "!"
    sentence = f"{report.subject}, {where}. {finding.says} {finding}"
    drawn, _ = who_wrote([Panel(finding.counterexample, [str(t) for t in range(len(strip))], ["output"],
                                [["ok" if letter == "." else "wrong" for letter in strip]])],
                         {(0, 0, t) for t, letter in enumerate(strip) if letter != "."})
    folder = Path(folder or progress.path().parent)
    page, program = (folder / f"case_{report.subject}_{law}{end}" for end in (".html", ".py"))
    program.write_text(scripts[law], encoding="utf-8")
    page.write_text(f"<!doctype html><meta charset='utf-8'><title>{html.escape(report.subject)}: {law}</title>"
                    f"{picture(drawn, sentence)}<pre>{html.escape(scripts[law])}</pre>\n", encoding="utf-8")
    return Card("info", f"Saved: {page.name} and {program.name}", [
        f"{where}. {law}: {finding.counterexample}.", f">{finding.strip or finding.message}",
        f"Run it in a terminal: python {program.name}. It needs transformers and torch alone."])


def stranger():
    """The laws that a layer whose fault is in no lesson breaks: ('rows', 'more') where rows is one of several."""
    broken = tuple(finding.law for finding in check(faults.get("scale-per-batch").subject(0)).failed)
    return ("rows", "more") if "rows" in broken and len(broken) > 1 else broken
