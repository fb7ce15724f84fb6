"""The name and shape of every parameter of a model, computed from its configuration alone.

This is the contract between checkpoints and modules: a loaded checkpoint holds exactly these tensors.
"""

from __future__ import annotations

from transom.config import DecoderConfig, EncoderConfig, ModelConfig

Shapes = dict[str, tuple[int, ...]]


def expected_shapes(config: ModelConfig) -> Shapes:
    """Parameter name -> shape, encoder, adapter and decoder in the order audio passes them."""
    return _encoder(config.encoder) | _adapter(config) | _decoder(config.decoder)


def _encoder(encoder: EncoderConfig) -> Shapes:
    width = encoder.hidden_size
    shapes: Shapes = {
        "encoder.stem.conv1.weight": (width, encoder.num_mel_bins, 3),
        "encoder.stem.conv1.bias": (width,),
        "encoder.stem.conv2.weight": (width, width, 3),
        "encoder.stem.conv2.bias": (width,),
    }
    for layer in range(encoder.num_layers):
        parts = _encoder_attention(encoder) | _encoder_ffn(encoder)
        parts |= _norm("attention_norm", encoder) | _norm("ffn_norm", encoder)
        shapes |= {f"encoder.layers.{layer}.{name}": shape for name, shape in parts.items()}
    return shapes | _norm("encoder.norm", encoder)


def _norm(name: str, encoder: EncoderConfig) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (encoder.hidden_size,)}
    if encoder.norm == "layer_norm":
        shapes[f"{name}.bias"] = (encoder.hidden_size,)
    return shapes


def _encoder_attention(encoder: EncoderConfig) -> Shapes:
    width, inner = encoder.hidden_size, encoder.num_heads * encoder.head_dim
    return {
        "attention.q_proj.weight": (inner, width),
        "attention.q_proj.bias": (inner,),
        "attention.k_proj.weight": (inner, width),
        "attention.v_proj.weight": (inner, width),
        "attention.v_proj.bias": (inner,),
        "attention.o_proj.weight": (width, inner),
        "attention.o_proj.bias": (width,),
    }


def _encoder_ffn(encoder: EncoderConfig) -> Shapes:
    width, inner = encoder.hidden_size, encoder.intermediate_size
    if encoder.ffn == "gelu":
        return {
            "ffn.fc1.weight": (inner, width),
            "ffn.fc1.bias": (inner,),
            "ffn.fc2.weight": (width, inner),
            "ffn.fc2.bias": (width,),
        }
    return {
        "ffn.gate_proj.weight": (inner, width),
        "ffn.up_proj.weight": (inner, width),
        "ffn.down_proj.weight": (width, inner),
        "ffn.down_proj.bias": (width,),
    }


def _adapter(config: ModelConfig) -> Shapes:
    width = config.decoder.hidden_size
    return {
        "encoder.adapter.linear1.weight": (width, config.encoder.downsample_factor * config.encoder.hidden_size),
        "encoder.adapter.linear2.weight": (width, width),
    }


def _decoder(decoder: DecoderConfig) -> Shapes:
    width, inner = decoder.hidden_size, decoder.intermediate_size
    queries, keys = decoder.num_heads * decoder.head_dim, decoder.num_kv_heads * decoder.head_dim
    layer_shapes: Shapes = {
        "attention_norm.weight": (width,),
        "attention.q_proj.weight": (queries, width),
        "attention.k_proj.weight": (keys, width),
        "attention.v_proj.weight": (keys, width),
        "attention.o_proj.weight": (width, queries),
        "ffn_norm.weight": (width,),
        "ffn.gate_proj.weight": (inner, width),
        "ffn.up_proj.weight": (inner, width),
        "ffn.down_proj.weight": (width, inner),
        "delay.linear1.weight": (decoder.delay_rank, width),
        "delay.linear2.weight": (width, decoder.delay_rank),
    }
    shapes: Shapes = {"decoder.embed_tokens.weight": (decoder.vocab_size, width)}
    for layer in range(decoder.num_layers):
        shapes |= {f"decoder.layers.{layer}.{name}": shape for name, shape in layer_shapes.items()}
    return shapes | {"decoder.norm.weight": (width,)}
