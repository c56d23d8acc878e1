"""The widgets of questions and hints: they press the buttons of the plain calls."""

import html

import ipywidgets as W

from ..widgets import Shown
from . import progress
from .question import CONFIDENCE


class Ask(Shown):
    """A question with nothing selected. The guess is stored when the button is pressed."""

    def __init__(self, question):
        self.question = question
        # buttons, not radio buttons: JupyterLab keeps the arrow keys, which radio buttons need, for itself
        self.choice = W.ToggleButtons(options=[(f"{letter}) {option.text}", letter)
                                               for letter, option in question.letters.items()], index=None,
                                      style={"button_width": "440px"}, layout=W.Layout(width="460px"))
        self.sure = W.ToggleButtons(options=[(text, number) for number, text in CONFIDENCE.items()], index=None,
                                    style={"button_width": "110px"})
        self.button, self.reply = W.Button(description="Keep my guess", layout=W.Layout(width="260px")), W.HTML()
        self.button.on_click(self.keep)
        for part in (self.choice, self.sure):
            part.observe(self.say, "value")
        stored = progress.get("questions", question.id).get("guess")
        self.reply.value = f"Your guess is stored: {stored}." if stored else ""
        super().__init__([W.HTML(f"<b>{html.escape(question.text)}</b>"), self.choice,
                          W.HBox([W.HTML("How sure are you? "), self.sure], layout=W.Layout(align_items="center")),
                          self.button, self.reply])

    def say(self, change=None):
        """Say in words what is chosen: a shade of grey alone is easy to miss."""
        chosen = [self.choice.value, CONFIDENCE.get(self.sure.value)]
        self.button.description = "Keep my guess: " + ", ".join(part for part in chosen if part)

    def keep(self, button=None):
        if self.choice.value is None or self.sure.value is None:
            self.reply.value = "Choose one answer and say how sure you are, then press again."
            return
        self.reply.value = self.question.guess(self.choice.value, self.sure.value)._repr_html_()

    def html(self):
        return self.question._repr_html_() + "<p><i>Run this cell to answer.</i></p>"

    def text(self):
        return repr(self.question)


class Hints(Shown):
    """Hints, one at a time, then the solution. Nothing is shown before the button is pressed."""

    def __init__(self, exercise, answer):
        self.exercise, self.answer, self.shown = exercise, answer, 0
        self.button, self.view = W.Button(description="Next hint"), W.HTML()
        self.button.on_click(self.next)
        super().__init__([self.button, self.view])

    def next(self, button=None):
        count = len(self.exercise.hints)
        self.shown += 1
        card = self.exercise.hint(self.shown) if self.shown <= count else self.exercise.solved(self.answer)
        self.view.value += card._repr_html_()
        if self.shown >= count:
            self.button.description, self.button.disabled = "Solution", self.shown > count

    def html(self):
        return f"<p>{html.escape(self.text())} <i>Run this cell for the button.</i></p>"

    def text(self):
        count = len(self.exercise.hints)
        return f"{count} hints, then the solution; none is shown yet."
