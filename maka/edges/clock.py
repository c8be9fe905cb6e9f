"""The world's time, behind `ports.Clock`."""

import time


class SystemClock:
    """Unix milliseconds for people, and a clock that never steps back for durations."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
