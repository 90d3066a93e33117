"""Hosts: where the engine runs, how it is reached, and what may be touched there."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from configs.names import Count, EnvName, Name, Number, Seconds, Text, Whole
from configs.nccl import value_problem
from configs.problems import WrongKeyError
from configs.releases import EngineKind
from configs.secret_names import SecretName, secret_reason
from configs.values import Value


class KnownHosts(Value):
    """The host key must stand in a known_hosts file."""

    kind: Literal["known_hosts"] = "known_hosts"
    path: Text = "~/.ssh/known_hosts"
    """The file, on the controller."""


class Fingerprint(Value):
    """The host key must have this fingerprint."""

    kind: Literal["fingerprint"] = "fingerprint"
    sha256: Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
    """As `ssh-keygen -lf` prints it: SHA256:..."""


class AcceptNew(Value):
    """An unknown key is accepted once and remembered; a changed one is refused."""

    kind: Literal["accept-new"] = "accept-new"
    path: Text = "~/.ssh/known_hosts"
    """Where it is remembered, on the controller."""


HostKey = KnownHosts | Fingerprint | AcceptNew


class Ssh(Value):
    """How the host is reached."""

    kind: Literal["ssh"] = "ssh"
    host: Text
    """Name or address."""
    port: Annotated[Whole, Field(ge=1, le=65535)] = 22
    """Of sshd."""
    user: Text
    """Login."""
    key: Text | None = None
    """Private key file on the controller; None: the SSH agent's keys."""
    host_key: HostKey = KnownHosts()
    """Which host keys are accepted; there is no way to switch the check off."""
    jump: Ssh | None = None
    """A host in between (ProxyJump); its key is checked by its own rule."""
    connect_timeout_s: Seconds = 10.0
    """For TCP and the handshake (s); lost contact is tried again."""


class AddressFile(Value):
    """The address stands in a JSON file that whoever starts the host writes.

    For hosts whose port or address is only known once they are up (the rehearsal host, a box
    rented by a script). The file: {"host", "port", "user", "key", "known_hosts"}.
    """

    kind: Literal["address_file"] = "address_file"
    path: Text
    """The file; relative paths start in the state folder (EAGLE3_HOME, default .eagle3)."""


Connect = Ssh | AddressFile


class Price(Value):
    """What something costs."""

    amount: Annotated[Number, Field(gt=0)]
    """In that currency."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    """Three letters, such as USD or EUR; no rate is known here, and none is applied."""


class Host(Value):
    """A GPU host."""

    name: Name
    """The file's name without its ending."""
    connect: Connect
    """How the host is reached."""
    python: Text
    """The engine's Python on the host, e.g. /opt/sglang/bin/python; relative paths and ~ start
    in the home folder."""
    pythons: dict[EngineKind, Text] = {}
    """Another Python for one engine, where each has an environment of its own:
    {vllm: /opt/vllm/bin/python}."""
    gpus: Count
    """How many GPUs the engine may use (all of the host's, by index from 0)."""
    host_class: Name
    """What makes hosts equal for a comparison, e.g. 8x-rtx-pro-6000."""
    folder: Text = "~/.eagle3-sweep"
    """Our folder on the host."""
    cwd: Text = "~"
    """Where the engine is started; relative model paths start here."""
    agent_python: Text = "python3"
    """Any Python >= 3.9 for the agent."""
    env: dict[EnvName, str] = {}
    """Environment of every engine on this host."""
    env_from: tuple[SecretName, ...] = ()
    """Names of secrets that are taken from the controller's environment, e.g. HF_TOKEN."""
    listen: Text = "127.0.0.1"
    """Address that the engine listens on."""
    address: Text | None = None
    """Where the other nodes of a place reach this host: name or address of the network between
    them. Needed only where several hosts serve one model together."""
    dist_port: Annotated[Whole, Field(ge=1024, le=65535)] | None = None
    """Where their ranks meet, on the leading node; None: a free one, new for every trial."""
    api_key_from: SecretName | None = None
    """Name of the controller's variable that holds the engine's API key."""
    port: Annotated[Whole, Field(ge=1024, le=65535)] | None = None
    """The engine's port; None: a free one, new for every trial (a server that was killed and
    started again on the same port can hang, sglang#22779). At most 55535: SGLang 0.5.12 puts its
    gRPC server at port + 10000."""
    owns_gpus: bool = False
    """True on a box rented for this alone: every compute process of our own user may be ended.
    False: only processes that an earlier trial of ours started."""
    lease_s: Annotated[Number, Field(ge=10, le=3600)] = 90.0
    """If nobody renews it for so long, the engine is stopped on the host."""
    free_below_mib: Annotated[Whole, Field(ge=1)] = 1024
    """A GPU with less memory in use counts as free."""
    time_scale: Annotated[Number, Field(gt=0)] = 1.0
    """How much faster than real time the host runs; 1 everywhere but on the rehearsal host.
    Applied in one place, where samples are read (tasks/samples.py)."""
    rehearsal: bool = False
    """True for the pretend host: its reports say so on top."""
    price_per_hour: Price | None = None
    """What an hour of the whole host costs: {amount: 24.0, currency: USD}; `plan` says what a sweep
    will cost."""

    def python_of(self, engine: EngineKind) -> str:
        """The Python that an engine runs in."""
        return self.pythons.get(engine, self.python)

    @model_validator(mode="after")
    def _only_the_rehearsal_is_scaled(self) -> Self:
        if self.time_scale != 1.0 and not self.rehearsal:
            raise WrongKeyError("time_scale", "is for the rehearsal host alone: leave it out")
        return self

    @model_validator(mode="after")
    def _open_needs_a_key(self) -> Self:
        local = self.listen in {"127.0.0.1", "::1", "localhost"}
        if not local and self.api_key_from is None:
            raise WrongKeyError(
                "listen",
                f"{self.listen} opens the engine to the network without an API key: "
                "listen on 127.0.0.1, or name the key's variable in api_key_from",
            )
        return self

    @model_validator(mode="after")
    def _secrets_by_name(self) -> Self:
        for name, value in self.env.items():
            reason = secret_reason(name, value) or value_problem(name, value)
            if reason is not None:
                raise WrongKeyError(f"env.{name}", reason)
        return self
