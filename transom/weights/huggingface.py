"""``config.json`` in the Hugging Face layout (model_type ``voxtral_realtime``) and :class:`ModelConfig`, both ways.

The second encoder family and its look-ahead have no keys in that layout; ``audio_config`` then carries Mistral's
option names (``pos_embed``, ``ffn_type``, ``norm_type``, ...), whose defaults are the voxtral family.
"""

from __future__ import annotations

from typing import get_args

from transom.config import (
    NO_WINDOW,
    AudioConfig,
    DecoderConfig,
    EncoderConfig,
    FeedForward,
    ModelConfig,
    Norm,
    PositionEmbedding,
    Weights,
)
from transom.errors import ConfigError
from transom.weights.sections import Section

MODEL_TYPE = "voxtral_realtime"
LAYER_TYPES = ("sliding_attention", "full_attention")
NORMS: tuple[Norm, ...] = ("rms_norm", "layer_norm")
FEED_FORWARDS: tuple[FeedForward, ...] = ("swiglu", "gelu")
POSITION_EMBEDDINGS: tuple[PositionEmbedding, ...] = ("rope", "sinusoidal")
STORED_WEIGHTS: tuple[Weights, ...] = get_args(Weights)
QUANT_METHOD = "transom"
FRAMES_PER_TOKEN = EncoderConfig.downsample_factor
TIED_ONLY = " (logits come from the embedding; an lm_head is accepted only as an identical copy of it)"


def from_huggingface(root: Section) -> ModelConfig:
    """Read a ``config.json``. Raises ConfigError at the first value that is missing or not supported."""
    root.expect("model_type", MODEL_TYPE, required=True)
    root.expect("downsample_factor", FRAMES_PER_TOKEN)
    root.expect("audio_length_per_tok", 2 * FRAMES_PER_TOKEN)
    root.expect("projector_hidden_act", "gelu")
    root.expect("tie_word_embeddings", True, TIED_ONLY)
    stored_weights(root)
    audio, text = root.section("audio_config"), root.section("text_config")
    return ModelConfig(
        audio=AudioConfig(
            num_mel_bins=audio.integer("num_mel_bins"),
            log_mel_max=audio.number("global_log_mel_max", default=AudioConfig.log_mel_max),
        ),
        encoder=_encoder(audio),
        decoder=_decoder(text),
        default_delay_tokens=root.integer("default_num_delay_tokens", default=ModelConfig.default_delay_tokens),
    )


def stored_weights(root: Section) -> Weights | None:
    """How the weights beside a ``config.json`` are rounded. Raises ConfigError for ways that others round."""
    if "quantization_config" not in root:
        return None
    quantization = root.section("quantization_config")
    remedy = ", or none at all: use the original checkpoint, or what transom convert makes of it"
    quantization.expect("quant_method", QUANT_METHOD, remedy, required=True)
    if "weights" not in quantization:
        raise quantization.error("weights", " or ".join(map(repr, STORED_WEIGHTS)))
    return quantization.choice("weights", STORED_WEIGHTS, STORED_WEIGHTS[0])


def _encoder(audio: Section) -> EncoderConfig:
    hidden_size, num_heads = audio.integer("hidden_size"), audio.integer("num_attention_heads")
    audio.expect("num_key_value_heads", num_heads, " (as many as num_attention_heads)")
    norm = audio.choice("norm_type", NORMS, "rms_norm")
    ffn = audio.choice("ffn_type", FEED_FORWARDS, "swiglu")
    pos_embed = audio.choice("pos_embed", POSITION_EMBEDDINGS, "rope")
    if ffn == "swiglu":
        audio.expect("hidden_act", "silu")
    if pos_embed == "sinusoidal" and hidden_size % 2:
        raise audio.error("hidden_size", "an even number with sinusoidal positions")
    look_ahead_frames = audio.integer("look_ahead_frames", default=0, minimum=0)
    if look_ahead_frames % FRAMES_PER_TOKEN:
        raise audio.error("look_ahead_frames", f"a multiple of {FRAMES_PER_TOKEN}, the frames of a token")
    return EncoderConfig(
        num_mel_bins=audio.integer("num_mel_bins"),
        hidden_size=hidden_size,
        intermediate_size=audio.integer("intermediate_size"),
        num_layers=audio.integer("num_hidden_layers"),
        num_heads=num_heads,
        head_dim=_head_dim(audio, hidden_size, num_heads),
        sliding_window=audio.window("sliding_window"),
        norm_eps=audio.number(_norm_eps_key(norm)),
        norm=norm,
        ffn=ffn,
        pos_embed=pos_embed,
        rope_theta=_rope_theta(audio) if pos_embed == "rope" else EncoderConfig.rope_theta,
        max_source_positions=audio.integer("max_source_positions", default=EncoderConfig.max_source_positions),
        look_ahead_frames=look_ahead_frames,
        mel_pad_value=audio.number("mel_pad_value", default=EncoderConfig.mel_pad_value),
    )


