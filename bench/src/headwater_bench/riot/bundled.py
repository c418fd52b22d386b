"""The flows as `headwater run riot:NAME` knows them: generated messages in, and nothing kept unless told."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

from headwater.errors import FlowError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.endpoints import Sink
from headwater.flow.steps import Kind, Read, Write
from headwater.io import Csv, JsonLines
from headwater.models.folder import ModelFolder
from headwater_bench.riot.blobs import BlobStore, PutBlobs
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl, generated_ids
from headwater_bench.riot.in_order import InOrder, TextLines
from headwater_bench.riot.notes import notes_of
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MessageFile, Messages
from headwater_bench.riot.stats import stats
from headwater_bench.riot.train import Triggers, train
from headwater_bench.riot.viz import stats_viz

Build = Callable[[Any, Path | None], Flow]


class BundledFlow(Flow):
    """A flow that builds itself anew when it is given another input or an output folder.

    With an output folder, each sink writes a CSV file there in the order of the messages, and so does each
    intermediate result that the benchmark has expected values for.
    """

    def __init__(self, name: str, build: Build, source: Any) -> None:
        super().__init__(name)
        self._build = build
        self._source = source
        for step in build(source, None).steps.values():
            self._insert(step)

    def replaced(self, kinds: Mapping[str, Kind]) -> Flow:
        """Return the flow with another source, or with files for its sinks."""
        source, folder = self._source, None
        for name, kind in kinds.items():
            if isinstance(kind, Read):
                source = kind.source if name != "updates" else source
            elif isinstance(kind, Write) and isinstance(kind.sink, Csv | JsonLines):
                folder = Path(kind.sink.path).parent
            else:
                return super().replaced(kinds)
        return self._build(source, folder)


def flow_named(name: str) -> Flow:
    """Return a bundled flow: etl, stats, stats-viz, train or pred."""
    if name not in _FLOWS:
        raise FlowError(f"there is no bundled flow {name!r}; flows are {listed(_FLOWS)}{suggestion(name, _FLOWS)}")
    return BundledFlow(name, _FLOWS[name], Triggers() if name == "train" else Messages("CITY"))


def _etl(source: Any, folder: Path | None) -> Flow:
    notes = notes_of(CITY, generated_ids(CITY), source.path.parent if isinstance(source, MessageFile) else None)
    lines = None if folder is None else InOrder(TextLines(folder / "publish.jsonl", "senml"), ["msg"])
    return etl(source, publish=lines, insert=_file(folder, "insert"), notes=notes)


def _stats(source: Any, folder: Path | None) -> Flow:
    return stats(
        source,
        publish=_file(folder, "publish", "msg", "kind"),
        smoothed=_file(folder, "kalman"),
    )


def _pred(source: Any, folder: Path | None) -> Flow:
    shared = _shared_models()
    watched = ModelFolder(shared) if shared is not None and isinstance(source, Messages) else None
    return pred(
        source,
        publish=_file(folder, "publish", "msg", "kind"),
        forecasts=_file(folder, "mlr"),
        updates=watched,
        models=shared,
    )


def _train(source: Any, folder: Path | None) -> Flow:
    models = folder or _shared_models() or _passing_folder()
    return train(
        source,
        models=models,
        table=source.table,
        publish=_file(folder, "publish", "msg", "kind"),
        labelled=_file(folder, "annotate"),
    )


def _shared_models() -> Path | None:
    """Return the folder through which a running TRAIN hands models to a running PRED, if one is named."""
    place = os.environ.get("HEADWATER_RIOT_MODELS")
    if not place:
        return None
    Path(place).mkdir(parents=True, exist_ok=True)
    return Path(place)


def _passing_folder() -> Path:
    """Return a folder for models that nobody has asked to keep; it goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-models-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def _stats_viz(source: Any, folder: Path | None) -> Flow:
    return stats_viz(source, upload=None if folder is None else PutBlobs(BlobStore(folder)))


def _file(folder: Path | None, name: str, *by: str) -> Sink | None:
    return None if folder is None else InOrder(Csv(folder / f"{name}.csv"), by or ("msg",))


_FLOWS: dict[str, Build] = {"etl": _etl, "stats": _stats, "pred": _pred, "train": _train} | {"stats-viz": _stats_viz}
