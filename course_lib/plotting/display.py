"""Display a figure with its alt text, and with controls if it depends on arguments.

The figures do not use pyplot, so nothing is drawn twice and no global state remains.
"""

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from course_lib.checks.observe.cells import current_shell, keep_in_view, someone_answers

# On a new machine, matplotlib would report on stderr that it builds its font cache.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

from matplotlib.figure import Figure  # noqa: E402

from course_lib.plotting.captions import TITLES  # noqa: E402
from course_lib.plotting.figures import Control, Plot, figure_html, stepper  # noqa: E402

CHART = 4.1  # inches: at this width, text of 9 points is 9 pixels high on a phone
PANELS = 6.0  # inches: the width of panels side by side, which are stacked on a phone


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of `width` x `height` inches with constrained layout."""
    return Figure(figsize=(width, height), facecolor="none", layout="constrained")


def show(plot: Plot, *, key: str | None = None) -> None:
    """Display a figure as one output: HTML with alt text and data, and the alt text as plain text.

    Args:
        plot: the result of a drawing function.
        key: the key of a title in `captions.py`.
    """
    plot = _titled(plot, key)
    put(plot.words, lambda: figure_html(plot))


def _titled(plot: Plot, key: str | None) -> Plot:
    return replace(plot, title=TITLES[key]) if key else plot


def interactive(
    draw: Callable[..., Plot],
    *,
    start: Mapping[str, Any] | None = None,
    plays: bool = False,
    key: str | None = None,
    **controls: Sequence[Any],
) -> None:
    """Show `draw(**values)` with one control per keyword.

    In a live kernel, each change calls `draw` again, so that it uses the reader's own functions.
    Otherwise, and if it `plays`, all pictures are drawn now, and the page's script shows them.

    Args:
        draw: a pure function from the controls' values to a `Plot`.
        start: the initial values. A control that is not named starts at its first option.
        plays: whether the first control moves by itself once the figure is in view.
        key: the key of a title in `captions.py`.
        controls: the options of each argument, in order. Numbers become a slider. Up to three other
            options become radio buttons, and more a drop-down list.
    """
    made = []

    def drawn(chosen: Mapping[str, Any]) -> Plot:
        return _titled(draw(**chosen), key)

    for name, options in controls.items():
        value = (start or {}).get(name, options[0])
        made.append(Control(name, list(options), options.index(value)))
    values = {control.name: control.options[control.start] for control in made}
    if has_front_end() and not plays:
        import ipywidgets
        from IPython.display import HTML, display

        widgets = {}
        for control in made:
            widgets[control.name] = getattr(ipywidgets, control.widget)(
                options=list(zip(control.words, control.options, strict=True)),
                value=control.options[control.start],
                description=control.label,
                layout=ipywidgets.Layout(width="min(36em, 100%)"),
            )
        picture = ipywidgets.HTML()

        def redraw(_change: Any = None) -> None:
            plot = drawn({name: widget.value for name, widget in widgets.items()})
            picture.value = figure_html(plot, inline=True)

        for widget in widgets.values():
            widget.observe(redraw, names="value")
        redraw()
        display(ipywidgets.VBox([*widgets.values(), picture]))
        if script := keep_in_view(current_shell()):
            display(HTML(script))
        return
    choices = list(itertools.product(*(control.options for control in made)))
    at = ", ".join(f"{name} = {value}" for name, value in values.items())
    caption = f"Drawn at {at}. You can change this in JupyterLab or on the course's site."

    def page() -> str:
        frames = [drawn(dict(zip(controls, choice, strict=True))) for choice in choices]
        return figure_html(stepper(frames, made, caption, plays=plays))

    put(drawn(values).words, page)


def put(words: str, page: Callable[[], str]) -> None:
    """Display the HTML that `page` makes, with its words, or print the words outside IPython."""
    if current_shell() is None:
        print(words)
        return
    from IPython.display import display

    shown = page() + keep_in_view(current_shell())
    display({"text/html": shown, "text/plain": words}, raw=True)


def has_front_end() -> bool:
    """Return whether the cell runs in a live front end, where a person can move sliders."""
    return someone_answers(current_shell())
