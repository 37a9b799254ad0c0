"""Generates docs/metrics.md: every metric, its meaning, and the advice for operators."""

from collections.abc import Iterator

from docs.pages.alerts import alerts
from penstock.server.metrics.collector import Collector
from penstock.server.metrics.controller import ControllerCollector
from penstock.server.metrics.doors import DoorCollector
from penstock.server.metrics.gathering import COLLECTORS
from penstock.server.metrics.groups import GroupCollector
from penstock.server.metrics.logs import LogCollector
from penstock.server.metrics.process import ProcessCollector
from penstock.server.metrics.quorum import QuorumCollector
from penstock.server.metrics.replicas import ReplicaCollector
from penstock.server.metrics.topics import TopicCollector

TITLES: dict[type[Collector], str] = {
    ProcessCollector: "The process",
    DoorCollector: "Connections and requests",
    TopicCollector: "Topics",
    ReplicaCollector: "Partitions and replicas",
    LogCollector: "Logs and disk",
    QuorumCollector: "The metadata quorum",
    ControllerCollector: "The cluster",
    GroupCollector: "Groups",
}

HEAD = """# Metrics

<!-- Made by `./dev pages` from the code; a test compares. -->

Every node shows what Prometheus wants to know of it, without an exporter: names are those of Strimzi's JMX rules and
of kafka_exporter, so dashboards made for these find what they look for; what neither has begins with `penstock_`.

## Turning it on

| How the node runs | Where |
|---|---|
| `penstock dev` | http://localhost:9644/metrics, or the next free port; the first screen tells |
| `penstock sandbox up` | `penstock sandbox status` tells |
| `penstock server` | `metrics.listener=127.0.0.1:9644` in its file; unset, nowhere |
| the container image | port 9644 of the container ([publish it](running.md#in-a-container)) |

Nobody logs in there: whoever reaches it reads names of topics. So an address that other machines reach needs
`allow.plaintext.beyond.loopback=true`, as for all listeners, and belongs behind a firewall that lets Prometheus in.
The door serves GET and HEAD of `/metrics` and `/health`, one request per connection, with a head of at most 8 KiB
that must be whole in 5 seconds, to 16 connections at once; on a loopback address it answers only to that address,
whatever name a web page gives it.

`/health` answers 200 while the node serves its clients, and 503 with a sentence when it does not: not joined yet, out
of touch with the controllers, stopping, a disk that failed. That is what a load balancer or a readiness probe wants;
do not restart a node because of it.

## Prometheus and Grafana

[deploy/prometheus](../deploy/prometheus) has a configuration to begin with, alert rules, and their tests;
[deploy/grafana/penstock.json](../deploy/grafana/penstock.json) is a dashboard. A test in CI has a
Prometheus scrape a cluster of three nodes, asks it every query of the dashboard, and kills a node to see alerts fire.
`docker compose -f deploy/compose-cluster.yaml up --wait` starts three nodes with both
([what of that was tried](running.md#three-nodes-prometheus-and-grafana)). By hand:

1. **Targets.** In `prometheus.yml`, give every cluster a job of its own, with all its nodes. For `penstock dev`, and a
   Prometheus on the same machine:

   <!-- file: prometheus.yml -->

   ```yaml
   rule_files:
     - penstock-alerts.yml
   scrape_configs:
     - job_name: penstock
       static_configs:
         - targets: ["localhost:9644"]
   ```

   For `penstock sandbox up` they are the addresses that `penstock sandbox status` tells, for servers those of their
   `metrics.listener`.
2. **Rules.** Put `penstock-alerts.yml` beside that file, have both checked, and let Prometheus read them anew
   (`systemctl reload prometheus`, or a HUP signal):

   <!-- run by: tests/system/test_prometheus.py -->

   ```sh
   promtool check rules penstock-alerts.yml
   promtool check config prometheus.yml
   ```

   `promtool test rules penstock-alerts-test.yml` shows that they fire when they should. On Prometheus' own pages,
   *Status → Targets* has the nodes as UP, and *Alerts* has the rules.
3. **Dashboard.** In Grafana, add that Prometheus as a data source. Then *Dashboards → New → Import*, upload
   `penstock.json`, and choose the data source and the cluster (its job) at the top of the dashboard. It is made for
   Grafana 9 and newer.

The job may have any name. Rules go by metrics: NodeDown watches all targets of a job in which some node has told
`penstock_info` within a day; everything else sums by job, which is why two clusters must not share one. Names that
Strimzi and kafka_exporter have, too, are taken from every job: a Prometheus that also watches Apache Kafka under these
names gives alerts for it as well. NoActiveController also fires when no job tells of any controller: nothing is
scraped then.

| Alert | When | What to do |
|---|---|---|
"""

