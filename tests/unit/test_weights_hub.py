from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from safetensors.torch import save_file

from tests.unit.weights_models import VOXTRAL, as_stored, random_weights
from transom.errors import ConfigError
from transom.weights.config_files import write_model_config
from transom.weights.hub import LANGUAGE_MODEL_FILE, bundled_model, resolve_model
from transom.weights.names import Layout

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB_ID = "owner/model"
Snapshot = Callable[..., str]


def write_model(folder: Path, layout: Layout = "huggingface") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_model_config(VOXTRAL, folder, layout)
    name = "model.safetensors" if layout == "huggingface" else "consolidated.safetensors"
    save_file(as_stored(random_weights(VOXTRAL), VOXTRAL, layout), folder / name)
    (folder / "tekken.json").write_text("{}")
    return folder


def seed_cache(cache: Path, layout: Layout = "huggingface") -> Path:
    """What the hub's own client leaves behind after it has fetched main."""
    repository = cache / "models--owner--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return write_model(repository / "snapshots" / COMMIT, layout)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Snapshot], list[dict[str, object]]]:
    """Replaces the hub client by a function, and lists what that is asked for."""

    def install(snapshot: Snapshot) -> list[dict[str, object]]:
        asked: list[dict[str, object]] = []

        def record(hub_id: str, **options: object) -> str:
            asked.append({"hub_id": hub_id, **options})
            return snapshot(**options)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", record)
        return asked

    return install


@pytest.mark.parametrize("name", [None, "bundled"])
def test_no_name_and_bundled_mean_the_packaged_model(name: str | None) -> None:
    assert resolve_model(name) == bundled_model()


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model(tmp_path) == tmp_path
    assert resolve_model("owner/model") == Path("owner/model")


@pytest.mark.parametrize("name", ["voxtral", "./nowhere", "/nowhere/at/all", "a/b/c", "~/nowhere", ""])
def test_what_is_neither_a_folder_nor_a_hub_id_is_refused_with_examples(name: str) -> None:
    with pytest.raises(ConfigError, match=r"neither a folder nor a hub id.*mistralai/"):
        resolve_model(name)


@pytest.mark.parametrize("layout", ["huggingface", "mistral"])
@pytest.mark.parametrize("name", [HUB_ID, f"{HUB_ID}@main", f"{HUB_ID}@{COMMIT}"])
def test_a_cached_model_is_found_without_a_network(name: str, layout: Layout, tmp_path: Path) -> None:
    folder = seed_cache(tmp_path, layout)
    assert resolve_model(name, cache_folder=tmp_path) == folder


@pytest.mark.parametrize("lost", ["model.safetensors", "config.json", "tekken.json"])
def test_a_partly_cached_model_is_not_taken_for_a_whole_one(lost: str, tmp_path: Path) -> None:
    (seed_cache(tmp_path) / lost).unlink()
    with pytest.raises(ConfigError, match=rf"not found whole in the local cache: .*{lost}"):
        resolve_model(HUB_ID, offline=True, cache_folder=tmp_path)


def test_a_model_that_is_not_cached_names_the_remedy_when_offline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"owner/model@v9 .*\n.*HF_HUB_OFFLINE.* pass their folder"):
        resolve_model(f"{HUB_ID}@v9", offline=True, cache_folder=tmp_path)


def test_the_network_is_asked_only_after_the_cache_and_for_one_set_of_weights(
    calls: Callable[[Snapshot], list[dict[str, object]]], tmp_path: Path
) -> None:
    def snapshot(*, local_files_only: bool, **_: object) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not cached")
        return str(write_model(tmp_path))

    asked = calls(snapshot)
    assert resolve_model(HUB_ID, revision="v1") == tmp_path
    assert [call["local_files_only"] for call in asked] == [True, True, False]
    assert asked[-1]["allow_patterns"] == ["*.json", LANGUAGE_MODEL_FILE, "model*.safetensors"]
    assert asked[-1]["revision"] == "v1"


def test_mistrals_file_is_fetched_from_a_repository_that_has_no_other(
    calls: Callable[[Snapshot], list[dict[str, object]]], tmp_path: Path
) -> None:
    def snapshot(*, local_files_only: bool, allow_patterns: list[str], **_: object) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not cached")
        if "consolidated.safetensors" in allow_patterns:
            write_model(tmp_path, "mistral")
        return str(tmp_path)

    asked = calls(snapshot)
    assert resolve_model(HUB_ID) == tmp_path
    assert [call["allow_patterns"] for call in asked[2:]] == [
        ["*.json", LANGUAGE_MODEL_FILE, "model*.safetensors"],
        ["*.json", LANGUAGE_MODEL_FILE, "consolidated.safetensors"],
    ]


@pytest.mark.parametrize("error", [ConnectionError("no route"), HFValidationError("no route"), OSError("no route")])
def test_a_hub_that_cannot_be_reached_is_a_config_error_with_the_cause(
    error: Exception, calls: Callable[[Snapshot], list[dict[str, object]]]
) -> None:
    def snapshot(**_: object) -> str:
        raise error

    calls(snapshot)
    with pytest.raises(ConfigError, match="or on the hub: no route"):
        resolve_model(HUB_ID)
