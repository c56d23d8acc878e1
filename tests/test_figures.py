"""Figures show what they are given: each is also fed the right model, and its sentence must then change."""
import gc
import io
import re
import weakref

import pytest
import torch
from common import text_sizes, written
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.transforms import Affine2D
from PIL import Image, ImageChops

from labkit.conv import causal_conv
from labkit.figures import ConvWindow, Panel, conv_window, error_sizes, influence, position_line, who_wrote
from labkit.figures.boxes import key, letters
from labkit.figures.conv_window import KINDS, cut, kinds, label, positions, say_cut, trace
from labkit.figures.error_sizes import measure
from labkit.lesson import exercise_01
from labkit.lesson import lesson_01 as lesson
from labkit.lesson.lesson_03 import SLICES
from labkit.lesson.lesson_04 import RIGHT
from labkit.widgets import Explorer, png, still


def plain_trace(kernel, sizes, forget):
    """Which input each tap reads, counted by loops: t+1 for token t, -1, -2, ... before the text, 0 for nothing."""
    start = [sum(sizes[:i]) for i, size in enumerate(sizes) for _ in range(size)]
    rows = []
    for k in range(kernel):
        reads = []
        for t in range(sum(sizes)):
            s = t - (kernel - 1) + k
            reads.append(0 if forget and s < start[t] else s + 1 if s >= 0 else s)
        rows.append(reads)
    return rows


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [(12,), (6, 6), (1,) * 6, (2, 0, 3), (5, 1, 1)])
def test_trace_equals_counting_by_loops(kernel, sizes):
    assert trace(causal_conv, kernel, sizes).tolist() == plain_trace(kernel, sizes, forget=False)
    assert trace(lesson.zeros_for_the_past, kernel, sizes).tolist() == plain_trace(kernel, sizes, forget=True)


def test_kinds_of_cells():
    right = kinds(trace(causal_conv, 3, (2, 3)), 3, (2, 3))
    assert right == [["padding", "padding", "cache", "cache", "chunk"],
                     ["padding", "chunk", "cache", "chunk", "chunk"], ["chunk"] * 5]
    faulty = kinds(trace(lesson.zeros_for_the_past, 3, (2, 3)), 3, (2, 3))
    assert faulty == [[{"cache": "missing"}.get(kind, kind) for kind in row] for row in right]
    assert kinds(trace(exercise_01.flipped, 2, (3,)), 2, (3,)) == [["wrong"] * 3, ["wrong"] * 3]


def test_kinds_differ_in_colour_and_in_hatch():
    _, colours, hatches = zip(*KINDS.values())
    assert len(set(colours)) == len(set(hatches)) == len(KINDS)


def test_sentence_of_the_window_changes_with_the_model():
    _, faulty = conv_window(lesson.zeros_for_the_past)
    _, right = conv_window(causal_conv)
    assert "Past filled with zeros: positions 6, 7, 8 are wrong" in faulty and "nothing, nothing, 6, 7" in faulty
    assert "Past filled with zeros: no position is wrong" in right and "nothing" not in right


def test_sentence_follows_every_argument():
    draw = ConvWindow(lesson.zeros_for_the_past)
    sentences = {draw(kernel, chunk, position)[1] for kernel in (1, 4) for chunk in (1, 6, 11) for position in (0, 7)}
    assert len(sentences) == 12
    assert "1 to 11 are wrong" in draw(4, 1, 7)[1] and "12 pieces of 1 token" in draw(4, 1, 7)[1]


def test_error_sizes_change_with_the_model():
    _, faulty = error_sizes(lesson.zeros_for_the_past)
    _, right = error_sizes(causal_conv)
    assert re.search(r"more than 1e[5-8] times", faulty) and faulty.endswith("the faulty cut does not.")
    assert "no fault to see" in right and right.endswith("the faulty cut does too.")


def test_error_sizes_are_measured():
    errors = list(measure(lesson.zeros_for_the_past).values())
    assert 1e-9 < errors[0] < 1e-6 and 1e-4 < errors[1] < 2e-2 and errors[3] > 0.1


