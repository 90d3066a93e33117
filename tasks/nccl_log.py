"""What NCCL says of itself with NCCL_DEBUG=INFO: variables that it took, links, channels, choices.

Wordings: NCCL 2.28.9 as recorded (tests/fixtures/nccl); the lines of the subsystem TUNING from its
sources (enqueue.cc, since 2.24). A file may be of one process or of all, with other lines between.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE: Final = re.compile(
    r"[^\s:]{1,255}:\d{1,10}:\d{1,10} \[-?\d{1,4}\] (?:\S{1,80}:\d{1,6} )?NCCL (INFO|WARN) (.{1,4000})"
)
_VERSION: Final = re.compile(r"NCCL version (\d[\w.+-]{0,30})")
# "NCCL_PROTO set by environment to LL", "NCCL_CUMEM_ENABLE set by environment to 0.", and the
# network's own variables: "NCCL_IB_HCA set to mlx5_0".
_TAKEN: Final = re.compile(r"(NCCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (.{0,400}?)\.?\Z")
_IGNORED: Final = re.compile(
    r".{0,80}(NCCL_[A-Z0-9_]{1,60}).{0,80}\b(?:ignor|invalid|unknown)", re.IGNORECASE
)
_RANKS: Final = re.compile(r"comm 0x[0-9a-f]{1,16} rank \d{1,5} n[rR]anks (\d{1,5})\b")
_LINK: Final = re.compile(r"Channel \d{1,3}/\d{1,3} : \d.{0,60}? via (\S{1,60})")
_RING: Final = re.compile(r"Channel \d{1,3}/(\d{1,3}) : ")
_CHANNELS: Final = re.compile(
    r"(\d{1,4}) coll channels, (?:\d{1,4} collnet channels, )?(\d{1,4}) nvls channels"
)
_NETWORK: Final = re.compile(r"Using network (\S{1,40})")
_CHOICE: Final = re.compile(
    r"(\w{1,30}): (\d{1,15}) Bytes -> Algo (\w{1,20}) proto (\w{1,20}) "
    r"channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\}"
)
_MATRIX: Final = "Enabled NCCL Func/Proto/Algo Matrix"
_ROW: Final = re.compile(r"\s{0,40}(\w{1,30}) \|([\s\w]{1,120})\|([\s\w]{1,400})\Z")
_MOST_WARNINGS: Final = 20
_MOST_CHOICES: Final = 500
_MOST_VARIABLES: Final = 200


class Choice(Value):
    """Which kernel NCCL took for one call."""

    function: str
    """AllReduce, AllGather, ..."""
    size_bytes: int
    algorithm: str
    """RING, TREE, NVLS, ... in capitals."""
    protocol: str
    """LL, LL128, SIMPLE."""
    channels: int
    """Channels, each a block of threads on every GPU."""


class Allowed(Value):
    """What a setting left for one function; printed when algorithm or protocol was set."""

    protocols: tuple[str, ...]
    algorithms: tuple[str, ...]


class NcclLog(Value):
    """What one start, or one process, said."""

    version: str | None = None
    """2.28.9+cuda13.0"""
    ranks: int | None = None
    """Of the largest communicator."""
    taken: dict[str, str] = {}
    """Variable -> value, for those that NCCL says it read."""
    ignored: dict[str, str] = {}
    """Variable -> the line in which NCCL says that it cannot use it."""
    links: dict[str, int] = {}
    """P2P/IPC, P2P/CUMEM, SHM/direct/direct, NET/IB/0, ... -> connections."""
    network: str | None = None
    """The network plugin that it would use between machines."""
    rings: int | None = None
    """Rings laid, one a channel."""
    trees: bool = False
    """Whether trees were connected too."""
    channels: int | None = None
    """Channels for collective operations."""
    nvls_channels: int | None = None
    """Channels through NVLink SHARP; 0: it is off or not there."""
    allowed: dict[str, Allowed] = {}
    choices: tuple[Choice, ...] = ()
    """From the subsystem TUNING, each once."""
    warnings: tuple[str, ...] = ()
    """Lines of level WARN: what went wrong, in NCCL's words."""

    def choice_at(self, size_bytes: int, function: str = "AllReduce") -> Choice | None:
        """The kernel for a size: what was seen at it, else at the nearest smaller one."""
        mine = [c for c in self.choices if c.function == function and c.size_bytes <= size_bytes]
        return max(mine, key=lambda choice: choice.size_bytes, default=None)

    @property
    def transports(self) -> tuple[str, ...]:
        """P2P, SHM, NET: what the links are made of, the most frequent first."""
        kinds: Counter[str] = Counter()
        for link, count in self.links.items():
            kinds[link.partition("/")[0]] += count
        return tuple(kind for kind, _ in kinds.most_common())


