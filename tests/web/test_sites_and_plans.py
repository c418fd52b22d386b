"""The Sites and Plan pages in a browser, over real plans and a coordinator that says what a test wants; once a real one."""

import copy
import http.client
import json
import os
import re
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from browsing import IMAGE, PATIENCE_MS, SCRIPT, cells, expect, keyed, lent, looked_at, opened
from headwater.cli.planning import Deployer
from headwater.deploy.api.routes import PLANS, SITES, Answers
from headwater.deploy.api.schemas import SCHEMAS
from headwater.deploy.coordinator.asking import ask as coordinator_says
from headwater.deploy.coordinator.state import StateFolder
from headwater.place import Plan
from headwater.serve.http import Server
from headwater.serve.openapi import openapi_document
from headwater.serve.routes import Route, document, matching_route
from headwater.web.plan_words import changes, reasons_of, rehearsal_of, row_of
from headwater.web.process import Dashboard
from headwater.web.settings import Settings
from planning import FLOW, placed, write_farm
from serving import check_fits
from sites_of import Commands, wait_for
from waiting import PATIENCE_S

TOKEN = "a-token-of-enough-letters"


def site(name, steps=(), **more):
    """What a coordinator says of a site."""
    told = {"name": name, "here": True, "steps": list(steps), "state": "running" if steps else "no part", "why": ""}
    told |= {"address": "127.0.0.1", "memory_bytes": 2**30, "load": 0.4, "free_bytes": 2**33, "cores": 2.0}
    told |= {"price": None, "carbon": None, "promised": {"held": 0.0, "capacity": 1.8}, "promise": None}
    return told | {"pid": 1, "restarts": 0, "records_in": 0, "records_out": 0, "others": []} | more


def link(one, other, hz, *streams):
    told = [{"stream": name, "records": 1000, "hz": hz / len(streams)} for name in streams]
    return {"from": one, "to": other, "streams": told, "hz": hz, "latency_s": 0.012}


def place(name, x=None, y=None, *, cloud=False):
    return {"name": name, "x": x, "y": y, "cloud": cloud, "trust": "open", "devices": 1, "price": 0.1}


def deployed(**more):
    """A flow with hostile names at three sites, one of them with a promise."""
    moves = [
        {"id": "tanks-2", "at_s": 1.7e9, "by": "min-cost", "why": f"price at {IMAGE} 0.1 → 0.4", "state": "done"}
        | {"steps": {SCRIPT: ["barn", IMAGE]}, "gap_s": 0.25, "stages_s": {"cut": 0.03, "start": 0.2}, "undone": ""}
    ]
    policy = {
        "name": "min-cost",
        "contract": "500/s",
        "waits": "",
        "rates_hz": {},
        "drained": ["barn"],
        "held": {},
        "moves": 1,
        "decisions": [],
    }
    flow = {"name": "tanks", "id": "tanks-2", "phase": "running", "moving": False, "policy": policy, "moves": moves}
    own = {"cores": 0.5, "kept": 1234, "broken": 2, "causes": {"processor taken by others": 2}}
    return {
        "flow": flow | more,
        "sites": [
            site("barn", ["levels"], records_in=12_345, records_out=12_300, price=0.12, carbon=210.0),
            site(IMAGE, [SCRIPT, "means"], promised={"held": 0.5, "capacity": 1.8}, promise=own, why=SCRIPT),
            site("cloud", ["archive"], restarts=2),
        ],
        "links": [link("barn", IMAGE, 1500.0, "levels"), link(IMAGE, "cloud", 30.0, "means", SCRIPT)],
        "net": {"name": "farm", "sites": [place("barn", 0, 0), place(IMAGE, 2, 3), place("cloud", 90, 5, cloud=True)]},
    }


class Coordinator:
    """Says what a test wants, and remembers what it is asked for."""

    def __init__(self):
        self.document, self.asked = deployed(), []

    def status(self):
        return self.document

    def move(self, steps, site):
        return self._act("move", steps, site)

    def drain(self, site, to):
        return self._act("drain", site, to)

    def open(self, site):
        return self._act("open", site)

    def _act(self, *asked):
        self.asked.append(asked)
        return self.document


