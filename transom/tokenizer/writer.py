"""Writer of ``tekken.json`` for models of this project's own, whose pieces carry no spaces.

The result is what :meth:`transom.tokenizer.tekken.Tokenizer.from_file` reads. It has no split pattern: Transom turns
ids into text, never text into ids.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from transom.tokenizer.tekken import TokenizerAudio

_LOOK_BACK_MS = 52.5


def tekken_json(pieces: Sequence[str], specials: Sequence[str], audio: TokenizerAudio) -> dict[str, Any]:
    """The content of a ``tekken.json``: ids 0.. are ``specials`` in order, the ids after them ``pieces`` in order."""
    return {
        "config": {
            "num_vocab_tokens": len(pieces),
            "default_vocab_size": len(specials) + len(pieces),
            "default_num_special_tokens": len(specials),
            "version": "v7",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(piece.encode()).decode(), "token_str": piece}
            for rank, piece in enumerate(pieces)
        ],
        "special_tokens": [
            {"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(specials)
        ],
        "audio": _audio_section(audio),
    }


def _audio_section(audio: TokenizerAudio) -> dict[str, Any]:
    look_ahead_samples = audio.window_size // 2 - audio.hop_length
    return {
        "sampling_rate": audio.sampling_rate,
        "frame_rate": audio.frame_rate,
        "audio_encoding_config": {
            "num_mel_bins": audio.num_mel_bins,
            "hop_length": audio.hop_length,
            "window_size": audio.window_size,
        },
        "transcription_format": "streaming",
        "transcription_delay_ms": audio.transcription_delay_ms,
        "streaming_look_ahead_ms": 1000 * look_ahead_samples / audio.sampling_rate,
        "streaming_look_back_ms": _LOOK_BACK_MS,
        "streaming_n_left_pad_tokens": audio.n_left_pad_tokens,
        "streaming_word_text": audio.streaming_word_text,
    }
