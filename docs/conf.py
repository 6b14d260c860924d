"""Sphinx's settings for the site that `make docs` builds from what tools/site.py has put together."""

import re
from pathlib import Path

project = "openxpu"
author = "the openxpu authors"
_numbers = re.findall(
    r"_(?:MAJOR|MINOR|PATCH) (\d+)",
    (Path(__file__).parents[1] / "include" / "xpu" / "version.h").read_text(),
)
version = release = ".".join(_numbers)
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"openxpu {release}"
primary_domain = "c"
# What C and the system declare; a type of libxpu's that no page explains is an error.
nitpick_ignore_regex = [("c:identifier", r"(?!xpu_).*"), ("py:.*", r".*")]
# IR, and C with lines left out, which no lexer takes
suppress_warnings = ["misc.highlighting_failure"]
