# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by image and machine: the layout of a disk. File systems are written straight into the file: no loop device, no mount.
root_mib=8191 esp_mib=512                  # the root begins at 1 MiB, behind room for GRUB

# make_esp FILE SERIAL: an empty system partition; its UUID is the serial number, eight digits, with a dash
make_esp() {
    truncate -s "${esp_mib}M" "$1"
    mformat -i "$1" -F -N "$2" ::
}

# make_disk RAW TREE UUID LABEL [ESP...]: a root file system with the files of a tree, then system partitions with these contents
make_disk() {
    local raw=$1 tree=$2 uuid=$3 label=$4 at=$((root_mib + 1)) root='83, bootable' system=ef esp size table
    shift 4
    [ "$label" = dos ] || { root=L; system=U; }
    table="start=2048, size=${root_mib}MiB, type=$root"
    for esp; do
        size=$(($(stat -c %s "$esp") >> 20))
        table+=$(printf '\nstart=%dMiB, size=%dMiB, type=%s' $at $size $system)
        at=$((at + size))
    done
    truncate -s $((at + 1))M "$raw"        # and room for the second table of GPT
    sfdisk -q --no-reread --wipe never --wipe-partitions never --label "$label" "$raw" <<<"$table"
    mke2fs -q -t ext4 -L root -U "$uuid" -d "$tree" -E offset=1048576 "$raw" ${root_mib}M
    at=$((root_mib + 1))
    for esp; do
        dd if="$esp" of="$raw" bs=1M seek=$at conv=notrunc,sparse status=none
        at=$((at + ($(stat -c %s "$esp") >> 20)))
    done
}
