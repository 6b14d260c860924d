"""Checks that the arrows between the project's parts go down only, from the includes of each file.

    core  ←  cl  ←  runtime  ←  ops, tile        (C; nothing of PyTorch)
    xpu/*.h  ←  bridge                           (C++; no OpenCL)

that src/ and the public headers include nothing of an operating system but through core/os.h, and that
kernels leave OpenCL C's half to prelude.cl: devices without cl_khr_fp16 don't assign it.

Prints each include that breaks a rule; the exit status is their number, at most 1.
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
    "src/kernels": {"kernels"},
    "include/xpu": set(),
    "bridge": set(),
}
# the layers whose public headers a layer may not know
HIGHER_HEADERS = {
    "src/core": {"device", "stream", "memory", "program", "random", "ops", "tile"},
    "src/cl": {"stream", "memory", "program", "random", "ops", "tile"},
    "src/runtime": {"ops", "tile"},
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
    """The rules that a file breaks, a line each."""
    name = path.relative_to(ROOT).as_posix()
    folder = next((f for f in ALLOWED if name.startswith(f + "/")), None)
    if folder is None:
        return []
    text = path.read_text()
    found = []
    for include in INCLUDE.findall(text):
        top, _, rest = include.partition("/")
        if top in {"core", "cl", "runtime", "ops", "tile"} and (ROOT / "src" / include).exists():
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


def main() -> int:
    """Checks every tracked C and C++ file."""
    listed = subprocess.run(
        ["git", "ls-files", "*.c", "*.h", "*.cpp", "*.cl"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = [line for name in listed.stdout.split() for line in violations(ROOT / name)]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
