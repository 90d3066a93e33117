"""Secrets taken out of texts and streams before they are kept or shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STARS = "***"
_SHORTEST = 4  # masking "1" would make every log unreadable, and hides nothing


def _forms(secret: str) -> set[str]:
    """How a secret is written by those who print it: plain, JSON, repr, URL, a shell's quotes."""
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe=""),
        secret.replace("'", "'\"'\"'"),
    }


class Mask:
    """Replaces known secret values by stars."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for s in secrets if len(s) >= _SHORTEST for form in _forms(s)}
        # Longest first: one secret may be part of another.
        self._secrets = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, STARS)
        return text

    def raw(self, data: bytes) -> bytes:
        """Bytes without secrets (as UTF-8)."""
        for secret in self._secrets:
            data = data.replace(secret.encode(), STARS.encode())
        return data

    def env(self, env: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
        """An environment to show: the named variables hidden whole, the others masked."""
        names = set(hidden)
        return {
            name: STARS if name in names else self.text(value)
            for name, value in sorted(env.items())
        }

    def stream(self) -> StreamMask:
        """For data that comes in pieces."""
        return StreamMask(self, max((len(s.encode()) for s in self._secrets), default=1))


class StreamMask:
    """Masks a stream; a secret that is torn over two pieces is caught too."""

    def __init__(self, mask: Mask, longest: int) -> None:
        self._mask = mask
        self._hold = longest - 1
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What may be let out so far."""
        ready = self._mask.raw(self._rest + data)
        cut = len(ready) - self._hold
        out, self._rest = (ready[:cut], ready[cut:]) if cut > 0 else (b"", ready)
        return out

    def finish(self) -> bytes:
        """The rest."""
        out, self._rest = self._rest, b""
        return out
