"""Questions: guess first, then run, then see the guess beside the result.

The right option is not written down: it is the one whose value equals the measured result. Every other option is a
misconception with its own reply.
"""

import html
from dataclasses import dataclass

from . import progress
from .card import Card

CONFIDENCE = {1: "a guess", 2: "rather sure", 3: "sure"}
VERDICTS = {"right": "it holds", "partly": "it holds in some cases", "wrong": "it does not hold",
            "impossible": "it cannot be done, or cannot happen",
            "silently wrong": "it gives wrong results without an error"}


@dataclass(frozen=True)
class Option:
    value: object       # the result that this option foretells
    text: str
    reply: str          # to a learner who chose it and sees another result


@dataclass(frozen=True)
class Question:
    """One prediction or quiz question.

    id: "01.zeros"; text: the question; options: at least two, with different values; reason: shown to everybody beside
    the result.
    """
    id: str
    text: str
    options: tuple[Option, ...]
    reason: str = ""

    @property
    def letters(self):
        return {chr(ord("a") + i): option for i, option in enumerate(self.options)}

    def ask(self):
        """The question as a widget, with nothing selected. `guess` does the same by plain call."""
        from .ask import Ask        # here, because a lesson also works where ipywidgets is missing
        return Ask(self)

    def guess(self, letter, confidence):
        """Store a guess: the option's letter, and 1 (a guess), 2 (rather sure) or 3 (sure).

        The last guess before the result counts. Later ones are marked as late.

        Raises:
            ValueError: no such letter, or no such confidence.
        """
        if letter not in self.letters:
            raise ValueError(f"there is no option {letter!r}; choose one of {', '.join(self.letters)}")
        if confidence not in CONFIDENCE:
            known = ", ".join(f"{number} ({text})" for number, text in CONFIDENCE.items())
            raise ValueError(f"confidence is {confidence!r}; choose {known}")
        if "shown" in (stored := progress.get("questions", self.id)):
            progress.put("questions", self.id, late=letter)
            first = stored.get("guess")
            return Card("info", "You have seen the result already. Your first guess stays: "
                        + (f"{first}." if first else "no guess."))
        progress.put("questions", self.id, guess=letter, confidence=confidence)
        return Card("info", f"Stored: {letter}, {CONFIDENCE[confidence]}. Now run the next cell.")

    def reveal(self, result, evidence=""):
        """Show the measured result beside the stored guess. Without a guess, "no guess" is stored.

        Raises:
            LookupError: the result fits no option, so the question does not cover what was measured.
        """
        fits = [letter for letter, option in self.letters.items() if option.value == result]
        if len(fits) != 1:
            raise LookupError(f"question {self.id}: the result {result!r} fits {len(fits)} options, it should fit one. "
                              f"They foretell {[option.value for option in self.options]}")
        right, stored = fits[0], progress.get("questions", self.id)
        guess = stored.get("guess") if stored.get("guess") in self.letters else None
        progress.put("questions", self.id, guess=guess, shown=right)
        lines = [*([evidence] if isinstance(evidence, str) else evidence), self.reason]
        if guess is None:
            state, lines = "info", lines + ["Your guess: no guess. A guess before the result makes it stick better."]
        else:
            sure = CONFIDENCE.get(stored.get("confidence"), "no confidence")
            state = "right" if guess == right else "wrong"
            lines += [f"Your guess: {guess}) {self.letters[guess].text} ({sure}): {state}.",
                      "" if guess == right else self.letters[guess].reply]
        return Card(state, f"Result: {right}) {self.letters[right].text}", lines)

    def text_lines(self):
        return [self.text, *(f"{letter}) {option.text}" for letter, option in self.letters.items())]

    def __repr__(self):
        return "\n  ".join(self.text_lines())

    def _repr_html_(self):
        first, *options = map(html.escape, self.text_lines())
        return f"<p><b>{first}</b></p>" + "".join(f"<p style='margin:.2em 1.5em'>{line}</p>" for line in options)


def claim(id, text, source, replies):
    """A question about a piece of advice: which verdict will the run give it?

    replies: the reason in one sentence, shown to everybody; or a dict with the reason under "else", and more to say to
    those who chose a verdict.
    """
    replies = {"else": replies} if isinstance(replies, str) else replies
    options = tuple(Option(verdict, f"{verdict}: {says}", replies.get(verdict, "")) for verdict, says in VERDICTS.items())
    return Question(id, f"Advice ({source}): “{text}” Your verdict?", options, replies["else"])
