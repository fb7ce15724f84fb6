"""Silero's voice activity network for 16 kHz in numpy: the weights of the released model, no torch, no thread.

The package ``silero_vad`` is never imported (that sets torch's number of threads); only its TorchScript archive is
read, whose tensors a plain unpickler restores. The network sees a frame of 512 samples and the 64 before it: a short
Fourier transform of four columns, four convolutions over them that leave one column, an LSTM cell, one output.

Legend: F frames, T columns of a frame, C channels. Everything is float32. Products are done frame by frame, so that
the bits of a frame do not depend on the frames that come with it, and are small enough for BLAS to start no thread.
"""

from __future__ import annotations

import importlib.util
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from transom.errors import ConfigError

Array = NDArray[np.float32]

FRAME_SAMPLES = 512
CONTEXT_SAMPLES = 64
_FFT_SAMPLES = 256
_HOP_SAMPLES = 128
_BINS = _FFT_SAMPLES // 2 + 1
_HIDDEN = 128
_STRIDES = (1, 2, 2, 1)


def find_silero() -> Path | None:
    """The archive of the installed ``silero-vad`` package, or None where the package is not there."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data" / "silero_vad.jit"


class SileroNetwork:
    """The network without a state, for any number of streams. Raises ConfigError for an archive of another kind."""

    def __init__(self, path: Path) -> None:
        try:
            self._take(_read_archive(path))
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
            raise ConfigError(
                f"{path} is not the voice activity model that was expected ({type(error).__name__}: {error});"
                " install silero-vad 6, or choose the energy gate"
            ) from error

    def first_state(self) -> Array:
        """The state before the first frame: hidden and cell values, [2, 128]."""
        return np.zeros((2, _HIDDEN), np.float32)

    def __call__(self, frames: Array, state: Array) -> tuple[Array, Array]:
        """Speech probabilities [F] of consecutive ``frames`` [F, 64 + 512] of one stream, and its next state."""
        gates = self._encode(frames)
        probabilities = np.empty(len(frames), np.float32)
        hidden, cell = state
        for index, gate in enumerate(gates):
            inputs, forget, candidate, output = (gate + hidden @ self._recurrent).reshape(4, _HIDDEN)
            cell = _sigmoid(forget) * cell + _sigmoid(inputs) * np.tanh(candidate)
            hidden = _sigmoid(output) * np.tanh(cell)
            probabilities[index] = np.maximum(hidden, 0) @ self._output + self._output_bias
        return _sigmoid(probabilities), np.stack([hidden, cell])

    def _encode(self, frames: Array) -> Array:
        """Inputs of the four gates of the LSTM, [F, 512]."""
        mirrored = frames[:, -2 : -2 - CONTEXT_SAMPLES : -1]
        windows = sliding_window_view(np.concatenate([frames, mirrored], axis=1), _FFT_SAMPLES, axis=1)
        columns = windows[:, ::_HOP_SAMPLES]
        x = np.sqrt((columns @ self._cosines) ** 2 + (columns @ self._sines) ** 2)
        for (weight, bias), stride in zip(self._convolutions, _STRIDES, strict=True):
            x = _convolve(x, weight, bias, stride)
        return cast(Array, (x @ self._input + self._gate_bias)[:, 0])

    def _take(self, tensors: dict[str, Array]) -> None:
        basis = tensors["stft.forward_basis_buffer"].reshape(2, _BINS, _FFT_SAMPLES)
        self._cosines, self._sines = (np.ascontiguousarray(part.T) for part in basis)
        self._convolutions = [
            _convolution(tensors[f"encoder.{i}.reparam_conv.weight"], tensors[f"encoder.{i}.reparam_conv.bias"])
            for i in range(len(_STRIDES))
        ]
        self._input = np.ascontiguousarray(tensors["decoder.rnn.weight_ih"].T)
        self._recurrent = np.ascontiguousarray(tensors["decoder.rnn.weight_hh"].T)
        self._gate_bias = tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"]
        self._output = tensors["decoder.decoder.2.weight"].reshape(_HIDDEN)
        self._output_bias = tensors["decoder.decoder.2.bias"][0]


def _sigmoid(x: Array) -> Array:
    return cast(Array, 0.5 * np.tanh(0.5 * x) + 0.5)  # unlike exp, tanh never overflows


def _convolution(weight: Array, bias: Array) -> tuple[Array, Array]:
    """A kernel of three columns [C_out, C_in, 3] as one matrix [3 C_in, C_out]."""
    return np.ascontiguousarray(weight.transpose(2, 1, 0).reshape(-1, len(weight))), bias


def _convolve(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """Convolve ``x`` [F, T, C_in] over T, one zero column on either side, and rectify: [F, T / stride, C_out]."""
    num_frames, num_columns, num_channels = x.shape
    padded = np.zeros((num_frames, num_columns + 2, num_channels), np.float32)
    padded[:, 1:-1] = x
    triples = np.concatenate([padded[:, tap : tap + num_columns : stride] for tap in range(3)], axis=2)
    return np.asarray(np.maximum(triples @ weight + bias, 0), np.float32)


class _Module:
    """Stands for every class of the archive: a bag of attributes."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _TensorUnpickler(pickle.Unpickler):
    """Restores tensors as arrays and modules as bags; knows no other class, so that nothing can be run."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}/data.pkl"))
        self._archive = archive
        self._root = root

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__."):
            return _Module
        known: dict[tuple[str, str], Callable[..., Any]] = {
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch", "FloatStorage"): float,
            ("torch.jit._pickle", "build_intlist"): list,
            ("collections", "OrderedDict"): dict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"unexpected class {module}.{name}")
        return known[module, name]

    def persistent_load(self, pid: Any) -> Array:
        key = pid[2]
        return np.frombuffer(self._archive.read(f"{self._root}/data/{key}"), "<f4")


def _rebuild_tensor(storage: Array, offset: int, shape: tuple[int, ...], *_rest: Any) -> Array:
    return storage[offset : offset + int(np.prod(shape))].reshape(shape)


def _read_archive(path: Path) -> dict[str, Array]:
    """Tensors of the archive's model for 16 kHz, by their dotted names."""
    with zipfile.ZipFile(path) as archive:
        root = archive.namelist()[0].split("/")[0]
        annotator = _TensorUnpickler(archive, root).load()
    if not isinstance(annotator, _Module):
        raise ValueError("it holds no module")
    return dict(_named_tensors(vars(annotator)["_model"], ""))


def _named_tensors(module: _Module, prefix: str) -> list[tuple[str, Array]]:
    found: list[tuple[str, Array]] = []
    for name, value in vars(module).items():
        if isinstance(value, _Module):
            found += _named_tensors(value, f"{prefix}{name}.")
        elif isinstance(value, np.ndarray):
            found.append((prefix + name, value))
    return found
