"""The fields of ``POST /v1/audio/transcriptions``: OpenAI's and vLLM's, and what they come to here. No engine.

Fields that are not named here are ignored. Lists come as ``name[]`` (both SDKs) or as ``name``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

from fastapi import File, UploadFile
from pydantic import BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError, from_json
from starlette.datastructures import UploadFile as AnyUploadFile

from transom.audio.vad import TurnDetection
from transom.server.problems import Problem
from transom.server.wire import fields
from transom.server.wire.messages import WireError
from transom.server.wire.turn_detection import updated_detection

Granularity = Literal["word", "segment"]
ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
STREAM_FORMATS = ("json", "text")
VAD_EXAMPLE = '{"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 500}'
SDK_FORM = "The same, as the SDKs write an object."
WITHOUT_EFFECT = "Accepted, without effect: "


class TranscriptionForm(BaseModel):
    """A recording and how its transcript is wanted."""

    file: UploadFile = File(
        description="The recording: wav, flac, ogg, mp3, aiff; m4a, mp4, webm if ffmpeg is there."
    )
    model: str | None = Field(None, description="Any name; the server's own model is used.")
    language: str | None = Field(None, description="The language of the speech, such as 'en'. Told in verbose_json.")
    prompt: str = Field("", description=f"{WITHOUT_EFFECT}the model takes no text.")
    response_format: ResponseFormat = Field("json", description="diarized_json is refused: speakers are not told.")
    temperature: float = Field(0.0, ge=0.0, le=2.0, description=f"{WITHOUT_EFFECT}decoding is greedy.")
    stream: bool = Field(False, description="Answer with server-sent events; with json and text only.")
    granularities_sdk: list[Granularity] = Field(
        [], alias="timestamp_granularities[]", description="What verbose_json holds: 'word', 'segment' (default)."
    )
    granularities_plain: list[Granularity] = Field(
        [], alias="timestamp_granularities", description="The same, for clients that leave the brackets out."
    )
    chunking_strategy: str | None = Field(
        None, description='"auto", or JSON {"type": "server_vad", "threshold", "silence_duration_ms", ...}.'
    )
    vad_type: str | None = Field(None, alias="chunking_strategy[type]", description=SDK_FORM)
    vad_threshold: float | None = Field(None, alias="chunking_strategy[threshold]", description=SDK_FORM)
    vad_prefix_padding_ms: int | None = Field(
        None, alias="chunking_strategy[prefix_padding_ms]", description=SDK_FORM
    )
    vad_silence_duration_ms: int | None = Field(
        None, alias="chunking_strategy[silence_duration_ms]", description=SDK_FORM
    )
    target_streaming_delay_ms: int | None = Field(
        None, description="How much audio the model hears before it writes (extension). More is more accurate."
    )
    languages_sdk: list[str] = Field([], alias="languages[]", description=f"{WITHOUT_EFFECT}see language.")
    keywords_sdk: list[str] = Field([], alias="keywords[]", description=f"{WITHOUT_EFFECT}see prompt.")
    hotwords: str | None = Field(None, description=f"{WITHOUT_EFFECT}see prompt.")
    include_sdk: list[str] = Field([], alias="include[]", description=f"{WITHOUT_EFFECT}no logprobs are told.")
    to_language: str | None = Field(None, description=f"{WITHOUT_EFFECT}the model does not translate.")

    @field_validator("file", mode="before")
    @classmethod
    def _must_be_uploaded(cls, value: Any) -> Any:
        if not isinstance(value, AnyUploadFile):
            raise PydanticCustomError("no_file", "must be an uploaded file, not text; with curl: -F file=@speech.wav")
        return value

    @property
    def granularities(self) -> tuple[Granularity, ...]:
        """What verbose_json should hold."""
        return tuple(self.granularities_sdk or self.granularities_plain or ("segment",))

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Names of the given fields that change nothing but what is echoed."""
        given = {
            "language": self.language,
            "prompt": self.prompt,
            "temperature": self.temperature,
            "languages": self.languages_sdk,
            "keywords": self.keywords_sdk,
            "hotwords": self.hotwords,
            "include": self.include_sdk,
            "to_language": self.to_language,
        }
        return tuple(name for name, value in given.items() if value)

    @property
    def turn_detection(self) -> TurnDetection | None:
        """The detection that ``chunking_strategy`` asks for; None leaves it to the server. Raises Problem."""
        parts = {
            "type": self.vad_type,
            "threshold": self.vad_threshold,
            "prefix_padding_ms": self.vad_prefix_padding_ms,
            "silence_duration_ms": self.vad_silence_duration_ms,
        }
        given = {name: value for name, value in parts.items() if value is not None}
        if given:
            return _read_detection(given)
        if self.chunking_strategy == "auto":
            return TurnDetection()
        return _read_detection(_parse_json(self.chunking_strategy)) if self.chunking_strategy else None

    def check(self) -> None:
        """Raise Problem for a combination that cannot be answered as it was asked."""
        if self.response_format == "diarized_json":
            message = "this server does not tell speakers apart; use verbose_json for segments with times"
            raise _refusal("unsupported", message, "response_format")
        if self.stream and self.response_format not in STREAM_FORMATS:
            message = (
                f"stream=true goes with response_format {' or '.join(STREAM_FORMATS)}, not {self.response_format}"
            )
            raise _refusal("unsupported", message, "stream")


def _parse_json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text


def _read_detection(given: Any) -> TurnDetection:
    name = "chunking_strategy"
    try:
        given = fields.mapping(given, name)
        fields.one_of(given.get("type"), f"{name}.type", ("server_vad",))
        return updated_detection(TurnDetection(), given, name)
    except WireError as error:
        message = f'{error.message}; {name} is "auto" or JSON such as {VAD_EXAMPLE}'
        raise _refusal("invalid_value", message, name) from error


def _refusal(code: str, message: str, param: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, code, message, param=param)
