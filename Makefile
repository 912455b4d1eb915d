# Developer commands; `make help` lists them.
# On systems without bash, sh must support pipefail.
SHELL := $(firstword $(wildcard /bin/bash /usr/bin/bash /usr/local/bin/bash) /bin/sh)
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
PKG ?= ./...
TEST_TIMEOUT ?= 8m
TESTFLAGS ?=
STRESS_COUNT ?= 20
STRESS_TIMEOUT ?= 30m
STRESS_PKG ?= ./promises ./internal/engine ./internal/renewal ./internal/election ./leases ./partitions
# The time for each fuzz test, and a regular expression for their names.
FUZZTIME ?= 20s
FUZZ ?= .
# The packages that need no server and no cgo.
PKG_386 ?= . ./driver/... ./internal/engine ./internal/renewal ./internal/election ./leases ./partitions ./promises \
	./drivers/memory ./drivers/file
BENCH ?= .
REPORT_PKG ?= ./internal/engine ./drivers/mongo ./drivers/azblob ./internal/endtoend ./internal/partbench
# Packages of the integration module; the default is all except chaos.
INTEGRATION_PKG ?= $$($(GO) list ./... | grep -v /chaos)
INTEGRATION_TIMEOUT ?= 20m
DURATION ?= 10m
SEED ?= 0
SYSTEMS := linux darwin windows
# For test-newest: the packages that use other modules, and a go.mod with the newest versions of those modules.
NEWEST_PKG ?= ./drivers/mongo ./drivers/azblob ./drivers/file ./cmd/holdfast ./internal/mongotest ./internal/azuritetest
NEWEST := .cache/newest.mod
MODULES := . bench integration adapters/integration sim

GOLANGCI_LINT_VERSION := v2.15.0
BIN := $(CURDIR)/.cache/bin
# A golangci-lint in PATH or in Go's bin folder is used if it has this version.
GOLANGCI_LINT := $(BIN)/golangci-lint

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## build the command into bin/holdfast
	$(GO) build -trimpath -o bin/holdfast ./cmd/holdfast

.PHONY: setup
setup: ## install and fetch what the tests need (HOLDFAST_SETUP=list only lists the commands)
	@$(GO) run ./internal/setup
	@if ! GOPROXY=off $(GO) list -deps -test ./... >/dev/null 2>&1; then \
		echo 'fetching the Go modules (61 MB, once)'; $(GO) list -deps -test ./... >/dev/null; fi

.PHONY: test
test: setup ## run all tests with the race detector (PKG=./drivers/file for one package, TESTFLAGS=-v for all output)
ifneq (,$(findstring -v,$(TESTFLAGS)))
	$(GO) test -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)
else
	$(GO) test -json -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG) | $(GO) run ./internal/progress
endif
ifeq ($(PKG),./...)
	$(GO) -C sim test -race $(TESTFLAGS) ./...
endif

.PHONY: test-bench
test-bench: ## run the tests of the module bench, which draws the results of benchmarks
	$(GO) -C bench test $(TESTFLAGS) ./...

.PHONY: test-adapters
test-adapters: ## test the adapters with the libraries that they are for; needs a C compiler, for SQLite
	$(GO) -C adapters/integration test -race -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: test-newest
test-newest: setup ## test the packages that use other modules with the newest versions; go.mod requires the oldest
	@scripts/newest.sh $(NEWEST) $(NEWEST_PKG)
	$(GO) test -mod=mod -modfile=$(NEWEST) -json -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(NEWEST_PKG) | $(GO) run ./internal/progress

# The server versions that package mongotest can fetch; linux/amd64 only.
VERSIONS ?= 4.4.2 5.0.4 6.0.5 6.0.27
VERSIONS_TIMEOUT ?= 15m
.PHONY: test-versions
test-versions: ## run the MongoDB driver's tests on each server version (VERSIONS="5.0.4 6.0.27")
	@for version in $(VERSIONS); do echo "MongoDB $$version"; \
		HOLDFAST_TEST_MONGOD_VERSION=$$version $(GO) test -race -count=1 -timeout $(VERSIONS_TIMEOUT) $(TESTFLAGS) ./drivers/mongo || exit 1; done

.PHONY: stress
stress: setup ## run the tests of locks and elections repeatedly, with the race detector (STRESS_COUNT=20)
	$(GO) test -race -timeout $(STRESS_TIMEOUT) -count=$(STRESS_COUNT) $(TESTFLAGS) $(STRESS_PKG)

.PHONY: fuzz
fuzz: ## fuzz every parser and decoder, one after another (FUZZTIME=20s; FUZZ=URL for the tests of that name)
	@for module in . integration; do (cd $$module && GO='$(GO)' '$(CURDIR)/scripts/fuzz.sh' '$(FUZZTIME)' '$(FUZZ)') || exit 1; done

.PHONY: test-386
test-386: ## run the tests of the library and its local drivers as a 32-bit program (linux/amd64 and linux/386)
	GOARCH=386 $(GO) vet ./...
	GOARCH=386 $(GO) test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG_386)

.PHONY: bench
bench: setup ## run the benchmarks (BENCH=NAME PKG=./drivers/mongo for some of them)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) $(PKG)

