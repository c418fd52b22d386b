"""Sources whose sender waits for an acknowledgement, read by way of a log on disk: it has one as soon as the log is safe.

`receiver` is the thread that reads a source into its log, `rounds` is what an entry holds, `reader` is how a flow with
checkpoints reads the log. Spark reads it by `headwater.spark.sources.logged`.
"""

from headwater.io.receiving.reader import ReceivedReader
from headwater.io.receiving.receiver import Receiver

__all__ = ["ReceivedReader", "Receiver"]
