# Recipes of the project. `./dev` sets up what they need and runs them; `./dev` alone prints this list.

set shell := ["bash", "-euo", "pipefail", "-c"]

# list the recipes
@default:
    just --list --unsorted

# everything but strangers and fuzzing, in the order of what fails fastest; needs no Java (under 5 minutes)
check: lint types layers (test "-q" "-n" "2" "-m" "'not strangers and not fuzz'")

# formatting and lint rules
lint:
    ruff format --check --quiet . || { echo "run './dev format'"; exit 1; }
    ruff check --quiet .

# bring the code into shape
format:
    ruff format --quiet .
    ruff check --quiet --fix .

# static types, strictly
types:
    mypy

# who may import whom, and which rooms may not touch the world
layers:
    lint-imports --no-cache | tail -n +3

# (--dist loadgroup waits for ever for a worker that was started anew, pytest-xdist 3.8)
# pytest; arguments are passed on: ./dev test tests/unit -k frames
test *arguments:
    python -m pytest --dist loadgroup --max-worker-restart=0 {{ arguments }}

# only what needs no Java and no strangers: a few seconds
quick:
    python -m pytest -q -n 2 -m "not strangers and not fuzz" tests/unit tests/property

# micro-benchmarks: both absolute figures and their ratio
bench:
    for file in benchmarks/micro/bench_*.py; do echo "# $file"; python -m "benchmarks.micro.$(basename "$file" .py)"; done

# Penstock beside Apache Kafka; rows can be recorded in several runs: ./dev side-by-side --rows produce-1,small --record
side-by-side *arguments: _bench-tools
    python -m benchmarks.side_by_side {{ arguments }}
    python -m docs.pages

# these sources beside an earlier revision of them, by cost; replaces rows of docs/results/before-after.md:
# ./dev against ab9dc8b --rows produce-16,small-16,consume-16 --record
against revision *arguments:
    python -m benchmarks.side_by_side.against {{ revision }} {{ arguments }}

# groups in figures: commits, loading, coming together, scaling; beside Apache Kafka: ./dev group-bench --rows commits --record
group-bench *arguments:
    python -m benchmarks.groups {{ arguments }}

# the Spark source beside Spark's Kafka connector; rows can be recorded in several runs: ./dev spark-bench --rows read --record
spark-bench *arguments:
    python -m benchmarks.spark {{ arguments }}

# how cost grows with partitions, connections, topics and sizes: ./dev growth --series partitions --record
growth *arguments: _bench-tools
    python -m benchmarks.side_by_side.growth {{ arguments }}
    python -m docs.pages

# charts and profiles, which no check needs
_bench-tools:
    python -c "import matplotlib" 2>/dev/null || python -m pip install --quiet --disable-pip-version-check --group bench

# docs/protocol.md, docs/configuration.md and docs/scale.md, made from the code and from docs/results; and the pictures
pages:
    python -m docs.pages

# random lives of a log on a lossy disk, 20,000 and more; --kind "overlapping operations" for those alone; adds to
# docs/results/power-cuts.md
power-cuts *arguments:
    python -m tests.simulation.campaign --record {{ arguments }}

# kills and power cuts of the real server under librdkafka's load; adds to docs/results/crashes.md (20 minutes)
crashes *arguments:
    python -m tests.system.crash --record {{ arguments }}

# many partitions on three brokers, one of which is killed; adds to docs/results/density.md (5 minutes)
density *arguments:
    python -m tests.system.density --record {{ arguments }}
    python -m docs.pages

# thirty real nodes on this machine, started, written to, killed and stopped; adds to docs/results/thirty.md (1 minute)
thirty *arguments:
    python -m tests.system.thirty --record {{ arguments }}
    python -m docs.pages

# kills of drivers, executors, Workers and brokers under a lake, and zombies; adds to docs/results/lake-kills.md
lake-kills *arguments:
    python -m tests.spark.lake.campaign --record {{ arguments }}

# examples/shop on a cluster, an executor and the broker killed midway; draws docs/pictures/shop.svg
shop *arguments:
    python -m tests.spark.shop --picture docs/pictures/shop.svg {{ arguments }}

