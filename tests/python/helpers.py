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
