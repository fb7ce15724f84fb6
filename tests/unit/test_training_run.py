"""Training learns, resumes bit by bit, takes an earlier run over, and decays when asked."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.test_training_streams import TEXTS
from tests.unit.training_models import log_mel, tiny_config, tiny_pieces, write_shards
from training.attention import banded_attention
from training.losses import LossConfig, corrupted, decoder_loss, distillation_loss
from training.metrics import read_curves
from training.model import StreamModel
from training.ngram import SEARCH, counted, symbols_of
from training.run import Run, TrainConfig
from training.schedule import ScheduleConfig, TimedCycle, rate_factor
from training.streams import Batch, DataConfig, Pools, StepBatches
from training.train import LAST, Loop, LoopConfig, feature_norm, stopped_by_signals
from training.validate import error_rates, invented_words, validation_set
from transom.engine.language_model import LanguageModel
from transom.errors import WeightsError

SCHEDULE = ScheduleConfig(frozen_steps=1, warm_up=1, encoder_warm_up=2, cycles=(8,), rate=3e-3)
CONFIG = TrainConfig(schedule=SCHEDULE, losses=LossConfig())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> StepBatches:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, "lj", TEXTS)
    config, pieces = DataConfig(seconds_per_step=12, lengths_s=(6,), shares={"lj": 1.0}), tiny_pieces()
    num_symbols = pieces.num_pieces + 1
    ngram = LanguageModel(counted(symbols_of(TEXTS, pieces), num_symbols), num_symbols, SEARCH)
    return StepBatches(Pools(folder, config), pieces, config, ngram)


def new_run(data: StepBatches, family: str = "whisper", config: TrainConfig = CONFIG) -> Run:
    run = Run(config, tiny_config(family), tiny_pieces())
    run.feature_norm = feature_norm(data._pools)
    return run


@pytest.mark.parametrize("family", ["whisper", "voxtral"])
def test_steps_on_one_batch_lower_every_part_of_its_loss(family: str, data: StepBatches) -> None:
    losses = LossConfig(corrupt=0, distillation=3.0)  # six steps are few: no part may be drowned out
    run = new_run(
        data, family, replace(CONFIG, losses=losses, dropout=0.0, schedule=replace(SCHEDULE, frozen_steps=0))
    )
    history = [run.step(data[0]) for _ in range(6)]
    for part in ("ctc", "decoder", "distillation"):
        assert history[-1][part] < history[0][part]


def test_an_ngram_fills_a_part_of_the_targets_within_words(data: StepBatches) -> None:
    batch, pieces = data[0], tiny_pieces()
    logits = torch.randn(*batch.ids.shape, pieces.tokenizer.vocab_size)

    def loss(batch: Batch, part: float) -> float:
        return decoder_loss(logits, batch, LossConfig(ngram=part, smoothing=0.0), pieces)[0].item()

    own = batch.targets.flatten()[batch.ngram_places]
    certain = torch.nn.functional.one_hot(own, pieces.tokenizer.vocab_size).float()
    none = replace(batch, ngram_places=batch.ngram_places[:0], ngram_targets=batch.ngram_targets[:0])
    assert loss(none, 1.0) == pytest.approx(loss(batch, 0.0))
    assert loss(replace(batch, ngram_targets=certain), 1.0) == pytest.approx(loss(none, 0.0), rel=1e-5)
    assert loss(batch, 0.5) == pytest.approx((loss(batch, 0.0) + loss(batch, 1.0)) / 2, rel=1e-5)
    assert loss(batch, 1.0) != pytest.approx(loss(batch, 0.0), rel=1e-3)


def test_an_anchor_holds_the_encoder_near_where_it_began(data: StepBatches) -> None:
    distances = []
    for anchor in (0.0, 0.5):
        run = new_run(data, config=replace(CONFIG, anchor=anchor, schedule=replace(SCHEDULE, frozen_steps=0)))
        start = {name: tensor.clone() for name, tensor in run.model.state_dict().items() if "encoder.layers" in name}
        run.anchor_at(start)
        for step in range(3):
            run.step(data[step])
        moved = [(run.model.state_dict()[name] - tensor).norm() for name, tensor in start.items()]
        distances.append(float(torch.stack(moved).norm()))
    assert 0 < distances[1] < distances[0] / 2


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["whisper", "voxtral"])
def test_a_gpu_learns_what_a_cpu_does(family: str, data: StepBatches) -> None:
    config = replace(CONFIG, losses=LossConfig(corrupt=0), dropout=0.0, bfloat16=False)
    runs = [Run(config, tiny_config(family), tiny_pieces(), device) for device in ("cpu", "cuda")]
    for run in runs:
        run.feature_norm = feature_norm(data._pools)
        if run.feature_norm is not None:
            run.feature_norm = run.feature_norm.to(run.device)
    histories = [[float(run.step(data[step])["decoder"]) for step in range(4)] for run in runs]
    assert histories[1] == pytest.approx(histories[0], rel=1e-2)


def test_a_resumed_run_goes_on_bit_by_bit(data: StepBatches, tmp_path: Path) -> None:
    straight, first = new_run(data), new_run(data)
    for step in range(4):
        straight.step(data[step])
    for step in range(2):
        first.step(data[step])
    first.checkpoint().save(tmp_path / LAST)
    resumed = Run(CONFIG, tiny_config("whisper"), tiny_pieces())
    resumed.resume(tmp_path / LAST)
    for step in range(2, 4):
        resumed.step(data[step])
    assert resumed.progress == straight.progress
    for name, tensor in straight.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
        assert torch.equal(straight.average[name], resumed.average[name]), name
        assert not torch.equal(tensor, first.model.state_dict()[name]) or "bias" in name, name


def test_a_frozen_encoder_stays_and_what_cannot_be_resumed_is_refused(data: StepBatches, tmp_path: Path) -> None:
    run = new_run(data, config=replace(CONFIG, schedule=replace(SCHEDULE, frozen_steps=10)))
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.step(data[0])
    for name, tensor in run.model.state_dict().items():
        is_frozen = name.startswith("encoder.") and ".adapter." not in name
        if name.endswith("weight"):
            assert torch.equal(tensor, before[name]) == is_frozen, name
    run.checkpoint(slim=True).save(tmp_path / "best.pt")
    with pytest.raises(WeightsError, match=r"resume from last\.pt"):
        run.resume(tmp_path / "best.pt")
    run.checkpoint().save(tmp_path / LAST)
    with pytest.raises(WeightsError, match="another encoder"):
        new_run(data, "voxtral").resume(tmp_path / LAST)


def test_the_loop_writes_a_run_folder_and_stops_at_a_signal(data: StepBatches, tmp_path: Path) -> None:
    write_shards(tmp_path, "ls_dev", TEXTS)
    run = new_run(data)
    loop = Loop(run, tmp_path, LoopConfig(delays=(12,)), validation_set(tmp_path, "ls_dev", 3))
    loop.train(map(data.__getitem__, range(8)), 8)
    assert {"last.pt", "best.pt", "final-8.pt"} <= {file.name for file in tmp_path.iterdir()}
    curves = read_curves(tmp_path / "validation.csv")
    assert curves["decoder 12"][0] == [8.0]
    assert set(curves) == {"ctc", "decoder 12", "invented words"}
    with stopped_by_signals(loop):
        signal.raise_signal(signal.SIGTERM)
        loop.train(map(data.__getitem__, range(8, 12)), 4)
    assert run.progress.step == 9
    assert (tmp_path / "last.previous").exists()


def test_validation_scores_words_and_counts_invented_ones(data: StepBatches, tmp_path: Path) -> None:
    write_shards(tmp_path, "ls_dev", TEXTS)
    run = new_run(data)
    with run.averaged() as model:
        rates = error_rates(model, validation_set(tmp_path, "ls_dev", 4), run.pieces, (6, 12), batch_size=3)
        assert invented_words(model, run.pieces) >= 0
    assert set(rates) == {"ctc", "decoder 6", "decoder 12"}
    assert all(rate > 0 for rate in rates.values())
    assert run.model.training


def test_rates_warm_up_stay_and_decay_also_when_asked() -> None:
    config = ScheduleConfig(
        warm_up=10, later_warm_up=20, later_level=0.5, cycles=(100, 200), decay_part=0.5, floor=0.1
    )
    assert [rate_factor(config, step) for step in (0, 9, 49, 75, 99, 100, 119, 200)] == pytest.approx(
        [0.1, 1.0, 1.0, 0.5, 0.1, 0.025, 0.5, 0.1]
    )
    assert rate_factor(config, 30, asked=(20, 40)) == pytest.approx(0.5)


@pytest.mark.parametrize(("length", "window", "look_ahead"), [(300, 13, 4), (128, 128, 0), (257, 256, 8), (5, 40, 4)])
def test_banded_attention_equals_masked_attention(length: int, window: int, look_ahead: int) -> None:
    queries, keys, values = (log_mel(length, seed).view(1, length, 2, 40).transpose(1, 2) for seed in range(3))
    distance = torch.arange(length)[None] - torch.arange(length)[:, None]
    visible = (distance <= look_ahead) & (distance > -window)
    expected = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)
    torch.testing.assert_close(banded_attention(queries, keys, values, window, look_ahead), expected)


def test_a_timed_cycle_warms_up_and_decays_by_the_clock() -> None:
    cycle = TimedCycle(100.0, 200.0, warm_up_part=0.1, decay_part=0.5, floor=0.02)
    assert [cycle.factor(now) for now in (100, 105, 110, 150, 175, 200, 999)] == pytest.approx(
        [0.02, 0.5, 1.0, 1.0, 0.5, 0.02, 0.02]
    )


def test_a_timed_run_from_averaged_weights_ends_in_time_and_can_be_gone_on_from(
    data: StepBatches, tmp_path: Path
) -> None:
    write_shards(tmp_path, "ls_dev", TEXTS)
    config = replace(CONFIG, schedule=replace(SCHEDULE, cycles=(10**9,)))
    first, run = new_run(data), new_run(data, config=config)
    first.step(data[0])
    first.checkpoint().slim().save(tmp_path / "slim.pt")
    run.continue_from(tmp_path / "slim.pt")
    assert run.progress.fresh_since == run.progress.step == 1
    for name, tensor in first.average.items():
        assert torch.equal(run.average[name], tensor.half().float()), name
    now = time.monotonic()
    loop = Loop(run, tmp_path, LoopConfig(delays=(12,), ends_at_s=now), validation_set(tmp_path, "ls_dev", 1))
    loop.train(map(data.__getitem__, range(1, 9)), 8)
    assert run.progress.step == 2  # the time was over: one step at the floor, and an orderly end
    assert (tmp_path / "final-2.pt").exists()
    assert read_curves(tmp_path / "validation.csv")["decoder 12"][0] == [1.0, 2.0]
    new_run(data).resume(tmp_path / LAST)


@pytest.mark.parametrize("family", ["whisper", "voxtral"])
def test_a_step_asks_for_no_value_so_that_the_host_never_waits(
    family: str, data: StepBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device there are no values to ask for. CTC and autocast are left out: torch has none there."""
    monkeypatch.setattr("training.model.low_precision", lambda x: x)
    pieces, device = tiny_pieces(), torch.device("meta")
    model = StreamModel(tiny_config(family), pieces.num_ctc_classes).to(device)
    batch = data[0].to(device)
    frames = model.encode(batch.mel, batch.first_frames)
    heard = model.delayed(model.embed(frames))
    logits = model.decode(heard, corrupted(batch.ids, 0.5, pieces), batch.delays)
    norm = torch.ones(2, batch.features.shape[-1], device=device)
    loss = decoder_loss(logits, batch, LossConfig(), pieces)[0] + distillation_loss(frames, batch, norm)
    loss.backward()  # type: ignore[no-untyped-call]
    assert batch.num_labels.device == batch.num_steps.device == torch.device("cpu")


def test_what_is_not_finite_is_not_learnt(data: StepBatches) -> None:
    run, batch = new_run(data), data[0]
    run.step(batch)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    for _ in range(3):
        run.step(replace(batch, mel=torch.full_like(batch.mel, torch.nan)))
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert run.progress.step == 4
