"""Helpers that let members join and sync in a classic group of a shard driver."""

from typing import Any

from penstock.coordinator.classic import State
from penstock.model.errors import ErrorCode
from tests.unit.coordinator.shard_driver import ShardDriver, join, sync


def enter(driver: ShardDriver, **told: Any) -> str:
    """Joins as a dynamic member: requests a member id, joins with it, and returns it."""
    answer = driver.ask(join(**told))
    assert answer.error_code is ErrorCode.MEMBER_ID_REQUIRED
    driver.send(join(answer.member_id, **told))
    return str(answer.member_id)


def settle(driver: ShardDriver, *members: str) -> int:
    """Lets all members join and sync, and returns the generation."""
    driver.pass_time(0)
    for member_id in members:
        if driver.group().members[member_id].joining is None and driver.group().state is State.PREPARING:
            driver.send(join(member_id))
    driver.pass_time(0)
    group = driver.group()
    assert group.state is State.COMPLETING
    assignments = {member_id: f"for {member_id}".encode() for member_id in group.members}
    for member_id in (*[each for each in members if each != group.leader], group.leader):
        driver.send(sync(member_id, group.generation, assignments if member_id == group.leader else None))
    assert driver.group().state is State.STABLE
    return int(group.generation)


def alone(driver: ShardDriver) -> tuple[str, int]:
    member_id = enter(driver)
    return member_id, settle(driver, member_id)
