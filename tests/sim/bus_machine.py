# SPDX-License-Identifier: MIT
"""The machine on which a bus of one's own runs: a Debian that boots by GRUB, as far as PLANS look at it, and its restart."""
import subprocess

from tree import boot, noted, write

P2PD, GUEST, NOBODY = 64321, 64322, 65534  # user ids inside

USERS = f"root:x:0:0::/root:/bin/sh\np2pd:x:{P2PD}:{P2PD}::/:/usr/sbin/nologin\nnobody:x:{NOBODY}:{NOBODY}::/:/usr/sbin/nologin\nguest:x:{GUEST}:{GUEST}::/:/bin/sh\n"
GROUPS = f"root:x:0:\ntty:x:5:\np2pd:x:{P2PD}:\nguest:x:{GUEST}:\nnogroup:x:{NOBODY}:\n"

# "prove" only looks, "work" changes a file, "arguments" wants a restart, "stuck" a person. Of each the last step
# waits while the file `hold` exists: see Bus.hold(). The goal is not tried before the gates above it hold.
STEPS = {
    "options": "{gate: options, title: module options, check: modprobe-options, fix: modprobe-options,"
               " with: {module: nvidia, options: {NVreg_EnableMSI: 1}}}",
    "arguments": "{gate: arguments, title: kernel arguments, check: kernel-cmdline, fix: kernel-cmdline,"
                 " with: {arguments: [iommu=pt]}}",
    "stuck": "{gate: stuck, title: an argument that only a person can give, check: kernel-cmdline,"
             " with: {arguments: [nobody.gives=1]}}",
    "proof": "{goal: proof, title: the benchmark, check: p2p-bench, after: [AFTER]}",
}
PLANS = {"prove": ["proof"], "work": ["options", "proof"], "arguments": ["options", "arguments", "proof"],
         "stuck": ["options", "stuck"]}

# etc/limited: what kernels load from a peer is wrong; etc/broken: nothing is right
BENCH = """#!/bin/sh
while [ -e /etc/hold ]; do : >/run/held; sleep 0.05; done
rm -f /run/held
proven=true limited=false writes=fit reads=fit
if [ -e /etc/broken ]; then proven=false writes=unfit reads=unfit
elif [ -e /etc/limited ]; then proven=false limited=true reads=unfit; fi
use() { printf '{"use": "%s", "fit": "%s", "why": ""}' "$1" "$2"; }
echo '{"judgement": {"proven": '$proven', "limited": '$limited', "summary": "the stand-in of the tests says '$proven'", "fit":
  ['"$(use copies $writes), $(use nccl $writes), $(use custom-all-reduce $reads), $(use atomics not_tested)"']}}'
"""

GRUB_MKCONFIG = """#!/bin/sh
. /etc/default/grub
for file in /etc/default/grub.d/*.cfg; do [ -e "$file" ] && . "$file"; done
cat <<END
if [ "\\${next_entry}" ] ; then
  set default="\\${next_entry}"
  set next_entry=
  save_env next_entry
else
  set default="0"
fi
menuentry 'Debian' --class debian --id debian {
  linux /boot/vmlinuz root=/dev/vda ro $GRUB_CMDLINE_LINUX_DEFAULT
  initrd /boot/initrd.img
}
if [ -f  \\${config_directory}/custom.cfg ]; then source \\${config_directory}/custom.cfg; fi
END
"""


def make_machine(place):
    """That machine, in place/tree and place/tools."""
    tree, tools = place / "tree", place / "tools"
    write(tree / "etc/passwd", USERS)
    write(tree / "etc/group", GROUPS)
    write(tree / "etc/nsswitch.conf", "passwd: files\ngroup: files\n")
    write(tree / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    write(tree / "etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    write(tree / "etc/modprobe.d/nvidia.conf", "options nvidia NVreg_UsePageAttributeTable=1\n")
    write(tree / "etc/p2pd/p2pd.yaml", "plan: work\nlog_level: debug\n")
    for name, steps in PLANS.items():
        text = "".join(f"  - {STEPS[step]}\n" for step in steps).replace("AFTER", ", ".join(steps[:-1]))
        write(tree / f"etc/p2pd/plans/{name}.yaml", f"name: {name}\ntitle: {name} of the tests\nsteps:\n{text}")
    for name in ("vmlinuz", "initrd.img"):
        write(tree / "boot" / name, name)
    (tree / "run/systemd/inhibit").mkdir(parents=True)
    (tree / "run/mount").mkdir()  # mount(8) would make it
    write(tools / "grub-mkconfig", GRUB_MKCONFIG, 0o755)
    write(tools / "grub-probe", "#!/bin/sh\necho ext2\n", 0o755)
    write(tools / "update-initramfs", "#!/bin/sh\n", 0o755)
    write(tools / "p2p-bench", BENCH, 0o755)
    menu = subprocess.run(["sh", "-c", GRUB_MKCONFIG.replace("/etc/", f"{tree}/etc/")], check=True, capture_output=True)
    write(tree / "boot/grub/grub.cfg", menu.stdout, 0o444)
    subprocess.run(["grub-editenv", tree / "boot/grub/grubenv", "create"], check=True)
    boot(tree, "quiet")


def restart(tree):
    """As a reboot does: a new boot id, /run empty, the arguments of the entry that GRUB picks."""
    arguments = next(line for line in (tree / "boot/grub/grub.cfg").read_text().splitlines()
                     if line.startswith("  linux ")).split(" ro ")[1].strip()
    environment = tree / "boot/grub/grubenv"
    if "next_entry=p2pd-trial\n" in environment.read_text():
        arguments += f" {noted(tree / 'boot/grub/custom.cfg')} p2pd.trial=1 panic=30"
        subprocess.run(["grub-editenv", environment, "set", "next_entry="], check=True)
    boot(tree, arguments)
    for left in [*(tree / "run").glob("motd.d/*"), *(tree / "run").glob("reboot-required*")]:
        left.unlink()
