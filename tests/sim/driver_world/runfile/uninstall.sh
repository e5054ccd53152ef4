# SPDX-License-Identifier: MIT
# uninstall: the driver that is there. $backup/log names version and description, then what was installed and what was put aside

# each_entry CALLBACK: calls it with KIND NAME DETAIL for each; kinds: 0 link, 1 file, 2 link put aside, 100... file put aside
each_entry() {
    callback=$1
    sed 1,2d "$backup/log" | while IFS= read -r entry && IFS= read -r detail; do
        kind=${entry%%: *} name=${entry#*: } owner=''
        [ "$kind" != 2 ] || IFS= read -r owner
        $callback "$kind" "$root$name" "$detail" "$owner"
    done
}
unchanged() {
    case $1 in
        0) [ -L "$2" ] && [ "$(readlink "$2")" = "$3" ] && return 0
           say "The previously installed symlink '${2#"$root"}' has target '$(readlink "$2")', but it was installed with target '$3'.  ${2#"$root"} will not be uninstalled." ;;
        1) [ -f "$2" ] && [ "$(crc "$2")" = "$3" ] && return 0
           if [ -f "$2" ]; then say "The installed file '${2#"$root"}' has a different checksum ($(crc "$2")) than when it was installed ($3). ${2#"$root"} will not be uninstalled."
           else say "Unable to access previously installed file '${2#"$root"}'."; fi ;;
    esac
    return 1
}
check_entry() { case $1 in 0|1) unchanged "$@" || echo altered ;; esac; }
remove_entry() {
    case $1 in 0|1) ;; *) return ;; esac
    (log=''; unchanged "$@") || return    # told by check_entry already
    rm -f "$2" || say "Unable to remove installed file '${2#"$root"}'."
}
restore_entry() {
    case $1 in
        0|1) ;;
        2) [ -e "$2" ] || [ -L "$2" ] || ln -s "$3" "$2" ;;
        *) [ -e "$2" ] || mv "$backup/$1" "$2" || say "Unable to restore file '${2#"$root"}'." ;;
    esac
}
uninstall() {
    if [ ! -d "$backup" ]; then echo "No driver backed up."; say "No driver backed up."; return 1; fi
    if [ ! -f "$backup/log" ]; then error "Failure opening /var/lib/nvidia/log (No such file or directory)."; return 1; fi
    if [ "$(stat -c %a "$backup/log")" != 600 ]; then
        error "The file permissions of /var/lib/nvidia/log have been changed since the file was written!"; return 1
    fi
    [ -z "$(each_entry check_entry)" ] || warn "Your driver installation has been altered since it was initially installed; this may happen, for example, if you have since installed the NVIDIA driver through a mechanism other than nvidia-installer (such as your distribution's native package management system).  nvidia-installer will attempt to uninstall as best it can.  Please see the file '${log#"$root"}' for details."
    say "Uninstalling $(sed -n 2p "$backup/log") ($(sed -n 1p "$backup/log")):"
    uninstall_from_dkms "$(sed -n 1p "$backup/log")"
    each_entry remove_entry
    each_entry restore_entry
    [ ! -f "$backup/dirs" ] || sort -r "$backup/dirs" | while IFS= read -r folder; do rmdir "$root$folder" 2>/dev/null; done
    rm -rf "$backup"
    unload
    if [ -z "$root" ]; then
        has skip-depmod || depmod -a "$kernel"
        ldconfig
        [ ! -d /run/systemd/system ] || systemctl daemon-reload
    fi
    return 0
}
# DKMS, which the modules are given to unless --no-dkms is said
in_dkms() { [ -z "$root" ] && command -v dkms >/dev/null && [ -n "$(dkms status -m nvidia -v "$1" 2>/dev/null)" ]; }
no_depmod() { ! dkms --help 2>&1 | grep -q -e --no-depmod || echo --no-depmod; }
uninstall_from_dkms() {
    in_dkms "$1" || return 0
    say "DKMS module detected; removing..."
    # shellcheck disable=SC2046  # an option, or none
    dkms remove $(no_depmod) -m nvidia -v "$1" --all >> "${log:-/dev/null}" 2>&1 || warn "Failed to remove installed DKMS module!"
}
unload() {
    [ -z "$root" ] || return
    has skip-module-unload || for module in nvidia-peermem nvidia-uvm nvidia-drm nvidia-modeset nvidia; do rmmod $module 2>/dev/null; done
}
