"""Store and forward: records wait in a log on disk until a sink behind a network has them.

`endpoint` describes it, `writer` appends, `sender` drains, `order` says which entries are next.
"""

from headwater.io.forwarding.endpoint import Forward, forward

__all__ = ["Forward", "forward"]
