"""HTTP: `webhook` describes a server that takes records, `endpoint` a URL that they are posted to.

A request comes in through `server`, its `body` becomes columns, and it waits in the `inbox` until the flow's `reader` has it
safe. Going out, `form` makes bodies of records and `poster` knows what answers mean; the engine opens `writer` and `uplink`.
"""

from headwater.io.http.endpoint import Http
from headwater.io.http.webhook import Webhook

__all__ = ["Http", "Webhook"]
