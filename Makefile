# Ramet: `make` alone prints the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN     := bin
TOOLBIN := $(CURDIR)/.cache/tools
# What the real-VM tests build their template in; kept between runs.
RAMET_TEST_HOME ?= $(CURDIR)/.cache/test-home
TEST_FLAGS ?=
# The driver of the machines that the tests make: qemu or gvisor.
DRIVER ?= qemu
GOTEST  := $(TOOLBIN)/gotestsum --format pkgname-and-test-fails
# A virtual environment with the official clients that tests run.
CLIENTS := $(CURDIR)/.cache/clients

# Debian packages that a host needs to run Ramet.
HOST_PACKAGES := qemu-system-x86 qemu-utils mmdebstrap e2fsprogs ca-certificates
# And what the tests need besides.
TEST_PACKAGES := ipython3 python3 python3-venv python3-matplotlib python3-numpy python3-pandas fonts-wqy-microhei nodejs git curl iproute2 openssl crun systemd lintian
# The browser that the TypeScript SDK is tested in: 305 MB with what it needs.
BROWSER := chromium-headless-shell

.PHONY: help
help: ## print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: build
build: $(BIN)/ramet-runsc ## build bin/ramet, with the guest agent inside, and bin/ramet-runsc beside it
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o $(BIN)/ramet-agent ./cmd/ramet-agent
	@cmp -s $(BIN)/ramet-agent internal/agentbin/ramet-agent || cp $(BIN)/ramet-agent internal/agentbin/ramet-agent
	CGO_ENABLED=0 $(GO) build -trimpath -tags embedagent -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN)/ramet ./cmd/ramet

# gVisor's runsc, from a module of its own.
$(BIN)/ramet-runsc: scripts/build-runsc $(shell find cmd/ramet-runsc -type f)
	GO="$(GO)" scripts/build-runsc $@

.PHONY: package
package: build ## make dist/ramet_<version>_amd64.deb
	@GO="$(GO)" scripts/package "$(VERSION)" "$(HOST_PACKAGES)"

.PHONY: deps
deps: ## install the host packages that are missing (Debian, as root)
	@scripts/install-packages $(HOST_PACKAGES)

.PHONY: test-deps
test-deps: deps
	@scripts/install-packages $(TEST_PACKAGES)
	@[ -x $(CLIENTS)/bin/podflare-ok ] || { \
		/usr/bin/python3 -m venv $(CLIENTS) && $(CLIENTS)/bin/pip install -q podflare==0.0.22 && \
		ln -sf python $(CLIENTS)/bin/podflare-ok; }
	@[ -x $(CLIENTS)/bin/e2b-ok ] || { \
		$(CLIENTS)/bin/pip install -q e2b==2.63.0 e2b-code-interpreter==2.11.5 && ln -sf python $(CLIENTS)/bin/e2b-ok; }
	@command -v npm >/dev/null || scripts/install-packages nodejs npm
	@[ -d $(CLIENTS)/node_modules/@e2b/code-interpreter ] || \
		npm install --no-audit --no-fund --silent --prefix $(CLIENTS) e2b@2.51.0 @e2b/code-interpreter@2.8.0

.PHONY: up
up: deps build ## set everything up, start the server, run a first sandbox
	@$(BIN)/ramet up --detach
	@scripts/first-session $(BIN)/ramet

.PHONY: down
down: build ## stop the server
	@$(BIN)/ramet down

.PHONY: test
test: test-unit test-sdk test-package test-integration ## every test: fast ones, the SDKs, the package, then real VMs

.PHONY: test-unit
test-unit: test-deps build $(TOOLBIN)/.built ## tests without virtual machines
	RAMET_TEST_PODFLARE=$(CLIENTS)/bin/python RAMET_TEST_E2B_PYTHON=$(CLIENTS)/bin/python RAMET_TEST_E2B_NODE=$(CLIENTS)/node_modules \
		RAMET_TEST_PEBBLE=$(TOOLBIN)/pebble $(GOTEST) --jsonfile .cache/unit.json -- -race -timeout 10m $(TEST_FLAGS) ./...
	@scripts/no-skips .cache/unit.json

CONFORMANCE_FLAGS ?=

.PHONY: conformance
conformance: test-deps build ## the official clients of other sandboxes, against a real server (as root)
	@command -v npm >/dev/null || scripts/install-packages nodejs npm
	RAMET_TEST_DRIVER=$(DRIVER) RAMET_TEST_HOME=$(RAMET_TEST_HOME) conformance/run.py $(CONFORMANCE_FLAGS)

.PHONY: test-sdk
test-sdk: test-sdk-python test-sdk-typescript ## tests of the SDKs

.PHONY: test-sdk-python
test-sdk-python: test-deps ## types and tests of the Python SDK, against machines that are processes of this host
	@sdk/python/tools/test

.PHONY: test-sdk-typescript
test-sdk-typescript: test-deps ## types, tests and installation of the TypeScript SDK, also in a browser, against machines that are processes of this host
	@[ -n "$$RAMET_CHROMIUM" ] || scripts/install-packages $(BROWSER) || { \
		echo "the TypeScript SDK is tested in a browser: install $(BROWSER), or name a Chromium by RAMET_CHROMIUM" >&2; exit 1; }
	@sdk/typescript/tools/test

