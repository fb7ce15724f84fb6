"""Packed layers against the plain ones that they replace, and that no row hears its neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transom.layers.packed import PackedConv, PackedLinear, can_pack, pack_joined

pytestmark = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.float32), reason="this build of torch has no oneDNN"
)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (33, 77), (384, 1536)])
@pytest.mark.parametrize("num_rows", [1, 4, 50])
@pytest.mark.parametrize("with_bias", [True, False])
@torch.inference_mode()
def test_a_packed_layer_gives_what_the_layer_gives(shape: tuple[int, int], num_rows: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(*shape, bias=with_bias)
    x = rows(num_rows, shape[0])
    torch.testing.assert_close(PackedLinear(layer.weight, layer.bias)(x), layer(x), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_joined_layers_stand_side_by_side() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(24, 16), nn.Linear(24, 8, bias=False), nn.Linear(24, 40)]
    x = rows(5, 24)
    expected = torch.cat([layer(x) for layer in layers], dim=1)
    torch.testing.assert_close(pack_joined(layers)(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@torch.inference_mode()
def test_a_packed_convolution_gives_what_the_convolution_gives(stride: int) -> None:
    torch.manual_seed(0)
    conv = nn.Conv1d(20, 24, kernel_size=3, stride=stride)
    x = rows(6, 9, 20).transpose(1, 2)
    torch.testing.assert_close(PackedConv(conv)(x), conv(x), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_row_has_the_same_bits_alone_and_among_others() -> None:
    layer = PackedLinear(rows(384, 384), None)
    x = rows(192, 384)
    together = layer(x)
    for num_rows in (1, 4, 48):
        assert torch.equal(layer(x[:num_rows].contiguous()), together[:num_rows])
