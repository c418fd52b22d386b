"""A part of a flow on Spark, at a site of that kind: with cores of its own where a rate is promised."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.promise import micro_batches
from headwater.cli.screen import err
from headwater.deploy.site.on_spark import start
from headwater.deploy.site.promise_on_spark import is_elsewhere
from headwater.errors import RateError
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.serve.home import FlowHome
from headwater.serve.settings import Settings

if TYPE_CHECKING:
    from headwater.rate.application import Application

log = logging.getLogger(__name__)


def prepare(flow: Flow, contract: Contract | None, settings: Settings) -> Application | None:
    """Have cores held for a part that is to run soon, and Java start on these; return what holds them.

    Where there are no cores, what has them may be gone by then, such as the part before it: Java starts on them then.
    """
    from headwater.spark.session import session

    application = None
    try:
        application = None if contract is None else _application(flow, contract, settings)
    except RateError as error:
        log.info("%s; it is asked again when the part starts", error)
        return None
    session(_master(application, settings), settings.conf)  # Java takes its time
    return application


def begin(
    flow: Flow, contract: Contract | None, settings: Settings, home: FlowHome, ahead: Application | None = None
) -> Any:
    """Have a part go on on Spark, with what was held for it ahead, and return the run in progress."""
    if contract is None:
        return start(flow, home, settings.master, settings.conf)
    application = ahead or _application(flow, contract, settings)
    reservation = application.admitted
    what = (
        f"{application.cores} cores reserved for Spark"
        if reservation.cores
        else "no cores reserved, for they are a cluster's"
    )
    message = f"{flow.name} is promised {contract}: {what} (an estimate, without a trial), grade {reservation.grade}"
    err.print(message, soft_wrap=True, markup=False, highlight=False)
    return application.started(
        lambda: start(flow, home, _master(application, settings), settings.conf, **micro_batches(application))
    )


def _application(flow: Flow, contract: Contract, settings: Settings) -> Application:
    from headwater.rate.application import Application

    profile = None if settings.profile is None else Profile.load(Path(settings.profile))
    elsewhere = is_elsewhere(settings.master or "local")
    return Application(flow, contract, profile=profile, best_effort=settings.best_effort, elsewhere=elsewhere)


def _master(application: Application | None, settings: Settings) -> str | None:
    """Return where the part runs: on this machine, on the cores that are held for it."""
    return settings.master if application is None or not application.admitted.cores else f"local[{application.cores}]"
