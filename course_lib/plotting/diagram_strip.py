"""Draw a thin strip with the parts of attention in a row, in place of the whole map.

Arrows above the row pass over its parts. On a phone, the row continues in further lines.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from course_lib.plotting.colors import INK
from course_lib.plotting.diagram_layout import LEVELS
from course_lib.plotting.figures import Plot
from course_lib.plotting.svg import arrow, drawing, element, text
from course_lib.plotting.words import and_joined

ABOVE, BELOW, GAP, BOX, SIZE, LETTER = 12, 14, 13, 30, 11.5, 6.4
LINE = 320  # the longest line on a phone
# The words of each part of the strip, and its boxes in the map. A part without an arrow in front
# begins with "+".
HEAD_BOXES = [f"head {name}" for name in ("queries", "keys", "values")]
ROWS: dict[str, dict[str, Sequence[str]]] = {
    "attention": {
        "queries": ["queries"],
        "+keys": ["keys"],
        "scores": ["scores"],
        "mask": ["mask", "valid_lens"],
        "softmax": ["softmax"],
        "attention\nweights": ["attention weights"],
        "+values": ["values"],
        "weighted\nsum": ["weighted sum"],
        "outputs": ["outputs"],
    },
    "heads": {
        "queries,\nkeys, values": ["queries", "keys", "values"],
        "W_q, W_k,\nW_v": ["W_q", "W_k", "W_v"],
        "split\nheads": ["split heads", *HEAD_BOXES],
        "scores": ["scores"],
        "mask": ["mask", "valid_lens"],
        "softmax": ["softmax"],
        "attention\nweights": ["attention weights"],
        "weighted\nsum": ["weighted sum"],
        "merge\nheads": ["head outputs", "merge heads"],
        "W_o": ["W_o"],
        "outputs": ["outputs"],
    },
    "block": {
        "inputs": ["inputs"],
        "norm": ["first norm"],
        "multi-head\nattention": ["multi-head attention"],
        "add": ["first add"],
        "norm ": ["second norm"],
        "feed-\nforward": ["feed-forward"],
        "add ": ["second add"],
    },
    "encoder_decoder": {
        "tokens": ["tokens"],
        "embed": ["embedding"],
        "self-\nattention": ["inputs", "first norm", "self-attention", "first add"],
        "feed-\nforward": ["second norm", "feed-forward", "second add"],
        "+tokens\nso far": ["decoder tokens"],
        "embed ": ["decoder embedding"],
        "masked self-\nattention": ["decoder inputs", "decoder first norm",
                                    "masked self-attention", "decoder first add"],
        "cross-\nattention": ["decoder second norm", "cross-attention", "decoder second add"],
        "feed-\nforward ": ["decoder third norm", "decoder feed-forward", "decoder third add"],
        "linear": ["linear"],
        "logits": ["logits"],
    },
}  # fmt: skip

# Residual connections, and the way from the encoder to the decoder.
OVER = {
    "block": [("inputs", "add"), ("add", "add ")],
    "encoder_decoder": [("feed-\nforward", "cross-\nattention")],
}


def diagram_strip(
    part: str,
    *,
    lit: str | Sequence[str] = (),
    shapes: Mapping[str, str | tuple[int, ...]] | None = None,
) -> Plot:
    """Draw the parts of attention in a row, with those that a section is about highlighted.

    The arguments are those of `diagram`. A highlighted part has a thick border, a strong fill and
    bold words. Shapes are written below.
    """
    lit = (lit,) if isinstance(lit, str) else tuple(lit)
    written = {name: str(shape) for name, shape in (shapes or {}).items()}
    known = {box for boxes in ROWS[part].values() for box in boxes}
    unknown = {*lit, *written} - known
    assert not unknown, f"{part!r} has no {unknown}"
    sheet = LEVELS[part]()
    top = 2.0 + ABOVE * (part in OVER)
    high = top + BOX + BELOW
    x, drawn, starts = 2.0, [], [0.0]  # of the lines on a phone
    middles: dict[str, float] = {}
    for words, boxes in ROWS[part].items():
        own = dict.fromkeys(written[box] for box in boxes if box in written)
        label = " → ".join(own)  # a box that changes the shape has two
        lines = words.strip("+ ").split("\n")
        width = max(14 + LETTER * max(map(len, lines)), LETTER * len(label) * 0.95)
        if x + GAP + width - starts[-1] > LINE:
            starts.append(x)
        if drawn:
            y = top + BOX / 2
            drawn += [] if words.startswith("+") else [arrow([(x + 2, y), (x + GAP - 1, y)], 1.2)]
            x += GAP
        color = sheet.boxes[boxes[0]].color if len(boxes) == 1 else INK
        color = "currentColor" if color == INK else color
        is_lit = not set(boxes).isdisjoint(lit)
        opacity = (0.4 if is_lit else 0.1) / (2 if color == "currentColor" else 1)
        drawn_part = element(
            "rect", x=x, y=top, width=width, height=BOX, rx=5, fill=color, fill_opacity=opacity,
            stroke=color, stroke_width=2.5 if is_lit else 1,
        )  # fmt: skip
        weight = {"font_weight": 700 if is_lit else None}
        for i, line in enumerate(lines):
            y = top + BOX / 2 + 12 * (i - (len(lines) - 1) / 2)
            drawn_part += text(line, x + width / 2, y, SIZE, **weight)
        if label:
            drawn_part += text(label, x + width / 2, top + BOX + 8.5, SIZE - 0.5, **weight)
        drawn.append(element("g", drawn_part, class_="box lit" if is_lit else "box"))
        middles[words] = x + width / 2
        x += width
    for one, other in OVER.get(part, ()):
        a, b = middles[one] + 4, middles[other] - 4
        drawn.append(arrow([(a, top), (a, 4), (b, 4), (b, top)], 1.2))
        ends = [start for start in starts if a < start < b]  # it continues on another line
        drawn += [arrow([(end - 9, 4), (end + 1, 4)], 1.2) for end in ends]
    starts[1:] = [start + 2 for start in starts[1:]]
    lines = [(a, 0, b - a, high) for a, b in pairwise([*starts, x + 2])]
    picture = drawing("".join(drawn), x + 2, high, None, lines if len(lines) > 1 else ())
    about = f"This section is about {', '.join(lit)}. " if lit else ""
    told = "; ".join(f"{name} {shape}" for name, shape in written.items())
    said = {words: words.strip("+ ").replace("-\n", "-").replace("\n", " ") for words in ROWS[part]}
    row = ", ".join(said.values())
    over = [f"{said[one]} to {said[other]}" for one, other in OVER.get(part, ())]
    row += f". Above the row: {and_joined(over)}" if over else ""
    return Plot(picture, f"{about}{f'Shapes: {told}. ' if told else ''}The row: {row}.")
