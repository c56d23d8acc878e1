"""What every lesson shares: questions, exercises, checks, hints, progress. A lesson supplies only its data.

Everything works by plain call (`question.guess("b", 2)`, `exercise.hint(1)`); the widgets only press these buttons.
"""

from . import progress
from .exercise import Attempt, Exercise, Misstep
from .question import Option, Question, claim

__all__ = ["Attempt", "Exercise", "Misstep", "Option", "Question", "claim", "progress"]
