# Commands that are needed now and then; `make -f tools/tools.mk` lists them. The Makefile has the everyday ones, and the variables.
include Makefile

MANDIR ?= bin/man1
.PHONY: man
man: ## write the manual pages of the command into a folder (MANDIR=bin/man1)
	@$(GO) -C cmd/holdfast run . man '$(abspath $(MANDIR))' && echo 'man $(MANDIR)/holdfast.1'

.PHONY: test-bench
test-bench: ## run the tests of the package of test/bench/rivals that draws the results of benchmarks
	$(GO) -C test/bench/rivals test $(TESTFLAGS) ./draw/...

.PHONY: test-adapters
test-adapters: ## test the adapters with the libraries that they are for, and the Kubernetes driver beside client-go; needs a C compiler
	@for module in adapters/integration adapters/kuberneteslock test/electors; do \
		echo "$$module"; $(GO) -C $$module test -race -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./... || exit 1; done

.PHONY: test-examples
test-examples: ## test the examples that are modules of their own: with other libraries, and Caddy (a minute for its first build)
	@for module in examples/libraries $(CADDY); do echo "$$module: $(GO) vet, test ./..."; \
		(cd $$module && export CGO_ENABLED=0 && $(GO) mod tidy -diff && $(GO) vet ./... && \
			$(GO) test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || exit 1; done

.PHONY: test-vet
test-vet: ## test holdfastvet, the checks for programs that use the library
	$(GO) -C holdfastvet test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: vet-oldest
vet-oldest: ## vet what users import, with the Go that is installed: the oldest that go.mod allows, in CI
	@for module in . $(filter-out drivers/kubernetes,$(DRIVER_MODULES)) otelholdfast holdfastvet; do \
		echo "$$module: go vet ./..."; $(GO) -C $$module vet ./... || exit 1; done

.PHONY: test-page
test-page: setup docs ## test the page in a real Chromium, with axe-core, with all backends, and the site's search: two minutes
	@$(GO) run ./tools/setup browser
	$(GO) -C web/browsertest test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

# The server versions that package mongotest can fetch; linux/amd64 only.
VERSIONS ?= 4.4.2 5.0.4 6.0.5 6.0.27
VERSIONS_TIMEOUT ?= 15m
.PHONY: test-versions
test-versions: ## run the MongoDB driver's tests on each server version (VERSIONS="5.0.4 6.0.27")
	@for version in $(VERSIONS); do echo "MongoDB $$version"; \
		HOLDFAST_TEST_MONGOD_VERSION=$$version $(GO) test -race -count=1 -timeout $(VERSIONS_TIMEOUT) $(TESTFLAGS) ./drivers/mongo || exit 1; done

# Folders of PostgreSQL's programs; "" is the version that make setup fetches. Version 15 is that of Debian 12.
POSTGRES_BINS ?= /usr/lib/postgresql/15/bin ""
.PHONY: test-versions-postgres
test-versions-postgres: setup ## run the PostgreSQL driver's tests on each version (POSTGRES_BINS="/usr/lib/postgresql/15/bin")
	@for bin in $(POSTGRES_BINS); do echo "PostgreSQL in $${bin:-.cache}"; \
		HOLDFAST_TEST_POSTGRES_BIN=$$bin $(GO) -C drivers/postgres test -race -count=1 -timeout $(VERSIONS_TIMEOUT) $(TESTFLAGS) ./... || \
			exit 1; done

# The tests of the command that concern the drivers which only the full build has.
FULL_RUN ?= ^Test(Kubernetes|S3|DynamoDB|FullBuild|EveryDriver|PagesList|Descriptions|Typos|DescribedSecrets|ImportPaths|Table|TTLTable)
.PHONY: test-full
test-full: ## test the full build of the command, with the drivers that "go install" leaves out
	$(GO) -C cmd/holdfast vet -tags full .
	$(GO) -C cmd/holdfast test -count=1 -tags full -run '$(FULL_RUN)' -timeout $(TEST_TIMEOUT) $(TESTFLAGS) .

.PHONY: test-kubernetes
test-kubernetes: ## test the drivers for Kubernetes and etcd on servers that it builds once: 10 minutes, 1 GB to download
	@GO='$(GO)' tools/kubernetes.sh

.PHONY: test-s3
test-s3: ## test the S3 driver on versitygw, which it builds once: 2 minutes, 400 MB to download
	@GO='$(GO)' tools/s3.sh

.PHONY: test-dynamodb
test-dynamodb: ## test the DynamoDB driver on moto, which it installs once from PyPI: 100 MB to download
	@GO='$(GO)' tools/dynamodb.sh

.PHONY: test-nats
test-nats: ## test the NATS driver on nats-server, which it builds once: a minute, 30 MB to download
	@GO='$(GO)' tools/nats.sh

.PHONY: test-386
test-386: ## run the tests of the library and its local drivers as a 32-bit program (linux/amd64 and linux/386)
	GOARCH=386 $(GO) vet ./...
	GOARCH=386 $(GO) -C cmd/holdfast vet ./...
	GOARCH=386 $(GO) test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG_386)

