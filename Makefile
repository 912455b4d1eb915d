# Developer commands; `make help` lists them.
# On systems without bash, sh must support pipefail.
SHELL := $(firstword $(wildcard /bin/bash /usr/bin/bash /usr/local/bin/bash) /bin/sh)
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
PKG ?= ./...
# It only ends a test that hangs.
TEST_TIMEOUT ?= 20m
TESTFLAGS ?=
# Leaves out the tests that take long or depend on the machine; empty: every test.
SHORT ?= -short
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
REPORT_PKG ?= ./internal/engine ./drivers/mongo ./drivers/azblob ./internal/endtoend ./internal/partbench ./leases
# Packages of the integration module; the default is all except chaos.
INTEGRATION_PKG ?= $$($(GO) list ./... | grep -v /chaos)
INTEGRATION_TIMEOUT ?= 20m
# How often bench-scale measures each way to wake waiters.
ROUNDS ?= 4
DURATION ?= 10m
SEED ?= 0
SYSTEMS := linux darwin windows
# For test-newest: the packages that use other modules, and a go.mod with the newest versions of those modules.
NEWEST_PKG ?= ./drivers/mongo ./drivers/azblob ./drivers/file ./internal/mongotest ./internal/azuritetest
NEWEST := .cache/newest.mod
# The tests of the command that concern the modules which only it uses.
NEWEST_COMMAND := ../../.cache/newest-command.mod
NEWEST_COMMAND_RUN ?= Help|Flag|Reference|Completion|Man|Top|Metrics|Listen
MODULES := . otelholdfast cmd/holdfast web/browsertest bench integration holdfastcontainers adapters/integration holdfastvet sim
# The modules that make test tests beside the root module.
TESTED_MODULES := otelholdfast sim cmd/holdfast
# The modules that have fuzz tests.
FUZZED_MODULES := . cmd/holdfast
# These have so many dependencies that .ci/run leaves them out; make lint-all and make test-adapters test-examples check them.
LARGE_MODULES := adapters/kuberneteslock examples/asynq examples/gocron
# Caddy has even more. It is compiled for one system only, with one set of flags.
CADDY := examples/caddy

GOLANGCI_LINT_VERSION := v2.15.0
BIN := $(CURDIR)/.cache/bin
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := $(BIN)/gotestsum-$(GOTESTSUM_VERSION)
# A golangci-lint in PATH or in Go's bin folder is used if it has this version.
GOLANGCI_LINT := $(BIN)/golangci-lint
DOCS_TOOLS := .cache/mkdocs
MKDOCS := NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 $(DOCS_TOOLS)/bin/python -m mkdocs

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## build the command into bin/holdfast
	$(GO) -C cmd/holdfast build -trimpath -o '$(CURDIR)/bin/holdfast' .

MANDIR ?= bin/man1
.PHONY: man
man: ## write the manual pages of the command into a folder (MANDIR=bin/man1)
	@$(GO) -C cmd/holdfast run . man '$(abspath $(MANDIR))' && echo 'man $(MANDIR)/holdfast.1'

.PHONY: setup
setup: ## install and fetch what the tests need (HOLDFAST_SETUP=list only lists the commands)
	@$(GO) run ./internal/setup
	@for module in . $(TESTED_MODULES); do if ! GOPROXY=off $(GO) -C $$module list -deps -test ./... >/dev/null 2>&1; then \
		echo "$$module: fetching the Go modules (60 MB in all, once)"; $(GO) -C $$module list -deps -test ./... >/dev/null || exit 1; fi; done

.PHONY: test
test: setup $(GOTESTSUM) ## test every promise, each driver on real servers, and the command: five minutes (SHORT= for every test; PKG=./drivers/file)
ifeq ($(PKG),./...)
	@GO='$(GO)' GOTESTSUM='$(GOTESTSUM)' scripts/test.sh '$(TESTED_MODULES)' $(SHORT) -timeout=$(TEST_TIMEOUT) $(TESTFLAGS)
else
	$(GO) test -race $(SHORT) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)
