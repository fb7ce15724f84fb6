"""Segments as subtitles: SubRip (srt) and WebVTT. Pure. One cue a segment, one line a cue."""

from __future__ import annotations

from collections.abc import Sequence

from transom.server.files.transcript import Segment


def to_srt(segments: Sequence[Segment]) -> str:
    """A SubRip file."""
    return "".join(
        f"{number}\n{_time(segment.start_ms, ',')} --> {_time(segment.end_ms, ',')}\n{_line(segment.text)}\n"
        for number, segment in enumerate(segments, 1)
    )


def to_vtt(segments: Sequence[Segment]) -> str:
    """A WebVTT file; the characters that would be markup there are escaped."""
    return "WEBVTT\n\n" + "".join(
        f"{_time(segment.start_ms, '.')} --> {_time(segment.end_ms, '.')}\n{_escape(_line(segment.text))}\n"
        for segment in segments
    )


def _time(time_ms: int, decimal_mark: str) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{decimal_mark}{milliseconds:03d}"


def _line(text: str) -> str:
    """Text as one line, or none if there is none: an empty line would end the cue."""
    words = " ".join(text.split())
    return f"{words}\n" if words else ""


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