# Under Wine a call of the file system takes milliseconds: the tests of the file driver in which many processes or goroutines
# use one folder exceed its time limit of five seconds, so docs/systems.md names them as not run.
WINE_PKG ?= . ./driver/... ./drivers/memory ./drivers/file ./internal/engine ./internal/renewal ./internal/election ./leases \
	./partitions ./test/promises
WINE_SKIP := ^(TestConformance|TestPruneMeetsHolders|TestKilled|TestProcessesCount|TestWatchOfAFolderThatIsReplaced)$$
.PHONY: test-wine
test-wine: ## run tests as Windows programs under Wine (linux/amd64; needs wine64 and MinGW)
	FLAGS='$(TESTFLAGS)' tools/wine.sh cmd/holdfast ./...
	FLAGS='-skip=$(WINE_SKIP) -parallel=1 $(TESTFLAGS)' tools/wine.sh . $(WINE_PKG)

.PHONY: test-arm64
test-arm64: ## run tests as arm64 programs under QEMU (Linux; needs qemu-user)
	@command -v qemu-aarch64 >/dev/null || { echo 'qemu-aarch64 is missing; on Debian: apt-get install qemu-user'; exit 1; }
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) -C cmd/holdfast vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -vet=off -exec qemu-aarch64 -timeout 30m $(TESTFLAGS) $(PKG_386)

.PHONY: licences
licences: ## write .cache/release/THIRD_PARTY.md: the licences of the modules in the command
	$(GO) run ./tools/licences

.PHONY: images
images: ## build local stand-ins for the images of the integration suite and of the examples
	cd integration && $(GO) run ./images/build

.PHONY: bench-report
bench-report: setup ## run all benchmarks at full length, an hour, and update docs/performance.md and test/bench/measured.txt
	@mkdir -p .cache
	status=0; HOLDFAST_BENCH_HOLD=5m HOLDFAST_BENCH_GRANTS=10000 HOLDFAST_BENCH_ARTICLE=1 HOLDFAST_BENCH_ROUNDS=$(ROUNDS) \
		$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 90m $(TESTFLAGS) $(REPORT_PKG) | tee .cache/bench.txt || status=$$?; \
	$(GO) -C test/bench/rivals run ./draw/report <.cache/bench.txt && exit $$status

.PHONY: sim-replay sim-shrink sim-plant
sim-replay: ## print what happens in one schedule, the same each time (SEED=7)
	@$(GO) -C test/sim run ./replay -cache '$(CURDIR)/.cache/sim' -seed $(SEED) -variants 20 $(SIMFLAGS)
sim-shrink: ## look for a shorter schedule that fails like that of SEED
	@$(GO) -C test/sim run ./replay -cache '$(CURDIR)/.cache/sim' -seed $(SEED) -variants 20 -shrink $(SIMFLAGS)
sim-plant: ## plant faults into the library and measure how long the simulator takes to find them (SIMFLAGS='-run token')
	@$(GO) -C test/sim run ./plant $(SIMFLAGS)

MUTANTS ?=
.PHONY: mutants
mutants: ## list all tests that fail by each of 200 small changes of the library: hours of one core (MUTANTS='-run leases', -summary)
	@$(GO) -C test/sim run ./mutants $(MUTANTS)

.PHONY: simulate
simulate: ## run the large simulations of package scalesim in virtual time: minutes, and up to 10 GB of memory
	HOLDFAST_SIMULATION=large $(GO) test -count=1 -v -timeout 60m $(TESTFLAGS) ./test/scalesim

.PHONY: spec-small spec
spec-small: ## check the model of the protocol with TLC: small configurations, refuted variants
	@$(GO) run ./tools/setup model
	@test/spec/check.sh small
spec: ## check the model with the large configurations too, which takes long
	@$(GO) run ./tools/setup model
	@test/spec/check.sh small large

.PHONY: test-deploy
test-deploy: build ## test the alert rules of deploy/ with a real Prometheus and a real fail-over
	@$(GO) run ./tools/setup deploy
	@$(GO) run ./test/deploytest

.PHONY: docs-diagrams
docs-diagrams: ## draw the diagrams of docs/
	$(GO) run ./tools/diagrams

.PHONY: lint-all
lint-all: ## run the static checks for the modules that .ci/run leaves out, too
	@$(MAKE) lint MODULES='$(MODULES) $(LARGE_MODULES)'
	@echo "$(CADDY): golangci-lint run"; cd $(CADDY) && CGO_ENABLED=0 $(GOLANGCI_LINT) run --allow-parallel-runners ./...
