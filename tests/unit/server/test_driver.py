"""The driver: order, barriers, re-entrance, time and shutdown, with a fake port."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.server.loop.driver import TIMER_MS_MAX, Driver


class Say(NamedTuple):
    """An effect that is carried out at once."""

    word: str


class Save(NamedTuple):
    """An effect that must be durable before the next."""

    word: str


class Fetch(NamedTuple):
    """An effect that takes time, and delays no other."""

    word: str


class Alarm:
    def __init__(self, at_ms: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Bench:
    """A stepper, a port and a table of effects that record all calls."""

    def __init__(self) -> None:
        self.time_ms = 1_000
        self.wake_at: int | None = None
        self.told: list[Any] = []
        self.done: list[str] = []
        self.alarms: list[Alarm] = []
        self.under_way: list[tuple[str, Callable[[BaseException | None], None]]] = []
        self.broken: list[BaseException] = []
        self.wants: dict[Any, list[Any]] = {}
        self.on_say: Callable[[str], None] = lambda _word: None
        self.is_stepping = False
        self.driver: Driver[Any, Any, int, str] = Driver(
            self,
            self,
            {Say: self.say, Save: self.save, Fetch: self.fetch},
            time_passed="time",
            on_broken=self.broken.append,
            barriers=(Save,),
        )

    def step(self, event: Any, now: int) -> list[Any]:
        assert not self.is_stepping, "a step inside a step"
        assert now == self.time_ms
        self.is_stepping = True
        self.told.append(event)
        wanted = self.wants.get(event, [])
        self.is_stepping = False
        if isinstance(wanted, Exception):
            raise wanted
        return wanted

    def say(self, effect: Say) -> None:
        self.done.append(effect.word)
        self.on_say(effect.word)

    def save(self, effect: Save) -> str:
        self.done.append(effect.word)
        return effect.word

    fetch = save

    def now(self) -> int:
        return self.time_ms

    now_ms = now

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Alarm:
        self.alarms.append(Alarm(at_ms, callback))
        return self.alarms[-1]

    def start(self, work: str, ended: Callable[[BaseException | None], None]) -> None:
        self.under_way.append((work, ended))

    def finish(self, word: str, error: BaseException | None = None) -> None:
        found = next(each for each in self.under_way if each[0] == word)
        self.under_way.remove(found)
        found[1](error)

    def ring(self) -> None:
        """Fires the pending alarm."""
        (alarm,) = (each for each in self.alarms if not each.is_cancelled)
        self.alarms.clear()
        self.time_ms = alarm.at_ms
        alarm.callback()


def test_effects_come_in_their_order_before_the_next_event() -> None:
    bench = Bench()
    bench.wants = {"a": [Say("1"), Say("2")], "b": [Say("3")]}
    bench.on_say = lambda word: bench.driver.post("b") if word == "1" else None
    bench.driver.post("a")
    assert bench.told == ["a", "b"]
    assert bench.done == ["1", "2", "3"]


def test_effects_of_a_direct_call_join_the_queue() -> None:
    bench = Bench()
    bench.wants = {"a": [Say("1"), Say("2")]}
    bench.on_say = lambda word: bench.driver.absorb([Say("3")]) if word == "1" else None
    bench.driver.post("a")
    assert bench.done == ["1", "2", "3"]


def test_nothing_overtakes_a_barrier_and_steps_go_on() -> None:
    bench = Bench()
    bench.wants = {"a": [Say("1"), Save("2"), Say("3")], "b": [Say("4"), Save("5"), Say("6")]}
    bench.driver.post("a")
    bench.driver.post("b")
    bench.driver.absorb([Say("7")])
    assert bench.told == ["a", "b"]
    assert bench.done == ["1", "2"]
    bench.finish("2")
    assert bench.done == ["1", "2", "3", "4", "5"]
    bench.finish("5")
    assert bench.done == ["1", "2", "3", "4", "5", "6", "7"]


def test_other_work_holds_nobody_up() -> None:
    bench = Bench()
    bench.wants = {"a": [Fetch("1"), Say("2")]}
    bench.driver.post("a")
    assert bench.done == ["1", "2"]
    bench.finish("1")
    assert not bench.broken


def test_it_wakes_the_stepper_and_not_before() -> None:
    bench = Bench()
    bench.wake_at = 1_050
    bench.driver.post("a")
    bench.wake_at = 1_080
    bench.ring()
    assert bench.told == ["a"], "somebody has put it off"
    bench.wake_at = 1_060
    bench.driver.post("b")
    bench.ring()
    assert bench.told == ["a", "b", "time"]
    assert bench.time_ms == 1_060


def test_a_stepper_without_a_time_is_not_woken() -> None:
    bench = Bench()
    bench.driver.post("a")
    assert not bench.alarms


def test_far_times_are_looked_at_again_and_past_ones_soon() -> None:
    bench = Bench()
    bench.wake_at = 1 << 60
    bench.driver.post("a")
    assert bench.alarms[-1].at_ms == 1_000 + TIMER_MS_MAX
    bench.wake_at = 5
    bench.driver.post("b")
    assert bench.alarms[-1].at_ms == 1_001


@pytest.mark.parametrize("is_work", [False, True])
def test_whatever_raises_ends_it(is_work: bool) -> None:
    bench = Bench()
    bench.wake_at = 2_000
    mistake = ValueError("planted")
    bench.wants = {"a": [Save("1"), Say("2")], "b": mistake}  # type: ignore[dict-item]
    bench.driver.post("a")
    if is_work:
        bench.finish("1", mistake)
    else:
        bench.driver.post("b")
        bench.finish("1")
    assert bench.broken == [mistake]
    bench.driver.post("c")
    bench.driver.absorb([Say("3")])
    assert "c" not in bench.told
    assert bench.done == ["1"]
    assert all(alarm.is_cancelled for alarm in bench.alarms)


def test_the_end_comes_in_the_middle_of_effects() -> None:
    bench = Bench()
    bench.wants = {"a": [Say("1"), Say("2")]}
    bench.on_say = lambda _word: bench.driver.close()
    bench.driver.post("a")
    assert bench.done == ["1"]
    assert not bench.broken
