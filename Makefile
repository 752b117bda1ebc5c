# Everything a person runs. Each target sets up what is missing first (scripts/setup says what it does).

.DEFAULT_GOAL := help
SHELL := bash
# Where cargo writes; `make build` promises target/release, so set CARGO_TARGET_DIR only if you know why.
TARGET := $(or $(CARGO_TARGET_DIR),target)
ENV := . ./.toolchain.env &&

.PHONY: help run build test lint bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: ## build and serve http://127.0.0.1:3000 with SQLite and the local cluster; data goes to data/
	@scripts/setup build
	@$(ENV) cargo build --locked --workspace --bins
	@$(ENV) cargo leptos build --frontend-only
	@echo "Holdfast: http://127.0.0.1:3000   (Ctrl-C stops the console; running jobs keep running)"
	@exec $(TARGET)/debug/holdfast serve --listen 127.0.0.1:3000 --data data

build: ## release build: target/release/holdfast, target/release/holdfast-agent, target/site
	@scripts/setup build
	@$(ENV) cargo build --locked --workspace --bins --release
	@$(ENV) cargo leptos build --frontend-only --release

test: ## every test that needs no Kubernetes
	@scripts/setup test
	@scripts/test

lint: ## formatting, clippy, licences, unused dependencies, scripts
	@scripts/setup lint
	@scripts/lint

bench: build ## measure: restart time, classification, agent overhead, chains and syncs a second
	@scripts/setup bench
	@$(ENV) cargo bench --locked --workspace

clean: ## remove what was built here (not data/, not the tools in the cache)
	rm -rf target node_modules .toolchain.env end2end/test-results end2end/playwright-report
