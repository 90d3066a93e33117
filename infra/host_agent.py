"""The product's side of the agent: puts it on the host, asks it, and survives a lost connection.

Every request is safe to ask twice (the agent answers a second launch or start with the first
one's state), so a lost answer is asked for again within the given patience; until then what runs
on the host is unknown, never dead.
"""

from __future__ import annotations

import base64
import json
import posixpath
import time
from typing import TYPE_CHECKING, Any, TypeVar

from infra.agent_answers import Hello, Poll, read_answer, says_full, text_of
from infra.agent_file import agent_file
from infra.agent_place import is_there
from infra.errors import AgentBroken, AgentRefusal, ContactLost, FileRefused, HostRebooted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from configs.host import Host
    from infra.shell import Shell

__all__ = ["Hello", "HostAgent", "Poll"]

T = TypeVar("T")

_CALL_S = 20.0
_FOLDER_S = 60.0  # samples of a hundred files on a slow network disk
_LEAST_WAIT_S = 5.0  # a poll takes two at most, on a busy host some more
_INLINE = 32_000  # an argument may hold 128 KiB (MAX_ARG_STRLEN)


class HostAgent:
    """The agent on one host, through one shell."""

    def __init__(
        self,
        shell: Shell,
        host: Host,
        *,
        patience_s: float = 120.0,
        note: Callable[[str], None] | None = None,
        lost: Callable[[str], None] | None = None,
    ) -> None:
        self.shell = shell
        self.host = host
        self.round_trips = 0
        self._patience_s = patience_s
        self._note = note or (lambda _text: None)
        self._lost = lost or (lambda _text: None)
        self._file = agent_file()
        self._hello: Hello | None = None
        self._boot: str | None = None

    @property
    def hello(self) -> Hello:
        """Who answers; installs the agent on first use."""
        return self._patiently(self._installed)

    @property
    def root(self) -> str:
        """Our folder on the host."""
        return self.path(self.host.folder)

    def path(self, text: str) -> str:
        """A path of a host file or sweep as the host knows it: ~ and relative mean home."""
        home = self.hello.home
        if text == "~":
            return home
        return posixpath.join(home, text.removeprefix("~/"))

    def from_cwd(self, text: str) -> str:
        """A path as the engine finds it: relative ones start in the host file's cwd."""
        return (
            self.path(text) if text[:1] == "~" else posixpath.join(self.path(self.host.cwd), text)
        )

    def call(self, command: str, /, *, answer_s: float = _CALL_S, **request: Any) -> dict[str, Any]:
        """Asks the agent.

        Raises:
            AgentRefusal: A foreseen refusal, with its class.
            HostRebooted: The host runs another boot than at the start.
            ContactLost: No answer within the patience.
        """
        answer = self._patiently(lambda: self._ask_installed(command, request, answer_s))
        self._same_boot(answer.get("boot_id"))
        return answer

    def wait(
        self,
        folder: str,
        offset: int | None,
        *,
        holder: str | None = None,
        job: str | None = None,
        seen: str | None = None,
        timeout_s: float = 1.5,
        quiet_s: float = 0.0,
        start: Mapping[str, Any] | None = None,
    ) -> Poll:
        """Blocks on the host until something changes, two seconds at most; renews the lease.

        Args:
            folder: The attempt's folder on the host.
            offset: Where the log was read up to; None: the log is not wanted.
            holder: Who claims the host; renews that claim too.
            job: A job whose progress and result are wanted.
            seen: Token of the last poll, so that only what changed since counts as a change.
            timeout_s: The longest wait.
            quiet_s: So long the growth of log and progress wakes nobody: every poll is work on
                the host that is being measured.
            start: A job that is begun first, from :meth:`prepare`; it is the one that is wanted.
        """
        claim = {"root": self.root, "holder": holder, "lease_s": self.host.lease_s}
        answer = self.call(
            "wait",
            answer_s=self._wait_s,
            dir=folder,
            offset=offset,
            timeout_s=timeout_s,
            quiet_s=quiet_s,
            lease_s=self.host.lease_s,
            claim=claim if holder else None,
            job=job,
            seen=seen,
            start=start,
        )
        return Poll.of(answer, offset)

    @property
    def _wait_s(self) -> float:
        """When a poll counts as lost: early enough for two more before the lease ends."""
        return min(_CALL_S, max(_LEAST_WAIT_S, self.host.lease_s / 3))

    def hurry(self, patience_s: float) -> None:
        """From now on contact that is lost is given up after so many seconds."""
        self._patience_s = min(self._patience_s, patience_s)

    def put(self, data: bytes, path: str) -> None:
        """Writes a file on the host, 0600.

        Raises:
            AgentRefusal: ``disk_full``.
        """
        self.round_trips += 1
        try:
            self._patiently(lambda: self.shell.put(data, path))
        except FileRefused as error:
            if says_full(str(error)):
                raise AgentRefusal("disk_full", str(error), {}) from error
            raise

    def get(self, path: str) -> bytes:
        """Reads a file of the host."""
        self.round_trips += 1
        return self._patiently(lambda: self.shell.get(path))

    def head(self, path: str, count: int, offset: int = 0) -> tuple[bytes, int] | None:
        """The first bytes of a file (from an offset) and its size; None where there is none."""
        answer = self.call("file", op="head", path=path, bytes=count, offset=offset)
        if not answer["exists"]:
            return None
        return base64.b64decode(answer["data"]), answer["size"]

    def folder(self, path: str) -> tuple[dict[str, int], str | None] | None:
        """A model folder's files with their sizes, and its identity; None where there is none."""
        answer = self.call("file", op="folder", path=path, answer_s=_FOLDER_S)
        return (answer["files"], answer["content"]) if answer["exists"] else None

    def make_folder(self, path: str) -> None:
        """Makes a folder of ours, and the one above it, 0700 (-m is for the last one alone)."""
        self.round_trips += 1
        argv = ["mkdir", "-p", "-m", "0700", posixpath.dirname(path), path]
        self._patiently(lambda: text_of(self.shell.run(argv, timeout_s=_CALL_S)))

    def job(
        self,
        folder: str,
        name: str,
        job: str,
        request: Mapping[str, Any],
        *,
        python: str | None = None,
        timeout_s: float,
        holder: str | None = None,
    ) -> dict[str, Any]:
        """Runs one piece of work detached on the host and waits for its result.

        Raises:
            AgentBroken: The job died without a result, or did not end in time.
        """
        start: dict[str, Any] | None = self.prepare(folder, name, job, request, python=python)
        deadline = time.monotonic() + timeout_s
        seen: str | None = None
        while time.monotonic() < deadline:
            # No offset: this loop wants the job alone, not the engine's log.
            poll = self.wait(folder, None, holder=holder, job=name, seen=seen, start=start)
            seen, start = poll.seen, None
            if poll.job is not None and poll.job["result"] is not None:
                return dict(poll.job["result"])
            if poll.job is not None and not poll.job["alive"]:
                raise AgentBroken(f"job {name} died: {poll.job['log_tail'][-300:]}")
        raise AgentBroken(f"job {name} did not end within {timeout_s:g} s")

    def prepare(
        self,
        folder: str,
        name: str,
        job: str,
        request: Mapping[str, Any],
        *,
        python: str | None = None,
    ) -> dict[str, Any]:
        """What begins a job with the first :meth:`wait` for it; a long request is laid there now.

        A job of a name that was begun before is left as it is.
        """
        start: dict[str, Any] = {"name": name, "job": job, "python": python}
        if len(json.dumps(request)) < _INLINE:
            return {**start, "request": request}
        self.make_folder(posixpath.join(folder, "jobs", name))
        self.put_json(request, posixpath.join(folder, "jobs", name, "request.json"))
        return start

    def put_json(self, value: Mapping[str, Any], path: str) -> None:
        """Writes a JSON file on the host, 0600."""
        self.put(json.dumps(value).encode(), path)

    def close(self) -> None:
        """Lets go of the connection; what runs on the host goes on."""
        self.shell.close()

    def _installed(self) -> Hello:
        if self._hello is None:
            self._hello = self._install()
            self._same_boot(self._hello.boot_id)
        return self._hello

    def _same_boot(self, boot: str | None) -> None:
        """Notices a reboot, once; afterwards the host is one like any other.

        Raises:
            HostRebooted: Another boot than at the last answer.
        """
        known, self._boot = self._boot, boot or self._boot
        if boot is not None and known is not None and boot != known:
            self._hello = None  # its disk may be a new one too
            self._lost(text := f"{self.host.name} was rebooted: what ran there is gone")
            raise HostRebooted(text)

    def _ask_installed(
        self, command: str, request: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        self._installed()
        try:
            return self._ask(command, request, timeout_s)
        except AgentBroken:
            self._hello = None  # the next use looks whether the program is still there
            raise

    def _install(self) -> Hello:
        run = self.shell.run
        home = text_of(run(["sh", "-c", 'printf %s "$HOME"'], timeout_s=_CALL_S))
        root = posixpath.join(home, self.host.folder.removeprefix("~/"))
        folder = posixpath.join(root, "agent")
        path = posixpath.join(folder, self._file.name)
        if not is_there(self.shell, path, below=root):
            text_of(run(["mkdir", "-p", "-m", "0700", root, folder], timeout_s=_CALL_S))
            self.shell.put(self._file.data, path)
        # Isolated and without site-packages: the agent needs neither, and starts in 8 ms, not 40.
        self._argv = [self.host.agent_python, "-I", "-S", path, "serve"]
        answer = self._ask("hello", {"root": root}, _CALL_S)
        return Hello(*(answer[field] for field in Hello._fields))

    def _ask(self, command: str, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        self.round_trips += 1
        line = json.dumps([command, request])
        output = self.shell.ask(self._argv, line, timeout_s=timeout_s)
        return read_answer(command, output)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Tries again while contact is lost, with growing pauses."""
        deadline = time.monotonic() + self._patience_s
        pause = 0.2
        while True:
            try:
                return attempt()
            except ContactLost as error:
                if time.monotonic() + pause > deadline:
                    self._lost(str(error))
                    raise
                self._note(f"{error}; trying again in {pause:.1f} s")
            time.sleep(pause)
            pause = min(pause * 2, 5.0)
