"""What a checkpoint belongs to: a flow of certain steps and columns, its inputs, one run at a time. Others are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.identity import differs, identity_of, sink_identity_of
from headwater.flow.ranges import Offset
from headwater.flow.steps import Read, Step, Write
from headwater.io.lock import FILE as LOCK
from headwater.spark import sources
from headwater.spark.heads import Head, heads_of
from headwater.spark.native import reads
from headwater.spark.options import Meaning
from headwater.spark.places import place_of
from headwater.spark.seeds import TakenOver

_FILE = "headwater.json"
_QUERY, _HISTORY = "query", "history"
_VERSION = 5
_ANEW = "give another folder, or remove this one to begin anew"


class Checkpoint:
    """A folder or URL in which a query keeps how far it has come; the next run with it goes on from there."""

    def __init__(self, at: str | Path, *, begins_with_history: bool = False, meaning: Meaning = "headwater") -> None:
        """Look at a place; only who reads history has business with one in which that has not come to its end.

        What Spark's own operators keep, where they have the first steps, is for the same `meaning` alone.
        """
        self._at = place_of(at)
        self.meaning: Meaning = meaning
        self._begins_with_history = begins_with_history

    def __str__(self) -> str:
        return str(self._at)

    @property
    def is_far(self) -> bool:
        """Whether it is reached through Spark alone, which must be running before anything is asked of it."""
        return self._at.is_far

    @property
    def folder(self) -> Path:
        """The folder of this machine in which sinks make their notes: the checkpoint's own, unless that is at a URL."""
        return self._at.folder

    @property
    def query(self) -> str:
        """The URL for Spark's own files."""
        return self._at.url(_QUERY)

    @property
    def seeds(self) -> Path:
        """The folder for what was taken over from another runner."""
        return self.folder / "seeds"

    @property
    def history(self) -> Path:
        """The folder for how far history has been read, until a stream can go on from it."""
        return self.folder / _HISTORY

    def lock(self) -> None:
        """Keep other runs out until `release`, or until this process is gone."""
        self._read()  # what is no checkpoint stays untouched
        self._at.lock()

    def save(self) -> None:
        """Have what sinks have noted where the next run finds it."""
        self._at.save()

    def release(self) -> None:
        """Let other runs in."""
        self._at.release()

    def buckets(self) -> int | None:
        """Return into how many buckets earlier runs have spread keys, which a checkpoint fixes; None for a new one."""
        description = self._read()
        return None if description is None else int(description["buckets"])

    def check(self, flow: Flow, buckets: int | None, *, ended: bool = False) -> None:
        """Check that the checkpoint is new or this flow's own, and its inputs the same; say what differs if not.

        One of a run that has come to its end is refused, unless it may have `ended`.
        """
        description = self._read()
        if description is None:
            return
        mine = self._described(flow, buckets)
        difference = _difference(description, mine) or _other_ends(description, mine, flow)
        if difference:
            raise RunError(f"checkpoint {self} does not fit: {difference}; {_ANEW}")
        if description.get("ended") and not ended:
            raise RunError(
                f"checkpoint {self} is of a run that has come to its end; remove it, or give another, to run again"
            )
        for step, offset in self.offsets(flow).items():
            # of what has ended nothing more is read
            change = "" if offset["ended"] else sources.changed(_source(flow.steps[step]), offset)
            if change:
                raise RunError(
                    f"checkpoint {self} does not fit: {change} Put it back, or begin anew with another checkpoint"
                )

    def claim(self, flow: Flow, buckets: int) -> None:
        """Check it, and write down that it is this flow's from now on."""
        self.check(flow, buckets)
        self._describe(flow, buckets, self.takeover())

    def take_over(self, flow: Flow, buckets: int, takeover: TakenOver) -> None:
        """Write down, in a new one, that it goes on from what another runner left."""
        self._describe(flow, buckets, takeover)

    def takeover(self) -> TakenOver | None:
        """Return what was taken over from another runner; None if nothing was."""
        document = (self._read() or {}).get("taken")
        if document is None:
            return None
        lists = {name: tuple(document.get(name, ())) for name in ("waiting", "new_sinks")}
        return TakenOver(**{**document, **lists})

    def settle(self) -> None:
        """Write down that sinks have what had waited for them."""
        description, takeover = self._read(), self.takeover()
        assert description is not None
        assert takeover is not None
        self._write({**description, "taken": asdict(replace(takeover, after=takeover.first - 1, waiting=()))})

    def after(self) -> int | None:
        """Return the part behind which sinks go on, where they do not know it themselves; None where they do."""
        takeover = self.takeover()
        return None if takeover is None or self._begun_batches() else takeover.after

    def _describe(self, flow: Flow, buckets: int, takeover: TakenOver | None) -> None:
        description = self._described(flow, buckets)
        self._write(description if takeover is None else {**description, "taken": asdict(takeover)})

    def end(self) -> None:
        """Write down that all sources have ended and all is written: nothing is left to go on with."""
        description = self._read()
        if description is not None:
            self._write({**description, "ended": True})

    def committed(self) -> int:
        """Return the last micro-batch that is done, -1 before the first."""
        return max(self._numbers("commits"), default=-1)

    def last_begun(self) -> int:
        """Return the last micro-batch that has begun, -1 before the first; sinks may have it though it is not done."""
        return max(self._begun_batches(), default=-1)

    def is_committed(self, batch: int) -> bool:
        """Say whether a micro-batch is done."""
        return self._at.exists(f"{_QUERY}/commits/{batch}")

    def operators(self) -> list[int]:
        """Return the numbers of Spark's operators that keep state: one for each level, in whichever order."""
        return sorted(self._numbers("state"))

    def offsets(self, flow: Flow, batch: int | None = None) -> Mapping[str, Offset]:
        """Return how far each source was read up to a micro-batch, the last one begun if not said; absent if not at all."""
        takeover = self.takeover()
        lines = self.lines(flow, batch)
        offsets = {name: json.loads(words[-1]) for name, words in lines.items() if words[-1] != "-"}
        return offsets if takeover is None else {**takeover.offsets, **offsets}

    def lines(self, flow: Flow, batch: int | None = None) -> dict[str, list[str]]:
        """Return what Spark's log has of each source: a line of our own, behind those of a connector where there is one."""
        batches = self._begun_batches()
        batch = max(batches, default=-1) if batch is None else batch
        if batch not in batches:
            return {}
        # a version, what Spark notes of the micro-batch, then a line for each source, in the order of the flow
        lines = iter(self._at.raw(f"{_QUERY}/offsets/{batch}").decode().splitlines()[2:])
        counts = counted_lines(flow, heads_of(flow, self.meaning))
        return {name: [next(lines, "-") for _ in range(count)] for name, count in counts.items()}

    def _described(self, flow: Flow, buckets: int | None) -> dict[str, Any]:
        return _described(flow, buckets) | ({} if self.meaning == "headwater" else {"meaning": self.meaning})

    def _begun_batches(self) -> list[int]:
        return self._numbers("offsets")

    def _numbers(self, folder: str) -> list[int]:
        return [int(name) for name in self._at.names(f"{_QUERY}/{folder}") if name.isdecimal()]

    def _write(self, description: dict[str, Any]) -> None:
        self._at.write(_FILE, json.dumps(description, indent=1).encode())

    def _read(self) -> dict[str, Any] | None:
        text = self._at.read(_FILE)
        if text is None:
            self._refuse_others(self._at.names())
            return None
        try:
            description = json.loads(text)
        except ValueError as error:
            raise RunError(f"cannot read checkpoint {self}/{_FILE}: {error}") from None
        if not isinstance(description, dict) or description.get("version") != _VERSION:
            raise RunError(f"checkpoint {self} was written by another version of Headwater; {_ANEW}")
        return description

    def _refuse_others(self, names: list[str]) -> None:
        """Raise where something else is than a checkpoint of Spark's that has begun, or nothing yet."""
        if _HISTORY in names:
            if self._begins_with_history:
                return
            raise RunError(
                f"checkpoint {self} begins with history, which was not read to its end: run the same command as "
                "then (--backfill), which goes on from there"
            )
        if any(name.endswith(".checkpoint") for name in names):
            raise RunError(
                f"checkpoint {self} is one of the engine's, which Spark cannot go on from; give a folder of "
                f"its own, or take it over: headwater takeover FLOW --from {self} --to NEW"
            )
        if any(name not in (LOCK, _FILE, f"{_FILE}.new") for name in names):
            raise RunError(f"{self} is no checkpoint of Headwater's, and not empty; give an empty or a new folder")