# lakes beside the connector and delta-spark, and audits: ./dev lake-bench --record
lake-bench *arguments:
    python -m benchmarks.lake {{ arguments }}

# requests that are built to cost most, for every API and version, against a node that measures itself; writes
# docs/results/budgets.md (an hour). A piece: ./dev budgets --apis FETCH,METADATA --last
budgets *arguments:
    python -m tests.system.hostile_requests --record {{ arguments }}

# fills of a 64 MB file system, as root, on tmpfs and on ext4; adds to docs/results/disk-full.md (2 minutes)
full-disks *arguments:
    python -m tests.system.disk_full --record {{ arguments }}

# worlds of the toy service by seed, each run twice and compared
simulate first="0" end="10000":
    python -m tests.simulation.seeds {{ first }} {{ end }} --twice

# worlds of a whole node by seed; adds to docs/results/node-simulation.md
simulate-node first="0" end="10000":
    python -m tests.simulation.node {{ first }} {{ end }} --record

# worlds of raft and controller cores with simulated brokers that no run has had yet, 60 virtual seconds each; adds to
# docs/results/cluster-simulation.md. A piece beside other work: nice -n 19 ./dev simulate-cluster 50000 --minutes 20 --workers 1
simulate-cluster count="10000" *arguments:
    python -m tests.simulation.cluster next {{ count }} --record {{ arguments }}

# a copy of this project in which these worlds run almost twice as fast
compiled-worlds directory:
    python -m tests.simulation.compiled {{ directory }}

# the same of raft cores alone; adds to docs/results/raft-simulation.md
simulate-raft count="10000" *arguments:
    python -m tests.simulation.raft next {{ count }} --record {{ arguments }}

# the same of controller cores and simulated brokers without a quorum; adds to docs/results/controller-simulation.md
simulate-controller count="10000" *arguments:
    python -m tests.simulation.controller next {{ count }} --record {{ arguments }}

# controllers on a quorum with one rule taken out at a time; writes docs/results/cluster-mutants.md
cluster-mutants *arguments:
    python -m tests.simulation.cluster_mutants --record {{ arguments }}

# worlds of three whole servers that no run has had yet; adds to docs/results/servers-simulation.md
simulate-servers count="200" *arguments:
    python -m tests.simulation.servers next {{ count }} --record {{ arguments }}

# kills and power cuts of real controllers under topic churn; adds to docs/results/quorum-kills.md (10 minutes)
quorum-kills *arguments:
    python -m tests.system.quorum_kills --record {{ arguments }}

# how long nobody can change the cluster after its controller was killed, beside Apache Kafka; writes
# docs/results/controller-failover.md (8 minutes)
controller-failover *arguments:
    python -m tests.system.controller_failover --record {{ arguments }}
    python -m docs.pages

# how long a client waits after the leader of its partition was killed, beside Apache Kafka; adds to
# docs/results/client-failover.md (4 minutes, and 17 for Kafka). A piece: ./dev client-failover --kills 8 --clusters kafka
client-failover *arguments:
    python -m tests.system.client_failover --record {{ arguments }}

# DeleteRecords while leaders are killed right after the acknowledgement; adds to docs/results/deletion-kills.md
# (9 minutes for 100 kills). A piece: ./dev deletion-kills --kills 30
deletion-kills *arguments:
    python -m tests.system.deletion_kills --record {{ arguments }}

# kills, power cuts, network cuts, pauses and rolling restarts of real nodes with replicas, under load: say how many of each;
# --power-cuts 20 --durability replicated --wide-cuts 20 for the other durability; adds to docs/results/cluster-faults.md
cluster-faults *arguments:
    python -m tests.system.cluster_faults --record {{ arguments }}

# 200 members of six groups that come, go and are killed while their coordinators are killed, under load; adds to
# docs/results/group-storm.md. A piece: ./dev group-storm --seconds 600
group-storm *arguments:
    python -m tests.system.group_storm --record {{ arguments }}

# rolling upgrades of three nodes from builds with lower feature levels, under load; adds to docs/results/rolling-upgrade.md
# (1 minute each)
rolling-upgrade *arguments:
    python -m tests.system.rolling_upgrade --record {{ arguments }}

