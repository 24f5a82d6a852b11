# Henge: everything a person types. `make help` lists it.

CARGO ?= cargo

.PHONY: help setup build test fmt clippy doc clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: ## Install the packages that build and tests need (Debian)
	@./tools/setup

build: setup ## The henge command, optimized: target/release/henge
	$(CARGO) build --release --bin henge

test: setup ## Format, lints, unit, property, documentation and end-to-end tests
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

clean: ## Forget what was built
	$(CARGO) clean
