"""How the nodes of one pretend engine meet, keep step, and notice that another one is gone.

As torch does it: the first rank of node 0 listens on ``--dist-init-addr`` for the other nodes and
gives up after ``--dist-timeout`` (600 s); the others try to connect for as long. Afterwards a
closed connection ends whoever is left, in the words of gloo (sgl-project/sglang#3685), over which
SGLang hands every request to all ranks. One connection stands for those of all ranks of a node.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from infra.rehearsal.failures import Failure

_TIMEOUT_S = 600.0
_AGAIN_S = 0.05
_STEP = b"."


def nodes(args: dict[str, Any]) -> int:
    """How many nodes the engine runs on."""
    return int(args.get("nnodes") or 1)


def local_ranks(args: dict[str, Any]) -> range:
    """The ranks that run on this node."""
    each = args["tp_size"] // nodes(args)
    first = each * int(args.get("node_rank") or 0)
    return range(first, first + each)


class Meeting:
    """This node's connections to the others, in the process of its first rank.

    Args:
        args: effective server settings.

    Raises:
        Failure: nobody came, or there was nobody to come to, in torch's words.
    """

    def __init__(self, args: dict[str, Any]) -> None:
        self._leads = args["node_rank"] == 0
        self._others = nodes(args) - 1
        self._until = time.monotonic() + (args.get("dist_timeout") or _TIMEOUT_S)
        host, _, port = str(args["dist_init_addr"]).rpartition(":")
        self._at = (host.strip("[]"), int(port))
        self.connections = self._gather() if self._leads else [self._join()]
        self._poll = select.poll()
        for connection in self.connections:
            # Its end alone: a node that is ahead has sent its next step already.
            self._poll.register(connection, select.POLLRDHUP)

    def _gather(self) -> list[socket.socket]:
        came: list[socket.socket] = []
        with socket.create_server(("", self._at[1])) as door:
            while len(came) < self._others:
                door.settimeout(max(0.01, self._until - time.monotonic()))
                try:
                    came.append(door.accept()[0])
                except TimeoutError:
                    raise Failure(
                        "distributed_init",
                        f"torch.distributed.DistStoreError: Timed out after {_TIMEOUT_S:.0f} "
                        f"seconds waiting for clients. {len(came) + 1}/{self._others + 1} clients "
                        "joined.",
                    ) from None
        return came

    def _join(self) -> socket.socket:
        while True:
            try:
                return socket.create_connection(self._at, timeout=1)
            except OSError:
                if time.monotonic() > self._until:
                    raise Failure(
                        "distributed_init",
                        "torch.distributed.DistNetworkError: The client socket has timed out "
                        f"after {_TIMEOUT_S * 1000:.0f}ms while trying to connect to "
                        f"({self._at[0]}, {self._at[1]}).",
                    ) from None
            time.sleep(_AGAIN_S)

    def step(self) -> None:
        """Waits until every node has come as far, as in any collective.

        Raises:
            Failure: another node is gone.
        """
        for connection in self.connections:
            connection.settimeout(None)
            if self._leads:
                self._hear(connection)
        for connection in self.connections:
            try:
                connection.sendall(_STEP)
            except OSError:
                raise self._gone(connection) from None
            if not self._leads:
                self._hear(connection)

    def wait(self, readable: int) -> None:
        """Waits until something can be read there.

        Raises:
            Failure: another node is gone meanwhile.
        """
        self._poll.register(readable, select.POLLIN)
        ready = [number for number, _ in self._poll.poll()]
        self._poll.unregister(readable)
        gone = self._among(ready)
        if gone is not None:
            raise gone

    def gone(self) -> Failure | None:
        """What is said of another node that closed its connection, if one did."""
        return self._among([number for number, _ in self._poll.poll(0)])

    def _among(self, ready: list[int]) -> Failure | None:
        closed = [one for one in self.connections if one.fileno() in ready]
        return self._gone(closed[0]) if closed else None

    def _hear(self, connection: socket.socket) -> None:
        try:
            heard = connection.recv(1)
        except OSError:
            heard = b""
        if not heard:
            raise self._gone(connection)

    def _gone(self, connection: socket.socket) -> Failure:
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            host, port = self._at
        return Failure(
            "recv_requests",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
            f"by peer [{host}]:{port}",
        )