# Images of the integration suite: the official ones, or local ones where those cannot be pulled.
# Modes without containers need no images.
IMAGES = mode=$${HOLDFAST_TEST_MODE:-$${HOLDFAST_TEST_MONGODB_URI:-$${HOLDFAST_TEST_AZBLOB_URL:-containers}}}; \
	if [ "$$mode" = containers ]; then \
	exports=$$(integration/images/engine.sh env); eval "$$exports"; fi

.PHONY: integration
integration: ## test with real backends in containers and real faults (TESTFLAGS='-run Primary'; integration/README.md)
	@$(IMAGES); cd integration && $(GO) test -race -count=1 -p 1 -v -timeout $(INTEGRATION_TIMEOUT) $(TESTFLAGS) $(INTEGRATION_PKG)

.PHONY: reliability
reliability: ## run the integration scenarios and update the table of docs/reliability.md
	@$(IMAGES); mkdir -p .cache; cd integration && \
		{ $(GO) test -json -race -count=1 -timeout $(INTEGRATION_TIMEOUT) $(TESTFLAGS) . >../.cache/scenarios.json; \
		$(GO) run ./table <../.cache/scenarios.json; }

.PHONY: chaos
chaos: ## inject random faults into eight processes on each backend (DURATION=10m; SEED=0 chooses and prints a seed)
	@$(IMAGES); cd integration && $(GO) test -count=1 -v -timeout 0 $(TESTFLAGS) -run '^TestChaos$$' ./chaos \
		-chaos.duration $(DURATION) -chaos.seed $(SEED)

.PHONY: images
images: ## build local stand-ins for the images of the integration suite and of docker-compose.yml
	cd integration && $(GO) run ./images/build

.PHONY: bench-report
bench-report: setup ## run all benchmarks at full length, half an hour, and update docs/performance.md
	@mkdir -p .cache
	status=0; HOLDFAST_BENCH_HOLD=5m HOLDFAST_BENCH_HANDOVERS=10000 HOLDFAST_BENCH_ARTICLE=1 \
		$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 90m $(TESTFLAGS) $(REPORT_PKG) | tee .cache/bench.txt || status=$$?; \
	$(GO) -C bench run ./report <.cache/bench.txt && exit $$status

# The simulator: schedules for DURATION, or so many, in one process for each core.
SIM_PROCS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
SCHEDULES ?= 0
.PHONY: sim sim-replay sim-shrink sim-teeth
sim: ## run random schedules of faults in virtual time (DURATION=10m or SCHEDULES=1000000; SEED=0 chooses a seed)
	@GO='$(GO)' scripts/sim.sh '$(DURATION)' '$(SCHEDULES)' '$(SEED)' '$(SIM_PROCS)'
sim-replay: ## print what happens in one schedule, the same each time (SEED=7)
	@$(GO) -C sim run ./replay -cache '$(CURDIR)/.cache/sim' -seed $(SEED) -variants 20 $(SIMFLAGS)
sim-shrink: ## look for a shorter schedule that fails like that of SEED
	@$(GO) -C sim run ./replay -cache '$(CURDIR)/.cache/sim' -seed $(SEED) -variants 20 -shrink $(SIMFLAGS)
sim-teeth: ## plant faults into the library and measure how long the simulator takes to find them (SIMFLAGS='-run token')
	@$(GO) -C sim run ./teeth $(SIMFLAGS)

.PHONY: spec-small spec
spec-small: ## check the model of the protocol with TLC: small configurations, refuted variants (needs Java)
	@spec/check.sh small
spec: ## check the model with the large configurations too, which takes long
	@spec/check.sh small large

.PHONY: lint
lint: lint-format lint-modules vet lint-code ## run all static checks: format, modules, vet, linter

.PHONY: lint-format
lint-format:
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi

.PHONY: lint-modules
lint-modules:
	@for module in $(MODULES); do echo "$$module: $(GO) mod tidy -diff, verify"; \
		(cd $$module && $(GO) mod tidy -diff && $(GO) mod verify) || exit 1; done

.PHONY: vet
vet: ## compile and vet all packages and their tests for Linux, macOS and Windows
	@for module in $(MODULES); do for system in $(SYSTEMS); do \
		echo "$$module: GOOS=$$system $(GO) build, vet ./..."; \
		(cd $$module && export CGO_ENABLED=0 GOOS=$$system GOARCH=amd64 && $(GO) build ./... && $(GO) vet ./...) || exit 1; \
	done; done

.PHONY: lint-code
lint-code: $(GOLANGCI_LINT)
	@for module in $(MODULES); do echo "$$module: golangci-lint run"; (cd $$module && $(GOLANGCI_LINT) run ./...) || exit 1; done

# Installs the linter into .cache once, unless this version is already installed.
$(GOLANGCI_LINT):
	@mkdir -p $(BIN); \
	for found in "$$(command -v golangci-lint || true)" "$$($(GO) env GOPATH)/bin/golangci-lint"; do \
		if [ -x "$$found" ] && "$$found" version --short 2>/dev/null | grep -qx '$(GOLANGCI_LINT_VERSION:v%=%)'; then \
			ln -sf "$$found" $@; exit 0; \
		fi; \
	done; \
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

.PHONY: lint-tool
lint-tool: $(GOLANGCI_LINT)

.PHONY: clean
clean: ## remove all files that these commands made
	rm -rf bin .cache
