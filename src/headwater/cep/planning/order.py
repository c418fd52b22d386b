"""In which order the queries of a text are planned: each after all that insert into the streams it reads."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.cep import syntax as s
from headwater.cep.automaton import events_of
from headwater.cep.diagnostics import error_at
from headwater.errors import listed


@dataclass(frozen=True, eq=False)
class Node:
    """A query and the partition in which it stands, if any."""

    query: s.Query
    partition: s.Partition | None = None

    @property
    def into(self) -> str | None:
        """The stream it inserts into, by a name that is the text's own: inner streams belong to their partition."""
        return self.name_of(self.query.into) if self.query.into is not None else None

    @property
    def reads(self) -> set[str]:
        """The streams it reads, those by which its partition is divided included."""
        streams = {stream for _, stream in self.partition.keys} if self.partition else set()
        return streams | {self.name_of(stream) for stream in _inputs_of(self.query)}

    def name_of(self, stream: str) -> str:
        """Return a stream's name, an inner one's with its partition."""
        return f"{stream} of {id(self.partition)}" if stream.startswith("#") else stream


def nodes(app: s.App) -> list[Node]:
    """Return all queries of a text as they stand."""
    queries: list[Node] = []
    for statement in app.statements:
        if isinstance(statement, s.Query):
            queries.append(Node(statement))
        elif isinstance(statement, s.Partition):
            queries += [Node(query, statement) for query in statement.queries]
    return queries


def in_order(text: str, queries: list[Node]) -> list[Node]:
    """Return queries in an order in which each reads complete streams, or complain that there is none."""
    remaining, order = list(queries), []
    while remaining:
        missing = {node.into for node in remaining}
        ready = next((node for node in remaining if not node.reads & missing), None)
        if ready is None:
            raise _circle(text, remaining, missing)
        remaining.remove(ready)
        order.append(ready)
    return order


def _circle(text: str, remaining: list[Node], missing: set[str | None]) -> Exception:
    itself = next((node for node in remaining if node.into in node.reads), None)
    if itself is not None:
        return error_at(text, itself.query.at, f"this query reads {itself.query.into!r}, into which it inserts")
    names = sorted({node.query.into or "" for node in remaining if node.into in missing})
    return error_at(text, remaining[0].query.at, f"queries read each other's results in a circle, by {listed(names)}")


def _inputs_of(query: s.Query) -> set[str]:
    match query.source:
        case s.Source(stream):
            return {stream}
        case s.Join(left, right):
            return {left.stream, right.stream}
        case s.Chain(_, links):
            return {event.stream for event in events_of(links)}
