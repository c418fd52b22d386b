"""The HTTP API of a server as one table, which `http` serves and `openapi` describes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from headwater.errors import HeadwaterError, RateError, RunError
from headwater.serve.backend import Backend
from headwater.serve.history import SPAN_S
from headwater.serve.messages import Order
from headwater.serve.query import UnknownStepError, files_in, query_file, query_stream, steps_of
from headwater.serve.service import UnknownFlowError

JSON, TEXT, EVENTS = "application/json", "text/plain; version=0.0.4; charset=utf-8", "text/event-stream"
_PATIENCE_S = 15.0  #: after so long without news a stream says that it lives
_MOST_LETTERS = 1000
_MOST_RECORDS = 100


@dataclass(frozen=True, slots=True)
class Request:
    """A request, of a client that may make it."""

    service: Any  #: what answers; of the routes below, a `Backend`
    names: Mapping[str, str]  #: the parts of the path that are names
    query: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered; a stream has `events` in place of a body."""

    status: int
    body: bytes = b""
    kind: str = JSON
    events: Iterator[bytes] | None = None


class RefusalError(Exception):
    """The answer is no, with a status and a reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status

    @property
    def response(self) -> Response:
        """What is answered."""
        return document({"error": str(self)}, self.status)


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that can be asked for."""

    method: str
    path: str
    about: str
    answer: Callable[[Request], Response]
    gives: str = "object"  #: the schema of the answer, by name
    kind: str = JSON
    public: bool = False  #: asked for without a token
    query: Mapping[str, str] = field(default_factory=dict)  #: parameters, and what each means
    body: str = ""  #: the schema of what is sent, by name
    success: int = 200

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a path of this route looks like."""
        return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.path)))


def document(value: Any, status: int = 200) -> Response:
    """Answer with a value as JSON."""
    try:
        body = msgspec.json.encode(value, enc_hook=str)
    except (UnicodeEncodeError, OverflowError):  # text of a record that is no Unicode, a number beyond 64 bits
        body = json.dumps(value, default=str).encode()
    return Response(status, body)


def answer_request(
    method: str, path: str, request: Callable[[Mapping[str, str]], Request], routes: Sequence[Route] | None = None
) -> Response:
    """Answer what is asked for at a path; `request` is made once it is known what that is. See `matching_route`."""
    try:
        route, names = matching_route(method, path, routes)
        return route.answer(request(names))
    except RefusalError as refusal:
        return refusal.response
    except (UnknownFlowError, UnknownStepError) as error:
        return document({"error": str(error)}, 404)
    except HeadwaterError as error:
        return document({"error": str(error)}, 409)


def matching_route(method: str, path: str, routes: Sequence[Route] | None = None) -> tuple[Route, dict[str, str]]:
    """Return the route of a path and the names in it, of those of flows unless others are given; RefusalError if none."""
    others = []
    for route in ROUTES if routes is None else routes:
        match = route.pattern.fullmatch(path)
        if match and (route.method == method or (method == "HEAD" and route.method == "GET")):
            return route, {name: unquote(text, errors="strict") for name, text in match.groupdict().items()}
        if match:
            others.append(route.method)
    if others:
        raise RefusalError(405, f"{path} takes {' or '.join(others)}, not {method}")
    raise RefusalError(404, f"there is nothing at {path}; /openapi.json says what there is")


# -- answers --------------------------------------------------------------------------------------------------------------


def _health(request: Request) -> Response:
    healthy = request.service.healthy
    return document({"healthy": healthy}, 200 if healthy else 503)


def _ready(request: Request) -> Response:
    ready = request.service.ready
    return document({"ready": ready}, 200 if ready else 503)


def _openapi(request: Request) -> Response:
    from headwater.serve.openapi import openapi_document

    return document(openapi_document())


def _prometheus(request: Request) -> Response:
    return Response(200, request.service.metrics().encode(), TEXT)


def _server(request: Request) -> Response:
    return document(request.service.describe())


def _flows(request: Request) -> Response:
    return document(request.service.statuses())


def _flow(request: Request) -> Response:
    return document(request.service.status(request.names["name"]))


def _act(what: str) -> Callable[[Request], Response]:
    def act(request: Request) -> Response:
        return document(request.service.act(request.names["name"], what), 202)

    return act


def _graph(request: Request) -> Response:
    return Response(200, request.service.graph_of(request.names["name"]))


def _log(request: Request) -> Response:
    return document({"lines": request.service.log_of(request.names["name"])})


def _sample(request: Request) -> Response:
    sample = request.service.sample_of(request.names["name"])
    if sample is None:
        raise RefusalError(
            404, f"flow {request.names['name']!r} has not told how it fares yet; it does each second it runs"
        )
    return Response(200, sample)


def _history(request: Request) -> Response:
    seconds = _number(request, "seconds", SPAN_S, float, 1, SPAN_S)
    samples = request.service.history_of(request.names["name"], seconds)
    return Response(200, b"[" + b",".join(samples) + b"]")


def _follow(request: Request) -> Response:
    name = request.names.get("name")
    if name is not None:
        request.service.status(name)  # says where there is none
    return Response(200, kind=EVENTS, events=_events(request.service, name))


def _events(service: Backend, name: str | None) -> Iterator[bytes]:
    for each in service.follow(name, _PATIENCE_S):
        yield b": alive\n\n" if each is None else b"event: %s\ndata: %s\n\n" % (each[0].encode(), each[1])


def _records(request: Request) -> Response:
    request.service.status(request.names["name"])  # says where there is none
    step = request.query.get("step")
    if not step:
        raise RefusalError(400, "which step? ?step=NAME says")
    limit = _number(request, "limit", 10, int, 1, _MOST_RECORDS)
    try:
        return Response(200, request.service.show(request.names["name"], Order("records", step, limit)))
    except HeadwaterError:
        if request.service.status(request.names["name"])["state"] == "running":
            steps_of(request.service, request.names["name"], step)  # says where there is none
        raise


def _promise(request: Request) -> Response:
    return Response(200, request.service.show(request.names["name"], Order("promise")))


def _checkpoints(request: Request) -> Response:
    from headwater.engine.checkpoint.listing import summaries

    folder = request.service.home_of(request.names["name"]).checkpoint
    if not any(folder.glob("*.checkpoint")):
        return document([])
    return document([asdict(each) for each in summaries(folder)])


def _letters(request: Request) -> Response:
    after = _number(request, "after", -1, int, -1, 2**62)
    limit = _number(request, "limit", 100, int, 1, _MOST_LETTERS)
    step = request.query.get("step")
    letters: list[Any] = []
    more = False
    for letter in _dead_letters(request):
        if letter.id > after and (step is None or letter.step == step):
            if len(letters) == limit:
                more = True
                break
            letters.append(letter.to_json())
    return document({"letters": letters, "more": more})


def _letter(request: Request) -> Response:
    number = request.names["id"]
    if number.isascii() and number.isdigit():
        for letter in _dead_letters(request):
            if letter.id == int(number):
                return document(letter.to_json())
    raise RefusalError(404, f"there is no dead letter {number!r}; it may have been replayed already")


def _dead_letters(request: Request) -> Iterator[Any]:
    from headwater.io.dead import DeadLetterFolder

    folder: Path = request.service.home_of(request.names["name"]).dead
    if folder.is_dir():
        try:
            yield from DeadLetterFolder(folder).letters()
        except RunError:  # none was ever kept
            return


class Replay(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters are replayed, and what of them is changed first."""

    ids: list[int] = []
    step: str | None = None
    set: dict[str, Any] = {}


