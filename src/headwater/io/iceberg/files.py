"""What an Iceberg table consists of: all files of a snapshot, and those that each later one has added."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset
from headwater.io.arrow import runs_of
from headwater.io.iceberg.session import Session
from headwater.io.ranges.files import removal_error

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg


class TableFiles:
    """The files of a table, by stages: a snapshot, of which `all` is read, what it `added`, or `nothing`.

    An offset names the snapshot (None for a table that has none yet), what is read of it, and the last one that is read
    (None while it is followed).
    """

    def __init__(self, source: Iceberg) -> None:
        self._source, self._session = source, Session(source)
        self._table: Table | None = None
        self._load_s = -inf  # when the table was last loaded
        self._children: dict[int | None, Snapshot] = {}  # of those that led to the current one, by their parents
        self._cache: dict[tuple[int, str], list[FileScanTask]] = {}

    def close(self) -> None:
        """Let the catalog go."""
        self._session.close()
        self._table = None

    def start(self) -> Offset:
        """Return where reading begins."""
        source, current = self._source, self._load().metadata.current_snapshot_id
        first = next((each for each in (source.snapshot, source.since, current) if each is not None), None)
        for snapshot in (source.snapshot, source.since):
            if snapshot is not None:
                self._check_known(snapshot)
        last = None if source.follow else first if source.since is None else current
        mode = "nothing" if first is None or source.since is not None else "all"
        at_end = not source.follow and first is None
        return {"snapshot": first, "read": mode, "last": last, "file": 0, "ended": at_end}

    def of(self, at: Offset) -> list[FileScanTask]:
        """Return the files of a stage, oldest first."""
        snapshot, mode = at["snapshot"], at["read"]
        if mode == "nothing":
            return []
        if (snapshot, mode) not in self._cache:
            self._cache = {
                key: files for key, files in self._cache.items() if key[1] == "all"
            }  # and of the last one only
            self._cache[snapshot, mode] = self._all_of(snapshot) if mode == "all" else self._added_by(snapshot)
        return self._cache[snapshot, mode]

    def behind(self, at: Offset) -> Offset | None:
        """Return where the next stage begins; None while there is none, or if none is waited for."""
        snapshot, last = at["snapshot"], at["last"]
        if at["ended"] or (last is not None and snapshot == last):
            return None
        if snapshot not in self._children:
            if time.monotonic() < self._load_s + self._source.poll_s:
                return None
            self._check_current(snapshot)
        child = self._children.get(snapshot)
        return None if child is None else {**at, "snapshot": child.snapshot_id, "read": "added", "file": 0}

    def see(self, snapshot: int | None) -> None:
        """Look again, unless a snapshot is known of which another process has told; raises InputError if there is none."""
        if snapshot is not None:
            self._check_known(snapshot)

    def read(self, file: FileScanTask, schema: Schema, row: int, reject: Reject) -> Iterator[Batch]:
        """Read a file from a row on; rows that fit no columns of ours go to `reject`, and are empty batches here."""
        for batch in self._rows(file, schema):
            skipped, row = min(row, batch.num_rows), max(0, row - batch.num_rows)
            if skipped < batch.num_rows:
                for records, unfit in runs_of(batch.slice(skipped), schema):
                    yield records
                    if unfit is not None:
                        reject(*unfit)
                        yield Batch.none(schema)

    def columns(self) -> list[str]:
        """Return the names of the table's columns."""
        return [field.name for field in self._now().schema().fields]

    def _rows(self, file: FileScanTask, schema: Schema) -> Iterator[Any]:
        table = self._now()
        with self._session.asking("read"):
            columns = table.schema().select(*schema)
            scan = ArrowScan(table.metadata, table.io, columns, AlwaysTrue())
            batches = list(scan.to_record_batches([file]))  # which the library has all at once, too
        yield from batches

    def _now(self) -> Table:
        return self._load() if self._table is None else self._table

    def _load(self) -> Table:
        """Return the table as it is now, with how its snapshots came one after the other."""
        self._table = self._session.table("read")
        self._load_s = time.monotonic()
        by_id = {each.snapshot_id: each for each in self._table.metadata.snapshots}
        self._children = {}
        at = by_id.get(self._table.metadata.current_snapshot_id or 0)
        while at is not None:
            self._children[at.parent_snapshot_id] = at
            at = by_id.get(at.parent_snapshot_id or 0)
        return self._table

    def _check_current(self, snapshot: int | None) -> None:
        """Look again; raises InputError where what was read up to a snapshot does not lead to the table as it is."""
        current = self._load().metadata.current_snapshot_id
        if snapshot != current and snapshot not in self._children:
            raise InputError(
                f"cannot go on reading {self._source} behind snapshot {snapshot}: it does not lead to snapshot {current}, "
                "which the table has now. It was set back, or snapshots were expired before they were read; begin anew "
                "with another checkpoint"
            )

    def _check_known(self, snapshot: int) -> None:
        if self._now().metadata.snapshot_by_id(snapshot) is None and (
            self._load().metadata.snapshot_by_id(snapshot) is None
        ):
            raise InputError(
                f"cannot read {self._source}: it has no snapshot {snapshot}, or no longer: old ones may have been expired. "
                "Its snapshots are in the table's history, or begin with all that it has now"
            )

    def _all_of(self, snapshot: int) -> list[FileScanTask]:
        self._check_known(snapshot)
        table = self._now()
        with self._session.asking("read"):
            current = table.metadata.snapshot_by_id(snapshot)
            assert current is not None
            order = {
                entry.data_file.file_path: entry.sequence_number or 0
                for manifest in current.manifests(table.io)
                for entry in manifest.fetch_manifest_entry(table.io)
            }
            files = list(table.scan(snapshot_id=snapshot).plan_files())
        return sorted(files, key=lambda each: (order.get(each.file.file_path, 0), each.file.file_path))

    def _added_by(self, snapshot: int) -> list[FileScanTask]:
        self._check_known(snapshot)
        table = self._now()
        current = table.metadata.snapshot_by_id(snapshot)
        assert current is not None
        operation = None if current.summary is None else current.summary.operation
        if operation == Operation.REPLACE:  # the same records, in other files
            return []
        if operation != Operation.APPEND:
            raise removal_error(self._source, f"snapshot {snapshot}, which is no append ({operation})")
        with self._session.asking("read"):
            scan = table.incremental_append_scan(
                from_snapshot_id_exclusive=current.parent_snapshot_id, to_snapshot_id_inclusive=snapshot
            )
            return sorted(scan.plan_files(), key=lambda each: each.file.file_path)
