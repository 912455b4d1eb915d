# The everyday commands; `make help` lists them. tools/tools.mk has the rest.
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
STRESS_PKG ?= ./test/promises ./internal/engine ./internal/renewal ./internal/election ./leases ./partitions
# The time for each fuzz test, and a regular expression for their names.
FUZZTIME ?= 20s
FUZZ ?= .
# The packages that need no server and no cgo.
PKG_386 ?= . ./driver/... ./internal/engine ./internal/renewal ./internal/election ./leases ./partitions ./test/promises \
	./drivers/memory ./drivers/file
BENCH ?= .
REPORT_PKG ?= ./internal/engine ./drivers/mongo ./drivers/azblob ./test/bench/scale ./test/bench/partitions ./leases
# Packages of the integration module; the default is all except chaos.
INTEGRATION_PKG ?= $$($(GO) list ./... | grep -v /chaos)
INTEGRATION_TIMEOUT ?= 20m
# How often bench-report measures each way to wake waiters.
ROUNDS ?= 4
DURATION ?= 10m
SEED ?= 0
SYSTEMS := linux darwin windows
# For test-newest: the packages that use other modules, and a go.mod with the newest versions of those modules.
NEWEST_PKG ?= ./drivers/mongo ./drivers/azblob ./drivers/file ./test/mongotest ./test/azuritetest
NEWEST := .cache/newest.mod
# The drivers that are modules of their own; that for Kubernetes requires the newest client-go already.
NEWEST_DRIVERS = $(filter-out drivers/kubernetes,$(DRIVER_MODULES))
# The tests of the command that concern the modules which only it uses.
NEWEST_COMMAND := ../../.cache/newest-command.mod
NEWEST_COMMAND_RUN ?= Help|Flag|Reference|Completion|Man|Top|Metrics|Listen
# These have so many dependencies that .ci/run leaves them out; make -f tools/tools.mk lint-all test-adapters test-examples checks them.
# Two drivers have more than 60 packages, too, those for AWS and Kubernetes. They stay in .ci/run: users get them in every release, and
# their short tests need no server and take a minute or less.
LARGE_MODULES := adapters/kuberneteslock examples/libraries test/bench/rivals test/electors
# The drivers that are modules of their own, without the large ones.
DRIVER_MODULES := $(filter-out $(LARGE_MODULES),$(patsubst %/go.mod,%,$(sort $(wildcard drivers/*/go.mod))))
MODULES := . $(DRIVER_MODULES) otelholdfast cmd/holdfast web/browsertest holdfastcontainers \
	adapters/integration holdfastvet integration test/sim
# The modules that make test tests beside the root module.
TESTED_MODULES := $(DRIVER_MODULES) otelholdfast test/sim cmd/holdfast
# The modules that have fuzz tests.
FUZZED_MODULES := . cmd/holdfast drivers/kubernetes
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
help: ## list these commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 16
	@[ '$(firstword $(MAKEFILE_LIST))' != Makefile ] || echo '"make -f tools/tools.mk" lists the rest.'

.PHONY: build
build: ## build the command into bin/holdfast, statically: it runs in every image
	CGO_ENABLED=0 $(GO) -C cmd/holdfast build -trimpath -o '$(CURDIR)/bin/holdfast' .

.PHONY: setup
setup: ## install and fetch what the tests need (HOLDFAST_SETUP=list only lists the commands)
	@$(GO) run ./tools/setup
	@for module in . $(TESTED_MODULES); do if ! GOPROXY=off $(GO) -C $$module list -deps -test ./... >/dev/null 2>&1; then \
		echo "$$module: fetching its Go modules (70 MB or more for all of them, once)"; \
		$(GO) -C $$module list -deps -test ./... >/dev/null || exit 1; fi; done

.PHONY: test
test: setup $(GOTESTSUM) ## test every promise, the command and the drivers, four of them on real servers (SHORT= for every test; PKG=)
ifeq ($(PKG),./...)
	@GO='$(GO)' GOTESTSUM='$(GOTESTSUM)' tools/test.sh '$(TESTED_MODULES)' $(SHORT) -timeout=$(TEST_TIMEOUT) $(TESTFLAGS)
else
	$(GO) test -race $(SHORT) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)
endif

.PHONY: verify
verify: ## run every check: three hours, needs Docker (PARTS='long integration' for some of them)
	@tools/verify.sh $(PARTS)

# The packages whose tests need no server. CI answers with this first.
FAST_PKG ?= $(PKG_386) ./lockertest ./holdfasttest ./migrating ./readiness ./web ./tools/layers
.PHONY: fast
fast: lint-format $(GOLANGCI_LINT) ## vet, lint and test what needs no server: the quick answer, also of CI
	$(GO) vet ./...
	$(GO) -C cmd/holdfast vet ./...
	$(GOLANGCI_LINT) run --allow-parallel-runners ./...
	@$(MAKE) test-fast

.PHONY: test-fast
test-fast:
	$(GO) test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(FAST_PKG)

.PHONY: test-newest
test-newest: setup # test the packages that use other modules with the newest versions; go.mod requires the oldest
	@tools/newest.sh $(NEWEST) $(NEWEST_PKG)
	$(GO) test -mod=mod -modfile=$(NEWEST) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(NEWEST_PKG)
	@for module in $(NEWEST_DRIVERS); do echo "$$module with the newest versions"; newest=../../.cache/newest-$${module#drivers/}.mod; \
		(cd $$module && ../../tools/newest.sh $$newest ./... && \
		$(GO) test -mod=mod -modfile=$$newest -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || exit 1; done
	cd cmd/holdfast && ../../tools/newest.sh $(NEWEST_COMMAND) ./... && \
		$(GO) test -mod=mod -modfile=$(NEWEST_COMMAND) -run '$(NEWEST_COMMAND_RUN)' -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: stress
stress: setup ## run the tests of locks and elections repeatedly, with the race detector (STRESS_COUNT=20)
	$(GO) test -race -timeout $(STRESS_TIMEOUT) -count=$(STRESS_COUNT) $(TESTFLAGS) $(STRESS_PKG)

.PHONY: fuzz
fuzz: ## fuzz every parser and decoder, one after another (FUZZTIME=20s; FUZZ=URL for the tests of that name)
	@for module in $(FUZZED_MODULES); do (cd $$module && GO='$(GO)' '$(CURDIR)/tools/fuzz.sh' '$(FUZZTIME)' '$(FUZZ)') || exit 1; done

.PHONY: release-check
BASE ?=
release-check: ## check what a release promises: the same bytes twice, API, licences, go install (BASE=v0.1.0)
	@GO='$(GO)' tools/release-check.sh $(BASE)

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

.PHONY: chaos
chaos: ## inject random faults into eight processes on each backend (DURATION=10m; SEED=0 chooses and prints a seed)
	@$(IMAGES); cd integration && $(GO) test -count=1 -v -timeout 0 $(TESTFLAGS) -run '^TestChaos$$' ./chaos \
		-chaos.duration $(DURATION) -chaos.seed $(SEED)

# The simulator: schedules for DURATION, or so many, in one process for each core.
SIM_PROCS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
SCHEDULES ?= 0
.PHONY: sim
sim: ## run random schedules of faults in virtual time (DURATION=10m or SCHEDULES=1000000; SEED=0 chooses; RECORD=file)
	@GO='$(GO)' tools/sim.sh '$(DURATION)' '$(SCHEDULES)' '$(SEED)' '$(SIM_PROCS)' '$(RECORD)'

.PHONY: spec-quick
spec-quick: ## check a small part of the model of the protocol with TLC, in half a minute
	@$(GO) run ./tools/setup model
	@test/spec/check.sh quick

.PHONY: docs docs-serve docs-reference
docs: $(DOCS_TOOLS)/installed ## build the site of the pages in .cache/site; a broken link is an error
	@$(MKDOCS) build -f tools/docs/mkdocs.yml && echo 'open .cache/site/index.html'

docs-serve: $(DOCS_TOOLS)/installed ## show the site at http://127.0.0.1:8000 and build it again after each change
	@$(MKDOCS) serve -f tools/docs/mkdocs.yml --no-strict

docs-reference: ## write docs/command-reference.md from the command's help, and driver/importpaths.go
	$(GO) -C cmd/holdfast test -count=1 -run '^(TestReferencePage|TestImportPaths)$$' . -update

# Installs mkdocs and its theme from PyPI into .cache once, and again after a change of the versions.
$(DOCS_TOOLS)/installed: tools/docs/requirements.txt
	@$(GO) run ./tools/setup docs
	@echo 'installing mkdocs into $(DOCS_TOOLS) (20 MB)'
	@python3 -m venv --clear $(DOCS_TOOLS)
	@$(DOCS_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: lint
lint: lint-format lint-modules vet lint-code lint-misuse ## run all static checks: format, modules, vet, linter

# The database of vulnerabilities is at vuln.go.dev; without it the check fails.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
.PHONY: vulncheck
vulncheck: ## look for known vulnerabilities in what each module calls (needs vuln.go.dev)
	@for module in $(MODULES) $(LARGE_MODULES); do echo "$$module: govulncheck ./..."; \
		(cd $$module && $(GO) run $(GOVULNCHECK) ./...) || exit 1; done

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
vet: # compile and vet all packages and their tests for Linux, macOS and Windows
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
	@for module in $(MODULES); do echo "$$module: golangci-lint run"; \
		(cd $$module && $(GOLANGCI_LINT) run --allow-parallel-runners ./...) || exit 1; done

# holdfastvet finds nothing in this repository: a report is a false alarm or a mistake.
.PHONY: lint-misuse
lint-misuse: # run holdfastvet, which finds misuse of the library, on all modules
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

.PHONY: clean
clean: ## remove all files that these commands made
	rm -rf bin .cache