def _replay(request: Request) -> Response:
    try:
        replay = msgspec.json.decode(request.body or b"{}", type=Replay)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(400, f"what is replayed is told as {{ids, step, set}} in JSON: {error}") from None
    return Response(200, request.service.replay(request.names["name"], replay.ids, replay.step, replay.set))


class Query(msgspec.Struct, forbid_unknown_fields=True):
    """A query, and the step whose records it is about."""

    step: str
    query: str
    limit: int = 100


def _query(request: Request) -> Response:
    request.service.status(request.names["name"])  # says where there is none
    try:
        query = msgspec.json.decode(request.body, type=Query)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(400, f"a query is told as {{step, query, limit}} in JSON: {error}") from None
    limit = min(max(0, query.limit), _MOST_RECORDS)
    return Response(200, query_stream(request.service, request.names["name"], query.step, query.query, limit))


def _files(request: Request) -> Response:
    return document(files_in(Path(request.service.describe()["folder"])))


class FileQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A query, and the file that it is about."""

    file: str
    query: str
    limit: int = 100


def _query_file(request: Request) -> Response:
    try:
        query = msgspec.json.decode(request.body, type=FileQuery)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(400, f"a query of a file is told as {{file, query, limit}} in JSON: {error}") from None
    limit = min(max(0, query.limit), _MOST_RECORDS)
    return Response(200, query_file(request.service, query.file, query.query, limit))


class NewQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A query that a flow should have from now on, by a name."""

    name: str
    query: str
    step: str = ""  #: whose records it reads, where the name of that is no word of the language


def _add_query(request: Request) -> Response:
    request.service.status(request.names["name"])  # says where there is none
    try:
        query = msgspec.json.decode(request.body, type=NewQuery)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(400, f"a query to add is told as {{name, query, step}} in JSON: {error}") from None
    return document(request.service.add_query(request.names["name"], query.name, query.query, query.step), 202)


