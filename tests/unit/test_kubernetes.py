"""The Kubernetes manifests: the published schemas accept them, and they agree with server, image and docs."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import ValidationError

from tests.documents import Document
from transom.commands.server_options import settings_from
from transom.commands.settings_doc import serve_parser
from transom.server.security import OPEN_PATHS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
VERSIONS = ("1.30", "1.37")
BASE = ("autoscaler", "deployment", "disruption_budget", "service")
OVERLAYS = ("cpu", "gpu")

Manifest = dict[str, Any]


def load(path: str) -> Manifest:
    manifest: Manifest = yaml.safe_load((FOLDER / path).read_text())
    return manifest


def check(manifest: Manifest) -> None:
    """Unknown fields are errors, too."""
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


def built(overlay: str) -> list[Manifest]:
    """What ``kubectl apply -k`` would send."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl, which builds the overlays without a cluster")
    command = [kubectl, "kustomize", str(FOLDER / overlay)]
    return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@pytest.fixture
def deployment() -> Manifest:
    return load("base/deployment.yaml")


def pod_of(deployment: Manifest) -> Manifest:
    pod: Manifest = deployment["spec"]["template"]["spec"]
    return pod


def container_of(deployment: Manifest) -> Manifest:
    (container,) = pod_of(deployment)["containers"]
    return container  # type: ignore[no-any-return]


