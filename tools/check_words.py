"""Retired words do not come back: names the place of each one and what to write instead.

``tools/retired_words.txt`` has two columns, separated by a tab: what is retired, and its replacement. A plain
identifier is compared with whole identifiers. Anything else is a regular expression for text, without regard
to case. Both are searched for in the text and the names of all tracked files. Ordinary words that also have
an ordinary sense (number, piece, place) are listed only as parts of identifiers or phrases.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "retired_words.txt"
EXEMPT = {"tools/retired_words.txt", "CHANGELOG.md"}
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def retired() -> tuple[dict[str, str], dict[str, str]]:
    """Return the retired identifiers and the retired expressions, each with its replacement."""
    names: dict[str, str] = {}
    expressions: dict[str, str] = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            word, replacement = line.split("\t")
            (names if IDENTIFIER.fullmatch(word) and "_" in word else expressions)[word] = replacement
    return names, expressions


def tracked() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each tracked file; a binary file has no text."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if name not in EXEMPT and path.is_file():
            try:
                yield name, path.read_text()
            except UnicodeDecodeError:
                yield name, ""


def findings() -> Iterator[str]:
    """Say where something retired stands."""
    names, expressions = retired()
    any_expression = re.compile("|".join(f"(?:{e})" for e in expressions), re.IGNORECASE)
    for file, text in tracked():
        whole = f"{file}\n{text}"
        if not any_expression.search(whole) and names.keys().isdisjoint(IDENTIFIER.findall(whole)):
            continue
        for place, line in ((file, file), *((f"{file}:{n}", s) for n, s in enumerate(text.splitlines(), 1))):
            found = {name: names[name] for name in IDENTIFIER.findall(line) if name in names}
            for expression, replacement in expressions.items():
                found |= {m[0]: replacement for m in re.finditer(expression, line, re.IGNORECASE)}
            for word, replacement in found.items():
                yield f'{place}: "{word}" is retired, write "{replacement}"'


if __name__ == "__main__":
    problems = list(findings())
    if problems:
        print("\n".join(problems), file=sys.stderr)
    sys.exit(bool(problems))