endif

.PHONY: verify
verify: ## run every check: an hour, needs Docker (PARTS='long integration' for some of them)
	@scripts/verify.sh $(PARTS)

.PHONY: test-bench
test-bench: ## run the tests of the module bench, which draws the results of benchmarks
	$(GO) -C bench test $(TESTFLAGS) ./...

.PHONY: test-adapters
test-adapters: ## test the adapters with the libraries that they are for; needs a C compiler, for SQLite
	@for module in adapters/integration adapters/kuberneteslock examples/asynq; do \
		echo "$$module"; $(GO) -C $$module test -race -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./... || exit 1; done

.PHONY: test-examples
test-examples: ## test the examples that are modules of their own: gocron, Caddy (a minute for its first build)
	@for module in examples/gocron $(CADDY); do echo "$$module: $(GO) vet, test ./..."; \
		(cd $$module && export CGO_ENABLED=0 && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || exit 1; done

.PHONY: test-vet
test-vet: ## test holdfastvet, the checks for programs that use the library
	$(GO) -C holdfastvet test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: test-page
test-page: setup ## test the page in a real Chromium, with axe-core, on a folder, MongoDB and Azurite: two minutes
	@$(GO) run ./internal/setup browser
	$(GO) -C web/browsertest test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: test-newest
test-newest: setup ## test the packages that use other modules with the newest versions; go.mod requires the oldest
	@scripts/newest.sh $(NEWEST) $(NEWEST_PKG)
	$(GO) test -mod=mod -modfile=$(NEWEST) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(NEWEST_PKG)
	cd cmd/holdfast && ../../scripts/newest.sh $(NEWEST_COMMAND) ./... && \
		$(GO) test -mod=mod -modfile=$(NEWEST_COMMAND) -run '$(NEWEST_COMMAND_RUN)' -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

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
	@for module in $(FUZZED_MODULES); do (cd $$module && GO='$(GO)' '$(CURDIR)/scripts/fuzz.sh' '$(FUZZTIME)' '$(FUZZ)') || exit 1; done

.PHONY: test-386
test-386: ## run the tests of the library and its local drivers as a 32-bit program (linux/amd64 and linux/386)
	GOARCH=386 $(GO) vet ./...
	GOARCH=386 $(GO) -C cmd/holdfast vet ./...
	GOARCH=386 $(GO) test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG_386)

# Under Wine a call of the file system takes milliseconds: the tests of the file driver in which many processes or goroutines
# use one folder exceed its time limit of five seconds, so docs/systems.md names them as not run.
WINE_PKG ?= . ./driver/... ./drivers/memory ./drivers/file ./internal/engine ./internal/renewal ./internal/election ./leases \
	./partitions ./promises
WINE_SKIP := ^(TestConformance|TestPruneMeetsHolders|TestKilled|TestProcessesCount|TestWatchOfAFolderThatIsReplaced)$$
.PHONY: test-wine
test-wine: ## run tests as Windows programs under Wine (linux/amd64; needs wine64 and MinGW)
	FLAGS='$(TESTFLAGS)' scripts/wine.sh cmd/holdfast .
	FLAGS='-skip=$(WINE_SKIP) -parallel=1 $(TESTFLAGS)' scripts/wine.sh . $(WINE_PKG)

.PHONY: test-arm64
test-arm64: ## run tests as arm64 programs under QEMU (Linux; needs qemu-user)
	@command -v qemu-aarch64 >/dev/null || { echo 'qemu-aarch64 is missing; on Debian: apt-get install qemu-user'; exit 1; }
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) -C cmd/holdfast vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -vet=off -exec qemu-aarch64 -timeout 30m $(TESTFLAGS) $(PKG_386)

.PHONY: licences release-check
licences: ## write cmd/holdfast/THIRD_PARTY.md: the licences of the modules in the command
	$(GO) run ./internal/licences
