# Recipes of the project. `./dev` sets up what they need and runs them; `./dev` alone prints this list.

set shell := ["bash", "-euo", "pipefail", "-c"]

# list the recipes
[private]
@default:
    just --list --unsorted

# everything but peers and fuzzing, in the order of what fails fastest; needs no Java (under 5 minutes)
[group("every day")]
check: lint types layers (test "-q" "-n" "2" "-m" "'not peers and not fuzz'")

# unit and property tests, without Java and peers: a few minutes
[group("every day")]
quick:
    python -m pytest -q -n 2 -m "not peers and not fuzz" tests/unit tests/property

# (--dist loadgroup hangs once a worker was restarted, pytest-xdist 3.8)
# pytest; arguments are passed on: ./dev test tests/unit -k frames
[group("every day")]
test *arguments:
    python -m pytest --dist loadgroup --max-worker-restart=0 {{ arguments }}

# bring the code into shape
[group("every day")]
format:
    ruff format --quiet .
    ruff check --quiet --fix .

# formatting and lint rules
[group("every day")]
lint:
    ruff format --check --quiet . || { echo "run './dev format'"; exit 1; }
    ruff check --quiet .

# static types, strictly
[group("every day")]
types:
    mypy

# who may import whom, and which rooms may not touch the world
[group("every day")]
layers:
    lint-imports --no-cache | tail -n +3

# what CI runs: the same checks, peers, and a short fuzz of every target; ends with pytest's closing line
[group("every day")]
ci: lint types layers (test "-q" "-n" "3")

# docs/protocol.md, docs/configuration.md and docs/scale.md, made from the code and from docs/results; and the pictures
[group("pages and releases")]
pages:
    python -m docs.pages

# the notes for the next release, from changes/
[group("pages and releases")]
notes:
    towncrier build --draft --version next

# the wheel, the sdist and the changelog of this version, into dist/
[group("pages and releases")]
@release *arguments:
    python -m harness.release {{ arguments }}

# Kinds, what they run and which page they write: tests/campaigns.py.

# worlds by seed in virtual time: ./dev simulate raft 1000
[group("long runs: without a KIND each lists its kinds")]
[no-exit-message]
[positional-arguments]
@simulate kind="" *arguments:
    python -m tests.campaigns simulate "$@"

# a core with one rule taken out at a time, and how many worlds it takes to notice: ./dev mutants raft
[group("long runs: without a KIND each lists its kinds")]
[no-exit-message]
[positional-arguments]
@mutants kind="" *arguments:
    python -m tests.campaigns mutants "$@"

# real processes under kills, faults, hostile requests and other clients: ./dev campaign crashes
[group("long runs: without a KIND each lists its kinds")]
[no-exit-message]
[positional-arguments]
@campaign kind="" *arguments:
    python -m tests.campaigns campaign "$@"

# figures, alone and beside Apache Kafka: ./dev bench side-by-side --rows produce-1,small --record
[group("long runs: without a KIND each lists its kinds")]
[no-exit-message]
[positional-arguments]
@bench kind="" *arguments:
    python -m tests.campaigns bench "$@"
