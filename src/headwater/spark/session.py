"""Starts Spark, with settings that suit a small machine; every one of them can be given otherwise."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from headwater.cores import whole_cores
from headwater.errors import RunError
from headwater.spark import daemon, forkserver, java, niofs
from headwater.spark.archive import Archive, archive_of
from headwater.spark.archiving import OPTIONS, make_at_exit
from headwater.spark.gateway import JavaSide, drop_ahead, java_side, launch, start_ahead
from headwater.spark.home import MISSING, spark_home, spark_version, written_defaults
from headwater.spark.interpreter import check_workers, launcher
from headwater.spark.master import SECRETIVE, check_answers

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_REAPED_S = 5.0  # until a process that does not answer any more is known to be gone
_CLASS_PATHS = {"spark.driver.extraClassPath", "spark.executor.extraClassPath"}
_PYTHONS = {"spark.pyspark.python", "spark.pyspark.driver.python"}  # which go before what the environment says
_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(master: str | None = None, settings: Mapping[str, Any] | None = None) -> SparkSession:
    """Return the session of this process, started if there is none.

    `master` is Spark's own (`local[*]` unless told); `settings` are Spark's, such as `spark.driver.memory`, and go
    before our defaults, as does what `spark-defaults.conf` says. Where a session is running already, as in a
    notebook or under spark-submit, that one is used.
    """
    prepare(master, settings)  # loading pyspark takes long enough
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RunError(MISSING) from error
    texts = _as_texts(settings)
    side = java_side()
    ended = "" if side is None else side.ended()
    if ended:
        raise RunError(f"Java, in which Spark runs, is gone: {ended}; start Spark anew in a new process")
    running = SparkSession.getActiveSession() or _of_another_thread()
    if running is not None:
        return _adapted(running, master, texts)
    if has_java():  # and knows the master
        return _started(master or "", {**_streaming(), **texts})
    return _started(*_settle(master, texts))


def prepare(master: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
    """Start what a session on this machine will need, and do not wait for it; nothing where there may be one already.

    What is wrong with the settings or the machine, the session tells.
    """
    if "pyspark" not in sys.modules and is_local(master, settings):
        with suppress(RunError):
            start_ahead(_all(*_settle(master, _as_texts(settings))))


def is_local(master: str | None = None, settings: Mapping[str, Any] | None = None) -> bool:
    """Say whether all of the session that runs is on this machine, or of the one that would be started."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession() or _of_another_thread()
        if running is not None:
            return (running.conf.get("spark.master", "") or "").startswith("local")
    url = master or _as_texts(settings).get("spark.master") or LOCAL
    return url.startswith("local") and not has_java()


def cancel() -> None:
    """End what was prepared, if no session has been started since."""
    if java_side() is None:
        drop_ahead()
        forkserver.stop()


def has_java() -> bool:
    """Say whether spark-submit has started Java for this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _settle(master: str | None, texts: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the master, and all that is set for a session which starts Java; the environment is made ready for that."""
    master = master or texts.get("spark.master") or LOCAL
    theirs = written_defaults()
    check_answers(master, ask=not theirs & set(SECRETIVE) and all(texts.get(name) != "true" for name in SECRETIVE))
    jvm = java.find()
    os.environ["JAVA_HOME"] = str(jvm.home)
    if is_near(master):
        if os.environ.setdefault("PYSPARK_PYTHON", launcher()) == launcher() != sys.executable and not (
            {*texts, *theirs} & _PYTHONS
        ):
            forkserver.start()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    defaults = {**_streaming(), **_small(master, jvm)}
    own = {name: value for name, value in defaults.items() if name not in theirs}
    for name in _CLASS_PATHS & own.keys() & texts.keys():  # one more place to look, not another one
        texts[name] = f"{own[name]}{os.pathsep}{texts[name]}"
    return master, {**own, **texts}


def _of_another_thread() -> SparkSession | None:
    """Return the session that a thread of this process has started, and that runs; Spark itself knows each thread's own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    instance: SparkSession | None = getattr(SparkSession, "_instantiatedSession", None)
    active = SparkContext._active_spark_context
    return instance if instance is not None and active is not None and instance.sparkContext is active else None


def cores_of(master: str) -> int:
    """Return how many tasks run at once on a master in this process, all processors where it does not say.

    >>> cores_of("local[3]"), cores_of("local")
    (3, 1)
    """
    if master == "local":
        return 1
    match = re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master)
    return int(match[1]) if match else whole_cores()


def _streaming() -> dict[str, str]:
    """Return what our queries need wherever they run."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "false",  # dividing by zero is no error, as in a batch
        "spark.sql.streaming.stateStore.providerClass": _STATE,
        # a micro-batch writes what it changed instead of a snapshot of all: a tenth less time
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # what goes from stage to stage says when that was, so a task that runs again never gives the same bytes: Spark would
        # take that for other records, and end the query where an executor is lost when some of a stage is done already
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # a row is a whole batch of records: bound what goes to Python at once by bytes, since rows say nothing
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),
    }