def read_nccl_log(lines: Iterable[str]) -> NcclLog:
    """Reads debug output, one line after another; bounded in memory, whatever its length."""
    reader = _Reader()
    for line in lines:
        reader.take(line)
    return reader.result()


class _Reader:
    def __init__(self) -> None:
        self.version: str | None = None
        self.network: str | None = None
        self.numbers: dict[str, int] = {}
        self.taken: dict[str, str] = {}
        self.ignored: dict[str, str] = {}
        self.links: Counter[str] = Counter()
        self.trees = False
        self.allowed: dict[str, Allowed] = {}
        self.choices: dict[Choice, None] = {}
        self.warnings: dict[str, None] = {}
        self._columns: tuple[list[str], list[str]] | None = None
        self._in_matrix = False

    def take(self, line: str) -> None:
        found = _LINE.search(line[:5000])
        if found is None:
            if self._in_matrix:
                self._matrix(line)
            return
        text = found[2].rstrip()
        self._in_matrix = text.startswith(_MATRIX)
        self._columns = None
        if found[1] == "WARN":
            if len(self.warnings) < _MOST_WARNINGS:
                self.warnings.setdefault(text)
            return
        self._info(text)

    def _info(self, text: str) -> None:
        if (taken := _TAKEN.match(text)) and len(self.taken) < _MOST_VARIABLES:
            self.taken[taken[1]] = taken[2]
        elif (ignored := _IGNORED.match(text)) and len(self.ignored) < _MOST_VARIABLES:
            self.ignored.setdefault(ignored[1], text)
        elif link := _LINK.match(text):
            self.links[link[1]] += 1
        elif ring := _RING.match(text):
            self._most("rings", int(ring[1]))
        elif channels := _CHANNELS.search(text):
            self._most("channels", int(channels[1]))
            self._most("nvls_channels", int(channels[2]))
        elif choice := _CHOICE.match(text):
            self._choice(choice)
        elif network := _NETWORK.match(text):
            self.network = network[1]
        elif text.startswith("Connected all trees"):
            self.trees = True
        elif version := _VERSION.match(text):
            self.version = version[1]
        if ranks := _RANKS.search(text):
            self._most("ranks", int(ranks[1]))

    def _choice(self, found: re.Match[str]) -> None:
        if len(self.choices) < _MOST_CHOICES:
            self.choices.setdefault(
                Choice(
                    function=found[1],
                    size_bytes=int(found[2]),
                    algorithm=found[3].upper(),
                    protocol=found[4].upper(),
                    channels=int(found[6]) - int(found[5]) + 1,
                )
            )

    def _most(self, name: str, number: int) -> None:
        """Several communicators are made; the largest is the one that matters."""
        self.numbers[name] = max(number, self.numbers.get(name, 0))

    def _matrix(self, line: str) -> None:
        """One row: which protocols and algorithms a function has left (0: none, 2: by NCCL)."""
        row = _ROW.match(line.rstrip())
        if row is None:
            self._in_matrix = False
            return
        protocols, algorithms = row[2].split(), row[3].split()
        if self._columns is None:
            self._columns = (protocols, algorithms)
            return
        named = zip(self._columns, (protocols, algorithms), strict=True)
        left = [
            tuple(name for name, flag in zip(names, flags, strict=False) if flag != "0")
            for names, flags in named
        ]
        self.allowed[row[1]] = Allowed(protocols=left[0], algorithms=left[1])

    def result(self) -> NcclLog:
        return NcclLog(
            version=self.version,
            ranks=self.numbers.get("ranks"),
            taken=dict(sorted(self.taken.items())),
            ignored=self.ignored,
            links=dict(self.links.most_common()),
            network=self.network,
            rings=self.numbers.get("rings"),
            trees=self.trees,
            channels=self.numbers.get("channels"),
            nvls_channels=self.numbers.get("nvls_channels"),
            allowed=self.allowed,
            choices=tuple(self.choices),
            warnings=tuple(self.warnings),
        )
