"""What a stream needs of the cache, and how many fit: the tables of docs/deploy.md, by the code that sizes the cache.

    python -m benchmarks.sizing docs/deploy.md    # writes the file anew between its marks

Arithmetic only: nothing is loaded or run. A stream's bytes are its worst case, which admission counts: the pages of
all layers' windows in whole blocks, what one step may add, and a silent prefix of its own.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from benchmarks.random_checkpoint import VOXTRAL_4B
from transom.config import CacheConfig, DType, EngineConfig, KVCacheDType, ModelConfig
from transom.engine.build import LoadedModel, make_layout, make_prompt
from transom.engine.language_model import LanguageModel
from transom.engine.model import SpeechModel
from transom.kernels.backend import AttentionBackend
from transom.kernels.cpu import CpuAttention
from transom.kernels.flash import FlashAttention
from transom.kernels.triton import TritonAttention
from transom.kvcache.layout import BYTES_PER_ELEMENT
from transom.tokenizer.tekken import Tokenizer
from transom.weights.config_files import read_model_config
from transom.weights.hub import LANGUAGE_MODEL_FILE, TOKENIZER_FILE, bundled_model
from transom.weights.shapes import expected_shapes

MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MIB, GIB = 1 << 20, 1 << 30
BLOCK_SIZES = {
    "cpu": CpuAttention.supported_block_sizes,
    "triton": TritonAttention.supported_block_sizes,
    "flash": FlashAttention.supported_block_sizes,
}
DEVICES_GIB = (24, 48, 80, 141)
# On a GPU beside weights and cache: CUDA, activations, graphs. Assumed, not measured.
RESERVE_BYTES = 3 * GIB


@dataclass(frozen=True)
class Case:
    """A model as it is served: ``backend`` decides how large blocks are."""

    model: str
    config: ModelConfig
    dtype: DType
    kv_cache_dtype: KVCacheDType
    backend: str
    language_model: Path | None = None

    @property
    def weights_bytes(self) -> int:
        """Of the weights as the checkpoint holds them."""
        return BYTES_PER_ELEMENT[self.dtype] * sum(prod(shape) for shape in expected_shapes(self.config).values())

    @property
    def stream_bytes(self) -> int:
        """Cache of one stream at worst, by the code that divides the cache when a server starts."""
        tokenizer = Tokenizer.from_file(bundled_model() / TOKENIZER_FILE)
        prompt = make_prompt(self.config, tokenizer)
        model = cast(SpeechModel, SimpleNamespace(config=self.config))
        language_model = LanguageModel.load(self.language_model) if self.language_model else None
        loaded = LoadedModel(self.model, model, tokenizer, self.dtype, language_model=language_model)
        blocks = SimpleNamespace(supported_block_sizes=BLOCK_SIZES[self.backend])
        cache = CacheConfig(budget_bytes=1 << 40, dtype=self.kv_cache_dtype)
        layout = make_layout(loaded, cache, EngineConfig(), cast(AttentionBackend, blocks), prompt)
        return sum(group.stream_bytes for group in layout.groups)

    @property
    def row(self) -> str:
        """The first cells of a table's row."""
        cache = self.dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        return f"| {self.model} | {self.dtype} | {cache} | {self.backend} |"


def cases() -> list[Case]:
    """Both models, as they are served by default and with keys and values in 8 bits."""
    bundled, voxtral = ("bundled", read_model_config(bundled_model())), ("Voxtral-Mini-4B", VOXTRAL_4B)
    ngram = bundled_model() / LANGUAGE_MODEL_FILE
    return [
        Case(*bundled, "float32", "auto", "cpu", ngram),
        Case(*bundled, "float32", "int8", "cpu", ngram),
        Case(*voxtral, "bfloat16", "auto", "cpu"),
        Case(*voxtral, "bfloat16", "int8", "cpu"),
        Case(*voxtral, "bfloat16", "auto", "flash"),
        Case(*voxtral, "bfloat16", "auto", "triton"),
        Case(*voxtral, "bfloat16", "int8", "triton"),
    ]


def memory_table() -> Iterator[str]:
    """Bytes of weights and of a stream."""
    yield "| model | weights | keys and values | attention | weights, GiB | a stream, MiB |"
    yield "|---|---|---|---|---|---|"
    for case in cases():
        yield f"{case.row} {case.weights_bytes / GIB:.2f} | {case.stream_bytes / MIB:.0f} |"


def streams_table() -> Iterator[str]:
    """Streams whose cache fits into a GPU's memory beside the weights."""
    yield "| model | weights | keys and values | attention |" + "".join(f" {gib} GiB |" for gib in DEVICES_GIB)
    yield "|---" * (4 + len(DEVICES_GIB)) + "|"
    for case in cases():
        if case.backend != "cpu":
            free_bytes = [gib * GIB - case.weights_bytes - RESERVE_BYTES for gib in DEVICES_GIB]
            yield case.row + "".join(f" {num_bytes // case.stream_bytes} |" for num_bytes in free_bytes)


def filled(document: str) -> str:
    """``document`` with what stands between its marks made anew. Raises KeyError for an unknown mark."""
    blocks = {"memory": memory_table, "streams": streams_table}
    return MARKED.sub(lambda block: block[1] + "\n".join(blocks[block[2]]()) + "\n" + block[3], document)


def main() -> None:
    """Print the tables, or write them into a document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("document", nargs="?", type=Path)
    args = parser.parse_args()
    if args.document is None:
        print("\n".join((*memory_table(), "", *streams_table())))
    else:
        args.document.write_text(filled(args.document.read_text()))


if __name__ == "__main__":
    main()
