# SPDX-License-Identifier: MIT
# install: laying down
next=100
put_aside() {
    [ -e "$1" ] || [ -L "$1" ] || return 0
    if [ -L "$1" ]; then
        printf '2: %s\n%s\n%04o %d %d\n' "${1#"$root"}" "$(readlink "$1")" 0777 0 0 >> "$backup/log"
        rm -f "$1"
    else
        printf '%d: %s\n%s %s\n' $next "${1#"$root"}" "$(crc "$1")" "$(stat -c '%a %u %g' "$1")" >> "$backup/log"
        mv "$1" "$backup/$next" || return 1
        next=$((next + 1))
    fi
}
make_folder() {
    [ ! -d "$1" ] || return 0
    make_folder "$(dirname "$1")" && mkdir "$1" && echo "${1#"$root"}" >> "$backup/dirs"
}
destination() {
    case $1 in
        UTILITY_BINARY|INSTALLER_BINARY|UTILITY_BIN_SYMLINK) echo "$root/usr/bin" ;;
        *_LIB|*_SYMLINK) echo "$root/usr/lib/x86_64-linux-gnu" ;;
        FIRMWARE) echo "$root/lib/firmware/nvidia/$version" ;;
        KERNEL_MODULE_SRC|DKMS_CONF) dirname "$root/usr/src/nvidia-$version/${2#kernel-open/}" ;;
        KERNEL_MODULE) echo "$root/lib/modules/$kernel/kernel/drivers/video" ;;
        DOCUMENTATION) echo "$root/usr/share/doc/NVIDIA_GLX-1.0" ;;
        *) return 1 ;;
    esac
}
# place FILE MODE TYPE [TARGET]: one line of the manifest
place() {
    folder=$(destination "$3" "$1") || return 1
    path=$folder/$(basename "$1")
    make_folder "$folder" || return 1
    case $registered$3 in    # what DKMS has laid there is the same, and is written again
        yKERNEL_MODULE_SRC|yDKMS_CONF) rm -f "$path" ;;
        *) put_aside "$path" || return 1 ;;
    esac
    case $3 in
        *_SYMLINK) ln -s "$4" "$path" && printf '0: %s\n%s\n' "${path#"$root"}" "$4" >> "$backup/log" ;;
        *) cp "$1" "$path" && chmod "$2" "$path" && printf '1: %s\n%s\n' "${path#"$root"}" "$(crc "$path")" >> "$backup/log" ;;
    esac
}
build_modules() {
    sources=/lib/modules/$kernel/build
    if [ ! -d "$root$sources" ]; then
        error "Unable to find the kernel source tree for the currently running kernel.  Please make sure you have installed the kernel source files for your kernel and that they are properly configured."
        return 1
    fi
    say "Building kernel modules"
    if ! make -C kernel-open modules -j"${jobs:-$(nproc)}" SYSSRC="$root$sources" > build.log 2>&1; then
        note "$(cat build.log)"
        error "An error occurred while performing the step: \"Building kernel modules\". See ${log#"$root"} for details."
        return 1
    fi
}
# dkms.conf as it is generated from the runfile's form, of the modules that were built
fill_dkms_conf() {
    number=0 list=$(mktemp)
    for module in kernel-open/*.ko; do
        printf 'BUILT_MODULE_NAME[%d]="%s"\nDEST_MODULE_LOCATION[%d]="/kernel/drivers/video"\n' $number "$(basename "$module" .ko)" $number
        number=$((number + 1))
    done > "$list"
    sed -i -e "s/__VERSION_STRING/$version/; s/__JOBS/${jobs:-$(nproc)}/; s/__EXCLUDE_MODULES//; s/will be generated/was generated/" \
        -e "/__DKMS_MODULES/{r $list
            d}" kernel-open/dkms.conf
    rm -f "$list"
}
# Sources and built modules go to DKMS as an archive, before anything else is laid down; registered=y where it took them.
# The modules are then DKMS' alone, and not in the manifest.
registered=''
register_with_dkms() {
    if has no-kernel-modules || has no-kernel-module-source || has no-dkms || [ -n "$root" ]; then return 0; fi
    command -v dkms >/dev/null || return 0
    stage=$(mktemp -d) built=$stage/dkms_main_tree/$kernel/x86_64
    mkdir -p "$built/log" "$built/module" "$stage/dkms_source_tree"
    echo 2.0.0 > "$stage/dkms_main_tree/dkms_dbversion"
    cp build.log "$built/log/make.log"
    sed '1,/^---$/d' .manifest | while read -r file _ type _; do
        case $type in KERNEL_MODULE_SRC|DKMS_CONF) ;; *) continue ;; esac
        make_folder "$(destination "$type" "$file")"
        mkdir -p "$stage/dkms_source_tree/$(dirname "${file#kernel-open/}")"
        cp "$file" "$stage/dkms_source_tree/${file#kernel-open/}"
    done
    cp kernel-open/*.ko "$built/module/"
    tar -C "$stage" -cf "$stage.tar" .
    say "Registering the kernel modules with DKMS:"
    # shellcheck disable=SC2046  # an option, or none
    if { dkms ldtarball "$stage.tar" && dkms install $(no_depmod) -m nvidia -v $version -k "$kernel"; } >> "${log:-/dev/null}" 2>&1 &&
        dkms status -m nvidia -v $version -k "$kernel" | grep -q ': installed'; then registered=y
    else
        warn "Failed to register the NVIDIA kernel modules with DKMS. The NVIDIA kernel modules will be installed, but will not be automatically rebuilt if you change your kernel."
    fi
    rm -rf "$stage" "$stage.tar"
}
# what is to be installed: the manifest, less what was not asked for, and the modules that were built
wanted() {
    sed '1,/^---$/d' .manifest | while read -r file mode type target; do
        case $type in
            KERNEL_MODULE_SRC|DKMS_CONF) has no-kernel-module-source && continue ;;
            GL_LIB|GL_SYMLINK) has no-opengl-files && continue ;;
        esac
        echo "$file $mode $type $target"
    done
    has no-kernel-modules || [ -n "$registered" ] || for module in kernel-open/*.ko; do echo "$module 0644 KERNEL_MODULE"; done
}
install_driver() {
    if [ -x "$root/usr/bin/nvidia-uninstall" ]; then
        uninstall_log=$(dirname "${log:-$root/var/log/x}")/nvidia-uninstall.log
        say "Running \`/usr/bin/nvidia-uninstall...\`"
        "$root/usr/bin/nvidia-uninstall" -s --log-file-name="$uninstall_log" >/dev/null 2>&1 ||
            say "nvidia-uninstall failed; see $uninstall_log for more details."
    fi
    [ ! -d "$backup" ] || { given="${given}skip-depmod "; uninstall; }
    mkdir -p "$backup" && chmod 700 "$backup" || return 1
    ( umask 077; printf '%s\n%s\n' $version "$description" > "$backup/log" ) || return 1
    register_with_dkms
    say "Installing '$description' ($version):"
    wanted > .wanted || return 1
    while read -r file mode type target; do
        place "$file" "$mode" "$type" "$target" || { error "Unable to install $file"; return 1; }
    done < .wanted
}
finish() {
    [ -z "$root" ] || return 0
    ldconfig
    if has rebuild-initramfs && command -v update-initramfs >/dev/null; then update-initramfs -u -k "$kernel" >> "${log:-/dev/null}" 2>&1 || return 1; fi
    has no-kernel-modules && return 0
    depmod -a "$kernel"
    has skip-module-load || modprobe nvidia-drm || { error "Unable to load the kernel module 'nvidia-drm'."; return 1; }
}

if has driver-info; then
    if [ ! -f "$backup/log" ]; then echo "There is no NVIDIA driver currently installed."; exit 1; fi
    echo "The currently installed driver is: '$(sed -n 2p "$backup/log")' (version: $(sed -n 1p "$backup/log"))."
    exit 0
fi
if has uninstall; then uninstall || exit 1; exit 0; fi

cd "$(dirname "$0")" || exit 1
if ! [ -f .manifest ]; then error "Unable to find the manifest"; failed; fi
check_x || failed
run_hook pre-unload
check_loaded || failed
say "Installing NVIDIA driver version $version."
check_alternate || exit 1
run_hook pre-install
check_nouveau || failed
if has no-kernel-modules; then
    warn "You specified the '--no-kernel-modules' command line option, nvidia-installer will not install any kernel modules as part of this driver installation, and it will not remove existing NVIDIA kernel modules not part of an earlier NVIDIA driver installation.  Please ensure that NVIDIA kernel modules matching this driver version are installed separately."
else
    build_modules || failed
    fill_dkms_conf
fi
install_driver || failed
finish || failed
run_hook post-install
say "Installation of the $description (version: $version) is now complete."
exit 0
