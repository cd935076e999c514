"""Parse the timestamps of exports: variants of ISO 8601, and milliseconds since 1970."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_iso_date(text: str) -> datetime | None:
    """Parse an ISO date and time ("2020-01-31 10:00:00", "2020-01-31T10:00:00.001Z") to UTC.

    A time without an offset is taken as UTC; an invalid one ("0000-00-00 00:00:00") gives None.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parse_epoch_ms(value: object) -> datetime | None:
    """Parse milliseconds since 1970, a number or digits; 0, which means "not set", gives None."""
    try:
        milliseconds = int(value) if isinstance(value, int | float | str) else 0
        return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None
    except (ValueError, OverflowError):
        return None
