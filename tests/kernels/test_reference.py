"""The reference against torch's own dense attention, and by hand."""

import torch

from tests.kernels.cases import Case, dense_attention, expected, make_step


def test_reference_equals_dense_attention_with_an_explicit_mask() -> None:
    case = Case(streams=((7, 23),), heads=4, kv_heads=2, window=9, keeps_expired=True)
    step = make_step(case)
    output, cache = expected(case, step)
    table = step.metadata.block_table[0].long()
    keys, values = (
        pages[table].flatten(0, 1)[:23].double().repeat_interleave(2, dim=1) for pages in (cache.keys, cache.values)
    )
    dense = dense_attention(step.queries.double(), keys, values, window=9, scale=case.head_dim**-0.5)
    torch.testing.assert_close(output, dense)


def test_rows_before_the_first_key_are_zero_and_have_no_slot() -> None:
    case = Case(streams=((4, 2),))
    step = make_step(case)
    output, _ = expected(case, step)
    assert step.metadata.slots[:2].tolist() == [-1, -1]
    assert output[:2].abs().max() == 0
    torch.testing.assert_close(output[2], step.values[2].double())
