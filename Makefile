# Henge: everything a person types. `make help` lists it.

CARGO ?= cargo

# What suites build and try: release; or dev, of which `make test` has built most already, with assertions and overflow checks.
PROFILE ?= release
COMMAND = $${CARGO_TARGET_DIR:-target}/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/henge

# Cargo compiles a crate once for each set of features. Tests ask for more of them than the command does, so suites that try the dev
# build name one of the tests, or the whole workspace: then they find what `make test` has compiled, but for what tests have unoptimized.
AS_TESTED = --test e2e
TESTED = $(CARGO) build --locked --quiet --bin henge $(AS_TESTED)

# The first build writes nothing for a second one: it is a fifth shorter. Once cargo was run by hand, an edit is compiled in a second.
ifeq ($(CARGO_INCREMENTAL)$(wildcard $(or $(CARGO_TARGET_DIR),target)/debug/incremental/*),)
export CARGO_INCREMENTAL = 0
endif
# What is optimized in one piece takes 0.7 of the processor time of sixteen. Where processors are few, nothing waits for the longer pieces.
ifeq ($(CARGO_INCREMENTAL)$(filter 1 2 3 4,$(shell nproc)),0$(shell nproc))
export CARGO_PROFILE_DEV_CODEGEN_UNITS ?= 1
endif

# What `henge --version` says beside the version; only of optimized builds, so that a commit does not rebuild the tests.
ifneq ($(PROFILE),dev)
build demo: export HENGE_COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
endif

# By the lock file. A registry that lacks other platforms' packages makes `npm ci` give up; then what the lock file names is still taken.
NPM_INSTALL = { npm ci --no-audit --no-fund --silent >/dev/null 2>&1 || npm install --no-save --no-audit --no-fund --silent; }

.PHONY: help setup web build demo test test-iscsi fmt clippy doc fuzz clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

# Files that a registry names in a macro, where `cargo fmt` does not see them.
REGISTERED = crates/henge-node/src/fronts/*.rs crates/henge-backend/src/registry/*.rs crates/henge-core/src/terms/*.rs

setup: ## Install the packages that build and tests need (Debian)
	@./tools/setup $(if $(filter setup,$(MAKECMDGOALS)),again)

web: ## The web page, to be embedded by the next build; without Node.js 18 and npm a plain page takes its place
	@if [ -n "$$(find web/src web/public web/index.html web/package-lock.json -newer web/dist/index.html 2>/dev/null)" ] || [ ! -f web/dist/index.html ]; then \
	  if command -v npm >/dev/null && cd web && { [ -d node_modules ] || $(NPM_INSTALL); } && npm run --silent build >/dev/null; then \
	    echo "web: built into web/dist"; \
	  else echo "web: not built (it needs Node.js 18 or newer, npm and its registry); henge goes on with a plain page"; fi; \
	fi

build: setup web ## The henge command, optimized: target/release/henge
	$(CARGO) build --locked --profile $(PROFILE) --bin henge $(if $(filter dev,$(PROFILE)),$(AS_TESTED))

demo: setup web ## See it work: three tenants on emulated disk arrays, under three schedulers (ARGS="--keep" …)
	$(CARGO) run --release --quiet --bin henge -- demo $(ARGS)

# Many tests wait for a child, a socket or a sync: more at once than there are processors leave none idle.
test: export RUST_TEST_THREADS ?= $(shell expr 3 \* $$(nproc))
test: setup ## Format, lints, unit, property, documentation and end-to-end tests
	$(CARGO) test --locked --workspace --no-run
	@$(MAKE) --no-print-directory --jobs --keep-going --output-sync=target test-units test-crates test-command test-examples format lint

# What `make test` does side by side, once everything is compiled. Tests from outside are called `it`, and by what they are about.
.PHONY: test-units test-crates test-command test-examples format lint
test-units:
	$(CARGO) test --locked --workspace --lib --bins
test-crates:
	$(CARGO) test --locked --workspace --test 'i*'
test-command:
	$(CARGO) test --locked --workspace --test '[!i]*'
test-examples:
	$(CARGO) test --locked --workspace --doc
format:
	$(CARGO) fmt --check
	rustfmt --check --edition 2024 $(REGISTERED)
# Cargo does one build at a time, and the lints' is the long one: it begins last. The documentation takes what clippy has checked, and nothing is
# checked again: it has the same driver, the same words for it, and by `--examples` the same features as all targets.
lint: CHECKED = driver="$$(rustc --print sysroot)/bin/clippy-driver"; if [ -x "$$driver" ]; then \
	export RUSTC_WORKSPACE_WRAPPER="$$driver" CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__; fi
lint:
	@sleep 3
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@$(CHECKED); RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --lib --bins --examples --quiet

test-iscsi: build ## Other people's initiators against a node: libiscsi's conformance tests, QEMU
	@HENGE=$(COMMAND) ./tools/test-iscsi

.PHONY: test-storage
test-storage: build ## A killed node's writes against its successor's, on a disk that takes 1.5 s a write (root; about a minute)
	@HENGE=$(COMMAND) ./tools/test-storage

.PHONY: test-nbd-pool
test-nbd-pool: build ## A node over nbdkit, qemu-nbd and another node, killed and started again under fio (about two minutes; ARGS=memory: a part)
	@HENGE=$(COMMAND) ./tools/test-nbd-pool $(ARGS)

.PHONY: test-orangefs
test-orangefs: build ## `henge proxy` before OrangeFS servers of this machine: data, lists, shares, SIGHUP, kills, attackers, deadly requests, metadata, users (five minutes; ORANGEFS=DIR: where it is installed; ARGS=data: a part)
	@HENGE=$(COMMAND) ./tools/test-orangefs $(ARGS)

.PHONY: test-ceph
test-ceph: build ## A node before a Ceph cluster of this machine: data, clones, bad input, shares, gateways, kills, beside qemu-nbd (about four minutes; ARGS=data: a part)
	@HENGE=$(COMMAND) ./tools/test-ceph $(ARGS)

.PHONY: test-cluster
test-cluster: build ## Real nodes, killed, cut off, delayed and healed; shares of the total; who is refused (ARGS="shares": a part)
	@HENGE=$(COMMAND) ./tools/test-cluster $(ARGS)

.PHONY: test-hostile
test-hostile: build ## Neighbours who mean harm: what two victims keep of what they had alone (ARGS="--quick", "--ci", "--list", names), of a node and of a manager
	@HENGE=$(COMMAND) ./tools/test-hostile $(ARGS)

.PHONY: test-iscsi-guest
test-iscsi-guest: build ## The Linux kernel's initiator, in a QEMU guest: mkfs, write, mount again, fsck (about a minute)
	@./tools/setup guest
	@HENGE=$(COMMAND) ./tools/test-iscsi-guest

.PHONY: test-nvme
test-nvme: ## NVMe/TCP from outside: sessions in any pieces, a node with NBD, iSCSI and NVMe clients on one contract, a thousand half-open hosts
	$(CARGO) test --locked -p henge-nvme
	$(CARGO) test --locked --workspace --test iscsi -- --include-ignored --nocapture nvme::

.PHONY: bench-nvme
bench-nvme: build ## Server CPU per request over NVMe/TCP, beside iSCSI and NBD in one run (ARGS="--sizes 4096 --json", "--loops": by distance from the gate)
	@HENGE=$(COMMAND) ./tools/bench-nvme $(ARGS)

.PHONY: test-nvme-guest
test-nvme-guest: build ## The Linux kernel's NVMe/TCP host, in QEMU guests of two kernels: mkfs, fio, digests, growth, a restart, reservations, paths, proofs (ARGS=6.12)
	@./tools/setup guest
	@HENGE=$(COMMAND) ./tools/test-nvme-guest $(ARGS)

.PHONY: test-nbd-guest
test-nbd-guest: build ## The Linux kernel's NBD client, in QEMU guests of two kernels: mkfs, fio, reloads, a kill, growth, TLS (ARGS=6.12)
	@./tools/setup guest
	@HENGE=$(COMMAND) ./tools/test-nbd-guest $(ARGS)

.PHONY: test-tls-guest
test-tls-guest: build ## The kernel's own TLS: a node and its clients in QEMU guests of two kernels, of which one encrypts (ARGS=6.18)
	@./tools/setup guest
	@HENGE=$(COMMAND) ./tools/test-tls-guest $(ARGS)

.PHONY: test-blktests
test-blktests: build ## The kernel developers' tests of NVMe over Fabrics, in a QEMU guest (BLKTESTS=DIR, a checkout of blktests; ARGS="010 041")
	@./tools/setup guest
	@HENGE=$(COMMAND) ./tools/test-blktests $(ARGS)

.PHONY: test-web
test-web: setup web ## The web page in a headless Chromium: driven, looked at (out/web), held against axe-core
	@$(TESTED)
	@HENGE=$${CARGO_TARGET_DIR:-target}/debug/henge ./tools/test-web

.PHONY: test-fuzz
test-fuzz: setup ## Whether the fuzz targets compile, and hold for FUZZ_TIME (30) seconds each (ARGS="link_stream …": some of them)
	@./tools/setup fuzz
	@./tools/test-fuzz $(ARGS)

fuzz: FUZZ_TIME ?= 60
fuzz: ## Feed random bytes to every reader of other people's bytes, FUZZ_TIME seconds each (60; TARGETS="link_stream …": some of them)
	@./tools/setup fuzz
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz --version 0.13.2
	@cd fuzz && for target in $${TARGETS:-$$(sed -n 's/^name = "\(.*_.*\)"/\1/p' Cargo.toml)}; do \
	  echo "== $$target"; mkdir -p corpus/$$target out/$$target; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target out/$$target corpus/$$target -- \
	    -max_total_time=$(FUZZ_TIME) -max_len=4096 -verbosity=0 -print_final_stats=1 || exit 1; \
	done

.PHONY: bench-sched
bench-sched: ## CPU time and memory of every scheduler (HENGE_DMCLOCK_BENCH: a peer, see benches/README.md)
	$(CARGO) bench -p henge-sched --bench sched -- $(ARGS)

.PHONY: bench-exchange
bench-exchange: ## How long a gate with many flows pauses while its scheduler is exchanged
	$(CARGO) bench -p henge-sched --bench exchange

.PHONY: bench-sim
bench-sim: ## Disk models against DiskSim and real drives (HENGE_DATA: the reference data), and the simulator's speed
	$(CARGO) bench -p henge-device --bench sim -- $(ARGS)
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(CARGO) bench -p henge-sim --bench sim -- $(ARGS)

.PHONY: bench-traces
bench-traces: ## How fast the text formats of traces are read (HENGE_DATA: the traces)
	$(CARGO) bench -p henge-workload --bench parse

.PHONY: bench-nbd
bench-nbd: build ## Server CPU per request and throughput over NBD, beside nbdkit and qemu-nbd (ARGS="--json memory/unix")
	@./tools/bench-nbd $(ARGS)

.PHONY: bench-nbd-pool
bench-nbd-pool: build ## CPU per request of a pool over an NBD server, beside a pool in memory and that server alone
	@HENGE=$(COMMAND) ./tools/bench-nbd-pool $(ARGS)

.PHONY: bench-ceph
bench-ceph: build ## A pool of a Ceph cluster of this machine beside qemu-nbd over the same image, and shares there
	@HENGE=$(COMMAND) ./tools/test-ceph beside shares

.PHONY: bench-cores
bench-cores: build ## Throughput with 1, 2, 4 and 8 loops, each held to a small part of a processor; CPU per request (ARGS="--hot --tcp", ARGS=--shares; root)
	@HENGE=$(COMMAND) ./tools/bench-cores $(ARGS)

.PHONY: bench-isolation
bench-isolation: build ## What a victim keeps whatever its neighbour does, beside QEMU's and nbdkit's limits (ARGS="--list", ARGS="'nvme-dc/sfq/*/*'")
	@./tools/bench-isolation --henge $(COMMAND) $(ARGS)

.PHONY: bench-link
bench-link: build ## CPU per request of a disk at another node, beside one of the node's own
	@HENGE=$(COMMAND) ./tools/bench-link $(ARGS)

.PHONY: bench-tls
bench-tls: build ## What TLS costs: NBD beside nbdkit and qemu-nbd with theirs, links beside those by a secret (ARGS="--json nbd")
	@HENGE=$(COMMAND) ./tools/bench-tls $(ARGS)

.PHONY: bench-iscsi
bench-iscsi: build ## Requests a second and server CPU over iSCSI, beside tgt (ARGS=--json; DIRECT=true: past the page cache)
	@HENGE=$(COMMAND) ./tools/bench-iscsi $(ARGS)

.PHONY: bench-live
bench-live: build ## A node at work: limits, shares, clients without manners, 1000 disks (ARGS="--json limits shares attacks scale")
	@HENGE=$$(realpath $(COMMAND)) $(CARGO) bench -p henge-node --bench live -- $(ARGS)

.PHONY: test-durability
DURABLE ?= 10000
test-durability: ## Kill the node and cut the power until DURABLE acknowledged flush/FUA writes are checked (10000)
	@HENGE_DURABLE=$(DURABLE) $(CARGO) test --locked --workspace --test durability -- --nocapture

.PHONY: test-faults
FAULTS ?= 1000
SEED ?= 1
test-faults: setup ## FAULTS schedules (1000) from SEED on, and PAIRS (a quarter) of two nodes: killed, without power, with failing storage, link and clock; nothing may be lost (needs FUSE)
	@if [ -c /dev/fuse ]; then HENGE_FAULTS=$(FAULTS) HENGE_PAIRS=$${PAIRS:-$$(($(FAULTS) / 4))} HENGE_SEED=$(SEED) \
		$(CARGO) test --locked --quiet --workspace --test faults -- --include-ignored --nocapture; \
	else echo "skipped: test-faults (no /dev/fuse)"; fi

.PHONY: test-shown
test-shown: ## The latency that a node shows beside the simulator's of the same arrivals (on a machine at rest)
	$(CARGO) test --locked --workspace --test e2e -- --ignored --nocapture shown_latency

.PHONY: test-live
test-live: ## Shares and limits in real time: clients of a node, applications before one and two proxies (on a machine at rest)
	$(CARGO) test --locked --workspace --test e2e --test it live -- --ignored --nocapture --test-threads 1

.PHONY: soak
SOAK ?= 1000000
soak: ## SOAK operations (1000000) on storage that fails, stalls for hours and answers in any order: what is left behind; as many reads through a page cache that is emptied
	@HENGE_SOAK=$(SOAK) $(CARGO) test --locked --quiet --workspace --lib soak -- --nocapture --test-threads 1
	@HENGE_READS=$(SOAK) $(CARGO) test --locked --quiet --workspace --lib comes_and_goes

.PHONY: bench-meters
bench-meters: ## What metering costs a request (ARGS=--json)
	$(CARGO) bench -p henge-core --bench meters -- $(ARGS)

.PHONY: mutants
mutants: ## Plant the bugs of tools/mutants.d one by one; each must be caught by the test it names
	@./tools/mutants

.PHONY: bench-vpfs
bench-vpfs: build ## The PVFS2 proxy: throughput against none, CPU against a splice forwarder, memory (ROUNDS=5)
	HENGE=$(COMMAND) $(CARGO) bench -p henge-proxy --bench vpfs -- $(ARGS)

.PHONY: bench
bench: bench-sched bench-nbd bench-vpfs bench-sim bench-live ## All of them

test-vpfs: ## The proxy before a double of PVFS2 over real sockets; captures of real traffic where HENGE_DATA has them
	$(CARGO) test -p henge-pvfs2 -p henge-proxy -- --nocapture --test-threads 1
	$(MAKE) test-vpfs-live
.PHONY: test-vpfs

test-vpfs-live: ## Of these, the ones that take minutes: shares through proxies beside the simulator's, two-level contracts
	$(CARGO) test -p henge-proxy --test it shares -- --ignored --nocapture --test-threads 1
.PHONY: test-vpfs-live

.PHONY: test-security
test-security: ## Attacks on a manager, nodes and their doors by scripts, each refused; other people's clients (ARGS=tls: NBD with TLS alone)
	@$(TESTED)
	@HENGE=$${CARGO_TARGET_DIR:-target}/debug/henge ./tools/test-security $(ARGS)

.PHONY: deny
deny: ## Licences, sources and known weaknesses of everything that is linked (deny.toml)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny --version 0.20.2
	$(CARGO) deny --locked check

.PHONY: test-supply
test-supply: ## Lock files, sources and licences of all crates, the SBOM; known weaknesses where cargo-deny is installed (nothing is compiled)
	@./tools/test-supply

.PHONY: sbom
sbom: ## What the release is made of, as CycloneDX: out/henge.cdx.json
	@mkdir -p out
	@$(CARGO) metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu | ./tools/sbom web/package-lock.json > out/henge.cdx.json
	@echo "sbom: out/henge.cdx.json"

clean: ## Forget what was built
	$(CARGO) clean

demo-cluster: build ## A manager and three nodes: admission until full, real clients, and kills (KEEP=1: leave it running)
	@HENGE=$(COMMAND) ./tools/demo-cluster
.PHONY: demo-cluster

demo-ceph: build ## A Ceph cluster, two gateways and three tenants: an OSD and a gateway are killed (Ceph's packages; KEEP=1: leave it running)
	@HENGE=$(COMMAND) ./tools/demo-ceph
.PHONY: demo-ceph

test-api: ## Fuzz the manager's REST API with schemathesis, by its OpenAPI document (API_EXAMPLES per operation: 50)
	@$(TESTED)
	@HENGE=$${CARGO_TARGET_DIR:-target}/debug/henge API_EXAMPLES=$(or $(API_EXAMPLES),50) ./tools/test-api
.PHONY: test-api

bench-manager: ## Decisions, memory and restart of a manager with 10,000 disks on 1,000 nodes
	$(CARGO) test --release -p henge-manager --lib -- --ignored --nocapture ten_thousand_disks
.PHONY: bench-manager

openapi: ## Write docs/openapi.json anew from the server's source
	$(CARGO) run --quiet --bin henge -- manager --openapi > docs/openapi.json
.PHONY: openapi

.PHONY: deb
deb: setup web ## The Debian package: target/debian/henge_*.deb
	@./tools/deb

.PHONY: release
release: deb sbom ## A release in out/release: package, archive, parts list, checksums (CHANGELOG.md names the version)
	@./tools/release

.PHONY: test-deb
test-deb: deb ## The package in a clean Debian: installed, used, upgraded under load, removed, purged (needs root)
	@./tools/setup deb
	@./tools/test-deb

.PHONY: docs
docs: ## The documentation as a site: target/docs/index.html; a link that leads nowhere is an error
	@cd site && { [ -d node_modules ] || $(NPM_INSTALL); } && npm run --silent build
	@echo "docs: built into target/docs"

.PHONY: pictures
pictures: build ## The pictures of docs/choose.md anew, by the simulator (ARGS=--check: are they what it draws now?)
	@HENGE=$(COMMAND) ./tools/pictures $(ARGS)

.PHONY: test-docs
test-docs: build ## Run the commands of the documentation's pages, check those that cannot be run, and the pictures (ARGS="start.md": a page)
	@HENGE=$(COMMAND) ./tools/test-docs $(ARGS)
	@HENGE=$(COMMAND) ./tools/pictures --check
