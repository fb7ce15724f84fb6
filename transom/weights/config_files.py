"""Reads a model folder's configuration into :class:`ModelConfig`, and writes one.

``config.json`` (Hugging Face) is preferred over ``params.json`` (Mistral) where both lie in the folder, as the
original Voxtral repository has it. The delay that is served is that of the tokenizer file.
"""

from __future__ import annotations

import json
from pathlib import Path

from transom.config import ModelConfig, Weights
from transom.errors import ConfigError
from transom.weights.huggingface import from_huggingface, stored_weights, to_huggingface
from transom.weights.mistral import from_mistral, to_mistral
from transom.weights.names import Layout
from transom.weights.sections import Section

HUGGINGFACE_FILE = "config.json"
MISTRAL_FILE = "params.json"


def read_model_config(folder: Path) -> ModelConfig:
    """The configuration of the model in ``folder``.

    Raises ConfigError that names the file, the key, the value found and what is supported.
    """
    if (folder / HUGGINGFACE_FILE).is_file():
        return from_huggingface(Section.from_file(folder / HUGGINGFACE_FILE))
    if (folder / MISTRAL_FILE).is_file():
        return from_mistral(Section.from_file(folder / MISTRAL_FILE))
    raise ConfigError(
        f"{folder} holds neither {HUGGINGFACE_FILE} nor {MISTRAL_FILE}, so it is no model folder. "
        "Pass the folder that holds one of them, with the weights beside it."
    )


def read_stored_weights(folder: Path) -> Weights | None:
    """How the weights in ``folder`` are rounded, as ``transom convert`` noted it; None if they are not."""
    file = folder / HUGGINGFACE_FILE
    return stored_weights(Section.from_file(file)) if file.is_file() else None


def write_model_config(
    config: ModelConfig, folder: Path, layout: Layout = "huggingface", weights: Weights | None = None
) -> Path:
    """Write ``config`` into ``folder`` and return the file. Raises ConfigError for what the layout cannot say.

    ``weights`` says how the weights beside it are rounded; only Hugging Face's layout has a place for that.
    """
    name, values = (
        (HUGGINGFACE_FILE, to_huggingface(config, weights))
        if layout == "huggingface"
        else (MISTRAL_FILE, to_mistral(config))
    )
    file = folder / name
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return file
