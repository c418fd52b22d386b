"""The dashboard as somebody uses it: real pages in a real browser, over a server with flows that are hostile."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from browsing import IMAGE, PATIENCE_MS, SCRIPT, cells, expect, keyed, lent, looked_at, opened
from headwater.web.figures import size
from headwater.web.reading import cells_of, steps_now
from headwater.web.series import clock
from serving import Serving
from waiting import PATIENCE_S

#: ends by itself, so its figures stand still; of 300 records 60 go on, and 3 break a step
DONE = """
from headwater import Flow, col, io

flow = Flow("done")
levels = flow.read("levels", io.Items([{"tank": "a", "height": float(n)} for n in range(300)]))
levels.filter("low", col.height < 60).write("alarms", io.Discard())
"""
HOSTILE = f"""
from headwater import Flow, io

def checked(record):
    if record["n"] % 50 == 7:
        raise ValueError("{SCRIPT} {{}}".format(record["n"]))
    return record

flow = Flow("hostile")
fields = {{"n": int, "note": str}}
beats = flow.read("beats", io.Generate(lambda n: {{"n": n, "note": ["{IMAGE}"] * len(n)}}, fields, rate=100))
beats.map("{SCRIPT}", checked, out=fields).write("out", io.Discard())
"""


ADDS = """
from headwater import Flow, io

flow = Flow("adds")
beats = flow.read("beats", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100))
beats.write("out", io.Discard())
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    serving = Serving(tmp_path_factory.mktemp("pages"))
    (serving.folder / "levels.csv").write_text("tank,height\n" + "".join(f"{SCRIPT},{n}\n" for n in range(50)))
    serving.write("done", DONE)
    serving.write("adds", ADDS, 'every = "200 ms"')
    serving.write("hostile", HOSTILE)
    try:
        serving.start("--web", "--web-listen", "127.0.0.1:0")
        at = re.compile(r"the dashboard is at (\S+);")
        serving.web = serving.until(lambda: at.search(serving.said.read_text()), "the dashboard answers").group(1)
        serving.until(lambda: serving.state_of("done") == "ended", "the short flow ends")
        serving.until(lambda: letters(serving), "a record breaks a step")
        yield serving
        assert serving.stop() == 0
    finally:
        serving.kill()


@pytest.fixture(scope="module")
def own_page(browser, served):
    with looked_at(browser, served.web, served.token) as page:
        yield page


@pytest.fixture
def page(own_page, served):
    with lent(own_page, served.token) as page:
        yield page


def letters(served):
    """The dead letters of the hostile flow; None while nobody answers."""
    return (served.ask("/api/v1/flows/hostile/dead")[1] or {}).get("letters")


def test_nobody_looks_without_the_token_which_is_in_no_address_afterwards(browser, served):
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(served.web + "/flow/done")
    assert page.url == served.web + "/login"
    page.get_by_label("Token").fill("something else")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Token").fill(served.token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda at: "/flow/" in at)
    page.wait_for_function("window.did_handshake === true", timeout=PATIENCE_MS)
    assert served.token not in page.url
    assert served.token not in page.evaluate("document.cookie + document.documentElement.outerHTML")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(lambda at: at.endswith("/login"))
    page.goto(served.web + "/flow/done")
    assert page.url == served.web + "/login"
    context.close()


