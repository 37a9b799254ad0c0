"""The progress of a pipeline in one line.

orders_lake   ########------  61 %   412 k rows/s   lag 3.1 M (8 s)   ETA 00:42   batch 812  1.9 s   DLQ 3
"""

from penstock.spark.running.gauge import Reading

BAR = 14


def progress_line(
    name: str, reading: Reading, *, batch: int | None, batch_s: float | None, bad: int, note: str = ""
) -> str:
    """The line, as wide as it must be; bar, percentage and rate have fixed widths."""
    percent = reading.percent
    filled = BAR * (percent or 0) // 100
    parts = [
        name,
        f"{'#' * filled}{'-' * (BAR - filled)} {'?' if percent is None else percent:>3} %",
        f"{count(reading.rows_per_s):>6} rows/s",
        f"lag {'?' if reading.lag is None else count(reading.lag)}{_lag_seconds(reading)}",
        _outlook(reading),
        "batch -" if batch is None else f"batch {batch}  {'-' if batch_s is None else f'{batch_s:.1f} s'}",
        f"DLQ {bad}",
    ]
    if note:
        parts.append(note)
    return "   ".join(parts)


def _outlook(reading: Reading) -> str:
    if reading.is_broker_away:
        return "waiting for broker"
    return "up to date" if reading.lag == 0 else f"ETA {clock(reading.eta_s)}"


def count(number: float) -> str:
    """A number in short form: 1, 999, 1.2 k, 412 k, 3.1 M."""
    for unit in ("", " k", " M", " G"):
        if number < 999.5 or unit == " G":
            return f"{number:.1f}{unit}" if unit and number < 99.95 else f"{number:.0f}{unit}"
        number /= 1000
    raise AssertionError("the last unit takes all")


def clock(span_s: float | None) -> str:
    """A time span in short form: 00:42, 1:02:03, 3 d."""
    if span_s is None:
        return "--:--"
    minutes, seconds = divmod(round(span_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d"
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"


def _lag_seconds(reading: Reading) -> str:
    if reading.lag_s is None or not reading.lag:
        return ""
    return f" ({reading.lag_s:.0f} s)" if reading.lag_s < 600 else f" ({clock(reading.lag_s)})"
