"""Lesson 10: the search and its wrong answers; cases that are drawn, run, scored; what the real library gives."""
import random
import sys

import pytest
import torch

from labkit import faults
from labkit.contract import LAWS
from labkit.figures.suspects import suspects
from labkit.lesson import exercise_10, lesson_00, mystery, progress
from labkit.lesson import lesson_10 as lesson
from labkit.lesson.exercise_10 import EXERCISE
from labkit.lesson.mystery import NOTHING, Case, Investigation, cases, endless, tie


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", str(tmp_path / "progress.json"))


def by_totals(agrees, n):
    total = 2
    while total <= n:
        for b in range(total - 1, 0, -1):
            if agrees((total - b, b)) is False:
                return (total - b, b)
        total += 1


def all_then_least(agrees, n):
    failing = [[a, b] for a in range(1, n) for b in range(1, n) if a + b <= n and not agrees([a, b])]
    return min(failing, key=sum) if failing else None


@pytest.mark.parametrize("answer", [by_totals, all_then_least, exercise_10.smallest_failure])
def test_right_answers_pass(answer):
    for _ in range(3):                                                          # fresh random cases each time
        assert EXERCISE.check(answer).state == "right"
    found = lesson.prove(answer).lines
    assert found[0].endswith("1, 2]") or found[0].endswith("1, 2)")
    assert any("no cut fails" in line for line in found)


# ---- wrong answers, written as a learner would, not as the lesson's own faulty functions

def decode(agrees, n):
    for a in range(1, n):
        if not agrees([a, 1]):
            return [a, 1]