#: a ledger with a name that is hostile, and a flow that broke two windows
LANE = {"id": "1", "flow": SCRIPT, "pid": 7, "cores": 0.25, "used": 0.125, "kept": 1234, "broken": 2, "above": True}
LANE |= {"contract": {"rate_hz": 2000.0, "latency_s": 0.05, "burst": None, "above": "best effort"}, "lanes": 1}
LANE |= {"restarts": 0, "down": False, "causes": {"processor taken by others": 2}}
LEDGER = {
    "supervisor": True,
    "cores": 2.0,
    "capacity": 1.8,
    "left": 1.55,
    "grade": "session",
    "how": "a session a lane",
}
LEDGER |= {"better": IMAGE, "lanes": [LANE]}
WINDOW = {"second": 17, "records": 1990, "late": 12, "shortfall": 3.0, "cause": "processor taken by others"}
PROMISE = {
    "contract": LANE["contract"],
    "grade": "session",
    "how": "",
    "lanes": 1,
    "estimated_cores": 0.2,
    "windows": 1236,
}
PROMISE |= {"reserved_cores": 0.25, "used_cores": 0.1, "kept": 1234, "causes": LANE["causes"], "broken": [WINDOW]}
PROMISE |= {"above": True, "restarts": 0}
PROMISED = tuple(
    Route("GET", f"/api/v1/{path}", "", partial(lambda told, request: document(told), told), gives=gives)
    for path, told, gives in (
        ("promises", LEDGER, "Promises"),
        ("flows", [{"name": "tanks"}], "object"),
        ("flows/{name}/promise", PROMISE, "Promise"),
    )
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder, deployed = tmp_path_factory.mktemp("plans"), []
    write_farm(folder)
    answers = Answers(Coordinator(), placed(folder, deployed))
    routes = (*answers.routes, *PROMISED)
    with pytest.MonkeyPatch.context() as patch, Server(answers, "127.0.0.1", 0, TOKEN, routes=routes) as server:
        patch.setattr("headwater.web.process._PAUSE_S", 0.1)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        dashboard = Dashboard(Settings(server.url, TOKEN, pages=(*answers.pages, "promises")))
        try:
            url = dashboard.start()
            yield SimpleNamespace(url=url, dashboard=dashboard, server=server, answers=answers, deployed=deployed)
        finally:
            dashboard.close()
            server.shutdown()


@pytest.fixture
def coordinator(shown):
    shown.answers.sites.__init__()
    return shown.answers.sites


@pytest.fixture(scope="module")
def own_page(browser, shown):
    with looked_at(browser, shown.url, TOKEN) as page:
        yield page


@pytest.fixture
def page(own_page, coordinator):
    with lent(own_page, TOKEN) as page:
        yield page


def ask(shown, path, body=None, **head):
    """Status and document of the API."""
    host, port = shown.server.server_address[:2]
    line = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    usual = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    sent = None if body is None else json.dumps(body)
    line.request("GET" if body is None else "POST", path, sent, {k: v for k, v in (usual | head).items() if v})
    answer = line.getresponse()
    status, told = answer.status, json.loads(answer.read())
    line.close()
    route, _ = matching_route("GET" if body is None else "POST", path, shown.answers.routes)
    check_fits(told, {"$ref": f"/{'Error' if status >= 400 else route.gives}"}, path, SCHEMAS)
    return status, told


def test_the_figures_of_the_sites_page_are_those_of_the_api_and_names_are_text(page, shown):
    opened(page, shown.url + "/sites")
    keyed(page, "barn").wait_for()
    _, document = ask(shown, "/api/v1/sites")
    for told in document["sites"]:
        row = cells(page, told["name"])
        assert row[:3] == [told["name"], told["state"], ", ".join(told["steps"])]
        assert row[3:6] == [f"{told[name]:,}" for name in ("records_in", "records_out", "restarts")]
        assert row[6] == f"{told['load']:.1f} of {told['cores']:g} cores"
    assert cells(page, "barn")[7:9] == ["0.12 an hour", "210 g CO₂/kWh"]
    assert cells(page, IMAGE)[9:] == ["0.50 of 1.80", "1,234 of 1,236", SCRIPT]
    assert cells(page, f"barn → {IMAGE}") == ["barn", IMAGE, "levels", "1.5 k/s", "1 k", "12 ms"]
    moved = cells(page, "tanks-2")
    assert moved[1:6] == ["min-cost", f"{SCRIPT}: barn → {IMAGE}", f"price at {IMAGE} 0.1 → 0.4", "done", "250 ms"]
    drawn = page.locator("svg.hw-map g.node")
    assert {each.get_attribute("data-site") for each in drawn.all()} == {told["name"] for told in document["sites"]}
    assert page.locator("svg.hw-map .link text").all_text_contents() == ["1.5 k/s · 12 ms", "30/s · 12 ms"]
    assert page.locator("main img, main script").count() == 0


def test_the_figures_of_the_promises_page_are_those_of_the_ledger(page, shown):
    for told, gives in ((LEDGER, "Promises"), (PROMISE, "Promise")):
        check_fits(told, {"$ref": f"/{gives}"}, gives)
    opened(page, shown.url + "/promises")
    keyed(page, "1").wait_for()
    promised = [SCRIPT, "2 k/s within 50 ms", "1,234", "2", "99.8 %", "processor taken by others 2", "0.250", "0.125"]
    assert cells(page, "1") == [*promised, "more comes than was promised", "7"]
    assert page.locator("[data-figure=cores]").inner_text() == "0.25 of 1.80 cores reserved"
    page.get_by_text("tanks: 1,234 of 1,236 windows of a second kept").wait_for()
    assert cells(page, 17) == ["17", "processor taken by others", "1,990", "12", "3"]
    assert page.locator("main img, main script").count() == 0


def move_by_hand(page, step, *, to):
    """Move a step of the site whose panel is open."""
    page.get_by_label("Steps", exact=True).click()
    page.get_by_role("option", name=step).click()
    page.keyboard.press("Escape")
    page.get_by_label("To site", exact=True).click()
    page.get_by_role("option", name=to).click()
    page.get_by_role("button", name="Move", exact=True).click()
    page.get_by_text("The move has begun.").wait_for()


def test_steps_are_moved_and_sites_drained_and_opened_from_the_page(page, shown, coordinator):
    opened(page, shown.url + "/sites")
    page.locator('g.node[data-site="barn"]').focus()
    page.keyboard.press("Enter")
    move_by_hand(page, "levels", to="cloud")
    keyed(page, "barn").click()
    page.get_by_label("To", exact=True).click()
    page.get_by_role("option", name="where the policy wants").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_text("The site is being drained.").wait_for()
    keyed(page, "barn").click()
    page.get_by_role("button", name="Open again").click()
    page.get_by_text("The policy may use it again.").wait_for()
    assert coordinator.asked == [("move", ["levels"], "cloud"), ("drain", "barn", ""), ("open", "barn")]


def test_a_move_under_way_and_a_site_that_is_away_are_told(page, shown, coordinator):
    opened(page, shown.url + "/sites")
    says = page.locator("[data-figure=verdict]")
    document = deployed(moving=True)
    document["flow"]["moves"].append(
        {"id": "tanks-3", "at_s": 1.7e9, "by": "hand", "why": "drain was asked for", "state": "standing still"}
        | {"steps": {"means": [IMAGE, "cloud"]}, "gap_s": None, "stages_s": {}, "undone": ""}
    )
    coordinator.document = document
    expect(says).to_contain_text(f"standing still: means: {IMAGE} → cloud", timeout=PATIENCE_MS)
    assert page.locator("svg.hw-map .link.moves text").text_content() == "means"
    document = deployed()
    document["sites"][0] |= {"here": False, "state": "away"}
    coordinator.document = document
    expect(says).to_contain_text("Away: barn.", timeout=PATIENCE_MS)
    expect(page.locator("svg.hw-map .link.moves")).to_have_count(0, timeout=PATIENCE_MS)
    coordinator.document = {
        "flow": None,
        "sites": [],
        "links": [],
        "net": document["net"],
        "why": "no coordinator runs",
    }
    page.get_by_text("3 sites wait for a coordinator").wait_for()
    expect(says).to_contain_text("No coordinator runs.")


@pytest.mark.thorough
def test_three_viewers_of_twenty_sites_and_a_hundred_steps_see_a_change_and_pages_do_not_grow(
    browser, shown, coordinator
):
    names = [f"site {n:02d}" for n in range(20)]
    many = deployed()
    many["sites"] = [site(name, [f"step {n}-{m}" for m in range(5)]) for n, name in enumerate(names)]
    many["links"] = [link(names[n], names[(3 * n + 1) % 20], 10.0 * n, f"step {n}-0") for n in range(19)]
    many["net"] = {"name": "city", "sites": [place(name, n % 5, n // 5) for n, name in enumerate(names)]}
    coordinator.document = many
    contexts = [looked_at(browser, shown.url, TOKEN) for _ in range(3)]
    viewers = [context.__enter__() for context in contexts]
    try:
        for viewer in viewers:
            opened(viewer, shown.url + "/sites")
            expect(viewer.locator("svg.hw-map g.node")).to_have_count(20, timeout=PATIENCE_MS)
        before = viewers[0].evaluate("document.querySelectorAll('*').length")
        coordinator.document = copy.deepcopy(many)
        coordinator.document["sites"][7]["records_in"] = 1001
        for viewer in viewers:
            expect(keyed(viewer, "site 07")).to_contain_text("1,001", timeout=PATIENCE_MS)
        assert viewers[0].evaluate("document.querySelectorAll('*').length") == before
    finally:
        for context in contexts:
            context.__exit__(None, None, None)


def test_over_a_slow_network_the_page_comes_and_acts(browser, shown, coordinator):
    with looked_at(browser, shown.url, TOKEN) as page:
        slow = page.context.new_cdp_session(page)
        slow.send("Network.enable")
        slow.send(
            "Network.emulateNetworkConditions",
            {"offline": False, "latency": 300, "downloadThroughput": 1_000_000, "uploadThroughput": 100_000},
        )
        opened(page, shown.url + "/sites")
        keyed(page, "barn").click()
        page.get_by_role("button", name="Open again").click()
        page.get_by_text("The policy may use it again.").wait_for()
    assert coordinator.asked == [("open", "barn")]


def test_a_dashboard_that_is_killed_comes_back_and_the_page_with_it(page, shown, coordinator):
    opened(page, shown.url + "/sites")
    keyed(page, "barn").wait_for()
    os.kill(shown.dashboard._process.pid, signal.SIGKILL)
    coordinator.document = deployed(phase="stopped")
    coordinator.document["sites"][1]["why"] = ""
    expect(page.locator("[data-figure=verdict]")).to_contain_text("tanks is stopped", timeout=2 * PATIENCE_MS)


def test_the_pages_fit_a_phone_in_the_dark(browser, shown, coordinator):
    phone = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
    with looked_at(browser, shown.url, TOKEN, **phone) as page:
        for name in shown.answers.pages:
            opened(page, f"{shown.url}/{name}")
            page.locator("main.hw-main").wait_for()
            assert page.locator("body.body--dark").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), name


def test_nobody_acts_without_the_token_from_another_origin_or_by_what_is_no_wish(shown, coordinator):
    wish = {"steps": ["levels"], "site": "cloud"}
    assert ask(shown, "/api/v1/sites/move", wish, Authorization="")[0] == 401
    assert ask(shown, "/api/v1/sites/move", wish, Origin="http://evil.example")[0] == 403
    status, told = ask(shown, "/api/v1/sites/move", {"steps": "levels"})
    assert (status, "{steps, site}" in told["error"]) == (400, True)
    assert coordinator.asked == []
    assert ask(shown, "/api/v1/sites/move", wish)[0] == 202
    _, openapi_document = ask(shown, "/openapi.json", Authorization="")
    assert "/api/v1/sites/drain" in openapi_document["paths"]


def test_the_figures_of_the_plan_page_are_those_of_the_api_and_steps_move_by_keyboard_and_by_hand(page, shown):
    opened(page, shown.url + "/plan")
    page.get_by_role("button", name="Plan", exact=True).click()
    best = "Fastest on the slowest path (tanks on farm)"
    keyed(page, best).wait_for()
    _, told = ask(shown, "/api/v1/plans/best", {"flow": FLOW, "net": "farm", "objective": "critical then devices"})
    assert cells(page, best) == row_of(best, told)
    assert [cells(page, step) for step, _ in reasons_of(told)] == [row for _, row in reasons_of(told)]
    for step, device in told["placement"].items():
        assert page.locator(f'[data-device="{device}"] [data-step="{step}"]').count() == 1, step
    by_hand = "By hand (tanks on farm)"
    elsewhere = told["placement"] | {"means": "cloud"}
    page.locator('[data-step="means"]').focus()
    page.keyboard.press("Enter")
    page.get_by_label("Move it to").click()
    page.get_by_role("option", name="cloud").click()
    page.locator('[data-device="cloud"] [data-step="means"]').wait_for()
    _, then = ask(
        shown,
        "/api/v1/plans/try",
        {"flow": FLOW, "net": "farm", "objective": told["objective"], "placement": elsewhere},
    )
    assert cells(page, by_hand) == row_of(by_hand, then)
    says = page.locator("[data-figure=verdict]")
    expect(says).to_contain_text("means: shed → cloud")
    expect(says).to_contain_text(changes(told, then))
    page.locator('[data-step="means"]').drag_to(page.locator('[data-device="barn"]'))
    expect(says).to_contain_text("cannot be: ", timeout=PATIENCE_MS)
    expect(page.get_by_role("button", name="Rehearse")).to_be_disabled()
    assert page.locator("main img, main script").count() == 0


def test_a_front_is_drawn_and_a_placement_rehearsed_and_deployed(page, shown):
    opened(page, shown.url + "/plan")
    page.get_by_role("button", name="Draw the front").click()
    first = "slowest path or money, 1 (tanks on farm)"
    keyed(page, first).wait_for()
    _, front = ask(shown, "/api/v1/plans/front", {"flow": FLOW, "net": "farm", "one": "critical", "other": "money"})
    for number, point in enumerate(front["points"], 1):
        name = f"slowest path or money, {number} (tanks on farm)"
        assert cells(page, name) == row_of(name, point)
    page.locator("canvas").wait_for()
    where = {"flow": FLOW, "net": "farm", "placement": front["points"][0]["placement"]}
    page.get_by_role("button", name="Rehearse").click()
    page.locator("[data-figure=rehearsal]").get_by_text("10 s of virtual time").wait_for()
    _, report = ask(shown, "/api/v1/plans/rehearse", where)
    ((sink, row),) = rehearsal_of(report)
    assert cells(page, sink)[-3:] == row
    page.get_by_role("button", name="Deploy…").click()
    page.get_by_role("button", name="Deploy it").click()
    page.get_by_text("it runs", exact=True).wait_for()
    assert dict(shown.deployed[-1].placement) == where["placement"]


def test_every_answer_and_wish_of_sites_and_plans_has_a_schema_of_its_own():
    routes = (*SITES, *PLANS)
    assert not [route.path for route in routes if "object" in (route.gives, route.body)]
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(openapi_document(routes, "", SCHEMAS))))
    assert named <= set(SCHEMAS)
    assert SCHEMAS["MoveRequest"]["required"] == ["steps", "site"]


def test_a_page_of_another_origin_deploys_nothing(shown):
    wish = {"flow": FLOW, "net": "farm", "placement": {}}
    assert ask(shown, "/api/v1/plans/deploy", wish, Origin="http://evil.example")[0] == 403
    assert ask(shown, "/api/v1/plans/deploy", wish, Authorization="")[0] == 401
    assert ask(shown, "/api/v1/plans/deploy", wish)[0] == 409
    assert ask(shown, "/api/v1/plans/rehearse", wish | {"seconds": 1e9})[0] == 400


BEATS = """
from headwater import Flow, col, io

flow = Flow("beats")
beats = flow.read("beats", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100))
beats.select("doubled", n=col.n * 2).write("out", io.Discard())
"""
NET = """
name = "farm"
[classes.post]
cpu_ips = 1e9
price_per_hour = 0.5
[wan]
kind = "coordinates"
base_s = 0.004
s_per_unit = 0.001
[[zones]]
name = "barn"
x = 0
y = 0
devices = [{class = "post"}]
[[zones]]
name = "office"
x = 8
y = 0
devices = [{class = "post"}]
"""
PLAN = """
flow = "beats.py"
net = "farm.toml"
[placement]
beats = "barn"
doubled = "barn"
out = "office"
"""


@pytest.fixture
def deployer(commands, tmp_path):
    """Has a plan run, as the page's API does: in a thread of its own, since the browser's driver has a loop in this one."""
    folder = StateFolder(tmp_path / ".headwater" / "deploy")
    made = Deployer(folder)
    with ThreadPoolExecutor(1) as thread:
        yield SimpleNamespace(
            made=made,
            deploy=lambda plan: thread.submit(made, plan).result()["says"],
            status=lambda: thread.submit(coordinator_says, folder, "status").result(),
        )
        made.close()


@pytest.fixture
def commands(tmp_path, monkeypatch):
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    monkeypatch.setenv("HEADWATER_RUNTIME", str(tmp_path / "run"))
    made = Commands(tmp_path)
    yield made
    made.close()


@pytest.mark.thorough  # the page is shown above, and the sites in tests/deploy
def test_a_step_of_a_real_flow_is_moved_between_real_sites_and_the_coordinator_may_be_killed(
    browser, commands, deployer, tmp_path
):
    for name, text in (("beats.py", BEATS), ("farm.toml", NET), ("plan.toml", PLAN)):
        (tmp_path / name).write_text(text)
    up = commands.start("up", "farm.toml", "--no-namespaces", "--web", "--web-listen", "127.0.0.1:0")
    at = re.compile(r"dashboard: (\S+)/login#(\S+)")
    url, token = wait_for(lambda: at.search(up.log.read_text()), commands, "the dashboard").groups()
    with looked_at(browser, url, token) as page:
        page.get_by_text("2 sites wait for a coordinator").wait_for()
        plan = Plan.load(tmp_path / "plan.toml")
        assert "hands each site its part" in deployer.deploy(plan)
        moving_ms = 3 * PATIENCE_MS
        expect(page.locator("[data-figure=verdict]")).to_contain_text("beats is running at 2 sites", timeout=moving_ms)
        for name in ("barn", "office"):
            expect(keyed(page, name)).to_contain_text("running", timeout=moving_ms)
        page.locator('g.node[data-site="barn"]').click()
        move_by_hand(page, "doubled", to="office")
        expect(keyed(page, "office")).to_contain_text("doubled", timeout=moving_ms)
        expect(page.get_by_role("cell", name="done", exact=True)).to_have_count(1, timeout=moving_ms)
        document = deployer.status()
        check_fits(document, {"$ref": "/Sites"}, "a real coordinator", SCHEMAS)
        assert cells(page, "barn")[2] == "beats"
        assert [each["steps"] for each in document["sites"]] == [["beats"], ["doubled", "out"]]
        (move,) = document["flow"]["moves"]
        assert (move["by"], move["steps"]) == ("hand", {"doubled": ["barn", "office"]})
        (crossing,) = document["links"]
        expect(keyed(page, "barn → office")).to_contain_text("beats", timeout=moving_ms)  # once a record has crossed
        assert cells(page, "barn → office")[:3] == [crossing["from"], crossing["to"], "beats"]
        assert crossing["latency_s"] == pytest.approx(0.012)
        assert deployer.deploy(plan).startswith("Flow beats moves")
        expect(keyed(page, "barn")).to_contain_text("doubled", timeout=moving_ms)
        expect(page.get_by_role("cell", name="done", exact=True)).to_have_count(2, timeout=moving_ms)
        deployer.made._process.kill()
        expect(page.locator("[data-figure=verdict]")).to_contain_text("no coordinator runs", timeout=moving_ms)
        deploy = commands.start("deploy", "--web", "--web-listen", "127.0.0.1:0")
        expect(page.locator("[data-figure=verdict]")).to_contain_text("beats is running at 2 sites", timeout=moving_ms)
    url, token = wait_for(lambda: at.search(deploy.log.read_text()), commands, "the coordinator's page").groups()
    with looked_at(browser, url, token) as page:
        expect(page.locator("[data-figure=verdict]")).to_contain_text("beats is running at 2 sites", timeout=moving_ms)
