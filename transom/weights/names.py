"""Parameter names: ours, Hugging Face's on disk, Mistral's; and the one layout difference behind the names.

Ours are the keys of the modules' ``state_dict``. A ``#`` in a table stands for a layer index. Mistral stores the rows
of query and key projections interleaved for rotary embedding, everything here is half split (NeoX).
Legend: H heads, K head dim (even), D columns.
"""

from __future__ import annotations

import re
from typing import Literal

import torch

Layout = Literal["huggingface", "mistral"]

LM_HEAD = "lm_head.weight"

_MISTRAL_AUDIO = "mm_streams_embeddings.embedding_module."
_MISTRAL_AUDIO_OLDER = "mm_whisper_embeddings."
_WHISPER = f"{_MISTRAL_AUDIO}whisper_encoder."

# ours, Hugging Face's, Mistral's; both halves of a layer's names below are prefixed with the layer's own
_TOP_LEVEL = (
    ("encoder.stem.conv1", "audio_tower.embedder.conv1", f"{_WHISPER}conv_layers.0.conv"),
    ("encoder.stem.conv2", "audio_tower.embedder.conv2", f"{_WHISPER}conv_layers.1.conv"),
    ("encoder.norm", "audio_tower.norm", f"{_WHISPER}transformer.norm"),
    ("encoder.adapter.linear1", "multi_modal_projector.linear_1", f"{_MISTRAL_AUDIO}audio_language_projection.0"),
    ("encoder.adapter.linear2", "multi_modal_projector.linear_2", f"{_MISTRAL_AUDIO}audio_language_projection.2"),
    ("decoder.embed_tokens", "language_model.model.embed_tokens", f"{_MISTRAL_AUDIO}tok_embeddings"),
    ("decoder.norm", "language_model.model.norm", "norm"),
    ("lm_head", "lm_head", "output"),
)
_ANY_LAYER = (
    ("attention.q_proj", "self_attn.q_proj", "attention.wq"),
    ("attention.k_proj", "self_attn.k_proj", "attention.wk"),
    ("attention.v_proj", "self_attn.v_proj", "attention.wv"),
    ("attention.o_proj", "self_attn.o_proj", "attention.wo"),
    ("ffn.gate_proj", "mlp.gate_proj", "feed_forward.w1"),
    ("ffn.up_proj", "mlp.up_proj", "feed_forward.w3"),
    ("ffn.down_proj", "mlp.down_proj", "feed_forward.w2"),
)
_ENCODER_LAYER = (
    *_ANY_LAYER,
    ("attention_norm", "self_attn_layer_norm", "attention_norm"),
    ("ffn_norm", "final_layer_norm", "ffn_norm"),
)
_WHISPER_LAYER = (("ffn.fc1", "mlp.fc1"), ("ffn.fc2", "mlp.fc2"))
_DECODER_LAYER = (
    *_ANY_LAYER,
    ("attention_norm", "input_layernorm", "attention_norm"),
    ("ffn_norm", "post_attention_layernorm", "ffn_norm"),
    ("delay.linear1", "ada_rms_norm.linear1", "ada_rms_norm_t_cond.0"),
    ("delay.linear2", "ada_rms_norm.linear2", "ada_rms_norm_t_cond.2"),
)


def _to_huggingface() -> dict[str, str]:
    names = {ours: theirs for ours, theirs, _ in _TOP_LEVEL}
    names |= {f"encoder.layers.#.{a}": f"audio_tower.layers.#.{b}" for a, b, _ in _ENCODER_LAYER}
    names |= {f"encoder.layers.#.{a}": f"audio_tower.layers.#.{b}" for a, b in _WHISPER_LAYER}
    return names | {f"decoder.layers.#.{a}": f"language_model.model.layers.#.{b}" for a, b, _ in _DECODER_LAYER}


def _to_mistral() -> dict[str, str]:
    names = {ours: theirs for ours, _, theirs in _TOP_LEVEL}
    names |= {f"encoder.layers.#.{a}": f"{_WHISPER}transformer.layers.#.{c}" for a, _, c in _ENCODER_LAYER}
    return names | {f"decoder.layers.#.{a}": f"layers.#.{c}" for a, _, c in _DECODER_LAYER}


_STORED: dict[Layout, dict[str, str]] = {"huggingface": _to_huggingface(), "mistral": _to_mistral()}
_CANONICAL: dict[str, tuple[str, Layout]] = {
    theirs: (ours, layout) for layout, names in _STORED.items() for ours, theirs in names.items()
}
# What else the same tensors are called: transformers' state_dict() says "model." where its files do not, and older
# Mistral files leave out ".conv".
_SPELLINGS = (
    (re.compile(r"^model\.language_model\."), "language_model.model."),
    (re.compile(r"^model\.(?=audio_tower\.|multi_modal_projector\.)"), ""),
    (re.compile(r"^language_model\.(?=lm_head\.)"), ""),
    (re.compile(rf"^{re.escape(_MISTRAL_AUDIO_OLDER)}"), _MISTRAL_AUDIO),
    (re.compile(r"(?<=\.conv_layers\.)([01])\.(?=weight$|bias$)"), r"\1.conv."),
)
_LAYER_INDEX = re.compile(r"(?<=\blayers\.)\d+(?=\.)")


def canonical_name(stored: str) -> tuple[str, Layout] | None:
    """Our name of a tensor in a file, and the layout its own name belongs to; None for a name nobody uses."""
    for pattern, replacement in _SPELLINGS:
        stored = pattern.sub(replacement, stored)
    template, index, kind = _split(stored)
    found = _CANONICAL.get(template)
    if found is None:
        return None
    ours, layout = found
    return f"{ours.replace('#', index)}.{kind}", layout


def stored_name(canonical: str, layout: Layout) -> str:
    """The name of one of our tensors in a file of ``layout``. Raises KeyError if the layout has none."""
    template, index, kind = _split(canonical)
    return f"{_STORED[layout][template].replace('#', index)}.{kind}"


def _split(name: str) -> tuple[str, str, str]:
    """A name as its template, layer index (empty for none) and last part, "weight" or "bias"."""
    stem, _, kind = name.rpartition(".")
    index = _LAYER_INDEX.search(stem)
    return _LAYER_INDEX.sub("#", stem), index[0] if index else "", kind


def is_rotated(canonical: str) -> bool:
    """Whether rotary embedding acts on the rows of this tensor: a query or key weight, or a query bias."""
    return ".q_proj." in canonical or ".k_proj." in canonical


def half_split(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Mistral's row order to ours, [H*K, D] or [H*K]: row 2j of a head becomes row j, row 2j+1 row K/2 + j."""
    return rows.reshape(num_heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def interleaved(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """The inverse of :func:`half_split`, for writing Mistral's layout, [H*K, D] or [H*K]."""
    return rows.reshape(num_heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
