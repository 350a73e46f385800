# The list of common jobs. Every job is a script in ci/ or a cargo command, so this file is not needed to work on uwork.

SHELL := /bin/bash
PREFIX ?= /usr/local
# rustup installs here, and some shells do not have it in PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help run test flaky install build lab fmt lint tidy doc loom stress fuzz vm bench report-check native deps deny deny-install \
	defects mutants mutants-install package release-check msrv semver semver-install deb deb-test clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

run: ## from a fresh checkout to the main job: build, checksums of a real tree, quick benchmark with a verdict
	@ci/tour.sh

test: ## from a fresh checkout to a green test run, with a summary of the steps; FULL=1: all that CI runs
	@FULL="$(FULL)" ci/all.sh

flaky: ## every suite under load, without repetition, and a table of what failed; hours. FLAKY="20 busy2 rust" selects (ci/flaky.sh)
	@ci/flaky.sh $(FLAKY)

install: ## build and install the C library and the command uwork; PREFIX (default /usr/local), LIBDIR (default PREFIX/lib) and DESTDIR say where; BRIDGE=1: also libuwork-bridge
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" BRIDGE="$(BRIDGE)" ci/install.sh

build: ## build the command uwork, optimized
	cargo build --release --package uwork-cli

lab: ## build uwork-lab, the command of the benchmarks and of the server, optimized
	CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target} cargo build --release --manifest-path lab/Cargo.toml --package uwork-lab

fmt: ## format the code (ci/fmt.sh only checks)
	cargo fmt --all
	cargo fmt --all --manifest-path lab/Cargo.toml

lint: ## clippy, warnings denied
	ci/clippy.sh

tidy: ## the house rules: sizes, banned words, layers, dead links, tests named in the documents
	ci/tidy.sh

doc: ## build the documentation, warnings denied
	ci/doc.sh

loom: ## check the engine's protocols over all interleavings
	LOOM_DEEP=1 ci/loom.sh

stress: ## every operation on real threads, optimized, for STRESS_ROUNDS (20) rounds, after HISTORIES (1000000) in virtual time
	HISTORIES=$${HISTORIES:-1000000} ci/stress.sh $${STRESS_ROUNDS:-20}

fuzz: ## look for input that breaks a parser, for FUZZ_SECONDS (60) each
	ci/fuzz.sh

vm: ## queues, per-CPU data and task work in virtual machines (x86_64, aarch64): isolated CPUs, CPUs that go offline
	ci/vm.sh

bench: ## every benchmark with its rivals, and a page of the figures; more than an hour. BENCH=--quick: minutes
	@ci/bench.sh $(BENCH)

report-check: ## open the page of make bench in headless Chromium, and check its charts
	@ci/report.sh $${CARGO_TARGET_DIR:-target}/bench/report.html

native: ## install the native rivals (oneTBB, Asio, GLib, libuv) and build uwork-lab with them
	ci/native.sh

deps: ## install what is missing to build and test, or say exactly how to get it
	@ci/deps.sh

deny: ## check licences, advisories and sources of the dependencies
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: make deny-install"; exit 1; }
	cargo deny check
	cargo deny --manifest-path lab/Cargo.toml check

deny-install: ## build cargo-deny, which takes minutes
	cargo install cargo-deny --locked

mutants: ## break the engine on purpose, and list what no test notices; more than an hour
	ci/mutants.sh

defects: ## plant known defects in a copy of the tree, one at a time, and show that the tests find each; more than an hour
	ci/defects.sh

mutants-install: ## build cargo-mutants, which takes minutes
	cargo install cargo-mutants --locked

package: ## build each crate from its package, in the order of publishing; nothing is uploaded
	ci/package.sh --build

msrv: ## compile with the oldest supported compiler (rust-version in Cargo.toml)
	ci/msrv.sh

semver: ## compare the public interface with that of the last tag
	ci/semver.sh

semver-install: ## build cargo-semver-checks, which takes minutes
	cargo install cargo-semver-checks --locked

deb: ## build Debian packages into target/deb: libuwork0, libuwork-dev, uwork
	ci/deb.sh

release-check: ## what a release needs beside a green test run: packages, the oldest compiler, licences, semver, Debian packages
	ci/release.sh

deb-test: ## build them, install them into a root of Debian's own packages, and use them there; needs root
	ci/deb-test.sh

clean: ## remove everything that was built
	cargo clean
