# Everything sets itself up: `make demo` and `make test` work in a fresh clone.
# PYTHON=... names the interpreter for .venv; ARGS=... is passed on to the command; WORKERS=1 runs tests one by one.
PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.headrace-setup
SOURCES := src tests bench scripts examples

.PHONY: help setup demo test unit sim matrix check format conformance drills sink-drills bench docs pictures clean

help:
	@echo "make demo         a broker, log events, and a Spark pipeline over them (about a minute)"
	@echo "make test         all tests, on all cores (ARGS='tests/unit -k log' for some)"
	@echo "make unit         the quick ones: no clients, no clusters, no Spark (under a minute)"
	@echo "make sim          whole clusters under seeded faults (SEEDS=1000 FIRST=1, or SEED=7 ARGS=-v for one)"
	@echo "make matrix       unit and client tests on every Python that is installed, from 3.11 on"
	@echo "make check        lint, types and house rules"
	@echo "make conformance  the same client tests against Apache Kafka and against Headrace"
	@echo "make drills       three brokers killed, stopped and cut off under load, with a report (an hour; ARGS='kill-all --short' for some)"
	@echo "make sink-drills  Spark's exactly-once sink with drivers, executors and brokers killed (ARGS='two-drivers --brokers 1 --short' for some)"
	@echo "make bench        side by side with Apache Kafka (W=W1,W4 ROUNDS=3 QUICK=1 choose)"
	@echo "make docs         write the generated pages again"
	@echo "make pictures     draw the README's pictures again, from real output"
	@echo "make format       format the code"
	@echo "make clean        remove .venv, those of the matrix, and caches"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup
	@touch $@

demo: setup
	@scripts/java-ensure
	@$(PY) -m examples.demo $(ARGS)

test: setup
	@scripts/apt-ensure curl:curl kcat:kcat gcc:cc libc6-dev openssl:openssl strace:strace iproute2:ip e2fsprogs:mkfs.ext4
	@scripts/java-ensure
	@scripts/apt-ensure zookeeper postgresql mariadb-server-core mariadb-client
	@scripts/pytest --second-try $(ARGS)

unit: setup
	@scripts/apt-ensure openssl:openssl strace:strace
	@scripts/unit $(ARGS)

sim: setup
	@PYTHONHASHSEED=0 $(PY) -m headrace.testing.sim $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(FIRST),--first $(FIRST)) $(ARGS)

matrix:
	@scripts/apt-ensure curl:curl kcat:kcat openssl:openssl strace:strace
	@scripts/matrix $(ARGS)

check: setup
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_tidy.py
	@scripts/apt-ensure strace:strace
	$(PY) -m bench.guard --check

format: setup
	$(PY) -m ruff check --fix $(SOURCES)
	$(PY) -m ruff format $(SOURCES)

conformance: setup
	@PY="$(PY)" scripts/conformance $(ARGS)

drills: setup
	@scripts/java-ensure
	@scripts/apt-ensure zookeeper iproute2:ip
	@$(PY) -m headrace.testing.drills $(ARGS)
	$(if $(ARGS),,@$(PY) -m headrace.testing.sink_drills)
	$(if $(ARGS),,@$(PY) -m pytest -q --long tests/cluster/test_exactly_once.py)

sink-drills: setup
	@scripts/java-ensure
	@$(PY) -m headrace.testing.sink_drills $(ARGS)

bench: setup
	@$(PY) -m bench $(if $(W),--workloads $(W)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick) $(ARGS)

docs: setup
	@$(PY) scripts/gen_docs.py

pictures: setup
	@$(PY) scripts/pictures.py

clean:
	rm -rf .venv .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
