"""The field for the text of a query: what is marked in it."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui")

from nicegui import ui
from nicegui.client import Client

from headwater.web.editor import Editor

FAULT = {"says": "there is no nn", "line": 2, "column": 8, "offending": "nn"}


def test_an_answer_on_a_text_that_was_changed_since_takes_no_mark_away():
    with Client(ui.page("/editor"), request=None):
        editor = Editor("Query", lambda: None, lambda: None)
    editor.begin_with("from beats\nselect n")
    editor.text = "from beats\nselect nn"
    editor.mark("from beats\nselect nn", FAULT)
    editor.mark("from beats\nselect n", None)  # was asked before, and answered later
    assert editor._props["fault"] == {**FAULT, "of": "from beats\nselect nn"}
