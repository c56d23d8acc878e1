"""The lab's own texts: facts about people, and questions about them later.

    Ada keeps a red kite. The rain falls. Ben sells a blue drum. What does Ada keep? A red kite.

Names, verbs, colours and things combine freely, so the answer stands in the text and nowhere else; one combination
in ten never comes up in training. Texts are a function of a seed.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jill", "Kim", "Leo", "Mia", "Ned", "Olga",
         "Pia", "Quin", "Rosa", "Sam", "Tess", "Uma", "Vik", "Wes", "Zoe")
VERBS = ("keep", "sell", "find", "want", "paint", "hide")
COLOURS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey", "gold", "pale", "dark", "bright")
THINGS = ("kite", "drum", "lamp", "boat", "coat", "clock", "book", "cup", "hat", "key", "ring", "chair", "bell", "box",
          "map", "cart", "flag", "shell", "stone", "basket", "ladder", "mirror", "button", "bottle")
FILLERS = ("The rain falls.", "It is late.", "The sun is up.", "I have a dream.", "The dreamer sleeps.",
           "A bird sings.", "We walk home.", "The door is open.")
CHANCE = 1 / (len(COLOURS) * len(THINGS))       # a guess that knows the vocabulary but not the text


@dataclass(frozen=True)
class Fact:
    """Somebody does something with one thing."""

    name: str
    verb: str
    colour: str
    thing: str

    @property
    def sentence(self) -> str:
        return f"{self.name} {self.verb}s a {self.colour} {self.thing}."

    @property
    def question(self) -> str:
        return f"What does {self.name} {self.verb}?"

    @property
    def answer(self) -> str:
        return f" A {self.colour} {self.thing}."

    @property
    def held_out(self) -> bool:
        """True for the one combination in ten that training never shows."""
        return zlib.crc32(f"{self.name} {self.colour} {self.thing}".encode()) % 10 == 0


@dataclass(frozen=True)
class Example:
    """A text that ends with a question, and its answer.

    Attributes:
        prompt: the text; the answer is to follow.
        fact: what is asked for.
        start, end: where the fact's sentence stands in the prompt, in characters.
        others: the facts of the same text about other names.
    """

    prompt: str
    fact: Fact
    start: int
    end: int
    others: tuple[Fact, ...]

    @property
    def answer(self) -> str:
        return self.fact.answer

    @property
    def chance(self) -> float:
        """A guess among the things of the text."""
        return 1 / (1 + len(self.others))


def draw_facts(rng: random.Random, n: int, held_out: bool | None = None, verbs: Sequence[str] = VERBS,
               colours: Sequence[str] = COLOURS) -> list[Fact]:
    """n facts about different names; held_out: only combinations that training never shows, or only others."""
    facts = []
    for name in rng.sample(NAMES, n):
        while True:
            fact = Fact(name, rng.choice(verbs), rng.choice(colours), rng.choice(THINGS))
            if held_out is None or fact.held_out == held_out:
                facts.append(fact)
                break
    return facts


def question(seed: int, facts: int = 4, fillers: int = 2, turns: int = 0, held_out: bool = True) -> Example:
    """One text with a question at its end.

    Args:
        seed: chooses everything.
        facts: how many people.
        fillers: sentences without a fact, anywhere in between.
        turns: questions about others, with their answers, that come before the question.
        held_out: ask for a combination that training never shows.

    Example:
        >>> question(3, facts=2, fillers=0).prompt
        'Hana hides a green cup. Sam finds a blue lamp. What does Hana hide?'
    """
    rng = random.Random(seed)
    drawn = draw_facts(rng, facts, held_out)
    asked, others = drawn[0], drawn[1:]
    sentences: list = drawn + [rng.choice(FILLERS) for _ in range(fillers)]
    rng.shuffle(sentences)
    text, start, end = "", 0, 0
    for sentence in sentences:
        text += " " if text else ""
        if sentence is asked:
            start, end = len(text), len(text) + len(asked.sentence)
        text += sentence if isinstance(sentence, str) else sentence.sentence
    for other in rng.sample(others, min(turns, len(others))):
        text += f" {other.question}{other.answer}"
    return Example(f"{text} {asked.question}", asked, start, end, tuple(others))


def same_name(seed: int, facts: int = 4) -> tuple[Example, Example]:
    """Two conversations that say different things about the same people and ask the same question."""
    rng = random.Random(seed)
    while True:
        one = question(rng.randrange(2 ** 32), facts)
        if len({(fact.colour, fact.thing) for fact in (one.fact, *one.others)}) == facts:
            break
    swap = {fact: Fact(fact.name, fact.verb, other.colour, other.thing)
            for fact, other in zip((one.fact, *one.others), (*one.others, one.fact))}
    prompt = one.prompt
    for old, new in swap.items():
        prompt = prompt.replace(old.sentence, new.sentence)
    start = prompt.index(swap[one.fact].sentence)
    two = Example(prompt, swap[one.fact], start, start + len(swap[one.fact].sentence),
                  tuple(swap[fact] for fact in one.others))
    return one, two


def training_text(rng: random.Random, facts: int, again: float = 0.0, alike: float = 0.0, colours: int = 1
                  ) -> list[tuple[str, bool]]:
    """A text for training in parts, and which parts follow from what stands before.

    Every fact is told once, and asked in any order, mostly after all are told, else in turns.

    Args:
        rng: chooses everything.
        facts: how many people.
        again: chance that a fact that was asked may be asked once more. At 0 each is asked once, and the last answers
            can be found by what is left over.
        alike: chance that all do the same, and chance that their things have only so many `colours`. Where verbs and
            colours differ, a model can find a fact by its verb and a thing by its colour, and never learns to look at
            the name.
    """
    verbs = rng.sample(VERBS, 1) if alike and rng.random() < alike else VERBS
    paints = rng.sample(COLOURS, colours) if alike and rng.random() < alike else COLOURS
    told, parts, left, asked = [], [], draw_facts(rng, facts, False, verbs, paints), 0
    early = rng.choice((0.0, 0.0, 0.0, 0.3))               # with few facts open, a guess at the newest one pays too well
    while left or told and asked < facts + 2:
        if left and (not told or rng.random() >= early):
            told.append(left.pop())
            parts.append((f" {told[-1].sentence}", False))
        else:
            place = rng.randrange(len(told))
            fact, asked = told[place], asked + 1
            if not again or rng.random() >= again:
                del told[place]
            parts += [(f" {fact.question}", False), (fact.answer, True)]
        if rng.random() < 0.2:
            parts.append((f" {rng.choice(FILLERS)}", False))
    return [(parts[0][0].lstrip(), False), *parts[1:]]


def tokenizer_texts(n: int = 4000, seed: int = 0) -> Iterator[str]:
    """What the tokenizer is trained on."""
    rng = random.Random(seed)
    for _ in range(n):
        yield "".join(part for part, _ in training_text(rng, rng.randint(2, 6)))
