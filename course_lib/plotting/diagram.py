"""Draw the map of attention that is in every lesson and grows through the course.

A highlighted box is the topic of the section. It has a thick border, a strong fill and bold words,
so that it is recognizable without color. `diagram_layout` places the boxes.
"""

from collections.abc import Mapping, Sequence

from course_lib.plotting.colors import INK
from course_lib.plotting.diagram_layout import LEVELS, SMALLEST, Arrow, Box, Frame, Sheet
from course_lib.plotting.figures import Plot
from course_lib.plotting.svg import arrow, drawing, element, joined, text
from course_lib.plotting.words import and_joined

SHOWN = 1.15  # pixels per unit if there is enough width
CALM, STRONG = 0.1, 0.4  # opacity of a box's fill
PATHS = {
    "attention": (
        "queries and keys give scores, the mask, made from valid_lens, takes keys away, the "
        "softmax makes attention weights of what is left, and the sum of the values, weighted by "
        "them, is the outputs"
    ),
    "heads": (
        "W_q, W_k and W_v project queries, keys and values, split heads shares their features "
        "out, each head goes from scores over mask, softmax and attention weights to the weighted "
        "sum of its values, merge heads puts the results side by side, and W_o mixes them"
    ),
    "block": (
        "inputs, once normalized, are queries, keys and values of a multi-head attention at once, "
        "its outputs are added to them as they came, and so are those of a feed-forward network "
        "after it, which reads the normalized sum"
    ),
    "encoder_decoder": (
        "the encoder's blocks read the tokens by self-attention, the decoder's blocks read the "
        "tokens so far by masked self-attention and the encoder's result by cross-attention, and a "
        "norm and a linear layer make logits of it"
    ),
}


def diagram(
    part: str,
    *,
    lit: str | Sequence[str] = (),
    shapes: Mapping[str, str | tuple[int, ...]] | None = None,
) -> Plot:
    """Draw the map of attention, with the parts that a section is about highlighted.

    Args:
        part: the level: "attention", "heads", "block" or "encoder_decoder".
        lit: the box or boxes to highlight.
        shapes: box -> the shape of its output, a tuple of numbers or a string.
    """
    sheet = LEVELS[part]()
    lit = (lit,) if isinstance(lit, str) else tuple(lit)
    written = {name: str(shape) for name, shape in (shapes or {}).items()}
    unknown = {*lit, *written} - sheet.boxes.keys()
    assert not unknown, f"{part!r} has no {unknown}"
    labels: dict[str, str] = {}
    left = set()
    for way in sheet.arrows:  # the shape is on the first arrow that leaves a box
        if way.source in written and way.source not in left:
            labels[way.name] = written[way.source]
        left.add(way.source)
    return Plot(_picture(sheet, lit, labels), _words(part, sheet, lit, labels))


def _picture(sheet: Sheet, lit: Sequence[str], labels: Mapping[str, str]) -> str:
    parts = [_frame(frame) for frame in sheet.frames]
    for way in sheet.arrows:
        near = way.source in lit or way.target in lit
        line = arrow(way.points, 2.2 if near else 1.2)
        parts.append(element("g", line, opacity=None if near else 0.6))
        if label := labels.get(way.name):
            style = {"text_anchor": way.anchor, "font_weight": 700 if near else None}
            parts.append(text(label, *way.at, SMALLEST, **style))
    parts += [_box(box, lit=box.name in lit) for box in sheet.boxes.values()]
    width, height = sheet.right - sheet.left, sheet.height + 3
    moved = element("g", "".join(parts), transform=f"translate({-sheet.left:g})")
    return drawing(moved, width, height, width * SHOWN)


def _box(box: Box, *, lit: bool) -> str:
    color = "currentColor" if box.color == INK else box.color
    high, (x, y) = box.bottom - box.top, box.middle
    share = STRONG if lit else CALM
    outline = element(
        "rect",
        x=box.left, y=box.top, width=box.right - box.left, height=high,
        rx=high / 2 if box.tensor else 3,
        fill=color, fill_opacity=share / 2 if box.color == INK else share,
        stroke=color, stroke_width=3.0 if lit else 1.0,
    )  # fmt: skip
    words = text(box.words, x, y + 0.5, box.font, font_weight=700 if lit else None)
    return element("g", outline + words, class_="box lit" if lit else "box")


def _frame(frame: Frame) -> str:
    line = {"fill": "none", "stroke": "currentColor", "stroke_width": 1.0, "opacity": 0.5}
    left, top, right, bottom, copies = frame[1:]
    drawn = [
        element("rect", x=left, y=top, width=right - left, height=bottom - top, rx=5,
                stroke_dasharray=None if copies else "4 3", **line)
    ]  # fmt: skip
    for i in range(copies):
        behind = [(right + 5 * i, top + 5 * i + 5), (right + 5 * i + 5, top + 5 * i + 5),
                  (right + 5 * i + 5, bottom + 5 * i + 5), (left + 5 * i + 5, bottom + 5 * i + 5),
                  (left + 5 * i + 5, bottom + 5 * i)]  # fmt: skip
        drawn.append(element("polyline", points=joined(behind), **line))
    words = text(frame.words, right - 6, bottom - 9, SMALLEST, text_anchor="end", opacity=0.75)
    return "".join(drawn) + words


def _words(part: str, sheet: Sheet, lit: Sequence[str], labels: Mapping[str, str]) -> str:
    """Describe the highlighted parts, their inputs and outputs, and the whole path."""
    path = f"The whole path: {PATHS[part]}."
    enters = [a for a in sheet.arrows if a.target in lit and a.source not in lit]
    leaves = [a for a in sheet.arrows if a.source in lit and a.target not in lit]
    others = [a for a in sheet.arrows if a not in enters + leaves]
    shapes = [f"{a.source}{_of(labels, a)}" for a in others if a.name in labels]
    rest = f" {'Elsewhere' if lit else 'Shapes'}: {', '.join(shapes)}." if shapes else ""
    if not lit:
        return f"The map of attention, all of it.{rest} {path}"
    inputs = [f"{a.source}{_of(labels, a)}" for a in enters]
    outputs = [f"{a.source}{_of(labels, a)} to {a.target or 'what follows'}" for a in leaves]
    into = f" Into it: {and_joined(inputs)}." if inputs else ""
    out = f" Out of it: {and_joined(outputs)}."
    return f"The map of attention: this section is about {and_joined(lit)}.{into}{out}{rest} {path}"


def _of(labels: Mapping[str, str], way: Arrow) -> str:
    return f" {labels[way.name]}" if way.name in labels else ""
