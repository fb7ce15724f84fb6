"""Puts an engine together: files -> config, tokenizer and weights -> model, cache and runner."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import torch

from transom.config import (
    MAX_DELAY_TOKENS,
    TOKEN_MS,
    CacheConfig,
    CpuKernels,
    DType,
    EngineConfig,
    ModelConfig,
    Weights,
)
from transom.engine.api import EngineInfo
from transom.engine.engine import Engine
from transom.engine.graphs import CudaGraphs
from transom.engine.language_model import LanguageModel
from transom.engine.model import SpeechModel, build_model
from transom.engine.prefix import SilentPrefix
from transom.engine.rounded import build_rounded_model, rounding
from transom.engine.runner import Runner
from transom.engine.search import BeamSearch
from transom.engine.stepper import Stepper
from transom.engine.turn import Prompt
from transom.errors import ConfigError
from transom.kernels.backend import AttentionBackend
from transom.kernels.select import select_backend
from transom.kvcache.layout import CacheLayout, StepLimits, plan_groups, streams_that_fit
from transom.kvcache.manager import CacheManager
from transom.native.library import Library, choose_library
from transom.tokenizer.tekken import Tokenizer
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config, read_stored_weights
from transom.weights.hub import LANGUAGE_MODEL_FILE, TOKENIZER_FILE
from transom.weights.shapes import expected_shapes

logger = logging.getLogger(__name__)

SMALL_MODEL_PARAMETERS = 1_000_000_000


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory; ``library`` has its kernels on a CPU, None for torch's."""

    name: str
    model: SpeechModel
    tokenizer: Tokenizer
    dtype: DType
    weights: Weights | None = None
    library: Library | None = None
    language_model: LanguageModel | None = None


def load_model(
    folder: Path,
    name: str,
    device: str,
    dtype: DType | None = None,
    weights: Weights | None = None,
    cpu_kernels: CpuKernels = "auto",
) -> LoadedModel:
    """Read a model folder. Raises ConfigError, TokenizerError or WeightsError, naming the file at fault."""
    config = read_model_config(folder)
    tokenizer = Tokenizer.from_file(folder / TOKENIZER_FILE)
    _check_tokenizer(config, tokenizer, folder)
    language_model = _language_model(tokenizer, folder)
    library = choose_library(cpu_kernels, device)
    if weights := rounding(weights, read_stored_weights(folder), device, dtype, library):
        model = build_rounded_model(config, load_checkpoint(folder, config), weights, library)
        return LoadedModel(name, model, tokenizer, "float32", weights, library, language_model)
    dtype = dtype or default_dtype(config, device)
    tensors = load_checkpoint(folder, config, dtype=getattr(torch, dtype))
    model = build_model(config, tensors, torch.device(device), library)
    return LoadedModel(name, model, tokenizer, dtype, library=library, language_model=language_model)


def default_dtype(config: ModelConfig, device: str) -> DType:
    """bfloat16 on a GPU and for large models, float32 for small ones on a CPU."""
    num_parameters = sum(prod(shape) for shape in expected_shapes(config).values())
    return "float32" if device == "cpu" and num_parameters < SMALL_MODEL_PARAMETERS else "bfloat16"