BASE ?=
release-check: ## check what a release promises: the same bytes twice, API, licences, go install (BASE=v0.1.0)
	@GO='$(GO)' scripts/release-check.sh $(BASE)

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
	@$(IMAGES); \
	if [ "$$mode" = containers ]; then $(GO) -C holdfastcontainers test -race -count=1 -v -timeout 5m $(TESTFLAGS) ./...; fi; \
	cd integration && $(GO) test -race -count=1 -p 1 -v -timeout $(INTEGRATION_TIMEOUT) $(TESTFLAGS) $(INTEGRATION_PKG)

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
sim: ## run random schedules of faults in virtual time (DURATION=10m or SCHEDULES=1000000; SEED=0 chooses a seed; RECORD=file adds to a record)
	@GO='$(GO)' scripts/sim.sh '$(DURATION)' '$(SCHEDULES)' '$(SEED)' '$(SIM_PROCS)' '$(RECORD)'
sim-replay: ## print what happens in one schedule, the same each time (SEED=7)
	@$(GO) -C sim run ./replay -cache '$(CURDIR)/.cache/sim' -seed $(SEED) -variants 20 $(SIMFLAGS)
sim-shrink: ## look for a shorter schedule that fails like that of SEED
	@$(GO) -C sim run ./replay -cache '$(CURDIR)/.cache/sim' -seed $(SEED) -variants 20 -shrink $(SIMFLAGS)
sim-teeth: ## plant faults into the library and measure how long the simulator takes to find them (SIMFLAGS='-run token')
	@$(GO) -C sim run ./teeth $(SIMFLAGS)

# Generated faults: the results stay in a file, so that a run goes on where the last one has ended.
MUTANTS := -mutants '$(CURDIR)/sim/teeth/results.jsonl'
.PHONY: mutate mutate-table
mutate: ## plant generated faults, for tests and the simulator to find; hours (MUTATE='-for 1h -run ^leases')
	@$(GO) -C sim run ./teeth $(MUTANTS) -builds '$(CURDIR)/.cache/mutants' -schedules 300 $(MUTATE)
mutate-table: ## write the results of make mutate into docs/teeth.md
	@$(GO) -C sim run ./teeth $(MUTANTS) -table '$(CURDIR)/docs/teeth.md'

.PHONY: bench-scale
bench-scale: setup ## measure what waiting costs a replica set, half an hour, and update docs/performance.md
	@mkdir -p .cache
	status=0; HOLDFAST_BENCH_ROUNDS=$(ROUNDS) $(GO) test -run '^$$' -bench '$(BENCH)' -timeout 90m $(TESTFLAGS) ./internal/scalebench \
		| tee .cache/bench-scale.txt || status=$$?; \
	$(GO) -C bench run ./report <.cache/bench-scale.txt && exit $$status

.PHONY: simulate
simulate: ## run the large simulations of package scalesim in virtual time: minutes, and up to 10 GB of memory
	HOLDFAST_SIMULATION=large $(GO) test -count=1 -v -timeout 60m $(TESTFLAGS) ./internal/scalesim

.PHONY: spec-quick spec-small spec
spec-quick: ## check a small part of the model of the protocol with TLC, in half a minute
	@$(GO) run ./internal/setup model
	@spec/check.sh quick
spec-small: ## check the model of the protocol with TLC: small configurations, refuted variants
	@$(GO) run ./internal/setup model
	@spec/check.sh small
spec: ## check the model with the large configurations too, which takes long
	@$(GO) run ./internal/setup model
	@spec/check.sh small large

.PHONY: test-deploy
test-deploy: build ## test the alert rules of deploy/ with a real Prometheus and a real fail-over
	@$(GO) run ./internal/setup deploy
	@$(GO) run ./internal/deploytest

.PHONY: docs docs-serve docs-reference docs-diagrams
docs: $(DOCS_TOOLS)/installed ## build the site of the pages in .cache/site; a broken link is an error
	@$(MKDOCS) build && echo 'open .cache/site/index.html'

docs-serve: $(DOCS_TOOLS)/installed ## show the site at http://127.0.0.1:8000 and build it again after each change
	@$(MKDOCS) serve --no-strict

