"""One ask of an actor, beside a bare pair of trio memory channels."""

from __future__ import annotations

import time
from collections.abc import Iterator

import trio

from a3s_actors.actor import Mailbox, open_actor
from evals.report import Row, median

_ASKS = 2000


async def _channels() -> float:
    requests_in, requests_out = trio.open_memory_channel[tuple[int, "trio.MemorySendChannel[int]"]](64)

    async def serve() -> None:
        async for number, reply in requests_out:
            reply.send_nowait(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        start = time.perf_counter()
        for number in range(_ASKS):
            reply_in, reply_out = trio.open_memory_channel[int](1)
            await requests_in.send((number, reply_in))
            await reply_out.receive()
        elapsed = time.perf_counter() - start
        requests_in.close()
    return elapsed / _ASKS


async def _mailbox() -> float:
    mailbox: Mailbox[int, int] = Mailbox("bench")

    async def serve() -> None:
        while True:
            for request in await mailbox.receive(64):
                request.succeed(request.message)

    async with open_actor("bench", serve, mailbox=mailbox):
        start = time.perf_counter()
        for number in range(_ASKS):
            await mailbox.ask(number)
        return (time.perf_counter() - start) / _ASKS


def run(scale: float) -> Iterator[Row]:
    """Measure both by turns, so that noise of the machine falls on both."""
    rounds = max(5, int(25 * scale))
    bare, asked = [], []
    for _ in range(rounds):
        bare.append(trio.run(_channels))
        asked.append(trio.run(_mailbox))
    ratio = median(asked) / median(bare)
    yield Row(
        name="actor ask round trip",
        value=ratio,
        unit="x bare channels",
        target=3.0,
        baseline=f"channels {median(bare) * 1e6:.1f} us",
        note=f"ask {median(asked) * 1e6:.1f} us; {rounds} rounds of {_ASKS}",
    )
