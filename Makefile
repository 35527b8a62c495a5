# How to build, test and show everything. `make` alone lists the commands.

# Built files stay outside the checkout, so that a copy of it is small and a fresh one builds fast.
export CARGO_TARGET_DIR ?= /var/tmp/agentsession-target
CLUSTER_DIR ?= /var/tmp/agentsession-cluster
# Crates that need neither a cluster nor a database.
UNIT = --workspace --exclude agentsession-e2e --exclude agentsession-store

.DEFAULT_GOAL = help
.PHONY: help deps build fmt fmt-check lint crds crds-check chart chart-check test test-unit test-store test-world e2e demo bench \
	cluster-up cluster-down images release

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the Debian packages that are missing (root)
	e2e/deps

build: ## build the operator, the sandbox program and the plugin for work on this machine
	cargo build --locked

release: ## build the release programs, the sandbox program static
	cargo build --locked --release -p agentsession
	e2e/sandbox-build

fmt: ## format the sources
	cargo fmt --all

fmt-check: ## fail when a source is not formatted
	cargo fmt --all --check

lint: ## clippy without warnings, and the borders between the crates
	cargo clippy --locked --workspace --all-targets -- -D warnings
	e2e/borders
	docs/check-words

crds: ## generate the CRD from its types, and what follows from it
	UPDATE=1 cargo test --locked -q -p agentsession-crds --test generated
	manifests/render

crds-check: ## fail when the committed CRD is not the generated one
	cargo test --locked -q -p agentsession-crds --test generated

chart: ## make install.yaml and the chart's copy of the CRD
	manifests/render

chart-check: ## lint the chart, render it in every way it can be installed, compare what is generated
	command -v helm >/dev/null || e2e/cluster/build helm
	manifests/check

test-unit: ## unit, property and shell tests: no cluster, no database
	cargo test --locked $(UNIT)

test-store: ## the store's conformance suite on SQLite and on a real Postgres
	cargo test --locked -p agentsession-store -- --include-ignored

test-world: ## the simulated world; WORLD_SEEDS=n for more of it, WORLD_SEED=n for one
	cargo test --locked -p agentsession-controller-core --test world -- --nocapture

e2e: ## end-to-end tests on the cluster (KUBECONFIG's, else our own); TEST=name for some
	e2e/run $(TEST)

test: deps fmt-check lint test-unit test-store chart-check e2e ## everything, from format to the cluster

demo: ## install the chart, run a session, show its conversation
	e2e/demo

bench: ## measure the figures of docs/BENCHMARKS.md; FIGURES="1 8" for some
	e2e/bench $(FIGURES)

cluster-up: ## bring up our own Kubernetes cluster (root; builds it the first time, about 15 minutes)
	e2e/cluster/build helm
	e2e/cluster/up

cluster-down: ## take our own cluster down
	e2e/cluster/down

images: ## build the images without Docker and load them into our own cluster
	e2e/images
