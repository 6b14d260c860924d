"""The documents: versions, commands, files and links that they name exist, and they can be read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import openxpu
import pytest
from processes import run_python

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PARAGRAPH, LINE, ENTRY = 600, 1000, 60  # characters, characters, words
WORDS, SENTENCE = 30000, 35  # words: of all documents together, of a sentence in a public header
MULTILINE = re.MULTILINE | re.DOTALL
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


def without_code(text: str) -> str:
    """Return the text without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items; neither tables nor headings."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", without_code(text)):
        lines = [line.strip() for line in block.splitlines() if not re.match(r"\s*(\||#|<!--)", line)]
        if joined := " ".join(filter(None, lines)):
            yield joined


def code_blocks(page: Path) -> str:
    """Return the page with every fenced block but those of commands removed, so that fences match in pairs."""
    return re.sub(r"^( *)```[a-z]+\n.*?^\1```$", "", page.read_text(), flags=MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of its headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paragraphs_and_lines_are_short(page):
    text = page.read_text()
    assert not [(len(p), p[:80]) for p in paragraphs(text) if len(p) > PARAGRAPH]
    assert not [line[:80] for line in text.splitlines() if len(line) > LINE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    broken = []
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert not broken


def tracked(*patterns: str) -> list[Path]:
    """Return the repository's files that match the patterns."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [ROOT / name for name in listed.stdout.splitlines()]


def words(text: str) -> int:
    """Count the words of a document, without the pipes of its tables."""
    return len(text.replace("|", "").split())


def test_all_documents_together_are_short():
    count = sum(words(page.read_text()) for page in tracked("*.md"))
    assert count <= WORDS


def sentences(header: str) -> Iterator[str]:
    """Yield the sentences of a header's comments.

    Lines that are code (indented after an empty line), rows of tables (with columns apart) and formulas (that
    begin with ``name =``) are none. A sentence ends before them, and before items and labels such as "Errors:".
    """
    for comment in re.finditer(r"/\*(.*?)\*/|//([^\n]*)", header, re.DOTALL):
        lines = [re.sub(r"^\s*\*(?: |$)", "", line) for line in (comment[1] or comment[2] or "").split("\n")]
        text, is_code = "", False
        for before, line in zip(["", *lines], lines, strict=False):
            is_code = line.startswith("    ") and (is_code or not before.strip())
            if is_code or not line.strip() or re.search(r"\S {2,}\S|^\s*[\w'`]+(?:\[[^\]]*\])? = ", line):
                text += "\n"
                continue
            is_item = re.match(r"\s*(?:[-*]|\d+\.|[\w`][\w`, ]*:)(?:\s|$)", line)
            text += "\n" if is_item and not re.search(r"[\w,]$", before) else " "
            text += line.strip()
        yield from filter(None, map(str.strip, re.split(r"(?<=[.?!])\s+|\n", text)))


@pytest.mark.parametrize("header", tracked("include/xpu/*"), ids=lambda header: header.name)
def test_sentences_of_public_headers_are_short(header):
    long = [(len(s.split()), s) for s in sentences(header.read_text()) if len(s.split()) > SENTENCE]
    assert not long


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_run_or_marked(page):
    """A block of commands says above it what runs them, or why nothing does; files that it names exist."""
    unmarked = []
    for mark, block in re.findall(
        r"(?:^ *<!-- ([^\n]*) -->\n)?^ *```\n(.*?)^ *```$", code_blocks(page), MULTILINE
    ):
        named = re.findall(r"(?:tests|\.ci)/[\w./]+", mark)
        assert all((ROOT / name.rstrip(".")).exists() for name in named), mark
        if not named and "not run by tests: " not in mark:
            unmarked.append(block)
    assert not unmarked


def test_the_readmes_example_learns():
    example = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), MULTILINE)
    assert example
    loss = run_python(example[1]).stdout.split()[-1]
    assert 0 < float(loss) < 0.2


def test_known_issues_are_numbered_and_short():
    text = (ROOT / "docs" / "known-issues.md").read_text()
    entries = re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE)
    assert [int(number) for number, _ in entries] == [*range(1, len(entries) + 1)]
    for number, entry in entries:
        assert len(entry.split()) <= ENTRY, number
        assert all(f"**{part}" in entry for part in ("Affects**", "Workaround:**", "Bug:**")), number


def test_the_readme_begins_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert text.index("make run ") < text.index("make test ") < text.index("\n## ")


def test_checks_find_what_they_look_for():
    page = "# A b: c\n\nOne\ntwo.\n- three\n- four\n\n| a | b |\n\n```\n# code\n```\n1. five\n"
    assert [*paragraphs(page)] == ["One two.", "- three", "- four", "1. five"]
    assert anchors(page) == {"a-b-c"}
    assert words("| a | b c |\n\n| d | e-f |\n") == 5
    header = """/* One
 * two? Three.
 *
 *     xpu_code();
 *     more();
 *
 * Errors: four,
 * five: six
 *     seven.
 * key      a row
 * out[i] = formula
 * eight. */
int x; /* nine */ int y; // ten
"""
    found = ["One two?", "Three.", "Errors: four, five: six seven.", "eight.", "nine", "ten"]
    assert [*sentences(header)] == found