def counted_lines(flow: Flow, heads: Mapping[str, Head]) -> dict[str, int]:
    """Return how many lines each source has in Spark's log of offsets, in its order: the last one is always our own.

    Those before it are a connector's, and that of what tells windows of Spark's own that the source has ended.
    """
    counts = {}
    for name, head in heads.items():
        natives = [reads(_source(flow.steps[source])) for source in head.sources]
        counts[name] = 1 + sum(native.offsets + head.waits for native in natives if native is not None)
    return counts


def _source(step: Step) -> Any:
    assert isinstance(step.kind, Read)
    return step.kind.source


def _described(flow: Flow, buckets: int | None) -> dict[str, Any]:
    """Describe what state and offsets depend on: the steps, how they are joined, their columns, what is read and written."""
    steps = {
        step["name"]: {
            **{name: step[name] for name in ("kind", "inputs", "outputs")},
            "keeps": flow.steps[step["name"]].keeps,
        }
        for step in flow.to_json()["steps"]
    }
    identities = {s.name: identity_of(s.kind.source) for s in flow.steps.values() if isinstance(s.kind, Read)}
    sinks = {s.name: sink_identity_of(s.kind.sink) for s in flow.steps.values() if isinstance(s.kind, Write)}
    return {
        "version": _VERSION,
        "flow": flow.name,
        "buckets": buckets,
        "steps": steps,
        "sources": identities,
        "sinks": {name: each for name, each in sinks.items() if each},
    }


