"""How far logits are from float32's with weights, or keys and values, of fewer bits: random weights, the 4B's shapes.

    python -m benchmarks.rounded_logits [--layers 2] [--dtype float32]

The 4B's widths and vocabulary with fewer layers. Every kind hears the same audio and the same tokens; compared are
the logits of the first step that chooses one: the norm of the difference over the norm, and the largest difference
over the standard deviation. ``--dtype`` is that of the checkpoint: float16 holds most bfloat16 values exactly.
"K/V" are kinds with keys and values in 8 bits.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.random_checkpoint import DTYPES, VOXTRAL_4B, write_random_checkpoint
from tests.engines import tones
from transom.config import CacheConfig, DType, EngineConfig, KVCacheDType, ModelConfig, Weights
from transom.engine.api import SessionOptions
from transom.engine.build import build_engine, load_model

KINDS: dict[str, tuple[DType | None, Weights | None, KVCacheDType]] = {
    "float32": ("float32", None, "auto"),
    "float32, K/V": ("float32", None, "int8"),
    "bfloat16": ("bfloat16", None, "auto"),
    "bfloat16, K/V": ("bfloat16", None, "int8"),
    "fp16": (None, "fp16", "auto"),
    "int8": (None, "int8", "auto"),
    "int8, K/V": (None, "int8", "int8"),
}


def first_logits(
    folder: Path, dtype: DType | None, weights: Weights | None, kv_cache_dtype: KVCacheDType
) -> torch.Tensor:
    """The logits of the first token that is chosen."""
    loaded = load_model(folder, "random", "cpu", dtype, weights)
    decoder = loaded.model.decoder
    seen: list[torch.Tensor] = []
    compute = decoder.logits

    def keep(hidden: torch.Tensor) -> torch.Tensor:
        logits = compute(hidden)
        seen.append(logits)
        return logits

    decoder.logits = keep  # type: ignore[method-assign]
    engine = build_engine(loaded, CacheConfig(1 << 30, dtype=kv_cache_dtype), EngineConfig(max_sessions=1))
    engine.run_without_thread()
    session = engine.open_session(SessionOptions(), lambda event: None)
    session.append(tones(2.0, seed=1))
    while not seen:
        engine.run_step()
    return seen[0].float().flatten()


def shrunk(num_layers: int) -> ModelConfig:
    """The 4B with ``num_layers`` in its encoder and as many in its decoder."""
    encoder, decoder = VOXTRAL_4B.encoder, VOXTRAL_4B.decoder
    windows = decoder.sliding_windows[:num_layers]
    return replace(
        VOXTRAL_4B,
        encoder=replace(encoder, num_layers=num_layers),
        decoder=replace(decoder, num_layers=num_layers, sliding_windows=windows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_random_checkpoint(shrunk(args.layers), Path(folder), dtype=args.dtype)
        true = first_logits(Path(folder), *KINDS["float32"])
        for kind in list(KINDS)[1:]:
            difference = first_logits(Path(folder), *KINDS[kind]) - true
            relative, largest = difference.norm() / true.norm(), difference.abs().max() / true.std()
            print(f"{kind:14} relative {relative:.2e}, largest {largest:.2e} of the deviation", flush=True)


if __name__ == "__main__":
    main()
