"""Starting fresh Python processes."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "python"


def python(script, environment=None, check=True):
    """Run a script that has imported openxpu and PyTorch."""
    return bare("import openxpu, torch\n" + script, environment, check)


def bare(script, environment=None, check=True):
    """Run a script that finds openxpu as these tests do; return the finished process."""
    variables = dict(
        os.environ, PYTHONPATH=f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}", **(environment or {})
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=variables,
        timeout=300,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def passes_without_libraries(file: str, tier: str) -> None:
    """Fail unless the tests of a file pass where products are libxpu's own, by the instructions of `tier`."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file],
        env={**os.environ, "OPENXPU_MATRIX": tier, "OPENXPU_HOST_PROVIDER": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
