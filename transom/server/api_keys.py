"""API keys: where they come from, how a presented one is compared, and when a server must not go without.

Keys are held as digests, so that a comparison takes the same time for every key and nothing here can print one.
Knows no request: :mod:`transom.server.security` finds what a client presents.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from pathlib import Path

from transom.errors import ConfigError

KEYS_VARIABLE = "TRANSOM_API_KEYS"
LABEL_DIGITS = 8


class KeyRing:
    """The keys that open this server. An empty ring is a server without keys: everybody is let in."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    @property
    def is_empty(self) -> bool:
        """Whether no key is asked for."""
        return not self._digests

    def label_of(self, presented: bytes) -> str | None:
        """The stable public name of a key, which does not reveal it; None if it is none of ours.

        Every key is compared, in constant time: how long an answer takes tells nothing.
        """
        digest, label = _digest(presented), None
        for known in self._digests:
            if hmac.compare_digest(digest, known):
                label = known.hex()[:LABEL_DIGITS]
        return label


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def read_keys(given: Sequence[str] = (), environment: str | None = None, file: Path | None = None) -> tuple[str, ...]:
    """All keys of the options, of the environment (comma-separated) and of a file (one a line, ``#`` comments).

    Raises ConfigError for a key that no client could send, and for a source that is named but holds no key: it
    would leave the server open by mistake.
    """
    keys = [_checked(key, "an API key option") for key in given]
    if environment is not None:
        keys += [_checked(key.strip(), KEYS_VARIABLE) for key in environment.split(",")]
    if file is not None:
        keys += _keys_of_file(file)
    return tuple(dict.fromkeys(keys))


def _keys_of_file(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the file of API keys {file} cannot be read ({error}); name a readable text file"
        ) from error
    written = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    keys = [_checked(key, f"{file}, line {number}") for number, key in written if key and not key.startswith("#")]
    if not keys:
        raise ConfigError(f"the file of API keys {file} holds none; write one key a line, or do not name the file")
    return keys


def _checked(key: str, where: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        # The key itself is not shown: it may be right but for one character.
        what = "is empty" if not key.strip() else "holds a space or a character that is not printable ASCII"
        raise ConfigError(f"{where}: an API key {what}; no client could send it. Correct it or take it out")
    return key


def check_exposure(host: str, keys: Sequence[str], allow_insecure: bool) -> None:
    """Raise ConfigError if a server without keys would be reached from other machines and nobody asked for that."""
    if keys or allow_insecure or is_private(host):
        return
    raise ConfigError(
        f"refusing to listen on {host or 'all addresses'} without an API key: everybody who reaches this machine "
        "could use the server. Give keys with --api-key-file (or the environment variable "
        f"{KEYS_VARIABLE}), listen on 127.0.0.1, or allow it with --allow-insecure"
    )


def is_private(host: str) -> bool:
    """Whether only this machine reaches what listens there; a name other than localhost counts as public."""
    if host.startswith(("unix:", "/")):
        return True
    name = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
