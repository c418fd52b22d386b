"""`headwater site`, `headwater site token`, `headwater site revoke`."""

from __future__ import annotations

import logging
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from headwater.cli.address import address_of
from headwater.cli.parameters import parse_lanes
from headwater.cli.serve import run_until_stopped
from headwater.cli.sites import STATE, Coordinators
from headwater.cli.spark_options import parse_settings
from headwater.deploy.bridge.uplink import Uplink
from headwater.deploy.certificates import Identity
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.site.folder import SiteFolder
from headwater.deploy.site.link import Link
from headwater.deploy.site.promise_on_spark import is_elsewhere
from headwater.deploy.site.quote import Quote
from headwater.deploy.site.resources import Quotes, Site
from headwater.deploy.site.work import Work
from headwater.deploy.token import make_token, name_in, revoke, use_token
from headwater.errors import RunError, listed, suggestion
from headwater.flow.duration import microseconds_of
from headwater.io.files import explained
from headwater.serve.folder import Folder
from headwater.serve.home import Home
from headwater.serve.notify import Notifier
from headwater.serve.service import Service

log = logging.getLogger("headwater.site")

_FIGURE = "NUMBER|FILE|COMMAND"
_KINDS = ("engine", "spark")

app = typer.Typer(help="Run the parts of flows that a coordinator hands to this machine, until stopped.")


@app.callback(invoke_without_command=True)
def site(
    context: typer.Context,
    join: Annotated[str, typer.Option(metavar="HOST:PORT", help="where the coordinator is")] = "",
    token: Annotated[
        Path | None, typer.Option(help="a file with this site's token; needed the first time ('-' is standard input)")
    ] = None,
    name: Annotated[str | None, typer.Option(help="the site's name in the net [default: that of the token]")] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="where the site keeps its parts and their checkpoints [default: .headwater/site-NAME]"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="where other sites reach this one, a port for each part from PORT on; without it, this site only dials",
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar=_FIGURE, help="what this site costs an hour, as in the net [default: what the net says]"),
    ] = None,
    carbon: Annotated[
        str | None, typer.Option(metavar=_FIGURE, help="grams of CO2 for a kilowatt-hour that it uses")
    ] = None,
    cores: Annotated[
        str | None, typer.Option(metavar=_FIGURE, help="cores that it lends [default: those of the machine]")
    ] = None,
    uplink: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE,…",
            help="how bridges may use the way to other sites: rate=500 kB/s, hours=22:00-06:00, first=STREAM+STREAM, "
            "room=1 GB, age=2 d, full=hold|drop oldest|drop lowest",
        ),
    ] = "",
    kind: Annotated[str, typer.Option(help="what runs the parts of this site: engine or spark")] = "engine",
    master: Annotated[
        str | None, typer.Option(help="of --kind spark: where Spark runs, such as local[2] [default: local[*]]")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", "-c", help="of --kind spark: a setting of Spark's, NAME=VALUE; as often as need be"),
    ] = None,
    lanes: Annotated[
        str | None,
        typer.Option(
            help="N or auto: a part runs in so many processes of one worker each, its keys shared out among them "
            "[default: in one process, with several workers]"
        ),
    ] = None,
    stop_within: Annotated[str, typer.Option(help="how long a part may take to stop")] = "30s",
    core_ips: Annotated[
        float | None, typer.Option(hidden=True, help="what a core does, if not as the net says")
    ] = None,
    leash: Annotated[bool, typer.Option(hidden=True, help="stop when standard input ends")] = False,
) -> None:
    """Run the parts of flows that a coordinator hands to this machine, until stopped.

    The site dials the coordinator, and goes on by itself while that is away, or after its own restart. Ctrl-C or SIGTERM
    stops all parts with a checkpoint. `headwater site token NAME` makes the token, where the coordinator's state is.
    A figure is a number, a CSV file of `hour,value` (an hour of the day, UTC, or a date), or 'command: …' that prints it.
    """
    if context.invoked_subcommand is not None:
        return
    if not join:
        raise RunError("where is the coordinator? say --join HOST:PORT")
    address = address_of("--join", join, "192.0.2.1:8471")
    listen_address = None if listen is None else address_of("--listen", listen, "192.0.2.7", port=0)
    figures = {"--price": price, "--carbon": carbon, "--cores": cores}
    quotes = Quotes(*(None if text is None else Quote(option, text) for option, text in figures.items()))
    on_spark, settings = _master(kind, master), parse_settings(conf or [])
    if settings and on_spark is None:
        raise RunError("-c is a setting of Spark's; say --kind spark too")
    token_text = None if token is None else _read_token(token)
    folder = _folder(name, token_text, state)
    Uplink.read(uplink)
    in_lanes = lanes_of(lanes, on_spark)
    folder.settle(_name(folder, name, token_text), listen_address, uplink, on_spark, settings, in_lanes)
    if on_spark is not None:
        say_what_executors_need(on_spark, folder)
    if log.getEffectiveLevel() == logging.WARNING:
        log.setLevel(logging.INFO)
        logging.getLogger("headwater.serve").setLevel(logging.INFO)
    home = Home(folder.path)
    try:
        within_s = microseconds_of("--stop-within", stop_within) / 1e6
        service = Service(Folder(folder.parts), home, Notifier(), stop_within_s=within_s, keeps=False)
        reserves = on_spark is None or not is_elsewhere(on_spark)
        link = Link(Work(folder, service, Site(quotes, core_ips, reserves=reserves)), address)
        link.start()
        hung_up = _leash() if leash else threading.Event()
        try:
            run_until_stopped(service, lambda: link.refused is not None or hung_up.is_set())
        finally:
            link.stop()
    finally:
        home.leave()
    if link.refused is not None:
        raise RunError(f"the coordinator at {join} does not admit this site: {link.refused}")


