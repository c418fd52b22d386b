"""Who may look at the pages of the dashboard, and act: asked as a server of ASGI asks."""

import asyncio
import time

import pytest

from headwater.web.guard import Guard

TOKEN = "a-token-of-enough-letters"
HOST = "127.0.0.1:8471"
PAGE = {"accept": "text/html", "sec-fetch-mode": "navigate"}


async def inside(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


class Asked:
    def __init__(self, messages):
        self.kind = messages[0]["type"]
        self.status = messages[0].get("status")
        self.head = {name.decode(): value.decode() for name, value in messages[0].get("headers", [])}
        self.body = b"".join(each.get("body", b"") for each in messages)

    @property
    def cookie(self):
        return self.head["set-cookie"].partition(";")[0]


@pytest.fixture
def guard():
    return Guard(inside, TOKEN, ["gateway.local"])


@pytest.fixture
def ask(guard):
    def ask(path="/", method="GET", body=b"", kind="http", **head):
        head = {"host": HOST, **{name.replace("_", "-"): value for name, value in head.items()}}
        scope = {
            "type": kind,
            "path": path,
            "method": method,
            "scheme": "http",
            "server": ("127.0.0.1", 8471),
            "headers": [(name.encode(), value.encode()) for name, value in head.items() if value is not None],
        }
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        asyncio.run(guard(scope, receive, send))
        return Asked(sent)

    return ask


@pytest.fixture
def cookie(ask):
    answer = ask("/login", "POST", f"token={TOKEN}".encode(), origin=f"http://{HOST}")
    assert answer.status == 303
    return answer.cookie


def test_whoever_knows_the_token_gets_a_cookie_that_scripts_and_other_sites_cannot_use(ask):
    answer = ask("/login", "POST", f"token={TOKEN}".encode(), origin=f"http://{HOST}")
    assert (answer.status, answer.head["location"]) == (303, "/")
    assert "HttpOnly" in answer.head["set-cookie"]
    assert "SameSite=Strict" in answer.head["set-cookie"]
    assert TOKEN not in answer.head["set-cookie"]
    assert ask(cookie=answer.cookie).body == b"inside"


@pytest.mark.parametrize("given", ["", "another", TOKEN + "x", TOKEN[:-1]])
def test_whoever_does_not_is_told_so_and_gets_none(ask, given):
    answer = ask("/login", "POST", f"token={given}".encode(), origin=f"http://{HOST}")
    assert answer.status == 401
    assert "set-cookie" not in answer.head


def test_a_page_leads_to_the_login_and_everything_else_is_refused(ask):
    assert ask("/flow/a", accept="text/html").head["location"] == "/login"
    assert ask("/_nicegui/x.js", accept="*/*").status == 401
    assert ask("/_nicegui_ws/socket.io/", kind="websocket", origin=f"http://{HOST}").kind == "websocket.close"


def test_a_cookie_that_was_changed_is_old_or_was_logged_out_of_is_none(ask, guard, cookie, monkeypatch):
    name, _, session = cookie.partition("=")
    expires, nonce, signed = session.split(".")
    later = f"{name}={int(expires) + 1}.{nonce}.{signed}"
    assert ask(cookie=later).status == 401
    assert ask(cookie=f"{name}=").status == 401
    assert ask(cookie=f"{name}=9.9").status == 401
    with monkeypatch.context() as patch:
        now = time.time()
        patch.setattr("headwater.web.guard.time.time", lambda: now + 13 * 3600)
        assert ask(cookie=cookie).status == 401
    assert ask("/logout", "POST", origin=f"http://{HOST}", cookie=cookie).status == 303
    assert ask(cookie=cookie).status == 401


def test_a_session_outlives_a_dashboard_that_is_started_again(cookie, ask, guard):
    guard.__init__(inside, TOKEN)
    assert ask(cookie=cookie).status == 200
    guard.__init__(inside, TOKEN + "-another")
    assert ask(cookie=cookie).status == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://["])
def test_a_page_of_another_origin_cannot_act(ask, cookie, origin):
    assert ask("/logout", "POST", origin=origin, cookie=cookie).status == 403
    assert ask("/login", "POST", f"token={TOKEN}".encode(), origin=origin).status == 403
    assert ask("/_nicegui_ws/socket.io/", kind="websocket", origin=origin, cookie=cookie).kind == "websocket.close"
    assert ask("/_nicegui_ws/socket.io/", origin=origin, cookie=cookie).status == 403


def test_nobody_acts_without_saying_where_from(ask, cookie):
    assert ask("/logout", "POST", cookie=cookie).status == 403
    assert ask("/_nicegui_ws/socket.io/", kind="websocket", cookie=cookie).kind == "websocket.close"


def test_a_page_of_a_neighbouring_port_cannot_load_ours_as_a_part_of_itself(ask, cookie):
    assert ask("/flow/a", cookie=cookie, sec_fetch_site="same-site", sec_fetch_mode="no-cors").status == 403
    assert ask("/flow/a", cookie=cookie, sec_fetch_site="same-site", sec_fetch_mode="navigate").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8471", "", "["])
def test_a_name_that_is_made_to_point_here_is_not_ours(ask, cookie, host):
    assert ask(host=host, cookie=cookie).status == 403


@pytest.mark.parametrize("host", ["localhost:8471", "[::1]:8471", "gateway.local", "192.168.0.7"])
def test_an_address_or_a_name_that_was_given_is(ask, cookie, host):
    assert ask(host=host, cookie=cookie).status == 200


def test_every_answer_says_that_no_page_may_frame_it_nor_load_anything_from_elsewhere(ask, cookie):
    for answer in (ask("/login"), ask(cookie=cookie), ask()):
        assert "frame-ancestors 'none'" in answer.head["content-security-policy"]
        assert "default-src 'self'" in answer.head["content-security-policy"]
        assert answer.head["cache-control"] == "no-store"


def test_a_form_that_is_too_large_is_not_read(ask):
    assert ask("/login", "POST", b"token=" + b"a" * 10_000, origin=f"http://{HOST}").status == 401
