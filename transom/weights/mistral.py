"""``params.json`` in Mistral's layout and :class:`ModelConfig`, both ways.

The top level is the decoder; the encoder lies under ``multimodal.whisper_model_args``. Only the voxtral family has
weights in this layout. The file says nothing of the delay: that stands in ``tekken.json``.
"""

from __future__ import annotations

from transom.config import NO_WINDOW, AudioConfig, DecoderConfig, EncoderConfig, ModelConfig
from transom.errors import ConfigError
from transom.weights.sections import Section

FRAME_RATE_HZ = 12.5


def from_mistral(root: Section) -> ModelConfig:
    """Read a ``params.json``. Raises ConfigError at the first value that is missing or not supported."""
    whisper = root.section("multimodal").section("whisper_model_args")
    encoder = whisper.section("encoder_args")
    downsample = whisper.section("downsample_args")
    downsample.expect("downsample_factor", EncoderConfig.downsample_factor, required=True)
    audio = _audio(encoder.section("audio_encoding_args"))
    return ModelConfig(audio=audio, encoder=_encoder(encoder, audio), decoder=_decoder(root))


def _audio(audio: Section) -> AudioConfig:
    audio.expect("sampling_rate", AudioConfig.sample_rate)
    audio.expect("window_size", AudioConfig.n_fft)
    audio.expect("hop_length", AudioConfig.hop_length)
    audio.expect("frame_rate", FRAME_RATE_HZ)
    return AudioConfig(
        num_mel_bins=audio.integer("num_mel_bins"),
        log_mel_max=audio.number("global_log_mel_max", default=AudioConfig.log_mel_max),
    )


def _encoder(args: Section, audio: AudioConfig) -> EncoderConfig:
    num_heads = args.integer("n_heads")
    args.expect("n_kv_heads", num_heads, " (as many as n_heads)")
    args.expect("use_biases", True)
    args.expect("causal", True, " (a streaming encoder)", required=True)
    args.expect("pos_embed", "rope")
    args.expect("ffn_type", "swiglu")
    args.expect("norm_type", "rms_norm")
    return EncoderConfig(
        num_mel_bins=audio.num_mel_bins,
        hidden_size=args.integer("dim"),
        intermediate_size=args.integer("hidden_dim"),
        num_layers=args.integer("n_layers"),
        num_heads=num_heads,
        head_dim=_head_dim(args),
        sliding_window=args.window("sliding_window"),
        norm_eps=args.number("norm_eps"),
        rope_theta=args.number("rope_theta"),
    )


def _decoder(root: Section) -> DecoderConfig:
    num_heads, hidden_size, num_layers = root.integer("n_heads"), root.integer("dim"), root.integer("n_layers")
    num_kv_heads = root.integer("n_kv_heads")
    if num_heads % num_kv_heads:
        raise root.error("n_kv_heads", f"a divisor of n_heads, which is {num_heads}")
    if hidden_size % 2:
        raise root.error("dim", "an even number, for the delay condition")
    if "quantization" in root:
        raise root.error("quantization", "no quantization, use the original checkpoint")
    root.expect("use_biases", False)
    root.expect("tied_embeddings", True, " (logits come from the embedding)")
    root.expect("ada_rms_norm_t_cond", True, " (a decoder that is told its delay)", required=True)
    return DecoderConfig(
        vocab_size=root.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=root.integer("hidden_dim"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_head_dim(root),
        sliding_windows=(root.window("sliding_window"),) * num_layers,
        norm_eps=root.number("norm_eps"),
        rope_theta=root.number("rope_theta"),
        delay_rank=root.integer("ada_rms_norm_t_cond_dim"),
    )


def _head_dim(section: Section) -> int:
    head_dim = section.integer("head_dim")
    if head_dim % 2:
        raise section.error("head_dim", "an even number")
    return head_dim


def to_mistral(config: ModelConfig) -> dict[str, object]:
    """The ``params.json`` that :func:`from_mistral` reads back as ``config``.

    Raises ConfigError for what the layout has no room for: an encoder of another family than voxtral, decoder
    windows that differ. The delay is not part of the file.
    """
    encoder, decoder = config.encoder, config.decoder
    if (encoder.norm, encoder.ffn, encoder.pos_embed) != ("rms_norm", "swiglu", "rope") or encoder.look_ahead_frames:
        raise ConfigError("Only the voxtral encoder family fits params.json; write the Hugging Face layout instead.")
    if len(set(decoder.sliding_windows)) > 1:
        raise ConfigError(
            f"Decoder windows {decoder.sliding_windows} do not fit params.json; use one for all layers."
        )
    return {
        "dim": decoder.hidden_size,
        "n_layers": decoder.num_layers,
        "head_dim": decoder.head_dim,
        "hidden_dim": decoder.intermediate_size,
        "n_heads": decoder.num_heads,
        "n_kv_heads": decoder.num_kv_heads,
        "use_biases": False,
        "causal": True,
        "rope_theta": decoder.rope_theta,
        "norm_eps": decoder.norm_eps,
        "vocab_size": decoder.vocab_size,
        "tied_embeddings": True,
        "sliding_window": _window_value(decoder.sliding_windows[0]),
        "ada_rms_norm_t_cond": True,
        "ada_rms_norm_t_cond_dim": decoder.delay_rank,
        "multimodal": {
            "whisper_model_args": {
                "encoder_args": _encoder_dict(config),
                "downsample_args": {"downsample_factor": encoder.downsample_factor},
            }
        },
    }


def _encoder_dict(config: ModelConfig) -> dict[str, object]:
    encoder, audio = config.encoder, config.audio
    return {
        "audio_encoding_args": {
            "sampling_rate": audio.sample_rate,
            "frame_rate": FRAME_RATE_HZ,
            "num_mel_bins": audio.num_mel_bins,
            "hop_length": audio.hop_length,
            "window_size": audio.n_fft,
            "global_log_mel_max": audio.log_mel_max,
            "transcription_format": "streaming",
        },
        "dim": encoder.hidden_size,
        "n_layers": encoder.num_layers,
        "head_dim": encoder.head_dim,
        "hidden_dim": encoder.intermediate_size,
        "n_heads": encoder.num_heads,
        "n_kv_heads": encoder.num_heads,
        "use_biases": True,
        "causal": True,
        "rope_theta": encoder.rope_theta,
        "norm_eps": encoder.norm_eps,
        "pos_embed": "rope",
        "ffn_type": "swiglu",
        "norm_type": "rms_norm",
        "max_source_positions": None,
        "sliding_window": _window_value(encoder.sliding_window),
    }


def _window_value(window: int) -> int | None:
    return None if window == NO_WINDOW else window
