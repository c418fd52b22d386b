PYTHON ?= python3
BIN := .venv/bin
# What Python has compiled is kept: else each of the many processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-core test-spark test-again coverage check docs screenshots bench soak clean lock

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Two packages of this repository, the product and its benchmark, in one environment with two stamps, which is rebuilt when
# their requirements change, never by hand: the demo alone needs neither Spark nor the tools.
.venv/ready: pyproject.toml bench/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e '.[dev]' -e bench
	touch .venv/demo $@

.venv/demo: pyproject.toml bench/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e . -e 'bench[demo]'
	touch $@

demo: .venv/demo
	$(BIN)/headwater demo --output out/demo
	$(BIN)/headwater demo sites --output out/sites

# File by file, and more at a time than a small machine has cores: half wait for brokers, child processes and clocks. In the order
# of tests/conftest.py, not by the number of tests, which would leave the longest for the end.
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder
# At home without experiments, further cases of what a quicker test shows, and three quarters of the examples of each property;
# CI says THOROUGH=1.
ifdef THOROUGH
export HYPOTHESIS_PROFILE := ci
else
QUICK := not thorough
AND_QUICK := and not thorough
WORD := @echo "left out: experiments, further cases, and most examples of properties; with THOROUGH=1 all are run, as in CI"
endif
ON_SPARK := tests/spark tests/runners src/headwater/spark bench/src/headwater_bench/mllib

# Both halves in one go, by tests/sharing_out.py: what those of Spark compute goes on while the others wait.
test: .venv/ready
	$(BIN)/python $(PYTEST) -n 3 -m '$(QUICK)'
	$(WORD)

test-core: .venv/ready
	$(BIN)/python $(PYTEST) -n 3 -m 'not spark $(AND_QUICK)' $(addprefix --ignore=,$(ON_SPARK))

test-spark: .venv/ready
	$(BIN)/python $(PYTEST) -n 2 -m 'spark $(AND_QUICK)'

# What failed last, by itself. That it passes now makes it no better: it is named, and hangs on load or on what ran before it.
test-again: .venv/ready
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -x -rA

# Child processes and Spark's workers are counted too; what Numba compiles is not seen, and counts as never run.
coverage: .venv/ready
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST) -n 2 -m 'not spark $(AND_QUICK)' $(addprefix --ignore=,$(ON_SPARK))
	$(BIN)/coverage run $(PYTEST) -n 2 -m 'spark $(AND_QUICK)'
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Strict: a link that leads nowhere or a name that is not there ends it.
docs: .venv/ready
	$(BIN)/python -m sphinx -W --keep-going -q docs out/site
	@echo "open out/site/index.html"

# Pictures of the dashboard for README and docs; needs Chromium.
screenshots: .venv/ready
	$(BIN)/python bench/screenshots.py

bench: .venv/ready
	$(BIN)/headwater bench overhead --output out/bench
	$(BIN)/headwater bench scheduler --output out/bench

soak: .venv/ready
	$(BIN)/python bench/soak.py

# Rewrites the pinned versions; names no registry.
lock: .venv/ready
	$(BIN)/python -m pip freeze --exclude-editable | grep -v '^headwater' > constraints.txt

clean:
	rm -rf .venv out
