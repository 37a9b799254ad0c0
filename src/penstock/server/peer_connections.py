"""Recognizes connections of this cluster's own nodes, which have slots of their own beside those of clients.

A connection is a node's once a request on it names a registered broker with its broker epoch, or comes from the
metadata quorum of this cluster. Broker epochs are told to nobody but their brokers; the cluster id is no secret, so on
listeners of controllers this keeps mistakes out, not attacks. Logins will do better.
"""

from typing import Final

from penstock.metadata.image import Image
from penstock.server.serving import Client
from penstock.wire.api import CONTROLLER_ONLY, Api

PEER_APIS: Final = (CONTROLLER_ONLY - {Api.ENVELOPE}) | {Api.FETCH, Api.API_VERSIONS}
"""What a node of this cluster asks first on a connection."""


def recognize_broker(client: Client, image: Image, broker_id: int, broker_epoch: int) -> bool:
    """Whether a request is a registered broker's; if so, its connection is a node's from now on."""
    if client.is_peer:
        return True
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return False
    client.recognize()
    return True