def ring(right, slots=4):
    """Two panels of a ring: token t in slot t % 4 where it is right, in the last slot once it is full where not."""
    def rows(place):
        held, seen = [None] * slots, []
        for t in range(7):
            held[place(t)] = f"t{t}"
            seen.append(list(held))
        return seen
    names, times = [f"slot {s}" for s in range(slots)], [f"token {t}" for t in range(7)]
    return [Panel("right", names, times, rows(lambda t: t % slots)),
            Panel("watched", names, times, rows((lambda t: t % slots) if right else lambda t: min(t, slots - 1)))]


def test_who_wrote_says_what_differs():
    _, faulty = who_wrote(ring(False))
    _, right = who_wrote(ring(True))
    assert right == "Right: no wrong slot. Watched: no wrong slot."
    assert faulty == ("Right: no wrong slot. Watched: 9 wrong slots from “token 4” on (slot 0, slot 1, slot 2, "
                      "slot 3), written by t0, t4, t1, t5, t2, t6.")


def test_who_wrote_takes_marks_words_and_any_sizes():
    panels = [Panel("a", ["x", ""], ["now"], [["p", None]]), Panel("b", [""] * 30, ["now"], [["p"] * 30])]
    figure, said = who_wrote(panels, {(0, 0, 0), (0, 0, 1), (1, 0, 29)}, {"p": "padding"})
    assert said == ("A: 2 wrong slots at “now” (x, slot 2), written by padding, some by nobody. "
                    "B: 1 wrong slot at “now” (slot 30), written by padding.")
    assert [text for text, _ in written(figure) if text.strip(", ")] == [
        "p, –", "x, ", "now", "a", ", ".join("p" * 29), "p", "now", "b", "p = padding", "wrong slot"]
    assert who_wrote(panels)[1] == "A: no wrong slot. B: no wrong slot."            # other shapes are not compared
    with pytest.raises(ValueError, match="2 slots, but its rows of writers have .1. entries"):
        Panel("c", ["x", "y"], ["now"], [["p"]])


@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_letters_stand_where_matplotlib_would_put_them(weight):
    items = [(0, 0, "A"), (1, 0, "–"), (2, 0, "C+pad"), (3, 0, "h"), (0, 1, "12"), (2, 1, "t0"), (3, 1, "C+")]
    grid = Affine2D().scale(.9, -.6).translate(.5, 1)
    drawn, wanted = Figure((3.8, 1.4), dpi=100), Figure((3.8, 1.4), dpi=100)
    drawn.add_artist(letters(items, grid, weight, transform=drawn.dpi_scale_trans))
    for x, y, text in items:
        wanted.text(x, y, text, transform=grid + wanted.dpi_scale_trans, ha="center", va="center", fontsize=9.5,
                    fontweight=weight)
    found, known = (ImageChops.invert(Image.open(io.BytesIO(png(figure))).convert("L")) for figure in (drawn, wanted))
    for x, y, text in items:
        middle = grid.transform((x, y)) * 100
        cell = [round(float(v)) for v in (middle[0] - 40, 140 - middle[1] - 25, middle[0] + 40, 140 - middle[1] + 25)]
        there, ink = found.crop(cell), known.crop(cell)
        inside = there.point(lambda v: 255 * (v > 90)).getbbox(), ink.point(lambda v: 255 * (v > 90)).getbbox()
        assert None not in inside and max(abs(a - b) for a, b in zip(*inside)) <= 2, (text, inside)


@pytest.mark.parametrize("drawn", [
    conv_window(lesson.zeros_for_the_past, 4, 1, 3), error_sizes(lesson.zeros_for_the_past), who_wrote(ring(False)),
    position_line(SLICES, 6, 6), influence([("uncut", RIGHT, (5,)), ("right", RIGHT, (2, 3))])],
    ids=["conv_window", "error_sizes", "who_wrote", "position_line", "influence"])
def test_no_text_is_smaller_than_nine_points(drawn):
    sizes = text_sizes(drawn[0])
    assert len(sizes) > 10 and min(sizes) >= 9


