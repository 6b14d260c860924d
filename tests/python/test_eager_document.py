"""docs/internals/eager.md: its commands print what it shows."""

import re
from pathlib import Path

from processes import run, run_python

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "eager.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

# One process runs the whole session: what is shown depends on kernels that it has not built before.
SESSION = """
import doctest
test = doctest.DocTestParser().get_doctest({text!r}, {{}}, "eager.md", "eager.md", 0)
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
assert runner.run(test).attempted > 10
raise SystemExit(runner.failures)
"""


def test_the_session_prints_what_is_shown():
    text = "\n".join(block for language, block in BLOCKS if language == "python")
    run_python(SESSION.format(text=text), bare=True, env={"OPENXPU_DEVICE": "cpu"})


def test_the_commands_print_what_is_shown():
    shown = [block for language, block in BLOCKS if language == "console"]
    assert shown
    for block in shown:
        command, output = block.removeprefix("$ ").split("\n", 1)
        done = run(["bash", "-c", command], cwd=ROOT)
        assert done.stdout == output
