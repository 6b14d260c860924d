"""The HTML page of a report (``_report.py``): one file, without scripts and without anything fetched."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .2rem .6rem .2rem 0; }
tr { border-bottom: 1px solid #d8dee4; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #b3261e; font-weight: 600; } svg text { font: 12px system-ui, sans-serif; fill: #1f2328; }
""".strip()
WIDTH, LABELS, ROW = 860, 330, 26  # of the plot, in pixels
FACTS = (
    "type",
    "platform_name",
    "version",
    "driver_version",
    "max_compute_units",
    "max_clock_rate",
    "total_memory",
    "memory",
    "local_mem_size",
    "sub_group_sizes",
    "max_work_group_size",
)


def number(value: float) -> str:
    """Format with three significant digits: 1234.5 → "1,234", 0.012345 → "0.0123"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; cells are HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _cell(text: object, kind: str = "") -> str:
    return f'<td class="{kind}">{escape(str(text))}</td>' if kind else f"<td>{escape(str(text))}</td>"


def _plot(rates: list[dict[str, Any]]) -> str:
    """Return a bar per rate that has a roof: its share of the roof."""
    rows = [row for row in rates if row.get("roof")]
    if not rows:
        return "<p>The peak rates of this device are not known.</p>"
    scale = (WIDTH - LABELS - 60) / max(1.0, *(row["rate"] / row["roof"] for row in rows))
    parts = []
    for i, row in enumerate(rows):
        share = row["rate"] / row["roof"]
        text = f"{row['name']}, {row['dtype']}: {number(row['rate'])} of {number(row['roof'])} {row['unit']}"
        parts.append(
            f'<text x="{LABELS - 8}" y="{i * ROW + 17}" text-anchor="end">{escape(text)}</text>'
            f'<rect x="{LABELS}" y="{i * ROW + 4}" width="{share * scale:.1f}" height="18" fill="#2f6fde"/>'
            f'<text x="{LABELS + share * scale + 6:.1f}" y="{i * ROW + 17}">{share:.0%}</text>'
        )
    edge = LABELS + scale
    parts.append(f'<path d="M{edge:.1f} 0v{len(rows) * ROW}" stroke="#57606a" stroke-dasharray="4 3"/>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {len(rows) * ROW}" role="img" aria-label="rates beside their roofs">'
        f"{''.join(parts)}</svg>"
    )


def page(report: dict[str, Any]) -> str:
    """Return the page of a report, as HTML."""
    device = report["device"]
    facts = [(name.replace("_", " "), device.get(name)) for name in FACTS]
    facts.append(
        ("features", ", ".join(n[4:] for n, v in device.items() if n.startswith("has_") and v is True))
    )
    names = ("openxpu", "pytorch", "python", "system", "machine", "simulated", "day")
    facts += [(name, report[name]) for name in names]
    checks = [
        (
            _cell(check["name"]),
            _cell(check["error"], "bad") if check["error"] else _cell("passed"),
            _cell(f"{check['seconds']:.2f} s", "number"),
        )
        for check in report["checks"]
    ]
    rates = [
        (
            _cell(row["name"]),
            _cell(row["dtype"]),
            _cell(row["error"], "bad") if "error" in row else _cell(number(row["rate"]), "number"),
            _cell(row["unit"]),
            _cell("" if "error" in row else f"{row['size']:,}", "number"),
        )
        for row in report["rates"]
    ]
    values = [
        (
            _cell(row["name"]),
            _cell(row["error"], "number" if row["ok"] else "bad"),
            _cell(f"{row['allowed']:g}", "number"),
        )
        for row in report["values"]
    ]
    wrong = sum(not row["ok"] for row in report["values"])
    title = escape(str(device["name"]))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"/><title>{title}</title><style>
{STYLE}
</style></head>
<body>
<h1>{title}</h1>
{_table(("property", "value"), [(_cell(name), _cell(value)) for name, value in facts])}
<h2>Self-test</h2>
{_table(("check", "result", "time"), checks)}
<h2>Rates</h2>
<p>The best of several runs. The dashed line is the roof: what the device's matrix and vector units can do
at its highest clock; for int4 weights, the measured rate of copies on the device.</p>
{_plot(report["rates"])}
{_table(("work", "dtype", "rate", "unit", "size"), rates)}
<h2>Values</h2>
<p>{wrong} of {len(values)} operators are off. The error is the largest difference from float64, relative to
the result's largest value, in units of the dtype's epsilon; results that are indices must be equal.</p>
{_table(("operator", "error", "allowed"), values)}
</body>
</html>"""
