"""An image as a sequence of records: the content of a snapshot of the metadata log.

The image is immutable, so the writer may take some records, let other work run, and continue; later changes are not in
the snapshot. Applied to an empty image, the records yield the image again.
"""

from collections.abc import Iterator
from dataclasses import replace

from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Broker, Image
from penstock.metadata.placement import partition_record
from penstock.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)


def records_of(image: Image) -> Iterator[MetadataRecord]:
    """All records of the image; a record comes before those that refer to it."""
    assert image.pending is None, "a metadata transaction that has not ended belongs to no snapshot"
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    yield from image.controllers.values()
    for broker in image.brokers.values():
        yield from _registrations(broker)
    yield from _topics(image)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource.kind, resource_name=resource.name, name=name, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from _access(image)


def _registrations(broker: Broker) -> Iterator[RegisterBrokerRecord]:
    """The broker's registration, preceded by an earlier one if it was last active in that."""
    if broker.is_fenced and 0 <= broker.active_epoch < broker.epoch:
        yield _registration(replace(broker, epoch=broker.active_epoch, is_fenced=False, is_shutting_down=False))
    yield _registration(broker)


def _registration(broker: Broker) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.listeners,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_shutting_down,
        log_dirs=broker.told_log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs or None,
    )


def _topics(image: Image) -> Iterator[MetadataRecord]:
    for name, topic in image.topics.items():
        yield TopicRecord(name=name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic.topic_id, index, partition)


def _access(image: Image) -> Iterator[MetadataRecord]:
    yield from image.acls.values()
    yield from image.scram.values()
    for entity, quotas in image.quotas.items():
        who = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, value in quotas.items():
            yield ClientQuotaRecord(entity=who, key=key, value=value, remove=False)
    yield from image.tokens.values()