def _small(master: str, jvm: java.Java) -> dict[str, str]:
    """Return what suits a small machine: little memory, no web server, nothing on the network."""
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": quiet,
        # executors have it too; a worker of Spark's own looks for garbage in all that it has loaded, after each task
        "spark.python.daemon.module": daemon.MODULE,
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    }
    if is_near(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = str(cores_of(master))
        jar = niofs.jar(jvm, spark_home(), spark_version())
        settings |= _fast_files(jar) | _from_archive(_archive(jvm, jar))
    else:
        settings["spark.sql.shuffle.partitions"] = "8"  # Spark's own 200 are for tables, not for micro-batches
        del settings["spark.sql.streaming.checkpointFileManagerClass"]  # it is for files of this machine alone
    return settings


def _fast_files(jar: Path | None) -> dict[str, str]:
    if jar is None:
        return {}
    return {
        "spark.driver.extraClassPath": str(jar),
        "spark.executor.extraClassPath": str(jar),
        "spark.hadoop.fs.file.impl": niofs.CLASS,
    }


def _from_archive(archive: Archive) -> dict[str, str]:
    """Return what has Java start from an archive of classes; where there is none yet, the next session has one."""
    make_at_exit(archive)
    options = archive.options()
    return {OPTIONS: shlex.join(options)} if options else {}


def own_archive() -> Archive:
    """Return the archive of classes for a session of this machine."""
    jvm = java.find()
    return _archive(jvm, niofs.jar(jvm, spark_home(), spark_version()))


def _archive(jvm: java.Java, jar: Path | None) -> Archive:
    return archive_of(jvm, spark_home(), [] if jar is None else [jar])


def _all(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with those that have a name of their own."""
    return {"spark.app.name": "headwater", **settings, **({"spark.master": master} if master else {})}


def _started(master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    complete = _all(master, settings)
    for name in ("py4j.clientserver", None):  # it uses the root's, too
        logging.getLogger(name).addFilter(_is_news)
    # while this process waits for Java, it has time to load what it needs of Python
    Thread(target=daemon.preload, args=daemon.SHARED, name="preload", daemon=True).start()
    side = launch(complete)
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(complete.items()))
        context = SparkContext(conf=conf, gateway=side.gateway)
        _quieten(context, side)
        return SparkSession(context)
    except Exception as error:
        raise RunError(_explained(master, settings, f"{error}\n{side.last_output()}")) from error


#: what py4j tells beside raising it: what breaks in our own callbacks, and that Java does not answer any more
_TOLD_TWICE = ("exception while executing the Python Proxy", "Exception while sending command.")


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out what a run tells that it breaks."""
    message = record.getMessage()
    return not any(part in message for part in _TOLD_TWICE)


def _quieten(context: SparkContext, side: JavaSide) -> None:
    """Let the thread that adds up accumulators not print how it broke when Java is gone: the run tells that."""
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not side.ended(_REAPED_S):
            tell(request, client_address)

    server.handle_error = handle_error


def _explained(master: str, settings: Mapping[str, str], text: str) -> str:
    if "BindException" in text or "Address already in use" in text:
        names = [name for name in settings if name.endswith("port")]
        ports = ", ".join(f"{name}={settings[name]}" for name in names) or "the one it was given"
        return (
            f"Spark cannot start: a port is taken by another program ({ports}). "
            "Choose another, or leave the setting out: Spark then takes a free one"
        )
    if "All masters are unresponsive" in text:
        return (
            f"Spark cannot start: no master at {master} has taken it on; is it one, and of the same version of Spark?"
        )
    first = next((line for line in text.splitlines() if "Exception" in line), text.strip().splitlines()[0])
    return f"Spark cannot start on {master or 'the master of spark-submit'}: {first.strip()[:300]}"


def _adapted(running: SparkSession, master: str | None, texts: Mapping[str, str]) -> SparkSession:
    """Use a session that is there: what may still be set is set."""
    has = running.sparkContext.master if hasattr(running, "sparkContext") else None
    if master is not None and has is not None and has != master:
        raise RunError(f"a Spark session on {has!r} is running in this process, not on {master!r}; stop it first")
    check_workers(running)
    for name, value in {**_streaming(), **texts}.items():
        if running.conf.isModifiable(name):
            running.conf.set(name, value)
    return running


def is_near(master: str) -> bool:
    """Say whether a master, and whoever works for it, is on this machine."""
    return master.startswith("local") or bool(re.match(r"spark://(127\.|localhost[:/]|\[::1\])", master))


def _as_texts(settings: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (settings or {}).items()
    }
