"""A flow and its sources on their way to the workers: sent once for each query, and read once by each worker.

Functions travel by Spark's own means (cloudpickle, between this driver and its own workers); records and state never do.
"""

from __future__ import annotations

import atexit
import sys
import sysconfig
import tempfile
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.steps import Read, Step, Write
from headwater.spark.stages import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = 32  # things that a worker remembers
_loaded: dict[str, Any] = {}


class SentLayout(Protocol):
    """The layout of a flow on its way to workers, under a name that is its own."""

    file: str

    def layout(self) -> Layout:
        """Return the layout."""


class Broadcast:
    """The layout of a flow, as a worker gets it: by the name of a file that Spark has brought there."""

    def __init__(self, path: Path) -> None:
        self.file, self._near = path.name, path.parent

    def layout(self) -> Layout:
        """Return the layout; read when it is first asked for in a process."""
        layout: Layout = received(self.file, self._near)
        return layout


class CarriedLayout:
    """The layout of a flow inside the functions that use it: for queries that others start, and sessions without files."""

    def __init__(self, data: bytes) -> None:
        self.file = f"headwater-{sha256(data).hexdigest()[:24]}"
        self._data = data

    def layout(self) -> Layout:
        """Return the layout; read when it is first asked for in a process."""
        layout: Layout | None = _loaded.get(self.file)
        if layout is None:
            from pyspark import cloudpickle

            layout = _keep(self.file, cloudpickle.loads(self._data))
        return layout


def received(file: str, near: Path | None = None) -> Any:
    """Return what was sent under this name; read when it is first asked for in a process.

    A process beside the driver that plans, but runs no tasks, finds it in the folder `near`, where it was sent from.
    """
    value = _loaded.get(file)
    if value is None:
        from pyspark import SparkFiles, cloudpickle

        path = near / file if near is not None and (near / file).exists() else Path(SparkFiles.get(file))
        value = _keep(file, cloudpickle.loads(path.read_bytes()))
    return value


def _keep(file: str, value: Any) -> Any:
    """Remember what was sent under a name, and forget what came long ago."""
    while len(_loaded) >= _KEPT:
        del _loaded[next(iter(_loaded))]
    _loaded[file] = value
    return value


def send(spark: SparkSession, thing: Any) -> Path:
    """Bring something to where the workers of a session can read it; return its file, by whose name they ask for it."""
    from pyspark import cloudpickle

    with by_value():
        data = cloudpickle.dumps(thing)
    path = _folder() / f"headwater-{sha256(data).hexdigest()[:24]}.flow"
    if not path.exists():
        path.write_bytes(data)
    spark.sparkContext.addFile(str(path))
    return path


def broadcast(spark: SparkSession, layout: Layout) -> Broadcast:
    """Bring a flow to where the workers of a session can read it."""
    return Broadcast(send(spark, _light(layout)))


def carried(layout: Layout) -> CarriedLayout:
    """Pack a flow to travel with the functions that use it."""
    from pyspark import cloudpickle

    light = _light(layout)
    with by_value():
        return CarriedLayout(cloudpickle.dumps(light))


def _light(layout: Layout) -> Layout:
    """Return what workers need of a layout, after a look whether it can be sent."""
    from pyspark import cloudpickle

    steps = {name: _without_ends(step) for name, step in layout.flow.steps.items()}
    with by_value():
        _refuse_unsendable(steps, cloudpickle)
    return replace(layout, flow=Flow.of_steps(layout.flow.name, steps.values()))


@cache
def _folder() -> Path:
    """Return where this process keeps what it has sent: an executor that joins later asks for all of it."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-flows-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def _without_ends(step: Step) -> Step:
    """Leave out sources and sinks: they stay with the driver, and few of them can be sent."""
    nothing: Any = None
    if step.is_source:
        return replace(step, kind=Read(nothing))
    return replace(step, kind=Write(nothing)) if step.is_sink else step


def _refuse_unsendable(steps: dict[str, Step], cloudpickle: Any) -> None:
    for name, step in steps.items():
        try:
            cloudpickle.dumps(step)
        except Exception as error:
            raise RunError(
                f"{step.where}: step {name!r} cannot run on Spark: what it uses cannot be sent to another process "
                f"({type(error).__name__}: {error}); open files, connections and locks inside the function instead",
                step=name,
            ) from None


class by_value:  # noqa: N801  reads like a function
    """While it lasts, functions of the user's own modules are sent whole: workers could not import them."""

    def __enter__(self) -> None:
        from pyspark import cloudpickle

        registry = cloudpickle.list_registry_pickle_by_value()
        self._modules = [m for n, m in list(sys.modules.items()) if n not in registry and _is_users(n, m)]
        for module in self._modules:
            cloudpickle.register_pickle_by_value(module)

    def __exit__(self, *raised: object) -> None:
        from pyspark import cloudpickle

        for module in self._modules:
            cloudpickle.unregister_pickle_by_value(module)


_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)  #: where links lead, as files are looked at below: the folder of an environment may be one
_OURS = str(Path(__file__).resolve().parent.parent)


def _is_users(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not file or name == "__main__" or module.__name__ != name:  # main is sent whole anyway
        return False
    return _is_of_user(file)


@cache
def _is_of_user(file: str) -> bool:
    """Say so of a file, once: to look at those of a thousand modules takes long enough."""
    path = str(Path(file).resolve())
    return path.endswith(".py") and not path.startswith((*_INSTALLED, _OURS))
