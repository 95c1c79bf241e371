# The two commands a newcomer needs are `make app` and `make test`; the README has the plain pip lines.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: app test test-slow hostile perf check resolve picture seed-history install install-dev clean

app: install
	HOME=$${HOME:-/tmp} $(BIN)/streamlit run app.py

# Two processes, file by file; what is computed first, as pages have times to keep. Both parts run whatever the
# first says. Bytecode is written whatever the environment says: every process and every server would compile the
# project and its tests anew.
test: export PYTHONDONTWRITEBYTECODE =
test: install-dev
	@failed=0; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations 25 -m "not slow and not gpu and not browser" --ignore tests/browser || failed=1; \
	$(BIN)/python -m pytest tests/browser -n 2 --dist loadfile --durations 25 -m "browser and not slow" || failed=1; \
	exit $$failed

# What `make test` leaves out for its time: every size and scheme of a picture, every fault of a write.
test-slow: export PYTHONDONTWRITEBYTECODE =
test-slow: install-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "slow and not gpu and not browser" --ignore tests/browser
	$(BIN)/python -m pytest tests/browser -n 2 --dist loadfile -m "browser and slow"

# Thousands of hostile files, addresses and answers: make hostile MINUTES=20 SEED=1
MINUTES ?= 5
SEED ?= 0
hostile: install-dev
	$(BIN)/python -m tests.hostile.campaign --minutes $(MINUTES) --seed $(SEED)

# Times of a large history and of every page of the app, on a machine that does nothing else.
perf: install-dev
	$(BIN)/python -m tests.perf.history --runs 1000
	$(BIN)/python -m tests.perf.pages --repeat 10 --runs 1000

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# All pinned files resolve to wheels of the public index, on the machines that people have, without what this one
# has at hand. flash-attn is a source package.
resolve: install-dev
	for platform in x86_64-manylinux_2_28 aarch64-apple-darwin; do \
		grep -hEv '^(flash-attn|-r)' requirements*.txt | env $$(env | sed -nE 's/^((UV|PIP)_[A-Z_]*)=.*/-u \1/p') \
			MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv --no-config pip compile --quiet --only-binary :all: \
			--python-version 3.11 --python-platform $$platform - >/dev/null || exit 1; \
	done

# The pictures of README and docs/review.md, as the browser test sees them.
picture: install-dev
	DSOCR_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -m "browser and not slow" tests/browser/test_first_minutes.py
	cp build/screenshots/first-compare-1440-light.png docs/compare.png
	cp build/screenshots/first-review-1440-light.png docs/review.png

# The runs that the pages show at first start; on a machine that does nothing else, some minutes.
seed-history: install
	$(BIN)/python -m data.history_seed.make

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

# torch goes first and alone: with it in place nothing pulls in another build of it. The project itself is
# installed from this checkout, for the `dsocr` command; what it needs is there by then.
$(VENV)/.installed: requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install $$(grep '^torch==' requirements.txt)
	$(PIP) install -r requirements.txt
	$(PIP) install --no-deps -e .
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(PIP) install -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
