import torch

from transom.tokenizer.tekken import Tokenizer
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config
from transom.weights.hub import bundled_model


def test_the_bundled_model_is_of_the_second_family_and_loads_whole() -> None:
    config = read_model_config(bundled_model())
    encoder, decoder = config.encoder, config.decoder
    assert (encoder.norm, encoder.ffn, encoder.pos_embed) == ("layer_norm", "gelu", "sinusoidal")
    assert (encoder.sliding_window, encoder.look_ahead_frames, encoder.output_lag_tokens) == (256, 4, 4)
    assert (encoder.mel_pad_value, encoder.max_source_positions, encoder.norm_eps) == (-0.625, 1500, 1e-5)
    assert (decoder.sliding_windows, decoder.rope_theta, config.default_delay_tokens) == ((384,) * 4, 1e4, 12)

    weights = load_checkpoint(bundled_model(), config)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert sum(tensor.numel() for tensor in weights.values()) == 21_261_312


def test_the_bundled_tokenizer_fits_the_bundled_model() -> None:
    config = read_model_config(bundled_model())
    tokenizer = Tokenizer.from_file(bundled_model() / "tekken.json")
    assert tokenizer.vocab_size == config.decoder.vocab_size
    assert tokenizer.audio.num_mel_bins == config.audio.num_mel_bins
    assert tokenizer.audio.transcription_delay_ms == 80 * config.default_delay_tokens
    assert (tokenizer.bos, tokenizer.streaming_pad, tokenizer.streaming_word) == (0, 1, 2)
    assert b"".join(tokenizer.token_bytes(token) for token in (2, 35)) == b" the"
