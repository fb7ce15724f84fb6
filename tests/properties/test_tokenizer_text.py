import itertools

from hypothesis import given
from hypothesis import strategies as st

from transom.tokenizer.detokenizer import Detokenizer
from transom.tokenizer.tekken import Tokenizer, TokenizerAudio

AUDIO = TokenizerAudio(16_000, 12.5, 128, 160, 400, 480, 32)
NUM_SPECIAL = 4


def cut(content: bytes, cuts: list[int]) -> tuple[bytes, ...]:
    """``content`` cut at ``cuts``, taken modulo its length: pieces that may end within a character."""
    edges = sorted({0, len(content), *(position % (len(content) + 1) for position in cuts)})
    return tuple(content[start:end] for start, end in itertools.pairwise(edges))


@given(text=st.text(), cuts=st.lists(st.integers(0, 1000)), pads=st.lists(st.integers(0, 3)))
def test_any_cut_of_any_text_comes_out_whole(text: str, cuts: list[int], pads: list[int]) -> None:
    pieces = cut(text.encode(), cuts)
    tokenizer = Tokenizer(0, 1, 2, NUM_SPECIAL, AUDIO, pieces)
    token_ids = [NUM_SPECIAL + rank for rank in range(len(pieces))]
    for index, special in enumerate(pads):
        token_ids.insert(2 * index, special)
    detokenizer = Detokenizer(tokenizer)
    deltas = []
    for token_id in token_ids:
        deltas.append(detokenizer.push(token_id))
        assert detokenizer.text == "".join(deltas) == detokenizer.text.strip()
        assert text.strip().startswith(detokenizer.text)
    deltas.append(detokenizer.finish())
    assert "".join(deltas) == detokenizer.text == text.strip()
    assert ("\N{REPLACEMENT CHARACTER}" in detokenizer.text) == ("\N{REPLACEMENT CHARACTER}" in text)
