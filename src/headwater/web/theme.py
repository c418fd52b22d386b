"""Colours and the form of charts, light and dark: a legend on top, quiet lines, labels that can be read on their ground."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Theme:
    """What a chart is drawn with; a canvas knows no style sheet."""

    dark: bool
    ink: str
    soft: str
    line: str
    card: str
    colours: tuple[str, ...]
    heat: tuple[str, ...]  #: from few to many

    @property
    def text(self) -> dict[str, Any]:
        """How words look."""
        return {"color": self.soft, "fontFamily": "system-ui, sans-serif", "fontSize": 12}

    def axis(self, **more: Any) -> dict[str, Any]:
        """Return an axis of values."""
        return {
            "axisLabel": self.text,
            "nameTextStyle": {**self.text, "align": "left"},
            "axisLine": {"show": False},
            "axisTick": {"show": False},
            "splitLine": {"lineStyle": {"color": self.line, "width": 1}},
            "splitNumber": 3,
            **more,
        }

    def tooltip(self) -> dict[str, Any]:
        """Return a tooltip that is drawn, not made of HTML: what it shows may be anybody's text."""
        return {
            "trigger": "axis",
            "renderMode": "richText",
            "backgroundColor": self.card,
            "borderColor": self.line,
            "textStyle": {"color": self.ink, "fontSize": 12},
        }


LIGHT = Theme(
    False,
    "#16222d",
    "#55677a",
    "#e4eaf0",
    "#ffffff",
    ("#0a6c96", "#c2500a", "#1a7f4b", "#8a5cc4", "#5b6b7b"),
    ("#eef4f8", "#9fd0e6", "#3a9cc6", "#0a6c96", "#063a52"),
)
DARK = Theme(
    True,
    "#e7eef4",
    "#a3b3c2",
    "#243240",
    "#16202a",
    ("#55c3f2", "#ff9a4d", "#5fd39a", "#c5a3ff", "#a3b3c2"),
    ("#1a2833", "#1f5f7d", "#2f96c2", "#7cd3f7", "#e9f8ff"),
)


def theme_named(name: str) -> Theme:
    """Return the theme that a cookie names; light, if it names none."""
    return DARK if name == "dark" else LIGHT


@cache
def style() -> str:
    """Return the style sheet of all pages."""
    return (Path(__file__).parent / "style.css").read_text()
