# SPDX-License-Identifier: MIT
# Sourced by the scripts that make trees of a system: selects the archive and the packages. MIRROR names another archive.

# listed FILE...: the packages that such files name, for mmdebstrap --include
listed() { cat "$@" | grep -v '^#' | xargs | tr ' ' ,; }

# sources [SUITE]: lines of sources.list, from the archives that apt on this host uses for Debian 12, with updates; or MIRROR only
sources() {
    local suite=${1:-bookworm}
    if [ -n "${MIRROR:-}" ]; then echo "deb $MIRROR $suite main"; return; fi
    # shellcheck disable=SC2016  # $(...) is for apt
    apt-get indextargets --format '$(CREATED_BY) $(CODENAME) $(REPO_URI) $(COMPONENT)' |
        awk '$1 == "Packages" && $2 ~ /^bookworm(-updates|-security)?$/ && $4 == "main" {print "deb", $3, $2, $4}' |
        sed "s/ bookworm/ $suite/" | sort -u | grep .
}

# sources_of_ubuntu SUITE FOLDER: Ubuntu's lines. Debian has no key of that archive: it comes from a package there, with a pinned checksum
sources_of_ubuntu() {
    local from=${MIRROR:-http://archive.ubuntu.com/ubuntu} keyring=$2/keyring.deb pocket
    curl -fsS --retry 3 -o "$keyring" "$from/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb" &&
        echo "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8 $keyring" | sha256sum --check --quiet >&2 || return
    dpkg-deb -x "$keyring" "$2/keyring"
    for pocket in '' -updates -security; do
        echo "deb [signed-by=$2/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg] $from $1$pocket main universe"
    done
}
