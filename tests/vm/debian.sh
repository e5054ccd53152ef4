# SPDX-License-Identifier: MIT
# Sourced by what makes Debian 12 trees: which archive to take from, and what goes in.

# listed FILE...: the packages that such files name, for mmdebstrap --include
listed() { cat "$@" | grep -v '^#' | xargs | tr ' ' ,; }

# sources: a line for each of its suites that apt knows here, security updates too; with MIRROR just that one
sources() {
    if [ -n "${MIRROR:-}" ]; then echo "deb $MIRROR bookworm main"; return; fi
    # shellcheck disable=SC2016  # $(...) is for apt
    apt-get indextargets --format '$(CREATED_BY) $(CODENAME) $(REPO_URI) $(COMPONENT)' |
        awk '$1 == "Packages" && $2 ~ /^bookworm(-updates|-security)?$/ && $4 == "main" {print "deb", $3, $2, $4}' | sort -u | grep .
}