def _difference(theirs: dict[str, Any], mine: dict[str, Any]) -> str:
    if theirs["flow"] != mine["flow"]:
        return f"it belongs to flow {theirs['flow']!r}, not to {mine['flow']!r}"
    before, now = (each.get("meaning", "headwater") for each in (theirs, mine))
    if before != now:
        return f"its run had meaning={before!r}, and this has {now!r}"
    if theirs["buckets"] != mine["buckets"]:
        return f"it spreads keys over {theirs['buckets']} buckets, not over {mine['buckets']}"
    before, now = theirs["steps"], mine["steps"]
    for name in [*before, *now]:
        if name not in now:
            return f"flow {mine['flow']!r} had a step {name!r} then"
        if name not in before:
            return f"flow {mine['flow']!r} had no step {name!r} then"
        if before[name]["outputs"] != now[name]["outputs"]:
            return f"step {name!r} gave {_columns(before[name])} then, and gives {_columns(now[name])} now"
        if before[name]["kind"] == now[name]["kind"] and before[name].get("keeps") != now[name]["keeps"]:
            return f"step {name!r} was '{before[name].get('keeps')}' then, and is '{now[name]['keeps']}' now"
        if before[name] != now[name]:
            return f"step {name!r} was another kind of step then, or had other inputs"
    return ""


def _other_ends(theirs: dict[str, Any], mine: dict[str, Any], flow: Flow) -> str:
    """Say which source is another than then, or which file of a sink; places in one mean nothing in the other."""
    for name, before in theirs["sources"].items():
        difference = differs(_source(flow.steps[name]), before)
        if difference:
            return f"source {name!r} is another: {difference}"
    for name in {**theirs["sinks"], **mine["sinks"]}:
        before, after = (each["sinks"].get(name, {}).get("path", "no text file") for each in (theirs, mine))
        if before != after:
            return f"sink {name!r} wrote {before} then, and is given {after} now"
    return ""


def _columns(step: dict[str, Any]) -> str:
    main: dict[str, str] = next(iter(step["outputs"].values()), {})
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in main.items()) + ")"
