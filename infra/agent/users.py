"""A closed loop of users who share one poll: each sends its next request when the last has ended."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from typing import Optional

from infra.agent.connection import Connection, Ended, Target, buffer, no_way
from infra.agent.dialects import STREAMS
from infra.agent.load import Load, Request, Sample
from infra.agent.streams import Fault

_READ = select.EPOLLIN
_WRITE = select.EPOLLIN | select.EPOLLOUT


class User:
    """One place in the loop: a request under way, and the connection that the last one left."""

    def __init__(self) -> None:
        self.sample: Optional[Sample] = None
        self.connection: Optional[Connection] = None
        self.waits = False
        """Whether its connection has yet to come about."""
        self.until = 0.0
        """When its request has taken too long."""


class Users:
    """All of them, and one poll.

    asyncio would do as well, at a quarter more CPU for each token, and aiohttp at three quarters
    more (measured side by side at 8 and 64 streams): what is done between the poll and the parser
    is all that a load client does, thousands of times a second.
    """

    def __init__(self, load: Load, ended: Callable[[Sample, float, Optional[Fault]], None]) -> None:
        """Readies as many users as requests are to be in flight.

        Args:
            load: What is asked; ``bad_request`` if its URL or headers are not fit for a request.
            ended: Called with each request that has ended, the time, and the transport's fault.
        """
        self._load, self._ended = load, ended
        self._target = Target.read(load.url, load.headers)
        self._pending: Iterator[Request] = iter(load.requests)
        self._poll = select.epoll()
        self._buffer = buffer()
        self._by_file: dict[int, User] = {}
        self.users = [User() for _ in range(min(load.concurrency, len(load.requests)))]
        self.working = 0
        self.delays: list[float] = []

    def start(self) -> None:
        """Everybody sends a first request."""
        self.working = len(self.users)
        for user in self.users:
            self._next(user)

    def active(self) -> list[Sample]:
        """The requests under way."""
        return [user.sample for user in self.users if user.sample is not None]

    def attend(self, wait_s: float) -> bool:
        """Waits for the engine, so long at most, and takes what it says; whether it said anything."""
        events = self._poll.poll(wait_s)
        for file, mask in events:
            self._go_on(self._by_file[file], mask)
        return bool(events)

    def expire(self, now: float) -> None:
        """Ends the requests that have taken too long."""
        late = Fault("timeout", f"no end within {self._load.timeout_s} s")
        for user in self.users:
            if user.sample is not None and now > user.until:
                self._over(user, late)

    def finish(self) -> None:
        """Nobody sends a further request."""
        self._pending = iter(())

    def stop(self, why: Fault) -> None:
        """Cuts everything off; what was under way ends with this fault. Not within ``attend``."""
        self.finish()
        for user in self.users:
            if user.sample is not None:
                self._over(user, why)

    def close(self) -> None:
        """Closes all connections and the poll."""
        for user in self.users:
            self._drop(user)
        self._poll.close()

    def _next(self, user: User) -> None:
        """The next request of a user whose last one has just ended; the due time is now."""
        while True:
            request = next(self._pending, None)
            if request is None:
                break
            due = time.monotonic()
            user.sample = Sample(request, STREAMS[self._load.path](), due)
            user.until = due + self._load.timeout_s
            fault = self._begin(user)
            if fault is None:
                return
            self._note(user, fault)
        self._drop(user)
        self.working -= 1

    def _begin(self, user: User) -> Optional[Fault]:
        """Sends the request over the connection that is there, or begins to connect."""
        if user.connection is not None and user.connection.usable:
            return self._send(user, user.connection)
        self._drop(user)
        try:
            user.connection = Connection(self._target, self._buffer)
        except OSError as fault:
            return no_way(fault)
        user.waits = True
        self._by_file[user.connection.fileno()] = user
        self._poll.register(user.connection.fileno(), _WRITE)
        return None

    def _send(self, user: User, connection: Connection) -> Optional[Fault]:
        sample = user.sample
        assert sample is not None
        sample.sent = time.monotonic()
        self.delays.append(sample.sent - sample.due)
        try:
            if not connection.send(sample.request.body, sample.stream.feed):
                self._poll.modify(connection.fileno(), _WRITE)
        except OSError as fault:
            return Fault("disconnected", f"{type(fault).__name__}: {fault}")
        return None

    def _go_on(self, user: User, mask: int) -> None:
        connection = user.connection
        assert connection is not None
        if user.waits or mask & select.EPOLLOUT:
            fault = self._write(user, connection)
            if fault is not None:
                self._over(user, fault)
                return
        if mask & ~select.EPOLLOUT:
            end: Optional[Ended] = connection.read()
            if end is not None:
                self._over(user, end.fault)

    def _write(self, user: User, connection: Connection) -> Optional[Fault]:
        """The connection has come about, or there is room for the rest of a long request."""
        if user.waits:
            try:
                connection.established()
            except OSError as fault:
                return no_way(fault)
            user.waits = False
            self._poll.modify(connection.fileno(), _READ)
            return self._send(user, connection)
        try:
            if connection.push():
                self._poll.modify(connection.fileno(), _READ)
        except OSError as fault:
            return Fault("disconnected", f"{type(fault).__name__}: {fault}")
        return None

    def _over(self, user: User, fault: Optional[Fault]) -> None:
        self._note(user, fault)
        self._next(user)

    def _note(self, user: User, fault: Optional[Fault]) -> None:
        sample = user.sample
        assert sample is not None
        sample.status = user.connection.status if user.connection is not None else None
        if fault is not None and fault.kind != "http_error":
            self._drop(user)
        user.sample = None
        self._ended(sample, time.monotonic(), fault)

    def _drop(self, user: User) -> None:
        """Forgets a user's connection; closing takes it out of the poll."""
        if user.connection is not None:
            file = user.connection.fileno()
            if file >= 0:
                user.connection.close()
            user.connection = None
        user.waits = False
