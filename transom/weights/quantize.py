"""Weights in 16 and 8 bits: which ones they are, how they are rounded, and what they are called in a folder.

Rounded are the matrices that every step multiplies by, the output projection among them; norms, biases, convolutions
and the delay's small matrices stay as they are. So does the embedding: a step reads one row of it, and of a mapped
file no more. A folder of rounded weights therefore holds the projection, rounded, beside the embedding.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from transom.config import ModelConfig, Weights
from transom.errors import WeightsError
from transom.weights.names import LM_HEAD
from transom.weights.shapes import Shapes, expected_shapes

EMBEDDING = "decoder.embed_tokens.weight"
STORED_DTYPES: dict[Weights, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}
INT8_MAXIMUM = 127
_CHUNK_ROWS = 4096


def scale_name(matrix: str) -> str:
    """The name of the scales [N] that belong to an int8 matrix."""
    return f"{matrix}_scale"


def matrix_names(config: ModelConfig) -> tuple[str, ...]:
    """Our names of all matrices that are rounded, the output projection first, which is the largest."""
    shapes = expected_shapes(config)
    return (LM_HEAD, *(name for name, shape in shapes.items() if len(shape) == 2 and not _is_kept(name)))


def _is_kept(name: str) -> bool:
    return name == EMBEDDING or ".delay." in name


def stored_shapes(config: ModelConfig, weights: Weights | None) -> Shapes:
    """Name -> shape of every tensor in a model folder, of a rounded one if ``weights`` says so."""
    shapes = expected_shapes(config)
    if weights is None:
        return shapes
    shapes[LM_HEAD] = shapes[EMBEDDING]
    if weights == "int8":
        shapes |= {scale_name(name): shapes[name][:1] for name in matrix_names(config)}
    return shapes


def rounded(name: str, tensors: Mapping[str, torch.Tensor], weights: Weights) -> dict[str, torch.Tensor]:
    """The matrix ``name`` as a folder of rounded weights stores it: ``name`` and, in 8 bits, its scales.

    ``tensors`` may be those of such a folder already. Raises WeightsError for values that do not fit.
    """
    matrix = tensors[EMBEDDING if name == LM_HEAD and LM_HEAD not in tensors else name]
    if matrix.dtype == torch.int8:
        return {name: matrix, scale_name(name): tensors[scale_name(name)]}
    dtype = STORED_DTYPES[weights]
    lowest, highest = matrix.aminmax()
    limit = torch.finfo(dtype if dtype.is_floating_point else torch.float32).max
    if not (-limit <= float(lowest) and float(highest) <= limit):
        raise WeightsError(
            f"{name} goes from {lowest} to {highest}, which {weights} cannot hold; leave out --weights."
        )
    if dtype.is_floating_point:
        return {name: matrix.to(dtype)}
    quantized, scale = quantize_rows(matrix)
    return {name: quantized, scale_name(name): scale}


def quantize_rows(matrix: torch.Tensor, chunk_rows: int = _CHUNK_ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, K] of any float dtype -> int8 [N, K] from -127 to 127 and float32 scales [N], each row's maximum at 127.

    In chunks of rows, so that the float32 copy of a large matrix never exists as a whole.
    """
    quantized = torch.empty(matrix.shape, dtype=torch.int8)
    scale = torch.empty(len(matrix))
    for start in range(0, len(matrix), chunk_rows):
        part = slice(start, start + chunk_rows)
        values = matrix[part].float()
        maximum = values.abs().amax(dim=1)
        scale[part] = torch.where(maximum > 0, maximum, 1.0) / INT8_MAXIMUM
        quantized[part] = (values / scale[part, None]).round_().clamp_(-INT8_MAXIMUM, INT8_MAXIMUM)
    return quantized, scale
