"""Generates deploy/grafana/penstock.json: a dashboard of a cluster, for Grafana 9 and newer."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
HERE = 'job="$job",instance=~"$instance"'
NAMED = f'{HERE},topic=~"$topic",topic!=""'
RATE = "[$__rate_interval]"


class Query(NamedTuple):
    """A query that draws one or more lines of a panel."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """A chart or, with `is_number`, a single number."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    says: str = ""
    is_number: bool = False
    is_bad_above: float | None = None
    """A number above this value is shown in red."""
    is_bad_below: float | None = None


def _number(title: str, expr: str, says: str, is_bad_above: float | None = None) -> Panel:
    return Panel(title, [Query(expr)], says=says, is_number=True, is_bad_above=is_bad_above)


def _per_topic(title: str, name: str, unit: str) -> Panel:
    metric = f"kafka_server_brokertopicmetrics_{name}_total"
    return Panel(title, [Query(f"sum by (topic) (rate({metric}{{{NAMED}}}{RATE}))", "{{topic}}")], unit)


def _per_node(title: str, expr: str, unit: str = "short", says: str = "") -> Panel:
    return Panel(title, [Query(expr, "{{instance}}")], unit, says)


def _quantiles(title: str, histogram: str, selector: str, says: str) -> Panel:
    rates = f"sum by (le) (rate({histogram}_bucket{{{selector}}}{RATE}))"
    shown = (("0.5", "half"), ("0.99", "99 of 100"), ("0.999", "999 of 1,000"))
    return Panel(title, [Query(f"histogram_quantile({q}, {rates})", name) for q, name in shown], "s", says)


_CONTROLLER = "kafka_controller_kafkacontroller_"
_REPLICAS = "kafka_server_replicamanager_"
_RAFT = "kafka_server_raftmetrics_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"

