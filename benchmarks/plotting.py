"""Small plots as SVG, drawn by hand: bars, and lines or points between logarithmic axes."""

from collections.abc import Collection, Mapping, Sequence
from html import escape
from math import ceil, floor, log10

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
_OTHERS = "#9aa4b0"
_STYLE = (
    "text{font:12px sans-serif;fill:#57606a}.t{font-size:14px;font-weight:bold}.r{text-anchor:end}"
    ".g{stroke:#8b949e;stroke-opacity:.3}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}"
)


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}</style>", *parts, "</svg>", ""]
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{escape(text)}</text>'


def bars(title: str, groups: Mapping[str, Mapping[str, float]], ours: Collection[str]) -> str:
    """Draw a group of horizontal bars for each measure, to one scale within it; the bars of `ours` stand out."""
    label, room, bar = 170, 330, 18
    parts, y = [_text(10, 20, title, "t")], 30
    for measure, values in groups.items():
        y += 22
        parts.append(_text(10, y, measure))
        longest = max(values.values())
        for name, value in values.items():
            y += bar + 4
            width = value / longest * room
            colour = _COLOURS[0] if name in ours else _OTHERS
            parts += [
                _text(label - 8, y, name, "r"),
                f'<rect x="{label}" y="{y - 13}" width="{width:.1f}" height="{bar - 2}" fill="{colour}"/>',
                _text(label + width + 6, y, f"{value:.2f}"),
            ]
        y += 10
    return _svg(label + room + 60, y + 10, parts)


Point = tuple[float, float]


def lines(title: str, x_title: str, y_title: str, series: Mapping[str, Sequence[Point]]) -> str:
    """Draw a line through the points of each series, or a dot for a single point; both axes are logarithmic."""
    left, top, width, height = 60, 40, 440, 280
    every = [point for points in series.values() for point in points]
    x_scale, y_scale = (
        _Scale([x for x, _ in every], left, left + width),
        _Scale([y for _, y in every], top + height, top),
    )
    parts = [_text(10, 20, title, "t"), _text(left, top + height + 36, x_title), _text(left, top - 6, y_title)]
    parts += [
        f'<path d="M{x_scale.at(x):.1f} {top}V{top + height}" class="g"/>{_text(x_scale.at(x) - 8, top + height + 18, f"{x:g}")}'
        for x in x_scale.ticks()
    ]
    parts += [
        f'<path d="M{left} {y_scale.at(y):.1f}H{left + width}" class="g"/>{_text(left - 6, y_scale.at(y) + 4, f"{y:g}", "r")}'
        for y in y_scale.ticks()
    ]
    for index, (name, points) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = "L".join(f"{x_scale.at(x):.1f} {y_scale.at(y):.1f}" for x, y in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x_scale.at(x):.1f}" cy="{y_scale.at(y):.1f}" r="4" fill="{colour}"/>' for x, y in points
        ]
        y = top + 16 * index + 10
        parts += [
            f'<circle cx="{left + width + 20}" cy="{y - 4}" r="5" fill="{colour}"/>',
            _text(left + width + 30, y, name),
        ]
    return _svg(left + width + 240, top + height + 50, parts)


class _Scale:
    """A logarithmic axis over whole powers of ten or halves of them, between two coordinates."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low, self._high = floor(log10(min(values)) * 2) / 2, ceil(log10(max(values)) * 2) / 2
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        return self._begin + (log10(value) - self._low) / (self._high - self._low) * (self._end - self._begin)

    def ticks(self) -> list[float]:
        powers = range(floor(self._low), ceil(self._high) + 1)
        every = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        return [value for value in every if self._low <= log10(value) <= self._high]
