import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transom.errors import TokenizerError
from transom.tokenizer.detokenizer import Detokenizer
from transom.tokenizer.tekken import Tokenizer, TokenizerAudio
from transom.tokenizer.writer import tekken_json

NUM_SPECIAL = 40
AUDIO = {
    "sampling_rate": 16_000,
    "frame_rate": 12.5,
    "audio_encoding_config": {"num_mel_bins": 128, "hop_length": 160, "window_size": 400},
    "transcription_format": "streaming",
    "transcription_delay_ms": 480,
    "streaming_look_ahead_ms": 2.5,
    "streaming_look_back_ms": 52.5,
    "streaming_n_left_pad_tokens": 32,
}
Content = dict[str, Any]


def content() -> Content:
    """A tekken.json in the shape of Voxtral's: all bytes, then a word, then a rank beyond the vocabulary."""
    pieces = [bytes([value]) for value in range(256)] + [b" hello", b"unused"]
    specials = {1: "<s>", 2: "</s>", 32: "[STREAMING_PAD]", 33: "[STREAMING_WORD]"}
    return {
        "config": {
            "pattern": ".",
            "num_vocab_tokens": len(pieces),
            "default_vocab_size": NUM_SPECIAL + 257,
            "default_num_special_tokens": NUM_SPECIAL,
            "version": "v7",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
            for rank, piece in enumerate(pieces)
        ],
        "special_tokens": [{"rank": rank, "token_str": name, "is_control": True} for rank, name in specials.items()],
        "audio": AUDIO,
    }


def read(tmp_path: Path, changed: Content) -> Tokenizer:
    (tmp_path / "tekken.json").write_text(json.dumps(changed))
    return Tokenizer.from_file(tmp_path / "tekken.json")


def text_of(tokenizer: Tokenizer, token_ids: list[int]) -> str:
    detokenizer = Detokenizer(tokenizer)
    return "".join([*map(detokenizer.push, token_ids), detokenizer.finish()])


def test_ids_bytes_and_audio_are_read(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, content())
    assert (tokenizer.bos, tokenizer.streaming_pad, tokenizer.streaming_word) == (1, 32, 33)
    assert tokenizer.vocab_size == NUM_SPECIAL + 257
    assert tokenizer.token_bytes(NUM_SPECIAL + 0xF0) == b"\xf0"
    assert tokenizer.token_bytes(NUM_SPECIAL + 256) == b" hello"
    assert [tokenizer.token_bytes(special) for special in range(NUM_SPECIAL)] == [b""] * NUM_SPECIAL
    assert tokenizer.audio == TokenizerAudio(16_000, 12.5, 128, 160, 400, 480, 32)


@pytest.mark.parametrize("token_id", [-1, NUM_SPECIAL + 257])
def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path, token_id: int) -> None:
    with pytest.raises(IndexError, match=str(token_id)):
        read(tmp_path, content()).token_bytes(token_id)


def without(key: str) -> Callable[[Content], object]:
    return lambda changed: changed.pop(key)


def without_special(name: str) -> Callable[[Content], object]:
    def remove(changed: Content) -> None:
        changed["special_tokens"] = [entry for entry in changed["special_tokens"] if entry["token_str"] != name]

    return remove


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (without("audio"), "no 'audio'"),
        (without("special_tokens"), "no 'special_tokens'"),
        (without("config"), "no 'config'"),
        (without_special("<s>"), "no special token <s>"),
        (without_special("[STREAMING_PAD]"), r"no special token \[STREAMING_PAD\]"),
        (without_special("[STREAMING_WORD]"), r"no special token \[STREAMING_WORD\]"),
        (lambda changed: changed["config"].update(default_num_special_tokens=20), "rank 32"),
        (lambda changed: changed["config"].update(default_vocab_size=131_072), "258 pieces"),
        (lambda changed: changed["vocab"].reverse(), "order of its ranks"),
        (lambda changed: changed["vocab"][3].update(token_bytes="?"), "base64"),
        (lambda changed: changed["vocab"][3].pop("token_bytes"), "token_bytes"),
        (lambda changed: changed["audio"]["audio_encoding_config"].pop("hop_length"), "no 'hop_length'"),
        (lambda changed: changed["audio"].update(transcription_delay_ms="480"), "wrong type, str"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, damage: Callable[[Content], object], cause: str) -> None:
    changed = json.loads(json.dumps(content()))
    damage(changed)
    with pytest.raises(TokenizerError, match=rf"tekken\.json .*{cause}.*needs its own tekken\.json"):
        read(tmp_path, changed)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text('{"config": ')
    with pytest.raises(TokenizerError, match=r"tekken\.json is not JSON .*download"):
        Tokenizer.from_file(tmp_path / "tekken.json")


def test_a_json_list_is_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text("[]")
    with pytest.raises(TokenizerError, match="has no 'config'"):
        Tokenizer.from_file(tmp_path / "tekken.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"cannot read tokenizer .*tekken\.json: No such file"):
        Tokenizer.from_file(tmp_path / "tekken.json")


def test_a_written_tokenizer_reads_back_and_its_word_marks_are_spaces(tmp_path: Path) -> None:
    audio = TokenizerAudio(16_000, 12.5, 80, 160, 400, 960, 32, streaming_word_text=" ")
    specials = ("<s>", "[STREAMING_PAD]", "[STREAMING_WORD]", "<unk>")
    written = tekken_json(["the", "r", "e", "'s"], specials, audio)
    assert written["audio"]["streaming_look_ahead_ms"] == 2.5
    tokenizer = read(tmp_path, written)
    assert tokenizer.audio == audio
    assert tokenizer.vocab_size == 8
    pad, word, there = 1, 2, [4, 5, 6]
    assert text_of(tokenizer, [pad, word, *there, pad, word, word, pad, *there, 7, word, pad]) == "there there's"


def test_a_truncated_character_becomes_a_replacement_only_at_the_end(tmp_path: Path) -> None:
    detokenizer = Detokenizer(read(tmp_path, content()))
    emoji = [NUM_SPECIAL + value for value in "\N{GRINNING FACE}".encode()]
    assert [detokenizer.push(token_id) for token_id in emoji[:3]] == ["", "", ""]
    assert detokenizer.text == ""
    assert detokenizer.finish() == "\N{REPLACEMENT CHARACTER}"
    assert detokenizer.text == "\N{REPLACEMENT CHARACTER}"


def test_pads_marks_and_an_end_of_sequence_within_a_character_do_not_break_it(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, content())
    first, second = (NUM_SPECIAL + value for value in "\N{LATIN SMALL LETTER E WITH ACUTE}".encode())
    hello = NUM_SPECIAL + 256
    assert text_of(tokenizer, [32, 33, hello, first, 32, 2, second, 32]) == "hello\N{LATIN SMALL LETTER E WITH ACUTE}"
