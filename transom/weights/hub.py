"""Turns what a user names a model by into a folder: the bundled model, a local folder, or a Hugging Face hub id.

Knows nothing of what is in the files beyond their names. Of a repository that holds its weights twice (in Hugging
Face's and in Mistral's layout) one set is fetched.
"""

from __future__ import annotations

import logging
import re
from importlib import resources
from pathlib import Path

from transom.errors import ConfigError, WeightsError
from transom.weights.checkpoint import weight_files
from transom.weights.config_files import HUGGINGFACE_FILE, MISTRAL_FILE

log = logging.getLogger(__name__)

BUNDLED = "bundled"
EXAMPLE_ID = "mistralai/Voxtral-Mini-4B-Realtime-2602"
TOKENIZER_FILE = "tekken.json"
LANGUAGE_MODEL_FILE = "language_model.safetensors"  # of small models only

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# Hugging Face's layout first: it needs no permutation, so it is mapped without a copy.
_WEIGHT_PATTERNS = ("model*.safetensors", "consolidated.safetensors")


def bundled_model() -> Path:
    """The folder of the model that comes with the package."""
    return Path(str(resources.files("transom.weights") / "bundled"))


def resolve_model(
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    offline: bool = False,
    cache_folder: Path | None = None,
) -> Path:
    """The folder that holds the model ``name``.

    None and ``bundled`` mean :func:`bundled_model`; an existing folder is taken as it is; ``OWNER/NAME`` is looked
    up in the hub's cache and only fetched if it is not there, unless ``offline``. ``revision`` (a commit, tag or
    branch; also written ``OWNER/NAME@REVISION``) is ``main`` by default. No commit is pinned in the code: main is
    resolved when it is first fetched and stays at that commit as long as it is cached; the log names the commit.

    Raises ConfigError that says what was tried and how to go on.
    """
    if name is None or name == BUNDLED:
        return bundled_model()
    folder = Path(name).expanduser()
    if name != "" and folder.is_dir():
        return folder
    hub_id, _, pinned = str(name).partition("@")
    if folder.exists() or not _HUB_ID.fullmatch(hub_id):
        raise ConfigError(
            f"{str(name)!r} is neither a folder nor a hub id. Pass {BUNDLED!r}, a folder with {HUGGINGFACE_FILE} or "
            f"{MISTRAL_FILE}, or an id such as {EXAMPLE_ID}."
        )
    found = _from_hub(hub_id, revision or pinned or None, offline=offline, cache_folder=cache_folder)
    log.info("%s is at commit %s; write %s@%s to keep it there", hub_id, found.name, hub_id, found.name)
    return found


def _from_hub(hub_id: str, revision: str | None, *, offline: bool, cache_folder: Path | None) -> Path:
    """The snapshot's folder, from the cache if it is whole there, else from the hub."""
    from huggingface_hub import snapshot_download  # here, since a local model should not wait for it
    from huggingface_hub.errors import HFValidationError, HTTPError

    reason = ""
    for local_files_only in (True,) if offline else (True, False):
        for weights in _WEIGHT_PATTERNS:
            try:
                folder = Path(
                    snapshot_download(
                        hub_id,
                        revision=revision,
                        cache_dir=cache_folder,
                        allow_patterns=["*.json", LANGUAGE_MODEL_FILE, weights],
                        local_files_only=local_files_only,
                    )
                )
                reason = _what_lacks(folder)
            except (OSError, HTTPError, HFValidationError) as error:
                reason = str(error).strip() or type(error).__name__
            else:
                if not reason:
                    return folder
    where = "in the local cache" if offline else "in the local cache or on the hub"
    raise ConfigError(
        f"Model {hub_id}{f'@{revision}' if revision else ''} was not found whole {where}: {reason}\n"
        "Check the name and the network (HF_HUB_OFFLINE and HF_TOKEN count), or download the repository's "
        "*.safetensors and *.json files elsewhere and pass their folder."
    )


def _what_lacks(folder: Path) -> str:
    """What of a model is not in ``folder``, empty if it is whole: a download may have been interrupted."""
    try:
        weight_files(folder)
    except WeightsError as error:
        return str(error)
    if not any((folder / name).is_file() for name in (HUGGINGFACE_FILE, MISTRAL_FILE)):
        return f"{folder} holds neither {HUGGINGFACE_FILE} nor {MISTRAL_FILE}."
    if not (folder / TOKENIZER_FILE).is_file():
        return f"{folder} holds no {TOKENIZER_FILE}."
    return ""
