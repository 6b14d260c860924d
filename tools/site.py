"""Puts the pages of the documentation together, for Sphinx to make a site of: `make docs`.

    tools/site.py FOLDER

writes into FOLDER the documents of the repository, the reference of libxpu's C headers (the comments there
are the documentation), of the command line and of Python's side, the latter from what is installed.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include" / "xpu"
TABLES = ROOT / "src" / "ops"

# --- C headers ---


@dataclass
class Entry:
    """A comment and the declarations that it is for; without any, a comment by itself."""

    text: str
    declarations: list[str] = field(default_factory=list)


PIECE = re.compile(
    r"""
      (?P<comment>  ^/\*.*?\*/ )
    | (?P<macro>    ^\#define\ (?:[^\n]*\\\n)*[^\n]* )
    | (?P<body>     ^typedef\ (?:struct|enum)\ \w+\ \{(?:[^\n]*\}|.*?^\})\ \w+; )
    | (?P<plain>    ^(?:typedef|XPU_API)\b[^;{]*; )
    | (?P<gap>      ^\n )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
# what guards a header, and what is for C++ or the compiler
NOISE = re.compile(
    r"""
      ^\#ifndef\ (XPU_\w+_H)\n\#define\ \1\n
    | ^\#ifdef\ __cplusplus\n.*?^\#endif\n
    | ^\#if\ [^\n]*defined\(_WIN32\)[^\n]*\n.*?^\#endif\n
    | ^\#include\ [^\n]*\n
    | ^\#endif\n\Z
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def comment_text(comment: str) -> str:
    """A comment's lines without its marks."""
    lines = comment[2:-2].rstrip().split("\n")
    return "\n".join([lines[0].strip(), *(re.sub(r"^ \* ?", "", line).rstrip() for line in lines[1:])])


def read_header(text: str) -> list[Entry]:
    """A header's comments and declarations, in order. Declarations without a gap between share a comment."""
    entries: list[Entry] = []
    follows = False
    body = re.compile(r'^#include "tables/.*\n', re.MULTILINE)
    kept = body.sub(lambda include: f"@{include[0][1:]}", text)  # in an enum: not noise
    for piece in PIECE.finditer(NOISE.sub("", kept)):
        found = piece[0].replace("@include", "#include")
        if piece.lastgroup == "gap":
            follows = False
        elif piece.lastgroup == "comment":
            entries.append(Entry(comment_text(found)))
            follows = True
        else:
            if not follows:
                entries.append(Entry(""))
            entries[-1].declarations.append(found.removeprefix("XPU_API "))
            follows = True
    return entries


def signature(declaration: str) -> tuple[str, str]:
    """A declaration as Sphinx's C domain has it: the directive and what it declares."""
    head = re.match(r"typedef (struct|enum) (\w+)( \{)?", declaration)
    if head and head[3]:
        return head[1], head[2]
    if macro := re.match(r"#define (\w+(?:\([^)]*\))?)", declaration):
        return "macro", macro[1]
    words = " ".join(declaration.rstrip(";").split())
    if words.startswith("typedef"):
        return "type", re.sub(r"^(?:struct|enum) (\w+) \1$", r"\1", words.removeprefix("typedef "))
    return "function", words


def name_of(declaration: str) -> str:
    """What it declares."""
    kind, words = signature(declaration)
    called = re.search(r"\(\*(\w+)\)", words) if kind == "type" else re.search(r"(\w+)\(", words)
    return called[1] if called else words


def prose(text: str, names: dict[str, str]) -> str:
    """A comment as Markdown: indented lines as they stand, names of libxpu's as links."""

    def linked(word: re.Match[str]) -> str:
        return f"{{c:{names[word[1]]}}}`{word[1]}`" if word[1] in names else word[0]

    out: list[str] = []
    for part in re.split(r"((?:^  .*(?:\n\n(?=  )|\n|\Z))+)", text, flags=re.MULTILINE):
        if part.startswith("  "):
            out += ["", "```text", part.rstrip(), "```", ""]
            continue
        pieces = re.split(r"(`+[^`]+`+)", part)  # code at the odd places
        for i in range(0, len(pieces), 2):
            escaped = re.sub(r"([*<\[\]])", r"\\\1", pieces[i])
            pieces[i] = re.sub(r"\b(xpu_\w+|XPU_\w+)(\(\))?", linked, escaped)
        out.append("".join(pieces).strip("\n"))
    return "\n".join(out)


def table_names(declaration: str) -> list[str]:
    """The enumerators that an enum takes from a table of operations."""
    table = re.search(r'#include "(tables/\w+\.def)"', declaration)
    prefix = re.search(r"#define X\(.*\) (\w+)##name,", declaration)
    if not table or not prefix:
        return []
    return [
        prefix[1] + name for name in re.findall(r"^X\((\w+),", (TABLES / table[1]).read_text(), re.MULTILINE)
    ]


def header_page(path: Path, names: dict[str, str]) -> str:
    """The page of one header."""
    title = path.relative_to(INCLUDE.parent).as_posix()
    first, *entries = read_header(path.read_text())
    about = first.text.removeprefix(f"{title}:").strip()
    out = [f"# {title}", "", prose(about[:1].upper() + about[1:], names), ""]
    for entry in entries:
        text = entry.text
        if section := re.match(r"--- (.*?) ---\n?", text):
            out += [f"## {section[1].capitalize()}", ""]
            text = text[section.end() :]
        if not entry.declarations:
            out += [prose(text, names), ""]
        for declaration in entry.declarations:
            kind, words = signature(declaration)
            out += [f"::::{{c:{kind}}} {words}", "", prose(text, names), ""]
            text = ""
            if kind in {"struct", "enum"} or "\n" in declaration and kind == "macro":
                out += ["```c", declaration, "```", ""]
            if made := table_names(declaration):
                out += ["From the table:", "", "```text", "  ".join(made), "```", ""]
            out += ["::::", ""]
    return "\n".join(out)


def headers() -> list[Path]:
    """The public headers: libxpu's parts first, then the operations."""
    return [*sorted(INCLUDE.glob("*.h")), *sorted((INCLUDE / "ops").glob("*.h"))]


ROLES = {"function": "func", "struct": "struct", "enum": "enum", "macro": "macro", "type": "type"}


def write_headers(folder: Path) -> list[str]:
    """Writes the pages of all headers; gives their names."""
    names = {
        name_of(declaration): ROLES[signature(declaration)[0]]
        for path in headers()
        for entry in read_header(path.read_text())
        for declaration in entry.declarations
    }
    pages = []
    for path in headers():
        page = path.relative_to(INCLUDE).with_suffix("").as_posix().replace("/", "_")
        (folder / f"c_{page}.md").write_text(header_page(path, names))
        pages.append(f"c_{page}")
    return pages


# --- the command line, and Python ---


def command_page() -> str:
    """What `openxpu` and its commands say of themselves."""
    from openxpu import cli

    parser = cli.make_parser()
    out = ["# The command openxpu", "", "```text", parser.format_help().rstrip(), "```", ""]
    for action in parser._subparsers._group_actions if parser._subparsers else []:
        for name, command in (action.choices or {}).items():  # type: ignore[attr-defined]
            assert isinstance(command, argparse.ArgumentParser)
            out += [f"## openxpu {name}", "", "```text", command.format_help().rstrip(), "```", ""]
    return "\n".join(out)


def described(thing: object) -> str:
    """The docstring, indented lines as they stand."""
    return prose(inspect.getdoc(thing) or "", {})


def arguments(function: Callable[..., object]) -> str:
    """A function's arguments and result."""
    return re.sub(r"\((?:self|cls)(, )?", "(", str(inspect.signature(function))).replace("'", "")


def first_line(thing: object) -> str:
    """The first sentence of a docstring."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    text = re.sub(r":\w+:`~?\.?([^`<]*?)\s*(?:<[^`]*>)?`(?:\\ )?", r"`\1`", text)
    return text.replace("|", "\\|").replace("[", "\\[").split(". ")[0].rstrip(".").replace("``", "`")


def python_page() -> str:
    """The package openxpu, and what it provides of torch.xpu in the installed PyTorch."""
    import openxpu
    import torch
    from openxpu import _types

    out = ["# Python", "", "## The package openxpu", "", described(openxpu), ""]
    for name in openxpu.__all__:
        thing = getattr(openxpu, name)
        if callable(thing):
            called = f"openxpu.{name}{arguments(thing)}"
            out += [f"::::{{py:function}} {called}", "", described(thing), "", "::::", ""]
    out += [f"## torch.xpu, of PyTorch {torch.__version__.split('+')[0]}", ""]
    out += [
        "The functions and classes are PyTorch's own, and its documentation explains them; below each of "
        "them lies",
        "libxpu. What a program sees of openxpu beyond that:",
        "",
    ]
    shown = {
        "torch.xpu.Stream": _types._XpuStreamBase,
        "torch.xpu.Event": _types._XpuEventBase,
        "torch.xpu.MemPool": _types._XPUMemPool,
        "torch.xpu.memory.XPUPluggableAllocator": _types._xpu_XPUAllocator,
    }
    for name, cls in shown.items():
        text = re.sub(r"^Base class of torch\.xpu\.\w+[:.] ?", "", described(cls))
        out += [f"::::::{{py:class}} {name}", "", text[:1].upper() + text[1:], ""]
        for member, thing in vars(cls).items():
            plain = thing.__func__ if isinstance(thing, (staticmethod, classmethod)) else thing
            if member.startswith("_") or not inspect.getdoc(plain):
                continue
            kind = "property" if isinstance(plain, property) else "method"
            called = member if kind == "property" else member + arguments(plain)
            out += [f":::::{{py:{kind}}} {called}", "", described(plain), "", ":::::", ""]
        out += ["::::::", ""]
    out += [
        "`torch.xpu.get_device_properties` gives the fields of libxpu's table of properties "
        "(`xpu/device.h`) under",
        "their names, and those that PyTorch itself asks for.",
        "",
        "All names:",
        "",
        "| | |",
        "|---|---|",
    ]
    source = inspect.getsource(_types)
    missing = set(re.findall(r'_later\("torch\.xpu\.(\w+)"\)', source))
    for name in sorted(torch.xpu.__all__, key=str.lower):
        thing = getattr(torch.xpu, name, None)
        if not callable(thing):
            continue
        wants = re.search(rf"\b(?:{'|'.join(missing)})\(", inspect.getsource(thing))
        note = "raises `NotImplementedError`" if name in missing or wants else first_line(thing)
        out.append(f"| `torch.xpu.{name}` | {note} |")
    return "\n".join([*out, ""])


# --- the documents ---

INDEX = """# openxpu

```{{include}} README.md
:start-line: 1
```

```{{toctree}}
:hidden:
:caption: Documents

{documents}
```
{internals}
```{{toctree}}
:hidden:
:caption: Reference

command
python
```

```{{toctree}}
:hidden:
:caption: libxpu in C

{headers}
```
"""
INTERNALS = """
```{{toctree}}
:hidden:
:caption: Internals

{pages}
```
"""
# in this order; others follow
FIRST = [
    *("getting-started", "status", "known-issues", "numerics", "performance", "distributed", "ops"),
    *("design", "tile", "adding", "CONTRIBUTING", "suites", "CHANGELOG", "SECURITY"),
]
DOCUMENTS = [ROOT, ROOT / "docs", ROOT / "docs" / "internals"]
# the folders of a link between documents, which the site puts into one folder
FOLDERS = re.compile(r"\]\((?:\.\./)*(?:docs/)?(?:internals/)?([\w-]+\.(?:md|svg))")


def write_documents(folder: Path) -> list[str]:
    """Copy the documents, in which names of documents become links; give their names."""
    pages = {path.stem: path for where in DOCUMENTS for path in where.glob("*.md")}
    for where in DOCUMENTS:
        for path in where.glob("*.svg"):
            shutil.copy(path, folder)

    def link(code: re.Match[str]) -> str:
        stem = Path(code[2]).stem
        return f"[{code[1]}]({stem}.md)" if stem in pages and stem != "README" else code[1]

    for stem, path in pages.items():
        text = FOLDERS.sub(r"](\1", path.read_text())
        names = r"(?<!\[)(`((?:docs/)?(?:internals/)?[\w-]+\.md)`)(?!\])"
        (folder / f"{stem}.md").write_text(re.sub(names, link, text))
    stems = sorted(pages.keys() - {"README"}, key=lambda s: (FIRST.index(s) if s in FIRST else len(FIRST), s))
    return stems


def main() -> int:
    """Writes everything into the folder named."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    documents, pages = write_documents(folder), write_headers(folder)
    (folder / "command.md").write_text(command_page())
    (folder / "python.md").write_text(python_page())
    inside = sorted(path.stem for path in DOCUMENTS[-1].glob("*.md"))
    index = INDEX.format(
        documents="\n".join(stem for stem in documents if stem not in inside),
        internals=INTERNALS.format(pages="\n".join(inside)) if inside else "",
        headers="\n".join(pages),
    )
    (folder / "index.md").write_text(index)
    return 0


if __name__ == "__main__":
    sys.exit(main())