@app.command("token")
def _token(
    name: Annotated[str, typer.Argument(help="the site's name, as the net has it")],
    state: Coordinators = STATE,
    output: Annotated[
        Path | None, typer.Option(help="a file to write it to, for you alone to read [default: print it]")
    ] = None,
) -> None:
    """Make the token by which a site is admitted; it holds the site's key, so keep it as you would keep a password.

    The first time, this makes the authority and the coordinator's own certificate in the state folder too.
    """
    folder = StateFolder(state)
    folder.identity()
    token = make_token(folder.certificates, name)
    if output is None:
        typer.echo(token)
    else:
        _write_secret(output, token)


def _write_secret(path: Path, text: str) -> None:
    """Write a line to a file that its owner alone may read, also where it is there and others could."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(f"{text}\n")
    except OSError as error:
        raise explained(error, path, "write") from None


@app.command("revoke")
def _revoke(
    name: Annotated[str, typer.Argument(help="the site whose key may be in wrong hands")], state: Coordinators = STATE
) -> None:
    """Refuse all tokens that were made for a site so far: its gateway was stolen, or a token has leaked.

    A coordinator that runs hangs up on it at once, and has the other sites do so at their bridges.
    `headwater site token NAME` makes a new token, which is taken.
    """
    revoke(StateFolder(state).certificates, name)
    typer.echo(f"site '{name}' is revoked: its token is not taken any more; 'headwater site token' makes a new one")


def _master(kind: str, master: str | None) -> str | None:
    """Return where Spark runs the parts; None where the engine does."""
    if kind not in _KINDS:
        raise RunError(f"--kind is one of {listed(_KINDS)}; got {kind!r}{suggestion(kind, _KINDS)}")
    if kind == "engine":
        if master is not None:
            raise RunError("--master is Spark's; say --kind spark too")
        return None
    if find_spec("pyspark") is None:
        raise RunError("Spark is not installed at this site: pip install 'headwater[spark]'")
    return master or "local[*]"


def lanes_of(text: str | None, master: str | None) -> int | Literal["auto"] | None:
    """Read `--lanes`, which means nothing where Spark runs the parts."""
    lanes = parse_lanes(text)
    if lanes is not None and master is not None:
        raise RunError("--lanes are the engine's, and mean nothing with --kind spark")
    if lanes is not None:
        from headwater.engine.lanes import check_lanes

        check_lanes(lanes)
    return lanes


def say_what_executors_need(master: str, folder: SiteFolder) -> None:
    """Say that executors elsewhere keep state in the site's folder too, which nobody can find out from here."""
    from headwater.spark.session import is_near

    if not is_near(master):
        log.warning(
            "executors of %s keep state in %s: let --state be a folder that they see under that path",
            master,
            folder.path,
        )


def _leash() -> threading.Event:
    """Return what is set when whoever started this process is gone, whatever ended it: standard input ends then."""
    hung_up = threading.Event()

    def wait() -> None:
        while os.read(0, 2**12):  # not by sys.stdin, whose lock would break the end of the process
            pass
        hung_up.set()

    threading.Thread(target=wait, name="leash", daemon=True).start()
    return hung_up


def _read_token(path: Path) -> str:
    try:
        return typer.get_text_stream("stdin").read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read the token {path}: {getattr(error, 'strerror', None) or error}") from None


def _folder(name: str | None, token: str | None, state: Path | None) -> SiteFolder:
    if state is not None:
        return SiteFolder(state)
    if name is None and token is None:
        raise RunError("which site is this? say --name NAME, or --state FOLDER")
    return SiteFolder(Path(".headwater", f"site-{name or name_in(token or '')}"))


def _name(folder: SiteFolder, name: str | None, token: str | None) -> str:
    """Return the site's name, and see to it that its certificate is there."""
    if token is not None:
        return use_token(token, folder.identity_folder, name)
    site_name = folder.name if name is None else name
    try:
        Identity.of(folder.identity_folder, site_name)
    except RunError:
        raise RunError(
            f"site '{site_name}' has no certificate in {folder.identity_folder}; give --token FILE once, with what "
            f"'headwater site token {site_name}' prints where the coordinator is"
        ) from None
    return site_name