docs-reference: ## write docs/command-reference.md from the command's help
	$(GO) -C cmd/holdfast test -count=1 -run '^TestReferencePage$$' . -update

docs-diagrams: ## draw the diagrams of docs/
	$(GO) run ./internal/diagrams

# Installs mkdocs and its theme from PyPI into .cache once, and again after a change of the versions.
$(DOCS_TOOLS)/installed: internal/docs/requirements.txt
	@$(GO) run ./internal/setup docs
	@echo 'installing mkdocs into $(DOCS_TOOLS) (20 MB)'
	@python3 -m venv --clear $(DOCS_TOOLS)
	@$(DOCS_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: lint
lint: lint-format lint-modules vet lint-code lint-misuse ## run all static checks: format, modules, vet, linter

.PHONY: lint-all
lint-all: ## run the static checks for the modules that .ci/run leaves out, too
	@$(MAKE) lint MODULES='$(MODULES) $(LARGE_MODULES)'
	@echo "$(CADDY): golangci-lint run"; cd $(CADDY) && CGO_ENABLED=0 $(GOLANGCI_LINT) run ./...

.PHONY: lint-format
lint-format:
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi

.PHONY: lint-modules
lint-modules:
	@for module in $(MODULES); do echo "$$module: $(GO) mod tidy -diff, verify"; \
		(cd $$module && $(GO) mod tidy -diff && $(GO) mod verify) || exit 1; done

# "go build" of more than one package writes no program into the folder; a module may have but one.
.PHONY: vet
vet: ## compile and vet all packages and their tests for Linux, macOS and Windows
	@for module in $(MODULES); do for system in $(SYSTEMS); do \
		echo "$$module: GOOS=$$system $(GO) build, vet ./..."; \
		(cd $$module && export CGO_ENABLED=0 GOOS=$$system GOARCH=amd64 && $(GO) build ./... errors && $(GO) vet ./...) || exit 1; \
	done; done

# What has files of its own for macOS and Windows.
.PHONY: vet-quick
vet-quick:
	@for module in $(MODULES); do echo "$$module: $(GO) vet ./..."; (cd $$module && CGO_ENABLED=0 $(GO) vet ./...) || exit 1; done
	@for module in . cmd/holdfast; do for system in darwin windows; do echo "$$module: GOOS=$$system $(GO) vet ./..."; \
		(cd $$module && CGO_ENABLED=0 GOOS=$$system GOARCH=amd64 $(GO) vet ./...) || exit 1; done; done

.PHONY: lint-code
lint-code: $(GOLANGCI_LINT)
	@for module in $(MODULES); do echo "$$module: golangci-lint run"; (cd $$module && $(GOLANGCI_LINT) run ./...) || exit 1; done

# holdfastvet finds nothing in this repository: a report is a false alarm or a mistake.
.PHONY: lint-misuse
lint-misuse: ## run holdfastvet, which finds misuse of the library, on all modules
	@$(GO) -C holdfastvet build -o $(BIN)/holdfastvet .
	@for module in $(MODULES); do echo "$$module: holdfastvet ./..."; \
		(cd $$module && CGO_ENABLED=0 $(GO) vet -vettool=$(BIN)/holdfastvet ./...) || exit 1; done

# Installs the linter into .cache once, unless this version is already installed.
$(GOLANGCI_LINT):
	@mkdir -p $(BIN); \
	for found in "$$(command -v golangci-lint || true)" "$$($(GO) env GOPATH)/bin/golangci-lint"; do \
		if [ -x "$$found" ] && "$$found" version --short 2>/dev/null | grep -qx '$(GOLANGCI_LINT_VERSION:v%=%)'; then \
			ln -sf "$$found" $@; exit 0; \
		fi; \
	done; \
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(GOTESTSUM):
	@mkdir -p $(BIN); GOBIN=$(BIN) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION) && mv $(BIN)/gotestsum $@

.PHONY: lint-tool
lint-tool: $(GOLANGCI_LINT)

.PHONY: clean
clean: ## remove all files that these commands made
	rm -rf bin .cache
