"""Puts a closed loop of requests on the engine, from the host itself, and times every token."""

from __future__ import annotations

import asyncio
import functools
import gc
import hashlib
import os
import time
from collections.abc import Iterator
from typing import Any, Optional

from infra.agent import connection, folders, lease, processes, state
from infra.agent.clock import Lag, percentile
from infra.agent.jobs import Job
from infra.agent.load import Load, Request, Sample
from infra.agent.refusal import Refusal
from infra.agent.streams import STREAMS, Fault

PROGRESS_S = 0.25


class Driver:
    """Keeps exactly ``concurrency`` requests in flight while there are any left."""

    def __init__(self, folder: str, where: str, load: Load) -> None:
        self.folder = folder
        self.where = where
        self.load = load
        self.target = connection.Target.read(load.url, load.headers)
        self.pending: Iterator[Request] = iter(load.requests)
        self.completed = self.failed = self.tokens = 0
        self.active: set[Sample] = set()
        self.stopped: Optional[Fault] = None
        self.zero = 0.0
        self.delays: list[float] = []
        self.lag = Lag()
        self.digest = hashlib.sha256()
        self.size = 0
        self.engine = (state.read(folder) or {}).get("engine")
        self.ended: asyncio.Queue[Optional[Sample]] = asyncio.Queue()
        path = os.path.join(where, "samples.jsonl")
        self.samples = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    async def run(self) -> dict[str, Any]:
        """Drives the load to its end, or until a reason to stop."""
        cpu = time.process_time()
        gc.freeze()
        self.zero = time.monotonic()
        self.lag.start(asyncio.get_running_loop())
        count = min(self.load.concurrency, len(self.load.requests))
        buffer = connection.buffer()
        users = [asyncio.create_task(self._user(buffer)) for _ in range(count)]
        writer = asyncio.create_task(self._write_down())
        await self._attend(users, writer)
        self.lag.stop()
        self.ended.put_nowait(None)
        await writer
        seconds = time.monotonic() - self.zero
        os.close(self.samples)
        return self._result(seconds, time.process_time() - cpu)

    async def _attend(self, users: list[asyncio.Task[None]], writer: asyncio.Task[None]) -> None:
        """Shows progress and looks for reasons to stop while the users work."""
        loop = asyncio.get_running_loop()
        working = set(users)
        while working:
            ended, working = await asyncio.wait(
                working, timeout=PROGRESS_S, return_when=asyncio.FIRST_EXCEPTION
            )
            # In a thread: a slow disk must not show up as a slow engine.
            found = await loop.run_in_executor(None, self._look_around, self._progress())
            if working and self.stopped is None:
                self.stopped = found
            if self.stopped or writer.done() or any(user.exception() for user in ended):
                for user in working:
                    user.cancel()
                break
        outcomes = await asyncio.gather(*users, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if not writer.done():
            self._look_around(self._progress())

    def _progress(self) -> dict[str, Any]:
        going = sum(sample.tokens for sample in self.active)
        return {
            "done": self.completed + self.failed,
            "failed": self.failed,
            "in_flight": len(self.active),
            "tokens": self.tokens + going,
            "seconds": time.monotonic() - self.zero,
        }

    def _look_around(self, progress: dict[str, Any]) -> Optional[Fault]:
        """Shows the progress; returns a reason to stop."""
        path = os.path.join(self.where, "progress.json")
        folders.write_json(path, progress, durable=False)
        if progress["seconds"] > self.load.deadline_s:
            return Fault("deadline", f"not done after {self.load.deadline_s} s")
        if lease.expired(self.folder):
            return Fault("lease_expired", "nobody renewed the trial's lease")
        if self.engine is not None and not processes.alive(self.engine):
            return Fault("engine_gone", f"engine {self.engine['pid']} is gone")
        return None

    async def _user(self, buffer: memoryview) -> None:
        """One request after another; there is no pause in which a connection could get stale."""
        caller = connection.Caller(self.target, buffer, self.load.timeout_s)
        due = time.monotonic()
        try:
            for request in self.pending:
                sample = Sample(request, STREAMS[self.load.path](), due)
                self.active.add(sample)
                fault: Optional[Fault] = Fault("cancelled", "the drive was stopped")
                try:
                    sample.status, fault = await caller.call(
                        request.body, sample.stream.feed, functools.partial(self._sent, sample)
                    )
                except asyncio.CancelledError:
                    fault = self.stopped or fault
                    raise
                finally:
                    self.active.remove(sample)
                    due = time.monotonic()
                    self._count(sample, due, fault)
                if self.stopped:
                    return
        finally:
            caller.close()

    def _sent(self, sample: Sample) -> None:
        sample.sent = time.monotonic()
        self.delays.append(sample.sent - sample.due)

    def _count(self, sample: Sample, done: float, fault: Optional[Fault]) -> None:
        """Counts an ended request and leaves its record to the writer."""
        sample.end(done, fault)
        self.ended.put_nowait(sample)
        self.tokens += sample.tokens
        if sample.fault is None:
            self.completed += 1
            return
        self.failed += 1
        limit = self.load.abort_after_failures
        if self.stopped is None and limit is not None and self.failed >= limit:
            self.stopped = Fault("too_many_failures", f"{self.failed} requests failed")

    async def _write_down(self) -> None:
        """Writes ended samples one by one, letting the requests go first.

        Requests of one length end together; writing them all before the next ones are sent would
        hold up those by tens of milliseconds.
        """
        while True:
            sample = await self.ended.get()
            if sample is None:
                return
            data = folders.dumps(sample.line(self.zero)).encode() + b"\n"
            try:
                folders.write_all(self.samples, data)
            except OSError as problem:
                if problem.errno in folders.DISK_FULL:
                    raise Refusal("disk_full", "no space left for the samples") from problem
                raise
            self.digest.update(data)
            self.size += len(data)
            await asyncio.sleep(0)

    def _result(self, seconds: float, cpu_s: float) -> dict[str, Any]:
        stopped = self.stopped
        return {
            "ok": stopped is None,
            "error": stopped.kind if stopped else None,
            "message": stopped.message if stopped else None,
            "completed": self.completed,
            "failed": self.failed,
            "unsent": len(self.load.requests) - self.completed - self.failed,
            "seconds": seconds,
            "client": {
                **self.lag.summary(),
                "send_delay_p99_s": percentile(self.delays, 0.99),
                "cpu_s": cpu_s,
                "cpu_share": cpu_s / seconds if seconds else None,
            },
            "started_monotonic": self.zero,
            "samples_sha256": self.digest.hexdigest(),
            "samples_bytes": self.size,
        }


def drive(job: Job) -> dict[str, Any]:
    """Runs the load of a drive job; the samples lie in samples.jsonl beside its result."""
    return asyncio.run(_drive(job, Load.read(job.request)))


async def _drive(job: Job, load: Load) -> dict[str, Any]:
    # Made inside the loop: before Python 3.10 a queue belongs to the loop it was made in.
    return await Driver(job.folder, job.where, load).run()
