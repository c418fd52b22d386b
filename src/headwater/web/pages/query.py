"""The Query page: type a query over a running stream or a file; mistakes are marked in place, matches come live."""

from __future__ import annotations

import re
from typing import Any

from nicegui import ui

from headwater.web.api import Api, ApiError, of_flow
from headwater.web.editor import Editor
from headwater.web.figures import size
from headwater.web.frame import Frame, add_page, empty, title, title_with_figure
from headwater.web.step_panel import kinds_of, records_table

_LIMIT = 100  #: records of a stream that are looked at, matches of a file that are told
_MOST_MATCHES = 200  #: matches of a stream that stay on the page
_FIELD = 'dense outlined options-dense popup-content-class="hw-popup"'
_STREAM = "stream"  #: what records are called whose step, or file, has a name that is no word


def add(api: Api) -> None:
    """Register the page."""
    add_page(api, "query", 1.0, _QueryPage)


class _QueryPage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self._api = frame, frame.api
        self._columns: dict[str, dict[str, Any]] = {}  #: by step
        self._kinds: dict[str, str] = {}
        self._asking = False
        with frame.body:
            self._ask_card()
            self._none = ui.element("section").classes("hw-card")
            with self._none:
                empty(
                    "Nothing asked yet",
                    "Choose a step, or a file beside the flows, and ask (Ctrl-Enter). Of a step a query sees the next "
                    "hundred records, of a file all.",
                )
            self._answer = _Answer(frame)

    def _ask_card(self) -> None:
        with ui.element("section").classes("hw-card"):
            title("Ask a running stream, or a file")
            with ui.element("div").classes("hw-row"):
                self._of = (
                    ui.select({}, label="Of", on_change=self._on_choice)
                    .props(_FIELD)
                    .style("min-width: min(280px, 100%)")
                )
                self._fields = ui.label().classes("hw-soft hw-small")
            self._editor = Editor("Query", self._check, self._ask)
            with ui.element("div").classes("hw-row"):
                self._look = ui.button("Ask", on_click=self._ask).props("no-caps unelevated").classes("hw-go")
                self._live = ui.switch("Live: ask again each second", on_change=self._begin_anew)

    async def refresh(self) -> None:
        """Refresh what can be asked; ask again, if the switch is on."""
        try:
            graph = await self._api.get(of_flow(self.frame.flow, "graph"), 5.0)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            graph = {"steps": []}
        files = await self._api.get("/files", 5.0)
        self._columns = {step["name"]: step["outputs"] for step in graph["steps"] if step["outputs"]}
        self._kinds = kinds_of(graph)
        options = {f"step {name}": f"step {name}" for name in self._columns}
        options |= {f"file {each['name']}": f"file {each['name']} ({size(each['bytes'])})" for each in files}
        if self._of.options != options:
            choice = self._of.value if self._of.value in options else next(iter(options), None)
            self._of.set_options(options, value=choice)
        if self._live.value:
            await self._ask()

    @property
    def _source(self) -> tuple[str, str]:
        """What is asked: a kind, step or file, and its name."""
        kind, _, name = (self._of.value or "").partition(" ")
        return kind, name

    async def _on_choice(self) -> None:
        """Say what the records have that were chosen, and begin with a query that works."""
        kind, name = self._source
        self._live.set_visibility(kind == "step")
        if kind == "file":
            self._live.set_value(False)
            result = await self._try_query("", 0)  # what a file has only its reader knows
            columns, stream = ({}, _STREAM) if result is None else (result["columns"], result["stream"])
        else:
            columns, stream = next(iter(self._columns.get(name, {}).values()), {}), name if _is_word(name) else _STREAM
        self._fields.set_text(", ".join(f"{column}: {kind}" for column, kind in columns.items()))
        if columns:
            self._editor.begin_with(first_query(stream, columns))
            await self._check()

    async def _check(self) -> None:
        """Mark what is wrong in the text, while it is typed."""
        text = self._editor.text
        result = await self._try_query(text, 0, quiet=True) if text.strip() else None
        self._editor.mark(text, None if result is None else result["fault"])

    async def _begin_anew(self) -> None:
        self._answer.forget()

    async def _ask(self) -> None:
        if self._asking or not self._of.value:
            return
        self._asking = True
        self._look.props("loading")
        text = self._editor.text
        try:
            result = await self._try_query(text, _LIMIT)
        finally:
            self._asking = False
            self._look.props(remove="loading")
        if result is None:
            self._live.set_value(False)
            return
        self._editor.mark(text, result["fault"])
        self._none.set_visibility(False)
        kind, name = self._source
        self._answer.show(result, text, name if kind == "step" else None, self._kinds, more=bool(self._live.value))

    async def _try_query(self, text: str, limit: int, *, quiet: bool = False) -> Any:
        """Run the query, or only check its text; None, and a notice unless `quiet`, where that fails."""
        kind, name = self._source
        body = {kind: name, "query": text, "limit": limit}
        try:
            path = "/query" if kind == "file" else of_flow(self.frame.flow, "query")
            return await self._api.post(path, body, changes=False)
        except ApiError as error:
            if not quiet:
                ui.notify(str(error), type="negative", multi_line=True)
            return None


