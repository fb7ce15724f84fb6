"""Positions, prompts and padding of one utterance: the numbers of the model's own documentation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engines import byte_tokenizer
from transom.config import AudioConfig
from transom.engine.api import Word
from transom.engine.transcript import Transcript
from transom.engine.turn import Prompt, Turn

PROMPT = Prompt(
    bos_id=1, pad_id=32, first_text_id=44, left_pad_tokens=32, default_delay_tokens=6, audio=AudioConfig()
)
EOS = 2


def text_id(character: str) -> int:
    return 44 + ord(character)


def turn(delay_tokens: int = 6) -> Turn:
    return Turn(0, delay_tokens, PROMPT, Transcript(byte_tokenizer(128), PROMPT.first_text_id))


def run(turn: Turn, token_ids: list[int]) -> int:
    """Run all that waits, the model saying these tokens, then pads; returns how many tokens were asked for."""
    asked = 0
    answers = iter(token_ids)
    while turn.num_ready_tokens:
        if turn.take(turn.num_ready_tokens).wants_token:
            asked += 1
            turn.advance(next(answers, 32))
    return asked


@pytest.mark.parametrize(
    ("delay_ms", "prompt_tokens", "right_pad_tokens"),
    [(80, 34, 12), (160, 35, 13), (240, 36, 14), (480, 39, 17), (960, 45, 23), (2400, 63, 41)],
)
def test_prompt_and_padding_by_delay(delay_ms: int, prompt_tokens: int, right_pad_tokens: int) -> None:
    delay_tokens = PROMPT.delay_tokens(delay_ms)
    assert PROMPT.num_tokens(delay_tokens) == prompt_tokens
    assert PROMPT.right_pad_tokens(delay_tokens) == right_pad_tokens


def test_delays_round_up_to_whole_tokens() -> None:
    assert [PROMPT.delay_tokens(ms) for ms in (None, 100, 480, 500)] == [6, 2, 6, 7]


def test_the_first_token_is_asked_for_when_the_delay_has_been_heard() -> None:
    stream = turn()
    stream.append(np.zeros(7 * 1280 + 39, np.float32))
    assert run(stream, []) == 0
    stream.append(np.zeros(1, np.float32))  # (d + 1) * 1280 + 40 samples
    share = stream.take(stream.num_ready_tokens)
    assert (share.position, share.token_ids, share.wants_token) == (38, (32,), True)


def test_the_prompt_runs_at_once_and_the_rest_token_by_token() -> None:
    stream = turn()
    stream.append(np.ones(20 * 1280, np.float32))
    prompt = stream.take(stream.num_ready_tokens)
    assert (prompt.position, len(prompt.token_ids), len(prompt.samples)) == (31, 8, 8 * 1280 + 240)
    assert np.flatnonzero(prompt.samples)[0] == 200 + 1280  # history, then the last token of the left pad
    stream.advance(77)
    following = stream.take(stream.num_ready_tokens)
    assert (following.position, following.token_ids) == (39, (77,))


def test_every_position_of_a_committed_turn_runs() -> None:
    stream = turn()
    stream.append(np.zeros(3 * 1280 + 1, np.float32))
    stream.commit()
    asked = run(stream, [])
    total_tokens = 32 + 4 + (6 + 11)
    assert (stream.position, asked, stream.is_done) == (total_tokens, total_tokens - 38, True)


def test_an_end_of_sequence_token_ends_nothing() -> None:
    stream = turn()
    stream.append(np.zeros(10 * 1280, np.float32))
    stream.commit()
    run(stream, [text_id("a"), EOS, text_id("b")])
    assert stream.is_done
    assert stream.text == "ab"
    assert stream.num_text_tokens == 2


@pytest.mark.parametrize("delay_tokens", [1, 6, 12, 30])
def test_word_times_count_neither_the_left_pad_nor_the_delay(delay_tokens: int) -> None:
    """The naive formula, 80 ms for each position, is 2.56 s and the delay too late."""
    stream = turn(delay_tokens)
    stream.append(np.zeros(20 * 1280 - 1, np.float32))
    stream.commit()
    run(stream, [32] * 10 + [33, text_id("a"), text_id("b"), 32, 32, text_id(" "), text_id("c")])
    stream.finish()
    assert stream.completed().words == (Word("ab", 720, 880), Word("c", 1200, 1280))


def test_audio_that_no_step_has_taken_is_counted() -> None:
    stream = turn()
    stream.append(np.zeros(20 * 1280, np.float32))
    assert stream.num_unheard_samples == 20 * 1280
    stream.take(stream.num_ready_tokens)  # the last of the left pad and seven of audio
    assert stream.num_unheard_samples == 13 * 1280
    stream.commit()
    run(stream, [])
    assert stream.num_unheard_samples == 0
