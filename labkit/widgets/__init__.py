"""ipywidgets around the figures; every widget also shows as HTML and as text where no widget can run."""

from .explorer import Explorer, Shown, png, still

__all__ = ["Explorer", "Shown", "png", "still"]
