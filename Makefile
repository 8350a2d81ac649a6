# What a person or a packager types. `make test` is what CI runs.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# `release`, or `debug` to install what `cargo build` made.
TARGET ?= release
CARGO_TARGET_DIR ?= target

built := $(CARGO_TARGET_DIR)/$(TARGET)
root := $(DESTDIR)$(PREFIX)
bindir := $(root)/bin
libdir := $(root)/lib/git-claim
includedir := $(root)/include
mandir := $(root)/share/man
bashdir := $(root)/share/bash-completion/completions
zshdir := $(root)/share/zsh/site-functions
fishdir := $(root)/share/fish/vendor_conf.d

pages := $(notdir $(wildcard man/*.*))
sections := $(sort $(subst .,,$(suffix $(pages))))
commands := git-claim git-claims git-unclaim
programs := $(commands) git-claim-server collab-lease

version = $(shell sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
# The time that the packages carry, so that the same tree makes the same bytes:
# the commit's, which is also that of each file in the archive of `make dist`.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)
DISTDIR ?= $(CARGO_TARGET_DIR)/dist
DEBDIR ?= $(CARGO_TARGET_DIR)/debian
DEBFLAGS ?=

.PHONY: all test torture fuzz lint demo bench docs install uninstall deb dist publish-check

all:
	$(CARGO) build --workspace --locked --release

# Installs what the tests need, builds, and runs every test.
test:
	tests/run.sh

# The tests that torment the ledger, for so many operations: an hour or so.
# Optimised, and overflows are still found.
torture: export TORTURE_OPERATIONS ?= 1000000
torture:
	$(CARGO) build --workspace --locked --profile fuzz
	$(CARGO) test --locked --profile fuzz -p git-claim-plugin --test plugin -- --nocapture torture:: power::
	$(CARGO) test --locked --profile fuzz -p git-claim --test e2e -- --nocapture torture:: large::

# Random inputs for all that reads what comes from outside: so many for what is
# quick, fewer for the rest. Optimised in the same way.
fuzz: export FUZZ_INPUTS ?= 10000000
fuzz:
	$(CARGO) build --workspace --locked --profile fuzz
	$(CARGO) test --locked --profile fuzz -p git-claim-plugin --lib --test plugin -- --nocapture \
		fuzz:: a_file_of_beads_says
	$(CARGO) test --locked --profile fuzz -p git-claim-server --lib -- --nocapture \
		whatever_is_set_is_understood_or_refused
	$(CARGO) test --locked --profile fuzz -p git-claim --lib -- --nocapture \
		urls_are_read_as_git_reads_them where_a_url_leads whatever_git_lists_is_read_or_refused
	$(CARGO) test --locked --profile fuzz -p git-claim --test e2e -- --nocapture \
		fuzz:: structs_of_any_size

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Two people race for one issue on a throwaway forge.
demo:
	tests/demo.sh

# Ratios, measured side by side in one run, and whether they are as they should
# be. The first is about the disk; the second leaves it out where it can, and has
# a plugin without etcd's client beside the usual one.
memory := $(firstword $(wildcard /dev/shm) /tmp)
installed := $(abspath $(CARGO_TARGET_DIR))/installed
bench:
	$(CARGO) build --locked --release -p git-claim-plugin --no-default-features
	install -D -m 644 $(built)/libgit_claim_plugin.so $(installed)/without-etcd.so
	$(MAKE) all
	install -m 755 $(programs:%=$(built)/%) $(installed)
	install -m 644 $(built)/libgit_claim_plugin.so $(installed)
	$(CARGO) bench --locked -p git-claim-plugin --bench ledger
	TMPDIR=$(memory) PROGRAMS=$(installed) \
		$(CARGO) bench --locked -p git-claim --bench claims

# Writes the completions anew, and what the manual and the README have from the
# code or from the programs' answers.
docs:
	$(CARGO) build --workspace --locked
	SNAPSHOTS=overwrite $(CARGO) test -p git-claim --locked --test e2e docs

# Builds nothing, so that `sudo make install` after `make` needs no toolchain.
install:
	umask 022 && install -d -m 755 $(bindir) $(libdir) $(includedir) \
		$(sections:%=$(mandir)/man%) $(bashdir) $(zshdir) $(fishdir)
	install -m 755 $(programs:%=$(built)/%) $(bindir)
	install -m 644 $(built)/libgit_claim_plugin.so $(libdir)
	install -m 644 plugin/include/git_claim_plugin.h $(includedir)
	for page in $(pages); do \
		install -m 644 man/$$page $(mandir)/man$${page##*.} || exit 1; \
	done
	ln -sf collab-lease.8 $(mandir)/man8/git-claim-server.8
	for name in $(commands); do \
		install -m 644 completions/$$name.bash $(bashdir)/$$name && \
		install -m 644 completions/_$$name $(zshdir)/_$$name && \
		install -m 644 completions/$$name.fish $(fishdir)/$$name.fish || exit 1; \
	done

uninstall:
	rm -f $(programs:%=$(bindir)/%) $(libdir)/libgit_claim_plugin.so
	rm -f $(includedir)/git_claim_plugin.h
	for page in $(pages) git-claim-server.8; do rm -f $(mandir)/man$${page##*.}/$$page; done
	rm -f $(commands:%=$(bashdir)/%) $(commands:%=$(zshdir)/_%) $(commands:%=$(fishdir)/%.fish)
	-rmdir $(libdir)

# Debian packages of what `make` built: `git-claim`, and `git-claim-server` with
# the plugin.
deb:
	@$(CARGO) deb --version >/dev/null 2>&1 || { \
		echo "error: cargo-deb makes the packages, and it is not here" >&2; \
		echo "hint: $(CARGO) install cargo-deb --locked" >&2; \
		exit 1; \
	}
	for package in git-claim git-claim-server; do \
		SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) CARGO_TARGET_DIR=$(CARGO_TARGET_DIR) \
			$(CARGO) deb --package $$package --locked --no-build --strip \
			--output $(DEBDIR)/ $(DEBFLAGS) || exit 1; \
	done

# The source of the current commit, the same bytes whoever packs it.
dist: archive = $(DISTDIR)/git-claim-$(version).tar
dist:
	@git diff --quiet HEAD -- || { \
		echo "error: there are changes that no commit has" >&2; \
		echo "hint: git commit, or git stash; the archive is that of HEAD" >&2; \
		exit 1; \
	}
	mkdir -p $(DISTDIR)
	git -c tar.umask=0022 -c core.autocrlf=false archive --format=tar \
		--prefix=git-claim-$(version)/ --output=$(archive) HEAD
	gzip -9nf $(archive)
	@echo $(archive).gz

# Packs each crate as crates.io would get it, and builds it from what was packed,
# against the others of them. Uploads nothing.
publish-check:
	$(CARGO) publish --workspace --dry-run --locked
