"""A real browser for tests of pages: Debian's Chromium, driven by Playwright; tests are skipped with a word without them."""

import contextlib
import shutil
from urllib.parse import urlsplit

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the pages are driven by Playwright, which is not installed"
)
pytest.importorskip("nicegui", reason="the dashboard needs NiceGUI, which is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("the pages are driven in Chromium, which is not installed", allow_module_level=True)

PATIENCE_MS = 60_000
expect = sync_api.expect
expect.set_options(timeout=PATIENCE_MS)
SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = "<img src=x onerror='window.hacked = 1'>"


@contextlib.contextmanager
def chromium():
    """A browser without a screen."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@contextlib.contextmanager
def looked_at(browser, url, token, **settings):
    """A page that is logged in, in a browser that knows nothing yet; it is watched while it is."""
    context = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    with watched(page, token):
        page.goto(f"{url}/login#{token}")
        page.wait_for_url(lambda at: "/login" not in at)
        yield page
    context.close()


@contextlib.contextmanager
def watched(page, token):
    """Meanwhile nothing may leave this machine, no script of a record may run."""
    asked, troubles = [], []
    heard = {
        "request": lambda request: asked.append(request.url),
        "websocket": lambda socket: asked.append(socket.url),
        "dialog": lambda dialog: troubles.append(dialog.message),
        "pageerror": lambda error: troubles.append(str(error)),
    }
    for event, listener in heard.items():
        page.on(event, listener)
    yield
    assert page.evaluate("window.hacked === undefined")
    assert {urlsplit(each).hostname for each in asked if not each.startswith(("data:", "blob:"))} <= {"127.0.0.1"}
    assert token not in " ".join(asked)
    assert troubles == []
    for event, listener in heard.items():
        page.remove_listener(event, listener)


@contextlib.contextmanager
def lent(page, token):
    """A page that others have looked at before, watched for one of them, and blank afterwards.

    To log in, and to load all scripts anew, takes four times as long as to open a page where that was done before.
    """
    with watched(page, token):
        yield page
    page.goto("about:blank")


def opened(page, address):
    """Go to a page, and wait until it hears what is done on it."""
    page.goto(address)
    page.wait_for_function("window.did_handshake === true", timeout=PATIENCE_MS)


def cells(page, key):
    """The cells of a row of a table."""
    return keyed(page, key).locator("td").all_inner_texts()


def keyed(page, key):
    """Rows of a key, whatever is in it."""
    quoted = key.replace("\\", "\\\\").replace('"', '\\"') if isinstance(key, str) else key
    return page.locator(f'tr[data-key="{quoted}"]')
