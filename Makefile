# One word per task; ARGS goes to the command: make up ARGS="--ipv4 10.128.0.9"

CARGO      ?= cargo
TARGET     := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
CONFLUX    := $(TARGET)/release/conflux
SUDO       := $(if $(filter 0,$(shell id -u)),,sudo)
SOAK_CASES ?= 20000
CHAOS_MINUTES ?= 30
# Random schedules of the simulation; `make test` runs a few dozen.
SIM_SCHEDULES ?= 100000
FUZZ_SECONDS ?= 20
FUZZ_TARGETS := frames messages statements chain tickets requests packets translate core
ARGS       ?=

.PHONY: help build setup test lint deny unit e2e next soak fuzz bench demo show chaos up down uninstall

help:
	@echo "make up [ARGS=..]   build, install and start on this machine"
	@echo "make down           stop, keep everything"
	@echo "make uninstall      stop and remove everything"
	@echo "make demo           a realm of five machines on this one, told step by step"
	@echo "make show           every promise measured on this machine, in a table (ARGS=..)"
	@echo "make chaos          holders killed, cut, drained at random under load (ARGS=\"--minutes 30\")"
	@echo "make test           install what is missing, then every check (lint, deny, unit, e2e)"
	@echo "make bench          the benchmarks of the packet way (docs/performance.md)"
	@echo "make soak           the randomised tests, for long (SOAK_CASES=$(SOAK_CASES) each), and the"
	@echo "                    whole simulation (SIM_SCHEDULES=$(SIM_SCHEDULES), docs/failover.md), and chaos"
	@echo "make fuzz           the fuzz targets (FUZZ_SECONDS=$(FUZZ_SECONDS) each)"

build:
	packaging/setup.sh build
	$(CARGO) build --release --locked -p conflux

setup:
	packaging/setup.sh

test: setup lint deny unit e2e

lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --quiet

# The advisory database lies on the Internet: checked where that can be reached, said where not.
deny:
	$(CARGO) deny --locked check licenses bans sources
	@if timeout 60 $(CARGO) deny fetch db >/dev/null 2>&1; then \
	  $(CARGO) deny --locked check advisories; \
	else \
	  echo "advisories: the database cannot be reached from here, not checked"; \
	fi

unit:
	$(CARGO) nextest run --locked --workspace --exclude e2e

# Namespaces and interfaces need root; the binary under test is the one that ships.
e2e: build next
	$(SUDO) env "PATH=$$PATH" CONFLUX_BIN="$(CONFLUX)" $(CARGO) nextest run --locked -p e2e

# Beside the binary that ships, the same sources as a release after it might be: the tests run both.
# Not optimised: it is there for what it says, and a release build more would take minutes.
next:
	$(CARGO) build --locked -p conflux --features next
	mkdir -p "$(dir $(CONFLUX))"
	mv -f "$(TARGET)/debug/conflux" "$(CONFLUX)-next"

soak:
	PROPTEST_CASES=$(SOAK_CASES) $(CARGO) nextest run --locked --release \
	  --features conflux-core/soak -p conflux-proto -p conflux-core -E 'not binary(sim)'
	SIM_SCHEDULES=$(SIM_SCHEDULES) $(CARGO) nextest run --locked --release --no-fail-fast \
	  --success-output final --features conflux-core/soak -p conflux-core --test sim
	$(MAKE) chaos ARGS="--minutes $(CHAOS_MINUTES)"

# `make unit` tries the same targets on the corpora and some mutations, without a fuzzer. What is found
# stays in fuzz/libfuzzer/artifacts; new inputs are kept in fuzz/libfuzzer/corpus. The libraries are
# unstable Rust's, the compiler is the usual one. No sanitizer: the crates under test forbid unsafe.
fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	  echo "make fuzz: cargo-fuzz is missing: cargo install --locked cargo-fuzz" >&2; exit 1; }
	@c++ --version >/dev/null 2>&1 || { \
	  echo "make fuzz: a C++ compiler is missing: apt-get install g++" >&2; exit 1; }
	@for target in $(FUZZ_TARGETS); do \
	  mkdir -p fuzz/libfuzzer/corpus/$$target && \
	  RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$(TARGET)/fuzz" $(CARGO) fuzz run --fuzz-dir fuzz/libfuzzer \
	    --sanitizer none $$target fuzz/libfuzzer/corpus/$$target fuzz/corpora/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; \
	done

demo show chaos: build
	packaging/setup.sh
	$(CARGO) build --release --locked -p e2e --bins
	$(SUDO) env CONFLUX_BIN="$(CONFLUX)" "$(TARGET)/release/$@" $(ARGS)

# No namespace, no root: what one core does with packets in memory.
bench:
	$(CARGO) bench --locked -p conflux-core --bench micro
	$(CARGO) bench --locked -p conflux-core --bench scale

up: build
	$(SUDO) install -m 0755 "$(CONFLUX)" /usr/local/bin/conflux
	$(SUDO) /usr/local/bin/conflux up $(ARGS)

down:
	$(SUDO) /usr/local/bin/conflux down

uninstall:
	$(SUDO) /usr/local/bin/conflux uninstall --yes
	$(SUDO) rm -f /usr/local/bin/conflux

.NOTPARALLEL:
