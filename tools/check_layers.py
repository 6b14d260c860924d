"""Check the layering of the project, from what each file includes and calls: dependencies point down only.

    core  ←  cl  ←  runtime  ←  ops, tile  ←  package        (C; nothing of PyTorch)
    xpu/*.h  ←  bridge                           (C++; no OpenCL)

Also: src/ and the public headers use the operating system only through core/os.h; and kernels don't use
OpenCL C's ``half`` outside prelude.cl, since devices without cl_khr_fp16 can't assign it.

Prints violations, one per line, and whether docs/layers.svg is out of date. The exit status is 1 if there are
any. With --draw it redraws that picture.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# folder: the folders of src/ that its files may include
ALLOWED = {
    "src/core": {"core"},
    "src/cl": {"core", "cl"},
    "src/runtime": {"core", "cl", "runtime", "kernels"},
    "src/ops": {"core", "ops", "kernels"},
    "src/tile": {"core", "tile"},
    "src/package": {"core", "package"},
    "src/kernels": {"kernels"},
    "include/xpu": set(),
    "bridge": set(),
}
# the layers whose public headers a layer may not know
HIGHER_HEADERS = {
    "src/core": {
        "device",
        "stream",
        "memory",
        "program",
        "image",
        "random",
        "trace",
        "ops",
        "tile",
        "package",
    },
    "src/cl": {"stream", "memory", "program", "image", "random", "trace", "ops", "tile", "package"},
    "src/runtime": {"ops", "tile", "package"},
    "src/ops": {"package"},
    "src/tile": {"package"},
}
# the headers of C11 that every system has: no threads.h; signals are the operating system's
C11 = """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp stdalign stdarg
    stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath time uchar wchar wctype"""
C11_HEADERS = {f"{name}.h" for name in C11.split()}
SYSTEM_SOURCE = re.compile(
    r"^\s*#\s*define\s+(_(?:GNU|POSIX_C|POSIX|XOPEN|DEFAULT|BSD)_SOURCE)\b", re.MULTILINE
)
SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
OPENCL_CALL = re.compile(r"\bcl[A-Z]\w+\s*\(")
HALF = re.compile(r"\bhalf\d*\b|\bv(?:load|store)a?_half|\bconvert_half")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def violations(path: Path) -> list[str]:
    """Return the rules that a file violates, one line each."""
    name = path.relative_to(ROOT).as_posix()
    folder = next((f for f in ALLOWED if name.startswith(f + "/")), None)
    if folder is None:
        return []
    text = path.read_text()
    found = []
    for include in INCLUDE.findall(text):
        top, _, rest = include.partition("/")
        if top in {"core", "cl", "runtime", "ops", "tile", "package"} and (ROOT / "src" / include).exists():
            if top not in ALLOWED[folder]:
                found.append(f"{name}: includes {include}")
        if top == "xpu" and rest.split("/")[0].removesuffix(".h") in HIGHER_HEADERS.get(folder, set()):
            found.append(f"{name}: includes {include}")
        if folder.startswith("src") and re.match(r"(torch|ATen|c10)/|Python\.h", include):
            found.append(f"{name}: includes {include}, but src/ knows nothing of PyTorch")
        if include.startswith("CL/"):
            found.append(f"{name}: includes {include}, but src/cl/api.h declares OpenCL")
    if folder.startswith(("src", "include")) and not name.startswith("src/core/os"):
        for include in SYSTEM_INCLUDE.findall(text):
            if include not in C11_HEADERS:
                found.append(f"{name}: includes <{include}>, which not every system has; core/os.h does")
        for source in SYSTEM_SOURCE.findall(text):
            found.append(f"{name}: defines {source}; core/os_posix.c does where it is needed")
    if folder == "src/kernels" and not name.endswith("/prelude.cl") and HALF.search(COMMENT.sub("", text)):
        found.append(f"{name}: names half; elements lie in memory as STORED(f16)")
    if folder == "bridge" and OPENCL_CALL.search(text):
        found.append(f"{name}: calls OpenCL")
    return found


# --- the picture ---

PICTURE = "docs/layers.svg"
# what is drawn: row and column of the grid, how many columns wide, and what the part is
PARTS = {
    "PyTorch": (0, 0, 2, "unmodified, from its wheel"),
    "python/openxpu": (1, 0, 1, "autoload, torch.xpu, command line"),
    "bridge": (1, 1, 1, "C++: ATen's types to C structs"),
    "examples/c": (1, 2, 1, "programs in C"),
    "src/package": (2, 2, 1, "exported models, run without PyTorch"),
    "src/ops": (3, 0, 2, "the op library: shapes in, launches out"),
    "src/tile": (3, 2, 1, "Triton IR to OpenCL C"),
    "src/kernels": (4, 0, 1, "OpenCL C, and the structs shared with the host"),
    "src/runtime": (4, 1, 2, "device, stream, event, memory, program, launch, profile"),
    "src/cl": (5, 1, 1, "all calls of OpenCL: loading, capabilities, errors"),
    "drivers": (5, 2, 1, "Intel GPU, Intel CPU runtime, NVIDIA, PoCL"),
    "src/core": (6, 0, 3, "status, memory, text, hash; os.h: the operating system"),
}
# neighbors of which the first may use the second; all other arrows go down
SIDEWAYS = {("python/openxpu", "bridge"), ("src/runtime", "src/kernels"), ("src/cl", "drivers")}
# arrows that no source line shows: PyTorch calls what registers with it, drivers are loaded at run time
OUTSIDE = {("PyTorch", "python/openxpu"), ("PyTorch", "bridge"), ("src/cl", "drivers")}
FUNCTION = re.compile(r"^[a-z]\w*(?: \w+)*[ *]+(xpu_\w+)\([^;]*?\) \{", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\bxpu_[a-z]\w*")
WIDTH, HEIGHT, GAP = 268, 58, 38


def tracked(*patterns: str) -> list[str]:
    """Return the repository's files of those names."""
    command = ["git", "ls-files", *patterns]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def part_of(name: str) -> str | None:
    """Return the part that a file belongs to."""
    return next((part for part in PARTS if name.startswith(part + "/")), None)


def arrows() -> set[tuple[str, str]]:
    """Return the dependencies between parts, from included folders and public functions that files name."""
    texts = {
        name: COMMENT.sub("", (ROOT / name).read_text())
        for name in tracked("*.c", "*.h", "*.cpp", "*.cl", "*.py")
        if part_of(name)
    }
    home = {
        function: part
        for name, text in texts.items()
        if (part := part_of(name)) and name.startswith("src/")
        for function in FUNCTION.findall(text)
    }
    found = set(OUTSIDE)
    for name, text in texts.items():
        part = part_of(name)
        assert part
        used = {f"src/{include.partition('/')[0]}" for include in INCLUDE.findall(text)}
        used |= {home[word] for word in WORD.findall(text) if word in home}
        if name.endswith(".py") and "_bridge" in text:
            used.add("bridge")
        found |= {(part, other) for other in used & PARTS.keys() if other != part}
    return found


def not_down(found: set[tuple[str, str]]) -> list[str]:
    """Return the dependencies that don't point down, one line each."""
    return [
        f"{a} uses {b}, which is not below it"
        for a, b in sorted(found - SIDEWAYS)
        if PARTS[a][0] >= PARTS[b][0]
    ]


def direct(found: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the dependencies that don't follow from others that point down."""
    down = {(a, b) for a, b in found if PARTS[a][0] < PARTS[b][0]}

    def reaches(a: str, b: str) -> bool:
        return any(a == start and (end == b or reaches(end, b)) for start, end in down)

    implied = {(a, c) for a, c in found for b in PARTS if (a, b) in down and reaches(b, c)}
    return sorted(found - implied)


def picture(found: set[tuple[str, str]]) -> str:
    """Return the parts and dependencies as SVG."""

    def box(part: str) -> tuple[int, int, int]:  # its left edge, top edge and width
        row, column, wide, _ = PARTS[part]
        return GAP + column * (WIDTH + GAP), 20 + row * (HEIGHT + GAP), wide * (WIDTH + GAP) - GAP

    def middle(part: str) -> float:
        left, _, wide = box(part)
        return left + wide / 2

    drawn = direct(found)
    rows = 1 + max(row for row, *_ in PARTS.values())
    width, height = 3 * (WIDTH + GAP) + GAP, 20 + rows * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<desc>Drawn by tools/check_layers.py --draw</desc>",
        '<defs><marker id="end" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#456"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for part, (*_, text) in PARTS.items():
        left, top, wide = box(part)
        outside = "/" not in part and part != "bridge"
        fill = "#eee" if outside or part == "examples/c" else "#e3edf7"
        at = f'x="{middle(part):g}" text-anchor="middle"'
        out.append(
            f'<rect x="{left}" y="{top}" width="{wide}" height="{HEIGHT}" rx="6" fill="{fill}" '
            f'stroke="#456"/>'
        )
        out.append(f'<text {at} y="{top + 24}" font-size="15" font-weight="bold" fill="#123">{part}</text>')
        out.append(f'<text {at} y="{top + 44}" font-size="10.5" fill="#345">{text}</text>')
    for a, b in drawn:
        (left_a, top_a, wide_a), (left_b, top_b, wide_b) = box(a), box(b)
        if top_a == top_b:
            right = left_a < left_b
            x: tuple[float, float] = (left_a + wide_a, left_b) if right else (left_a, left_b + wide_b)
            y: tuple[float, float] = (top_a + HEIGHT / 2, top_b + HEIGHT / 2)
        else:
            down = sorted((c for s, c in drawn if s == a and box(c)[1] > top_a), key=middle)
            into = sorted((s for s, c in drawn if c == b and box(s)[1] < top_b), key=middle)
            start = left_a + wide_a * (down.index(b) + 1) / (len(down) + 1)
            end = left_b + wide_b * (into.index(a) + 1) / (len(into) + 1)
            low, high = max(left_a, left_b) + 20, min(left_a + wide_a, left_b + wide_b) - 20
            if low < high:  # one above the other: straight down, if that is near
                straight = min(max((start + end) / 2, low), high)
                start = end = straight
            x, y = (start, end), (top_a + HEIGHT, top_b)
        out.append(
            f'<path d="M{x[0]:g},{y[0]:g} L{x[1]:g},{y[1]:g}" stroke="#456" stroke-width="1.4" '
            'fill="none" marker-end="url(#end)"/>'
        )
    return "\n".join([*out, "</svg>", ""])


def main() -> int:
    """Check every tracked C and C++ file, the dependencies and the picture; redraw it if requested."""
    drawn = picture(uses := arrows())
    if sys.argv[1:] == ["--draw"]:
        (ROOT / PICTURE).write_text(drawn)
        return 0
    found = [line for name in tracked("*.c", "*.h", "*.cpp", "*.cl") for line in violations(ROOT / name)]
    found += not_down(uses)
    if (ROOT / PICTURE).read_text() != drawn:
        found.append(f"{PICTURE}: stale; tools/check_layers.py --draw makes it anew")
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
