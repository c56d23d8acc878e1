"""Explorer: sliders above one picture and its sentence.

One HTML view with an <img alt> is quick, keeps its height while it is redrawn, and is read by screen readers. Where no
kernel runs (a notebook that was only opened, an HTML export), the same HTML stands in for the widget.
"""

import base64
import html
import io
import weakref

import ipywidgets as W
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

_backgrounds = weakref.WeakKeyDictionary()      # Figure -> its picture without the animated artists


class Shown(W.VBox):
    """A widget with stand-ins, `html()` and `text()`, for readers without widgets: an export, an unrun notebook."""

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/html": self.html(), "text/plain": self.text()}, metadata


def png(figure):
    """The figure as PNG bytes. Artists marked animated are drawn over a background that is drawn once and kept.

    One draw is enough: `savefig` would draw a figure twice, the first time for its layout alone.
    """
    moving = sorted((artist for ax in figure.axes for artist in (*ax.patches, *ax.collections, *ax.texts)
                     if artist.get_animated()), key=lambda artist: artist.get_zorder())   # `findobj` would make ticks
    if not moving or figure not in _backgrounds:
        FigureCanvasAgg(figure).draw()                      # it becomes figure.canvas
    if moving:
        if figure not in _backgrounds:
            _backgrounds[figure] = figure.canvas.copy_from_bbox(figure.bbox)
        figure.canvas.restore_region(_backgrounds[figure])
        for artist in moving:
            artist.draw(figure.canvas.get_renderer())
    file = io.BytesIO()
    Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB").save(file, format="png", compress_level=1)
    return file.getvalue()


def picture(figure, sentence):
    """HTML: the figure as an image with the sentence as alternative text, and the sentence under it."""
    return (f'<img alt="{html.escape(sentence)}" style="max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(png(figure)).decode()}">'
            f'<p aria-hidden="true" style="margin:.3em 0;line-height:1.4">{html.escape(sentence)}</p>')


class Still:
    """A figure and its sentence as one cell output."""

    def __init__(self, figure, sentence):
        self.figure, self.sentence = figure, sentence

    def __repr__(self):
        return self.sentence

    def _repr_html_(self):
        return picture(self.figure, self.sentence)


def still(drawn):
    """Show what a figure function returned: `still(error_sizes(faulty))`."""
    return Still(*drawn)


class Explorer(Shown):
    """Sliders that redraw one figure.

    Args:
        draw: called with the sliders' values by name; returns (Figure, sentence). Keep and update the Figure.
        sliders: name=(label, lowest, highest, first value), whole numbers.

    Each slider has a number field beside it: a slider handle has no name that a screen reader could read, a field has.
    An error raised by `draw` is shown in place of the picture. `explorer.sliders["kernel"].value = 3` works as well.
    """

    def __init__(self, draw, **sliders):
        self.draw, self.sliders, rows = draw, {}, []
        self.view = W.HTML(layout=W.Layout(min_height="330px"))
        for name, (text, low, high, value) in sliders.items():
            slider = W.IntSlider(value, low, high, readout=False, layout=W.Layout(width="300px"))
            field = W.BoundedIntText(value, low, high, description=text, style={"description_width": "170px"},
                                     layout=W.Layout(width="240px"))
            W.link((slider, "value"), (field, "value"))
            slider.observe(self.update, "value")
            self.sliders[name] = slider
            rows.append(W.HBox([field, slider]))
        self.update()
        super().__init__([*rows, self.view])

    def update(self, change=None):
        """Draw again with the sliders' present values."""
        try:
            figure, self.sentence = self.draw(**{name: slider.value for name, slider in self.sliders.items()})
            self.view.value = picture(figure, self.sentence)
        except Exception as error:      # an error in a widget's callback is invisible: show it where the learner looks
            self.sentence = f"No picture: {type(error).__name__}: {error}"
            self.view.value = f'<p role="alert"><b>{html.escape(self.sentence)}</b></p>'

    def html(self):
        return self.view.value + "<p><i>Run this cell to move the sliders.</i></p>"

    def text(self):
        return self.sentence
