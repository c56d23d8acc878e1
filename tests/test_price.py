"""The price of a fault: the fault is there, it goes away again, and the numbers, the table and the picture say so."""

import functools
from contextlib import nullcontext

import pytest
import torch
from common import difference, redraw
from test_corpus import told

from labkit import Cache, HybridLM, faults, load
from labkit.corpus import question
from labkit.figures import accuracy_bars, price_chart
from labkit.price import FAULTS, Row, feed_padded, price, table
from labkit.price_page import HEAD, PLACES, page, page_path, silent
from labkit.recall import CUTS, accuracy, feed_pieces
from labkit.train import TRAINED

RECURRENT = ["dropped chunk", "conv half lost", "recurrent half lost", "both halves lost"]
FOUND = {"mamba": RECURRENT + ["padding as text"], "mamba2": RECURRENT + ["padding as text"], "griffin": [*FAULTS],
         "gated-delta": [*FAULTS], "attention": ["stale position", "padding as text"], "hybrid": [*FAULTS]}
MIDDLE = ("behind the fact", "before the question")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", TRAINED)
def test_a_fault_shows_where_it_should_and_goes_away(name):
    """On random weights in float64: wrong logits with the fault at a cut, right bits before, after, and uncut."""
    model = redraw(HybridLM.preset(name, 32, hidden_size=32), 1).double()
    ids = torch.randint(0, 32, (7, 12), generator=torch.Generator().manual_seed(0))
    whole, found = model(ids)[:, -1], []
    for fault, faulty in FAULTS.items():
        with faulty(model) as feed:
            if feed is None:
                continue
            found.append(fault)
            assert difference(feed(model, ids, [5, 7], Cache()), whole) > 1e-3
            blind = [[12]] + [[1] * 12] if fault != "padding as text" else []
            assert all(difference(feed(model, ids, sizes, Cache()), whole) <= 1e-10 for sizes in blind)
        for sizes in ([12], [5, 7], [1] * 12):
            assert difference(feed(model, ids, sizes, Cache()), whole) <= 1e-10, "the fault is still there"
            assert difference(feed_padded(model, ids, sizes, Cache()), whole) <= 1e-10
    assert found == FOUND[name]
    assert not any("forward" in vars(module) for module in model.modules())


def test_an_exception_takes_the_fault_away_too():
    model = HybridLM.preset("hybrid", 32)
    for faulty in FAULTS.values():
        with pytest.raises(KeyboardInterrupt), faulty(model):
            assert any("forward" in vars(layer.mixer) for layer in model.layers)
            raise KeyboardInterrupt
        assert not any("forward" in vars(layer.mixer) for layer in model.layers)


def test_half_a_history_is_half_a_fault():
    """The two halves, and both, are three different faults; each touches what it names."""
    model = redraw(HybridLM.preset("mamba2", 32, hidden_size=32), 1).double()
    ids, seen = torch.arange(12)[None], {}
    for fault in RECURRENT[1:]:
        with FAULTS[fault](model) as feed:
            seen[fault] = feed(model, ids, [5, 7], Cache())
    conv, recurrent, both = seen.values()
    assert min(difference(conv, recurrent), difference(conv, both), difference(recurrent, both)) > 1e-3
    assert difference(both, model(ids[:, 5:])[:, -1]) <= 1e-10          # without any history: a new text


@functools.cache
def prices(name):
    """At 200 held-out questions, cut before the question; a lost window is dear inside the fact that it would read."""
    conv = {fault: step for fault, step in FAULTS.items() if fault == "conv half lost"}
    rest = {fault: step for fault, step in FAULTS.items() if fault not in conv}
    with torch.no_grad():
        return price(name, 200, ["inside the fact"], conv) + price(name, 200, ["before the question"], rest)


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_model_pays_and_recovers(name):
    rows, chance = prices(name), 1 / len(told(question(0).prompt))
    assert sorted(row.fault for row in rows) == sorted(FOUND[name])
    assert all(row.right == row.repaired > 0.6 and row.chance == pytest.approx(chance) for row in rows)
    assert max(row.right - row.faulty for row in rows) > 0.3
    for row, line in zip(rows, table(rows).splitlines()[1:], strict=True):
        assert line.startswith(name) and row.fault in line and row.place in line and f"{row.faulty:.1%}" in line
        assert ("costs little" in line) == (row.right - row.faulty < 0.05)


