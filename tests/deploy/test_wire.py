"""Messages between a site and the coordinator, over a connection of this machine."""

import asyncio

from headwater.deploy.control.messages import Fetched, Ping, Unfit
from headwater.deploy.control.wire import Wire

LONG = Fetched("tanks-1", {"000000001.checkpoint": bytes(range(256)) * 2**17})  # 32 MB


def talk(told):
    """Join two wires, and do something with both."""

    async def joined():
        met = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda *at: met.set_result(Wire(*at)), "127.0.0.1", 0)
        async with server:
            near = Wire(*await asyncio.open_connection(*server.sockets[0].getsockname()))
            far = await met
            try:
                return await told(near, far)
            finally:
                await near.close()
                await far.close()

    return asyncio.run(joined())


def test_a_long_message_goes_by_pieces_and_others_come_behind_it_in_order():
    async def told(near, far):
        most = 0

        async def look():
            nonlocal most
            while True:
                most = max(most, near._writer.transport.get_write_buffer_size())
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        said = [Ping(), LONG, Unfit("tanks-1", "x" * 100_000), Ping()]
        for message in said:
            near.say(message)
        heard = [await far.hear() for _ in said]
        looking.cancel()
        return said == heard, most

    as_said, most = talk(told)
    assert as_said
    assert most < 2**20  # all at once, encrypted, would take so long that each end thinks that the other is gone


def test_who_hangs_up_has_said_all():
    async def told(near, far):
        near.say(Unfit("tanks-1", "y" * 200_000))
        _, heard = await asyncio.gather(near.close(), far.hear())
        return heard

    assert talk(told) == Unfit("tanks-1", "y" * 200_000)


def test_a_long_message_to_who_has_gone_is_lost_and_nobody_waits():
    async def told(near, far):
        near.say(LONG)
        far.cut()
        assert await near.hear() is None
        near.say(Ping())
        await near.close()

    talk(told)