SUMS = """
## Sums are true

Each fact is told by one node: what a partition has by who leads it, what nobody leads and what belongs to the whole
cluster (`kafka_brokers`, `kafka_topic_partitions`, `kafka_controller_…`) by the active controller. So `sum(…)` over
all nodes counts once, as if one kafka_exporter had told it; only `kafka_log_log_size`, `penstock_log_bytes` and
`…_partitioncount` count replicas. `brokertopicmetrics` have a series without the label `topic` that is the sum of
all, deleted topics included: choose `{topic=""}` or `{topic!=""}`.

At most `metrics.partitions.max` (4,000) partitions, and as many topics, have series of their own on a node, the first
by name; everything is still counted in the numbers without labels, and `penstock_metrics_partitions_left_out` says
how many are left out. Names that clients ask for in vain make no series.

## What it costs

Nothing is gathered until somebody looks; what is counted while records pass are additions to numbers. [decision
18](decisions/0018-metrics.md) has the figures. A page is made in pieces between which the node goes on with its work,
and whoever asks meanwhile gets the same page.

Groups are told by who coordinates them. When somebody looks, the coordinator asks leaders where logs end, and reads
the timestamp of the first record that a group has not consumed, unless it knows it already; so
`kafka_consumergroup_lag_seconds` is as exact as clocks are, and 0 where a group has read everything.
[Groups](groups.md#looking-after-groups) says what the seconds mean.

## What is not known is not told

All leaders are asked at the same time, and waited for at most three seconds. A partition that nobody leads, or whose
leader does not answer by then, has no `kafka_consumergroup_lag` and no `…_lag_seconds` until it is known again,
rather than an old number; `kafka_consumergroup_lag_sum` is the sum of the others, and missing if there are none. What
the coordinator knows itself, `kafka_consumergroup_current_offset` and its sum, is always there.
`penstock_consumergroup_lag_unknown_partitions` counts by group and topic what is missing, and is 0 otherwise; this
names the partitions:

```text
kafka_consumergroup_current_offset unless kafka_consumergroup_lag
```

GroupFallsBehind bridges gaps of up to five minutes with the last number; after that GroupLagUnknown tells. A group
whose coordinator is gone, because nobody leads its partition of `__consumer_offsets`, has no series at all:
OfflinePartitions tells.

## Not there

Not told, because nothing here
is like it: time in queues of requests (there are none), `kafka_network_requestmetrics_totaltimems` with quantiles
(the histogram `penstock_request_seconds` gives any quantile, over all nodes too), JVM figures.
"""


def page() -> str:
    """The whole page."""
    rows = [f"| {each.name} | {each.summary} | {each.advice} |\n" for each in alerts()]
    return "".join([HEAD, *rows, SUMS, *_tables()])


def _tables() -> Iterator[str]:
    told: set[str] = set()
    for collector in COLLECTORS:
        yield f"\n## {TITLES[collector]}\n\n"
        yield "| Metric | Type | Labels | What it says | What to do |\n|---|---|---|---|---|\n"
        for metric in collector.metrics:
            if metric.name not in told:
                told.add(metric.name)
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                cells = (f"`{metric.name}`", metric.kind.value, labels, metric.says, metric.advice)
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
