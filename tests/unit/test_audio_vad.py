"""Voice activity: Silero's network equals its own TorchScript, and both detectors hear real speech."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transom.audio import vad as vad_module
from transom.audio.files import read_audio
from transom.audio.silero import FRAME_SAMPLES, SileroNetwork, find_silero
from transom.audio.vad import EnergyVad, Samples, SileroVad, Vad, load_vad
from transom.errors import ConfigError

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/golden/audio/clock.flac"
SECOND = 16_000

needs_silero = pytest.mark.skipif(
    find_silero() is None, reason="silero-vad is not installed: pip install -e '.[vad]'"
)


def silero_path() -> Path:
    path = find_silero()
    assert path is not None
    return path


def noise(num_samples: int, level_db: float) -> Samples:
    return np.asarray(10 ** (level_db / 20) * np.random.default_rng(0).standard_normal(num_samples), np.float32)


def speech_between_silences(noise_db: float) -> Samples:
    """A second of silence, 4.96 s of a sentence spoken without a pause, two seconds of silence; and noise on all."""
    silence = np.zeros(SECOND, np.float32)
    samples = np.concatenate([silence, read_audio(RECORDING), silence, silence])
    return np.asarray(samples + noise(len(samples), noise_db), np.float32)


def make_vad(kind: str) -> Vad:
    return load_vad("silero" if kind == "silero" else "energy")()


@needs_silero
@pytest.mark.filterwarnings("ignore:.torch.jit.load. is:DeprecationWarning")
def test_the_network_equals_its_torchscript() -> None:
    samples = speech_between_silences(-45)
    load: Any = torch.jit.load
    model = load(str(silero_path()), map_location="cpu")
    frames = torch.from_numpy(samples[: len(samples) // FRAME_SAMPLES * FRAME_SAMPLES]).view(-1, 1, FRAME_SAMPLES)
    with torch.inference_mode():
        expected = np.array([model(frame, SECOND).item() for frame in frames])
    assert expected.max() > 0.95
    assert expected.min() < 0.05
    assert np.abs(make_vad("silero").push(samples) - expected).max() < 1e-4


@pytest.mark.parametrize("kind", [pytest.param("silero", marks=needs_silero), "energy"])
@pytest.mark.parametrize("size", [160, 511, 513, 3000])
def test_chunks_of_any_size_give_the_same_bits(kind: str, size: int) -> None:
    samples = speech_between_silences(-45)[: 3 * SECOND]
    detector = make_vad(kind)
    pieces = [detector.push(samples[start : start + size]) for start in range(0, len(samples), size)]
    assert np.array_equal(np.concatenate(pieces), make_vad(kind).push(samples))


@pytest.mark.parametrize("kind", [pytest.param("silero", marks=needs_silero), "energy"])
def test_a_reset_forgets_the_stream_and_no_detector_hears_another_one_s(kind: str) -> None:
    samples = speech_between_silences(-45)
    fresh = make_vad(kind).push(samples[: 2 * SECOND])
    make = load_vad("silero" if kind == "silero" else "energy")
    used, other = make(), make()
    used.push(samples[SECOND : 3 * SECOND + 100])
    assert np.array_equal(other.push(samples[: 2 * SECOND]), fresh)
    used.reset()
    assert np.array_equal(used.push(samples[: 2 * SECOND]), fresh)


@pytest.mark.parametrize(
    ("kind", "noise_db", "least"),
    [
        pytest.param("silero", -90, 0.95, marks=needs_silero),
        pytest.param("silero", -30, 0.95, marks=needs_silero),
        ("energy", -90, 0.85),
        ("energy", -45, 0.75),
    ],
)
def test_real_speech_is_heard_and_the_silence_around_it_is_not(kind: str, noise_db: float, least: float) -> None:
    probabilities = make_vad(kind).push(speech_between_silences(noise_db))
    assert (probabilities[:28] < 0.35).all()
    assert (probabilities[40:180] >= 0.35).mean() >= least
    assert (probabilities[-55:] < 0.35).all()


@pytest.mark.parametrize("kind", [pytest.param("silero", marks=needs_silero), "energy"])
@pytest.mark.parametrize("level_db", [-120, -60, -40, -30])
def test_white_noise_from_the_start_is_no_speech(kind: str, level_db: float) -> None:
    assert make_vad(kind).push(noise(10 * SECOND, level_db)).max() < 0.35


def test_the_energy_gate_learns_a_noise_that_is_switched_on() -> None:
    detector = EnergyVad()
    detector.push(noise(5 * SECOND, -60))
    assert detector.push(noise(SECOND, -35)).max() > 0.5
    detector.push(noise(9 * SECOND, -35))
    assert detector.push(noise(SECOND, -35)).max() < 0.35


@needs_silero
def test_neither_torch_nor_silero_s_package_is_imported() -> None:
    code = (
        "import sys; from transom.audio.vad import load_vad; import numpy;"
        " load_vad('silero')().push(numpy.zeros(9999, numpy.float32));"
        " assert not {'torch', 'silero_vad'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_without_the_package_auto_is_the_energy_gate_and_silero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vad_module, "find_silero", lambda: None)
    assert isinstance(load_vad("auto")(), EnergyVad)
    with pytest.raises(ConfigError, match=r"pip install 'transom\[vad\]'"):
        load_vad("silero")


@needs_silero
def test_with_the_package_auto_is_silero() -> None:
    assert isinstance(load_vad("auto")(), SileroVad)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.jit").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "code.jit", "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(subprocess.run))  # would be called by a plain unpickler
    with zipfile.ZipFile(tmp_path / "other.jit", "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"_model": 1}))
    for name, reason in [("text", "BadZipFile"), ("code", "unexpected class subprocess.run"), ("other", "no module")]:
        with pytest.raises(ConfigError, match=rf"{name}\.jit .*{reason}.*choose the energy gate"):
            SileroNetwork(tmp_path / f"{name}.jit")