def build_engine(
    loaded: LoadedModel, cache_config: CacheConfig, config: EngineConfig, backend: AttentionBackend | None = None
) -> Engine:
    """An engine on a loaded model, not yet started, on ``backend`` or the one that is selected for the machine.

    Raises BackendError or ConfigError.
    """
    model = loaded.model
    prompt = make_prompt(model.config, loaded.tokenizer)
    precision = f"{loaded.weights} weights, {loaded.dtype}" if loaded.weights else loaded.dtype
    if loaded.library:
        precision = f"{precision}, {loaded.library.description}"
    heads = (model.config.encoder.head_dim, model.config.decoder.head_dim)
    quantized = cache_config.dtype == "int8"
    if quantized:
        precision = f"{precision}, int8 keys and values"
    backend = backend or select_backend(
        config.attention_backend, model.device, model.dtype, heads, quantized=quantized, library=loaded.library
    )
    beam = make_beam(loaded, config.num_hypotheses)
    layout = make_layout(loaded, cache_config, config, backend, prompt)
    max_sessions = min(config.max_sessions, streams_that_fit(layout))
    if max_sessions < config.max_sessions:
        logger.warning(
            "the cache holds %d sessions, not %d: each may need %d MiB; give it more with --cache-memory",
            max_sessions,
            config.max_sessions,
            -(-sum(group.stream_bytes for group in layout.groups) // 2**20),
        )
    runner = Runner(
        model,
        layout,
        backend,
        num_rows=max_sessions,
        library=loaded.library,
        gives_log_probabilities=beam is not None,
    )
    if beam is None and model.device.type == "cuda" and config.max_graph_streams is not None:
        runner.capture_steady_steps(CudaGraphs(model.device), min(max_sessions, config.max_graph_streams))
    cache = CacheManager([group.group for group in layout.groups])
    info = EngineInfo(
        model=loaded.name,
        sample_rate=model.config.audio.sample_rate,
        default_delay_ms=prompt.default_delay_tokens * TOKEN_MS,
        max_sessions=max_sessions,
        description=f"{precision} on {model.device}, {backend.name} attention, up to {max_sessions} sessions"
        + (f" of {beam.config.num_hypotheses} hypotheses" if beam else ""),
    )
    prefix = SilentPrefix(runner, cache, prompt, max_delays=max_sessions)
    stepper = Stepper(runner, cache, prefix, prompt, loaded.tokenizer, config.max_step_tokens, beam)
    return Engine(info, stepper, config)


def make_prompt(config: ModelConfig, tokenizer: Tokenizer) -> Prompt:
    """How streams of this model begin and end; the delay is the tokenizer's."""
    return Prompt(
        bos_id=tokenizer.bos,
        pad_id=tokenizer.streaming_pad,
        first_text_id=tokenizer.num_special_tokens,
        left_pad_tokens=tokenizer.audio.n_left_pad_tokens,
        default_delay_tokens=-(-tokenizer.audio.transcription_delay_ms // TOKEN_MS),
        audio=config.audio,
    )


def make_beam(loaded: LoadedModel, num_hypotheses: int | None) -> BeamSearch | None:
    """How a model with a language model is decoded: by ``num_hypotheses``, or as many as it says; None is greedily.

    Raises ConfigError if a model without one is to be decoded by several.
    """
    language_model, tokenizer = loaded.language_model, loaded.tokenizer
    if num_hypotheses == 1 or (num_hypotheses is None and language_model is None):
        return None
    if language_model is None:
        raise ConfigError(f"{loaded.name} has no {LANGUAGE_MODEL_FILE}: it is decoded with --hypotheses 1 only")
    config = replace(language_model.search, num_hypotheses=num_hypotheses or language_model.search.num_hypotheses)
    pad_id, mark_id = tokenizer.streaming_pad, tokenizer.streaming_word
    return BeamSearch(language_model, config, pad_id, mark_id, tokenizer.num_special_tokens)


def make_layout(
    loaded: LoadedModel, cache_config: CacheConfig, config: EngineConfig, backend: AttentionBackend, prompt: Prompt
) -> CacheLayout:
    """The cache's layout for at most ``config.max_sessions`` streams, within the budget."""
    beam = make_beam(loaded, config.num_hypotheses)
    longest_prompt = prompt.num_tokens(MAX_DELAY_TOKENS) - prompt.shared_tokens
    limits = StepLimits(
        max_step_tokens=max(min(longest_prompt, config.max_step_tokens), prompt.shared_tokens),
        prefix_tokens=prompt.shared_tokens,
        num_hypotheses=beam.config.num_hypotheses if beam else 1,
        max_lag_tokens=beam.config.max_lag_tokens if beam else 0,
    )
    return plan_groups(loaded.model.config, cache_config, backend, loaded.dtype, limits)


def _language_model(tokenizer: Tokenizer, folder: Path) -> LanguageModel | None:
    file = folder / LANGUAGE_MODEL_FILE
    if not file.is_file():
        return None
    language_model = LanguageModel.load(file)
    num_pieces = tokenizer.vocab_size - tokenizer.num_special_tokens
    if language_model.num_symbols != num_pieces + 1:
        raise ConfigError(
            f"{file} knows {language_model.num_symbols - 1} pieces and a word mark, "
            f"{TOKENIZER_FILE} has {num_pieces}: the two files belong to different models"
        )
    return language_model


def _check_tokenizer(config: ModelConfig, tokenizer: Tokenizer, folder: Path) -> None:
    facts = (
        ("vocabulary size", tokenizer.vocab_size, config.decoder.vocab_size),
        ("mel bins", tokenizer.audio.num_mel_bins, config.audio.num_mel_bins),
        ("sampling rate", tokenizer.audio.sampling_rate, config.audio.sample_rate),
        ("hop length", tokenizer.audio.hop_length, config.audio.hop_length),
        ("window size", tokenizer.audio.window_size, config.audio.n_fft),
        ("frame rate", tokenizer.audio.frame_rate, 1000 / TOKEN_MS),
    )
    for what, of_tokenizer, of_model in facts:
        if of_tokenizer != of_model:
            raise ConfigError(
                f"{folder / TOKENIZER_FILE} has {what} {of_tokenizer}, but the model's config has {of_model}: "
                "the two files belong to different models"
            )
    if not 0 < tokenizer.audio.transcription_delay_ms <= MAX_DELAY_TOKENS * TOKEN_MS:
        raise ConfigError(
            f"{folder / TOKENIZER_FILE} has transcription_delay_ms {tokenizer.audio.transcription_delay_ms}: "
            f"it must be from 1 to {MAX_DELAY_TOKENS * TOKEN_MS}"
        )
