import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import VoxtralRealtimeConfig, VoxtralRealtimeForConditionalGeneration

from benchmarks.random_checkpoint import VOXTRAL_4B
from tests.unit.weights_models import VOXTRAL, WHISPER, as_stored, random_weights
from transom.config import ModelConfig
from transom.errors import WeightsError
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config, write_model_config
from transom.weights.names import Layout, canonical_name
from transom.weights.shapes import expected_shapes

FILES: dict[Layout, str] = {"huggingface": "model.safetensors", "mistral": "consolidated.safetensors"}
Weights = dict[str, torch.Tensor]


def assert_same(loaded: Weights, expected: Weights) -> None:
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(loaded[name], tensor), name


@pytest.mark.parametrize(
    ("config", "layout"), [(VOXTRAL, "huggingface"), (WHISPER, "huggingface"), (VOXTRAL, "mistral")]
)
def test_weights_come_back_from_each_layout(config: ModelConfig, layout: Layout, tmp_path: Path) -> None:
    weights = random_weights(config)
    save_file(as_stored(weights, config, layout), tmp_path / FILES[layout])
    assert_same(load_checkpoint(tmp_path, config), weights)


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    weights = random_weights(VOXTRAL)
    stored = list(as_stored(weights, VOXTRAL, "huggingface").items())
    parts = {"model-00001-of-00002.safetensors": stored[::2], "model-00002-of-00002.safetensors": stored[1::2]}
    for file, items in parts.items():
        save_file(dict(items), tmp_path / file)
    index = {"weight_map": {name: file for file, items in parts.items() for name, _ in items}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(load_checkpoint(tmp_path, VOXTRAL), weights)

    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match="not there: model-00002-of-00002"):
        load_checkpoint(tmp_path, VOXTRAL)


@pytest.mark.parametrize("content", ["{", "{}", '{"weight_map": {"a": "../other.safetensors"}}'])
def test_an_index_that_is_broken_or_leaves_its_folder_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(WeightsError, match=r"index\.json"):
        load_checkpoint(tmp_path, VOXTRAL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_tensor_gets_the_dtype_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = random_weights(VOXTRAL)
    save_file(as_stored(weights, VOXTRAL, "mistral"), tmp_path / FILES["mistral"])
    assert_same(
        load_checkpoint(tmp_path, VOXTRAL, dtype=dtype), {name: tensor.to(dtype) for name, tensor in weights.items()}
    )


def test_all_misfits_are_named_in_one_error(tmp_path: Path) -> None:
    stored = as_stored(random_weights(VOXTRAL), VOXTRAL, "huggingface")
    del stored["audio_tower.layers.1.self_attn.q_proj.bias"]
    stored["audio_tower.layers.0.self_attn.k_proj.bias"] = torch.zeros(18)
    stored["ctc.weight"] = torch.zeros(2)
    stored["language_model.model.norm.weight"] = torch.zeros(13)
    stored["model.language_model.embed_tokens.weight"] = stored["language_model.model.embed_tokens.weight"].clone()
    stored["audio_tower.norm.weight"] = stored["audio_tower.norm.weight"].to(torch.int8)
    save_file(stored, tmp_path / FILES["huggingface"])
    with pytest.raises(WeightsError) as caught:
        load_checkpoint(tmp_path, VOXTRAL)
    for complaint in (
        "missing: encoder.layers.1.attention.q_proj.bias [18]",
        "not part of the model: encoder.layers.0.attention.k_proj.bias",
        "not part of the model: ctc.weight",
        "misshapen: decoder.norm.weight is [13], the configuration says [12]",
        "stored twice: decoder.embed_tokens.weight",
        "torch.int8 is not supported: encoder.norm.weight",
    ):
        assert complaint in str(caught.value)


def test_a_checkpoint_of_another_size_is_refused_with_a_bounded_list(tmp_path: Path) -> None:
    save_file(as_stored(random_weights(VOXTRAL), VOXTRAL, "mistral"), tmp_path / FILES["mistral"])
    other = replace(VOXTRAL, encoder=replace(VOXTRAL.encoder, num_heads=5, num_layers=4))
    with pytest.raises(WeightsError, match=r"and \d+ more$") as caught:
        load_checkpoint(tmp_path, other)
    assert str(caught.value).count("\n") == 9


@pytest.mark.parametrize("name", ["lm_head.weight", "language_model.lm_head.weight", "output.weight"])
def test_an_output_projection_is_accepted_only_as_a_copy_of_the_embedding(name: str, tmp_path: Path) -> None:
    weights = random_weights(VOXTRAL)
    stored = as_stored(weights, VOXTRAL, "huggingface")
    stored[name] = weights["decoder.embed_tokens.weight"].clone()
    save_file(stored, tmp_path / FILES["huggingface"])
    assert_same(load_checkpoint(tmp_path, VOXTRAL), weights)

    stored[name][-1, -1] += 1
    save_file(stored, tmp_path / FILES["huggingface"])
    with pytest.raises(WeightsError, match="output projection differs"):
        load_checkpoint(tmp_path, VOXTRAL)


def test_truncated_foreign_and_pointer_files_are_named_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / FILES["huggingface"]
    save_file(as_stored(random_weights(VOXTRAL), VOXTRAL, "huggingface"), file)
    whole = file.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], whole[:7], b"", b"PK\x03\x04" * 100):
        file.write_bytes(content)
        with pytest.raises(WeightsError, match=r"model\.safetensors is truncated .* download it again"):
            load_checkpoint(tmp_path, VOXTRAL)
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(WeightsError, match="git lfs pull"):
        load_checkpoint(tmp_path, VOXTRAL)


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"holds no model\.safetensors"):
        load_checkpoint(tmp_path, VOXTRAL)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin can run code when read and is not supported"):
        load_checkpoint(tmp_path, VOXTRAL)