ROWS: dict[str, Sequence[Panel]] = {
    "Is it well?": (
        _number("Nodes that answer", 'sum(up{job="$job"})', "Prometheus reaches them."),
        _number("Brokers", 'max(kafka_brokers{job="$job"})', "Those that the controller has let in."),
        _number(
            "Active controllers", f'sum({_CONTROLLER}activecontrollercount{{job="$job"}})', "There is to be one.", 1
        )._replace(is_bad_below=1),
        _number(
            "Offline partitions",
            f'sum({_CONTROLLER}offlinepartitionscount{{job="$job"}})',
            "Nobody leads them: they can be neither written nor read.",
            0,
        ),
        _number(
            "Under min ISR",
            f'sum({_REPLICAS}underminisrpartitioncount{{job="$job"}})',
            "Fewer in sync than min.insync.replicas: acks=all is refused.",
            0,
        ),
        _number(
            "Under-replicated",
            f'sum({_REPLICAS}underreplicatedpartitions{{job="$job"}})',
            "Some of their replicas are not in sync.",
            0,
        ),
        _number("Topics", f'max({_CONTROLLER}globaltopiccount{{job="$job"}})', "Of the cluster."),
        _number("Partitions", f'max({_CONTROLLER}globalpartitioncount{{job="$job"}})', "Of the cluster."),
    ),
    "Traffic": (
        _per_topic("Records in, by topic", "messagesin", "cps"),
        _per_topic("Bytes in, by topic", "bytesin", "Bps"),
        _per_topic("Bytes out to consumers, by topic", "bytesout", "Bps"),
        _per_node(
            "Bytes out to followers, by node",
            f"rate(kafka_server_brokertopicmetrics_replicationbytesout_total{{{HERE}}}{RATE})",
            "Bps",
        ),
        Panel(
            "Failures, by topic",
            [
                Query(
                    "sum by (topic) "
                    f"(rate(kafka_server_brokertopicmetrics_failedproducerequests_total{{{NAMED}}}{RATE}))",
                    "produce {{topic}}",
                ),
                Query(
                    "sum by (topic) "
                    f"(rate(kafka_server_brokertopicmetrics_failedfetchrequests_total{{{NAMED}}}{RATE}))",
                    "fetch {{topic}}",
                ),
            ],
            "ops",
        ),
        Panel(
            "Records kept, by topic",
            [
                Query(
                    'sum by (topic) (kafka_topic_partition_current_offset{job="$job",topic=~"$topic"}'
                    ' - kafka_topic_partition_oldest_offset{job="$job",topic=~"$topic"})',
                    "{{topic}}",
                )
            ],
        ),
    ),
    "Groups": (
        Panel(
            "Seconds behind, by group and topic",
            [
                Query(
                    'max by (consumergroup, topic) (kafka_consumergroup_lag_seconds{job="$job",topic=~"$topic"})',
                    "{{consumergroup}} {{topic}}",
                )
            ],
            "s",
            "The age of the first record that was not consumed yet.",
        ),
        Panel(
            "Records behind, by group and topic",
            [
                Query(
                    'sum by (consumergroup, topic) (kafka_consumergroup_lag{job="$job",topic=~"$topic"})',
                    "{{consumergroup}} {{topic}}",
                )
            ],
        ),
        Panel(
            "Consumed, by group and topic",
            [
                Query(
                    "sum by (consumergroup, topic) "
                    f'(rate(kafka_consumergroup_current_offset{{job="$job",topic=~"$topic"}}{RATE}))',
                    "{{consumergroup}} {{topic}}",
                )
            ],
            "cps",
        ),
        Panel(
            "Members, by group",
            [Query('sum by (consumergroup) (kafka_consumergroup_members{job="$job"})', "{{consumergroup}}")],
        ),
        Panel(
            "Groups, by state",
            [
                Query(f'sum({_GROUPS}stable{{job="$job"}})', "at work"),
                Query(f'sum({_GROUPS}preparingrebalance{{job="$job"}})', "rebalancing"),
                Query(f'sum({_GROUPS}empty{{job="$job"}})', "empty"),
            ],
        ),
        Panel(
            "Partitions whose lag is not known, by group and topic",
            [
                Query(
                    "sum by (consumergroup, topic) "
                    '(penstock_consumergroup_lag_unknown_partitions{job="$job",topic=~"$topic"})',
                    "{{consumergroup}} {{topic}}",
                )
            ],
            says="Nobody leads them, or their leader does not answer. They are missing from the lag beside.",
        ),
    ),
    "Requests": (
        Panel(
            "Requests, by API",
            [
                Query(
                    f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{{{HERE}}}{RATE}))",
                    "{{request}}",
                )
            ],
            "reqps",
        ),
        _quantiles(
            "How long Produce takes",
            "penstock_request_seconds",
            f'{HERE},request="Produce"',
            "With acks=all until the replicas have it.",
        ),
        Panel(
            "99 of 100 requests take, by API",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le, request) "
                    f'(rate(penstock_request_seconds_bucket{{{HERE},kind="clients",request!="Fetch"}}{RATE})))',
                    "{{request}}",
                )
            ],
            "s",
            "Without Fetch, which waits for records.",
        ),
        Panel(
            "Connections",
            [
                Query(
                    f"kafka_server_socket_server_metrics_connection_count{{{HERE}}}",
                    "{{instance}} {{listener}}",
                )
            ],
        ),
        Panel(
            "Connections refused",
            [Query(f"rate(penstock_connections_refused_total{{{HERE}}}{RATE})", "{{instance}} {{listener}}")],
            "cps",
        ),
        _per_node(
            "Input pool in use",
            f"penstock_input_pool_bytes{{{HERE}}} / penstock_input_pool_bytes_max{{{HERE}}}",
            "percentunit",
            "When it is full, sockets are read more slowly.",
        ),
    ),
    "Nodes": (
        _per_node(
            "Idle",
            f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{HERE}}}",
            "percentunit",
            "Of one core: a node uses about one.",
        ),
        _per_node("CPU", f"rate(process_cpu_seconds_total{{{HERE}}}{RATE})", "percentunit"),
        _per_node("Memory", f"process_resident_memory_bytes{{{HERE}}}", "bytes"),
        _per_node("Open files", f"process_open_fds{{{HERE}}} / process_max_fds{{{HERE}}}", "percentunit"),
        _per_node(
            "The loop stood still for",
            f"penstock_loop_late_seconds_max{{{HERE}}}",
            "s",
            "At most, in the last minute. Every client waited so long.",
        ),
        _per_node("Stalls", f"increase(penstock_loop_stalls_total{{{HERE}}}{RATE})"),
    ),
    "Replicas and disks": (
        _per_node("Leaders, by node", f"{_REPLICAS}leadercount{{{HERE}}}"),
        _per_node("Replicas, by node", f"{_REPLICAS}partitioncount{{{HERE}}}"),
        Panel(
            "In and out of sync",
            [
                Query(f"sum(increase({_REPLICAS}isrshrinks_total{{{HERE}}}{RATE}))", "fell out"),
                Query(f"sum(increase({_REPLICAS}isrexpands_total{{{HERE}}}{RATE}))", "came back"),
            ],
        ),
        _per_node("Partitions on the move", f"{_REPLICAS}reassigningpartitions{{{HERE}}}"),
        Panel(
            "Bytes on disk, by topic",
            [Query(f"sum by (topic) (kafka_log_log_size{{{NAMED}}})", "{{topic}}")],
            "bytes",
            "All replicas together.",
        ),
        _per_node("Room left on disk", f"penstock_disk_free_bytes{{{HERE}}}", "bytes"),
        _quantiles(
            "How long a round of group commit takes",
            "penstock_commit_seconds",
            HERE,
            "Acknowledgements wait for it: this is the disk.",
        ),
        Panel(
            "Led by another than the first replica",
            [Query('count(kafka_topic_partition_leader_is_preferred{job="$job"} == 0) or vector(0)', "partitions")],
        ),
    ),
    "The metadata quorum": (
        _per_node("Epoch", f"{_RAFT}current_epoch{{{HERE}}}", says="It grows with every election."),
        Panel(
            "Roles",
            [Query(f"sum by (current_state) ({_RAFT}current_state{{{HERE}}})", "{{current_state}}")],
        ),
        _per_node("End of the log", f"{_RAFT}log_end_offset{{{HERE}}}"),
        _per_node(
            "Committed and not applied yet",
            f"{_RAFT}high_watermark{{{HERE}}} - 1"
            f" - kafka_server_brokermetadatametrics_last_applied_record_offset{{{HERE}}}",
        ),
        Panel(
            "Records per second",
            [
                Query(f"{_RAFT}append_records_rate{{{HERE}}}", "appended by {{instance}}"),
                Query(f"{_RAFT}fetch_records_rate{{{HERE}}}", "fetched by {{instance}}"),
            ],
        ),
        _number("Fenced brokers", f'sum({_CONTROLLER}fencedbrokercount{{job="$job"}})', "Known, and not let in.", 0),
    ),
}


