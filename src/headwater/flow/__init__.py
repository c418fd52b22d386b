"""What to compute, as plain data: flows, streams, expressions, schemas, windows, profiles. Nothing here runs.

`flow`, `stream` and `keyed_stream` are the builder, `steps` what it builds, `expr` the expressions, `windows` and
`aggregates` the window language, `state` the form of vectorised keyed steps, `endpoints` what a source and a sink are
and may declare, `ranges` how a source is read in parts, `identity` what tells one from another, `places` what they may
not share, `guarantees` what follows for a flow, `trouble` what is done about records that break a step, `profile` what
steps cost, `contract` the rate that is promised, `draw` the pictures.
"""

from headwater.data.batch import Batch
from headwater.data.column import Nullable, Text
from headwater.data.schema import Schema
from headwater.flow.contract import Contract
from headwater.flow.expr import Expr, coalesce, col, greatest, least, when
from headwater.flow.flow import Flow
from headwater.flow.keyed_stream import KeyedStream
from headwater.flow.profile import Profile, StepProfile
from headwater.flow.state import Cell, Scan
from headwater.flow.stream import Stream
from headwater.flow.trouble import retry
from headwater.flow.windows import Count, Session, Sliding, Tumbling

__all__ = [
    "Batch",
    "Cell",
    "Contract",
    "Count",
    "Expr",
    "Flow",
    "KeyedStream",
    "Nullable",
    "Profile",
    "Scan",
    "Schema",
    "Session",
    "Sliding",
    "StepProfile",
    "Stream",
    "Text",
    "Tumbling",
    "coalesce",
    "col",
    "greatest",
    "least",
    "retry",
    "when",
]
