#!/usr/bin/env bash
# Writes docker/requirements.txt: what the images install beside torch, with the hashes of all published files.
# The versions are those of constraints.txt. Needs uv (pip install uv). Options go to uv pip compile; on a machine
# where torch would come with CUDA give --torch-backend cpu.
set -euo pipefail
cd "$(dirname "$0")/.."

{
    echo "# Made by docker/lock.sh from pyproject.toml and constraints.txt: all that transom[redis,vad] needs but torch."
    uv pip compile --quiet --extra redis --extra vad --constraint constraints.txt --python-version 3.11 --python-platform linux \
        --no-emit-package torch --generate-hashes --no-annotate --no-header "$@" pyproject.toml
} >docker/requirements.txt.new
mv docker/requirements.txt.new docker/requirements.txt