.PHONY: generate-sdk
generate-sdk: generate-sdk-typescript ## generate the parts of the SDKs that come from api/openapi.yaml
	@sdk/python/tools/generate

.PHONY: generate-sdk-typescript
generate-sdk-typescript: ## generate src/*.gen.ts of the TypeScript SDK from api/openapi.yaml
	@sdk/typescript/tools/generate

.PHONY: test-package
test-package: test-deps package ## tests of the Debian package, in a system of its own (as root)
	@scripts/test-package "$$(ls -t dist/ramet_*_amd64.deb | head -n 1)"

REAL := RAMET_TEST_DRIVER=$(DRIVER) RAMET_TEST_HOME=$(RAMET_TEST_HOME) RAMET_AGENT=$(CURDIR)/$(BIN)/ramet-agent RAMET_RUNSC=$(CURDIR)/$(BIN)/ramet-runsc

.PHONY: test-integration
test-integration: test-deps build $(TOOLBIN)/.built ## tests on real machines of DRIVER (as root)
	python="$$(sdk/python/tools/python)" && RAMET_TEST_SDK_PYTHON="$$python" $(REAL) \
		$(GOTEST) --jsonfile .cache/integration.json -- -race -tags integration -count=1 -p 1 -timeout 30m -run '^TestReal' $(TEST_FLAGS) \
		./internal/image ./internal/app ./internal/vmm/qemu ./internal/vmm/gvisor ./internal/bench/floor ./internal/bench/compare
	@scripts/no-skips .cache/integration.json

# What a driver has to do for everything else to work: a few tests of each kind.
SMOKE := ^TestReal(Conformance|Sandboxes.*|PythonKeepsStateAcrossCalls|ProgramsStreamAndTakeInput|ForkHasEverythingOfItsParent|HibernateAndWake|ColdFallback|MachinesLiveOnWhenTheServerIsKilled|CheckpointsOutliveTheirSandbox|SpaceIsResumedOnce|MergeWithRunsInBoth|EgressRules|ManyRoundsLeaveNothingBehind|MemoryHogHarmsOnlyItself|SixteenCreatesAtOnce|UsersAndSudo|PoolHandsOffMachinesOfTheirOwn)$$

.PHONY: test-smoke
test-smoke: test-deps build $(TOOLBIN)/.built ## some of the tests on real machines of DRIVER (as root)
	$(REAL) $(GOTEST) --jsonfile .cache/smoke.json -- -race -tags integration -count=1 -p 1 -timeout 15m -run '$(SMOKE)' $(TEST_FLAGS) \
		./internal/app ./internal/vmm/$(DRIVER)
	@scripts/no-skips .cache/smoke.json

# How many servers 'make soak' kills, and how long it may take.
SOAK_KILLS   ?= 1000
SOAK_TIMEOUT ?= 6h

.PHONY: soak
soak: test-deps build ## kill 1000 servers at random moments of random operations, on real machines (as root)
	RAMET_KILLS=$(SOAK_KILLS) $(REAL) \
		$(GO) test -race -tags integration -count=1 -timeout $(SOAK_TIMEOUT) -v -run '^TestRealRandomKills$$' $(TEST_FLAGS) ./internal/app
	$(GO) test -race -count=1 -timeout $(SOAK_TIMEOUT) -run '^TestRandomOperationsAndKills$$' ./internal/control -rapid.checks=$(SOAK_KILLS)

.PHONY: check
check: $(TOOLBIN)/.built ## formatter, vet and linters
	@unformatted="$$($(TOOLBIN)/gofumpt -l $$(git ls-files -co --exclude-standard '*.go' | grep -vE '\.(pb|gen|connect)\.go$$'))"; \
		if [ -n "$$unformatted" ]; then echo "not formatted (run 'make fmt'):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet -tags integration ./...
	$(TOOLBIN)/staticcheck -tags integration ./...
	$(TOOLBIN)/errcheck -exclude .errcheck-exclude -ignoregenerated -ignoretests \
		$$($(GO) list ./... | grep -vE '/(clitest|controltest|vmmtest)')
	$(TOOLBIN)/depguard ./...

.PHONY: fmt
fmt: $(TOOLBIN)/.built ## format the code
	$(TOOLBIN)/gofumpt -w $$(git ls-files -co --exclude-standard '*.go' | grep -vE '\.(pb|gen|connect)\.go$$')

.PHONY: generate
generate: $(TOOLBIN)/.built ## generate code from api/ (needs protoc)
	PATH=$(TOOLBIN):$$PATH protoc -I api --go_out=. --go_opt=module=ramet.dev/ramet \
		--connect-go_out=. --connect-go_opt=module=ramet.dev/ramet,simple api/agent/v1/agent.proto \
		api/envd/v1/process.proto api/envd/v1/filesystem.proto
	$(GO) generate ./...

$(TOOLBIN)/.built: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLBIN)
	cd tools && $(GO) build -o $(TOOLBIN)/ tool
	@touch $@

.PHONY: clean
clean: ## remove what was built here (not the server's data)
	rm -rf $(BIN) dist .cache
