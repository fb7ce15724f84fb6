"""The compose file: the published schema accepts it, it locks servers in, it agrees with server and image."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import Document
from transom.commands.server_options import settings_from
from transom.commands.settings_doc import serve_parser
from transom.commands.values import memory

FOLDER = Path(__file__).parents[2] / "docker"
SERVERS = ("cpu", "gpu", "replica")
PROFILES = {"cpu", "gpu", "replicas", "monitoring"}
DEFAULT = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")

Service = dict[str, Any]


def compose_text() -> str:
    return (FOLDER / "compose.yaml").read_text()


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """As they are without any variable set."""
    loaded: dict[str, Service] = yaml.safe_load(DEFAULT.sub(lambda match: match[2] or "", compose_text()))["services"]
    return loaded


def schema_complaints(path: Path) -> str:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_the_schema_accepts_it_and_refuses_a_planted_error(tmp_path: Path) -> None:
    assert schema_complaints(FOLDER / "compose.yaml") == ""
    planted = tmp_path / "compose.yaml"
    planted.write_text(compose_text().replace("stop_grace_period:", "stop_grace_time:"))
    assert "stop_grace_time" in schema_complaints(planted)


def test_nothing_runs_unasked(services: dict[str, Service]) -> None:
    assert {profile for service in services.values() for profile in service["profiles"]} == PROFILES
    assert all(len(service["profiles"]) == 1 for service in services.values())


def test_every_service_is_locked_in(services: dict[str, Service]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}, name
        assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & service.keys(), name


def test_ports_are_of_this_machine_only(services: dict[str, Service]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) >= 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_only_the_balancer_and_servers_that_stand_alone_are_published(services: dict[str, Service]) -> None:
    published = {name for name, service in services.items() if service.get("ports")}
    assert published == {"cpu", "gpu", "balancer", "prometheus", "grafana"}


def test_the_store_of_lost_sessions_which_has_no_password_is_reached_by_replicas_only(
    services: dict[str, Service],
) -> None:
    assert services["resume"]["networks"] == ["resume"]
    assert {name for name, service in services.items() if "resume" in service.get("networks", [])} == {
        "replica",
        "resume",
    }
    assert yaml.safe_load(compose_text())["networks"]["resume"] == {"internal": True}


@pytest.mark.parametrize("name", SERVERS)
def test_the_server_takes_its_settings(
    name: str, services: dict[str, Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service, documented = services[name], Document("settings.md").text
    settings = {key: str(value) for key, value in service["environment"].items() if key.startswith("TRANSOM_")}
    assert all(f"`{key}`" in documented for key in settings)
    assert settings.pop("TRANSOM_API_KEY_FILE") == f"/run/secrets/{service['secrets'][0]}"
    keys = tmp_path / "keys"
    keys.write_text("a-key\n")
    for key, value in (settings | {"TRANSOM_API_KEY_FILE": str(keys)}).items():
        monkeypatch.setenv(key, value)
    args = serve_parser().parse_args([])
    given = settings_from(args)
    assert given.api_keys
    limits = service["deploy"]["resources"]["limits"]
    assert args.threads == int(limits["cpus"])
    tmp_bytes = memory(re.search(r"size=(\w+)", service["tmpfs"][0])[1].upper() + "iB")  # type: ignore[index]
    assert given.limits.max_upload_bytes * 16 <= tmp_bytes
    if args.device != "cuda":
        assert args.cache_memory + tmp_bytes < memory(limits["memory"].upper() + "iB")
    stop_s = given.drain_delay_s + given.drain_timeout_s + seconds_beyond_the_drain()
    assert int(service["stop_grace_period"].removesuffix("s")) > stop_s


def seconds_beyond_the_drain() -> int:
    margin = re.search(r"(\d+) seconds more than the two together", Document("settings.md").text)
    assert margin, "docs/settings.md says no more how long a stop takes"
    return int(margin[1])


def test_targets_volumes_and_ports_are_those_of_the_image(services: dict[str, Service]) -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    for name in SERVERS:
        assert re.search(rf"^FROM runtime AS {services[name]['build']['target']}$", dockerfile, re.MULTILINE)
        assert services[name]["volumes"] == ["models:/models"]
        assert services[name].get("ports", [":8000"])[0].endswith(":8000")
    assert "VOLUME /models\nEXPOSE 8000\n" in dockerfile


def test_every_file_that_is_mounted_is_there(services: dict[str, Service]) -> None:
    mounted = [volume.split(":") for service in services.values() for volume in service.get("volumes", [])]
    files = [source for source, *_ in mounted if source.startswith("./")]
    assert len(files) >= 6
    assert [source for source in files if not (FOLDER / source).is_file()] == []
    assert all(mode == ["ro"] for source, _, *mode in mounted if source.startswith("./"))


def test_every_variable_is_explained_at_the_head() -> None:
    head = "".join(line for line in compose_text().splitlines(keepends=True) if line.startswith("#"))
    names = {match[1] for match in DEFAULT.finditer(compose_text()) if match[1].startswith("TRANSOM_")}
    assert {name for name in names if name not in head} == {"TRANSOM_API_KEY_FILE"}


def test_the_balancer_asks_where_the_replicas_are(services: dict[str, Service]) -> None:
    config = (FOLDER / "haproxy.cfg").read_text()
    template = re.search(r"server-template \w+ 1-(\d+) (\w+):(\d+) ", config)
    assert template, "haproxy.cfg names its servers in another way"
    assert template[2] == "replica"
    assert template[3] == services["cpu"]["ports"][0].rpartition(":")[2]
    assert services["replica"]["deploy"]["replicas"] <= int(template[1])
    stop = re.search(r"hard-stop-after (\d+)s", config)
    assert stop, "a balancer that waits for ever is killed by Docker"
    assert int(stop[1]) < int(services["balancer"]["stop_grace_period"].removesuffix("s"))