def test_a_key_takes_as_many_rows_as_it_needs():
    for count, rows in ((1, 1), (4, 1), (9, 2)):
        figure = Figure((9.6, 2), dpi=100)
        key(figure, [("eighteen letters..", {"fc": "white"})] * count)
        places = [patch.get_path().get_extents() for patch in figure.findobj(PathPatch)]
        assert len(places) == 2 * count and len({round(box.y0, 3) for box in places[::2]}) == rows
        assert min(box.x0 for box in places) > 0 and max(box.x1 for box in places) < 9.6
        for box, text in zip(places[::2], places[1::2]):
            assert box.x1 < text.x0


def test_quick_drawing_equals_slow_drawing():
    draw = ConvWindow(lesson.zeros_for_the_past)
    for values in ((4, 6, 7), (2, 1, 0), (4, 5, 11)):
        figure, _ = draw(*values)
        slow = io.BytesIO()
        figure.savefig(slow, format="png")
        quick, slow = Image.open(io.BytesIO(png(figure))).convert("RGB"), Image.open(slow).convert("RGB")
        assert quick.size == slow.size and ImageChops.difference(quick, slow).getbbox() is None


def test_explorer_without_a_browser():
    explorer = lesson.explorer()
    first = explorer.view.value
    explorer.sliders["chunk"].value = 1
    assert explorer.view.value != first and "1 to 11 are wrong" in explorer.text() and 'alt="4 taps' in explorer.html()
    field = explorer.children[0].children[0]
    assert field.description == "kernel width K"
    field.value = 2                                                             # the field moves the slider
    assert explorer.sliders["kernel"].value == 2 and explorer.text().startswith("2 taps")


def test_explorer_shows_an_error_in_place_and_recovers():
    def draw(n):
        if n == 2:
            raise ValueError("two is <too> much")
        return conv_window(causal_conv, position=n)
    explorer = Explorer(draw, n=("n", 1, 3, 1))
    explorer.sliders["n"].value = 2
    assert "two is &lt;too&gt; much" in explorer.view.value and 'role="alert"' in explorer.view.value
    explorer.sliders["n"].value = 3
    assert "<img" in explorer.view.value


def test_widgets_also_show_as_html_and_text():
    data, _ = lesson.explorer()._repr_mimebundle_()
    assert data["text/plain"].startswith("4 taps, 6 + 6 tokens.") and "<img alt=" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data
    shown = still(conv_window(causal_conv))
    assert repr(shown) in shown._repr_html_()


def test_alternative_text_is_escaped():
    figure, _ = conv_window(causal_conv)
    assert 'alt="a &quot;b&quot; &lt;c&gt;"' in still((figure, 'a "b" <c>'))._repr_html_()


def test_trace_refuses_other_lengths():
    with pytest.raises(ValueError, match="a piece of 2 tokens gave outputs of shape"):
        trace(lambda x, window, weight: (torch.cat([window, x], -1), window), 3, (2, 2))


def test_words():
    assert [positions(p) for p in ([], [6], [6, 7], [6, 7, 8, 9], [1, 3, 5, 7])] == [
        "no position", "position 6", "positions 6, 7", "positions 6 to 9", "positions 1, 3, 5, 7"]
    assert [say_cut(c) for c in ((1,), (12,), (6, 0, 1), (1,) * 12)] == [
        "1 token uncut", "12 tokens uncut", "6 + 0 + 1 tokens", "12 pieces of 1 token"]
    assert cut(12, 5) == (5, 5, 2) and [label(n) for n in (4, 0, -2)] == ["3", "nothing", "0"]


def test_a_picture_does_not_keep_its_figure():
    """A slider draws a new figure each time; a figure that stayed would take megabytes for each step."""
    for draw in (lambda: who_wrote(ring(False)), lambda: conv_window(lesson.zeros_for_the_past, 4, 1, 3)):
        figure, _ = draw()
        assert png(figure) == png(figure)
        gone = weakref.ref(figure)
        del figure
        gc.collect()
        assert gone() is None