def environment_of_base() -> dict[str, str]:
    lines = (FOLDER / "base" / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def environments() -> Iterator[dict[str, str]]:
    """Base and overlays, each with what it adds."""
    yield environment_of_base()
    for overlay in OVERLAYS:
        (generator,) = load(f"{overlay}/kustomization.yaml")["configMapGenerator"]
        yield dict(literal.split("=", 1) for literal in generator["literals"])


@pytest.mark.parametrize("name", BASE)
def test_the_schemas_accept_what_the_overlays_build_on(name: str) -> None:
    check(load(f"base/{name}.yaml"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_schemas_accept_what_kubectl_would_send(overlay: str) -> None:
    manifests = built(overlay)
    for manifest in manifests:
        check(manifest)
    kinds = [manifest["kind"] for manifest in manifests]
    assert kinds.count("ConfigMap") == kinds.count("Deployment") == kinds.count("HorizontalPodAutoscaler") == 1
    (settings,) = (manifest for manifest in manifests if manifest["kind"] == "ConfigMap")
    (deployment,) = (manifest for manifest in manifests if manifest["kind"] == "Deployment")
    assert container_of(deployment)["envFrom"][0] == {"configMapRef": {"name": settings["metadata"]["name"]}}
    assert settings["data"].keys() > environment_of_base().keys()


def test_every_file_is_part_of_an_installation() -> None:
    assert sorted(load("base/kustomization.yaml")["resources"]) == sorted(f"{name}.yaml" for name in BASE)
    known = {f"base/{name}.yaml" for name in BASE} | {"prometheus_adapter.yaml", "gpu/models.yaml"}
    known |= {f"{folder}/kustomization.yaml" for folder in ("base", *OVERLAYS)}
    known |= {f"{overlay}/deployment.yaml" for overlay in OVERLAYS}
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml")} == known


def test_the_schemas_refuse_a_planted_error(deployment: Manifest) -> None:
    unknown, wrong, missing = (copy.deepcopy(deployment) for _ in range(3))
    container_of(unknown)["livenessProb"] = container_of(unknown).pop("livenessProbe")
    container_of(wrong)["ports"][0]["containerPort"] = "8000"
    del missing["spec"]["selector"]
    for planted, told in ((unknown, "livenessProb"), (wrong, "'8000' is not of type"), (missing, "selector")):
        with pytest.raises(ValidationError, match=told):
            check(planted)


def test_every_variable_is_a_setting_of_the_server(deployment: Manifest) -> None:
    documented = Document("settings.md").text
    named = [variable for environment in environments() for variable in environment]
    named += [variable["name"] for variable in container_of(deployment)["env"] if variable["name"] != "HF_TOKEN"]
    assert all(f"`{variable}`" in documented for variable in named), named


def test_the_server_takes_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    base = environment_of_base()
    for environment in environments():
        with monkeypatch.context() as patch:
            for name, value in (base | environment).items():
                patch.setenv(name, value)
            assert settings_from(serve_parser().parse_args([])).drain_timeout_s == float(
                base["TRANSOM_DRAIN_TIMEOUT_S"]
            )


def test_keys_are_a_file_and_what_else_is_secret_may_be_left_out(deployment: Manifest) -> None:
    file, *others = container_of(deployment)["env"]
    (volume,) = (volume["secret"] for volume in pod_of(deployment)["volumes"] if "secret" in volume)
    (mount,) = (mount for mount in container_of(deployment)["volumeMounts"] if mount.get("readOnly"))
    (item,) = volume["items"]
    assert file == {"name": "TRANSOM_API_KEY_FILE", "value": f"{mount['mountPath']}/{item['path']}"}
    assert volume["defaultMode"] == 0o440  # of root and the pod's group
    references = [variable["valueFrom"]["secretKeyRef"] for variable in others]
    assert all(reference["optional"] and reference["name"] == volume["secretName"] for reference in references)
    page = Document("deploy.md").text
    assert all(f"`{key}`" in page for key in [item["key"], *(reference["key"] for reference in references)])
    assert f"secret generic {volume['secretName']} --from-literal={item['key']}=" in page


def test_no_variable_of_a_service_looks_like_a_setting(deployment: Manifest) -> None:
    assert pod_of(deployment)["enableServiceLinks"] is False


def test_a_pod_is_given_the_time_to_drain(deployment: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of_base().items():
        monkeypatch.setenv(name, value)
    settings = settings_from(serve_parser().parse_args([]))
    margin = re.search(r"(\d+) seconds more than the two together", Document("settings.md").text)
    assert margin, "docs/settings.md says no more how long a stop takes"
    stop_s = settings.drain_delay_s + settings.drain_timeout_s + int(margin[1])
    pre_stop_s = container_of(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod_of(deployment)["terminationGracePeriodSeconds"] >= pre_stop_s + stop_s


def test_ports_paths_and_user_are_those_of_the_image_and_the_server(deployment: Manifest) -> None:
    container, dockerfile = container_of(deployment), (ROOT / "docker" / "Dockerfile").read_text()
    (port,) = container["ports"]
    assert f"EXPOSE {port['containerPort']}\n" in dockerfile
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert [probe["port"] for probe in probes] == [port["name"]] * 3
    assert load("base/service.yaml")["spec"]["ports"][0]["targetPort"] == port["name"]
    paths = [probe["path"] for probe in probes]
    assert paths == ["/readyz", "/readyz", "/health"]
    assert {*paths, annotations["prometheus.io/path"]} <= OPEN_PATHS  # probes and scrapers have no key
    user = pod_of(deployment)["securityContext"]["runAsUser"]
    assert re.search(rf"^RUN .*--uid {user}\b|--uid {user} ", dockerfile, re.MULTILINE)
    mounted = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert mounted == {"/models", "/tmp"}  # what the image writes to; all else is read-only
    assert "HF_HOME=/models" in dockerfile


def test_the_pod_has_no_rights_that_it_does_not_need(deployment: Manifest) -> None:
    pod, container = pod_of(deployment), container_of(deployment)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_selectors_find_the_pods(deployment: Manifest) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert load("base/service.yaml")["spec"]["selector"] == labels
    assert load("base/disruption_budget.yaml")["spec"]["selector"]["matchLabels"] == labels


def test_the_autoscaler_asks_for_what_the_adapter_serves_from_metrics_that_exist() -> None:
    rules = load("prometheus_adapter.yaml")["rules"]["custom"]
    asked = [metric["pods"]["metric"]["name"] for metric in load("base/autoscaler.yaml")["spec"]["metrics"]]
    assert asked == [rule["name"]["as"] for rule in rules]
    documented = {row[0] for row in Document("metrics.md").tables("Metrics")[0]}
    queries = [rule["seriesQuery"] + rule["metricsQuery"] for rule in rules]
    used = {name for query in queries for name in re.findall(r"\btransom_\w+", query)}
    assert used <= documented, used - documented
    assert len(used) >= len(rules)


def test_the_autoscaler_acts_before_clients_are_refused() -> None:
    metrics = load("base/autoscaler.yaml")["spec"]["metrics"]
    targets = {m["pods"]["metric"]["name"]: m["pods"]["target"]["averageValue"] for m in metrics}
    max_load = serve_parser().get_default("max_load")
    assert int(targets["transom_engine_load"].removesuffix("m")) / 1000 < max_load
    assert int(targets["transom_pool_share"].removesuffix("m")) / 1000 < 1