def test_the_file_that_transformers_saves_loads_whole(tmp_path: Path) -> None:
    write_model_config(VOXTRAL, tmp_path)
    model = VoxtralRealtimeForConditionalGeneration(VoxtralRealtimeConfig.from_pretrained(tmp_path))
    model.save_pretrained(tmp_path)
    config = read_model_config(tmp_path)
    config = replace(config, decoder=replace(config.decoder, delay_rank=32))  # fixed in transformers
    loaded = load_checkpoint(tmp_path, config)
    state = {canonical_name(name): tensor for name, tensor in model.state_dict().items()}
    assert_same(loaded, {found[0]: tensor for found, tensor in state.items() if found and found[0] in loaded})


def private_memory_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_loading_maps_the_file_and_copies_none_of_it(tmp_path: Path) -> None:
    wide = replace(VOXTRAL, decoder=replace(VOXTRAL.decoder, vocab_size=100_000, hidden_size=1000))
    stored = {name: torch.ones(shape, dtype=torch.bfloat16) for name, shape in expected_shapes(wide).items()}
    save_file(as_stored(stored, wide, "huggingface"), tmp_path / FILES["huggingface"])
    size_bytes = (tmp_path / FILES["huggingface"]).stat().st_size
    assert size_bytes > 200e6
    del stored

    before_bytes = private_memory_bytes()
    loaded = load_checkpoint(tmp_path, wide, dtype=torch.bfloat16)
    assert sum(tensor.untyped_storage().nbytes() for tensor in loaded.values()) > 200e6
    touched = sum(float(tensor.amax()) for tensor in loaded.values())
    assert touched != 0
    assert private_memory_bytes() - before_bytes < size_bytes / 20


def test_the_4b_model_has_the_published_number_of_parameters() -> None:
    shapes = expected_shapes(VOXTRAL_4B)
    assert len(shapes) == 711
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == 4_429_679_360
