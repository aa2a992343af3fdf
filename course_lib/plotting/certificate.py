"""The picture at the end of the course: the parts of a Transformer in a frame, with a title."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from course_lib.plotting.figures import Plot
from course_lib.plotting.library_map import OWN, WIDTH, Part, library_map
from course_lib.plotting.svg import drawing, element, text

MARGIN, HEAD, SHOWN = 20.0, 84.0, 1.15


def certificate(
    parts: Sequence[Part], own: Collection[str], title: str, lines: Sequence[str]
) -> Plot:
    """The library's picture in a double frame.

    Args:
        parts, own: as for `library_map`.
        title: the large words above.
        lines: one or two smaller ones beneath it.
    """
    inner = library_map(parts, own)
    height = _height(inner.svg)
    width, whole = WIDTH + 2 * MARGIN, height + HEAD + MARGIN
    frames = "".join(
        element(
            "rect", x=inset, y=inset, width=width - 2 * inset, height=whole - 2 * inset, rx=6,
            fill="none", stroke=OWN, stroke_width=stroke,
        )
        for inset, stroke in ((3, 3.0), (8, 1.0))
    )  # fmt: skip
    words = text(title, width / 2, 32, 19, font_weight=700)
    words += "".join(text(line, width / 2, 54 + 16 * i, 12) for i, line in enumerate(lines))
    picture = element("g", _inside(inner.svg), transform=f"translate({MARGIN:g} {HEAD:g})")
    alt = f"{title}. {' '.join(f'{line}.' for line in lines)} {inner.alt}"
    return replace(
        inner, figure=drawing(frames + words + picture, width, whole, width * SHOWN), alt=alt
    )


def _height(svg: str) -> float:
    return float(svg.partition('viewBox="')[2].partition('"')[0].split()[3])


def _inside(svg: str) -> str:
    return svg.partition(">")[2].rpartition("</svg>")[0]