def _decoder(text: Section) -> DecoderConfig:
    hidden_size, num_heads = text.integer("hidden_size"), text.integer("num_attention_heads")
    num_kv_heads = text.integer("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise text.error("num_key_value_heads", f"a divisor of num_attention_heads, which is {num_heads}")
    if hidden_size % 2:
        raise text.error("hidden_size", "an even number, for the delay condition")
    text.expect("hidden_act", "silu")
    text.expect("tie_word_embeddings", True, TIED_ONLY)
    num_layers = text.integer("num_hidden_layers")
    return DecoderConfig(
        vocab_size=text.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=text.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_head_dim(text, hidden_size, num_heads),
        sliding_windows=_decoder_windows(text, num_layers),
        norm_eps=text.number("rms_norm_eps"),
        rope_theta=_rope_theta(text),
        delay_rank=text.integer("ada_rms_norm_t_cond_dim", default=DecoderConfig.delay_rank),
    )


def _head_dim(section: Section, hidden_size: int, num_heads: int) -> int:
    if "head_dim" not in section and hidden_size % num_heads:
        raise section.error("head_dim", f"an even number, since {num_heads} heads do not divide {hidden_size}")
    head_dim = section.integer("head_dim", default=hidden_size // num_heads)
    if head_dim % 2:
        raise section.error("head_dim", "an even number")
    return head_dim


def _rope_theta(section: Section) -> float:
    if "rope_scaling" in section:
        raise section.error("rope_scaling", "no scaling")
    if "rope_parameters" not in section:
        return section.number("rope_theta")
    rope = section.section("rope_parameters")
    rope.expect("rope_type", "default")
    return rope.number("rope_theta")


def _decoder_windows(text: Section, num_layers: int) -> tuple[int, ...]:
    window = text.window("sliding_window")
    if "layer_types" not in text:
        return (window,) * num_layers
    types = text.strings("layer_types", LAYER_TYPES, num_layers)
    if window == NO_WINDOW and LAYER_TYPES[0] in types:
        raise text.error("sliding_window", f"a window, since layer_types holds {LAYER_TYPES[0]!r}")
    return tuple(window if kind == LAYER_TYPES[0] else NO_WINDOW for kind in types)


def _norm_eps_key(norm: Norm) -> str:
    return "rms_norm_eps" if norm == "rms_norm" else "norm_eps"


def to_huggingface(config: ModelConfig, weights: Weights | None = None) -> dict[str, object]:
    """The ``config.json`` that :func:`from_huggingface` reads back as ``config``, of weights rounded as told.

    Raises ConfigError for decoder windows that differ in size between layers: the layout has room for one.
    """
    quantization = {"quantization_config": {"quant_method": QUANT_METHOD, "weights": weights}} if weights else {}
    return quantization | {
        "model_type": MODEL_TYPE,
        "audio_config": _encoder_dict(config),
        "text_config": _decoder_dict(config.decoder),
        "audio_length_per_tok": 2 * FRAMES_PER_TOKEN,
        "default_num_delay_tokens": config.default_delay_tokens,
        "downsample_factor": FRAMES_PER_TOKEN,
        "hidden_size": config.decoder.hidden_size,
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": True,
    }


def _encoder_dict(config: ModelConfig) -> dict[str, object]:
    encoder = config.encoder
    values: dict[str, object] = {
        "model_type": f"{MODEL_TYPE}_encoder",
        "num_mel_bins": encoder.num_mel_bins,
        "global_log_mel_max": config.audio.log_mel_max,
        "hidden_size": encoder.hidden_size,
        "intermediate_size": encoder.intermediate_size,
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_heads,
        "head_dim": encoder.head_dim,
        "sliding_window": None if encoder.sliding_window == NO_WINDOW else encoder.sliding_window,
        _norm_eps_key(encoder.norm): encoder.norm_eps,
        "hidden_act": "silu" if encoder.ffn == "swiglu" else "gelu",
        "norm_type": encoder.norm,
        "ffn_type": encoder.ffn,
        "pos_embed": encoder.pos_embed,
        "look_ahead_frames": encoder.look_ahead_frames,
        "mel_pad_value": encoder.mel_pad_value,
        "max_source_positions": encoder.max_source_positions,
    }
    if encoder.pos_embed == "rope":
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": encoder.rope_theta}
    return values


def _decoder_dict(decoder: DecoderConfig) -> dict[str, object]:
    sizes = sorted({window for window in decoder.sliding_windows if window != NO_WINDOW})
    if len(sizes) > 1:
        raise ConfigError(f"Decoder windows of sizes {sizes} do not fit one config.json; use one size, or none.")
    return {
        "model_type": f"{MODEL_TYPE}_text",
        "vocab_size": decoder.vocab_size,
        "hidden_size": decoder.hidden_size,
        "intermediate_size": decoder.intermediate_size,
        "num_hidden_layers": decoder.num_layers,
        "num_attention_heads": decoder.num_heads,
        "num_key_value_heads": decoder.num_kv_heads,
        "head_dim": decoder.head_dim,
        "sliding_window": sizes[0] if sizes else None,
        "layer_types": [LAYER_TYPES[window == NO_WINDOW] for window in decoder.sliding_windows],
        "hidden_act": "silu",
        "rms_norm_eps": decoder.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": decoder.rope_theta},
        "ada_rms_norm_t_cond_dim": decoder.delay_rank,
        "tie_word_embeddings": True,
    }
