"""The process of the dashboard: reads where the API is from standard input, and ends when that ends."""

from __future__ import annotations

import sys

import msgspec

from headwater.errors import HeadwaterError
from headwater.web.settings import Settings


def main() -> None:
    """Serve the pages until standard input ends."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    try:
        from headwater.web.server import serve

        serve(settings, sys.stdin.buffer, sys.stdout.buffer)
    except HeadwaterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
