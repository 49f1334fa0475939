# The short way for people; plain meson works as well.
#   make            build                      make test       everything, see tests/tools/run-all.sh
#   make demo       a real analysis, attacked  make bench      speed next to the peers
#   make install    into DESTDIR and PREFIX    make fuzz       a few minutes of libFuzzer
# SPDX-License-Identifier: Apache-2.0
BUILD  ?= build
PREFIX ?= /usr/local
STAGES ?=
FUZZ_SECONDS ?= 60

.PHONY: all deps deps-test deps-demo deps-bench test demo bench install fuzz clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja: | deps
	meson setup $(BUILD) --prefix $(PREFIX)

deps:
	@scripts/install-deps.sh build
deps-test deps-demo deps-bench: deps-%:
	@scripts/install-deps.sh $*

test: deps-test
	@tests/tools/run-all.sh $(STAGES)

demo: deps-demo
	@$(MAKE) --no-print-directory all
	@FORGE=$(abspath $(BUILD))/src/cli/forge examples/demo.sh

bench: deps-bench
	@$(MAKE) --no-print-directory all
	@FORGE=$(abspath $(BUILD))/src/cli/forge bench/bench.py

# The tests need not be there to install: no cmocka, no bats.
install: | deps
	@[ -e build-install/build.ninja ] || \
		meson setup build-install --buildtype release -Dtests=false --prefix $(PREFIX)
	@meson configure build-install --prefix $(PREFIX)
	meson install -C build-install --destdir "$(DESTDIR)"

fuzz: deps-test
	@tests/tools/fuzz.sh $(FUZZ_SECONDS)

clean:
	rm -rf build build-clang build-asan build-install build-fuzz
