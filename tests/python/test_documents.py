"""What documents at the root say of versions, commands and files is so."""

from __future__ import annotations

import re
from pathlib import Path

import openxpu
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MADE = ("build/", ".venv/", "dist/")  # not in the repository


def test_the_changelogs_first_version_is_this_one():
    heading = re.search(
        r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert heading and heading[1] == openxpu.__version__


def test_the_supported_version_is_this_one():
    rows = re.findall(r"^\| (\d+\.\d+) \| yes \|$", (ROOT / "SECURITY.md").read_text(), re.M)
    assert openxpu.__version__.rsplit(".", 1)[0] in rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_targets_that_it_names_are_there(page):
    text = page.read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", text, re.M))
    assert not {target for target in targets if not re.search(rf"^{target}:", makefile, re.M)}
    first = "|".join(p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith("."))
    named = set(re.findall(rf"(?:`|\]\()((?:{first})/[\w./-]+)(?:`|\))", text))
    named |= set(re.findall(r"\]\(([\w./-]+\.(?:md|svg))\)", text))
    missing = {
        name
        for name in named
        if not name.startswith(MADE) and not (ROOT / name).exists() and not (page.parent / name).exists()
    }
    assert not missing