def test_the_figures_of_the_flow_page_are_those_of_the_api(page, served):
    opened(page, served.web + "/flow/done")
    page.locator('tr[data-key="alarms"]').wait_for()
    _, sample = served.ask("/api/v1/flows/done/metrics")
    _, graph = served.ask("/api/v1/flows/done/graph")
    now = {step.name: step for step in steps_now(graph, sample)}
    for step in sample["total"]["steps"]:
        shown = cells(page, step["name"])
        assert shown[:10] == cells_of(now[step["name"]])
        assert shown[16] == (size(step["state_bytes"]) if step["state_bytes"] else "–")
        assert shown[12:15] == [f"{step['in']:,}", f"{step['out']:,}", f"{step['dead_letters']:,}"]
    assert cells(page, "low")[12:14] == ["300", "60"]
    assert page.locator("[data-figure=in] .hw-note").inner_text() == "300 in all"
    assert page.locator("[data-figure=out] .hw-note").inner_text() == "60 in all"
    drawn = page.locator("svg.hw-graph g.node")
    assert {each.get_attribute("data-step") for each in drawn.all()} == {step["name"] for step in graph["steps"]}
    page.locator('g.node[data-step="low"]').focus()
    page.keyboard.press("Enter")
    page.get_by_text(re.compile(r"written at .*done\.py:6")).wait_for()
    page.get_by_text("No record broke this step.").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("No record broke this step.").wait_for(state="hidden")


def test_records_that_pass_are_shown_on_request_and_as_text(page, served):
    opened(page, served.web + "/flow/hostile")
    page.locator(f'g.node[data-step="{SCRIPT}"]').click()
    page.get_by_role("button", name="Show the next few").click()
    page.get_by_role("cell", name=IMAGE).first.wait_for()
    page.get_by_text(f"ValueError: {SCRIPT}").first.wait_for()
    assert page.locator("table img, table script").count() == 0


def test_a_dead_letter_is_edited_and_replayed(page, served):
    opened(page, served.web + "/dead/hostile")
    first = letters(served)[0]
    row = page.locator(f'tr[data-key="{first["id"]}"]')
    row.wait_for()
    assert cells(page, first["id"])[1:4:2] == [first["step"], first["error"]]
    assert json.loads(cells(page, first["id"])[4]) == first["record"]
    row.click()
    page.get_by_label("n", exact=True).fill("no JSON")
    page.get_by_role("button", name="Replay with these values").click()
    page.get_by_text("is no JSON").wait_for()
    page.get_by_label("n", exact=True).fill("100")
    page.get_by_role("button", name="Replay with these values").click()
    served.until(
        lambda: (left := letters(served)) is not None and all(each["id"] != first["id"] for each in left),
        "the letter goes through",
    )
    row.wait_for(state="detached")


def test_time_is_scrubbed_back(page, served):
    served.until(lambda: len(served.ask("/api/v1/flows/hostile/metrics/history")[1] or ()) > 2, "there is a history")
    opened(page, served.web + "/time/hostile")
    page.locator("canvas").first.wait_for()
    moment = page.locator("[data-figure=moment]")
    now = moment.inner_text()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(moment).not_to_have_text(now)
    _, graph = served.ask("/api/v1/flows/hostile/graph")
    first = served.ask("/api/v1/flows/hostile/metrics/history")[1][0]
    expect(moment).to_have_text(clock(first["at"]))
    for step in steps_now(graph, first):
        assert keyed(page, step.name).locator("td").all_inner_texts()[:10] == cells_of(step)


def ask_for(page, text):
    """Type a query, and ask it by keyboard."""
    page.get_by_label("Query").fill(text)
    page.keyboard.press("Control+Enter")


def test_a_query_is_asked_of_a_running_stream_and_its_mistakes_are_marked_in_place(page, served):
    opened(page, served.web + "/query/hostile")
    expect(page.get_by_label("Query")).to_have_value(re.compile("from beats"))
    page.get_by_label("Query").fill("from beats[n > 0]\nselect nn")
    expect(page.locator(".hw-editor mark")).to_have_text("nn")  # while it is typed: nobody has asked anything
    page.get_by_role("alert").get_by_text("nn").wait_for()
    ask_for(page, "from beats[n % 2 == 0]\nselect n, note")
    expect(page.locator(".hw-editor mark")).to_have_count(0)
    page.get_by_role("switch").click()
    page.get_by_role("cell", name=IMAGE).first.wait_for()
    more_than_a_look = re.compile(r" in (1[1-9]\d|10[1-9]|[2-9]\d\d|\d,\d+) records$")
    expect(page.locator("[data-figure=matches]")).to_have_text(more_than_a_look)  # what was found before is kept
    page.get_by_role("switch").click()
    numbers = page.locator("tbody tr td:first-child").all_inner_texts()
    assert numbers
    assert all(int(number) % 2 == 0 for number in numbers)