# the same `penstock verify` on Penstock, on Apache Kafka and on nodes with a bug while nodes are killed; writes
# docs/results/verify.md (9 minutes), or a row of it: ./dev verify-table --clusters kafka
verify-table *arguments:
    python -m tests.system.verify_table --record {{ arguments }}

# raft with one rule taken out at a time: how many worlds it takes to notice; writes docs/results/raft-mutants.md
raft-mutants *arguments:
    python -m tests.simulation.raft_mutants --record {{ arguments }}

# worlds of replicas that no run has had yet, 60 virtual seconds each; adds to docs/results/replication-simulation.md
simulate-replication count="10000" *arguments:
    python -m tests.simulation.replication next {{ count }} --record {{ arguments }}

# worlds of three whole servers with replicas that no run has had yet, 20 virtual seconds each; adds to
# docs/results/replicas-simulation.md
simulate-replicas count="1000" *arguments:
    python -m tests.simulation.replicas next {{ count }} --record {{ arguments }}

# the same with a fourth server, moves of partitions, retention, lost disks, bit rot, requests that are delivered twice;
# adds to docs/results/upheavals-simulation.md
simulate-upheavals count="1000" *arguments:
    python -m tests.simulation.upheavals next {{ count }} --record {{ arguments }}

# logs with one rule taken out at a time, in overlapping histories; writes docs/results/overlap-mutants.md
overlap-mutants *arguments:
    python -m tests.simulation.overlap_mutants --record {{ arguments }}

# worlds of three whole servers that coordinate groups that no run has had yet, 22 virtual seconds each; adds to
# docs/results/coordinators-simulation.md
simulate-coordinators count="1000" *arguments:
    python -m tests.simulation.coordinators next {{ count }} --record {{ arguments }}

# replication with one rule taken out at a time: how many worlds it takes to notice; writes docs/results/replication-mutants.md
replication-mutants *arguments:
    python -m tests.simulation.replication_mutants --record {{ arguments }}

# worlds of group coordinators and consumers that no run has had yet, 60 virtual seconds each; adds to docs/results/group-simulation.md
simulate-groups count="10000" *arguments:
    python -m tests.simulation.group next {{ count }} --record {{ arguments }}

# groups with one rule taken out at a time: how many worlds it takes to notice; writes docs/results/group-mutants.md
group-mutants *arguments:
    python -m tests.simulation.groups_mutants --record {{ arguments }}

# the controller with one rule taken out at a time; writes docs/results/controller-mutants.md
controller-mutants *arguments:
    python -m tests.simulation.controller_mutants --record {{ arguments }}

# a fourth broker joins three with 3,000 partitions, another leaves; writes docs/results/balance.md
balance *arguments:
    python -m tests.simulation.balance --record {{ arguments }}

# the same of real brokers under load, with 600 partitions; writes docs/results/balance-real.md (4 minutes)
balance-real *arguments:
    python -m tests.system.balance --record {{ arguments }}

# a hundred simulated brokers on a quorum, with 100,000 partitions; adds to docs/results/big-cluster.md (3 minutes)
big-cluster *arguments:
    python -m tests.simulation.big_cluster --record {{ arguments }}
    python -m docs.pages

# a million partitions in one controller; writes docs/results/controller-scale.md
controller-scale *arguments:
    python -m benchmarks.micro.bench_controller --record {{ arguments }}
    python -m docs.pages

# a million hostile inputs for one fuzz target; adds to docs/results/fuzz.md
fuzz target runs="1000000":
    python tests/fuzz/run.py {{ target }} --runs {{ runs }} --record

# every client of the matrix does all that it offers; writes docs/compatibility.md from what was seen
compatibility *arguments:
    python -m pytest -q -n 2 --dist loadgroup --record-compatibility tests/compatibility/test_client_matrix.py {{ arguments }}

# a cut-over of ten topics from Apache Kafka to Penstock and back with MirrorMaker 2, under live clients, as docs/migrating.md
# tells; adds to docs/results/migration.md (2 minutes)
migration *arguments:
    python -m tests.compatibility.migration --record {{ arguments }}

# what CI runs: the same checks, strangers, and a short fuzz of every target; ends with pytest's closing line
ci: lint types layers (test "-q" "-n" "3")

# the notes for the next release, from changes/
notes:
    towncrier build --draft --version next
