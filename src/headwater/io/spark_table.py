"""Files at any URL that Spark's file systems know; read and written on Spark alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, NoReturn, get_args

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.endpoints import DeliverySemantics, Resume
from headwater.flow.identity import Identity
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.delta import FOLDER
from headwater.io.urls import path_in, without_password

Form = Literal["parquet", "orc", "csv", "json", "text", "delta"]

FORMS: tuple[Form, ...] = get_args(Form)
_ENDINGS: dict[str, Form] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".txt": "text",
}
#: forms that people ask for, and why there is none
_REFUSED = {
    "iceberg": "no release of Iceberg's runtime works with Spark 4.3: the newest, 1.12.0, is for Spark 4.1 and breaks on "
    "4.3 with IncompatibleClassChangeError (interfaces of Spark's catalogs have become classes). "
    "Use io.Iceberg, which needs none, or form='delta' or 'parquet'; on a platform that has Iceberg for its Spark, "
    "DataFrames: spark.start(flow, inputs=df)"
}


class SparkTable:
    """The files of a folder, or one file, at a URL such as `s3a://lake/levels`, or a path.

    `form` is `parquet`, `orc`, `csv`, `json` (a JSON object to a line), `text` (one text column) or `delta`; unless said, it
    follows from the ending of the address; where that says nothing, it is `delta` if a folder has Delta's log, or `parquet`.
    What is read has the columns of `schema`; with `follow`, reading goes on with files that are added later. `options` are
    those of Spark's reader and writer. What is written is there once: a micro-batch is one file, or one commit. Parquet and
    JSON without options at a path are written in parallel, and the files of a micro-batch appear together.
    """

    resume: Resume = "position"  # kept by Spark's own checkpoint
    delivery: DeliverySemantics = "transactional"  # by Spark's own writers

    def __init__(
        self,
        address: str,
        schema: Fields | None = None,
        *,
        form: Form | None = None,
        follow: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.address = address.rstrip("/")
        if form in _REFUSED:
            raise FlowError(f"{without_password(self.address)} cannot be read or written: {_REFUSED[form]}")
        if form is not None and form not in FORMS:
            raise FlowError(f"there is no form {form!r}; forms are {listed(FORMS)}{suggestion(form, FORMS)}")
        self.form: Form = form or _ENDINGS.get(PurePosixPath(self.address).suffix) or _form_at(self.address)
        self.follow = follow
        self.options = dict(options or {})
        self._schema = None if schema is None else Schema.of(schema)

    @property
    def schema(self) -> Schema:
        """The columns of the records that are read."""
        if self._schema is None:
            raise FlowError(f"reading {self} takes a schema, such as schema={{'id': str, 'x': float}}")
        return self._schema

    @property
    def url(self) -> str:
        """Where it is, as Spark takes it: a path is one of this machine, whatever file system a cluster has as its own."""
        path = path_in(self.address)
        return self.address if path is None else f"file://{path.absolute()}"

    @property
    def identity(self) -> Identity:
        """Where it is, and its form."""
        return {"address": without_password(self.address), "form": self.form}

    def ranges(self, request: RangeRequest) -> Ranges | None:
        """Read a Delta table of this machine by its files; all else is read by connectors of Spark's."""
        path = path_in(self.address)
        if self.form != "delta" or path is None:
            return None
        from headwater.io.delta.ranges import DeltaRanges

        return DeltaRanges(path, self.schema, request, follow=self.follow)

    def open(self, reject_or_schema: Any) -> NoReturn:
        """Refuse: only Spark has these file systems and connectors."""
        raise FlowError(f"{self} can be read and written on Spark only: run the flow with --on spark")

    def __str__(self) -> str:
        return f"{self.form} {without_password(self.address)}"


def _form_at(address: str) -> Form:
    path = path_in(address)
    return "delta" if path is not None and (path / FOLDER).is_dir() else "parquet"