def test_a_query_is_asked_of_a_file_and_its_figures_are_those_of_the_api(page, served):
    opened(page, served.web + "/query/hostile")
    page.get_by_label("Of", exact=True).click()
    page.get_by_role("option", name="file levels.csv").click()
    page.get_by_text("tank: text, height: int").wait_for()
    text = "from levels[height < 7]\nselect tank, height"
    ask_for(page, text)
    page.get_by_role("cell", name=SCRIPT).first.wait_for()
    _, told = served.ask("/api/v1/query", "POST", {"file": "levels.csv", "query": text})
    assert page.locator("[data-figure=matches]").inner_text() == f"{told['found']} in {told['looked_at']} records"
    rows = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    assert rows == [[match["tank"], str(match["height"])] for match in told["matches"]]
    page.get_by_role("button", name="Add it").wait_for(state="hidden")  # a file is no part of the flow


def test_a_query_is_added_to_a_flow_that_runs(page, served):
    before = served.until_running("adds")
    opened(page, served.web + "/query/adds")
    expect(page.get_by_label("Query")).to_have_value(re.compile("from beats"))
    ask_for(page, "from beats[n % 2 == 0]\nselect n")
    page.get_by_label("Name", exact=True).fill("no word")
    page.get_by_role("button", name="Add it").click()
    page.get_by_text("a query is named by a word").wait_for()
    page.get_by_label("Name", exact=True).fill("evens")
    page.get_by_role("button", name="Add it").click()
    served.until_running("adds", but=before)
    found = served.folder / "adds-evens.jsonl"
    served.until(lambda: found.exists() and found.read_text().count("\n") > 1, "matches are written")
    whole = found.read_text().rpartition("\n")[0].splitlines()
    assert all(json.loads(line)["n"] % 2 == 0 for line in whole)


def test_empty_pages_teach(page, served):
    opened(page, served.web + "/promises")
    page.get_by_text("Nothing is promised on this machine").wait_for()
    opened(page, served.web + "/dead/done")
    page.get_by_text("No dead letters").wait_for()
    opened(page, served.web + "/flow/nowhere")
    page.get_by_text("There is no flow nowhere").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_both_themes(browser, served, scheme):
    phone = {"viewport": {"width": 390, "height": 800}, "color_scheme": scheme}
    with looked_at(browser, served.web, served.token, **phone) as page:
        for path in ("/flow/done", "/time/done", "/dead/hostile", "/promises"):
            opened(page, served.web + path)
            page.locator("main.hw-main").wait_for()
            assert page.locator(f"body.body--{scheme}").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), path


def test_a_run_is_shown_by_its_link(browser, tmp_path):
    (tmp_path / "beat.py").write_text(
        "from headwater import Flow, io\n"
        'flow = Flow("beat")\n'
        'flow.read("beats", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100)).write("out", io.Discard())\n'
    )
    command = [sys.executable, "-c", "from headwater.cli import main; main()", "run", "beat.py", "--web", "--json"]
    environment = {**os.environ, "HEADWATER_RUNTIME": str(tmp_path / "run")}
    run = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        link = next(line for line in run.stderr if line.startswith("dashboard: ")).partition(": ")[2].strip()
        url, _, token = link.partition("/login#")
        with looked_at(browser, url, token) as page:
            page.locator('g.node[data-step="beats"]').wait_for()
            opened(page, url + "/time/beat")
            page.get_by_text("beat").first.wait_for()
        run.send_signal(signal.SIGINT)
        document = json.loads(run.stdout.read())
        assert run.wait(PATIENCE_S) == 0
        assert document["records_in"] == document["records_out"]["out"] > 0
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
        run.stderr.close()
