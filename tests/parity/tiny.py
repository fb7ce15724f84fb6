"""Tiny random models in both families and both checkpoint layouts, made harsh enough to expose mistakes.

Weights are drawn with standard deviation 0.15 (a library's default 0.02 hides errors), and windows of 12 frames and
16 tokens wrap within seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import VoxtralRealtimeConfig, VoxtralRealtimeForConditionalGeneration

VOCAB_SIZE = 300
ROPE = {"rope_type": "default", "rope_theta": 1e6}
ENCODER: dict[str, Any] = {
    "model_type": "voxtral_realtime_encoder",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 24,
    "num_mel_bins": 128,
    "sliding_window": 12,
    "vocab_size": VOCAB_SIZE,
    "rope_parameters": ROPE,
}
DECODER: dict[str, Any] = {
    "model_type": "voxtral_realtime_text",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 16,
    "rms_norm_eps": 1e-5,
    "rope_parameters": ROPE,
}


def transformers_model(dtype: torch.dtype = torch.float32) -> Any:
    """A random VoxtralRealtimeForConditionalGeneration."""
    torch.manual_seed(0)
    config = VoxtralRealtimeConfig(audio_config=ENCODER, text_config=DECODER)
    model = VoxtralRealtimeForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15 if parameter.ndim > 1 else 0.3)
    model.tie_weights()
    model = model.to(dtype)
    # .to(bfloat16) also rounds the rotary and time frequencies, which from_pretrained(dtype=...) would not.
    for part in (model.model.audio_tower, model.model.language_model):
        rotary = part.rotary_emb
        rotary.inv_freq = rotary.compute_default_rope_parameters(rotary.config)[0]
    time_embedding = model.model.time_embedding
    time_embedding.inv_freq = type(time_embedding)(DECODER["hidden_size"]).inv_freq
    return model


def interleave(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Half-split rotary rows -> Mistral's interleaved ones; for weights [H*K, D] and biases [H*K]."""
    rest = weight.shape[1:]
    return weight.view(num_heads, 2, -1, *rest).transpose(1, 2).reshape(weight.shape).contiguous()


def write_mistral(model: Any, folder: Path) -> None:
    """Write a transformers model as params.json and consolidated.safetensors in Mistral's layout."""
    state = model.state_dict()
    tensors: dict[str, torch.Tensor] = {}
    embedding = "mm_streams_embeddings.embedding_module."
    whisper = embedding + "whisper_encoder."
    tower, text = "model.audio_tower.", "model.language_model."

    def put(target: str, source: str, heads: int | None = None) -> None:
        value = state[source].clone()
        tensors[target] = interleave(value, heads) if heads else value

    for index, name in ((0, "conv1"), (1, "conv2")):
        for kind in ("weight", "bias"):
            put(f"{whisper}conv_layers.{index}.conv.{kind}", f"{tower}embedder.{name}.{kind}")
    for layer in range(ENCODER["num_hidden_layers"]):
        ours, theirs = f"{whisper}transformer.layers.{layer}.", f"{tower}layers.{layer}."
        heads = ENCODER["num_attention_heads"]
        put(ours + "attention.wq.weight", theirs + "self_attn.q_proj.weight", heads)
        put(ours + "attention.wq.bias", theirs + "self_attn.q_proj.bias", heads)
        put(ours + "attention.wk.weight", theirs + "self_attn.k_proj.weight", heads)
        for kind in ("weight", "bias"):
            put(ours + f"attention.wv.{kind}", theirs + f"self_attn.v_proj.{kind}")
            put(ours + f"attention.wo.{kind}", theirs + f"self_attn.o_proj.{kind}")
            put(ours + f"feed_forward.w2.{kind}", theirs + f"mlp.down_proj.{kind}")
        put(ours + "attention_norm.weight", theirs + "self_attn_layer_norm.weight")
        put(ours + "ffn_norm.weight", theirs + "final_layer_norm.weight")
        put(ours + "feed_forward.w1.weight", theirs + "mlp.gate_proj.weight")
        put(ours + "feed_forward.w3.weight", theirs + "mlp.up_proj.weight")
    put(whisper + "transformer.norm.weight", tower + "norm.weight")
    put(embedding + "audio_language_projection.0.weight", "model.multi_modal_projector.linear_1.weight")
    put(embedding + "audio_language_projection.2.weight", "model.multi_modal_projector.linear_2.weight")
    put(embedding + "tok_embeddings.weight", text + "embed_tokens.weight")
    for layer in range(DECODER["num_hidden_layers"]):
        ours, theirs = f"layers.{layer}.", f"{text}layers.{layer}."
        put(ours + "attention.wq.weight", theirs + "self_attn.q_proj.weight", DECODER["num_attention_heads"])
        put(ours + "attention.wk.weight", theirs + "self_attn.k_proj.weight", DECODER["num_key_value_heads"])
        put(ours + "attention.wv.weight", theirs + "self_attn.v_proj.weight")
        put(ours + "attention.wo.weight", theirs + "self_attn.o_proj.weight")
        put(ours + "attention_norm.weight", theirs + "input_layernorm.weight")
        put(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight")
        for mistral, name in (("w1", "gate"), ("w3", "up"), ("w2", "down")):
            put(ours + f"feed_forward.{mistral}.weight", theirs + f"mlp.{name}_proj.weight")
        put(ours + "ada_rms_norm_t_cond.0.weight", theirs + "ada_rms_norm.linear1.weight")
        put(ours + "ada_rms_norm_t_cond.2.weight", theirs + "ada_rms_norm.linear2.weight")
    put("norm.weight", text + "norm.weight")
    save_file(tensors, folder / "consolidated.safetensors")
    (folder / "params.json").write_text(json.dumps(_mistral_params()))


def _mistral_params() -> dict[str, Any]:
    encoder = {
        "audio_encoding_args": {
            "sampling_rate": 16000,
            "frame_rate": 12.5,
            "num_mel_bins": 128,
            "hop_length": 160,
            "window_size": 400,
            "global_log_mel_max": 1.5,
            "transcription_format": "streaming",
        },
        "dim": ENCODER["hidden_size"],
        "n_layers": ENCODER["num_hidden_layers"],
        "head_dim": ENCODER["head_dim"],
        "hidden_dim": ENCODER["intermediate_size"],
        "n_heads": ENCODER["num_attention_heads"],
        "n_kv_heads": ENCODER["num_attention_heads"],
        "use_biases": True,
        "causal": True,
        "norm_eps": 1e-5,
        "pos_embed": "rope",
        "ffn_type": "swiglu",
        "norm_type": "rms_norm",
        "rope_theta": 1e6,
        "sliding_window": ENCODER["sliding_window"],
        "max_source_positions": None,
    }
    return {
        "dim": DECODER["hidden_size"],
        "n_layers": DECODER["num_hidden_layers"],
        "head_dim": DECODER["head_dim"],
        "hidden_dim": DECODER["intermediate_size"],
        "n_heads": DECODER["num_attention_heads"],
        "n_kv_heads": DECODER["num_key_value_heads"],
        "use_biases": False,
        "rope_theta": 1e6,
        "norm_eps": 1e-5,
        "vocab_size": VOCAB_SIZE,
        "tied_embeddings": True,
        "sliding_window": DECODER["sliding_window"],
        "ada_rms_norm_t_cond": True,
        "ada_rms_norm_t_cond_dim": 32,
        "multimodal": {
            "whisper_model_args": {"encoder_args": encoder, "downsample_args": {"downsample_factor": 4}},
        },
    }
