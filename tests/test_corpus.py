"""The lab's texts and tokenizer: answers stand in the text, held-out facts stay out of training, bytes come back."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.corpus import COLOURS, NAMES, THINGS, VERBS, Fact, question, same_name, training_text
from labkit.files import data_folder
from labkit.recall import CUTS, cut_sizes
from labkit.tokenizer import VOCAB_SIZE, tokenizer, train_tokenizer

TOLD = re.compile(r"(\w+) (\w+)s a (\w+) (\w+)\.")
ASKED = re.compile(r"What does (\w+) (\w+)\? A (\w+) (\w+)\.")


def told(text):
    """Every fact that the text tells, in its order."""
    return [Fact(*found) for found in TOLD.findall(text) if found[0] in NAMES]


@pytest.fixture(scope="module")
def training():
    """2000 training texts in their parts."""
    rng = random.Random(7)
    return [training_text(rng, rng.randint(2, 7)) for _ in range(2000)]


def test_held_out_combinations_are_never_trained_on(training):
    seen = [fact for parts in training for fact in told("".join(part for part, _ in parts))]
    assert len(seen) > 8000 and not any(fact.held_out for fact in seen)
    assert {fact.name for fact in seen} == set(NAMES) and {fact.verb for fact in seen} == set(VERBS)
    everything = [Fact(n, "keep", c, t) for n in NAMES for c in COLOURS for t in THINGS]
    assert 0.08 < sum(fact.held_out for fact in everything) / len(everything) < 0.12
    assert all(fact.held_out for seed in range(200) for fact in told(question(seed).prompt))


def test_what_training_asks_for_was_told_before(training):
    asked = 0
    for parts in training:
        text = ""
        for (part, follows), (last, _) in zip(parts, [("", False), *parts]):
            if follows:
                name, verb, colour, thing = ASKED.fullmatch((last + part).strip()).groups()
                assert f"{name} {verb}s a {colour} {thing}." in text
                asked += 1
            text += part
    assert asked > 8000


@pytest.mark.parametrize("facts, fillers, turns", [(6, 2, 0), (2, 0, 0), (1, 3, 0), (6, 2, 3), (4, 1, 9)])
def test_the_answer_stands_in_the_text_and_nowhere_else(facts, fillers, turns):
    for seed in range(100):
        example = question(seed, facts, fillers, turns)
        assert example == question(seed, facts, fillers, turns), "a text is a function of its seed"
        prompt, fact = example.prompt, example.fact
        assert prompt[example.start:example.end] == fact.sentence and prompt.endswith(" " + fact.question)
        assert told(prompt).count(fact) == 1 and prompt.count(f"{fact.name} ") == 2
        assert sorted(map(str, told(prompt))) == sorted(map(str, (fact, *example.others)))
        assert example.answer == f" A {fact.colour} {fact.thing}." and example.chance == 1 / facts
        between = [Fact(*found) for found in ASKED.findall(prompt)]             # earlier turns ask about others
        assert len(between) == min(turns, facts - 1) and set(between) <= set(example.others)


def test_cuts_stand_where_they_say():
    for seed in range(100):
        example = question(seed)
        ids = tokenizer().encode(example.prompt).ids
        for place in CUTS:
            sizes = cut_sizes(example, place)
            assert sum(sizes) == len(ids) and min(sizes) > 0
            column = len(tokenizer().decode(ids[:sizes[0]]))
            if place == "inside the fact":
                assert example.start < column < example.end
            elif place == "behind the fact":
                assert column == example.end
            elif place == "before the question":
                assert example.prompt[column:] == " " + example.fact.question
        assert len(cut_sizes(example, "whole")) == 1 and set(cut_sizes(example, "one by one")) == {1}


def test_two_conversations_say_different_things_about_the_same_people():
    for seed in range(100):
        one, two = same_name(seed)
        assert one.fact.question == two.fact.question and one.answer != two.answer
        for example in (one, two):
            assert example.prompt[example.start:example.end] == example.fact.sentence
            assert example.prompt.endswith(example.fact.question)
            assert set(told(example.prompt)) == {example.fact, *example.others}
        assert {f.name for f in told(one.prompt)} == {f.name for f in told(two.prompt)}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text())
def test_the_tokenizer_loses_nothing(text):
    ids = tokenizer().encode(text).ids
    assert tokenizer().decode(ids) == text and all(0 <= token < VOCAB_SIZE for token in ids)


def test_a_space_at_the_end_is_one_more_token():
    short, long = (tokenizer().encode(text).ids for text in ("I have a dream", "I have a dream "))
    assert long[:-1] == short and len(long) == len(short) + 1
    assert tokenizer().encode("I have a dream.").ids[:len(short)] == short      # the space would stand in the way


def test_decoding_and_encoding_again_can_join_tokens():
    dream, er = (tokenizer().encode(text).ids for text in (" dream", "er"))
    assert len(dream) == len(er) == 1
    again = tokenizer().encode(tokenizer().decode(dream + er)).ids
    assert len(again) == 1 and again != dream
    text = tokenizer().encode("I have a dream").ids                             # a cache may hold these tokens
    longer = tokenizer().encode(tokenizer().decode(text + er)).ids              # the same text, another last token
    assert tokenizer().decode(longer) == "I have a dreamer" and longer[:len(text)] != text


def test_training_the_tokenizer_again_gives_the_same_file(tmp_path):
    train_tokenizer(tmp_path / "tokenizer.json")
    assert (tmp_path / "tokenizer.json").read_bytes() == (data_folder() / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("paints", [1, 2])
def test_alike_facts_share_the_verb_and_few_colours(paints):
    rng = random.Random(3)
    texts = [told("".join(part for part, _ in training_text(rng, 5, alike=0.5, colours=paints))) for _ in range(400)]
    verbs = [len({fact.verb for fact in facts}) for facts in texts]
    colours = [len({fact.colour for fact in facts}) for facts in texts]
    assert all(len(facts) == 5 for facts in texts)
    assert 150 < verbs.count(1) < 250 and max(verbs) == 5
    assert 150 < sum(count <= paints for count in colours) < 250 and max(colours) == 5
