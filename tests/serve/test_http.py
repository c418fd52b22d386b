"""Who may ask a server for what; over a real socket, with no flow running."""

import http.client
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from headwater.errors import RunError
from headwater.serve.folder import Folder
from headwater.serve.home import Home
from headwater.serve.http import Server, _Handler
from headwater.serve.notify import Notifier
from headwater.serve.openapi import openapi_document
from headwater.serve.routes import ROUTES, Request, answer_request
from headwater.serve.schemas import SCHEMAS
from headwater.serve.service import Service
from waiting import PATIENCE_S, hangs_up_on_who_drips

TOKEN = "a-token-of-enough-letters"
STREAMS = {route.path for route in ROUTES if route.kind == "text/event-stream"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWATER_RUNTIME", str(folder / "run"))
        (folder / "flows").mkdir()
        (folder / "flows" / 'a"<b>.py').write_text("")
        (folder / "flows" / 'a"<b>.toml').write_text("start = false")
        home = Home(folder / "state")
        service = Service(Folder(folder / "flows"), home, Notifier({}), stop_within_s=1)
        with Server(service, "127.0.0.1", 0, TOKEN, ["gateway.local"]) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            service.start()
            end = time.monotonic() + PATIENCE_S
            while not service.ready and time.monotonic() < end:
                time.sleep(0.01)
            yield server
            service.shut()
            assert service.ended.wait(PATIENCE_S)
            server.shutdown()
        home.leave()


@pytest.fixture
def ask(server):
    def ask(path, method="GET", body=None, **head):
        address, port = server.server_address[:2]
        line = http.client.HTTPConnection(address, port, timeout=PATIENCE_S)
        usual = {"Authorization": f"Bearer {TOKEN}"}
        line.request(method, path, body, {k: v for k, v in (usual | head).items() if v is not None})
        answer = line.getresponse()
        text = answer.read()
        line.close()
        assert answer.headers["Access-Control-Allow-Origin"] is None
        return answer.status, json.loads(text) if text else None

    return ask


def test_the_openapi_document_describes_every_route_and_no_other(ask):
    status, document = ask("/openapi.json", Authorization=None)
    assert (status, document) == (200, json.loads(json.dumps(openapi_document())))
    told = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert told == {(route.method, route.path) for route in ROUTES}
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert named <= set(SCHEMAS)
    assert len({op["operationId"] for item in document["paths"].values() for op in item.values()}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_there_and_asks_for_a_token_unless_it_is_public(ask, route):
    path = route.path.format(name="nobody", id="1") if "{" in route.path else route.path
    assert ask(path, route.method, Authorization=None)[0] == (200 if route.public else 401)
    if path in STREAMS or path == "/metrics":  # without an end; text
        return
    status, document = ask(path, route.method)
    if "{name}" in route.path:
        assert status == 404
        assert "there is no flow 'nobody'" in document["error"]
    else:
        assert status == (400 if route.body else route.success)
    assert ask(path, "DELETE")[0] == 405


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xff"],
)
def test_a_wrong_token_is_refused(ask, given):
    status, document = ask("/api/v1/flows", Authorization=given)
    assert status == 401
    assert "token is needed" in document["error"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8470", 200),
        ("[::1]:1", 200),
        ("Gateway.local", 200),
        ("192.168.1.7:8470", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("[::1", 421),
        ("localhost:x", 421),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(ask, host, status):
    assert ask("/api/v1/flows", Host=host)[0] == status
    assert ask("/healthz", Host=host)[0] == status


@pytest.mark.parametrize("path", [b"/api/v1/flows", b"/healthz"])
@pytest.mark.parametrize(
    "rest", [b"A: ", b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"]
)
def test_who_has_no_token_and_says_a_little_now_and_then_is_not_listened_to_for_long(server, monkeypatch, path, rest):
    monkeypatch.setattr(_Handler, "timeout", 0.3)
    assert hangs_up_on_who_drips(server.server_address[:2], b"POST " + path + b" HTTP/1.1\r\n" + rest)


@pytest.mark.parametrize(
    "head", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_a_page_of_another_origin_cannot_act(ask, head):
    assert ask("/api/v1/flows/x/stop", "POST", **head)[0] == 403
    assert ask("/api/v1/flows", **head)[0] == 403
    assert ask("/api/v1/flows", "OPTIONS", **head)[0] == 403  # no preflight is answered


def test_a_page_of_our_own_can(ask, server):
    host = "{}:{}".format(*server.server_address)
    assert ask("/api/v1/flows", Origin=f"http://{host}", Host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/flows/..%2f..%2fetc%2fpasswd",
        "/api/v1/flows/../../etc/passwd",
        "/api/v1/flows/%2e%2e/dead",
        "/api/v1/flows/a%00b/checkpoints",
        "/api/v1/flows/%ff",
        "/api/v1/flows/a%22%3Cb%3E/dead/-1",
        "/api/v1/flows/a%22%3Cb%3E/dead/%C2%B2",
        "/nothing",
    ],
)
def test_no_path_leads_anywhere_else(ask, path):
    assert ask(path)[0] in (400, 404)


def test_a_hostile_name_comes_back_as_it_is_and_can_be_asked_for(ask):
    (status,) = ask("/api/v1/flows")[1]
    assert (status["name"], status["state"]) == ('a"<b>', "stopped")
    assert ask("/api/v1/flows/a%22%3Cb%3E")[1] == {**status, "for_s": pytest.approx(status["for_s"], abs=60)}
    assert ask("/api/v1/flows/a%22%3Cb%3E/dead")[1] == {"letters": [], "more": False}
    assert ask("/api/v1/flows/a%22%3Cb%3E/checkpoints")[1] == []
    assert ask("/api/v1/flows/a%22%3Cb%3E/metrics")[0] == 404
    status, document = ask("/api/v1/flows/a%22%3Cb%3E/graph")
    assert status == 409
    assert "should have one flow" in document["error"]


def test_a_flow_that_is_not_there_is_told_with_the_one_that_may_be_meant(ask):
    status, document = ask("/api/v1/flows/a%22%3Cb")
    assert status == 404
    assert document["error"].endswith("; did you mean 'a\"<b>'?")


@pytest.mark.parametrize(("step", "status"), [("sond", 404), ("sound", 409)])
def test_a_step_that_is_not_there_is_not_found_and_one_that_cannot_be_looked_at_is_refused(step, status):
    class Flows:
        def status(self, name):
            return {"state": "running"}

        def show(self, name, order):
            raise RunError("records cannot be looked at in lanes")

        def graph_of(self, name):
            return json.dumps({"steps": [{"name": "sound"}]}).encode()

    found = answer_request(
        "GET", "/api/v1/flows/levels/records", lambda names: Request(Flows(), names, {"step": step, "limit": "1"})
    )
    assert found.status == status
    said = "flow 'levels' has no step 'sond'; steps are 'sound'; did you mean 'sound'?"
    assert json.loads(found.body)["error"] == (said if status == 404 else "records cannot be looked at in lanes")


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=100000", "after=1e3", "limit=" + "9" * 5000])
def test_a_number_that_is_none_is_refused(ask, query):
    assert ask(f"/api/v1/flows/a%22%3Cb%3E/dead?{query}")[0] == 400


@pytest.mark.parametrize("body", ["", "[]", "{", '{"ids": "all"}', '{"nonsense": 1}', '{"ids": [1e400]}', "\x00"])
def test_a_body_that_is_none_is_refused(ask, body):
    kind = {"Content-Type": "application/json"}
    status, _ = ask("/api/v1/flows/a%22%3Cb%3E/dead/replay", "POST", body, **kind)
    assert status == (400 if body else 200)  # nothing said is all of them, of which there are none


def test_what_is_too_large_or_of_another_kind_is_refused(ask):
    assert ask("/api/v1/flows/x/dead/replay", "POST", "{}", **{"Content-Type": "text/plain"})[0] == 415
    large = {"Content-Type": "application/json", "Content-Length": str(2**40)}
    assert ask("/api/v1/flows/x/dead/replay", "POST", "{}", **large)[0] == 413
    for length in ("-1", "9" * 5000):
        assert ask("/api/v1/flows/x/stop", "POST", **{"Content-Length": length})[0] == 400
    assert ask("/api/v1/flows/x/stop", "POST", **{"Transfer-Encoding": "chunked"})[0] == 411
    whole = b" " * 20_000_000  # most of which is on its way when the answer is
    assert ask("/api/v1/flows/x/stop", "POST", whole)[0] == 413
    assert ask("/api/v1/flows/x/stop", "POST", whole, Authorization=None)[0] == 401


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n"]
)
def test_what_is_no_http_is_answered_or_hung_up_on_and_harms_nobody(server, ask, sent):
    with socket.create_connection(server.server_address[:2], 30) as line:
        line.sendall(sent)
        line.shutdown(socket.SHUT_WR)
        while line.recv(4096):
            pass
    assert ask("/healthz")[0] == 200


def test_a_port_that_is_taken_is_told(server):
    with pytest.raises(RunError, match="is the port taken"):
        Server(server.service, "127.0.0.1", server.server_address[1], TOKEN)


def test_connections_are_bounded(server, ask):
    lines = [socket.create_connection(server.server_address[:2], 30) for _ in range(70)]
    try:
        refused = 0
        for line in lines[-4:]:
            refused += b"503" in line.recv(100)
        assert refused == 4
    finally:
        for line in lines:
            line.close()
    while ask_quietly(ask) != 200:
        pass


def ask_quietly(ask):
    try:
        return ask("/healthz")[0]
    except (OSError, ValueError):
        return None


def test_only_files_of_records_beside_the_flows_can_be_asked(ask, server):
    folder = Path(ask("/api/v1/server")[1]["folder"])
    for name in ("levels.csv", ".hidden.csv", "notes.txt", "<img>.jsonl"):
        (folder / name).write_text("tank\na\n")
    (folder / "inside.csv").mkdir()
    (folder.parent / "outside.csv").write_text("tank\na\n")
    assert ask("/api/v1/files")[1] == [{"name": "<img>.jsonl", "bytes": 7}, {"name": "levels.csv", "bytes": 7}]
    names = ("../outside.csv", str(folder.parent / "outside.csv"), ".hidden.csv", "notes.txt", "inside.csv", "", "\0")
    for name in names:
        wish = json.dumps({"file": name, "query": "from a select b"})
        status, told = ask("/api/v1/query", "POST", wish, **{"Content-Type": "application/json"})
        assert (status, "there is no file" in told["error"]) == (409, True), name


def test_every_answer_and_wish_has_a_schema_of_its_own():
    plain = [route.path for route in ROUTES if "object" in (route.gives, route.body)]
    assert plain == ["/openapi.json"]
