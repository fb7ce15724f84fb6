"""Forced alignment on toys, and Whisper's weights read from a CTranslate2 package."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.training_models import write_shards
from training.align import AlignConfig, Aligner, align, hearable, labels, train, word_ends_ms, write
from training.shards import Utterance, load
from training.teach import batches, hear, teach
from training.viterbi import best_path, character_spans
from training.whisper import as_our_encoder, encode, whisper_weights
from training.whisper_baseline import _hf_model
from transom.errors import WeightsError

SIZE = 64


def spelled(path: tuple[int, ...]) -> list[int]:
    return [label for label, _ in itertools.groupby(path) if label]


@pytest.mark.parametrize("text", [[1, 2], [1, 1], [2], [1, 2, 1]])
def test_the_best_path_is_the_best_of_all_paths_that_spell_the_text(text: list[int]) -> None:
    log_probabilities = np.log(np.random.default_rng(len(text)).dirichlet((1, 1, 1), size=5))
    expected = max(
        sum(row[label] for row, label in zip(log_probabilities, path, strict=True))
        for path in itertools.product(range(3), repeat=5)
        if spelled(path) == text
    )
    found = best_path(log_probabilities, text)
    assert found is not None
    path, score = found
    assert score == pytest.approx(expected)
    classes = tuple(0 if state % 2 == 0 else text[state // 2] for state in path.tolist())
    assert spelled(classes) == text
    spans = character_spans(path)
    assert len(spans) == len(text)
    assert all(first <= last for first, last in spans)


def test_a_text_that_is_longer_than_its_sound_has_no_path() -> None:
    assert best_path(np.zeros((2, 3)), [1, 1]) is None


def test_a_word_ends_after_its_last_character_and_before_the_next_word() -> None:
    utterance = Utterance("x", "s", Path(), "lj", 0, 60, ("ab", "c"))
    spans = [(2, 3), (5, 6), (7, 7), (8, 9)]
    assert word_ends_ms(spans, utterance) == [8 * 20, 10 * 20 + 60]


def test_an_aligner_learns_where_characters_are(tmp_path: Path) -> None:
    texts = ("ab ba", "ba ab", "aa bb", "bab ab", "abba a", "b a b")
    write_shards(tmp_path, "lj", texts)
    utterances = load(tmp_path, "lj")
    features = np.fromfile(tmp_path / "lj.tf", np.float16).reshape(-1, SIZE)
    features[:] = 0
    for one in utterances:  # a character every 80 ms, each with a feature of its own
        for position, label in enumerate(labels(one)):
            features[one.first_frame // 2 + 4 * position + 2, label] = 8
    features.tofile(tmp_path / "lj.tf")
    model = train(tmp_path, AlignConfig(steps=250, batch_size=3, dropout=0))
    for one, score, ends in align(model, hearable(tmp_path, "lj")):
        assert score > -1.0
        spikes_ms = [(4 * (sum(map(len, one.words[: i + 1])) + i - 1) + 3) * 20 for i in range(len(one.words))]
        assert np.abs(np.array(ends) - spikes_ms).max() <= 120
    assert write(model, tmp_path, "lj") == (len(texts), len(texts))
    assert all(one.ends_ms for one in load(tmp_path, "lj"))
    with pytest.raises(FileNotFoundError, match=r"training\.teach"):
        train(tmp_path / "lj", AlignConfig())


def write_package(folder: Path, num_mel_bins: int = 80, positions: int = 60, scale: str = "") -> None:
    """A random CTranslate2 Whisper of one layer."""
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) * 0.1).astype(np.float16)

    variables = {
        "encoder/conv1/weight": draw(SIZE, num_mel_bins, 3),
        "encoder/conv2/weight": draw(SIZE, SIZE, 3),
        "decoder/embeddings/weight": draw(50, SIZE),
        **{f"encoder/{name}/bias": draw(SIZE) for name in ("conv1", "conv2")},
        **{f"{part}/position_encodings/encodings": draw(positions, SIZE) for part in ("encoder", "decoder")},
    }
    if scale:
        variables[scale] = draw(1)
    norms = ["encoder/layer_norm", "decoder/layer_norm"]
    linears: dict[str, tuple[int, int]] = {}
    for part in ("encoder", "decoder"):
        layer = f"{part}/layer_0"
        norms += [f"{layer}/self_attention/layer_norm", f"{layer}/ffn/layer_norm"]
        linears |= {
            f"{layer}/self_attention/linear_0": (3 * SIZE, SIZE),
            f"{layer}/self_attention/linear_1": (SIZE, SIZE),
        }
        linears |= {f"{layer}/ffn/linear_0": (4 * SIZE, SIZE), f"{layer}/ffn/linear_1": (SIZE, 4 * SIZE)}
    norms.append("decoder/layer_0/attention/layer_norm")
    cross = "decoder/layer_0/attention/linear_"
    linears |= {f"{cross}0": (SIZE, SIZE), f"{cross}1": (2 * SIZE, SIZE), f"{cross}2": (SIZE, SIZE)}
    for name in norms:
        variables |= {f"{name}/gamma": 1 + draw(SIZE), f"{name}/beta": draw(SIZE)}
    for name, shape in linears.items():
        variables |= {f"{name}/weight": draw(*shape), f"{name}/bias": draw(shape[0])}

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    content = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, array in variables.items():
        shape_bytes = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        content += text(name) + shape_bytes + struct.pack("<BI", 4, array.nbytes) + array.tobytes()
    (folder / "model.bin").write_bytes(content + struct.pack("<I", 0))


def test_a_packages_weights_compute_what_whisper_does(tmp_path: Path) -> None:
    write_package(tmp_path)
    weights = whisper_weights(tmp_path)
    mel = torch.randn(2, 120, 80, generator=torch.Generator().manual_seed(0))
    ours = encode(weights, mel)
    theirs = _hf_model(weights).model.encoder(mel.transpose(1, 2)).last_hidden_state
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert {"encoder.stem.conv1.weight", "encoder.layers.0.attention.q_proj.bias", "encoder.norm.bias"} <= set(
        as_our_encoder(weights)
    )


def test_features_stand_where_their_recordings_do(tmp_path: Path) -> None:
    write_package(tmp_path, positions=1500)
    write_shards(tmp_path, "lj", ("a b", "a b c d", "a"))
    weights = whisper_weights(tmp_path)
    teach(tmp_path, "lj", weights)
    utterances = load(tmp_path, "lj")
    (group,) = batches(utterances)
    assert {one.name for one in group} == {one.name for one in utterances}
    for one, expected in zip(group, hear(weights, group), strict=True):
        assert one.feature_size == SIZE
        np.testing.assert_array_equal(one.features(), expected.astype(np.float32))


def test_a_package_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"model\.bin"):
        whisper_weights(tmp_path)
    write_package(tmp_path, scale="encoder/layer_0/ffn/linear_0/weight_scale")
    with pytest.raises(WeightsError, match="quantized"):
        whisper_weights(tmp_path)
    (tmp_path / "model.bin").write_bytes(struct.pack("<I", 3) + bytes(40))
    with pytest.raises(WeightsError, match="format 3"):
        whisper_weights(tmp_path)


def test_the_aligners_parameters_are_few() -> None:
    assert sum(parameter.numel() for parameter in Aligner(384).parameters()) < 900_000
