"""The reference against torch's own dense attention, and by hand."""

import torch
import torch.nn.functional as F

from tests.kernels.cases import Case, expected, make_step


def test_reference_equals_dense_attention_with_an_explicit_mask() -> None:
    case = Case(streams=((7, 23),), heads=4, kv_heads=2, window=9)
    step = make_step(case)
    output, cache = expected(case, step)
    table = step.metadata.block_table[0].long()
    keys, values = (
        pages[table].flatten(0, 1)[:23].double().repeat_interleave(2, dim=1).transpose(0, 1)
        for pages in (cache.keys, cache.values)
    )
    distance = torch.arange(16, 23)[:, None] - torch.arange(23)
    mask = (distance >= 0) & (distance < 9)
    dense = F.scaled_dot_product_attention(step.queries.double().transpose(0, 1), keys, values, attn_mask=mask)
    torch.testing.assert_close(output, dense.transpose(0, 1))


def test_rows_before_the_first_key_are_zero_and_have_no_slot() -> None:
    case = Case(streams=((4, 2),))
    step = make_step(case)
    output, _ = expected(case, step)
    assert step.metadata.slots[:2].tolist() == [-1, -1]
    assert output[:2].abs().max() == 0
    torch.testing.assert_close(output[2], step.values[2].double())
