"""Prints what Serve knows of its replicas, as JSON: ``python -m tests.ray.replicas ADDRESS`` in Ray's environment."""

from __future__ import annotations

import json
import sys

import ray
from ray.serve.context import _get_global_client


def main(address: str) -> None:
    ray.init(address=address, namespace="serve", log_to_driver=False, logging_level="error")
    applications = _get_global_client().get_serve_details()["applications"]
    deployments = applications["transom"]["deployments"]  # none while Serve reads a new configuration
    replicas = [replica for deployment in deployments.values() for replica in deployment["replicas"]]
    print(json.dumps({replica["replica_id"]: [replica["pid"], replica["state"]] for replica in replicas}))


main(sys.argv[1])
