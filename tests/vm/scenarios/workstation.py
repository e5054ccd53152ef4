# SPDX-License-Identifier: MIT
"""The plan workstation on a server with five-level page tables: CUDA toolkit by apt and on the PATH, the samples' numbers beside the proof,
NCCL's level, HMM off, a device for containers; all in force after one reboot, and gone after revert."""
from expected import expect_as_at_first, expect_ready
from scenario import expect

STARTS = "delivered"
CARDS = "two-ports"
NVCC = "/usr/local/cuda-12.8/bin/nvcc"
# output of p2pBandwidthLatencyTest on two cards
SAMPLE = """#!/bin/sh
cat <<'END'
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 901.00  26.30
     1  26.40 902.00
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   1.50   1.31
     1   1.33   1.50
END
"""
FIVE_LEVELS = """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c "sed 's/^flags.*/& la57/; s/^address sizes.*/address sizes\\t: 52 bits physical, 57 bits virtual/' /proc/cpuinfo > /run/cpuinfo"
ExecStart=/bin/mount --bind /run/cpuinfo /proc/cpuinfo
[Install]
WantedBy=sysinit.target
"""
SEED = {"/etc/p2pd/p2pd.yaml": "reboot_delay_s: 0\n", "/etc/systemd/system/five-levels.service": FIVE_LEVELS,
        "/usr/local/bin/p2pBandwidthLatencyTest": SAMPLE}
HMM_OFF = "cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
LEFT = f"ls {NVCC} /etc/profile.d/p2pd-cuda.sh /etc/nccl.conf /run/cdi/p2pd.json 2>/dev/null || true"


def run(machine):
    machine.wait_boot()
    machine.run("chmod 755 /usr/local/bin/p2pBandwidthLatencyTest && systemctl enable --now five-levels")
    machine.run("apt-get --yes purge cuda-toolkit-12-8 cuda-nvcc-12-8 cuda-toolkit-config-common", 300)
    first = machine.look("at first")
    status = machine.apply("ready", plan="workstation")
    expect_ready(machine, status)
    expect(status["reboots"] == 1, f"{status['reboots']} reboots")
    said = machine.run("sh -lc 'command -v nvcc && nvcc'")
    expect(said.startswith(NVCC) and "release 12.8" in said, said)
    expect("NCCL_P2P_LEVEL=" in machine.run("cat /etc/nccl.conf"), "NCCL's level is not set")
    expect(machine.run(HMM_OFF) == "Y", "HMM is on")
    shown = machine.run("p2pctl gain")
    expect("p2pBandwidthLatencyTest" in shown and "26.4" in shown and "nvbandwidth: not installed" in shown, shown)
    status = machine.turn_back("idle")
    expect(status["result"] == "reverted", str(status)[:400])
    machine.wait_boot()
    expect(machine.run(LEFT) == "", f"left: {machine.run(LEFT)}")
    expect_as_at_first(machine.look("reverted"), first)
    expect(machine.run(f"modprobe nvidia-uvm && {HMM_OFF}") == "N", "HMM stays off")
