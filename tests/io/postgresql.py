"""A PostgreSQL server of our own on loopback; tests of one that is not installed are skipped."""

import pytest

from headwater_bench.servers import NotHereError, postgresql


class Postgresql(postgresql.Postgresql):
    def __init__(self):
        try:
            super().__init__()
        except NotHereError as error:
            pytest.skip(str(error))
