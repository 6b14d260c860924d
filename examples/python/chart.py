"""A bar chart as an SVG file, for the examples' closing pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

COLORS = ("#0068b5", "#b8c4ce", "#f3a712")  # xpu first
WIDTH, LABELS, FIGURES, BAR, GAP, TOP = 720, 230, 90, 16, 14, 64


def write(path: Path, title: str, unit: str, bars: Mapping[str, Mapping[str, float]]) -> Path:
    """Draws horizontal bars, in groups.

    Parameters
    ----------
    path : Path
        The file; its folder is made if need be.
    title : str
        Stands above.
    unit : str
        Of the numbers; stands behind each.
    bars : mapping
        For each group, in order, its bars' numbers by name; a name has the same color in all groups.

    Returns
    -------
    Path
        The file written, as short as it can be said from the current folder.
    """
    names: Sequence[str] = list(dict.fromkeys(name for group in bars.values() for name in group))
    longest = max((value for group in bars.values() for value in group.values()), default=1) or 1
    parts = [f'<text x="16" y="26" font-size="16" font-weight="bold">{escape(title)}</text>']
    for i, name in enumerate(names):
        x = 16 + i * 150
        parts.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{COLORS[i % len(COLORS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="49">{escape(name)}</text>')
    y = TOP
    for label, group in bars.items():
        middle = y + len(group) * BAR / 2 + 5
        parts.append(f'<text x="{LABELS - 8}" y="{middle:.1f}" text-anchor="end">{escape(label)}</text>')
        for name, value in group.items():
            length = max(1.0, value / longest * (WIDTH - LABELS - FIGURES))
            color = COLORS[names.index(name) % len(COLORS)]
            parts.append(
                f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{color}"/>'
            )
            parts.append(
                f'<text x="{LABELS + length + 6:.1f}" y="{y + 12}">{value:.3g} {escape(unit)}</text>'
            )
            y += BAR
        y += GAP
    body = "\n".join(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
        f'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n'
        f"{body}\n</svg>\n"
    )
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
