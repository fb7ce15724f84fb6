import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import VoxtralRealtimeConfig

from benchmarks.random_checkpoint import VOXTRAL_4B
from tests.unit.weights_models import VOXTRAL, WHISPER
from transom.config import NO_WINDOW, ModelConfig
from transom.errors import ConfigError
from transom.weights.config_files import read_model_config, write_model_config
from transom.weights.names import Layout

ROPE = {"rope_type": "default", "rope_theta": 1e6}
Values = dict[str, Any]


def with_windows(*windows: int) -> ModelConfig:
    return replace(VOXTRAL, decoder=replace(VOXTRAL.decoder, sliding_windows=windows))


@pytest.mark.parametrize(
    "config", [VOXTRAL, WHISPER, with_windows(NO_WINDOW, 16), with_windows(NO_WINDOW, NO_WINDOW)]
)
def test_a_written_config_reads_back_equal_in_the_hugging_face_layout(config: ModelConfig, tmp_path: Path) -> None:
    write_model_config(config, tmp_path)
    assert read_model_config(tmp_path) == config


@pytest.mark.parametrize("config", [VOXTRAL, with_windows(NO_WINDOW, NO_WINDOW)])
def test_a_written_config_reads_back_equal_in_mistrals_layout(config: ModelConfig, tmp_path: Path) -> None:
    write_model_config(config, tmp_path, "mistral")
    assert read_model_config(tmp_path) == config


