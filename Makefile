# The verbs of the house; CI calls the same.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is kept from start to start, as on a user's machine: tests start hundreds of commands.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: docs docs-serve reference long postgres-test torch torch-test setup demo down test check unit fix lock fuzz calibrate host-effect eight-arms client-bench chaos week own-time pool audit engine-tables

setup: $(VENV)/.done

# uv reads the lock and installs from pip's index; where pip is set up for another one, so is uv.
$(VENV)/.done: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	touch $@

demo: setup
	$(BIN)/eagle3-sweep demo

down: setup
	$(BIN)/eagle3-sweep down

test: check unit

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Three at a time, file by file (half of it is waiting); what measures real time runs afterwards, alone.
unit: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "not alone and not chaos and not long"
	$(BIN)/python -m pytest -m "alone and not long"

TORCH := .venv-torch

# torch is no dependency of the controller: what runs in an engine's environment is tried in one of
# its own. By pip and not by uv: pip may know of an index with the CPU build (0.9 GB, not 4.5 GB).
$(TORCH)/.done: $(VENV)/.done
	test -x $(TORCH)/bin/python || $(BIN)/python -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	touch $@

torch: $(TORCH)/.done

# All-reduce with gloo, in real processes.
torch-test: torch
	$(BIN)/python -m pytest -q tests/test_collectives.py

# Whole sweeps of single features over SSH, beyond what `make test` plays; three minutes.
long: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "long and not alone"
	$(BIN)/python -m pytest -m "long and alone"

# Prefect and MLflow on a real PostgreSQL (Debian's, started in a folder of its own) with two
# workers, from the lines of infra/systemd; skips with a reason where there is none.
postgres-test: setup
	$(BIN)/python -m pytest -q -rs tests/test_postgresql.py

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

DOCS := .venv-docs

# The pages' tools are no dependency of the product: an environment and a lock of their own.
$(DOCS)/.done: docs/site/requirements.lock $(VENV)/.done
	test -x $(DOCS)/bin/python || $(BIN)/python -m venv $(DOCS)
	$(BIN)/uv pip install --quiet --python $(DOCS)/bin/python --require-hashes -r docs/site/requirements.lock
	touch $@

# The pages as a site in build/site: anything that leads nowhere, or to another machine, is an error.
docs: $(DOCS)/.done
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	$(BIN)/python -m tests.site_links build/site

docs-serve: $(DOCS)/.done
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve --strict --dev-addr 127.0.0.1:8008

# Every key of host, sweep, probe, patch and level set files, from the models; writes docs/reference.
reference: setup
	$(BIN)/python -m configs.reference

# Only after a change of pyproject.toml's dependencies.
lock: setup
	$(BIN)/uv pip compile --group docs --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o docs/site/requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra rehearsal --extra postgres --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock

FUZZ_SECONDS ?= 20

# Everything that reads foreign text. atheris has a venv of its own: it is not in the lock.
fuzz: setup
	test -x .venv-fuzz/bin/python || $(BIN)/python -m venv .venv-fuzz
	.venv-fuzz/bin/python -m pip install --quiet --disable-pip-version-check atheris==3.0.0
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$(.venv-fuzz/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth"
	mkdir -p build/fuzz
	for target in $$(.venv-fuzz/bin/python -m fuzz.targets 2>/dev/null); do \
	  .venv-fuzz/bin/python -W ignore -m fuzz.targets $$target -max_total_time=$(FUZZ_SECONDS) \
	    -timeout=10 -rss_limit_mb=2048 -max_len=16384 -artifact_prefix=build/fuzz/$$target- || exit 1; \
	done

# How often verdicts err, in simulated nights; writes docs/evidence/calibration.md.
calibrate: setup
	$(BIN)/python -m benchmarks.calibration --seed $(or $(SEED),1) --nights $(or $(N),1000)

# How intervals over several hosts hold, and other methods beside; writes docs/evidence/host-effect.md.
host-effect: setup
	$(BIN)/python -m benchmarks.host_effect --seed $(or $(SEED),1) --nights $(or $(N),1000)

# Eight arms on the rehearsal host against its truth; writes docs/evidence/eight-arms.md.
eight-arms: setup
	$(BIN)/python -m benchmarks.eight_arms

PEERS := .venv-peers

# Each peer has an environment of its own: guidellm brings torch, which makes every start slower.
$(PEERS)/%/.done: $(VENV)/.done
	test -x $(PEERS)/$*/bin/python || $(BIN)/python -m venv $(PEERS)/$*
	$(BIN)/uv pip install --quiet --python $(PEERS)/$*/bin/python $(NEEDS)
	touch $@

$(PEERS)/aiperf/.done: NEEDS = aiperf==0.13.0 pybase64==1.5.1 requests
$(PEERS)/guidellm/.done: NEEDS = guidellm==0.8.1

# Our load client beside its peers against one endpoint; needs two idle cores and twelve minutes.
client-bench: $(PEERS)/aiperf/.done $(PEERS)/guidellm/.done
	$(BIN)/python -m benchmarks.client --table docs/evidence/client.md

# Every fault of the table (a good half hour; writes docs/evidence/chaos.md), a part of it
# (ONLY="contact and cut"), or N faults drawn at random over whole sweeps (SEED=7 N=50).
chaos: setup
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED) --faults $(or $(N),20)) $(if $(ONLY),--only "$(ONLY)")

# Seven nights in fast motion: four hosts, two workers, PostgreSQL, a killed worker, a reboot, a
# night without MLflow; writes docs/evidence/week.md. A quarter of an hour and two idle cores.
week: setup
	$(BIN)/python -m tests.week $(if $(APART),--apart $(APART))

# Our own time, round trips, bytes and memory; writes docs/evidence/own-time.md.
own-time: setup
	$(BIN)/python -m benchmarks.own_time

# One sweep on one rehearsal host and on four at once; writes docs/evidence/pool.md.
pool: setup
	$(BIN)/python -m benchmarks.pool

# What released engines have, read out of their wheels (a gigabyte of downloads, once; kept in the
# cache); writes configs/engines/*.tsv and docs/evidence/sglang-versions.md. CHECK=1 only looks.
engine-tables: setup
	$(BIN)/python -m benchmarks.engine_flags $(if $(CHECK),--check)
	$(BIN)/python -m benchmarks.engine_versions $(if $(CHECK),--check)

# Known weaknesses of what the lock pins; tells, and never stops anything. In a venv of its own: it
# is not in the lock.
audit: setup
	test -x .venv-audit/bin/pip-audit || $(BIN)/python -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	-.venv-audit/bin/pip-audit --disable-pip --require-hashes --progress-spinner off -r requirements.lock
