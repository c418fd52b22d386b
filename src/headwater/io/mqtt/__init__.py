"""MQTT: a client of our own, made for batches.

`endpoint` describes, `reader` and `writer` are what it opens. A message's way in: `transport` (the socket, and its bytes cut
into packets by the kernels of `scan`) → `inbox` (what waits, and what is to be acknowledged) → `reader`. Its way out:
`writer` → `outbox` (packets made by the kernels of `frame`, until the broker has them) → `sender`. The thread of
`connection` keeps both going, and `client` is what it hands to them and asks of them.
"""

from headwater.io.mqtt.endpoint import Mqtt, text_column
from headwater.io.mqtt.packets import Will

__all__ = ["Mqtt", "Will", "text_column"]