def test_every_kind_of_fault_is_dear_somewhere():
    rows = [row for name in TRAINED for row in prices(name)]
    for fault in FAULTS:
        assert max(row.right - row.faulty for row in rows if row.fault == fault) > 0.3, fault


def test_one_token_at_a_time_hides_every_fault_of_a_chunk():
    model = load("hybrid")
    rows = price("hybrid", 40, CUTS[-1:], {name: FAULTS[name] for name in [*FAULTS][:-1]}, model)
    whole = accuracy(model, 40)
    assert len(rows) == 5 and all(row.faulty == row.right == whole for row in rows)
    assert table(rows).count("costs little") == 5


def test_the_picture_follows_the_model():
    """The right model in the fault's place: no price to see; the fault: its own number."""
    model = load("hybrid")
    nothing = {"nothing": lambda model: nullcontext(feed_pieces)}
    figure, right = accuracy_bars(price("hybrid", 40, MIDDLE, nothing, model))
    rows = price("hybrid", 40, MIDDLE, {"dropped chunk": FAULTS["dropped chunk"]}, model)
    drawn, faulty = accuracy_bars(rows)
    assert right.startswith("hybrid, nothing: no price to see at any cut") and "no price" not in faulty
    assert f"{min(row.faulty for row in rows):.0%} right instead of {rows[0].right:.0%}" in faulty
    for fig in (figure, drawn):
        assert len([p for p in fig.axes[0].patches if p.get_width() >= 0]) == 6
        assert min(text.get_fontsize() for text in fig.axes[0].texts) >= 9
    widths = [[round(p.get_width(), 6) for p in fig.axes[0].patches] for fig in (figure, drawn)]
    assert widths[0] != widths[1]
    assert widths[1] == [round(100 * v, 6) for row in rows for v in (row.right, row.faulty, row.repaired)]


def test_the_sentence_says_where_it_costs_little():
    rows = [Row("mamba", "x", place, 1.0, faulty, 0.99, 1 / 6)
            for place, faulty in zip(CUTS, (1.0, 0.5, 0.25, 0.97, 0.9))]
    assert accuracy_bars(rows)[1] == ("mamba, x: 25% right instead of 100%, cut behind the fact; chance is 17%. "
                                      "Repaired: 99%. It costs little in one piece or when cut before the question.")
    assert accuracy_bars(rows[1:3])[1].endswith("It costs much at every cut.")
    assert "whole" in table(rows) and table(rows).count("costs little") == 2


@pytest.mark.parametrize("name, fault", [("mamba2", "history-lost"), ("attention", "any family: stale position"),
                                         ("griffin", "lengths-not-tokens"), ("mamba", "window-not-saved")])
def test_the_page_of_prices_is_what_is_measured(name, fault):
    rows = price(name, 200, PLACES, {fault: silent()[fault]})
    line = page(rows, 200).splitlines()[len(HEAD.splitlines()) + 2]
    assert line.startswith(f"| {fault} | {name} |") and line in page_path().read_text(encoding="utf-8")


def test_every_silent_fault_has_a_price_or_a_reason():
    text = page_path().read_text(encoding="utf-8")
    quiet = [name for name in faults.names() if not faults.get(name).record.loud]
    assert all(f"\n| {name} |" in text or f"\n- {name}: " in text for name in quiet)
    assert {incident: max(float(row[4]) - float(row[5]) for row in found) > 30 for incident, found in lost(text).items()} == {
        incident: True for incident in ("empty-cache", "cache-position", "dropped-chunk", "different-depths",
                                        "padding-continued", "expected-cpu")}


def lost(text):
    """incident -> rows of the page."""
    found = {}
    for row in (line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "|---" not in line):
        name = row[0].removeprefix("| ")
        if name in faults.names():
            found.setdefault(faults.get(name).record.incident, []).append(["", *row])
    return found


def test_the_chart_follows_the_rows():
    rows = [Row("mamba", "x", "whole", 1.0, 0.4, 1.0, 0.25), Row("hybrid", "y", "whole", 1.0, 0.99, 1.0, 0.25)]
    figure, sentence = price_chart(rows)
    assert sentence == "1 of 2 faults cost 30 points or more on some model, x the most (60); 1 cost little on every model: y."
    assert price_chart(rows[1:])[1] == "None of 1 faults costs 30 points on any model."
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["y", "x"]