def page() -> str:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(_placed({"type": "row", "title": title, "collapsed": False}, len(panels), 0, y, WIDTH, 1))
        y += 1
        width, height = (3, 4) if all(panel.is_number for panel in row) else (8, 8)
        for number, panel in enumerate(row):
            across = WIDTH // width
            place = (number % across * width, y + number // across * height, width, height)
            panels.append(_placed(_shown(panel), len(panels), *place))
        y += height * -(-len(row) // (WIDTH // width))
    dashboard = {
        "title": "Penstock",
        "uid": "penstock",
        "description": "A Penstock cluster: docs/metrics.md says what each metric means and what to do about it.",
        "tags": ["penstock", "kafka"],
        "schemaVersion": 37,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    choice = {"type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1}
    several = choice | {
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        choice | {"name": "job", "label": "Cluster", "query": "label_values(penstock_info, job)"},
        several | {"name": "instance", "label": "Node", "query": 'label_values(penstock_info{job="$job"}, instance)'},
        several
        | {
            "name": "topic",
            "label": "Topic",
            "query": 'label_values(kafka_server_brokertopicmetrics_messagesin_total{job="$job"}, topic)',
        },
    ]


def _placed(panel: dict[str, Any], number: int, x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {"id": number + 1, **panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _shown(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.is_bad_above is not None:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if panel.is_bad_below is not None:
            steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.is_bad_below}]
        steps.append({"color": "red", "value": panel.is_bad_above + 1})
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    targets = [
        {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": query.expr, "legendFormat": query.legend}
        for number, query in enumerate(panel.queries)
    ]
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }
