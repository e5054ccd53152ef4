# SPDX-License-Identifier: MIT
# nvidia-installer of the driver world, the first of three parts that make puts together, and nvidia-uninstall where it is called so:
# flags, default answers of --silent, order of checks, messages, manifest and exit codes (0 and 1) of the real one. It asks nothing:
# what would be a question takes its default answer. DRIVER_WORLD_ROOT is put before every path of the host, for tests without root.
umask 022
root=${DRIVER_WORLD_ROOT:-}
version=@VERSION@
description="NVIDIA Accelerated Graphics Driver for Linux-x86_64"
backup=$root/var/lib/nvidia hooks=$root/usr/lib/nvidia
log=''

note() { [ -z "$log" ] || echo "$*" >> "$log"; }
say() { note "-> $*"; }
warn() { note "WARNING: $*"; printf '\nWARNING: %s\n\n' "$*" >&2; }
error() { note "ERROR: $*"; printf '\nERROR: %s\n\n' "$*" >&2; }
# A question whose default stands: continue returns 0, abort 1
continues() { say "$1 (Answer: Continue installation)"; }
aborts() { say "$1 (Answer: Abort installation)"; return 1; }
failed() {
    error "Installation has failed.  Please see the file '${log#"$root"}' for details.  You may find suggestions on fixing installation problems in the README available on the Linux driver download page at www.nvidia.com."
    exit 1
}
crc() { gzip -1 -c "$1" | tail -c 8 | od -An -tu4 -N4 | tr -d ' '; }    # CRC-32, which ends every gzip stream

# the command line: what is taken and not named in set_value changes nothing here
flags=' accept-license driver-info uninstall skip-module-unload skip-module-load sanity expert no-questions silent no-ncurses-color
 no-nvidia-modprobe no-precompiled-interface no-abi-note no-rpms no-backup no-recursion kernel-module-only kernel-modules-only
 no-kernel-module no-kernel-modules no-x-check no-nouveau-check disable-nouveau no-disable-nouveau run-nvidia-xconfig
 no-distro-scripts no-opengl-files no-wine-files no-kernel-module-source no-check-for-alternate-installs no-unified-memory no-drm
 no-peermem dkms no-dkms install-compat32-libs no-install-compat32-libs install-libglvnd no-install-libglvnd skip-depmod systemd no-systemd
 allow-installation-with-running-driver no-allow-installation-with-running-driver rebuild-initramfs no-rebuild-initramfs '
valued=' log-file-name ui tmpdir kernel-name kernel-source-path kernel-output-path kernel-install-path kernel-include-path
 kernel-module-type kernel-module-build-directory concurrency-level utility-prefix utility-libdir opengl-prefix opengl-libdir x-prefix documentation-prefix
 kernel-module-source-prefix '
given=' ' log_file='' kernel='' jobs=''
known() { case $2 in *[[:space:]]"$1"[[:space:]]*) return 0 ;; esac; return 1; }
has() { case $given in *" $1 "*) return 0 ;; esac; return 1; }
invalid() { error "Invalid commandline, please run \`$(basename "$0") --help\` for usage information."; exit 1; }
set_value() {
    case $1 in
        log-file-name) log_file=$2 ;;
        kernel-name) kernel=$2 ;;
        kernel-module-type) [ "$2" = open ] || [ "$2" = proprietary ] || invalid ;;
        concurrency-level) jobs=$2 ;;
    esac
}
long() {
    case $1 in
        -s) echo --silent ;; -q) echo --no-questions ;; -a) echo --accept-license ;; -i) echo --driver-info ;; -e) echo --expert ;;
        -z) echo --no-nouveau-check ;; -b) echo --no-backup ;; -r) echo --no-recursion ;; -K) echo --kernel-modules-only ;;
        -n) echo --no-precompiled-interface ;; -c) echo --no-ncurses-color ;; -X) echo --run-nvidia-xconfig ;;
        -k) echo --kernel-name ;; -M) echo --kernel-module-type ;; -m) echo --kernel-module-build-directory ;; -j) echo --concurrency-level ;;
        -M=*) echo "--kernel-module-type=${1#*=}" ;; -m=*) echo "--kernel-module-build-directory=${1#*=}" ;; -k=*) echo "--kernel-name=${1#*=}" ;; -j=*) echo "--concurrency-level=${1#*=}" ;;
        *) echo "$1" ;;
    esac
}
usage() {
    printf '\n%s [options]\n\nThis program installs the NVIDIA Accelerated Graphics Driver for Linux-x86_64 %s.\n\n' "$(basename "$0")" $version
    for word in $flags $valued; do echo "  --$word"; done
}
command_line=$(for word in "$0" "$@"; do printf '    %s\n' "$word"; done)
while [ $# -gt 0 ]; do
    word=$(long "$1")
    case $word in
        -h|--help|-A|--advanced-options) usage; exit 0 ;;
        -v|--version) printf '\nnvidia-installer:  version %s\n' $version; exit 0 ;;
        --*=*) name=${word#--} name=${name%%=*}; known "$name" "$valued" || invalid; set_value "$name" "${word#*=}" ;;
        --*)
            name=${word#--}
            if known "$name" "$flags"; then given="$given$name "
            elif known "$name" "$valued" && [ $# -gt 1 ]; then set_value "$name" "$2"; shift
            else invalid; fi ;;
        *) invalid ;;
    esac
    shift
done
[ "$(basename "$0")" != nvidia-uninstall ] || given="${given}uninstall "
! has no-kernel-module || given="${given}no-kernel-modules "

if [ -n "$log_file" ]; then log=$log_file
elif has uninstall; then log=$root/var/log/nvidia-uninstall.log
else log=$root/var/log/nvidia-installer.log; fi
if ! : > "$log" 2>/dev/null; then
    echo "nvidia-installer: Error opening log file '$log' for writing; disabling logging." >&2
    log=''
fi
note "nvidia-installer log file '$log'"
note "creation time: $(date)"
note "installer version: $version"
note ''
note "PATH: $PATH"
note ''
note "nvidia-installer command line:"
note "$command_line"
note ''
if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then error "nvidia-installer must be run as root"; exit 1; fi
kernel=${kernel:-$(uname -r)}
