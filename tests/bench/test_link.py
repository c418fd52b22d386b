"""A way to a server that experiments cut: who is on it, or just comes, is gone then."""

import asyncio
import socket
import threading
from contextlib import suppress

from headwater_bench.servers.link import Link
from waiting import PATIENCE_S, wait_until


def test_who_dials_while_it_is_cut_is_not_waited_for(monkeypatch):
    dialled, goes_on, dial = threading.Event(), threading.Event(), asyncio.open_connection

    async def slow(*to):
        dialled.set()
        await asyncio.to_thread(goes_on.wait)
        return await dial(*to)

    monkeypatch.setattr(asyncio, "open_connection", slow)
    with socket.create_server(("127.0.0.1", 0)) as there:
        link = Link(there.getsockname()[1])
        with socket.create_connection(("127.0.0.1", link.port)) as caller:
            dialled.wait()
            cutting = threading.Thread(target=link.cut, daemon=True)
            cutting.start()
            wait_until(lambda: link._server is None, "the cut")
            goes_on.set()
            cutting.join(PATIENCE_S)
            assert not cutting.is_alive()
            with suppress(ConnectionResetError):
                assert caller.recv(1) == b""
        link.close()
