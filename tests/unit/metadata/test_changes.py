from harness.metadata_world import ControllerWorld
from penstock.metadata.changes import changes_between
from penstock.metadata.commands import (
    ConfigChanges,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    TopicRef,
)
from penstock.metadata.image import BROKER, TOPIC
from penstock.metadata.shelves import Resource


def test_what_a_server_has_to_do() -> None:
    world = ControllerWorld()
    world.ask(CreateTopics((NewTopic("kept"), NewTopic("grown"), NewTopic("deleted"), NewTopic("again"))))
    before = world.controller.image
    world.ask(DeleteTopics((TopicRef("deleted"), TopicRef("again"))))
    world.ask(CreateTopics((NewTopic("created", configs=(("retention.ms", "5"),)), NewTopic("again"))))
    world.ask(CreatePartitions((MorePartitions("grown", 3),)))
    changes = changes_between(before, world.controller.image)
    assert [topic.name for topic in changes.topics_created] == ["again", "created"]
    assert [topic.name for topic in changes.topics_deleted] == ["again", "deleted"]
    assert changes.topics_created[0].topic_id != changes.topics_deleted[0].topic_id
    (grown,) = changes.topics_changed
    assert [(index, old) for index, old, _ in grown.partitions] == [(1, None), (2, None)]
    assert changes.topics_with_new_settings == ("created",)
    assert not changes.has_new_broker_settings


def test_settings_and_brokers() -> None:
    world = ControllerWorld()
    world.ask(CreateTopics((NewTopic("orders"),)))
    before = world.controller.image
    orders = ConfigChanges(TOPIC, "orders", (("retention.ms", 0, "5"),))
    everyone = ConfigChanges(BROKER, "", (("log.retention.ms", 0, "5"),))
    world.ask(IncrementalAlterConfigs((orders, everyone), asked_at=1))
    world.register(2)
    changes = changes_between(before, world.controller.image)
    assert changes.configs == (Resource(TOPIC, "orders"), Resource(BROKER, ""))
    assert changes.has_new_broker_settings
    assert not changes.topics_created + changes.topics_deleted + changes.topics_changed
    ((number, old, new),) = changes.brokers
    assert (number, old) == (2, None)
    assert new is not None


def test_nothing_happened() -> None:
    image = ControllerWorld().controller.image
    changes = changes_between(image, image)
    assert not any((changes.topics_created, changes.topics_changed, changes.configs, changes.brokers, changes.features))


def test_the_settings_of_a_deleted_topic_are_no_news() -> None:
    world = ControllerWorld()
    world.ask(CreateTopics((NewTopic("orders", configs=(("retention.ms", "5"),)),)))
    before = world.controller.image
    world.ask(DeleteTopics((TopicRef("orders"),)))
    changes = changes_between(before, world.controller.image)
    assert not changes.configs
    assert [topic.name for topic in changes.topics_deleted] == ["orders"]
