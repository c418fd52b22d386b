"""The Query page: type a query over a running stream; mistakes are marked in place, matches come as records pass."""

from __future__ import annotations

from typing import Any

from nicegui import ui
from starlette.requests import Request

from headwater.web.api import Api, ApiError, of_flow
from headwater.web.frame import Frame, empty, title
from headwater.web.side import kinds_of, records_table

_RECORDS = 100
_AGAIN_S = 5.0
_TYPED = "document.querySelector('textarea[aria-label=Query]').value"


def add(api: Api) -> None:
    """Register the page."""

    @ui.page("/query/{name}")
    async def query_page(request: Request, name: str) -> None:
        page = _QueryPage(Frame(api, request, "query", name))
        await page.frame.every(_AGAIN_S, page.refresh)


class _QueryPage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._columns: dict[str, dict[str, Any]] = {}
        self._kinds: dict[str, str] = {}
        self._asking = False
        with frame.body:
            with ui.element("section").classes("hw-card"):
                title("Ask a running stream")
                with ui.element("div").classes("hw-row"):
                    self._step = (
                        ui.select([], label="Step", on_change=lambda event: self._suggest(event.value))
                        .props("dense outlined options-dense")
                        .style("min-width: 200px")
                    )
                    self._fields = ui.label().classes("hw-soft hw-small")
                self._editor = ui.element("div")
                self._begin_with("")
                with ui.element("div").classes("hw-row"):
                    self._look = (
                        ui.button("Ask the next records", on_click=self._ask)
                        .props("no-caps unelevated")
                        .classes("hw-go")
                    )
                    self._again = ui.switch(f"and again every {_AGAIN_S:g} s")
            self._answer = ui.element("section").classes("hw-card")
            with self._answer:
                empty(
                    "Nothing asked yet",
                    "Choose a step and ask: a query sees the next hundred records of it.",
                )

    async def refresh(self) -> None:
        """Know the steps; ask again, where somebody wants that."""
        try:
            graph = await self.frame.api.get(of_flow(self.frame.flow, "graph"), 5.0)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return
        self._columns = {step["name"]: step["outputs"] for step in graph["steps"] if step["outputs"]}
        self._kinds = kinds_of(graph)
        names = list(self._columns)
        if self._step.options != names:
            self._step.set_options(names, value=names[0] if names else None)
        if self._again.value:
            await self._ask()

    def _suggest(self, step: str | None) -> None:
        """Say what a step gives out, and begin with a query that works."""
        if not step or step not in self._columns:
            return
        fields = next(iter(self._columns[step].values()))
        self._fields.set_text(", ".join(f"{name}: {kind}" for name, kind in fields.items()))
        stream = step if step.isidentifier() and step.isascii() else "stream"
        number = next((name for name, kind in fields.items() if kind in ("float", "int")), None)
        some = f"[{number} > 0]" if number else ""
        self._begin_with(f"from {stream}{some}\nselect {', '.join(list(fields)[:4])}\ninsert into found")

    def _begin_with(self, text: str) -> None:
        """Have a text to go on from; in a field of its own, since one that is told a value tells it over what is typed."""
        self._editor.clear()
        with self._editor:
            ui.textarea("Query", value=text).props('outlined autogrow spellcheck=false input-class="hw-query"').style(
                "width: 100%; margin: 12px 0"
            )

    async def _ask(self) -> None:
        if self._asking or not self._step.value:
            return
        self._asking = True
        self._look.props("loading")
        try:
            text = await ui.run_javascript(_TYPED, timeout=10.0)  # as it is on the page: a key may be on its way
            body = {"step": self._step.value, "query": text, "limit": _RECORDS}
            found = await self.frame.api.post(of_flow(self.frame.flow, "query"), body)
        except ApiError as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        except TimeoutError:
            return  # whoever asked is gone
        finally:
            self._asking = False
            self._look.props(remove="loading")
        self._answer.clear()
        with self._answer:
            if found["fault"] is not None:
                self._mark(body["query"], found["fault"])
            else:
                self._tell(found, body["query"])

    def _mark(self, text: str, fault: Any) -> None:
        """Show the text with the wrong part marked."""
        title("The query is not right yet")
        ui.label(fault["says"]).props("role=alert")
        before, wrong, after = marked(text, fault["line"], fault["column"], fault["offending"])
        with ui.element("pre").classes("hw-mono"):
            for part, kind in ((before, ""), (wrong, "hw-fault"), (after, "")):
                ui.label(part).style("display: inline").classes(kind)

    def _tell(self, found: Any, text: str) -> None:
        with ui.element("div").classes("hw-row"):
            title("Matches")
            ui.label(f"{len(found['matches'])} in {found['looked_at']} records").classes("hw-pill").props(
                "data-figure=matches"
            )
        if found["matches"]:
            with ui.element("div").classes("hw-scroll"):
                records_table(found["matches"], self._kinds)
        else:
            ui.label("Nothing in these records fits; ask again, or ask for less.").classes("hw-soft")
        title("Add it to the flow").style("margin-top: 16px")
        ui.label(snippet(text)).classes("hw-mono")


def marked(text: str, line: int, column: int, offending: str) -> tuple[str, str, str]:
    r"""Cut a text into what is before, at and after a mistake; a sign is marked where the mistake is that nothing follows.

    >>> marked("from a\nselect b", 2, 8, "b")
    ('from a\nselect ', 'b', '')
    >>> marked("from a", 1, 7, "")
    ('from a', ' ', '')
    """
    begin = sum(len(each) for each in text.splitlines(keepends=True)[: max(0, line - 1)]) + max(0, column - 1)
    end = begin + len(offending)
    return text[:begin], text[begin:end] or " ", text[end:]


def snippet(text: str) -> str:
    r"""Return the lines of Python that add a query to a flow.

    >>> print(snippet("from a\nselect b"))
    found = flow.query("found", '''
    from a
    select b
    ''')
    """
    quotes = "'''"
    return f'found = flow.query("found", {quotes}\n{text}\n{quotes})'
