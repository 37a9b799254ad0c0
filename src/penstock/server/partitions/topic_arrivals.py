"""Topics whose logs on this node do not match the image yet; a change of a topic is answered when they do."""

import asyncio
from collections.abc import Iterable


class TopicArrivals:
    """By topic name. `expect` is called with a change of the image, `arrived` when the disk matches it."""

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Future[None]] = {}

    def expect(self, name: str) -> None:
        """Called when the image has changed the topic."""
        if name not in self._expected:
            self._expected[name] = asyncio.get_running_loop().create_future()

    def arrived(self, name: str) -> None:
        """Called when the topic's logs are created or deleted as the current image requires."""
        self._expected.pop(name).set_result(None)

    @property
    def is_settled(self) -> bool:
        """Whether the logs of all topics match the image."""
        return not self._expected

    async def settled(self, names: Iterable[str]) -> None:
        """Waits until the logs of these topics match the image as of this call."""
        for future in [self._expected[name] for name in names if name in self._expected]:
            await asyncio.shield(future)
