"""What can go wrong between us and the world.

WorldError
├── ContactLost      the host did not answer; what runs there is unknown, not dead
│   └── CommandKilled    it answered, but a signal ended the command that should have
├── HostRebooted     it answered, with another boot id: nothing of ours runs there any more
├── HostRefused      it answered and will not have us: key, password, host key
├── FileRefused      it would not take or give a file: rights, a full disk
├── AgentRefusal     the agent on the host foresaw this and refused, with a class
└── AgentBroken      the agent did not speak its protocol: a mistake of ours, or no Python there
"""

from __future__ import annotations


class WorldError(Exception):
    """The root: the world's fault, not a bug."""


class ContactLost(WorldError):
    """The host did not answer in time, or the connection broke.

    What runs there is unknown; on reconnect the state file decides.
    """


class CommandKilled(ContactLost):
    """A signal ended the command (the host was out of memory, or somebody killed it).

    What it did is unknown, as with a lost answer, so the same is done: it is asked again.
    """


class FileRefused(WorldError):
    """The host would not take or give a file: rights, a full disk."""


class HostRebooted(WorldError):
    """The host answers with another boot id than before."""


class HostRefused(WorldError):
    """The host will not have us, or is not the one that we know: retrying does not help."""


class AgentRefusal(WorldError):
    """The agent refused a request for a foreseen reason."""

    def __init__(self, error: str, message: str, answer: dict[str, object]) -> None:
        self.error = error
        self.answer = answer
        super().__init__(f"{error}: {message}" if message else error)


class AgentBroken(WorldError):
    """The agent's answer could not be read."""
