"""A relay that delays bytes in both directions, to make loopback feel like a distant host."""

from __future__ import annotations

import asyncio

_CHUNK = 65_536


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass bytes on, each ``delay_s`` after it came; the rate is not limited."""
    loop = asyncio.get_running_loop()
    parcels: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await parcels.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                sink.close()
                return
            sink.write(data)

    delivering = asyncio.create_task(deliver())
    try:
        while data := await source.read(_CHUNK):
            parcels.put_nowait((loop.time() + delay_s, data))
    except OSError:
        pass  # a connection that was torn down ends like one that was closed
    parcels.put_nowait((loop.time() + delay_s, b""))
    await delivering


async def relay(host: str, port: int, inner_port: int, delay_s: float) -> asyncio.Server:
    """Listen on ``port`` and pass every connection to ``inner_port`` with a one-way delay."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(host, inner_port)
        await asyncio.gather(
            _carry(reader, inner_writer, delay_s), _carry(inner_reader, writer, delay_s)
        )

    return await asyncio.start_server(connected, host, port)
