"""The one durable log: entries in files, appended by one process, read by any, safe after `sync`, bounded.

Read in this order: `entry` (an entry as bytes), `segment` (the files), `tail` (where it grows), `recovery` (after a crash),
`reader`, `consumer` (who is waited for), `bounds` and `sealed_segments` (what is dropped), `folder`, `log`.
All of it works on a `disk`, which tests replace by one that crashes.
"""

from headwater.io.log.bounds import Bounds
from headwater.io.log.consumer import Consumer
from headwater.io.log.disk import Disk, SystemDisk
from headwater.io.log.entry import Entry
from headwater.io.log.log import Log
from headwater.io.log.reader import Reader, Trouble, records_in

__all__ = ["Bounds", "Consumer", "Disk", "Entry", "Log", "Reader", "SystemDisk", "Trouble", "records_in"]
