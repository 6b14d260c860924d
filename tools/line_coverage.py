"""Write the table of lines that `make test` runs into docs/status.md, from a summary that gcovr wrote.

    python tools/line_coverage.py build/coverage/summary.json

`make coverage` calls it. The table has a row for each folder of src/ and bridge/.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATUS = ROOT / "docs" / "status.md"
BEGIN = "<!-- line coverage: written by tools/line_coverage.py -->\n"
END = "<!-- end of line coverage -->\n"


def table(summary: dict[str, object]) -> str:
    """Return the table: lines and the share of them that ran, by folder, then in all of src/ and bridge/."""
    files = summary["files"]
    assert isinstance(files, list)
    lines: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file in files:
        folder = Path(file["filename"]).parent
        for name in (f"`{folder}`", f"all of `{folder.parts[0]}`"):
            lines[name][0] += file["line_total"]
            lines[name][1] += file["line_covered"]
    rows = sorted(lines, key=lambda name: (name.startswith("all"), name))
    return "".join(
        [
            "| Folder | Lines of code | Run by `make test` |\n|---|---|---|\n",
            *(
                f"| {name} | {lines[name][0]} | {100 * lines[name][1] / lines[name][0]:.0f}% |\n"
                for name in rows
            ),
        ]
    )


def main() -> None:
    """Replace the table in docs/status.md."""
    summary = json.loads(Path(sys.argv[1]).read_text())
    text = STATUS.read_text()
    new, count = re.subn(
        f"(?s){re.escape(BEGIN)}.*{re.escape(END)}", lambda _: BEGIN + table(summary) + END, text
    )
    assert count == 1, f"{STATUS} has no place for the table"
    STATUS.write_text(new)
    print(table(summary))


if __name__ == "__main__":
    main()
