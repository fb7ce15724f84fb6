#!/usr/bin/env bash
# A whole training in about ten minutes on one GPU: packed data in, model folder out.
#   training/gpu_run.sh PACK OUT [MINUTES]
# Needs Python with this package, its extra "train" and a CUDA build of torch. OUT/run is resumable; OUT/model is the
# result, OUT/run/validation.csv its error rates on the development speakers.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=$1 out=$2 minutes=${3:-8}
shards=$out/shards run=$out/run
mkdir -p "$out"
[ -e "$shards/encoder.safetensors" ] || python -m training.pack unpack "$pack" "$shards"
python -m training.teach "$shards" "$shards" --device cuda
python -m training.train "$shards" "$run" --whisper "$shards" --device cuda --workers "$(nproc)" \
    --seconds-per-step 256 --minutes "$minutes" --save-minutes 2 --validate-minutes 1000
python -m training.export "$run/best.pt" "$out/model"
python -m training.metrics "$run"
