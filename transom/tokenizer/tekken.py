"""Reader of ``tekken.json``: ids to bytes, the streaming specials, the audio section.

Ids below ``default_num_special_tokens`` are special; id - that number is the rank of a text piece. Only the first
``default_vocab_size - default_num_special_tokens`` ranks are used, although files hold more. The reader knows no
model: whoever joins the two compares ``vocab_size``.
"""

from __future__ import annotations

import binascii
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transom.errors import TokenizerError

BOS = "<s>"
STREAMING_PAD = "[STREAMING_PAD]"
STREAMING_WORD = "[STREAMING_WORD]"


@dataclass(frozen=True)
class TokenizerAudio:
    """The audio section: what the model hears, and how far behind the audio it writes.

    ``streaming_word_text`` is what a word mark adds to the text: nothing where pieces carry their own spaces.
    """

    sampling_rate: int
    frame_rate: float
    num_mel_bins: int
    hop_length: int
    window_size: int
    transcription_delay_ms: int
    n_left_pad_tokens: int
    streaming_word_text: str = ""


@dataclass(frozen=True)
class Tokenizer:
    """Ids of a streaming model: the specials it needs by name, and the bytes of all others."""

    bos: int
    streaming_pad: int
    streaming_word: int
    num_special_tokens: int
    audio: TokenizerAudio
    pieces: tuple[bytes, ...]

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """Read ``path``. Raises TokenizerError naming the file, what is wrong with it and what would be right."""
        try:
            return cls._from_json(json.loads(Path(path).read_bytes()))
        except OSError as error:
            raise TokenizerError(f"cannot read tokenizer {path}: {error.strerror or error}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise TokenizerError(f"tokenizer {path} is not JSON ({error}); download the file again") from error
        except _FormatError as error:
            raise TokenizerError(
                f"tokenizer {path} {error}; a streaming model needs its own tekken.json, such as the one of"
                " Voxtral-Mini-4B-Realtime"
            ) from error

    @classmethod
    def _from_json(cls, content: Any) -> Tokenizer:
        config = _get(content, "config", dict)
        num_special_tokens = _get(config, "default_num_special_tokens", int)
        num_pieces = _get(config, "default_vocab_size", int) - num_special_tokens
        special_ids = _special_ids(content, num_special_tokens)
        return cls(
            bos=special_ids[BOS],
            streaming_pad=special_ids[STREAMING_PAD],
            streaming_word=special_ids[STREAMING_WORD],
            num_special_tokens=num_special_tokens,
            audio=_audio(_get(content, "audio", dict)),
            pieces=_pieces(_get(content, "vocab", list), num_pieces),
        )

    @property
    def vocab_size(self) -> int:
        """How many ids there are: one past the highest."""
        return self.num_special_tokens + len(self.pieces)

    def token_bytes(self, token_id: int) -> bytes:
        """What ``token_id`` adds to the text: part of a character, several, or nothing for a special.

        Raises IndexError for an id outside the vocabulary.
        """
        if token_id == self.streaming_word:
            return self.audio.streaming_word_text.encode()
        if 0 <= token_id < self.num_special_tokens:
            return b""
        if not 0 <= token_id < self.vocab_size:
            raise IndexError(f"token {token_id} is outside the vocabulary of {self.vocab_size}")
        return self.pieces[token_id - self.num_special_tokens]


class _FormatError(Exception):
    """What is wrong with a file, as the rest of a sentence that begins with its name."""


def _get(section: Any, key: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """``section[key]``, which must be there and of ``kind``."""
    value = section.get(key) if isinstance(section, dict) else None
    if value is None:
        raise _FormatError(f"has no {key!r}")
    if not isinstance(value, kind):
        raise _FormatError(f"has a {key!r} of the wrong type, {type(value).__name__}")
    return value


def _special_ids(content: Any, num_special_tokens: int) -> dict[str, int]:
    """Ids by name of the special tokens; every one that streaming needs is there."""
    entries = _get(content, "special_tokens", list)
    ids: dict[str, int] = {_get(entry, "token_str", str): _get(entry, "rank", int) for entry in entries}
    for name in (BOS, STREAMING_PAD, STREAMING_WORD):
        if name not in ids:
            raise _FormatError(f"has no special token {name}")
        if not 0 <= ids[name] < num_special_tokens:
            raise _FormatError(f"gives special token {name} rank {ids[name]}, not one of {num_special_tokens}")
    return ids


def _pieces(vocab: list[Any], num_pieces: int) -> tuple[bytes, ...]:
    """Bytes of the ranks in use, in the order of their ranks."""
    if not 0 < num_pieces <= len(vocab):
        raise _FormatError(f"has {len(vocab)} pieces where its config asks for {num_pieces}")
    used = vocab[:num_pieces]
    try:
        if [entry["rank"] for entry in used] != list(range(num_pieces)):
            raise _FormatError("has a vocab that is not in the order of its ranks")
        return tuple(binascii.a2b_base64(entry["token_bytes"], strict_mode=True) for entry in used)
    except (KeyError, TypeError, ValueError) as error:
        raise _FormatError(f"has a vocab entry without rank or base64 bytes ({error})") from error


def _audio(section: dict[str, Any]) -> TokenizerAudio:
    """The audio section, which must describe a streaming model."""
    encoding = _get(section, "audio_encoding_config", dict)
    return TokenizerAudio(
        sampling_rate=_get(section, "sampling_rate", int),
        frame_rate=float(_get(section, "frame_rate", (int, float))),
        num_mel_bins=_get(encoding, "num_mel_bins", int),
        hop_length=_get(encoding, "hop_length", int),
        window_size=_get(encoding, "window_size", int),
        transcription_delay_ms=_get(section, "transcription_delay_ms", int),
        n_left_pad_tokens=_get(section, "streaming_n_left_pad_tokens", int),
        streaming_word_text=_get({"streaming_word_text": "", **section}, "streaming_word_text", str),
    )
