"""Recognizes connections of this cluster's own nodes, which have slots of their own beside those of clients.

A connection is a node's once a request on it names a registered broker with its broker epoch, or comes from the
metadata quorum of this cluster. A broker epoch is disclosed only to its broker; the cluster id is no secret, so on
controller listeners this check prevents mistakes, not attacks. Authentication will do better.
"""

from typing import Final

from penstock.metadata.image import Image
from penstock.server.connections.serving import Client
from penstock.wire.api import CONTROLLER_ONLY, Api

PEER_APIS: Final = (CONTROLLER_ONLY - {Api.ENVELOPE}) | {Api.FETCH, Api.API_VERSIONS}
"""APIs that a node of this cluster uses first on a connection."""


def recognize_broker(client: Client, image: Image, broker_id: int, broker_epoch: int) -> bool:
    """Whether a request comes from a registered broker; if so, marks its connection as a node's."""
    if client.is_peer:
        return True
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return False
    client.recognize()
    return True
