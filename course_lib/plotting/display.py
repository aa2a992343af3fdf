"""Put a figure on the page, with its alt text, and with controls where someone can use them.

The figures are made without pyplot, so nothing is drawn twice and no global state is left behind.
"""

import base64
import html
import io
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from course_lib.checks.observe.front_end import someone_answers

# A first import on a new machine would otherwise report on stderr that it builds its font cache.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

from matplotlib.figure import Figure  # noqa: E402

DPI = 110
INTERACTIVE_VARIABLE = "COURSE_INTERACTIVE"


class Plot(NamedTuple):
    """A finished figure and the words that stand for it."""

    figure: Figure
    alt: str


def new_figure(width: float, height: float) -> Figure:
    """A white figure of `width` x `height` inches whose parts keep out of each other's way."""
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained")


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes (no version, no date inside)."""
    if figure.get_layout_engine() is not None:  # it would shift the parts a little at each drawing
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def figure_html(figure: Figure, alt: str, caption: str | None = None) -> str:
    """`<figure>` with the PNG inlined, `alt` escaped, and an optional caption."""
    return _html(png_bytes(figure), figure, alt, caption)


def _html(png: bytes, figure: Figure, alt: str, caption: str | None) -> str:
    source = base64.b64encode(png).decode("ascii")
    width = round(figure.get_figwidth() * DPI)
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure style="margin:0.5em 0"><img alt="{html.escape(alt, quote=True)}" width="{width}" '
        f'style="max-width:100%;height:auto" src="data:image/png;base64,{source}">{words}</figure>'
    )


def show(figure: Figure | Plot, alt: str | None = None, *, caption: str | None = None) -> None:
    """Display a figure as one output: HTML with alt text, PNG, and the alt text as plain text.

    Args:
        figure: a `Plot`, or a figure together with `alt`.
        alt: what there is to see, in words; required for a bare figure.
        caption: a line to print beneath the figure.

    Raises:
        ValueError: if there is no alt text.
    """
    if isinstance(figure, Plot):
        figure, alt = figure.figure, alt or figure.alt
    if not alt or not alt.strip():
        raise ValueError("`alt` must say what the figure shows; got nothing")
    shell = _shell()
    if shell is None:
        print(alt)
        return
    from IPython.display import display

    png = png_bytes(figure)
    bundle = {
        "text/html": _html(png, figure, alt, caption),
        "image/png": base64.b64encode(png).decode("ascii"),
        "text/plain": alt,
    }
    display(bundle, raw=True)


def interactive(
    draw: Callable[..., Plot],
    *,
    start: Mapping[str, Any] | None = None,
    **controls: Sequence[Any],
) -> None:
    """Show `draw(**values)` with one control per keyword; without a front end, its static form.

    Args:
        draw: a pure function from the controls' values to a `Plot`.
        start: the values of the static form; a control not named starts at its first option.
        controls: the options of each argument, in order: numbers become a slider, other things
            a drop-down list.

    Raises:
        ValueError: if a control has no options, or `start` is not among them.
    """
    values = {
        name: (start or {}).get(name, next(iter(options), None))
        for name, options in controls.items()
    }
    for name, options in controls.items():
        if values[name] not in list(options):
            raise ValueError(f"`{name}` must start at one of {list(options)}; got {values[name]!r}")
    if not _has_front_end():
        show(draw(**values), caption=_static_caption(controls, values))
        return
    _show_widgets(draw, controls, values)


def _static_caption(controls: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> str:
    at = ", ".join(f"{name} = {values[name]}" for name in controls)
    return f"Drawn at {at}. Run the cell in JupyterLab to change it."


def _show_widgets(
    draw: Callable[..., Plot], controls: Mapping[str, Sequence[Any]], values: dict[str, Any]
) -> None:
    import ipywidgets
    from IPython.display import display

    picture = ipywidgets.HTML(figure_html(*draw(**values)))
    widgets = {
        name: _control(ipywidgets, name, list(options), values[name])
        for name, options in controls.items()
    }

    def redraw(_change: Any) -> None:
        now = {name: widget.value for name, widget in widgets.items()}
        picture.value = figure_html(*draw(**now))

    for widget in widgets.values():
        widget.observe(redraw, names="value")
    display(ipywidgets.VBox([*widgets.values(), picture]))


def _control(ipywidgets: Any, name: str, options: list[Any], value: Any) -> Any:
    numeric = all(
        isinstance(option, int | float) and not isinstance(option, bool) for option in options
    )
    kind = ipywidgets.SelectionSlider if numeric else ipywidgets.Dropdown
    pairs = [(f"{option:g}" if numeric else str(option), option) for option in options]
    return kind(options=pairs, value=value, description=name.replace("_", " "))


def _shell() -> Any:
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def _has_front_end() -> bool:
    """Whether someone is there to move a slider; COURSE_INTERACTIVE=0 or 1 overrules it."""
    wanted = os.environ.get(INTERACTIVE_VARIABLE)
    if wanted in {"0", "1"}:
        return wanted == "1"
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return False
    return someone_answers(_shell())
