import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.weights_models import VOXTRAL, WHISPER
from transom.config import ModelConfig
from transom.weights.names import Layout, canonical_name, half_split, interleaved, is_rotated, stored_name
from transom.weights.shapes import expected_shapes

MISTRAL_AUDIO = "mm_streams_embeddings.embedding_module."


@pytest.mark.parametrize(
    ("config", "layout"), [(VOXTRAL, "huggingface"), (WHISPER, "huggingface"), (VOXTRAL, "mistral")]
)
def test_every_parameter_has_one_stored_name_and_comes_back_from_it(config: ModelConfig, layout: Layout) -> None:
    names = list(expected_shapes(config))
    stored = [stored_name(name, layout) for name in names]
    assert len(set(stored)) == len(names)
    assert [canonical_name(name) for name in stored] == [(name, layout) for name in names]


@pytest.mark.parametrize(
    ("stored", "canonical"),
    [
        ("audio_tower.embedder.conv2.bias", "encoder.stem.conv2.bias"),
        ("model.audio_tower.layers.31.self_attn.q_proj.bias", "encoder.layers.31.attention.q_proj.bias"),
        ("audio_tower.layers.0.mlp.fc1.bias", "encoder.layers.0.ffn.fc1.bias"),
        ("model.multi_modal_projector.linear_2.weight", "encoder.adapter.linear2.weight"),
        ("language_model.model.layers.7.input_layernorm.weight", "decoder.layers.7.attention_norm.weight"),
        ("model.language_model.layers.7.ada_rms_norm.linear1.weight", "decoder.layers.7.delay.linear1.weight"),
        ("model.language_model.embed_tokens.weight", "decoder.embed_tokens.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("output.weight", "lm_head.weight"),
        ("norm.weight", "decoder.norm.weight"),
        ("layers.25.feed_forward.w3.weight", "decoder.layers.25.ffn.up_proj.weight"),
        (f"{MISTRAL_AUDIO}whisper_encoder.conv_layers.0.conv.weight", "encoder.stem.conv1.weight"),
        ("mm_whisper_embeddings.whisper_encoder.conv_layers.1.bias", "encoder.stem.conv2.bias"),
        (
            "mm_whisper_embeddings.whisper_encoder.transformer.layers.3.attention.wq.bias",
            "encoder.layers.3.attention.q_proj.bias",
        ),
        ("mm_whisper_embeddings.audio_language_projection.0.weight", "encoder.adapter.linear1.weight"),
        (f"{MISTRAL_AUDIO}tok_embeddings.weight", "decoder.embed_tokens.weight"),
    ],
)
def test_all_spellings_of_a_name_are_understood(stored: str, canonical: str) -> None:
    found = canonical_name(stored)
    assert found is not None
    assert found[0] == canonical


@pytest.mark.parametrize(
    "stored", ["", "weight", "model.norm.weight", "layers.x.attention.wq.weight", "ctc.1.bias", "audio_tower.weight"]
)
def test_a_name_of_no_layout_is_not_understood(stored: str) -> None:
    assert canonical_name(stored) is None


def test_queries_and_keys_are_rotated_and_the_query_bias_with_them() -> None:
    rotated = {name.split(".attention.")[1] for name in expected_shapes(VOXTRAL) if is_rotated(name)}
    assert rotated == {"q_proj.weight", "q_proj.bias", "k_proj.weight"}


def test_half_split_moves_even_rows_of_each_head_before_its_odd_rows() -> None:
    assert half_split(torch.arange(12), num_heads=2).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


@given(heads=st.integers(1, 5), half=st.integers(1, 6), columns=st.one_of(st.none(), st.integers(1, 3)))
def test_interleaving_undoes_the_half_split(heads: int, half: int, columns: int | None) -> None:
    rows = torch.arange(heads * half * 2 * (columns or 1))
    rows = rows if columns is None else rows.view(-1, columns)
    assert torch.equal(interleaved(half_split(rows, heads), heads), rows)
    assert torch.equal(half_split(interleaved(rows, heads), heads), rows)
