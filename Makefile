# Developer commands; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
PKG ?= ./...
TEST_TIMEOUT ?= 8m
TESTFLAGS ?=
STRESS_COUNT ?= 20
STRESS_TIMEOUT ?= 30m
STRESS_PKG ?= .
BENCH ?= .
SYSTEMS := linux darwin windows

GOLANGCI_LINT_VERSION := v2.15.0
BIN := $(CURDIR)/.cache/bin
# One found in PATH or in Go's own bin folder serves if its version is right.
GOLANGCI_LINT := $(BIN)/golangci-lint

.PHONY: help
help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: build
build: ## build the command into bin/holdfast
	$(GO) build -trimpath -o bin/holdfast ./cmd/holdfast

.PHONY: test
test: ## all tests, with the race detector (PKG=./drivers/file TESTFLAGS=-v for less or more)
	$(GO) test -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)

.PHONY: stress
stress: ## locks and elections again and again, with the race detector (STRESS_COUNT=20)
	$(GO) test -race -timeout $(STRESS_TIMEOUT) -count=$(STRESS_COUNT) $(TESTFLAGS) $(STRESS_PKG)

.PHONY: bench
bench: ## benchmarks (BENCH=name PKG=./drivers/mongo for some)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) $(PKG)

.PHONY: lint
lint: lint-format lint-modules vet lint-code ## everything that is checked without running a test

.PHONY: lint-format
lint-format:
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi

.PHONY: lint-modules
lint-modules:
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: vet
vet: ## compile and vet everything, tests too, for each system
	@for system in $(SYSTEMS); do \
		echo "GOOS=$$system $(GO) build, vet ./..."; \
		CGO_ENABLED=0 GOOS=$$system GOARCH=amd64 $(GO) build ./...; \
		CGO_ENABLED=0 GOOS=$$system GOARCH=amd64 $(GO) vet ./...; \
	done

.PHONY: lint-code
lint-code: $(GOLANGCI_LINT)
	$(GOLANGCI_LINT) run ./...

# The linter is installed into .cache, once, unless the right version is at hand.
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
clean: ## remove what these commands made
	rm -rf bin .cache
