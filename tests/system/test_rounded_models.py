"""Models with weights of 16 and 8 bits, rounded while they are loaded or by ``transom convert``: files to words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.random_checkpoint import write_random_checkpoint
from tests.engines import lively_tensors, tones, transcribe
from tests.parity.offline import voxtral_config, whisper_config
from tests.unit.weights_models import as_stored
from transom.cli import main
from transom.config import CacheConfig, EngineConfig, ModelConfig, Weights
from transom.engine.build import LoadedModel, build_engine, load_model
from transom.errors import ConfigError, WeightsError
from transom.layers.linear import Fp16Linear, Int8Linear
from transom.layers.native_float import NativeLinear
from transom.layers.native_linear import NativeInt8Linear
from transom.native.build import FOLDER_VARIABLE
from transom.weights.convert import convert
from transom.weights.names import Layout

ROUNDED: tuple[Weights, ...] = ("fp16", "int8")
CONFIGS = {"voxtral": voxtral_config(), "whisper": whisper_config()}


def write_lively(config: ModelConfig, folder: Path, layout: Layout = "huggingface") -> Path:
    """A model folder in float32 whose tokens depend on what it hears."""
    write_random_checkpoint(config, folder, layout=layout, dtype="float32")
    file = next(folder.glob("*.safetensors"))
    save_file(as_stored(lively_tensors(config), config, layout), file)
    return folder


def heard(loaded: LoadedModel, seed: int = 1) -> tuple[int, ...]:
    engine = build_engine(loaded, CacheConfig(64 << 20), EngineConfig(max_sessions=1))
    engine.start()
    try:
        return tuple(transcribe(engine, tones(4.0, seed)).token_ids)
    finally:
        engine.stop()


@pytest.mark.parametrize("weights", ROUNDED)
@pytest.mark.parametrize("family", CONFIGS)
def test_rounding_at_load_and_by_convert_are_the_same_model(family: str, weights: Weights, tmp_path: Path) -> None:
    source = write_lively(CONFIGS[family], tmp_path / "source")
    at_load = load_model(source, "random", "cpu", weights=weights)
    assert main(["convert", str(source), str(tmp_path / "out"), "--weights", weights]) == 0
    converted = load_model(tmp_path / "out", "random", "cpu")
    assert converted.weights == weights
    assert converted.dtype == "float32"
    hidden = torch.randn(3, CONFIGS[family].decoder.hidden_size)
    assert torch.equal(at_load.model.decoder.logits(hidden), converted.model.decoder.logits(hidden))
    tokens = heard(at_load)
    assert heard(converted) == tokens
    assert len(set(tokens)) > 10


@pytest.mark.parametrize("weights", ROUNDED)
def test_every_matrix_of_a_step_is_rounded_and_the_embedding_stays_as_it_was(
    weights: Weights, tmp_path: Path
) -> None:
    config = CONFIGS["voxtral"]
    write_random_checkpoint(config, tmp_path, dtype="bfloat16")
    model = load_model(tmp_path, "random", "cpu", weights=weights).model
    left = [path for path, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)]
    assert all(".delay." in path for path in left)
    assert isinstance(model.decoder.head, Fp16Linear if weights == "fp16" else Int8Linear)
    assert model.decoder.embed_tokens.weight.dtype == torch.bfloat16
    others = {tensor.dtype for name, tensor in model.named_parameters() if "embed_tokens" not in name}
    assert others == {torch.float32}


def test_fp16_hears_what_float32_hears(tmp_path: Path) -> None:
    source = write_lively(CONFIGS["whisper"], tmp_path)
    exact = heard(load_model(source, "random", "cpu"))
    rounded = heard(load_model(source, "random", "cpu", weights="fp16"))
    assert sum(a == b for a, b in zip(exact, rounded, strict=True)) > 0.9 * len(exact)


@pytest.mark.parametrize("layout", ["huggingface", "mistral"])
def test_a_folder_of_several_files_and_of_either_layout_is_converted(layout: Layout, tmp_path: Path) -> None:
    source = write_lively(CONFIGS["voxtral"], tmp_path / "source", layout)
    num_bytes = convert(source, tmp_path / "one", "int8")
    assert convert(source, tmp_path / "many", "int8", file_bytes=100_000) == num_bytes
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one, many = (heard(load_model(tmp_path / name, "random", "cpu")) for name in ("one", "many"))
    assert one == many
    assert len({file.stat().st_mode for file in (tmp_path / "many").iterdir()}) == 1
    original_bytes = sum(file.stat().st_size for file in source.glob("*.safetensors"))
    assert num_bytes < original_bytes / 2  # float32 norms, convolutions and embedding included


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"weights": "fp16"}, "holds int8 weights, not fp16: convert the original"),
        ({"dtype": "bfloat16"}, "computes in float32, not in bfloat16: leave out --dtype"),
        ({"device": "cuda"}, "runs on the CPU only, not on cuda"),
    ],
)
def test_what_does_not_go_with_rounded_weights_is_refused(
    asked: dict[str, str], message: str, tmp_path: Path
) -> None:
    source = write_lively(CONFIGS["voxtral"], tmp_path / "source")
    convert(source, tmp_path / "out", "int8")
    arguments = {"name": "random", "device": "cpu"} | asked
    with pytest.raises(ConfigError, match=message):
        load_model(tmp_path / "out", **arguments)  # type: ignore[arg-type]
    if "weights" not in asked:
        with pytest.raises(ConfigError, match=message):
            load_model(source, **({"weights": "int8"} | arguments))  # type: ignore[arg-type]


def test_a_machine_without_fbgemm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_random_checkpoint(CONFIGS["voxtral"], tmp_path, dtype="float32")
    monkeypatch.setattr("transom.layers.linear.ENGINES", ("none",))
    with pytest.raises(ConfigError, match="need torch's FBGEMM"):
        load_model(tmp_path, "random", "cpu", weights="int8")


@pytest.mark.parametrize("weights", ROUNDED)
def test_the_native_library_has_layers_of_its_own(
    weights: Weights, native_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lively(CONFIGS["whisper"], tmp_path / "source")
    convert(source, tmp_path / "out", weights)
    torchs = heard(load_model(source, "random", "cpu", weights=weights))
    monkeypatch.setenv(FOLDER_VARIABLE, str(native_folder))
    monkeypatch.setattr("transom.layers.linear.ENGINES", ("none",))
    at_load = load_model(source, "random", "cpu", weights=weights, cpu_kernels="native")
    assert isinstance(at_load.model.decoder.head, NativeInt8Linear if weights == "int8" else NativeLinear)
    tokens = heard(at_load)
    assert heard(load_model(tmp_path / "out", "random", "cpu")) == tokens
    assert sum(a == b for a, b in zip(torchs, tokens, strict=True)) > 0.8 * len(tokens)


def test_bf16_weights_need_the_native_library_and_are_those_of_a_bfloat16_checkpoint(
    native_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIGS["voxtral"]
    source = tmp_path / "source"
    write_random_checkpoint(config, source, dtype="bfloat16")
    convert(source, tmp_path / "out", "bf16")
    with pytest.raises(ConfigError, match="--weights bf16 needs transom build-native"):
        load_model(source, "random", "cpu", weights="bf16")
    with pytest.raises(ConfigError, match="a folder of bf16 weights needs transom build-native"):
        load_model(tmp_path / "out", "random", "cpu")
    monkeypatch.setenv(FOLDER_VARIABLE, str(native_folder))
    exact = load_model(source, "random", "cpu", "float32")
    hidden = torch.randn(3, config.decoder.hidden_size)
    for kept in (
        load_model(source, "random", "cpu", weights="bf16"),
        load_model(tmp_path / "out", "random", "cpu"),
    ):
        assert torch.equal(kept.model.decoder.logits(hidden), exact.model.decoder.logits(hidden))
        assert heard(kept) == heard(exact)


def test_folders_that_hold_something_else_than_they_say_are_refused(tmp_path: Path) -> None:
    source = write_lively(CONFIGS["voxtral"], tmp_path / "source")
    out = tmp_path / "out"
    convert(source, out, "int8")
    file = out / "model.safetensors"
    stored = load_file(file)
    scale = stored.pop("lm_head.weight_scale")
    stored["language_model.model.layers.0.mlp.up_proj.weight"] = torch.ones(96, 64)
    save_file(stored, file)
    with pytest.raises(WeightsError) as caught:
        load_model(out, "random", "cpu")
    assert "missing: lm_head.weight_scale [300]" in str(caught.value)
    assert "dtype torch.float32 is not supported: decoder.layers.0.ffn.up_proj.weight" in str(caught.value)

    save_file(stored | {"lm_head.weight_scale": scale}, file)
    config = json.loads((out / "config.json").read_text())
    for quantization, message in (
        ({"quant_method": "gptq", "bits": 4}, "quant_method is 'gptq'"),
        ({"quant_method": "transom", "weights": "int3"}, "weights is 'int3'; supported: 'bf16' or 'fp16' or 'int8'"),
        ({"quant_method": "transom"}, "weights is missing"),
    ):
        (out / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
        with pytest.raises(ConfigError, match=message):
            load_model(out, "random", "cpu")


def test_values_beyond_float16_are_named_and_not_clipped(tmp_path: Path) -> None:
    source = write_lively(CONFIGS["voxtral"], tmp_path)
    file = source / "model.safetensors"
    stored = load_file(file)
    stored["language_model.model.layers.1.mlp.down_proj.weight"][3, 5] = 70_000
    save_file(stored, file)
    with pytest.raises(WeightsError, match=r"decoder\.layers\.1\.ffn\.down_proj\.weight goes from .* to 70000"):
        load_model(source, "random", "cpu", weights="fp16")
    assert load_model(source, "random", "cpu", weights="int8").weights == "int8"


def test_convert_writes_into_new_folders_only_and_no_model_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = write_lively(CONFIGS["voxtral"], tmp_path / "source"), tmp_path / "out"
    assert main(["convert", str(source), str(source), "--weights", "int8"]) == 1
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert main(["convert", str(source), str(out), "--weights", "int8"]) == 0
    assert f"transom serve {out}" in capsys.readouterr().out
    assert main(["convert", str(out), str(tmp_path / "again"), "--weights", "fp16"]) == 1
    assert "holds int8 weights already; convert the original" in capsys.readouterr().err
    (source / "tekken.json").unlink()
    assert main(["convert", str(source), str(tmp_path / "again"), "--weights", "fp16"]) == 1
    assert "holds no tekken.json" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()
