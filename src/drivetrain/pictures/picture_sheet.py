"""Combines pictures side by side, with captions, a title and a legend, into one PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

__all__ = ["LegendEntry", "Panel", "sheet_png"]

_PAPER, _INK = (255, 255, 255), (34, 34, 34)
_GAP, _TEXT, _TITLE = 12, 14, 19
_LINE, _TITLE_LINE = 22, 32
_SWATCH, _SWATCH_EDGE = 14, 3

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture and the caption above it."""

    pixels: NDArray[np.uint8]
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """The meaning of a colour (None: not painted); `inside` is the fill colour if it is not the same."""

    colour: tuple[int, int, int] | None
    meaning: str
    inside: tuple[int, int, int] | None = None


def sheet_png(rows: Sequence[Sequence[Panel]], *, legend: Sequence[LegendEntry], title: str = "") -> bytes:
    """Rows of panels, each under its caption, with a title above and the legend below, as a PNG file."""
    font, columns = _font(_TEXT), list(zip_longest(*rows))
    widths = [max(panel.pixels.shape[1] for panel in column if panel is not None) for column in columns]
    width = max(sum(widths) + _GAP * (len(widths) + 1), _least_width(legend, font))
    lines = _legend_lines(legend, font, width)
    top = _TITLE_LINE if title else 0
    heights = [max(panel.pixels.shape[0] for panel in row) + _LINE + _GAP for row in rows]
    sheet = Image.new("RGB", (width, top + sum(heights) + _LINE * len(lines) + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((_GAP, _GAP), _fitted(title, _font(_TITLE), width - 2 * _GAP), _INK, _font(_TITLE))
    for row, height in zip(rows, heights, strict=True):
        _draw_row(sheet, row, top=top + _GAP // 2, widths=widths, font=font)
        top += height
    for line in lines:
        _draw_legend(draw, line, top=top + _GAP // 2, font=font)
        top += _LINE
    content = BytesIO()
    sheet.save(content, format="PNG")
    return content.getvalue()


def _draw_row(
    sheet: Image.Image, row: Sequence[Panel], *, top: int, widths: Sequence[int], font: Font
) -> None:
    draw, left = ImageDraw.Draw(sheet), _GAP
    for panel, width in zip(row, widths, strict=False):
        draw.text((left, top + _LINE - 6), _fitted(panel.caption, font, width), _INK, font, anchor="ls")
        sheet.paste(Image.fromarray(panel.pixels), (left, top + _LINE))
        left += width + _GAP


def _draw_legend(draw: ImageDraw.ImageDraw, line: Sequence[LegendEntry], *, top: int, font: Font) -> None:
    left = _GAP
    for entry in line:
        draw.rectangle(
            (left, top + 4, left + _SWATCH, top + 4 + _SWATCH),
            fill=entry.inside or entry.colour,
            outline=entry.colour or _INK,
            width=1 if entry.inside is None else _SWATCH_EDGE,
        )
        draw.text((left + _SWATCH + 6, top + 4 + _SWATCH - 2), entry.meaning, _INK, font, anchor="ls")
        left += _entry_width(entry, font)


def _legend_lines(legend: Sequence[LegendEntry], font: Font, width: int) -> list[list[LegendEntry]]:
    """The legend in lines that fit the sheet."""
    lines: list[list[LegendEntry]] = []
    used = width
    for entry in legend:
        needed = _entry_width(entry, font)
        if used + needed > width:
            lines.append([])
            used = _GAP
        lines[-1].append(entry)
        used += needed
    return lines


def _least_width(legend: Sequence[LegendEntry], font: Font) -> int:
    return _GAP + max((_entry_width(entry, font) for entry in legend), default=0)


def _entry_width(entry: LegendEntry, font: Font) -> int:
    return _SWATCH + 6 + int(font.getlength(entry.meaning)) + 2 * _GAP


def _fitted(text: str, font: Font, width: int) -> str:
    """The text, shortened with an ellipsis to fit the width."""
    if font.getlength(text) <= width:
        return text
    kept = next((n for n in range(len(text), 0, -1) if font.getlength(text[:n] + "…") <= width), 0)
    return text[:kept] + "…" if kept else ""


def _font(size: int) -> Font:
    return ImageFont.load_default(size)
