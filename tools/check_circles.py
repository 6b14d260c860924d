"""Check that files use each other in no circles other than those in tools/circles.txt.

A circle is a strongly connected component of a graph of files:

- ``src/``: files of one folder, and "uses a symbol that the other defines". Files may include any header of
  their folder, so calls are looked up where they cannot hide: in the object files of a build folder.
- ``bridge/``: files of one name (``lower.h`` and ``lower.cpp``), and "includes a header of the other", since
  several of its files are compiled into one object file. A header without a source file of its name stands
  for what it includes.

``tools/check_layers.py`` checks which folder may include which.

``tools/circles.txt`` lists the circles that exist, one a line: a folder, a colon, and the files. The list
only shrinks: a new circle or a new member is an error, and so is a listed file that has left its circle.

``check_circles.py [BUILD]`` prints what differs and exits with 1 if anything does. It says nothing of what is
not built. With ``--shrink`` it removes from the list what is no longer part of a circle.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = "tools/circles.txt"
OBJECTS = "CMakeFiles/xpu.dir"  # of the build folder: libxpu's objects
DEFINED = frozenset("BCDRTVW")  # nm's letters for symbols that other objects can use
BRIDGE = "bridge"  # also the folder that its files' includes start from
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

Circle = tuple[str, frozenset[str]]  # a folder, and names of files in it


def in_order(some: set[Circle]) -> list[Circle]:
    """Return circles sorted by folder and files."""
    return sorted(some, key=lambda circle: (circle[0], sorted(circle[1])))


def sources(build: Path) -> dict[str, Path]:
    """Return the object file of each source file that is built; stale objects are left out."""
    objects = {
        path.relative_to(build / OBJECTS).as_posix().removesuffix(".o"): path
        for path in (build / OBJECTS / "src").rglob("*.o")
    }
    return {name: path for name, path in sorted(objects.items()) if (ROOT / name).is_file()}


def symbols(path: Path) -> tuple[set[str], set[str]]:
    """Return the symbols that an object file defines, and those that it uses."""
    listed = subprocess.run(["nm", "-P", path], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in listed.splitlines()]
    defined = {name for name, letter, *_ in fields if letter in DEFINED}
    return defined, {name for name, letter, *_ in fields if letter == "U"}


def uses(objects: Mapping[str, Path]) -> dict[str, dict[str, set[str]]]:
    """Return the files of its folder that each file uses, with the symbols that it uses of each."""
    both = {name: symbols(path) for name, path in objects.items()}
    home: dict[tuple[Path, str], str] = {}
    for name, (defined, _) in both.items():
        home |= {(Path(name).parent, symbol): name for symbol in defined}
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in objects}
    for name, (_, used) in both.items():
        for symbol in used:
            other = home.get((Path(name).parent, symbol), name)
            if other != name:
                found[name][other].add(symbol)
    return found


def includes() -> dict[str, dict[str, set[str]]]:
    """Return the files of ``bridge/``, without suffix, that each includes, with the headers' names."""
    paths = {p.relative_to(ROOT) for p in (ROOT / BRIDGE).rglob("*") if p.suffix in {".c", ".cpp", ".h"}}

    def header(path: Path, name: str) -> Path | None:
        places = (Path(os.path.normpath(start / name)) for start in (path.parent, Path(BRIDGE)))
        return next((place for place in places if place in paths), None)

    headers = {
        path: [h for name in INCLUDE.findall((ROOT / path).read_text()) if (h := header(path, name))]
        for path in paths
    }
    with_source = {path.with_suffix("") for path in paths if path.suffix != ".h"}

    found: dict[str, dict[str, set[str]]] = {
        name.as_posix(): defaultdict(set) for name in sorted(with_source)
    }
    for name in with_source:
        waiting = [header for path in paths if path.with_suffix("") == name for header in headers[path]]
        seen = set(waiting)
        while waiting:
            path = waiting.pop()
            other = path.with_suffix("")
            if other not in with_source:
                new = set(headers[path]) - seen
                seen |= new
                waiting.extend(new)
            elif other != name:
                found[name.as_posix()][other.as_posix()].add(path.name)
    return found


def reached(graph: Mapping[str, Mapping[str, set[str]]], start: str) -> set[str]:
    """Return the files that a file uses, directly or through others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph[waiting.pop()]) - seen
        seen |= new
        waiting.extend(new)
    return seen


def circles(graph: Mapping[str, Mapping[str, set[str]]]) -> set[Circle]:
    """Return the strongly connected components of two files or more."""
    reach = {name: reached(graph, name) for name in graph}
    components = {frozenset({a} | {b for b in reach[a] if a in reach[b]}) for a in graph}
    found = set()
    for files in components:
        if len(files) > 1:
            folder = os.path.commonpath([Path(file).parent for file in files])
            found.add((folder, frozenset(os.path.relpath(file, folder) for file in files)))
    return found


def listed() -> set[Circle]:
    """Return the circles that the list allows."""
    lines = (
        line.partition(":") for line in (ROOT / LIST).read_text().splitlines() if line[:1] not in {"", "#"}
    )
    return {(folder, frozenset(files.split())) for folder, _, files in lines}


def differences(
    graph: Mapping[str, Mapping[str, set[str]]], found: set[Circle], allowed: set[Circle]
) -> Iterator[str]:
    """Say what is new, and what the list names although it is no longer there."""
    for folder, files in in_order(found):
        known = max((a & files for f, a in allowed if f == folder), key=len, default=frozenset())
        for file in sorted(files - known):
            name = f"{folder}/{file}"
            out = next(
                f"{other}'s {min(of)}"
                for other, of in sorted(graph[name].items())
                if os.path.relpath(other, folder) in files
            )
            back = next(
                f"{folder}/{other} uses its {min(graph[f'{folder}/{other}'][name])}"
                for other in sorted(files)
                if name in graph[f"{folder}/{other}"]
            )
            yield f"{name}: is in a circle now: it uses {out}, and {back}"
    for folder, files in in_order(allowed):
        if not all(f"{folder}/{file}" in graph or not (ROOT / folder / file).exists() for file in files):
            continue  # not built
        left = max((f & files for place, f in found if place == folder), key=len, default=frozenset())
        if left != files:
            gone = " ".join(sorted(files - left))
            yield f"{LIST}: {folder}: no longer in this circle: {gone}; --shrink removes them"


def shrunk(found: set[Circle], allowed: set[Circle]) -> str:
    """Return the text of the list with the circles that still exist, none larger than it is listed."""
    kept = {(folder, files & known) for folder, files in found for place, known in allowed if place == folder}
    text = "".join(
        f"{folder}: {' '.join(sorted(files))}\n" for folder, files in in_order(kept) if len(files) > 1
    )
    comments = [line for line in (ROOT / LIST).read_text().splitlines() if line.startswith("#")]
    return "\n".join([*comments, text])


def main() -> int:
    """Compare the circles that exist with the list, or shrink the list."""
    parser = argparse.ArgumentParser(description="Check for circles of files that use each other.")
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build", help="build folder")
    parser.add_argument("--shrink", action="store_true", help=f"remove what is gone from {LIST}")
    arguments = parser.parse_args()
    graph = uses(sources(arguments.build)) | includes()
    found, allowed = circles(graph), listed()
    if arguments.shrink:
        (ROOT / LIST).write_text(shrunk(found, allowed))
    problems = list(differences(graph, found, listed()))
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
