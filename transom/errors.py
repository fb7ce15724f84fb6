"""Exceptions that carry a wire code.

Every error a user can cause or meet is a :class:`TransomError`: its message names the cause and the remedy,
and ``code`` is what the server puts into the ``code`` field of an error event.
"""


class TransomError(Exception):
    """Base of all errors that are reported to a user instead of being shown as a traceback."""

    code = "server_error"


class ConfigError(TransomError):
    """A model or server configuration is missing, contradictory or unsupported."""

    code = "invalid_config"


class WeightsError(TransomError):
    """A checkpoint is unreadable, or a tensor of it is missing, extra or misshapen."""

    code = "invalid_weights"


class TokenizerError(TransomError):
    """A tokenizer file is unreadable or lacks what streaming needs."""

    code = "invalid_tokenizer"


class AudioError(TransomError):
    """Audio that cannot be decoded or is not what it was declared to be."""

    code = "invalid_audio"


class BackendError(TransomError):
    """An attention backend was asked for that this machine, dtype or model cannot run."""

    code = "invalid_backend"


class CapacityError(TransomError):
    """The server is full: no further session can be admitted now."""

    code = "overloaded"


class CacheFullError(TransomError):
    """No cache block is free for a running stream."""

    code = "cache_full"


class InputOverflowError(TransomError):
    """A client sends audio faster than its session's inbox may hold."""

    code = "input_overflow"


class EngineError(TransomError):
    """A step of the model failed for this session, or the engine has stopped."""

    code = "engine_error"
