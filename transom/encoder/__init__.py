"""The causal Whisper/Voxtral encoder and its adapter."""
