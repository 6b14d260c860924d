"""Make the package in python/ importable without copying it.

    python tools/link_package.py [SITE_PACKAGES]

Writes a .pth file, the metadata of an installed package (name, version, entry points, from pyproject.toml) so
that `import torch` finds it, and the `openxpu` command next to the Python executable.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write(path: Path, text: str) -> None:
    """Write a file if its text differs."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    """Link the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, place = settings["project"], settings["tool"]["scikit-build"]["metadata"]["version"]
    numbers = re.search(place["regex"], (ROOT / place["input"]).read_text())
    assert numbers, f"no version in {place['input']}"
    name, version = project["name"], place["result"].format(**numbers.groupdict())
    site = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("purelib"))
    info = site / f"{name}-{version}.dist-info"
    groups = dict(project["entry-points"], console_scripts=project["scripts"])
    entries = (
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in lines.items()) for group, lines in groups.items()
    )
    write(site / f"{name}.pth", f"{ROOT / 'python'}\n")
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write(info / "entry_points.txt", "\n".join(entries))
    write(info / "INSTALLER", "make\n")
    if len(sys.argv) > 1:
        return
    for command, target in project["scripts"].items():
        module, _, function = target.partition(":")
        script = Path(sys.executable).with_name(command)
        write(
            script,
            f"#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n",
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    print(f"{name} {version} is linked into {os.path.relpath(site, ROOT)}")


if __name__ == "__main__":
    main()
