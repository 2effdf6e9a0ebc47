"""One call of a model: its limit in time, its place among others, and its attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from a3s_actors.agent.errors import ModelError, ModelUnavailable
from a3s_backends.openai_http.decoding import told_code
from a3s_backends.openai_http.failures import Failure, OpenAiHttpClosed, failure_of_status
from a3s_backends.openai_http.policy import OpenAiHttpPolicy
from a3s_backends.openai_http.retrying import retry_after_seconds, wait_before_retry

if TYPE_CHECKING:
    from a3s_backends.openai_http.connections import Connections, Exchange

__all__ = ["Call", "Calls", "Seams"]

T = TypeVar("T")

_TELLING: Final = {400, 413, 422, 429}  # whose bodies may hold a code that says more
_MOST_OF_A_REFUSAL: Final = 64 << 10


@attrs.frozen(kw_only=True)
class Seams:
    """What retries depend on besides the server.

    Attributes:
        sleep: waits so many seconds.
        chance: a number from 0 to 1.
        now: the time of day, in seconds since 1970.
    """

    sleep: Callable[[float], Awaitable[object]]
    chance: Callable[[], float]
    now: Callable[[], float]


class Calls:
    """All calls of one client."""

    def __init__(self, connections: Connections, policy: OpenAiHttpPolicy, seams: Seams) -> None:
        self.connections = connections
        self.policy = policy
        self.seams = seams
        self.places = trio.Semaphore(policy.max_concurrent_requests)
        self.scopes: set[trio.CancelScope] = set()

    def begin(self) -> Call:
        """Begin a call: its time runs from now."""
        return Call(self)

    async def aclose(self) -> None:
        """End all calls with `OpenAiHttpClosed`, and close all connections. Never waits."""
        self.connections.closed = True
        for scope in tuple(self.scopes):
            scope.cancel()
        await self.connections.aclose()


class Call:
    """One call. Made by `Calls.begin`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._deadline = trio.current_time() + calls.policy.total
        self._attempts = 0

    async def bounded(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do a piece of the call's work within its time.

        Raises:
            ModelUnavailable: time is up.
            OpenAiHttpClosed: the client is closed, or was meanwhile.
            ModelError: what the work raises.
        """
        if not self._calls.connections.closed:
            with trio.CancelScope(deadline=self._deadline) as scope:
                self._calls.scopes.add(scope)
                try:
                    return await work()
                finally:
                    self._calls.scopes.discard(scope)
        if self._calls.connections.closed:
            raise OpenAiHttpClosed("client")
        raise ModelUnavailable("timeout", None, None, self._attempts)

    async def take_place(self) -> None:
        """Wait until there are few enough requests. Cancellation: cancelled, no place was taken."""
        await self._calls.places.acquire()

    def leave_place(self) -> None:
        """Let the next one in."""
        self._calls.places.release()

    async def open(self, body: bytes, accept: str) -> Exchange:
        """Send a request until it is answered with success, refused, or out of attempts. Close the exchange.

        Raises:
            ModelRefused: the server refuses.
            ModelUnavailable: no attempt was answered.
        """
        policy, seams = self._calls.policy, self._calls.seams
        while True:
            self._attempts += 1
            answer = await self._calls.connections.post(body, accept)
            if isinstance(answer, Failure):
                failure = answer
            elif (judged := await self._judge(answer)) is None:
                return answer
            else:
                failure = judged
            wait = wait_before_retry(policy, failure, self._attempts, seams.chance())
            # A wait that cannot end in time is not begun: the server's reason says more than "timeout".
            if wait is None or trio.current_time() + wait >= self._deadline:
                raise failure.error(self._attempts)
            await seams.sleep(wait)

    async def _judge(self, exchange: Exchange) -> Failure | None:
        """Return why an answer is none, and close it; None for success."""
        asked = retry_after_seconds(exchange.header("retry-after"), self._calls.seams.now())
        if failure_of_status(exchange.status, asked, None) is None:
            return None
        told = None
        try:
            if exchange.status in _TELLING:
                told = told_code(await exchange.read_all(_MOST_OF_A_REFUSAL))
        except ModelError:
            pass  # the status says enough
        finally:
            await exchange.aclose()
        return failure_of_status(exchange.status, asked, told)
