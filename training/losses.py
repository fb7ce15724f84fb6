"""What a training step minimises: CTC on the encoder's side, cross-entropy on the decoder's, distance to the teacher.

Legend: S streams, T encoder frames, N tokens, C classes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from training.model import StreamModel
from training.pieces import Pieces
from training.streams import IGNORED, Batch


@dataclass(frozen=True)
class LossConfig:
    """Weights of the parts; ``corrupt`` of the decoder's inputs are random pieces, so that it survives its errors.
    The teacher is left after ``distillation_until`` steps, so that the encoder may find features of its own.

    ``smoothing`` of the decoder's targets keeps it from being sure of what it knows by heart; ``ngram`` is the part
    of a target within a word that an n-gram fills instead, if there is one (arXiv:1907.06017).
    ``pad`` weighs the many targets that say "nothing yet". Below 1 the decoder writes too much, words twice among it:
    its odds of a pad are off by just that factor.
    """

    ctc: float = 0.7
    decoder: float = 1.0
    distillation: float = 0.3
    distillation_until: int = 4000
    pad: float = 1.0
    corrupt: float = 0.08
    smoothing: float = 0.05
    ngram: float = 0.2


@dataclass(frozen=True)
class Losses:
    """``total`` to be minimised; ``parts`` to be looked at."""

    total: torch.Tensor
    parts: dict[str, torch.Tensor]


def autocast(device: torch.device, *, enabled: bool) -> torch.autocast:
    """bfloat16 products. Weights are cast once a block: a pass without gradients needs a block of its own."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def losses(
    model: StreamModel,
    batch: Batch,
    config: LossConfig,
    pieces: Pieces,
    step: int,
    *,
    feature_norm: torch.Tensor | None,
    trains_encoder: bool,
    bfloat16: bool,
) -> Losses:
    """Run the model on a batch. ``feature_norm`` [2, D] is the teacher's mean and deviation, None without one."""
    device = batch.mel.device
    with torch.set_grad_enabled(trains_encoder and torch.is_grad_enabled()), autocast(device, enabled=bfloat16):
        frames = model.encode(batch.mel, batch.first_frames)
    with autocast(device, enabled=bfloat16):
        audio = model.embed(frames)
        log_probabilities = model.ctc_logits(audio).log_softmax(dim=-1)
    heard = model.delayed(audio)
    ids = corrupted(batch.ids, config.corrupt, pieces)
    with autocast(device, enabled=bfloat16):
        logits = model.decode(heard, ids, batch.delays)
    parts = {"ctc": ctc_loss(log_probabilities, batch, pieces.blank)}
    decoder, accuracy = decoder_loss(logits, batch, config, pieces)
    total = config.ctc * parts["ctc"] + config.decoder * decoder
    parts |= {"decoder": decoder} | accuracy
    is_taught = trains_encoder and config.distillation > 0 and step < config.distillation_until
    if feature_norm is not None and is_taught and batch.features.shape[-1]:
        parts["distillation"] = distillation_loss(frames, batch, feature_norm)
        total = total + config.distillation * parts["distillation"]
    return Losses(total, {name: value.detach() for name, value in parts.items()})


def corrupted(ids: torch.Tensor, share: float, pieces: Pieces) -> torch.Tensor:
    """Replace a share of the pieces among decoder inputs [S, N] by random ones."""
    is_hit = (torch.rand(ids.shape, device=ids.device) < share) & (ids >= pieces.first_id)
    other = torch.randint(pieces.first_id, pieces.tokenizer.vocab_size, ids.shape, device=ids.device)
    return torch.where(is_hit, other, ids)


def ctc_loss(log_probabilities: torch.Tensor, batch: Batch, blank: int) -> torch.Tensor:
    """Per label; log-probabilities [S, N, C]."""
    total = F.ctc_loss(
        log_probabilities.transpose(0, 1),
        batch.labels,
        batch.num_steps,
        batch.num_labels,
        blank=blank,
        zero_infinity=True,
        reduction="sum",
    )
    return total / batch.num_labels.sum().clamp_min(1)


def decoder_loss(
    logits: torch.Tensor, batch: Batch, config: LossConfig, pieces: Pieces
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Weighted mean over the batch's targets that count, logits [S, N, V]; and how many pieces and pads are right.

    Masks, not selections: those would make the host wait for the GPU.
    """
    logits, targets = logits.flatten(0, 1), batch.targets.flatten()
    is_pad = targets == pieces.tokenizer.streaming_pad
    weights = torch.where(is_pad, config.pad, 1.0) * (targets != IGNORED)
    each = F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED, label_smoothing=config.smoothing)
    if len(batch.ngram_places):
        within = logits[batch.ngram_places]
        own = F.cross_entropy(within, targets[batch.ngram_places], reduction="none")
        expected = F.cross_entropy(within, batch.ngram_targets, reduction="none")
        each = each.index_copy(0, batch.ngram_places, torch.lerp(own, expected, config.ngram))
    is_right = logits.argmax(dim=-1) == targets
    is_piece = targets >= pieces.first_id
    accuracy = {"piece_accuracy": _share(is_right, is_piece), "pad_accuracy": _share(is_right, is_pad)}
    return (each * weights).sum() / weights.sum(), accuracy


def _share(is_hit: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    return (is_hit & among).sum() / among.sum().clamp_min(1)


def distillation_loss(frames: torch.Tensor, batch: Batch, feature_norm: torch.Tensor) -> torch.Tensor:
    """Distance of frames [S, T, D] from the teacher's features, each dimension in its own deviations."""
    mean, deviation = feature_norm
    wanted = torch.where(batch.has_features[..., None], batch.features, frames.detach())
    distance = F.smooth_l1_loss((frames - mean) / deviation, (wanted - mean) / deviation, reduction="sum")
    return distance / (batch.has_features.sum() * frames.shape[-1]).clamp_min(1)