def _promises(request: Request) -> Response:
    from headwater.rate import board

    try:
        promises = board()
    except RateError as error:
        raise RefusalError(503, str(error)) from None
    content = {} if promises is None else msgspec.to_builtins(promises)
    content.pop("type", None)
    return document({"supervisor": promises is not None, **content})


def _number(request: Request, name: str, default: float, kind: type, least: float, most: float) -> Any:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = kind(text)
        if not least <= value <= most:
            raise ValueError
    except ValueError:
        raise RefusalError(400, f"{name} is a number from {least:g} to {most:g}; got {text[:40]!r}") from None
    return value


_API = "/api/v1"
_FLOW = f"{_API}/flows/{{name}}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", "Whether the server does its work", _health, public=True, gives="Health"),
    Route("GET", "/readyz", "Whether every flow has begun, or could not", _ready, public=True, gives="Readiness"),
    Route("GET", "/openapi.json", "This document", _openapi, public=True),
    Route("GET", "/metrics", "Metrics of all flows, for Prometheus", _prometheus, kind=TEXT, gives="Text"),
    Route("GET", f"{_API}/server", "The server", _server, gives="Server"),
    Route("GET", f"{_API}/stream", "States of all flows as they change", _follow, kind=EVENTS, gives="Text"),
    Route(
        "GET",
        f"{_API}/promises",
        "What is promised on this machine: the supervisor's ledger",
        _promises,
        gives="Promises",
    ),
    Route("GET", f"{_API}/files", "Files of records beside the flows, to be asked a query", _files, gives="Files"),
    Route(
        "POST",
        f"{_API}/query",
        "What a query finds in a file, or where its text is wrong",
        _query_file,
        gives="Queried",
        body="FileQuery",
    ),
    Route("GET", f"{_API}/flows", "All flows", _flows, gives="Flows"),
    Route("GET", _FLOW, "How a flow fares", _flow, gives="Flow"),
    Route("POST", f"{_FLOW}/start", "Start a flow", _act("start"), gives="Flow", success=202),
    Route(
        "POST", f"{_FLOW}/stop", "Stop a flow with a checkpoint; it stays so", _act("stop"), gives="Flow", success=202
    ),
    Route("POST", f"{_FLOW}/restart", "Stop it, and go on from there", _act("restart"), gives="Flow", success=202),
    Route("GET", f"{_FLOW}/graph", "Steps and streams, as they are drawn", _graph, gives="Graph"),
    Route("GET", f"{_FLOW}/log", "The last lines that its process has written", _log, gives="Log"),
    Route("GET", f"{_FLOW}/metrics", "The last sample", _sample, gives="Sample"),
    Route(
        "GET",
        f"{_FLOW}/metrics/history",
        "Samples of the last hour, one every five seconds",
        _history,
        gives="Samples",
        query={"seconds": "only of the last so many seconds"},
    ),
    Route(
        "GET",
        f"{_FLOW}/metrics/stream",
        "Samples and states of a flow as they come",
        _follow,
        kind=EVENTS,
        gives="Text",
    ),
    Route(
        "GET",
        f"{_FLOW}/records",
        "The next records that a step takes in and gives out, looked at only for this answer",
        _records,
        gives="Records",
        query={"step": "which step", "limit": "at most so many, 10 by default"},
    ),
    Route(
        "POST",
        f"{_FLOW}/query",
        "What a query finds in the next records that a step gives out, or where its text is wrong",
        _query,
        gives="Queried",
        body="Query",
    ),
    Route(
        "POST",
        f"{_FLOW}/queries",
        "Have a flow answer a query from now on; matches are written to a file beside it",
        _add_query,
        gives="Flow",
        body="NewQuery",
        success=202,
    ),
    Route(
        "GET",
        f"{_FLOW}/promise",
        "How a promised flow fares: windows kept and broken, and why",
        _promise,
        gives="Promise",
    ),
    Route("GET", f"{_FLOW}/checkpoints", "Checkpoints that are kept, oldest first", _checkpoints, gives="Checkpoints"),
    Route(
        "GET",
        f"{_FLOW}/dead",
        "Dead letters that were not replayed yet, oldest first",
        _letters,
        gives="Letters",
        query={"step": "only those that broke this step", "after": "from this number on", "limit": "at most so many"},
    ),
    Route(
        "POST",
        f"{_FLOW}/dead/replay",
        "Give dead letters to the steps that they broke; the flow stands still meanwhile",
        _replay,
        gives="Replayed",
        body="Replay",
    ),
    Route("GET", f"{_FLOW}/dead/{{id}}", "One dead letter", _letter, gives="Letter"),
)
