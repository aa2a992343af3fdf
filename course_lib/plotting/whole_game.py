"""The figure of lesson 00: one vector for a sentence, compared with attention to all of it."""

from collections.abc import Mapping

from course_lib.plotting.colors import OUTPUT, PLAIN, WEIGHT
from course_lib.plotting.diagram_layout import SMALLEST
from course_lib.plotting.figures import Plot
from course_lib.plotting.svg import arrow, drawing, element, text

PANEL, GAP, HEIGHT, SHOWN = 172, 16, 172, 1.4
SOURCE = {"drei": (0, 42), "und": (58, 98), "vierzig": (114, 172)}  # horizontal extents
TARGET = {"forty": (20, 72), "three": (100, 152)}
VECTOR = (46, 126)
ROWS = {"source": 30, "vector": 84, "target": 138}
BOX = 24  # height
LOOKS = {"forty": {"drei": 1, "und": 1, "vierzig": 6}, "three": {"drei": 6, "und": 1, "vierzig": 1}}


def bottleneck() -> Plot:
    """Draw two ways to translate 43: by one vector of fixed length, and by attention."""
    middle = {name: sum(ends) / 2 for name, ends in (SOURCE | TARGET).items()}
    one_vector = [
        _title("before 2014: one vector"),
        *(_right_of(SOURCE, a, b, "source") for a, b in (("drei", "und"), ("und", "vierzig"))),
        _down(middle["vierzig"], sum(VECTOR) / 2, "source", "vector"),
        _down(sum(VECTOR) / 2, middle["forty"], "vector", "target"),
        _box("one vector", VECTOR, "vector", "currentColor", line=2.5),
    ]
    looking_back = [_title("attention: look back")]
    for word, looks in LOOKS.items():
        for piece, width in looks.items():
            line = {"y1": ROWS["target"], "y2": ROWS["source"] + BOX, "opacity": 0.85}
            looking_back.append(
                element("line", x1=middle[word], x2=middle[piece], stroke=WEIGHT,
                        stroke_width=width, **line)
            )  # fmt: skip
    pieces = [_box(name, ends, "source", PLAIN) for name, ends in SOURCE.items()]
    pieces += [_box(name, ends, "target", OUTPUT) for name, ends in TARGET.items()]
    panels = [
        element("g", "".join([*parts, _right_of(TARGET, "forty", "three", "target"), *pieces]),
                transform=f"translate({i * (PANEL + GAP)})")
        for i, parts in enumerate((one_vector, looking_back))
    ]  # fmt: skip
    width = 2 * PANEL + GAP + 4
    half = width / 2  # panels, which are stacked on a phone
    moved = element("g", "".join(panels), transform="translate(2)")
    return Plot(
        drawing(
            moved, width, HEIGHT, width * SHOWN, [(0, 0, half, HEIGHT), (half, 0, half, HEIGHT)]
        ),
        "Two ways to translate 43. Before 2014: a recurrent network reads drei, und, vierzig into "
        "one vector, and writes forty, then three from that vector alone. With attention: each "
        "word looks back at every piece, forty most at vierzig and three most at drei, so the two "
        "thick lines cross.",
        title="Attention looks back at every word, instead of keeping one vector",
    )


def _title(words: str) -> str:
    return text(words, PANEL / 2, 12, SMALLEST, font_weight=700)


def _box(words: str, ends: tuple[float, float], row: str, color: str, line: float = 1.2) -> str:
    left, right = ends
    outline = element(
        "rect", x=left, y=ROWS[row], width=right - left, height=BOX, rx=BOX / 2 if line < 2 else 3,
        fill=color, fill_opacity=0.12, stroke=color, stroke_width=line,
    )  # fmt: skip
    return outline + text(words, (left + right) / 2, ROWS[row] + BOX / 2 + 0.5, SMALLEST)


def _right_of(boxes: Mapping[str, tuple[float, float]], one: str, other: str, row: str) -> str:
    y = ROWS[row] + BOX / 2
    return arrow([(boxes[one][1], y), (boxes[other][0], y)])


def _down(x: float, x_end: float, upper: str, lower: str) -> str:
    return arrow([(x, ROWS[upper] + BOX), (x_end, ROWS[lower])])
