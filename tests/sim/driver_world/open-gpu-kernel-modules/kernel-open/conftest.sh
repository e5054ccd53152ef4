#!/bin/sh
# SPDX-License-Identifier: MIT OR GPL-2.0-or-later
# What the target kernel offers, found by compiling.
#   conftest.sh CC CFLAGS compile_test NAME       prints "#define NV_..." or "#undef NV_..."
#   conftest.sh CC CFLAGS compiler                prints the compiler's name for /proc/driver/nvidia/version
#   conftest.sh CC CFLAGS cc_version_check OUTPUT warns where it is not the kernel's compiler; never fails
CC=$1 CFLAGS=$2 command=$3 name=$4

# tries NAME CODE: CODE compiles where this kernel has NAME. A name that is there may not be declared anew as a variable.
tries() {
    macro=$(echo "NV_$1" | tr '[:lower:]' '[:upper:]')
    folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
    printf '#include <linux/kconfig.h>\n%s\n' "$2" > "$folder/test.c"
    # shellcheck disable=SC2086  # flags are words
    if $CC $CFLAGS -c "$folder/test.c" -o "$folder/test.o" >/dev/null 2>&1; then echo "#define $macro"; else echo "#undef $macro"; fi
}

case $command in
    compile_test)
        case $name in
            pci_rebar_get_possible_sizes_present)
                tries "$name" '#include <linux/pci.h>
                    u32 test(struct pci_dev *dev) { return pci_rebar_get_possible_sizes(dev, 1); }' ;;
            proc_create_single_data_present)
                tries "$name" '#include <linux/proc_fs.h>
                    void *test(void) { return &proc_create_single_data; }' ;;
            pci_resize_resource_has_exclude_bars_arg)
                tries "$name" '#include <linux/pci.h>
                    int test(struct pci_dev *dev) { return pci_resize_resource(dev, 1, 0, 0); }' ;;
            *) echo "conftest.sh: no test $name" >&2; exit 1 ;;
        esac ;;
    compiler)
        printf '#define NV_COMPILER "%s"\n' "$($CC -v 2>&1 | tail -n 1)" ;;
    cc_version_check)
        theirs=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\(.*\)"$/\1/p' "$name/.config" 2>/dev/null)
        ours=$($CC --version 2>/dev/null | head -n 1)
        [ "${theirs#* }" = "${ours#* }" ] || cat >&2 <<END
Warning: Compiler version check failed:

The major and minor number of the compiler used to
compile the kernel:

$theirs

does not match the compiler used here:

$ours
END
        ;;
    *) echo "conftest.sh: no command $command" >&2; exit 1 ;;
esac