@pytest.mark.parametrize("layout_and_config", [("mistral", WHISPER), ("mistral", with_windows(NO_WINDOW, 16))])
def test_what_a_layout_cannot_say_is_refused_when_written(
    layout_and_config: tuple[Layout, ModelConfig], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        write_model_config(layout_and_config[1], tmp_path, layout_and_config[0])
    with pytest.raises(ConfigError, match=r"\[8, 16\]"):
        write_model_config(with_windows(8, 16), tmp_path)


def test_the_config_that_transformers_saves_is_the_4b_model(tmp_path: Path) -> None:
    VoxtralRealtimeConfig(
        audio_config={"model_type": "voxtral_realtime_encoder", "rope_parameters": ROPE},
        text_config={"model_type": "voxtral_realtime_text", "rope_parameters": ROPE},
    ).save_pretrained(tmp_path)
    assert read_model_config(tmp_path) == VOXTRAL_4B


def test_transformers_reads_the_config_that_is_written_here(tmp_path: Path) -> None:
    write_model_config(VOXTRAL, tmp_path)
    config = VoxtralRealtimeConfig.from_pretrained(tmp_path)
    assert config.audio_config.head_dim == VOXTRAL.encoder.head_dim
    assert config.text_config.sliding_window == VOXTRAL.decoder.sliding_windows[0]
    assert config.audio_config.rope_parameters["rope_theta"] == VOXTRAL.encoder.rope_theta


def edited(tmp_path: Path, layout: Layout, edit: Callable[[Values], object]) -> Path:
    file = write_model_config(VOXTRAL, tmp_path, layout)
    values = json.loads(file.read_text())
    edit(values)
    file.write_text(json.dumps(values))
    return tmp_path


def test_rope_theta_may_stand_flat(tmp_path: Path) -> None:
    def flatten(values: Values) -> None:
        values["text_config"]["rope_theta"] = values["text_config"].pop("rope_parameters")["rope_theta"]

    assert read_model_config(edited(tmp_path, "huggingface", flatten)) == VOXTRAL


def audio(key: str, value: object) -> Callable[[Values], object]:
    return lambda values: values["audio_config"].update({key: value})


def text(key: str, value: object) -> Callable[[Values], object]:
    return lambda values: values["text_config"].update({key: value})


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda v: v.update(model_type="whisper"), r"model_type is 'whisper'.*'voxtral_realtime'"),
        (lambda v: v.pop("model_type"), "model_type is missing"),
        (lambda v: v.pop("text_config"), "text_config is missing"),
        (lambda v: v.update(downsample_factor=8), "downsample_factor is 8; supported: only 4"),
        (lambda v: v.update(tie_word_embeddings=False), "tie_word_embeddings is False.*lm_head"),
        (lambda v: v.update(quantization_config={"bits": 4}), "quantization_config"),
        (audio("norm_type", "batch_norm"), r"audio_config.norm_type is 'batch_norm'.*'rms_norm' or 'layer_norm'"),
        (audio("ffn_type", "relu"), "ffn_type is 'relu'"),
        (audio("pos_embed", "alibi"), "pos_embed is 'alibi'"),
        (audio("hidden_act", "relu"), "audio_config.hidden_act is 'relu'; supported: only 'silu'"),
        (audio("num_key_value_heads", 1), "audio_config.num_key_value_heads is 1"),
        (audio("hidden_size", "10"), "audio_config.hidden_size is '10'; supported: an integer"),
        (audio("head_dim", 5), "audio_config.head_dim is 5; supported: an even number"),
        (audio("sliding_window", 0), "audio_config.sliding_window is 0"),
        (audio("look_ahead_frames", 3), "look_ahead_frames is 3; supported: a multiple of 4"),
        (audio("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e6}), "rope_parameters.rope_type is 'yarn'"),
        (audio("rope_parameters", None), "audio_config.rope_theta is missing"),
        (text("num_key_value_heads", 3), "num_key_value_heads is 3; supported: a divisor of num_attention_heads"),
        (text("num_hidden_layers", True), "num_hidden_layers is True"),
        (text("layer_types", ["full_attention"]), "layer_types is .* a list of 2 entries"),
        (text("layer_types", ["full_attention", "chunked"]), "layer_types"),
        (text("sliding_window", None), "sliding_window is None; supported: a window"),
        (text("hidden_size", 13), "text_config.hidden_size is 13; supported: an even number"),
        (text("rms_norm_eps", "tiny"), "text_config.rms_norm_eps is 'tiny'; supported: a number"),
    ],
)
def test_a_hugging_face_config_that_is_wrong_is_refused_by_key_and_value(
    edit: Callable[[Values], object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_model_config(edited(tmp_path, "huggingface", edit))


def whisper(section: str, key: str, value: object) -> Callable[[Values], object]:
    return lambda values: values["multimodal"]["whisper_model_args"][section].update({key: value})


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda v: v.pop("multimodal"), "multimodal is missing"),
        (lambda v: v.pop("sliding_window"), "sliding_window is missing"),
        (lambda v: v.update(ada_rms_norm_t_cond=False), "ada_rms_norm_t_cond is False; supported: only True"),
        (lambda v: v.update(tied_embeddings=False), "tied_embeddings is False"),
        (lambda v: v.update(use_biases=True), "use_biases is True"),
        (lambda v: v.update(n_kv_heads=3), "n_kv_heads is 3; supported: a divisor of n_heads"),
        (whisper("encoder_args", "causal", False), "encoder_args.causal is False"),
        (whisper("encoder_args", "norm_type", "layer_norm"), "encoder_args.norm_type is 'layer_norm'"),
        (whisper("encoder_args", "n_kv_heads", 1), "encoder_args.n_kv_heads is 1"),
        (whisper("downsample_args", "downsample_factor", 2), "downsample_factor is 2; supported: only 4"),
        (
            lambda v: v["multimodal"]["whisper_model_args"]["encoder_args"]["audio_encoding_args"].update(
                sampling_rate=8000
            ),
            "audio_encoding_args.sampling_rate is 8000; supported: only 16000",
        ),
    ],
)
def test_a_params_json_that_is_wrong_is_refused_by_key_and_value(
    edit: Callable[[Values], object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_model_config(edited(tmp_path, "mistral", edit))


@pytest.mark.parametrize("content", ["{", "[1]", "\xff"])
def test_a_file_that_is_no_json_object_is_refused_by_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_model_config(tmp_path)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither config\.json nor params\.json"):
        read_model_config(tmp_path)
