"""tools/site.py: what the reference has of the C headers, of the command line and of documents."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from openxpu import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_tool", ROOT / "tools" / "site.py")
    module = sys.modules["site_tool"] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


HEADERS = sorted((ROOT / "include").glob("xpu/**/*.h"))


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.relative_to(ROOT / "include").as_posix())
def test_the_reference_has_all_that_a_header_declares(site, path):
    text = path.read_text()
    entries = site.read_header(text)
    declared = {site.name_of(declaration) for entry in entries for declaration in entry.declarations}
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    functions = set(re.findall(r"^XPU_API [^;]*?(\w+)\(", code, re.MULTILINE))
    types = set(re.findall(r"^(?:typedef [^\n]*)?\} (\w+);", code, re.MULTILINE))
    types |= set(re.findall(r"^typedef [^{;]*\(\*(\w+)\)", code, re.MULTILINE))
    assert functions | types <= declared
    assert entries[0].text.startswith(path.relative_to(ROOT / "include").as_posix() + ":")
    assert declared or path.name == "xpu.h"


HEADER = """/* xpu/a.h: about it.
 *
 *     code of 1 * 2
 *
 * More, of xpu_f(). */
#ifndef XPU_A_H
#define XPU_A_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_e { XPU_ONE, XPU_TWO } xpu_e;
typedef struct xpu_s {
    int a; /* it */
} xpu_s;

/* --- part two ---
 * For all of it. */

/* Both do a[i] * b. */
XPU_API xpu_e xpu_f(int a,
                    const xpu_s *s);
XPU_API void xpu_g(void);

typedef void (*xpu_visitor)(int a);

#ifdef __cplusplus
}
#endif
#endif
"""


def test_a_header(site):
    about, types, part, both, visitor = site.read_header(HEADER)
    assert about.text == "xpu/a.h: about it.\n\n    code of 1 * 2\n\nMore, of xpu_f()."
    assert not about.declarations and not part.declarations and not types.text
    assert [site.signature(d) for d in types.declarations] == [("enum", "xpu_e"), ("struct", "xpu_s")]
    assert both.text == "Both do a[i] * b."
    assert [site.signature(d) for d in both.declarations] == [
        ("function", "xpu_e xpu_f(int a, const xpu_s *s)"),
        ("function", "void xpu_g(void)"),
    ]
    assert site.signature(visitor.declarations[0]) == ("type", "void (*xpu_visitor)(int a)")
    assert site.name_of(visitor.declarations[0]) == "xpu_visitor"


def test_comments_become_markdown(site):
    names = {"xpu_f": "func"}
    assert site.prose("a[i] * b of xpu_f(), `a*b` and xpu_g", names) == (
        r"a\[i\] \* b of {c:func}`xpu_f`, `a*b` and xpu_g"
    )
    assert "```text\n    code * 2\n```" in site.prose("See:\n\n    code * 2\n\nand so on", names)


def test_the_command_line_is_its_own_reference(site):
    page = site.command_page()
    for command in ("info", "doctor", "run", "warm", "compile"):
        assert f"## openxpu {command}\n" in page
    assert cli.make_parser().format_help().strip() in page


def test_the_reference_has_torch_xpus_names(site):
    page = site.python_page()
    for name in torch.xpu.__all__:
        assert f"| `torch.xpu.{name}` | " in page or not callable(getattr(torch.xpu, name, None))
    assert "raises `NotImplementedError`" not in page  # as names of later PyTorch versions do
    assert "{py:property} sycl_queue" in page and "self" not in re.findall(r"{py:method} .*", page)[0]
    assert ":class:" not in page


def test_names_of_documents_become_links(site, tmp_path):
    stems = site.write_documents(tmp_path)
    assert {"design", "status", "known-issues", "tile", "CONTRIBUTING"} <= set(stems)
    readme = (tmp_path / "README.md").read_text()
    assert "[known issues](known-issues.md)" in readme and "](layers.svg)" in readme
    assert "[contributing](CONTRIBUTING.md)" in (tmp_path / "getting-started.md").read_text()
    assert (tmp_path / "layers.svg").exists()
    for page in tmp_path.glob("*.md"):  # all pages lie in one folder
        assert not re.search(r"\]\([\w./-]+/[\w-]+\.md", page.read_text())
