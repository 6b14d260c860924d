"""Helpers that start new Python processes."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "python"


def python(script, environment=None, check=True):
    """Run a script after importing openxpu and PyTorch."""
    return bare("import openxpu, torch\n" + script, environment, check)


def bare(script, environment=None, check=True):
    """Run a script with the same openxpu as these tests; return the finished process."""
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
