"""ACL requests: all are answered with SECURITY_DISABLED."""

from typing import Any

from penstock.model.errors import ErrorCode
from penstock.server.handlers.cluster.acls import AclsHandler
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from tests.unit.server.handlers.cluster import Cluster, clustered

DISABLED = ErrorCode.SECURITY_DISABLED
RULE: dict[str, Any] = {"operation": 3, "permission_type": 3}
WHOSE: dict[str, Any] = {"principal_filter": None, "host_filter": None, **RULE}


def test_each_rule_is_refused_by_itself() -> None:
    async def story(cluster: Cluster) -> None:
        handler = AclsHandler()
        asked = DescribeAclsRequest(resource_type_filter=1, resource_name_filter=None, **WHOSE)
        described = await cluster.ask(handler.describe_acls, asked, 3)
        assert (described.error_code, described.resources) == (DISABLED, ())
        rule = AclCreation(resource_type=2, resource_name="orders", principal="User:a", host="*", **RULE)
        created = await cluster.ask(handler.create_acls, CreateAclsRequest(creations=[rule, rule]), 3)
        assert [each.error_code for each in created.results] == [DISABLED, DISABLED]
        unwanted = DeleteAclsFilter(resource_type_filter=1, resource_name_filter=None, **WHOSE)
        deleted = await cluster.ask(handler.delete_acls, DeleteAclsRequest(filters=[unwanted]), 3)
        assert [each.error_code for each in deleted.filter_results] == [DISABLED]

    clustered(story)