def halves(agrees, n):
    for k in range(1, n // 2 + 1):
        if not agrees([k, k]):
            return [k, k]
    return None


def nested(agrees, n):
    for a in range(1, n):
        for b in range(1, n - a + 1):
            if not agrees([a, b]):
                return [a, b]


def keeps_going(agrees, n):
    worst = None
    for total in range(2, n + 1):
        for a in range(1, total):
            if not agrees([a, total - a]):
                worst = [a, total - a]
    return worst


def range_to_n(agrees, n):
    for total in range(2, n):
        for a in range(1, total):
            if not agrees([a, total - a]):
                return [a, total - a]
    return None


NAMED = {"cuts of n tokens are not tried": range_to_n, "only chunks of 1 are tried": decode, "only halves are tried": halves,
         "the first piece is looped over before the total": nested, "the last failure is returned": keeps_going}


def test_each_named_wrong_answer_has_a_case():
    assert set(NAMED) == {misstep.name for misstep in EXERCISE.missteps}


@pytest.mark.parametrize("name", NAMED)
def test_wrong_answers_are_called_by_name(name):
    cards = [EXERCISE.check(NAMED[name]) for _ in range(2)]
    assert cards[0].headline == f"smallest_failure: wrong: {name}" and repr(cards[0]) == repr(cards[1])


@pytest.mark.parametrize("key", [max, lambda cut: cut[0] * cut[1], lambda cut: cut[1], lambda cut: cut[0]])
def test_another_order_than_by_tokens_is_wrong(key):
    def answer(agrees, n):
        cuts = [[a, total - a] for total in range(2, n + 1) for a in range(1, total)]
        return min((cut for cut in cuts if not agrees(cut)), key=key, default=None)
    assert all(EXERCISE.check(answer).state == "wrong" for _ in range(2))


def test_the_largest_n_and_texts():
    assert "4 + 5 only" in repr(EXERCISE.check(lambda agrees, n: by_totals(agrees, min(n, 8))))
    words = EXERCISE.check(lambda agrees, n: [*map(str, by_totals(agrees, n) or [])] or None)
    assert "returns a list of str, it should return [a, b] or None" in repr(words)


def test_decode_alone_finds_no_chunk_fault():
    assert lesson.smallest_cut(decode, "dropped-chunk") is None
    assert lesson.smallest_cut(by_totals, "dropped-chunk") == (1, 2)


@pytest.mark.parametrize("answer, says", [
    (lambda agrees, n: [1, 2], "is returned, but"), (lambda agrees, n: None, "None is returned, but a cut of"),
    (lambda agrees, n: 3, "returns an int, it should return [a, b] or None"),
    (lambda agrees, n: agrees([0, 3]), "agrees was asked about [0, 3]"),
    (lambda agrees, n: by_totals(lambda cut: not agrees(cut), n), "is returned, but")])
def test_other_wrong_answers_get_an_honest_counterexample(answer, says):
    card = EXERCISE.check(answer)
    assert card.headline == "smallest_failure: wrong" and says in repr(card) and "a model that is wrong" in repr(card)


def test_stub_and_crash():
    assert repr(EXERCISE.check(lambda agrees, n: NotImplemented)) == "smallest_failure: not tried yet"
    assert lesson.prove(lambda agrees, n: NotImplemented).state == "not tried"
    card = EXERCISE.check(lambda agrees, n: agrees([1, 1])[0])
    assert card.headline == "smallest_failure: crashed: TypeError" and "agrees([1, 1])[0])" in repr(card)
    assert lesson.prove(lambda agrees, n: [].pop()).state == "crashed"


# ---- cases

def solve(case):
    """The suspects that are left after every experiment that is offered, in one's own way: by elimination."""
    left, useful = list(case.suspects), []
    for probe in case.probes():
        outcomes = {name: case.shows(name, *probe).outcome for name in left}
        if len(set(outcomes.values())) > 1 and len(useful) < mystery.MOST:
            seen = case.run(*probe)
            useful.append(probe)
            left = [name for name in left if outcomes[name] == seen.outcome]
    return left, useful


@pytest.mark.parametrize("seed", (0, 1, 6))
def test_every_drawn_case_can_be_solved_within_six_experiments(seed):
    for case in (*cases(seed), tie(seed), endless(seed)):
        left, useful = solve(case)
        assert case._culprit in left and 1 <= len(useful) <= mystery.MOST
        scores = [case.accuse(*left, evidence=mystery.in_words(probe[0], probe[1:])) for probe in useful]
        assert any("Score: 2 of 2" in repr(card) for card in scores), (case, left, [repr(card) for card in scores])
        assert (len(left) == 2) == (case.id == "4" or len(left) > 1)


def test_cases_follow_the_seed_and_hide_their_culprit():
    assert [case._culprit for case in cases(3)] == [case._culprit for case in cases(3)]
    drawn = [cases(seed) for seed in range(30)]
    for _, *rest in drawn:
        assert len({case._culprit for case in rest}) == 2
        assert {case.dtype for case in rest} == {torch.float64, torch.bfloat16}
    first = [one._culprit for one, *_ in drawn]
    assert all(first.count(name) == 6 for name in mystery.GROUPS["chunk"])
    for dtype in (torch.float64, torch.bfloat16):                       # each suspect is guilty in its turn
        second = [case for _, *rest in drawn for case in rest if case.dtype == dtype]
        assert {case._culprit for case in second} == set(second[0].suspects)
    lines = mystery.answers(1).splitlines()
    assert len(lines) == 5 and all(case._culprit in line for case, line in zip((*cases(1), tie(1)), lines))
    ties = [tie(seed) for seed in range(12)]
    assert len({case._culprit for case in ties}) > 5 and len({case.suspects for case in ties}) > 8
    assert len({endless(seed).suspects for seed in range(12)}) == 3
    case = cases(0)[0]
    assert "_culprit" not in repr(case) and all(name in case.lineup() for name in case.suspects)


def test_no_fault_shows_crosses_and_is_noise():
    case = next(case for case in cases(0) if case._culprit == NOTHING)
    assert case.dtype == torch.bfloat16
    seen = [case.run("cut", 4, 8), case.run("cut", 1, 2)]
    assert any("X" in line.split()[0] for one in seen for line in one.lines[1:2])
    assert all("wrong" not in one.outcome for one in seen)
    assert len([name for name, fits in case.agreeing().items() if len(fits) == 2]) > 1      # no cut acquits it alone


def test_only_an_ablation_separates_the_halves():
    case = Case("x", ("conv-half-lost", "recurrent-half-lost"), ("cut", "swap", "pad", "fork", "reset", "zero"))
    same = [probe for probe in case.probes() if len({case.shows(name, *probe).outcome for name in case.suspects}) == 1]
    assert [probe for probe in case.probes() if probe not in same] == [("zero", "conv"), ("zero", "recurrent")]
    assert lesson.halves() == "both fit"


def test_score_needs_name_and_evidence():
    def case():
        return Case("y", ("dropped-chunk", "history-lost", NOTHING), ("cut", "zero"), _culprit="dropped-chunk")
    def verdict(experiments, names, evidence):
        return repr(Investigation(case(), experiments, names, evidence).card)
    assert "Score: 2 of 2" in verdict([("cut", 4, 8)], "dropped-chunk", "cut 4+8")
    assert "Score: 0 of 2" in verdict([("cut", 4, 8)], "history-lost", "cut 4+8")
    assert "Score: 1 of 2" in verdict([("zero", "conv"), ("cut", 4, 8)], "dropped-chunk", "zero recurrent")
    assert "you have not done “zero conv”" in verdict([("cut", 4, 8)], "dropped-chunk", "zero conv")
    assert "would show all the same results" in verdict([("zero", "conv")], "dropped-chunk", "zero conv")
    assert "Score: 2 of 2" in verdict([("cut", 4, 8)], "dropped-chunk", ("cut", 4, 8))
    assert "name an experiment of your list" in verdict([("cut", 4, 8)], "dropped-chunk", "")
    assert "dropped-chunk" not in verdict([("cut", 4, 8)], "history-lost", ("cut", 4, 8))
    assert "is no suspect" in verdict([("cut", 4, 8)], "gremlin", "cut 4+8")
    assert progress.get("exercises", "10.case_y")["tries"] == 8


def test_six_experiments_and_what_is_offered():
    case = cases(0)[0]
    for wrong in (("cut",), ("cut", 0, 4), ("cut", "4+8"), ("pad",), ("pad", "up"), ("zero", "keys"), ("fork", 3)):
        assert "is no experiment" in repr(case.run(*wrong)) and not case.seen
    case = tie(0)
    assert "This case offers: cut, swap, fork, reset" in repr(case.run("zero", "conv"))
    for n in range(2, 8):
        case.run("cut", 1, n)
    assert len(case.seen) == mystery.MOST and "All 6 experiments are used" in repr(case.run("swap"))
    assert case.run("cut", 1, 2).outcome == case.shows(case._culprit, "cut", 1, 2).outcome      # again, at no cost
    for written, right in (("fork", '("fork",)'), ("cut 4 8", '("cut", 4, 8)')):
        assert f"write {right}, with a comma" in repr(Investigation(tie(0), [written]))
    assert len(Investigation(case, [("cut", 1, 2)]).results) == len(case.seen) == 1          # a new list, a new count
    text = Investigation(tie(0), [("cut", 4, 8)])
    assert "no verdict yet" in repr(text) and '<img alt="Left:' in text._repr_html_()


def test_a_prediction_has_the_suspects_own_result_as_its_right_option():
    case = cases(0)[0]
    for name in case.suspects:
        question = case.foretell(name, "cut", 4, 8)
        assert len(question.options) > 1
        assert question.reveal(case.shows(name, "cut", 4, 8).outcome).state == "info"


def test_board_changes_with_what_was_seen():
    experiments = [("cut", "right", {"a": "right", "b": "wrong"})]
    assert suspects(["a", "b"], experiments)[1] == "Left: a. Ruled out: b (cut)."
    assert suspects(["a", "b"], [])[1] == "Left: a, b. Nobody is ruled out yet."
    assert suspects(["a"], [("cut", "odd", {"a": "right"})])[1] == "Left: nobody. Ruled out: a (cut)."


def test_experiments_on_right_layers_show_nothing():
    for name in {name for group in mystery.GROUPS.values() for name in group}:
        case = Case("z", (name, NOTHING), tuple(mystery.OFFERS["chunk"]))
        for probe in case.probes():
            assert case.shows(NOTHING, *probe).outcome in ("right", "right, right", "same", "read", "same map"), probe
        assert any(case.shows(name, *probe).outcome != case.shows(NOTHING, *probe).outcome for probe in case.probes())


# ---- the ending

def test_the_fault_of_lesson_00_gets_its_name_by_running():
    left, _ = solve(lesson.hidden())
    assert left == [lesson_00.HIDDEN]
    assert "no guess" in lesson.first_guess()
    lesson_00.QUESTIONS["hidden"].guess("a", 2)
    assert "there is an error" in lesson.first_guess()


def test_all_laws_are_lit_and_each_has_its_lesson():
    assert set(lesson.LESSON) == set(LAWS)
    lines = [line for line in lesson.laws_lit().splitlines() if not line.startswith(" ")]
    assert len(lines) == len(LAWS) and all(line.startswith("holds") for line in lines)
    assert "silently wrong" in lesson.laws_lit(lambda seed: faults.get("dropped-chunk").subject(seed))
    assert lesson.stranger() == ("rows", "more")


def test_recorded_results_serve_where_transformers_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    lesson.real.cache_clear()
    report, where, scripts = lesson.real()
    lesson.real.cache_clear()
    assert where.endswith("recorded") and report["split"].verdict == "silently wrong"
    assert set(scripts) == {finding.law for finding in report.failed}
    assert "no law “spilt”" in repr(lesson.case_file("spilt", tmp_path))
    card = lesson.case_file("split", tmp_path)
    page = (tmp_path / "case_mamba_split.html").read_text()
    assert "recorded" in repr(card) and "<img alt=" in page and report["split"].counterexample in page
    lesson.real.cache_clear()


def test_the_case_file_fails_on_this_machine(tmp_path):
    pytest.importorskip("transformers", reason="transformers is an extra: the recorded results are tested above")
    import subprocess
    lesson.case_file("split", tmp_path)
    ran = subprocess.run([sys.executable, "case_mamba_split.py"], cwd=tmp_path, capture_output=True, text=True)
    found, scale = map(float, ran.stdout.split("largest error ")[1].split(" of "))
    assert found > 1e-3 * scale > 0
    assert lesson.counterexample() in lesson.CUTS and "nothing to report" in repr(lesson.case_file("causal", tmp_path))


def test_fresh_cases_are_new():
    drawn = [case for _ in range(10) for case in exercise_10.fresh(random.Random())]
    assert {case.n for case in drawn} == set(range(2, 10))