class _Answer:
    """What a query has found, and how a flow would answer it from now on."""

    def __init__(self, frame: Frame) -> None:
        self._frame, self._step, self._text = frame, "", ""
        self.forget()
        self._card = ui.element("section").classes("hw-card")
        with self._card:
            with ui.element("div").classes("hw-row"):
                self._count = title_with_figure("Matches", "matches")
                self._dead = ui.label().classes("hw-pill waiting")
            self._note = ui.label().classes("hw-soft")
            self._rows = ui.element("div").classes("hw-scroll")
        self._new = ui.element("section").classes("hw-card")
        with self._new:
            title("Add it to the flow")
            ui.label(
                "The flow answers it from now on, and writes matches to a file beside it. It goes on from its checkpoint."
            ).classes("hw-soft hw-small")
            with ui.element("div").classes("hw-row").style("margin: 8px 0"):
                self._name = ui.input("Name", value="found").props("outlined dense")
                ui.button("Add it", on_click=self._add).props("no-caps outline")
            ui.label("Or in its own file, after the steps that it reads:").classes("hw-soft hw-small")
            self._lines = ui.label().classes("hw-mono")
        self._set_visible(False, False)

    def _set_visible(self, there: bool, may_be_added: bool) -> None:
        self._card.set_visibility(there)
        self._new.set_visibility(there and may_be_added)

    def forget(self) -> None:
        """Begin anew: what was found before is of another question."""
        self._match_count = self._record_count = self._unreadable_count = 0
        self._matches: list[Any] = []

    def show(self, result: Any, text: str, step: str | None, kinds: dict[str, str], *, more: bool) -> None:
        """Show what was found, in front of what was found before if it is `more` of that."""
        if not more or (text, step or "") != (self._text, self._step):
            self.forget()
        self._text, self._step = text, step or ""
        if result["fault"] is not None:
            self._set_visible(False, False)
            return
        self._match_count += result["found"]
        self._record_count += result["looked_at"]
        self._unreadable_count += result["dead_letters"]
        self._matches = [*result["matches"][:: -1 if more else 1], *self._matches][:_MOST_MATCHES]
        self._set_visible(True, step is not None)
        self._count.set_text(f"{self._match_count:,} in {self._record_count:,} records")
        self._dead.set_text(f"{self._unreadable_count:,} could not be read" if self._unreadable_count else "")
        self._note.set_text(self._summary())
        self._note.set_visibility(bool(self._summary()))
        self._rows.clear()
        with self._rows:
            if self._matches:
                records_table(self._matches, kinds)
        self._lines.set_text(snippet(text, self._step))

    def _summary(self) -> str:
        if not self._record_count:
            return "No record passed in 3 s."
        if not self._match_count:
            return "Nothing in these records fits; ask again, or ask for less."
        if self._match_count > len(self._matches):
            return f"{len(self._matches)} of them:"
        return ""

    async def _add(self) -> None:
        body = {"name": self._name.value or "", "query": self._text, "step": self._step}
        path = of_flow(self._frame.flow, "queries")
        message = f"{self._name.value} is part of the flow as soon as it has been checked; the Flow page shows it."
        await self._frame.perform(lambda: self._frame.api.post(path, body), message)


def _is_word(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None


def first_query(stream: str, columns: dict[str, Any]) -> str:
    r"""Return a query to begin with.

    >>> first_query("levels", {"tank": "text", "height": "float"})
    'from levels[height > 0]\nselect tank, height\ninsert into matches'
    """
    words = {name: kind for name, kind in columns.items() if _is_word(name)}
    number = next((name for name, kind in words.items() if kind in ("float", "int")), None)
    condition = f"[{number} > 0]" if number else ""
    return f"from {stream}{condition}\nselect {', '.join(list(words)[:4])}\ninsert into matches"


def snippet(text: str, step: str) -> str:
    r"""Return the lines of Python that add a query to a flow.

    >>> print(snippet("from a\nselect b", "a"))
    found = flow.query("found", '''
    from a
    select b
    ''')
    """
    plain = "'''" not in text and "\\" not in text and all(sign.isprintable() or sign == "\n" for sign in text)
    literal = f"'''\n{text}\n'''" if plain else repr(text)
    stream = re.sub(r"\W+", "_", step)
    streams = "" if _is_word(step) else f', streams={{"{_STREAM}": {stream}}}'
    return f'found = flow.query("found", {literal}{streams})'
