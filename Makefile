# Every target works as the first command in a fresh clone: it makes its own virtual environment.
PYTHON ?= python3
BIN := .venv/bin
# Of these, the first is what a user installs; dev adds the tools of `check` and `test`.
TRAIN := .venv/train.ready
DEV := .venv/dev.ready
REFERENCE := .venv/reference.ready
# What an install compiles or reads: after a change of these it is made again.
INSTALLED := pyproject.toml hatch_build.py \
	$(wildcard src/ownwords/native/*.py src/ownwords/native/source/*.* src/ownwords/native/source/*/*)

.PHONY: help demo test check format docs blog bench fuzz test-browser screenshots check-levels check-baseline test-native test-reference wheel clean

help:
	@echo "make demo            a model of the sample blog: the newcomer's first run"
	@echo "make test            the tests: offline, a few minutes"
	@echo "make check           format, lint, types, floors, docs up to date"
	@echo "make format          put the code into its format, write the generated docs"
	@echo "make docs            write docs/reference.md: every command, setting and field"
	@echo "make bench           speed, memory and quality, measured on this machine: an hour or two"
	@echo "make fuzz            longer random input for the readers"
	@echo "make test-browser    the page of ownwords serve in a real browser, if there is Chromium"
	@echo "make screenshots     pictures of the page over demo.ownwords, for the docs"
	@echo "make check-levels    the tests of the C++ part at each instruction set that runs here"
	@echo "make check-baseline  the same at the lowest one"
	@echo "make test-native     the C++ part under sanitizers: a few minutes"
	@echo "make test-reference  comparisons with independent implementations"
	@echo "make blog            build examples/blog/input/db.sqlite from its posts"
	@echo "make wheel           build the package"

# Where SmolLM2 cannot be had, the demo starts from the base in the box.
demo: $(TRAIN)
	-@$(BIN)/ownwords base add smollm2-135m
	@echo "Training takes 2 to 6 minutes, as many as SmolLM2 needs on this machine (4 with the built-in model), and scoring a third of that."
	$(BIN)/ownwords make examples/blog --workspace demo.ownwords --yes --open

test: $(DEV)
	$(BIN)/python -m pytest -n auto -m "not fuzz and not reference and not browser"

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/size.py

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/generate.py

docs: $(DEV)
	$(BIN)/python docs/generate.py

bench: $(REFERENCE)
	$(BIN)/python bench/processors.py
	$(BIN)/python bench/look.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/inference.py
	$(BIN)/python bench/copying.py
	$(BIN)/python bench/ask.py
	$(BIN)/python bench/serve.py
	$(BIN)/python bench/time_to_quality.py
	$(BIN)/python bench/data_efficiency.py

fuzz: $(DEV)
	$(BIN)/python -m pytest -n auto -m fuzz

# The browser is the system's: Debian's package `chromium`, for one. axe-core checks accessibility.
test-browser: $(DEV) build/axe
	$(BIN)/python -m pytest -m browser

build/axe:
	-npm install --silent --no-save --prefix build/axe axe-core@4.14.1

screenshots: $(DEV)
	$(BIN)/python docs/screenshots.py demo.ownwords

# OWNWORDS_ISA runs any test at a chosen instruction set: none, sse2, avx2, avxvnni, avx512, ...
NATIVE_TESTS := tests/unit/test_native*.py tests/unit/test_fused*.py tests/contract/test_engines.py

check-levels: $(DEV)
	set -e; for isa in $$($(BIN)/python tests/native_levels.py); do \
		echo "OWNWORDS_ISA=$$isa"; \
		OWNWORDS_ISA=$$isa $(BIN)/python -m pytest -q -n auto $(NATIVE_TESTS); \
	done

check-baseline: $(DEV)
	OWNWORDS_ISA=$$($(BIN)/python tests/native_levels.py | head -n 1) \
		$(BIN)/python -m pytest -q -n auto $(NATIVE_TESTS)

test-native: $(DEV)
	$(BIN)/python tests/native/run.py

test-reference: $(REFERENCE)
	$(BIN)/python -m pytest -m reference

blog: $(DEV)
	$(BIN)/python examples/blog/build.py

wheel: $(DEV)
	$(BIN)/python -m build

clean:
	rm -rf .venv dist demo.ownwords

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit("ownwords needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	@touch $@

$(TRAIN): .venv/made $(INSTALLED)
	@echo "Installing, with PyTorch, and compiling the part in C++: a minute or two ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[train]"
	@touch $@

# The tests compare the libraries for all instruction sets with each other.
$(DEV): .venv/made $(INSTALLED)
	OWNWORDS_LEVELS=all $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@ $(TRAIN)

$(REFERENCE): $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,reference]"
	@touch $@
