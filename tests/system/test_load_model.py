"""Model folders in both layouts, from the files to words; and folders whose files do not belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.random_checkpoint import write_random_checkpoint
from tests.engines import tones, transcribe
from tests.parity.offline import voxtral_config
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine, load_model
from transom.errors import ConfigError
from transom.weights.names import Layout


@pytest.mark.parametrize("layout", ["huggingface", "mistral"])
def test_a_folder_becomes_an_engine(layout: Layout, tmp_path: Path) -> None:
    write_random_checkpoint(voxtral_config(), tmp_path, layout=layout, dtype="float32")
    loaded = load_model(tmp_path, "random", "cpu")
    engine = build_engine(loaded, CacheConfig(16 << 20), EngineConfig(max_sessions=1))
    engine.start()
    completed = transcribe(engine, tones(1.0, 1))
    engine.stop()
    assert len(completed.token_ids) == 13 + 11  # audio tokens, and the padding after them that asks for a token


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 8000}, "sampling rate 8000"),
        ({"frame_rate": 25}, "frame rate 25"),
        ({"transcription_delay_ms": 8000}, "transcription_delay_ms 8000"),
        ({"audio_encoding_config": {"num_mel_bins": 128, "hop_length": 160, "window_size": 400}}, "mel bins 128"),
        ({"audio_encoding_config": {"num_mel_bins": 80, "hop_length": 160, "window_size": 800}}, "window size 800"),
    ],
)
def test_a_tokenizer_of_another_model_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_random_checkpoint(voxtral_config(), tmp_path, dtype="float32")
    file = tmp_path / "tekken.json"
    content = json.loads(file.read_text())
    content["audio"].update(change)
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        load_model(tmp_path, "random", "cpu")
