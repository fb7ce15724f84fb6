"""Serve's own configuration of Transom on a Ray cluster of this machine: two replicas of the bundled model.

``make test-ray`` installs Ray into an environment of its own and sets ``TRANSOM_RAY`` to it; without it these tests
are skipped.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.cluster import Cluster, started


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    environment = os.environ.get("TRANSOM_RAY")
    if environment is None:
        pytest.skip("Ray is not installed; make test-ray installs it and runs this")
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,
        started(Path(environment).absolute() / "bin", Path(folder)) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """Two replicas that answer."""
    running_cluster.deploy(2)
    running_cluster.wait_for_answers_of(2)
    return running_cluster
