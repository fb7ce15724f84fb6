"""Decoding of whole utterances: what the engine writes, without the engine, its pages and its batches.

Used while training, where an engine for every checkpoint would cost too much, and in the test that holds the exported
model to the trained one.

Legend: S streams, F mel frames, M mel bins, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training.model import DecoderCache, StreamModel
from transom.engine.search import Search
from transom.tokenizer.tekken import Tokenizer

FRAMES_PER_TOKEN = 8
EXTRA_RIGHT_PAD_TOKENS = 11


def padded_mel(mels: Sequence[torch.Tensor], left_pad_tokens: int, delay_tokens: int, silence: float) -> torch.Tensor:
    """Log-mel [F_i, M] of some utterances -> [S, F, M] between silences, long enough for the last words."""
    longest = max(-(-len(mel) // FRAMES_PER_TOKEN) for mel in mels)
    num_tokens = left_pad_tokens + longest + delay_tokens + EXTRA_RIGHT_PAD_TOKENS
    batch = torch.full((len(mels), num_tokens * FRAMES_PER_TOKEN, mels[0].shape[1]), silence)
    start = left_pad_tokens * FRAMES_PER_TOKEN
    for row, mel in zip(batch, mels, strict=True):
        row[start : start + len(mel)] = mel
    return batch


@torch.inference_mode()
def greedy_ids(
    model: StreamModel, audio: torch.Tensor, tokenizer: Tokenizer, left_pad_tokens: int, delay_tokens: int
) -> list[list[int]]:
    """Audio embeddings [S, N, E] that begin with the left pad -> emitted token ids of each stream.

    The first is emitted after BOS, left pad and delay, one more for every token of audio that follows.
    """
    audio = model.delayed(audio)
    num_streams, num_tokens = audio.shape[:2]
    num_given = 1 + left_pad_tokens + delay_tokens
    ids = torch.full((num_streams, num_given), tokenizer.streaming_pad, device=audio.device)
    ids[:, 0] = tokenizer.bos
    delays = torch.full((num_streams,), delay_tokens, device=audio.device)
    cache = DecoderCache()
    emitted = [model.decode(audio[:, :num_given], ids, delays, cache)[:, -1].argmax(dim=-1)]
    for position in range(num_given, num_tokens):
        logits = model.decode(audio[:, position : position + 1], emitted[-1][:, None], delays, cache)
        emitted.append(logits[:, -1].argmax(dim=-1))
    rows: list[list[int]] = torch.stack(emitted, dim=1).tolist()
    return rows


@torch.inference_mode()
def searched_ids(
    model: StreamModel,
    audio: torch.Tensor,
    search: Search,
    tokenizer: Tokenizer,
    left_pad_tokens: int,
    delay_tokens: int,
) -> list[int]:
    """The same of one stream [1, N, E] by a search among hypotheses, ``delay_tokens`` being the model's own."""
    audio = model.delayed(audio)
    num_given = 1 + left_pad_tokens + delay_tokens
    ids = torch.tensor([[tokenizer.bos, *[tokenizer.streaming_pad] * (num_given - 1)]])
    cache = DecoderCache()
    logits = model.decode(audio[:, :num_given], ids, torch.tensor([delay_tokens]), cache)
    certain: list[tuple[int, int]] = []
    for position in range(num_given, audio.shape[1] + 1):
        decision = search.advance(logits[:, -1].log_softmax(dim=-1).numpy())
        certain += decision.tokens
        if position == audio.shape[1]:
            break
        parents = list(decision.parents)
        cache.layers = {index: (keys[parents], values[parents]) for index, (keys, values) in cache.layers.items()}
        heard = audio[:, position : position + 1].expand(len(parents), -1, -1)
        delays = torch.full((len(parents),), delay_tokens)
        logits = model.decode(heard, torch.tensor(search.last_token_ids)[:, None], delays, cache)
    return [token_id for token_id, _ in (*certain, *search.finish())]
