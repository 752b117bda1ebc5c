# Everything a person runs. Each target sets up what is missing first (scripts/setup says what it does).

.DEFAULT_GOAL := help
SHELL := bash
# Where cargo writes; `make build` promises target/release, so set CARGO_TARGET_DIR only if you know why.
TARGET := $(or $(CARGO_TARGET_DIR),target)
ENV := . ./.toolchain.env &&

.PHONY: help run build test test-cluster lint bench report clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

LISTEN := 127.0.0.1:3000

run: ## build and serve http://127.0.0.1:3000 with SQLite and the local cluster; data goes to data/
	@scripts/setup build
	@$(ENV) cargo build --locked --workspace --bins
	@scripts/pages
	@echo "Holdfast: http://$(LISTEN)   (Ctrl-C stops the console; running jobs keep running)"
	@exec $(TARGET)/debug/holdfast serve --listen $(LISTEN) --data data

build: ## release build: target/release/holdfast, target/release/holdfast-agent, target/site
	@scripts/setup build
	@$(ENV) cargo build --locked --workspace --bins --release
	@scripts/pages release

test: ## every test that needs no Kubernetes
	@scripts/setup test
	@scripts/test

test-cluster: ## PyTorchJobs and RayJobs on a real Kubernetes of two nodes, started on this machine (Linux, root, Go)
	@scripts/setup cluster
	@end2end/cluster/run

lint: ## formatting, clippy, licences, unused dependencies, scripts
	@scripts/setup lint
	@scripts/lint

bench: build ## measure: restart time, classification, agent overhead, chains and syncs a second, the list of jobs; with root and Go also 500 jobs on Kubernetes
	@scripts/setup bench
	@$(ENV) scripts/with-postgres cargo bench --locked --workspace

report: ## how often classification is right: make report SAMPLES="labelled.jsonl ..." (scripts/report says the format)
	@[ -n "$(SAMPLES)" ] || { echo "make report: say SAMPLES=FILE, logs with labels (see scripts/report)" >&2; exit 2; }
	@$(MAKE) --no-print-directory build
	@scripts/report $(TARGET)/release/holdfast $(SAMPLES)

clean: ## remove what was built here (not data/, not the tools in the cache)
	rm -rf target node_modules .toolchain.env end2end/test-results end2end/playwright-report
